//! Separate processes under writes, a random one killed with -9 every 1-3 s.
//!
//! Three kinds of clients work all the time: on a few dozen contended keys with reads, writes, removals and
//! compare-and-set, whose history must be linearizable; on keys of their own that are written once, of
//! which each acknowledged one must be there afterwards and none may be half there; and on counters, which
//! must have counted every acknowledged increment once.

mod chaos;
mod counters;
mod registers;
mod uniques;
mod value;

use super::{Failure, Run, say};
use crate::harness::{Cluster, HarnessError, Shape, apply, wait_for_table};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use undb_sdk::{Client, Options, Table};

const CASE: &str = "kill9";
const SHAPE: Shape = Shape { members: 3, stores: 3 };
const TABLE: &str = "kill9";
const TABLE_JSON: &str = r#"{"apiVersion": "undb.io/v1alpha1", "kind": "Table", "metadata": {"name": "kill9"},
    "spec": {"storeCluster": "default", "replication": {"factor": 3, "minAvailable": 2},
             "partitioning": {"type": "hash", "shards": 6}}}"#;
const REGISTER_CLIENTS: u64 = 8;
const UNIQUE_WRITERS: u64 = 8;
const COUNTING_CLIENTS: u64 = 4;

/// What the clients share.
struct Shared {
    started: Instant,
    stop: AtomicBool,
    /// Acknowledged writes of every kind.
    acknowledged: AtomicU64,
    /// The last value id that was given out.
    values: AtomicU64,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn acknowledge(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    fn next_value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    let mut rng = StdRng::seed_from_u64(run.seed);
    say(
        CASE,
        format_args!("starting {} members, {} stores and the other roles", SHAPE.members, SHAPE.stores),
    );
    let mut cluster = Cluster::start(SHAPE).await?;
    let found = work(&mut cluster, run, &mut rng).await;
    if found.is_err() {
        say(CASE, format_args!("logs and data are kept in {}", cluster.keep().display()));
    }
    found
}

async fn work(cluster: &mut Cluster, run: Run, rng: &mut StdRng) -> Result<String, Failure> {
    let options = Options::new([cluster.endpoint()]);
    apply(&options, TABLE_JSON).await?;
    let table = wait_for_table(&options, TABLE).await?;
    say(
        CASE,
        format_args!("table of {} shards is there; writing for {:?}", table.shard_count(), run.duration),
    );
    let shared = Arc::new(Shared {
        started: Instant::now(),
        stop: AtomicBool::new(false),
        acknowledged: AtomicU64::new(0),
        values: AtomicU64::new(0),
    });
    let clients = Clients::start(&options, &shared, rng).await?;
    let kills = chaos::run(cluster, &shared, run.duration, rng).await;
    shared.stop.store(true, Ordering::Relaxed);
    let (histories, written, counted) = clients.join().await?;
    let kills = kills?;
    say(CASE, format_args!("{kills} kills; waiting for every process to be ready"));
    cluster.wait_ready().await?;
    let table = wait_for_table(&options, TABLE).await?;
    let open = registers::finish(&table, &shared, &histories).await?;
    let longest = written.iter().map(|w| w.longest_gap).max().unwrap_or_default();
    uniques::verify(&table, &written).await?;
    counters::verify(&table, &counted).await?;
    registers::verify(&histories, open)?;
    let acknowledged = shared.acknowledged.load(Ordering::Relaxed);
    Ok(format!(
        "{kills} kills, {acknowledged} acknowledged writes, longest unavailability {} ms, linearizable",
        longest.as_millis()
    ))
}

/// Every client's task.
struct Clients {
    registers: Vec<tokio::task::JoinHandle<registers::History>>,
    uniques: Vec<tokio::task::JoinHandle<uniques::Written>>,
    counters: Vec<tokio::task::JoinHandle<counters::Counted>>,
}

impl Clients {
    async fn start(options: &Options, shared: &Arc<Shared>, rng: &mut StdRng) -> Result<Clients, Failure> {
        // Several clients of the SDK, so that routes and request ids are not all of one.
        let mut tables: Vec<Table> = Vec::new();
        for _ in 0..4 {
            let client =
                Client::connect(options.clone()).await.map_err(HarnessError::client("connecting"))?;
            tables.push(client.table(TABLE).await.map_err(HarnessError::client("opening the table"))?);
        }
        let table = |i: u64| tables[i as usize % tables.len()].clone();
        let seeds: Vec<u64> = (0..REGISTER_CLIENTS + UNIQUE_WRITERS).map(|_| rng.random()).collect();
        let seed = |i: u64| StdRng::seed_from_u64(seeds[i as usize]);
        let registers = (0..REGISTER_CLIENTS)
            .map(|i| tokio::spawn(registers::client(table(i), Arc::clone(shared), seed(i))))
            .collect();
        let uniques = (0..UNIQUE_WRITERS)
            .map(|i| {
                let rng = seed(REGISTER_CLIENTS + i);
                tokio::spawn(uniques::writer(table(i), Arc::clone(shared), i, rng))
            })
            .collect();
        let counters = (0..COUNTING_CLIENTS)
            .map(|i| tokio::spawn(counters::client(table(i), Arc::clone(shared), i)))
            .collect();
        Ok(Clients { registers, uniques, counters })
    }

    async fn join(
        self,
    ) -> Result<(Vec<registers::History>, Vec<uniques::Written>, Vec<counters::Counted>), Failure> {
        Ok((all(self.registers).await?, all(self.uniques).await?, all(self.counters).await?))
    }
}

async fn all<T>(tasks: Vec<tokio::task::JoinHandle<T>>) -> Result<Vec<T>, Failure> {
    let mut results = Vec::new();
    for task in tasks {
        let result = task.await.map_err(|e| Failure::Found(format!("a client broke: {e}")))?;
        results.push(result);
    }
    Ok(results)
}

/// A pause between operations, so that the histories stay small enough to be judged.
async fn pause(rng: &mut StdRng, up_to_ms: u64) {
    tokio::time::sleep(Duration::from_micros(rng.random_range(0..up_to_ms * 1000))).await;
}
