//! Replicas that a person is having moved: how far each is, and when it is over.
//!
//! The steps themselves are those of every replacement (see `shard`): a replica that is to move is lost
//! to its store, and its learner may only be on the store that it goes to.

use super::{Action, Planner, View};
use crate::state::{epoch_of, shard_of};
use std::fmt;
use undb_proto::v1::{self, Role, StoreState, TableState};

/// How far a move is, from metadata and the leader's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// Its learner is not written down yet.
    Placing,
    /// The learner is written down, and its store does not have it yet.
    Creating,
    /// The learner exists, and the group does not know it yet.
    Joining,
    /// So many entries behind the leader; none: the leader did not say.
    CatchingUp { behind: Option<u64> },
    /// The members are changing. It can only be finished.
    Switching,
    /// The members have changed; the old copy is on its way to the trash.
    CleaningUp,
    /// Over, and why.
    Over(&'static str),
    /// The shard has no leader that reports.
    Unled,
}

impl MoveStep {
    /// True while the move can be given up.
    pub fn is_cancellable(&self) -> bool {
        matches!(self, Self::Placing | Self::Creating | Self::Joining | Self::CatchingUp { .. } | Self::Unled)
    }
}

impl fmt::Display for MoveStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placing => f.write_str("its new replica is not placed yet"),
            Self::Creating => f.write_str("its new replica is being created"),
            Self::Joining => f.write_str("its new replica is joining"),
            Self::CatchingUp { behind: Some(n) } => {
                write!(f, "its new replica is catching up, {n} entries behind")
            }
            Self::CatchingUp { behind: None } => f.write_str("its new replica is catching up"),
            Self::Switching => f.write_str("its members are changing"),
            Self::CleaningUp => f.write_str("the old copy is being removed"),
            Self::Over(why) => f.write_str(why),
            Self::Unled => f.write_str("it waits for a leader of the shard"),
        }
    }
}

/// How far a move is.
pub fn move_step(view: &View<'_>, replica_move: &v1::ReplicaMove) -> MoveStep {
    let (from, to) = (replica_move.from_store_id, replica_move.to_store_id);
    let Some(record) = view.state.shard(replica_move.shard_id) else {
        return MoveStep::Over("its shard is gone");
    };
    let shard = shard_of(record);
    if view.state.table(shard.table_id).is_none_or(|t| t.state() == TableState::TableDeleted) {
        return MoveStep::Over("its table was deleted");
    }
    let arrived = shard.replicas.iter().find(|r| r.store_id == to);
    if !shard.replicas.iter().any(|r| r.replica_id == replica_move.from_replica_id) {
        let kept = view.fresh(from).is_some_and(|s| s.replicas.contains_key(&replica_move.from_replica_id));
        let silent = !view.is_fresh(from) && view.silent_ms(from) < view.settings.disconnected_ms;
        let removed = view.state.store(from).is_none_or(|s| s.state() == StoreState::StoreRemoved);
        return match arrived {
            _ if kept || (silent && !removed) => MoveStep::CleaningUp,
            Some(r) if r.role() == Role::Voter => MoveStep::Over("it has moved"),
            _ => MoveStep::Over("another replica took the place of the one that was to move"),
        };
    }
    if view.state.store(to).is_none_or(|s| s.state() == StoreState::StoreRemoved) {
        return MoveStep::Over("the store that it was to go to is removed");
    }
    let Some((leader, actual)) = view.leader(shard.shard_id).and_then(|l| Some((l, l.shard()?))) else {
        return MoveStep::Unled;
    };
    if leader.report.joint || leader.report.change_pending && is_voter(actual, to) {
        return MoveStep::Switching;
    }
    match arrived {
        None => MoveStep::Placing,
        Some(r) if r.role() == Role::Voter && epoch_of(actual).covers(epoch_of(shard)) => {
            MoveStep::Over("the replica that was made took the place of another that was lost")
        }
        Some(_) if is_voter(actual, to) => MoveStep::Switching,
        Some(r) if view.report(to, r.replica_id).is_none() => MoveStep::Creating,
        Some(r) if !actual.replicas.iter().any(|a| a.replica_id == r.replica_id) => MoveStep::Joining,
        Some(r) => {
            let peer = leader.report.peers.iter().find(|p| p.replica_id == r.replica_id);
            MoveStep::CatchingUp {
                behind: peer.map(|p| leader.report.last_index.saturating_sub(p.match_index)),
            }
        }
    }
}

fn is_voter(shard: &v1::Shard, store_id: u64) -> bool {
    shard.replicas.iter().any(|r| r.store_id == store_id && r.role() == Role::Voter)
}

impl Planner<'_> {
    /// Ends the moves that are over.
    pub(super) fn moves(&mut self) {
        let state = self.view.state;
        for replica_move in state.replica_moves() {
            let step = move_step(&self.view, replica_move);
            if let MoveStep::Over(why) = step {
                let v1::ReplicaMove { shard_id, from_replica_id, from_store_id, to_store_id, .. } =
                    *replica_move;
                let action = Action::EndMove { shard_id, from_replica_id };
                let from_to = format!("from store {from_store_id} to store {to_store_id}");
                self.push(action, format!("the move of shard {shard_id} {from_to} is over: {why}"));
            }
        }
    }
}
