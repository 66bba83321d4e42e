//! Pods that are not as wanted are restarted, one store after the other, each as soon as the gate allows.

use super::leases::{Standing, in_hand, is_restart_wanted, standing};
use super::{Action, Plan, Target, scale};
use crate::store_cluster::model::{Lease, Observed, Record, State, StoreSeen};

pub(super) fn plan(observed: &Observed, now_ms: u64, plan: &mut Plan) {
    if plan.is_taken() {
        return;
    }
    let mut outdated: Vec<&StoreSeen> =
        observed.stores.iter().filter(|s| is_restart_wanted(observed, s)).collect();
    // What is down already first: it is where nothing can be lost, and what a roll back mends.
    outdated.sort_by_key(|s| (s.is_running(), s.ordinal));
    if outdated.is_empty() {
        return;
    }
    if let Some(action) = outdated.iter().find_map(|s| unregistered(s)) {
        return plan.disrupt(action);
    }
    if observed.control.is_none() {
        return;
    }
    if let Some(lease) = in_hand(observed) {
        if standing(observed, lease, now_ms) == Standing::Over {
            return wait_for(observed, lease, plan);
        }
        let mut held = outdated.iter().filter(|s| s.store_id().is_some_and(|id| lease.covers(id)));
        match held.find_map(|s| target(observed, s, Some(lease))) {
            Some(target) => plan.disrupt(Action::Restart { targets: vec![target] }),
            None => wait_for(observed, lease, plan),
        }
        return;
    }
    if let Some(store) = observed.counted().find(|s| is_new_and_not_up(observed, s)) {
        let message = "it has the new template and is not ready; the next one waits for it";
        return plan.wait(&store.name, "WaitingForStore", message);
    }
    let targets: Vec<Target> = outdated.iter().filter_map(|s| free(observed, s, now_ms)).collect();
    if targets.is_empty() {
        plan.wait("", "WaitingForStore", "no store to be restarted is free and registered");
    } else {
        plan.disrupt(Action::Restart { targets });
    }
}

fn unregistered(store: &StoreSeen) -> Option<Action> {
    let pod = store.live_pod()?;
    match store.record {
        Record::Absent if store.known_id.is_none() => scale::evict_unregistered(&store.name, pod),
        // A Pod that never started serves nobody, whatever the control plane would say.
        Record::Unknown if store.known_id.is_none() && pod.is_pending => {
            scale::evict_unregistered(&store.name, pod)
        }
        _ => None,
    }
}

fn wait_for(observed: &Observed, lease: &Lease, plan: &mut Plan) {
    for store in observed.stores_of(lease) {
        let message = format!("its lease is in phase {:?}; the next one waits for it", lease.phase());
        plan.wait(&store.name, "WaitingForStore", message);
    }
}

/// It has the new template and does not serve: the next one would be the second.
fn is_new_and_not_up(observed: &Observed, store: &StoreSeen) -> bool {
    match &store.pod {
        None => true,
        Some(pod) if pod.is_terminating => true,
        Some(pod) => pod.template_hash == observed.cluster.template_hash && !pod.is_ready,
    }
}

/// To be asked for, unless somebody else has it.
fn free(observed: &Observed, store: &StoreSeen, now_ms: u64) -> Option<Target> {
    let lease = observed.lease_of(store);
    match lease.map(|l| standing(observed, l, now_ms)) {
        None => target(observed, store, None),
        // An eviction that is over, whose Pod never came up: its lease serves to stop it again.
        Some(Standing::Over) if !store.is_running() => target(observed, store, lease),
        Some(Standing::Over | Standing::Wanted | Standing::Foreign) => None,
    }
}

fn target(observed: &Observed, store: &StoreSeen, lease: Option<&Lease>) -> Option<Target> {
    let pod = store.live_pod().filter(|_| !store.is_state(State::Removed))?;
    Some(Target {
        store: store.name.clone(),
        uid: store.uid.clone(),
        store_id: store.store_id()?,
        pod_uid: pod.uid.clone(),
        is_stopped: !pod.is_running,
        duration_ms: observed.restart_ms(),
        lease: lease.cloned(),
    })
}
