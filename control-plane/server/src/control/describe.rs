//! Objects as people see them: {apiVersion, kind, metadata, spec, status}; a status says whether it
//! is fine, and if not why.

use super::Control;
use super::admin::Kind;
use serde_json::{Value, json};
use undb_meta::plan::{Lost, View, move_step};
use undb_proto::v1::{self, ErrorCode, Role, StoreState, TableState};
use undb_proto::wire_error;
use undb_spec::API_VERSION;

impl Control {
    /// The objects asked for. A name that does not exist is an error; a kind without objects is not.
    pub(super) fn describe(&self, request: &v1::GetObjectsRequest) -> Result<Vec<Value>, v1::Error> {
        self.owned().map_err(|(error, _)| error)?;
        let kind = Kind::parse(&request.kind)?;
        let (state, now) = (self.0.meta.state(), self.now());
        self.0.heard.read(|heard| {
            let view = View::new(&state, heard, &self.0.settings, now);
            match kind {
                Kind::Tables => tables(&view, &request.name),
                Kind::Stores => stores(&view, &request.name),
                Kind::Shards => shards(&view, &request.name, &request.table),
                Kind::StoreClusters => store_clusters(&view, &request.name),
                Kind::Leases => leases(&view, &request.name),
            }
        })
    }
}

fn object(kind: &str, name: impl Into<String>, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name.into()}, "spec": spec, "status": status,
    })
}

/// An object whose spec is what was applied.
fn applied(spec_json: &str, status: Value) -> Value {
    let mut object: Value = serde_json::from_str(spec_json).unwrap_or_else(|_| json!({}));
    object["status"] = status;
    object
}

fn named<T>(found: Vec<T>, code: ErrorCode, kind: &str, name: &str) -> Result<Vec<T>, v1::Error> {
    if found.is_empty() && !name.is_empty() {
        return Err(wire_error(code, format!("there is no {kind} {name}")));
    }
    Ok(found)
}

fn tables(view: &View<'_>, name: &str) -> Result<Vec<Value>, v1::Error> {
    let live = view.state.tables().filter(|t| t.state() != TableState::TableDeleted);
    let found: Vec<Value> =
        live.filter(|t| name.is_empty() || t.name == name).map(|t| table(view, t)).collect();
    if found.is_empty()
        && let Some(deleted) = view.state.deleted_table(name)
    {
        let left_h = deleted.purge_after_ms.saturating_sub(view.now.wall_ms).div_ceil(3_600_000);
        let message = match left_h {
            0 => format!("table {name} was deleted and its data is being removed"),
            _ => format!(
                "table {name} was deleted; `undb undelete table {name}` brings it back within {left_h} hours"
            ),
        };
        return Err(wire_error(ErrorCode::TableNotFound, message));
    }
    named(found, ErrorCode::TableNotFound, "table", name)
}

/// How well a table's shards are.
#[derive(Default)]
pub(super) struct Health {
    pub shards: u64,
    pub available: u64,
    pub under_replicated: u64,
    pub live_keys: u64,
    pub live_bytes: u64,
}

pub(super) fn health(view: &View<'_>, table: &v1::TableRecord) -> Health {
    let mut health = Health::default();
    for record in view.state.table_shards(table.table_id) {
        health.shards += 1;
        let id = record.shard.as_ref().map_or(0, |s| s.shard_id);
        if let Some(leader) = view.leader(id) {
            health.available += u64::from(!record.bootstrapping);
            health.live_keys += leader.report.live_keys;
            health.live_bytes += leader.report.live_bytes;
        }
        health.under_replicated +=
            u64::from((view.live_voters(record) as u64) < u64::from(table.replication));
    }
    health
}

fn table(view: &View<'_>, record: &v1::TableRecord) -> Value {
    let health = health(view, record);
    let unled = health.shards - health.available;
    let ready = record.state() == TableState::TableReady && unled == 0;
    let reason = match () {
        () if !record.condition.is_empty() => record.condition.clone(),
        () if record.state() == TableState::TableCreating => "Creating: replicas are being made".into(),
        () if unled > 0 => format!("ShardsUnavailable: {unled} of {} have no leader", health.shards),
        () if health.under_replicated > 0 => {
            format!("UnderReplicated: {} of {} shards lack a replica", health.under_replicated, health.shards)
        }
        () => String::new(),
    };
    let status = json!({
        "ready": ready, "reason": reason, "state": state_word(record.state()), "tableId": record.table_id,
        "shards": health.shards, "shardsAvailable": health.available,
        "shardsUnderReplicated": health.under_replicated, "liveKeys": health.live_keys,
        "liveBytes": health.live_bytes, "replication": record.replication,
        "storeCluster": record.store_cluster, "createdAtMs": record.created_at_ms,
    });
    applied(&record.spec_json, status)
}

fn state_word(state: TableState) -> &'static str {
    match state {
        TableState::TableCreating => "Creating",
        TableState::TableReady => "Ready",
        TableState::TableDeleted => "Deleted",
        TableState::Unspecified => "Unknown",
    }
}

/// A store's condition in a word, and why it is not fine.
pub(super) fn store_condition(view: &View<'_>, store: &v1::StoreRecord) -> (&'static str, String) {
    let silent_ms = view.silent_ms(store.store_id);
    let silent = || format!("nothing was heard of it for {} s", silent_ms / 1000);
    match store.state() {
        StoreState::StoreRemoved if store.superseded_by.is_empty() => ("Removed", "it was removed".into()),
        StoreState::StoreRemoved => ("Removed", "a store with an empty disk took its place".into()),
        _ if silent_ms >= view.settings.down_ms => ("Down", silent()),
        _ if silent_ms >= view.settings.disconnected_ms => ("Disconnected", silent()),
        StoreState::StoreDraining => ("Draining", draining(view, store.store_id)),
        _ if view.observations.store(store.store_id).is_none() => ("Unknown", "not heard of yet".into()),
        _ if view.fresh(store.store_id).is_some_and(|seen| seen.stopping) => {
            ("Stopping", "it moves its leaders away and ends".into())
        }
        StoreState::StoreCordoned => ("Cordoned", "it gets no new replicas and no leaders".into()),
        _ => ("Up", String::new()),
    }
}

fn draining(view: &View<'_>, store_id: u64) -> String {
    match store_counts(view, store_id) {
        (0, _) => format!("it is empty; `undb remove store {store_id}` ends it"),
        (replicas, leaders) => format!("{replicas} replicas and {leaders} leaders are still to move"),
    }
}

/// Kind, phase and holder of a lease.
pub(super) fn lease_words(lease: &v1::DisruptionLease) -> String {
    let kind = lease.kind().as_str_name().trim_start_matches("DISRUPTION_KIND_");
    let phase = lease.phase().as_str_name().trim_start_matches("DISRUPTION_PHASE_");
    format!("{kind}, {phase}, of {}", lease.holder)
}

/// (replicas listed, leaders) of a store.
pub(super) fn store_counts(view: &View<'_>, store_id: u64) -> (u64, u64) {
    let lists =
        |s: &&v1::ShardRecord| s.shard.iter().flat_map(|s| &s.replicas).any(|r| r.store_id == store_id);
    let replicas = view.state.shards().filter(lists).count() as u64;
    let leaders = view.leaders().filter(|(_, l)| l.store_id == store_id).count() as u64;
    (replicas, leaders)
}

fn stores(view: &View<'_>, name: &str) -> Result<Vec<Value>, v1::Error> {
    let found = view.state.stores().filter(|s| name.is_empty() || s.store_id.to_string() == name);
    let objects = found.map(|store| {
        let (condition, reason) = store_condition(view, store);
        let (replicas, leaders) = store_counts(view, store.store_id);
        let stats = view.observations.store(store.store_id).map(|s| s.stats).unwrap_or_default();
        let spec = json!({
            "uuid": store.uuid, "address": store.address, "zone": store.zone, "storeCluster": store.store_cluster,
        });
        let status = json!({
            "ready": matches!(condition, "Up" | "Cordoned"), "reason": reason, "state": condition,
            "lease": view.lease(store.store_id).map(|l| format!("{}: {}", l.lease_id, lease_words(l))),
            "silentMs": view.silent_ms(store.store_id), "replicas": replicas, "leaders": leaders,
            "liveBytes": stats.live_bytes, "diskBytes": stats.disk_bytes,
            "capacityBytes": stats.capacity_bytes, "freeBytes": stats.free_bytes,
            "memoryBytes": stats.memory_bytes, "supersededBy": store.superseded_by,
        });
        object("Store", store.store_id.to_string(), spec, status)
    });
    named(objects.collect(), ErrorCode::NotFound, "store", name)
}

fn shards(view: &View<'_>, name: &str, table_name: &str) -> Result<Vec<Value>, v1::Error> {
    let mut objects = Vec::new();
    if !table_name.is_empty() && view.state.live_table(table_name).is_none() {
        return Err(wire_error(ErrorCode::TableNotFound, format!("there is no table {table_name}")));
    }
    for table in view.state.tables().filter(|t| t.state() != TableState::TableDeleted) {
        if !table_name.is_empty() && table.name != table_name {
            continue;
        }
        for record in view.state.table_shards(table.table_id) {
            if let Some(s) =
                record.shard.as_ref().filter(|s| name.is_empty() || s.shard_id.to_string() == name)
            {
                objects.push(shard(view, table, record, s));
            }
        }
    }
    named(objects, ErrorCode::NotFound, "shard", name)
}

/// Why a shard is not fine; empty when it is.
pub(super) fn shard_reason(
    view: &View<'_>,
    table: &v1::TableRecord,
    record: &v1::ShardRecord,
    shard: &v1::Shard,
) -> String {
    let live = view.live_voters(record);
    match () {
        () if record.bootstrapping && shard.replicas.is_empty() && table.condition.is_empty() => {
            "Creating: no replicas are placed yet".to_owned()
        }
        () if record.bootstrapping && shard.replicas.is_empty() => table.condition.clone(),
        () if record.bootstrapping => "Creating: replicas are being made".into(),
        () if view.leader(shard.shard_id).is_none() => {
            format!("NoLeader: {live} of {} replicas answer", shard.replicas.len())
        }
        () if live < table.replication as usize => {
            format!("UnderReplicated: {live} of {} replicas answer", table.replication)
        }
        () => String::new(),
    }
}

fn shard(view: &View<'_>, table: &v1::TableRecord, record: &v1::ShardRecord, shard: &v1::Shard) -> Value {
    let leader = view.leader(shard.shard_id);
    let reason = shard_reason(view, table, record, shard);
    let range = shard.range.clone().unwrap_or_default();
    let epoch = shard.epoch.unwrap_or_default();
    let spec = json!({
        "table": table.name, "start": readable(&range.start), "end": readable(&range.end),
    });
    let status = json!({
        "ready": leader.is_some() && !record.bootstrapping, "reason": reason,
        "epoch": {"version": epoch.version, "conf": epoch.conf},
        "leader": leader.map(|l| json!({"replica": l.report.replica_id, "store": l.store_id})),
        "term": leader.map(|l| l.report.term),
        "move": view.state.replica_move(shard.shard_id).map(|m| json!({
            "from": m.from_store_id, "to": m.to_store_id, "step": move_step(view, m).to_string(),
        })),
        "liveKeys": leader.map(|l| l.report.live_keys), "liveBytes": leader.map(|l| l.report.live_bytes),
        "replicas": shard.replicas.iter().map(|r| replica(view, r, leader)).collect::<Vec<_>>(),
    });
    object("Shard", shard.shard_id.to_string(), spec, status)
}

fn replica(view: &View<'_>, replica: &v1::Replica, leader: Option<undb_meta::plan::LeaderView<'_>>) -> Value {
    let report = view.report(replica.store_id, replica.replica_id);
    let role = if replica.role() == Role::Learner { "Learner" } else { "Voter" };
    let lag = leader.zip(report).map(|(l, r)| l.report.last_index.saturating_sub(r.last_index));
    json!({
        "replica": replica.replica_id, "store": replica.store_id, "role": role, "answers": report.is_some(),
        "lagEntries": lag, "fault": report.map(|r| r.fault.clone()).unwrap_or_default(),
        "lost": view.lost_replica(replica).map(Lost::as_str),
    })
}

/// A bound as text: printable ASCII as it is, the rest as \xNN; an end without bound is empty.
fn readable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn store_clusters(view: &View<'_>, name: &str) -> Result<Vec<Value>, v1::Error> {
    let found = view.state.store_clusters().filter(|s| name.is_empty() || s.name == name);
    let objects = found.map(|record| {
        let part: Vec<&v1::StoreRecord> = view.stores_of(&record.name).collect();
        let up = part.iter().filter(|s| matches!(store_condition(view, s).0, "Up" | "Cordoned")).count();
        let tables = view
            .state
            .tables()
            .filter(|t| t.store_cluster == record.name && t.state() != TableState::TableDeleted)
            .count();
        let wanted = serde_json::from_str::<Value>(&record.spec_json)
            .ok()
            .and_then(|v| v["spec"]["replicas"].as_u64())
            .unwrap_or(0);
        let ready = up as u64 >= wanted.max(1);
        let reason = match ready {
            true => String::new(),
            false => format!("InsufficientStores: {up} of {wanted} stores are up"),
        };
        let status =
            json!({"ready": ready, "reason": reason, "stores": part.len(), "storesUp": up, "tables": tables});
        applied(&record.spec_json, status)
    });
    named(objects.collect(), ErrorCode::NotFound, "storecluster", name)
}

fn leases(view: &View<'_>, name: &str) -> Result<Vec<Value>, v1::Error> {
    let found = view.state.disruption_leases().filter(|l| name.is_empty() || l.lease_id.to_string() == name);
    let objects = found.map(|lease| {
        let live = view.now.wall_ms < lease.expires_at_ms;
        let reason = match live {
            true => String::new(),
            false => "Expired: its stores count as down until they are proven up".into(),
        };
        let kind = lease.kind().as_str_name().trim_start_matches("DISRUPTION_KIND_");
        let phase = lease.phase().as_str_name().trim_start_matches("DISRUPTION_PHASE_");
        let spec = json!({
            "kind": kind, "stores": lease.stores, "holder": lease.holder, "grantedAtMs": lease.granted_at_ms,
            "maxDurationMs": lease.max_duration_ms,
        });
        let status = json!({
            "ready": live, "reason": reason, "phase": phase, "expiresAtMs": lease.expires_at_ms,
            "phaseForMs": view.now.wall_ms.saturating_sub(lease.phase_since_ms),
            "leftMs": lease.expires_at_ms.saturating_sub(view.now.wall_ms),
        });
        object("DisruptionLease", lease.lease_id.to_string(), spec, status)
    });
    named(objects.collect(), ErrorCode::NotFound, "lease", name)
}
