//! What the client does about each fault, against three stores and a router on loopback.

mod cluster;

use bytes::Bytes;
use cluster::{Cluster, Fault, shard};
use std::time::Duration;
use undb_proto::v1::route_update::Update;
use undb_sdk::{
    Batch, Client, Error, ErrorCode, Expect, Key, Mutation, PutOptions, ScanOptions, Span, Timeouts,
    WriteOutcome,
};

async fn one_shard() -> Cluster {
    Cluster::start(vec![shard(1, "", "", 1)]).await
}

#[tokio::test]
async fn what_is_written_is_read() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    assert!(table.get("k").await.expect("answers").is_none());
    let change = table.put("k", "v").await.expect("written");
    assert!(!change.existed);
    let record = table.get("k").await.expect("answers").expect("there");
    assert_eq!((&record.value[..], record.version), (&b"v"[..], change.version));
    assert!(table.delete("k").await.expect("deleted"));
    assert!(!table.delete("k").await.expect("deleted"));
    assert_eq!(table.increment(("n", "s"), 5).await.expect("sum"), 5);
    assert_eq!(table.increment(("n", "s"), -7).await.expect("sum"), -2);
}

#[tokio::test]
async fn a_reply_lost_after_apply_counts_once() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    for fault in [Fault::DropReply, Fault::Ambiguous] {
        cluster.fault(fault);
        table.increment("n", 1).await.expect("exactly once");
        cluster.fault(fault);
        let record = table.get("n").await.expect("answers").expect("there");
        cluster.fault(fault);
        let swapped = table.compare_and_set("n", Expect::Version(record.version), record.value).await;
        assert!(swapped.expect("answers").is_applied(), "our own success is not a lost race");
    }
    assert_eq!(table.increment("n", 0).await.expect("sum"), 2);
    assert_eq!(cluster.world.lock().applies, 5);
}

#[tokio::test]
async fn an_id_that_was_forgotten_ends_ambiguous_and_is_not_run_again() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    cluster.fault(Fault::Forget);
    let error = table.increment("n", 1).await.expect_err("cannot know");
    assert!(error.is_ambiguous(), "{error}");
    assert_eq!(cluster.world.lock().applies, 1);
}

#[tokio::test]
async fn an_id_refused_before_it_was_ever_run_is_replaced() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    cluster.fault(Fault::TooOld);
    assert_eq!(table.increment("n", 1).await.expect("under a new id"), 1);
}

#[tokio::test]
async fn a_refusal_after_a_lost_reply_stays_ambiguous_but_a_first_refusal_does_not() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    cluster.fault(Fault::DiskFull);
    let error = table.put("k", "v").await.expect_err("full");
    assert_eq!(error.code(), ErrorCode::DiskFull);
    cluster.fault(Fault::DropReply);
    cluster.fault(Fault::DiskFull);
    let error = table.put("k", "v").await.expect_err("cannot know");
    assert!(error.is_ambiguous(), "{error}");
}

#[tokio::test]
async fn not_leader_is_followed_and_remembered() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    cluster.world.lock().leader = 3;
    table.put("k", "v").await.expect("follows the hint");
    cluster.world.lock().requests.clear();
    table.put("k", "w").await.expect("knows the leader");
    assert_eq!(cluster.world.lock().requests, [3]);

    cluster.world.lock().tells_leader = false;
    cluster.elect(2);
    table.put("k", "x").await.expect("finds the leader without a hint");
}

#[tokio::test]
async fn a_leader_that_goes_silent_is_replaced_in_time() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    table.put("k", "v").await.expect("written");
    cluster.world.lock().silent.insert(1);
    cluster.elect(2);
    assert_eq!(table.increment("n", 1).await.expect("by the new leader"), 1);
    for _ in 0..5 {
        table.get("k").await.expect("answers");
    }
    let asked = cluster.world.lock().requests.iter().filter(|s| **s == 1).count();
    assert!(asked <= 2, "the silent store was asked {asked} times");
}

#[tokio::test]
async fn a_store_that_is_gone_is_left_for_another() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    table.put("k", "v").await.expect("written");
    cluster.stop_store(1);
    cluster.elect(2);
    assert_eq!(&table.get("k").await.expect("answers").expect("there").value[..], b"v");
    table.put("k", "w").await.expect("written");
}

#[tokio::test]
async fn without_any_answer_a_read_runs_out_of_time_and_a_write_is_ambiguous() {
    let cluster = one_shard().await;
    let short = Duration::from_millis(300);
    let timeouts =
        Timeouts { read: short, write: short, attempt: Duration::from_millis(100), ..Timeouts::default() };
    let client = Client::connect(cluster.options().timeouts(timeouts)).await.expect("there");
    let table = client.table("default").await.expect("exists");
    cluster.world.lock().silent.extend([1, 2, 3]);
    assert!(matches!(table.get("k").await, Err(Error::DeadlineExceeded { .. })));
    assert!(matches!(table.put("k", "v").await, Err(Error::Ambiguous { .. })));
}

#[tokio::test]
async fn a_busy_store_is_asked_again() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    for fault in [Fault::Busy, Fault::Splitting, Fault::Busy] {
        cluster.fault(fault);
    }
    table.put("k", "v").await.expect("later");
}

#[tokio::test]
async fn a_split_is_learnt_from_the_store_without_the_router() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    for key in ["a", "m", "z"] {
        table.put(key, key).await.expect("written");
    }
    let before = {
        let mut world = cluster.world.lock();
        world.stale_route = Some(world.shards.clone());
        world.shards = vec![shard(1, "", "m", 2), shard(2, "m", "", 2)];
        world.resolves
    };
    let found = table.get_many(["z", "a", "none", "m"]).await.expect("regrouped");
    let values: Vec<_> = found.iter().map(|r| r.as_ref().map(|r| r.value.clone())).collect();
    assert_eq!(values, [Some("z".into()), Some("a".into()), None, Some(Bytes::from("m"))]);
    assert_eq!(table.shard_count(), 2);
    assert_eq!(cluster.world.lock().resolves, before);

    let batch = Batch::new().and(Mutation::put("a", "1")).and(Mutation::put("z", "1"));
    let error = table.write(batch).await.expect_err("two shards");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}

#[tokio::test]
async fn a_pushed_route_arrives_and_a_holed_one_does_not() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    let pushed = |version: u64, shards: Vec<undb_proto::v1::Shard>| {
        let mut world = cluster.world.lock();
        (world.shards, world.route_version) = (shards, version);
        world.route()
    };
    let good = pushed(2, vec![shard(1, "", "m", 2), shard(2, "m", "", 2)]);
    let arrived = async {
        while table.shard_count() != 2 {
            cluster.push(Update::Snapshot(good.clone()));
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), arrived).await.expect("arrives");
    let holed = pushed(3, vec![shard(1, "", "k", 3), shard(2, "m", "", 3)]);
    cluster.push(Update::Snapshot(holed));
    let better = pushed(4, vec![shard(3, "", "", 4)]);
    let arrived = async {
        while table.shard_count() != 1 {
            cluster.push(Update::Snapshot(better.clone()));
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), arrived).await.expect("arrives");
    table.put("k", "v").await.expect("served");
}

#[tokio::test]
async fn scans_cross_shards_in_both_directions_and_resume() {
    let cluster =
        Cluster::start(vec![shard(1, "", "c", 1), shard(2, "c", "f", 1), shard(3, "f", "", 1)]).await;
    let table = cluster.client().await.table("default").await.expect("exists");
    let keys: Vec<String> = ('a'..='i').flat_map(|c| (0..3).map(move |n| format!("{c}{n}"))).collect();
    let puts = keys.iter().map(|k| (Key::from(k), Bytes::from(k.clone()), PutOptions::new()));
    for result in table.put_many(puts.collect::<Vec<_>>()).await {
        assert!(result.expect("written").is_applied());
    }
    let read = async |options: ScanOptions| {
        let mut scan = table.scan(options).expect("valid");
        let mut found = Vec::new();
        while let Some((key, record)) = scan.next().await.expect("answers") {
            assert_eq!(key.hash, record.value);
            found.push(String::from_utf8(key.hash.to_vec()).expect("text"));
        }
        found
    };
    for page_len in [1, 2, 4, 100] {
        assert_eq!(read(ScanOptions::all().page_len(page_len)).await, keys);
        let mut backwards = read(ScanOptions::all().page_len(page_len).reverse()).await;
        backwards.reverse();
        assert_eq!(backwards, keys);
    }
    assert_eq!(read(ScanOptions::prefix("d")).await, ["d0", "d1", "d2"]);
    let between = Span::Between("b1".into(), Some("g1".into()));
    assert_eq!(read(ScanOptions::over(between.clone())).await.len(), 15);
    assert_eq!(table.count(between.clone()).await.expect("counted"), 15);

    let mut scan = table.scan(ScanOptions::all().page_len(2)).expect("valid");
    let first = scan.next_page().await.expect("answers").expect("a page");
    let rest = read(ScanOptions::all().resume(scan.cursor().expect("more"))).await;
    assert_eq!(first.len() + rest.len(), keys.len());

    assert_eq!(table.delete_range(between).await.expect("removed"), 15);
    assert_eq!(table.count(Span::All).await.expect("counted"), 12);
}

#[tokio::test]
async fn many_mutations_have_their_own_results_and_keep_the_order_of_a_key() {
    let cluster = Cluster::start(vec![shard(1, "", "m", 1), shard(2, "m", "", 1)]).await;
    let table = cluster.client().await.table("default").await.expect("exists");
    table.put("taken", "x").await.expect("written");
    let results = table
        .mutate_many([
            Mutation::put("a", "1"),
            Mutation::put("taken", "2").when(Expect::Absent),
            Mutation::put("a", "2"),
            Mutation::put("z", "1"),
            Mutation::put("a", "3"),
            Mutation::put("big", vec![0; undb_types::VALUE_BYTES_MAX + 1]),
        ])
        .await;
    let applied: Vec<_> = results.iter().map(|r| r.as_ref().map(WriteOutcome::is_applied).ok()).collect();
    assert_eq!(applied, [Some(true), Some(false), Some(true), Some(true), Some(true), None]);
    assert_eq!(&table.get("a").await.expect("answers").expect("there").value[..], b"3");
}

#[tokio::test]
async fn what_is_queued_together_travels_together() {
    let cluster = one_shard().await;
    let table = cluster.client().await.table("default").await.expect("exists");
    table.put("k", "v").await.expect("connected");
    cluster.world.lock().messages = 0;
    let gets = futures::future::join_all((0..200).map(|_| table.get("k"))).await;
    assert!(gets.into_iter().all(|r| r.expect("answers").is_some()));
    let messages = cluster.world.lock().messages;
    assert!(messages < 100, "{messages} messages for 200 requests");
}

#[tokio::test]
async fn calls_can_be_spawned_and_a_whole_table_can_be_emptied() {
    let cluster = Cluster::start(vec![shard(1, "", "m", 1), shard(2, "m", "", 1)]).await;
    let table = cluster.client().await.table("default").await.expect("exists");
    let writers: Vec<_> = (0..20)
        .map(|n| {
            let table = table.clone();
            tokio::spawn(async move { table.increment(if n % 2 == 0 { "a" } else { "z" }, 1).await })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no panic").expect("written");
    }
    assert_eq!(table.increment("a", 0).await.expect("sum"), 10);
    assert_eq!(table.delete_range(Span::All).await.expect("removed"), 2);
    assert_eq!(table.count(Span::All).await.expect("counted"), 0);
}

#[tokio::test]
async fn an_unknown_table_says_so() {
    let cluster = one_shard().await;
    let error = cluster.client().await.table("nope").await.expect_err("unknown");
    assert!(matches!(error, Error::TableNotFound { ref table } if table == "nope"), "{error}");
}

#[tokio::test]
async fn the_control_plane_may_be_away() {
    let cluster = one_shard().await;
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut options = cluster.options();
    options.cache_dir = Some(dir.path().to_owned());
    options.timeouts.connect = Duration::from_millis(200);
    let client = Client::connect(options.clone()).await.expect("there");
    let table = client.table("default").await.expect("exists");
    table.put("k", "v").await.expect("written");
    cluster.stop_router();
    cluster.elect(2);
    table.put("k", "w").await.expect("no router is needed");
    drop((client, table));

    let client = Client::connect(options).await.expect("from the cache");
    let table = client.table("default").await.expect("from the cache");
    assert_eq!(&table.get("k").await.expect("answers").expect("there").value[..], b"w");
}

#[tokio::test]
async fn nobody_at_the_endpoints_is_unreachable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let timeouts = Timeouts { connect: Duration::from_millis(100), ..Timeouts::default() };
    let options = undb_sdk::Options::new([address]).timeouts(timeouts);
    let error = Client::connect(options).await.expect_err("nobody");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}
