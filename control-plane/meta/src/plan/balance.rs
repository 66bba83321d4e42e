//! Leaders, evenly: stores differ by at most one and 5 %. Nothing moves to a store that is leaving,
//! just back, or behind; nothing moves twice within the cool-down, and nothing at all in a shard with a
//! replica on a store under a disruption lease.

use super::{Action, LeaderView, Planner};
use crate::state::shard_of;
use std::collections::{BTreeMap, BTreeSet};
use undb_proto::v1::{self, Role};

impl Planner<'_> {
    pub(super) fn balance(&mut self) {
        let mut led: BTreeMap<u64, u64> = BTreeMap::new();
        for store in self.view.state.stores() {
            if self.view.takes_more(store.store_id) {
                led.insert(store.store_id, 0);
            }
        }
        for (_, leader) in self.view.leaders() {
            *led.entry(leader.store_id).or_default() += 1;
        }
        let mut moved = BTreeSet::new();
        for _ in 0..self.view.settings.leader_moves_max {
            let Some((shard_id, from, to, replica_id)) = self.best_move(&led, &moved) else { return };
            moved.insert(shard_id);
            let (high, low) = (led[&from], led[&to]);
            let action = Action::TransferLeader { store_id: from, shard_id, to_replica_id: replica_id };
            self.push(action, format!("store {from} leads {high} shards, store {to} {low}"));
            *led.entry(from).or_default() -= 1;
            *led.entry(to).or_default() += 1;
        }
    }

    /// (shard, from, to, replica): from the store that leads most to the one that leads least.
    fn best_move(&self, led: &BTreeMap<u64, u64>, moved: &BTreeSet<u64>) -> Option<(u64, u64, u64, u64)> {
        let total: u64 = led.values().sum();
        let allowed = 1.0 + 0.05 * total as f64 / led.len().max(1) as f64;
        let mut best: Option<(u64, (u64, u64, u64, u64))> = None;
        for (shard_id, leader) in self.view.leaders() {
            if moved.contains(&shard_id) || !self.is_movable(shard_id, &leader) {
                continue;
            }
            let Some(record) = self.view.state.shard(shard_id) else { continue };
            let high = led.get(&leader.store_id).copied().unwrap_or(0);
            for replica in shard_of(record).replicas.iter().filter(|r| r.role() == Role::Voter) {
                let Some(low) = led.get(&replica.store_id) else { continue };
                let gap = high.saturating_sub(*low);
                let fits = gap >= 2
                    && gap as f64 > allowed
                    && best.is_none_or(|(known, _)| gap > known)
                    && self.view.takes_more(replica.store_id)
                    && self.caught_up(&leader, replica.replica_id);
                if fits {
                    best = Some((gap, (shard_id, leader.store_id, replica.store_id, replica.replica_id)));
                }
            }
        }
        best.map(|(_, chosen)| chosen)
    }

    fn is_movable(&self, shard_id: u64, leader: &LeaderView<'_>) -> bool {
        let now_ms = self.view.now.monotonic_ms;
        let cool = self
            .view
            .observations
            .moved
            .get(&shard_id)
            .is_none_or(|at| now_ms.saturating_sub(*at) >= self.view.settings.leader_cooldown_ms);
        let settled = self.view.state.shard(shard_id).is_some_and(|r| {
            let calm = |r: &v1::Replica| r.role() == Role::Voter && self.view.lease(r.store_id).is_none();
            !r.bootstrapping && shard_of(r).replicas.iter().all(calm)
        });
        cool && settled && !leader.report.joint
    }
}
