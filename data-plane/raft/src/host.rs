//! Many groups of one store: who is open, and the way for messages to find them.

use crate::config::{HostOptions, raft_config};
use crate::error::log_io;
use crate::group::{Group, GroupInner};
use crate::kinds::{Kinds, to_raft};
use crate::machine::Machine;
use crate::room::Room;
use crate::state_machine::{Shared, StateMachine};
use crate::storage::{GroupLog, blocking, durable};
use crate::transport::{Network, Peers, Service};
use crate::{GroupStatus, RaftError};
use openraft::async_runtime::watch::WatchReceiver;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use undb_log::Log;
use undb_proto::v1::raft_transport_server::RaftTransportServer;
use undb_runtime::rpc::MESSAGE_BYTES_MAX;
use undb_types::{GroupId, ShardId};

pub(crate) type Raft = openraft::Raft<Kinds, StateMachine>;

/// All groups of one store. Clones are the same host.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub options: HostOptions,
    pub peers: Peers,
    pub room: Room,
    pub ended: CancellationToken,
    // Leaf lock; never held across a call of a group.
    groups: RwLock<BTreeMap<GroupId, Group>>,
    // Serialises open and close of the host's groups; openraft must not run twice on one log.
    opening: tokio::sync::Mutex<()>,
}

impl Inner {
    pub fn find(&self, group: GroupId) -> Option<Group> {
        self.groups.read().get(&group).cloned()
    }
}

impl Host {
    /// A host without groups. Mount `service()` where peers can reach it, then open groups.
    pub fn start(options: HostOptions) -> Result<Host, RaftError> {
        raft_config(&options.cluster_id, &options.timing)?;
        let ended = CancellationToken::new();
        let peers = Peers::new(&options, ended.clone());
        let room = Room::new(options.log.clone());
        let opening = tokio::sync::Mutex::default();
        let inner = Inner { options, peers, room, ended, groups: RwLock::default(), opening };
        Ok(Host { inner: Arc::new(inner) })
    }

    /// What peers call.
    pub fn service(&self) -> RaftTransportServer<Service> {
        RaftTransportServer::new(Service::new(self.inner.clone()))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Opens a replica: it applies what was committed and not yet applied, and takes part. A new one
    /// waits for a leader's word, or for `initialize`. Opening an open group gives the same group.
    pub async fn open(&self, group: GroupId, machine: Arc<dyn Machine>) -> Result<Group, RaftError> {
        let _one_at_a_time = self.inner.opening.lock().await;
        if self.inner.ended.is_cancelled() {
            return Err(RaftError::Closed);
        }
        if let Some(open) = self.inner.find(group) {
            return Ok(open);
        }
        let opened = self.start_group(group, machine).await?;
        self.inner.groups.write().insert(group, opened.clone());
        metrics::gauge!("undb_raft_open_groups", "store" => self.inner.options.store.to_string())
            .increment(1.0);
        tracing::info!(%group, "group opened");
        Ok(opened)
    }

    async fn start_group(&self, group: GroupId, machine: Arc<dyn Machine>) -> Result<Group, RaftError> {
        let options = &self.inner.options;
        let fatal = |e: io::Error| RaftError::Fatal(e.to_string());
        let shared = blocking(move || Shared::new(machine)).await.map_err(fatal)?;
        cut_conflicting_tail(&options.log, group, shared.applied()).await.map_err(fatal)?;
        let log = GroupLog::new(options.log.clone(), group);
        let returning = log.has_voted();
        let mut config = raft_config(&options.cluster_id, &options.timing)?;
        // A replica that returns may have backed a leader's lease just before: it neither stands nor
        // votes until that lease is over, or the leader could serve a stale read.
        config.enable_elect = !returning;
        let network = Network::new(self.inner.peers.clone(), group, options.timing);
        let machine = StateMachine::new(shared.clone(), options.log.clone(), group);
        let raft = Raft::new(group.replica.0, Arc::new(config), network, log, machine)
            .await
            .map_err(|e| RaftError::Fatal(e.to_string()))?;
        let quiet_until = self.end_quiet(&raft, returning).await?;
        let room = self.inner.room.clone();
        let changing = tokio::sync::Mutex::default();
        Ok(Group::new(GroupInner {
            id: group,
            raft,
            shared,
            room,
            timing: options.timing,
            quiet_until,
            changing,
        }))
    }

    /// Lets a replica that returns stand for election when no lease can depend on it any more; until
    /// then it gives no vote either.
    async fn end_quiet(&self, raft: &Raft, returning: bool) -> Result<Option<Instant>, RaftError> {
        let replica = *raft.node_id();
        let alone = move |state: &openraft::RaftState<Kinds>| {
            let members = &state.membership_state;
            let committed = members.effective().log_id() == members.committed().log_id();
            committed && members.effective().voter_ids().eq([replica])
        };
        // Its answer also means that the status is there from here on.
        let alone = raft.with_raft_state(alone).await.map_err(|e| RaftError::Fatal(e.to_string()))?;
        if !returning {
            return Ok(None);
        }
        if alone {
            // Nobody else can lead.
            raft.runtime_config().elect(true);
            raft.trigger().elect(false).await.map_err(|e| RaftError::Fatal(e.to_string()))?;
            return Ok(None);
        }
        let until = Instant::now() + self.inner.options.timing.election_max;
        let (raft, ended) = (raft.clone(), self.inner.ended.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep_until(until) => raft.runtime_config().elect(true),
                () = ended.cancelled() => {}
            }
        });
        Ok(Some(until))
    }

    /// The open group of a shard; of several replicas the newest.
    pub fn group(&self, shard: ShardId) -> Option<Group> {
        let groups = self.inner.groups.read();
        groups.iter().rev().find(|(id, _)| id.shard == shard).map(|(_, g)| g.clone())
    }

    /// All open groups.
    pub fn groups(&self) -> Vec<Group> {
        self.inner.groups.read().values().cloned().collect()
    }

    /// Closes a group; its log stays. Closing one that is not open does nothing.
    pub async fn close(&self, group: GroupId) -> Result<(), RaftError> {
        let _one_at_a_time = self.inner.opening.lock().await;
        let Some(open) = self.inner.groups.write().remove(&group) else { return Ok(()) };
        metrics::gauge!("undb_raft_open_groups", "store" => self.inner.options.store.to_string())
            .decrement(1.0);
        open.stop().await;
        tracing::info!(%group, "group closed");
        Ok(())
    }

    /// Closes all groups and hangs up on all peers. Hand leaders over before.
    pub async fn shutdown(&self) {
        let _one_at_a_time = self.inner.opening.lock().await;
        self.inner.ended.cancel();
        let groups = std::mem::take(&mut *self.inner.groups.write());
        metrics::gauge!("undb_raft_open_groups", "store" => self.inner.options.store.to_string()).set(0.0);
        futures::future::join_all(groups.values().map(Group::stop)).await;
    }
}

/// A snapshot is installed before openraft hears of it. After a crash in between, the log may hold
/// entries that conflict with it: they were never committed, and everything before is in the state.
async fn cut_conflicting_tail(
    log: &Log,
    group: GroupId,
    applied: Option<undb_types::LogId>,
) -> io::Result<()> {
    let Some(applied) = applied else { return Ok(()) };
    let state = log.state(group);
    let past = |id: Option<undb_types::LogId>| id.is_some_and(|id| id.index >= applied.index);
    if !past(state.last) || past(state.purged) {
        return Ok(());
    }
    let reader = log.clone();
    let at = applied.index;
    let there = blocking(move || reader.read(group, at..at + 1, usize::MAX).map_err(log_io)).await?;
    if there.first().is_some_and(|entry| to_raft(entry.id) != to_raft(applied)) {
        tracing::warn!(%group, index = at, "cut entries that an installed snapshot overrides");
        durable(|done| log.truncate_after(group, state.purged, done)).await?;
    }
    Ok(())
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let groups: Vec<GroupId> = self.inner.groups.read().keys().copied().collect();
        f.debug_struct("Host").field("store", &self.inner.options.store).field("groups", &groups).finish()
    }
}

/// The status of a running raft.
pub(crate) fn status_of(raft: &Raft) -> GroupStatus {
    GroupStatus::of(&raft.metrics().borrow_watched())
}
