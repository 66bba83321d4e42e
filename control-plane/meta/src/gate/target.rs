//! Room for the replicas that a REMOVE moves away: all of them at once, the emptiest store first.
//!
//! Greedy: it may miss a way to fit them all, never name one that is none.

use super::Gate;
use crate::DEFAULT_NAME;
use crate::room::kept_bytes;
use crate::state::shard_of;
use std::collections::{BTreeMap, BTreeSet};
use undb_proto::v1::{self, StoreState};

/// Shards whose replica would find no store.
pub(super) fn without_target<'a>(gate: &Gate<'a>) -> Vec<&'a v1::ShardRecord> {
    let mut free = free_bytes(gate);
    let mut homeless = Vec::new();
    for record in gate.state.shards() {
        let shard = shard_of(record);
        let leaving = shard.replicas.iter().filter(|r| gate.question.stores.contains(&r.store_id)).count();
        let mut used: BTreeSet<u64> = shard.replicas.iter().map(|r| r.store_id).collect();
        let bytes =
            gate.seen.shard(shard.shard_id).and_then(|s| s.leader.as_ref()).map_or(0, |l| l.live_bytes);
        for _ in 0..leaving {
            let Some(store_id) = choose(gate, shard, &used, &free, bytes) else {
                homeless.push(record);
                break;
            };
            used.insert(store_id);
            if let Some(free) = free.get_mut(&store_id) {
                *free = free.saturating_sub(bytes);
            }
        }
    }
    homeless
}

/// What each possible target can take, and still keep the part of its disk that stays free.
fn free_bytes(gate: &Gate<'_>) -> BTreeMap<u64, u64> {
    let mut free = BTreeMap::new();
    for store in gate.state.stores().filter(|s| s.state() == StoreState::StoreUp) {
        let id = store.store_id;
        let busy = gate.question.stores.contains(&id) || gate.leased.contains(&id);
        let Some(seen) = gate.seen.store(id).filter(|s| s.serving && !gate.is_old(s.at_ms, 0)) else {
            continue;
        };
        let kept = kept_bytes(seen.capacity_bytes);
        if !busy && seen.capacity_bytes > 0 && seen.free_bytes > kept {
            free.insert(id, seen.free_bytes - kept);
        }
    }
    free
}

fn choose(
    gate: &Gate<'_>,
    shard: &v1::Shard,
    used: &BTreeSet<u64>,
    free: &BTreeMap<u64, u64>,
    bytes: u64,
) -> Option<u64> {
    let class = gate.state.table(shard.table_id).map_or("", |t| &t.store_cluster[..]);
    let part = |s: &&v1::StoreRecord| s.state() != StoreState::StoreRemoved;
    let own = gate.state.stores().filter(part).any(|s| s.store_cluster == class);
    let class = if own || !gate.settings.share_default_stores { class } else { DEFAULT_NAME };
    let zone = |id: u64| gate.state.store(id).map_or("", |s| &s.zone[..]);
    let stay = used.iter().filter(|id| !gate.question.stores.contains(id));
    let zones: BTreeSet<&str> = stay.map(|id| zone(*id)).collect();
    let fits = |(id, free): &(&u64, &u64)| {
        **free >= bytes
            && !used.contains(id)
            && gate.state.store(**id).is_some_and(|s| s.store_cluster == class)
    };
    // Zones are a wish here as in placement: spread is asked for only while zones are there.
    free.iter().filter(fits).max_by_key(|(id, free)| (!zones.contains(zone(**id)), **free)).map(|(id, _)| *id)
}
