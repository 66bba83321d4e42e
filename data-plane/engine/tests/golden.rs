//! The command and outcome formats, byte by byte: what was written once must always be read.
//! `UPDATE=1` rewrites the files of the newest version; never do that to a format that was released.

use bytes::Bytes;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use undb_engine::command::*;
use undb_engine::record::record_len;
use undb_engine::tree::RecordMeta;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| line.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n";
    bytes.chunks(32).map(line).collect()
}

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("two hex digits")
    };
    digits.chunks(2).map(byte).collect::<Vec<u8>>().into()
}

fn golden(name: &str, bytes: &Bytes) -> Bytes {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file(name), hex(bytes)).expect("golden file is writable");
    }
    let kept = std::fs::read_to_string(file(name)).expect("golden file is there");
    assert_eq!(hex(bytes), kept, "{name} is not what this build writes");
    unhex(&kept)
}

fn b(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn every_command() -> Vec<Command> {
    let put = |expiry| Op::Put { value: b("value"), kind: 7, expiry };
    let mutations = vec![
        Mutation::put("plain", "v"),
        Mutation::new("ttl", put(Expiry::TtlMs(60_000))).when(Condition::Absent),
        Mutation::new("keep", put(Expiry::Keep)).when(Condition::Present).with_previous(),
        Mutation::new("at", put(Expiry::AtMs(1_700_000_000_000))).when(Condition::Version(42)),
        Mutation::put("empty", "").when(Condition::Value(b("before"))),
        Mutation::new("gone", Op::Delete).with_previous(),
        Mutation::new("n", Op::Increment { by: -3, initial: i64::MAX, ttl_ms: 5 }),
        Mutation::new("e0", Op::SetExpiry(NewExpiry::Never)),
        Mutation::new("e1", Op::SetExpiry(NewExpiry::TtlMs(9))),
        Mutation::new("e2", Op::SetExpiry(NewExpiry::AtMs(9))),
        Mutation::new("c", Op::Check).when(Condition::Version(0)),
    ];
    let request = Some(RequestId { client: 1 << 60, seq: 7, first_attempt_ms: 1_600_000_000_000 });
    vec![
        Command { request, action: Action::Write(mutations) },
        Command::write(vec![Mutation::new("from", Op::DeleteRange { end: b("to") })]),
        Command::write(vec![]),
        Command::tick(),
        Command::sweep(),
    ]
}

fn every_outcome() -> Outcomes {
    let meta = RecordMeta { version: 1, expire_at_ms: 2, kind: 3, value_len: 5 };
    let record = |value| Some(Record { meta, value });
    let rejected = |code| Outcome::Rejected { code, message: "why".into() };
    let results = vec![
        MutationResult::default(),
        MutationResult {
            version: 9,
            existed: true,
            previous: record(Some(b("value"))),
            number: -1,
            next: None,
        },
        MutationResult { number: 1000, next: Some(b("next")), ..Default::default() },
    ];
    Outcomes {
        now_ms: 1_600_000_000_001,
        outcomes: vec![
            Outcome::Applied { results },
            Outcome::ConditionFailed { failed: 3, current: None },
            Outcome::ConditionFailed { failed: 4, current: record(None) },
            rejected(RejectCode::NotAnInteger),
            rejected(RejectCode::Overflow),
            rejected(RejectCode::WrongKind),
            rejected(RejectCode::TooLarge),
            rejected(RejectCode::Invalid),
            rejected(RejectCode::ClockAhead),
            Outcome::TooOld { watermark_ms: 77 },
            Outcome::Forgotten,
            Outcome::Done,
            Outcome::Swept { removed: 1000, more: true },
        ],
    }
}

const HEADER: EntryHeader = EntryHeader { now_ms: 1_600_000_000_000, default_ttl_ms: 3_600_000 };

#[test]
fn commands_version_1_read_as_they_were_written() {
    let commands = every_command();
    let payload = golden("commands-v1.hex", &encode(HEADER, &commands));
    let decoded = decode(&payload).expect("the golden file decodes");
    assert_eq!(decoded.header, HEADER);
    let read: Vec<Command> = decoded.commands.iter().map(|c| c.command.clone()).collect();
    assert_eq!(read, commands);
}

#[test]
fn outcomes_version_1_read_as_they_were_written() {
    let outcomes = every_outcome();
    let bytes = golden("outcomes-v1.hex", &encode_outcomes(&outcomes));
    assert_eq!(decode_outcomes(&bytes), Ok(outcomes));
}

#[test]
fn every_put_says_where_its_value_record_lies() {
    let payload = encode(HEADER, &every_command());
    let decoded = decode(&payload).expect("our own encoding");
    let mut puts = 0;
    for command in decoded.commands {
        let Action::Write(mutations) = command.command.action else { continue };
        assert_eq!(mutations.len(), command.records.len());
        for (mutation, place) in mutations.iter().zip(command.records) {
            let Op::Put { value, .. } = &mutation.op else {
                assert_eq!(place, None);
                continue;
            };
            puts += 1;
            let at = place.expect("a put has a record") as usize;
            let record = payload.slice(at..at + record_len(mutation.key.len(), value.len()));
            let record = undb_engine::record::decode_record(&record).expect("a record lies there");
            assert_eq!((&record.key, &record.value), (&mutation.key, value));
        }
    }
    assert_eq!(puts, 5);
}

#[test]
fn a_newer_version_is_refused_with_both_versions() {
    let mut payload = encode(HEADER, &every_command()).to_vec();
    payload[0] = FORMAT_VERSION + 1;
    let error = decode(&payload.into()).expect_err("newer");
    assert!(matches!(error, FormatError::Version { found: 2, known: 1, .. }), "{error}");
}

#[test]
fn a_cut_off_payload_never_reads() {
    let payload = encode(HEADER, &every_command());
    let outcomes = encode_outcomes(&every_outcome());
    for len in 0..payload.len() {
        assert!(decode(&payload.slice(..len)).is_err(), "cut at {len}");
    }
    for len in 0..outcomes.len() {
        assert!(decode_outcomes(&outcomes.slice(..len)).is_err(), "cut at {len}");
    }
    let longer: Bytes = [&payload[..], b"x"].concat().into();
    assert!(matches!(decode(&longer), Err(FormatError::Field { field: "trailing bytes", .. })));
}

#[test]
fn a_flipped_bit_in_a_value_is_found() {
    let payload = encode(HEADER, &[Command::write(vec![Mutation::put("key", vec![7; 100])])]);
    let mut bad = payload.to_vec();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    assert!(matches!(decode(&bad.into()), Err(FormatError::Record { .. })));
}

#[test]
fn the_estimate_of_a_command_is_an_upper_bound() {
    for command in every_command() {
        let len = encode(HEADER, std::slice::from_ref(&command)).len() - encode(HEADER, &[]).len();
        assert!(encoded_len(&command) >= len, "{command:?}: {len}");
    }
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn any_mutation() -> impl Strategy<Value = Mutation> {
    let expiry = prop_oneof![
        Just(Expiry::Default),
        Just(Expiry::Keep),
        any::<u64>().prop_map(Expiry::TtlMs),
        any::<u64>().prop_map(Expiry::AtMs),
    ];
    let op = prop_oneof![
        (any_bytes(), any::<u32>(), expiry).prop_map(|(value, kind, expiry)| Op::Put { value, kind, expiry }),
        Just(Op::Delete),
        any::<(i64, i64, u64)>().prop_map(|(by, initial, ttl_ms)| Op::Increment { by, initial, ttl_ms }),
        any::<u64>().prop_map(|ms| Op::SetExpiry(NewExpiry::AtMs(ms))),
        any_bytes().prop_map(|end| Op::DeleteRange { end }),
        Just(Op::Check),
    ];
    let condition = prop_oneof![
        Just(Condition::Absent),
        any::<u64>().prop_map(Condition::Version),
        any_bytes().prop_map(Condition::Value),
    ];
    (any_bytes(), prop::option::of(condition), any::<bool>(), op)
        .prop_map(|(key, condition, return_previous, op)| Mutation { key, condition, return_previous, op })
}

fn any_command() -> impl Strategy<Value = Command> {
    let request = any::<(u64, u64, u64)>().prop_map(|(client, seq, first_attempt_ms)| RequestId {
        client,
        seq,
        first_attempt_ms,
    });
    let action = prop_oneof![
        8 => prop::collection::vec(any_mutation(), 0..5).prop_map(Action::Write),
        1 => Just(Action::Tick),
        1 => any::<u32>().prop_map(|limit| Action::Sweep { limit }),
    ];
    (prop::option::of(request), action).prop_map(|(request, action)| Command { request, action })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_encoded_decodes(commands in prop::collection::vec(any_command(), 0..5), now_ms: u64) {
        let header = EntryHeader { now_ms, default_ttl_ms: now_ms / 2 };
        let decoded = decode(&encode(header, &commands)).expect("our own encoding");
        let read: Vec<Command> = decoded.commands.into_iter().map(|c| c.command).collect();
        prop_assert_eq!(read, commands);
    }

    #[test]
    fn any_bytes_at_all_are_refused_not_fatal(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut versioned = bytes.clone();
        versioned.insert(0, FORMAT_VERSION);
        for bytes in [Bytes::from(bytes), Bytes::from(versioned)] {
            let _ = decode(&bytes);
            let _ = decode_outcomes(&bytes);
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_read_not_fatal(at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        for good in [encode(HEADER, &every_command()), encode_outcomes(&every_outcome())] {
            let mut bad = good.to_vec();
            let place = at.index(bad.len());
            bad[place] = byte;
            let whole = Bytes::from(bad);
            for bytes in [whole.slice(..cut.index(whole.len())), whole] {
                let _ = decode(&bytes);
                let _ = decode_outcomes(&bytes);
            }
        }
    }
}
