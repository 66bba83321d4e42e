//! The two loops.

use crate::keys::{Zipf, name};
use crate::plan::{Op, Plan, Workload};
use crate::report::{Amplification, Latencies, Report};
use crate::target::{Target, TargetError};
use crate::values::value;
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Share of the closed loop's throughput that the open loop asks for.
const OPEN_SHARE: f64 = 0.7;
const MAX_US: u64 = 600_000_000;

/// How far a run is: a phase, what is done of it, and how much there is.
pub type Progress = Arc<dyn Fn(&'static str, u64, u64) + Send + Sync>;

/// What one worker, or all of them together, measured.
struct Tally {
    read: Histogram<u64>,
    write: Histogram<u64>,
    errors: u64,
    error: Option<String>,
}

impl Tally {
    fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1, MAX_US, 3).expect("bounds are in order");
        Self { read: histogram(), write: histogram(), errors: 0, error: None }
    }

    fn note(&mut self, op: Op, took: Duration, result: Result<(), TargetError>) {
        match result {
            Ok(()) => {
                let histogram = if op == Op::Read { &mut self.read } else { &mut self.write };
                histogram.saturating_record(took.as_micros() as u64);
            }
            Err(error) => {
                self.errors += 1;
                self.error = Some(error.to_string());
            }
        }
    }

    fn add(&mut self, other: Tally) {
        let _ = self.read.add(&other.read);
        let _ = self.write.add(&other.write);
        self.errors += other.errors;
        self.error = other.error.or(self.error.take());
    }

    fn done(&self) -> u64 {
        self.read.len() + self.write.len()
    }
}

/// One run against a target.
pub async fn run<T: Target>(
    target: Arc<T>,
    target_name: &str,
    plan: &Plan,
    progress: Progress,
) -> Result<Report, TargetError> {
    let shared = Arc::new(Shared::new(target, plan, progress));
    let mut report = Report::empty(target_name, plan);
    if plan.load_first && plan.workload != Workload::Load {
        let loaded = shared.load("load").await;
        report.errors += loaded.errors;
        report.error = loaded.error;
    }
    let before = shared.target.counters().await?;
    let started = Instant::now();
    let closed = match plan.workload {
        Workload::Load => shared.load("load").await,
        _ => shared.closed(plan.duration / 2).await,
    };
    let took = started.elapsed().as_secs_f64();
    report.throughput_per_s = closed.done() as f64 / took;
    report.throughput_mb_per_s = report.throughput_per_s * plan.value_bytes as f64 / 1e6;
    let mut measured = closed;
    if plan.workload != Workload::Load {
        let rate = plan.rate.unwrap_or(report.throughput_per_s * OPEN_SHARE);
        report.rate_per_s = rate;
        let open = shared.open(rate, plan.duration / 2).await;
        report.errors += measured.errors;
        report.error = measured.error.or(report.error);
        measured = open;
    }
    report.read = Latencies::from(&measured.read);
    report.write = Latencies::from(&measured.write);
    report.errors += measured.errors;
    report.error = measured.error.or(report.error);
    if let (Some(before), Some(after)) = (before, shared.target.counters().await?) {
        report.amplification = Amplification::between(before, after);
    }
    Ok(report)
}

struct Shared<T> {
    target: Arc<T>,
    plan: Plan,
    zipf: Zipf,
    progress: Progress,
}

impl<T: Target> Shared<T> {
    fn new(target: Arc<T>, plan: &Plan, progress: Progress) -> Self {
        Self { target, plan: plan.clone(), zipf: Zipf::new(plan.keys), progress }
    }

    fn rng(&self, worker: usize, salt: u64) -> SmallRng {
        SmallRng::seed_from_u64(
            self.plan.seed ^ (worker as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt,
        )
    }

    async fn one(&self, op: Op, key: u64, rng: &mut SmallRng) -> Result<(), TargetError> {
        if op != Op::Update {
            self.target.read(name(key)).await?;
        }
        if op != Op::Read {
            self.target.write(name(key), value(self.plan.value_bytes, rng)).await?;
        }
        Ok(())
    }

    /// Every key once.
    async fn load(self: &Arc<Self>, phase: &'static str) -> Tally {
        let next = Arc::new(AtomicU64::new(0));
        let keys = self.plan.keys;
        self.workers(1, move |shared, mut rng| {
            let next = next.clone();
            async move {
                let mut tally = Tally::new();
                loop {
                    let key = next.fetch_add(1, Ordering::Relaxed);
                    if key >= keys {
                        return tally;
                    }
                    let started = Instant::now();
                    let result = shared.one(Op::Update, key, &mut rng).await;
                    tally.note(Op::Update, started.elapsed(), result);
                    (shared.progress)(phase, key + 1, keys);
                }
            }
        })
        .await
    }

    /// As fast as the answers come.
    async fn closed(self: &Arc<Self>, duration: Duration) -> Tally {
        let started = Instant::now();
        self.workers(2, move |shared, mut rng| async move {
            let mut tally = Tally::new();
            while started.elapsed() < duration {
                let op = shared.plan.workload.op(rng.random_range(0..100));
                let key = shared.zipf.next(&mut rng);
                let began = Instant::now();
                let result = shared.one(op, key, &mut rng).await;
                tally.note(op, began.elapsed(), result);
                (shared.progress)(
                    "closed loop",
                    started.elapsed().as_millis() as u64,
                    duration.as_millis() as u64,
                );
            }
            tally
        })
        .await
    }

    /// At fixed times. A request that starts late counts from when it was due.
    async fn open(self: &Arc<Self>, rate: f64, duration: Duration) -> Tally {
        let total = (rate * duration.as_secs_f64()) as u64;
        let next = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        self.workers(3, move |shared, mut rng| {
            let next = next.clone();
            async move {
                let mut tally = Tally::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= total {
                        return tally;
                    }
                    let due = started + Duration::from_secs_f64(n as f64 / rate);
                    tokio::time::sleep_until(due.into()).await;
                    let op = shared.plan.workload.op(rng.random_range(0..100));
                    let key = shared.zipf.next(&mut rng);
                    let result = shared.one(op, key, &mut rng).await;
                    tally.note(op, due.elapsed(), result);
                    (shared.progress)("open loop", n + 1, total);
                }
            }
        })
        .await
    }

    async fn workers<F, W>(self: &Arc<Self>, salt: u64, worker: F) -> Tally
    where
        F: Fn(Arc<Self>, SmallRng) -> W,
        W: Future<Output = Tally> + Send + 'static,
    {
        let running: Vec<_> = (0..self.plan.threads.max(1))
            .map(|i| tokio::spawn(worker(self.clone(), self.rng(i, salt))))
            .collect();
        let mut sum = Tally::new();
        for task in running {
            match task.await {
                Ok(tally) => sum.add(tally),
                Err(error) => {
                    sum.errors += 1;
                    sum.error = Some(format!("a worker ended: {error}"));
                }
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::future::BoxFuture;
    use std::collections::HashMap;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Map {
        records: Mutex<HashMap<Bytes, usize>>,
    }

    impl Target for Map {
        fn read(&self, key: Bytes) -> BoxFuture<'_, Result<Option<usize>, TargetError>> {
            Box::pin(async move { Ok(self.records.lock().expect("not poisoned").get(&key).copied()) })
        }

        fn write(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), TargetError>> {
            Box::pin(async move {
                self.records.lock().expect("not poisoned").insert(key, value.len());
                Ok(())
            })
        }
    }

    fn plan(workload: Workload) -> Plan {
        Plan {
            workload,
            keys: 100,
            value_bytes: 10,
            threads: 4,
            duration: Duration::from_millis(40),
            rate: Some(1000.0),
            load_first: true,
            seed: 7,
        }
    }

    #[tokio::test]
    async fn load_writes_every_key_once() {
        let map = Arc::new(Map::default());
        let report =
            run(map.clone(), "map", &plan(Workload::Load), Arc::new(|_, _, _| {})).await.expect("no error");
        assert_eq!((report.write.count, report.errors), (100, 0));
        assert_eq!(map.records.lock().expect("not poisoned").len(), 100);
    }

    #[tokio::test]
    async fn the_open_loop_asks_for_its_rate_whatever_the_answers() {
        let map = Arc::new(Map::default());
        let report = run(map, "map", &plan(Workload::A), Arc::new(|_, _, _| {})).await.expect("no error");
        assert_eq!(report.read.count + report.write.count, 20, "1,000 a second for 20 ms");
        assert!(report.row().contains("map"));
    }
}
