//! The load itself: requests at their time, what came of them, and the reading back at the end.

use super::book::{Book, Wrote};
use super::clients::{self, Bad, Resp};
use super::report::{Counts, Failed, Line, Second, Verdict, ms, wall_ms};
use super::{LoadArgs, sampler};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use undb_sdk::Table;

const TABLE_WAIT: Duration = Duration::from_secs(120);
const FAILURES_SHOWN_MAX: u64 = 200;
const LOST_SHOWN_MAX: usize = 50;
const READ_BACK_AT_ONCE: usize = 64;
const ERROR_KINDS_MAX: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    Sdk,
    Resp,
}

impl Via {
    fn name(self) -> &'static str {
        match self {
            Via::Sdk => "sdk",
            Via::Resp => "resp",
        }
    }
}

/// What a request did, when it has ended.
struct Outcome {
    via: Via,
    is_write: bool,
    key: String,
    took: Duration,
    repeated: bool,
    how: How,
}

enum How {
    Ok,
    Bad(Bad),
    Wrong(String),
}

#[derive(Default)]
struct Tally {
    second: Second,
    sdk: Counts,
    resp: Counts,
    errors: BTreeMap<String, u64>,
    shown: u64,
}

struct Load {
    table: Table,
    resp: Option<Resp>,
    sdk_book: Mutex<Book>,
    resp_book: Mutex<Book>,
    tally: Mutex<Tally>,
    waiting: AtomicU64,
    sampled: Option<sampler::Shared>,
}

/// Loads until told to stop, waits for what is in flight, reads back.
pub async fn work(args: LoadArgs, mut stopped: watch::Receiver<bool>) -> Result<Verdict, String> {
    let options = clients::options(&args)?;
    let table = clients::table(&options, &args.table, TABLE_WAIT).await?;
    let resp = args.resp.as_deref().map(|address| Resp::new(&args, address)).transpose()?;
    let sampled = args.stores.clone().map(|stores| {
        let shared = sampler::Shared::default();
        tokio::spawn(sampler::run(stores, shared.clone()));
        shared
    });
    // Keys of its own: those of an earlier load may still be there.
    let run = wall_ms();
    let load = Arc::new(Load {
        table,
        resp,
        sdk_book: Mutex::new(Book::new(&format!("sdk-{run}"), args.seed, args.keys as usize)),
        resp_book: Mutex::new(Book::new(&format!("resp-{run}"), args.seed ^ 1, args.keys as usize)),
        tally: Mutex::default(),
        waiting: AtomicU64::new(0),
        sampled,
    });
    Line::Said(format!("loading {} requests a second", args.rate)).print();
    let started = Instant::now();
    let printing = tokio::spawn(print_seconds(load.clone()));
    dispatch(&load, &args, &mut stopped).await;
    let seconds = started.elapsed().as_secs_f64();
    // Every request ends by its deadline.
    let until = Instant::now() + args.deadline() * 2;
    while load.waiting.load(Ordering::Relaxed) > 0 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    printing.abort();
    Line::Second(load.take_second()).print();
    let mut verdict = load.verdict();
    verdict.seconds = seconds;
    read_back(&load, &mut verdict).await;
    verdict.sampled = load.sampled.as_ref().map(|sampled| sampled.lock().clone());
    Ok(verdict)
}

/// Starts requests at their time.
async fn dispatch(load: &Arc<Load>, args: &LoadArgs, stopped: &mut watch::Receiver<bool>) {
    let mut rng = StdRng::seed_from_u64(args.seed);
    let interval = Duration::from_secs(1) / args.rate;
    let mut ticks = tokio::time::interval(interval);
    // Late ticks come at once: the load is open, and their lateness counts.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    loop {
        let due = tokio::select! {
            due = ticks.tick() => due.into_std(),
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        let via = if load.resp.is_some() && rng.random() { Via::Resp } else { Via::Sdk };
        let is_write = rng.random();
        let Some(n) = load.book(via).lock().take(&mut rng) else { continue };
        load.waiting.fetch_add(1, Ordering::Relaxed);
        let load = load.clone();
        tokio::spawn(async move {
            let mut outcome = load.request(via, n, is_write).await;
            outcome.took = due.elapsed();
            load.count(outcome);
            load.waiting.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

impl Load {
    fn book(&self, via: Via) -> &Mutex<Book> {
        match via {
            Via::Sdk => &self.sdk_book,
            Via::Resp => &self.resp_book,
        }
    }

    async fn request(&self, via: Via, n: usize, is_write: bool) -> Outcome {
        let key = self.book(via).lock().key(n);
        let (how, repeated) =
            if is_write { self.write(via, n, &key).await } else { self.read(via, n, &key).await };
        Outcome { via, is_write, key, took: Duration::ZERO, repeated, how }
    }

    async fn write(&self, via: Via, n: usize, key: &str) -> (How, bool) {
        let (stamp, value) = self.book(via).lock().next_write(n);
        let (result, repeated) = self.put(via, key, value).await;
        // Also a clean error counts as unknown here: it is a failure anyway, and no reason to call a later
        // read wrong.
        let wrote = if result.is_ok() { Wrote::Acknowledged } else { Wrote::Unknown };
        self.book(via).lock().wrote(n, stamp, wrote);
        (result.map_or_else(How::Bad, |()| How::Ok), repeated)
    }

    async fn put(&self, via: Via, key: &str, value: Vec<u8>) -> (Result<(), Bad>, bool) {
        match (&self.resp, via) {
            (Some(resp), Via::Resp) => {
                let mut set = redis::cmd("SET");
                set.arg(key).arg(value);
                resp.run::<()>(&set).await
            }
            _ => (clients::sdk_put(&self.table, key.to_owned(), value).await, false),
        }
    }

    async fn read(&self, via: Via, n: usize, key: &str) -> (How, bool) {
        let (found, repeated) = self.get(via, key).await;
        let mut book = self.book(via).lock();
        let how = match found {
            Ok(found) => book.read(n, found.as_deref()).map_or(How::Ok, How::Wrong),
            Err(bad) => {
                book.gave_up_reading(n);
                How::Bad(Bad { ambiguous: false, ..bad })
            }
        };
        (how, repeated)
    }

    async fn get(&self, via: Via, key: &str) -> (Result<Option<Vec<u8>>, Bad>, bool) {
        match (&self.resp, via) {
            (Some(resp), Via::Resp) => resp.run::<Option<Vec<u8>>>(redis::cmd("GET").arg(key)).await,
            _ => (clients::sdk_get(&self.table, key.to_owned()).await, false),
        }
    }

    fn count(&self, outcome: Outcome) {
        let mut tally = self.tally.lock();
        let tally = &mut *tally;
        tally.second.latency.record(outcome.took);
        tally.second.max_us = tally.second.max_us.max(outcome.took.as_micros() as u64);
        let mut one = Counts { repeated: outcome.repeated.into(), ..Counts::default() };
        let mut failed = None;
        match outcome.how {
            How::Ok => (one.ok, one.writes) = (1, outcome.is_write.into()),
            How::Bad(bad) if bad.ambiguous => (one.ambiguous, failed) = (1, Some(("ambiguous", bad.text))),
            How::Bad(bad) => (one.failed, failed) = (1, Some(("failed", bad.text))),
            How::Wrong(text) => (one.wrong, failed) = (1, Some(("wrong", text))),
        }
        let (total, second) = match outcome.via {
            Via::Sdk => (&mut tally.sdk, &mut tally.second.sdk),
            Via::Resp => (&mut tally.resp, &mut tally.second.resp),
        };
        total.add(&one);
        second.add(&one);
        let Some((how, error)) = failed else { return };
        if tally.errors.len() < ERROR_KINDS_MAX || tally.errors.contains_key(&error) {
            *tally.errors.entry(error.clone()).or_default() += 1;
        }
        tally.shown += 1;
        if tally.shown <= FAILURES_SHOWN_MAX {
            let op = if outcome.is_write { "put" } else { "get" };
            let (via, ms) = (outcome.via.name().into(), outcome.took.as_millis() as u64);
            let (op, how) = (op.into(), how.into());
            Line::Failure(Failed { t: wall_ms(), via, op, key: outcome.key, how, error, ms }).print();
        }
    }

    fn take_second(&self) -> Second {
        let mut second = std::mem::take(&mut self.tally.lock().second);
        second.t = wall_ms();
        second.p50_ms = ms(second.latency.quantile(0.5));
        second.p99_ms = ms(second.latency.quantile(0.99));
        second.waiting = self.waiting.load(Ordering::Relaxed);
        if let Some(sampled) = &self.sampled {
            let sampled = sampled.lock();
            (second.unavailable, second.stores) = (sampled.unavailable_now, sampled.stores);
        }
        second
    }

    fn verdict(&self) -> Verdict {
        let tally = self.tally.lock();
        let acknowledged = self.sdk_book.lock().acknowledged + self.resp_book.lock().acknowledged;
        Verdict {
            sdk: tally.sdk.clone(),
            resp: tally.resp.clone(),
            acknowledged,
            errors: tally.errors.clone(),
            ..Verdict::default()
        }
    }
}

async fn print_seconds(load: Arc<Load>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.tick().await;
    loop {
        ticks.tick().await;
        Line::Second(load.take_second()).print();
    }
}

/// Reads every key that was ever acknowledged, as it was written: through the SDK or through the proxy.
async fn read_back(load: &Arc<Load>, verdict: &mut Verdict) {
    use futures::stream::{StreamExt, iter};
    for via in [Via::Sdk, Via::Resp] {
        let written: Vec<usize> = load.book(via).lock().written().collect();
        let judged = iter(written).map(|n| {
            let load = load.clone();
            async move {
                let key = load.book(via).lock().key(n);
                match load.get(via, &key).await.0 {
                    Ok(found) => load.book(via).lock().judge(n, found.as_deref()),
                    Err(bad) => Some(format!("{key}: could not be read back: {}", bad.text)),
                }
            }
        });
        let mut judged = judged.buffer_unordered(READ_BACK_AT_ONCE);
        while let Some(problem) = judged.next().await {
            verdict.read_back += 1;
            let Some(problem) = problem else { continue };
            verdict.lost_count += 1;
            if verdict.lost.len() < LOST_SHOWN_MAX {
                verdict.lost.push(problem);
            }
        }
    }
}

impl Verdict {
    /// No request failed, no answer was wrong, nothing acknowledged was lost.
    pub fn is_clean(&self) -> bool {
        let wrong = self.sdk.wrong + self.resp.wrong;
        self.sdk.bad() + self.resp.bad() + wrong + self.lost_count == 0
    }
}
