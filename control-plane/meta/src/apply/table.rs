//! Tables are created with their shards, altered in part, deleted softly, recovered, and purged.
//!
//! ```text
//! CREATING --> READY --delete--> DELETED --7 days, or at once--> purged (tombstones of its shards)
//!                 ^-------undelete---'
//! ```

use super::shard::{check_cover, check_record};
use super::{Done, unchanged};
use crate::state::{TABLE_RETENTION_MS, shard_of};
use crate::{DEFAULT_NAME, Reject, State};
use undb_proto::v1::{self, ErrorCode, TableState};

impl State {
    /// Idempotent by name and spec: a proposer that lost the answer proposes again.
    pub(super) fn create_table(&mut self, op: v1::CreateTable) -> Done {
        let mut table = op.table.ok_or_else(|| Reject::invalid("the table is missing"))?;
        if table.name.is_empty() || table.replication == 0 || table.options.is_none() {
            return Err(Reject::invalid("a table has a name, options and a replication of at least 1"));
        }
        if let Some(existing) = self.live_table(&table.name) {
            if existing.spec_json == table.spec_json {
                return unchanged(table_result(existing.clone()));
            }
            let message = format!("table {} exists with another spec", table.name);
            return Err(Reject::new(ErrorCode::AlreadyExists, message));
        }
        if !self.store_clusters.contains_key(&table.store_cluster) {
            let message = format!("there is no store cluster `{}`; apply it first", table.store_cluster);
            return Err(Reject::new(ErrorCode::NotFound, message));
        }
        self.check_new_id(table.table_id)?;
        if self.tables.contains_key(&table.table_id) {
            return Err(Reject::conflict(format!("table id {} is taken", table.table_id)));
        }
        let mut shards = op.shards;
        self.check_first_shards(&table, &shards)?;
        let revision = self.next_revision();
        table.revision = revision;
        table.created_at_ms = self.now_ms;
        (table.deleted_at_ms, table.purge_after_ms) = (0, 0);
        table.state = TableState::TableCreating as i32;
        for shard in &mut shards {
            shard.revision = revision;
            self.shards.insert(shard_of(shard).shard_id, shard.clone());
        }
        let mut change = self.write_table(table.clone());
        if table.name == DEFAULT_NAME && !self.cluster.default_table_created {
            self.cluster.default_table_created = true;
            change.cluster = Some(self.cluster.clone());
        }
        change.shards = shards;
        Ok((table_result(table), change))
    }

    fn check_first_shards(&self, table: &v1::TableRecord, shards: &[v1::ShardRecord]) -> Result<(), Reject> {
        for record in shards {
            let shard = shard_of(record);
            if self.shards.contains_key(&shard.shard_id) || self.is_purged(shard.shard_id) {
                return Err(Reject::conflict(format!("shard id {} is taken", shard.shard_id)));
            }
            if shard.table_id != table.table_id || !record.bootstrapping {
                return Err(Reject::invalid("a new table's shards are its own and bootstrapping"));
            }
            check_record(self, record)?;
        }
        super::shard::check_replica_ids(self, shards)?;
        check_cover(shards.iter())
    }

    /// Only what can change in place: the text of the spec, `min_available`, a higher replication.
    pub(super) fn alter_table(&mut self, op: v1::AlterTable) -> Done {
        let wanted = op.table.ok_or_else(|| Reject::invalid("the table is missing"))?;
        let known = self.live_table(&wanted.name).cloned().ok_or_else(|| not_found(&wanted.name))?;
        if known.revision != op.expected_revision {
            return Err(Reject::conflict(format!("table {} is at revision {}", known.name, known.revision)));
        }
        let fixed =
            |t: &v1::TableRecord| (t.table_id, t.options.clone(), t.partitioning, t.store_cluster.clone());
        if fixed(&known) != fixed(&wanted) {
            let message = "only minAvailable, quota, deletionPolicy and a higher replication factor of a \
                           table can change; create another table and import into it";
            return Err(Reject::new(ErrorCode::NotSupported, message));
        }
        if wanted.replication < known.replication {
            let message = format!("the replication factor {} of a table cannot shrink", known.replication);
            return Err(Reject::new(ErrorCode::NotSupported, message));
        }
        let altered = v1::TableRecord {
            spec_json: wanted.spec_json,
            min_available: wanted.min_available,
            replication: wanted.replication,
            ..known.clone()
        };
        if altered == known {
            return unchanged(table_result(known));
        }
        self.finish_table(altered)
    }

    pub(super) fn delete_table(&mut self, op: v1::DeleteTable) -> Done {
        let Some(known) = self.live_table(&op.name).or_else(|| self.deleted_table(&op.name)).cloned() else {
            return Err(not_found(&op.name));
        };
        let deleted_at_ms =
            if known.state() == TableState::TableDeleted { known.deleted_at_ms } else { self.now_ms };
        let kept_until_ms = deleted_at_ms.saturating_add(TABLE_RETENTION_MS);
        let purge_after_ms = if op.now { self.now_ms.min(kept_until_ms) } else { kept_until_ms };
        let already = known.state() == TableState::TableDeleted && known.purge_after_ms <= purge_after_ms;
        if already {
            return unchanged(table_result(known));
        }
        let state = TableState::TableDeleted as i32;
        self.finish_table(v1::TableRecord { state, deleted_at_ms, purge_after_ms, ..known })
    }

    pub(super) fn undelete_table(&mut self, op: v1::UndeleteTable) -> Done {
        if self.live_table(&op.name).is_some() {
            let message = format!("a table {} exists; delete it before the deleted one returns", op.name);
            return Err(Reject::new(ErrorCode::AlreadyExists, message));
        }
        let known = self.deleted_table(&op.name).cloned().ok_or_else(|| not_found(&op.name))?;
        if self.now_ms >= known.purge_after_ms {
            let message = format!("table {} is being purged and cannot be recovered", op.name);
            return Err(Reject::new(ErrorCode::TableNotFound, message));
        }
        // READY follows when its shards answer: it may have been deleted while it was created.
        let state = TableState::TableCreating as i32;
        self.finish_table(v1::TableRecord { state, deleted_at_ms: 0, purge_after_ms: 0, ..known })
    }

    pub(super) fn set_table_state(&mut self, op: v1::SetTableState) -> Done {
        let Some(known) = self.tables.get(&op.table_id).cloned() else {
            let message = format!("there is no table with id {}", op.table_id);
            return Err(Reject::new(ErrorCode::TableNotFound, message));
        };
        if known.revision != op.expected_revision {
            return Err(Reject::conflict(format!("table {} is at revision {}", known.name, known.revision)));
        }
        let wanted = op.state();
        if known.state() == wanted && known.condition == op.condition {
            return unchanged(table_result(known));
        }
        let kept = matches!(wanted, TableState::TableCreating | TableState::TableReady);
        if known.state() == TableState::TableDeleted || !kept {
            return Err(Reject::invalid("a table becomes deleted, and returns, by its own commands only"));
        }
        let unready = |s: &&v1::ShardRecord| s.bootstrapping && shard_of(s).table_id == op.table_id;
        if wanted == TableState::TableReady && self.shards.values().any(|s| unready(&s)) {
            return Err(Reject::conflict(format!("table {} has shards without replicas", known.name)));
        }
        self.finish_table(v1::TableRecord { state: wanted as i32, condition: op.condition, ..known })
    }

    pub(super) fn purge_table(&mut self, op: v1::PurgeTable) -> Done {
        let Some(known) = self.tables.get(&op.table_id) else {
            return unchanged(v1::MetaResult::default());
        };
        if known.state() != TableState::TableDeleted || self.now_ms < known.purge_after_ms {
            return Err(Reject::conflict(format!("table {} is kept; delete it with --now", known.name)));
        }
        let of_table = |s: &&v1::ShardRecord| shard_of(s).table_id == op.table_id;
        let deleted_shards: Vec<u64> =
            self.shards.values().filter(of_table).map(|s| shard_of(s).shard_id).collect();
        self.tables.remove(&op.table_id);
        let mut deleted_replica_moves = Vec::new();
        for shard_id in &deleted_shards {
            self.shards.remove(shard_id);
            self.purged_shards.insert(*shard_id);
            deleted_replica_moves.extend(self.replica_moves.remove(shard_id).map(|m| m.shard_id));
        }
        let change = v1::MetaChange {
            deleted_shards,
            deleted_tables: vec![op.table_id],
            deleted_replica_moves,
            ..Default::default()
        };
        Ok((v1::MetaResult::default(), change))
    }

    pub(super) fn check_new_id(&self, id: u64) -> Result<(), Reject> {
        if id == 0 || id >= self.cluster.next_id {
            return Err(Reject::invalid(format!("id {id} was never handed out")));
        }
        Ok(())
    }

    fn finish_table(&mut self, mut table: v1::TableRecord) -> Done {
        table.revision = self.next_revision();
        let change = self.write_table(table.clone());
        Ok((table_result(table), change))
    }

    fn write_table(&mut self, table: v1::TableRecord) -> v1::MetaChange {
        self.tables.insert(table.table_id, table.clone());
        v1::MetaChange { tables: vec![table], ..Default::default() }
    }
}

fn table_result(table: v1::TableRecord) -> v1::MetaResult {
    v1::MetaResult { table: Some(table), ..Default::default() }
}

fn not_found(name: &str) -> Reject {
    Reject::new(ErrorCode::TableNotFound, format!("there is no table {name}"))
}
