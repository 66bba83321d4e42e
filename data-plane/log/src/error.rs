//! What can go wrong, and who can do something about it.

use std::io;
use std::path::PathBuf;

use undb_types::GroupId;

/// Why the log refused or failed. Crosses `Done` callbacks inside an `io::Error`; see [`LogError::of`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The file system failed. The log is poisoned if this came from a write or a sync.
    #[error("{action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the file system said.
        source: std::sync::Arc<io::Error>,
    },
    /// Another process has this log open.
    #[error("log directory in use: {0}")]
    InUse(undb_vfs::Locked),
    /// No room for user data; votes, purges and deletes still work. Free space or add a disk.
    #[error("disk full at {}: free space or move shards away; appends resume by themselves", .dir.display())]
    DiskFull {
        /// The log's directory.
        dir: PathBuf,
    },
    /// Bytes that were durable are wrong. Repair the replica from its peers.
    #[error(
        "log corrupt: segment {segment} at offset {offset}: {what}; \
         do not delete the file: remove this store's replicas and let peers rebuild them"
    )]
    Corrupt {
        /// Which segment.
        segment: u64,
        /// Where in its file.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// Written by a newer version of UNDB.
    #[error(
        "{} has format version {found}, this build reads up to {supported}: start the newer version again",
        .path.display()
    )]
    NewerFormat {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that this build reads.
        supported: u32,
    },
    /// A segment file of another log.
    #[error(
        "segment {segment} belongs to log {found:016x}, the directory to log {expected:016x}: \
         move the foreign file away"
    )]
    Foreign {
        /// Which segment.
        segment: u64,
        /// The log that the file names.
        found: u64,
        /// The log of the other files.
        expected: u64,
    },
    /// The segment was deleted, or never was.
    #[error("segment {segment} is gone")]
    SegmentGone {
        /// Which segment.
        segment: u64,
    },
    /// An append that does not continue the group's log.
    #[error("group {group}: entry {index} does not follow {last:?}")]
    Gap {
        /// Which group.
        group: GroupId,
        /// The first index of the append.
        index: u64,
        /// The group's last index.
        last: Option<u64>,
    },
    /// The group is not known, or its entry is not there.
    #[error("group {group} has no entry {index}")]
    NoEntry {
        /// Which group.
        group: GroupId,
        /// Which entry.
        index: u64,
    },
    /// The group was dropped; its id is never used again.
    #[error("group {group} was dropped")]
    Dropped {
        /// Which group.
        group: GroupId,
    },
    /// An entry or a vote that the format cannot hold.
    #[error("{what} of {bytes} bytes is larger than {max}")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// A write or sync failed before; nothing is acknowledged any more. Restart the store.
    #[error("log poisoned: {0}; restart the store, it recovers from what is durable")]
    Poisoned(String),
    /// The log was closed.
    #[error("log closed")]
    Closed,
}

impl LogError {
    /// The log error inside an `io::Error`, if there is one.
    pub fn of(error: &io::Error) -> Option<&LogError> {
        error.get_ref()?.downcast_ref()
    }

    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LogError {
        let path = path.into();
        move |source| LogError::Io { action, path, source: std::sync::Arc::new(source) }
    }
}

impl From<LogError> for io::Error {
    fn from(error: LogError) -> io::Error {
        let kind = match &error {
            LogError::Io { source, .. } => source.kind(),
            LogError::InUse(_) => io::ErrorKind::WouldBlock,
            LogError::DiskFull { .. } => io::ErrorKind::StorageFull,
            LogError::Corrupt { .. } | LogError::NewerFormat { .. } | LogError::Foreign { .. } => {
                io::ErrorKind::InvalidData
            }
            LogError::SegmentGone { .. } | LogError::NoEntry { .. } => io::ErrorKind::NotFound,
            LogError::Gap { .. } | LogError::Dropped { .. } | LogError::TooLarge { .. } => {
                io::ErrorKind::InvalidInput
            }
            LogError::Poisoned(_) | LogError::Closed => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
