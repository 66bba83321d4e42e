//! What the log does when the disk lies, fails or is full.

mod support;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use support::*;
use undb_log::format::{FORMAT_VERSION, SegmentHeader};
use undb_log::{Entry, LogError, LogOptions, inspect};
use undb_types::GroupId;
use undb_vfs::{Fault, Fs, OpKind, SimFs, read_file};

/// A log with several segments, some history, and what is in it.
fn build(root: &Path, close: bool) -> Vec<(GroupId, Vec<Entry>)> {
    let fs = SimFs::new(root);
    let log = open(&fs, root).expect("open");
    let (a, b) = (group(1), group(2));
    for round in 0..6 {
        wait(|done| log.append(a, entries(a, 1, round * 4..round * 4 + 4, 400), done)).expect("append");
        wait(|done| log.append(b, entries(b, 2, round * 3..round * 3 + 3, 900), done)).expect("append");
    }
    wait(|done| log.save_vote(a, Bytes::from_static(b"vote of a"), done)).expect("vote");
    wait(|done| log.truncate_after(b, Some(id(2, 14)), done)).expect("truncate");
    wait(|done| log.purge(a, id(1, 1), done)).expect("purge");
    let content = vec![(a, read_all(&log, a)), (b, read_all(&log, b))];
    assert!(log.segments().len() >= 2);
    if close {
        log.close();
    } else {
        fs.crash(1);
    }
    content
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("dir");
    for entry in std::fs::read_dir(from).expect("read dir") {
        let entry = entry.expect("entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copy");
    }
}

fn segment_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(dir).expect("read dir").map(|e| e.expect("entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|ext| ext == "seg"));
    files.sort();
    files
}

/// Opens a damaged copy. Whatever it gives must be right; gives whether all was there.
fn is_right_or_refused(root: &Path, content: &[(GroupId, Vec<Entry>)], context: &str) -> bool {
    let fs = SimFs::new(root);
    let log = match open(&fs, root) {
        Ok(log) => log,
        Err(LogError::Corrupt { .. } | LogError::NewerFormat { .. } | LogError::Foreign { .. }) => {
            return false;
        }
        Err(other) => panic!("{context}: {other}"),
    };
    let mut whole = true;
    for (g, expected) in content {
        match log.read(*g, 0..u64::MAX, usize::MAX) {
            Ok(entries) => {
                let term = if *g == group(1) { 1 } else { 2 };
                let len = if *g == group(1) { 400 } else { 900 };
                let ours = |e: &Entry| *e == entry(*g, id(term, e.id.index), len);
                assert!(entries.iter().all(ours), "{context}: other data");
                whole &= entries == *expected;
            }
            Err(LogError::Corrupt { .. }) => return false,
            Err(other) => panic!("{context}: {other}"),
        }
    }
    let vote = log.state(group(1)).vote;
    assert!(vote.is_none() || vote.as_deref() == Some(b"vote of a"), "{context}: another vote");
    whole && vote.is_some()
}

fn flip_everywhere(close: bool, mut on: impl FnMut(&str, bool)) {
    let dir = tempfile::tempdir().expect("tempdir");
    let original = dir.path().join("original");
    std::fs::create_dir(&original).expect("root");
    let content = build(&original, close);
    for path in segment_files(&original.join("log")) {
        let name = path.file_name().expect("name").to_owned();
        let bytes = std::fs::read(&path).expect("read");
        // Every byte of what is not a payload, and a sample of the payloads.
        let mut structural = vec![true; bytes.len()];
        let id = name.to_string_lossy().trim_end_matches(".seg").parse().expect("id");
        let frames = inspect::frames(&SimFs::new(&original), &original.join("log"), id).expect("frames");
        for entry in frames.frames.iter().flat_map(|frame| frame.entries()) {
            let from = entry.location.offset as usize;
            structural[from..from + entry.location.len as usize].fill(false);
        }
        structural[(frames.end as usize + 400).min(bytes.len())..].fill(false);
        for at in (0..bytes.len()).filter(|at| structural[*at] || at % 97 == 0) {
            let damaged = dir.path().join("damaged");
            copy(&original.join("log"), &damaged.join("log"));
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            std::fs::write(damaged.join("log").join(&name), flipped).expect("write");
            let context = format!("{}, byte {at} of {}", name.to_string_lossy(), bytes.len());
            let whole = is_right_or_refused(&damaged, &content, &context);
            on(&context, whole);
            std::fs::remove_dir_all(&damaged).expect("clean");
        }
    }
}

#[test]
fn a_flipped_byte_in_a_closed_log_gives_all_the_right_data_or_a_typed_error() {
    let (mut right, mut refused) = (0, 0);
    flip_everywhere(true, |_, whole| if whole { right += 1 } else { refused += 1 });
    assert!(refused > 500 && right > 0, "{right} {refused}");
}

#[test]
fn a_flipped_byte_in_a_crashed_log_never_gives_other_data() {
    let mut cases = 0;
    flip_everywhere(false, |_, _| cases += 1);
    assert!(cases > 500);
}

#[test]
fn damage_below_what_was_synced_is_refused_and_names_its_place() {
    let dir = tempfile::tempdir().expect("tempdir");
    build(dir.path(), false);
    let log_dir = dir.path().join("log");
    let last = segment_files(&log_dir).pop().expect("segment");
    let id: u64 = last.file_stem().expect("stem").to_string_lossy().parse().expect("id");
    let fs = SimFs::new(dir.path());
    let frames = inspect::frames(&fs, &log_dir, id).expect("frames").frames;
    assert!(frames.len() > 3);
    let before = std::fs::read(&last).expect("read");
    for (i, frame) in frames.iter().enumerate() {
        fs.flip(&last, frame.header.offset + 20, 0x10).expect("flip");
        let is_last = i + 1 == frames.len();
        match inspect::summary(&fs, &log_dir) {
            Err(error @ LogError::Corrupt { segment, .. }) => {
                assert!(!is_last, "the last frame may be a torn tail");
                assert_eq!(segment, id);
                let LogError::Corrupt { offset, .. } = error else { unreachable!() };
                assert!(offset == frame.header.offset || i == 0, "{error}");
                assert!(error.to_string().contains("let peers rebuild"));
            }
            Ok(summary) => {
                assert!(is_last, "frame {i} of {}", frames.len());
                assert_eq!(summary.cut.map(|cut| (cut.0, cut.1)), Some((id, frame.header.offset)));
            }
            Err(other) => panic!("{other}"),
        }
        fs.flip(&last, frame.header.offset + 20, 0x10).expect("flip back");
    }
    assert_eq!(std::fs::read(&last).expect("read"), before, "looking changes nothing");
}

#[test]
fn a_refused_open_changes_no_byte() {
    let dir = tempfile::tempdir().expect("tempdir");
    build(dir.path(), false);
    let log_dir = dir.path().join("log");
    let files = segment_files(&log_dir);
    let fs = SimFs::new(dir.path());
    let frame = inspect::frames(&fs, &log_dir, 1).expect("frames").frames[3].header;
    fs.flip(&files[0], frame.offset + 30, 0xFF).expect("flip");
    let before: Vec<_> = files.iter().map(|path| std::fs::read(path).expect("read")).collect();
    let ops = fs.ops();
    assert!(matches!(open(&fs, dir.path()), Err(LogError::Corrupt { .. })));
    assert_eq!(fs.ops(), ops);
    let after: Vec<_> = files.iter().map(|path| std::fs::read(path).expect("read")).collect();
    assert_eq!(before, after);
}

#[test]
fn what_was_cut_never_comes_back() {
    let dir = tempfile::tempdir().expect("tempdir");
    build(dir.path(), false);
    let log_dir = dir.path().join("log");
    let last = segment_files(&log_dir).pop().expect("segment");
    let id: u64 = last.file_stem().expect("stem").to_string_lossy().parse().expect("id");
    let fs = SimFs::new(dir.path());
    let whole = std::fs::read(&last).expect("read");
    let cut_at =
        inspect::frames(&fs, &log_dir, id).expect("frames").frames.last().expect("frame").header.offset;
    fs.flip(&last, cut_at + 20, 1).expect("flip");
    let log = open(&fs, dir.path()).expect("the tail is cut");
    let purged = log.state(group(1)).purged;
    assert_eq!(purged, None, "the purge was in the frame that was cut");
    drop(log);
    // The very bytes of the cut frame appear again where they were, as a stale block would.
    let mut sealed = std::fs::read(&last).expect("read");
    sealed.truncate(cut_at as usize);
    sealed.extend_from_slice(&whole[cut_at as usize..]);
    std::fs::write(&last, sealed).expect("write");
    match open(&SimFs::new(dir.path()), dir.path()) {
        Ok(log) => assert_eq!(log.state(group(1)).purged, None),
        Err(error) => assert!(matches!(error, LogError::Corrupt { .. }), "{error}"),
    }
}

#[test]
fn a_newer_format_and_a_foreign_segment_are_refused_by_name() {
    let dir = tempfile::tempdir().expect("tempdir");
    build(dir.path(), true);
    let log_dir = dir.path().join("log");
    let file = &segment_files(&log_dir)[0];
    let bytes = std::fs::read(file).expect("read");
    let mut newer = bytes.clone();
    newer[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    std::fs::write(file, newer).expect("write");
    let error = open(&SimFs::new(dir.path()), dir.path()).expect_err("refused");
    assert!(matches!(error, LogError::NewerFormat { found, supported, .. } if found == supported + 1));
    assert!(error.to_string().contains("start the newer version"));
    std::fs::write(file, &bytes).expect("write");

    let other = tempfile::tempdir().expect("tempdir");
    build(other.path(), true);
    std::fs::copy(&segment_files(&other.path().join("log"))[0], file).expect("copy");
    let error = open(&SimFs::new(dir.path()), dir.path()).expect_err("refused");
    assert!(matches!(error, LogError::Foreign { .. }), "{error}");
    std::fs::write(file, &bytes).expect("write");

    // A segment under another segment's name.
    let second = &segment_files(&log_dir)[1];
    std::fs::copy(file, second).expect("copy");
    let error = open(&SimFs::new(dir.path()), dir.path()).expect_err("refused");
    assert!(matches!(error, LogError::Corrupt { segment: 2, offset: 0, .. }), "{error}");
}

#[test]
fn a_lost_segment_is_noticed() {
    let dir = tempfile::tempdir().expect("tempdir");
    build(dir.path(), true);
    std::fs::remove_file(&segment_files(&dir.path().join("log"))[0]).expect("remove");
    let error = open(&SimFs::new(dir.path()), dir.path()).expect_err("refused");
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn a_failed_sync_poisons_for_ever_and_fails_everybody_who_waits() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let log = open(&fs, dir.path()).expect("open");
    let g = group(1);
    wait(|done| log.append(g, entries(g, 1, 0..3, 100), done)).expect("before");
    fs.inject(Fault::new(OpKind::Sync, ErrorKind::Other).times(1));
    let mut results = Vec::new();
    for index in 3..40 {
        let (callback, result) = done();
        log.append(g, entries(g, 1, index..index + 1, 100), callback);
        results.push(result);
    }
    for result in results {
        let error = result.recv().expect("called").expect_err("never acknowledged");
        assert!(matches!(LogError::of(&error), Some(LogError::Poisoned(_))), "{error}");
    }
    for _ in 0..3 {
        let error = wait(|done| log.save_vote(g, Bytes::from_static(b"v"), done)).expect_err("poisoned");
        assert!(error.to_string().contains("restart the store"), "{error}");
    }
    assert!(log.poisoned().is_some() && log.flush().is_err() && log.wait_durable(g, 30).is_err());
    assert!(log.delete_segment(1).is_err());
    assert_eq!(log.read(g, 0..3, 1 << 20).expect("reads go on"), entries(g, 1, 0..3, 100));
    drop(log);
    fs.crash(3);
    let log = open(&SimFs::new(dir.path()), dir.path()).expect("recovers what is durable");
    assert_eq!(log.read(g, 0..3, 1 << 20).expect("read"), entries(g, 1, 0..3, 100));
}

#[test]
fn a_failed_write_poisons_and_a_failed_read_does_not() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let log = open_with(&fs, dir.path(), LogOptions { cache_bytes: 0, ..small() }).expect("open");
    let g = group(1);
    wait(|done| log.append(g, entries(g, 1, 0..3, 100), done)).expect("append");
    fs.inject(Fault::new(OpKind::Read, ErrorKind::Other).on(".seg").times(1));
    assert!(matches!(log.read(g, 0..3, 1 << 20), Err(LogError::Io { .. })));
    assert_eq!(read_all(&log, g), entries(g, 1, 0..3, 100));
    fs.inject(Fault::new(OpKind::Write, ErrorKind::Other).on(".seg").times(1));
    assert!(wait(|done| log.append(g, entries(g, 1, 3..4, 100), done)).is_err());
    assert!(log.poisoned().is_some());
}

#[test]
fn an_io_error_while_opening_is_typed_and_harmless() {
    let dir = tempfile::tempdir().expect("tempdir");
    let content = build(dir.path(), false);
    for kind in [OpKind::Read, OpKind::Open, OpKind::List] {
        for n in 0..12 {
            let fs = SimFs::new(dir.path());
            fs.inject(Fault::new(kind, ErrorKind::Other).skip(n).times(1));
            match inspect::summary(&fs, &dir.path().join("log")) {
                Ok(_) | Err(LogError::Io { .. }) => {}
                Err(other) => panic!("{kind:?} {n}: {other}"),
            }
        }
    }
    let log = open(&SimFs::new(dir.path()), dir.path()).expect("open");
    assert!(content.iter().all(|(g, expected)| read_all(&log, *g) == *expected));
}

#[test]
fn a_full_disk_refuses_appends_keeps_votes_and_deletes_and_recovers() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let log = open(&fs, dir.path()).expect("open");
    let (a, b) = (group(1), group(2));
    fs.set_quota(Some(120_000));
    let mut acked = 0;
    let error = loop {
        match wait(|done| log.append(a, entries(a, 1, acked..acked + 1, 1000), done)) {
            Ok(()) => acked += 1,
            Err(error) => break error,
        }
    };
    assert!(acked > 50, "{acked}");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(matches!(LogError::of(&error), Some(LogError::DiskFull { .. })));
    assert!(log.poisoned().is_none() && log.is_full());
    assert_eq!(log.state(a).last, Some(id(1, acked - 1)), "a refused append changes nothing");
    wait(|done| log.save_vote(b, Bytes::from_static(b"alive"), done)).expect("votes go on");
    wait(|done| log.purge(a, id(1, acked - 10), done)).expect("purges go on");
    assert_eq!(read_all(&log, a), entries(a, 1, acked - 9..acked, 1000));
    let freed = log.segments().iter().filter(|s| log.delete_segment(s.id).expect("delete")).count();
    assert!(freed > 2, "{freed}");
    wait(|done| log.append(a, entries(a, 1, acked..acked + 5, 1000), done)).expect("room again");
    assert!(!log.is_full());
    drop(log);
    let log = open(&fs, dir.path()).expect("reopen");
    assert_eq!(read_all(&log, a), entries(a, 1, acked - 9..acked + 5, 1000));
    assert_eq!(log.state(b).vote.as_deref(), Some(&b"alive"[..]));
}

#[test]
fn a_disk_that_is_full_beyond_the_reserve_makes_writes_wait_not_fail() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let log = open(&fs, dir.path()).expect("open");
    let g = group(1);
    let mut acked = 0;
    while wait(|done| log.append(g, entries(g, 1, acked..acked + 1, 1000), done)).is_ok() {
        acked += 1;
        if acked == 20 {
            fs.set_quota(Some(fs.used()));
        }
    }
    // Others eat what the reserve gave back.
    fs.set_quota(Some(0));
    let mut results = Vec::new();
    for n in 0..200u32 {
        let (callback, result) = done();
        log.save_vote(g, vec![n as u8; 500].into(), callback);
        results.push(result);
    }
    wait_until_stalled(&log);
    assert!(log.poisoned().is_none());
    assert_eq!(read_all(&log, g).len() as u64, acked, "reads go on");
    fs.set_quota(None);
    for result in results {
        result.recv().expect("called").expect("written once there was room");
    }
    wait(|done| log.append(g, entries(g, 1, acked..acked + 1, 1000), done)).expect("room again");
}

fn wait_until_stalled(log: &undb_log::Log) {
    while !log.is_full() {
        std::thread::yield_now();
    }
}

#[test]
fn nothing_acknowledged_is_lost_whatever_the_quota() {
    for quota in (20_000..90_000).step_by(1_700) {
        let dir = tempfile::tempdir().expect("tempdir");
        let fs = SimFs::new(dir.path());
        fs.set_quota(Some(quota));
        let g = group(1);
        let mut acked = 0;
        match open(&fs, dir.path()) {
            Ok(log) => {
                while wait(|done| log.append(g, entries(g, 1, acked..acked + 1, 777), done)).is_ok() {
                    acked += 1;
                }
                assert!(log.poisoned().is_none());
            }
            Err(error) => assert!(matches!(error, LogError::DiskFull { .. }), "{quota}: {error}"),
        }
        fs.crash(quota);
        let fs = SimFs::new(dir.path());
        let log = open(&fs, dir.path()).expect("space was freed");
        assert_eq!(read_all(&log, g), entries(g, 1, 0..acked, 777), "quota {quota}");
    }
}

#[test]
fn a_full_disk_can_be_opened_and_collected() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let log = open(&fs, dir.path()).expect("open");
    fs.set_quota(Some(100_000));
    let g = group(1);
    let mut acked = 0;
    while wait(|done| log.append(g, entries(g, 1, acked..acked + 1, 1000), done)).is_ok() {
        acked += 1;
    }
    drop(log);
    let fs = SimFs::new(dir.path());
    fs.set_quota(Some(fs.used() + 2_000));
    let log = open(&fs, dir.path()).expect("opens with what the reserve left");
    assert!(log.is_full());
    wait(|done| log.purge(g, id(1, acked - 1), done)).expect("purge");
    assert!(log.segments().iter().filter(|s| log.delete_segment(s.id).expect("delete")).count() > 2);
    wait(|done| log.append(g, entries(g, 1, acked..acked + 1, 1000), done)).expect("room again");
}

#[test]
fn a_log_that_opens_on_a_nearly_full_disk_leaves_others_the_room_that_is_left() {
    let dir = tempfile::tempdir().expect("tempdir");
    let options = || LogOptions { segment_bytes: 200_000, preallocate: true, ..small() };
    drop(open_with(&SimFs::new(dir.path()), dir.path(), options()).expect("open"));
    let fs = SimFs::new(dir.path());
    let before = fs.used();
    fs.set_quota(Some(before + 100_000));
    let log = open_with(&fs, dir.path(), options()).expect("opens");
    assert!(fs.used() < before + 50_000, "{} of {before}", fs.used());
    assert!(!log.is_full());
}

#[test]
fn segment_headers_are_what_the_file_says() {
    let dir = tempfile::tempdir().expect("tempdir");
    build(dir.path(), true);
    let fs = SimFs::new(dir.path());
    for report in inspect::segments(&fs, &dir.path().join("log")).expect("segments") {
        let bytes = read_file(&fs as &dyn Fs, &report.path).expect("read");
        assert_eq!(SegmentHeader::decode(&bytes), Ok(report.header.expect("good")));
    }
}
