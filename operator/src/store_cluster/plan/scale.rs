//! As many stores as wanted. Pods are never counted: a store is there until its data is elsewhere.
//!
//! ```text
//! fewer   TakeOffline --> Drain --> (no copies left) Remove --> RemoveRecord --> volume, Store
//! more    a victim that has not stopped stays (BringBack, Uncordon); else CreateStore
//! ```
//! One victim at a time, so that each move has a target.

use super::{Action, Plan, Target, leases};
use crate::store_cluster::model::{Mark, Observed, Record, State, StoreSeen};
use std::collections::BTreeMap;

pub(super) fn plan(observed: &Observed, plan: &mut Plan) {
    for store in observed.stores.iter().filter(|s| !s.is_deleting) {
        if store.is_offline {
            leave(observed, store, plan);
        } else if store.mark == Mark::Cancelled {
            stay(store, plan);
        }
    }
    // A lost store counts until the one in its place exists.
    let counted = observed.counted().count();
    let wanted = observed.cluster.replicas;
    if counted < wanted {
        grow(observed, wanted - counted, plan);
    } else if counted > wanted {
        shrink(observed, plan);
    }
}

/// Numbers that were never used, in order. Of a StoreCluster that was deleted, and made again over its
/// volumes, those of stores that were not removed come back.
pub(super) fn next_ordinals(observed: &Observed) -> impl Iterator<Item = u32> {
    let beyond = observed.stores.iter().map(|s| s.ordinal + 1).max().unwrap_or(0);
    let first = beyond.max(observed.cluster.next_ordinal);
    (first..).filter(|ordinal| !observed.remains.removed.contains(ordinal))
}

fn grow(observed: &Observed, mut missing: usize, plan: &mut Plan) {
    let is_victim = |s: &&StoreSeen| s.is_offline && s.mark == Mark::Victim && !s.is_deleting;
    for store in observed.stores.iter().filter(is_victim).filter(|s| !observed.is_replaced(s)) {
        if missing == 0 || is_past_return(store) {
            continue;
        }
        missing -= 1;
        if store.record == Record::Unknown {
            plan.wait(&store.name, "CancellingDrain", "whether it can stay is known by the control plane");
            continue;
        }
        // Its later steps are of a plan that is off.
        plan.actions.retain(|a| !is_leaving_step(a, &store.name));
        plan.act(Action::BringBack { store: store.name.clone() });
    }
    let planned = plan.actions.iter().filter(|a| matches!(a, Action::CreateStore { .. })).count();
    for ordinal in next_ordinals(observed).skip(planned).take(missing) {
        if observed.control.is_none() && observed.remains.claims.contains(&ordinal) {
            let message = format!(
                "there is a volume of store number {ordinal}; whether that store was removed for ever is known by the control plane"
            );
            return plan.wait("", "VolumeUnknown", message);
        }
        plan.act(Action::CreateStore { ordinal, replaces: None });
    }
}

/// It is fenced, or about to be: another one must be made.
fn is_past_return(store: &StoreSeen) -> bool {
    store.known().is_some_and(|known| match known.state {
        State::Removed => true,
        State::Draining => known.replicas == 0 && store.live_pod().is_none(),
        State::Up | State::Cordoned => false,
    })
}

fn is_leaving_step(action: &Action, name: &str) -> bool {
    match action {
        Action::Drain { store, .. }
        | Action::EvictPending { store, .. }
        | Action::EvictUnregistered { store, .. } => store == name,
        Action::Remove { target } => target.store == name,
        Action::FirstOf { alternatives } => alternatives.iter().any(|a| is_leaving_step(a, name)),
        _ => false,
    }
}

fn stay(store: &StoreSeen, plan: &mut Plan) {
    match &store.record {
        Record::Unknown => {}
        Record::Known(known) if known.state == State::Draining => {
            plan.act(Action::Uncordon { store: store.name.clone(), store_id: known.store_id });
        }
        Record::Absent | Record::Known(_) => plan.act(Action::ClearMark { store: store.name.clone() }),
    }
}

fn shrink(observed: &Observed, plan: &mut Plan) {
    if observed.control.is_none() {
        return;
    }
    // One at a time, and not while a store that may be needed as a target is down for a restart.
    let is_leaving = observed.stores.iter().any(|s| s.is_offline);
    let is_restarting = observed.leases().iter().any(|l| !observed.stores_of(l).is_empty());
    let is_replacing = observed.stores.iter().any(|s| observed.is_replaced(s));
    if is_leaving || is_restarting || is_replacing || plan.is_taken() {
        return plan.wait("", "ScalingIn", "the next store leaves when nothing else is under way");
    }
    if let Some(victim) = victim(observed) {
        plan.act(Action::TakeOffline { store: victim.name.clone() });
    }
}

/// From the zone that has most; of its stores the youngest.
fn victim(observed: &Observed) -> Option<&StoreSeen> {
    let mut by_zone: BTreeMap<&str, usize> = BTreeMap::new();
    for store in observed.counted() {
        *by_zone.entry(store.zone()).or_default() += 1;
    }
    observed.counted().max_by_key(|s| (by_zone.get(s.zone()).copied(), s.ordinal))
}

/// One step of a store that leaves.
fn leave(observed: &Observed, store: &StoreSeen, plan: &mut Plan) {
    let name = &store.name;
    match &store.record {
        Record::Unknown => {}
        Record::Absent => leave_unregistered(observed, store, plan),
        Record::Known(known) => match known.state {
            State::Removed => clean_up(observed, store, plan),
            State::Up | State::Cordoned => {
                plan.act(Action::Drain { store: name.clone(), store_id: known.store_id });
            }
            State::Draining if known.replicas > 0 => {
                plan.wait(name, "Draining", format!("{} replicas are still on it", known.replicas));
                // While something is stopped by plan, the answer would be about that.
                if observed.leases().is_empty() {
                    let (store, uid, store_id) = (name.clone(), store.uid.clone(), known.store_id);
                    plan.act(Action::AskForRoom { store, uid, store_id });
                }
            }
            State::Draining => remove(observed, store, known.store_id, plan),
        },
    }
}

fn remove(observed: &Observed, store: &StoreSeen, store_id: u64, plan: &mut Plan) {
    if store.pod.is_none() {
        if store.is_fence_closed() {
            plan.act(Action::RemoveRecord { store: store.name.clone(), store_id });
        }
        return;
    }
    if leases::in_hand(observed).is_some_and(|l| !l.covers(store_id)) {
        return plan.wait(&store.name, "WaitingForStore", "it leaves when the store under a lease is back");
    }
    if let Some(pod) = store.live_pod().filter(|_| !plan.is_taken()) {
        // A lease of another kind is brought to its end first.
        let lease = observed.lease_of(store);
        let is_ours = |l: &&crate::store_cluster::model::Lease| {
            l.holder == Some(crate::gate::Holder::ScaleIn(store.uid.clone()))
        };
        if lease.is_some_and(|l| !is_ours(&l)) {
            return plan.wait(&store.name, "LeaseHeld", "it is under another lease");
        }
        let target = Target {
            store: store.name.clone(),
            uid: store.uid.clone(),
            store_id,
            pod_uid: pod.uid.clone(),
            is_stopped: !pod.is_running,
            duration_ms: observed.restart_ms(),
            lease: lease.cloned(),
        };
        plan.disrupt(Action::Remove { target });
    }
}

/// It never registered, as far as anybody knows, so it keeps nothing.
fn leave_unregistered(observed: &Observed, store: &StoreSeen, plan: &mut Plan) {
    let name = &store.name;
    if let Some(store_id) = store.known_id {
        let message = format!("the control plane does not know store {store_id} any more");
        return plan.wait(name, "StoreNotFound", message);
    }
    match store.pod.as_ref() {
        None => clean_up(observed, store, plan),
        Some(pod) if pod.is_terminating || plan.is_taken() => {}
        Some(pod) => match evict_unregistered(name, pod) {
            Some(action) => plan.disrupt(action),
            None => plan.wait(name, "NotRegistered", "it runs and has not registered yet"),
        },
    }
}

/// How a Pod whose store never registered goes, if it may.
pub(super) fn evict_unregistered(name: &str, pod: &crate::store_cluster::model::PodSeen) -> Option<Action> {
    let (store, pod_uid) = (name.to_owned(), pod.uid.clone());
    if pod.is_pending {
        Some(Action::EvictPending { store, pod_uid })
    } else if !pod.is_running {
        Some(Action::EvictUnregistered { store, pod_uid })
    } else {
        None
    }
}

/// Its id is fenced for ever, or it never had one: what is left of it goes.
pub(super) fn clean_up(observed: &Observed, store: &StoreSeen, plan: &mut Plan) {
    if observed.lease_of(store).is_some() || !store.is_fence_closed() {
        return;
    }
    let name = || store.name.clone();
    if let Some(pod) = &store.pod {
        // On a node that is gone it stays in Terminating; never by force.
        if !pod.is_terminating {
            plan.act(Action::DeletePod { store: name(), pod_uid: pod.uid.clone() });
        }
        if !observed.is_replaced(store) {
            return;
        }
    }
    if !store.is_drained_written {
        return; // The status of this pass says so, and the next one goes on.
    }
    if observed.cluster.is_claim_deleted && store.has_claim {
        plan.act(Action::DeleteClaim { store: name() });
    }
    plan.act(Action::DeleteStore { store: name() });
}
