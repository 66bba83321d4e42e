//! A store with one log and one engine, and the entries that tests apply.
//!
//! An entry's payload: for each change a tag byte, then a value record (1: put) or a length and a key (0: delete).

use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use undb_engine::record::{decode_record, encode_record};
use undb_engine::tree::{Applied, EngineKind, RecordMeta, Row, Tree, TreeBatch, TreeOp, ValueAt};
use undb_engine::{Engine, EngineError, EngineOptions};
use undb_log::{Entry, EntryLocation, Log, LogOptions};
use undb_types::{GroupId, KeyRange, LogId, ReplicaId, ShardId};
use undb_vfs::{Fs, OsFs};

/// Key and value; none deletes.
pub type Change = (Vec<u8>, Option<Vec<u8>>);
/// What a tree should hold: version and value by key.
pub type Model = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

pub const THRESHOLD: u32 = 64;

pub fn group(shard: u64) -> GroupId {
    GroupId { shard: ShardId(shard), replica: ReplicaId(shard + 100) }
}

pub fn log_id(index: u64) -> LogId {
    LogId { term: 1, leader: 1, index }
}

pub fn options() -> EngineOptions {
    EngineOptions {
        memtable_bytes: 64 << 10,
        memtable_bytes_total: 1 << 20,
        block_cache_bytes: 1 << 20,
        value_cache_bytes: 64 << 10,
        sled_cache_bytes: 1 << 20,
        data_file_bytes: 64 << 10,
        relocate_bytes_max: 256 << 10,
        ..EngineOptions::default()
    }
}

fn zero_clock() -> u64 {
    0
}

pub fn log_options() -> LogOptions {
    LogOptions {
        segment_bytes: 32 << 10,
        frame_bytes_max: 16 << 10,
        cache_bytes: 16 << 10,
        reserve_bytes: 4096,
        preallocate: false,
        now_ms: zero_clock,
        ..LogOptions::default()
    }
}

/// A directory in memory where there is one: what a crash loses is simulated, so real syncs only cost time.
pub fn fast_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("dir")
}

pub struct World {
    pub fs: Arc<dyn Fs>,
    pub root: PathBuf,
    pub log: Log,
    pub engine: Arc<Engine>,
    _dir: Option<tempfile::TempDir>,
}

pub type Failed = Box<dyn std::error::Error + Send + Sync>;

impl World {
    pub fn new() -> World {
        World::with(options())
    }

    pub fn with(options: EngineOptions) -> World {
        let dir = fast_dir();
        let mut world = World::open(Arc::new(OsFs::default()), dir.path(), options).expect("open");
        world._dir = Some(dir);
        world
    }

    pub fn open(fs: Arc<dyn Fs>, root: &Path, options: EngineOptions) -> Result<World, Failed> {
        fs.create_dir_all(&root.join("log"))?;
        fs.create_dir_all(&root.join("engine"))?;
        fs.sync_dir(root)?;
        let log = Log::open(Arc::clone(&fs), &root.join("log"), log_options())?;
        let engine = Engine::open(Arc::clone(&fs), &root.join("engine"), log.clone(), options)?;
        Ok(World { fs, root: root.into(), log, engine, _dir: None })
    }

    pub fn tree(&self, shard: u64, kind: EngineKind) -> Arc<dyn Tree> {
        self.engine.open_tree(group(shard), kind, THRESHOLD).expect("open tree")
    }

    /// Closes and opens again, as after a clean stop.
    pub fn reopen(self, options: EngineOptions) -> World {
        let World { fs, root, log, engine, _dir } = self;
        drop(engine);
        log.close();
        let mut world = World::open(fs, &root, options).expect("reopen");
        world._dir = _dir;
        world
    }

    /// Appends an entry, waits until it is durable, and applies it.
    pub fn commit(&self, shard: u64, tree: &dyn Tree, changes: &[Change]) -> Result<u64, Failed> {
        let group = group(shard);
        let index = self.log.state(group).last.map_or(1, |id| id.index + 1);
        let (sender, done) = mpsc::channel();
        let entry = Entry { id: log_id(index), kind: 0, payload: encode(changes) };
        self.log.append(group, vec![entry], Box::new(move |result| drop(sender.send(result))));
        done.recv().map_err(|_| "log stopped")??;
        self.apply(shard, tree, index)?;
        Ok(index)
    }

    pub fn put(&self, shard: u64, tree: &dyn Tree, changes: &[Change]) -> u64 {
        self.commit(shard, tree, changes).expect("commit")
    }

    /// Applies an entry out of the log.
    pub fn apply(&self, shard: u64, tree: &dyn Tree, index: u64) -> Result<(), Failed> {
        let entries = self.log.read(group(shard), index..index + 1, usize::MAX)?;
        let entry = entries.first().ok_or("entry is not in the log")?;
        let at = self.log.locate(group(shard), index).ok_or("entry has no place")?;
        tree.write(batch(entry, at))?;
        Ok(())
    }

    /// Applies what the log holds behind the tree's applied position.
    pub fn replay(&self, shard: u64, tree: &dyn Tree) -> Result<u64, Failed> {
        let applied = tree.applied().log_id.map_or(0, |id| id.index);
        let last = self.log.state(group(shard)).last.map_or(0, |id| id.index);
        if applied > last {
            self.purge(shard, applied)?;
        }
        for index in applied + 1..=last {
            self.apply(shard, tree, index)?;
        }
        Ok(applied.max(last))
    }

    pub fn purge(&self, shard: u64, index: u64) -> Result<(), Failed> {
        let (sender, done) = mpsc::channel();
        self.log.purge(group(shard), log_id(index), Box::new(move |result| drop(sender.send(result))));
        done.recv().map_err(|_| "log stopped")??;
        Ok(())
    }

    /// Purges the log up to what the tree holds durably.
    pub fn purge_to_durable(&self, shard: u64, tree: &dyn Tree) -> Result<(), Failed> {
        match tree.durable() {
            Some(id) => self.purge(shard, id.index),
            None => Ok(()),
        }
    }

    /// Garbage collection until it has nothing more to do; returns bytes moved.
    pub fn collect(&self) -> u64 {
        let mut moved_bytes = 0;
        for round in 0..1000 {
            let report = self.engine.gc_step(1_000_000 + round).expect("gc");
            moved_bytes += report.moved_bytes;
            if report.deleted.is_empty() && report.moved_bytes == 0 {
                return moved_bytes;
            }
        }
        panic!("garbage collection does not come to an end");
    }

    pub fn check(&self) {
        let report = self.engine.scrub().expect("check");
        assert!(report.problems.is_empty(), "{:#?}", report.problems);
    }
}

pub fn encode(changes: &[Change]) -> Bytes {
    let mut out = Vec::new();
    for (key, value) in changes {
        match value {
            Some(value) => {
                out.push(1);
                encode_record(&mut out, key, value);
            }
            None => {
                out.push(0);
                out.extend_from_slice(&(key.len() as u32).to_le_bytes());
                out.extend_from_slice(key);
            }
        }
    }
    out.into()
}

fn batch(entry: &Entry, location: EntryLocation) -> TreeBatch {
    let mut ops = Vec::new();
    let mut at = 0;
    while let Some(tag) = entry.payload.get(at) {
        at += 1;
        if *tag == 1 {
            let record = decode_record(&entry.payload.slice(at..)).expect("our own payload");
            let place = ValueAt { segment: location.segment, offset: location.offset + at as u64 };
            let meta = RecordMeta { version: entry.id.index, ..RecordMeta::default() };
            at += record.len;
            ops.push(TreeOp::Put { key: record.key, meta, value: record.value, at: Some(place) });
        } else {
            let len = u32::from_le_bytes(entry.payload[at..at + 4].try_into().expect("four bytes")) as usize;
            ops.push(TreeOp::Delete { key: entry.payload.slice(at + 4..at + 4 + len) });
            at += 4 + len;
        }
    }
    let state = Bytes::from(format!("state {}", entry.id.index));
    let applied = Applied { log_id: Some(entry.id), membership: Bytes::from_static(b"members"), state };
    let mark = (Bytes::from_static(b"last"), Some(Bytes::from(entry.id.index.to_string())));
    TreeBatch { ops, system: vec![mark], applied }
}

pub fn step_model(model: &mut Model, index: u64, changes: &[Change]) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(model.insert(key.clone(), (index, value.clone()))),
            None => drop(model.remove(key)),
        }
    }
}

pub fn read_all(rows: impl Iterator<Item = Result<Row, EngineError>>) -> Model {
    rows.map(|row| row.expect("row"))
        .map(|row| (row.key.to_vec(), (row.meta.version, row.value.expect("value").to_vec())))
        .collect()
}

/// Compares scans in both directions, point reads and counts with the model.
pub fn assert_holds(tree: &dyn Tree, model: &Model) {
    let all = KeyRange::all();
    let forward = read_all(tree.scan(&all, false, false).expect("scan"));
    assert_eq!(&forward, model);
    let backward: Vec<_> =
        tree.scan(&all, true, true).expect("scan").map(|r| r.expect("row").key.to_vec()).collect();
    assert!(backward.iter().rev().eq(model.keys()));
    for (key, (version, value)) in model {
        let row = tree.get(key).expect("get").expect("present");
        assert_eq!((row.meta.version, row.value.as_deref()), (*version, Some(&value[..])));
        assert_eq!(tree.meta(key).expect("meta").expect("present").value_len as usize, value.len());
    }
    let stats = tree.stats();
    assert_eq!(stats.keys as usize, model.len());
    let bytes: usize = model.iter().map(|(key, (_, value))| key.len() + value.len()).sum();
    assert_eq!(stats.live_bytes as usize, bytes);
}

pub fn change(key: &str, value: impl Into<Vec<u8>>) -> Change {
    (key.into(), Some(value.into()))
}

pub fn delete(key: &str) -> Change {
    (key.into(), None)
}

/// A value that does not compress, of `len` bytes.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    use rand::{RngCore, SeedableRng};
    let mut value = vec![0; len];
    rand::rngs::StdRng::seed_from_u64(seed).fill_bytes(&mut value);
    value
}
