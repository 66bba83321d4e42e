//! Soft state: what stores said last, and when. Lost with the process, and built again from
//! heartbeats within seconds.

use std::collections::BTreeMap;
use undb_proto::v1;

/// What is known of one store from itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreSeen {
    /// When it was last heard of.
    pub last_ms: u64,
    /// Since when it has been heard of without a gap.
    pub since_ms: u64,
    /// There was a gap before `since_ms`.
    pub returned: bool,
    /// It moves its leaders away and will end.
    pub stopping: bool,
    /// Its counters.
    pub stats: v1::StoreStats,
    /// Its replicas, by replica id.
    pub replicas: BTreeMap<u64, v1::ReplicaReport>,
}

/// What cluster control has been told. Times are of its monotonic clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observations {
    pub(super) started_ms: u64,
    pub(super) stores: BTreeMap<u64, StoreSeen>,
    /// When a shard's leader was last moved for balance.
    pub(super) moved: BTreeMap<u64, u64>,
}

impl Observations {
    /// Nothing is known; silence counts from now.
    pub fn new(now_ms: u64) -> Self {
        Self { started_ms: now_ms, ..Self::default() }
    }

    /// A store registered: it lives, and its replicas are not known yet.
    pub fn registered(&mut self, store_id: u64, now_ms: u64, disconnected_ms: u64) {
        let seen = self.touch(store_id, now_ms, disconnected_ms);
        seen.stopping = false;
    }

    /// A store's heartbeat, or its answer to ListReplicas. Replaces what it said before.
    pub fn heard(
        &mut self,
        store_id: u64,
        now_ms: u64,
        disconnected_ms: u64,
        replicas: Vec<v1::ReplicaReport>,
    ) -> &mut StoreSeen {
        let seen = self.touch(store_id, now_ms, disconnected_ms);
        seen.replicas = replicas.into_iter().map(|r| (r.replica_id, r)).collect();
        seen
    }

    fn touch(&mut self, store_id: u64, now_ms: u64, disconnected_ms: u64) -> &mut StoreSeen {
        let fresh = StoreSeen { last_ms: now_ms, since_ms: now_ms, ..StoreSeen::default() };
        let seen = self.stores.entry(store_id).or_insert(fresh);
        if now_ms.saturating_sub(seen.last_ms) >= disconnected_ms {
            (seen.since_ms, seen.returned) = (now_ms, true);
        }
        seen.last_ms = seen.last_ms.max(now_ms);
        seen
    }

    /// A leader was moved for balance.
    pub fn moved_leader(&mut self, shard_id: u64, now_ms: u64) {
        self.moved.insert(shard_id, now_ms);
    }

    /// What is known of a store.
    pub fn store(&self, store_id: u64) -> Option<&StoreSeen> {
        self.stores.get(&store_id)
    }

    /// How long a store has been silent; one that was never heard, since this began.
    pub fn silent_ms(&self, store_id: u64, now_ms: u64) -> u64 {
        let last = self.stores.get(&store_id).map_or(self.started_ms, |s| s.last_ms);
        now_ms.saturating_sub(last)
    }
}
