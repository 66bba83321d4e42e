//! Bytes that requests hold together. Taking is one atomic step; a permit gives back when dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bound on bytes in use. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    used: AtomicU64,
}

/// Bytes taken from a budget.
#[derive(Debug)]
pub struct Permit {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    /// At most `limit` bytes at once; one larger request may run alone.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Inner { limit, used: AtomicU64::new(0) }))
    }

    /// Takes `bytes`, or nothing when that is too much now.
    pub fn take(&self, bytes: u64) -> Option<Permit> {
        let before = self.0.used.fetch_add(bytes, Ordering::Relaxed);
        let permit = Permit { budget: self.clone(), bytes };
        let fits = before == 0 || before.saturating_add(bytes) <= self.0.limit;
        fits.then_some(permit)
    }

    /// A permit for no bytes.
    pub fn nothing(&self) -> Permit {
        Permit { budget: self.clone(), bytes: 0 }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_dropping_gives_back() {
        let budget = Budget::new(100);
        let first = budget.take(60).expect("fits");
        assert!(budget.take(60).is_none());
        assert_eq!(budget.used(), 60);
        drop(first);
        assert!(budget.take(100).is_some());
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn one_request_that_is_larger_than_the_limit_runs_alone() {
        let budget = Budget::new(100);
        let _large = budget.take(500).expect("alone");
        assert!(budget.take(1).is_none());
    }
}
