//! The engine's shard as the machine of a Raft group.

use crate::chunk::{Envelope, decode_prologue, encode_prologue};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use undb_engine::EngineError;
use undb_engine::shard::{AppliedEntry, Body, Shard, ShardError, ShardSnapshot};
use undb_engine::tree::ValueAt;
use undb_raft::{Committed, Machine, SnapshotSource};
use undb_types::LogId;

/// Bytes of one snapshot chunk, about.
const CHUNK_BYTES: usize = 1 << 20;

/// One replica's state, driven by its group and read by its sessions.
pub struct ShardMachine {
    shard: Shard,
    /// Memberships applied: the `conf` of the shard's epoch.
    conf: AtomicU64,
    /// The store's count of bytes of keys and values applied.
    user_bytes: Arc<AtomicU64>,
}

impl ShardMachine {
    /// Over what the tree holds.
    pub fn open(shard: Shard, user_bytes: Arc<AtomicU64>) -> io::Result<Self> {
        let envelope = Envelope::decode(shard.applied().membership).map_err(io::Error::other)?;
        Ok(Self { shard, conf: AtomicU64::new(envelope.conf), user_bytes })
    }

    /// For reads, flushes and counts.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Memberships applied so far.
    pub fn conf(&self) -> u64 {
        self.conf.load(Ordering::Acquire)
    }

    fn apply_one(&self, entry: Committed) -> io::Result<Bytes> {
        let mut conf = None;
        let body = match entry.body {
            undb_raft::Body::Blank => Body::Blank,
            undb_raft::Body::Command(payload) => Body::Commands(payload),
            undb_raft::Body::Membership(membership) => {
                let next = self.conf() + 1;
                conf = Some(next);
                Body::Membership(Envelope { conf: next, membership }.encode())
            }
        };
        let at = entry.at.map(|at| ValueAt { segment: at.segment, offset: at.offset });
        let id = entry.id;
        // An entry that was applied before changes nothing, its counts included.
        let again = self.shard.applied().log_id.is_some_and(|last| id.index <= last.index);
        let before = self.shard.written_bytes();
        let answer = self.shard.apply(AppliedEntry { id, body, at }).map_err(to_io)?;
        self.user_bytes.fetch_add(self.shard.written_bytes() - before, Ordering::Relaxed);
        if let Some(conf) = conf.filter(|_| !again) {
            self.conf.store(conf, Ordering::Release);
        }
        Ok(answer)
    }
}

impl Machine for ShardMachine {
    fn applied(&self) -> io::Result<(Option<LogId>, Bytes)> {
        let applied = self.shard.applied();
        let envelope = Envelope::decode(applied.membership).map_err(io::Error::other)?;
        Ok((applied.log_id, envelope.membership))
    }

    fn apply(&self, entries: Vec<Committed>) -> io::Result<Vec<Bytes>> {
        entries.into_iter().map(|entry| self.apply_one(entry)).collect()
    }

    fn snapshot(&self) -> io::Result<Box<dyn SnapshotSource>> {
        let snapshot = self.shard.snapshot().map_err(to_io)?;
        let envelope = Envelope::decode(snapshot.membership().clone()).map_err(io::Error::other)?;
        Ok(Box::new(Source { snapshot, envelope, begun: false }))
    }

    fn install(
        &self,
        log_id: Option<LogId>,
        membership: Bytes,
        chunks: &mut dyn Iterator<Item = io::Result<Bytes>>,
    ) -> io::Result<()> {
        let first = chunks.next().ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))??;
        let conf = decode_prologue(first).map_err(io::Error::other)?;
        let envelope = Envelope { conf, membership }.encode();
        self.shard.install(log_id, envelope, chunks).map_err(to_io)?;
        self.conf.store(conf, Ordering::Release);
        Ok(())
    }
}

struct Source {
    snapshot: ShardSnapshot,
    envelope: Envelope,
    begun: bool,
}

impl SnapshotSource for Source {
    fn log_id(&self) -> Option<LogId> {
        self.snapshot.log_id()
    }

    fn membership(&self) -> Bytes {
        self.envelope.membership.clone()
    }

    fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        if !self.begun {
            self.begun = true;
            return Ok(Some(encode_prologue(self.envelope.conf)));
        }
        self.snapshot.next_chunk(CHUNK_BYTES).map_err(to_io)
    }
}

fn to_io(error: ShardError) -> io::Error {
    match error {
        ShardError::Engine(EngineError::DiskFull { .. }) => io::Error::new(io::ErrorKind::StorageFull, error),
        other => io::Error::other(other),
    }
}
