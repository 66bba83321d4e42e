//! Garbage collection: what is dead is deleted, what lives among much that is dead is moved.
//!
//! ## Invariants
//! - A file is deleted only when no tree points into it, now *and* as of its durable position, no scan or snapshot
//!   from before that is open, and (a log segment) the log does not need it.
//! - Values are moved beside the user's write path: a swap changes a pointer only while the old one is current. It
//!   never makes a key.
//! - Nothing is moved while the space budget holds.

pub mod codec;
mod collect;
pub mod data_file;
pub mod pins;
mod relocate;
pub mod victim;

use crate::tree::SegmentRef;
use std::collections::{BTreeMap, BTreeSet};
use undb_types::{GroupId, LogId};

/// What garbage collection remembers between steps; rebuilt after a restart.
#[derive(Debug, Default)]
pub(crate) struct GcState {
    /// Files found dead, with the moment of the pins then.
    dying: BTreeMap<SegmentRef, u64>,
    /// Files with a value that cannot be read.
    unreadable: BTreeSet<SegmentRef>,
}

/// What one step did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GcReport {
    /// Files deleted.
    pub deleted: Vec<SegmentRef>,
    /// Bytes of them.
    pub deleted_bytes: u64,
    /// Record bytes written to new data files.
    pub moved_bytes: u64,
    /// Values moved.
    pub moved_values: u64,
    /// Values that were overwritten or deleted while they were copied.
    pub outdated_values: u64,
    /// Values that could not be read. Repair them from peers.
    pub unreadable_values: u64,
    /// Bytes of value files per live byte, after the step.
    pub space_amplification: f64,
    /// Bytes above the budget, after the step.
    pub excess_bytes: u64,
    /// The log holds what is over the budget: purge these groups up to their durable position.
    pub purge_wanted: Vec<(GroupId, LogId)>,
}

impl GcReport {
    fn record_deleted(&mut self, state: &mut GcState, segment: SegmentRef, bytes: u64) {
        state.dying.remove(&segment);
        state.unreadable.remove(&segment);
        self.deleted.push(segment);
        self.deleted_bytes += bytes;
    }
}
