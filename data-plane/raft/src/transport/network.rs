//! openraft's network of one group, on the links.

use super::link::LinkError;
use super::peers::{Lane, Peers};
use crate::codec::{self, CodecError};
use crate::config::Timing;
use crate::kinds::{Kinds, LogId, Snapshot, Vote};
use crate::state_machine::SnapshotData;
use crate::storage::blocking;
use crate::{Member, machine::SnapshotSource};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, Stream, StreamExt};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, VoteRequest,
    VoteResponse,
};
use openraft::raft::{TransferLeaderRequest, TransferLeaderResponse};
use openraft::{OptionalSend, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use undb_proto::v1::raft_message::Body;
use undb_proto::v1::{SnapshotBegin, SnapshotChunk};
use undb_types::GroupId;

/// Append requests of one group to one peer that are on their way at once.
const PIPELINE_LEN: usize = 16;
/// Chunks of a snapshot that are read ahead.
const CHUNKS_AHEAD: usize = 2;
/// The most a peer may take to install a snapshot after its last chunk.
const INSTALL_WITHIN: Duration = Duration::from_secs(600);

type RpcError = RPCError<Kinds>;

/// The last entry that a peer has acknowledged to a leader (by its vote). A peer that conflicts at or
/// below it has lost what it promised to keep; openraft would panic over that, and with it the store.
type Acked = Arc<Mutex<Option<(Vote, LogId)>>>;

fn acknowledge(acked: &Acked, vote: Vote, last: Option<LogId>) {
    let Some(last) = last else { return };
    let mut acked = acked.lock();
    if acked.is_none_or(|(by, at)| by < vote || (by == vote && at < last)) {
        *acked = Some((vote, last));
    }
}

fn has_lost(acked: &Acked, vote: Vote, conflict: LogId) -> bool {
    acked.lock().is_some_and(|(by, at)| by == vote && conflict.index <= at.index)
}

/// Makes the clients of one group.
pub(crate) struct Network {
    peers: Peers,
    from: GroupId,
    timing: Timing,
    acked: HashMap<u64, Acked>,
}

impl Network {
    pub fn new(peers: Peers, from: GroupId, timing: Timing) -> Self {
        Self { peers, from, timing, acked: HashMap::new() }
    }

    fn client(&mut self, to: u64, member: &Member, appends: Lane) -> Client {
        let acked = self.acked.entry(to).or_default().clone();
        let Self { peers, from, timing, .. } = self;
        Client {
            peers: peers.clone(),
            from: *from,
            to,
            member: member.clone(),
            appends,
            timing: *timing,
            acked,
        }
    }
}

impl RaftNetworkFactory<Kinds> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: u64, node: &Member) -> Client {
        self.client(target, node, Lane::Entries)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Member) -> Client {
        self.client(target, node, Lane::Control)
    }
}

/// One replica's way to another of its group.
#[derive(Clone)]
pub(crate) struct Client {
    peers: Peers,
    from: GroupId,
    to: u64,
    member: Member,
    /// Where appends go: heartbeats do not wait behind entries.
    appends: Lane,
    timing: Timing,
    acked: Acked,
}

fn unreachable(error: impl ToString) -> RpcError {
    RPCError::Unreachable(Unreachable::from_string(error))
}

impl From<CodecError> for RpcError {
    fn from(e: CodecError) -> Self {
        unreachable(e)
    }
}

impl Client {
    async fn ask(
        &self,
        lane: Lane,
        action: RPCTypes,
        body: Body,
        within: Duration,
    ) -> Result<Body, RpcError> {
        let asked = async {
            let link = self.peers.link(&self.member, lane);
            let answer = link.send(self.peers.header(self.from, self.to, self.member.store), body).await;
            answer.within(within).await
        };
        let answered = tokio::time::timeout(within, asked).await;
        answered.unwrap_or(Err(LinkError::TooLate(within))).map_err(|e| self.rpc_error(e, action))
    }

    fn rpc_error(&self, error: LinkError, action: RPCTypes) -> RpcError {
        match error {
            LinkError::TooLate(timeout) => {
                RPCError::Timeout(Timeout { action, id: self.from.replica.0, target: self.to, timeout })
            }
            other => unreachable(other),
        }
    }

    /// Puts an append on its way; the answer comes with the second future.
    async fn start_append(self, request: AppendEntriesRequest<Kinds>) -> PendingAppend {
        let (vote, prev) = (request.vote, request.prev_log_id);
        let last = request.entries.last().map(|e| e.log_id).or(prev);
        let body = Body::Append(codec::encode_append(&request));
        drop(request);
        let header = self.peers.header(self.from, self.to, self.member.store);
        let answer = self.peers.link(&self.member, self.appends).send(header, body).await;
        PendingAppend { client: self, vote, prev, last, answer }
    }
}

struct PendingAppend {
    client: Client,
    vote: Vote,
    prev: Option<LogId>,
    last: Option<LogId>,
    answer: super::link::Answer,
}

impl PendingAppend {
    async fn finish(self) -> Result<StreamAppendResult<Kinds>, RpcError> {
        // A follower may take long to sync; a lost one is noticed by the connection.
        let within = self.client.timing.election_max * 2;
        let body = self.answer.within(within).await;
        match body.map_err(|e| self.client.rpc_error(e, RPCTypes::AppendEntries))? {
            Body::AppendReply(bytes) => match codec::decode_append_reply(bytes)? {
                // Nothing before the first entry can conflict.
                AppendEntriesResponse::Conflict if self.prev.is_none() => {
                    Err(unreachable("the peer reports a conflict before the first entry"))
                }
                AppendEntriesResponse::Conflict
                    if self.prev.is_some_and(|prev| has_lost(&self.client.acked, self.vote, prev)) =>
                {
                    let Client { from, to, .. } = &self.client;
                    tracing::error!(group = %from, to, "a replica has lost entries that it acknowledged");
                    Err(unreachable("the replica has lost entries; it must be replaced under a new id"))
                }
                reply => {
                    let result = reply.into_stream_result(self.prev, self.last);
                    if let Ok(matched) = &result {
                        acknowledge(&self.client.acked, self.vote, *matched);
                    }
                    Ok(result)
                }
            },
            _ => Err(unreachable("an answer of another kind")),
        }
    }
}

impl RaftNetworkV2<Kinds> for Client {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Kinds>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Kinds>, RpcError> {
        let body = Body::Append(codec::encode_append(&rpc));
        match self.ask(self.appends, RPCTypes::AppendEntries, body, option.soft_ttl()).await? {
            Body::AppendReply(bytes) => Ok(codec::decode_append_reply(bytes)?),
            _ => Err(unreachable("an answer of another kind")),
        }
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<StreamAppendResult<Kinds>, RpcError>>, RpcError>>
    where
        S: Stream<Item = AppendEntriesRequest<Kinds>> + OptionalSend + Unpin + 'static,
    {
        let client = self.clone();
        let answers = input
            .then(move |request| client.clone().start_append(request))
            .map(PendingAppend::finish)
            .buffered(PIPELINE_LEN);
        let answers: BoxStream<'s, _> = Box::pin(answers);
        Box::pin(std::future::ready(Ok(answers)))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Kinds>,
        option: RPCOption,
    ) -> Result<VoteResponse<Kinds>, RpcError> {
        let body = Body::Vote(codec::encode_vote_request(&rpc));
        match self.ask(Lane::Control, RPCTypes::Vote, body, option.soft_ttl()).await? {
            Body::VoteReply(bytes) => Ok(codec::decode_vote_reply(bytes)?),
            _ => Err(unreachable("an answer of another kind")),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Kinds>,
        option: RPCOption,
    ) -> Result<VoteResponse<Kinds>, RpcError> {
        let body = Body::PreVote(codec::encode_vote_request(&rpc));
        match self.ask(Lane::Control, RPCTypes::Vote, body, option.soft_ttl()).await? {
            Body::PreVoteReply(bytes) => Ok(codec::decode_vote_reply(bytes)?),
            _ => Err(unreachable("an answer of another kind")),
        }
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<Kinds>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Kinds>, RpcError> {
        let body = Body::TransferLeader(codec::encode_transfer(&req));
        match self.ask(Lane::Control, RPCTypes::TransferLeader, body, option.soft_ttl()).await? {
            Body::TransferLeaderReply(bytes) => Ok(codec::decode_transfer_reply(bytes)?),
            _ => Err(unreachable("an answer of another kind")),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<SnapshotData>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Kinds>, StreamingError<Kinds>> {
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.send_snapshot(vote, snapshot) => {
                Ok(sent.inspect_err(|error| {
                    tracing::warn!(group = %self.from, to = self.to, %error, "sending a snapshot failed");
                })?)
            }
        }
    }
}

impl Client {
    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot<SnapshotData>,
    ) -> Result<SnapshotResponse<Kinds>, RpcError> {
        let last = snapshot.meta.last_log_id;
        let SnapshotData::Source(source) = snapshot.snapshot else {
            return Err(unreachable("the snapshot has no source"));
        };
        let begin = SnapshotBegin {
            group: Some(self.peers.header(self.from, self.to, self.member.store)),
            vote: codec::encode_vote(&vote),
            meta: codec::encode_snapshot_meta(&snapshot.meta),
        };
        let (out, chunks) = mpsc::channel(CHUNKS_AHEAD);
        let mut client = self.peers.client(self.member.store, &self.member.address).map_err(unreachable)?;
        let pump = self.pump(begin, source, out);
        let call = async { client.install_snapshot(ReceiverStream::new(chunks)).await };
        tokio::pin!(call);
        // The peer may answer before the end: it has what it needs, or refuses.
        let response = tokio::select! {
            response = &mut call => response,
            pumped = pump => {
                pumped?;
                let installed = tokio::time::timeout(INSTALL_WITHIN, &mut call).await;
                installed.map_err(|_| unreachable("the peer does not finish installing"))?
            }
        };
        let reply = response.map_err(unreachable)?.into_inner();
        match reply.error {
            Some(error) => Err(unreachable(error.message)),
            None => {
                let reply = codec::decode_snapshot_reply(reply.reply)?;
                if reply.vote == vote {
                    acknowledge(&self.acked, vote, last);
                }
                Ok(reply)
            }
        }
    }

    /// Reads chunks and hands them to the stream at the host's pace.
    async fn pump(
        &self,
        begin: SnapshotBegin,
        source: Box<dyn SnapshotSource>,
        out: mpsc::Sender<SnapshotChunk>,
    ) -> Result<(), RpcError> {
        let sent =
            metrics::counter!("undb_raft_snapshot_sent_bytes_total", "store" => self.peers.store_label());
        let (mut begin, mut source) = (Some(begin), source);
        loop {
            let (data, back) = read_chunk(source).await.map_err(unreachable)?;
            source = back;
            let last = data.is_none();
            let data = data.unwrap_or_default();
            self.peers.pace().take(data.len()).await;
            sent.increment(data.len() as u64);
            let crc32c = crc32c::crc32c(&data);
            if out.send(SnapshotChunk { begin: begin.take(), data, crc32c, last }).await.is_err() || last {
                return Ok(());
            }
        }
    }
}

/// The next chunk, off the async threads.
async fn read_chunk(
    mut source: Box<dyn SnapshotSource>,
) -> std::io::Result<(Option<Bytes>, Box<dyn SnapshotSource>)> {
    blocking(move || source.next_chunk().map(|chunk| (chunk, source))).await
}
