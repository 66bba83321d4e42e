//! `undb explain`: what is, what is wanted, what the plan would do now and why, and what it waits for.

use super::Control;
use super::describe::{health, shard_reason, store_condition, store_counts};
use super::stores::no_store;
use undb_meta::plan::{Action, Plan, Subject, View, move_step, plan_and_waits};
use undb_proto::v1::{self, ErrorCode, Role, TableState};
use undb_proto::wire_error;

/// Lines of one sort in an answer; the rest is counted.
const LINES_MAX: usize = 20;

impl Control {
    /// The lines for one shard, store or table.
    pub(super) fn explain_now(&self, request: &v1::ExplainRequest) -> Result<Vec<String>, v1::Error> {
        self.owned().map_err(|(error, _)| error)?;
        let (state, now, name) = (self.0.meta.state(), self.now(), &request.name[..]);
        self.0.heard.read(|heard| {
            let plan = plan_and_waits(&state, heard, &self.0.settings, now);
            let view = View::new(&state, heard, &self.0.settings, now);
            match &request.kind.to_ascii_lowercase()[..] {
                "shard" | "shards" => explain_shard(&view, &plan, number("shard", name)?),
                "store" | "stores" | "ust" => explain_store(&view, &plan, number("store", name)?),
                "table" | "tables" | "utb" => explain_table(&view, &plan, name),
                other => {
                    let message =
                        format!("`{other}` cannot be explained; ask for a shard, a store or a table");
                    Err(wire_error(ErrorCode::InvalidArgument, message))
                }
            }
        })
    }
}

fn number(kind: &str, name: &str) -> Result<u64, v1::Error> {
    name.parse().map_err(|_| {
        let message = format!("`{name}` is not the number of a {kind}; `undb get {kind}s` lists them");
        wire_error(ErrorCode::InvalidArgument, message)
    })
}

fn explain_shard(view: &View<'_>, plan: &Plan, id: u64) -> Result<Vec<String>, v1::Error> {
    let missing =
        || wire_error(ErrorCode::NotFound, format!("there is no shard {id}; `undb get shards` lists them"));
    let record = view.state.shard(id).ok_or_else(missing)?;
    let shard = record.shard.as_ref().ok_or_else(missing)?;
    let table = view.state.table(shard.table_id).ok_or_else(missing)?;
    let epoch = shard.epoch.unwrap_or_default();
    let range = shard.range.clone().unwrap_or_default();
    let mut lines = vec![format!(
        "shard {id} of table {}, keys {}..{}, epoch {}.{}",
        table.name,
        range.start.escape_ascii(),
        range.end.escape_ascii(),
        epoch.version,
        epoch.conf
    )];
    lines.extend(shard.replicas.iter().map(|r| replica_line(view, id, r)));
    let reason = shard_reason(view, table, record, shard);
    lines.push(match reason.is_empty() {
        true => "is fine: it has its replicas and a leader".into(),
        false => format!("is not fine: {reason}"),
    });
    lines.push(format!(
        "wanted: {} replicas that vote, on stores of StoreCluster {}; at least {} of them available",
        table.replication, table.store_cluster, table.min_available
    ));
    if let Some(found) = view.state.replica_move(id) {
        lines.push(format!(
            "move: from store {} to store {}: {}",
            found.from_store_id,
            found.to_store_id,
            move_step(view, found)
        ));
    }
    for replica in &shard.replicas {
        lines.extend(lease_line(view, replica.store_id));
    }
    let replicas: Vec<u64> = shard.replicas.iter().map(|r| r.replica_id).collect();
    planned(&mut lines, plan, |action| match action.subject() {
        Subject::Shard(shard_id) | Subject::Move(shard_id) => shard_id == id,
        Subject::Replica(replica_id) => {
            replicas.contains(&replica_id)
                || matches!(action, Action::DestroyReplica { shard_id, .. } if *shard_id == id)
        }
        Subject::Table(_) => false,
    });
    waiting(&mut lines, plan.waits.iter().filter(|w| w.shard_id == id).map(|w| w.reason.clone()).collect());
    Ok(lines)
}

fn replica_line(view: &View<'_>, shard_id: u64, replica: &v1::Replica) -> String {
    let (id, store_id) = (replica.replica_id, replica.store_id);
    let leader = view.leader(shard_id);
    let role = match replica.role() {
        _ if leader.is_some_and(|l| l.report.replica_id == id) => "leader",
        Role::Learner => "learner, does not vote yet",
        _ => "voter",
    };
    let is = match view.report(store_id, id) {
        None => "does not answer".into(),
        Some(report) if !report.fault.is_empty() => format!("does not serve: {}", report.fault),
        Some(report) => match leader {
            Some(leader) => {
                format!("{} entries behind", leader.report.last_index.saturating_sub(report.last_index))
            }
            None => "answers".into(),
        },
    };
    let lost = view.lost_replica(replica).map_or_else(String::new, |why| format!("; its store {why}"));
    format!("replica {id} on store {store_id}: {role}, {is}{lost}")
}

fn lease_line(view: &View<'_>, store_id: u64) -> Option<String> {
    let lease = view.lease(store_id)?;
    let left_ms = lease.expires_at_ms.saturating_sub(view.now.wall_ms);
    let until = match left_ms {
        0 => "expired, and its stores still count as down".to_owned(),
        _ => format!("its holder has {} s to be heard of again", left_ms.div_ceil(1000)),
    };
    let words = super::describe::lease_words(lease);
    Some(format!("store {store_id} is under disruption lease {}: {words}, {until}", lease.lease_id))
}

fn explain_store(view: &View<'_>, plan: &Plan, id: u64) -> Result<Vec<String>, v1::Error> {
    let store = view.state.store(id).ok_or_else(|| no_store(id))?;
    let (condition, reason) = store_condition(view, store);
    let (replicas, leaders) = store_counts(view, id);
    let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
    let mut lines = vec![
        format!(
            "store {id} at {}, StoreCluster {}, zone `{}`",
            store.address, store.store_cluster, store.zone
        ),
        format!("is {condition}{reason}; {replicas} replicas, {leaders} leaders"),
    ];
    lines.extend(lease_line(view, id));
    if let Some(why) = view.leaders_leave(id) {
        lines.push(format!("wanted: no leaders on it, {why}"));
    }
    if let Some(why) = view.lost(id) {
        lines.push(format!("wanted: no replicas on it, it {why}"));
    }
    if view.lost(id).is_none()
        && let Some(why) = view.refuses(id)
    {
        lines.push(format!("it takes no new replicas now: it {why}"));
    }
    let on = |shard_id: u64| {
        let shard = view.state.shard(shard_id).and_then(|s| s.shard.as_ref());
        shard.is_some_and(|s| s.replicas.iter().any(|r| r.store_id == id))
    };
    planned(&mut lines, plan, |action| match action {
        Action::CreateReplica { store_id, .. } | Action::DestroyReplica { store_id, .. } => *store_id == id,
        Action::PlaceReplicas { stores, .. } if stores.contains(&id) => true,
        other => match other.subject() {
            Subject::Shard(shard_id) | Subject::Move(shard_id) => on(shard_id),
            Subject::Replica(_) | Subject::Table(_) => false,
        },
    });
    let waits = plan.waits.iter().filter(|w| w.store_id == id);
    waiting(&mut lines, waits.map(|w| format!("shard {}: {}", w.shard_id, w.reason)).collect());
    Ok(lines)
}

fn explain_table(view: &View<'_>, plan: &Plan, name: &str) -> Result<Vec<String>, v1::Error> {
    let Some(table) = view.state.live_table(name) else {
        let message = format!("there is no table {name}; `undb get tables` lists them");
        return Err(wire_error(ErrorCode::TableNotFound, message));
    };
    let health = health(view, table);
    let state = match table.state() {
        TableState::TableReady => "ready",
        TableState::TableCreating => "being created",
        _ => "in a state that this build does not know",
    };
    let mut lines = vec![format!(
        "table {name}: {state}; {} of {} shards have a leader, {} lack a replica",
        health.available, health.shards, health.under_replicated
    )];
    lines.push(format!(
        "wanted: {} replicas of each shard on stores of StoreCluster {}, at least {} of them available",
        table.replication, table.store_cluster, table.min_available
    ));
    if let Some(condition) = plan.short.get(&table.table_id) {
        lines.push(format!("blocked: {condition}; start more stores"));
    }
    let shards: Vec<u64> = view
        .state
        .table_shards(table.table_id)
        .iter()
        .filter_map(|s| s.shard.as_ref())
        .map(|s| s.shard_id)
        .collect();
    planned(&mut lines, plan, |action| match action {
        Action::CreateReplica { shard, .. } => shards.contains(&shard.shard_id),
        Action::DestroyReplica { shard_id, .. } => shards.contains(shard_id),
        other => match other.subject() {
            Subject::Shard(id) | Subject::Move(id) => shards.contains(&id),
            Subject::Table(id) => id == table.table_id,
            Subject::Replica(_) => false,
        },
    });
    let waits = plan.waits.iter().filter(|w| shards.contains(&w.shard_id));
    waiting(&mut lines, waits.map(|w| format!("shard {}: {}", w.shard_id, w.reason)).collect());
    Ok(lines)
}

fn planned(lines: &mut Vec<String>, plan: &Plan, concerns: impl Fn(&Action) -> bool) {
    let tasks = plan.tasks.iter().filter(|t| concerns(&t.action));
    let all: Vec<String> = tasks.map(|t| format!("{}: {}", t.action.name(), t.reason)).collect();
    match all.is_empty() {
        true => lines.push("next: nothing to do".into()),
        false => capped(lines, "next", all),
    }
}

fn waiting(lines: &mut Vec<String>, waits: Vec<String>) {
    capped(lines, "waits", waits);
}

fn capped(lines: &mut Vec<String>, title: &str, all: Vec<String>) {
    let more = all.len().saturating_sub(LINES_MAX);
    lines.extend(all.into_iter().take(LINES_MAX).map(|line| format!("{title}: {line}")));
    if more > 0 {
        lines.push(format!("{title}: ... and {more} more"));
    }
}
