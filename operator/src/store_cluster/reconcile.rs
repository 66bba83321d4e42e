//! One pass over one StoreCluster, from reading to reporting.

use super::act::{self, Effect};
use super::build::{self, Spread};
use super::kube_world::KubeWorld;
use super::model::{Observed, Why};
use super::observe::{self, Answers, Children};
use super::plan::{self, Action, Plan, Wait};
use super::status::{self, Pass};
use super::store_status;
use super::wish::{self, Wish};
use crate::apply::{self, api, apply_if_changed, owner_reference};
use crate::conditions::{self, Said};
use crate::config::{self, Place, StoreSettings};
use crate::control::ControlApi;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::telemetry::{self, Decision, Source};
use crate::workload::{
    FIELD_MANAGER, LABEL_MANAGED_BY, LABEL_STORE_CLUSTER, Role, headless_service, names, network_policy,
};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::controller::Action as Requeue;
use kube::runtime::events::EventType;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use undb_spec::k8s::{ControlPlane, StoreCluster};
use undb_spec::{StorageSpec, StoreClusterSpec};

/// While something is under way: what happens in the control plane wakes nobody.
const BUSY: Duration = Duration::from_secs(2);
/// A pass for its own sake, since a watch may be silent.
const IDLE: Duration = Duration::from_secs(15);

/// What a pass begins with.
struct Scene {
    namespace: String,
    parent: StoreCluster,
    control_plane: ControlPlane,
    wish: Wish,
    children: Children,
    control: Option<Arc<dyn ControlApi>>,
    answers: Option<Answers>,
    /// Why the control plane is not there.
    unreachable: Option<Error>,
}

/// One pass. What is given names the object only: it is read anew.
pub async fn reconcile(named: Arc<StoreCluster>, ctx: Arc<Ctx>) -> Result<Requeue> {
    let namespace = apply::namespace(named.as_ref())?;
    let parents = api::<StoreCluster>(&ctx, &namespace);
    let Some(parent) = parents.get_opt(&named.name_any()).await? else {
        return Ok(Requeue::await_change());
    };
    if parent.metadata.deletion_timestamp.is_some() {
        return Ok(Requeue::await_change());
    }
    match telemetry::reconcile("StoreCluster", pass(&ctx, &namespace, &parent)).await {
        Ok(requeue) => Ok(requeue),
        Err(error) => {
            report_failure(&ctx, &parent, &error).await;
            Err(error)
        }
    }
}

async fn pass(ctx: &Ctx, namespace: &str, parent: &StoreCluster) -> Result<Requeue> {
    let scene = look(ctx, namespace, parent).await?;
    let label = parent.spec.topology.spread.as_str();
    let observed = observe::assemble(parent, &scene.wish, &scene.children, scene.answers.as_ref());
    let observed = observe::with_zones(observed, &scene.children.nodes, label);
    let config_map = shared(ctx, &scene).await?;
    let now_ms = ctx.clock.now_ms();
    let mut plan = plan::plan(&observed, now_ms);
    hold_without_certificate(ctx, &scene, &mut plan).await?;
    let world = KubeWorld {
        ctx,
        namespace,
        parent,
        wish: &scene.wish,
        children: &scene.children,
        control: scene.control.clone().filter(|_| scene.answers.is_some()),
        config_map: &config_map,
        spread: spread(&scene.children, label),
    };
    let (effects, failure) = perform(&world, &observed.cluster.uid, &plan.actions).await;
    tell(ctx, parent, &effects).await;
    let error = failure.as_ref().or(scene.unreachable.as_ref());
    let pass = Pass {
        generation: parent.metadata.generation,
        wish: &scene.wish,
        observed: &observed,
        answers: scene.answers.as_ref(),
        plan: &plan,
        effects: &effects,
        error: error.map(|e| (e.reason(), e.to_string())),
        now_ms,
    };
    report(ctx, &scene, &pass).await?;
    match failure {
        // Somebody else wrote: look again, which is no failure.
        Some(error) if !error.is_conflict() && !error.is_too_many_requests() => Err(error),
        _ => Ok(Requeue::requeue(pause(&observed, &plan))),
    }
}

/// A Pod that starts before its certificate has its name would be refused by the others.
async fn hold_without_certificate(ctx: &Ctx, scene: &Scene, plan: &mut Plan) -> Result<()> {
    let is_making = plan.actions.iter().any(|a| matches!(a, Action::CreatePod { .. }));
    if !is_making || !scene.wish.has_tls {
        return Ok(());
    }
    let (cluster, namespace) = (scene.parent.name_any(), &scene.namespace);
    let name = names::tls_secret(&scene.wish.instance.control_plane);
    let secret = api::<Secret>(ctx, namespace).get_opt(&name).await?;
    let address = names::store_address(&build::store_name(&scene.parent, 0), &cluster, namespace);
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    if secret.is_some_and(|s| crate::certs::covers(&s, host)) {
        return Ok(());
    }
    plan.actions.retain(|a| !matches!(a, Action::CreatePod { .. }));
    let message = format!("Secret {name} has no certificate for {host} yet; its ControlPlane makes it");
    let why = Why { reason: "WaitingForCertificate".into(), message };
    plan.waits.push(Wait { store: String::new(), why });
    Ok(())
}

fn pause(observed: &Observed, plan: &Plan) -> Duration {
    let is_busy = !plan.actions.is_empty() || !plan.waits.is_empty() || observed.control.is_none();
    if is_busy { BUSY } else { IDLE }
}

async fn look(ctx: &Ctx, namespace: &str, parent: &StoreCluster) -> Result<Scene> {
    let named = parent.spec.control_plane_ref.as_ref().map(|r| r.name.as_str());
    let control_plane = wish::control_plane(ctx, namespace, named).await?;
    let wish = wish::resolve(parent, &control_plane, &ctx.settings.image)?;
    let children = observe::children(ctx, parent).await?;
    let (control, answers, unreachable) = match ask(ctx, namespace, &wish).await {
        Ok((control, answers)) => (Some(control), Some(answers), None),
        Err(error) => (None, None, Some(error)),
    };
    let (namespace, parent) = (namespace.to_owned(), parent.clone());
    Ok(Scene { namespace, parent, control_plane, wish, children, control, answers, unreachable })
}

async fn ask(ctx: &Ctx, namespace: &str, wish: &Wish) -> Result<(Arc<dyn ControlApi>, Answers)> {
    let control = ctx.control.connect(namespace, &wish.instance.control_plane).await?;
    let answers = observe::ask(&control).await?;
    Ok((control, answers))
}

fn spread<'a>(children: &Children, label: &'a str) -> Spread<'a> {
    let zones = children.nodes.values().filter_map(|n| n.labels().get(label));
    let zones = zones.collect::<std::collections::BTreeSet<_>>().len();
    Spread { label, zones_up: observe::zones_up(&children.nodes, label), zones }
}

/// What the stores have in common; the answer is the name of their configuration.
async fn shared(ctx: &Ctx, scene: &Scene) -> Result<String> {
    let (parent, wish) = (&scene.parent, &scene.wish);
    let owner = owner_reference(parent)?;
    let map = config::config_map(&wish.instance, Role::Store, &config_text(scene), Some(owner.clone()));
    let config_map = map.name_any();
    if parent.spec.paused {
        return Ok(config_map);
    }
    let found = api::<ConfigMap>(ctx, &scene.namespace)
        .list(&ListParams::default().labels(&format!("{LABEL_STORE_CLUSTER}={}", parent.name_any())))
        .await?
        .items;
    if !found.iter().any(|m| m.name_any() == config_map) {
        apply::server_side_apply(ctx, &map).await?;
    }
    let mut service = headless_service(&wish.instance, Role::Store);
    service.metadata.owner_references = Some(vec![owner.clone()]);
    let existing = api::<Service>(ctx, &scene.namespace).get_opt(&service.name_any()).await?;
    apply_if_changed(ctx, service, existing.as_ref()).await?;
    let mut policy = network_policy(&wish.instance, Role::Store);
    policy.metadata.owner_references = Some(vec![owner]);
    let existing = api::<NetworkPolicy>(ctx, &scene.namespace).get_opt(&policy.name_any()).await?;
    apply_if_changed(ctx, policy, existing.as_ref()).await?;
    own_claims(ctx, scene).await?;
    let pods: Vec<&Pod> = scene.children.pods.values().collect();
    for map in build::unused(&found, &pods, &config_map) {
        let _gone =
            api::<ConfigMap>(ctx, &scene.namespace).delete(&map.name_any(), &DeleteParams::default()).await;
    }
    if let (Some(control), Some(_)) = (&scene.control, &scene.answers) {
        control.apply(control_object(parent)).await?;
    }
    Ok(config_map)
}

fn config_text(scene: &Scene) -> String {
    let place = Place {
        namespace: &scene.namespace,
        control_plane: &scene.wish.instance.control_plane,
        members: scene.control_plane.spec.metadata.replicas,
        has_tls: scene.wish.has_tls,
    };
    let size = scene.parent.spec.storage.as_ref().and_then(|s| s.size);
    let settings = StoreSettings {
        store_cluster: &scene.parent.name_any(),
        engine: &scene.parent.spec.engine,
        capacity_bytes: size.map(|s| s.bytes()),
        memory_bytes: scene.wish.memory_bytes(),
    };
    config::store(&place, &settings)
}

/// The class of stores as the control plane knows it: without what only Kubernetes has.
fn control_object(parent: &StoreCluster) -> String {
    let spec = StoreClusterSpec {
        replicas: parent.spec.replicas,
        engine: parent.spec.engine.clone(),
        storage: parent.spec.storage.as_ref().map(|s| StorageSpec { size: s.size, class: None }),
        ..StoreClusterSpec::default()
    };
    let mut object = undb_spec::StoreCluster::new(undb_spec::StoreCluster::KIND, &parent.name_any(), spec);
    // What tells it from one that a person made, when the resource is gone.
    object.metadata.labels.insert(LABEL_MANAGED_BY.into(), FIELD_MANAGER.into());
    undb_spec::Object::StoreCluster(object).to_json()
}

/// Volumes follow a change of `whenDeleted`.
async fn own_claims(ctx: &Ctx, scene: &Scene) -> Result<()> {
    let wanted = build::claim_owners(&scene.parent)?;
    for claim in scene.children.claims.values() {
        if claim.metadata.owner_references.clone().unwrap_or_default() == wanted.clone().unwrap_or_default() {
            continue;
        }
        let body = json!({"metadata": {"uid": claim.uid(), "ownerReferences": wanted}});
        api::<PersistentVolumeClaim>(ctx, &scene.namespace)
            .patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(&body))
            .await?;
    }
    Ok(())
}

/// In order. What harms nobody is tried in any case; something disruptive only after no failure.
async fn perform(
    world: &KubeWorld<'_>,
    cluster_uid: &str,
    actions: &[Action],
) -> (Vec<Effect>, Option<Error>) {
    let mut effects = Vec::new();
    let mut failure = None;
    for action in actions {
        if action.is_disruptive() && failure.is_some() {
            continue;
        }
        match act::perform(world, cluster_uid, action).await {
            Ok(effect) => {
                count(action, &effect);
                effects.push(effect);
            }
            Err(error) => {
                tracing::warn!(%error, ?action, "step not done");
                failure = failure.or(Some(error));
            }
        }
    }
    (effects, failure)
}

fn count(action: &Action, effect: &Effect) {
    let source = match action {
        Action::Restart { .. } => Source::Roll,
        Action::Remove { .. } => Source::ScaleIn,
        Action::RemoveLost { .. } | Action::FirstOf { .. } => Source::Replacement,
        _ => return,
    };
    for (_, denial) in &effect.denials {
        let reason = denial.blocking.first().map_or("Refused", |b| b.reason.as_str());
        telemetry::decided(source, Decision::Denied, reason);
    }
    if effect.denials.is_empty() || effect.stopped.is_some() {
        telemetry::decided(source, Decision::Allowed, "");
    }
}

async fn tell(ctx: &Ctx, parent: &StoreCluster, effects: &[Effect]) {
    for (reason, note) in effects.iter().flat_map(|e| &e.events) {
        tracing::info!(store_cluster = parent.name_any(), reason, note, "step done");
        let is_loss = ["StoreLost", "StoreReplaced"].contains(reason);
        let type_ = if is_loss { EventType::Warning } else { EventType::Normal };
        ctx.event(parent, type_, reason, note.clone()).await;
    }
}

/// Writes what changed, and tells of what changed for people.
async fn report(ctx: &Ctx, scene: &Scene, pass: &Pass<'_>) -> Result<()> {
    for seen in store_status::stores(pass.observed) {
        let Some(store) = scene.children.stores.iter().find(|s| s.name_any() == seen.name) else { continue };
        let before = store.status.clone().unwrap_or_default();
        let status = store_status::of_store(pass, seen, store.metadata.generation, &before);
        let written = apply::patch_status(ctx, store, store.status.as_ref(), &status).await;
        ignore_gone(written)?;
    }
    let before = scene.parent.status.clone().unwrap_or_default();
    let status = status::of_cluster(pass, &before);
    announce(ctx, &scene.parent, &before, &status).await;
    measure(scene, &status.conditions, pass.now_ms);
    let written =
        apply::patch_status::<StoreCluster, _>(ctx, &scene.parent, scene.parent.status.as_ref(), &status)
            .await;
    ignore_gone(written)
}

/// For how long it has been refused, and for how long nobody has answered.
fn measure(scene: &Scene, conditions: &[undb_spec::k8s::Condition], now_ms: u64) {
    let since = |type_: &str, status: &str| {
        let found = conditions::find(conditions, type_).filter(|c| c.status == status);
        let since_ms = found.map_or(now_ms, |c| conditions::time_ms(&c.last_transition_time));
        Duration::from_millis(now_ms.saturating_sub(since_ms))
    };
    telemetry::blocked(&scene.namespace, &scene.parent.name_any(), since("DisruptionAllowed", "False"));
    let control_plane = &scene.wish.instance.control_plane;
    telemetry::observed(&scene.namespace, control_plane, since("Available", "Unknown"));
}

/// An object that went, or came anew, while its status was written.
fn ignore_gone(written: Result<bool>) -> Result<()> {
    match written {
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

async fn announce(
    ctx: &Ctx,
    parent: &StoreCluster,
    before: &undb_spec::k8s::StoreClusterStatus,
    now: &undb_spec::k8s::StoreClusterStatus,
) {
    let was = |type_: &str| conditions::is_true(&before.conditions, type_);
    let is = |type_: &str| conditions::is_true(&now.conditions, type_);
    let text = |type_: &str| conditions::find(&now.conditions, type_).map_or("", |c| c.message.as_str());
    if now.update_revision != before.update_revision && before.update_revision.is_some() {
        let note = format!("template {}", now.update_revision.as_deref().unwrap_or_default());
        ctx.event(parent, EventType::Normal, "RollingUpdateStarted", note).await;
    }
    let is_rolled = |s: &undb_spec::k8s::StoreClusterStatus| s.current_revision == s.update_revision;
    if is_rolled(now) && !is_rolled(before) && before.update_revision == now.update_revision {
        ctx.event(parent, EventType::Normal, "RollingUpdateCompleted", "every store has its template").await;
    }
    if now.blocked_by.first().map(|b| &b.reason) != before.blocked_by.first().map(|b| &b.reason)
        && let Some(blocked) = now.blocked_by.first()
    {
        ctx.event(parent, EventType::Warning, "DisruptionBlocked", blocked.message.clone()).await;
    }
    if is("Stalled") && !was("Stalled") {
        let reason = conditions::find(&now.conditions, "Stalled").map_or("Stalled", |c| c.reason.as_str());
        ctx.event(parent, EventType::Warning, reason, text("Stalled")).await;
    }
    let is_known = |s: &undb_spec::k8s::StoreClusterStatus| {
        conditions::find(&s.conditions, "Available").is_some_and(|c| c.status != "Unknown")
    };
    if !is_known(now) && is_known(before) {
        ctx.event(parent, EventType::Warning, "ControlPlaneUnreachable", text("Available")).await;
    }
}

/// A pass that could not even look says so in the conditions.
async fn report_failure(ctx: &Ctx, parent: &StoreCluster, error: &Error) {
    // Said once by the pass already, with all that it saw.
    if !matches!(error, Error::Missing { .. } | Error::InvalidSpec { .. }) {
        return;
    }
    let mut status = parent.status.clone().unwrap_or_default();
    status.observed_generation = parent.metadata.generation;
    let is_invalid = matches!(error, Error::InvalidSpec { .. });
    let said = vec![
        Said::new("Ready", false, error.reason(), error.to_string()),
        Said::new("Reconciling", !is_invalid, error.reason(), error.to_string()),
        Said::new("Stalled", is_invalid, error.reason(), error.to_string()),
    ];
    status::write(&mut status.conditions, said, parent.metadata.generation, ctx.clock.now_ms());
    status.message = Some(error.to_string());
    let written = apply::patch_status::<StoreCluster, _>(ctx, parent, parent.status.as_ref(), &status).await;
    if let Err(error) = written {
        tracing::debug!(%error, "status not written");
    }
}

/// Which StoreCluster a Store or a Pod belongs to, by its label.
pub fn cluster_of<K: ResourceExt>(object: &K) -> Option<String> {
    object.labels().get(LABEL_STORE_CLUSTER).cloned()
}
