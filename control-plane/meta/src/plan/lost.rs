//! Why a replica is made again on another store, the most urgent reason first.

use std::fmt;

/// Why a replica, or all of a store, must be made again elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lost {
    /// Its store is fenced for ever.
    Removed,
    /// Its store has been silent for too long.
    Down,
    /// Its store was stopped under a disruption lease and has not come back in time.
    Overdue,
    /// It reports a fault.
    Faulty,
    /// Its store is being drained.
    Drained,
    /// Its store is under a lease of kind REMOVE.
    ToRemove,
    /// A person wants it elsewhere.
    Moved,
}

impl Lost {
    /// What the store, or its replica, is or does.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Removed => "is removed",
            Self::Down => "is down",
            Self::Overdue => "was stopped for longer than its disruption lease allows",
            Self::Faulty => "reports a fault of its replica",
            Self::Drained => "is being drained",
            Self::ToRemove => "is under a lease to be removed",
            Self::Moved => "is to give its replica to another store",
        }
    }

    /// The copy still serves: there is no hurry, and only so many leave a store at a time.
    pub fn is_planned(self) -> bool {
        matches!(self, Self::Drained | Self::ToRemove | Self::Moved)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
