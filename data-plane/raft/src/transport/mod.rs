//! How messages get from a replica to its peer.
//!
//! A store keeps two connections to each other store: one for entries, one for what must never wait
//! behind them (heartbeats, votes, handing over). On each runs one stream for all groups; messages
//! that are ready together travel together, and an answer carries its question's id. A snapshot has
//! a connection of its own. When a connection breaks, whoever waits on it learns at once, and so does
//! everybody who asks before the next attempt is due.

mod link;
mod network;
mod pace;
mod peers;
mod receive;
mod service;

pub(crate) use network::Network;
pub(crate) use peers::Peers;
pub use service::Service;

use undb_proto::v1;

/// Most bytes of requests of one link that wait for their answer.
const LINK_BYTES_MAX: usize = 32 << 20;
/// Most messages in one batch, and bytes after which a batch is closed.
const BATCH_LEN_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Bytes of a message's body.
fn body_len(message: &v1::RaftMessage) -> usize {
    use v1::raft_message::Body::*;
    match &message.body {
        Some(
            Append(b)
            | AppendReply(b)
            | Vote(b)
            | VoteReply(b)
            | PreVote(b)
            | PreVoteReply(b)
            | TransferLeader(b)
            | TransferLeaderReply(b),
        ) => b.len(),
        Some(Error(_)) | None => 0,
    }
}
