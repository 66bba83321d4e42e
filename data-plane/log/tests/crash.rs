//! Every file operation of a scripted run is a crash point.

mod support;

use std::path::Path;

use support::model::{Model, Op, recover_and_check};
use undb_vfs::SimFs;

fn script() -> Vec<Op> {
    use Op::*;
    vec![
        Vote { group: 1 },
        Append { group: 1, count: 3, len: 200 },
        Flush,
        Append { group: 2, count: 8, len: 900 },
        Commit { group: 1 },
        Vote { group: 2 },
        Append { group: 1, count: 2, len: 50 },
        Append { group: 3, count: 1, len: 6_000 },
        Flush,
        Truncate { group: 2, back: 3 },
        Append { group: 2, count: 5, len: 700 },
        Replace { group: 1, back: 2 },
        Flush,
        Purge { group: 2, count: 6 },
        Append { group: 1, count: 10, len: 600 },
        Flush,
        Drop { group: 3 },
        Purge { group: 1, count: 12 },
        Purge { group: 2, count: 2 },
        Append { group: 1, count: 8, len: 900 },
        Commit { group: 2 },
        Flush,
        Collect,
        Append { group: 2, count: 12, len: 1_000 },
        Append { group: 3, count: 2, len: 10 },
        Flush,
        Reopen,
        Vote { group: 1 },
        Truncate { group: 2, back: 20 },
        Purge { group: 1, count: 9 },
        Append { group: 2, count: 9, len: 1_500 },
        Flush,
        Purge { group: 2, count: 30 },
        Append { group: 3, count: 6, len: 2_000 },
        Flush,
        Collect,
        Append { group: 1, count: 4, len: 0 },
        Flush,
    ]
}

/// Whether each call waits for the one before, so that a run repeats exactly, or calls queue up, so that one
/// sync covers several frames and where they part depends on time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    OneByOne,
    Queued,
}

impl Pace {
    fn of(seed: u64) -> Pace {
        if seed.is_multiple_of(2) { Pace::OneByOne } else { Pace::Queued }
    }
}

/// Runs until the end or the crash; the model then knows what was acknowledged.
fn run(fs: &SimFs, dir: &Path, pace: Pace) -> Model {
    let mut model = Model::default();
    let Ok(mut log) = support::open(fs, dir) else { return model };
    for op in script() {
        let result = model.run(fs, dir, &mut log, &op);
        if result.is_err() || (pace == Pace::OneByOne && log.flush().is_err()) {
            break;
        }
    }
    model
}

#[test]
fn every_acknowledged_thing_survives_a_crash_at_every_file_operation() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let mut model = run(&fs, dir.path(), Pace::OneByOne);
    assert!(!fs.crashed(), "this run is the one that ends");
    assert!(model.deleted.len() >= 2, "the script deletes segments");
    let ops = fs.ops();
    assert!(ops > 80, "{ops} operations");
    drop(fs);
    recover_and_check(&mut model, dir.path());
    for op in 0..ops + 4 {
        for seed in 0..4 {
            let dir = tempfile::tempdir().expect("tempdir");
            let root = dir.path().join("store");
            std::fs::create_dir(&root).expect("root");
            let fs = SimFs::new(&root);
            fs.crash_at(op);
            let mut model = run(&fs, &root, Pace::of(seed));
            fs.crash(op * 1_000 + seed);
            let context = Context { op, seed };
            recover_and_check(&mut model, &root);
            std::mem::forget(context);
        }
    }
}

#[test]
fn a_crash_during_recovery_is_recovered_from() {
    // Crash in the middle of the run, then at every operation of the recovery.
    for (first, seed) in [(35, 1), (52, 2), (70, 3), (91, 4)] {
        for op in 0..40 {
            let dir = tempfile::tempdir().expect("tempdir");
            let root = dir.path().join("store");
            std::fs::create_dir(&root).expect("root");
            let fs = SimFs::new(&root);
            fs.crash_at(first);
            let mut model = run(&fs, &root, Pace::of(seed));
            fs.crash(seed);
            let fs = SimFs::new(&root);
            fs.crash_at(op);
            let done = support::open(&fs, &root).is_ok();
            fs.crash(seed + op);
            let context = Context { op, seed };
            recover_and_check(&mut model, &root);
            std::mem::forget(context);
            if done && !fs.crashed() {
                break;
            }
        }
    }
}

#[test]
fn what_a_restart_found_in_the_page_cache_is_durable_once_it_is_open() {
    for op in 5..60 {
        for seed in 0..3 {
            let dir = tempfile::tempdir().expect("tempdir");
            let root = dir.path().join("store");
            std::fs::create_dir(&root).expect("root");
            let fs = SimFs::new(&root);
            fs.crash_at(op);
            let mut model = run(&fs, &root, Pace::of(seed));
            let killed = fs.kill();
            let context = Context { op, seed };
            let log = support::open(&killed, &root).expect("opens after kill -9");
            // From here on everything found counts as acknowledged.
            model.check_after_crash(&log);
            killed.crash(seed);
            drop(log);
            recover_and_check(&mut model, &root);
            std::mem::forget(context);
        }
    }
}

#[test]
fn the_state_of_many_groups_survives_a_crash_while_a_segment_is_begun() {
    // Their checkpoint takes several blocks, so that a part of it can be lost.
    let many: Vec<Op> = (1..320).map(|group| Op::Vote { group }).collect();
    let script = |fs: &SimFs, root: &Path| {
        let mut model = Model::default();
        let Ok(mut log) = support::open(fs, root) else { return model };
        let append = |group| Op::Append { group, count: 9, len: 1_000 };
        let rolls = [Op::Flush, append(1), Op::Flush, append(2), Op::Flush, append(3), Op::Reopen];
        for op in many.iter().chain(&rolls) {
            if model.run(fs, root, &mut log, op).is_err() {
                break;
            }
        }
        model
    };
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    script(&fs, dir.path());
    let created = |line: &String| line.contains("Create ") && line.contains("0002.seg");
    let begins = fs.history().iter().position(created).expect("the script begins a second segment") as u64;
    for op in begins..begins + 8 {
        for seed in 0..24 {
            let dir = tempfile::tempdir().expect("tempdir");
            let root = dir.path().join("store");
            std::fs::create_dir(&root).expect("root");
            let fs = SimFs::new(&root);
            fs.crash_at(op);
            let mut model = script(&fs, &root);
            fs.crash(op * 1_000 + seed);
            let context = Context { op, seed };
            recover_and_check(&mut model, &root);
            std::mem::forget(context);
        }
    }
}

/// Says where a failing check was.
struct Context {
    op: u64,
    seed: u64,
}

impl Drop for Context {
    fn drop(&mut self) {
        eprintln!("crash at operation {} with seed {}", self.op, self.seed);
    }
}
