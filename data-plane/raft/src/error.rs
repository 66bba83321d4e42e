//! What went wrong, shaped by what the caller does next.

use std::io;
use undb_proto::v1::{self, ErrorCode};
use undb_proto::wire_error;

/// About as long as an election's winner needs to hear from its quorum.
const BUSY_RETRY_MS: u32 = 20;

/// An error of a group or of the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RaftError {
    /// Ask the leader. Nothing was done.
    #[error("not the leader of the group; the leader is {leader:?} in term {term}")]
    NotLeader {
        /// (replica, store) of the leader, if it is known.
        leader: Option<(u64, u64)>,
        /// The term known here.
        term: u64,
    },
    /// Retry here in a moment: for example a leader that has not heard from a quorum within its
    /// lease. Nothing was done.
    #[error("busy: the leader waits for a quorum, or another change is under way")]
    Busy,
    /// The disk is full: nothing was done, reads go on, and writes do once there is room.
    #[error("the disk of this store is full")]
    DiskFull,
    /// It may have been done, or may yet be. A retry needs a request id.
    #[error("the outcome is not known")]
    Ambiguous,
    /// Not done within its time. What was begun goes on or can be asked for again: all such calls
    /// are idempotent.
    #[error("not done in time: {0}")]
    Deadline(&'static str),
    /// The same call fails again.
    #[error("refused: {0}")]
    Refused(String),
    /// The group is not open here.
    #[error("the group is not open here")]
    Closed,
    /// The group has stopped, for example because its log cannot be written. A person must act.
    #[error("the group has stopped: {0}")]
    Fatal(String),
}

impl RaftError {
    /// The error as it crosses the wire; what a caller does about it follows from the code.
    pub fn wire(&self) -> v1::Error {
        let code = match self {
            RaftError::NotLeader { .. } => ErrorCode::NotLeader,
            RaftError::Busy => ErrorCode::ServerBusy,
            RaftError::DiskFull => ErrorCode::DiskFull,
            RaftError::Ambiguous => ErrorCode::Ambiguous,
            RaftError::Deadline(_) => ErrorCode::DeadlineExceeded,
            RaftError::Refused(_) => ErrorCode::Conflict,
            RaftError::Closed => ErrorCode::ShardNotFound,
            RaftError::Fatal(_) => ErrorCode::Internal,
        };
        let mut error = wire_error(code, self.to_string());
        match self {
            RaftError::NotLeader { leader, term } => {
                (error.leader_replica_id, error.leader_store_id) = leader.unwrap_or_default();
                error.term = *term;
            }
            RaftError::Busy => error.retry_after_ms = BUSY_RETRY_MS,
            _ => {}
        }
        error
    }
}

/// An error of the log as an I/O error, which is what openraft takes.
pub(crate) fn log_io(error: undb_log::LogError) -> io::Error {
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use undb_proto::ErrorKind;

    #[test]
    fn a_redirect_names_the_leader_and_a_busy_one_asks_for_a_retry() {
        let error = RaftError::NotLeader { leader: Some((5, 2)), term: 7 }.wire();
        assert_eq!((error.leader_replica_id, error.leader_store_id, error.term), (5, 2, 7));
        assert_eq!(error.code().kind(), ErrorKind::Redirect);
        assert_eq!(RaftError::Busy.wire().code().kind(), ErrorKind::Retry);
        assert_eq!(RaftError::Ambiguous.wire().code().kind(), ErrorKind::Unknown);
        assert_eq!(RaftError::Fatal("x".into()).wire().code().kind(), ErrorKind::Fatal);
    }
}
