//! Random changes, failures and interleavings; the rules are asserted by the small world in each call.

use super::drive::{pass, running, settle};
use super::sim::{BAD, Sim, World_};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// What a person, a machine or the control plane does meanwhile.
fn happen(world: &mut World_, rng: &mut StdRng) {
    let names: Vec<String> = world.stores.keys().cloned().collect();
    let pick = |rng: &mut StdRng| names.get(rng.random_range(0..names.len().max(1))).cloned();
    match rng.random_range(0..14) {
        0 => world.cluster.replicas = rng.random_range(3..7),
        1 => world.cluster.template_hash = format!("t{}", rng.random_range(0..3)),
        2 => world.cluster.template_hash = BAD.into(),
        3 => world.is_control_down = !world.is_control_down,
        4 => world.cluster.is_paused = rng.random_bool(0.3),
        5 => world.cluster.is_rolling = rng.random_bool(0.8),
        6 | 7 => {
            if let Some(name) = pick(rng) {
                world.evict_by_person(&name);
            }
        }
        8 => {
            if let Some(name) = pick(rng) {
                world.terminate(&name);
            }
        }
        9 => world.now_ms += 200_000,
        10 => {
            let ids: Vec<u64> = world.records.keys().copied().collect();
            if let Some(id) = ids.get(rng.random_range(0..ids.len().max(1))) {
                let record = world.records.get_mut(id).expect("known");
                record.is_frozen = !record.is_frozen;
            }
        }
        11 => {
            if let Some(store) = pick(rng).and_then(|name| world.stores.get_mut(&name)) {
                store.is_node_lost = !store.is_node_lost && rng.random_bool(0.3);
            }
        }
        _ => {}
    }
}

fn heal(sim: &Sim) {
    let mut world = sim.state.lock();
    world.is_control_down = false;
    world.cluster.is_paused = false;
    world.cluster.is_rolling = true;
    world.cluster.template_hash = "last".into();
    world.crash = None;
    world.records.values_mut().for_each(|r| r.is_frozen = false);
    world.stores.values_mut().for_each(|s| s.is_node_lost = false);
}

fn describe(sim: &Sim) -> String {
    let world = sim.state.lock();
    let plan = crate::store_cluster::plan::plan(&world.observe(), world.now_ms);
    let stores: Vec<String> = world.observe().stores.iter().map(|s| format!("{s:?}")).collect();
    let (leases, shards, records) = (&world.leases, &world.shards, &world.records);
    format!("{plan:?}\n{}\n{leases:?}\n{shards:?}\n{records:?}", stores.join("\n"))
}

#[tokio::test]
async fn whatever_happens_no_step_breaks_a_rule_and_all_comes_right_in_the_end() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let sim = running(rng.random_range(3..6), 4).await;
        for _ in 0..40 {
            if rng.random_bool(0.5) {
                happen(&mut sim.state.lock(), &mut rng);
            }
            let calls = sim.state.lock().calls;
            if rng.random_bool(0.2) {
                sim.state.lock().crash = Some((calls + rng.random_range(1..12), rng.random_bool(0.5)));
            }
            pass(&sim, |world| {
                if rng.random_bool(0.1) {
                    happen(world, &mut rng);
                }
            })
            .await;
            let mut world = sim.state.lock();
            world.crash = None;
            world.tick();
        }
        heal(&sim);
        let is_settled = settle(&sim, 400).await;
        assert!(is_settled, "seed {seed}: {}", describe(&sim));
    }
}

/// Scenario 38: the process dies at each call in turn, before its effect and after it.
#[tokio::test]
async fn a_crash_at_any_call_converges() {
    let change = |world: &mut World_| {
        world.cluster.template_hash = "two".into();
        world.cluster.replicas = 4;
    };
    let uninterrupted = running(5, 5).await;
    change(&mut uninterrupted.state.lock());
    let begun = uninterrupted.state.lock().calls;
    assert!(settle(&uninterrupted, 100).await);
    let calls = uninterrupted.state.lock().calls - begun;
    assert!(calls > 30, "{calls} calls");
    for at in 1..=calls {
        for is_after in [false, true] {
            let sim = running(5, 5).await;
            {
                let mut world = sim.state.lock();
                change(&mut world);
                world.crash = Some((world.calls + at, is_after));
            }
            assert!(settle(&sim, 200).await, "crash at call {at}, after its effect: {is_after}");
        }
    }
}
