//! Is a history of one register linearizable? The search of Wing and Gong with a memory of visited
//! states, for histories of at most 64 operations.

use std::collections::HashSet;

/// One operation on the register; values are numbers, 0 is the initial one.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Read(u64),
    Write(u64),
    /// expect, new, swapped
    Cas(u64, u64, bool),
}

/// An operation and when it was called and answered, on one common counter. Without an answer it may
/// have happened at any time from the call on, or never.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub op: Op,
    pub called: u64,
    pub answered: Option<u64>,
}

pub fn is_linearizable(history: &[Event]) -> bool {
    assert!(history.len() <= 64, "the search keeps a set of at most 64 operations");
    let open: u64 = mask(history, |e| e.answered.is_none());
    let mut seen = HashSet::new();
    let mut stack = vec![(0u64, 0u64)];
    while let Some((done, value)) = stack.pop() {
        if (done | open).count_ones() as usize == history.len() {
            return true;
        }
        if !seen.insert((done, value)) {
            continue;
        }
        let first_answer = (0..history.len())
            .filter(|i| done & (1 << i) == 0)
            .filter_map(|i| history[i].answered)
            .min()
            .unwrap_or(u64::MAX);
        for (i, event) in history.iter().enumerate() {
            if done & (1 << i) != 0 || event.called > first_answer {
                continue;
            }
            if let Some(next) = step(value, event) {
                stack.push((done | 1 << i, next));
            }
        }
    }
    false
}

fn mask(history: &[Event], is: impl Fn(&Event) -> bool) -> u64 {
    history.iter().enumerate().filter(|(_, e)| is(e)).fold(0, |m, (i, _)| m | 1 << i)
}

fn step(value: u64, event: &Event) -> Option<u64> {
    match event.op {
        Op::Read(read) => (read == value).then_some(value),
        Op::Write(new) => Some(new),
        // An unanswered one may have done either.
        Op::Cas(expect, new, swapped) => match (expect == value, swapped || event.answered.is_none()) {
            (true, true) => Some(new),
            (false, false) => Some(value),
            (false, true) if event.answered.is_none() => Some(value),
            _ => None,
        },
    }
}
