//! Latencies in buckets that grow by a sixteenth of an octave: what is reported is at most 4.5 % too high.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

const BUCKETS_PER_OCTAVE: f64 = 16.0;

/// How many calls took how long. As JSON: `{"bucket": count}`, small enough for one line a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram {
    counts: BTreeMap<u16, u64>,
}

fn bucket(took: Duration) -> u16 {
    let micros = took.as_micros().max(1) as f64;
    (micros.log2() * BUCKETS_PER_OCTAVE).ceil() as u16
}

fn upper_edge(bucket: u16) -> Duration {
    Duration::from_micros((f64::from(bucket) / BUCKETS_PER_OCTAVE).exp2() as u64)
}

impl Histogram {
    /// Counts one.
    pub fn record(&mut self, took: Duration) {
        *self.counts.entry(bucket(took)).or_default() += 1;
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, count) in &other.counts {
            *self.counts.entry(*bucket).or_default() += count;
        }
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// At most this long took the given part (0.99: p99) of all.
    pub fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.count() as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in &self.counts {
            seen += count;
            if seen >= wanted {
                return upper_edge(*bucket);
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_at_most_a_bucket_too_high() {
        let mut all = Histogram::default();
        for ms in 1..=1000 {
            all.record(Duration::from_millis(ms));
        }
        for (part, truth_ms) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found_ms = all.quantile(part).as_secs_f64() * 1000.0;
            assert!(found_ms >= truth_ms * 0.999 && found_ms < truth_ms * 1.05, "{part}: {found_ms}");
        }
        assert_eq!(Histogram::default().quantile(0.99), Duration::ZERO);
    }

    #[test]
    fn merging_seconds_is_the_same_as_counting_at_once() {
        let (mut a, mut b, mut all) = (Histogram::default(), Histogram::default(), Histogram::default());
        for us in [0, 1, 7, 900, 10_000_000] {
            a.record(Duration::from_micros(us));
            b.record(Duration::from_micros(us * 3));
            all.record(Duration::from_micros(us));
            all.record(Duration::from_micros(us * 3));
        }
        a.merge(&b);
        assert_eq!(a, all);
        let line = serde_json::to_string(&a).expect("JSON");
        assert_eq!(serde_json::from_str::<Histogram>(&line).expect("JSON"), all);
    }
}
