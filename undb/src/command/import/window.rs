//! How many batches are under way: one more after each round that went well, half after one that
//! met a busy store. Pure.

use std::time::Duration;

/// A congestion window of batches.
#[derive(Clone, Debug)]
pub struct Window {
    size: f64,
    max: f64,
}

/// What a batch met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    Quiet,
    Busy,
}

/// A batch that took longer than this met a busy store, whatever it was told.
pub const SLOW: Duration = Duration::from_secs(2);

impl Window {
    /// Begins low and grows up to `max`.
    pub fn new(max: u32) -> Self {
        Self { size: f64::from(max.min(4)), max: f64::from(max.max(1)) }
    }

    /// Batches that may be under way.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// A batch has ended.
    pub fn ended(&mut self, met: Met) {
        self.size = match met {
            Met::Quiet => (self.size + 1.0 / self.size).min(self.max),
            Met::Busy => (self.size / 2.0).max(1.0),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_by_one_a_round_and_halves_when_busy() {
        let mut window = Window::new(16);
        assert_eq!(window.size(), 4);
        (0..200).for_each(|_| window.ended(Met::Quiet));
        assert_eq!(window.size(), 16);
        window.ended(Met::Busy);
        assert_eq!(window.size(), 8);
        (0..9).for_each(|_| window.ended(Met::Quiet));
        assert_eq!(window.size(), 9);
        (0..20).for_each(|_| window.ended(Met::Busy));
        assert_eq!(window.size(), 1);
    }
}
