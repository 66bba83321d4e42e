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
    let namespaces = &ctx.settings.watch_namespaces;
    let watched: Vec<Option<&String>> =
        if namespaces.is_empty() { vec![None] } else { namespaces.iter().map(Some).collect() };
    let controllers = watched.into_iter().map(|namespace| one(ctx.clone(), namespace, shutdown.clone()));
    futures::future::join_all(controllers).await;
    Ok(())
}

async fn one(ctx: Arc<Ctx>, namespace: Option<&String>, shutdown: Shutdown) {
    fn all<K>(ctx: &Ctx, namespace: Option<&String>) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        match namespace {
            Some(namespace) => Api::namespaced(ctx.client.clone(), namespace),
            None => Api::all(ctx.client.clone()),
        }
    }
    let ours = watcher::Config::default().labels(crate::workload::LABEL_STORE_CLUSTER);
    let controller = Controller::new(all::<StoreCluster>(&ctx, namespace), watcher::Config::default())
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
        .owns(all::<Store>(&ctx, namespace), watcher::Config::default())
        .watches(all::<Pod>(&ctx, namespace), ours, |pod: Pod| {
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
