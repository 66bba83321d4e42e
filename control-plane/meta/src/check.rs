//! The invariants as code; the picture is at the head of the crate.

use crate::State;
use crate::apply::{check_cover, replicas};
use crate::state::shard_of;
use std::collections::BTreeSet;
use undb_proto::v1::{self, StoreState, TableState};

impl State {
    /// Every invariant that is broken, in words; empty when all is well. For tests, images and doubt.
    pub fn check(&self) -> Vec<String> {
        let mut broken = Vec::new();
        self.check_ids(&mut broken);
        self.check_stores(&mut broken);
        self.check_tables(&mut broken);
        self.check_shards(&mut broken);
        self.check_disruptions(&mut broken);
        self.check_moves(&mut broken);
        broken
    }

    fn check_ids(&self, broken: &mut Vec<String>) {
        let replica_ids = || self.shards.values().flat_map(replicas).map(|r| &r.replica_id);
        let ids = self.stores.keys().chain(self.tables.keys()).chain(self.shards.keys());
        let ids = ids.chain(self.disruption_leases.keys());
        for id in ids.chain(replica_ids()).filter(|id| **id == 0 || **id >= self.cluster.next_id) {
            broken.push(format!("id {id} was never handed out"));
        }
        let mut seen = BTreeSet::new();
        for id in replica_ids().filter(|id| !seen.insert(**id)) {
            broken.push(format!("replica id {id} is used twice"));
        }
        for shard_id in self.purged_shards.iter().filter(|id| self.shards.contains_key(id)) {
            broken.push(format!("shard {shard_id} was purged and is there"));
        }
    }

    fn check_stores(&self, broken: &mut Vec<String>) {
        let mut uuids = BTreeSet::new();
        let mut addresses = BTreeSet::new();
        for store in self.stores.values() {
            let removed = store.state() == StoreState::StoreRemoved;
            if !uuids.insert(&store.uuid) {
                broken.push(format!("uuid of store {} is used twice", store.store_id));
            }
            if !removed && !store.address.is_empty() && !addresses.insert(&store.address) {
                broken.push(format!("address {} is used twice", store.address));
            }
            if !removed && !store.superseded_by.is_empty() {
                broken.push(format!("store {} is superseded and not removed", store.store_id));
            }
            self.check_revision("store", store.store_id, store.revision, broken);
        }
    }

    fn check_tables(&self, broken: &mut Vec<String>) {
        let mut names = BTreeSet::new();
        for table in self.tables.values() {
            let deleted = table.state() == TableState::TableDeleted;
            if !deleted && !names.insert(&table.name) {
                broken.push(format!("table name {} is used twice", table.name));
            }
            if deleted != (table.purge_after_ms > 0) {
                broken.push(format!("table {} is deleted without a time to go", table.name));
            }
            if !self.store_clusters.contains_key(&table.store_cluster) {
                broken.push(format!("table {} lies in a store cluster that does not exist", table.name));
            }
            let shards = self.table_shards(table.table_id);
            if let Err(reject) = check_cover(shards.iter().copied()) {
                broken.push(format!("table {}: {reject}", table.name));
            }
            if table.state() == TableState::TableReady && shards.iter().any(|s| s.bootstrapping) {
                broken.push(format!("table {} is ready and has new shards", table.name));
            }
            self.check_revision("table", table.table_id, table.revision, broken);
        }
    }

    fn check_shards(&self, broken: &mut Vec<String>) {
        for (shard_id, record) in &self.shards {
            let shard = shard_of(record);
            if shard.shard_id != *shard_id || !self.tables.contains_key(&shard.table_id) {
                broken.push(format!("shard {shard_id} belongs to no table"));
            }
            let mut stores = BTreeSet::new();
            for replica in &shard.replicas {
                if !stores.insert(replica.store_id) {
                    broken.push(format!("store {} holds shard {shard_id} twice", replica.store_id));
                }
                if !self.stores.contains_key(&replica.store_id) {
                    broken.push(format!("store {} of shard {shard_id} does not exist", replica.store_id));
                }
            }
            let voters = shard.replicas.iter().filter(|r| r.role() == v1::Role::Voter).count();
            if !record.bootstrapping && voters == 0 {
                broken.push(format!("shard {shard_id} has no voter"));
            }
            self.check_revision("shard", *shard_id, record.revision, broken);
        }
    }

    fn check_disruptions(&self, broken: &mut Vec<String>) {
        let mut stores = BTreeSet::new();
        let mut tokens = BTreeSet::new();
        for (lease_id, lease) in &self.disruption_leases {
            if lease.lease_id != *lease_id || lease.holder.is_empty() || lease.stores.is_empty() {
                broken.push(format!("disruption lease {lease_id} lacks its id, its holder or its stores"));
            }
            if lease.kind() == v1::DisruptionKind::Unspecified
                || lease.phase() == v1::DisruptionPhase::Unspecified
            {
                broken.push(format!("disruption lease {lease_id} has no kind or no phase"));
            }
            if lease.token == 0 || lease.token > lease.revision || !tokens.insert(lease.token) {
                broken.push(format!("disruption lease {lease_id} has a token that fences nobody"));
            }
            let ends_ms = lease.granted_at_ms.saturating_add(lease.max_duration_ms);
            if lease.expires_at_ms <= lease.granted_at_ms || lease.expires_at_ms > ends_ms {
                broken.push(format!("disruption lease {lease_id} outlives its longest duration"));
            }
            for store_id in &lease.stores {
                if !self.stores.contains_key(store_id) {
                    broken.push(format!("store {store_id} of disruption lease {lease_id} does not exist"));
                }
                if !stores.insert(*store_id) {
                    broken.push(format!("store {store_id} is under two disruption leases"));
                }
            }
            self.check_revision("disruption lease", *lease_id, lease.revision, broken);
        }
    }

    fn check_moves(&self, broken: &mut Vec<String>) {
        for (shard_id, replica_move) in &self.replica_moves {
            let (from, to) = (replica_move.from_store_id, replica_move.to_store_id);
            if replica_move.shard_id != *shard_id || !self.shards.contains_key(shard_id) {
                broken.push(format!("a move is of shard {shard_id}, which does not exist"));
            }
            if from == to || !self.stores.contains_key(&from) || !self.stores.contains_key(&to) {
                broken.push(format!("the move of shard {shard_id} goes from store {from} to store {to}"));
            }
            if replica_move.from_replica_id == 0 || replica_move.from_replica_id >= self.cluster.next_id {
                broken.push(format!("the move of shard {shard_id} is of no replica"));
            }
            self.check_revision("the move of shard", *shard_id, replica_move.revision, broken);
        }
    }

    fn check_revision(&self, kind: &str, id: u64, revision: u64, broken: &mut Vec<String>) {
        if revision == 0 || revision > self.revision {
            broken.push(format!("{kind} {id} has revision {revision}, metadata {}", self.revision));
        }
    }
}
