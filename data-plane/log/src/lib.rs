//! One segmented, group-committed log per store for all its Raft groups.
mod error;
mod log;
mod options;

pub use error::LogError;
pub use log::{Done, Entry, EntryLocation, GroupState, Log, LogCounters, SegmentInfo};
pub use options::LogOptions;
