//! What to do, how much of it, for how long.

use serde::Serialize;
use std::time::Duration;

/// YCSB's core workloads, as far as they are built; D and E need other keys and scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Half reads, half updates.
    A,
    /// 95% reads, 5% updates.
    B,
    /// Only reads.
    C,
    /// Half reads, half read-modify-writes.
    F,
    /// Insert every key once.
    Load,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read a record.
    Read,
    /// Write it anew.
    Update,
    /// Read it, then write it.
    ReadModifyWrite,
}

impl Workload {
    /// The request that `dice` (0 to 99) chooses.
    pub fn op(self, dice: u32) -> Op {
        match (self, dice) {
            (Workload::A, 0..50) | (Workload::B, 0..95) | (Workload::C, _) | (Workload::F, 0..50) => Op::Read,
            (Workload::F, _) => Op::ReadModifyWrite,
            _ => Op::Update,
        }
    }

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::A => "a",
            Workload::B => "b",
            Workload::C => "c",
            Workload::F => "f",
            Workload::Load => "load",
        }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What to do.
    pub workload: Workload,
    /// Records.
    pub keys: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Requests under way at one time in the closed loop, and at most in the open loop's workers.
    pub threads: usize,
    /// Time of the whole run, half of it for each loop. Ignored by `load`, which ends with its keys.
    pub duration: Duration,
    /// Requests a second in the open loop; None: 70% of what the closed loop reached.
    pub rate: Option<f64>,
    /// Insert the keys before a workload other than `load`.
    pub load_first: bool,
    /// Everything that is random comes from it.
    pub seed: u64,
}
