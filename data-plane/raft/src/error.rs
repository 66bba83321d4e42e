//! What went wrong, shaped by what the caller does next.

use std::io;

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

/// An error of the log as an I/O error, which is what openraft takes.
pub(crate) fn log_io(error: undb_log::LogError) -> io::Error {
    error.into()
}
