//! One pass over one ControlPlane: read, make what is missing, move one thing on, report.

use super::observe::{images, members, pods};
use super::roll::{self, Member, Said, Step};
use super::status::{self, Pass};
use super::wish::{GateOff, ROTATE_CA, Wish, resolve};
use super::{build, classes};
use crate::apply::{self, Object, api, apply_if_changed, owner_reference};
use crate::certs;
use crate::conditions::{self, Said as Condition};
use crate::config;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::telemetry;
use crate::workload::{
    LABEL_COMPONENT, LABEL_CONTROL_PLANE, Progress, Role, kubelet_trouble, labels, names, progress,
};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodSpec};
use kube::ResourceExt;
use kube::api::{DeleteParams, EvictParams, ListParams, PostParams, Preconditions};
use kube::runtime::controller::Action as Requeue;
use kube::runtime::events::EventType;
use std::sync::Arc;
use std::time::Duration;
use undb_spec::k8s::{ControlPlane, Router, StoreCluster};

/// While something is under way: what happens in the control plane wakes nobody.
const BUSY: Duration = Duration::from_secs(2);
/// A pass for its own sake, since a watch may be silent.
const IDLE: Duration = Duration::from_secs(30);

/// One pass. What is given names the object only: it is read anew.
pub async fn reconcile(named: Arc<ControlPlane>, ctx: Arc<Ctx>) -> Result<Requeue> {
    let namespace = apply::namespace(named.as_ref())?;
    let found = api::<ControlPlane>(&ctx, &namespace).get_opt(&named.name_any()).await?;
    let Some(parent) = found.filter(|parent| parent.metadata.deletion_timestamp.is_none()) else {
        return Ok(Requeue::await_change());
    };
    match telemetry::reconcile("ControlPlane", pass(&ctx, &namespace, &parent)).await {
        Err(error) if error.is_conflict() => Ok(Requeue::requeue(BUSY)),
        Err(error) => {
            report_failure(&ctx, &parent, &error).await;
            Err(error)
        }
        requeue => requeue,
    }
}

async fn pass(ctx: &Ctx, namespace: &str, parent: &ControlPlane) -> Result<Requeue> {
    let gate_off = if ctx.settings.unsafe_gate_off { GateOff::Yes } else { GateOff::No };
    let wish = resolve(parent, &ctx.settings.image, gate_off)?;
    let found_identity =
        api::<ConfigMap>(ctx, namespace).get_opt(&names::identity(&parent.name_any())).await?;
    let cluster_id = cluster_id(parent, found_identity.as_ref())?;
    if !parent.spec.paused {
        keep_image(ctx, parent, &wish, &cluster_id).await?;
        identity(ctx, parent, &wish, &cluster_id, found_identity.as_ref()).await?;
        secrets(ctx, namespace, parent, &wish).await?;
        around(ctx, parent, &wish).await?;
    }
    let pods = pods(ctx, namespace, parent).await?;
    let members = members(&wish, &pods);
    let (said, leader) = ask(ctx, namespace, parent, &wish).await;
    let wanted = wish.template_hash(Role::Meta, &cluster_id);
    let step = roll::next(&members, &wanted, &said);

    let parts = match parent.spec.paused {
        true => look_at_parts(ctx, namespace, parent).await?,
        false => parts(ctx, namespace, parent, &wish, &cluster_id, &members, &step, &pods).await?,
    };
    let refused = match parent.spec.paused {
        true => None,
        false => act(ctx, namespace, parent, &step).await?,
    };
    let step = refused.unwrap_or(step);
    let pass = Pass {
        generation: parent.metadata.generation,
        wish: &wish,
        cluster_id: &cluster_id,
        members: &members,
        images: images(&wish, &pods),
        leader,
        step: &step,
        control: parts.0,
        access: parts.1,
        trouble: pods.iter().find_map(kubelet_trouble),
        is_paused: parent.spec.paused,
        now_ms: ctx.clock.now_ms(),
    };
    let before = parent.status.clone().unwrap_or_default();
    let status = status::status(&pass, &before);
    apply::patch_status(ctx, parent, parent.status.as_ref(), &status).await?;
    let is_ready = conditions::is_true(&status.conditions, "Ready");
    if is_ready && !conditions::is_true(&before.conditions, "Ready") {
        ctx.event(parent, EventType::Normal, "ControlPlaneReady", "all members and processes are ready")
            .await;
    }
    let is_still = is_ready && step == Step::Done && parts.0.is_done && parts.1.is_done;
    Ok(Requeue::requeue(if is_still { IDLE } else { BUSY }))
}

/// The id of whose data this is. Of a former object of this name, if its identity was kept.
fn cluster_id(parent: &ControlPlane, identity: Option<&ConfigMap>) -> Result<String> {
    let kept = identity.and_then(|map| map.data.as_ref()?.get(build::CLUSTER_ID).cloned());
    let of_status = || parent.status.as_ref().and_then(|status| status.cluster_id.clone());
    kept.or_else(of_status).or_else(|| parent.uid()).ok_or_else(|| {
        Error::invalid("metadata.uid", "is missing: the object was not read from the API server")
    })
}

/// IMPORTANT: the image is in the status before the first object is made from it, or an operator that
/// is upgraded in between would choose another.
async fn keep_image(ctx: &Ctx, parent: &ControlPlane, wish: &Wish, cluster_id: &str) -> Result<()> {
    let mut status = parent.status.clone().unwrap_or_default();
    if status.image.as_ref() == Some(&wish.image) && status.cluster_id.as_deref() == Some(cluster_id) {
        return Ok(());
    }
    status.image = Some(wish.image.clone());
    status.cluster_id = Some(cluster_id.into());
    apply::patch_status(ctx, parent, parent.status.as_ref(), &status).await.map(|_| ())
}

async fn identity(
    ctx: &Ctx,
    parent: &ControlPlane,
    wish: &Wish,
    cluster_id: &str,
    found: Option<&ConfigMap>,
) -> Result<()> {
    let wanted = build::identity(parent, wish, cluster_id)?;
    let owners = |map: &ConfigMap| map.metadata.owner_references.clone().unwrap_or_default();
    match found {
        None => {
            api::<ConfigMap>(ctx, &wish.instance.namespace).create(&PostParams::default(), &wanted).await?;
        }
        Some(found) if owners(found) != owners(&wanted) => {
            let mut changed = found.clone();
            changed.metadata.owner_references = wanted.metadata.owner_references;
            api::<ConfigMap>(ctx, &wish.instance.namespace)
                .replace(&found.name_any(), &PostParams::default(), &changed)
                .await?;
        }
        Some(_) => {}
    }
    Ok(())
}

async fn secrets(ctx: &Ctx, namespace: &str, parent: &ControlPlane, wish: &Wish) -> Result<()> {
    let all = ListParams::default();
    let routers = api::<Router>(ctx, namespace).list(&all).await?;
    let stores = api::<StoreCluster>(ctx, namespace).list(&all).await?;
    let routers: Vec<String> = routers.iter().map(ResourceExt::name_any).collect();
    let stores: Vec<String> = stores.iter().map(ResourceExt::name_any).collect();
    let server_names = certs::server_names(namespace, &wish.instance.name, &routers, &stores);
    let wanted = certs::Wanted {
        namespace,
        control_plane: &wish.instance.name,
        labels: labels(&wish.instance, Role::Access),
        owner: build::data_owner(parent)?,
        server_names: wish.has_tls.then_some(server_names),
        rotation: parent.annotations().get(ROTATE_CA).cloned().unwrap_or_default(),
        endpoint: names::access_endpoint(&wish.instance.name, namespace),
    };
    let ensured = certs::ensure(ctx, &wanted).await?;
    for done in &ensured.done {
        tracing::info!(control_plane = wish.instance.name, done, "secrets changed");
        ctx.event(parent, EventType::Normal, "SecretsChanged", done.clone()).await;
    }
    if let Some(expires) = ensured.expires {
        let left = expires.saturating_sub(ctx.clock.now_ms() / 1000);
        telemetry::role_certificate_left(namespace, &wish.instance.name, Duration::from_secs(left));
    }
    Ok(())
}

/// Services, budgets, network policies: harmless in any order, so always as they should be.
async fn around(ctx: &Ctx, parent: &ControlPlane, wish: &Wish) -> Result<()> {
    for object in build::services(parent, wish)? {
        keep(ctx, object).await?;
    }
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

/// The leader, and the leases of stores; an error says why nobody can tell.
async fn ask(
    ctx: &Ctx,
    namespace: &str,
    parent: &ControlPlane,
    wish: &Wish,
) -> (Result<Said, String>, Option<usize>) {
    let answers = async {
        let control = ctx.control.connect(namespace, &parent.name_any()).await?;
        let status = control.status().await?;
        let leases = control.list().await?.len();
        if !parent.spec.paused {
            // Nothing waits for it.
            if let Err(error) = classes::forget(ctx, namespace, parent, control.as_ref()).await {
                tracing::debug!(%error, "classes of stores not looked at");
            }
        }
        Result::<_>::Ok((status, leases))
    };
    match answers.await {
        Ok((status, leases)) => {
            let id = status.meta.map_or(0, |meta| meta.leader_member_id);
            let leader = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
            let leases = if wish.tuning.unsafe_gate_off { 0 } else { leases };
            (Ok(Said { leader, leases }), leader)
        }
        Err(error) => (Err(error.to_string()), None),
    }
}

/// Makes each part, and changes it once the one before is done.
#[allow(clippy::too_many_arguments, reason = "what one pass has read")]
async fn parts(
    ctx: &Ctx,
    namespace: &str,
    parent: &ControlPlane,
    wish: &Wish,
    cluster_id: &str,
    members: &[Member],
    step: &Step,
    pods: &[Pod],
) -> Result<(Progress, Progress)> {
    let meta = configured(ctx, parent, wish, Role::Meta, cluster_id).await?;
    let set = build::metadata(parent, wish, build::template(wish, Role::Meta, cluster_id, &meta)?)?;
    let existing = api::<StatefulSet>(ctx, namespace).get_opt(&set.name_any()).await?;
    check_members(existing.as_ref(), wish)?;
    apply_if_changed(ctx, set.clone(), existing.as_ref()).await?;
    let all_ready = members.iter().all(|member| member.pod.as_ref().is_some_and(|pod| pod.is_ready));
    let mut is_done = *step == Step::Done && all_ready;

    let control = configured(ctx, parent, wish, Role::Control, cluster_id).await?;
    let object = build::control(parent, wish, build::template(wish, Role::Control, cluster_id, &control)?)?;
    let existing = api::<StatefulSet>(ctx, namespace).get_opt(&object.name_any()).await?;
    if is_done || existing.is_none() {
        apply_if_changed(ctx, object.clone(), existing.as_ref()).await?;
    }
    let of_control = progress_of_set(existing.as_ref(), &object);
    is_done &= of_control.is_done;

    let access = configured(ctx, parent, wish, Role::Access, cluster_id).await?;
    let object = build::access(parent, wish, build::template(wish, Role::Access, cluster_id, &access)?)?;
    let existing = api::<Deployment>(ctx, namespace).get_opt(&object.name_any()).await?;
    if is_done || existing.is_none() {
        apply_if_changed(ctx, object.clone(), existing.as_ref()).await?;
    }
    let mut of_access = existing.as_ref().map(progress).unwrap_or_default();
    of_access.is_done &= is_current(existing.as_ref(), object);
    if is_done && of_access.is_done && all_ready {
        forget(ctx, namespace, wish, &[meta, control, access], pods).await?;
    }
    Ok((of_control, of_access))
}

/// Metadata cannot be made larger or smaller yet; a StatefulSet would just do it.
fn check_members(existing: Option<&StatefulSet>, wish: &Wish) -> Result<()> {
    let Some(found) = existing.and_then(|set| set.spec.as_ref()?.replicas) else { return Ok(()) };
    if u32::try_from(found).ok() == Some(wish.members) {
        return Ok(());
    }
    let problem = format!("cannot be changed from {found} to {} yet; write {found}", wish.members);
    Err(Error::invalid("spec.metadata.replicas", problem))
}

/// Whether what is there was made from what is wanted.
fn is_current<K: Object>(existing: Option<&K>, wanted: K) -> bool {
    existing.is_some() && !apply::stamped(wanted, existing).1
}

fn progress_of_set(existing: Option<&StatefulSet>, wanted: &StatefulSet) -> Progress {
    let Some((set, status)) = existing.and_then(|set| Some((set, set.status.as_ref()?))) else {
        return Progress::default();
    };
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = status.ready_replicas.unwrap_or(0);
    let is_done = status.observed_generation >= set.metadata.generation
        && ready == replicas
        && status.updated_replicas.unwrap_or(0) == replicas
        && status.current_revision == status.update_revision
        && is_current(existing, wanted.clone());
    Progress { ready: u32::try_from(ready).unwrap_or(0), is_done }
}

async fn look_at_parts(ctx: &Ctx, namespace: &str, parent: &ControlPlane) -> Result<(Progress, Progress)> {
    let name = |role| names::service_name(&parent.name_any(), role);
    let control = api::<StatefulSet>(ctx, namespace).get_opt(&name(Role::Control)).await?;
    let access = api::<Deployment>(ctx, namespace).get_opt(&name(Role::Access)).await?;
    let of_control = control.as_ref().map(|set| progress_of_set(Some(set), set)).unwrap_or_default();
    Ok((of_control, access.as_ref().map(progress).unwrap_or_default()))
}

/// The configuration of a role is there; the answer is the name of its ConfigMap.
async fn configured(
    ctx: &Ctx,
    parent: &ControlPlane,
    wish: &Wish,
    role: Role,
    cluster_id: &str,
) -> Result<String> {
    let text = wish.config(role, cluster_id);
    let map = config::config_map(&wish.instance, role, &text, Some(owner_reference(parent)?));
    let name = map.name_any();
    if api::<ConfigMap>(ctx, &wish.instance.namespace).get_opt(&name).await?.is_none() {
        apply::server_side_apply(ctx, &map).await?;
    }
    Ok(name)
}

/// Configurations that nobody uses any more. Only when all is done, so that no template names one.
async fn forget(ctx: &Ctx, namespace: &str, wish: &Wish, current: &[String], pods: &[Pod]) -> Result<()> {
    let selector =
        format!("{LABEL_CONTROL_PLANE}={},{LABEL_COMPONENT} in (meta, control, access)", wish.instance.name);
    let maps = api::<ConfigMap>(ctx, namespace);
    let found = maps.list(&ListParams::default().labels(&selector)).await?.items;
    let found: Vec<ConfigMap> = found.into_iter().filter(|map| map.name_any().contains("-config-")).collect();
    let templates: [&PodSpec; 0] = [];
    let unused = config::unused(&found, "", pods, &templates);
    for name in unused.into_iter().filter(|name| !current.contains(name)) {
        let _gone = maps.delete(&name, &DeleteParams::default()).await;
    }
    Ok(())
}

/// One member at most. `Some`: it was refused, and this is what to report.
async fn act(ctx: &Ctx, namespace: &str, parent: &ControlPlane, step: &Step) -> Result<Option<Step>> {
    let pods = api::<Pod>(ctx, namespace);
    let delete = |uid: &str| DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.into()), resource_version: None }),
        ..DeleteParams::default()
    };
    let (name, done) = match step {
        Step::Done | Step::Wait { .. } => return Ok(None),
        Step::Evict { name, uid } => {
            let params =
                EvictParams { delete_options: Some(delete(uid)), post_options: PostParams::default() };
            (name, pods.evict(name, &params).await.map(|_| ()))
        }
        Step::Delete { name, uid } => (name, pods.delete(name, &delete(uid)).await.map(|_| ())),
    };
    match done.map_err(Error::from) {
        Ok(()) => {
            let note = format!("{name} is restarted with the new template");
            ctx.event(parent, EventType::Normal, "RollingMetadata", note).await;
            Ok(None)
        }
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(None),
        Err(error) if error.is_too_many_requests() => {
            let message = format!("the budget of metadata does not let {name} go now: {error}");
            Ok(Some(Step::Wait { reason: "WaitingForBudget", message }))
        }
        Err(error) => Err(error),
    }
}

/// A pass that failed says so in the conditions; what was seen before stays.
async fn report_failure(ctx: &Ctx, parent: &ControlPlane, error: &Error) {
    let mut status = parent.status.clone().unwrap_or_default();
    let is_invalid = matches!(error, Error::InvalidSpec { .. });
    status.observed_generation = parent.metadata.generation;
    let said = [
        Condition::new("Ready", false, error.reason(), error.to_string()),
        Condition::new("Reconciling", !is_invalid, error.reason(), error.to_string()),
        Condition::new("Stalled", is_invalid, error.reason(), error.to_string()),
    ];
    // A passing trouble with the API server is no news about what runs.
    let said = said.into_iter().filter(|said| is_invalid || said.type_ != "Ready");
    for said in said {
        conditions::set(&mut status.conditions, said, parent.metadata.generation, ctx.clock.now_ms());
    }
    if let Err(error) = apply::patch_status(ctx, parent, parent.status.as_ref(), &status).await {
        tracing::debug!(%error, "status not written");
    }
}
