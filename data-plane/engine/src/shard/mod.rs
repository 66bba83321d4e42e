//! The state machine of one shard over a tree: what a replica does with committed entries, and reads.
//!
//! ```text
//! apply(entry): decode -> for each command { seen before? -> conditions -> changes } -> one TreeBatch
//!                                            clients.rs     run.rs, overlay.rs        batch.rs
//! get, scan:    the tree, minus what has expired                                      read.rs
//! snapshot -> chunks -> install                                                       transfer.rs
//! ```
//! ## Invariants
//! - Every replica that applied the same entries holds the same records, request ids, expiry index and
//!   counts: nothing here reads a clock, a configuration or the place of a value.
//! - A command is applied as a whole or not at all, and once per request id.
//! - The replicated time never goes back. A record with an expiry is in the expiry index under it.
//! - `ShardStats::{keys, bytes}` equal what the tree counts, expired but unswept records included.

mod batch;
mod clients;
mod error;
mod expiry;
mod overlay;
mod read;
mod run;
mod state;
mod transfer;

use crate::command::{self, Outcomes, encode_outcomes};
use crate::tree::{Applied, Tree, TreeBatch, TreeOp, ValueAt};
use bytes::Bytes;
use clients::Clients;
use parking_lot::Mutex;
use run::Run;
use state::State;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use undb_types::LogId;

pub use clients::{CLIENT_IDLE_MS_MAX, CLIENTS_MAX, CLOCK_AHEAD_MS_MAX, WINDOW_LEN};
pub use error::ShardError;
pub use read::{
    Page, Reading, SCAN_BYTES_DEFAULT, SCAN_BYTES_MAX, SCAN_LIMIT_DEFAULT, SCAN_LIMIT_MAX, ScanRequest,
};
pub use transfer::{SNAPSHOT_FORMAT_VERSION, ShardSnapshot};

/// The shard's result.
pub type Result<T, E = ShardError> = std::result::Result<T, E>;

/// What a shard must know that is not in its log. Equal on all replicas, for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardOptions {
    /// Versions are this plus the raft index.
    pub version_base: u64,
}

/// A committed entry.
#[derive(Clone, Debug)]
pub struct AppliedEntry {
    /// Its place in the group's log.
    pub id: LogId,
    /// What it says.
    pub body: Body,
    /// Where the first byte of its payload lies in this replica's log; none: values are copied.
    pub at: Option<ValueAt>,
}

/// What an entry says.
#[derive(Clone, Debug)]
pub enum Body {
    /// Nothing: a new leader's first entry.
    Blank,
    /// The members from here on; opaque.
    Membership(Bytes),
    /// A payload of `command::encode`.
    Commands(Bytes),
}

/// Counts of a shard, equal on all replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardStats {
    /// Records, with those that have expired and were not swept yet.
    pub keys: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Of them, records with an expiry.
    pub timed_keys: u64,
    /// The replicated time.
    pub now_ms: u64,
    /// Clients whose request ids are remembered.
    pub clients: u64,
}

/// One replica's state machine.
pub struct Shard {
    tree: Arc<dyn Tree>,
    options: ShardOptions,
    /// The replicated time, for readers; written under `inner`.
    now_ms: AtomicU64,
    /// Bytes of keys and values written since this was opened.
    written_bytes: AtomicU64,
    /// Held by the one writer for a whole apply or install, which may last as long as a network does: nobody
    /// else takes it. Rank: before every lock of the tree.
    inner: Mutex<Inner>,
    /// As of the last apply or install. Leaf lock, held for a copy.
    stats: Mutex<ShardStats>,
}

struct Inner {
    state: State,
    clients: Clients,
    /// Why the memory may be ahead of the tree: nothing more is applied.
    poisoned: Option<String>,
}

impl Shard {
    /// The state machine over what the tree holds.
    pub fn open(tree: Arc<dyn Tree>, options: ShardOptions) -> Result<Shard> {
        let inner = Inner::load(tree.as_ref())?;
        let now_ms = AtomicU64::new(inner.state.now_ms);
        let stats = Mutex::new(inner.stats());
        let written_bytes = AtomicU64::new(0);
        Ok(Shard { tree, options, now_ms, written_bytes, inner: Mutex::new(inner), stats })
    }

    /// Applies a committed entry; answers the encoded outcomes of its commands. Entries come in order:
    /// one that was applied before changes nothing and answers no outcomes; one that leaves a gap, or
    /// that does not decode, is an error and changes nothing.
    pub fn apply(&self, entry: AppliedEntry) -> Result<Bytes> {
        let mut inner = self.inner.lock();
        if let Some(why) = &inner.poisoned {
            return Err(ShardError::Poisoned(why.clone()));
        }
        let applied = self.tree.applied();
        if let Some(last) = applied.log_id {
            if entry.id.index <= last.index {
                return Ok(encode_outcomes(&Outcomes { now_ms: inner.state.now_ms, outcomes: Vec::new() }));
            }
            if entry.id.index != last.index + 1 {
                return Err(ShardError::Gap { applied: last.index, got: entry.id.index });
            }
        }
        let result = self.apply_next(&mut inner, applied, entry);
        if let Err(e) = &result {
            // The memory is ahead of the tree now; what the tree holds is the truth.
            match Inner::load(self.tree.as_ref()) {
                Ok(loaded) => *inner = loaded,
                Err(_) => inner.poisoned = Some(e.to_string()),
            }
        }
        if inner.poisoned.is_none() {
            self.publish(&inner);
        }
        result
    }

    /// Shows readers what is reflected now.
    fn publish(&self, inner: &Inner) {
        self.now_ms.store(inner.state.now_ms, Ordering::Release);
        *self.stats.lock() = inner.stats();
    }

    fn apply_next(&self, inner: &mut Inner, applied: Applied, entry: AppliedEntry) -> Result<Bytes> {
        let mut batch = TreeBatch::default();
        let mut membership = applied.membership;
        let mut outcomes = Outcomes { now_ms: inner.state.now_ms, outcomes: Vec::new() };
        match entry.body {
            Body::Blank => {}
            Body::Membership(members) => membership = members,
            Body::Commands(payload) => {
                let decoded = command::decode(&payload)?;
                inner.state.now_ms = inner.state.now_ms.max(decoded.header.now_ms);
                outcomes.now_ms = inner.state.now_ms;
                let mut run = Run {
                    tree: self.tree.as_ref(),
                    state: &mut inner.state,
                    clients: &mut inner.clients,
                    version: self.options.version_base + entry.id.index,
                    default_ttl_ms: decoded.header.default_ttl_ms,
                    at: entry.at,
                    overlay: overlay::Overlay::default(),
                    system: Default::default(),
                };
                run.expire_clients();
                for command in decoded.commands {
                    let outcome = run.command(command)?;
                    outcomes.outcomes.push(outcome);
                }
                batch = run.into_batch();
            }
        }
        let state = inner.state.encode();
        batch.applied = Applied { log_id: Some(entry.id), membership, state };
        let bytes: usize = batch.ops.iter().map(TreeOp::user_bytes).sum();
        self.tree.write(batch)?;
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(encode_outcomes(&outcomes))
    }

    /// What has been applied: the last entry and the members as of it.
    pub fn applied(&self) -> Applied {
        self.tree.applied()
    }

    /// The last entry that survives a crash now.
    pub fn durable(&self) -> Option<LogId> {
        self.tree.durable()
    }

    /// Makes what is applied durable.
    pub fn flush(&self) -> Result<Option<LogId>> {
        Ok(self.tree.flush()?)
    }

    /// One step of the tree's background work; true when there is more.
    pub fn maintain(&self) -> Result<bool> {
        Ok(self.tree.maintain()?)
    }

    /// The replicated time, in ms since 1970.
    pub fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Acquire)
    }

    /// Bytes of keys and values that applied entries have written since this was opened: what write
    /// amplification is measured against.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// The tree below, for what goes round the state machine (garbage collection, inspection).
    pub fn tree(&self) -> &Arc<dyn Tree> {
        &self.tree
    }

    /// Counts. Never waits for an apply or an install.
    pub fn stats(&self) -> ShardStats {
        *self.stats.lock()
    }
}

impl Inner {
    fn load(tree: &dyn Tree) -> Result<Inner> {
        let state = State::decode(&tree.applied().state)?;
        let clients = Clients::load(tree)?;
        Ok(Inner { state, clients, poisoned: None })
    }

    fn stats(&self) -> ShardStats {
        let State { now_ms, keys, bytes, timed_keys, .. } = self.state;
        ShardStats { keys, bytes, timed_keys, now_ms, clients: self.clients.len() as u64 }
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("applied", &self.tree.applied().log_id).finish_non_exhaustive()
    }
}
