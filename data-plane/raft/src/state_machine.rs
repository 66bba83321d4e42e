//! openraft's state machine of one group, on a [`Machine`].
//!
//! A received snapshot is installed *before* openraft hears of it (see `receive`): openraft counts a
//! snapshot as there once it has accepted it, so a transfer that broke after that would be fatal.
//! A snapshot holds committed entries only, so a machine that is ahead of what openraft knows is
//! sound: entries at or below its position are passed over. One lock orders the two.

use crate::codec;
use crate::kinds::{Entry, Kinds, LogId, Snapshot, SnapshotMeta, StoredMembership, from_raft, to_raft};
use crate::machine::{Body, Committed, Machine, SnapshotSource};
use crate::storage::blocking;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use std::io;
use std::sync::Arc;
use undb_log::Log;
use undb_types::GroupId;

/// Most entries and command bytes handed to the machine in one call; one entry may be larger.
const APPLY_LEN_MAX: usize = 1024;
const APPLY_BYTES_MAX: usize = 8 << 20;

/// What openraft hands around as a snapshot.
pub(crate) enum SnapshotData {
    /// Being read here, to be sent.
    Source(Box<dyn SnapshotSource>),
    /// Received, and already in the machine.
    Installed,
}

/// The machine with the lock that orders applies and installs. Clones are the same machine.
#[derive(Clone)]
pub(crate) struct Shared {
    machine: Arc<dyn Machine>,
    // Held across a call of the machine; taken by threads that may block, only. Guards the position.
    applied: Arc<parking_lot::Mutex<Option<undb_types::LogId>>>,
}

impl Shared {
    pub fn new(machine: Arc<dyn Machine>) -> io::Result<Self> {
        let (applied, _) = machine.applied()?;
        Ok(Self { machine, applied: Arc::new(parking_lot::Mutex::new(applied)) })
    }

    fn state(&self) -> io::Result<(Option<undb_types::LogId>, Bytes)> {
        let _alone = self.applied.lock();
        self.machine.applied()
    }

    fn snapshot(&self) -> io::Result<Box<dyn SnapshotSource>> {
        let _alone = self.applied.lock();
        self.machine.snapshot()
    }

    /// The last entry that the state reflects.
    pub fn applied(&self) -> Option<undb_types::LogId> {
        *self.applied.lock()
    }

    /// Installs a snapshot from its chunks unless the state already reflects as much. May block for
    /// as long as the chunks take.
    pub fn receive(
        &self,
        meta: &SnapshotMeta,
        chunks: &mut dyn Iterator<Item = io::Result<Bytes>>,
    ) -> io::Result<()> {
        let log_id = meta.last_log_id.map(from_raft);
        let mut applied = self.applied.lock();
        if log_id.map(|id| id.index) <= applied.map(|id| id.index) {
            return Ok(());
        }
        self.machine.install(log_id, codec::encode_membership(&meta.last_membership), chunks)?;
        *applied = log_id;
        Ok(())
    }

    /// Applies a batch; entries that a snapshot has brought already have no response.
    fn apply(&self, log: &Log, group: GroupId, batch: Vec<Entry>) -> io::Result<Vec<Option<Bytes>>> {
        let mut applied = self.applied.lock();
        let skip = batch.iter().take_while(|e| applied.is_some_and(|a| e.log_id.index <= a.index)).count();
        let fresh: Vec<Committed> =
            batch.into_iter().skip(skip).map(|entry| committed(log, group, entry)).collect();
        let mut out = vec![None; skip];
        if let Some(last) = fresh.last().map(|c| c.id) {
            let len = fresh.len();
            let responses = self.machine.apply(fresh)?;
            if responses.len() != len {
                return Err(io::Error::other(format!("{} responses to {len} entries", responses.len())));
            }
            *applied = Some(last);
            out.extend(responses.into_iter().map(Some));
        }
        Ok(out)
    }
}

fn committed(log: &Log, group: GroupId, entry: Entry) -> Committed {
    let id = from_raft(entry.log_id);
    let (body, at) = match entry.payload {
        EntryPayload::Blank => (Body::Blank, None),
        EntryPayload::Normal(command) => (Body::Command(command.0), log.locate(group, id.index)),
        EntryPayload::Membership(m) => {
            let stored = StoredMembership::new(Some(entry.log_id), m);
            (Body::Membership(codec::encode_membership(&stored)), None)
        }
    };
    Committed { id, body, at }
}

pub(crate) struct StateMachine {
    shared: Shared,
    log: Log,
    group: GroupId,
}

impl StateMachine {
    pub fn new(shared: Shared, log: Log, group: GroupId) -> Self {
        Self { shared, log, group }
    }

    async fn apply_batch(&self, batch: Vec<(Entry, Option<ApplyResponder<Kinds>>)>) -> io::Result<()> {
        let (entries, responders): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let (shared, log, group) = (self.shared.clone(), self.log.clone(), self.group);
        let responses = blocking(move || shared.apply(&log, group, entries)).await?;
        for (responder, response) in responders.into_iter().zip(responses) {
            // Without a response the responder is dropped, and its caller learns: outcome not known.
            if let (Some(responder), Some(response)) = (responder, response) {
                responder.send(response);
            }
        }
        Ok(())
    }

    async fn snapshot(&self) -> io::Result<Option<Snapshot<SnapshotData>>> {
        let shared = self.shared.clone();
        let source = blocking(move || shared.snapshot()).await?;
        let last_log_id = source.log_id().map(to_raft);
        if last_log_id.is_none() {
            return Ok(None);
        }
        let last_membership = codec::decode_membership(source.membership())?;
        let meta = SnapshotMeta { last_log_id, last_membership };
        Ok(Some(Snapshot { meta, snapshot: SnapshotData::Source(source) }))
    }
}

fn payload_len(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(command) => command.0.len(),
        _ => 0,
    }
}

impl RaftStateMachine<Kinds> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let shared = self.shared.clone();
        let (applied, membership) = blocking(move || shared.state()).await?;
        Ok((applied.map(to_raft), codec::decode_membership(membership)?))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Kinds>, io::Error>> + Unpin + OptionalSend,
    {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            bytes += payload_len(&entry);
            batch.push((entry, responder));
            if batch.len() >= APPLY_LEN_MAX || bytes >= APPLY_BYTES_MAX {
                self.apply_batch(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
        }
        match batch.is_empty() {
            true => Ok(()),
            false => self.apply_batch(batch).await,
        }
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder(StateMachine::new(self.shared.clone(), self.log.clone(), self.group))
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: SnapshotData) -> Result<(), io::Error> {
        let (shared, meta) = (self.shared.clone(), meta.clone());
        blocking(move || match data {
            SnapshotData::Installed => {
                let applied = shared.applied();
                match meta.last_log_id.map(|id| id.index) <= applied.map(|id| id.index) {
                    true => Ok(()),
                    false => Err(io::Error::other("a snapshot was accepted that is not installed")),
                }
            }
            SnapshotData::Source(mut source) => {
                let mut chunks = std::iter::from_fn(|| source.next_chunk().transpose());
                shared.receive(&meta, &mut chunks)
            }
        })
        .await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<SnapshotData>>, io::Error> {
        self.snapshot().await
    }
}

/// Takes snapshots.
pub(crate) struct Builder(StateMachine);

impl RaftSnapshotBuilder<Kinds> for Builder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<Snapshot<SnapshotData>, io::Error> {
        match self.0.snapshot().await? {
            Some(snapshot) => Ok(snapshot),
            // Nothing is durable yet. Such a snapshot covers nothing, so nothing is purged by it.
            None => {
                let shared = self.0.shared.clone();
                let source = blocking(move || shared.snapshot()).await?;
                Ok(Snapshot { meta: SnapshotMeta::default(), snapshot: SnapshotData::Source(source) })
            }
        }
    }
}
