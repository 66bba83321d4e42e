//! The loop of the owner: plan, do, wait until something happens.
//!
//! Writes to metadata are done here, one after another, all shards of a round in one transaction.
//! Calls to stores run beside, one per subject; a failed one holds its subject for a moment.

use super::{Control, execute};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use undb_meta::DEFAULT_NAME;
use undb_meta::plan::{Action, Subject, Task, plan_and_waits};
use undb_proto::v1::{self, meta_command::Op};

const CALLS_MAX: usize = 64;
const DEBOUNCE: Duration = Duration::from_millis(20);

/// Subjects that a call works on now.
pub(super) type Busy = Arc<Mutex<BTreeSet<Subject>>>;

/// Never returns.
pub(super) async fn drive(control: Control) {
    let mut epochs = control.0.lease.epochs();
    loop {
        let epoch = *epochs.borrow_and_update();
        let Some(epoch) = epoch else {
            if epochs.changed().await.is_err() {
                return;
            }
            continue;
        };
        control.0.heard.begin(super::monotonic_ms(&control.0.clock));
        tokio::select! {
            () = own(&control, epoch) => {}
            _ = epochs.changed() => {}
        }
    }
}

/// Works under one lease.
async fn own(control: &Control, epoch: u64) {
    let busy = Busy::default();
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    let interval = Duration::from_millis(control.0.tuning.plan_interval_ms);
    let mut seen = control.0.meta.seen();
    loop {
        seen.borrow_and_update();
        if control.0.lease.held() == Some(epoch) {
            ensure_defaults(control, epoch).await;
            round(control, epoch, &busy, &calls).await;
        }
        tokio::select! {
            () = control.0.heard.stirred.notified() => {}
            _ = seen.changed() => {}
            () = tokio::time::sleep(interval) => {}
        }
        tokio::time::sleep(DEBOUNCE).await;
    }
}

async fn round(control: &Control, epoch: u64, busy: &Busy, calls: &Arc<Semaphore>) {
    let state = control.0.meta.state();
    let now = control.now();
    let plan = control.0.heard.read(|heard| plan_and_waits(&state, heard, &control.0.settings, now));
    metrics::gauge!("undb_control_planned_tasks").set(plan.tasks.len() as f64);
    metrics::gauge!("undb_control_waiting_tasks").set(plan.waits.len() as f64);
    metrics::gauge!("undb_control_replica_moves").set(state.replica_moves().count() as f64);
    let mut taken = BTreeSet::new();
    let mut shards = Vec::new();
    for task in plan.tasks {
        let subject = task.action.subject();
        if busy.lock().contains(&subject) || !taken.insert(subject) {
            continue;
        }
        match task.action {
            Action::PlaceReplicas { .. } | Action::PutShard { .. } => shards.push(task),
            Action::SetTable { .. } | Action::PurgeTable { .. } | Action::EndMove { .. } => {
                execute::record(control, epoch, task).await;
            }
            _ => spawn_call(control, epoch, busy, calls, task),
        }
    }
    execute::shards(control, epoch, shards).await;
}

fn spawn_call(control: &Control, epoch: u64, busy: &Busy, calls: &Arc<Semaphore>, task: Task) {
    let Ok(permit) = calls.clone().try_acquire_owned() else { return };
    let subject = task.action.subject();
    busy.lock().insert(subject);
    let guard = Guard { control: control.clone(), busy: busy.clone(), subject };
    let control = control.clone();
    control.clone().0.tasks.spawn("control-call", async move {
        let _held = (permit, guard);
        tokio::select! {
            () = control.0.tasks.shutdown().begun() => {}
            () = execute::call(&control, epoch, task) => {}
        }
    });
}

/// Frees a subject however the call ends, and lets the plan look again.
struct Guard {
    control: Control,
    busy: Busy,
    subject: Subject,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.busy.lock().remove(&self.subject);
        self.control.0.heard.stirred.notify_one();
    }
}

/// The store cluster and the table that are there from the start. The table is made once: whoever
/// deletes it does not get it back.
async fn ensure_defaults(control: &Control, epoch: u64) {
    let state = control.0.meta.state();
    if state.cluster().default_table_created {
        return;
    }
    if state.store_cluster(DEFAULT_NAME).is_none() {
        let spec = undb_spec::StoreCluster::new(
            undb_spec::StoreCluster::KIND,
            DEFAULT_NAME,
            undb_spec::StoreClusterSpec { replicas: control.0.tuning.stores_expected, ..default_spec() },
        );
        let record = v1::StoreClusterRecord {
            name: DEFAULT_NAME.into(),
            spec_json: undb_spec::Object::StoreCluster(spec).to_json(),
            revision: 0,
        };
        let op = Op::PutStoreCluster(v1::PutStoreCluster { store_cluster: Some(record) });
        if let Err(error) = control.0.meta.propose(epoch, op).await {
            tracing::warn!(%error, "default store cluster not created");
            return;
        }
    }
    let expected = control.0.tuning.stores_expected;
    let there = control.0.meta.state().stores().count();
    if there < expected as usize {
        return;
    }
    let mut table = undb_spec::Table::new(undb_spec::Table::KIND, DEFAULT_NAME, Default::default());
    // Two stores hold one copy each of different shards: a majority of two survives no loss.
    table.spec.replication.factor = if expected >= 3 { 3 } else { 1 };
    match control.create_table(epoch, &table).await {
        Ok(_) => tracing::info!(replication = table.spec.replication.factor, "default table created"),
        Err(error) => tracing::warn!(error = error.message, "default table not created"),
    }
}

fn default_spec() -> undb_spec::StoreClusterSpec {
    serde_json::from_str("{}").unwrap_or_default()
}
