//! One pass over one Table.

use super::FINALIZER;
use super::status::{self, needs_a_person};
use crate::apply::{self, api};
use crate::conditions;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::store_cluster::wish::control_plane;
use crate::telemetry;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::controller::Action as Requeue;
use kube::runtime::events::EventType;
use kube::{Api, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use undb_sdk::Error as SdkError;
use undb_spec::DeletionPolicy;
use undb_spec::k8s::{ControlPlane, Table, TableSpec};

/// While shards are on their way: what happens in the control plane wakes nobody.
const BUSY: Duration = Duration::from_secs(3);
/// A look for its own sake.
const IDLE: Duration = Duration::from_secs(30);

/// One pass. What is given names the object only: it is read anew.
pub async fn reconcile(named: Arc<Table>, ctx: Arc<Ctx>) -> Result<Requeue> {
    let namespace = apply::namespace(named.as_ref())?;
    let Some(table) = api::<Table>(&ctx, &namespace).get_opt(&named.name_any()).await? else {
        return Ok(Requeue::await_change());
    };
    let outcome = match table.metadata.deletion_timestamp.is_some() {
        true => telemetry::reconcile("Table", leave(&ctx, &namespace, &table)).await,
        false => telemetry::reconcile("Table", keep(&ctx, &namespace, &table)).await,
    };
    match outcome {
        Err(error) if error.is_conflict() => Ok(Requeue::requeue(BUSY)),
        Err(error) => {
            report_failure(&ctx, &table, &error).await;
            match needs_a_person(&error) {
                true => Ok(Requeue::requeue(IDLE)),
                false => Err(error),
            }
        }
        requeue => requeue,
    }
}

/// The object as the control plane takes it: without what only Kubernetes has.
pub(super) fn object_json(table: &Table) -> String {
    let spec = TableSpec { control_plane_ref: None, ..table.spec.clone() };
    let object = undb_spec::Table::new(undb_spec::Table::KIND, &table.name_any(), spec);
    undb_spec::Object::Table(object).to_json()
}

async fn keep(ctx: &Ctx, namespace: &str, table: &Table) -> Result<Requeue> {
    let control_plane = of(ctx, namespace, table).await?;
    let is_leaving = control_plane.metadata.deletion_timestamp.is_some();
    if !is_leaving {
        hold(ctx, namespace, table).await?;
    }
    let name = table.name_any();
    let control = ctx.control.connect(namespace, &control_plane.name_any()).await?;
    let outcome = control.apply(object_json(table)).await?;
    if outcome.result != "unchanged" {
        tracing::info!(table = name, result = outcome.result, "table applied");
        let note = format!("the control plane says: {}", outcome.result);
        ctx.event(table, EventType::Normal, "Applied", note).await;
    }
    let found = match control.get("tables", &name, "").await {
        Err(Error::Control(SdkError::TableNotFound { .. })) => Vec::new(),
        found => found?,
    };
    let seen = found.first().and_then(|json| status::seen(json));
    let before = table.status.clone().unwrap_or_default();
    let now_ms = ctx.clock.now_ms();
    let status = status::of_table(seen.as_ref(), &before, table.metadata.generation, now_ms);
    apply::patch_status(ctx, table, table.status.as_ref(), &status).await?;
    let is_whole = conditions::is_true(&status.conditions, "FullyReplicated");
    Ok(Requeue::requeue(if is_whole { IDLE } else { BUSY }))
}

async fn of(ctx: &Ctx, namespace: &str, table: &Table) -> Result<ControlPlane> {
    let named = table.spec.control_plane_ref.as_ref().map(|named| named.name.as_str());
    control_plane(ctx, namespace, named).await
}

async fn hold(ctx: &Ctx, namespace: &str, table: &Table) -> Result<()> {
    if table.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(());
    }
    if is_terminating(ctx, namespace).await? {
        return Ok(());
    }
    let mut finalizers = table.finalizers().to_vec();
    finalizers.push(FINALIZER.into());
    set_finalizers(ctx, namespace, table, &finalizers).await
}

async fn let_go(ctx: &Ctx, namespace: &str, table: &Table) -> Result<Requeue> {
    // Its status was written since it was read, which is another version.
    let now = api::<Table>(ctx, namespace).get_opt(&table.name_any()).await?;
    let Some(table) = now.filter(|now| now.uid() == table.uid()) else {
        return Ok(Requeue::await_change());
    };
    let table = &table;
    let others: Vec<String> = table.finalizers().iter().filter(|f| *f != FINALIZER).cloned().collect();
    match set_finalizers(ctx, namespace, table, &others).await {
        Err(error) if error.is_not_found() => {}
        outcome => outcome?,
    }
    Ok(Requeue::await_change())
}

/// At the end of this process: when its own namespace goes, Pods go first and Tables after them, and nobody
/// would be there to let them go.
pub async fn release(ctx: &Ctx) -> Result<()> {
    let namespace = &ctx.settings.namespace;
    if !is_terminating(ctx, namespace).await? {
        return Ok(());
    }
    for table in api::<Table>(ctx, namespace).list(&ListParams::default()).await? {
        if table.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            let_go(ctx, namespace, &table).await?;
        }
    }
    Ok(())
}

/// With the version that was read, so that a finalizer of somebody else is not lost.
async fn set_finalizers(ctx: &Ctx, namespace: &str, table: &Table, finalizers: &[String]) -> Result<()> {
    let body = json!({"metadata": {
        "uid": table.uid(),
        "resourceVersion": table.resource_version(),
        "finalizers": finalizers,
    }});
    let api = api::<Table>(ctx, namespace);
    api.patch(&table.name_any(), &PatchParams::default(), &Patch::Merge(&body)).await?;
    Ok(())
}

async fn leave(ctx: &Ctx, namespace: &str, table: &Table) -> Result<Requeue> {
    if !table.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(Requeue::await_change());
    }
    let control_plane = match of(ctx, namespace, table).await {
        Err(Error::Missing { .. }) => None,
        found => Some(found?),
    };
    let control_plane = control_plane.filter(|found| found.metadata.deletion_timestamp.is_none());
    let Some(control_plane) = control_plane else { return let_go(ctx, namespace, table).await };
    if is_terminating(ctx, namespace).await? {
        return let_go(ctx, namespace, table).await;
    }
    let now = table.spec.deletion_policy == DeletionPolicy::Delete;
    let message = match now {
        true => "its data goes at once, as deletionPolicy says",
        false => "its data is kept for seven days and can be brought back by `undb undelete table`",
    };
    let before = table.status.clone().unwrap_or_default();
    let status = status::of_leaving(message, &before, table.metadata.generation, ctx.clock.now_ms());
    apply::patch_status(ctx, table, table.status.as_ref(), &status).await?;
    let name = table.name_any();
    let control = ctx.control.connect(namespace, &control_plane.name_any()).await?;
    match control.delete("table", &name, now).await {
        Ok(_) | Err(Error::Control(SdkError::TableNotFound { .. })) => {}
        Err(error) => return Err(error),
    }
    ctx.event(table, EventType::Normal, "Deleted", message).await;
    let_go(ctx, namespace, table).await
}

/// A namespace that goes takes its control plane with it. One that cannot be read is taken to stay.
async fn is_terminating(ctx: &Ctx, namespace: &str) -> Result<bool> {
    let namespaces: Api<Namespace> = Api::all(ctx.client.clone());
    match namespaces.get_opt(namespace).await.map_err(Error::from) {
        Ok(found) => Ok(found.is_none_or(|found| found.metadata.deletion_timestamp.is_some())),
        Err(error) if error.code() == Some(403) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn report_failure(ctx: &Ctx, table: &Table, error: &Error) {
    let before = table.status.clone().unwrap_or_default();
    let status = status::of_failure(error, &before, table.metadata.generation, ctx.clock.now_ms());
    let is_new = conditions::is_true(&status.conditions, "Stalled")
        && conditions::find(&before.conditions, "Stalled").map(|c| c.message.as_str())
            != conditions::find(&status.conditions, "Stalled").map(|c| c.message.as_str());
    if is_new {
        ctx.event(table, EventType::Warning, "Refused", error.to_string()).await;
    }
    if let Err(error) = apply::patch_status(ctx, table, table.status.as_ref(), &status).await {
        tracing::debug!(%error, "status not written");
    }
}
