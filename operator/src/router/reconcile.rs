//! One pass over one Router.

use super::build::{self, Wish};
use crate::apply::{self, Object, api, apply_if_changed, owner_reference};
use crate::conditions::{self, Said};
use crate::config;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::store_cluster::wish::control_plane;
use crate::telemetry;
use crate::workload::{
    KUBELET_STALLING, LABEL_COMPONENT, Progress, Role, kubelet_trouble, progress, selector,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::controller::Action as Requeue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use undb_spec::k8s::{Router, RouterStatus};

const BUSY: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(60);

/// One pass. What is given names the object only: it is read anew.
pub async fn reconcile(named: Arc<Router>, ctx: Arc<Ctx>) -> Result<Requeue> {
    let namespace = apply::namespace(named.as_ref())?;
    let found = api::<Router>(&ctx, &namespace).get_opt(&named.name_any()).await?;
    let Some(parent) = found.filter(|parent| parent.metadata.deletion_timestamp.is_none()) else {
        return Ok(Requeue::await_change());
    };
    match telemetry::reconcile("Router", pass(&ctx, &namespace, &parent)).await {
        Err(error) if error.is_conflict() => Ok(Requeue::requeue(BUSY)),
        Err(error) => {
            let status = failed(&parent, &error, ctx.clock.now_ms());
            if let Err(error) = apply::patch_status(&ctx, &parent, parent.status.as_ref(), &status).await {
                tracing::debug!(%error, "status not written");
            }
            Err(error)
        }
        requeue => requeue,
    }
}

async fn pass(ctx: &Ctx, namespace: &str, parent: &Router) -> Result<Requeue> {
    let named = parent.spec.control_plane_ref.as_ref().map(|named| named.name.as_str());
    let control_plane = control_plane(ctx, namespace, named).await?;
    let wish = build::resolve(parent, &control_plane, &ctx.settings.image)?;
    let (routing, proxy) = match parent.spec.paused {
        true => look(ctx, namespace, &wish).await?,
        false => {
            keep_image(ctx, parent, &wish).await?;
            around(ctx, parent, &wish).await?;
            parts(ctx, namespace, parent, &wish).await?
        }
    };
    let is_still = routing.is_done && proxy.is_done;
    let trouble = if is_still { None } else { trouble(ctx, namespace, &wish).await? };
    let status = status(parent, &wish, &Seen { routing, proxy, trouble }, ctx.clock.now_ms());
    apply::patch_status(ctx, parent, parent.status.as_ref(), &status).await?;
    Ok(Requeue::requeue(if is_still { IDLE } else { BUSY }))
}

/// IMPORTANT: before the first object is made from it, as for a ControlPlane.
async fn keep_image(ctx: &Ctx, parent: &Router, wish: &Wish) -> Result<()> {
    let mut status = parent.status.clone().unwrap_or_default();
    if status.image.as_ref() == Some(&wish.image) {
        return Ok(());
    }
    status.image = Some(wish.image.clone());
    apply::patch_status(ctx, parent, parent.status.as_ref(), &status).await.map(|_| ())
}

async fn around(ctx: &Ctx, parent: &Router, wish: &Wish) -> Result<()> {
    keep(ctx, build::service(parent, wish)?).await?;
    for object in build::budgets(parent, wish)? {
        keep(ctx, object).await?;
    }
    for object in build::policies(parent, wish)? {
        keep(ctx, object).await?;
    }
    Ok(())
}

async fn keep<K: Object>(ctx: &Ctx, object: K) -> Result<()> {
    let existing = api::<K>(ctx, &apply::namespace(&object)?).get_opt(&object.name_any()).await?;
    apply_if_changed(ctx, object, existing.as_ref()).await
}

/// Routing first: a proxy of a newer version asks a routing process of at least its own.
async fn parts(ctx: &Ctx, namespace: &str, parent: &Router, wish: &Wish) -> Result<(Progress, Progress)> {
    let routing = part(ctx, namespace, parent, wish, Role::Routing, Turn::Now).await?;
    let turn = if routing.is_done { Turn::Now } else { Turn::Later };
    let proxy = part(ctx, namespace, parent, wish, Role::Proxy, turn).await?;
    Ok((routing, proxy))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Now,
    /// Made if it is missing, not changed.
    Later,
}

async fn part(
    ctx: &Ctx,
    namespace: &str,
    parent: &Router,
    wish: &Wish,
    role: Role,
    turn: Turn,
) -> Result<Progress> {
    let owner = owner_reference(parent)?;
    let map = config::config_map(&wish.instance, role, &wish.config(role), Some(owner));
    if api::<ConfigMap>(ctx, namespace).get_opt(&map.name_any()).await?.is_none() {
        apply::server_side_apply(ctx, &map).await?;
    }
    let wanted = build::pods(parent, wish, role, &map.name_any())?;
    let existing = api::<Deployment>(ctx, namespace).get_opt(&wanted.name_any()).await?;
    if turn == Turn::Now || existing.is_none() {
        apply_if_changed(ctx, wanted.clone(), existing.as_ref()).await?;
    }
    let Some(found) = existing else { return Ok(Progress::default()) };
    let is_current = !apply::stamped(wanted, Some(&found)).1;
    let mut progress = progress(&found);
    progress.is_done &= is_current;
    if progress.is_done {
        forget(ctx, namespace, wish, role, &map.name_any()).await?;
    }
    Ok(progress)
}

/// Configurations that nobody uses any more.
async fn forget(ctx: &Ctx, namespace: &str, wish: &Wish, role: Role, current: &str) -> Result<()> {
    let selector = text(&selector(&wish.instance, role));
    let maps = api::<ConfigMap>(ctx, namespace);
    let params = ListParams::default().labels(&selector);
    let found = maps.list(&params).await?.items;
    if found.len() < 2 {
        return Ok(());
    }
    let pods = api::<Pod>(ctx, namespace).list(&params).await?.items;
    for name in config::unused(&found, current, &pods, &[]) {
        let _gone = maps.delete(&name, &DeleteParams::default()).await;
    }
    Ok(())
}

fn text(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

async fn look(ctx: &Ctx, namespace: &str, wish: &Wish) -> Result<(Progress, Progress)> {
    let all = ListParams::default().labels(&format!("app.kubernetes.io/instance={}", wish.instance.name));
    let found = api::<Deployment>(ctx, namespace).list(&all).await?.items;
    let of = |role: Role| {
        let part = |object: &&Deployment| {
            object.labels().get(LABEL_COMPONENT).is_some_and(|c| c == role.component())
        };
        found.iter().find(part).map(progress).unwrap_or_default()
    };
    Ok((of(Role::Routing), of(Role::Proxy)))
}

/// What there is of it.
struct Seen {
    routing: Progress,
    proxy: Progress,
    /// What keeps a Pod from running: the kubelet's word and a sentence.
    trouble: Option<(String, String)>,
}

/// Of the first Pod that a person must help.
async fn trouble(ctx: &Ctx, namespace: &str, wish: &Wish) -> Result<Option<(String, String)>> {
    for role in [Role::Routing, Role::Proxy] {
        let params = ListParams::default().labels(&text(&selector(&wish.instance, role)));
        let pods = api::<Pod>(ctx, namespace).list(&params).await?.items;
        let mut all = pods.iter().filter_map(kubelet_trouble);
        if let Some(found) = all.find(|(word, _)| KUBELET_STALLING.contains(&word.as_str())) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn status(parent: &Router, wish: &Wish, seen: &Seen, now_ms: u64) -> RouterStatus {
    let Seen { routing, proxy, ref trouble } = *seen;
    let before = parent.status.clone().unwrap_or_default();
    let mut status = RouterStatus {
        observed_generation: parent.metadata.generation,
        image: Some(wish.image.clone()),
        endpoint: Some(build::endpoint(wish)),
        ready_replicas: routing.ready + proxy.ready,
        routing_ready_replicas: routing.ready,
        proxy_ready_replicas: proxy.ready,
        selector: Some(text(&selector(&wish.instance, Role::Proxy))),
        conditions: before.conditions,
    };
    let is_done = routing.is_done && proxy.is_done;
    let serves = |progress: Progress, replicas: u32| progress.ready > 0 || replicas == 0;
    let is_serving =
        serves(routing, parent.spec.routing.replicas) && serves(proxy, parent.spec.proxy.replicas);
    let message = format!(
        "{} of {} routing processes and {} of {} proxies are ready",
        routing.ready, parent.spec.routing.replicas, proxy.ready, parent.spec.proxy.replicas
    );
    let reason = match (parent.spec.paused, is_done) {
        (true, _) => "ReconcilePaused",
        (_, true) => "Reconciled",
        _ => "Progressing",
    };
    let goes_on = !is_done && !parent.spec.paused && trouble.is_none();
    let (ready, stalled) = match trouble {
        Some((word, sentence)) => (
            Said::new("Ready", false, word.clone(), format!("{message}; {sentence}")),
            Said::new("Stalled", true, word.clone(), sentence.clone()),
        ),
        None => (
            Said::new("Ready", is_done || is_serving, reason, message.clone()),
            Said::new("Stalled", false, "NotStalled", ""),
        ),
    };
    for said in [ready, Said::new("Reconciling", goes_on, reason, message), stalled] {
        conditions::set(&mut status.conditions, said, parent.metadata.generation, now_ms);
    }
    status
}

fn failed(parent: &Router, error: &Error, now_ms: u64) -> RouterStatus {
    let mut status = parent.status.clone().unwrap_or_default();
    status.observed_generation = parent.metadata.generation;
    let is_invalid = matches!(error, Error::InvalidSpec { .. });
    let is_news = is_invalid || matches!(error, Error::Missing { .. });
    let said = [
        Said::new("Ready", false, error.reason(), error.to_string()),
        Said::new("Reconciling", !is_invalid, error.reason(), error.to_string()),
        Said::new("Stalled", is_invalid, error.reason(), error.to_string()),
    ];
    // A passing trouble with the API server is no news about what runs.
    for said in said.into_iter().filter(|said| is_news || said.type_ != "Ready") {
        conditions::set(&mut status.conditions, said, parent.metadata.generation, now_ms);
    }
    status
}
