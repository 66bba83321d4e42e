//! From what a user wrote to the records of a table, and to the changes of one that exists.

use super::Control;
use bytes::Bytes;
use undb_meta::plan::first_shards;
use undb_proto::v1::{self, ErrorCode, meta_command::Op};
use undb_proto::wire_error;
use undb_spec::{Object, PartitioningType, StoreCluster, Table};
use undb_types::{hash_split_points, split_point};

const SHARDS_PER_TABLE_MAX: usize = 4096;

impl Control {
    /// Creates a table, or finds it created: idempotent by name and spec.
    pub(super) async fn create_table(&self, epoch: u64, table: &Table) -> Result<v1::TableRecord, v1::Error> {
        let record = self.first_record(table)?;
        let points = split_points(table);
        let count = u32::try_from(points.len() + 2).unwrap_or(u32::MAX);
        let op = Op::AllocateIds(v1::AllocateIds { count });
        let first_id = self.0.meta.propose(epoch, op).await.map_err(v1::Error::from)?.first_id;
        let record = v1::TableRecord { table_id: first_id, ..record };
        let shards = first_shards(first_id, first_id + 1, &points);
        let op = Op::CreateTable(v1::CreateTable { table: Some(record), shards });
        let result = self.0.meta.propose(epoch, op).await.map_err(v1::Error::from)?;
        self.0.heard.stirred.notify_one();
        result.table.ok_or_else(|| wire_error(ErrorCode::Internal, "metadata created no table"))
    }

    /// The record of a table that does not exist yet, without its id.
    pub(super) fn first_record(&self, table: &Table) -> Result<v1::TableRecord, v1::Error> {
        let spec = &table.spec;
        let state = self.0.meta.state();
        let Some(store_cluster) = state.store_cluster(&spec.store_cluster) else {
            let known: Vec<&str> = state.store_clusters().map(|s| &s.name[..]).collect();
            let message = format!(
                "spec.storeCluster: there is no StoreCluster `{}`; apply it first, or name one of: {}",
                spec.store_cluster,
                known.join(", ")
            );
            return Err(wire_error(ErrorCode::NotFound, message));
        };
        let engine = engine_of(store_cluster)?;
        if split_points(table).len() >= SHARDS_PER_TABLE_MAX {
            let message = format!("spec.partitioning: at most {SHARDS_PER_TABLE_MAX} shards are possible");
            return Err(wire_error(ErrorCode::InvalidArgument, message));
        }
        let partitioning = match spec.partitioning.kind {
            PartitioningType::Range => v1::Partitioning::Range,
            PartitioningType::Hash => v1::Partitioning::Hash,
        } as i32;
        Ok(v1::TableRecord {
            name: table.name().into(),
            spec_json: Object::Table(table.clone()).to_json(),
            replication: spec.replication.factor,
            min_available: spec.replication.min_available(),
            partitioning,
            store_cluster: spec.store_cluster.clone(),
            options: Some(v1::TableOptions {
                name: table.name().into(),
                ttl_ms: spec.ttl_seconds.saturating_mul(1000),
                engine: engine.kind.as_str().into(),
                threshold_bytes: engine.separation.threshold.0,
                partitioning,
            }),
            ..Default::default()
        })
    }

    /// The record of a table after a change that can be made in place.
    pub(super) fn altered_record(
        &self,
        known: &v1::TableRecord,
        table: &Table,
    ) -> Result<v1::TableRecord, v1::Error> {
        let spec = &table.spec;
        let ttl_ms = known.options.as_ref().map_or(0, |o| o.ttl_ms);
        if spec.ttl_seconds.saturating_mul(1000) != ttl_ms {
            let message = "spec.ttlSeconds: the default expiry of a table that exists cannot change yet; give \
                           records their own, or create another table";
            return Err(wire_error(ErrorCode::NotSupported, message));
        }
        if spec.replication.factor < known.replication {
            let message = format!(
                "spec.replication.factor: cannot shrink from {} to {} yet; create another table and import into it",
                known.replication, spec.replication.factor
            );
            return Err(wire_error(ErrorCode::NotSupported, message));
        }
        Ok(v1::TableRecord {
            spec_json: Object::Table(table.clone()).to_json(),
            replication: spec.replication.factor,
            min_available: spec.replication.min_available(),
            ..known.clone()
        })
    }
}

fn engine_of(record: &v1::StoreClusterRecord) -> Result<undb_spec::EngineSpec, v1::Error> {
    match parse_stored(&record.spec_json)? {
        Object::StoreCluster(StoreCluster { spec, .. }) => Ok(spec.engine),
        Object::Table(_) => Err(wire_error(ErrorCode::Internal, "a StoreCluster record holds a Table")),
    }
}

/// What metadata keeps was checked when it was applied; a newer build may have written it.
pub(super) fn parse_stored(json: &str) -> Result<Object, v1::Error> {
    let parsed = undb_spec::parse_json(json).map_err(|e| {
        wire_error(ErrorCode::Internal, format!("a stored spec cannot be read by this build: {e}"))
    })?;
    Ok(parsed.object)
}

/// Ascending, without the empty one.
fn split_points(table: &Table) -> Vec<Bytes> {
    let partitioning = &table.spec.partitioning;
    match partitioning.kind {
        PartitioningType::Hash => hash_split_points(partitioning.shard_count()),
        PartitioningType::Range => {
            let mut points: Vec<Bytes> =
                partitioning.split_keys.iter().map(|k| split_point(k.as_bytes())).collect();
            points.sort();
            points.dedup();
            points.retain(|p| !p.is_empty());
            points
        }
    }
}
