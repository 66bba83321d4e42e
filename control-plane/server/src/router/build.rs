//! Routes from metadata and leaders. Pure.
//!
//! The version of a route is a function of what it says, so that all routers number alike and a client
//! may change between them: `table_id << 40`, plus the newest revision of its records, plus twice each
//! shard's term and one for a known leader. Every part only grows, and something grows with each change.

use std::collections::{BTreeMap, BTreeSet};
use undb_meta::State;
use undb_proto::v1;
use xxhash_rust::xxh3::Xxh3;

const TABLE_SHIFT: u32 = 40;

/// The route of one table.
pub(super) fn table_route(
    state: &State,
    leaders: &BTreeMap<u64, v1::LeaderInfo>,
    table: &v1::TableRecord,
) -> v1::TableRoute {
    let records = state.table_shards(table.table_id);
    let shards: Vec<v1::RouteShard> =
        records.iter().filter_map(|record| Some(route_shard(record.shard.as_ref()?, leaders))).collect();
    let store_ids: BTreeSet<u64> =
        shards.iter().flat_map(|s| &s.shard).flat_map(|s| &s.replicas).map(|r| r.store_id).collect();
    let stores: Vec<&v1::StoreRecord> = store_ids.iter().filter_map(|id| state.store(*id)).collect();
    let revision = records
        .iter()
        .map(|r| r.revision)
        .chain(stores.iter().map(|s| s.revision))
        .fold(table.revision, u64::max);
    let terms: u64 = shards.iter().map(|s| 2 * s.term + u64::from(s.leader_replica_id != 0)).sum();
    let version = (table.table_id << TABLE_SHIFT).saturating_add(revision).saturating_add(terms);
    let mut route = v1::TableRoute {
        table_id: table.table_id,
        name: table.name.clone(),
        partitioning: table.partitioning,
        version: Some(v1::RouteVersion { incarnation: state.cluster().incarnation, version }),
        shards,
        stores: stores.into_iter().map(route_store).collect(),
        digest: 0,
        stale: false,
    };
    route.digest = digest(&route);
    route
}

fn route_shard(shard: &v1::Shard, leaders: &BTreeMap<u64, v1::LeaderInfo>) -> v1::RouteShard {
    let leader = leaders.get(&shard.shard_id).copied().unwrap_or_default();
    let is_listed = shard.replicas.iter().any(|r| r.replica_id == leader.replica_id);
    v1::RouteShard {
        leader_replica_id: if is_listed { leader.replica_id } else { 0 },
        term: leader.term,
        shard: Some(shard.clone()),
    }
}

fn route_store(store: &v1::StoreRecord) -> v1::RouteStore {
    v1::RouteStore { store_id: store.store_id, address: store.address.clone(), zone: store.zone.clone() }
}

/// 64 bits over all that a client acts on.
fn digest(route: &v1::TableRoute) -> u64 {
    let mut hash = Xxh3::new();
    let mut put = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for shard in &route.shards {
        put(&prost::Message::encode_to_vec(shard));
    }
    for store in &route.stores {
        put(&prost::Message::encode_to_vec(store));
    }
    hash.digest()
}

/// True when the shards follow one another over all keys.
pub(super) fn is_whole(route: &v1::TableRoute) -> bool {
    let mut at: Option<&[u8]> = Some(&[]);
    for range in route.shards.iter().filter_map(|s| s.shard.as_ref()?.range.as_ref()) {
        if at != Some(&range.start[..]) {
            return false;
        }
        at = (!range.end.is_empty()).then_some(&range.end[..]);
    }
    at.is_none() && !route.shards.is_empty()
}

/// What changed between two routes of one table; `None` when a snapshot is the shorter way.
pub(super) fn delta(old: &v1::TableRoute, new: &v1::TableRoute) -> Option<v1::RouteDelta> {
    let same = |r: &v1::TableRoute| (r.table_id, r.version.map(|v| v.incarnation));
    if same(old) != same(new) {
        return None;
    }
    let id = |s: &v1::RouteShard| s.shard.as_ref().map_or(0, |s| s.shard_id);
    let before: BTreeMap<u64, &v1::RouteShard> = old.shards.iter().map(|s| (id(s), s)).collect();
    let after: BTreeSet<u64> = new.shards.iter().map(id).collect();
    let upserts: Vec<v1::RouteShard> =
        new.shards.iter().filter(|s| before.get(&id(s)) != Some(s)).cloned().collect();
    if upserts.len() * 2 > new.shards.len().max(8) {
        return None;
    }
    let known: BTreeMap<u64, &v1::RouteStore> = old.stores.iter().map(|s| (s.store_id, s)).collect();
    Some(v1::RouteDelta {
        table_id: new.table_id,
        name: new.name.clone(),
        base: old.version,
        next: new.version,
        upserts,
        tombstones: before.keys().filter(|id| !after.contains(id)).copied().collect(),
        stores: new.stores.iter().filter(|s| known.get(&s.store_id) != Some(s)).cloned().collect(),
        digest: new.digest,
    })
}
