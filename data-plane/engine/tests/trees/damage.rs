//! Damage on disk is met once, said once, and stays within its tree.

use crate::world::{World, group, options};
use std::path::{Path, PathBuf};
use undb_engine::tree::EngineKind;
use undb_engine::{Engine, EngineError};

const BAD: u64 = 1;
const GOOD: u64 = 2;

fn tree_dir(root: &Path, shard: u64) -> PathBuf {
    let trees = std::fs::read_dir(root.join("engine/trees")).expect("trees");
    let prefix = format!("{shard}-");
    let mut paths = trees.map(|entry| entry.expect("entry").path());
    paths.find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&prefix))).expect("tree")
}

/// Two trees with flushed values behind pointers; then the files of one are spoilt while nobody runs.
fn with_damage(spoil: impl Fn(&Path)) -> World {
    let world = World::new();
    for shard in [BAD, GOOD] {
        let tree = world.tree(shard, EngineKind::Separated);
        for n in 0..40u8 {
            world.put(shard, &*tree, &[(vec![n], Some(vec![n; 2000]))]);
        }
        tree.flush().expect("flush");
        world.purge_to_durable(shard, &*tree).expect("purge");
    }
    spoil(&tree_dir(&world.root, BAD));
    world.reopen(options())
}

fn segments(world: &World) -> Vec<u64> {
    world.log.segments().into_iter().map(|s| s.id).collect()
}

fn refusal(engine: &Engine) -> EngineError {
    engine.open_tree(group(BAD), EngineKind::Separated, 64).err().expect("a damaged tree is not opened")
}

fn only_the_damaged_tree_is_refused(spoil: impl Fn(&Path)) {
    let world = with_damage(spoil);
    let found = world.engine.damaged();
    assert!(matches!(&found[..], [(id, _)] if *id == group(BAD)), "{found:?}");
    assert!(matches!(refusal(&world.engine), EngineError::Corrupt { .. }));
    assert_eq!(world.engine.groups(), [group(GOOD), group(BAD)]);
    let tree = world.tree(GOOD, EngineKind::Separated);
    assert_eq!(tree.get(&[7]).expect("get").and_then(|row| row.value).expect("there"), vec![7; 2000]);
    assert!(!world.engine.scrub().expect("check").problems.is_empty());

    // Everything in the good tree dies; until the bad one is dropped its values stay for a later look.
    let before = segments(&world);
    for n in 0..40u8 {
        world.put(GOOD, &*tree, &[(vec![n], None)]);
    }
    tree.flush().expect("flush");
    world.purge_to_durable(GOOD, &*tree).expect("purge");
    assert_eq!(world.collect(), 0);
    assert!(before.iter().all(|id| segments(&world).contains(id)));
    world.engine.drop_tree(group(BAD)).expect("drop");
    assert!(world.engine.damaged().is_empty());
    world.collect();
    assert!(!before.iter().all(|id| segments(&world).contains(id)), "now they go");
    world.check();
}

#[test]
fn a_tree_with_a_damaged_table_is_set_aside_and_the_others_serve() {
    only_the_damaged_tree_is_refused(|dir| {
        for table in std::fs::read_dir(dir.join("tables")).expect("tables") {
            let path = table.expect("entry").path();
            let mut bytes = std::fs::read(&path).expect("read");
            bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
            std::fs::write(&path, bytes).expect("write");
        }
    });
}

#[test]
fn a_tree_without_its_tables_is_set_aside_and_the_others_serve() {
    only_the_damaged_tree_is_refused(|dir| std::fs::remove_dir_all(dir.join("tables")).expect("remove"));
}

#[test]
fn a_tree_without_its_directory_is_set_aside_and_not_made_anew() {
    only_the_damaged_tree_is_refused(|dir| std::fs::remove_dir_all(dir).expect("remove"));
}
