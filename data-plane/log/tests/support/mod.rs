//! What the log's tests share.
#![allow(dead_code)]

pub mod model;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use bytes::Bytes;
use undb_log::{Done, Entry, Log, LogError, LogOptions};
use undb_types::{GroupId, LogId, ReplicaId, ShardId};
use undb_vfs::{Fs, SimFs};

/// Small enough that a short script rolls segments.
pub fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 16 << 10,
        frame_bytes_max: 4 << 10,
        cache_bytes: 2 << 10,
        reserve_bytes: 8 << 10,
        now_ms: || 1_700_000_000_000,
        ..LogOptions::default()
    }
}

pub fn group(n: u64) -> GroupId {
    GroupId { shard: ShardId(n), replica: ReplicaId(n * 10) }
}

pub fn id(term: u64, index: u64) -> LogId {
    LogId { term, leader: 1, index }
}

/// Bytes that say whose they are, so that a mix-up shows.
pub fn payload(group: GroupId, id: LogId, len: usize) -> Bytes {
    let seed = format!("{group}:{}:{};", id.term, id.index);
    seed.bytes().cycle().take(len).collect::<Vec<_>>().into()
}

pub fn entry(group: GroupId, id: LogId, len: usize) -> Entry {
    Entry { id, kind: (id.index % 3) as u8, payload: payload(group, id, len) }
}

pub fn entries(group: GroupId, term: u64, indexes: std::ops::Range<u64>, len: usize) -> Vec<Entry> {
    indexes.map(|index| entry(group, id(term, index), len)).collect()
}

/// A callback, and where its result arrives.
pub fn done() -> (Done, mpsc::Receiver<std::io::Result<()>>) {
    let (sender, receiver) = mpsc::channel();
    (Box::new(move |result| drop(sender.send(result))), receiver)
}

/// Runs a writing call to its end.
pub fn wait(call: impl FnOnce(Done)) -> std::io::Result<()> {
    let (done, result) = done();
    call(done);
    result.recv().expect("every callback is called")
}

pub fn open(fs: &SimFs, dir: &Path) -> Result<Log, LogError> {
    open_with(fs, dir, small())
}

pub fn open_with(fs: &SimFs, dir: &Path, options: LogOptions) -> Result<Log, LogError> {
    let fs: Arc<dyn Fs> = Arc::new(fs.clone());
    Log::open(fs, &dir.join("log"), options)
}

/// Every entry that a group has.
pub fn read_all(log: &Log, group: GroupId) -> Vec<Entry> {
    log.read(group, 0..u64::MAX, usize::MAX).expect("what is there can be read")
}
