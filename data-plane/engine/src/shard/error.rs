//! Why a shard cannot apply or answer. Every variant of an apply is fatal to the replica: what a client
//! did wrong is an `Outcome`.

use crate::command::FormatError;
use crate::error::EngineError;

/// A shard failure.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The tree failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An entry, a record of the machine's own or a snapshot chunk is not what was written: corruption,
    /// or a newer format. Never skipped; repair from peers.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// An entry is missing before the one to apply.
    #[error("entry {got} was handed over after entry {applied}")]
    Gap {
        /// The last entry applied.
        applied: u64,
        /// The one handed over.
        got: u64,
    },
    /// A snapshot stream is damaged or is another one than announced.
    #[error("snapshot stream: {0}")]
    Snapshot(String),
    /// An earlier apply failed half way in memory. Open the shard again.
    #[error("shard stopped after an earlier failure: {0}")]
    Poisoned(String),
}
