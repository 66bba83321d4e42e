//! One register, one writer, several readers, stores that restart one after another: every read lies
//! between the newest write acknowledged before it began and the newest begun before it ended.

mod support;

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use support::registers::{Op, Registers};
use support::{Cluster, LONG, SHARD, group};
use tokio::sync::watch;
use undb_raft::{Barrier, Group};

type Replicas = Arc<RwLock<BTreeMap<u64, (Group, Arc<Registers>)>>>;

#[derive(Default)]
struct History {
    begun: AtomicU64,
    acknowledged: AtomicU64,
    newest_read: AtomicU64,
    reads: AtomicU64,
    over: AtomicBool,
    wrote: watch::Sender<()>,
}

fn any(replicas: &Replicas, turn: usize) -> Option<(Group, Arc<Registers>)> {
    let replicas = replicas.read();
    replicas.values().nth(turn % replicas.len().max(1)).cloned()
}

async fn write(replicas: Replicas, history: Arc<History>) {
    let mut turn = 0;
    while !history.over.load(Ordering::SeqCst) {
        let value = history.begun.fetch_add(1, Ordering::SeqCst) + 1;
        // The same value again until it is acknowledged: writing it twice changes nothing, since
        // nobody writes another in between.
        while !history.over.load(Ordering::SeqCst) {
            let Some((group, _)) = any(&replicas, turn) else { continue };
            let put = group.propose(Op::Put("r".into(), value).encode());
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(2), put).await {
                history.acknowledged.store(value, Ordering::SeqCst);
                history.wrote.send_replace(());
                break;
            }
            turn += 1;
            pause(&group).await;
        }
    }
}

/// Until something changes there, or for a moment.
async fn pause(group: &Group) {
    let _ = tokio::time::timeout(Duration::from_millis(20), group.watch().changed()).await;
}

async fn read(replicas: Replicas, history: Arc<History>, barrier: Barrier) {
    let mut turn = 0;
    while !history.over.load(Ordering::SeqCst) {
        let Some((group, machine)) = any(&replicas, turn) else { continue };
        let at_least =
            history.acknowledged.load(Ordering::SeqCst).max(history.newest_read.load(Ordering::SeqCst));
        if group.barrier(barrier).await.is_err() {
            turn += 1;
            pause(&group).await;
            continue;
        }
        let value = machine.get("r");
        let at_most = history.begun.load(Ordering::SeqCst);
        assert!(
            (at_least..=at_most).contains(&value),
            "{barrier:?} read {value}, not {at_least}..={at_most}"
        );
        history.newest_read.fetch_max(value, Ordering::SeqCst);
        history.reads.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
    }
}

/// Waits until so many more writes are acknowledged.
async fn progress(history: &History, writes: u64) {
    let until = history.acknowledged.load(Ordering::SeqCst) + writes;
    let mut watch = history.wrote.subscribe();
    let all = watch.wait_for(|()| history.acknowledged.load(Ordering::SeqCst) >= until);
    tokio::time::timeout(LONG, all).await.expect("writes go on").expect("the writer runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_linearizable_while_stores_restart() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    cluster.found(SHARD).await;
    let replicas: Replicas = Arc::default();
    for store in 1..=3 {
        let id = group(SHARD, store);
        replicas.write().insert(store, (cluster.group(store, SHARD), cluster.machine(store, id)));
    }
    let history = Arc::new(History::default());
    let mut tasks = vec![tokio::spawn(write(replicas.clone(), history.clone()))];
    for barrier in [Barrier::Lease, Barrier::ReadIndex, Barrier::Lease] {
        tasks.push(tokio::spawn(read(replicas.clone(), history.clone(), barrier)));
    }
    progress(&history, 20).await;
    for _ in 0..2 {
        for store in 1..=3 {
            replicas.write().remove(&store);
            cluster.stop_store(store).await;
            progress(&history, 10).await;
            cluster.start_store(store).await;
            let id = group(SHARD, store);
            let group = cluster.open(store, id).await;
            replicas.write().insert(store, (group, cluster.machine(store, id)));
            // The next may stop only when this one counts again.
            let (last, _) = cluster.put(SHARD, Op::Put("mark".into(), store)).await;
            cluster.applied(store, SHARD, last).await;
        }
    }
    history.over.store(true, Ordering::SeqCst);
    for task in tasks {
        tokio::time::timeout(LONG, task).await.expect("ends").expect("holds");
    }
    assert!(history.reads.load(Ordering::SeqCst) > 20);
}
