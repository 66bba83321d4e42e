//! The records, by id, and the ways to read them.

use std::collections::{BTreeMap, BTreeSet};
use undb_proto::v1;

/// How long a deleted table can be recovered.
pub const TABLE_RETENTION_MS: u64 = 7 * 24 * 3600 * 1000;

/// Everything that metadata knows. Only `apply` (on members) and `absorb` (on mirrors) change it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub(crate) revision: u64,
    pub(crate) now_ms: u64,
    pub(crate) cluster: v1::ClusterRecord,
    pub(crate) stores: BTreeMap<u64, v1::StoreRecord>,
    pub(crate) store_clusters: BTreeMap<String, v1::StoreClusterRecord>,
    pub(crate) tables: BTreeMap<u64, v1::TableRecord>,
    pub(crate) shards: BTreeMap<u64, v1::ShardRecord>,
    pub(crate) control_lease: v1::ControlLease,
    pub(crate) purged_shards: BTreeSet<u64>,
    pub(crate) disruption_leases: BTreeMap<u64, v1::DisruptionLease>,
    /// By shard.
    pub(crate) replica_moves: BTreeMap<u64, v1::ReplicaMove>,
}

/// What an accepted command did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// The answer to the proposer.
    pub result: v1::MetaResult,
    /// What watchers must learn; empty when nothing changed.
    pub change: v1::MetaChange,
    /// The revision after the command; the same as before when nothing changed.
    pub revision: u64,
}

impl State {
    /// Counts accepted commands that changed something.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The greatest time seen in a command.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The cluster's identity; its id is empty before `InitCluster`.
    pub fn cluster(&self) -> &v1::ClusterRecord {
        &self.cluster
    }

    /// The lease of cluster control; epoch 0 before the first.
    pub fn control_lease(&self) -> &v1::ControlLease {
        &self.control_lease
    }

    /// All stores, removed ones included.
    pub fn stores(&self) -> impl Iterator<Item = &v1::StoreRecord> {
        self.stores.values()
    }

    /// A store.
    pub fn store(&self, store_id: u64) -> Option<&v1::StoreRecord> {
        self.stores.get(&store_id)
    }

    /// The store with this uuid.
    pub fn store_by_uuid(&self, uuid: &str) -> Option<&v1::StoreRecord> {
        self.stores.values().find(|s| s.uuid == uuid)
    }

    /// All store clusters, by name.
    pub fn store_clusters(&self) -> impl Iterator<Item = &v1::StoreClusterRecord> {
        self.store_clusters.values()
    }

    /// A store cluster.
    pub fn store_cluster(&self, name: &str) -> Option<&v1::StoreClusterRecord> {
        self.store_clusters.get(name)
    }

    /// All tables, deleted ones included.
    pub fn tables(&self) -> impl Iterator<Item = &v1::TableRecord> {
        self.tables.values()
    }

    /// A table by its id.
    pub fn table(&self, table_id: u64) -> Option<&v1::TableRecord> {
        self.tables.get(&table_id)
    }

    /// The table that has this name now, and is not deleted.
    pub fn live_table(&self, name: &str) -> Option<&v1::TableRecord> {
        self.tables.values().find(|t| t.name == name && t.state() != v1::TableState::TableDeleted)
    }

    /// The table of this name that was deleted last and is still kept.
    pub fn deleted_table(&self, name: &str) -> Option<&v1::TableRecord> {
        self.tables
            .values()
            .filter(|t| t.name == name && t.state() == v1::TableState::TableDeleted)
            .max_by_key(|t| (t.deleted_at_ms, t.table_id))
    }

    /// All shards, by id.
    pub fn shards(&self) -> impl Iterator<Item = &v1::ShardRecord> {
        self.shards.values()
    }

    /// A shard.
    pub fn shard(&self, shard_id: u64) -> Option<&v1::ShardRecord> {
        self.shards.get(&shard_id)
    }

    /// A table's shards in key order.
    pub fn table_shards(&self, table_id: u64) -> Vec<&v1::ShardRecord> {
        let mut shards: Vec<_> = self.shards.values().filter(|s| shard_of(s).table_id == table_id).collect();
        shards.sort_by(|a, b| range_of(a).0.cmp(range_of(b).0));
        shards
    }

    /// True when this shard once existed and its table was purged.
    pub fn is_purged(&self, shard_id: u64) -> bool {
        self.purged_shards.contains(&shard_id)
    }

    /// All leases that let stores be down, expired ones included: their stores count as down.
    pub fn disruption_leases(&self) -> impl Iterator<Item = &v1::DisruptionLease> {
        self.disruption_leases.values()
    }

    /// A lease that lets stores be down.
    pub fn disruption_lease(&self, lease_id: u64) -> Option<&v1::DisruptionLease> {
        self.disruption_leases.get(&lease_id)
    }

    /// All replicas that a person is having moved, by shard.
    pub fn replica_moves(&self) -> impl Iterator<Item = &v1::ReplicaMove> {
        self.replica_moves.values()
    }

    /// The move of a shard's replica that is under way.
    pub fn replica_move(&self, shard_id: u64) -> Option<&v1::ReplicaMove> {
        self.replica_moves.get(&shard_id)
    }
}

static NO_SHARD: std::sync::LazyLock<v1::Shard> = std::sync::LazyLock::new(v1::Shard::default);

/// The shard of a record; an empty one when the message lacks it, which `apply` refuses.
pub(crate) fn shard_of(record: &v1::ShardRecord) -> &v1::Shard {
    record.shard.as_ref().unwrap_or(&NO_SHARD)
}

/// Start and end of a record's range.
pub(crate) fn range_of(record: &v1::ShardRecord) -> (&[u8], &[u8]) {
    shard_of(record).range.as_ref().map_or((&[], &[]), |r| (&r.start[..], &r.end[..]))
}

pub(crate) fn epoch_of(shard: &v1::Shard) -> undb_types::Epoch {
    shard.epoch.map(Into::into).unwrap_or_default()
}
