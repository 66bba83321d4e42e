//! What a group looks like from here, and waiting for it to change.

use crate::kinds::{Kinds, from_raft};
use crate::{Member, RaftError};
use openraft::Instant;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use openraft::{RaftMetrics, ServerState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant as Deadline;
use undb_types::LogId;

/// One group, as this replica knows it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// This replica.
    pub replica: u64,
    /// The term.
    pub term: u64,
    /// The leader's replica, if one is known.
    pub leader: Option<u64>,
    /// True while this replica leads; its lease may be over nevertheless.
    pub is_leader: bool,
    /// Index of the last entry in the log here.
    pub last_index: Option<u64>,
    /// The last entry known to be committed that is here.
    pub committed: Option<LogId>,
    /// The last entry that a quorum has, as far as a leader has said since this replica started.
    pub cluster_committed: Option<LogId>,
    /// The last entry applied.
    pub applied: Option<LogId>,
    /// The last entry of the newest snapshot taken or installed.
    pub snapshot: Option<LogId>,
    /// The last entry purged from the log.
    pub purged: Option<LogId>,
    /// Voters; while `joint`, of both halves.
    pub voters: BTreeMap<u64, Member>,
    /// Learners.
    pub learners: BTreeMap<u64, Member>,
    /// The halves of the configuration; one unless `joint`.
    pub configs: Vec<BTreeSet<u64>>,
    /// A change of voters is half done.
    pub joint: bool,
    /// The newest configuration is committed.
    pub config_committed: bool,
    /// Since a quorum was last heard from; leader only.
    pub quorum_age: Option<Duration>,
    /// The others; leader only.
    pub peers: Vec<PeerStatus>,
    /// Why the group stopped, if something broke. A group that was closed has none.
    pub fatal: Option<String>,
    /// The group runs.
    pub running: bool,
}

/// What a leader knows about another replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The replica.
    pub replica: u64,
    /// Its log is known to agree with the leader's up to here.
    pub matched: Option<u64>,
    /// Since it last answered; `None`: never.
    pub ack_age: Option<Duration>,
}

impl GroupStatus {
    pub(crate) fn of(metrics: &RaftMetrics<Kinds>) -> Self {
        let stored = &metrics.membership_config;
        let membership = stored.membership();
        let voter_ids: BTreeSet<u64> = membership.voter_ids().collect();
        let (voters, learners) =
            membership.nodes().map(|(id, m)| (*id, m.clone())).partition(|(id, _)| voter_ids.contains(id));
        let configs = membership.get_joint_config().clone();
        let is_leader = metrics.state == ServerState::Leader;
        Self {
            replica: metrics.id,
            term: metrics.current_term,
            leader: metrics.current_leader,
            is_leader,
            last_index: metrics.last_log_index,
            committed: metrics.local_committed.map(from_raft),
            cluster_committed: metrics.cluster_committed.map(from_raft),
            applied: metrics.last_applied.map(from_raft),
            snapshot: metrics.snapshot.map(from_raft),
            purged: metrics.purged.map(from_raft),
            voters,
            learners,
            joint: configs.len() > 1,
            configs,
            config_committed: stored.log_id() == metrics.committed_membership_config.log_id(),
            quorum_age: metrics.last_quorum_acked.filter(|_| is_leader).map(|at| at.elapsed()),
            peers: peers(metrics),
            fatal: match &metrics.running_state {
                Err(Fatal::Stopped) | Ok(()) => None,
                Err(fatal) => Some(fatal.to_string()),
            },
            running: metrics.running_state.is_ok(),
        }
    }

    /// (replica, store) of the leader, if it is known and a member.
    pub fn leader_at(&self) -> Option<(u64, u64)> {
        let leader = self.leader?;
        let member = self.voters.get(&leader).or_else(|| self.learners.get(&leader))?;
        Some((leader, member.store))
    }

    /// Entries of this leader's log that a replica is not known to have.
    pub fn lag(&self, replica: u64) -> Option<u64> {
        let last = self.last_index.map_or(0, |i| i + 1);
        if replica == self.replica {
            return Some(0);
        }
        let peer = self.peers.iter().find(|p| p.replica == replica)?;
        Some(last.saturating_sub(peer.matched.map_or(0, |i| i + 1)))
    }

    pub(crate) fn not_leader(&self) -> RaftError {
        RaftError::NotLeader { leader: self.leader_at(), term: self.term }
    }
}

fn peers(metrics: &RaftMetrics<Kinds>) -> Vec<PeerStatus> {
    let Some(replication) = &metrics.replication else { return Vec::new() };
    let acks = metrics.heartbeat.as_ref();
    let others = replication.iter().filter(|(id, _)| **id != metrics.id);
    others
        .map(|(id, matched)| PeerStatus {
            replica: *id,
            matched: matched.map(|id| id.index),
            ack_age: acks.and_then(|a| a.get(id).copied().flatten()).map(|at| at.elapsed()),
        })
        .collect()
}

/// Follows a group's status. Changes that come fast are seen as one.
#[derive(Clone)]
pub struct GroupWatch {
    pub(crate) metrics: openraft::alias::WatchReceiverOf<Kinds, RaftMetrics<Kinds>>,
}

impl GroupWatch {
    /// The status now.
    pub fn status(&self) -> GroupStatus {
        GroupStatus::of(&self.metrics.borrow_watched())
    }

    /// Waits for the next change since the last call; false when the group is gone. Safe to cancel.
    pub async fn changed(&mut self) -> bool {
        self.metrics.changed().await.is_ok()
    }

    /// Waits until `wanted` holds; the status then, or the error of a group that stopped, or
    /// `Deadline(what)`. Safe to cancel.
    pub async fn wait_for(
        &mut self,
        what: &'static str,
        within: Duration,
        mut wanted: impl FnMut(&GroupStatus) -> bool,
    ) -> Result<GroupStatus, RaftError> {
        let deadline = Deadline::now() + within;
        loop {
            let status = self.status();
            if wanted(&status) {
                return Ok(status);
            }
            if let Some(fatal) = status.fatal {
                return Err(RaftError::Fatal(fatal));
            }
            if !status.running {
                return Err(RaftError::Closed);
            }
            match tokio::time::timeout_at(deadline, self.changed()).await {
                Ok(true) => {}
                Ok(false) => return Err(RaftError::Closed),
                Err(_) => return Err(RaftError::Deadline(what)),
            }
        }
    }
}
