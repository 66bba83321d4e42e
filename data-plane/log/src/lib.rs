//! One segmented, group-committed log per store for all its Raft groups.
//!
//! What: entries, votes, truncations and purges of many groups in one stream of frames, made durable by one
//! thread with one fdatasync for whatever queued while the last one ran. The log is also where values live:
//! [`Log::locate`] says where an entry lies, [`Log::read_at`] reads it there, and a segment's file stays
//! until nothing needs it.
//!
//! Never: knows what a payload means; async; deletes a segment by itself (one that never held an entry
//! excepted); acknowledges after a failed sync.
//!
//! ```text
//!   append, vote, ... ──> frame ──> pwrite ──> fdatasync ──> Done callbacks, in order
//!                           │
//!   read, locate <── groups: index -> segment, offset      0000000000000001.seg  sealed, footer
//!                                                          0000000000000002.seg  sealed, footer
//!                                                          0000000000000003.seg  written
//! ```
//!
//! ## Invariants
//! - Frames are numbered without gaps over all segments, and are durable in that order.
//! - The first frame of a segment is a checkpoint of every group's state: an older segment holds nothing but
//!   entries that counts.
//! - Every open begins a new segment with a raised incarnation, after the last one was cut behind its last
//!   good frame and sealed: what was cut can never validate again.
//! - A segment is deleted only when sealed, unpinned, and no group counts on an entry in it, durably.
//!
//! ## Where to start
//! [`Log`]; then `state.rs` (what happens in memory), `writer.rs` (what happens to files), `recover.rs` (what
//! is believed at open) and [`format`] (the bytes).

mod counters;
mod error;
mod files;
pub mod format;
mod frame;
mod group;
pub mod inspect;
mod log;
mod options;
mod read;
mod recover;
mod replay;
mod reserve;
mod scan;
mod segment_io;
mod shared;
mod state;
mod writer;

pub use error::LogError;
pub use log::{
    Done, ENTRY_BYTES_MAX, Entry, EntryLocation, GroupState, Log, LogCounters, SegmentInfo, VOTE_BYTES_MAX,
};
pub use options::LogOptions;
