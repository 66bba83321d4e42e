//! What the log wrote, for write amplification: totals for callers and the same as metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::LogCounters;

/// Metrics, all with the label `store`: `undb_log_payload_bytes_total`, `undb_log_written_bytes_total`,
/// `undb_log_syncs_total`, `undb_log_frames_total`, `undb_log_entries_total`, `undb_log_segments_total`,
/// `undb_log_sync_seconds` (histogram), `undb_log_full` (gauge, 1 while appends are refused).
pub(crate) struct Counters {
    payload_bytes: Total,
    written_bytes: Total,
    syncs: Total,
    frames: Total,
    entries: Total,
    segments: Total,
    sync_seconds: metrics::Histogram,
    full: metrics::Gauge,
}

struct Total {
    value: AtomicU64,
    metric: metrics::Counter,
}

impl Total {
    fn add(&self, n: u64) {
        self.value.fetch_add(n, Ordering::Relaxed);
        self.metric.increment(n);
    }

    fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub fn new(store: &str) -> Self {
        let total = |name: &'static str| Total {
            value: AtomicU64::default(),
            metric: metrics::counter!(name, "store" => store.to_owned()),
        };
        Counters {
            payload_bytes: total("undb_log_payload_bytes_total"),
            written_bytes: total("undb_log_written_bytes_total"),
            syncs: total("undb_log_syncs_total"),
            frames: total("undb_log_frames_total"),
            entries: total("undb_log_entries_total"),
            segments: total("undb_log_segments_total"),
            sync_seconds: metrics::histogram!("undb_log_sync_seconds", "store" => store.to_owned()),
            full: metrics::gauge!("undb_log_full", "store" => store.to_owned()),
        }
    }

    pub fn wrote(&self, bytes: usize) {
        self.written_bytes.add(bytes as u64);
    }

    pub fn frame(&self, entries: u64, payload_bytes: usize) {
        self.frames.add(1);
        self.entries.add(entries);
        self.payload_bytes.add(payload_bytes as u64);
    }

    pub fn synced(&self, took: Duration) {
        self.syncs.add(1);
        self.sync_seconds.record(took.as_secs_f64());
    }

    pub fn segment(&self) {
        self.segments.add(1);
    }

    pub fn full(&self, full: bool) {
        self.full.set(f64::from(u8::from(full)));
    }

    pub fn read(&self) -> LogCounters {
        LogCounters {
            payload_bytes: self.payload_bytes.get(),
            written_bytes: self.written_bytes.get(),
            syncs: self.syncs.get(),
            frames: self.frames.get(),
            entries: self.entries.get(),
            segments: self.segments.get(),
        }
    }
}
