//! One open group: propose, read barriers, leadership, members, purging.

use crate::config::Timing;
use crate::host::{Raft, status_of};
use crate::kinds::{Command, Kinds, from_raft};
use crate::room::Room;
use crate::state_machine::Shared;
use crate::status::GroupWatch;
use crate::{GroupStatus, Member, RaftError};
use bytes::Bytes;
use openraft::ReadPolicy;
use openraft::errors::{
    ClientWriteError, Fatal, ForwardReason, ForwardToLeader, InitializeError, LinearizableReadError,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use undb_types::{GroupId, LogId};

/// How a leader makes sure that it still is one before a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// By its lease: no message, but it trusts that clocks run at about the same speed.
    Lease,
    /// By asking a quorum: one round of messages, shared by reads that wait together.
    ReadIndex,
}

/// One open group. Clones are the same group.
#[derive(Clone)]
pub struct Group {
    pub(crate) inner: Arc<GroupInner>,
}

pub(crate) struct GroupInner {
    pub id: GroupId,
    pub raft: Raft,
    pub shared: Shared,
    pub room: Room,
    pub timing: Timing,
    /// Until then no vote is given, unless the leader itself hands over.
    pub quiet_until: Option<Instant>,
    // One change of members at a time from here.
    pub changing: tokio::sync::Mutex<()>,
}

impl Group {
    pub(crate) fn new(inner: GroupInner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Which replica of which shard this is.
    pub fn id(&self) -> GroupId {
        self.inner.id
    }

    /// Gives a new group its first voters; every one of them may be asked, with the same map. Does
    /// nothing in a group that has begun.
    pub async fn initialize(&self, voters: BTreeMap<u64, Member>) -> Result<(), RaftError> {
        match self.inner.raft.initialize(voters).await {
            Ok(()) => Ok(()),
            Err(openraft::errors::RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(openraft::errors::RaftError::APIError(InitializeError::NotInMembers(e))) => {
                Err(RaftError::Refused(format!("replica {} is not among the first voters", e.node_id)))
            }
            Err(openraft::errors::RaftError::Fatal(e)) => Err(self.stopped(&e)),
        }
    }

    /// Proposes a command; returns its place and the machine's response once it is applied here.
    /// Any number may be in flight. Without a quorum this waits: give it a deadline. Dropping it is
    /// safe, and leaves the outcome unknown.
    pub async fn propose(&self, command: Bytes) -> Result<(LogId, Bytes), RaftError> {
        if !self.inner.room.is_there(self.inner.id) {
            return Err(RaftError::DiskFull);
        }
        match self.inner.raft.client_write(Command(command)).await {
            Ok(done) => Ok((from_raft(done.log_id), done.data)),
            Err(openraft::errors::RaftError::APIError(e)) => Err(self.write_error(e)),
            // It may have been appended before the group stopped.
            Err(openraft::errors::RaftError::Fatal(Fatal::Stopped)) => Err(RaftError::Ambiguous),
            Err(openraft::errors::RaftError::Fatal(e)) => Err(self.stopped(&e)),
        }
    }

    /// After `Ok` a read of the machine here is linearizable.
    pub async fn barrier(&self, barrier: Barrier) -> Result<(), RaftError> {
        let policy = match barrier {
            Barrier::Lease => ReadPolicy::LeaseRead,
            Barrier::ReadIndex => ReadPolicy::ReadIndex,
        };
        let asked = self.inner.raft.ensure_linearizable(policy);
        match tokio::time::timeout(self.inner.timing.election_max, asked).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(openraft::errors::RaftError::APIError(e))) => Err(match e {
                LinearizableReadError::ForwardToLeader(to) => self.forward(&to),
                LinearizableReadError::QuorumNotEnough(_) => RaftError::Busy,
            }),
            Ok(Err(openraft::errors::RaftError::Fatal(e))) => Err(self.stopped(&e)),
            Err(_) => Err(RaftError::Busy),
        }
    }

    /// Hands the leadership to a voter and waits until it says that it leads. From the moment it is
    /// asked the old leader takes no writes; if the other fails, somebody is elected within an
    /// election timeout.
    pub async fn transfer_leader(&self, to: u64) -> Result<(), RaftError> {
        let mut watch = self.watch();
        let before = watch.status();
        if !before.is_leader {
            return match before.leader == Some(to) {
                true => Ok(()),
                false => Err(before.not_leader()),
            };
        }
        if to == before.replica {
            return Ok(());
        }
        if !before.voters.contains_key(&to) {
            return Err(RaftError::Refused(format!("replica {to} is not a voter")));
        }
        let until = Instant::now() + self.inner.timing.transfer;
        // One that is far behind would be refused the votes.
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let near = |s: &GroupStatus| !s.is_leader || s.lag(to).is_some_and(|lag| lag <= TRANSFER_LAG_MAX);
        watch.wait_for("the next leader is not caught up", left(until), near).await?;
        loop {
            let status = watch.status();
            if status.is_leader {
                self.inner.raft.trigger().transfer_leader(to).await.map_err(|e| self.stopped(&e))?;
            } else if let Some(leader) = status.leader.filter(|l| *l != to && status.term > before.term) {
                tracing::info!(group = %self.inner.id, leader, "another replica was elected in a transfer");
                return Err(status.not_leader());
            }
            let step = left(until).min(self.inner.timing.heartbeat * 2);
            match watch.wait_for("the new leader has not confirmed", step, |s| s.leader == Some(to)).await {
                Ok(_) => return Ok(()),
                Err(RaftError::Deadline(_)) if left(until) > Duration::ZERO => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The status now.
    pub fn status(&self) -> GroupStatus {
        status_of(&self.inner.raft)
    }

    /// Follows the status.
    pub fn watch(&self) -> GroupWatch {
        GroupWatch { metrics: self.inner.raft.metrics() }
    }

    /// Lets the log go up to `upto`, which must be durable in the machine: takes a snapshot there
    /// (O(1)), and purges what it covers. A leader keeps what it is just sending. Returns the last
    /// entry purged so far; ask again later for the rest.
    pub async fn purge_to_durable(&self, upto: LogId) -> Result<Option<LogId>, RaftError> {
        let raft = &self.inner.raft;
        let covered = |s: &GroupStatus| s.snapshot.is_some_and(|id| id.index >= upto.index);
        let mut watch = self.watch();
        if !covered(&watch.status()) {
            raft.trigger().snapshot().await.map_err(|e| self.stopped(&e))?;
            watch.wait_for("the snapshot was not taken", self.inner.timing.transfer, covered).await?;
        }
        raft.trigger().purge_log(upto.index).await.map_err(|e| self.stopped(&e))?;
        let purged = |s: &GroupStatus| s.purged.is_some_and(|id| id.index >= upto.index);
        match watch.wait_for("purging", self.inner.timing.heartbeat * 4, purged).await {
            Ok(status) => Ok(status.purged),
            Err(RaftError::Deadline(_)) => Ok(watch.status().purged),
            Err(e) => Err(e),
        }
    }

    pub(crate) async fn stop(&self) {
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!(group = %self.inner.id, %error, "group did not stop well");
        }
    }

    /// The error of a group whose core has stopped.
    pub(crate) fn stopped(&self, fatal: &Fatal<Kinds>) -> RaftError {
        match fatal {
            Fatal::Stopped => RaftError::Closed,
            other => RaftError::Fatal(other.to_string()),
        }
    }

    pub(crate) fn forward(&self, to: &ForwardToLeader<Kinds>) -> RaftError {
        // A leader without its lease is no redirect to nobody: the same call may succeed here.
        if to.reason == ForwardReason::LeaseExpired {
            return RaftError::Busy;
        }
        let leader = to.leader_id.zip(to.leader_node.as_ref()).map(|(id, m)| (id, m.store));
        RaftError::NotLeader { leader, term: self.status().term }
    }

    pub(crate) fn write_error(&self, error: ClientWriteError<Kinds>) -> RaftError {
        match error {
            ClientWriteError::ForwardToLeader(to) => self.forward(&to),
            ClientWriteError::LogEntryDiscarded(_) => RaftError::Ambiguous,
            ClientWriteError::ChangeMembershipError(e) => RaftError::Refused(e.to_string()),
            ClientWriteError::PreconditionFailed(_) => RaftError::Busy,
        }
    }
}

/// A replica that is this close has what it lacks before its election.
const TRANSFER_LAG_MAX: u64 = 64;

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Group").field(&self.inner.id).finish()
    }
}
