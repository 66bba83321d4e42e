//! The load generator behind `undb bench`, and the peers it can be turned on.
//!
//! **What it does.** Plays YCSB's core workloads against a [`Target`] and reports throughput and latency.
//! Throughput comes from a closed loop (as many workers as asked for, each with one request under way);
//! latency from an open loop: requests are due at fixed times whatever the answers, and a late start
//! counts as latency, so that a stall is seen by every request that it would have hit (no coordinated
//! omission).
//!
//! **What it never does.** It judges nothing: no figure here passes or fails a test.
//!
//! Source: YCSB (Cooper et al., SoCC 2010) for workloads A, B, C, F and the scrambled Zipfian choice of
//! keys; Gray et al., SIGMOD 1994, for the generator; Gil Tene for coordinated omission.
//! **Where to start**: [`run()`], then `plan.rs`.

mod keys;
mod measure;
mod plan;
mod report;
mod target;
mod undb_target;
mod values;

pub use measure::{Progress, run};
pub use plan::{Plan, Workload};
pub use report::{Amplification, Latencies, Report};
pub use target::{Target, TargetError};
pub use undb_target::{Counters, UndbTarget};
