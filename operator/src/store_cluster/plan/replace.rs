//! A store whose node is gone for good: another one first, then the old id is given up for ever. Its Pod
//! is never deleted by force, and a cordoned node is never taken for a lost one.

use super::{Action, Plan, scale};
use crate::store_cluster::model::{NodeState, Observed, Record, State, StoreSeen};

pub(super) fn plan(observed: &Observed, now_ms: u64, plan: &mut Plan) {
    if observed.control.is_none() {
        return;
    }
    for store in observed.stores.iter().filter(|s| !s.is_offline && !s.is_deleting) {
        if let Some(replacement) = observed.replacement(store) {
            give_up(observed, store, replacement, plan);
        }
    }
    let Some(after_ms) = observed.cluster.replace_after_ms else { return };
    let lost: Vec<(&StoreSeen, u64)> =
        observed.counted().filter_map(|s| Some((s, lost_since_ms(s)?))).collect();
    let overdue = lost.iter().find(|(_, since_ms)| now_ms.saturating_sub(*since_ms) >= after_ms);
    let Some((store, _)) = overdue else { return };
    if lost.len() * 2 >= observed.counted().count() {
        let message = format!("{} stores are lost at once; no majority is left to trust", lost.len());
        return plan.wait("", "TooManyStoresLost", message);
    }
    let Some(ordinal) = scale::next_ordinals(observed).next() else { return };
    plan.act(Action::CreateStore { ordinal, replaces: Some(store.uid.clone()) });
}

/// Since when its node is not ready or gone, while it is silent.
fn lost_since_ms(store: &StoreSeen) -> Option<u64> {
    if store.node.is_cordoned || store.known().is_none_or(|k| k.is_alive || k.state == State::Removed) {
        return None;
    }
    match store.node.state {
        NodeState::NotReady { since_ms } => Some(since_ms),
        // Nobody knows since when: it counts from when we saw that it does not serve.
        NodeState::Gone => store.not_serving_since_ms,
        NodeState::Ready | NodeState::Unbound => None,
    }
}

fn give_up(observed: &Observed, store: &StoreSeen, replacement: &StoreSeen, plan: &mut Plan) {
    let Record::Known(known) = &store.record else { return };
    if known.state == State::Removed {
        return scale::clean_up(observed, store, plan);
    }
    if known.is_alive {
        // It came back: it leaves in order, since its place is taken.
        return plan.act(Action::TakeOffline { store: store.name.clone() });
    }
    if lost_since_ms(store).is_none() {
        return plan.wait(&store.name, "Starting", "its node is back; it leaves once it serves");
    }
    if replacement.known().is_some_and(|k| k.is_alive) {
        if !plan.actions.iter().any(Action::is_disruptive) {
            plan.disrupt(Action::RemoveLost { store: store.name.clone(), store_id: known.store_id });
        }
    } else {
        let message = format!("{} takes its place and has not registered yet", replacement.name);
        plan.wait(&store.name, "StoreLost", message);
    }
}
