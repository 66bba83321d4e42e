//! Which stores: distinct ones, of distinct zones where there are enough, the emptiest first.

use super::{Planner, View};
use crate::state::shard_of;
use crate::{DEFAULT_NAME, State};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use undb_proto::v1::{self, Role, StoreState};

/// A store with less of its disk free, in percent, gets nothing new.
const FREE_PERCENT_MIN: u64 = 5;

/// Replicas per store, those that this plan adds included.
pub(super) struct Load {
    replicas: BTreeMap<u64, u64>,
    learners: BTreeMap<u64, u32>,
}

impl Load {
    pub fn count(state: &State) -> Self {
        let mut load = Self { replicas: BTreeMap::new(), learners: BTreeMap::new() };
        for replica in state.shards().flat_map(crate::apply::replicas) {
            load.add(replica.store_id, replica.role());
        }
        load
    }

    fn add(&mut self, store_id: u64, role: Role) {
        *self.replicas.entry(store_id).or_default() += 1;
        if role == Role::Learner {
            *self.learners.entry(store_id).or_default() += 1;
        }
    }
}

impl Planner<'_> {
    /// `count` stores for new replicas of a shard, or how many there are.
    pub(super) fn choose(
        &mut self,
        record: &v1::ShardRecord,
        count: usize,
        role: Role,
    ) -> Result<Vec<u64>, usize> {
        let shard = shard_of(record);
        let used: BTreeSet<u64> = shard.replicas.iter().map(|r| r.store_id).collect();
        let class = self.view.state.table(shard.table_id).map_or("", |t| &t.store_cluster[..]);
        let mut candidates: Vec<&v1::StoreRecord> = self
            .view
            .stores_of(class)
            .filter(|s| !used.contains(&s.store_id) && self.view.is_target(s.store_id))
            .collect();
        if candidates.len() < count {
            return Err(candidates.len());
        }
        if role == Role::Learner {
            let limit = self.view.settings.moves_per_store_max;
            candidates.retain(|s| self.load.learners.get(&s.store_id).is_none_or(|n| *n < limit));
            if candidates.len() < count {
                // Not short of stores: they are busy, and the next plan asks again.
                return Ok(Vec::new());
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
                (in_zone, self.load.replicas.get(&s.store_id).copied().unwrap_or(0), s.store_id)
            });
            let Some((at, _)) = best else { break };
            let store = candidates.swap_remove(at);
            *zones.entry(store.zone.clone()).or_default() += 1;
            self.load.add(store.store_id, role);
            chosen.push(store.store_id);
        }
        Ok(chosen)
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

    fn is_target(&self, store_id: u64) -> bool {
        let roomy = |stats: &v1::StoreStats| {
            stats.capacity_bytes == 0
                || stats.free_bytes.saturating_mul(100)
                    >= stats.capacity_bytes.saturating_mul(FREE_PERCENT_MIN)
        };
        self.takes_more(store_id) && self.fresh(store_id).is_some_and(|seen| roomy(&seen.stats))
    }
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
