//! Doing one task, with the authority of the lease. A failure is logged and planned again.

use super::{Control, monotonic_ms};
use crate::error::CallError;
use std::time::Duration;
use undb_meta::plan::{Action, Task};
use undb_proto::v1::{self, meta_command::Op};
use undb_proto::wire_error;

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A change of members waits for a new replica to catch up; asked again, it goes on.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// Writes of shard records, as one transaction; ids for new replicas come first.
pub(super) async fn shards(control: &Control, epoch: u64, tasks: Vec<Task>) {
    if tasks.is_empty() {
        return;
    }
    let new = tasks.iter().map(|t| match &t.action {
        Action::PlaceReplicas { stores, .. } => stores.len(),
        _ => 0,
    });
    let count = u32::try_from(new.sum::<usize>()).unwrap_or(u32::MAX);
    let mut next_id = 0;
    if count > 0 {
        let op = Op::AllocateIds(v1::AllocateIds { count });
        match control.0.meta.propose(epoch, op).await {
            Ok(result) => next_id = result.first_id,
            Err(error) => return tracing::warn!(%error, "ids not allocated"),
        }
    }
    let mut records = Vec::with_capacity(tasks.len());
    for task in tasks {
        let name = task.action.name();
        match task.action {
            Action::PutShard { record } => records.push(record),
            Action::PlaceReplicas { mut record, stores, role } => {
                if let Some(shard) = record.shard.as_mut() {
                    for store_id in stores {
                        let role = role as i32;
                        shard.replicas.push(v1::Replica { replica_id: next_id, store_id, role });
                        next_id += 1;
                    }
                }
                records.push(record);
            }
            _ => continue,
        }
        log_task(name, records.last().and_then(|r| r.shard.as_ref()).map_or(0, |s| s.shard_id), &task.reason);
    }
    let op = Op::PutShards(v1::PutShards { shards: records });
    if let Err(error) = control.0.meta.propose(epoch, op).await {
        failed("put_shards", &error);
    }
}

/// What is written about a table or a move.
pub(super) async fn record(control: &Control, epoch: u64, task: Task) {
    let name = task.action.name();
    let (id, op) = match task.action {
        Action::SetTable { table_id, state, condition, expected_revision } => {
            let state = state as i32;
            (table_id, Op::SetTableState(v1::SetTableState { table_id, state, condition, expected_revision }))
        }
        Action::PurgeTable { table_id } => (table_id, Op::PurgeTable(v1::PurgeTable { table_id })),
        Action::EndMove { shard_id, from_replica_id } => {
            (shard_id, Op::EndMove(v1::EndMove { shard_id, from_replica_id }))
        }
        _ => return,
    };
    match control.0.meta.propose(epoch, op).await {
        Ok(_) => log_task(name, id, &task.reason),
        Err(error) => failed(name, &error),
    }
}

/// A call to a store; afterwards the store is asked what it has now, so that the next step follows at
/// once and not with the next heartbeat.
pub(super) async fn call(control: &Control, epoch: u64, task: Task) {
    let name = task.action.name();
    let (store_id, shard_id) = match &task.action {
        Action::CreateReplica { store_id, shard, .. } => (*store_id, shard.shard_id),
        Action::ChangeMembers { store_id, shard_id, .. }
        | Action::TransferLeader { store_id, shard_id, .. }
        | Action::DestroyReplica { store_id, shard_id, .. } => (*store_id, *shard_id),
        _ => return,
    };
    log_task(name, shard_id, &task.reason);
    // The old leader answers when it sees another one; who has asked for a transfer hears it from the new
    // one itself.
    let mut asked = vec![store_id];
    if let Action::TransferLeader { shard_id, to_replica_id, .. } = &task.action {
        control.0.heard.moved_leader(*shard_id, monotonic_ms(&control.0.clock));
        asked.extend(store_of(control, *shard_id, *to_replica_id));
    }
    let done = run(control, epoch, store_id, task.action).await;
    let outcome = if done.is_ok() { "done" } else { "failed" };
    metrics::counter!("undb_control_tasks_total", "task" => name, "outcome" => outcome).increment(1);
    if let Err(error) = &done {
        tracing::warn!(task = name, store = store_id, shard = shard_id, %error, "task failed");
    }
    for store_id in asked {
        if let Err(error) = list(control, epoch, store_id).await {
            tracing::debug!(store = store_id, %error, "store not listed");
        }
    }
    if done.is_err() {
        tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
    }
}

fn store_of(control: &Control, shard_id: u64, replica_id: u64) -> Option<u64> {
    let state = control.0.meta.state();
    let replicas = &state.shard(shard_id)?.shard.as_ref()?.replicas;
    replicas.iter().find(|r| r.replica_id == replica_id).map(|r| r.store_id)
}

async fn run(control: &Control, epoch: u64, store_id: u64, action: Action) -> Result<(), CallError> {
    let state = control.0.meta.state();
    let authority = Some(authority(control, epoch, store_id));
    let mut client = client(control, store_id)?;
    match action {
        Action::CreateReplica { shard, replica_id, bootstrap, .. } => {
            let table = state.table(shard.table_id).and_then(|t| t.options.clone());
            let request =
                v1::CreateReplicaRequest { authority, shard: Some(shard), replica_id, table, bootstrap };
            outcome(within(CALL_TIMEOUT, client.create_replica(request)).await?)
        }
        Action::DestroyReplica { shard_id, replica_id, epoch, .. } => {
            let epoch = Some(epoch.into());
            let request = v1::DestroyReplicaRequest { authority, shard_id, replica_id, epoch };
            outcome(within(CALL_TIMEOUT, client.destroy_replica(request)).await?)
        }
        Action::TransferLeader { shard_id, to_replica_id, .. } => {
            let request = v1::TransferLeaderRequest { authority, shard_id, to_replica_id };
            outcome(within(CALL_TIMEOUT, client.transfer_leader(request)).await?)
        }
        Action::ChangeMembers { shard_id, expected, replicas, .. } => {
            let expected = Some(expected.into());
            let request = v1::ChangeMembersRequest { authority, shard_id, expected, replicas };
            let response = within(CHANGE_TIMEOUT, client.change_members(request)).await?;
            outcome(v1::Outcome { error: response.error })
        }
        _ => Ok(()),
    }
}

async fn list(control: &Control, epoch: u64, store_id: u64) -> Result<(), CallError> {
    let mut client = client(control, store_id)?;
    let asked_ms = monotonic_ms(&control.0.clock);
    let request = v1::ListReplicasRequest { authority: Some(authority(control, epoch, store_id)) };
    let response = within(LIST_TIMEOUT, client.list_replicas(request)).await?;
    outcome(v1::Outcome { error: response.error })?;
    control.0.heard.listed(store_id, response.replicas, asked_ms);
    Ok(())
}

fn authority(control: &Control, epoch: u64, store_id: u64) -> v1::Authority {
    let state = control.0.meta.state();
    let cluster = state.cluster();
    v1::Authority {
        cluster_id: cluster.cluster_id.clone(),
        incarnation: cluster.incarnation,
        control_lease: epoch,
        store_id,
    }
}

fn client(
    control: &Control,
    store_id: u64,
) -> Result<v1::store_client::StoreClient<undb_runtime::rpc::AuthChannel>, CallError> {
    let state = control.0.meta.state();
    let address = state.store(store_id).map(|s| s.address.clone()).unwrap_or_default();
    if address.is_empty() {
        return Err(CallError::Unavailable(format!("the address of store {store_id} is not known")));
    }
    control.0.stores.at(&address).map_err(|e| CallError::Unavailable(e.to_string()))
}

async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(CallError::Unavailable(status.message().to_owned())),
        Err(_) => Err(CallError::Refused(wire_error(
            v1::ErrorCode::DeadlineExceeded,
            format!("no answer within {} s", limit.as_secs()),
        ))),
    }
}

fn outcome(outcome: v1::Outcome) -> Result<(), CallError> {
    outcome.error.map_or(Ok(()), |error| Err(CallError::Refused(error)))
}

fn log_task(task: &'static str, id: u64, reason: &str) {
    tracing::info!(task, id, reason, "task begun");
}

fn failed(task: &'static str, error: &CallError) {
    metrics::counter!("undb_control_tasks_total", "task" => task, "outcome" => "failed").increment(1);
    tracing::warn!(task, %error, "task failed");
}
