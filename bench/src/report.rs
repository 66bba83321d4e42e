//! What a run found.

use crate::plan::Plan;
use crate::undb_target::Counters;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latencies {
    /// Half are faster.
    pub p50_us: u64,
    /// 99% are faster.
    pub p99_us: u64,
    /// 99.9% are faster.
    pub p999_us: u64,
    /// The slowest.
    pub max_us: u64,
    /// How many were measured.
    pub count: u64,
}

impl From<&Histogram<u64>> for Latencies {
    fn from(h: &Histogram<u64>) -> Self {
        Self {
            p50_us: h.value_at_quantile(0.5),
            p99_us: h.value_at_quantile(0.99),
            p999_us: h.value_at_quantile(0.999),
            max_us: h.max(),
            count: h.len(),
        }
    }
}

/// What was written and is held, against what the user wrote and can see; per replica.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Amplification {
    /// Bytes written to files (log, index, garbage collection, padding) per byte of keys and values.
    pub write: f64,
    /// Bytes held by files per live byte of keys and values, at the end.
    pub space: f64,
    /// Bytes of keys and values that were applied, all replicas together.
    pub user_bytes: u64,
}

impl Amplification {
    /// From counters before and after. None: nothing was written.
    pub fn between(before: Counters, after: Counters) -> Option<Self> {
        let user_bytes = after.user_bytes.saturating_sub(before.user_bytes);
        let written = after.written_bytes.saturating_sub(before.written_bytes);
        let ratio = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        (user_bytes > 0).then(|| Self {
            write: ratio(written, user_bytes),
            space: ratio(after.disk_bytes, after.live_bytes),
            user_bytes,
        })
    }
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was loaded.
    pub target: String,
    /// a, b, c, f or load.
    pub workload: &'static str,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Records.
    pub keys: u64,
    /// Requests under way in the closed loop.
    pub threads: usize,
    /// Requests a second in the closed loop.
    pub throughput_per_s: f64,
    /// MB (10^6 bytes) of values read and written a second in the closed loop.
    pub throughput_mb_per_s: f64,
    /// Requests a second that the open loop asked for; 0: it did not run.
    pub rate_per_s: f64,
    /// Of reads in the open loop (in the closed one for `load`), from when they were due.
    pub read: Latencies,
    /// Of writes and read-modify-writes, likewise.
    pub write: Latencies,
    /// Requests that failed, in both loops.
    pub errors: u64,
    /// One of them.
    pub error: Option<String>,
    /// Where the target counts bytes.
    pub amplification: Option<Amplification>,
}

impl Report {
    /// The names of `row`.
    pub fn header() -> String {
        format!(
            "{:<10} {:<5} {:>6} {:>10} {:>8} | {:>9} {:>9} {:>9} {:>9} | {:>9} {:>9} {:>9} {:>9} | {:>5} {:>5} {:>6}",
            "target",
            "load",
            "value",
            "ops/s",
            "MB/s",
            "rd p50",
            "p99",
            "p99.9",
            "max",
            "wr p50",
            "p99",
            "p99.9",
            "max",
            "WA",
            "SA",
            "errors"
        )
    }

    /// One line for people.
    pub fn row(&self) -> String {
        let cells = |l: &Latencies| match l.count {
            0 => format!("{:>9} {:>9} {:>9} {:>9}", "-", "-", "-", "-"),
            _ => [l.p50_us, l.p99_us, l.p999_us, l.max_us].map(|us| format!("{:>9}", shown(us))).join(" "),
        };
        let (wa, sa) = match self.amplification {
            Some(a) => (format!("{:.2}", a.write), format!("{:.2}", a.space)),
            None => ("-".into(), "-".into()),
        };
        format!(
            "{:<10} {:<5} {:>6} {:>10.0} {:>8.1} | {} | {} | {wa:>5} {sa:>5} {:>6}",
            self.target,
            self.workload,
            self.value_bytes,
            self.throughput_per_s,
            self.throughput_mb_per_s,
            cells(&self.read),
            cells(&self.write),
            self.errors
        )
    }

    pub(crate) fn empty(target: &str, plan: &Plan) -> Self {
        Self {
            target: target.to_owned(),
            workload: plan.workload.name(),
            value_bytes: plan.value_bytes,
            keys: plan.keys,
            threads: plan.threads,
            throughput_per_s: 0.0,
            throughput_mb_per_s: 0.0,
            rate_per_s: 0.0,
            read: Latencies::default(),
            write: Latencies::default(),
            errors: 0,
            error: None,
            amplification: None,
        }
    }
}

fn shown(us: u64) -> String {
    match us {
        0..10_000 => format!("{us}us"),
        10_000..10_000_000 => format!("{}ms", us / 1000),
        _ => format!("{}s", us / 1_000_000),
    }
}
