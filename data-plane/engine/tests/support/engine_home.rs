//! A real tree over a real log in a temporary directory.

use super::world::Home;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::mpsc;
use tempfile::TempDir;
use undb_engine::tree::{EngineKind, Tree, ValueAt};
use undb_engine::{Engine, EngineOptions};
use undb_log::{Entry, Log, LogOptions};
use undb_types::{GroupId, LogId, ReplicaId, ShardId};
use undb_vfs::{Fs, OsFs};

const GROUP: GroupId = GroupId { shard: ShardId(7), replica: ReplicaId(3) };

/// One replica in a store of its own.
pub struct EngineHome {
    kind: EngineKind,
    threshold: u32,
    /// Reopened on every second restart only, so that both orders of loss are seen.
    log: Option<Log>,
    engine: Option<Arc<Engine>>,
    restarts: u32,
    dir: TempDir,
}

fn fs() -> Arc<dyn Fs> {
    Arc::new(OsFs::default())
}

impl EngineHome {
    pub fn new(kind: EngineKind, threshold: u32) -> EngineHome {
        let dir = TempDir::new().expect("temporary directory");
        EngineHome { kind, threshold, log: None, engine: None, restarts: 0, dir }
    }

    fn log(&self) -> &Log {
        self.log.as_ref().expect("opened before it is used")
    }

    /// Calls the log and waits until what was called is durable.
    fn durably(&self, call: impl FnOnce(&Log, undb_log::Done)) {
        let (sender, receiver) = mpsc::channel();
        let done = move |result: std::io::Result<()>| drop(sender.send(result));
        call(self.log(), Box::new(done));
        receiver.recv().expect("called back").expect("durable");
    }
}

impl Home for EngineHome {
    fn append(&mut self, id: LogId, payload: &Bytes) -> Option<ValueAt> {
        let entry = Entry { id, kind: 1, payload: payload.clone() };
        self.durably(|log, done| log.append(GROUP, vec![entry], done));
        let at = self.log().locate(GROUP, id.index).expect("an appended entry has a place");
        Some(ValueAt { segment: at.segment, offset: at.offset })
    }

    fn open(&mut self) -> Arc<dyn Tree> {
        self.engine = None;
        if self.restarts.is_multiple_of(2) {
            self.log = None;
        }
        self.restarts += 1;
        let path = self.dir.path();
        let log = self.log.take().unwrap_or_else(|| {
            // Small segments, so that values lie in many and some are collected.
            let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() };
            Log::open(fs(), &path.join("log"), options).expect("log opens")
        });
        let options = EngineOptions { memtable_bytes: 64 << 10, ..EngineOptions::default() };
        let engine = Engine::open(fs(), &path.join("engine"), log.clone(), options).expect("engine opens");
        let tree = engine.open_tree(GROUP, self.kind, self.threshold).expect("tree opens");
        (self.log, self.engine) = (Some(log), Some(engine));
        tree
    }

    fn truncate_after(&mut self, last: Option<LogId>) {
        self.durably(|log, done| log.truncate_after(GROUP, last, done));
    }

    fn installed(&mut self, log_id: Option<LogId>) {
        if let Some(upto) = log_id {
            self.durably(|log, done| log.purge(GROUP, upto, done));
        }
    }

    fn maintain(&mut self) {
        if let Some(engine) = &self.engine {
            while engine.maintain().expect("maintenance") {}
        }
    }

    fn purge(&mut self, durable: Option<LogId>) {
        if let Some(upto) = durable {
            self.durably(|log, done| log.purge(GROUP, upto, done));
        }
    }

    fn collect(&mut self, now_ms: u64) {
        if let Some(engine) = &self.engine {
            engine.gc_step(now_ms).expect("garbage collection");
        }
    }

    fn check(&mut self) {
        if let Some(engine) = &self.engine {
            assert_eq!(engine.scrub().expect("readable").problems, Vec::<String>::new());
        }
    }
}
