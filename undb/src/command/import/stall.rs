//! What a person is told while no write goes through, and when a load gives up. Pure: time is passed in.

use std::time::{Duration, Instant};

/// Silence of this length is told.
const TOLD_AFTER: Duration = Duration::from_secs(3);
const TOLD_EVERY: Duration = Duration::from_secs(15);

/// The time since the last batch went through.
#[derive(Debug)]
pub struct Stall {
    limit: Duration,
    since: Instant,
    next_word: Instant,
}

impl Stall {
    /// Given up after `limit`.
    pub fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, since: now, next_word: now + TOLD_AFTER }
    }

    /// A batch went through, or the first one is under way.
    pub fn over(&mut self, now: Instant) {
        *self = Self::new(self.limit, now);
    }

    /// When to look again.
    pub fn next(&self) -> Instant {
        self.next_word.min(self.since + self.limit)
    }

    /// It has lasted as long as it may.
    pub fn is_too_long(&self, now: Instant) -> bool {
        now >= self.since + self.limit
    }

    /// What to say now; `last`: what an attempt ran into.
    pub fn words(&mut self, now: Instant, last: Option<&str>) -> String {
        self.next_word = now + TOLD_EVERY;
        let lasted_s = now.saturating_duration_since(self.since).as_secs();
        let left_s = self.limit.as_secs().saturating_sub(lasted_s);
        let last = last.unwrap_or("nobody answers");
        format!("no write went through for {lasted_s}s, trying for another {left_s}s (--retry-for): {last}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_told_early_then_now_and_then_until_it_is_too_long() {
        let begun = Instant::now();
        let at = |s: u64| begun + Duration::from_secs(s);
        let mut stall = Stall::new(Duration::from_secs(30), begun);
        assert_eq!(stall.next(), at(3));
        assert_eq!(
            stall.words(at(3), None),
            "no write went through for 3s, trying for another 27s (--retry-for): nobody answers"
        );
        assert_eq!(stall.next(), at(18));
        assert!(stall.words(at(18), Some("busy")).ends_with("for another 12s (--retry-for): busy"));
        assert_eq!(stall.next(), at(30), "the end is not slept through");
        assert!(!stall.is_too_long(at(29)) && stall.is_too_long(at(30)));
        stall.over(at(29));
        assert!(!stall.is_too_long(at(58)) && stall.next() == at(32));
    }
}
