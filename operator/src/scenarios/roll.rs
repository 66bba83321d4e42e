//! Rolls and scale-ins that meet a store in a bad moment, and changes that must not become a roll.

use super::*;

/// Seconds in which a pass has come round many times.
const LONG: usize = 90;

#[tokio::test(start_paused = true)]
async fn what_needs_no_restart_restarts_nobody() {
    let (mut world, operator) = World::started().await;
    let before = world.pod_uids();
    let toleration = json!([{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}]);
    let changes = [
        ("podTemplate", json!({"metadata": {"labels": {"example.com/team": "a"}}})),
        ("podTemplate", json!({"metadata": {"annotations": {"prometheus.io/scrape": "true"}}})),
        ("podTemplate", json!({"spec": {"tolerations": toleration, "priorityClassName": "high"}})),
        (
            "podTemplate",
            json!({"spec": {"nodeSelector": {"disk": "ssd"}, "terminationGracePeriodSeconds": 90}}),
        ),
        ("disruptionPolicy", json!({"evictionWebhook": "Off"})),
        ("replacementPolicy", json!({"mode": "Manual"})),
        ("persistentVolumeClaimRetentionPolicy", json!({"whenScaled": "Delete"})),
    ];
    for (field, value) in changes {
        world.change_spec(|spec| spec[field] = value.clone());
        for _ in 0..LONG {
            world.tick().await;
        }
        assert_eq!(world.pod_uids(), before, "{field}: {value}");
        assert!(world.is_settled(3, "undb:1"), "{field}: {value}");
    }
    assert_eq!(operator.evictions(), 0);
    // It would have seen a restart.
    world.change_spec(|spec| spec["resources"] = json!({"requests": {"cpu": "2"}}));
    world.until("rolled", |w| w.is_settled(3, "undb:1") && w.pod_uids() != before).await;
    assert_eq!(operator.evictions(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_next_store_waits_until_others_have_heard_of_the_last_one() {
    let (mut world, operator) = World::started().await;
    world.gate.state.lock().is_return_unheard = true;
    world.change_spec(|spec| spec["image"] = json!("undb:2"));
    world.until("the first eviction", |_| operator.evictions() == 1).await;
    // Its Pod is ready again within seconds, and says so.
    for _ in 0..LONG {
        world.tick().await;
        world.check();
    }
    assert_eq!(operator.evictions(), 1);
    world.gate.state.lock().is_return_unheard = false;
    world.until("rolled", |w| w.is_settled(3, "undb:2")).await;
    assert_eq!(operator.evictions(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_leaves_while_it_still_starts_goes_as_an_empty_one() {
    let (mut world, _operator) = World::started().await;
    world.stuck.push("main-3".into());
    world.change_spec(|spec| spec["replicas"] = json!(4));
    world.until("a fourth Pod", |w| w.pod_uids().contains_key("main-3")).await;
    let others =
        |w: &World| w.pod_uids().into_iter().filter(|(name, _)| name != "main-3").collect::<Vec<_>>();
    let before = others(&world);
    for _ in 0..LONG {
        world.tick().await;
    }
    world.change_spec(|spec| spec["replicas"] = json!(3));
    world.until("three again", |w| w.is_settled(3, "undb:1")).await;
    assert_eq!(others(&world), before);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_leaves_while_it_catches_up_gives_its_data_away_first() {
    let (mut world, operator) = World::started().await;
    world.gate.state.lock().is_return_unheard = true;
    world.change_spec(|spec| spec["replicas"] = json!(4));
    world.until("a fourth store", |w| w.gate.state.lock().stores.len() == 4).await;
    world.change_spec(|spec| spec["replicas"] = json!(3));
    let mut restarts = std::collections::BTreeSet::new();
    for _ in 0..LONG {
        world.tick().await;
        restarts.extend(world.pod_uids().remove("main-3"));
    }
    assert!(restarts.len() <= 1, "a restart loop: {restarts:?}");
    world.gate.state.lock().is_return_unheard = false;
    // A removal of a store with replicas would be a violation of the gate's.
    world.until("three again", |w| w.is_settled(3, "undb:1")).await;
    assert!(operator.evictions() <= 1);
}
