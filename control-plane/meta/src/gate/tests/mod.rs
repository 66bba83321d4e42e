//! The gate's claims: case by case, and over random worlds.

mod cases;
mod leases;
mod model;
mod races;

use super::*;
use crate::DEFAULT_NAME;
use undb_proto::v1::meta_command::Op;

fn apply(state: &mut State, now_ms: u64, op: Op) -> Result<v1::MetaResult, crate::Reject> {
    let control_lease = state.control_lease().epoch;
    let done = state.apply(v1::MetaCommand { now_ms, control_lease, op: Some(op) });
    assert_eq!(state.check(), Vec::<String>::new());
    done.map(|a| a.result)
}

/// A cluster of stores 1 to `count`, each in a zone of its own.
fn cluster(count: u64) -> State {
    let mut state = State::default();
    let acquire = v1::AcquireControlLease { owner: "c".into(), address: "c".into(), ttl_ms: 1000 };
    apply(&mut state, 1, Op::InitCluster(v1::InitCluster { cluster_id: "c".into() })).expect("new");
    apply(&mut state, 1, Op::AcquireControlLease(acquire)).expect("free");
    let record = v1::StoreClusterRecord { name: DEFAULT_NAME.into(), ..Default::default() };
    apply(&mut state, 1, Op::PutStoreCluster(v1::PutStoreCluster { store_cluster: Some(record) }))
        .expect("new");
    for id in 1..=count {
        let register = v1::RegisterStore {
            uuid: format!("u{id}"),
            address: format!("h{id}:1"),
            zone: format!("z{id}"),
            store_cluster: DEFAULT_NAME.into(),
            empty: true,
            disconnected: Vec::new(),
        };
        let store = apply(&mut state, 1, Op::RegisterStore(register)).expect("new").store.expect("a store");
        assert_eq!(store.store_id, id);
    }
    state
}

/// Reports may be 5 s old here, so that worlds of one tick a second see late ones.
fn settings() -> Settings {
    Settings { fresh_ms: 5_000, ..Settings::default() }
}

/// A table with a shard on each of these sets of stores; the ids of its shards.
fn table(state: &mut State, name: &str, min_available: u32, placements: &[Vec<u64>]) -> Vec<u64> {
    let replicas: usize = placements.iter().map(Vec::len).sum();
    let count = (1 + placements.len() + replicas) as u32;
    let ids = apply(state, 1, Op::AllocateIds(v1::AllocateIds { count })).expect("ids").first_id;
    let record = v1::TableRecord {
        table_id: ids,
        name: name.into(),
        spec_json: name.into(),
        replication: placements.iter().map(Vec::len).max().unwrap_or(1) as u32,
        min_available,
        options: Some(v1::TableOptions::default()),
        store_cluster: DEFAULT_NAME.into(),
        ..Default::default()
    };
    let points: Vec<bytes::Bytes> = (1..placements.len()).map(|i| format!("{i:04}").into()).collect();
    let shards = crate::plan::first_shards(ids, ids + 1, &points);
    let create = v1::CreateTable { table: Some(record), shards: shards.clone() };
    apply(state, 1, Op::CreateTable(create)).expect("new");
    let mut replica_id = ids + 1 + placements.len() as u64;
    for (record, stores) in shards.iter().zip(placements) {
        let mut record = state.shard(shard_of(record).shard_id).expect("created").clone();
        record.bootstrapping = false;
        for store_id in stores {
            let replica = v1::Replica { replica_id, store_id: *store_id, role: v1::Role::Voter as i32 };
            record.shard.as_mut().expect("whole").replicas.push(replica);
            replica_id += 1;
        }
        put(state, record);
    }
    shards.iter().map(|s| shard_of(s).shard_id).collect()
}

fn put(state: &mut State, record: v1::ShardRecord) {
    let now_ms = state.now_ms();
    apply(state, now_ms, Op::PutShards(v1::PutShards { shards: vec![record] })).expect("current");
}

/// A report of a leader on this store, with every replica of metadata a voter that has caught up.
fn healthy(state: &State, shard_id: u64, leader_store: u64, at_ms: u64) -> LeaderReport {
    let shard = shard_of(state.shard(shard_id).expect("there"));
    let stores: std::collections::BTreeMap<u64, u64> =
        shard.replicas.iter().map(|r| (r.replica_id, r.store_id)).collect();
    let leader = shard.replicas.iter().find(|r| r.store_id == leader_store).expect("a replica there");
    let progress = Progress { match_index: 5000, ack_ms_ago: 100 };
    LeaderReport {
        at_ms,
        replica_id: leader.replica_id,
        term: 7,
        epoch: crate::state::epoch_of(shard),
        last_index: 5000,
        voters: stores.keys().copied().collect(),
        peers: stores.keys().filter(|id| **id != leader.replica_id).map(|id| (*id, progress)).collect(),
        stores,
        incoming: None,
        changing: false,
        live_bytes: 10,
    }
}

fn store_seen(at_ms: u64, serving: bool) -> StoreSeen {
    StoreSeen { at_ms, serving, capacity_bytes: 1000, free_bytes: 500, ..StoreSeen::default() }
}

fn acquire(question: &Question, holder: &str, decision: v1::GateDecision) -> Op {
    Op::AcquireDisruption(v1::AcquireDisruption {
        kind: question.kind as i32,
        stores: question.stores.iter().copied().collect(),
        holder: holder.into(),
        ttl_ms: 30_000,
        max_duration_ms: 600_000,
        decision: Some(decision),
    })
}
