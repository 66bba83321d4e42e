//! Whatever happens to stores and to cluster control, repeated planning brings every shard back to its
//! replicas, without ever destroying a member or asking a group to lose its quorum.

mod world;

use rand::Rng;
use undb_proto::v1::{self, StoreState, TableState};
use world::run::Run;

#[test]
fn a_new_table_gets_its_replicas_whatever_step_control_dies_at() {
    for seed in 0..60 {
        let mut run = Run::new(seed);
        for _ in 0..3 {
            run.add_store();
        }
        run.create_table("t", 7);
        for _ in 0..30 {
            run.round(20);
        }
        run.settle(10);
        run.assert_settled(seed);
    }
}

#[test]
fn shards_come_back_to_three_replicas_after_any_misfortune() {
    for seed in 0..60 {
        let mut run = Run::new(seed);
        for _ in 0..4 {
            run.add_store();
        }
        run.create_table("t", 5);
        for _ in 0..6 {
            let rounds = run.random.random_range(0..10);
            for _ in 0..rounds {
                run.round(5);
            }
            run.misfortune();
            run.settle(200);
        }
        run.assert_settled(seed);
        run.settle(300);
        run.assert_leaders_are_even(seed);
        run.assert_settled(seed);
    }
}

#[test]
fn without_enough_stores_a_table_says_so_and_waits() {
    let mut run = Run::new(1);
    run.add_store();
    run.create_table("t", 2);
    run.settle(5);
    let table = run.state.live_table("t").expect("created");
    assert_eq!(table.state(), TableState::TableCreating);
    assert!(table.condition.starts_with("InsufficientStores: 3 stores"), "{}", table.condition);
    run.add_store();
    run.add_store();
    run.settle(10);
    run.assert_settled(1);
    assert_eq!(run.state.live_table("t").expect("created").condition, "");
}

#[test]
fn a_table_is_placed_on_stores_that_are_just_back_or_nearly_full_where_no_others_are() {
    let mut run = Run::new(3);
    run.add_store();
    run.add_store();
    let returned = run.add_store();
    run.settings.suspect_ms = 60_000;
    run.disk_bytes = 100 << 30;
    run.copy_bytes = 4 << 30;
    run.create_table("large", 23);
    run.settle(60);
    run.assert_settled(3);
    run.store(returned).up = false;
    run.settle(25);
    run.store(returned).up = true;
    run.settle(1);
    run.create_table("t", 1);
    run.settle(10);
    let table = run.state.live_table("t").expect("created");
    assert_eq!((table.state(), &table.condition[..]), (TableState::TableReady, ""));
}

#[test]
fn a_table_that_finds_no_stores_says_why_of_each() {
    let mut run = Run::new(4);
    let ids = [run.add_store(), run.add_store(), run.add_store()];
    run.settle(2);
    run.set(ids[0], StoreState::StoreCordoned);
    run.create_table("t", 1);
    run.settle(5);
    let condition = run.state.live_table("t").expect("created").condition.clone();
    let why = format!("2 can take replicas: store {} is cordoned", ids[0]);
    assert!(condition.ends_with(&why), "{condition}");
}

#[test]
fn a_lost_store_without_a_spare_is_a_condition_and_not_a_removal() {
    let mut run = Run::new(2);
    for _ in 0..3 {
        run.add_store();
    }
    run.create_table("t", 2);
    run.settle(10);
    let victim = *run.world.stores.keys().next().expect("stores");
    run.store(victim).up = false;
    run.settle(100);
    let table = run.state.live_table("t").expect("created");
    assert!(table.condition.contains("has no other store"), "{}", table.condition);
    let listed = run.state.shards().all(|s| s.shard.as_ref().expect("whole").replicas.len() == 3);
    assert!(listed, "no replica is removed without a replacement");
    run.store(victim).up = true;
    run.settle(20);
    run.assert_settled(2);
}

#[test]
fn a_replica_that_metadata_does_not_know_is_never_destroyed() {
    let mut run = Run::new(3);
    for _ in 0..3 {
        run.add_store();
    }
    run.create_table("t", 1);
    run.settle(10);
    let store = *run.world.stores.keys().next().expect("stores");
    run.store(store).replicas.insert(9999, 8888);
    run.settle(100);
    assert!(run.world.stores[&store].replicas.contains_key(&9999));
}

#[test]
fn a_store_that_slept_through_a_purge_gives_its_replicas_away_when_it_returns() {
    let mut run = Run::new(4);
    for _ in 0..4 {
        run.add_store();
    }
    run.create_table("keep", 1);
    run.create_table("t", 3);
    run.settle(10);
    let victim = run
        .world
        .stores
        .iter()
        .find(|(_, s)| !s.replicas.is_empty())
        .map(|(id, _)| *id)
        .expect("a store with replicas");
    run.store(victim).up = false;
    run.delete_now("t".into());
    run.settle(40);
    assert!(run.state.tables().all(|t| t.name != "t"), "purged without it");
    run.store(victim).up = true;
    run.settle(200);
    run.assert_settled(4);
}

#[test]
fn when_many_stores_fall_silent_at_once_nothing_is_repaired() {
    let mut run = Run::new(5);
    for _ in 0..5 {
        run.add_store();
    }
    run.create_table("t", 4);
    run.settle(10);
    let before: Vec<_> = run.state.shards().cloned().collect();
    let ids: Vec<u64> = run.world.stores.keys().copied().take(2).collect();
    for id in &ids {
        run.store(*id).up = false;
    }
    run.settle(200);
    let members = |s: &v1::ShardRecord| s.shard.as_ref().expect("whole").replicas.clone();
    let after: Vec<_> = run.state.shards().map(members).collect();
    assert_eq!(before.iter().map(members).collect::<Vec<_>>(), after, "40 % are silent: it may be us");
}

#[test]
fn leaders_of_three_stores_differ_by_at_most_one_after_each_was_away() {
    let mut run = Run::new(6);
    for _ in 0..3 {
        run.add_store();
    }
    run.create_table("t", 10);
    run.settle(10);
    for id in run.world.stores.keys().copied().collect::<Vec<_>>() {
        run.store(id).up = false;
        run.settle(30);
        run.store(id).up = true;
        run.settle(300);
        let mut led: Vec<usize> = run
            .world
            .stores
            .values()
            .map(|s| s.replicas.keys().filter(|r| run.world.groups.values().any(|g| g.leader == **r)).count())
            .collect();
        led.sort_unstable();
        assert_eq!(led, [3, 3, 4]);
    }
}
