//! Leaders that must go: away from stores that are being drained, that end, or that may be stopped.
//!
//! To a voter that has caught up, on a store under no lease: the one that leads least.

use super::{Action, LeaderView, Planner, View};
use crate::state::shard_of;
use std::collections::BTreeMap;
use undb_proto::v1::{self, DisruptionPhase as Phase, Role, StoreState};

/// Shards led by each store.
pub(super) fn led(view: &View<'_>) -> BTreeMap<u64, u64> {
    let mut led = BTreeMap::new();
    for (_, leader) in view.leaders() {
        *led.entry(leader.store_id).or_default() += 1;
    }
    led
}

impl View<'_> {
    /// Why leaders must leave a store at once, if so.
    pub fn leaders_leave(&self, store_id: u64) -> Option<String> {
        if let Some(lease) = self.lease(store_id)
            && matches!(lease.phase(), Phase::Draining | Phase::SafeToStop | Phase::Stopped)
        {
            return Some(format!(
                "store {store_id} may be stopped under disruption lease {} of {}",
                lease.lease_id, lease.holder
            ));
        }
        if self.state.store(store_id).map(|s| s.state()) == Some(StoreState::StoreDraining) {
            return Some(format!("store {store_id} is being drained"));
        }
        self.fresh(store_id).is_some_and(|s| s.stopping).then(|| format!("store {store_id} ends"))
    }
}

impl Planner<'_> {
    pub(super) fn evacuate(&mut self) {
        let leaders: Vec<_> = self.view.leaders().collect();
        for (shard_id, leader) in leaders {
            let Some(record) = self.view.state.shard(shard_id).filter(|r| !r.bootstrapping) else { continue };
            if let Some(reason) = self.view.leaders_leave(leader.store_id) {
                self.hand_over(shard_of(record), &leader, &reason);
            }
        }
    }

    /// Moves the leader to a voter that has caught up.
    pub(super) fn hand_over(&mut self, shard: &v1::Shard, leader: &LeaderView<'_>, reason: &str) {
        let fit = |r: &&v1::Replica| {
            r.role() == Role::Voter
                && r.replica_id != leader.report.replica_id
                && self.view.may_lead(r.store_id)
                && self.caught_up(leader, r.replica_id)
        };
        let rank = |r: &&v1::Replica| {
            let led = self.led.get(&r.store_id).copied().unwrap_or(0);
            (!self.view.takes_more(r.store_id), led, r.store_id)
        };
        let Some(to) = shard.replicas.iter().filter(fit).min_by_key(rank).copied() else {
            let text = "the leader stays: no other voter has caught up on a store that takes leaders";
            self.wait(shard.shard_id, leader.store_id, format!("{text}; {reason}"));
            return;
        };
        *self.led.entry(leader.store_id).or_default() -= 1;
        *self.led.entry(to.store_id).or_default() += 1;
        let action = Action::TransferLeader {
            store_id: leader.store_id,
            shard_id: shard.shard_id,
            to_replica_id: to.replica_id,
        };
        self.push(action, reason);
    }
}
