//! Time as a value that is passed in, so that tests own it.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Wall time and monotonic time. Clones share one manual time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Real { origin: Instant },
    Manual(Arc<Mutex<Manual>>),
}

#[derive(Debug)]
struct Manual {
    wall_ms: u64,
    monotonic: Duration,
}

impl Default for Clock {
    fn default() -> Self {
        Self::real()
    }
}

impl Clock {
    /// The machine's time. Monotonic time follows a paused tokio runtime.
    pub fn real() -> Self {
        Self(Source::Real { origin: Instant::now() })
    }

    /// A time that only `advance` and `set_wall_ms` change.
    pub fn manual(wall_ms: u64) -> Self {
        Self(Source::Manual(Arc::new(Mutex::new(Manual { wall_ms, monotonic: Duration::ZERO }))))
    }

    /// Milliseconds since 1970. May jump in either direction: never measure with it.
    pub fn now_ms(&self) -> u64 {
        match &self.0 {
            Source::Real { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }
            Source::Manual(manual) => manual.lock().wall_ms,
        }
    }

    /// Time since this clock was made; never goes back.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Source::Real { origin } => origin.elapsed(),
            Source::Manual(manual) => manual.lock().monotonic,
        }
    }

    /// Moves a manual clock forward; a real one goes by itself.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(manual) = &self.0 {
            let mut manual = manual.lock();
            manual.wall_ms = manual.wall_ms.saturating_add(by.as_millis().try_into().unwrap_or(u64::MAX));
            manual.monotonic = manual.monotonic.saturating_add(by);
        }
    }

    /// Sets a manual clock's wall time, also backwards, as an administrator might.
    pub fn set_wall_ms(&self, wall_ms: u64) {
        if let Source::Manual(manual) = &self.0 {
            manual.lock().wall_ms = wall_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_manual_clock_share_their_time() {
        let clock = Clock::manual(1_000);
        let clone = clock.clone();
        clock.advance(Duration::from_millis(250));
        assert_eq!((clone.now_ms(), clone.monotonic()), (1_250, Duration::from_millis(250)));
        clock.set_wall_ms(5);
        assert_eq!((clone.now_ms(), clone.monotonic()), (5, Duration::from_millis(250)));
    }
}
