//! Passes over the small world, as a reconcile makes them.

use super::sim::{Sim, World_};
use crate::store_cluster::act;
use crate::store_cluster::plan::{Action, Plan, plan};
use std::collections::BTreeSet;

/// One pass; `between` runs after each action. What was planned is returned.
pub async fn pass(sim: &Sim, mut between: impl FnMut(&mut World_)) -> Plan {
    let (observed, now_ms) = {
        let world = sim.state.lock();
        (world.observe(), world.now_ms)
    };
    let plan = plan(&observed, now_ms);
    let disruptive: Vec<&Action> = plan.actions.iter().filter(|a| a.is_disruptive()).collect();
    assert!(disruptive.len() <= 1, "{disruptive:?}");
    if observed.control.is_none() {
        let is_harmless = |a: &&Action| matches!(a, Action::EvictPending { .. });
        assert!(disruptive.iter().all(is_harmless), "disruptive without a control plane: {disruptive:?}");
    }
    let mut failed = false;
    for action in &plan.actions {
        if action.is_disruptive() && failed {
            continue;
        }
        let outcome = act::perform(sim, &observed.cluster.uid, action).await;
        if let Err(error) = &outcome {
            failed = true;
            if error.to_string() == "crashed" {
                sim.state.lock().crash = None;
                return plan;
            }
        }
        between(&mut sim.state.lock());
    }
    sim.state.lock().write_statuses();
    plan
}

/// Passes and ticks until all is as wanted. False: it did not come to that.
pub async fn settle(sim: &Sim, passes_max: usize) -> bool {
    for _ in 0..passes_max {
        pass(sim, |_| {}).await;
        let mut world = sim.state.lock();
        world.tick();
        if world.is_settled() {
            return true;
        }
    }
    false
}

/// A cluster of this many stores that serves shards of three copies on each three neighbours.
pub async fn running(replicas: usize, shards: usize) -> Sim {
    let sim = Sim::new(World_::new(replicas));
    assert!(settle(&sim, 20).await, "it starts");
    {
        let mut world = sim.state.lock();
        let ids: Vec<u64> = world.records.keys().copied().collect();
        for shard in 0..shards {
            let copies: BTreeSet<u64> = (0..3.min(ids.len())).map(|n| ids[(shard + n) % ids.len()]).collect();
            world.shards.push(copies);
        }
    }
    sim
}
