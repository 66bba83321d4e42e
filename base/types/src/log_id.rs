//! Positions in a replicated log, and the epochs that order what a shard is.

use crate::{ReplicaId, ShardId};
use serde::{Deserialize, Serialize};

/// A position in a group's log: which leader proposed it, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogId {
    /// The leader's term.
    pub term: u64,
    /// The leader's replica id.
    pub leader: u64,
    /// The position, from 0.
    pub index: u64,
}

/// One replica's log: a store's log holds many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId {
    /// The shard.
    pub shard: ShardId,
    /// The replica of it; a replica that comes back after being removed has a new one.
    pub replica: ReplicaId,
}

impl std::fmt::Display for GroupId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.shard, self.replica)
    }
}

/// Counts the changes of a shard's range (version) and of its members (conf).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Epoch {
    /// Splits and merges.
    pub version: u64,
    /// Changes of members.
    pub conf: u64,
}

impl Epoch {
    /// True when this is as new as `other` in both counts.
    pub fn covers(self, other: Epoch) -> bool {
        self.version >= other.version && self.conf >= other.conf
    }
}
