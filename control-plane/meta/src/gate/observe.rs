//! What the gate is told. Soft state: lost with the process, and built again from heartbeats.
//!
//! Times are of the decider's monotonic clock, and of when a thing was *said*: not later than the moment
//! at which its author made it. Whoever fills this in takes the round trip off.

use super::Settings;
use std::collections::{BTreeMap, BTreeSet};
use undb_types::Epoch;

/// How far a peer is, as its leader says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub match_index: u64,
    /// Before the report was made.
    pub ack_ms_ago: u64,
}

/// A shard as its leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderReport {
    pub at_ms: u64,
    pub replica_id: u64,
    pub term: u64,
    pub epoch: Epoch,
    pub last_index: u64,
    /// Where each replica lies, learners included.
    pub stores: BTreeMap<u64, u64>,
    /// The configuration; of a joint one the half that is left.
    pub voters: BTreeSet<u64>,
    /// The half of a joint configuration that is entered.
    pub incoming: Option<BTreeSet<u64>>,
    /// A change is under way, and these are not all of its halves: it was proposed, or they are unknown.
    pub changing: bool,
    pub live_bytes: u64,
    pub peers: BTreeMap<u64, Progress>,
}

impl LeaderReport {
    /// One half, or both of a joint configuration.
    pub fn halves(&self) -> impl Iterator<Item = &BTreeSet<u64>> {
        std::iter::once(&self.voters).chain(&self.incoming)
    }

    /// Replicas that do not vote.
    pub fn learners(&self) -> impl Iterator<Item = u64> + '_ {
        self.stores.keys().copied().filter(|id| self.halves().all(|half| !half.contains(id)))
    }

    /// The leader's own store.
    pub fn store_id(&self) -> Option<u64> {
        self.stores.get(&self.replica_id).copied()
    }

    /// True when a replica lacks few of the leader's entries. Says nothing about when it did.
    pub fn has_caught_up(&self, replica_id: u64, lag_max: u64) -> bool {
        let near = |p: &Progress| p.match_index.saturating_add(lag_max) >= self.last_index;
        replica_id == self.replica_id || self.peers.get(&replica_id).is_some_and(near)
    }

    /// Before this report; the leader hears itself at once.
    pub fn ack_ms_ago(&self, replica_id: u64) -> Option<u64> {
        if replica_id == self.replica_id {
            return Some(0);
        }
        self.peers.get(&replica_id).map(|p| p.ack_ms_ago)
    }
}

/// What is known of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardSeen {
    /// The last report of its newest leader.
    pub leader: Option<LeaderReport>,
    /// The report before it, of the same leader in the same term.
    pub before: Option<LeaderReport>,
    /// The greatest term that any replica has named.
    pub term_max: u64,
    /// Since when replicas have not been caught up.
    pub(super) behind_since: BTreeMap<u64, u64>,
    /// Since when the leader has reported a change or a joint configuration.
    pub(super) changing_since: Option<u64>,
}

/// What is known of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSeen {
    /// When it was last heard of, by its own word or by that of who sees its process.
    pub at_ms: u64,
    /// False: its process takes part in no group at all. Silence does not say so.
    pub serving: bool,
    /// Since when `serving` has been so.
    pub since_ms: u64,
    /// Its replicas that do not serve.
    pub faulty: BTreeSet<u64>,
    /// Its replicas that have not been as far as their group since its process started.
    pub behind: BTreeSet<u64>,
    /// 0: unknown.
    pub capacity_bytes: u64,
    pub free_bytes: u64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations {
    pub(super) started_ms: u64,
    shards: BTreeMap<u64, ShardSeen>,
    stores: BTreeMap<u64, StoreSeen>,
}

impl Observations {
    /// Nothing is known yet.
    pub fn new(now_ms: u64) -> Self {
        Self { started_ms: now_ms, ..Self::default() }
    }

    /// What is known of a shard.
    pub fn shard(&self, shard_id: u64) -> Option<&ShardSeen> {
        self.shards.get(&shard_id)
    }

    /// What is known of a store.
    pub fn store(&self, store_id: u64) -> Option<&StoreSeen> {
        self.stores.get(&store_id)
    }

    /// A store's word, or a word about it. One that is older than the last is dropped.
    pub fn store_heard(&mut self, store_id: u64, mut heard: StoreSeen) {
        heard.since_ms = heard.at_ms;
        if let Some(known) = self.stores.get(&store_id) {
            if known.at_ms > heard.at_ms {
                return;
            }
            if known.serving == heard.serving {
                heard.since_ms = known.since_ms;
            }
        }
        self.stores.insert(store_id, heard);
    }

    /// A store's process may be another one: what it said, and that it led, was said by the one before.
    pub fn began_anew(&mut self, store_id: u64) {
        self.stores.remove(&store_id);
        for seen in self.shards.values_mut() {
            if seen.leader.as_ref().is_some_and(|l| l.store_id() == Some(store_id)) {
                (seen.leader, seen.before) = (None, None);
            }
        }
    }

    /// Some replica of a shard knows of this term.
    pub fn term_heard(&mut self, shard_id: u64, term: u64) {
        let seen = self.shards.entry(shard_id).or_default();
        seen.term_max = seen.term_max.max(term);
    }

    /// A leader's report. One of an older term, or older than the last, is dropped.
    pub fn leader_heard(&mut self, shard_id: u64, report: LeaderReport, settings: &Settings) {
        let seen = self.shards.entry(shard_id).or_default();
        seen.term_max = seen.term_max.max(report.term);
        let known = seen.leader.as_ref().map_or((0, 0), |l| (l.term, l.at_ms));
        if (report.term, report.at_ms) <= known {
            return;
        }
        let at_ms = report.at_ms;
        seen.behind_since.retain(|id, _| !report.has_caught_up(*id, settings.lag_entries_max));
        for id in report.stores.keys().filter(|id| !report.has_caught_up(**id, settings.lag_entries_max)) {
            seen.behind_since.entry(*id).or_insert(at_ms);
        }
        let changing = report.changing || report.incoming.is_some() || report.learners().next().is_some();
        seen.changing_since = changing.then(|| seen.changing_since.unwrap_or(at_ms));
        let same = |l: &LeaderReport| (l.term, l.replica_id) == (report.term, report.replica_id);
        seen.before = seen.leader.take().filter(same);
        seen.leader = Some(report);
    }
}
