//! What is reported of one Store. Pure.

use super::model::{Observed, Record, State, StoreSeen};
use super::status::{Pass, needs_a_person, phase, wait_of, write};
use crate::conditions::{Said, Status};
use undb_spec::k8s::StoreStatus;

/// Its status; `before`: as it was read.
pub fn of_store(
    pass: &Pass<'_>,
    store: &StoreSeen,
    generation: Option<i64>,
    before: &StoreStatus,
) -> StoreStatus {
    let wait = wait_of(pass.plan, &store.name);
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let known = store.known();
    let mut status = StoreStatus {
        observed_generation: generation,
        store_id: store.store_id().or(before.store_id),
        phase: Some(phase(pass.observed, store).to_owned()),
        reason: wait.map(|w| w.why.reason.clone()),
        message: wait.map(|w| w.why.message.clone()),
        pod_uid: store.pod.as_ref().map(|p| p.uid.clone()),
        node_name: store.node.name.clone(),
        leaders: known.map(|k| number(k.leaders)).or(before.leaders),
        shards: known.map(|k| number(k.replicas)).or(before.shards),
        drain_progress_percent: drain_progress(store, before),
        replicas: u32::from(store.pod.is_some()),
        selector: Some(super::build::selector_text(pass.wish, Some(&store.name))),
        conditions: before.conditions.clone(),
    };
    write(&mut status.conditions, said(pass, store), generation, pass.now_ms);
    status
}

/// Of what was on it when it was last not draining.
fn drain_progress(store: &StoreSeen, before: &StoreStatus) -> Option<u32> {
    let known = store.known().filter(|k| k.state == State::Draining)?;
    if known.replicas == 0 {
        return Some(100);
    }
    let earlier = u64::from(before.drain_progress_percent.unwrap_or(0)).min(99);
    let last = u64::from(before.shards.unwrap_or(0)).max(known.replicas);
    // What was left before, scaled by what is left of it now.
    let left = (100 - earlier) * known.replicas / last;
    Some(u32::try_from(100 - left).unwrap_or(0))
}

fn said(pass: &Pass<'_>, store: &StoreSeen) -> Vec<Said> {
    let serving = serving(pass, store);
    let ready = Said { type_: "Ready", ..serving.clone() };
    let is_leaving = store.is_offline || pass.observed.is_replaced(store);
    let wait = wait_of(pass.plan, &store.name);
    let reason = wait.map_or("AsExpected", |w| w.why.reason.as_str());
    let message = wait.map_or("", |w| w.why.message.as_str());
    let is_stalled = wait.is_some_and(|w| needs_a_person(&w.why.reason));
    let is_working = !is_stalled && (is_leaving || serving.status != Status::True);
    vec![
        ready,
        serving,
        drained(store),
        Said::new("Reconciling", is_working, reason, message),
        match wait.filter(|_| is_stalled) {
            Some(wait) => Said::new("Stalled", true, wait.why.reason.as_str(), wait.why.message.as_str()),
            None => Said::new("Stalled", false, "AsExpected", ""),
        },
    ]
}

fn serving(pass: &Pass<'_>, store: &StoreSeen) -> Said {
    let wait = wait_of(pass.plan, &store.name);
    let is_ready = store.live_pod().is_some_and(|p| p.is_ready);
    match &store.record {
        Record::Unknown => Said::new(
            "Serving",
            Status::Unknown,
            "ControlPlaneUnreachable",
            "whether it serves is known by the control plane, which does not answer",
        ),
        Record::Known(known) if known.is_alive && is_ready && known.state != State::Removed => {
            Said::new("Serving", true, "Serving", format!("store {} serves", known.store_id))
        }
        _ => {
            let reason = wait.map_or("NotServing", |w| w.why.reason.as_str());
            let message = wait.map_or("it is not up", |w| w.why.message.as_str());
            Said::new("Serving", false, reason, message)
        }
    }
}

/// An admission policy refuses the deletion of a Store that does not say so.
fn drained(store: &StoreSeen) -> Said {
    match &store.record {
        Record::Unknown => Said::new("Drained", Status::Unknown, "ControlPlaneUnreachable", ""),
        Record::Known(known) if known.state == State::Removed => {
            let message = format!("store {} is fenced for ever", known.store_id);
            Said::new("Drained", true, "Removed", message)
        }
        Record::Absent if store.is_offline && store.known_id.is_none() && store.pod.is_none() => {
            Said::new("Drained", true, "NeverRegistered", "nothing was ever on it")
        }
        Record::Known(known) if known.state == State::Draining => {
            Said::new("Drained", false, "Draining", format!("{} replicas are still on it", known.replicas))
        }
        Record::Absent | Record::Known(_) => Said::new("Drained", false, "NotDraining", ""),
    }
}

/// The stores that a status is written for.
pub fn stores(observed: &Observed) -> impl Iterator<Item = &StoreSeen> {
    observed.stores.iter().filter(|s| !s.is_deleting)
}
