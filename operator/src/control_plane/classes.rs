//! Classes of stores that the control plane still has, and no StoreCluster asks for any more: they go, as
//! soon as nothing uses them. No finalizer: what the control plane has is compared with what there is.

use crate::apply::api;
use crate::control::ControlApi;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::workload::{FIELD_MANAGER, LABEL_MANAGED_BY};
use kube::ResourceExt;
use kube::api::ListParams;
use kube::runtime::events::EventType;
use serde_json::Value;
use undb_spec::k8s::{ControlPlane, StoreCluster};

/// One pass. A class that a table or a store uses stays, and an event says so.
pub(super) async fn forget(
    ctx: &Ctx,
    namespace: &str,
    parent: &ControlPlane,
    control: &dyn ControlApi,
) -> Result<()> {
    // IMPORTANT: asked before the list, so that one that was made in between is not taken for an old one.
    let known = control.get("storeclusters", "", "").await?;
    let ours: Vec<String> = known.iter().filter_map(|json| made_by_us(json)).collect();
    if ours.is_empty() {
        return Ok(());
    }
    let wanted = api::<StoreCluster>(ctx, namespace).list(&ListParams::default()).await?.items;
    for name in ours.into_iter().filter(|name| !wanted.iter().any(|w| w.name_any() == *name)) {
        match control.delete("storecluster", &name, false).await {
            Ok(_) => {
                let note = format!("the class of stores {name} is gone, as its StoreCluster is");
                ctx.event(parent, EventType::Normal, "StoreClusterForgotten", note).await;
            }
            Err(error @ Error::Control(_)) if !error.is_unreachable() => {
                tracing::debug!(%error, store_cluster = name, "kept");
                let note = format!("StoreCluster {name} is gone, its class of stores stays: {error}");
                ctx.event(parent, EventType::Normal, "StoreClusterKept", note).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Its name, unless a person made it.
fn made_by_us(json: &str) -> Option<String> {
    let object: Value = serde_json::from_str(json).ok()?;
    let metadata = object.get("metadata")?;
    let manager = metadata.get("labels")?.get(LABEL_MANAGED_BY)?.as_str()?;
    (manager == FIELD_MANAGER).then(|| metadata.get("name")?.as_str().map(String::from)).flatten()
}
