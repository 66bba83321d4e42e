//! Files, and files that crash.
//!
//! What: the few file operations that the log and the engine need, behind a trait: [`OsFs`] is the real
//! thing, [`SimFs`] loses what was not synced, fails on demand and counts every operation.
//!
//! Never: caching, retries, async, knowledge of what is in a file.
//!
//! ```text
//!   log, engine ──> dyn Fs ──┬── OsFs   pread, pwrite, fdatasync, flock, statvfs
//!                            └── SimFs  over a real directory: unsynced writes wait in memory,
//!                                       unsynced directory entries can be taken back
//! ```
//!
//! ## Invariants
//! - Bytes are durable only after `sync_data` returned; a new, renamed or removed name only after
//!   `sync_dir` of its directory returned. Code that holds under [`SimFs`] relies on nothing else.
//! - After a failed `sync_data` the bytes may be lost although they can still be read: never retry.
//!
//! Start at [`Fs`]; then `sim/mod.rs` for what a crash may do.

mod counters;
mod fs;
mod os;
mod sim;
mod whole_file;

pub use counters::{ClassCounters, Counters};
pub use fs::{File, Fs, Locked, OpenHow, Space, is_disk_full};
pub use os::OsFs;
pub use sim::{Crashed, Fault, OpKind, SimFs};
pub use whole_file::{read_file, write_file_atomic};
