//! The KV-separated engine on the shared log, and the commands it applies.
//!
//! - **What**: per replica one [`tree::Tree`], which maps encoded keys to versions, expiries and values; one
//!   [`Engine`] per store, which owns the directory, the data files, the garbage collector and the budgets.
//! - **What not**: no network, no async, no clock of its own (time is passed in), no Raft.
//! - **Picture**: a log entry holds value records; applying it puts *pointers* to them into the index. A flush
//!   makes the index durable together with the log position it reflects. Garbage collection moves what is still
//!   alive out of old segments into data files and swaps the pointers.
//! - **Invariants**: see [`tree`] and [`gc`]; [`Engine::check`] is their executable form.
//! - **Start** at [`tree::Tree`], then `tree/separated.rs`, then `gc/mod.rs`.

mod check;
pub mod command;
mod engine;
mod error;
pub mod gc;
pub mod manifest;
mod options;
pub mod record;
pub mod shard;
mod store_log;
pub mod tree;

pub use check::CheckReport;
pub use engine::{Engine, EngineStats};
pub use error::{EngineError, Result};
pub use gc::GcReport;
pub use options::EngineOptions;
