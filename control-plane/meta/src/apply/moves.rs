//! A replica that a person wants on another store: written down before anything is done about it.
//!
//! ```text
//! StartMove --> [plan: learner placed --> caught up --> members changed --> old copy in the trash] --> EndMove
//!                    |                                   '- from here on it can only be finished
//!                    '--> EndMove (cancelled: the plan takes the learner away again)
//! ```
//! The record says what is wanted; how far it is stands in the shard's record and its leader's report.

use super::{Done, unchanged};
use crate::state::shard_of;
use crate::{Reject, State};
use undb_proto::v1::{self, ErrorCode, Role, StoreState};

impl State {
    pub(super) fn start_move(&mut self, op: v1::StartMove) -> Done {
        let id = op.shard_id;
        if let Some(known) = self.replica_moves.get(&id).copied() {
            if (known.from_store_id, known.to_store_id) == (op.from_store_id, op.to_store_id) {
                return unchanged(move_result(known));
            }
            return Err(Reject::conflict(format!(
                "a replica of shard {id} is moving from store {} to store {}; wait for it, or cancel it",
                known.from_store_id, known.to_store_id
            )));
        }
        let replica_move = v1::ReplicaMove {
            shard_id: id,
            from_store_id: op.from_store_id,
            to_store_id: op.to_store_id,
            from_replica_id: self.check_move(&op)?,
            started_at_ms: self.now_ms,
            revision: self.next_revision(),
        };
        self.replica_moves.insert(id, replica_move);
        let change = v1::MetaChange { replica_moves: vec![replica_move], ..Default::default() };
        Ok((move_result(replica_move), change))
    }

    /// Names the replica, so that an end that comes late does not end another move of the shard.
    pub(super) fn end_move(&mut self, op: v1::EndMove) -> Done {
        let known = self.replica_moves.get(&op.shard_id);
        if known.is_none_or(|m| m.from_replica_id != op.from_replica_id) {
            return unchanged(v1::MetaResult::default());
        }
        self.replica_moves.remove(&op.shard_id);
        let change = v1::MetaChange { deleted_replica_moves: vec![op.shard_id], ..Default::default() };
        Ok((v1::MetaResult::default(), change))
    }

    /// The replica that moves, or why it cannot.
    fn check_move(&self, op: &v1::StartMove) -> Result<u64, Reject> {
        let (id, from, to) = (op.shard_id, op.from_store_id, op.to_store_id);
        let Some(record) = self.shards.get(&id) else {
            return Err(Reject::new(ErrorCode::NotFound, format!("there is no shard {id}")));
        };
        if record.bootstrapping {
            let message = format!("the first replicas of shard {id} are being created; try again then");
            return Err(Reject::conflict(message));
        }
        match self.stores.get(&to).map(v1::StoreRecord::state) {
            None => return Err(Reject::new(ErrorCode::NotFound, format!("there is no store {to}"))),
            Some(StoreState::StoreUp) => {}
            Some(state) => {
                let word = state_word(state);
                return Err(Reject::conflict(format!("store {to} is {word} and takes no new replicas")));
            }
        }
        let replicas = &shard_of(record).replicas;
        if replicas.iter().any(|r| r.store_id == to) {
            return Err(Reject::conflict(format!("store {to} has a replica of shard {id} already")));
        }
        let moving = replicas.iter().find(|r| r.store_id == from && r.role() == Role::Voter);
        moving.map(|r| r.replica_id).ok_or_else(|| {
            let stores: Vec<String> = replicas.iter().map(|r| r.store_id.to_string()).collect();
            let message = format!(
                "store {from} has no replica of shard {id} that votes; its replicas are on stores {}",
                stores.join(", ")
            );
            Reject::new(ErrorCode::NotFound, message)
        })
    }
}

pub(super) fn state_word(state: StoreState) -> &'static str {
    match state {
        StoreState::Unspecified => "in a state that this build does not know",
        StoreState::StoreUp => "up",
        StoreState::StoreDraining => "being drained",
        StoreState::StoreRemoved => "removed for ever",
        StoreState::StoreCordoned => "cordoned",
    }
}

fn move_result(replica_move: v1::ReplicaMove) -> v1::MetaResult {
    v1::MetaResult { replica_move: Some(replica_move), ..Default::default() }
}
