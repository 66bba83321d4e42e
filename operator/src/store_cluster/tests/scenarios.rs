//! What other operators got wrong, by its number in `scenarios/README.md`.

use super::drive::{pass, running, settle};
use super::sim::{BAD, Sim, World_};
use crate::store_cluster::model::{
    Control, Mark, NodeState, Observed, PodSeen, Record, Remains, State, StoreSeen, Why,
};
use crate::store_cluster::plan::{Action, Plan, plan};
use undb_proto::v1::DisruptionPhase as Phase;

const NOW_MS: u64 = 10_000_000;

fn observed(sim: &Sim) -> Observed {
    sim.state.lock().observe()
}

fn store_of<'a>(observed: &'a mut Observed, name: &str) -> &'a mut StoreSeen {
    observed.stores.iter_mut().find(|s| s.name == name).expect("there is such a store")
}

fn planned(observed: &Observed) -> Plan {
    plan(observed, NOW_MS)
}

fn disruptive(plan: &Plan) -> Vec<&Action> {
    plan.actions.iter().filter(|a| a.is_disruptive()).collect()
}

fn waits(plan: &Plan, reason: &str) -> bool {
    plan.waits.iter().any(|w| w.why.reason == reason)
}

fn change(sim: &Sim, change: impl FnOnce(&mut World_)) {
    change(&mut sim.state.lock());
}

// 1
#[tokio::test]
async fn a_scale_in_during_a_roll_waits_for_the_store_that_restarts() {
    let sim = running(4, 4).await;
    change(&sim, |w| w.cluster.template_hash = "two".into());
    while sim.state.lock().leases.is_empty() {
        pass(&sim, |_| {}).await;
    }
    change(&sim, |w| w.cluster.replicas = 3);
    let plan = planned(&observed(&sim));
    assert!(!plan.actions.iter().any(|a| matches!(a, Action::TakeOffline { .. })), "{plan:?}");
    assert!(settle(&sim, 200).await);
}

// 2
#[tokio::test]
async fn a_scale_in_that_is_called_off_brings_the_same_store_back() {
    let sim = running(5, 5).await;
    change(&sim, |w| w.cluster.replicas = 4);
    for _ in 0..3 {
        pass(&sim, |_| {}).await;
    }
    let before: Vec<u64> = sim.state.lock().records.keys().copied().collect();
    change(&sim, |w| w.cluster.replicas = 5);
    assert!(settle(&sim, 50).await);
    let world = sim.state.lock();
    assert_eq!(world.records.keys().copied().collect::<Vec<u64>>(), before);
    assert!(world.records.values().all(|r| r.state == State::Up));
}

// 4, 10
#[tokio::test]
async fn nothing_goes_while_the_control_plane_cannot_be_asked() {
    let sim = running(5, 5).await;
    change(&sim, |w| {
        w.cluster.replicas = 3;
        w.cluster.is_claim_deleted = true;
        w.cluster.template_hash = "two".into();
        w.is_control_down = true;
    });
    for _ in 0..10 {
        let plan = pass(&sim, |_| {}).await;
        assert!(disruptive(&plan).is_empty(), "{plan:?}");
        assert!(waits(&plan, "ControlPlaneUnreachable"));
        sim.state.lock().tick();
    }
    let world = sim.state.lock();
    assert_eq!(world.stores.len(), 5);
    assert!(world.stores.values().all(|s| s.seen.has_claim && !s.seen.is_offline));
}

// 5
#[tokio::test]
async fn three_stores_that_leave_go_one_after_the_other() {
    let sim = running(6, 6).await;
    change(&sim, |w| w.cluster.replicas = 3);
    for _ in 0..100 {
        pass(&sim, |_| {}).await;
        let mut world = sim.state.lock();
        world.tick();
        assert!(world.stores.values().filter(|s| s.seen.is_offline).count() <= 1);
    }
    assert!(sim.state.lock().is_settled());
}

// 8
#[tokio::test]
async fn a_store_that_crashes_is_not_taken_for_empty() {
    let sim = running(4, 4).await;
    let mut observed = observed(&sim);
    let store = store_of(&mut observed, "s-3");
    (store.is_offline, store.mark) = (true, Mark::Victim);
    if let Record::Known(known) = &mut store.record {
        (known.state, known.replicas, known.is_alive) = (State::Draining, 2, false);
    }
    store.pod.as_mut().expect("a pod").is_running = false;
    observed.cluster.replicas = 3;
    let plan = planned(&observed);
    assert!(disruptive(&plan).is_empty() && waits(&plan, "Draining"), "{plan:?}");
    // 10: not even when nobody knows its id any more.
    store_of(&mut observed, "s-3").record = Record::Absent;
    let plan = planned(&observed);
    assert!(disruptive(&plan).is_empty() && waits(&plan, "StoreNotFound"), "{plan:?}");
}

// 11
#[tokio::test]
async fn a_draining_store_whose_pod_was_deleted_gets_it_back() {
    let sim = running(4, 4).await;
    let mut observed = observed(&sim);
    observed.cluster.replicas = 3;
    let store = store_of(&mut observed, "s-3");
    (store.is_offline, store.mark, store.pod) = (true, Mark::Victim, None);
    if let Record::Known(known) = &mut store.record {
        (known.state, known.replicas) = (State::Draining, 2);
    }
    let plan = planned(&observed);
    assert!(plan.actions.contains(&Action::CreatePod { store: "s-3".into() }), "{plan:?}");
}

// 13
#[tokio::test]
async fn a_number_is_never_used_again() {
    let sim = running(4, 4).await;
    change(&sim, |w| w.cluster.replicas = 3);
    assert!(settle(&sim, 100).await);
    change(&sim, |w| w.cluster.replicas = 4);
    assert!(settle(&sim, 100).await);
    let world = sim.state.lock();
    assert!(world.stores.contains_key("s-4"), "{:?}", world.stores.keys());
    assert_eq!(world.records.len(), 5);
}

#[test]
fn a_cluster_made_again_adopts_volumes_but_not_those_of_removed_stores() {
    let mut observed = Observed { control: Some(Control::default()), ..Observed::default() };
    observed.cluster.replicas = 3;
    observed.remains = Remains { removed: [1].into(), claims: [0, 1, 2].into() };
    let made = |plan: &Plan| -> Vec<u32> {
        let ordinal = |a: &Action| match a {
            Action::CreateStore { ordinal, .. } => Some(*ordinal),
            _ => None,
        };
        plan.actions.iter().filter_map(ordinal).collect()
    };
    assert_eq!(made(&planned(&observed)), [0, 2, 3]);
    observed.control = None;
    let plan = planned(&observed);
    assert!(made(&plan).is_empty() && waits(&plan, "VolumeUnknown"), "{plan:?}");
    observed.remains = Remains::default();
    assert_eq!(made(&planned(&observed)), [0, 1, 2], "a new one needs no control plane");
}

// 14
#[tokio::test]
async fn scaling_out_and_rolling_at_once_stops_one_store_at_a_time() {
    let sim = running(3, 3).await;
    change(&sim, |w| {
        w.cluster.replicas = 6;
        w.cluster.template_hash = "two".into();
    });
    for _ in 0..150 {
        pass(&sim, |_| {}).await;
        let mut world = sim.state.lock();
        let shards = world.shards.clone();
        for shard in &shards {
            assert!(shard.iter().filter(|id| !world.is_up(**id)).count() <= 1, "{shard:?}");
        }
        world.tick();
    }
    assert!(sim.state.lock().is_settled());
}

// 16
#[tokio::test]
async fn a_lease_that_was_lost_is_asked_for_again() {
    let sim = running(4, 4).await;
    change(&sim, |w| w.cluster.template_hash = "two".into());
    while sim.state.lock().leases.is_empty() {
        pass(&sim, |_| {}).await;
    }
    change(&sim, |w| w.leases.clear());
    assert!(settle(&sim, 200).await);
}

// 17
#[tokio::test]
async fn a_lease_of_nobody_is_brought_to_its_end() {
    for holder in ["storecluster/of-before", "scale-in/gone", "eviction/a-pod-that-is-gone", "replace/gone"] {
        let sim = running(3, 3).await;
        change(&sim, |w| {
            let id = *w.records.keys().next().expect("a store");
            let mut lease = undb_proto::v1::DisruptionLease {
                lease_id: 99,
                token: 99,
                stores: vec![id],
                holder: holder.into(),
                expires_at_ms: w.now_ms + 1,
                ..Default::default()
            };
            lease.phase = Phase::SafeToStop as i32;
            w.leases.push(lease);
            w.stores.values_mut().next().expect("a store").is_fence_open = true;
        });
        assert!(settle(&sim, 20).await, "{holder}");
    }
}

// 19, and a roll back
#[tokio::test]
async fn an_image_that_cannot_start_stops_the_roll_and_is_rolled_back() {
    let sim = running(4, 4).await;
    change(&sim, |w| w.cluster.template_hash = BAD.into());
    for _ in 0..30 {
        pass(&sim, |_| {}).await;
        sim.state.lock().tick();
    }
    let bad = |w: &World_| w.stores.values().filter(|s| !w.is_running(&s.seen.name)).count();
    assert_eq!(bad(&sim.state.lock()), 1, "never a second store");
    let mut seen = observed(&sim);
    let name = seen.stores.iter().find(|s| !s.is_running()).expect("one is down").name.clone();
    let why = Why { reason: "ImagePullBackOff".into(), message: "no such image".into() };
    store_of(&mut seen, &name).pod.as_mut().expect("a pod").waiting = Some(why);
    assert!(waits(&planned(&seen), "ImagePullBackOff"));
    change(&sim, |w| w.cluster.template_hash = "one".into());
    assert!(settle(&sim, 100).await);
}

// 20
#[tokio::test]
async fn a_store_that_may_not_stop_does_not_keep_others_from_it() {
    let sim = running(5, 0).await;
    change(&sim, |w| {
        let ids: Vec<u64> = w.records.keys().copied().collect();
        // The only copy of a shard.
        w.shards.push([ids[0]].into());
        w.shards.push([ids[1], ids[2], ids[3]].into());
        w.cluster.template_hash = "two".into();
    });
    for _ in 0..80 {
        pass(&sim, |_| {}).await;
        sim.state.lock().tick();
    }
    let world = sim.state.lock();
    let updated = |s: &&super::sim::SimStore| s.seen.live_pod().is_some_and(|p| p.template_hash == "two");
    assert_eq!(world.stores.values().filter(updated).count(), 4);
}

// 26
#[tokio::test]
async fn passes_on_an_old_picture_stop_nobody_twice() {
    let sim = running(4, 4).await;
    change(&sim, |w| w.cluster.template_hash = "two".into());
    let (old, now_ms) = (observed(&sim), sim.state.lock().now_ms);
    for _ in 0..5 {
        for action in &plan(&old, now_ms).actions {
            let _refused = crate::store_cluster::act::perform(&sim, "cluster", action).await;
        }
    }
    let world = sim.state.lock();
    let ending = world.stores.values().filter(|s| s.seen.live_pod().is_none()).count();
    assert_eq!((ending, world.leases.len()), (1, 1));
}

// 28
#[tokio::test]
async fn a_store_that_waits_for_its_cordoned_node_holds_the_roll_and_is_not_replaced() {
    let sim = running(4, 4).await;
    let mut observed = observed(&sim);
    observed.cluster.template_hash = "two".into();
    let store = store_of(&mut observed, "s-1");
    store.pod = Some(PodSeen {
        uid: "new".into(),
        template_hash: "two".into(),
        is_pending: true,
        unschedulable: Some("0/3 nodes are available".into()),
        ..PodSeen::default()
    });
    store.node.is_cordoned = true;
    store.node.state = NodeState::NotReady { since_ms: 0 };
    if let Record::Known(known) = &mut store.record {
        known.is_alive = false;
    }
    let plan = planned(&observed);
    assert!(disruptive(&plan).is_empty() && waits(&plan, "WaitingForNode"), "{plan:?}");
    assert!(!plan.actions.iter().any(|a| matches!(a, Action::CreateStore { .. })), "{plan:?}");
}

// 29, 35
#[tokio::test]
async fn an_eviction_that_nobody_finished_ends_once_its_pod_is_gone_or_its_lease_has_lapsed() {
    let sim = running(4, 4).await;
    change(&sim, |w| w.evict_by_person("s-2"));
    assert_eq!(sim.state.lock().leases.len(), 1);
    assert!(settle(&sim, 30).await);
}

// 31
#[tokio::test]
async fn two_stores_that_share_a_shard_are_not_drained_at_once() {
    let sim = running(6, 0).await;
    change(&sim, |w| {
        let ids: Vec<u64> = w.records.keys().copied().collect();
        w.shards = vec![[ids[0], ids[1], ids[2]].into(), [ids[3], ids[4], ids[5]].into()];
        w.evict_by_person("s-0");
        w.evict_by_person("s-1");
        w.evict_by_person("s-3");
        let is_ending = |name: &str| w.stores[name].seen.live_pod().is_none();
        assert_eq!([is_ending("s-0"), is_ending("s-1"), is_ending("s-3")], [true, false, true]);
    });
    assert!(settle(&sim, 50).await);
}

// 34
#[tokio::test]
async fn silence_of_the_control_plane_makes_no_new_stores() {
    let sim = running(3, 3).await;
    change(&sim, |w| {
        w.is_control_down = true;
        w.stores.get_mut("s-1").expect("a store").is_node_lost = true;
    });
    for _ in 0..50 {
        pass(&sim, |_| {}).await;
        sim.state.lock().tick();
    }
    assert_eq!(sim.state.lock().stores.len(), 3);
}

#[tokio::test]
async fn a_store_whose_node_is_gone_is_given_up_after_another_serves() {
    let sim = running(4, 4).await;
    change(&sim, |w| w.stores.get_mut("s-1").expect("a store").is_node_lost = true);
    let plan = pass(&sim, |_| {}).await;
    let is_replacing = |a: &Action| matches!(a, Action::CreateStore { replaces: Some(_), .. });
    assert!(plan.actions.iter().any(is_replacing) && disruptive(&plan).is_empty(), "{plan:?}");
    // Its Pod ends only with its node, and nobody forces it: the rest does not wait.
    for _ in 0..60 {
        pass(&sim, |_| {}).await;
        sim.state.lock().tick();
    }
    let world = sim.state.lock();
    assert!(world.stores.contains_key("s-4") && !world.stores.contains_key("s-1"));
    assert!(world.shards.iter().all(|s| s.iter().all(|id| world.is_up(*id))));
}

// 37
#[tokio::test]
async fn an_object_of_the_same_name_that_came_later_is_not_touched() {
    let sim = running(3, 3).await;
    let old = observed(&sim);
    let mut target = old.clone();
    target.cluster.template_hash = "two".into();
    let plan = planned(&target);
    change(&sim, |w| {
        for store in w.stores.values_mut() {
            store.seen.pod.as_mut().expect("a pod").uid.push_str("-anew");
        }
    });
    for action in &plan.actions {
        let _refused = crate::store_cluster::act::perform(&sim, "cluster", action).await;
    }
    let world = sim.state.lock();
    assert!(world.stores.values().all(|s| s.seen.live_pod().is_some() && !s.is_fence_open));
}

#[tokio::test]
async fn a_paused_cluster_is_not_changed_and_its_fences_are_closed() {
    let sim = running(3, 3).await;
    let mut observed = observed(&sim);
    observed.cluster.is_paused = true;
    observed.cluster.replicas = 1;
    observed.cluster.template_hash = "two".into();
    store_of(&mut observed, "s-0").fence.as_mut().expect("a fence").is_open = true;
    assert_eq!(planned(&observed).actions, [Action::CloseFence { store: "s-0".into() }]);
}

#[tokio::test]
async fn with_on_delete_nobody_is_restarted() {
    let sim = running(3, 3).await;
    let mut observed = observed(&sim);
    observed.cluster.is_rolling = false;
    observed.cluster.template_hash = "two".into();
    assert!(disruptive(&planned(&observed)).is_empty());
}
