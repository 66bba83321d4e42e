//! What goes into the log, into messages and into snapshots: a version byte, then protobuf, so that
//! fields can be added and a stranger's bytes are refused and never trusted.
//!
//! A command's bytes go into a log entry bare; its kind byte tells it from the others.

use crate::kinds::{
    Command, Entry, LeaderId, LogId, Member, Membership, SnapshotMeta, StoredMembership, Vote,
};
use bytes::{BufMut, Bytes, BytesMut};
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::raft::{TransferLeaderError, TransferLeaderRequest, TransferLeaderResponse};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};

use crate::kinds::Kinds;

/// The version that this build writes, and the newest that it reads.
pub(crate) const VERSION: u8 = 1;

/// Kinds of log entries.
pub(crate) const KIND_BLANK: u8 = 0;
pub(crate) const KIND_COMMAND: u8 = 1;
pub(crate) const KIND_MEMBERSHIP: u8 = 2;

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodecError {
    #[error("empty where a version byte should be")]
    Empty,
    #[error("format version {0} is newer than {VERSION}, the newest this build reads; upgrade this process")]
    Newer(u8),
    #[error("not a {what}: {reason}")]
    Malformed { what: &'static str, reason: String },
}

impl From<CodecError> for std::io::Error {
    fn from(e: CodecError) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidData, e)
    }
}

fn malformed(what: &'static str, reason: impl ToString) -> CodecError {
    CodecError::Malformed { what, reason: reason.to_string() }
}

fn seal(message: &impl Message) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + message.encoded_len());
    out.put_u8(VERSION);
    // Growing a BytesMut does not fail.
    if message.encode(&mut out).is_err() {
        out.truncate(1);
    }
    out.freeze()
}

fn unseal<M: Message + Default>(what: &'static str, mut bytes: Bytes) -> Result<M, CodecError> {
    let version = *bytes.first().ok_or(CodecError::Empty)?;
    if version > VERSION || version == 0 {
        return Err(CodecError::Newer(version));
    }
    bytes::Buf::advance(&mut bytes, 1);
    M::decode(bytes).map_err(|e| malformed(what, e))
}

#[derive(Clone, PartialEq, Message)]
struct WireLogId {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    leader: u64,
    #[prost(uint64, tag = "3")]
    index: u64,
}

#[derive(Clone, PartialEq, Message)]
struct WireVote {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    replica: u64,
    #[prost(bool, tag = "3")]
    committed: bool,
}

#[derive(Clone, PartialEq, Message)]
struct WireVoters {
    #[prost(uint64, repeated, tag = "1")]
    replicas: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct WireMember {
    #[prost(uint64, tag = "1")]
    replica: u64,
    #[prost(uint64, tag = "2")]
    store: u64,
    #[prost(string, tag = "3")]
    address: String,
}

#[derive(Clone, PartialEq, Message)]
struct WireMembership {
    #[prost(message, repeated, tag = "1")]
    configs: Vec<WireVoters>,
    #[prost(message, repeated, tag = "2")]
    members: Vec<WireMember>,
    /// Where in the log; absent in a log entry, whose own place it is.
    #[prost(message, optional, tag = "3")]
    log_id: Option<WireLogId>,
}

#[derive(Clone, PartialEq, Message)]
struct WireEntry {
    #[prost(message, optional, tag = "1")]
    log_id: Option<WireLogId>,
    #[prost(uint32, tag = "2")]
    kind: u32,
    #[prost(bytes = "bytes", tag = "3")]
    payload: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct WireAppend {
    #[prost(message, optional, tag = "1")]
    vote: Option<WireVote>,
    #[prost(message, optional, tag = "2")]
    prev: Option<WireLogId>,
    #[prost(message, optional, tag = "3")]
    commit: Option<WireLogId>,
    #[prost(message, repeated, tag = "4")]
    entries: Vec<WireEntry>,
}

#[derive(Clone, PartialEq, Message)]
struct WireAppendReply {
    /// 1 success, 2 success up to `matched`, 3 conflict, 4 a higher vote.
    #[prost(uint32, tag = "1")]
    outcome: u32,
    #[prost(message, optional, tag = "2")]
    matched: Option<WireLogId>,
    #[prost(message, optional, tag = "3")]
    vote: Option<WireVote>,
}

#[derive(Clone, PartialEq, Message)]
struct WireVoteRequest {
    #[prost(message, optional, tag = "1")]
    vote: Option<WireVote>,
    #[prost(message, optional, tag = "2")]
    last: Option<WireLogId>,
    #[prost(bool, tag = "3")]
    transfer: bool,
}

#[derive(Clone, PartialEq, Message)]
struct WireVoteReply {
    #[prost(message, optional, tag = "1")]
    vote: Option<WireVote>,
    #[prost(bool, tag = "2")]
    granted: bool,
    #[prost(message, optional, tag = "3")]
    last: Option<WireLogId>,
}

#[derive(Clone, PartialEq, Message)]
struct WireTransfer {
    #[prost(message, optional, tag = "1")]
    from: Option<WireVote>,
    #[prost(uint64, tag = "2")]
    to: u64,
    #[prost(message, optional, tag = "3")]
    last: Option<WireLogId>,
}

#[derive(Clone, PartialEq, Message)]
struct WireTransferReply {
    /// 1 accepted, 2 the vote changed, 3 the log is not flushed as far.
    #[prost(uint32, tag = "1")]
    outcome: u32,
    #[prost(message, optional, tag = "2")]
    expected_vote: Option<WireVote>,
    #[prost(message, optional, tag = "3")]
    actual_vote: Option<WireVote>,
    #[prost(message, optional, tag = "4")]
    expected_last: Option<WireLogId>,
    #[prost(message, optional, tag = "5")]
    actual_last: Option<WireLogId>,
}

#[derive(Clone, PartialEq, Message)]
struct WireSnapshotMeta {
    #[prost(message, optional, tag = "1")]
    last: Option<WireLogId>,
    #[prost(message, optional, tag = "2")]
    membership: Option<WireMembership>,
}

fn log_id_out(id: &LogId) -> WireLogId {
    WireLogId { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
}

fn log_id_in(id: WireLogId) -> LogId {
    LogId { leader_id: LeaderId { term: id.term, node_id: id.leader }, index: id.index }
}

fn vote_out(vote: &Vote) -> WireVote {
    let leader = vote.leader_id();
    WireVote { term: leader.term, replica: leader.node_id, committed: vote.is_committed() }
}

fn vote_in(what: &'static str, vote: Option<WireVote>) -> Result<Vote, CodecError> {
    let vote = vote.ok_or_else(|| malformed(what, "it has no vote"))?;
    Ok(match vote.committed {
        true => Vote::new_committed(vote.term, vote.replica),
        false => Vote::new(vote.term, vote.replica),
    })
}

fn membership_out(log_id: Option<&LogId>, membership: &Membership) -> WireMembership {
    let configs = membership.get_joint_config().iter();
    WireMembership {
        configs: configs.map(|c| WireVoters { replicas: c.iter().copied().collect() }).collect(),
        members: membership
            .nodes()
            .map(|(id, m)| WireMember { replica: *id, store: m.store, address: m.address.clone() })
            .collect(),
        log_id: log_id.map(log_id_out),
    }
}

fn membership_in(wire: WireMembership) -> Result<StoredMembership, CodecError> {
    let configs: Vec<BTreeSet<u64>> =
        wire.configs.into_iter().map(|c| c.replicas.into_iter().collect()).collect();
    let members: BTreeMap<u64, Member> = wire
        .members
        .into_iter()
        .map(|m| (m.replica, Member { store: m.store, address: m.address }))
        .collect();
    // openraft refuses a membership without voters; the state before the first entry has none.
    let membership = match configs.is_empty() && members.is_empty() {
        true => Membership::default(),
        false => Membership::new(configs, members).map_err(|e| malformed("membership", e))?,
    };
    Ok(StoredMembership::new(wire.log_id.map(log_id_in), membership))
}

pub(crate) fn encode_vote(vote: &Vote) -> Bytes {
    seal(&vote_out(vote))
}

pub(crate) fn decode_vote(bytes: Bytes) -> Result<Vote, CodecError> {
    vote_in("vote", Some(unseal("vote", bytes)?))
}

/// Empty: none yet.
pub(crate) fn encode_membership(stored: &StoredMembership) -> Bytes {
    seal(&membership_out(stored.log_id().as_ref(), stored.membership()))
}

pub(crate) fn decode_membership(bytes: Bytes) -> Result<StoredMembership, CodecError> {
    match bytes.is_empty() {
        true => Ok(StoredMembership::default()),
        false => membership_in(unseal("membership", bytes)?),
    }
}

/// The kind byte and the payload of an entry in the log.
pub(crate) fn encode_payload(entry: &Entry) -> (u8, Bytes) {
    match &entry.payload {
        EntryPayload::Blank => (KIND_BLANK, Bytes::new()),
        EntryPayload::Normal(command) => (KIND_COMMAND, command.0.clone()),
        EntryPayload::Membership(m) => (KIND_MEMBERSHIP, seal(&membership_out(None, m))),
    }
}

pub(crate) fn decode_entry(log_id: LogId, kind: u8, payload: Bytes) -> Result<Entry, CodecError> {
    let payload = match kind {
        KIND_BLANK => EntryPayload::Blank,
        KIND_COMMAND => EntryPayload::Normal(Command(payload)),
        KIND_MEMBERSHIP => EntryPayload::Membership(decode_membership(payload)?.membership().clone()),
        other => return Err(malformed("log entry", format!("kind {other} is not known"))),
    };
    Ok(Entry { log_id, payload })
}

pub(crate) fn encode_append(request: &AppendEntriesRequest<Kinds>) -> Bytes {
    let entries = request.entries.iter().map(|entry| {
        let (kind, payload) = encode_payload(entry);
        WireEntry { log_id: Some(log_id_out(&entry.log_id)), kind: u32::from(kind), payload }
    });
    seal(&WireAppend {
        vote: Some(vote_out(&request.vote)),
        prev: request.prev_log_id.as_ref().map(log_id_out),
        commit: request.leader_commit.as_ref().map(log_id_out),
        entries: entries.collect(),
    })
}

pub(crate) fn decode_append(bytes: Bytes) -> Result<AppendEntriesRequest<Kinds>, CodecError> {
    const WHAT: &str = "append request";
    let wire: WireAppend = unseal(WHAT, bytes)?;
    let prev_log_id = wire.prev.map(log_id_in);
    let mut entries = Vec::with_capacity(wire.entries.len());
    let mut next = prev_log_id.map_or(0, |id| id.index.saturating_add(1));
    for entry in wire.entries {
        let log_id = log_id_in(entry.log_id.ok_or_else(|| malformed(WHAT, "an entry has no log id"))?);
        // A gap would break openraft's own assertions.
        if log_id.index != next {
            return Err(malformed(WHAT, format!("entry {} where {next} should be", log_id.index)));
        }
        next = next.saturating_add(1);
        let kind = u8::try_from(entry.kind).map_err(|e| malformed(WHAT, e))?;
        entries.push(decode_entry(log_id, kind, entry.payload)?);
    }
    let vote = vote_in(WHAT, wire.vote)?;
    if !vote.is_committed() {
        return Err(malformed(WHAT, "its vote is not a leader's"));
    }
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit: wire.commit.map(log_id_in) })
}

pub(crate) fn encode_append_reply(reply: &AppendEntriesResponse<Kinds>) -> Bytes {
    let none = WireAppendReply::default();
    seal(&match reply {
        AppendEntriesResponse::Success => WireAppendReply { outcome: 1, ..none },
        AppendEntriesResponse::PartialSuccess(matched) => {
            WireAppendReply { outcome: 2, matched: matched.as_ref().map(log_id_out), ..none }
        }
        AppendEntriesResponse::Conflict => WireAppendReply { outcome: 3, ..none },
        AppendEntriesResponse::HigherVote(vote) => {
            WireAppendReply { outcome: 4, vote: Some(vote_out(vote)), ..none }
        }
    })
}

pub(crate) fn decode_append_reply(bytes: Bytes) -> Result<AppendEntriesResponse<Kinds>, CodecError> {
    const WHAT: &str = "append reply";
    let wire: WireAppendReply = unseal(WHAT, bytes)?;
    Ok(match wire.outcome {
        1 => AppendEntriesResponse::Success,
        2 => AppendEntriesResponse::PartialSuccess(wire.matched.map(log_id_in)),
        3 => AppendEntriesResponse::Conflict,
        4 => AppendEntriesResponse::HigherVote(vote_in(WHAT, wire.vote)?),
        other => return Err(malformed(WHAT, format!("outcome {other} is not known"))),
    })
}

pub(crate) fn encode_vote_request(request: &VoteRequest<Kinds>) -> Bytes {
    seal(&WireVoteRequest {
        vote: Some(vote_out(&request.vote)),
        last: request.last_log_id.as_ref().map(log_id_out),
        transfer: request.leadership_transfer,
    })
}

pub(crate) fn decode_vote_request(bytes: Bytes) -> Result<VoteRequest<Kinds>, CodecError> {
    const WHAT: &str = "vote request";
    let wire: WireVoteRequest = unseal(WHAT, bytes)?;
    let mut request = VoteRequest::new(vote_in(WHAT, wire.vote)?, wire.last.map(log_id_in));
    request.leadership_transfer = wire.transfer;
    Ok(request)
}

pub(crate) fn encode_vote_reply(reply: &VoteResponse<Kinds>) -> Bytes {
    seal(&WireVoteReply {
        vote: Some(vote_out(&reply.vote)),
        granted: reply.vote_granted,
        last: reply.last_log_id.as_ref().map(log_id_out),
    })
}

pub(crate) fn decode_vote_reply(bytes: Bytes) -> Result<VoteResponse<Kinds>, CodecError> {
    const WHAT: &str = "vote reply";
    let wire: WireVoteReply = unseal(WHAT, bytes)?;
    Ok(VoteResponse::new(vote_in(WHAT, wire.vote)?, wire.last.map(log_id_in), wire.granted))
}

pub(crate) fn encode_transfer(request: &TransferLeaderRequest<Kinds>) -> Bytes {
    seal(&WireTransfer {
        from: Some(vote_out(request.from_leader())),
        to: *request.to_node_id(),
        last: request.last_log_id().map(log_id_out),
    })
}

pub(crate) fn decode_transfer(bytes: Bytes) -> Result<TransferLeaderRequest<Kinds>, CodecError> {
    const WHAT: &str = "transfer request";
    let wire: WireTransfer = unseal(WHAT, bytes)?;
    Ok(TransferLeaderRequest::new(vote_in(WHAT, wire.from)?, wire.to, wire.last.map(log_id_in)))
}

pub(crate) fn encode_transfer_reply(reply: &TransferLeaderResponse<Kinds>) -> Bytes {
    let none = WireTransferReply::default();
    seal(&match reply {
        Ok(()) => WireTransferReply { outcome: 1, ..none },
        Err(TransferLeaderError::VoteChanged { expected, actual }) => WireTransferReply {
            outcome: 2,
            expected_vote: Some(vote_out(expected)),
            actual_vote: Some(vote_out(actual)),
            ..none
        },
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => WireTransferReply {
            outcome: 3,
            expected_last: expected.as_ref().map(log_id_out),
            actual_last: actual.as_ref().map(log_id_out),
            ..none
        },
    })
}

pub(crate) fn decode_transfer_reply(bytes: Bytes) -> Result<TransferLeaderResponse<Kinds>, CodecError> {
    const WHAT: &str = "transfer reply";
    let wire: WireTransferReply = unseal(WHAT, bytes)?;
    Ok(match wire.outcome {
        1 => Ok(()),
        2 => Err(TransferLeaderError::VoteChanged {
            expected: vote_in(WHAT, wire.expected_vote)?,
            actual: vote_in(WHAT, wire.actual_vote)?,
        }),
        3 => Err(TransferLeaderError::LogNotFlushed {
            expected: wire.expected_last.map(log_id_in),
            actual: wire.actual_last.map(log_id_in),
        }),
        other => return Err(malformed(WHAT, format!("outcome {other} is not known"))),
    })
}

pub(crate) fn encode_snapshot_meta(meta: &SnapshotMeta) -> Bytes {
    let stored = &meta.last_membership;
    seal(&WireSnapshotMeta {
        last: meta.last_log_id.as_ref().map(log_id_out),
        membership: Some(membership_out(stored.log_id().as_ref(), stored.membership())),
    })
}

pub(crate) fn decode_snapshot_meta(bytes: Bytes) -> Result<SnapshotMeta, CodecError> {
    let wire: WireSnapshotMeta = unseal("snapshot header", bytes)?;
    Ok(SnapshotMeta {
        last_log_id: wire.last.map(log_id_in),
        last_membership: membership_in(wire.membership.unwrap_or_default())?,
    })
}

pub(crate) fn encode_snapshot_reply(reply: &SnapshotResponse<Kinds>) -> Bytes {
    encode_vote(&reply.vote)
}

pub(crate) fn decode_snapshot_reply(bytes: Bytes) -> Result<SnapshotResponse<Kinds>, CodecError> {
    Ok(SnapshotResponse::new(decode_vote(bytes)?))
}

#[cfg(test)]
mod tests;
