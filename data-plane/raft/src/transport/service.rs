//! What peers call.
//!
//! Messages of one stream reach their groups in the order in which they came; answers go back as
//! they are ready, several in one batch.

use super::{BATCH_LEN_MAX, receive};
use crate::codec;
use crate::group::Group;
use crate::host::Inner;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, FuturesUnordered, StreamExt};
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use undb_proto::v1::raft_message::Body;
use undb_proto::v1::raft_transport_server::RaftTransport;
use undb_proto::v1::{Error, ErrorCode, RaftBatch, RaftGroup, RaftMessage, SnapshotChunk, SnapshotReply};
use undb_proto::wire_error;
use undb_types::{GroupId, ReplicaId, ShardId};

/// Requests of one stream that are worked on at once.
const PENDING_LEN_MAX: usize = 4096;

/// Serves a host's groups to its peers.
#[derive(Clone)]
pub struct Service {
    host: Arc<Inner>,
}

impl Service {
    pub(crate) fn new(host: Arc<Inner>) -> Self {
        Self { host }
    }
}

#[tonic::async_trait]
impl RaftTransport for Service {
    type ExchangeStream = BoxStream<'static, Result<RaftBatch, Status>>;

    async fn exchange(
        &self,
        request: Request<Streaming<RaftBatch>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        let host = self.host.clone();
        let (out, answers) = mpsc::channel(4);
        tokio::spawn(async move {
            let ended = host.ended.clone();
            tokio::select! {
                () = ended.cancelled() => {}
                () = exchange(host, request.into_inner(), out) => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(answers).boxed()))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<SnapshotChunk>>,
    ) -> Result<Response<SnapshotReply>, Status> {
        let mut chunks = request.into_inner();
        let mut first = chunks.message().await?.ok_or_else(|| Status::invalid_argument("no chunk"))?;
        let begin = first.begin.take().ok_or_else(|| Status::invalid_argument("no begin"))?;
        let group = match find(&self.host, begin.group.as_ref()) {
            Ok(group) => group,
            Err(error) => {
                return Ok(Response::new(SnapshotReply { error: Some(error), ..Default::default() }));
            }
        };
        let bad = |e: codec::CodecError| Status::invalid_argument(e.to_string());
        let vote = codec::decode_vote(begin.vote).map_err(bad)?;
        let meta = codec::decode_snapshot_meta(begin.meta).map_err(bad)?;
        tracing::info!(group = %group.id(), "receiving a snapshot");
        let received = tokio::select! {
            () = self.host.ended.cancelled() => Err(io::Error::other("the store shuts down")),
            received = receive::receive(&group, vote, meta, first, chunks) => received,
        };
        let reply = match received {
            Ok(reply) => SnapshotReply { reply, error: None },
            Err(error) => {
                tracing::warn!(group = %group.id(), %error, "receiving a snapshot failed");
                let error = wire_error(ErrorCode::Unavailable, error.to_string());
                SnapshotReply { error: Some(error), ..Default::default() }
            }
        };
        Ok(Response::new(reply))
    }
}

async fn exchange(
    host: Arc<Inner>,
    mut incoming: Streaming<RaftBatch>,
    out: mpsc::Sender<Result<RaftBatch, Status>>,
) {
    let mut pending: FuturesUnordered<BoxFuture<'static, RaftMessage>> = FuturesUnordered::new();
    let mut ready = Vec::new();
    loop {
        tokio::select! {
            biased;
            Some(answer) = pending.next(), if !pending.is_empty() => ready.push(answer),
            batch = incoming.message(), if pending.len() < PENDING_LEN_MAX => {
                let Ok(Some(batch)) = batch else { return };
                for message in batch.messages {
                    let mut answer = handle(host.clone(), message).boxed();
                    // IMPORTANT: polled once, here and in order. The first poll hands the request to
                    // its group; appends that overtake each other look like conflicts to it.
                    match futures::poll!(&mut answer) {
                        std::task::Poll::Ready(answer) => ready.push(answer),
                        std::task::Poll::Pending => pending.push(answer),
                    }
                }
            }
        }
        while ready.len() < BATCH_LEN_MAX
            && let Some(Some(answer)) = pending.next().now_or_never()
        {
            ready.push(answer);
        }
        if !ready.is_empty() {
            let messages = std::mem::take(&mut ready);
            if out.send(Ok(RaftBatch { messages })).await.is_err() {
                return;
            }
        }
    }
}

/// The group that a request is for, if it is for this store and cluster.
fn find(host: &Inner, group: Option<&RaftGroup>) -> Result<Group, Error> {
    let group = group.ok_or_else(|| wire_error(ErrorCode::InvalidArgument, "the message names no group"))?;
    if group.cluster_id != host.options.cluster_id {
        return Err(wire_error(ErrorCode::ClusterMismatch, "this store belongs to another cluster"));
    }
    if group.to_store != host.options.store {
        let message = format!("this is store {}, not {}", host.options.store, group.to_store);
        return Err(wire_error(ErrorCode::StoreMismatch, message));
    }
    let id = GroupId { shard: ShardId(group.shard_id), replica: ReplicaId(group.to_replica) };
    host.find(id)
        .ok_or_else(|| wire_error(ErrorCode::ShardNotFound, format!("replica {id} is not open here")))
}

async fn handle(host: Arc<Inner>, message: RaftMessage) -> RaftMessage {
    let RaftMessage { id, group, body } = message;
    let body = match find(&host, group.as_ref()) {
        Ok(group) => answer(&group, body).await.unwrap_or_else(Body::Error),
        Err(error) => Body::Error(error),
    };
    RaftMessage { id, group: None, body: Some(body) }
}

/// A request's answer.
async fn answer(group: &Group, body: Option<Body>) -> Result<Body, Error> {
    let raft = &group.inner.raft;
    let stopped = |e: &dyn std::fmt::Display| wire_error(ErrorCode::Unavailable, e.to_string());
    let bad = |e: codec::CodecError| wire_error(ErrorCode::InvalidArgument, e.to_string());
    match body {
        Some(Body::Append(bytes)) => {
            let request = codec::decode_append(bytes).map_err(bad)?;
            if !request.entries.is_empty() && !group.inner.room.is_there(group.id()) {
                return Err(wire_error(ErrorCode::DiskFull, "the disk of this store is full"));
            }
            let reply = raft.append_entries(request).await.map_err(|e| stopped(&e))?;
            Ok(Body::AppendReply(codec::encode_append_reply(&reply)))
        }
        Some(Body::Vote(bytes)) => {
            let request = codec::decode_vote_request(bytes).map_err(bad)?;
            if !request.leadership_transfer {
                refuse_while_quiet(group)?;
            }
            let reply = raft.vote(request).await.map_err(|e| stopped(&e))?;
            Ok(Body::VoteReply(codec::encode_vote_reply(&reply)))
        }
        Some(Body::PreVote(bytes)) => {
            refuse_while_quiet(group)?;
            let request = codec::decode_vote_request(bytes).map_err(bad)?;
            let reply = raft.pre_vote(request).await.map_err(|e| stopped(&e))?;
            Ok(Body::PreVoteReply(codec::encode_vote_reply(&reply)))
        }
        Some(Body::TransferLeader(bytes)) => {
            let request = codec::decode_transfer(bytes).map_err(bad)?;
            let reply = raft.handle_transfer_leader(request).await.map_err(|e| stopped(&e))?;
            Ok(Body::TransferLeaderReply(codec::encode_transfer_reply(&reply)))
        }
        _ => Err(wire_error(ErrorCode::NotSupported, "a message of a kind that this build does not know")),
    }
}

fn refuse_while_quiet(group: &Group) -> Result<(), Error> {
    match group.inner.quiet_until {
        Some(until) if Instant::now() < until => {
            Err(wire_error(ErrorCode::RecoveryInProgress, "restarted; it may have backed a leader's lease"))
        }
        _ => Ok(()),
    }
}
