//! One replica to another store, as a person asks for. The record is written here; the plan moves.

use super::Control;
use super::stores::no_store;
use undb_meta::plan::{View, move_step};
use undb_proto::v1::{self, ErrorCode, StoreState, TableState, meta_command::Op};
use undb_proto::wire_error;

impl Control {
    /// Begins a move, or finds it under way; with `cancel` gives it up.
    pub(super) async fn change_move(&self, request: v1::MoveReplicaRequest) -> Result<String, v1::Error> {
        let epoch = self.owned().map_err(|(error, _)| error)?;
        if request.cancel {
            return self.cancel_move(epoch, request.shard_id).await;
        }
        self.check_move(&request)?;
        let v1::MoveReplicaRequest { shard_id, from_store_id, to_store_id, .. } = request;
        let op = Op::StartMove(v1::StartMove { shard_id, from_store_id, to_store_id });
        self.0.meta.propose(epoch, op).await.map_err(v1::Error::from)?;
        self.0.heard.stirred.notify_one();
        Ok(format!(
            "shard {shard_id}: its replica on store {from_store_id} moves to store {to_store_id}; \
             `undb explain shard {shard_id}` says how far it is"
        ))
    }

    /// What metadata does not check: that the table may lie on that store.
    fn check_move(&self, request: &v1::MoveReplicaRequest) -> Result<(), v1::Error> {
        let (shard_id, to) = (request.shard_id, request.to_store_id);
        if request.from_store_id == to {
            let message = format!("store {to} is where the replica is; name another store to move it to");
            return Err(wire_error(ErrorCode::InvalidArgument, message));
        }
        let state = self.0.meta.state();
        for id in [request.from_store_id, to] {
            if state.store(id).is_none() {
                return Err(no_store(id));
            }
        }
        let table = state.shard(shard_id).and_then(|s| state.table(s.shard.as_ref()?.table_id));
        let Some(table) = table.filter(|t| t.state() != TableState::TableDeleted) else {
            let message = format!("there is no shard {shard_id}; `undb get shards` lists them");
            return Err(wire_error(ErrorCode::NotFound, message));
        };
        let removed = state.store(to).is_some_and(|s| s.state() == StoreState::StoreRemoved);
        let fits = self.0.heard.read(|heard| {
            let view = View::new(&state, heard, &self.0.settings, self.now());
            view.stores_of(&table.store_cluster).any(|s| s.store_id == to)
        });
        if !fits && !removed {
            let message = format!(
                "store {to} is not of StoreCluster `{}`, where table {} lies",
                table.store_cluster, table.name
            );
            return Err(wire_error(ErrorCode::InvalidArgument, message));
        }
        Ok(())
    }

    async fn cancel_move(&self, epoch: u64, shard_id: u64) -> Result<String, v1::Error> {
        let state = self.0.meta.state();
        let Some(found) = state.replica_move(shard_id) else {
            let message =
                format!("no replica of shard {shard_id} is being moved; `undb explain shard {shard_id}`");
            return Err(wire_error(ErrorCode::NotFound, message));
        };
        let step = self
            .0
            .heard
            .read(|heard| move_step(&View::new(&state, heard, &self.0.settings, self.now()), found));
        if !step.is_cancellable() {
            let message = format!(
                "the move of shard {shard_id} can only be finished: {step}; move the replica back then, from \
                 store {} to store {}",
                found.to_store_id, found.from_store_id
            );
            return Err(wire_error(ErrorCode::Conflict, message));
        }
        let op = Op::EndMove(v1::EndMove { shard_id, from_replica_id: found.from_replica_id });
        self.0.meta.propose(epoch, op).await.map_err(v1::Error::from)?;
        self.0.heard.stirred.notify_one();
        Ok(format!(
            "the move of shard {shard_id} is cancelled; what was copied to store {} is removed",
            found.to_store_id
        ))
    }
}
