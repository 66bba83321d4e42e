//! Keys that are written once. Each acknowledged one must be there afterwards, and whole; one of unknown
//! outcome may be there, and then whole; one that failed must not.

use super::value::{decode, encode};
use super::{CASE, Shared, pause};
use crate::case::{Failure, say};
use crate::harness::HarnessError;
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use undb_sdk::{Key, ScanOptions, Span, Table};

/// What is known of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Acknowledged,
    Unknown,
    Failed,
}

/// What one writer did.
pub(super) struct Written {
    writer: u64,
    /// Value id and fate by number.
    fates: BTreeMap<u64, (u64, Fate)>,
    /// The longest time between two acknowledged writes: its keys lie in one shard, so this is how long
    /// that shard was not available.
    pub longest_gap: Duration,
}

fn hash_key(writer: u64) -> String {
    format!("unique-{writer}")
}

fn key(writer: u64, number: u64) -> Key {
    Key::new(hash_key(writer), number.to_be_bytes().to_vec())
}

/// Writes until the case is over.
pub(super) async fn writer(table: Table, shared: Arc<Shared>, writer: u64, mut rng: StdRng) -> Written {
    let mut written = Written { writer, fates: BTreeMap::new(), longest_gap: Duration::ZERO };
    let mut last = Instant::now();
    let mut number = 0;
    while !shared.is_over() {
        number += 1;
        let id = shared.next_value();
        let len = if rng.random_bool(0.1) { 20_000 } else { rng.random_range(0..2000) };
        let fate = match table.put(key(writer, number), encode(id, len)).await {
            Ok(_) => Fate::Acknowledged,
            Err(error) if error.is_ambiguous() => Fate::Unknown,
            Err(_) => Fate::Failed,
        };
        written.fates.insert(number, (id, fate));
        if fate == Fate::Acknowledged {
            shared.acknowledge();
            written.longest_gap = written.longest_gap.max(last.elapsed());
            last = Instant::now();
        }
        pause(&mut rng, 4).await;
    }
    written.longest_gap = written.longest_gap.max(last.elapsed());
    written
}

/// Compares what is there with what was acknowledged.
pub(super) async fn verify(table: &Table, all: &[Written]) -> Result<(), Failure> {
    let (mut there, mut unknown, mut came_true) = (0, 0, 0);
    for written in all {
        let mut found = scan(table, written.writer).await?;
        for (number, (id, fate)) in &written.fates {
            let present = match found.remove(number) {
                None => false,
                Some(Some(seen)) if seen == *id => true,
                Some(seen) => {
                    return Err(wrong(written.writer, *number, &format!("holds {seen:?}, not {id}")));
                }
            };
            there += u64::from(present);
            unknown += u64::from(*fate == Fate::Unknown);
            came_true += u64::from(*fate == Fate::Unknown && present);
            match fate {
                Fate::Acknowledged if !present => {
                    return Err(wrong(written.writer, *number, "was acknowledged and is not there"));
                }
                Fate::Failed if present => {
                    return Err(wrong(written.writer, *number, "was answered as not done and is there"));
                }
                _ => {}
            }
        }
        if let Some(number) = found.keys().next() {
            return Err(wrong(written.writer, *number, "was never written and is there"));
        }
    }
    say(
        CASE,
        format_args!("{there} unique keys are there and whole ({came_true} of {unknown} unknown ones)"),
    );
    Ok(())
}

fn wrong(writer: u64, number: u64, what: &str) -> Failure {
    Failure::Found(format!("key {number} of writer {writer} {what}"))
}

/// Every key of a writer with the id of its value; none: not whole.
async fn scan(table: &Table, writer: u64) -> Result<BTreeMap<u64, Option<u64>>, Failure> {
    let failed = || HarnessError::client("scanning a writer's keys");
    let span = Span::Within(hash_key(writer).into(), Default::default());
    let mut scan = table.scan(ScanOptions::over(span)).map_err(failed())?;
    let mut found = BTreeMap::new();
    while let Some(page) = scan.next_page().await.map_err(failed())? {
        for (key, record) in page {
            let number = key.sort.first_chunk::<8>().map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
            found.insert(number, decode(&record.value));
        }
    }
    Ok(found)
}
