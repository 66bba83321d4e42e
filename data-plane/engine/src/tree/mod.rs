//! A tree: the ordered map of one replica, with the log position that it reflects.
//!
//! Three kinds behind one trait: `separated` (values stay in the log, an LSM index points at them), `lsm`
//! (values in the LSM tree) and `sled`.
//!
//! ## Invariants
//! - [`Tree::write`] is atomic, and has one caller at a time.
//! - What [`Tree::durable`] names survives a crash, together with exactly what it reflects; after a restart
//!   [`Tree::applied`] equals it, and applying the entries behind it again gives the same state.
//! - `TreeStats::live_by_segment` is exact at every moment: the sum over the index entries that point there.

pub mod entry;
pub(crate) mod index;
mod install;
pub(crate) mod ledger;
mod rows;
pub(crate) mod separated;
pub(crate) mod shared;
pub(crate) mod sled_tree;
pub(crate) mod values;

use crate::error::{EngineError, Result};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use undb_types::{KeyRange, LogId};

/// Which engine keeps a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Values stay in the log, an LSM index points at them.
    #[default]
    Separated,
    /// Values in the LSM tree.
    Lsm,
    /// sled 0.34; experimental.
    Sled,
}

impl EngineKind {
    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Separated => "separated",
            EngineKind::Lsm => "lsm",
            EngineKind::Sled => "sled",
        }
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            EngineKind::Separated => 1,
            EngineKind::Lsm => 2,
            EngineKind::Sled => 3,
        }
    }

    pub(crate) fn from_code(code: u8) -> Result<Self> {
        match code {
            1 => Ok(EngineKind::Separated),
            2 => Ok(EngineKind::Lsm),
            3 => Ok(EngineKind::Sled),
            other => Err(EngineError::corrupt("manifest", format!("unknown engine kind {other}"))),
        }
    }
}

/// Longest encoded key that a tree takes, in bytes (the index crate counts key bytes in 16 bits, one is ours).
pub const TREE_KEY_BYTES_MAX: usize = 65_534;

/// What is known of a value without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordMeta {
    /// The compare-and-set token.
    pub version: u64,
    /// When it expires, in milliseconds of replicated time; 0: never.
    pub expire_at_ms: u64,
    /// What kind of value, for the layers above.
    pub kind: u32,
    /// Its length in bytes.
    pub value_len: u32,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Encoded key.
    pub key: Bytes,
    /// What is known of the value.
    pub meta: RecordMeta,
    /// The value, unless only keys were asked for.
    pub value: Option<Bytes>,
}

/// Where the value record of a put lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueAt {
    /// Log segment.
    pub segment: u64,
    /// Offset of the value record (its checksum) in the segment file.
    pub offset: u64,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeOp {
    /// Sets a key. `meta.value_len` is taken from `value`.
    Put {
        /// Encoded key.
        key: Bytes,
        /// Version, expiry, kind.
        meta: RecordMeta,
        /// The value.
        value: Bytes,
        /// Its value record in the log, if it has one there.
        at: Option<ValueAt>,
    },
    /// Changes what is known of a value and leaves the value; nothing happens to an absent key.
    SetMeta {
        /// Encoded key.
        key: Bytes,
        /// Version, expiry, kind.
        meta: RecordMeta,
    },
    /// Removes a key.
    Delete {
        /// Encoded key.
        key: Bytes,
    },
}

impl TreeOp {
    /// Bytes of the key, and of the value where one is written.
    pub fn user_bytes(&self) -> usize {
        match self {
            TreeOp::Put { key, value, .. } => key.len() + value.len(),
            TreeOp::SetMeta { key, .. } | TreeOp::Delete { key } => key.len(),
        }
    }
}

impl TreeOp {
    /// The key it changes.
    pub fn key(&self) -> &Bytes {
        match self {
            TreeOp::Put { key, .. } | TreeOp::SetMeta { key, .. } | TreeOp::Delete { key } => key,
        }
    }
}

/// How far a tree has applied its group's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The last entry applied; none: a new tree.
    pub log_id: Option<LogId>,
    /// The membership as of then; opaque.
    pub membership: Bytes,
    /// The state machine's own small state; opaque.
    pub state: Bytes,
}

/// What applying one or more entries changes.
#[derive(Clone, Debug, Default)]
pub struct TreeBatch {
    /// Changes of keys, in order: of several to one key the last put or delete wins.
    pub ops: Vec<TreeOp>,
    /// Records of the state machine apart from user keys; none removes.
    pub system: Vec<(Bytes, Option<Bytes>)>,
    /// What is applied after it.
    pub applied: Applied,
}

/// Exact counts of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub live_bytes: u64,
    /// Live record bytes by value segment.
    pub live_by_segment: BTreeMap<SegmentRef, u64>,
    /// Bytes of changes in memory, not yet durable.
    pub memtable_bytes: u64,
    /// Bytes of the tree's own files.
    pub index_bytes: u64,
}

/// Which kind of file a value lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A segment of the log.
    Log,
    /// A data file.
    Data,
}

/// A file that values lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentRef {
    /// Its kind; each has ids of its own.
    pub origin: Origin,
    /// Its id, never used again.
    pub id: u64,
}

/// One thing of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A key with its value.
    Row(Row),
    /// A system record.
    System(Bytes, Bytes),
}

/// Rows, in order.
pub type Rows<'a> = Box<dyn Iterator<Item = Result<Row>> + Send + 'a>;

/// A frozen, durable view of a tree. Values it can reach stay readable until it is dropped.
pub trait TreeSnapshot: Send + Sync {
    /// What it reflects.
    fn applied(&self) -> Applied;
    /// Rows with their values in key order, from behind `start_after`.
    fn rows(&self, start_after: Option<&[u8]>) -> Result<Rows<'_>>;
    /// The first `limit` system records in key order, from behind `start_after`.
    fn system(&self, start_after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>>;
}

/// The ordered map of one replica.
pub trait Tree: Send + Sync {
    /// What has been applied.
    fn applied(&self) -> Applied;
    /// P: what would be applied after a crash now.
    fn durable(&self) -> Option<LogId>;
    /// A key with its value.
    fn get(&self, key: &[u8]) -> Result<Option<Row>>;
    /// What is known of a key's value; never reads the value.
    fn meta(&self, key: &[u8]) -> Result<Option<RecordMeta>>;
    /// The rows of a range as of now; `keys_only` reads no values.
    fn scan(&self, range: &KeyRange, reverse: bool, keys_only: bool) -> Result<Rows<'_>>;
    /// A system record.
    fn system(&self, key: &[u8]) -> Result<Option<Bytes>>;
    /// The first `limit` system records, in key order, whose keys begin with `prefix`. The expiry index lives
    /// there, so callers page; the next page begins behind `start_after`.
    fn scan_system(
        &self,
        prefix: &[u8],
        start_after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>>;
    /// Applies a batch as a whole. The caller sees to it that there is one writer.
    fn write(&self, batch: TreeBatch) -> Result<()>;
    /// Makes all that is applied durable; returns the new P.
    fn flush(&self) -> Result<Option<LogId>>;
    /// A view at P, after a flush.
    fn snapshot(&self) -> Result<Arc<dyn TreeSnapshot>>;
    /// Replaces the whole content, atomically and durably. Rows come in key order.
    fn install(&self, applied: Applied, items: &mut dyn Iterator<Item = Result<Item>>) -> Result<()>;
    /// Exact counts.
    fn stats(&self) -> TreeStats;
    /// One step of background work: flush what is full, compact. True when there is more.
    fn maintain(&self) -> Result<bool>;
}

/// Creates the directory of a tree and makes its name durable (the crates that fill it sync only what is inside).
pub(crate) fn create_tree_dir(fs: &dyn undb_vfs::Fs, dir: &std::path::Path) -> Result<()> {
    let failed = |e| EngineError::io("create a tree's directory", e);
    fs.create_dir_all(dir).map_err(failed)?;
    match dir.parent() {
        Some(parent) => fs.sync_dir(parent).map_err(failed),
        None => Ok(()),
    }
}
