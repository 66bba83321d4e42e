//! Counts and times of the request path; registered once, so that a request pays for no look-up.

use metrics::{Counter, Histogram, counter, histogram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use undb_proto::v1::ErrorCode;

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Some keys.
    Get,
    /// A page of a range.
    Scan,
    /// A batch of mutations.
    Write,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Get, Kind::Scan, Kind::Write];

    fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Scan => "scan",
            Kind::Write => "write",
        }
    }
}

/// Of one store, since its start.
pub struct Meters {
    /// Bytes of keys and values of applied writes.
    pub user_bytes: Arc<AtomicU64>,
    /// Bytes that garbage collection moved.
    pub relocated_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    label: String,
    seconds: [Histogram; 3],
    /// Commands that share a log entry.
    pub entry_commands: Histogram,
    /// From the proposal of an entry to its outcome.
    pub commit_seconds: Histogram,
    /// Replicas taken out of service.
    pub quarantined: Counter,
}

impl Meters {
    /// All zero; `label` names the store.
    pub fn new(label: &str) -> Self {
        let store = || label.to_string();
        Self {
            user_bytes: Arc::default(),
            relocated_bytes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            label: label.to_string(),
            seconds: Kind::ALL.map(
                |kind| histogram!("undb_store_request_seconds", "store" => store(), "op" => kind.name()),
            ),
            entry_commands: histogram!("undb_store_entry_commands", "store" => store()),
            commit_seconds: histogram!("undb_store_commit_seconds", "store" => store()),
            quarantined: counter!("undb_store_quarantined_replicas_total", "store" => store()),
        }
    }

    /// A request was answered with what it asked for.
    pub fn served(&self, kind: Kind, took: Duration) {
        let count = if kind == Kind::Write { &self.writes } else { &self.reads };
        count.fetch_add(1, Ordering::Relaxed);
        self.seconds[kind as usize].record(took.as_secs_f64());
    }

    /// A request was refused.
    pub fn refused(&self, kind: Kind, code: ErrorCode) {
        let labels =
            [("store", self.label.clone()), ("op", kind.name().into()), ("code", code.as_str_name().into())];
        counter!("undb_store_refused_requests_total", &labels).increment(1);
    }

    /// Gets and scans answered.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Writes answered.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}
