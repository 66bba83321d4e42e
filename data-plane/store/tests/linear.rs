//! The checker itself: it must find what is wrong.

mod support;

use support::linear::{Event, Op, is_linearizable};

fn event(op: Op, called: u64, answered: u64) -> Event {
    Event { op, called, answered: Some(answered) }
}

#[test]
fn good_histories_are_accepted() {
    assert!(is_linearizable(&[]));
    assert!(is_linearizable(&[
        event(Op::Write(1), 0, 3),
        event(Op::Read(0), 1, 2),
        event(Op::Read(1), 4, 5),
        event(Op::Cas(1, 2, true), 6, 7),
        event(Op::Cas(1, 3, false), 8, 9),
    ]));
    let lost = Event { op: Op::Write(9), called: 0, answered: None };
    assert!(is_linearizable(&[lost, event(Op::Read(0), 1, 2), event(Op::Read(9), 3, 4)]));
    assert!(is_linearizable(&[lost, event(Op::Read(0), 1, 2)]));
}

#[test]
fn a_stale_read_is_found() {
    assert!(!is_linearizable(&[event(Op::Write(1), 0, 1), event(Op::Read(0), 2, 3)]));
}

#[test]
fn a_value_that_goes_back_is_found() {
    let writing = Event { op: Op::Write(1), called: 0, answered: None };
    assert!(!is_linearizable(&[writing, event(Op::Read(1), 1, 2), event(Op::Read(0), 3, 4)]));
}

#[test]
fn a_swap_that_happened_twice_is_found() {
    let swaps = [event(Op::Cas(0, 1, true), 0, 1), event(Op::Cas(0, 2, true), 2, 3)];
    assert!(!is_linearizable(&swaps));
}
