//! What is missing is made again, and fences that nobody needs open are closed. Harms nobody, so it
//! needs no answer of the control plane.

use super::{Action, Plan, leases};
use crate::store_cluster::model::{NodeState, Observed, Record, State, StoreSeen};

pub(super) fn plan(observed: &Observed, now_ms: u64, plan: &mut Plan) {
    let cluster = &observed.cluster;
    for store in observed.stores.iter().filter(|s| !s.is_deleting) {
        if store.template_hash != cluster.template_hash && !cluster.is_paused {
            plan.act(Action::SetTemplate { store: store.name.clone() });
        }
        if !store.is_fence_closed() && !leases::is_open_justified(observed, store, now_ms) {
            plan.act(Action::CloseFence { store: store.name.clone() });
        }
        if store.is_state(State::Removed) && !store.is_offline && !observed.is_replaced(store) {
            let message = "its id was removed for ever; set spec.offline of the Store, and a new one is made";
            plan.wait(&store.name, "StoreRemoved", message);
        }
        if needs_pod(observed, store) {
            make(store, plan);
        }
        if let Some(pod) = store.live_pod() {
            // Without the label every machine is a zone of its own.
            let zone = store.node.zone.clone().or_else(|| store.node.name.clone());
            let is_bound = pod.unschedulable.is_none() && store.node.state == NodeState::Ready;
            if let Some(zone) = zone.filter(|z| is_bound && pod.zone.as_ref() != Some(z)) {
                plan.act(Action::WriteZone { store: store.name.clone(), pod_uid: pod.uid.clone(), zone });
            }
            wait_for_pod(store, plan);
        }
    }
}

/// The volume, then the fence, then the Pod: no Pod is ever without its fence.
fn make(store: &StoreSeen, plan: &mut Plan) {
    let name = || store.name.clone();
    if !store.has_claim {
        plan.act(Action::CreateClaim { store: name() });
    }
    if store.fence.is_none() {
        plan.act(Action::CreateFence { store: name() });
    }
    if store.pod.is_none() {
        plan.act(Action::CreatePod { store: name() });
    }
}

/// A store that still has something to give needs its Pod, also while it leaves.
fn needs_pod(observed: &Observed, store: &StoreSeen) -> bool {
    if observed.is_replaced(store) && !store.is_offline {
        // Its node may be back, and then it leaves in order.
        let is_lost = matches!(store.node.state, NodeState::NotReady { .. } | NodeState::Gone);
        return !is_lost && store.known().is_some_and(|k| k.state != State::Removed);
    }
    match &store.record {
        _ if !store.is_offline => true,
        // Whether it was just taken away for good is what nobody can say.
        Record::Unknown => store.pod.is_some(),
        Record::Absent => false,
        Record::Known(known) => known.state != State::Removed && (known.replicas > 0 || store.pod.is_some()),
    }
}

fn wait_for_pod(store: &StoreSeen, plan: &mut Plan) {
    let Some(pod) = store.live_pod().filter(|p| !p.is_ready) else { return };
    let node = store.node.name.as_deref().unwrap_or("?");
    if let Some(message) = &pod.unschedulable {
        if store.node.is_cordoned || store.node.state == NodeState::Gone {
            let message = format!("its volume is on node {node}, which is cordoned or gone: {message}");
            plan.wait(&store.name, "WaitingForNode", message);
        } else {
            plan.wait(&store.name, "PodUnschedulable", message.clone());
        }
    } else if let Some(why) = &pod.waiting {
        plan.wait(&store.name, &why.reason, why.message.clone());
    } else if matches!(store.node.state, NodeState::NotReady { .. } | NodeState::Gone) {
        plan.wait(&store.name, "NodeNotReady", format!("node {node} is not ready"));
    } else {
        plan.wait(&store.name, "Starting", "its shards have not all caught up yet");
    }
}
