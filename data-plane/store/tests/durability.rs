//! What survives restarts, power failures and full disks, and what is refused at start.

mod support;

use support::Cluster;
use undb_proto::v1::{self, ErrorCode};
use undb_runtime::Shutdown;
use undb_store::{StoreError, start_with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_acknowledged_is_there_after_all_stores_restarted() {
    let mut cluster = Cluster::start(3).await;
    let caller = cluster.caller();
    for i in 0..40 {
        caller.put(&format!("k{i}"), vec![i; 3000]).await.expect("written");
    }
    for i in 0..3 {
        cluster.down(i).await;
    }
    let ids: Vec<u64> = cluster.nodes.iter().map(|n| n.store_id).collect();
    for i in 0..3 {
        cluster.up(i).await.expect("it starts again");
    }
    assert_eq!(ids, cluster.nodes.iter().map(|n| n.store_id).collect::<Vec<_>>(), "ids stay");
    for i in 0..40u8 {
        assert_eq!(caller.get(&format!("k{i}")).await.expect("there").value, vec![i; 3000]);
    }
    for node in &cluster.nodes {
        cluster.control.wait("readiness", |_| node.running.as_ref().and_then(|r| r.readiness().ok())).await;
    }
}

/// What is committed in its own log says nothing of what the others have written since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_starts_is_ready_only_after_a_leader_said_how_far_its_shards_are() {
    let mut cluster = Cluster::start(3).await;
    let caller = cluster.caller();
    caller.put("k", vec![1; 3000]).await.expect("written");
    for i in 0..3 {
        cluster.down(i).await;
    }
    cluster.up(0).await.expect("it starts again");
    let readiness = |cluster: &Cluster| cluster.nodes[0].running.as_ref().expect("it runs").readiness();
    let why = readiness(&cluster).expect_err("nobody leads its shard");
    assert_eq!(why, "1 of 1 replicas have not caught up yet");
    cluster.up(1).await.expect("it starts again");
    cluster.control.wait("readiness", |_| readiness(&cluster).ok()).await;
    // Once is enough: what its shards lack later is for the availability gate to know.
    cluster.down(1).await;
    assert_eq!(readiness(&cluster), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_acknowledged_is_there_after_all_stores_lost_power() {
    let mut cluster = Cluster::start(3).await;
    let caller = cluster.caller();
    for round in 0..2u8 {
        for i in 0..20 {
            let seq = u64::from(round) * 20 + i + 1;
            caller.put_once(&format!("k{round}-{i}"), vec![round; 2000], seq).await.expect("written");
        }
        for i in 0..3 {
            cluster.crash(i, u64::from(round) * 10 + i as u64).await;
        }
        for i in 0..3 {
            cluster.up(i).await.expect("it recovers");
        }
        for earlier in 0..=round {
            for i in 0..20 {
                let record = caller.get(&format!("k{earlier}-{i}")).await.expect("it was acknowledged");
                assert_eq!(record.value, vec![earlier; 2000]);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_loses_power_is_replaced_and_catches_up_later() {
    let mut cluster = Cluster::start(3).await;
    let caller = cluster.caller();
    caller.put("before", "1").await.expect("written");
    let leader = cluster.leader().await;
    let error = cluster.crash(leader, 3).await;
    assert!(matches!(error, StoreError::Poisoned(_) | StoreError::Stopped), "{error}");
    for i in 0..30 {
        caller.put_once(&format!("after{i}"), "2", i + 1).await.expect("a quorum is left");
    }
    assert_eq!(caller.get("before").await.expect("there").value, "1");
    cluster.up(leader).await.expect("it recovers");
    let store = cluster.nodes[leader].store_id;
    cluster
        .control
        .wait("it to catch up", |control| {
            let best = control.report(control.leader(11)?, 11)?;
            let ours = control.report(store, 11)?;
            (ours.applied_index >= best.applied_index && best.applied_index > 30).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_missed_what_was_purged_catches_up_by_a_snapshot() {
    let small = |config: &mut undb_store::Config| {
        config.log.retained_bytes_per_shard = 256 << 10;
        config.log.tail_entries = 4;
        config.log.segment_bytes = 1 << 20;
    };
    let mut cluster = Cluster::start_tuned(3, small).await;
    let caller = cluster.caller();
    let away = (cluster.leader().await + 1) % 3;
    cluster.down(away).await;
    let store = cluster.nodes[away].store_id;
    for batch in 0..60u64 {
        let puts = (batch * 10..batch * 10 + 10)
            .map(|i| support::caller::put(&format!("k{i:03}"), vec![i as u8; 4000]))
            .collect();
        let id = v1::RequestId { client: 6, seq: batch + 1, first_attempt_ms: 1_700_000_000_000 };
        caller.write(puts, Some(id)).await.expect("a quorum is left");
    }
    let counted = v1::mutation::Op::Increment(v1::Increment { by: 1, initial: 0, ttl_ms: 0 });
    let counted = v1::Mutation { key: "n".into(), op: Some(counted), ..Default::default() };
    let id = Some(v1::RequestId { client: 5, seq: 1, first_attempt_ms: 1_700_000_000_000 });
    caller.write(vec![counted.clone()], id).await.expect("counted");
    cluster.up(away).await.expect("it starts again");
    cluster
        .control
        .wait("it to catch up", |control| {
            let best = control.report(control.leader(11)?, 11)?;
            let ours = control.report(store, 11)?;
            (ours.live_keys == 601 && ours.applied_index >= best.applied_index).then_some(())
        })
        .await;
    // It came by a snapshot if the leader's log began behind what this store had; then it serves alone
    // with one other, knows the request ids, and the values are right.
    let other = (0..3).find(|i| *i != away).expect("another");
    cluster.down(other).await;
    for i in [0u64, 299, 599] {
        let record = caller.get(&format!("k{i:03}")).await.expect("there");
        assert_eq!(record.value, vec![i as u8; 4000]);
    }
    assert_eq!(caller.write(vec![counted], id).await.expect("answered").results[0].number, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_new_data_and_serves_again_when_there_is_room() {
    // A tenth of the disk is the reserve.
    let mut cluster = Cluster::start_on(3, |_| {}, Some(64 << 20)).await;
    let caller = cluster.caller();
    let mut written = 0;
    let error = loop {
        match caller.put(&format!("k{written}"), vec![1; 1 << 20]).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 64, "64 MiB fit on a disk of 64 MiB with a reserve");
    };
    assert_eq!(error.code(), ErrorCode::DiskFull);
    assert!(written > 3, "{written}");
    // Reads and deletes go on, and so do elections.
    assert_eq!(caller.get("k0").await.expect("there").value.len(), 1 << 20);
    let delete = v1::Mutation {
        key: "k0".into(),
        op: Some(v1::mutation::Op::Delete(v1::Delete {})),
        ..Default::default()
    };
    assert!(caller.write(vec![delete], None).await.expect("deletes work").results[0].existed);
    let leader = cluster.leader().await;
    cluster.down(leader).await;
    assert_eq!(caller.get("k0").await, None);
    cluster.up(leader).await.expect("it starts on a full disk");
    cluster.nodes.iter().for_each(|node| node.fs.set_quota(None));
    let mut seq = 0;
    loop {
        seq += 1;
        match caller.put_once("more", vec![2; 1 << 20], seq).await {
            Ok(_) => break,
            // Until the room is noticed.
            Err(error) => assert_eq!(error.code(), ErrorCode::DiskFull),
        }
        cluster.control.next_heartbeat().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_value_takes_its_replica_out_of_service_and_nobody_reads_it() {
    let mut cluster = Cluster::start(3).await;
    let caller = cluster.caller();
    let marker = vec![0xA7u8; 50_000];
    caller.put_once("damaged", marker.clone(), 1).await.expect("written");
    let damaged = cluster.leader().await;
    for i in 0..3 {
        cluster.down(i).await;
    }
    // One byte in the middle of the value, where it lies in one store's log.
    let log = cluster.nodes[damaged].dir.join("log");
    let mut found = None;
    for entry in std::fs::read_dir(&log).expect("the log") {
        let path = entry.expect("a file").path();
        let bytes = std::fs::read(&path).expect("readable");
        found = found.or_else(|| bytes.windows(1000).position(|w| w == &marker[..1000]).map(|at| (path, at)));
    }
    let (path, at) = found.expect("the value is in the log");
    cluster.nodes[damaged].fs.flip(&path, at as u64 + 25_000, 0x01).expect("flipped");
    for i in 0..3 {
        if let Err(error) = cluster.up(i).await {
            // The log noticed before anybody read: that is as good.
            assert!(i == damaged && error.to_string().contains("corrupt"), "{error}");
        }
    }
    if cluster.nodes[damaged].running.is_some() {
        let store = cluster.nodes[damaged].store_id;
        // Until it leads and is read, or has found the damage while it was opened.
        let faulty = |control: &support::control::State| {
            control.report(store, 11).is_some_and(|r| !r.fault.is_empty())
        };
        loop {
            let leader = cluster.leader().await;
            if leader == damaged || faulty(&cluster.control.state.lock()) {
                break;
            }
            let request = v1::TransferLeaderRequest {
                authority: cluster.authority(cluster.nodes[leader].store_id),
                shard_id: 11,
                to_replica_id: 101 + damaged as u64,
            };
            // Another may win the election, or the damaged one may not answer: then once more.
            let _outcome = cluster.admin(leader).transfer_leader(request).await.expect("an answer");
            cluster.control.next_heartbeat().await;
        }
        let read = tokio::spawn({
            let caller = caller.clone();
            async move { caller.get("damaged").await }
        });
        let fault = |control: &support::control::State| {
            control.report(store, 11).map(|r| r.fault.clone()).filter(|fault| !fault.is_empty())
        };
        let fault = cluster.control.wait("the fault to be reported", fault).await;
        assert!(fault.contains("corrupt"), "{fault}");
        assert_eq!(read.await.expect("a reader").expect("another replica has it").value, marker);
    }
    let record = caller.get("damaged").await.expect("another replica has it");
    assert_eq!(record.value, marker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_in_use_or_of_another_cluster_is_refused() {
    let mut cluster = Cluster::start(1).await;
    let config = {
        let mut config =
            undb_store::Config::new(&cluster.nodes[0].dir, vec![cluster.control.address.clone()]);
        config.listen = "127.0.0.1:0".into();
        config
    };
    let shutdown = Shutdown::new(std::time::Duration::from_secs(5));
    let fs: std::sync::Arc<dyn undb_vfs::Fs> = std::sync::Arc::new(cluster.nodes[0].fs.clone());
    let env = || undb_store::Env { fs: Some(fs.clone()), ..Default::default() };
    let error = start_with(config.clone(), env(), shutdown.clone()).await.err().expect("in use");
    assert!(matches!(error, StoreError::DirectoryInUse { .. }), "{error}");
    assert_eq!(error.exit_code(), 10);
    cluster.down(0).await;

    let identity = cluster.nodes[0].dir.join("identity.json");
    let text = std::fs::read_to_string(&identity).expect("written");
    std::fs::write(&identity, text.replace("\"test\"", "\"other\"")).expect("rewritten");
    let running = start_with(config, env(), shutdown).await.expect("it serves until control says no");
    let error = running.join().await.expect_err("another cluster");
    assert!(matches!(error, StoreError::OtherCluster { .. }), "{error}");
}
