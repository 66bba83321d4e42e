//! Formats on disk: golden files. `UPDATE=1` rewrites them; a changed golden file is a new format version.

use bytes::Bytes;
use std::path::PathBuf;
use undb_engine::gc::codec::Codec;
use undb_engine::gc::data_file::{DataHead, DataReader, DataWriter, data_path};
use undb_engine::manifest::{DataRecord, Manifest, TreeRecord};
use undb_engine::record::{decode_record, encode_record};
use undb_engine::tree::entry::{Counts, Entry, Place, Pointer, decode_applied, encode_applied, live_key};
use undb_engine::tree::{Applied, EngineKind, Origin, RecordMeta, SegmentRef};
use undb_types::{GroupId, LogId, ReplicaId, ShardId};
use undb_vfs::OsFs;

fn golden_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"))
}

/// Compares with the golden file; returns its bytes.
fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = golden_path(name);
    if std::env::var_os("UPDATE").is_some() {
        let lines: Vec<String> =
            bytes.chunks(32).map(|line| line.iter().map(|b| format!("{b:02x}")).collect()).collect();
        std::fs::write(&path, lines.join("\n") + "\n").expect("write golden file");
    }
    let text = std::fs::read_to_string(&path).expect("golden file");
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let kept: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex"))
        .collect();
    assert_eq!(kept, bytes, "{name} is not what it was: a new format needs a new version");
    kept
}

const GROUP: GroupId = GroupId { shard: ShardId(300), replica: ReplicaId(7) };

#[test]
fn value_record_is_as_it_was() {
    let mut bytes = Vec::new();
    encode_record(&mut bytes, b"key", b"some value");
    let record = decode_record(&golden("value-record-v1", &bytes).into()).expect("decode");
    assert_eq!((&record.key[..], &record.value[..]), (&b"key"[..], &b"some value"[..]));
}

fn entries() -> Vec<Entry> {
    let meta = RecordMeta { version: 70_000, expire_at_ms: 1_700_000_000_000, kind: 3, value_len: 5 };
    let at =
        |origin| Place::At(Pointer { segment: SegmentRef { origin, id: 77 }, offset: 4096, record_len: 20 });
    [Place::Inline(Bytes::from_static(b"value")), at(Origin::Log), at(Origin::Data)]
        .into_iter()
        .map(|place| Entry { meta, place })
        .collect()
}

#[test]
fn index_entries_are_as_they_were() {
    let mut bytes = Vec::new();
    for entry in entries() {
        let encoded = entry.encode();
        bytes.push(encoded.len() as u8);
        bytes.extend_from_slice(&encoded);
    }
    let kept = golden("index-entries-v1", &bytes);
    let mut rest = &kept[..];
    for entry in entries() {
        let (encoded, behind) = rest[1..].split_at(rest[0].into());
        assert_eq!(Entry::decode(encoded).expect("decode"), entry);
        rest = behind;
    }
}

#[test]
fn engine_records_are_as_they_were() {
    let log_id = Some(LogId { term: 3, leader: 2, index: 70_000 });
    let applied =
        Applied { log_id, membership: Bytes::from_static(b"members"), state: Bytes::from_static(b"s") };
    let counts = Counts { keys: 12, live_bytes: 3456 };
    let kept = golden("applied-v1", &encode_applied(&applied, counts));
    assert_eq!(decode_applied(&kept).expect("decode"), (applied, counts));
    golden("live-key-v1", &live_key(SegmentRef { origin: Origin::Data, id: 77 }));
}

#[test]
fn manifest_is_as_it_was() {
    let tree = TreeRecord { kind: EngineKind::Separated, threshold: 1024, generation: 9 };
    let data = DataRecord { bytes: 1 << 26, record_bytes: 1 << 25, created_ms: 1_700_000_000_000, class: 2 };
    let manifest = Manifest {
        next_generation: 10,
        next_data_id: 5,
        trees: [(GROUP, tree)].into(),
        data: [(4, data)].into(),
    };
    let kept = golden("manifest-v1", &manifest.encode());
    assert_eq!(Manifest::decode("MANIFEST".as_ref(), &kept).expect("decode"), manifest);
}

#[test]
fn data_file_is_as_it_was() {
    let dir = tempfile::tempdir().expect("dir");
    let head = DataHead { id: 5, class: 1, created_ms: 1_700_000_000_000, codec: Codec::Raw };
    let mut writer = DataWriter::create(&OsFs::default(), dir.path(), head).expect("create");
    let pointer = writer.append(GROUP, b"a", b"first value").expect("append");
    writer.append(GROUP, b"b", b"").expect("append");
    writer.finish().expect("finish");
    let path = data_path(dir.path(), 5);
    let kept = golden("data-file-v1", &std::fs::read(&path).expect("read"));
    std::fs::write(&path, kept).expect("write");
    let reader = DataReader::open(&OsFs::default(), dir.path(), 5).expect("open");
    assert_eq!(reader.verify().expect("verify")[0].records, 2);
    assert_eq!(
        &decode_record(&reader.read(pointer).expect("read")).expect("record").value[..],
        b"first value"
    );
}
