//! One replica on this store: open and serving, or faulty and why.

use crate::barrier::BarrierGate;
use crate::directory::Descriptor;
use crate::machine::ShardMachine;
use crate::writer::Writer;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use undb_proto::v1::ErrorCode;
use undb_proto::{v1, wire_error};
use undb_raft::{Group, GroupStatus, Member};
use undb_types::{GroupId, KeyRange};

/// A replica that this store keeps.
pub struct Replica {
    /// Its log and tree.
    pub id: GroupId,
    /// Its keys.
    pub range: KeyRange,
    /// What is on disk of it. Leaf lock.
    pub descriptor: Mutex<Descriptor>,
    // Leaf lock; clones are taken out.
    serving: RwLock<Serving>,
    caught_up: AtomicBool,
    /// The fault may pass: a full disk.
    retry: AtomicBool,
}

#[derive(Clone)]
enum Serving {
    Open(Arc<Open>),
    Faulty(String),
}

/// A replica that takes part in its group.
pub struct Open {
    /// The consensus group.
    pub group: Group,
    /// The state.
    pub machine: Arc<ShardMachine>,
    /// The write path.
    pub writer: Writer,
    /// The read path.
    pub barrier: BarrierGate,
}

impl Replica {
    /// One that serves.
    pub fn open(descriptor: Descriptor, range: KeyRange, open: Open) -> Self {
        Self::new(descriptor, range, Serving::Open(Arc::new(open)))
    }

    /// One that does not, and why.
    pub fn faulty(descriptor: Descriptor, range: KeyRange, why: String) -> Self {
        Self::new(descriptor, range, Serving::Faulty(why))
    }

    fn new(descriptor: Descriptor, range: KeyRange, serving: Serving) -> Self {
        Self {
            id: descriptor.group(),
            range,
            descriptor: Mutex::new(descriptor),
            serving: RwLock::new(serving),
            caught_up: AtomicBool::new(false),
            retry: AtomicBool::new(false),
        }
    }

    /// What serves it, or the refusal of one that does not.
    pub fn serving(&self) -> Result<Arc<Open>, v1::Error> {
        match &*self.serving.read() {
            Serving::Open(open) => Ok(open.clone()),
            Serving::Faulty(why) => Err(wire_error(ErrorCode::Unavailable, why.clone())),
        }
    }

    /// Why it does not serve.
    pub fn fault(&self) -> Option<String> {
        match &*self.serving.read() {
            Serving::Open(_) => None,
            Serving::Faulty(why) => Some(why.clone()),
        }
    }

    /// Stops serving for good, or until it is opened again; what waits is refused.
    pub fn quarantine(&self, why: &str) {
        let before = std::mem::replace(&mut *self.serving.write(), Serving::Faulty(why.to_string()));
        if let Serving::Open(open) = before {
            open.writer.refuse_all(&wire_error(ErrorCode::Unavailable, why));
        }
    }

    /// Says whether its fault may pass by itself.
    pub fn set_retry(&self, retry: bool) {
        self.retry.store(retry, Ordering::Relaxed);
    }

    /// True when opening it again makes sense.
    pub fn retry(&self) -> bool {
        self.retry.load(Ordering::Relaxed)
    }

    /// Serves again.
    pub fn reopen(&self, open: Open) {
        *self.serving.write() = Serving::Open(Arc::new(open));
    }

    /// True once it has been as far as its group was known to be, since the start.
    pub fn caught_up(&self) -> bool {
        if self.caught_up.load(Ordering::Relaxed) {
            return true;
        }
        let Ok(open) = self.serving() else { return false };
        self.has_caught_up(&open.group.status())
    }

    /// IMPORTANT: what is committed here is no measure, a replica that lacks a million entries has applied
    /// all of that; nor is the leader of the last vote. What a leader said since the start is.
    fn has_caught_up(&self, status: &GroupStatus) -> bool {
        let said = status.cluster_committed.map(|id| id.index);
        let reached = said.is_some() && status.applied.map(|id| id.index) >= said;
        self.caught_up.fetch_or(reached, Ordering::Relaxed) || reached
    }

    /// The shard as this replica has applied it.
    pub fn shard(&self) -> v1::Shard {
        match self.serving() {
            Ok(open) => self.shard_at(open.machine.conf(), &open.group.status()),
            Err(_) => self.shard_with(0, Vec::new()),
        }
    }

    fn shard_at(&self, conf: u64, status: &GroupStatus) -> v1::Shard {
        let member = |role: v1::Role| {
            move |(id, m): (&u64, &Member)| v1::Replica {
                replica_id: *id,
                store_id: m.store,
                role: role as i32,
            }
        };
        let voters = status.voters.iter().map(member(v1::Role::Voter));
        let learners = status.learners.iter().map(member(v1::Role::Learner));
        self.shard_with(conf, voters.chain(learners).collect())
    }

    fn shard_with(&self, conf: u64, replicas: Vec<v1::Replica>) -> v1::Shard {
        let descriptor = self.descriptor.lock();
        v1::Shard {
            shard_id: descriptor.shard_id,
            table_id: descriptor.table_id,
            range: Some(self.range.clone().into()),
            epoch: Some(descriptor.epoch(conf).into()),
            replicas,
            version_base: descriptor.version_base,
        }
    }

    /// What it says of itself in heartbeats.
    pub fn report(&self) -> v1::ReplicaReport {
        let replica_id = self.id.replica.0;
        let open = match self.serving() {
            Ok(open) => open,
            Err(fault) => {
                let (shard, fault) = (Some(self.shard()), fault.message);
                return v1::ReplicaReport { shard, replica_id, fault, ..Default::default() };
            }
        };
        let status = open.group.status();
        let stats = open.machine.shard().stats();
        v1::ReplicaReport {
            shard: Some(self.shard_at(open.machine.conf(), &status)),
            replica_id,
            term: status.term,
            leader_replica_id: status.leader.unwrap_or(0),
            last_index: status.last_index.unwrap_or(0),
            committed_index: status.committed.map_or(0, |id| id.index),
            applied_index: status.applied.map_or(0, |id| id.index),
            is_leader: status.is_leader,
            peers: peers(&status),
            joint: status.joint,
            live_keys: stats.keys,
            live_bytes: stats.bytes,
            voters_outgoing: half(&status, 0),
            voters_incoming: half(&status, 1),
            change_pending: status.is_leader && !status.config_committed,
            catching_up: !self.has_caught_up(&status),
            fault: status.fatal.unwrap_or_default(),
        }
    }
}

/// One half of a joint configuration; empty when it is not joint.
fn half(status: &GroupStatus, which: usize) -> Vec<u64> {
    let joint = status.configs.get(which).filter(|_| status.joint);
    joint.map(|voters| voters.iter().copied().collect()).unwrap_or_default()
}

fn peers(status: &GroupStatus) -> Vec<v1::PeerProgress> {
    let progress = |peer: &undb_raft::PeerStatus| v1::PeerProgress {
        replica_id: peer.replica,
        match_index: peer.matched.unwrap_or(0),
        last_ack_ms_ago: peer.ack_age.map_or(u64::MAX, |age| age.as_millis() as u64),
    };
    status.peers.iter().map(progress).collect()
}
