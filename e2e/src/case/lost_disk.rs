//! Stores lose their disks, one after the other, until none of the first disks is left.
//!
//! A store is killed, its directory removed, and it is started again at its address, empty. Nobody helps:
//! cluster control gives it a new id, fences the old one and has its replicas made anew. Then the
//! *next* store is stopped, so that every quorum needs the new copies, and everything that was ever
//! acknowledged is read back.

use super::{Failure, Run, say};
use crate::harness::{Cluster, HarnessError, Shape, apply, wait_for_table};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use undb_proto::v1::StatusResponse;
use undb_sdk::{Admin, Client, Options, Table};

const CASE: &str = "lost-disk";
const SHAPE: Shape = Shape { members: 1, stores: 3 };
const TABLE: &str = "lost-disk";
const TABLE_JSON: &str = r#"{"apiVersion": "undb.io/v1alpha1", "kind": "Table", "metadata": {"name": "lost-disk"},
    "spec": {"storeCluster": "default", "replication": {"factor": 3, "minAvailable": 2},
             "partitioning": {"type": "hash", "shards": 4}}}"#;
const KEYS_A_ROUND: u64 = 2000;
const VALUE_BYTES: usize = 4096;
const REPAIR_PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);

/// Runs the case: a round a store, fewer when the time is over, at least one.
pub async fn run(run: Run) -> Result<String, Failure> {
    say(CASE, format_args!("starting {} stores and the other roles", SHAPE.stores));
    let mut cluster = Cluster::start(SHAPE).await?;
    let found = rounds(&mut cluster, run).await;
    if found.is_err() {
        say(CASE, format_args!("logs and data are kept in {}", cluster.keep().display()));
    }
    found
}

async fn rounds(cluster: &mut Cluster, run: Run) -> Result<String, Failure> {
    let started = Instant::now();
    let options = Options::new([cluster.endpoint()]);
    apply(&options, TABLE_JSON).await?;
    let table = wait_for_table(&options, TABLE).await?;
    let client = Client::connect(options).await.map_err(HarnessError::client("connecting"))?;
    let admin = client.admin();
    let (mut written, mut slowest, mut lost) = (0, Duration::ZERO, 0);
    for round in 0..SHAPE.stores {
        if round > 0 && started.elapsed() >= run.duration {
            break;
        }
        written = write(&table, run.seed, written, KEYS_A_ROUND).await?;
        let name = format!("store-{}", round + 1);
        let known = store_ids(&admin).await?;
        lose_disk(cluster, &name)?;
        // Writes go on with two of three copies.
        written = write(&table, run.seed, written, KEYS_A_ROUND).await?;
        let since = Instant::now();
        start(cluster, &name)?;
        wait_until_repaired(&admin, &known).await?;
        slowest = slowest.max(since.elapsed());
        lost += 1;
        say(CASE, format_args!("{name} lost its disk and is whole again after {:?}", since.elapsed()));

        let next = format!("store-{}", (round + 1) % SHAPE.stores + 1);
        kill(cluster, &next)?;
        read(&table, run.seed, written).await?;
        say(CASE, format_args!("{written} keys read back while {next} is down"));
        // Ready means caught up.
        cluster.wait_ready().await?;
    }
    Ok(format!(
        "{lost} disks lost, {written} acknowledged keys there, slowest repair {} ms",
        slowest.as_millis()
    ))
}

fn named<'a>(cluster: &'a mut Cluster, name: &str) -> Result<&'a mut crate::harness::Process, Failure> {
    let found = cluster.processes().iter_mut().find(|process| process.name == name);
    found.ok_or_else(|| Failure::Found(format!("the cluster has no process {name}")))
}

fn kill(cluster: &mut Cluster, name: &str) -> Result<(), Failure> {
    named(cluster, name)?.kill();
    Ok(())
}

fn start(cluster: &mut Cluster, name: &str) -> Result<(), Failure> {
    Ok(named(cluster, name)?.start()?)
}

fn lose_disk(cluster: &mut Cluster, name: &str) -> Result<(), Failure> {
    kill(cluster, name)?;
    let dir = cluster.dir().join(name);
    Ok(std::fs::remove_dir_all(dir).map_err(HarnessError::io("removing a store's directory"))?)
}

fn key(n: u64) -> String {
    format!("key-{n:08}")
}

/// Says which key it belongs to, so that a value in the wrong place is seen.
fn value(seed: u64, n: u64) -> Vec<u8> {
    let mut value = format!("{seed}/{n}/").into_bytes();
    let pattern = (seed ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    value.extend(pattern.iter().cycle().take(VALUE_BYTES));
    value
}

async fn write(table: &Table, seed: u64, from: u64, count: u64) -> Result<u64, Failure> {
    let puts = (from..from + count).map(|n| (key(n).into(), value(seed, n).into(), Default::default()));
    for result in table.put_many(puts).await {
        result.map_err(HarnessError::client("writing"))?;
    }
    Ok(from + count)
}

async fn read(table: &Table, seed: u64, written: u64) -> Result<(), Failure> {
    let found = table.get_many((0..written).map(key)).await.map_err(HarnessError::client("reading back"))?;
    for (n, record) in found.into_iter().enumerate() {
        let n = n as u64;
        let value_is_right = record.map(|record| record.value == value(seed, n));
        match value_is_right {
            Some(true) => {}
            Some(false) => return Err(Failure::Found(format!("{} has a wrong value", key(n)))),
            None => return Err(Failure::Found(format!("{} was acknowledged and is not there", key(n)))),
        }
    }
    Ok(())
}

async fn status(admin: &Admin) -> Result<StatusResponse, Failure> {
    Ok(admin.status().await.map_err(HarnessError::client("asking for the status"))?)
}

fn alive_ids(status: &StatusResponse) -> BTreeSet<u64> {
    let alive = status.stores.iter().filter(|store| store.alive);
    alive.filter_map(|store| store.store.as_ref()).map(|store| store.store_id).collect()
}

async fn store_ids(admin: &Admin) -> Result<BTreeSet<u64>, Failure> {
    Ok(alive_ids(&status(admin).await?))
}

/// Until a store that was not known has taken the place of the one that was, with all its copies.
async fn wait_until_repaired(admin: &Admin, known: &BTreeSet<u64>) -> Result<(), Failure> {
    let until = Instant::now() + REPAIR_PATIENCE;
    loop {
        let status = status(admin).await?;
        let alive = alive_ids(&status);
        let replaced = alive.len() as u64 >= SHAPE.stores && !alive.is_subset(known);
        let whole = status.shards_under_replicated == 0 && status.shards_available == status.shards;
        if replaced && whole {
            return Ok(());
        }
        if Instant::now() >= until {
            let problems = status.problems.join("; ");
            return Err(Failure::Found(format!("not repaired within {REPAIR_PATIENCE:?}: {problems}")));
        }
        tokio::time::sleep(POLL).await;
    }
}
