//! What a tree holds, on all three kinds.

use crate::world::*;
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use undb_engine::EngineError;
use undb_engine::tree::{Applied, EngineKind, Item, RecordMeta, TREE_KEY_BYTES_MAX, TreeBatch, TreeOp};
use undb_types::KeyRange;

const KINDS: [EngineKind; 3] = [EngineKind::Separated, EngineKind::Lsm, EngineKind::Sled];

fn random_changes(rng: &mut impl Rng, seed: u64) -> Vec<Change> {
    (0..rng.random_range(1..6))
        .map(|n| {
            let key = format!("key{:03}", rng.random_range(0..120));
            match rng.random_bool(0.25) {
                true => delete(&key),
                false => change(&key, noise(seed + n, rng.random_range(0..400))),
            }
        })
        .collect()
}

#[test]
fn a_random_run_agrees_with_a_model_through_flushes_collections_and_reopenings() {
    for kind in KINDS {
        let mut rng = rand::rngs::StdRng::seed_from_u64(7);
        let mut world = World::new();
        let mut tree = world.tree(1, kind);
        let mut model = Model::new();
        for step in 0..600u64 {
            let changes = random_changes(&mut rng, step * 100);
            let index = world.put(1, &*tree, &changes);
            step_model(&mut model, index, &changes);
            match rng.random_range(0..40) {
                0 => drop(tree.flush().expect("flush")),
                1 => drop(world.engine.maintain().expect("maintain")),
                2 => {
                    tree.flush().expect("flush");
                    world.purge_to_durable(1, &*tree).expect("purge");
                    world.engine.gc_step(step).expect("gc");
                }
                3 => {
                    tree.flush().expect("flush");
                    drop(tree);
                    world = world.reopen(options());
                    tree = world.tree(1, kind);
                    world.replay(1, &*tree).expect("replay");
                }
                _ => {}
            }
        }
        assert_holds(&*tree, &model);
        assert_eq!(tree.applied().log_id, Some(log_id(600)));
        assert_eq!(tree.system(b"last").expect("system"), Some(Bytes::from_static(b"600")));
        world.check();
    }
}

#[test]
fn edge_values_and_keys_come_back_as_they_went() {
    for kind in KINDS {
        let world = World::new();
        let tree = world.tree(1, kind);
        let t = THRESHOLD as usize;
        let lens = [0, 1, t - 1, t, t + 1, 255, 256, 65_535, 65_536, 65_537, 16 << 20];
        let mut model = Model::new();
        for len in lens {
            let changes = [change(&format!("value of {len}"), noise(len as u64, len))];
            let index = world.put(1, &*tree, &changes);
            step_model(&mut model, index, &changes);
        }
        for key in [vec![0], vec![0xFF; 300], vec![b'k'; TREE_KEY_BYTES_MAX], vec![0xFF; TREE_KEY_BYTES_MAX]]
        {
            let changes = [(key, Some(noise(5, 100)))];
            let index = world.put(1, &*tree, &changes);
            step_model(&mut model, index, &changes);
        }
        assert_holds(&*tree, &model);
        tree.flush().expect("flush");
        drop(tree);
        let world = world.reopen(options());
        let tree = world.tree(1, kind);
        assert_holds(&*tree, &model);
        world.check();
    }
}

#[test]
fn a_key_that_no_index_can_hold_is_refused_and_changes_nothing() {
    for kind in KINDS {
        let world = World::new();
        let tree = world.tree(1, kind);
        for key in [Bytes::new(), Bytes::from(vec![b'k'; TREE_KEY_BYTES_MAX + 1])] {
            let good = TreeOp::Put {
                key: Bytes::from_static(b"good"),
                meta: RecordMeta::default(),
                value: Bytes::from_static(b"value"),
                at: None,
            };
            let ops = vec![good, TreeOp::Delete { key }];
            let refused = tree.write(TreeBatch { ops, ..TreeBatch::default() });
            assert!(matches!(refused, Err(EngineError::KeyLength { .. })));
        }
        assert_holds(&*tree, &Model::new());
    }
}

#[test]
fn set_meta_keeps_the_value_and_ignores_absent_keys() {
    for kind in KINDS {
        let world = World::new();
        let tree = world.tree(1, kind);
        for len in [10, 1000] {
            let key = format!("k{len}");
            world.put(1, &*tree, &[change(&key, noise(1, len))]);
            let meta = RecordMeta { version: 99, expire_at_ms: 12_345, kind: 7, value_len: 1 };
            let applied = tree.applied();
            let ops = vec![
                TreeOp::SetMeta { key: key.clone().into(), meta },
                TreeOp::SetMeta { key: Bytes::from_static(b"absent"), meta },
            ];
            tree.write(TreeBatch { ops, system: vec![], applied }).expect("write");
            let row = tree.get(key.as_bytes()).expect("get").expect("present");
            assert_eq!(row.meta, RecordMeta { value_len: len as u32, ..meta });
            assert_eq!(row.value.as_deref(), Some(&noise(1, len)[..]));
        }
        assert_eq!(tree.meta(b"absent").expect("meta"), None);
        world.check();
    }
}

#[test]
fn scans_keep_to_their_range_in_both_directions_and_to_their_moment() {
    for kind in KINDS {
        let world = World::new();
        let tree = world.tree(1, kind);
        let names: Vec<String> = (0..700).map(|n| format!("k{n:04}")).collect();
        for name in &names {
            world.put(1, &*tree, &[change(name, noise(1, 70))]);
        }
        let range = KeyRange { start: Bytes::from_static(b"k0100"), end: Bytes::from_static(b"k0650") };
        let forward = tree.scan(&range, false, false).expect("scan");
        let backward = tree.scan(&range, true, true).expect("scan");
        for name in names.iter().step_by(2) {
            world.put(1, &*tree, &[delete(name)]);
        }
        world.put(1, &*tree, &[change("k0300x", "new")]);
        tree.flush().expect("flush");
        let keys: Vec<_> = forward.map(|row| row.expect("row").key).collect();
        assert!(keys.iter().eq(names[100..650].iter().map(|name| name.as_bytes())));
        let keys: Vec<_> = backward.map(|row| row.expect("row").key).collect();
        assert!(keys.iter().eq(names[100..650].iter().rev().map(|name| name.as_bytes())));
        let empty = KeyRange { start: Bytes::from_static(b"z"), end: Bytes::from_static(b"a") };
        assert_eq!(tree.scan(&empty, false, false).expect("scan").count(), 0);
    }
}

#[test]
fn system_records_are_apart_from_keys_and_page() {
    for kind in KINDS {
        let world = World::new();
        let tree = world.tree(1, kind);
        let system = (0..5u8).map(|n| (Bytes::from(vec![b's', n]), Some(Bytes::from(vec![n])))).collect();
        tree.write(TreeBatch { ops: vec![], system, applied: Applied::default() }).expect("write");
        let page = tree.scan_system(b"s", Some(b"s\x01"), 2).expect("scan");
        assert_eq!(page.iter().map(|(key, _)| key[1]).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(tree.scan_system(b"t", None, 10).expect("scan"), []);
        let system = vec![(Bytes::from_static(b"s\x03"), None)];
        tree.write(TreeBatch { ops: vec![], system, applied: Applied::default() }).expect("write");
        assert_eq!(tree.system(b"s\x03").expect("system"), None);
        assert_eq!(tree.scan_system(b"", None, 10).expect("scan").len(), 4);
        assert_holds(&*tree, &Model::new());
    }
}

#[test]
fn a_snapshot_shows_its_moment_and_installs_into_every_kind() {
    for from in KINDS {
        for to in KINDS {
            let world = World::new();
            let source = world.tree(1, from);
            let mut model = Model::new();
            for n in 0..400u64 {
                let changes = [change(&format!("k{:03}", n % 300), noise(n, (n as usize * 7) % 300))];
                let index = world.put(1, &*source, &changes);
                step_model(&mut model, index, &changes);
            }
            let snapshot = source.snapshot().expect("snapshot");
            assert_eq!(source.durable(), Some(log_id(400)));
            for n in 0..300u64 {
                world.put(1, &*source, &[delete(&format!("k{n:03}"))]);
            }
            let target = world.tree(2, to);
            world.put(2, &*target, &[change("old", noise(3, 500))]);
            let rows = snapshot.rows(None).expect("rows").map(|row| row.map(Item::Row));
            let system = snapshot.system(None, usize::MAX).expect("system");
            let mut items = rows.chain(system.into_iter().map(|(k, v)| Ok(Item::System(k, v))));
            target.install(snapshot.applied(), &mut items).expect("install");
            drop(items);
            assert_eq!(read_all(snapshot.rows(Some(b"k100")).expect("rows")).len(), 199);
            drop(snapshot);
            assert_holds(&*target, &model);
            assert_holds(&*source, &Model::new());
            assert_eq!(target.applied(), Applied { log_id: Some(log_id(400)), ..target.applied() });
            assert_eq!(target.durable(), Some(log_id(400)));
            assert_eq!(target.system(b"last").expect("system"), Some(Bytes::from_static(b"400")));
            drop((source, target));
            let world = world.reopen(options());
            assert_holds(&*world.tree(2, to), &model);
            world.check();
        }
    }
}

#[test]
fn an_install_that_fails_halfway_leaves_the_old_content() {
    for kind in KINDS {
        let world = World::new();
        let tree = world.tree(1, kind);
        let mut model = Model::new();
        let changes = [change("old", noise(3, 500))];
        step_model(&mut model, world.put(1, &*tree, &changes), &changes);
        let row = |n: u32| {
            Item::Row(undb_engine::tree::Row {
                key: format!("{n:05}").into(),
                meta: RecordMeta::default(),
                value: Some(noise(n.into(), 300).into()),
            })
        };
        let mut items = (0..900).map(|n| match n {
            800 => Err(EngineError::Log("connection lost".into())),
            n => Ok(row(n)),
        });
        assert!(
            tree.install(Applied { log_id: Some(log_id(50)), ..Applied::default() }, &mut items).is_err()
        );
        assert_holds(&*tree, &model);
        tree.flush().expect("flush");
        drop(tree);
        let world = world.reopen(options());
        assert_holds(&*world.tree(1, kind), &model);
        world.check();
    }
}

#[test]
fn a_dropped_tree_is_gone_at_once_and_after_a_reopening_and_comes_back_empty() {
    for kind in KINDS {
        let world = World::new();
        let tree = world.tree(1, kind);
        world.put(1, &*tree, &[change("a", noise(1, 100))]);
        tree.flush().expect("flush");
        world.engine.drop_tree(group(1)).expect("drop");
        world.engine.drop_tree(group(1)).expect("drop again");
        assert!(matches!(tree.get(b"a"), Err(EngineError::Gone(_))));
        assert!(matches!(tree.write(TreeBatch::default()), Err(EngineError::Gone(_))));
        drop(tree);
        world.engine.gc_step(0).expect("gc");
        assert_eq!(world.fs.list(&world.root.join("engine/trees")).expect("list"), Vec::<String>::new());
        let again = world.tree(1, kind);
        assert_holds(&*again, &Model::new());
        drop(again);
        world.engine.drop_tree(group(1)).expect("drop");
        let world = world.reopen(options());
        assert_eq!(world.engine.groups(), []);
        world.check();
    }
}

#[test]
fn the_kind_of_a_tree_does_not_change() {
    let world = World::new();
    world.tree(1, EngineKind::Separated);
    let refused = world.engine.open_tree(group(1), EngineKind::Sled, THRESHOLD);
    assert!(matches!(refused, Err(EngineError::KindDiffers { .. })));
}

#[test]
fn a_threshold_that_changes_on_a_live_tree_changes_only_what_comes() {
    let mut world = World::new();
    let mut model = Model::new();
    for (round, threshold) in [0, 64, u32::MAX, 100, 0].into_iter().enumerate() {
        let tree = world.engine.open_tree(group(1), EngineKind::Separated, threshold).expect("open");
        for n in 0..40usize {
            let key = format!("k{:02}", (n * 7 + round * 3) % 60);
            let changes = [change(&key, noise(n as u64, n * 5))];
            step_model(&mut model, world.put(1, &*tree, &changes), &changes);
        }
        tree.flush().expect("flush");
        world.purge_to_durable(1, &*tree).expect("purge");
        drop(tree);
        world.collect();
        world = world.reopen(options());
        assert_holds(&*world.tree(1, EngineKind::Separated), &model);
        world.check();
    }
}
