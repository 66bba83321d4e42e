//! The simulator loses exactly what was not made durable.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use undb_vfs::{
    Crashed, Fault, File, Fs, Locked, OpKind, OpenHow, OsFs, SimFs, read_file, write_file_atomic,
};

const SEEDS: u64 = 64;

fn create(fs: &dyn Fs, path: &Path) -> Arc<dyn File> {
    fs.open(path, OpenHow::CreateNew).expect("create")
}

fn each_seed(mut body: impl FnMut(&Path, u64)) {
    for seed in 0..SEEDS {
        let dir = tempfile::tempdir().expect("tempdir");
        let root = dir.path().join("root");
        std::fs::create_dir(&root).expect("root");
        body(&root, seed);
    }
}

#[test]
fn synced_bytes_never_vanish_and_unsynced_ones_can() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    each_seed(|root, seed| {
        let fs = SimFs::new(root);
        let path = root.join("a");
        let file = create(&fs, &path);
        file.write_all_at(&[1; 10_000], 0).expect("write");
        file.sync_data().expect("sync");
        fs.sync_dir(root).expect("sync dir");
        file.write_all_at(&[2; 20_000], 10_000).expect("write");
        let mut seen = vec![0; 30_000];
        file.read_exact_at(&mut seen, 0).expect("own writes are read back");
        assert!(seen[10_000..].iter().all(|b| *b == 2));
        fs.crash(seed);
        assert!(file.read_exact_at(&mut [0], 0).is_err(), "nothing works after a crash");
        let after = read_file(&SimFs::new(root), &path).expect("the file is there");
        assert!(after[..10_000].iter().all(|b| *b == 1), "synced bytes, seed {seed}");
        match after[10_000..].iter().filter(|b| **b == 2).count() {
            0 => lost += 1,
            20_000 => kept += 1,
            _ => torn += 1,
        }
    });
    assert!(lost > 0 && kept > 0 && torn > 0, "{lost} {kept} {torn}");
}

#[test]
fn a_created_file_can_vanish_until_its_directory_is_synced() {
    let mut vanished = 0;
    each_seed(|root, seed| {
        let fs = SimFs::new(root);
        let kept = create(&fs, &root.join("kept"));
        kept.sync_data().expect("sync");
        fs.sync_dir(root).expect("sync dir");
        create(&fs, &root.join("risky")).sync_data().expect("sync");
        fs.crash(seed);
        let fs = SimFs::new(root);
        assert!(fs.exists(&root.join("kept")).expect("exists"));
        vanished += u64::from(!fs.exists(&root.join("risky")).expect("exists"));
    });
    assert!(vanished > 0 && vanished < SEEDS);
}

#[test]
fn a_removed_or_renamed_file_can_come_back_until_its_directory_is_synced() {
    let (mut back, mut renamed_back) = (0, 0);
    each_seed(|root, seed| {
        let fs = SimFs::new(root);
        for name in ["gone", "risky", "old", "target"] {
            let file = create(&fs, &root.join(name));
            file.write_all_at(name.as_bytes(), 0).expect("write");
            file.sync_data().expect("sync");
        }
        fs.remove_file(&root.join("gone")).expect("remove");
        fs.sync_dir(root).expect("sync dir");
        fs.remove_file(&root.join("risky")).expect("remove");
        fs.rename(&root.join("old"), &root.join("target")).expect("rename");
        fs.crash(seed);
        let fs = SimFs::new(root);
        assert!(!fs.exists(&root.join("gone")).expect("exists"));
        back += u64::from(fs.exists(&root.join("risky")).expect("exists"));
        let target = read_file(&fs, &root.join("target")).expect("one of the two");
        match &target[..] {
            b"old" => assert!(!fs.exists(&root.join("old")).expect("exists")),
            b"target" => {
                renamed_back += 1;
                assert_eq!(read_file(&fs, &root.join("old")).expect("old"), b"old");
            }
            other => panic!("a mixture: {other:?}"),
        }
    });
    assert!(back > 0 && back < SEEDS && renamed_back > 0 && renamed_back < SEEDS);
}

#[test]
fn a_directory_and_what_is_in_it_vanish_and_come_back_together() {
    let (mut vanished, mut back) = (0, 0);
    each_seed(|root, seed| {
        let fs = SimFs::new(root);
        let removed = root.join("removed");
        fs.create_dir_all(&removed).expect("dir");
        create(&fs, &removed.join("file")).sync_data().expect("sync");
        fs.sync_dir(&removed).expect("sync dir");
        fs.sync_dir(root).expect("sync dir");
        fs.remove_dir_all(&removed).expect("remove");
        fs.create_dir_all(&root.join("new/deep")).expect("dir");
        create(&fs, &root.join("new/deep/file")).sync_data().expect("sync");
        fs.sync_dir(&root.join("new/deep")).expect("sync dir");
        fs.crash(seed);
        let fs = SimFs::new(root);
        vanished += u64::from(!fs.exists(&root.join("new/deep/file")).expect("exists"));
        if fs.exists(&removed).expect("exists") {
            back += 1;
            assert!(fs.exists(&removed.join("file")).expect("exists"));
        }
    });
    assert!(vanished > 0 && vanished < SEEDS && back > 0 && back < SEEDS);
}

#[test]
fn an_atomic_write_leaves_the_old_or_the_new_at_every_crash_point() {
    let script = |fs: &SimFs, root: &Path| {
        let path = root.join("state");
        write_file_atomic(fs, &path, &[1; 5000])?;
        write_file_atomic(fs, &path, &[2; 9000])?;
        write_file_atomic(fs, &path, b"")
    };
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    script(&fs, dir.path()).expect("no crash");
    let ops = fs.ops();
    assert!(ops >= 12, "{:?}", fs.history());
    for n in 0..ops {
        for seed in 0..8 {
            let dir = tempfile::tempdir().expect("tempdir");
            let root = dir.path().join("root");
            std::fs::create_dir(&root).expect("root");
            let fs = SimFs::new(&root);
            fs.crash_at(n);
            assert!(script(&fs, &root).is_err());
            fs.crash(seed);
            let fs = SimFs::new(&root);
            match read_file(&fs, &root.join("state")) {
                Ok(bytes) => assert!(
                    bytes.is_empty() || bytes == [1; 5000] || bytes == [2; 9000],
                    "op {n} seed {seed}: {} bytes",
                    bytes.len()
                ),
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
            }
            script(&fs, &root).expect("the next run is not in the way of leftovers");
        }
    }
}

#[test]
fn a_cut_file_shows_zeros_when_it_grows_again() {
    each_seed(|root, seed| {
        let fs = SimFs::new(root);
        let file = create(&fs, &root.join("a"));
        file.write_all_at(&[7; 9000], 0).expect("write");
        file.sync_data().expect("sync");
        fs.sync_dir(root).expect("sync dir");
        file.set_len(100).expect("cut");
        file.set_len(6000).expect("grow");
        let mut seen = vec![9; 6000];
        file.read_exact_at(&mut seen, 0).expect("read");
        assert!(seen[..100].iter().all(|b| *b == 7) && seen[100..].iter().all(|b| *b == 0));
        if seed % 2 == 0 {
            file.sync_data().expect("sync");
            fs.crash(seed);
            assert_eq!(read_file(&SimFs::new(root), &root.join("a")).expect("read"), seen);
        }
    });
}

#[test]
fn a_failed_sync_loses_the_bytes_even_if_a_later_one_succeeds() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let file = create(&fs, &dir.path().join("a"));
    fs.sync_dir(dir.path()).expect("sync dir");
    file.write_all_at(b"lost", 0).expect("write");
    fs.inject(Fault::new(OpKind::Sync, ErrorKind::Other).times(1));
    assert!(file.sync_data().is_err());
    file.sync_data().expect("the kernel reports an error once");
    let mut seen = [0; 4];
    file.read_exact_at(&mut seen, 0).expect("still in the cache");
    assert_eq!(&seen, b"lost");
    fs.crash(1);
    let after = read_file(&SimFs::new(dir.path()), &dir.path().join("a")).expect("read");
    assert_ne!(after, b"lost");
}

#[test]
fn a_full_disk_writes_what_fits_and_says_so() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    fs.set_quota(Some(10_000));
    let file = create(&fs, &dir.path().join("a"));
    file.allocate(6000).expect("fits");
    assert_eq!(fs.space(dir.path()).expect("space").free, 4000);
    file.write_all_at(&[1; 6000], 0).expect("allocated before");
    let error = file.write_all_at(&[2; 5000], 6000).expect_err("too much");
    assert!(undb_vfs::is_disk_full(&error));
    assert_eq!(file.len().expect("len"), 10_000, "a short write");
    let other = create(&fs, &dir.path().join("b"));
    assert!(undb_vfs::is_disk_full(&other.allocate(1).expect_err("full")));
    fs.remove_file(&dir.path().join("a")).expect("remove");
    other.allocate(10_000).expect("room again");
}

#[test]
fn faults_hit_the_nth_call_on_the_path_they_name() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let (a, b) = (create(&fs, &dir.path().join("a")), create(&fs, &dir.path().join("b")));
    fs.inject(Fault::new(OpKind::Write, ErrorKind::Other).on("/b").skip(1).times(1));
    for _ in 0..4 {
        a.write_all_at(b"x", 0).expect("another path");
    }
    b.write_all_at(b"x", 0).expect("the first");
    b.write_all_at(b"x", 0).expect_err("the second");
    b.write_all_at(b"x", 0).expect("the third");
    fs.flip(&dir.path().join("b"), 0, 0x01).expect("flip");
    assert_eq!(read_file(&fs, &dir.path().join("b")).expect("read"), b"y");
}

#[test]
fn a_named_step_is_a_crash_point() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    fs.step("before the flush").expect("no crash yet");
    fs.crash_at(fs.ops());
    let error = fs.step("after the flush").expect_err("crash");
    assert!(error.get_ref().is_some_and(|e| e.is::<Crashed>()));
    assert!(fs.crashed() && fs.history()[1].contains("after the flush"));
}

#[test]
fn a_second_lock_is_refused_and_names_the_holder() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("LOCK");
    let real: Arc<dyn Fs> = Arc::new(OsFs::new(dir.path()));
    let sim: Arc<dyn Fs> = Arc::new(SimFs::new(dir.path()));
    for fs in [real, sim] {
        let guard = fs.lock(&path).expect("free");
        let Err(error) = fs.lock(&path) else { panic!("locked twice") };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let locked = error.get_ref().and_then(|e| e.downcast_ref::<Locked>()).expect("typed");
        assert_eq!(locked.pid, Some(std::process::id()));
        drop(guard);
        fs.lock(&path).expect("free again");
    }
}

#[test]
fn bytes_and_syncs_are_counted_by_class() {
    let dir = tempfile::tempdir().expect("tempdir");
    let real: Arc<dyn Fs> = Arc::new(OsFs::new(dir.path()));
    let sim: Arc<dyn Fs> = Arc::new(SimFs::new(dir.path()));
    for (n, fs) in [real, sim].into_iter().enumerate() {
        let log = dir.path().join("log");
        fs.create_dir_all(&log).expect("dir");
        let file = create(&*fs, &log.join(n.to_string()));
        file.write_all_at(&[0; 100], 0).expect("write");
        file.sync_data().expect("sync");
        fs.sync_dir(&log).expect("sync dir");
        let counters = fs.counters();
        assert_eq!((counters.by_class["log"].written_bytes, counters.by_class["log"].syncs), (100, 2));
        assert_eq!(counters.total, counters.by_class["log"]);
    }
}

#[test]
fn the_real_file_system_does_what_the_trait_says() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = OsFs::new(dir.path());
    let path = dir.path().join("a");
    assert_eq!(fs.open(&path, OpenHow::Write).expect_err("absent").kind(), ErrorKind::NotFound);
    let file = create(&fs, &path);
    assert_eq!(fs.open(&path, OpenHow::CreateNew).expect_err("there").kind(), ErrorKind::AlreadyExists);
    file.allocate(8192).expect("allocate");
    assert_eq!(file.len().expect("len"), 8192);
    file.write_all_at(b"hello", 4000).expect("write");
    file.set_len(4005).expect("cut");
    assert_eq!(&read_file(&fs, &path).expect("read")[4000..], b"hello");
    assert_eq!(file.read_exact_at(&mut [0; 6], 4000).expect_err("short").kind(), ErrorKind::UnexpectedEof);
    assert!(fs.open(&path, OpenHow::Read).expect("open").write_all_at(b"x", 0).is_err());
    assert_eq!(fs.list(dir.path()).expect("list"), ["a"]);
    assert!(fs.space(dir.path()).expect("space").free > 0);
}

#[test]
fn a_killed_process_loses_nothing_until_the_power_fails() {
    let mut lost = 0;
    each_seed(|root, seed| {
        let fs = SimFs::new(root);
        let file = create(&fs, &root.join("a"));
        fs.sync_dir(root).expect("sync dir");
        file.write_all_at(&[5; 5000], 0).expect("write");
        let guard = fs.lock(&root.join("LOCK")).expect("lock");
        let next = fs.kill();
        assert!(file.write_all_at(&[6], 0).is_err() && fs.crashed());
        assert_eq!(read_file(&next, &root.join("a")).expect("read"), [5; 5000]);
        let _again = next.lock(&root.join("LOCK")).expect("a dead process holds no lock");
        drop(guard);
        next.crash(seed);
        lost += u64::from(read_file(&SimFs::new(root), &root.join("a")).expect("read") != [5; 5000]);
    });
    assert!(lost > 0 && lost < SEEDS);
}
