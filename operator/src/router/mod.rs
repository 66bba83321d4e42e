//! Router: the processes that hand out routes, and the proxies in front. They keep nothing.
//!
//! ```text
//! ControlPlane is there --> routing Deployment, proxy Deployment, Service, budgets, policies --> status
//! changed: routing first, proxies once routing is done
//! ```
//! Where to look: the objects -> `build`; the order -> `reconcile`.

mod build;
mod reconcile;
#[cfg(test)]
mod tests;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::runtime::Controller;
use kube::runtime::controller::Action as Requeue;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use std::sync::Arc;
use std::time::Duration;
use undb_runtime::Shutdown;
use undb_spec::k8s::{ControlPlane, Router};

/// After a failure; the next pass reads everything anew.
const RETRY: Duration = Duration::from_secs(3);

/// Looks after all Routers until told to end.
pub async fn run(ctx: Arc<Ctx>, shutdown: Shutdown) -> Result<(), Error> {
    crate::scope::each(&ctx, |namespace| one(ctx.clone(), namespace, shutdown.clone())).await;
    Ok(())
}

async fn one(ctx: Arc<Ctx>, namespace: Option<String>, shutdown: Shutdown) {
    let scope = crate::scope::Scope::new(&ctx, namespace);
    let ours = watcher::Config::default().labels(crate::workload::LABEL_CONTROL_PLANE);
    let controller = Controller::new(scope.api::<Router>(), watcher::Config::default());
    let known = controller.store();
    controller
        .owns(scope.api::<Deployment>(), ours)
        .watches(scope.api::<ControlPlane>(), watcher::Config::default(), move |parent: ControlPlane| {
            let here = known.state();
            let here = here.iter().filter(|router| router.namespace() == parent.namespace());
            here.map(|router| ObjectRef::from_obj(router.as_ref())).collect::<Vec<_>>()
        })
        .graceful_shutdown_on(async move { shutdown.begun().await })
        .run(reconcile::reconcile, |_, _, _| Requeue::requeue(RETRY), ctx)
        .for_each(|done| async move {
            if let Err(error) = done {
                tracing::warn!(%error, "router not reconciled");
            }
        })
        .await;
}
