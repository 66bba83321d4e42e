//! Which stores: distinct ones, of distinct zones where there are enough, the emptiest first. One whose disk
//! is nearly full, or that is just back, is the last choice.

use super::{Planner, View};
use crate::DEFAULT_NAME;
use crate::room::{is_nearly_full, kept_bytes};
use crate::state::shard_of;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use undb_proto::v1::{self, Role, StoreState};

const NO_ROOM: &str = "has too little free disk";

/// Replicas per store, those that this plan adds included.
pub(super) struct Load {
    replicas: BTreeMap<u64, u64>,
    learners: BTreeMap<u64, u32>,
    /// Replicas that a learner is being made for, though they still serve.
    leaving: BTreeMap<u64, u32>,
    /// Bytes of the shards that learners receive. What of them is there already counts twice.
    coming_bytes: BTreeMap<u64, u64>,
}

impl Load {
    pub fn count(view: &View<'_>) -> Self {
        let (replicas, learners, leaving) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut load = Self { replicas, learners, leaving, coming_bytes: BTreeMap::new() };
        for record in view.state.shards() {
            let replicas = crate::apply::replicas(record);
            for replica in replicas {
                load.add(replica.store_id, replica.role(), view.live_bytes(shard_of(record).shard_id));
            }
            if replicas.iter().any(|r| r.role() == Role::Learner)
                && let Some(store_id) = leaves(view, replicas)
            {
                *load.leaving.entry(store_id).or_default() += 1;
            }
        }
        load
    }

    fn add(&mut self, store_id: u64, role: Role, bytes: u64) {
        *self.replicas.entry(store_id).or_default() += 1;
        if role == Role::Learner {
            *self.learners.entry(store_id).or_default() += 1;
            *self.coming_bytes.entry(store_id).or_default() += bytes;
        }
    }
}

/// The store that the most urgent replica leaves, when it leaves one that serves.
fn leaves(view: &View<'_>, replicas: &[v1::Replica]) -> Option<u64> {
    let lost = replicas.iter().filter_map(|r| Some((view.lost_replica(r)?, r.store_id)));
    lost.min().filter(|(why, _)| why.is_planned()).map(|(_, store_id)| store_id)
}

/// Where a new replica may go.
pub(super) enum Choice {
    Stores(Vec<u64>),
    /// Stores are there, and all of them receive as much as they may.
    Busy,
    /// Only so many stores are there, and why the others are not.
    Short(usize, String),
}

impl Planner<'_> {
    /// `count` stores for new replicas of a shard, or how many there are.
    pub(super) fn choose(&mut self, record: &v1::ShardRecord, count: usize, role: Role) -> Choice {
        let shard = shard_of(record);
        let used: BTreeSet<u64> = shard.replicas.iter().map(|r| r.store_id).collect();
        let class = self.view.state.table(shard.table_id).map_or("", |t| &t.store_cluster[..]);
        // The place of a move is kept for it.
        let promised = self.view.state.replica_move(shard.shard_id).map_or(0, |m| m.to_store_id);
        let bytes = self.view.live_bytes(shard.shard_id);
        let (mut candidates, mut refusals) = (Vec::new(), Vec::new());
        for store in self.view.stores_of(class).filter(|s| !used.contains(&s.store_id)) {
            let id = store.store_id;
            let crowded = || (role == Role::Learner && !self.has_room(id, bytes)).then_some(NO_ROOM);
            match self.view.refuses(id).or_else(crowded) {
                Some(why) => refusals.push(format!("store {id} {why}")),
                None if id == promised => refusals.push(format!("store {id} is kept for a move")),
                None => candidates.push(store),
            }
        }
        if candidates.len() < count {
            return Choice::Short(candidates.len(), refusals.join(", "));
        }
        if role == Role::Learner {
            candidates.retain(|s| self.receives_more(s.store_id));
            if candidates.len() < count {
                return Choice::Busy;
            }
        }
        let mut zones: BTreeMap<String, u64> = BTreeMap::new();
        for store in used.iter().filter(|id| self.view.lost(**id).is_none()) {
            let zone = self.view.state.store(*store).map(|s| s.zone.clone()).unwrap_or_default();
            *zones.entry(zone).or_default() += 1;
        }
        let mut chosen = Vec::new();
        for _ in 0..count {
            let best = candidates.iter().enumerate().min_by_key(|(_, s)| {
                let in_zone = zones.get(&s.zone).copied().unwrap_or(0);
                (
                    in_zone,
                    self.view.is_last_choice(s.store_id),
                    self.load.replicas.get(&s.store_id).copied().unwrap_or(0),
                    s.store_id,
                )
            });
            let Some((at, _)) = best else { break };
            let store = candidates.swap_remove(at);
            *zones.entry(store.zone.clone()).or_default() += 1;
            self.load.add(store.store_id, role, bytes);
            chosen.push(store.store_id);
        }
        Choice::Stores(chosen)
    }

    /// The store that a person chose for a replica, or why it cannot go there now.
    pub(super) fn choose_for_move(&mut self, replica_move: &v1::ReplicaMove) -> Result<u64, String> {
        let to = replica_move.to_store_id;
        if let Some(lease) = self.view.lease(to) {
            return Err(format!(
                "store {to} is under disruption lease {} of {}",
                lease.lease_id, lease.holder
            ));
        }
        if let Some(why) = self.view.refuses(to) {
            return Err(format!("store {to} {why} and takes no new replicas now"));
        }
        if !self.receives_more(to) {
            let limit = self.view.settings.moves_per_store_max;
            return Err(format!("store {to} receives {limit} replicas already, as many as it may at a time"));
        }
        let bytes = self.view.live_bytes(replica_move.shard_id);
        if !self.has_room(to, bytes) {
            return Err(format!("store {to} has no room for {bytes} bytes beside what it receives already"));
        }
        self.load.add(to, Role::Learner, bytes);
        Ok(to)
    }

    /// A full disk is a fault of every replica on it: one more shard may come only if it fits beside those
    /// that are on their way.
    fn has_room(&self, store_id: u64, bytes: u64) -> bool {
        let coming = self.load.coming_bytes.get(&store_id).copied().unwrap_or(0);
        self.view.fresh(store_id).is_some_and(|seen| has_free(&seen.stats, coming.saturating_add(bytes)))
    }

    fn receives_more(&self, store_id: u64) -> bool {
        self.load.learners.get(&store_id).is_none_or(|n| *n < self.view.settings.moves_per_store_max)
    }

    /// One more leaves a store that serves, if it may.
    pub(super) fn gives_more(&self, store_id: u64) -> bool {
        self.load.leaving.get(&store_id).is_none_or(|n| *n < self.view.settings.moves_per_store_max)
    }

    pub(super) fn note_leaving(&mut self, store_id: u64) {
        *self.load.leaving.entry(store_id).or_default() += 1;
    }
}

impl<'a> View<'a> {
    /// The stores that tables of a store cluster are placed on.
    pub fn stores_of(&self, class: &str) -> impl Iterator<Item = &'a v1::StoreRecord> + use<'a> {
        let state = self.state;
        let part = |s: &&v1::StoreRecord| s.state() != StoreState::StoreRemoved;
        let own = state.stores().filter(part).any(|s| s.store_cluster == class);
        let class = if own || !self.settings.share_default_stores { class } else { DEFAULT_NAME };
        let class = class.to_owned();
        state.stores().filter(move |s| part(s) && s.store_cluster == class)
    }

    /// What a copy of a shard takes at least, as its leader says.
    pub fn live_bytes(&self, shard_id: u64) -> u64 {
        self.leader(shard_id).map_or(0, |l| l.report.live_bytes)
    }

    /// Why no new replica may go to a store, in a few words that stay the same while it is so.
    pub fn refuses(&self, store_id: u64) -> Option<&'static str> {
        match self.state.store(store_id).map(v1::StoreRecord::state) {
            None | Some(StoreState::StoreRemoved) => return Some("was removed"),
            Some(StoreState::StoreDraining) => return Some("is being drained"),
            Some(StoreState::StoreUp) => {}
            Some(_) => return Some("is cordoned"),
        }
        if self.lease(store_id).is_some() {
            return Some("is under a disruption lease");
        }
        match self.fresh(store_id) {
            None => Some("is silent"),
            Some(seen) if seen.stopping => Some("is stopping"),
            Some(seen) => (!has_free(&seen.stats, 0)).then_some(NO_ROOM),
        }
    }

    /// True when a new replica goes to a store only where no other one would take it.
    fn is_last_choice(&self, store_id: u64) -> bool {
        let nearly_full = |stats: &v1::StoreStats| is_nearly_full(stats.capacity_bytes, stats.free_bytes);
        !self.takes_more(store_id) || self.fresh(store_id).is_none_or(|seen| nearly_full(&seen.stats))
    }
}

/// True when `bytes` more fit beside what is kept free. A store that has not said what it has may have it.
fn has_free(stats: &v1::StoreStats, bytes: u64) -> bool {
    let kept = kept_bytes(stats.capacity_bytes);
    stats.capacity_bytes == 0 || stats.free_bytes >= kept.saturating_add(bytes)
}

/// The first shards of a table, cut at `split_points` (ascending, not empty): without replicas, which
/// the plan places once there are stores. `first_id` and the ids behind it are theirs.
pub fn first_shards(table_id: u64, first_id: u64, split_points: &[Bytes]) -> Vec<v1::ShardRecord> {
    let starts = std::iter::once(Bytes::new()).chain(split_points.iter().cloned());
    let ends = split_points.iter().cloned().chain(std::iter::once(Bytes::new()));
    let shards = starts.zip(ends).zip(first_id..).map(|((start, end), shard_id)| v1::Shard {
        shard_id,
        table_id,
        range: Some(v1::KeyRange { start, end }),
        epoch: Some(v1::Epoch { version: 1, conf: 1 }),
        replicas: Vec::new(),
        version_base: 0,
    });
    shards.map(|shard| v1::ShardRecord { shard: Some(shard), revision: 0, bootstrapping: true }).collect()
}
