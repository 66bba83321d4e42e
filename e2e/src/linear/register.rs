//! One key: absent, or a value. Every write of a history writes a value of its own, so that a read says
//! which write it saw.

use super::{Known, Model};

/// The model of a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Register;

/// What was done to the key, with the answer that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A read and what it saw; none: absent.
    Read(Option<u64>),
    /// A write.
    Write(u64),
    /// A removal.
    Delete,
    /// A compare-and-set.
    Swap {
        /// What must be there; none: nothing.
        expect: Option<u64>,
        /// What is there then.
        new: u64,
        /// The answer: it was there.
        swapped: bool,
    },
}

impl Model for Register {
    type State = Option<u64>;
    type Op = Action;

    fn initial(&self) -> Option<u64> {
        None
    }

    fn step(&self, state: &Option<u64>, action: &Action, known: Known) -> Option<Option<u64>> {
        match *action {
            Action::Read(seen) => (known == Known::No || seen == *state).then_some(*state),
            Action::Write(value) => Some(Some(value)),
            Action::Delete => Some(None),
            Action::Swap { expect, new, swapped } => match (known, expect == *state) {
                (Known::Yes, holds) if holds != swapped => None,
                (_, true) => Some(Some(new)),
                (Known::Yes, false) => Some(*state),
                // It failed unseen, which is as if it had never been.
                (Known::No, false) => None,
            },
        }
    }
}
