//! Stores come, move, are drained and are removed.
//!
//! ```text
//!            same uuid: new address
//!               +----+    +----------+
//! Register ---> | UP |<-->| CORDONED |
//!               +----+    +----------+
//!                  ^------v   v-----+        holds nothing, or its disk is lost and the gate
//!                       DRAINING ----------> REMOVED (for ever)
//!                                              ^
//!                 +----------------------------+-- an empty store at its address, while it is disconnected
//! ```

use super::{Done, unchanged};
use crate::{Reject, State};
use undb_proto::v1::{self, ErrorCode, StoreState};

impl State {
    pub(super) fn register_store(&mut self, op: v1::RegisterStore) -> Done {
        if op.uuid.is_empty() || op.address.is_empty() {
            return Err(Reject::invalid("a store registers with its uuid and its address"));
        }
        if !self.store_clusters.contains_key(&op.store_cluster) {
            let message = format!("there is no store cluster `{}`; apply it first", op.store_cluster);
            return Err(Reject::new(ErrorCode::NotFound, message));
        }
        match self.store_by_uuid(&op.uuid).cloned() {
            Some(known) => self.register_again(known, op),
            None => self.register_new(op),
        }
    }

    fn register_again(&mut self, known: v1::StoreRecord, op: v1::RegisterStore) -> Done {
        if known.state() == StoreState::StoreRemoved {
            let by = if known.superseded_by.is_empty() { "nobody" } else { &known.superseded_by };
            let message = format!(
                "store {} is removed for ever (superseded by {by}); start with an empty directory",
                known.store_id
            );
            return Err(Reject::new(ErrorCode::Fenced, message));
        }
        if known.store_cluster != op.store_cluster {
            let message = format!(
                "store {} belongs to store cluster {}, not {}; drain it and start with an empty directory",
                known.store_id, known.store_cluster, op.store_cluster
            );
            return Err(Reject::conflict(message));
        }
        if known.address == op.address && known.zone == op.zone {
            return unchanged(store_result(known));
        }
        let mut written = Vec::new();
        if let Some(other) = self.holder_of(&op.address).filter(|s| s.store_id != known.store_id).cloned() {
            self.refuse_unless_disconnected(&other, &op)?;
            // It is not there any more; where it is, it will say itself.
            written.push(v1::StoreRecord { address: String::new(), ..other });
        }
        written.push(v1::StoreRecord { address: op.address, zone: op.zone, ..known });
        self.write_stores(written)
    }

    fn register_new(&mut self, op: v1::RegisterStore) -> Done {
        if !op.empty {
            let message = "this store holds replicas, and no store with its uuid was ever part of this \
                           cluster; check that its directory belongs here";
            return Err(Reject::conflict(message));
        }
        let mut written = Vec::new();
        if let Some(old) = self.holder_of(&op.address).cloned() {
            self.refuse_unless_disconnected(&old, &op)?;
            written.push(v1::StoreRecord {
                state: StoreState::StoreRemoved as i32,
                superseded_by: op.uuid.clone(),
                ..old
            });
        }
        let store_id = self.cluster.next_id;
        self.cluster.next_id += 1;
        written.push(v1::StoreRecord {
            store_id,
            uuid: op.uuid,
            address: op.address,
            zone: op.zone,
            store_cluster: op.store_cluster,
            state: StoreState::StoreUp as i32,
            ..Default::default()
        });
        let (result, mut change) = self.write_stores(written)?;
        change.cluster = Some(self.cluster.clone());
        Ok((result, change))
    }

    pub(super) fn set_store_state(&mut self, op: v1::SetStoreState) -> Done {
        let wanted = op.state();
        let Some(known) = self.stores.get(&op.store_id).cloned() else {
            let message = format!("there is no store {}", op.store_id);
            return Err(Reject::new(ErrorCode::NotFound, message));
        };
        if known.state() == wanted {
            return unchanged(store_result(known));
        }
        if known.revision != op.expected_revision {
            return Err(Reject::conflict(format!("store {} is at revision {}", op.store_id, known.revision)));
        }
        match (known.state(), wanted) {
            (_, StoreState::Unspecified) => return Err(Reject::invalid("a store state is missing")),
            (StoreState::StoreRemoved, _) => {
                let message = format!("store {} is removed for ever", op.store_id);
                return Err(Reject::new(ErrorCode::Fenced, message));
            }
            (_, StoreState::StoreRemoved) if op.lost.is_some() => self.check_decision(op.lost)?,
            (_, StoreState::StoreRemoved) => self.refuse_while_listed(op.store_id)?,
            _ => {}
        }
        self.write_stores(vec![v1::StoreRecord { state: wanted as i32, ..known }])
    }

    fn refuse_while_listed(&self, store_id: u64) -> Result<(), Reject> {
        let holds = |s: &&v1::ShardRecord| super::shard::replicas(s).iter().any(|r| r.store_id == store_id);
        let count = self.shards.values().filter(holds).count();
        if count > 0 {
            let message = format!("store {store_id} still holds {count} replicas; drain it first");
            return Err(Reject::conflict(message));
        }
        Ok(())
    }

    fn holder_of(&self, address: &str) -> Option<&v1::StoreRecord> {
        self.stores.values().find(|s| s.address == address && s.state() != StoreState::StoreRemoved)
    }

    fn refuse_unless_disconnected(
        &self,
        holder: &v1::StoreRecord,
        op: &v1::RegisterStore,
    ) -> Result<(), Reject> {
        if op.disconnected.contains(&holder.store_id) {
            return Ok(());
        }
        let message = format!(
            "store {} is alive at {}; a store that lost its disk can take its place once that one has been silent",
            holder.store_id, op.address
        );
        Err(Reject::new(ErrorCode::AlreadyExists, message))
    }

    /// The answer names the last one written.
    fn write_stores(&mut self, mut records: Vec<v1::StoreRecord>) -> Done {
        let revision = self.next_revision();
        for record in &mut records {
            record.revision = revision;
            self.stores.insert(record.store_id, record.clone());
        }
        let result = records.last().cloned().map(store_result).unwrap_or_default();
        Ok((result, v1::MetaChange { stores: records, ..Default::default() }))
    }
}

fn store_result(store: v1::StoreRecord) -> v1::MetaResult {
    v1::MetaResult { store: Some(store), ..Default::default() }
}
