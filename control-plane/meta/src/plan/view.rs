//! Metadata and observations put side by side, as the planner and `status` ask about them.

use super::{Lost, Now, Observations, Settings, StoreSeen};
use crate::State;
use crate::state::shard_of;
use std::collections::{BTreeMap, BTreeSet};
use undb_proto::v1::{self, DisruptionKind, Role, StoreState};

/// Where a shard is led, as its leader says itself.
#[derive(Clone, Copy, Debug)]
pub struct LeaderView<'a> {
    pub store_id: u64,
    pub report: &'a v1::ReplicaReport,
}

impl<'a> LeaderView<'a> {
    /// The shard as the leader has applied it.
    pub fn shard(&self) -> Option<&'a v1::Shard> {
        self.report.shard.as_ref()
    }

    /// True when a replica has all but `lag_max` of the leader's entries, and answered lately.
    pub fn has_caught_up(&self, replica_id: u64, lag_max: u64, ack_ms_max: u64) -> bool {
        if replica_id == self.report.replica_id {
            return true;
        }
        self.report.peers.iter().any(|p| {
            p.replica_id == replica_id
                && p.last_ack_ms_ago <= ack_ms_max
                && p.match_index.saturating_add(lag_max) >= self.report.last_index
        })
    }
}

/// Both sides at one time.
pub struct View<'a> {
    pub state: &'a State,
    pub observations: &'a Observations,
    pub settings: &'a Settings,
    pub now: Now,
    leaders: BTreeMap<u64, LeaderView<'a>>,
    /// By store. An expired lease is one: its store counts as down until it is gone.
    leases: BTreeMap<u64, &'a v1::DisruptionLease>,
    /// Replicas that a person is having moved to another store.
    moving: BTreeSet<u64>,
    /// So many stores fell silent at once that the fault is more likely ours.
    blind: bool,
}

impl<'a> View<'a> {
    /// Looks at both.
    pub fn new(state: &'a State, observations: &'a Observations, settings: &'a Settings, now: Now) -> Self {
        let leases =
            state.disruption_leases().flat_map(|l| l.stores.iter().map(move |id| (*id, l))).collect();
        let moving = state.replica_moves().map(|m| m.from_replica_id).collect();
        let leaders = BTreeMap::new();
        let mut view = Self { state, observations, settings, now, leaders, leases, moving, blind: false };
        let part: Vec<u64> =
            state.stores().filter(|s| s.state() != StoreState::StoreRemoved).map(|s| s.store_id).collect();
        // A store under a lease is expected to be silent, and says nothing about us.
        let free: Vec<u64> = part.iter().copied().filter(|id| view.lease(*id).is_none()).collect();
        let silent = free.iter().filter(|id| view.silent_ms(**id) >= settings.disconnected_ms).count();
        view.blind = silent * 100 > free.len() * 35;
        for store_id in part {
            if !view.is_fresh(store_id) {
                continue;
            }
            let Some(seen) = observations.store(store_id) else { continue };
            for report in seen.replicas.values().filter(|r| r.is_leader) {
                view.note_leader(LeaderView { store_id, report });
            }
        }
        view
    }

    fn note_leader(&mut self, leader: LeaderView<'a>) {
        let Some(shard) = leader.shard() else { return };
        let known = self.leaders.get(&shard.shard_id);
        if known.is_none_or(|known| known.report.term < leader.report.term) {
            self.leaders.insert(shard.shard_id, leader);
        }
    }

    /// The leader of a shard, from a fresh report.
    pub fn leader(&self, shard_id: u64) -> Option<LeaderView<'a>> {
        self.leaders.get(&shard_id).copied()
    }

    /// All leaders.
    pub fn leaders(&self) -> impl Iterator<Item = (u64, LeaderView<'a>)> + '_ {
        self.leaders.iter().map(|(id, leader)| (*id, *leader))
    }

    /// How long a store has been silent.
    pub fn silent_ms(&self, store_id: u64) -> u64 {
        self.observations.silent_ms(store_id, self.now.monotonic_ms)
    }

    /// True when what a store said last is about now.
    pub fn is_fresh(&self, store_id: u64) -> bool {
        self.observations.store(store_id).is_some() && self.silent_ms(store_id) <= self.settings.fresh_ms()
    }

    /// What a store says now.
    pub fn fresh(&self, store_id: u64) -> Option<&'a StoreSeen> {
        self.observations.store(store_id).filter(|_| self.is_fresh(store_id))
    }

    /// A replica's report, when its store is fresh.
    pub fn report(&self, store_id: u64, replica_id: u64) -> Option<&'a v1::ReplicaReport> {
        self.fresh(store_id)?.replicas.get(&replica_id)
    }

    /// The lease under which a store may be down, an expired one included.
    pub fn lease(&self, store_id: u64) -> Option<&'a v1::DisruptionLease> {
        self.leases.get(&store_id).copied()
    }

    /// True when new replicas and leaders may go to a store.
    pub fn takes_more(&self, store_id: u64) -> bool {
        self.may_lead(store_id) && self.fresh(store_id).is_some_and(|seen| !self.is_suspect(seen))
    }

    /// True when leaders may go to a store where they must go somewhere: one that is just back will do.
    pub fn may_lead(&self, store_id: u64) -> bool {
        let up = self.state.store(store_id).is_some_and(|s| s.state() == StoreState::StoreUp);
        up && self.lease(store_id).is_none() && self.fresh(store_id).is_some_and(|seen| !seen.stopping)
    }

    /// A store that has just come back may be about to go again.
    fn is_suspect(&self, seen: &StoreSeen) -> bool {
        seen.returned && self.now.monotonic_ms.saturating_sub(seen.since_ms) < self.settings.suspect_ms
    }

    /// Why a store's replicas must be made again elsewhere, if so.
    pub fn lost(&self, store_id: u64) -> Option<Lost> {
        let silent_ms = self.silent_ms(store_id);
        match (self.state.store(store_id).map(v1::StoreRecord::state), self.lease(store_id)) {
            (None | Some(StoreState::StoreRemoved), _) => Some(Lost::Removed),
            (Some(StoreState::StoreDraining), _) => Some(Lost::Drained),
            (_, Some(lease)) if lease.kind() == DisruptionKind::Remove => Some(Lost::ToRemove),
            (_, Some(lease)) => {
                let over = self.is_overdue(lease) && silent_ms >= self.settings.disconnected_ms;
                (over && !self.blind).then_some(Lost::Overdue)
            }
            (_, None) => (silent_ms >= self.settings.down_ms && !self.blind).then_some(Lost::Down),
        }
    }

    /// A store that is stopped under this lease is waited for no longer.
    pub fn is_overdue(&self, lease: &v1::DisruptionLease) -> bool {
        self.now.wall_ms >= lease.granted_at_ms.saturating_add(lease.max_duration_ms)
    }

    /// Why a replica must be made again elsewhere, if so.
    pub fn lost_replica(&self, replica: &v1::Replica) -> Option<Lost> {
        let faulty = || {
            let report = self.report(replica.store_id, replica.replica_id)?;
            (!report.fault.is_empty()).then_some(Lost::Faulty)
        };
        let moving = || self.moving.contains(&replica.replica_id).then_some(Lost::Moved);
        self.lost(replica.store_id).or_else(faulty).or_else(moving)
    }

    /// The lease that keeps a shard's members as they are: of a store that it is to come back to.
    pub fn held_by(&self, shard: &v1::Shard) -> Option<(u64, &'a v1::DisruptionLease)> {
        let stays = |r: &&v1::Replica| self.lost(r.store_id).is_none();
        shard.replicas.iter().filter(stays).find_map(|r| Some((r.store_id, self.lease(r.store_id)?)))
    }

    /// Voters whose stores are heard of.
    pub fn live_voters(&self, record: &v1::ShardRecord) -> usize {
        let voters = shard_of(record).replicas.iter().filter(|r| r.role() == Role::Voter);
        voters.filter(|r| self.report(r.store_id, r.replica_id).is_some_and(|r| r.fault.is_empty())).count()
    }
}
