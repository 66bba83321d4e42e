//! A machine for tests: named registers in memory. What was flushed survives a restart.

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use undb_raft::{Body, Committed, Machine, SnapshotSource};
use undb_types::LogId;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Op {
    Put(String, u64),
    Add(String, u64),
    /// Bulk: makes a state that is worth more than one chunk.
    Fill(String, Vec<u8>),
}

impl Op {
    pub fn encode(&self) -> Bytes {
        postcard::to_allocvec(self).expect("encodes").into()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    applied: Option<LogId>,
    membership: Vec<u8>,
    pub registers: BTreeMap<String, u64>,
    pub bulk: BTreeMap<String, Vec<u8>>,
}

/// What survives a restart of a [`Registers`].
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

pub struct Registers {
    disk: Disk,
    /// openraft's suite applies entries with gaps; nobody else does.
    gaps: bool,
    live: Mutex<State>,
    /// Entries applied, by what they were located as; proves that commands have a place in the log.
    pub located: Mutex<Vec<(Bytes, Option<undb_log::EntryLocation>)>>,
    pub installs: Mutex<usize>,
}

impl Registers {
    pub fn open(disk: &Disk) -> Arc<Self> {
        Arc::new(Self::new(disk, false))
    }

    pub fn with_gaps(disk: &Disk) -> Arc<Self> {
        Arc::new(Self::new(disk, true))
    }

    fn new(disk: &Disk, gaps: bool) -> Self {
        let live = Mutex::new(disk.0.lock().clone());
        Self { disk: disk.clone(), gaps, live, located: Mutex::default(), installs: Mutex::default() }
    }

    pub fn get(&self, name: &str) -> u64 {
        self.live.lock().registers.get(name).copied().unwrap_or_default()
    }

    pub fn bulk_len(&self) -> usize {
        self.live.lock().bulk.values().map(Vec::len).sum()
    }

    /// Makes what is applied durable; up to where.
    pub fn flush(&self) -> Option<LogId> {
        let live = self.live.lock();
        *self.disk.0.lock() = live.clone();
        live.applied
    }
}

impl Machine for Registers {
    fn applied(&self) -> io::Result<(Option<LogId>, Bytes)> {
        let live = self.live.lock();
        Ok((live.applied, live.membership.clone().into()))
    }

    fn apply(&self, entries: Vec<Committed>) -> io::Result<Vec<Bytes>> {
        let mut live = self.live.lock();
        entries.into_iter().map(|entry| self.apply_one(&mut live, entry)).collect()
    }

    fn snapshot(&self) -> io::Result<Box<dyn SnapshotSource>> {
        self.flush();
        let state = self.disk.0.lock().clone();
        let bytes: Bytes = postcard::to_allocvec(&state).map_err(io::Error::other)?.into();
        Ok(Box::new(Source { log_id: state.applied, membership: state.membership.into(), rest: bytes }))
    }

    fn install(
        &self,
        log_id: Option<LogId>,
        membership: Bytes,
        chunks: &mut dyn Iterator<Item = io::Result<Bytes>>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for chunk in chunks {
            bytes.extend_from_slice(&chunk?);
        }
        let state: State = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
        assert_eq!((state.applied, &state.membership[..]), (log_id, &membership[..]));
        *self.live.lock() = state;
        self.flush();
        *self.installs.lock() += 1;
        Ok(())
    }
}

impl Registers {
    fn apply_one(&self, live: &mut State, entry: Committed) -> io::Result<Bytes> {
        let next = live.applied.map_or(entry.id.index, |id| id.index + 1);
        assert!(self.gaps || entry.id.index == next, "{:?} after {:?}", entry.id, live.applied);
        assert!(Some(entry.id) > live.applied, "{:?} after {:?}", entry.id, live.applied);
        live.applied = Some(entry.id);
        let answer = match entry.body {
            Body::Blank => 0,
            Body::Membership(m) => {
                live.membership = m.to_vec();
                0
            }
            Body::Command(command) => {
                self.located.lock().push((command.clone(), entry.at));
                match postcard::from_bytes(&command).map_err(io::Error::other)? {
                    Op::Put(name, value) => live.registers.insert(name, value).unwrap_or_default(),
                    Op::Add(name, by) => {
                        let register = live.registers.entry(name).or_default();
                        *register += by;
                        *register
                    }
                    Op::Fill(name, bytes) => {
                        live.bulk.insert(name, bytes);
                        0
                    }
                }
            }
        };
        Ok(Bytes::copy_from_slice(&answer.to_le_bytes()))
    }
}

struct Source {
    log_id: Option<LogId>,
    membership: Bytes,
    rest: Bytes,
}

impl SnapshotSource for Source {
    fn log_id(&self) -> Option<LogId> {
        self.log_id
    }

    fn membership(&self) -> Bytes {
        self.membership.clone()
    }

    fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.rest.split_to(self.rest.len().min(64 << 10))))
    }
}

pub fn number(answer: &Bytes) -> u64 {
    u64::from_le_bytes(answer[..].try_into().expect("eight bytes"))
}
