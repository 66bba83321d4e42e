//! `undb status`: what is where, is it fine, and if not why and what to do.

use super::Control;
use super::describe::{health, store_condition, store_counts};
use crate::error::CallError;
use std::collections::BTreeMap;
use undb_meta::plan::View;
use undb_proto::v1::{self, StoreState, TableState};

const PROBLEMS_MAX: usize = 50;

impl Control {
    pub(super) fn status_now(&self, meta: Result<v1::MetaStatusResponse, CallError>) -> v1::StatusResponse {
        let (state, now) = (self.0.meta.state(), self.now());
        let mut problems = Vec::new();
        meta_problems(&meta, &mut problems);
        let mut status = self.0.heard.read(|heard| {
            let view = View::new(&state, heard, &self.0.settings, now);
            status_of(&view, &mut problems)
        });
        if problems.len() > PROBLEMS_MAX {
            let more = problems.len() - PROBLEMS_MAX;
            problems.truncate(PROBLEMS_MAX);
            problems.push(format!("... and {more} more; `undb get shards` lists them"));
        }
        status.cluster_id = state.cluster().cluster_id.clone();
        status.healthy = problems.is_empty();
        status.problems = problems;
        status.meta = meta.ok();
        status
    }
}

fn meta_problems(meta: &Result<v1::MetaStatusResponse, CallError>, problems: &mut Vec<String>) {
    match meta {
        Ok(meta) if meta.leader_member_id == 0 => {
            problems.push("metadata has no leader; start a majority of its members".into());
        }
        Ok(_) => {}
        Err(error) => problems.push(format!("metadata does not answer: {error}; check its processes")),
    }
}

fn status_of(view: &View<'_>, problems: &mut Vec<String>) -> v1::StatusResponse {
    let mut status = v1::StatusResponse::default();
    let mut of_class: BTreeMap<&String, v1::StoreClusterStatus> = BTreeMap::new();
    for store in view.state.stores().filter(|s| s.state() != StoreState::StoreRemoved) {
        let (condition, reason) = store_condition(view, store);
        let (replicas, leaders) = store_counts(view, store.store_id);
        let stats = view.observations.store(store.store_id).map(|s| s.stats);
        // Cordoned and drained is what somebody wants; where it cannot go on, the table says so.
        if !matches!(condition, "Up" | "Cordoned" | "Draining") {
            let next = match condition {
                "Down" => "its replicas are made again elsewhere where there is a store for them",
                "Disconnected" => "start it again; its replicas are made elsewhere once it counts as down",
                _ => "this passes by itself",
            };
            problems.push(format!(
                "store {} at {}: {condition}, {reason}; {next}",
                store.store_id, store.address
            ));
        }
        status.stores.push(v1::StoreStatus {
            store: Some(store.clone()),
            alive: matches!(condition, "Up" | "Cordoned" | "Stopping" | "Draining"),
            silent_ms: view.silent_ms(store.store_id),
            stats,
            replicas,
            leaders,
        });
    }
    for table in view.state.tables().filter(|t| t.state() != TableState::TableDeleted) {
        let health = health(view, table);
        status.tables += 1;
        status.shards += health.shards;
        status.shards_available += health.available;
        status.shards_under_replicated += health.under_replicated;
        let class = of_class.entry(&table.store_cluster).or_default();
        class.tables += 1;
        class.shards += health.shards;
        class.shards_available += health.available;
        class.shards_under_replicated += health.under_replicated;
        table_problems(table, &health, problems);
    }
    let named = |(name, class): (&String, v1::StoreClusterStatus)| v1::StoreClusterStatus {
        name: name.clone(),
        ..class
    };
    status.store_clusters = of_class.into_iter().map(named).collect();
    replica_problems(view, problems);
    status
}

fn table_problems(table: &v1::TableRecord, health: &super::describe::Health, problems: &mut Vec<String>) {
    let name = &table.name;
    if !table.condition.is_empty() {
        problems.push(format!("table {name}: {}; start more stores", table.condition));
    } else if table.state() == TableState::TableCreating {
        problems.push(format!("table {name} is being created; this passes by itself"));
    } else if health.available < health.shards {
        let unled = health.shards - health.available;
        problems.push(format!(
            "table {name}: {unled} of {} shards have no leader; start a majority of their stores",
            health.shards
        ));
    } else if health.under_replicated > 0 {
        problems.push(format!(
            "table {name}: {} of {} shards lack a replica; they are made again, or wait for their stores",
            health.under_replicated, health.shards
        ));
    }
}

/// Replicas that do not serve, and those that nobody knows: never deleted because a record is missing.
fn replica_problems(view: &View<'_>, problems: &mut Vec<String>) {
    for store in view.state.stores() {
        let Some(seen) = view.fresh(store.store_id) else { continue };
        for report in seen.replicas.values() {
            let shard_id = report.shard.as_ref().map_or(0, |s| s.shard_id);
            let replica = report.replica_id;
            if !report.fault.is_empty() {
                problems.push(format!(
                    "store {}: replica {replica} of shard {shard_id} does not serve: {}",
                    store.store_id, report.fault
                ));
            }
            if view.state.shard(shard_id).is_none() && !view.state.is_purged(shard_id) {
                problems.push(format!(
                    "store {}: replica {replica} belongs to shard {shard_id}, which metadata does not know; \
                     it is kept, look at it with `undb inspect`",
                    store.store_id
                ));
            }
        }
    }
}
