//! StoreCluster and its Stores.
//!
//! ```text
//! observe (API server, control plane: uncached) --> plan (pure) --> act (through `World`) --> status
//! ```
//! Where to look: what is decided and why -> `plan`; what a disruption is made of -> `act`; the objects
//! -> `build`; conditions -> `status`. State lives in the objects, the leases and the fences: a pass that
//! is cut off anywhere is gone on with by the next.

pub mod act;
pub mod build;
pub mod kube_world;
pub mod model;
pub mod observe;
pub mod plan;
mod reconcile;
pub mod status;
pub mod store_status;
#[cfg(test)]
mod tests;
pub mod wish;
pub mod world;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::Controller;
use kube::runtime::controller::{Action as Requeue, Config};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use std::sync::Arc;
use std::time::Duration;
use undb_runtime::Shutdown;
use undb_spec::k8s::{Store, StoreCluster};

/// After a failure; the next pass reads everything anew.
const RETRY: Duration = Duration::from_secs(3);
/// StoreClusters at work at once.
const CONCURRENCY: u16 = 8;

/// Looks after all StoreClusters until told to end.
pub async fn run(ctx: Arc<Ctx>, shutdown: Shutdown) -> Result<(), Error> {
    crate::scope::each(&ctx, |namespace| one(ctx.clone(), namespace, shutdown.clone())).await;
    Ok(())
}

async fn one(ctx: Arc<Ctx>, namespace: Option<String>, shutdown: Shutdown) {
    let scope = crate::scope::Scope::new(&ctx, namespace);
    let ours = watcher::Config::default().labels(crate::workload::LABEL_STORE_CLUSTER);
    let controller = Controller::new(scope.api::<StoreCluster>(), watcher::Config::default())
        .with_config(Config::default().concurrency(CONCURRENCY));
    let known = controller.store();
    let of_node = move |_: Node| {
        known
            .state()
            .iter()
            .map(|c| ObjectRef::from_obj(c.as_ref()))
            .collect::<Vec<ObjectRef<StoreCluster>>>()
    };
    controller
        .owns(scope.api::<Store>(), watcher::Config::default())
        .watches(scope.api::<Pod>(), ours, |pod: Pod| {
            let cluster = reconcile::cluster_of(&pod)?;
            Some(ObjectRef::<StoreCluster>::new(&cluster).within(&pod.namespace()?))
        })
        .watches(Api::<Node>::all(ctx.client.clone()), watcher::Config::default(), of_node)
        .graceful_shutdown_on(async move { shutdown.begun().await })
        .run(reconcile::reconcile, again, ctx)
        .for_each(|done| async move {
            if let Err(error) = done {
                tracing::warn!(%error, "store cluster not reconciled");
            }
        })
        .await;
}

fn again(_: Arc<StoreCluster>, _: &Error, _: Arc<Ctx>) -> Requeue {
    Requeue::requeue(RETRY)
}
