//! Disks that fail, fill up and lose what was not synced.

mod support;

use std::io::ErrorKind;
use std::time::Duration;
use support::registers::Op;
use support::{Cluster, LONG, SHARD, group};
use undb_raft::{Barrier, RaftError};
use undb_vfs::{Fault, OpKind};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_power_cut_of_all_stores() {
    let mut cluster = Cluster::start_simulated([1, 2, 3]).await;
    cluster.found(SHARD).await;
    for seed in 1..=3 {
        let mut sum = 0;
        for i in 1..=20 {
            (_, sum) = cluster.put(SHARD, Op::Add("n".into(), i)).await;
        }
        for sim in cluster.sims.values() {
            sim.crash(seed);
        }
        for store in 1..=3 {
            cluster.stop_store(store).await;
        }
        for store in 1..=3 {
            cluster.start_store(store).await;
            cluster.open(store, group(SHARD, store)).await;
        }
        let (last, after) = cluster.put(SHARD, Op::Add("n".into(), 0)).await;
        assert!(after >= sum, "{after} after {sum} was acknowledged");
        for store in 1..=3 {
            cluster.applied(store, SHARD, last).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_log_cannot_sync_stops_and_says_why() {
    let mut cluster = Cluster::start_simulated([1, 2, 3]).await;
    let leader = cluster.found(SHARD).await;
    let victim = leader % 3 + 1;
    cluster.sims[&victim].inject(Fault::new(OpKind::Sync, ErrorKind::Other));
    cluster.put(SHARD, Op::Put("a".into(), 1)).await;
    let mut watch = cluster.group(victim, SHARD).watch();
    let why = match watch.wait_for("it stops", LONG, |s| s.fatal.is_some()).await {
        Ok(status) => status.fatal.expect("waited for"),
        Err(RaftError::Fatal(why)) => why,
        Err(e) => panic!("{e}"),
    };
    assert!(why.contains("poisoned"), "{why}");
    let refused = cluster.group(victim, SHARD).propose(Op::Put("b".into(), 1).encode()).await;
    assert!(matches!(refused, Err(RaftError::Fatal(_) | RaftError::Ambiguous)), "{refused:?}");
    // The others go on.
    cluster.stop_store(victim).await;
    cluster.put(SHARD, Op::Put("c".into(), 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_commands_until_there_is_room() {
    let mut cluster = Cluster::start_simulated([1]).await;
    cluster.found(SHARD).await;
    let sim = cluster.sims[&1].clone();
    sim.set_quota(Some(sim.used() + (64 << 10)));
    let lead = cluster.group(1, SHARD);
    let fill = Op::Fill("bulk".into(), vec![7; 64 << 10]).encode();
    let until_full = async {
        loop {
            // One that the log had accepted waits for room, and is done later.
            match tokio::time::timeout(Duration::from_millis(300), lead.propose(fill.clone())).await {
                Ok(Err(RaftError::DiskFull)) => return,
                Ok(Ok(_)) | Err(_) => {}
                Ok(Err(e)) => panic!("{e}"),
            }
        }
    };
    tokio::time::timeout(LONG, until_full).await.expect("it is full at last");
    lead.barrier(Barrier::ReadIndex).await.expect("reads go on");
    sim.set_quota(None);
    let until_room = async {
        while let Err(e) = lead.propose(Op::Put("a".into(), 1).encode()).await {
            assert_eq!(e, RaftError::DiskFull);
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, until_room).await.expect("it goes on");
    assert_eq!(lead.status().fatal, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lost_its_log_does_not_take_its_leader_down() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let leader = cluster.found(SHARD).await;
    let (last, _) = cluster.put(SHARD, Op::Put("a".into(), 1)).await;
    let victim = leader % 3 + 1;
    cluster.applied(victim, SHARD, last).await;
    cluster.wipe_store(victim).await;
    cluster.start_store(victim).await;
    // Under its old id, which nobody should do.
    cluster.open(victim, group(SHARD, victim)).await;
    let others: Vec<_> = cluster.groups(SHARD).into_iter().filter(|(store, _)| *store != victim).collect();
    // The leader hears of it while it goes on.
    for i in 0..20 {
        support::propose(&others, Op::Put("b".into(), i)).await;
        cluster.group(leader, SHARD).barrier(Barrier::ReadIndex).await.ok();
    }
    for (store, group) in &others {
        assert_eq!(group.status().fatal, None, "store {store}");
    }
}
