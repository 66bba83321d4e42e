//! What is true (the records of metadata) and what should be done about it (the plan).
//!
//! ```text
//!  MetaCommand --apply--> State --image/change--> mirrors (control, router, access)
//!                           |
//!  observations --gate::decide(state, observations, question, now)--> granted, or who blocks
//!  heartbeats --> Observations --plan(state, observations, now)--> tasks with reasons
//! ```
//!
//! `State` is authoritative and small: stores, store clusters, tables, shards, the control lease.
//! Who leads a shard, how loaded a store is and when it was last heard of is soft state: it lives in
//! [`plan::Observations`] of cluster control and is never written down here.
//!
//! Never: I/O, clocks, randomness, async. Time comes inside the command and never goes back.
//!
//! ## Invariants (`State::check`)
//! - ids are handed out once: every id in a record is below `next_id`;
//! - uuids are unique, addresses are unique among stores that are not removed;
//! - names of tables that are not deleted are unique;
//! - the shards of a table cover all keys, without holes or overlaps;
//! - a shard's replicas lie on distinct stores, and no replica id occurs twice;
//! - epochs never go back; a removed store never returns; a purged shard never returns;
//! - a store is under one disruption lease at most; a lease goes only with proof or with its replicas.
//!
//! Where to start: a command -> `apply/`; a file or a wire form -> `image`; a copy -> `mirror`;
//! what cluster control will do -> `plan/`; whether a store may be stopped -> `gate/`.

mod apply;
mod check;
mod error;
pub mod gate;
mod image;
mod mirror;
pub mod plan;
mod room;
mod state;

pub use apply::DECISION_MS_MAX;
pub use error::{ImageError, Reject};
pub use image::FORMAT_VERSION;
pub use state::{Applied, State, TABLE_RETENTION_MS};

/// Name of the store cluster and of the table that exist from the start.
pub const DEFAULT_NAME: &str = "default";
