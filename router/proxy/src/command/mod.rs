//! The Redis commands: a table of them, and one module a group.
//!
//! A string is the record at (key, ""), kind 0. A hash is a meta record at (key, "") of kind 1 and its
//! fields beside it, in the same shard; see `model`. Commands that read before they write do so
//! optimistically: the write is conditional on the version that was read, and is repeated when lost.

mod args;
mod hash;
mod key;
mod model;
mod number;
mod set;
mod string;
mod table;

#[cfg(test)]
pub use args::parse_integer;
pub use table::{Command, Run, command, commands};

use crate::keyspace::Keyspace;
use crate::resp::Reply;
use crate::{Cursors, Failure};
use std::sync::Arc;

/// What a command answers.
pub type Outcome = Result<Reply, Failure>;

/// What a command runs with.
#[derive(Clone)]
pub struct Context {
    /// The selected table.
    pub keys: Arc<dyn Keyspace>,
    /// Positions of SCANs under way.
    pub cursors: Arc<Cursors>,
    /// Wall clock in ms since 1970, for relative expiries and TTL.
    pub now_ms: u64,
}

/// How often an optimistic write is tried again before the client is told.
const ATTEMPTS_MAX: u32 = 64;
