//! Reads, writes, removals and compare-and-set on contended keys, and the verdict over their history.

use super::value::{decode, encode};
use super::{CASE, Shared, pause};
use crate::case::{Failure, say};
use crate::harness::HarnessError;
use crate::linear::{Action, Operation, Register, Verdict, check};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::sync::Arc;
use undb_sdk::{Error, Expect, Record, Table, WriteOutcome};

const KEYS: u32 = 36;
const STEPS_MAX: u64 = 20_000_000;
const VALUE_BYTES_MAX: usize = 3000;

/// What one client saw.
#[derive(Default)]
pub(super) struct History {
    operations: Vec<(u32, Operation<Action>)>,
    /// Things that no history explains.
    wrong: Vec<String>,
}

fn key(number: u32) -> String {
    format!("register-{number}")
}

/// Works until the case is over.
pub(super) async fn client(table: Table, shared: Arc<Shared>, mut rng: StdRng) -> History {
    let mut history = History::default();
    // What this client read last, by key: what it hopes to replace.
    let mut last: BTreeMap<u32, Option<(u64, u64)>> = BTreeMap::new();
    while !shared.is_over() {
        let number = rng.random_range(0..KEYS);
        let known = last.get(&number).copied();
        match (rng.random_range(0..20), known) {
            (0..9, _) => {
                if let Some(seen) = read(&table, &shared, number, &mut history).await {
                    last.insert(number, seen);
                }
            }
            (9..17, Some(seen)) => swap(&table, &shared, number, seen, &mut rng, &mut history).await,
            (17, _) => remove(&table, &shared, number, &mut history).await,
            _ => write(&table, &shared, number, &mut rng, &mut history).await,
        }
        pause(&mut rng, 4).await;
    }
    history
}

impl History {
    fn add(&mut self, number: u32, called: u64, returned: Option<u64>, op: Action) {
        self.operations.push((number, Operation { called, returned, op }));
    }

    /// A write that failed: open when nobody can know, else it never happened.
    fn failed(&mut self, number: u32, called: u64, op: Action, error: &Error) {
        if error.is_ambiguous() {
            self.add(number, called, None, op);
        } else if error.kind() != undb_sdk::Kind::Retry {
            self.wrong.push(format!("{op:?} on key {number} was refused: {error}"));
        }
    }

    fn id(&mut self, number: u32, record: &Record) -> Option<u64> {
        let id = decode(&record.value);
        if id.is_none() {
            let len = record.value.len();
            self.wrong.push(format!("key {number} holds {len} bytes that nobody wrote"));
        }
        id
    }
}

async fn read(
    table: &Table,
    shared: &Shared,
    number: u32,
    history: &mut History,
) -> Option<Option<(u64, u64)>> {
    let called = shared.now_us();
    let record = table.get(key(number)).await.ok()?;
    let returned = Some(shared.now_us());
    let seen = match record {
        Some(record) => Some((history.id(number, &record)?, record.version)),
        None => None,
    };
    history.add(number, called, returned, Action::Read(seen.map(|(id, _)| id)));
    Some(seen)
}

async fn write(table: &Table, shared: &Shared, number: u32, rng: &mut StdRng, history: &mut History) {
    let id = shared.next_value();
    let value = encode(id, rng.random_range(0..VALUE_BYTES_MAX));
    let called = shared.now_us();
    match table.put(key(number), value).await {
        Ok(_) => {
            shared.acknowledge();
            history.add(number, called, Some(shared.now_us()), Action::Write(id));
        }
        Err(error) => history.failed(number, called, Action::Write(id), &error),
    }
}

async fn remove(table: &Table, shared: &Shared, number: u32, history: &mut History) {
    let called = shared.now_us();
    match table.delete(key(number)).await {
        Ok(_) => {
            shared.acknowledge();
            history.add(number, called, Some(shared.now_us()), Action::Delete);
        }
        Err(error) => history.failed(number, called, Action::Delete, &error),
    }
}

async fn swap(
    table: &Table,
    shared: &Shared,
    number: u32,
    seen: Option<(u64, u64)>,
    rng: &mut StdRng,
    history: &mut History,
) {
    let new = shared.next_value();
    let value = encode(new, rng.random_range(0..VALUE_BYTES_MAX));
    let expect = match seen {
        None => Expect::Absent,
        Some((_, version)) => Expect::Version(version),
    };
    let swap = |swapped| Action::Swap { expect: seen.map(|(id, _)| id), new, swapped };
    let called = shared.now_us();
    match table.compare_and_set(key(number), expect, value).await {
        Ok(outcome) => {
            let swapped = matches!(outcome, WriteOutcome::Applied(_));
            if swapped {
                shared.acknowledge();
            }
            history.add(number, called, Some(shared.now_us()), swap(swapped));
        }
        Err(error) => history.failed(number, called, swap(false), &error),
    }
}

/// Reads every key once more: what is there at the end belongs to the history. Returns those reads.
pub(super) async fn finish(
    table: &Table,
    shared: &Shared,
    histories: &[History],
) -> Result<History, Failure> {
    let count: usize = histories.iter().map(|h| h.operations.len()).sum();
    let open = histories.iter().flat_map(|h| &h.operations).filter(|(_, op)| op.returned.is_none()).count();
    say(CASE, format_args!("judging {count} operations on {KEYS} keys, {open} of unknown outcome"));
    let mut history = History::default();
    for number in 0..KEYS {
        let called = shared.now_us();
        let record = table.get(key(number)).await.map_err(HarnessError::client("reading a register"))?;
        let seen = record.and_then(|record| history.id(number, &record));
        history.add(number, called, Some(shared.now_us()), Action::Read(seen));
    }
    Ok(history)
}

/// The verdict over each key.
pub(super) fn verify(histories: &[History], last: History) -> Result<(), Failure> {
    let mut by_key: BTreeMap<u32, Vec<Operation<Action>>> = BTreeMap::new();
    for history in histories.iter().chain([&last]) {
        if let Some(wrong) = history.wrong.first() {
            return Err(Failure::Found(wrong.clone()));
        }
        for (number, operation) in &history.operations {
            by_key.entry(*number).or_default().push(operation.clone());
        }
    }
    for (number, mut history) in by_key {
        history.sort_by_key(|op| op.called);
        match check(&Register, &history, STEPS_MAX) {
            Verdict::Linearizable => {}
            Verdict::Undecided => {
                let found = format!("key {number}: too many orders of {} operations to judge", history.len());
                return Err(Failure::Found(found));
            }
            Verdict::NotLinearizable { stuck, placed } => {
                return Err(Failure::Found(explain(number, &history, stuck, placed)));
            }
        }
    }
    Ok(())
}

/// The part of a history around the operation that no order explains.
fn explain(number: u32, history: &[Operation<Action>], stuck: usize, placed: usize) -> String {
    let mut text = format!("key {number} is NOT linearizable: {placed} of {} placed, then\n", history.len());
    let until = history[stuck].returned.unwrap_or(u64::MAX);
    let near = |(i, op): &(usize, &Operation<Action>)| *i + 12 >= stuck && op.called <= until;
    for (i, op) in history.iter().enumerate().filter(near) {
        let mark = if i == stuck { "-->" } else { "   " };
        text += &format!("{mark} {:>10} .. {:>10?} us  {:?}\n", op.called, op.returned, op.op);
    }
    text
}
