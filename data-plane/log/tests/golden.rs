//! The bytes of format 1 never change: `tests/golden/` holds a segment that every build must read, and must
//! write the same. `UPDATE=1 cargo test` rewrites it; only a new format version may need that.

mod support;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use support::{group, id, payload};
use undb_log::format::{
    CLASS_HOT, Checkpoint, EntryMeta, FRAME_HEADER_LEN, Footer, FooterGroup, FrameHeader, ORIGIN_LOG, Reader,
    Record, RunStart, SEGMENT_HEADER_LEN, SegmentHeader, salt,
};
use undb_log::{Log, LogOptions, inspect};
use undb_types::GroupId;
use undb_vfs::{Fs, SimFs};

const LOG_ID: u64 = 0x0123_4567_89AB_CDEF;
const SEGMENT: u64 = 7;
const INCARNATION: u64 = 3;
const FIRST_SEQ: u64 = 1_000;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn header() -> SegmentHeader {
    SegmentHeader {
        log_id: LOG_ID,
        segment: SEGMENT,
        incarnation: INCARNATION,
        first_seq: FIRST_SEQ,
        created_ms: 1_700_000_000_000,
        origin: ORIGIN_LOG,
        class: CLASS_HOT,
    }
}

/// The records of each frame; together they have every kind and every option.
fn frames() -> Vec<Vec<Record>> {
    let (a, b, c) = (group(1), group(300), group(70_000));
    let full = Checkpoint {
        purged: Some(id(2, 10)),
        live: Some((11, id(3, 200))),
        vote: Some(Bytes::from_static(b"a vote")),
        committed: Some(id(3, 150)),
    };
    vec![
        vec![Record::Checkpoint(a, Checkpoint::default()), Record::Checkpoint(b, full)],
        vec![],
        vec![
            Record::Vote(a, Bytes::from_static(&[0xFF, 0x00, 0x80])),
            run(a, 5, 1, &[0, 1, 127, 128, 5_000]),
            run(c, 1_000_000, 99_999_999, &[20]),
            Record::Committed(a, Some(id(5, 2))),
        ],
        vec![
            Record::Truncate(a, Some(id(5, 3))),
            Record::Truncate(c, None),
            Record::Purge(b, id(3, 200)),
            Record::Drop(b),
            Record::Committed(c, None),
            run(a, 6, 4, &[30]),
        ],
    ]
}

/// Checksums are filled in when the frame's place is known.
fn run(group: GroupId, term: u64, index: u64, lens: &[u32]) -> Record {
    let entries =
        lens.iter().enumerate().map(|(i, len)| EntryMeta { kind: i as u8, len: *len, crc: 0 }).collect();
    Record::Entries { start: RunStart { group, term, leader: 1, index }, entries }
}

fn encode_frame(offset: u64, seq: u64, records: &mut [Record]) -> Vec<u8> {
    let mut body = Vec::new();
    for record in records.iter_mut() {
        let Record::Entries { start, entries } = record else { continue };
        for (i, entry) in entries.iter_mut().enumerate() {
            let at = offset + FRAME_HEADER_LEN as u64 + body.len() as u64;
            let bytes = payload(start.group, id(start.term, start.index + i as u64), entry.len as usize);
            entry.crc = crc32c::crc32c(&bytes) ^ salt(LOG_ID, SEGMENT, at);
            body.extend_from_slice(&bytes);
        }
    }
    let mut directory = Vec::new();
    records.iter().for_each(|record| record.encode(&mut directory));
    let header = FrameHeader {
        class: CLASS_HOT,
        segment: SEGMENT,
        offset,
        seq,
        durable_seq: seq - 1,
        incarnation: INCARNATION,
        body_len: body.len() as u32,
        dir_len: directory.len() as u32,
        dir_crc: FrameHeader::directory_crc(LOG_ID, SEGMENT, offset, &directory),
    };
    [&header.encode(LOG_ID)[..], &body, &directory].concat()
}

fn footer(frames_end: u64) -> Footer {
    Footer {
        segment: SEGMENT,
        frames_end,
        first_seq: FIRST_SEQ,
        last_seq: FIRST_SEQ + frames().len() as u64 - 1,
        incarnation: INCARNATION,
        groups: vec![
            (group(1), FooterGroup { first: 1, last: 5, entries: 6, bytes: 5_286 }),
            (group(70_000), FooterGroup { first: 99_999_999, last: 99_999_999, entries: 1, bytes: 20 }),
        ],
    }
}

fn encode() -> Vec<u8> {
    let mut bytes = header().encode().to_vec();
    for (i, records) in frames().iter_mut().enumerate() {
        let frame = encode_frame(bytes.len() as u64, FIRST_SEQ + i as u64, records);
        bytes.extend_from_slice(&frame);
    }
    let footer = footer(bytes.len() as u64).encode(LOG_ID);
    [bytes, footer].concat()
}

fn committed() -> Vec<u8> {
    let path = golden("segment-v1.seg");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(golden("")).expect("dir");
        std::fs::write(&path, encode()).expect("write");
    }
    std::fs::read(&path).expect("the golden segment is committed")
}

#[test]
fn encoding_gives_the_golden_bytes() {
    assert!(encode() == committed(), "format 1 was changed");
}

#[test]
fn the_golden_segment_decodes_to_what_was_encoded_and_encodes_to_the_same_bytes() {
    let bytes = committed();
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header()));
    let mut at = SEGMENT_HEADER_LEN;
    for (i, mut expected) in frames().into_iter().enumerate() {
        let frame = encode_frame(at as u64, FIRST_SEQ + i as u64, &mut expected);
        let header = FrameHeader::decode(&bytes[at..], LOG_ID, SEGMENT, at as u64).expect("frame");
        assert_eq!(header.seq, FIRST_SEQ + i as u64);
        assert_eq!(header.encode(LOG_ID), bytes[at..at + FRAME_HEADER_LEN]);
        let directory_at = at + FRAME_HEADER_LEN + header.body_len as usize;
        let directory = &bytes[directory_at..directory_at + header.dir_len as usize];
        let records = Record::decode_all(directory).expect("records");
        assert_eq!(records, expected);
        let mut again = Vec::new();
        records.iter().for_each(|record| record.encode(&mut again));
        assert_eq!(again, directory);
        assert_eq!(frame, bytes[at..at + frame.len()]);
        at += frame.len();
    }
    let found = Footer::decode(&bytes[at..], LOG_ID, SEGMENT, at as u64).expect("footer");
    assert_eq!(found, footer(at as u64));
    assert_eq!(found.encode(LOG_ID), bytes[at..]);
}

#[test]
fn the_golden_segment_is_a_log_that_opens() {
    let dir = tempfile::tempdir().expect("tempdir");
    let log_dir = dir.path().join("log");
    std::fs::create_dir(&log_dir).expect("dir");
    std::fs::write(log_dir.join("0000000000000007.seg"), committed()).expect("write");
    let fs: std::sync::Arc<dyn Fs> = std::sync::Arc::new(SimFs::new(dir.path()));
    assert!(inspect::frames(&*fs, &log_dir, SEGMENT).expect("frames").complete);
    let log = Log::open(fs, &log_dir, LogOptions::default()).expect("open");
    assert_eq!(log.groups(), [group(1), group(70_000)]);
    let a = log.state(group(1));
    assert_eq!((a.last, a.committed), (Some(id(6, 4)), Some(id(5, 2))));
    assert_eq!(a.vote.as_deref(), Some(&[0xFF, 0x00, 0x80][..]));
    let entries = support::read_all(&log, group(1));
    let expected: Vec<_> = [(5, 1, 0), (5, 2, 1), (5, 3, 127), (6, 4, 30)]
        .map(|(term, index, len)| payload(group(1), id(term, index), len))
        .into();
    assert_eq!(entries.into_iter().map(|entry| entry.payload).collect::<Vec<_>>(), expected);
}

#[test]
fn bytes_that_are_not_ours_are_refused_not_fatal() {
    let bytes = committed();
    for len in 0..200 {
        let _ = SegmentHeader::decode(&bytes[..len]);
        let _ = FrameHeader::decode(&bytes[..len], LOG_ID, SEGMENT, 0);
        let _ = Footer::decode(&bytes[bytes.len() - len..], LOG_ID, SEGMENT, 0);
        let _ = Record::decode_all(&bytes[len..len + 200]);
    }
    let mut huge = vec![1, 0, 0, 0, 0, 0];
    huge.extend_from_slice(&[0xFF; 9]);
    assert!(Record::decode_all(&huge).is_err(), "a count that the bytes cannot hold");
    assert!(Reader(&[0x80, 0x00]).varint("x").is_err(), "one spelling per number");
}
