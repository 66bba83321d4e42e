//! Increments: every acknowledged one counts once, one of unknown outcome at most once, a failed one not.

use super::{CASE, Shared};
use crate::case::{Failure, say};
use crate::harness::HarnessError;
use std::sync::Arc;
use std::time::Duration;
use undb_sdk::Table;

const COUNTERS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(2);

/// What one client counted, by counter.
#[derive(Clone, Copy, Default)]
pub(super) struct Counted {
    acknowledged: [i64; COUNTERS as usize],
    unknown: [i64; COUNTERS as usize],
}

fn key(counter: u64) -> String {
    format!("counter-{counter}")
}

/// Counts until the case is over.
pub(super) async fn client(table: Table, shared: Arc<Shared>, first: u64) -> Counted {
    let mut counted = Counted::default();
    let mut turn = first;
    while !shared.is_over() {
        turn += 1;
        let counter = turn % COUNTERS;
        match table.increment(key(counter), 1).await {
            Ok(_) => {
                shared.acknowledge();
                counted.acknowledged[counter as usize] += 1;
            }
            Err(error) if error.is_ambiguous() => counted.unknown[counter as usize] += 1,
            Err(_) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
    counted
}

/// Compares the counters with what was acknowledged.
pub(super) async fn verify(table: &Table, all: &[Counted]) -> Result<(), Failure> {
    let mut sum = 0;
    for counter in 0..COUNTERS {
        let at = counter as usize;
        let acknowledged: i64 = all.iter().map(|c| c.acknowledged[at]).sum();
        let unknown: i64 = all.iter().map(|c| c.unknown[at]).sum();
        let record = table.get(key(counter)).await.map_err(HarnessError::client("reading a counter"))?;
        let text = record.map_or("0".into(), |r| String::from_utf8_lossy(&r.value).into_owned());
        let found: i64 =
            text.parse().map_err(|_| Failure::Found(format!("counter {counter} holds {text:?}")))?;
        if !(acknowledged..=acknowledged + unknown).contains(&found) {
            let found = format!(
                "counter {counter} stands at {found} after {acknowledged} acknowledged and {unknown} unknown"
            );
            return Err(Failure::Found(found));
        }
        sum += found;
    }
    say(CASE, format_args!("{sum} increments counted once each"));
    Ok(())
}
