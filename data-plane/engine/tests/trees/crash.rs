//! The power fails at every operation of a scripted run. After each: reopen, apply what the log holds behind P,
//! compare with a model, and let the engine check itself.

use crate::world::*;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use undb_engine::tree::{Applied, EngineKind, Item, Tree};
use undb_vfs::SimFs;

/// What a run promised.
#[derive(Default)]
struct Run {
    /// The content of each shard after each index that was ever given to the log.
    models: BTreeMap<u64, BTreeMap<u64, Model>>,
    /// The last index acknowledged.
    acked: BTreeMap<u64, u64>,
    /// Shards whose creation was acknowledged, and whose removal was not begun.
    kept: Vec<u64>,
}

impl Run {
    fn model(&self, shard: u64) -> Model {
        self.models.get(&shard).and_then(|m| m.last_key_value()).map(|(_, m)| m.clone()).unwrap_or_default()
    }

    fn open(&mut self, world: &World, shard: u64, kind: EngineKind) -> Result<Arc<dyn Tree>, Failed> {
        let tree = world.engine.open_tree(group(shard), kind, THRESHOLD)?;
        self.models.entry(shard).or_default().insert(0, Model::new());
        self.kept.push(shard);
        Ok(tree)
    }

    fn commit(
        &mut self,
        world: &World,
        shard: u64,
        tree: &dyn Tree,
        changes: &[Change],
    ) -> Result<(), Failed> {
        let index = world.log.state(group(shard)).last.map_or(1, |id| id.index + 1);
        let mut model = self.model(shard);
        step_model(&mut model, index, changes);
        self.models.entry(shard).or_default().insert(index, model);
        assert_eq!(world.commit(shard, tree, changes)?, index);
        self.acked.insert(shard, index);
        Ok(())
    }

    /// A follower that was left behind: takes the content of `from` at an index far ahead.
    fn install(&mut self, world: &World, from: &dyn Tree, shard: u64, tree: &dyn Tree) -> Result<(), Failed> {
        let snapshot = from.snapshot()?;
        let index = world.log.state(group(shard)).last.map_or(0, |id| id.index) + 10;
        let model = self.model(1);
        self.models.entry(shard).or_default().insert(index, model);
        let applied = Applied { log_id: Some(log_id(index)), ..snapshot.applied() };
        let rows = snapshot.rows(None)?.map(|row| row.map(Item::Row));
        let system = snapshot.system(None, usize::MAX)?;
        tree.install(applied, &mut rows.chain(system.into_iter().map(|(k, v)| Ok(Item::System(k, v)))))?;
        self.acked.insert(shard, index);
        world.purge(shard, index)
    }

    fn drop_tree(&mut self, world: &World, shard: u64) -> Result<(), Failed> {
        self.kept.retain(|s| *s != shard);
        Ok(world.engine.drop_tree(group(shard))?)
    }
}

fn random_changes(rng: &mut impl Rng) -> Vec<Change> {
    (0..rng.random_range(1..4))
        .map(|_| {
            let key = format!("k{:02}", rng.random_range(0..40));
            match rng.random_bool(0.2) {
                true => delete(&key),
                false => change(&key, noise(rng.random(), rng.random_range(0..2400))),
            }
        })
        .collect()
}

fn script(world: &World, run: &mut Run, kind: EngineKind) -> Result<(), Failed> {
    let mut rng = rand::rngs::StdRng::seed_from_u64(11);
    let first = run.open(world, 1, kind)?;
    let second = run.open(world, 2, kind)?;
    for step in 0..48u64 {
        run.commit(world, 1, &*first, &random_changes(&mut rng))?;
        if step % 3 == 0 && step < 40 {
            run.commit(world, 2, &*second, &random_changes(&mut rng))?;
        }
        if step % 8 == 5 {
            first.flush()?;
            world.purge_to_durable(1, &*first)?;
        }
        if step % 16 == 9 {
            if step < 40 {
                second.flush()?;
                world.purge_to_durable(2, &*second)?;
            }
            world.engine.gc_step(step)?;
        }
        match step {
            14 | 34 => drop(world.engine.maintain()?),
            20 => run.install(world, &*first, 2, &*second)?,
            40 => run.drop_tree(world, 2)?,
            44 => drop(run.open(world, 3, kind)?),
            _ => {}
        }
    }
    world.engine.gc_step(1000)?;
    Ok(())
}

fn open_small(fs: &SimFs, root: &Path) -> Result<World, Failed> {
    let mut options = options();
    options.memtable_bytes = 12 << 10;
    options.space_amplification_max = 1.2;
    World::open(Arc::new(fs.clone()), root, options)
}

/// Runs the script until the power fails at operation `n`; false: it was over before.
fn crash_at(root: &Path, kind: EngineKind, n: u64) -> (Run, bool, Vec<String>) {
    let fs = SimFs::new(root);
    fs.crash_at(n);
    let mut run = Run::default();
    let failed = open_small(&fs, root).and_then(|world| script(&world, &mut run, kind)).is_err();
    // The log's own thread works on for a moment: the power may also fail under it, after the last step.
    let crashed = fs.crashed();
    assert!(crashed || !failed, "op {n}: the script fails without a crash: {:?}", fs.history().last());
    fs.crash(n * 31 + 7);
    let history = fs.history();
    (run, crashed, history)
}

fn verify(root: &Path, run: &Run, kind: EngineKind, n: u64) -> Result<(), Failed> {
    // The power may fail again while the store recovers.
    let fs = SimFs::new(root);
    fs.crash_at(n % 13);
    drop(open_small(&fs, root));
    fs.crash(n + 1);
    let world = open_small(&SimFs::new(root), root)?;
    let groups = world.engine.groups();
    for shard in &run.kept {
        assert!(groups.contains(&group(*shard)), "shard {shard} is lost");
    }
    for shard in [1, 2, 3].into_iter().filter(|shard| groups.contains(&group(*shard))) {
        let tree = world.engine.open_tree(group(shard), kind, THRESHOLD)?;
        let index = world.replay(shard, &*tree)?;
        assert!(
            index >= run.acked.get(&shard).copied().unwrap_or(0),
            "shard {shard} lost what was acknowledged"
        );
        let model = run.models.get(&shard).and_then(|models| models.get(&index));
        match model {
            Some(model) => assert_holds(&*tree, model),
            None => assert_holds(&*tree, &Model::new()),
        }
    }
    world.check();
    for shard in [1, 2, 3].into_iter().filter(|shard| groups.contains(&group(*shard))) {
        let tree = world.engine.open_tree(group(shard), kind, THRESHOLD)?;
        tree.flush()?;
        world.purge_to_durable(shard, &*tree)?;
    }
    world.collect();
    world.check();
    Ok(())
}

/// Every `stride`-th operation from `first` on.
fn crash_everywhere(kind: EngineKind, first: u64, stride: usize) {
    let mut points = 0;
    for n in (first..).step_by(stride) {
        let dir = fast_dir();
        let (run, crashed, history) = crash_at(dir.path(), kind, n);
        let outcome =
            std::panic::catch_unwind(|| verify(dir.path(), &run, kind, n).map_err(|e| e.to_string()));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("crash at operation {n} ({:?}): {error}", history.last()),
            Err(_) => panic!("crash at operation {n} ({:?}): see above", history.last()),
        }
        if !crashed {
            break;
        }
        points += 1;
        if std::env::var_os("UNDB_CRASH_TRACE").is_some() {
            println!("{}: {n} {:?}", kind.name(), history.last());
        }
    }
    println!("{}: {points} crash points", kind.name());
    assert!(points > 20, "only {points} crash points");
}

#[test]
fn the_script_reaches_every_part_of_the_engine() {
    let dir = fast_dir();
    let fs = SimFs::new(dir.path());
    let world = open_small(&fs, dir.path()).expect("open");
    script(&world, &mut Run::default(), EngineKind::Separated).expect("script");
    let history = fs.history().join("\n");
    for part in
        [".data", "MANIFEST", "engine.flush.end", "engine.compact.end", "engine.install.flush.end", "trash"]
    {
        assert!(history.contains(part), "{part} is not reached:\n{history}");
    }
    world.check();
}

#[test]
fn separated_survives_a_crash_at_even_operations() {
    crash_everywhere(EngineKind::Separated, 0, 2);
}

#[test]
fn separated_survives_a_crash_at_odd_operations() {
    crash_everywhere(EngineKind::Separated, 1, 2);
}

#[test]
fn lsm_survives_a_crash_at_any_operation() {
    crash_everywhere(EngineKind::Lsm, 0, 3);
}

#[test]
fn sled_survives_a_crash_at_any_operation() {
    crash_everywhere(EngineKind::Sled, 0, 5);
}

#[test]
fn an_open_that_fails_leaves_every_byte_as_it_was_badger_1465() {
    let dir = fast_dir();
    let fs = SimFs::new(dir.path());
    let world = open_small(&fs, dir.path()).expect("open");
    let tree = world.tree(1, EngineKind::Separated);
    world.put(1, &*tree, &[change("a", noise(1, 1000))]);
    tree.flush().expect("flush");
    drop((tree, world));
    let manifest = dir.path().join("engine/MANIFEST");
    let good = std::fs::read(&manifest).expect("read");
    // Damaged, of a newer format, and missing: each is refused, and nothing is swept away.
    let mut newer = good.clone();
    newer[8] = 9;
    let mut damaged = good.clone();
    *damaged.last_mut().expect("not empty") ^= 1;
    for bad in [Some(newer), Some(damaged), None] {
        match &bad {
            Some(bytes) => std::fs::write(&manifest, bytes).expect("write"),
            None => std::fs::remove_file(&manifest).expect("remove"),
        }
        assert!(open_small(&SimFs::new(dir.path()), dir.path()).is_err());
    }
    std::fs::write(&manifest, &good).expect("write");
    let world = open_small(&SimFs::new(dir.path()), dir.path()).expect("open");
    let tree = world.tree(1, EngineKind::Separated);
    assert_eq!(tree.get(b"a").expect("get").expect("present").value, Some(noise(1, 1000).into()));
    assert!(world.fs.exists(&manifest).expect("exists"));
}
