//! Spreads bytes over time: snapshots of all groups share one rate.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// A host's rate. Zero bytes a second: no limit.
pub(crate) struct Pace {
    bytes_per_s: u64,
    // Leaf lock. When the bytes promised so far are paid for.
    paid: Mutex<Instant>,
}

impl Pace {
    pub fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, paid: Mutex::new(Instant::now()) }
    }

    /// When `bytes` may go, if asked at `now`.
    fn reserve(&self, bytes: usize, now: Instant) -> Instant {
        if self.bytes_per_s == 0 {
            return now;
        }
        let nanos = u128::from(bytes as u64) * 1_000_000_000 / u128::from(self.bytes_per_s);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut paid = self.paid.lock();
        let start = (*paid).max(now);
        *paid = start + cost;
        start
    }

    /// Waits until `bytes` may go.
    pub async fn take(&self, bytes: usize) {
        let now = Instant::now();
        let start = self.reserve(bytes, now);
        if start > now {
            tokio::time::sleep_until(start).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_wait_for_those_before_them() {
        let pace = Pace::new(1000);
        let now = Instant::now();
        assert_eq!(pace.reserve(500, now), now);
        assert_eq!(pace.reserve(500, now), now + Duration::from_millis(500));
        assert_eq!(Pace::new(0).reserve(usize::MAX, now), now);
    }
}
