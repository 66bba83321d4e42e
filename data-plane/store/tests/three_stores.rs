//! One shard on three stores over real gRPC: what a client may rely on.

mod support;

use bytes::Bytes;
use futures::StreamExt;
use support::{Caller, Cluster, linear};
use undb_proto::v1;
use undb_proto::v1::ErrorCode;
use v1::kv_request::Op;
use v1::kv_response::Result as Answer;

fn increment(key: &str, by: i64) -> v1::Mutation {
    let op = v1::mutation::Op::Increment(v1::Increment { by, initial: 0, ttl_ms: 0 });
    mutation(key, op)
}

fn mutation(key: &str, op: v1::mutation::Op) -> v1::Mutation {
    v1::Mutation { key: Bytes::copy_from_slice(key.as_bytes()), op: Some(op), ..Default::default() }
}

fn put(key: &str, value: &str) -> v1::Mutation {
    let value = Bytes::copy_from_slice(value.as_bytes());
    mutation(key, v1::mutation::Op::Put(v1::Put { value, ..Default::default() }))
}

fn when(mut mutation: v1::Mutation, want: v1::condition::Want) -> v1::Mutation {
    mutation.condition = Some(v1::Condition { want: Some(want) });
    mutation
}

fn request_id(seq: u64) -> Option<v1::RequestId> {
    Some(v1::RequestId { client: 77, seq, first_attempt_ms: 1_700_000_000_000 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_is_read_scanned_swapped_and_counted() {
    let cluster = Cluster::start(3).await;
    let caller = cluster.caller();
    // Below and above the separation threshold.
    for (key, len) in [("a", 10), ("b", 1000), ("c", 100_000)] {
        let written = caller.put(key, vec![b'x'; len]).await.expect("written");
        assert!(written.applied && !written.results[0].existed);
    }
    let record = caller.get("b").await.expect("there");
    assert_eq!((record.value.len(), record.value_len), (1000, 1000));
    assert_eq!(caller.get("d").await, None);

    let all = |reverse| v1::ScanRequest {
        range: Some(v1::KeyRange::default()),
        limit: 2,
        reverse,
        ..Default::default()
    };
    let page = caller.scan(all(false)).await;
    let keys: Vec<_> = page.records.iter().map(|r| r.key.clone()).collect();
    assert_eq!(keys, ["a", "b"]);
    assert_eq!(page.next, "c");
    let page = caller.scan(all(true)).await;
    assert_eq!(page.records[0].key, "c");

    let swap = |version| vec![when(put("a", "new"), v1::condition::Want::Version(version))];
    let version = caller.get("a").await.expect("there").version;
    assert!(!caller.write(swap(version + 1), None).await.expect("answered").applied);
    assert!(caller.write(swap(version), None).await.expect("answered").applied);
    let refused = caller.write(swap(version), None).await.expect("answered");
    assert_eq!((refused.applied, refused.failed), (false, 0));
    let current = refused.results[0].previous.as_ref().expect("the record that failed it");
    assert!(current.version > version);

    assert_eq!(caller.write(vec![increment("n", 5)], None).await.expect("counted").results[0].number, 5);
    let error = caller.write(vec![increment("b", 1)], None).await.expect_err("no number");
    assert_eq!(error.code(), ErrorCode::NotAnInteger);

    let range = v1::mutation::Op::DeleteRange(v1::DeleteRange { end: Bytes::from_static(b"c") });
    let removed = caller.write(vec![mutation("a", range)], None).await.expect("removed");
    assert_eq!(removed.results[0].number, 2);
    assert_eq!(caller.get("b").await, None);
    assert!(caller.get("c").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retried_request_id_is_applied_once_even_by_the_next_leader() {
    let mut cluster = Cluster::start(3).await;
    let caller = cluster.caller();
    let first = caller.write(vec![increment("n", 1)], request_id(1)).await.expect("counted");
    let again = caller.write(vec![increment("n", 1)], request_id(1)).await.expect("answered");
    assert_eq!(first, again);
    let leader = cluster.leader().await;
    cluster.down(leader).await;
    let elsewhere = caller.write(vec![increment("n", 1)], request_id(1)).await.expect("answered");
    assert_eq!(first, elsewhere);
    let next = caller.write(vec![increment("n", 1)], request_id(2)).await.expect("counted");
    assert_eq!(next.results[0].number, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_do_not_fit_are_refused_with_what_helps() {
    let cluster = Cluster::start(3).await;
    let caller = cluster.caller();
    caller.put("k", "v").await.expect("written");
    let leader = cluster.leader().await;
    let store = cluster.nodes[leader].store_id;
    let get = || Op::Get(v1::GetRequest { keys: vec![Bytes::from_static(b"k")], ..Default::default() });
    let refused = async |header| match caller.attempt(store, header, get()).await.expect("an answer") {
        Err(error) => error,
        Ok(answer) => panic!("not refused: {answer:?}"),
    };
    let good = caller.header(store);
    let error = refused(v1::Header { cluster_id: "x".into(), ..good.clone() }).await;
    assert_eq!(error.code(), ErrorCode::ClusterMismatch);
    let error = refused(v1::Header { store_id: store + 7, ..good.clone() }).await;
    assert_eq!(error.code(), ErrorCode::StoreMismatch);
    let error = refused(v1::Header { shard_id: 999, ..good.clone() }).await;
    assert_eq!(error.code(), ErrorCode::ShardNotFound);
    let error = refused(v1::Header { epoch: Some(v1::Epoch { version: 9, conf: 1 }), ..good.clone() }).await;
    assert_eq!(error.code(), ErrorCode::EpochNotMatch);
    assert_eq!(error.shards.len(), 1);
    assert_eq!(error.shards[0].replicas.len(), 3);
    assert_eq!(error.shards[0].epoch, Some(v1::Epoch { version: 1, conf: 1 }));

    let follower = cluster.nodes[(leader + 1) % 3].store_id;
    let told = |control: &support::control::State| {
        (control.report(follower, 11)?.leader_replica_id != 0).then_some(())
    };
    cluster.control.wait("the follower to hear of its leader", told).await;
    let answer = caller.attempt(follower, caller.header(follower), get()).await.expect("an answer");
    let error = answer.expect_err("it does not lead");
    assert_eq!((error.code(), error.leader_store_id), (ErrorCode::NotLeader, store));

    let stale = v1::GetRequest {
        keys: vec![Bytes::from_static(b"k")],
        consistency: v1::Consistency::BoundedStale as i32,
        no_value: false,
    };
    let answer = caller.attempt(store, good, Op::Get(stale)).await.expect("an answer");
    assert_eq!(answer.expect_err("refused").code(), ErrorCode::NotSupported);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_an_older_authority_are_fenced() {
    let cluster = Cluster::start(3).await;
    let store_id = cluster.nodes[0].store_id;
    let list = async |control_lease| {
        let authority = v1::Authority { control_lease, ..cluster.authority(store_id).expect("one") };
        let request = v1::ListReplicasRequest { authority: Some(authority) };
        cluster.admin(0).list_replicas(request).await.expect("an answer").into_inner()
    };
    assert_eq!(list(5).await.replicas.len(), 1);
    let error = list(4).await.error.expect("refused");
    assert_eq!(error.code(), ErrorCode::Fenced);
    // Twice the same order is one order; a spent replica id stays spent.
    let code = |error: v1::Error| error.code();
    cluster.control.state.lock().lease = 5;
    let create = |replica_id| {
        let request = v1::CreateReplicaRequest {
            authority: Some(v1::Authority { control_lease: 5, ..cluster.authority(store_id).expect("one") }),
            shard: Some(cluster.shard.clone()),
            replica_id,
            table: Some(cluster.table.clone()),
            bootstrap: replica_id == 101,
        };
        let mut admin = cluster.admin(0);
        async move { admin.create_replica(request).await.expect("an answer").into_inner().error }
    };
    assert_eq!(create(101).await, None);
    assert_eq!(create(102).await.map(code), Some(ErrorCode::Conflict));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_moves_to_a_fourth_store_and_the_old_copy_goes_only_by_order() {
    let mut cluster = Cluster::start(4).await;
    let caller = cluster.caller();
    for i in 0..50 {
        caller.put(&format!("k{i}"), vec![7; 2000]).await.expect("written");
    }
    let leader = cluster.leader().await;
    let leaving = (leader + 1) % 3;
    cluster.shard.epoch = Some(v1::Epoch { version: 1, conf: 1 });
    cluster.create(3, 104, false).await.expect("created");
    let mut replicas = cluster.shard.replicas.clone();
    replicas[leaving] =
        v1::Replica { replica_id: 104, store_id: cluster.nodes[3].store_id, role: v1::Role::Voter as i32 };
    let change = |conf| v1::ChangeMembersRequest {
        authority: cluster.authority(cluster.nodes[leader].store_id),
        shard_id: cluster.shard.shard_id,
        expected: Some(v1::Epoch { version: 1, conf }),
        replicas: replicas.clone(),
    };
    let stale = cluster.admin(leader).change_members(change(9)).await.expect("an answer").into_inner();
    assert_eq!(stale.error.map(|e| e.code()), Some(ErrorCode::EpochNotMatch));
    let changed = cluster.admin(leader).change_members(change(1)).await.expect("an answer").into_inner();
    assert_eq!(changed.error, None);
    let shard = changed.shard.expect("the shard as it is now");
    let epoch = shard.epoch.expect("an epoch");
    assert!(epoch.conf > 1);
    assert_eq!(shard.replicas.len(), 3);
    let again = cluster.admin(leader).change_members(change(1)).await.expect("an answer").into_inner();
    assert_eq!(again.error, None, "asked again it is done");

    let destroy = |epoch| v1::DestroyReplicaRequest {
        authority: cluster.authority(cluster.nodes[leaving].store_id),
        shard_id: cluster.shard.shard_id,
        replica_id: 101 + leaving as u64,
        epoch: Some(epoch),
    };
    let older = v1::Epoch { version: 0, conf: 9 };
    let refused =
        cluster.admin(leaving).destroy_replica(destroy(older)).await.expect("an answer").into_inner();
    assert_eq!(refused.error.map(|e| e.code()), Some(ErrorCode::EpochNotMatch));
    let done = cluster.admin(leaving).destroy_replica(destroy(epoch)).await.expect("an answer").into_inner();
    assert_eq!(done.error, None);
    let back = cluster.create(leaving, 101 + leaving as u64, true).await.expect_err("spent");
    assert_eq!(back.code(), ErrorCode::Conflict);

    // The new copy counts: with it and the leader's the shard goes on.
    let third = (0..3).find(|i| *i != leader && *i != leaving).expect("one of three");
    cluster.down(third).await;
    caller.put("after", "1").await.expect("two of three are up");
    assert_eq!(caller.get("k49").await.expect("there").value.len(), 2000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_record_is_gone_for_every_later_reader() {
    let cluster = Cluster::start(3).await;
    let caller = cluster.caller();
    let timed = v1::mutation::Op::Put(v1::Put { value: "v".into(), ttl_ms: 1000, ..Default::default() });
    caller.write(vec![mutation("k", timed)], None).await.expect("written");
    assert!(caller.get("k").await.is_some());
    cluster.clock.advance(std::time::Duration::from_millis(1500));
    assert_eq!(caller.get("k").await, None);
    // A leader whose clock is behind does not show it again.
    cluster.clock.set_wall_ms(1_700_000_000_000);
    assert_eq!(caller.get("k").await, None);
    cluster
        .control
        .wait("the sweep", |control| {
            let report = control.report(control.leader(11)?, 11)?;
            (report.live_keys == 0).then_some(())
        })
        .await;
}

/// Clients on one register, with the leader ended twice meanwhile: an outside observer must not be able
/// to tell it from one copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_is_linearizable_while_leaders_end() {
    let mut cluster = Cluster::start(3).await;
    let clock = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let clients: Vec<_> =
        (0..4u64).map(|client| tokio::spawn(run_client(cluster.caller(), clock.clone(), client))).collect();
    for round in 0..2 {
        let leader = cluster.leader().await;
        match round {
            0 => cluster.down(leader).await,
            _ => drop(cluster.crash(leader, 5).await),
        }
        cluster.up(leader).await.expect("it starts again");
    }
    let mut history = Vec::new();
    for client in clients {
        history.extend(client.await.expect("a client"));
    }
    assert!(linear::is_linearizable(&history), "{history:#?}");
}

async fn run_client(
    caller: Caller,
    clock: std::sync::Arc<std::sync::atomic::AtomicU64>,
    client: u64,
) -> Vec<linear::Event> {
    let now = || clock.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    let mut events = Vec::new();
    let mut last_read = 0;
    for round in 0..14u64 {
        let new = client * 1000 + round + 1;
        let called = now();
        let (op, answered) = match round % 3 {
            0 => {
                let written = caller.put("r", new.to_string()).await;
                (linear::Op::Write(new), written.is_ok())
            }
            1 => {
                last_read = caller.get("r").await.map_or(0, |r| number(&r.value));
                (linear::Op::Read(last_read), true)
            }
            _ => {
                let want = match last_read {
                    0 => v1::condition::Want::Absent(v1::Empty {}),
                    seen => v1::condition::Want::Value(seen.to_string().into()),
                };
                let swap = when(put("r", &new.to_string()), want);
                let swapped = caller.write(vec![swap], None).await;
                let applied = swapped.as_ref().is_ok_and(|s| s.applied);
                (linear::Op::Cas(last_read, new, applied), swapped.is_ok())
            }
        };
        events.push(linear::Event { op, called, answered: answered.then(now) });
    }
    events
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).expect("digits").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_with_more_requests_than_the_session_may_have_is_answered_whole() {
    let cluster = Cluster::start_tuned(3, |config| config.limits.session_requests = 4).await;
    let caller = cluster.caller();
    caller.put("k", "v").await.expect("written");
    let node = &cluster.nodes[cluster.leader().await];
    let request = |id: u64| {
        let op = match id % 2 {
            0 => Op::Get(v1::GetRequest { keys: vec!["k".into()], ..Default::default() }),
            _ => Op::Write(v1::WriteRequest { mutations: vec![put(&format!("n{id}"), "v")] }),
        };
        v1::KvRequest { id, header: Some(caller.header(node.store_id)), op: Some(op) }
    };
    let message = v1::KvRequests { requests: (1..=40).map(request).collect() };
    let mut client =
        v1::kv_client::KvClient::new(undb_runtime::rpc::channel(&node.address).expect("an address"));
    let outbound = futures::stream::iter([message]).chain(futures::stream::pending());
    let mut inbound = client.session(outbound).await.expect("a session").into_inner();
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < 40 {
        let message =
            tokio::time::timeout(support::PATIENCE, inbound.message()).await.expect("no standstill");
        answered.extend(message.expect("answers").expect("more").responses.into_iter().map(|r| r.id));
    }
    assert_eq!(answered, (1..=40).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_share_entries_and_every_write_is_there() {
    let cluster = Cluster::start(3).await;
    let caller = cluster.caller();
    let writers: Vec<_> = (0..32)
        .map(|i| {
            let caller = caller.clone();
            tokio::spawn(async move {
                for n in 0..10 {
                    caller.put(&format!("k{i:02}-{n}"), vec![b'v'; 300]).await.expect("written");
                    let first_attempt_ms = 1_700_000_000_000;
                    let id = v1::RequestId { client: 1000 + i, seq: n + 1, first_attempt_ms };
                    caller.write(vec![increment("sum", 1)], Some(id)).await.expect("counted");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("a writer");
    }
    assert_eq!(number(&caller.get("sum").await.expect("there").value), 320);
    let scan = v1::ScanRequest {
        range: Some(v1::KeyRange { start: "k".into(), end: "l".into() }),
        keys_only: true,
        ..Default::default()
    };
    assert_eq!(caller.scan(scan).await.records.len(), 320);
    let Answer::Get(many) = caller
        .call(
            Op::Get(v1::GetRequest {
                keys: vec!["k00-0".into(), "nope".into(), "k31-9".into()],
                ..Default::default()
            }),
            None,
        )
        .await
        .expect("read")
    else {
        panic!("a get")
    };
    let there: Vec<bool> = many.records.iter().map(|r| r.record.is_some()).collect();
    assert_eq!(there, [true, false, true]);
}
