//! The cluster's identity, the lease of cluster control, ids, store clusters.

use super::{Done, unchanged};
use crate::{Reject, State};
use undb_proto::v1::{self, ErrorCode};

const IDS_PER_CALL_MAX: u32 = 100_000;
const LEASE_TTL_MS_MAX: u64 = 10 * 60 * 1000;

impl State {
    pub(super) fn init_cluster(&mut self, op: v1::InitCluster) -> Done {
        if op.cluster_id.is_empty() {
            return Err(Reject::invalid("a cluster id is not empty"));
        }
        if self.cluster.cluster_id == op.cluster_id {
            return unchanged(v1::MetaResult::default());
        }
        if !self.cluster.cluster_id.is_empty() {
            let message = format!("this is cluster {}, not {}", self.cluster.cluster_id, op.cluster_id);
            return Err(Reject::new(ErrorCode::ClusterMismatch, message));
        }
        self.cluster = v1::ClusterRecord {
            cluster_id: op.cluster_id,
            incarnation: 1,
            next_id: 1,
            default_table_created: false,
        };
        Ok((v1::MetaResult::default(), self.cluster_change()))
    }

    /// Grants, renews or refuses. The epoch changes exactly when the owner does, so that a renewal
    /// that arrives late fences nobody, and a new owner fences everything of the old one. A process at
    /// the address of the holder need not wait: the holder has ended, or is fenced like any other.
    pub(super) fn acquire_control_lease(&mut self, op: v1::AcquireControlLease) -> Done {
        if op.owner.is_empty() || op.ttl_ms == 0 || op.ttl_ms > LEASE_TTL_MS_MAX {
            return Err(Reject::invalid("a control lease has an owner and a ttl of up to ten minutes"));
        }
        let held = &self.control_lease;
        let same = held.owner == op.owner;
        let heir = !held.address.is_empty() && held.address == op.address;
        if !same && !heir && self.now_ms < held.expires_at_ms {
            let left_ms = held.expires_at_ms - self.now_ms;
            let message = format!("{} holds the control lease for another {left_ms} ms", held.owner);
            return Err(Reject::conflict(message));
        }
        let epoch = if same { held.epoch } else { held.epoch + 1 };
        let expires_at_ms = self.now_ms.saturating_add(op.ttl_ms);
        self.control_lease = v1::ControlLease { epoch, owner: op.owner, address: op.address, expires_at_ms };
        let lease = Some(self.control_lease.clone());
        let change = v1::MetaChange { control_lease: lease.clone(), ..Default::default() };
        Ok((v1::MetaResult { control_lease: lease, ..Default::default() }, change))
    }

    pub(super) fn allocate_ids(&mut self, op: v1::AllocateIds) -> Done {
        if op.count == 0 || op.count > IDS_PER_CALL_MAX {
            return Err(Reject::invalid(format!("ids come in 1 to {IDS_PER_CALL_MAX} at a time")));
        }
        let first_id = self.cluster.next_id;
        self.cluster.next_id += u64::from(op.count);
        Ok((v1::MetaResult { first_id, ..Default::default() }, self.cluster_change()))
    }

    pub(super) fn put_store_cluster(&mut self, op: v1::PutStoreCluster) -> Done {
        let mut record = op.store_cluster.ok_or_else(|| Reject::invalid("the store cluster is missing"))?;
        if record.name.is_empty() {
            return Err(Reject::invalid("a store cluster has a name"));
        }
        let old = self.store_clusters.get(&record.name);
        if old.is_some_and(|old| old.spec_json == record.spec_json) {
            return unchanged(v1::MetaResult::default());
        }
        let expected = old.map_or(0, |old| old.revision);
        if record.revision != expected {
            let message = format!("store cluster {} is at revision {expected}", record.name);
            return Err(Reject::conflict(message));
        }
        record.revision = self.next_revision();
        self.store_clusters.insert(record.name.clone(), record.clone());
        let change = v1::MetaChange { store_clusters: vec![record], ..Default::default() };
        Ok((v1::MetaResult::default(), change))
    }

    pub(super) fn delete_store_cluster(&mut self, op: v1::DeleteStoreCluster) -> Done {
        let name = op.name;
        if !self.store_clusters.contains_key(&name) {
            let message = format!("there is no store cluster {name}");
            return Err(Reject::new(ErrorCode::NotFound, message));
        }
        if let Some(table) = self.tables.values().find(|t| t.store_cluster == name) {
            let message = format!("store cluster {name} holds table {}; delete it first", table.name);
            return Err(Reject::conflict(message));
        }
        let removed = v1::StoreState::StoreRemoved;
        if let Some(store) = self.stores.values().find(|s| s.store_cluster == name && s.state() != removed) {
            let message = format!("store cluster {name} has store {}; remove it first", store.store_id);
            return Err(Reject::conflict(message));
        }
        self.store_clusters.remove(&name);
        let change = v1::MetaChange { deleted_store_clusters: vec![name], ..Default::default() };
        Ok((v1::MetaResult::default(), change))
    }

    pub(super) fn cluster_change(&self) -> v1::MetaChange {
        v1::MetaChange { cluster: Some(self.cluster.clone()), ..Default::default() }
    }
}
