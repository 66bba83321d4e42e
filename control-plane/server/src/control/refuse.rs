//! How a process that does not hold the lease answers, and other refusals.

use super::Control;
use undb_proto::v1::{self, ErrorCode};
use undb_proto::wire_error;

impl Control {
    /// The epoch of the lease, or the answer of one that does not hold it and the holder's address.
    pub(super) fn owned(&self) -> Result<u64, (v1::Error, String)> {
        if let Some(epoch) = self.0.lease.held() {
            return Ok(epoch);
        }
        let state = self.0.meta.state();
        let lease = state.control_lease();
        let ours = lease.owner == self.0.lease.owner();
        let address = if ours { String::new() } else { lease.address.clone() };
        let error = wire_error(ErrorCode::NotLeader, "this process does not hold the control lease");
        Err((v1::Error { retry_after_ms: 200, ..error }, address))
    }

    /// Refuses callers of another cluster. An empty id asks for none.
    pub(super) fn wrong_cluster(&self, asked: &str) -> Option<v1::Error> {
        let state = self.0.meta.state();
        let ours = &state.cluster().cluster_id;
        if ours.is_empty() {
            return Some(wire_error(ErrorCode::RecoveryInProgress, "the cluster has no identity yet"));
        }
        (!asked.is_empty() && asked != ours)
            .then(|| wire_error(ErrorCode::ClusterMismatch, format!("this is cluster {ours}, not {asked}")))
    }
}
