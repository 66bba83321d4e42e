//! Each lease over our stores is brought to its end, whoever took it: a roll, an eviction whose Pod is
//! gone, or somebody who no longer exists.
//!
//! ```text
//! wanted still (roll, scale-in)      goes on where it was begun: `roll`, `scale`
//! Pod gone                           MarkStopped; the fence is closed; the Pod is made again
//! fences closed, Pods run            FinishLease, again and again until the stores are proven up
//! ```

use super::{Action, Plan};
use crate::gate::Holder;
use crate::store_cluster::model::{Lease, NodeState, Observed, State, StoreSeen};
use undb_proto::v1::{DisruptionKind, DisruptionPhase as Phase};

pub(super) fn plan(observed: &Observed, now_ms: u64, plan: &mut Plan) {
    for lease in observed.leases() {
        let stores = observed.stores_of(lease);
        if stores.is_empty() {
            continue;
        }
        match standing(observed, lease, now_ms) {
            Standing::Foreign => {
                for store in stores {
                    let message = format!("it is under a lease of {}", lease.raw.holder);
                    plan.wait(&store.name, "LeaseHeld", message);
                }
            }
            Standing::Wanted => {}
            Standing::Over => end(lease, &stores, plan),
        }
    }
}

/// The one lease that we hold for a restart or a removal: until it is gone there is no other.
pub(super) fn in_hand(observed: &Observed) -> Option<&Lease> {
    observed.leases().iter().find(|lease| match &lease.holder {
        Some(Holder::StoreCluster(uid)) => *uid == observed.cluster.uid,
        Some(Holder::ScaleIn(uid)) => observed.stores.iter().any(|s| s.uid == *uid),
        _ => false,
    })
}

/// What is to become of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A person's or a tool's: not ours to end.
    Foreign,
    /// Its holder has not done yet what it was taken for.
    Wanted,
    /// What it was taken for is done, or will not be.
    Over,
}

pub(super) fn standing(observed: &Observed, lease: &Lease, now_ms: u64) -> Standing {
    let stores = observed.stores_of(lease);
    let is_wanted = match &lease.holder {
        None => return Standing::Foreign,
        Some(Holder::StoreCluster(uid)) if *uid == observed.cluster.uid => {
            stores.iter().any(|s| is_restart_wanted(observed, s) && !is_better_later(observed, lease, s))
        }
        Some(Holder::Eviction(uid)) => {
            let is_there = stores.iter().any(|s| s.live_pod().is_some_and(|p| p.uid == *uid));
            is_there && !lease.is_lapsed(now_ms)
        }
        Some(Holder::ScaleIn(uid)) => stores.iter().any(|s| s.uid == *uid && is_removal_wanted(observed, s)),
        // Of a StoreCluster or Store that is no more.
        Some(_) => false,
    };
    if is_wanted { Standing::Wanted } else { Standing::Over }
}

/// The store runs, and either has been stopped under this lease already and is outdated anew, or keeps
/// one waiting that is down and needs the new template to come up. It is given back, and asked for again.
fn is_better_later(observed: &Observed, lease: &Lease, store: &StoreSeen) -> bool {
    let is_down = |s: &&StoreSeen| s.name != store.name && !s.is_running() && is_restart_wanted(observed, s);
    let is_stopped_once = matches!(lease.phase(), Phase::Stopped | Phase::CatchingUp);
    store.is_running() && (is_stopped_once || observed.stores.iter().any(|s| is_down(&s)))
}

/// Its Pod is not as it should be, and it is us who restart it. One that leaves is left alone, unless it
/// must come up to hand its data over.
pub(super) fn is_restart_wanted(observed: &Observed, store: &StoreSeen) -> bool {
    let cluster = &observed.cluster;
    let is_ours = cluster.is_rolling && !cluster.is_paused && !store.is_deleting;
    let is_outdated = store.live_pod().is_some_and(|p| p.template_hash != cluster.template_hash);
    let is_leaving = store.is_offline || observed.is_replaced(store);
    // A Pod on a node that is away would be ending for as long as that is.
    let is_bound = store.live_pod().is_some_and(|p| p.unschedulable.is_none());
    let is_away = is_bound && matches!(store.node.state, NodeState::NotReady { .. } | NodeState::Gone);
    is_ours && is_outdated && !is_away && !(is_leaving && store.is_running())
}

fn is_removal_wanted(observed: &Observed, store: &StoreSeen) -> bool {
    let is_leaving = store.is_offline && store.is_state(State::Draining) && !observed.cluster.is_paused;
    is_leaving && store.live_pod().is_some()
}

/// May the fence of a store be open now? Only between the gate's last yes and the end of the Pod that it
/// was said of.
pub(super) fn is_open_justified(observed: &Observed, store: &StoreSeen, now_ms: u64) -> bool {
    let Some(lease) = observed.lease_of(store) else { return false };
    let is_safe = lease.phase() == Phase::SafeToStop && !lease.is_lapsed(now_ms);
    is_safe && store.live_pod().is_some() && standing(observed, lease, now_ms) != Standing::Over
}

fn end(lease: &Lease, stores: &[&StoreSeen], plan: &mut Plan) {
    let is_all_closed = stores.iter().all(|s| s.is_fence_closed());
    let is_gone = |s: &&StoreSeen| s.pod.is_none();
    if lease.phase() == Phase::SafeToStop && stores.iter().any(is_gone) {
        plan.act(Action::MarkStopped { lease: lease.clone() });
        return;
    }
    if !is_all_closed {
        return; // Closed by the upkeep of this pass, seen closed by the next.
    }
    let is_removal = lease.raw.kind() == DisruptionKind::Remove;
    let is_done = |s: &&StoreSeen| s.is_state(State::Removed) || s.is_running();
    // A removal whose Pod is gone waits for its record to go; one that was called off ends.
    let is_ended = stores.iter().all(is_done) || lease.phase() == Phase::Draining;
    if is_ended {
        let stores = stores.iter().map(|s| s.name.clone()).collect();
        plan.act(Action::FinishLease { lease: lease.clone(), stores });
    } else if !is_removal {
        plan.act(Action::KeepLease { lease: lease.clone() });
    }
}
