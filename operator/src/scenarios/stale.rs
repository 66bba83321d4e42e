//! Old watches: a pass decides from what it reads itself, so what a watch still shows does no harm.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_watch_that_stands_still_after_the_first_eviction_causes_no_second_one() {
    let (mut world, operator) = World::started().await;
    operator.link.clear();
    world.change_spec(|spec| spec["image"] = json!("undb:2"));
    world.until("the first eviction", |_| operator.evictions() == 1).await;
    world.server.freeze_watches();
    // Passes go on by their timers; each of the other stores goes once, one after the other.
    world.until("rolled", |w| w.is_settled(3, "undb:2")).await;
    assert_eq!(operator.evictions(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_restart_on_an_old_watch_cache_deletes_nothing_of_a_cluster_that_was_made_again() {
    let (mut world, first) = World::started().await;
    world.change_spec(|spec| spec["replicas"] = json!(2));
    // The cache of the API server that a restarted operator connects to still says two.
    tokio::task::yield_now().await;
    drop(first);
    world.server.freeze_watches();
    world.change_spec(|spec| spec["replicas"] = json!(3));
    let second = world.operator();
    for _ in 0..60 {
        world.tick().await;
        world.check();
    }
    let deletes = |c: &crate::testing::Call| c.verb == Verb::Delete || c.target.subresource == "eviction";
    let deleted: Vec<String> = second.link.calls().iter().filter(|c| deletes(c)).map(|c| c.line()).collect();
    assert!(deleted.is_empty(), "{deleted:?}");
    assert!(world.is_settled(3, "undb:1"));
}

#[tokio::test(start_paused = true)]
async fn without_a_control_plane_nothing_is_stopped() {
    let (mut world, operator) = World::started().await;
    world.gate.state.lock().is_down = true;
    world.change_spec(|spec| {
        spec["image"] = json!("undb:2");
        spec["replicas"] = json!(2);
    });
    operator.link.clear();
    for _ in 0..120 {
        world.tick().await;
    }
    assert_eq!(operator.evictions(), 0);
    assert_eq!(world.server.names("stores.undb.io", NS).len(), 3);
    let said = world.condition("DisruptionAllowed");
    assert_eq!(said["reason"], "ControlPlaneUnreachable", "{said}");
}
