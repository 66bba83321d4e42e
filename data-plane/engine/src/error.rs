//! What can go wrong in the engine, one variant per thing that a caller does differently.

use std::path::PathBuf;
use undb_types::GroupId;

/// The engine's result.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// An engine failure.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The file system failed.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The disk is full: user writes are refused, deletes and garbage collection go on.
    #[error("no space left while {what}")]
    DiskFull {
        /// What was being done.
        what: String,
    },
    /// The log refused or failed.
    #[error("log: {0}")]
    Log(String),
    /// Bytes on disk are not what was written. Repair from peers.
    #[error("corrupt {what}: {detail}")]
    Corrupt {
        /// Which file or record.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Written by a newer program.
    #[error(
        "{path} has format version {found}, this program reads up to {supported}; \
         run the version that wrote it, or a newer one",
        path = path.display()
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest one known here.
        supported: u32,
    },
    /// An earlier failure (a failed sync, say) made further writes unsafe. Restart and recover.
    #[error("engine is poisoned: {0}")]
    Poisoned(String),
    /// A key that the index cannot hold.
    #[error("encoded key of {len} bytes; the engine takes 1 to {max}")]
    KeyLength {
        /// Its length in bytes.
        len: usize,
        /// The largest one.
        max: usize,
    },
    /// The tree was dropped, or replaced by an installed snapshot, while it was in use.
    #[error("tree of {0} is gone")]
    Gone(GroupId),
    /// There is no such tree.
    #[error("no tree for {0}")]
    NoTree(GroupId),
    /// The tree exists with another kind of engine.
    #[error("tree of {group} was made as {found}, asked for {asked}")]
    KindDiffers {
        /// Whose tree.
        group: GroupId,
        /// On disk.
        found: &'static str,
        /// Asked for.
        asked: &'static str,
    },
}

impl EngineError {
    /// An I/O error with what was being done; a full disk keeps its own variant.
    pub fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                EngineError::DiskFull { what: what.into() }
            }
            _ => EngineError::Io { what: what.into(), source },
        }
    }

    /// A corruption.
    pub fn corrupt(what: impl Into<String>, detail: impl Into<String>) -> Self {
        EngineError::Corrupt { what: what.into(), detail: detail.into() }
    }
}
