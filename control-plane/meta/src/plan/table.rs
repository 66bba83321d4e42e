//! Whether tables are ready, and if not why; and the end of deleted ones.

use super::{Action, Planner};
use crate::state::shard_of;
use undb_proto::v1::{self, StoreState, TableState};

impl Planner<'_> {
    pub(super) fn note_short(&mut self, table: &v1::TableRecord, there: usize, why: &str) {
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        let condition = format!(
            "InsufficientStores: {} stores of store cluster {} are needed, {there} can take replicas{why}",
            table.replication, table.store_cluster
        );
        self.plan.short.insert(table.table_id, condition);
    }

    pub(super) fn note_short_of_spare(&mut self, table: &v1::TableRecord, reason: &str) {
        let condition = format!(
            "InsufficientStores: {reason}, and store cluster {} has no other store to take its replicas",
            table.store_cluster
        );
        self.plan.short.insert(table.table_id, condition);
    }

    pub(super) fn tables(&mut self) {
        let state = self.view.state;
        for table in state.tables() {
            if table.state() == TableState::TableDeleted {
                self.purge(table);
                continue;
            }
            let shards = state.table_shards(table.table_id);
            let created = shards.iter().all(|s| !s.bootstrapping);
            let led = || shards.iter().all(|s| self.view.leader(shard_of(s).shard_id).is_some());
            // Once ready a table stays so: a shard without leader is a matter of seconds, and of status.
            let ready = created && (table.state() == TableState::TableReady || led());
            let wanted = if ready { TableState::TableReady } else { TableState::TableCreating };
            let condition = self.plan.short.get(&table.table_id).cloned().unwrap_or_default();
            if table.state() != wanted || table.condition != condition {
                let reason = match (&condition[..], ready) {
                    ("", true) => "all shards have their replicas and a leader".to_owned(),
                    ("", false) => "replicas are being created".to_owned(),
                    _ => condition.clone(),
                };
                let action = Action::SetTable {
                    table_id: table.table_id,
                    state: wanted,
                    condition,
                    expected_revision: table.revision,
                };
                self.push(action, reason);
            }
        }
    }

    /// When no store that is heard of has a replica any more. One that is silent finds the tombstones
    /// when it comes back.
    fn purge(&mut self, table: &v1::TableRecord) {
        if !self.is_due(table) {
            return;
        }
        let state = self.view.state;
        let shards = state.table_shards(table.table_id);
        let ids: Vec<u64> = shards.iter().map(|s| shard_of(s).shard_id).collect();
        let waits = state.stores().filter(|s| s.state() != StoreState::StoreRemoved).any(|store| match self
            .view
            .fresh(store.store_id)
        {
            Some(seen) => {
                let of = |r: &v1::ReplicaReport| r.shard.as_ref().map_or(0, |s| s.shard_id);
                seen.replicas.values().any(|r| ids.contains(&of(r)))
            }
            None => self.view.silent_ms(store.store_id) < self.view.settings.disconnected_ms,
        });
        if !waits {
            let action = Action::PurgeTable { table_id: table.table_id };
            self.push(action, format!("table {} was deleted and its replicas are gone", table.name));
        }
    }

    pub(super) fn is_due(&self, table: &v1::TableRecord) -> bool {
        table.state() == TableState::TableDeleted && self.view.now.wall_ms >= table.purge_after_ms
    }
}
