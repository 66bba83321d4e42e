//! Table: the same object as `undb apply` takes, kept equal in the control plane.
//!
//! ```text
//! here: finalizer -> apply -> status from the control plane
//! gone: delete there (Retain: it can be brought back for seven days; Delete: at once) -> finalizer off
//! ```
//! The finalizer never keeps anybody waiting for a control plane that goes as well: with its
//! ControlPlane, or with the namespace.
//!
//! Where to look: what a pass does -> `reconcile`; words -> `status`.

mod reconcile;
mod status;
#[cfg(test)]
mod tests;

pub use reconcile::release;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use futures::StreamExt;
use kube::ResourceExt;
use kube::runtime::Controller;
use kube::runtime::controller::{Action as Requeue, Config};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use std::sync::Arc;
use std::time::Duration;
use undb_runtime::Shutdown;
use undb_spec::k8s::{ControlPlane, Table};

/// Keeps a Table until the control plane has been told that it goes.
pub const FINALIZER: &str = "undb.io/table";
/// After a failure; the next pass reads everything anew.
const RETRY: Duration = Duration::from_secs(5);
/// Tables at work at once: there may be thousands.
const CONCURRENCY: u16 = 16;

/// Looks after all Tables until told to end.
pub async fn run(ctx: Arc<Ctx>, shutdown: Shutdown) -> Result<(), Error> {
    crate::scope::each(&ctx, |namespace| one(ctx.clone(), namespace, shutdown.clone())).await;
    Ok(())
}

async fn one(ctx: Arc<Ctx>, namespace: Option<String>, shutdown: Shutdown) {
    let scope = crate::scope::Scope::new(&ctx, namespace);
    let controller = Controller::new(scope.api::<Table>(), watcher::Config::default())
        .with_config(Config::default().concurrency(CONCURRENCY));
    let known = controller.store();
    // Only what goes: a control plane's own changes would wake every table at once.
    let of_control_plane = move |parent: ControlPlane| {
        let here = known.state();
        let is_leaving = parent.metadata.deletion_timestamp.is_some();
        let waiting = here.iter().filter(|table| {
            table.namespace() == parent.namespace()
                && (is_leaving || table.metadata.deletion_timestamp.is_some())
        });
        waiting.map(|table| ObjectRef::from_obj(table.as_ref())).collect::<Vec<_>>()
    };
    controller
        .watches(scope.api::<ControlPlane>(), watcher::Config::default(), of_control_plane)
        .graceful_shutdown_on(async move { shutdown.begun().await })
        .run(reconcile::reconcile, |_, _, _| Requeue::requeue(RETRY), ctx)
        .for_each(|done| async move {
            if let Err(error) = done {
                tracing::warn!(%error, "table not reconciled");
            }
        })
        .await;
}
