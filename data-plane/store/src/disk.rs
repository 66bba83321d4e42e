//! Whether user writes still fit on the disk. The free space is measured now and then; in between,
//! what was written since is counted against it, so that a fast writer cannot run past the reserve.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a byte of a user's write costs at worst until the next measurement: log, index, GC, padding.
const COST_FACTOR: u64 = 3;
/// Writes are let in again when the free space exceeds the reserve by an eighth of it.
const HYSTERESIS_SHARE: u64 = 8;

/// The gate that every user write passes on its way to the log.
#[derive(Debug)]
pub struct DiskGate {
    /// Bytes that may still be written before the reserve is touched, as last measured.
    room: AtomicU64,
    /// Bytes let in since then.
    since: AtomicU64,
    full: AtomicBool,
}

/// The gate's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// There is room.
    Let,
    /// The next measurement decides.
    Unsure,
    /// There is none.
    Full,
}

/// A measurement, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// What the store may use in all.
    pub capacity: u64,
    /// What it may still use.
    pub free: u64,
}

impl Default for DiskGate {
    fn default() -> Self {
        Self { room: AtomicU64::new(u64::MAX), since: AtomicU64::new(0), full: AtomicBool::new(false) }
    }
}

impl DiskGate {
    /// Takes a measurement; returns true when the gate opened or closed by it.
    pub fn measured(&self, measured: Measured, reserve: u64) -> bool {
        self.since.store(0, Ordering::Relaxed);
        self.room.store(measured.free.saturating_sub(reserve), Ordering::Relaxed);
        let was_full = self.full.load(Ordering::Relaxed);
        let limit = if was_full { reserve + reserve / HYSTERESIS_SHARE } else { reserve };
        let full = measured.free <= limit;
        self.full.store(full, Ordering::Relaxed);
        full != was_full
    }

    /// Lets `bytes` of a user's write in, or says why not.
    pub fn admit(&self, bytes: u64) -> Admission {
        if self.is_full() {
            return Admission::Full;
        }
        let cost = bytes.saturating_mul(COST_FACTOR);
        let room = self.room.load(Ordering::Relaxed);
        let fits = |since: u64| since.checked_add(cost).filter(|sum| *sum <= room);
        match self.since.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Admission::Let,
            // Nothing was let in since the measurement: it does not fit, whatever is measured next.
            Err(0) => Admission::Full,
            Err(_) => Admission::Unsure,
        }
    }

    /// Closes the gate at once: somebody met the end of the disk.
    pub fn close(&self) {
        self.full.store(true, Ordering::Relaxed);
    }

    /// True while user writes are refused.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// True when so much was let in that a new measurement is due before the regular one.
    pub fn is_due(&self) -> bool {
        self.since.load(Ordering::Relaxed) > self.room.load(Ordering::Relaxed) / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_before_the_reserve_is_touched() {
        let gate = DiskGate::default();
        assert_eq!(gate.admit(1 << 40), Admission::Let);
        gate.measured(Measured { capacity: 1000, free: 400 }, 100);
        assert_eq!(gate.admit(50), Admission::Let);
        assert!(gate.is_due());
        assert_eq!(gate.admit(50), Admission::Let);
        assert_eq!(gate.admit(50), Admission::Unsure, "300 bytes of room, 300 spoken for");
        gate.measured(Measured { capacity: 1000, free: 200 }, 100);
        assert_eq!(gate.admit(50), Admission::Full, "100 bytes of room, measured just now");
    }

    #[test]
    fn a_full_disk_opens_again_only_with_some_slack() {
        let gate = DiskGate::default();
        assert!(gate.measured(Measured { capacity: 1000, free: 80 }, 80));
        assert_eq!(gate.admit(0), Admission::Full);
        assert!(!gate.measured(Measured { capacity: 1000, free: 85 }, 80));
        assert!(gate.measured(Measured { capacity: 1000, free: 95 }, 80));
        assert_eq!(gate.admit(1), Admission::Let);
    }
}
