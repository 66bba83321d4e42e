//! Random calls against the model, with reopens and crashes.

mod support;

use proptest::prelude::*;
use support::model::{Model, Op, recover_and_check};
use undb_vfs::SimFs;

fn op() -> impl Strategy<Value = Op> {
    let group = 1..4u64;
    prop_oneof![
        6 => (group.clone(), 1..12u64, 0..1500usize).prop_map(|(group, count, len)| Op::Append { group, count, len }),
        1 => (group.clone(), 0..6u64).prop_map(|(group, back)| Op::Replace { group, back }),
        1 => group.clone().prop_map(|group| Op::Vote { group }),
        1 => (group.clone(), 0..9u64).prop_map(|(group, back)| Op::Truncate { group, back }),
        2 => (group.clone(), 1..20u64).prop_map(|(group, count)| Op::Purge { group, count }),
        1 => group.clone().prop_map(|group| Op::Commit { group }),
        1 => group.prop_map(|group| Op::Drop { group }),
        2 => Just(Op::Collect),
        2 => Just(Op::Flush),
        1 => Just(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_what_the_model_says(ops in prop::collection::vec(op(), 1..60)) {
        let dir = tempfile::tempdir().expect("tempdir");
        let fs = SimFs::new(dir.path());
        let mut log = support::open(&fs, dir.path()).expect("open");
        let mut model = Model::default();
        for op in &ops {
            model.run(&fs, dir.path(), &mut log, op).expect("nothing fails");
            model.check_now(&log);
        }
        model.run(&fs, dir.path(), &mut log, &Op::Reopen).expect("reopen");
        model.check_now(&log);
    }

    #[test]
    fn a_crash_anywhere_loses_nothing_acknowledged(
        ops in prop::collection::vec(op(), 1..40),
        at in 0..200u64,
        seed in any::<u64>(),
    ) {
        let dir = tempfile::tempdir().expect("tempdir");
        let root = dir.path().join("store");
        std::fs::create_dir(&root).expect("root");
        let fs = SimFs::new(&root);
        fs.crash_at(at);
        let mut model = Model::default();
        if let Ok(mut log) = support::open(&fs, &root) {
            for op in &ops {
                if model.run(&fs, &root, &mut log, op).is_err() {
                    break;
                }
            }
        }
        fs.crash(seed);
        recover_and_check(&mut model, &root);
    }
}
