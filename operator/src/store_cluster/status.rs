//! What is reported, from what was observed, planned and refused. Pure; kstatus-clean.
//!
//! | condition | True means |
//! |---|---|
//! | Ready | all shards are available, and each store that is wanted serves or restarts by plan |
//! | Available | all shards have a majority |
//! | Degraded | a store that served does not, and nobody planned it |
//! | Progressing, Reconciling | there is something to do, and it goes on |
//! | Stalled | it does not go on until somebody does something |
//! | DisruptionAllowed | the last store asked for may stop |
//!
//! While the control plane does not answer, what only it knows is Unknown.

use super::act::{Effect, NO_TARGET};
use super::model::{Observed, Record, State, StoreSeen};
use super::observe::Answers;
use super::plan::{Plan, Wait};
use super::wish::Wish;
use crate::conditions::{self, Said, Status};
use crate::gate::Denial;
use crate::workload::KUBELET_STALLING;
use undb_proto::v1;
use undb_spec::k8s::{BlockedBy, Condition, LeaseStatus, ShardCounts, StoreClusterStatus};

const BLOCKED_MAX: usize = 10;

/// Reasons that do not go away by waiting, beside those of the kubelet.
const STALLING: [&str; 6] = [
    "RunContainerError",
    "ContainerEnded",
    "PodUnschedulable",
    "StoreNotFound",
    "StoreRemoved",
    "TooManyStoresLost",
];

pub(super) fn needs_a_person(reason: &str) -> bool {
    KUBELET_STALLING.contains(&reason) || STALLING.contains(&reason)
}

/// What a pass came to.
#[derive(Debug)]
pub struct Pass<'a> {
    pub generation: Option<i64>,
    pub wish: &'a Wish,
    pub observed: &'a Observed,
    pub answers: Option<&'a Answers>,
    pub plan: &'a Plan,
    pub effects: &'a [Effect],
    /// What failed, as a reason and a sentence.
    pub error: Option<(&'static str, String)>,
    pub now_ms: u64,
}

/// The status of the StoreCluster; `before`: as it was read.
pub fn of_cluster(pass: &Pass<'_>, before: &StoreClusterStatus) -> StoreClusterStatus {
    let observed = pass.observed;
    let count = |is: &dyn Fn(&StoreSeen) -> bool| {
        u32::try_from(observed.stores.iter().filter(|s| is(s)).count()).unwrap_or(u32::MAX)
    };
    let is_updated =
        |s: &StoreSeen| s.live_pod().is_some_and(|p| p.template_hash == observed.cluster.template_hash);
    let is_ready = |s: &StoreSeen| s.live_pod().is_some_and(|p| p.is_ready);
    let is_all_updated = observed.counted().all(is_updated);
    let revision = observed.cluster.template_hash.clone();
    let mut status = StoreClusterStatus {
        observed_generation: pass.generation,
        image: Some(pass.wish.image.clone()),
        replicas: count(&|_| true),
        ready_replicas: count(&is_ready),
        updated_replicas: count(&is_updated),
        available_replicas: count(&|s| is_ready(s) && !s.is_offline),
        offline_replicas: count(&|s| s.is_offline),
        next_ordinal: next_ordinal(observed, before),
        selector: Some(super::build::selector_text(pass.wish, None)),
        current_revision: if is_all_updated {
            Some(revision.clone())
        } else {
            before.current_revision.clone().or_else(|| oldest_revision(observed))
        },
        update_revision: Some(revision),
        shards: pass.answers.map(|a| shards(&a.status, pass.wish)).or_else(|| before.shards.clone()),
        blocked_by: blocked_by(pass.effects),
        active_leases: active_leases(observed),
        message: None,
        conditions: before.conditions.clone(),
    };
    let said = said_of_cluster(pass);
    status.message = said.iter().find(|s| s.type_ == "Ready").map(|s| s.message.clone());
    write(&mut status.conditions, said, pass.generation, pass.now_ms);
    status
}

pub(super) fn write(conditions: &mut Vec<Condition>, said: Vec<Said>, generation: Option<i64>, now_ms: u64) {
    for said in said {
        conditions::set(conditions, said, generation, now_ms);
    }
}

/// Also when a Store that was made a moment ago is not seen yet.
fn next_ordinal(observed: &Observed, before: &StoreClusterStatus) -> u32 {
    let beyond = observed.stores.iter().map(|s| s.ordinal + 1).max().unwrap_or(0);
    beyond.max(before.next_ordinal)
}

fn oldest_revision(observed: &Observed) -> Option<String> {
    let hashes = observed.stores.iter().filter_map(|s| s.pod.as_ref()).map(|p| p.template_hash.clone());
    hashes.into_iter().find(|hash| *hash != observed.cluster.template_hash)
}

/// Of the tables that name this StoreCluster, not of its neighbours'.
fn shards(status: &v1::StatusResponse, wish: &Wish) -> ShardCounts {
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let own = status.store_clusters.iter().find(|class| class.name == wish.instance.name);
    let own = own.cloned().unwrap_or_default();
    ShardCounts {
        total: number(own.shards),
        available: number(own.shards_available),
        degraded: number(own.shards_under_replicated),
        unavailable: number(own.shards.saturating_sub(own.shards_available)),
    }
}

fn blocked_by(effects: &[Effect]) -> Vec<BlockedBy> {
    let denials = effects.iter().flat_map(|e| &e.denials);
    let entries = denials.flat_map(|(store, denial)| of_denial(store, denial));
    entries.take(BLOCKED_MAX).collect()
}

fn of_denial(store: &str, denial: &Denial) -> Vec<BlockedBy> {
    if denial.blocking.is_empty() {
        let is_moving = denial.refusal.is_empty();
        let reason = if is_moving { "WaitingForShards" } else { "Refused" };
        let message = format!("{store}: {}", denial.message());
        return vec![BlockedBy { reason: reason.into(), message, ..BlockedBy::default() }];
    }
    let of_shard = |b: &v1::BlockingShard| BlockedBy {
        shard: Some(b.shard_id),
        table: Some(b.table.clone()),
        range: b.range.as_ref().map(range_text),
        reason: b.reason.clone(),
        message: format!("{store}: {}", b.message),
        since: (b.since_ms > 0).then(|| conditions::time(b.since_ms)),
    };
    denial.blocking.iter().map(of_shard).collect()
}

fn range_text(range: &v1::KeyRange) -> String {
    let text = |key: &[u8]| String::from_utf8_lossy(key).chars().take(40).collect::<String>();
    let end = if range.end.is_empty() { "end".into() } else { format!("{:?}", text(&range.end)) };
    format!("[{:?}, {end})", text(&range.start))
}

fn active_leases(observed: &Observed) -> Vec<LeaseStatus> {
    let ours = observed.leases().iter().filter(|l| !observed.stores_of(l).is_empty());
    let entry = |lease: &super::model::Lease| LeaseStatus {
        lease_id: lease.raw.lease_id,
        kind: lease.raw.kind().as_str_name().trim_start_matches("DISRUPTION_KIND_").to_owned(),
        stores: observed.stores_of(lease).iter().map(|s| s.name.clone()).collect(),
        holder: lease.raw.holder.clone(),
        phase: Some(lease.phase().as_str_name().trim_start_matches("DISRUPTION_PHASE_").to_owned()),
        // The heartbeat moves it with each pass: written down it would be a write a pass.
        expires_at: None,
    };
    ours.map(entry).collect()
}

/// How the stores that are wanted stand.
struct Standing<'a> {
    serving: usize,
    missing: usize,
    not_up: Vec<&'a StoreSeen>,
    fallen: Vec<&'a StoreSeen>,
    is_settled: bool,
}

fn standing<'a>(pass: &'a Pass<'_>) -> Standing<'a> {
    let observed = pass.observed;
    let is_up = |s: &&StoreSeen| s.live_pod().is_some_and(|p| p.is_ready);
    let is_planned = |s: &&StoreSeen| observed.lease_of(s).is_some();
    let not_up: Vec<&StoreSeen> = observed.counted().filter(|s| !is_up(s) && !is_planned(s)).collect();
    let fallen = not_up.iter().copied().filter(|s| s.known_id.is_some()).collect();
    let counted = observed.counted().count();
    let is_as_wanted = |s: &StoreSeen| {
        s.live_pod().is_some_and(|p| p.is_ready && p.template_hash == observed.cluster.template_hash)
    };
    let is_quiet = !observed.stores.iter().any(|s| s.is_offline || s.is_deleting || observed.is_replaced(s))
        && !observed.leases().iter().any(|l| !observed.stores_of(l).is_empty());
    Standing {
        serving: observed.counted().filter(is_up).count(),
        missing: observed.cluster.replicas.saturating_sub(counted),
        not_up,
        fallen,
        is_settled: is_quiet && counted == observed.cluster.replicas && observed.counted().all(is_as_wanted),
    }
}

fn said_of_cluster(pass: &Pass<'_>) -> Vec<Said> {
    let standing = standing(pass);
    let available = available(pass);
    let stalled = stalled(pass);
    let is_stalled = stalled.status == Status::True;
    let ready = match ready(pass, &standing, &available) {
        // What needs a person is not fine, also while every shard is available.
        said if said.status == Status::True && is_stalled => {
            Said::new("Ready", false, stalled.reason.clone(), stalled.message.clone())
        }
        said => said,
    };
    let is_paused = pass.observed.cluster.is_paused;
    let (reason, message) = progress(pass, &standing);
    let is_progressing = !standing.is_settled && !is_paused && !is_stalled;
    vec![
        ready,
        available,
        Said::new("Progressing", is_progressing, reason.clone(), message.clone()),
        degraded(pass, &standing),
        disruption_allowed(pass),
        // Also while it is paused: what is wanted is not reached.
        Said::new("Reconciling", !standing.is_settled && !is_stalled, reason, message),
        stalled,
    ]
}

fn available(pass: &Pass<'_>) -> Said {
    let Some(answers) = pass.answers else {
        return Said::new("Available", Status::Unknown, "ControlPlaneUnreachable", unreachable(pass));
    };
    let shards = shards(&answers.status, pass.wish);
    if shards.unavailable > 0 {
        let message = format!("{} of {} shards have no majority", shards.unavailable, shards.total);
        return Said::new("Available", false, "ShardsUnavailable", message);
    }
    Said::new("Available", true, "AllShardsAvailable", format!("all {} shards are available", shards.total))
}

fn unreachable(pass: &Pass<'_>) -> String {
    pass.error.as_ref().map_or_else(|| "the control plane does not answer".into(), |(_, text)| text.clone())
}

fn ready(pass: &Pass<'_>, standing: &Standing<'_>, available: &Said) -> Said {
    if let Some((reason, message)) = pass.error.as_ref().filter(|(reason, _)| *reason == "InvalidSpec") {
        return Said::new("Ready", false, *reason, message.clone());
    }
    if available.status != Status::True {
        return Said { type_: "Ready", ..available.clone() };
    }
    if standing.missing > 0 {
        let message = format!("{} stores are still to be made", standing.missing);
        return Said::new("Ready", false, "ScalingOut", message);
    }
    if let Some(store) = standing.not_up.first() {
        let why = wait_of(pass.plan, &store.name);
        let reason = why.map_or("StoreNotReady", |w| w.why.reason.as_str());
        let text = why.map_or("it does not serve yet", |w| w.why.message.as_str());
        let message =
            format!("{} of the stores are not ready: {}: {text}", standing.not_up.len(), store.name);
        return Said::new("Ready", false, reason, message);
    }
    let (serving, all) = (standing.serving, pass.observed.counted().count());
    let message = match serving == all {
        true => format!("{all} stores serve"),
        false => format!("{serving} of {all} stores serve, the others are away by plan"),
    };
    if pass.observed.cluster.is_paused && !standing.is_settled {
        let message = format!("{message}; spec.paused is true, so that what was changed waits");
        return Said::new("Ready", true, "ReconcilePaused", message);
    }
    Said::new("Ready", true, "Reconciled", message)
}

fn degraded(pass: &Pass<'_>, standing: &Standing<'_>) -> Said {
    if let Some(store) = standing.fallen.first() {
        let message =
            format!("{} of the stores do not serve, among them {}", standing.fallen.len(), store.name);
        return Said::new("Degraded", true, "StoreDown", message);
    }
    if pass.answers.is_none() {
        return Said::new("Degraded", Status::Unknown, "ControlPlaneUnreachable", unreachable(pass));
    }
    Said::new("Degraded", false, "AsExpected", "every store serves, or is away by plan")
}

fn disruption_allowed(pass: &Pass<'_>) -> Said {
    if pass.answers.is_none() {
        return Said::new("DisruptionAllowed", Status::Unknown, "ControlPlaneUnreachable", unreachable(pass));
    }
    if let Some((store, denial)) = pass.effects.iter().flat_map(|e| &e.denials).next() {
        let reason = denial.blocking.first().map_or("WaitingForShards", |b| b.reason.as_str());
        return Said::new("DisruptionAllowed", false, reason, format!("{store}: {}", denial.message()));
    }
    if let Some(store) = pass.effects.iter().find_map(|e| e.stopped.as_ref()) {
        return Said::new("DisruptionAllowed", true, "Granted", format!("{store} may stop"));
    }
    Said::new("DisruptionAllowed", Status::Unknown, "NotAsked", "no store is to be stopped")
}

fn stalled(pass: &Pass<'_>) -> Said {
    if let Some((reason, message)) = pass.error.as_ref().filter(|(reason, _)| *reason == "InvalidSpec") {
        return Said::new("Stalled", true, *reason, message.clone());
    }
    if let Some(wait) = pass.plan.waits.iter().find(|w| needs_a_person(&w.why.reason)) {
        let message = format!("{}: {}", wait.store, wait.why.message);
        return Said::new("Stalled", true, wait.why.reason.clone(), message);
    }
    let is_full = |denial: &Denial| denial.blocking.iter().any(|shard| shard.reason == NO_TARGET);
    let mut denials = pass.effects.iter().flat_map(|effect| &effect.denials);
    if let Some((store, denial)) = denials.find(|(_, denial)| is_full(denial)) {
        let message =
            format!("{store} cannot leave: {}; start more stores, or let it stay", denial.message());
        return Said::new("Stalled", true, NO_TARGET, message);
    }
    Said::new("Stalled", false, "AsExpected", "nothing needs a person")
}

fn progress(pass: &Pass<'_>, standing: &Standing<'_>) -> (String, String) {
    let observed = pass.observed;
    if observed.cluster.is_paused {
        return ("ReconcilePaused".into(), "spec.paused is true".into());
    }
    if standing.is_settled {
        return ("Reconciled".into(), "everything is as wanted".into());
    }
    if let Some((reason, message)) = &pass.error {
        return ((*reason).into(), message.clone());
    }
    if let Some(wait) = pass.plan.waits.iter().find(|w| w.why.reason == "WaitingForNode") {
        return (wait.why.reason.clone(), format!("{}: {}", wait.store, wait.why.message));
    }
    if let Some((store, denial)) = pass.effects.iter().flat_map(|e| &e.denials).next() {
        return ("WaitingForShards".into(), format!("{store}: {}", denial.message()));
    }
    if let Some(store) = observed.stores.iter().find(|s| s.is_offline) {
        return ("ScalingIn".into(), format!("{} leaves", store.name));
    }
    if standing.missing > 0 || !standing.not_up.is_empty() {
        let count = standing.missing + standing.not_up.len();
        return ("ScalingOut".into(), format!("{count} stores are on their way"));
    }
    ("UpdateInProgress".into(), "stores are restarted one after the other".into())
}

pub(super) fn wait_of<'a>(plan: &'a Plan, store: &str) -> Option<&'a Wait> {
    plan.waits.iter().find(|w| w.store == store)
}

/// The word for a store, for a column.
pub(super) fn phase(observed: &Observed, store: &StoreSeen) -> &'static str {
    let is_ready = store.live_pod().is_some_and(|p| p.is_ready);
    match &store.record {
        Record::Known(k) if k.state == State::Removed => "Drained",
        _ if observed.is_replaced(store) => "Lost",
        Record::Known(k) if k.state == State::Draining || store.is_offline => {
            if k.replicas == 0 {
                "Drained"
            } else {
                "Draining"
            }
        }
        _ if store.pod.as_ref().is_some_and(|p| p.is_terminating) => "Stopping",
        Record::Known(k) if is_ready && k.is_alive => "Serving",
        Record::Unknown if is_ready => "Unknown",
        _ if store.live_pod().is_some_and(|p| p.is_running) => "Starting",
        _ => "Pending",
    }
}
