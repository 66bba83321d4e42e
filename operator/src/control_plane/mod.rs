//! ControlPlane: metadata, cluster control and access, and what they need before they run.
//!
//! ```text
//! identity -> certificates -> metadata -> control -> access     each is made at once,
//!                             `-- changed, each waits for the one before to be done
//! ```
//! The image is resolved once and kept in the status: an upgrade of the operator changes nothing. The
//! members of metadata are restarted one by one by eviction, the leader last, and never while a store is
//! down on purpose. No finalizer: what must outlive the object has no owner.
//!
//! Cluster control is a StatefulSet as well, though it keeps nothing: its members are dialled one by one,
//! by a name that stands in the certificate, and Pods of a Deployment have none.
//!
//! Where to look: what is wanted -> `wish`; the objects -> `build`; what there is -> `observe`; which member next -> `roll`; the
//! order -> `reconcile`; conditions -> `status`.

mod build;
mod classes;
mod observe;
mod reconcile;
mod roll;
mod status;
#[cfg(test)]
mod tests;
mod wish;

pub use wish::{Wish, resolve};

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::workload::LABEL_CONTROL_PLANE;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::runtime::Controller;
use kube::runtime::controller::Action as Requeue;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use std::sync::Arc;
use std::time::Duration;
use undb_runtime::Shutdown;
use undb_spec::k8s::{ControlPlane, Router, StoreCluster};

/// After a failure; the next pass reads everything anew.
const RETRY: Duration = Duration::from_secs(3);

/// Looks after all ControlPlanes until told to end.
pub async fn run(ctx: Arc<Ctx>, shutdown: Shutdown) -> Result<(), Error> {
    crate::scope::each(&ctx, |namespace| one(ctx.clone(), namespace, shutdown.clone())).await;
    Ok(())
}

async fn one(ctx: Arc<Ctx>, namespace: Option<String>, shutdown: Shutdown) {
    let scope = crate::scope::Scope::new(&ctx, namespace);
    let ours = watcher::Config::default().labels(LABEL_CONTROL_PLANE);
    let controller = Controller::new(scope.api::<ControlPlane>(), watcher::Config::default());
    // A new Router or StoreCluster needs its names in the certificate, before its Pods run.
    let (of_routers, of_stores) = (controller.store(), controller.store());
    controller
        .owns(scope.api::<StatefulSet>(), ours.clone())
        .owns(scope.api::<Deployment>(), ours.clone())
        .watches(scope.api::<Secret>(), ours.clone(), |secret| named_by_label(&secret))
        .watches(scope.api::<Pod>(), ours, |pod| named_by_label(&pod))
        .watches(scope.api::<Router>(), watcher::Config::default(), move |router: Router| {
            beside(&of_routers.state(), router.namespace())
        })
        .watches(scope.api::<StoreCluster>(), watcher::Config::default(), move |stores: StoreCluster| {
            beside(&of_stores.state(), stores.namespace())
        })
        .graceful_shutdown_on(async move { shutdown.begun().await })
        .run(reconcile::reconcile, |_, _, _| Requeue::requeue(RETRY), ctx)
        .for_each(|done| async move {
            if let Err(error) = done {
                tracing::warn!(%error, "control plane not reconciled");
            }
        })
        .await;
}

fn named_by_label<K: ResourceExt>(object: &K) -> Option<ObjectRef<ControlPlane>> {
    let name = object.labels().get(LABEL_CONTROL_PLANE)?;
    Some(ObjectRef::new(name).within(&object.namespace()?))
}

fn beside(known: &[Arc<ControlPlane>], namespace: Option<String>) -> Vec<ObjectRef<ControlPlane>> {
    let here = known.iter().filter(|found| found.namespace() == namespace);
    here.map(|found| ObjectRef::from_obj(found.as_ref())).collect()
}
