//! One shard that is written through entries, restarted at will, and must always answer as before.

use super::mem_tree::{MemDisk, MemTree};
use bytes::Bytes;
use std::sync::Arc;
use undb_engine::command::*;
use undb_engine::shard::*;
use undb_engine::tree::{Row, Tree, ValueAt};
use undb_types::{KeyRange, LogId};

/// Where a shard's tree and log live.
pub trait Home: Send {
    /// Puts an entry into the log; says where its payload lies.
    fn append(&mut self, id: LogId, payload: &Bytes) -> Option<ValueAt>;
    /// The tree, opened as after a restart.
    fn open(&mut self) -> Arc<dyn Tree>;
    /// Entries behind `last` never were.
    fn truncate_after(&mut self, _last: Option<LogId>) {}
    /// A snapshot as of `log_id` was installed: the log goes on behind it.
    fn installed(&mut self, _log_id: Option<LogId>) {}
    /// Background work, until there is none.
    fn maintain(&mut self) {}
    /// The log need not keep what the tree has durably.
    fn purge(&mut self, _durable: Option<LogId>) {}
    /// One step of garbage collection.
    fn collect(&mut self, _now_ms: u64) {}
    /// What the counts of the whole store must satisfy; panics when they do not.
    fn check(&mut self) {}
}

/// A home without a disk.
#[derive(Default)]
pub struct MemHome(Arc<MemDisk>);

impl Home for MemHome {
    fn append(&mut self, _: LogId, _: &Bytes) -> Option<ValueAt> {
        None
    }

    fn open(&mut self) -> Arc<dyn Tree> {
        Arc::new(MemTree::open(Arc::clone(&self.0)))
    }
}

pub const VERSION_BASE: u64 = 1 << 40;

pub struct World {
    home: Box<dyn Home>,
    shard: Option<Shard>,
    /// Every entry with the answer it got.
    history: Vec<(AppliedEntry, Bytes)>,
    pub default_ttl_ms: u64,
}

fn open(home: &mut dyn Home) -> Shard {
    Shard::open(home.open(), ShardOptions { version_base: VERSION_BASE }).expect("shard opens")
}

impl World {
    pub fn new(mut home: Box<dyn Home>) -> World {
        let shard = Some(open(home.as_mut()));
        World { home, shard, history: Vec::new(), default_ttl_ms: 0 }
    }

    pub fn shard(&self) -> &Shard {
        self.shard.as_ref().expect("open")
    }

    pub fn next_index(&self) -> u64 {
        self.shard().applied().log_id.map_or(0, |id| id.index + 1)
    }

    pub fn version(&self, index: u64) -> u64 {
        VERSION_BASE + index
    }

    pub fn entry(&mut self, body: Body) -> Result<Bytes, ShardError> {
        let id = LogId { term: 1, leader: 1, index: self.next_index() };
        let at = match &body {
            Body::Commands(payload) => self.home.append(id, payload),
            Body::Membership(payload) => self.home.append(id, payload),
            Body::Blank => self.home.append(id, &Bytes::new()),
        };
        let entry = AppliedEntry { id, body, at };
        let answer = match self.shard().apply(entry.clone()) {
            Ok(answer) => answer,
            Err(e) => {
                let last = self.shard().applied().log_id;
                self.home.truncate_after(last);
                return Err(e);
            }
        };
        self.history.push((entry, answer.clone()));
        Ok(answer)
    }

    pub fn apply(&mut self, now_ms: u64, commands: &[Command]) -> Vec<Outcome> {
        let header = EntryHeader { now_ms, default_ttl_ms: self.default_ttl_ms };
        let answer = self.entry(Body::Commands(encode(header, commands))).expect("entry applies");
        decode_outcomes(&answer).expect("our own encoding").outcomes
    }

    pub fn command(&mut self, now_ms: u64, command: Command) -> Outcome {
        self.apply(now_ms, &[command]).pop().expect("one outcome")
    }

    /// Applies one mutation that must be applied.
    pub fn write(&mut self, now_ms: u64, mutation: Mutation) -> MutationResult {
        match self.command(now_ms, Command::write(vec![mutation])) {
            Outcome::Applied { mut results } => results.pop().expect("one result"),
            other => panic!("not applied: {other:?}"),
        }
    }

    pub fn get(&self, now_ms: u64, key: &'static str) -> Option<Row> {
        let keys = [Bytes::from_static(key.as_bytes())];
        self.shard().get(&keys, now_ms, false).expect("readable").rows.pop().flatten()
    }

    pub fn value(&self, now_ms: u64, key: &'static str) -> Option<Bytes> {
        self.get(now_ms, key).and_then(|row| row.value)
    }

    /// Everything that is live, page by page.
    pub fn contents(&self, now_ms: u64, reverse: bool, limit: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut range = KeyRange::all();
        loop {
            let request = ScanRequest { range: range.clone(), reverse, limit, ..Default::default() };
            let page = self.shard().scan(&request, now_ms).expect("readable");
            assert!(page.rows.len() <= limit);
            rows.extend(page.rows);
            match page.next {
                Some(next) if reverse => range.end = next,
                Some(next) => range.start = next,
                None => return rows,
            }
        }
    }

    pub fn flush(&mut self) {
        let durable = self.shard().flush().expect("flush");
        assert_eq!(durable, self.shard().durable());
    }

    /// Background work: flush and compact, let the log go as far as the tree is durable, collect garbage.
    pub fn maintain(&mut self, now_ms: u64) {
        self.shard().maintain().expect("maintenance");
        self.home.maintain();
        let durable = self.shard().durable();
        self.home.purge(durable);
        // What the log let go can not be applied again.
        self.history.retain(|(entry, _)| Some(entry.id) > durable);
        self.home.collect(now_ms);
    }

    /// Restarts: what was not flushed is gone, and is applied again with the same answers.
    pub fn reopen(&mut self) {
        let before = self.shard().durable();
        self.shard = None; // it uses the home
        let shard = self.shard.insert(open(self.home.as_mut()));
        let applied = shard.applied().log_id;
        assert!(applied >= before, "{before:?} was durable, {applied:?} is left");
        let again = self.history.iter().filter(|(entry, _)| Some(entry.id) > applied);
        for (entry, answer) in again {
            assert_eq!(shard.apply(entry.clone()).expect("applies again"), answer, "{:?}", entry.id);
        }
    }

    /// Hands all entries over once more: nothing may change.
    pub fn apply_again(&mut self) {
        let stats = self.shard().stats();
        for (entry, _) in &self.history {
            let answer = self.shard().apply(entry.clone()).expect("ignored");
            assert!(decode_outcomes(&answer).expect("our own encoding").outcomes.is_empty());
        }
        assert_eq!(self.shard().stats(), stats);
    }

    /// A snapshot of this shard becomes another one's content; that one goes on from there.
    pub fn move_into(&mut self, mut home: Box<dyn Home>) {
        let mut snapshot = self.shard().snapshot().expect("snapshot");
        let (log_id, membership) = (snapshot.log_id(), snapshot.membership().clone());
        let mut chunks = std::iter::from_fn(|| snapshot.next_chunk(300).expect("chunk").map(Ok));
        let shard = open(home.as_mut());
        shard.install(log_id, membership, &mut chunks).expect("installs");
        assert_eq!(shard.applied(), self.shard().applied());
        assert_eq!(shard.stats(), self.shard().stats());
        assert_eq!(shard.durable(), log_id);
        home.installed(log_id);
        self.history.clear();
        // The old shard first: it uses the old home.
        self.shard = None;
        self.home = home;
        self.shard = Some(shard);
    }

    /// The counts are the tree's, and are what is there.
    pub fn check(&mut self) {
        let stats = self.shard().stats();
        let tree = self.shard().tree();
        assert_eq!((stats.keys, stats.bytes), (tree.stats().keys, tree.stats().live_bytes));
        let rows: Vec<Row> =
            tree.scan(&KeyRange::all(), false, true).expect("scan").map(|row| row.expect("row")).collect();
        assert_eq!(stats.keys, rows.len() as u64);
        let bytes = rows.iter().map(|row| row.key.len() as u64 + u64::from(row.meta.value_len));
        assert_eq!(stats.bytes, bytes.sum::<u64>());
        let timed = rows.iter().filter(|row| row.meta.expire_at_ms != 0).count() as u64;
        assert_eq!(stats.timed_keys, timed);
        assert_eq!(tree.scan_system(b"x", None, usize::MAX).expect("index").len() as u64, timed);
        self.home.check();
    }
}
