//! Who may still read an old pointer: scans and snapshots. A file found dead at moment n is deleted once every
//! pin from before n is gone.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug, Default)]
struct Open {
    next: u64,
    numbers: BTreeSet<u64>,
}

/// The pins of a store.
#[derive(Clone, Debug, Default)]
pub struct Pins(Arc<Mutex<Open>>);

impl Pins {
    /// Keeps every file that is alive now, until dropped.
    ///
    /// IMPORTANT: pin first, then take the view of the index, or a file may die in between.
    pub fn pin(&self) -> Pin {
        let mut open = self.0.lock();
        let number = open.next;
        open.next += 1;
        open.numbers.insert(number);
        Pin { pins: self.clone(), number }
    }

    /// This moment: pins from before it have smaller numbers.
    pub fn moment(&self) -> u64 {
        self.0.lock().next
    }

    /// True when no pin from before `moment` is open.
    pub fn passed(&self, moment: u64) -> bool {
        self.0.lock().numbers.first().is_none_or(|oldest| *oldest >= moment)
    }

    /// Pins that are open.
    pub fn len(&self) -> usize {
        self.0.lock().numbers.len()
    }

    /// True when none is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One pin.
#[derive(Debug)]
pub struct Pin {
    pins: Pins,
    number: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.0.lock().numbers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_passes_when_the_pins_before_it_are_gone() {
        let pins = Pins::default();
        let before = pins.pin();
        let moment = pins.moment();
        let after = pins.pin();
        assert!(!pins.passed(moment));
        drop(before);
        assert!(pins.passed(moment));
        drop(after);
        assert!(pins.is_empty());
    }
}
