//! What a load prints: one JSON line a second, one a failure, and the verdict at the end.

use super::histogram::Histogram;
use super::sampler::Sampled;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

/// Counts of one kind of client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Requests that were answered.
    pub ok: u64,
    /// Of those: writes.
    pub writes: u64,
    /// Errors after the deadline.
    pub failed: u64,
    /// Writes whose fate is not known.
    pub ambiguous: u64,
    /// Answers that were wrong.
    pub wrong: u64,
    /// RESP: commands repeated once, as no reply came.
    pub repeated: u64,
}

impl Counts {
    /// Adds another's.
    pub fn add(&mut self, other: &Counts) {
        self.ok += other.ok;
        self.writes += other.writes;
        self.failed += other.failed;
        self.ambiguous += other.ambiguous;
        self.wrong += other.wrong;
        self.repeated += other.repeated;
    }

    /// Failed requests: errors and Ambiguous.
    pub fn bad(&self) -> u64 {
        self.failed + self.ambiguous
    }
}

/// A second of load. Requests count where they end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Second {
    /// Its end, milliseconds since 1970.
    pub t: u64,
    /// Through the SDK.
    pub sdk: Counts,
    /// Through the proxy.
    pub resp: Counts,
    /// Latencies from the moment a request was due, failed ones too.
    pub latency: Histogram,
    /// The longest, in microseconds.
    pub max_us: u64,
    /// For people.
    pub p50_ms: f64,
    /// For people.
    pub p99_ms: f64,
    /// Requests without an answer yet.
    pub waiting: u64,
    /// Unavailable replicas of the worst shard.
    pub unavailable: usize,
    /// Stores that answered the sampler.
    pub stores: usize,
}

/// A request that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failed {
    /// When it ended, milliseconds since 1970.
    pub t: u64,
    /// `sdk` or `resp`.
    pub via: String,
    /// `put` or `get`.
    pub op: String,
    /// On which key.
    pub key: String,
    /// `failed`, `ambiguous` or `wrong`.
    pub how: String,
    /// What was said.
    pub error: String,
    /// How long it took.
    pub ms: u64,
}

/// What is known at the end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// Through the SDK.
    pub sdk: Counts,
    /// Through the proxy.
    pub resp: Counts,
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// Keys read back at the end.
    pub read_back: u64,
    /// Those whose value was not right, the first 50.
    pub lost: Vec<String>,
    /// How many.
    pub lost_count: u64,
    /// Errors by their text, and how often.
    pub errors: BTreeMap<String, u64>,
    /// What the sampler found.
    pub sampled: Option<Sampled>,
    /// How long the load went on.
    pub seconds: f64,
}

/// One line of a load's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// Once a second.
    Second(Second),
    /// For each failed request, up to a limit.
    Failure(Failed),
    /// The last.
    Verdict(Box<Verdict>),
    /// Anything for people.
    Said(String),
}

impl Line {
    /// Prints it.
    pub fn print(&self) {
        // The types above cannot fail to be JSON.
        if let Ok(text) = serde_json::to_string(self) {
            println!("{text}");
        }
    }
}

/// Milliseconds with a fraction.
pub fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 100_000.0).round() / 100.0
}
