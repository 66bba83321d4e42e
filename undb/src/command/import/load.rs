//! Batches to the table: a window of them at once, repeated while stores are busy, given up only for
//! what a repetition cannot cure.

use super::ledger::{Done, Ledger};
use super::progress::Progress;
use super::row::{Rejected, Row};
use super::source::{Batch, Source};
use super::stall::Stall;
use super::window::{Met, SLOW, Window};
use crate::exit::{Exit, Failure, Outcome};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use undb_runtime::{Backoff, Shutdown};
use undb_sdk::{ErrorCode, Expiry, Key, Kind, PutOptions, Table};

/// How rows are written.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    /// After which records vanish.
    pub ttl: Option<Duration>,
    /// Most batches under way.
    pub concurrency: u32,
    /// How long to go on trying while no write goes through.
    pub retry_for: Duration,
}

/// What the last attempt that failed ran into.
type Trouble = RefCell<Option<String>>;

/// How a load ended without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Complete,
    /// By a signal; what was under way is done.
    Stopped,
}

/// Begun by SIGINT or SIGTERM; a second one ends the process.
pub fn stop_on_signal() -> CancellationToken {
    Shutdown::on_signals(Duration::from_secs(10)).token()
}

/// Loads all batches. Rows of one key are never under way twice, so the last in the file stays.
pub async fn load(
    source: Source,
    table: &Table,
    writing: Writing,
    ledger: &mut Ledger,
    progress: &Progress,
    stop: CancellationToken,
) -> Outcome<Ended> {
    let mut batches = source.batches();
    let mut window = Window::new(writing.concurrency);
    let mut stall = Stall::new(writing.retry_for, Instant::now());
    let trouble = Trouble::default();
    let mut under_way = FuturesUnordered::new();
    let mut busy_keys: HashSet<Key> = HashSet::new();
    let mut waiting: Option<Batch> = None;
    let mut ended = None;
    loop {
        if ended.is_none() && stop.is_cancelled() {
            ended = Some(Ended::Stopped);
            waiting = None;
        }
        let room = under_way.len() < window.size();
        let clear =
            waiting.as_ref().is_some_and(|b: &Batch| b.rows.iter().all(|r| !busy_keys.contains(&r.key)));
        if room
            && clear
            && let Some(batch) = waiting.take()
        {
            busy_keys.extend(batch.rows.iter().map(|r| r.key.clone()));
            if under_way.is_empty() {
                stall.over(Instant::now());
            }
            under_way.push(write(table, batch, writing, &trouble));
            continue;
        }
        let wants = ended.is_none() && waiting.is_none();
        if !wants && under_way.is_empty() {
            return Ok(ended.unwrap_or(Ended::Complete));
        }
        tokio::select! {
            biased;
            Some(written) = under_way.next(), if !under_way.is_empty() => {
                let Written { done, keys, met } = written?;
                keys.iter().for_each(|key| { busy_keys.remove(key); });
                window.ended(met);
                stall.over(Instant::now());
                trouble.take();
                ledger.record(done)?;
                progress.at(ledger.state().offset, ledger.state().rows, under_way.len());
            }
            next = batches.recv(), if wants => match next {
                Some(batch) => waiting = Some(batch?),
                None => ended = Some(Ended::Complete),
            },
            () = stop.cancelled(), if ended.is_none() => {}
            () = tokio::time::sleep_until(stall.next().into()), if !under_way.is_empty() => {
                let now = Instant::now();
                let last = trouble.borrow().clone();
                if stall.is_too_long(now) {
                    return Err(no_progress(writing, &last.unwrap_or_else(|| "nobody answers".into())));
                }
                progress.say(&stall.words(now, last.as_deref()));
            }
        }
    }
}

fn no_progress(writing: Writing, last: &str) -> Failure {
    let seconds = writing.retry_for.as_secs();
    Failure::new(Exit::Unavailable, format!("no progress for {seconds}s: {last}"))
}

struct Written {
    done: Done,
    keys: Vec<Key>,
    met: Met,
}

async fn write(table: &Table, batch: Batch, writing: Writing, trouble: &Trouble) -> Outcome<Written> {
    let expiry = writing.ttl.map_or(Expiry::Never, Expiry::After);
    let started = Instant::now();
    let mut left = last_of_each_key(batch.rows);
    let keys: Vec<Key> = left.iter().map(|row| row.key.clone()).collect();
    let mut rejected = batch.rejected;
    let mut met = Met::Quiet;
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        let options = PutOptions::new().expiry(expiry);
        let puts: Vec<_> = left.iter().map(|r| (r.key.clone(), r.value.clone(), options.clone())).collect();
        let attempt = Instant::now();
        let results = table.put_many(puts).await;
        if attempt.elapsed() > SLOW {
            met = Met::Busy;
        }
        let mut again = Vec::new();
        let mut last = None;
        for (row, result) in left.into_iter().zip(results) {
            match result {
                Ok(_) => {}
                Err(error) => match verdict(&error) {
                    Verdict::Again => {
                        again.push(row);
                        last = Some(error);
                    }
                    Verdict::Reject => rejected.push(Rejected {
                        line: row.line,
                        reason: error.to_string(),
                        row: row.value.to_vec(),
                    }),
                    Verdict::GiveUp => return Err(error.into()),
                },
            }
        }
        let Some(error) = last else { break };
        met = Met::Busy;
        let error = error.to_string();
        // One shard may be away while batches without it go through.
        if started.elapsed() > writing.retry_for {
            return Err(no_progress(writing, &error));
        }
        trouble.replace(Some(error));
        left = again;
        tokio::time::sleep(backoff.next_delay()).await;
    }
    rejected.sort_by_key(|r| r.line);
    let Batch { seq, row_count, end_offset, end_lines, .. } = batch;
    Ok(Written { done: Done { seq, row_count, rejected, end_offset, end_lines }, keys, met })
}

enum Verdict {
    /// A put of the same value may be repeated even if it has happened.
    Again,
    Reject,
    GiveUp,
}

fn verdict(error: &undb_sdk::Error) -> Verdict {
    match (error.code(), error.kind()) {
        // These meet every row alike.
        (
            ErrorCode::Unauthenticated
            | ErrorCode::PermissionDenied
            | ErrorCode::TableNotFound
            | ErrorCode::DiskFull
            | ErrorCode::NotSupported
            | ErrorCode::ClusterMismatch,
            _,
        ) => Verdict::GiveUp,
        (_, Kind::Retry | Kind::Redirect | Kind::Unknown) => Verdict::Again,
        (_, Kind::Reject) => Verdict::Reject,
        (_, Kind::Fatal) => Verdict::GiveUp,
    }
}

/// Of rows with one key the last counts, as if they had been written in order.
fn last_of_each_key(rows: Vec<Row>) -> Vec<Row> {
    let last: HashMap<Key, usize> = rows.iter().enumerate().map(|(i, row)| (row.key.clone(), i)).collect();
    let keep: HashSet<usize> = last.into_values().collect();
    rows.into_iter().enumerate().filter(|(i, _)| keep.contains(i)).map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_rows_with_one_key_the_last_stays_in_its_place() {
        let row =
            |line, key: &str| Row { line, key: Key::new(key.to_owned(), ""), value: bytes::Bytes::new() };
        let kept = last_of_each_key(vec![row(1, "a"), row(2, "b"), row(3, "a"), row(4, "c")]);
        assert_eq!(kept.iter().map(|r| r.line).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn a_full_disk_stops_and_a_large_value_is_rejected() {
        let rejected = |code| undb_sdk::Error::Rejected { code, message: String::new() };
        assert!(matches!(verdict(&rejected(ErrorCode::DiskFull)), Verdict::GiveUp));
        let large = undb_sdk::Error::TooLarge { what: "value bytes", size: 2, max: 1 };
        assert!(matches!(verdict(&large), Verdict::Reject));
        let unknown = undb_sdk::Error::Ambiguous { reason: String::new() };
        assert!(matches!(verdict(&unknown), Verdict::Again));
    }
}
