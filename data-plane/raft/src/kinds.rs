//! The one instantiation of openraft: commands and responses are opaque bytes, a node is a replica.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A command in a log entry. Displayed by its length only: logs never carry keys or values.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command(pub Bytes);

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command of {} bytes", self.0.len())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What the members of a group know about one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The store that keeps the replica. Never changes for a replica id.
    pub store: u64,
    /// HOST:PORT where the store was last known; the address book knows better.
    pub address: String,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store {} at {}", self.store, self.address)
    }
}

openraft::declare_raft_types!(
    /// Ids, votes and log ids carry (term, replica), totally ordered.
    pub Kinds: D = Command, R = Bytes, NodeId = u64, Node = Member
);

pub(crate) type LeaderId = openraft::impls::leader_id_adv::LeaderId<u64, u64>;
pub(crate) type LogId = openraft::LogId<LeaderId>;
pub(crate) type Vote = openraft::Vote<LeaderId>;
pub(crate) type Entry = openraft::alias::EntryOf<Kinds>;
pub(crate) type Membership = openraft::Membership<u64, Member>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<Kinds>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<Kinds>;
pub(crate) type Snapshot<D> = openraft::alias::SnapshotOf<Kinds, D>;

/// openraft's log id of ours.
pub(crate) fn to_raft(id: undb_types::LogId) -> LogId {
    LogId { leader_id: LeaderId { term: id.term, node_id: id.leader }, index: id.index }
}

/// Our log id of openraft's.
pub(crate) fn from_raft(id: LogId) -> undb_types::LogId {
    undb_types::LogId { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
}
