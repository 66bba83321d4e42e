//! What the log promises when nothing fails.
#![allow(unused_mut)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use support::*;
use undb_log::{Entry, Log, LogError, LogOptions, inspect};
use undb_vfs::{OsFs, SimFs};

#[test]
fn entries_are_readable_at_once_and_after_a_reopen() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let mut log = open(&fs, dir.path()).expect("open");
    let (a, b) = (group(1), group(2));
    let mut written = entries(a, 1, 0..40, 700);
    let (callback, result) = done();
    log.append(a, written.clone(), callback);
    assert_eq!(read_all(&log, a), written, "before it is durable");
    result.recv().expect("called").expect("durable");
    wait(|done| log.append(b, entries(b, 3, 5..9, 0), done)).expect("append");
    wait(|done| log.truncate_after(a, Some(id(1, 29)), done)).expect("truncate");
    wait(|done| log.append(a, entries(a, 2, 30..35, 10), done)).expect("append");
    wait(|done| log.purge(a, id(1, 3), done)).expect("purge");
    wait(|done| log.save_vote(a, Bytes::from_static(b"vote"), done)).expect("vote");
    log.save_committed(a, Some(id(1, 20)));
    written.truncate(30);
    written.extend(entries(a, 2, 30..35, 10));
    written.drain(..4);
    for round in 0..3 {
        assert_eq!(read_all(&log, a), written, "round {round}");
        assert_eq!(read_all(&log, b), entries(b, 3, 5..9, 0));
        let state = log.state(a);
        assert_eq!(state.last, Some(id(2, 34)));
        assert_eq!(state.purged, Some(id(1, 3)));
        assert_eq!(state.vote.as_deref(), Some(&b"vote"[..]));
        assert_eq!(state.committed, Some(id(1, 20)));
        if round == 2 {
            break;
        }
        // Once by a clean close, once by dropping the last clone.
        if round == 0 {
            log.clone().close()
        } else {
            drop(log.clone())
        }
        assert!(round == 1 || matches!(log.flush(), Err(LogError::Closed)));
        drop(log);
        log = open(&fs, dir.path()).expect("reopen");
    }
}

#[test]
fn an_entry_is_found_where_it_was_located_before_and_after_it_is_written() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let mut log = open(&fs, dir.path()).expect("open");
    let g = group(7);
    let mut places = Vec::new();
    for index in 0..200 {
        let (callback, _) = done();
        log.append(g, vec![entry(g, id(1, index), 333)], callback);
        let at = log.locate(g, index).expect("located at once");
        assert_eq!(
            log.read_at(at.segment, at.offset, at.len as usize).expect("read"),
            payload(g, id(1, index), 333)
        );
        places.push(at);
    }
    log.flush().expect("flush");
    assert_eq!(log.durable_index(g), Some(199));
    log.wait_durable(g, 199).expect("durable");
    assert!(log.segments().len() > 2, "the script rolls segments");
    drop(log);
    let log = open(&fs, dir.path()).expect("reopen");
    for (index, at) in places.iter().enumerate() {
        assert_eq!(log.locate(g, index as u64), Some(*at));
        let bytes = log.read_at(at.segment, at.offset, at.len as usize).expect("read");
        assert_eq!(bytes, payload(g, id(1, index as u64), 333));
    }
    assert_eq!(log.locate(g, 200), None);
    assert!(log.wait_durable(g, 200).is_err(), "what was not appended is not waited for");
    assert!(matches!(log.read_at(99, 0, 1), Err(LogError::SegmentGone { segment: 99 })));
    assert!(matches!(log.read_at(1, 1 << 40, 1 << 30), Err(LogError::Corrupt { .. })));
}

#[test]
fn callbacks_come_in_the_order_of_the_calls_across_groups() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let mut log = open(&fs, dir.path()).expect("open");
    let next = Arc::new(AtomicU64::new(0));
    for n in 0..300u64 {
        let next = next.clone();
        let done: undb_log::Done = Box::new(move |_| {
            assert_eq!(next.fetch_add(1, Ordering::Relaxed), n);
        });
        let g = group(n % 5);
        match n % 4 {
            0 => log.save_vote(g, Bytes::from(n.to_string()), done),
            // Refusals too come in their turn.
            1 => log.append(
                g,
                entries(g, 1, 5000..5001, 10).into_iter().chain(entries(g, 1, 9..10, 1)).collect(),
                done,
            ),
            2 => log.truncate_after(g, None, done),
            _ => log.append(g, vec![], done),
        }
    }
    log.flush().expect("flush");
    assert_eq!(next.load(Ordering::Relaxed), 300);
}

#[test]
fn what_does_not_fit_on_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let mut log = open(&fs, dir.path()).expect("open");
    let g = group(1);
    wait(|done| log.append(g, entries(g, 1, 4..8, 9), done)).expect("an empty log begins anywhere");
    for indexes in [9..10, 3..4, 0..8] {
        let error = wait(|done| log.append(g, entries(g, 2, indexes, 9), done)).expect_err("gap");
        assert!(matches!(LogError::of(&error), Some(LogError::Gap { .. })));
    }
    let error = wait(|done| log.save_vote(g, vec![0; 100_000].into(), done)).expect_err("too large");
    assert!(matches!(LogError::of(&error), Some(LogError::TooLarge { .. })));
    assert_eq!(read_all(&log, g), entries(g, 1, 4..8, 9));
    wait(|done| log.append(g, entries(g, 2, 6..7, 9), done)).expect("replaces what is behind");
    assert_eq!(log.state(g).last, Some(id(2, 6)));
    wait(|done| log.purge(g, id(5, 100), done)).expect("an installed snapshot is ahead of the log");
    assert_eq!((log.state(g).last, log.state(g).purged), (Some(id(5, 100)), Some(id(5, 100))));
    wait(|done| log.append(g, entries(g, 5, 101..103, 9), done)).expect("append");
    wait(|done| log.drop_group(g, done)).expect("drop");
    assert!(log.groups().is_empty());
    let error = wait(|done| log.append(g, entries(g, 5, 103..104, 9), done)).expect_err("dropped");
    assert!(matches!(LogError::of(&error), Some(LogError::Dropped { .. })));
}

#[test]
fn a_read_gives_at_least_one_entry_and_stays_within_the_bound() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let mut log = open(&fs, dir.path()).expect("open");
    let g = group(1);
    wait(|done| log.append(g, entries(g, 1, 0..50, 1000), done)).expect("append");
    assert_eq!(log.read(g, 10..50, 0).expect("read"), entries(g, 1, 10..11, 1000));
    assert_eq!(log.read(g, 10..50, 3999).expect("read"), entries(g, 1, 10..13, 1000));
    assert_eq!(log.read(g, 48..60, 1 << 20).expect("read"), entries(g, 1, 48..50, 1000));
    assert_eq!(log.read(g, 50..60, 1 << 20).expect("read"), vec![]);
    assert_eq!(log.read(group(2), 0..60, 1 << 20).expect("read"), vec![]);
    // An entry larger than a frame, and larger than a segment, has a frame of its own.
    wait(|done| log.append(g, vec![entry(g, id(1, 50), 9_000), entry(g, id(1, 51), 70_000)], done))
        .expect("append");
    wait(|done| log.append(g, entries(g, 1, 52..53, 10), done)).expect("append");
    drop(log);
    let log = open(&fs, dir.path()).expect("reopen");
    assert_eq!(
        log.read(g, 50..52, 1 << 20).expect("read"),
        vec![entry(g, id(1, 50), 9_000), entry(g, id(1, 51), 70_000)]
    );
    assert_eq!(log.retained_bytes(g), 50 * 1000 + 79_000 + 10);
}

#[test]
fn a_segment_is_deleted_only_when_nothing_needs_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let mut log = open(&fs, dir.path()).expect("open");
    let (a, b) = (group(1), group(2));
    wait(|done| log.save_vote(a, Bytes::from_static(b"a"), done)).expect("vote");
    wait(|done| log.append(b, entries(b, 1, 0..1, 100), done)).expect("append");
    wait(|done| log.append(a, entries(a, 1, 0..100, 500), done)).expect("append");
    let first = log.segments()[0].id;
    assert!(!log.delete_segment(first).expect("live"));
    wait(|done| log.purge(a, id(1, 98), done)).expect("purge");
    assert!(!log.delete_segment(first).expect("the other group counts on it"));
    wait(|done| log.drop_group(b, done)).expect("drop");
    assert!(log.pin(first));
    assert!(!log.delete_segment(first).expect("pinned"));
    log.unpin(first);
    let active = log.segments().last().expect("active").id;
    assert!(!log.delete_segment(active).expect("not sealed"));
    let before = log.total_bytes();
    for segment in log.segments() {
        assert_eq!(log.delete_segment(segment.id).expect("delete"), segment.purgeable, "{segment:?}");
    }
    assert!(log.delete_segment(first).expect("gone already") && !log.pin(first));
    assert!(log.total_bytes() < before);
    assert!(log.segments().len() <= 2);
    for _ in 0..3 {
        assert_eq!(read_all(&log, a), entries(a, 1, 99..100, 500));
        assert_eq!(log.state(a).vote.as_deref(), Some(&b"a"[..]), "survives the segment it was written in");
        assert_eq!(log.groups(), [a]);
        assert!(log.segments().iter().all(|segment| segment.id > first));
        drop(log);
        log = open(&fs, dir.path()).expect("reopen");
    }
}

#[test]
fn a_truncated_entry_stays_gone_when_the_segment_that_said_so_is_deleted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let mut log = open(&fs, dir.path()).expect("open");
    let (a, b) = (group(1), group(2));
    wait(|done| log.append(a, entries(a, 1, 0..10, 100), done)).expect("append");
    wait(|done| log.append(b, entries(b, 1, 0..40, 500), done)).expect("fills the first segment");
    wait(|done| log.truncate_after(a, Some(id(1, 4)), done)).expect("truncate");
    wait(|done| log.append(b, entries(b, 1, 40..80, 500), done)).expect("fills the second segment");
    wait(|done| log.purge(b, id(1, 79), done)).expect("purge");
    let deleted = log.segments().iter().filter(|s| log.delete_segment(s.id).expect("delete")).count();
    assert!(deleted > 0);
    wait(|done| log.append(a, entries(a, 2, 5..7, 100), done)).expect("append");
    drop(log);
    let log = open(&fs, dir.path()).expect("reopen");
    let mut expected = entries(a, 1, 0..5, 100);
    expected.extend(entries(a, 2, 5..7, 100));
    assert_eq!(read_all(&log, a), expected);
}

#[test]
fn a_log_in_use_is_refused_and_empty_opens_leave_no_segments() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs: Arc<dyn undb_vfs::Fs> = Arc::new(OsFs::new(dir.path()));
    let path = dir.path().join("deep/log");
    let mut log = Log::open(fs.clone(), &path, LogOptions::default()).expect("open");
    assert!(matches!(Log::open(fs.clone(), &path, LogOptions::default()), Err(LogError::InUse(_))));
    wait(|done| log.save_vote(group(1), Bytes::from_static(b"v"), done)).expect("vote");
    for _ in 0..5 {
        drop(log);
        log = Log::open(fs.clone(), &path, LogOptions::default()).expect("reopen");
    }
    assert_eq!(log.segments().len(), 1);
    assert_eq!(log.state(group(1)).vote.as_deref(), Some(&b"v"[..]));
    log.close();
    let reports = inspect::segments(&*fs, &path).expect("inspect");
    assert_eq!(reports.len(), 1);
    assert!(reports[0].file_bytes < 1000, "a clean close gives the preallocated space back");
}

#[test]
fn inspect_shows_what_was_written_without_changing_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let path = dir.path().join("log");
    let mut log = open(&fs, dir.path()).expect("open");
    let g = group(3);
    let written: Vec<Entry> = entries(g, 4, 0..60, 400);
    wait(|done| log.append(g, written.clone(), done)).expect("append");
    let check = |complete: bool| {
        let ops = fs.ops();
        let mut seen = Vec::new();
        let segments = inspect::segments(&fs, &path).expect("segments");
        for segment in &segments {
            let frames = inspect::frames(&fs, &path, segment.id).expect("frames");
            assert_eq!(frames.complete, segment.footer.is_some());
            for entry in frames.frames.iter().flat_map(|frame| frame.entries()) {
                let payload = inspect::payload(&fs, &path, entry.location).expect("payload");
                assert_eq!(entry.group, g);
                seen.push(Entry { id: entry.id, kind: entry.kind, payload });
            }
        }
        assert_eq!(segments.last().is_some_and(|s| s.footer.is_some()), complete);
        assert_eq!(seen, written);
        let summary = inspect::summary(&fs, &path).expect("summary");
        assert_eq!((summary.groups.len(), summary.groups[0].1.last), (1, Some(id(4, 59))));
        assert_eq!(fs.ops(), ops, "nothing was written");
    };
    check(false);
    log.close();
    check(true);
}

#[test]
fn counters_say_what_a_payload_costs() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let log = open_with(&fs, dir.path(), LogOptions { cache_bytes: 0, ..small() }).expect("open");
    let before = log.counters();
    let g = group(1);
    wait(|done| log.append(g, entries(g, 1, 0..3, 1000), done)).expect("append");
    let after = log.counters();
    assert_eq!(after.payload_bytes - before.payload_bytes, 3000);
    assert_eq!((after.entries, after.frames, after.syncs - before.syncs), (3, 1, 1));
    let overhead = after.written_bytes - before.written_bytes - 3000;
    assert!(overhead < 100, "{overhead}");
    assert_eq!(read_all(&log, g), entries(g, 1, 0..3, 1000), "without any cache");
}

#[test]
fn a_segment_is_not_deleted_by_a_purge_that_is_not_durable() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fs = SimFs::new(dir.path());
    let log = open(&fs, dir.path()).expect("open");
    let g = group(1);
    wait(|done| log.append(g, entries(g, 1, 0..60, 500), done)).expect("append");
    let first = log.segments()[0].id;
    // The writer calls back and is held there, so what follows stays queued.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (entered, reached) = std::sync::mpsc::channel::<()>();
    log.save_vote(
        g,
        Bytes::new(),
        Box::new(move |_| {
            entered.send(()).expect("sent");
            let _ = held.recv();
        }),
    );
    reached.recv().expect("the writer is held");
    let (callback, purged) = done();
    log.purge(g, id(1, 59), callback);
    assert!(log.segments().iter().all(|segment| segment.live_entries == 0 && !segment.purgeable));
    assert!(!log.delete_segment(first).expect("not yet"));
    release.send(()).expect("released");
    purged.recv().expect("called").expect("durable");
    assert!(log.delete_segment(first).expect("now"));
}
