//! Garbage collection. Each test names the public bug whose like it must not have (scenarios of the engine).

use crate::world::*;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use undb_engine::tree::{EngineKind, Origin, Tree};
use undb_engine::{EngineError, EngineOptions};
use undb_types::KeyRange;
use undb_vfs::{Fault, OpKind, SimFs};

/// So many keys of 1 KiB, each entry one key.
fn fill(world: &World, tree: &dyn Tree, model: &mut Model, keys: impl Iterator<Item = u64>, seed: u64) {
    for n in keys {
        let changes = [change(&format!("k{n:05}"), noise(seed * 1_000_000 + n, 1000))];
        let index = world.put(1, tree, &changes);
        step_model(model, index, &changes);
    }
}

fn settle(world: &World, tree: &dyn Tree) -> u64 {
    tree.flush().expect("flush");
    world.purge_to_durable(1, tree).expect("purge");
    world.collect()
}

#[test]
fn a_key_deleted_while_its_value_is_moved_stays_deleted_badger_2286() {
    let world = World::new();
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    fill(&world, &*tree, &mut model, 0..300, 1);
    // Leaves every segment one third full.
    fill(&world, &*tree, &mut model, (0..300).filter(|n| n % 3 != 0), 2);
    tree.flush().expect("flush");
    world.purge_to_durable(1, &*tree).expect("purge");
    // The collector copies in one thread while this one deletes and overwrites.
    let engine = Arc::clone(&world.engine);
    let collector = std::thread::spawn(move || {
        let mut outdated = 0;
        for now_ms in 0..60 {
            outdated += engine.gc_step(now_ms).expect("gc").outdated_values;
        }
        outdated
    });
    for n in (0..300).step_by(3) {
        let changes = [delete(&format!("k{n:05}"))];
        step_model(&mut model, world.put(1, &*tree, &changes), &changes);
        if n % 30 == 0 {
            tree.flush().expect("flush");
            world.engine.maintain().expect("maintain");
        }
    }
    collector.join().expect("collector");
    assert_holds(&*tree, &model);
    settle(&world, &*tree);
    drop(tree);
    let world = world.reopen(options());
    assert_holds(&*world.tree(1, EngineKind::Separated), &model);
    world.check();
}

#[test]
fn readers_miss_nothing_while_values_are_moved_and_their_files_deleted() {
    let world =
        World::with(EngineOptions { value_cache_bytes: 0, space_amplification_max: 1.05, ..options() });
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    fill(&world, &*tree, &mut model, 0..200, 1);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut reads = 0u64;
            while !done.load(std::sync::atomic::Ordering::Relaxed) || reads < 400 {
                let n = reads % 200;
                let row = tree.get(format!("k{n:05}").as_bytes()).expect("get").expect("present");
                assert_eq!(row.value.map(|value| value.len()), Some(1000));
                if n == 0 {
                    assert_eq!(tree.scan(&KeyRange::all(), false, false).expect("scan").count(), 200);
                }
                reads += 1;
            }
        });
        for round in 2..8 {
            fill(&world, &*tree, &mut model, (0..200).filter(|n| n % 5 != round % 5), round);
            settle(&world, &*tree);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_holds(&*tree, &model);
    world.check();
}

#[test]
fn segments_are_deleted_only_after_the_flush_that_makes_them_dead_badger_1090() {
    let world = World::new();
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    fill(&world, &*tree, &mut model, 0..200, 1);
    tree.flush().expect("flush");
    world.purge_to_durable(1, &*tree).expect("purge");
    let before = world.log.segments().len();
    // All of it is overwritten, but only in memory. The budget holds: nothing forces a flush.
    let durable = tree.durable();
    for n in 0..200 {
        let changes = [change(&format!("k{n:05}"), "small")];
        step_model(&mut model, world.put(1, &*tree, &changes), &changes);
    }
    let now = tree.stats().live_by_segment;
    assert!(now.is_empty(), "{now:?}");
    assert_eq!(tree.durable(), durable);
    drop(tree);
    let world = world.reopen(options());
    assert!(world.log.segments().len() >= before);
    let tree = world.tree(1, EngineKind::Separated);
    assert_eq!(tree.stats().live_by_segment.values().sum::<u64>(), 200 * (12 + 6 + 1000));
    world.replay(1, &*tree).expect("replay");
    assert_holds(&*tree, &model);
    settle(&world, &*tree);
    assert!(world.log.segments().len() < before, "dead segments are gone after the flush");
    assert_holds(&*tree, &model);
    world.check();
}

#[test]
fn a_delete_survives_the_collection_of_its_segment_and_a_reopening_bitcask_82() {
    let world = World::new();
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    fill(&world, &*tree, &mut model, 0..100, 1);
    let deletes: Vec<Change> = (0..100).step_by(2).map(|n| delete(&format!("k{n:05}"))).collect();
    step_model(&mut model, world.put(1, &*tree, &deletes), &deletes);
    fill(&world, &*tree, &mut model, 100..300, 2);
    settle(&world, &*tree);
    world.engine.maintain().expect("maintain");
    drop(tree);
    let world = world.reopen(options());
    let tree = world.tree(1, EngineKind::Separated);
    world.replay(1, &*tree).expect("replay");
    assert_holds(&*tree, &model);
    world.check();
}

#[test]
fn endless_overwrites_and_deletes_take_bounded_space_badger_1302() {
    let world = World::new();
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    let mut rng = rand::rngs::StdRng::seed_from_u64(1302);
    let (mut peak, mut moved) = (0.0f64, 0);
    for round in 0..60u64 {
        for _ in 0..50 {
            let n: u64 = rng.random_range(0..150);
            let key = format!("k{n:05}");
            let changes = match rng.random_bool(0.1) {
                true => [delete(&key)],
                false => [change(&key, noise(rng.random(), 1000))],
            };
            step_model(&mut model, world.put(1, &*tree, &changes), &changes);
        }
        moved += settle(&world, &*tree);
        while world.engine.maintain().expect("maintain") {}
        if round > 10 {
            peak = peak.max(world.engine.stats().space_amplification);
        }
    }
    assert!(moved > 0, "the collector had work");
    assert!(peak <= 1.6, "space amplification peaked at {peak}");
    assert_holds(&*tree, &model);
    world.check();
}

#[test]
fn every_field_of_a_record_survives_relocation_badger_1619() {
    use undb_engine::tree::{RecordMeta, TreeBatch, TreeOp};
    let world = World::new();
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    fill(&world, &*tree, &mut model, 0..90, 1);
    let metas: Vec<RecordMeta> = (0..90u64)
        .map(|n| RecordMeta {
            version: u64::MAX - n,
            expire_at_ms: n << 40,
            kind: u32::MAX - n as u32,
            value_len: 1000,
        })
        .collect();
    let key = |n: usize| format!("k{n:05}");
    let ops = metas
        .iter()
        .enumerate()
        .map(|(n, meta)| TreeOp::SetMeta { key: key(n).into(), meta: *meta })
        .collect();
    tree.write(TreeBatch { ops, system: vec![], applied: tree.applied() }).expect("write");
    fill(&world, &*tree, &mut model, (0..90).filter(|n| n % 3 != 0), 2);
    assert!(settle(&world, &*tree) > 0);
    for (n, meta) in metas.iter().enumerate().step_by(3) {
        let row = tree.get(key(n).as_bytes()).expect("get").expect("present");
        assert_eq!((row.meta, row.value), (*meta, Some(noise(1_000_000 + n as u64, 1000).into())));
    }
    world.check();
}

#[test]
fn an_open_scan_and_a_snapshot_finish_although_everything_was_collected_titan_212() {
    let world = World::new();
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    fill(&world, &*tree, &mut model, 0..150, 1);
    let before = model.clone();
    let snapshot = tree.snapshot().expect("snapshot");
    let mut scan = tree.scan(&KeyRange::all(), false, false).expect("scan");
    let first = scan.next().expect("a row").expect("row");
    fill(&world, &*tree, &mut model, 0..150, 2);
    settle(&world, &*tree);
    let kept = world.log.segments().len();
    let rest = read_all(std::iter::once(Ok(first)).chain(scan));
    assert_eq!(rest, before);
    assert_eq!(read_all(snapshot.rows(None).expect("rows")), before);
    drop(snapshot);
    settle(&world, &*tree);
    assert!(world.log.segments().len() < kept, "the pins are gone, so are the segments");
    assert_holds(&*tree, &model);
    world.check();
}

#[test]
fn a_snapshot_of_a_dropped_tree_stays_readable_and_its_files_go_with_it_titan_168() {
    let world = World::new();
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    fill(&world, &*tree, &mut model, 0..100, 1);
    fill(&world, &*tree, &mut model, (0..100).filter(|n| n % 3 != 0), 2);
    settle(&world, &*tree);
    let snapshot = tree.snapshot().expect("snapshot");
    world.engine.drop_tree(group(1)).expect("drop");
    drop(tree);
    world.collect();
    assert_eq!(read_all(snapshot.rows(None).expect("rows")), model);
    drop(snapshot);
    world.collect();
    assert_eq!(world.fs.list(&world.root.join("engine/trees")).expect("list"), Vec::<String>::new());
    assert_eq!(world.fs.list(&world.root.join("engine/data")).expect("list"), Vec::<String>::new());
    world.check();
}

#[test]
fn inserting_only_moves_nothing_rocksdb_11570() {
    let world = World::new();
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    for part in 0..10u64 {
        fill(&world, &*tree, &mut model, part * 40..(part + 1) * 40, 1);
        assert_eq!(settle(&world, &*tree), 0);
    }
    // Toggling the threshold rewrites nothing either.
    for threshold in [0, u32::MAX, THRESHOLD] {
        world.engine.open_tree(group(1), EngineKind::Separated, threshold).expect("open");
        assert_eq!(settle(&world, &*tree), 0);
    }
    assert!(tree.stats().live_by_segment.keys().all(|segment| segment.origin == Origin::Log));
}

#[test]
fn default_settings_hold_the_space_budget_under_four_overwrites_surrealdb_6462() {
    let sizes = options();
    let defaults = EngineOptions::default();
    let world =
        World::with(EngineOptions { space_amplification_max: defaults.space_amplification_max, ..sizes });
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    for round in 0..4 {
        fill(&world, &*tree, &mut model, 0..400, round);
        settle(&world, &*tree);
    }
    let stats = world.engine.stats();
    assert!(stats.space_amplification <= 1.6, "{stats:?}");
    assert_holds(&*tree, &model);
    world.check();
}

#[test]
fn what_does_not_compress_stays_raw_and_what_does_comes_back_the_same() {
    let world = World::new();
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    let text = |n: u64| {
        let line =
            format!("{{\"id\":{n},\"name\":\"customer {n}\",\"city\":\"Utrecht\",\"tags\":[\"a\",\"b\"]}}");
        line.repeat(3).into_bytes()
    };
    for round in 0..3u64 {
        for n in (0..600u64).filter(|n| round == 0 || n % 4 != 0) {
            let changes = [change(&format!("k{n:05}"), text(n + round))];
            step_model(&mut model, world.put(1, &*tree, &changes), &changes);
        }
    }
    let moved_bytes = settle(&world, &*tree);
    let moved_values = tree.stats().live_by_segment.iter().filter(|(s, _)| s.origin == Origin::Data).count();
    assert!(moved_bytes > 0 && moved_values > 0);
    assert_holds(&*tree, &model);
    drop(tree);
    let world = world.reopen(options());
    assert_holds(&*world.tree(1, EngineKind::Separated), &model);
    world.check();
}

#[test]
fn two_trees_share_segments_and_each_keeps_its_own() {
    let world = World::new();
    let trees: Vec<Arc<dyn Tree>> = (1..=3).map(|shard| world.tree(shard, EngineKind::Separated)).collect();
    let mut models = vec![Model::new(); 3];
    for round in 0..6u64 {
        for n in 0..60u64 {
            for (i, tree) in trees.iter().enumerate() {
                let changes = [change(&format!("k{n:03}"), noise(round * 1000 + n * 10 + i as u64, 700))];
                let index = world.put(i as u64 + 1, &**tree, &changes);
                step_model(&mut models[i], index, &changes);
            }
        }
        for (i, tree) in trees.iter().enumerate() {
            tree.flush().expect("flush");
            world.purge_to_durable(i as u64 + 1, &**tree).expect("purge");
        }
        world.collect();
        world.check();
    }
    world.engine.drop_tree(group(2)).expect("drop");
    world.collect();
    for i in [0, 2] {
        assert_holds(&*trees[i], &models[i]);
    }
    world.check();
}

#[test]
fn files_on_disk_are_the_files_in_the_manifest_after_an_abandoned_job_titan_301() {
    let dir = fast_dir();
    let fs = SimFs::new(dir.path());
    let world = World::open(Arc::new(fs.clone()), dir.path(), options()).expect("open");
    let tree = world.tree(1, EngineKind::Separated);
    let mut model = Model::new();
    fill(&world, &*tree, &mut model, 0..200, 1);
    fill(&world, &*tree, &mut model, (0..200).filter(|n| n % 3 != 0), 2);
    tree.flush().expect("flush");
    world.purge_to_durable(1, &*tree).expect("purge");
    fs.inject(Fault::new(OpKind::Sync, std::io::ErrorKind::Other).on(".data"));
    let failed = world.engine.gc_step(1);
    assert!(failed.is_err(), "{failed:?}");
    fs.heal();
    // A failed sync poisons: no write and no flush succeeds any more.
    assert!(matches!(tree.flush(), Err(EngineError::Poisoned(_))));
    assert!(world.commit(1, &*tree, &[delete("k00001")]).is_err());
    assert!(world.engine.poisoned().is_some());
    drop((tree, world));
    fs.crash(1);
    let world = World::open(Arc::new(SimFs::new(dir.path())), dir.path(), options()).expect("reopen");
    let tree = world.tree(1, EngineKind::Separated);
    world.replay(1, &*tree).expect("replay");
    model.remove(&b"k00001"[..]);
    assert_holds(&*tree, &model);
    settle(&world, &*tree);
    world.check();
}
