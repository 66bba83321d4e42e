//! How long to wait before the next attempt: exponential with full jitter. Pure; the caller sleeps.

use std::time::Duration;

/// Delays that double from `first` up to `cap`, each drawn evenly from its upper half, so that many
/// callers that failed together do not come back together.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    attempts: u32,
}

impl Backoff {
    /// Delays from `first` to `cap`.
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, attempts: 0 }
    }

    /// Attempts that have failed so far.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// After a success the next delay is the first again.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }

    /// The next delay, with this thread's random numbers.
    pub fn next_delay(&mut self) -> Duration {
        let draw = rand::random::<f64>();
        self.next_delay_at(draw)
    }

    /// The next delay for a `draw` in 0..1.
    pub fn next_delay_at(&mut self, draw: f64) -> Duration {
        let delay = delay(self.first, self.cap, self.attempts, draw);
        self.attempts = self.attempts.saturating_add(1);
        delay
    }
}

/// The delay before attempt `attempt` (from 0) for a `draw` in 0..1.
pub fn delay(first: Duration, cap: Duration, attempt: u32, draw: f64) -> Duration {
    let full = first.saturating_mul(1_u32.checked_shl(attempt.min(31)).unwrap_or(u32::MAX)).min(cap);
    full.mul_f64(0.5 + 0.5 * draw.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(50));
        let delays: Vec<u128> = (0..5).map(|_| backoff.next_delay_at(1.0).as_millis()).collect();
        assert_eq!(delays, [10, 20, 40, 50, 50]);
        backoff.reset();
        assert_eq!(backoff.next_delay_at(0.0), Duration::from_millis(5));
    }

    #[test]
    fn the_hundredth_attempt_does_not_overflow() {
        assert_eq!(delay(Duration::from_secs(1), Duration::from_secs(9), 100, 1.0), Duration::from_secs(9));
    }
}
