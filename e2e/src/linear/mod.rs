//! Is a history of concurrent operations linearizable? The algorithm of Wing and Gong as Lowe improved it:
//! depth-first over the orders that the recorded times allow, never twice over the same set of
//! operations with the same state.
//!
//! An operation whose outcome is unknown (a timeout, a killed client) is open for ever: it may have taken
//! effect at any time from its call on, or not at all.

mod register;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::hash::Hash;

pub use register::{Action, Register};

/// A sequential object.
pub trait Model {
    /// Its state.
    type State: Clone + Eq + Hash;
    /// What is done to it, with the answer that was seen.
    type Op;

    /// The state before anything was done.
    fn initial(&self) -> Self::State;
    /// The state after `op`, if `op` could have been answered as it was in `state`. `Known::No` means that
    /// nobody saw the answer, so every answer is possible.
    fn step(&self, state: &Self::State, op: &Self::Op, known: Known) -> Option<Self::State>;
}

/// Whether an operation's answer arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It did.
    Yes,
    /// It did not.
    No,
}

/// One operation of a history. Times only need to be of one clock.
#[derive(Clone, Debug)]
pub struct Operation<O> {
    /// When it was called.
    pub called: u64,
    /// When it was answered; none: its outcome is unknown.
    pub returned: Option<u64>,
    /// What it was, and the answer.
    pub op: O,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Linearizable,
    /// There is none. `stuck` is the operation at which the longest attempt failed.
    NotLinearizable {
        /// Its place in the history.
        stuck: usize,
        /// Operations that the longest attempt had put in order.
        placed: usize,
    },
    /// Too many orders to try.
    Undecided,
}

const END: usize = usize::MAX;

/// Calls and returns in order of time, as a doubly linked list over an arena.
struct Events {
    next: Vec<usize>,
    previous: Vec<usize>,
    /// The operation, and the return event of a call (`END`: it has none).
    events: Vec<Event>,
}

#[derive(Clone, Copy)]
struct Event {
    op: usize,
    is_call: bool,
    matching: usize,
}

/// The list's head; events follow from 1.
const HEAD: usize = 0;

impl Events {
    fn new<O>(history: &[Operation<O>]) -> Events {
        // At one time, calls come before returns: that allows more orders, and the clock cannot tell.
        let mut times: Vec<(u64, bool, usize)> = Vec::with_capacity(history.len() * 2);
        for (i, op) in history.iter().enumerate() {
            times.push((op.called, false, i));
            times.extend(op.returned.map(|at| (at.max(op.called), true, i)));
        }
        times.sort_unstable();
        let mut events = vec![Event { op: END, is_call: false, matching: END }];
        let mut calls = vec![END; history.len()];
        for (_, is_return, op) in times {
            let at = events.len();
            if is_return {
                events[calls[op]].matching = at;
            } else {
                calls[op] = at;
            }
            events.push(Event { op, is_call: !is_return, matching: END });
        }
        let len = events.len();
        let next = (1..=len).map(|i| if i == len { END } else { i }).collect();
        let previous = (0..len).map(|i| i.wrapping_sub(1)).collect();
        Events { next, previous, events }
    }

    fn unlink(&mut self, at: usize) {
        let (before, after) = (self.previous[at], self.next[at]);
        self.next[before] = after;
        if after != END {
            self.previous[after] = before;
        }
    }

    fn relink(&mut self, at: usize) {
        let (before, after) = (self.previous[at], self.next[at]);
        self.next[before] = at;
        if after != END {
            self.previous[after] = at;
        }
    }

    /// Takes an operation out: it has its place in the order.
    fn lift(&mut self, call: usize) {
        self.unlink(call);
        let matching = self.events[call].matching;
        if matching != END {
            self.unlink(matching);
        }
    }

    /// Puts it back, in the opposite order.
    fn unlift(&mut self, call: usize) {
        let matching = self.events[call].matching;
        if matching != END {
            self.relink(matching);
        }
        self.relink(call);
    }
}

/// The set of operations that have a place.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Placed(Vec<u64>);

impl Placed {
    fn flip(&mut self, op: usize) {
        self.0[op / 64] ^= 1 << (op % 64);
    }
}

/// Looks for an order; gives up after `steps_max` attempts to place an operation.
pub fn check<M: Model>(model: &M, history: &[Operation<M::Op>], steps_max: u64) -> Verdict {
    let mut events = Events::new(history);
    let mut placed = Placed(vec![0; history.len().div_ceil(64)]);
    let mut seen: HashSet<(Placed, M::State)> = HashSet::new();
    let mut stack: Vec<(usize, M::State)> = Vec::new();
    let mut state = model.initial();
    let mut answered_left = history.iter().filter(|op| op.returned.is_some()).count();
    let (mut best, mut stuck) = (0, 0);
    let mut at = events.next[HEAD];
    let mut steps = 0;
    while answered_left > 0 {
        // An answered operation is left, so its return event is in the list and is met before the end.
        assert!(at != END, "the list ended with {answered_left} answered operations in it");
        let event = events.events[at];
        if !event.is_call {
            if stack.len() >= best {
                (best, stuck) = (stack.len(), event.op);
            }
            let Some((call, before)) = stack.pop() else {
                return Verdict::NotLinearizable { stuck, placed: best };
            };
            state = before;
            let op = events.events[call].op;
            placed.flip(op);
            answered_left += usize::from(history[op].returned.is_some());
            events.unlift(call);
            at = events.next[call];
            continue;
        }
        steps += 1;
        if steps > steps_max {
            return Verdict::Undecided;
        }
        let op = &history[event.op];
        let known = if op.returned.is_some() { Known::Yes } else { Known::No };
        if let Some(after) = model.step(&state, &op.op, known) {
            placed.flip(event.op);
            if seen.insert((placed.clone(), after.clone())) {
                stack.push((at, std::mem::replace(&mut state, after)));
                answered_left -= usize::from(op.returned.is_some());
                events.lift(at);
                at = events.next[HEAD];
                continue;
            }
            placed.flip(event.op);
        }
        at = events.next[at];
    }
    Verdict::Linearizable
}
