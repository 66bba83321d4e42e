//! Whether a Pod may be evicted: looked up, asked of the gate, never waited for.

use super::review::{Denied, Request, cause};
use crate::control::ControlApi;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::fence::{self, Fence};
use crate::gate::{self, Answer, Ask, Denial, Holder};
use crate::telemetry::{Decision, Source, decided};
use crate::workload::{self, names};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use std::time::Duration;
use undb_proto::v1::{
    DisruptionKind, DisruptionLease, DisruptionPhase, DisruptionStatusRequest, StatusResponse, StoreState,
};
use undb_spec::EvictionWebhook;
use undb_spec::k8s::StoreCluster;

/// The whole conversation with the control plane.
const CONTROL_PLANE_TIMEOUT: Duration = Duration::from_secs(2);
/// Each read of, and write to, the API server.
const API_TIMEOUT: Duration = Duration::from_secs(2);

/// What is missing when the control plane knows no store at an address.
const NO_RECORD: &str = "store at";

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As far as the webhook goes; budgets still decide. The note says why.
    Allow { note: String },
    /// 429.
    Deny(Denied),
}

fn allow(note: impl Into<String>) -> Verdict {
    Verdict::Allow { note: note.into() }
}

/// A store of ours whose eviction is to be decided.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StorePod {
    namespace: String,
    name: String,
    uid: String,
    store_cluster: String,
    control_plane: String,
    /// Its container does not run, as the kubelet says.
    is_stopped: bool,
}

/// What the Pod alone says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Looked {
    Verdict(Verdict),
    Store(StorePod),
}

/// Decides; every error is a denial with its reason.
pub(super) async fn decide(ctx: &Ctx, request: &Request) -> Verdict {
    if !ctx.settings.watches(&request.namespace) {
        return allow("its namespace is not looked after by this operator");
    }
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &request.namespace);
    let pod =
        match within(API_TIMEOUT, "the API server", async { Ok(pods.get_opt(&request.pod).await?) }).await {
            Ok(Some(pod)) => pod,
            Ok(None) => return allow("there is no such Pod"),
            Err(error) => return unknown(&error),
        };
    let store = match look(&pod, request) {
        Looked::Verdict(verdict) => return verdict,
        Looked::Store(store) => store,
    };
    match store_verdict(ctx, &store, request).await {
        Ok(verdict) => verdict,
        Err(error) => unknown(&error),
    }
}

/// Nobody could be asked, or the answer makes no sense: not now.
fn unknown(error: &Error) -> Verdict {
    decided(Source::Eviction, Decision::Unknown, error.reason());
    Verdict::Deny(Denied::because(format!("not known whether it may stop: {error}")))
}

fn look(pod: &Pod, request: &Request) -> Looked {
    let labels = pod.labels();
    let label = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
    let ours = label("app.kubernetes.io/name") == "undb"
        && label("app.kubernetes.io/managed-by") == workload::FIELD_MANAGER;
    let verdict = |note: &str| Looked::Verdict(allow(note));
    if !ours {
        return verdict("not a Pod of UNDB");
    }
    if label(workload::LABEL_COMPONENT) != names::Role::Store.component() {
        return verdict("not a store: its disruption budget decides");
    }
    let uid = pod.uid().unwrap_or_default();
    if request.uid.as_ref().is_some_and(|wanted| *wanted != uid) {
        return verdict("another Pod of that name is meant");
    }
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default();
    if ["Pending", "Succeeded", "Failed"].contains(&phase) || pod.metadata.deletion_timestamp.is_some() {
        return verdict("it does not serve");
    }
    Looked::Store(StorePod {
        namespace: request.namespace.clone(),
        name: request.pod.clone(),
        uid,
        store_cluster: label(workload::LABEL_STORE_CLUSTER).into(),
        control_plane: label(workload::LABEL_CONTROL_PLANE).into(),
        is_stopped: is_stopped(pod),
    })
}

/// Every container of it waits or has ended. A status without containers says nothing.
fn is_stopped(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref());
    statuses.is_some_and(|all| {
        !all.is_empty()
            && all.iter().all(|c| {
                c.state
                    .as_ref()
                    .is_some_and(|s| s.running.is_none() && (s.waiting.is_some() || s.terminated.is_some()))
            })
    })
}

async fn within<T>(limit: Duration, whom: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::Fatal(format!("{whom} did not answer within {} s", limit.as_secs()));
    tokio::time::timeout(limit, call).await.map_err(late)?
}

async fn store_verdict(ctx: &Ctx, store: &StorePod, request: &Request) -> Result<Verdict> {
    let clusters: Api<StoreCluster> = Api::namespaced(ctx.client.clone(), &store.namespace);
    let read = async { Ok(clusters.get_opt(&store.store_cluster).await?) };
    let cluster = within(API_TIMEOUT, "the API server", read).await?;
    let cluster = cluster.ok_or_else(|| Error::Missing {
        what: "StoreCluster",
        name: store.store_cluster.clone(),
        remedy: "the Pod is left over; delete it when its data is not needed".into(),
    })?;
    if cluster.spec.disruption_policy.eviction_webhook == EvictionWebhook::Off {
        return Ok(allow("disruptionPolicy.evictionWebhook is Off: its disruption budget decides"));
    }
    // Read before the gate is asked: opening it later fails if anybody wrote it in between.
    let fence =
        within(API_TIMEOUT, "the API server", fence::state(ctx, &store.namespace, &store.name)).await?;
    let Some(fence) = fence else {
        let denied = "its PodDisruptionBudget is not there; the operator makes it";
        return Ok(Verdict::Deny(Denied::because(denied)));
    };
    let asked =
        match within(CONTROL_PLANE_TIMEOUT, "the control plane", ask(ctx, store, &fence, request)).await {
            // It never registered, so it keeps nothing; whoever opened its budget has seen that.
            Err(Error::Missing { what: NO_RECORD, .. }) if fence.is_open => {
                return Ok(allow("its disruption budget is open"));
            }
            asked => asked?,
        };
    match asked {
        Asked::Safe if request.dry_run => Ok(allow("the gate would allow it")),
        Asked::Safe if fence.is_open => Ok(allow("the gate allows it; its disruption budget is open")),
        Asked::Safe => open(ctx, store, &fence).await,
        Asked::SafeByAnother { holder } => Ok(allow(format!("{holder} may stop it now"))),
        Asked::Wait { drains, denial } => {
            // IMPORTANT: an open budget is an answer of the past; others may have failed since.
            if fence.is_open && !request.dry_run {
                let closing = fence::close(ctx, &store.namespace, &store.name);
                within(API_TIMEOUT, "the API server", closing).await?;
            }
            Ok(deny(drains, &denial))
        }
    }
}

enum Asked {
    Safe,
    /// A lease of somebody else says that it may stop.
    SafeByAnother {
        holder: String,
    },
    Wait {
        drains: bool,
        denial: Denial,
    },
}

async fn ask(ctx: &Ctx, store: &StorePod, fence: &Fence, request: &Request) -> Result<Asked> {
    let control = ctx.control.connect(&store.namespace, &store.control_plane).await?;
    let (status, leases) = tokio::try_join!(control.status(), control.list())?;
    let address = names::store_address(&store.name, &store.store_cluster, &store.namespace);
    let store_id = store_id(&status, &address).ok_or_else(|| Error::Missing {
        what: NO_RECORD,
        name: address,
        remedy: "the control plane does not know it (yet)".into(),
    })?;
    let holder = Holder::Eviction(store.uid.clone());
    let stopped = if store.is_stopped { vec![store_id] } else { Vec::new() };
    if let Some(lease) = safe_lease(&leases, store_id, ctx.clock.now_ms())
        && lease.holder != holder.to_string()
    {
        return still_safe(control.as_ref(), lease, &stopped).await;
    }
    let duration_ms = gate::DURATION_MS;
    let (kind, stores, is_open) = (DisruptionKind::Restart, vec![store_id], fence.is_open);
    let ask = Ask { kind, stores, holder, stopped, duration_ms, is_open };
    if request.dry_run {
        let denial = gate::look(control.as_ref(), &ask).await?;
        return Ok(denial.map_or(Asked::Safe, |denial| Asked::Wait { drains: false, denial }));
    }
    Ok(match gate::may_stop(control.as_ref(), &ask).await? {
        Answer::Safe(_) => Asked::Safe,
        Answer::Wait { lease, denial } => Asked::Wait { drains: lease.is_some(), denial },
    })
}

/// The gate's yes to somebody else may be of a while ago: it is judged again, and the lease not prolonged.
async fn still_safe(control: &dyn ControlApi, lease: &DisruptionLease, stopped: &[u64]) -> Result<Asked> {
    let request = DisruptionStatusRequest {
        lease_id: lease.lease_id,
        token: lease.token,
        ttl_ms: 0,
        wanted: DisruptionPhase::SafeToStop as i32,
        stopped_stores: stopped.to_vec(),
    };
    let response = control.disruption_status(request).await?;
    Ok(match response.done {
        true => Asked::SafeByAnother { holder: lease.holder.clone() },
        false => Asked::Wait { drains: false, denial: Denial::of(&response) },
    })
}

/// The newest store at an address that was not removed.
fn store_id(status: &StatusResponse, address: &str) -> Option<u64> {
    let records = status.stores.iter().filter_map(|s| s.store.as_ref());
    let there = records.filter(|s| s.address == address && s.state() != StoreState::StoreRemoved);
    there.map(|s| s.store_id).max()
}

/// A lease that lets the store stop now.
fn safe_lease(leases: &[DisruptionLease], store_id: u64, now_ms: u64) -> Option<&DisruptionLease> {
    leases.iter().find(|lease| {
        lease.stores.contains(&store_id)
            && lease.phase() == DisruptionPhase::SafeToStop
            && lease.expires_at_ms > now_ms
    })
}

async fn open(ctx: &Ctx, store: &StorePod, fence: &Fence) -> Result<Verdict> {
    let opening = fence::open(ctx, &store.namespace, &store.name, &fence.resource_version);
    match within(API_TIMEOUT, "the API server", opening).await {
        Ok(()) => {
            decided(Source::Eviction, Decision::Allowed, "");
            Ok(allow("the gate allows it; its disruption budget is open"))
        }
        Err(error) if error.is_conflict() => {
            let denied = "its disruption budget changed while the gate was asked; it is asked again";
            Ok(Verdict::Deny(Denied::because(denied)))
        }
        Err(error) => Err(error),
    }
}

fn deny(drains: bool, denial: &Denial) -> Verdict {
    let first = denial.blocking.first().map(|shard| shard.reason.as_str());
    let reason = match first {
        Some(reason) => reason,
        None if !denial.refusal.is_empty() => "Refused",
        None => "Draining",
    };
    decided(Source::Eviction, Decision::Denied, reason);
    let message = if drains && denial.refusal.is_empty() {
        let why = if denial.blocking.is_empty() { String::new() } else { format!("; {}", denial.message()) };
        format!("drain begun, {} leaders left{why}", denial.leaders_left)
    } else {
        denial.message()
    };
    Verdict::Deny(Denied { message, causes: denial.blocking.iter().map(cause).collect() })
}
