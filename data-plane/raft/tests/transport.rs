//! The wire: what shares a stream, and what is refused.

mod support;

use futures::StreamExt;
use std::collections::BTreeMap;
use support::registers::Op;
use support::{Cluster, LONG, SHARD, group};
use undb_proto::v1::raft_message::Body;
use undb_proto::v1::raft_transport_client::RaftTransportClient;
use undb_proto::v1::{
    ErrorCode, RaftBatch, RaftGroup, RaftMessage, SnapshotBegin, SnapshotChunk, SnapshotReply,
};
use undb_runtime::rpc;
use undb_types::ShardId;

/// Asks a store with one batch on one stream; the answers by id.
async fn exchange(address: &str, messages: Vec<RaftMessage>) -> BTreeMap<u64, Body> {
    let mut client = RaftTransportClient::new(rpc::channel(address).expect("an address"));
    let len = messages.len();
    let (tx, rx) = tokio::sync::mpsc::channel(1);
    tx.send(RaftBatch { messages }).await.expect("queued");
    let stream = client.exchange(tokio_stream::wrappers::ReceiverStream::new(rx)).await.expect("answers");
    let answers =
        stream.into_inner().flat_map(|batch| futures::stream::iter(batch.expect("a batch").messages));
    let answers = answers.take(len).map(|m| (m.id, m.body.expect("a body"))).collect();
    tokio::time::timeout(LONG, answers).await.expect("in time")
}

fn ask(id: u64, shard: u64, to_replica: u64, to_store: u64, cluster_id: &str, body: Body) -> RaftMessage {
    let group =
        RaftGroup { shard_id: shard, from_replica: 9, to_replica, cluster_id: cluster_id.into(), to_store };
    RaftMessage { id, group: Some(group), body: Some(body) }
}

fn code(body: &Body) -> ErrorCode {
    match body {
        Body::Error(e) => e.code(),
        other => panic!("no error: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_groups_answer_on_one_stream_and_strangers_are_refused() {
    let mut cluster = Cluster::start([1]).await;
    let other = ShardId(8);
    cluster.open(1, group(SHARD, 1)).await;
    cluster.open(1, group(other, 2)).await;
    // A candidate with vote (1, replica 9) and an empty log.
    let vote = || Body::PreVote(b"\x01\x0a\x04\x08\x01\x10\x09".to_vec().into());
    let answers = exchange(
        &cluster.stores[&1].address,
        vec![
            ask(11, SHARD.0, 1, 1, "test", vote()),
            ask(12, other.0, 2, 1, "test", vote()),
            ask(13, SHARD.0, 1, 1, "stranger", vote()),
            ask(14, SHARD.0, 1, 2, "test", vote()),
            ask(15, SHARD.0, 3, 1, "test", vote()),
            ask(16, SHARD.0, 1, 1, "test", Body::Append(b"\x01junk".to_vec().into())),
            RaftMessage { id: 17, group: None, body: None },
        ],
    )
    .await;
    for id in [11, 12] {
        assert!(matches!(answers[&id], Body::PreVoteReply(_)), "{:?}", answers[&id]);
    }
    assert_eq!(code(&answers[&13]), ErrorCode::ClusterMismatch);
    assert_eq!(code(&answers[&14]), ErrorCode::StoreMismatch);
    assert_eq!(code(&answers[&15]), ErrorCode::ShardNotFound);
    assert_eq!(code(&answers[&16]), ErrorCode::InvalidArgument);
    assert_eq!(code(&answers[&17]), ErrorCode::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_groups_work_side_by_side() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let shards: Vec<ShardId> = (1..=6).map(ShardId).collect();
    for shard in &shards {
        cluster.found(*shard).await;
    }
    for round in 1..=5 {
        let puts = shards.iter().map(|shard| cluster.put(*shard, Op::Add("n".into(), round)));
        futures::future::join_all(puts).await;
    }
    for shard in &shards {
        let (_, sum) = cluster.put(*shard, Op::Add("n".into(), 0)).await;
        assert!(sum >= 15);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_moves_is_found_again() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let leader = cluster.found(SHARD).await;
    let moved = leader % 3 + 1;
    let before = cluster.stores[&moved].address.clone();
    cluster.stop_store(moved).await;
    cluster.put(SHARD, Op::Put("a".into(), 1)).await;
    cluster.start_store(moved).await;
    assert_ne!(before, cluster.stores[&moved].address);
    cluster.open(moved, group(SHARD, moved)).await;
    let (last, _) = cluster.put(SHARD, Op::Put("b".into(), 2)).await;
    cluster.applied(moved, SHARD, last).await;
}

/// Sends a snapshot to a replica by hand; the error's message, if there is one.
async fn send_snapshot(address: &str, chunks: Vec<SnapshotChunk>) -> Result<SnapshotReply, tonic::Status> {
    let mut client = RaftTransportClient::new(rpc::channel(address).expect("an address"));
    let reply = client.install_snapshot(futures::stream::iter(chunks));
    Ok(tokio::time::timeout(LONG, reply).await.expect("in time")?.into_inner())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_breaks_off_changes_nothing() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let leader = cluster.found(SHARD).await;
    let (last, _) = cluster.put(SHARD, Op::Put("a".into(), 1)).await;
    let victim = leader % 3 + 1;
    cluster.applied(victim, SHARD, last).await;
    // From the leader of a term to come, of a state that is ahead.
    let vote = b"\x01\x08\x63\x10\x03\x18\x01".to_vec();
    let meta = b"\x01\x0a\x07\x08\x63\x10\x03\x18\x90\x4e".to_vec();
    let header = RaftGroup {
        shard_id: SHARD.0,
        from_replica: 3,
        to_replica: victim,
        cluster_id: "test".into(),
        to_store: victim,
    };
    let begin = SnapshotBegin { group: Some(header), vote: vote.into(), meta: meta.into() };
    let chunk = |data: &'static [u8], begin: Option<SnapshotBegin>, last: bool| SnapshotChunk {
        begin,
        data: data.into(),
        crc32c: crc32c::crc32c(data),
        last,
    };
    let address = cluster.stores[&victim].address.clone();
    let broken =
        send_snapshot(&address, vec![chunk(b"half", Some(begin.clone()), false)]).await.expect("an answer");
    assert_eq!(broken.error.expect("refused").code(), ErrorCode::Unavailable);
    let mut bent = chunk(b"bent", Some(begin.clone()), true);
    bent.crc32c ^= 1;
    let bent = send_snapshot(&address, vec![bent]).await.expect("an answer");
    assert!(bent.error.expect("refused").message.contains("checksum"));
    assert!(send_snapshot(&address, vec![chunk(b"no begin", None, true)]).await.is_err());
    // The replica goes on as if nothing had been.
    assert_eq!(cluster.machine(victim, group(SHARD, victim)).get("a"), 1);
    let (last, _) = cluster.put(SHARD, Op::Put("b".into(), 2)).await;
    cluster.applied(victim, SHARD, last).await;
    assert_eq!(cluster.group(victim, SHARD).status().fatal, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_just_came_back_gives_no_vote() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    cluster.found(SHARD).await;
    cluster.stop_store(1).await;
    cluster.start_store(1).await;
    cluster.open(1, group(SHARD, 1)).await;
    let vote = Body::Vote(b"\x01\x0a\x04\x08\x63\x10\x09".to_vec().into());
    let address = cluster.stores[&1].address.clone();
    let answers = exchange(&address, vec![ask(1, SHARD.0, 1, 1, "test", vote)]).await;
    assert_eq!(code(&answers[&1]), ErrorCode::RecoveryInProgress);
    // Later it takes part again.
    cluster.stop_store(2).await;
    cluster.put(SHARD, Op::Put("a".into(), 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_replica_leads_again_at_once() {
    let mut cluster = Cluster::start([1]).await;
    cluster.found(SHARD).await;
    // Were it to wait for its timeouts, it would not lead in the time that is given to it.
    cluster.timing.election_min = LONG * 10;
    cluster.timing.election_max = LONG * 20;
    for _ in 0..3 {
        cluster.stop_store(1).await;
        cluster.start_store(1).await;
        cluster.open(1, group(SHARD, 1)).await;
        let mut watch = cluster.group(1, SHARD).watch();
        watch.wait_for("leading", LONG, |s| s.is_leader).await.expect("no lease to wait for");
    }
}
