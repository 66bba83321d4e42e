//! The process that hosts many shards: one directory, one log, one engine, many Raft groups.
//!
//! - **What**: the role `store`. It registers with cluster control, keeps the replicas it is told to
//!   keep, serves the `Kv`, `Store` and `RaftTransport` services, and looks after its disk.
//! - **What not**: it never decides where replicas live, and never deletes data because it is missing
//!   from somebody's list: only an explicit order with a covering epoch moves a copy to the trash.
//! - **Picture**:
//! ```text
//! client --Session--> check --read---> barrier ------------> Shard (engine) --> answer
//!                       |                                       ^
//!                       +---write--> batcher -> entry -> Group -+ apply (machine)
//! control --orders--> admin        heartbeat --> control       maintain: flush, purge, gc, sweep
//! ```
//! - **Invariants**: see [`directory`] (identity before data, tombstones for ever), `batcher` (one key
//!   once an entry) and `barrier` (a read is served by a barrier that began after it came).
//! - **Start** at [`start()`], then `kv/session.rs` for a request's way.

mod start;
mod store;

mod admin;
mod control;
mod kv;
mod maintain;
mod stop;

mod addresses;
mod barrier;
mod batcher;
mod budget;
mod check;
mod chunk;
mod config;
pub mod directory;
mod disk;
mod error;
mod machine;
mod meters;
mod readiness;
mod replica;
mod report;
mod stats;
mod wire;
mod writer;
mod zone;

pub use config::{Config, EngineConfig, LimitConfig, LogConfig, RaftConfig, ReadBarrier};
pub use error::StoreError;
pub use start::{Env, Running, identity_of, start, start_with};
