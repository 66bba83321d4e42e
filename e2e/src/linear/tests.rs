//! The checker against histories whose answer is known: by hand, by construction, and by trying all orders.

use super::*;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

const STEPS_MAX: u64 = 1_000_000;

fn op(called: u64, returned: u64, op: Action) -> Operation<Action> {
    Operation { called, returned: Some(returned), op }
}

fn open(called: u64, op: Action) -> Operation<Action> {
    Operation { called, returned: None, op }
}

fn read(value: u64) -> Action {
    Action::Read(Some(value))
}

const NOTHING: Action = Action::Read(None);

fn swap(expect: u64, new: u64, swapped: bool) -> Action {
    Action::Swap { expect: Some(expect), new, swapped }
}

fn yes(history: &[Operation<Action>]) {
    assert_eq!(check(&Register, history, STEPS_MAX), Verdict::Linearizable);
}

fn no(history: &[Operation<Action>]) {
    let verdict = check(&Register, history, STEPS_MAX);
    assert!(matches!(verdict, Verdict::NotLinearizable { .. }), "{verdict:?}");
}

use Action::{Delete, Write};

#[test]
fn operations_one_after_the_other_must_be_in_that_order() {
    yes(&[]);
    yes(&[op(1, 2, NOTHING), op(3, 4, Write(1)), op(5, 6, read(1)), op(7, 8, Delete), op(9, 10, NOTHING)]);
    no(&[op(1, 2, Write(1)), op(3, 4, NOTHING)]);
    no(&[op(1, 2, read(1)), op(3, 4, Write(1))]);
    no(&[op(1, 2, Write(1)), op(3, 4, Write(2)), op(5, 6, read(1))]);
    no(&[op(1, 2, Write(1)), op(3, 4, Delete), op(5, 6, read(1))]);
}

#[test]
fn a_read_beside_a_write_sees_either() {
    for seen in [read(1), read(2)] {
        yes(&[op(1, 2, Write(1)), op(3, 10, Write(2)), op(4, 5, seen)]);
    }
    yes(&[op(1, 2, Write(1)), op(3, 10, Write(2)), op(4, 5, read(1)), op(6, 7, read(2))]);
}

#[test]
fn a_value_that_was_seen_stays_seen() {
    // The classic stale read: the second reader starts after the first one returned.
    no(&[op(1, 2, Write(1)), op(3, 10, Write(2)), op(4, 5, read(2)), op(6, 7, read(1))]);
    no(&[op(1, 10, Write(1)), op(2, 3, read(1)), op(4, 5, NOTHING)]);
}

#[test]
fn two_writes_at_once_have_one_order_for_all_readers() {
    let writes = [op(1, 10, Write(1)), op(1, 10, Write(2))];
    let with = |reads: &[Operation<Action>]| [&writes[..], reads].concat();
    yes(&with(&[op(2, 3, read(1)), op(4, 5, read(2))]));
    no(&with(&[op(2, 3, read(1)), op(4, 5, read(2)), op(6, 7, read(1))]));
    yes(&with(&[op(2, 9, read(1)), op(2, 9, read(2)), op(11, 12, read(2))]));
}

#[test]
fn two_compare_and_sets_of_one_value_cannot_both_win() {
    no(&[op(1, 2, Write(1)), op(3, 9, swap(1, 2, true)), op(3, 9, swap(1, 3, true))]);
    yes(&[op(1, 2, Write(1)), op(3, 9, swap(1, 2, true)), op(3, 9, swap(1, 3, false)), op(10, 11, read(2))]);
    no(&[op(1, 2, Write(1)), op(3, 4, swap(1, 2, false))]);
    no(&[op(1, 2, Write(1)), op(3, 4, swap(2, 3, true))]);
    yes(&[op(1, 2, Action::Swap { expect: None, new: 1, swapped: true }), op(3, 4, read(1))]);
}

#[test]
fn a_lost_update_is_found() {
    // Both read 1 and both say that they replaced it.
    no(&[
        op(1, 2, Write(1)),
        op(3, 4, read(1)),
        op(3, 4, read(1)),
        op(5, 6, swap(1, 2, true)),
        op(7, 8, swap(1, 3, true)),
    ]);
}

#[test]
fn an_open_write_may_happen_late_or_never() {
    yes(&[open(1, Write(1)), op(2, 3, NOTHING), op(4, 5, read(1))]);
    yes(&[open(1, Write(1)), op(2, 3, NOTHING), op(4, 5, NOTHING)]);
    yes(&[open(1, Write(1)), op(2, 3, Write(2)), op(4, 5, read(2)), op(6, 7, read(1))]);
    // But once only, and not before it was called.
    no(&[open(1, Write(1)), op(2, 3, read(1)), op(4, 5, Write(2)), op(6, 7, read(2)), op(8, 9, read(1))]);
    no(&[op(1, 2, read(1)), open(3, Write(1))]);
}

#[test]
fn an_open_compare_and_set_may_win_or_lose() {
    let start = op(1, 2, Write(1));
    for seen in [read(1), read(2)] {
        yes(&[start.clone(), open(3, swap(1, 2, false)), op(4, 5, seen)]);
    }
    no(&[start.clone(), open(3, swap(7, 2, false)), op(4, 5, read(2))]);
    yes(&[start.clone(), open(3, swap(1, 2, false)), op(4, 5, swap(1, 3, false)), op(6, 7, read(2))]);
    no(&[start, open(3, swap(1, 2, false)), op(4, 5, swap(1, 3, true)), op(6, 7, read(2))]);
}

#[test]
fn the_verdict_names_where_it_got_stuck() {
    let history = [op(1, 2, Write(1)), op(3, 4, read(1)), op(5, 6, read(9)), op(7, 8, read(1))];
    assert_eq!(check(&Register, &history, STEPS_MAX), Verdict::NotLinearizable { stuck: 2, placed: 2 });
}

#[test]
fn too_many_orders_are_undecided_not_wrong() {
    let mut history: Vec<_> = (0..60).map(|i| open(0, Write(i))).collect();
    history.extend((0..60).map(|i| op(1, 2 + i, Action::Swap { expect: Some(999), new: 0, swapped: true })));
    assert_eq!(check(&Register, &history, 1000), Verdict::Undecided);
}

/// Runs random operations on a real register at points between call and return, so that the history is
/// linearizable by construction.
fn linearizable_history(rng: &mut StdRng, len: usize, clients: usize) -> Vec<Operation<Action>> {
    let mut points: Vec<u64> = (0..len as u64).map(|i| 10 + i * 10).collect();
    points.sort_unstable();
    let mut free_at = vec![0u64; clients];
    let mut state: Option<u64> = None;
    let mut history = Vec::new();
    for (i, point) in points.into_iter().enumerate() {
        let client = rng.random_range(0..clients);
        if free_at[client] >= point {
            continue;
        }
        let value = i as u64 + 1;
        let expect = if rng.random_bool(0.5) { state } else { Some(rng.random_range(0..value)) };
        let action = match rng.random_range(0..10) {
            0..4 => Action::Read(state),
            4..7 => Write(value),
            7 => Delete,
            _ => Action::Swap { expect, new: value, swapped: expect == state },
        };
        let lost = rng.random_bool(0.05);
        let happens = !lost || rng.random_bool(0.5);
        if happens {
            match action {
                Write(value) => state = Some(value),
                Delete => state = None,
                Action::Swap { new, swapped: true, .. } => state = Some(new),
                _ => {}
            }
        }
        let called = rng.random_range(free_at[client]..point);
        let returned = point + rng.random_range(1..60);
        free_at[client] = returned;
        if !lost {
            history.push(op(called, returned, action));
        } else if !matches!(action, Action::Read(_)) {
            history.push(open(called, action));
        }
    }
    history
}

/// Whether some order of some subset (all answered ones, any of the open) explains the history.
fn by_all_orders(history: &[Operation<Action>]) -> bool {
    fn go(history: &[Operation<Action>], used: u32, state: Option<u64>) -> bool {
        let left = |i: &usize| used & (1 << i) == 0;
        let rest: Vec<usize> = (0..history.len()).filter(left).collect();
        let answered: Vec<u64> = rest.iter().filter_map(|i| history[*i].returned).collect();
        let Some(first_return) = answered.iter().min() else { return true };
        rest.iter().any(|&i| {
            let op = &history[i];
            let known = if op.returned.is_some() { Known::Yes } else { Known::No };
            // Nothing that returned before this call may be left.
            op.called <= *first_return
                && Register.step(&state, &op.op, known).is_some_and(|next| go(history, used | 1 << i, next))
        })
    }
    go(history, 0, None)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn histories_of_a_real_register_are_linearizable(seed: u64, clients in 1usize..8) {
        let mut rng = StdRng::seed_from_u64(seed);
        let history = linearizable_history(&mut rng, 300, clients);
        prop_assert_eq!(check(&Register, &history, STEPS_MAX), Verdict::Linearizable);
    }

    #[test]
    fn the_order_in_which_a_history_is_written_down_does_not_matter(seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut history = linearizable_history(&mut rng, 100, 4);
        history.shuffle(&mut rng);
        prop_assert_eq!(check(&Register, &history, STEPS_MAX), Verdict::Linearizable);
    }

    #[test]
    fn small_histories_get_the_verdict_of_trying_all_orders(seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut history = linearizable_history(&mut rng, 16, 3);
        history.truncate(8);
        // Spoil an answer: some histories stay linearizable, some do not.
        if let Some(i) = (!history.is_empty()).then(|| rng.random_range(0..history.len())) {
            history[i].op = match history[i].op {
                Action::Swap { expect, new, swapped } => Action::Swap { expect, new, swapped: !swapped },
                _ => Action::Read(Some(rng.random_range(0..8))),
            };
        }
        let found = check(&Register, &history, STEPS_MAX) == Verdict::Linearizable;
        prop_assert_eq!(found, by_all_orders(&history), "{:?}", history);
    }
}
