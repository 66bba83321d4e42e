//! One verb, one function: validate against the state, then write into a [`Draft`].
//!
//! A verb never touches the state before it can no longer be refused, so a rejected command changes
//! nothing but the time.

mod cluster;
mod disruption;
mod moves;
mod shard;
mod store;
mod table;

use crate::{Applied, Reject, State};
use undb_proto::v1::{self, ErrorCode, meta_command::Op};

impl State {
    /// Applies a command. Deterministic: the same state and command give the same answer everywhere.
    pub fn apply(&mut self, command: v1::MetaCommand) -> Result<Applied, Reject> {
        self.now_ms = self.now_ms.max(command.now_ms);
        let op = command.op.ok_or_else(|| Reject::new(ErrorCode::NotSupported, UNKNOWN_COMMAND))?;
        self.fence(command.control_lease, &op)?;
        let (result, change) = self.run(op)?;
        let changed = change != v1::MetaChange::default();
        if changed {
            self.revision += 1;
        }
        Ok(Applied { result, change, revision: self.revision })
    }

    /// The revision that the records of a command under way will carry.
    pub(crate) fn next_revision(&self) -> u64 {
        self.revision + 1
    }

    fn run(&mut self, op: Op) -> Result<(v1::MetaResult, v1::MetaChange), Reject> {
        match op {
            Op::InitCluster(op) => self.init_cluster(op),
            Op::AcquireControlLease(op) => self.acquire_control_lease(op),
            Op::AllocateIds(op) => self.allocate_ids(op),
            Op::RegisterStore(op) => self.register_store(op),
            Op::SetStoreState(op) => self.set_store_state(op),
            Op::PutStoreCluster(op) => self.put_store_cluster(op),
            Op::DeleteStoreCluster(op) => self.delete_store_cluster(op),
            Op::CreateTable(op) => self.create_table(op),
            Op::AlterTable(op) => self.alter_table(op),
            Op::DeleteTable(op) => self.delete_table(op),
            Op::UndeleteTable(op) => self.undelete_table(op),
            Op::SetTableState(op) => self.set_table_state(op),
            Op::PurgeTable(op) => self.purge_table(op),
            Op::PutShards(op) => self.put_shards(op),
            Op::AcquireDisruption(op) => self.acquire_disruption(op),
            Op::RenewDisruption(op) => self.renew_disruption(op),
            Op::ReleaseDisruption(op) => self.release_disruption(op),
            Op::StartMove(op) => self.start_move(op),
            Op::EndMove(op) => self.end_move(op),
        }
    }

    /// Everything but the two commands that come before an owner exists is refused unless it carries
    /// the current lease: an owner that was paused while another took over changes nothing any more.
    fn fence(&self, lease: u64, op: &Op) -> Result<(), Reject> {
        if matches!(op, Op::InitCluster(_) | Op::AcquireControlLease(_)) {
            return Ok(());
        }
        if self.cluster.cluster_id.is_empty() {
            return Err(Reject::new(ErrorCode::RecoveryInProgress, "the cluster has no identity yet"));
        }
        if lease == 0 || lease != self.control_lease.epoch {
            let current = self.control_lease.epoch;
            let message = format!("control lease {lease} is not the current one, {current}");
            return Err(Reject::new(ErrorCode::Fenced, message));
        }
        Ok(())
    }
}

const UNKNOWN_COMMAND: &str =
    "the command has no operation that this build knows; update the metadata members first";

pub use disruption::DECISION_MS_MAX;
pub(crate) use shard::{check_cover, replicas};

pub(crate) type Done = Result<(v1::MetaResult, v1::MetaChange), Reject>;

/// An accepted command that found everything as it asks for.
pub(crate) fn unchanged(result: v1::MetaResult) -> Done {
    Ok((result, v1::MetaChange::default()))
}
