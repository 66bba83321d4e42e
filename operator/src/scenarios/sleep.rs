//! An operator that sleeps past its lease, at the worst moment, stops nothing when it wakes.

use super::*;
use crate::testing::{Fault, Verb};

/// The first operator sleeps before the call that `worst` names; a second one finishes the roll meanwhile.
async fn wakes_after_a_roll_of_another(worst: (Verb, &'static str)) {
    let mut world = World::new();
    let first = world.operator();
    world.until("started", |w| w.is_settled(3, "undb:1")).await;
    first.link.fail_once(Fault::Sleep, move |call| call.is(worst.0, worst.1));
    world.change_spec(|spec| spec["image"] = json!("undb:2"));
    world.until("asleep", |_| first.link.calls().iter().any(|c| c.is(worst.0, worst.1))).await;
    let second = world.operator();
    world.until("rolled by the second", |w| w.is_settled(3, "undb:2")).await;
    drop(second);
    first.link.wake();
    for _ in 0..30 {
        world.tick().await;
        world.check();
    }
    assert!(world.is_settled(3, "undb:2"));
}

#[tokio::test(start_paused = true)]
async fn asleep_between_the_gates_answer_and_the_fence() {
    wakes_after_a_roll_of_another((Verb::Update, PDBS)).await;
}

#[tokio::test(start_paused = true)]
async fn asleep_between_the_fence_and_the_eviction() {
    wakes_after_a_roll_of_another((Verb::Create, "pods/eviction")).await;
}

#[tokio::test(start_paused = true)]
async fn asleep_before_the_gate_is_asked() {
    wakes_after_a_roll_of_another((Verb::Create, "acquire.control")).await;
}

/// The worst order: the roll that it slept in is called off, so its store is never stopped and its fence never
/// opened; then another store is stopped; then it wakes.
#[tokio::test(start_paused = true)]
async fn asleep_while_the_roll_is_called_off_and_another_store_goes() {
    let mut world = World::new();
    let first = world.operator();
    world.until("started", |w| w.is_settled(3, "undb:1")).await;
    first.link.fail_once(Fault::Sleep, |call| call.is(Verb::Update, PDBS));
    world.change_spec(|spec| spec["image"] = json!("undb:2"));
    world.until("asleep", |_| first.link.calls().iter().any(|c| c.is(Verb::Update, PDBS))).await;
    let slept_on = world.server.with(|c| c.all(&Key::new("pods", NS, "")));
    world.change_spec(|spec| spec["image"] = json!("undb:1"));
    let second = world.operator();
    world.until("called off", |w| w.is_settled(3, "undb:1")).await;
    drop(second);
    assert_eq!(world.server.with(|c| c.all(&Key::new("pods", NS, ""))).len(), slept_on.len());
    // Another store is down now, for a reason of its own.
    world.server.change("pods", NS, "main-2", |pod| {
        pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]});
    });
    world.tick().await;
    assert_eq!(world.gate.state.lock().down().len(), 1);
    let before = world.server.names("pods", NS);
    first.link.wake();
    for _ in 0..5 {
        world.tick().await;
    }
    assert_eq!(world.server.names("pods", NS), before, "a second store was stopped");
    world.check();
}
