//! The tree over an LSM index: `separated` keeps pointers to values in it, `lsm` the values themselves.
//!
//! ```text
//! write ──▶ ledger + active memtable ──rotate (P, live bytes written just before)──▶ sealed memtable
//!                                        ──flush (waits until the log is durable through P)──▶ tables
//! gc ─────▶ swap: compare-and-set of pointers, through the same ledger and memtable
//! ```
//! ## Invariants
//! - Lock order: `flushing`, then `writer`; `write` only *tries* `flushing` while it holds `writer`.
//! - A memtable is sealed only by a holder of both, so between waiting for the log and flushing nothing newer is
//!   sealed.
//! - `durable` changes only after the flush of what it names returned.

use super::entry::{APPLIED_KEY, Entry, LIVE_PREFIX, Pointer, decode_applied, encode_applied, live_key};
use super::entry::{parse_live_key, system_key, user_key};
use super::index::{Change, Index};
use super::ledger::{KeyChange, Ledger, check_key, fold};
use super::rows::{IndexSnapshot, RowIter, RowOrder, system_bounds, system_rows, user_bounds};
use super::shared::Shared;
use super::{
    Applied, EngineKind, Item, RecordMeta, Row, Rows, SegmentRef, Tree, TreeBatch, TreeSnapshot, TreeStats,
};
use crate::error::{EngineError, Result};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use undb_types::{GroupId, KeyRange, LogId};

/// A tree over an LSM index.
pub struct IndexTree {
    pub(super) group: GroupId,
    kind: EngineKind,
    threshold: AtomicU32,
    pub(super) shared: Arc<Shared>,
    /// Switched by install.
    pub(super) index: RwLock<Arc<Index>>,
    /// What is sealed and not yet flushed.
    pub(super) flushing: Mutex<Option<Rotated>>,
    pub(super) writer: Mutex<Writer>,
    /// A copy of the writer's, so that readers never wait for a write.
    pub(super) applied: RwLock<Applied>,
    pub(super) durable: RwLock<Rotated>,
    /// Names the directory; changed by install only.
    pub(super) generation: Mutex<u64>,
    gone: AtomicBool,
}

/// The state that applies and swaps change.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) applied: Applied,
    pub(super) ledger: Ledger,
    /// Something changed since the last rotation.
    pub(super) dirty: bool,
}

/// What a sealed memtable reflects.
#[derive(Clone, Debug, Default)]
pub(super) struct Rotated {
    pub(super) log_id: Option<LogId>,
    pub(super) live: BTreeMap<SegmentRef, u64>,
}

/// A value that was copied: its pointer is to be swapped.
#[derive(Clone, Debug)]
pub struct Move {
    /// Whose value.
    pub key: Bytes,
    /// Version at the time of copying.
    pub version: u64,
    /// Where it was.
    pub old: Pointer,
    /// Where its copy is.
    pub new: Pointer,
}

impl IndexTree {
    /// Opens or creates the tree in the directory of its generation.
    pub fn open(
        shared: &Arc<Shared>,
        group: GroupId,
        kind: EngineKind,
        threshold: u32,
        generation: u64,
    ) -> Result<IndexTree> {
        let index = Index::open(&shared.tree_dir(group, generation), &shared.index)?;
        let (applied, ledger) = recover(&index)?;
        let durable = Rotated { log_id: applied.log_id, live: ledger.live.clone() };
        Ok(IndexTree {
            group,
            kind,
            threshold: AtomicU32::new(threshold),
            shared: Arc::clone(shared),
            index: RwLock::new(Arc::new(index)),
            flushing: Mutex::default(),
            writer: Mutex::new(Writer { applied: applied.clone(), ledger, dirty: false }),
            applied: RwLock::new(applied),
            durable: RwLock::new(durable),
            generation: Mutex::new(generation),
            gone: AtomicBool::new(false),
        })
    }

    /// Values of puts to come are kept apart from so many bytes on.
    pub fn set_threshold(&self, threshold: u32) {
        self.threshold.store(threshold, Ordering::Relaxed);
    }

    pub(super) fn threshold(&self) -> u32 {
        match self.kind {
            EngineKind::Separated => self.threshold.load(Ordering::Relaxed),
            EngineKind::Lsm | EngineKind::Sled => u32::MAX,
        }
    }

    pub(super) fn index(&self) -> Arc<Index> {
        Arc::clone(&self.index.read())
    }

    pub(super) fn check_usable(&self) -> Result<()> {
        if self.gone.load(Ordering::Acquire) {
            return Err(EngineError::Gone(self.group));
        }
        self.shared.check_poison()
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        lookup(&self.index(), key)
    }

    fn poison(&self, error: EngineError) -> EngineError {
        self.shared.poison_unless_full(error)
    }

    /// Writes what the memtable reflects into it and seals it.
    fn rotate(&self, writer: &mut Writer, flushing: &mut Option<Rotated>) {
        if !writer.dirty {
            return;
        }
        let index = self.index();
        index.write(state_records(writer));
        index.rotate();
        writer.dirty = false;
        *flushing = Some(Rotated { log_id: writer.applied.log_id, live: writer.ledger.live.clone() });
    }

    /// Makes what is sealed durable.
    fn flush_sealed(&self, flushing: &mut Option<Rotated>) -> Result<()> {
        let Some(rotated) = flushing.as_ref() else { return Ok(()) };
        // IMPORTANT: a commit needs a quorum, not us. An index ahead of our own log would, after a crash, have
        // applied entries whose bytes its pointers cannot find.
        self.shared.log.wait_durable(self.group, rotated.log_id)?;
        let flushed = self.step("engine.flush.begin").and_then(|()| self.index().flush_sealed());
        flushed.and_then(|()| self.step("engine.flush.end")).map_err(|e| self.poison(e))?;
        if let Some(rotated) = flushing.take() {
            *self.durable.write() = rotated;
        }
        Ok(())
    }

    fn step(&self, name: &'static str) -> Result<()> {
        self.shared.fs.step(name).map_err(|e| EngineError::io(name, e))
    }

    pub(super) fn flush_locked(&self, flushing: &mut Option<Rotated>) -> Result<()> {
        self.rotate(&mut self.writer.lock(), flushing);
        self.flush_sealed(flushing)
    }

    fn apply(&self, writer: &mut Writer, changes: &[KeyChange], mut records: Vec<Change>) -> Result<()> {
        for change in changes {
            writer.ledger.record(change).map_err(|e| self.poison(e))?;
        }
        records.extend(changes.iter().map(|c| (user_key(&c.key), c.new.as_ref().map(Entry::encode))));
        self.index().write(records);
        writer.dirty = true;
        Ok(())
    }

    /// Swaps pointers to copied values, each only where the old one is still current. Returns how many were.
    ///
    /// This never brings a key back: a key that was deleted or overwritten since has another entry or none.
    pub fn swap(&self, moves: &[Move]) -> Result<usize> {
        const SWAPS_PER_LOCK: usize = 256;
        let mut swapped = 0;
        for chunk in moves.chunks(SWAPS_PER_LOCK) {
            self.check_usable()?;
            let mut writer = self.writer.lock();
            let mut changes = Vec::with_capacity(chunk.len());
            for step in chunk {
                let Some(old) = self.entry(&step.key)? else { continue };
                if old.pointer() == Some(step.old) && old.meta.version == step.version {
                    let new = Entry { meta: old.meta, place: super::entry::Place::At(step.new) };
                    changes.push(KeyChange { key: step.key.clone(), old: Some(old), new: Some(new) });
                }
            }
            swapped += changes.len();
            self.apply(&mut writer, &changes, Vec::new())?;
        }
        Ok(swapped)
    }

    /// Live bytes by segment: now, and as of the durable P.
    pub fn live(&self) -> (BTreeMap<SegmentRef, u64>, BTreeMap<SegmentRef, u64>) {
        (self.writer.lock().ledger.live.clone(), self.durable.read().live.clone())
    }

    /// The entries whose values lie in one of these segments, in key order.
    pub fn survivors(&self, of: impl Fn(SegmentRef) -> bool) -> Result<Vec<(Bytes, Entry)>> {
        let (low, high) = user_bounds(&KeyRange::all());
        let mut found = Vec::new();
        for pair in self.index().range(low, high) {
            let (key, value) = pair?;
            let entry = Entry::decode(&value)?;
            if entry.pointer().is_some_and(|pointer| of(pointer.segment)) {
                found.push((Bytes::copy_from_slice(super::rows::user_part(&key)?), entry));
            }
        }
        Ok(found)
    }

    /// What the counts say, and what the index says: equal, or something is broken.
    pub fn recount(&self, mut visit: impl FnMut(&Bytes, &Entry)) -> Result<(Ledger, Ledger)> {
        let (kept, pairs, _hold) = {
            let writer = self.writer.lock();
            let index = self.index();
            let (low, high) = user_bounds(&KeyRange::all());
            (writer.ledger.clone(), index.range(low, high), index)
        };
        let mut counted = Ledger::default();
        for pair in pairs {
            let (key, value) = pair?;
            let key = Bytes::copy_from_slice(super::rows::user_part(&key)?);
            let entry = Entry::decode(&value)?;
            visit(&key, &entry);
            counted.record(&KeyChange { key, old: None, new: Some(entry) })?;
        }
        Ok((kept, counted))
    }

    /// No more use of this tree; its index is closed when the last reader is gone.
    pub fn retire(&self) -> std::sync::Weak<Index> {
        self.gone.store(true, Ordering::Release);
        Arc::downgrade(&self.index())
    }

    /// Bytes in the active memtable.
    pub fn memtable_bytes(&self) -> u64 {
        self.index().active_bytes()
    }

    fn scan_rows(&self, range: &KeyRange, order: RowOrder) -> Result<RowIter> {
        self.check_readable()?;
        let pin = self.shared.pins.pin();
        let index = self.index();
        let (low, high) = user_bounds(range);
        let pairs = index.range(low, high);
        Ok(RowIter { pairs, order, shared: Arc::clone(&self.shared), _holds: (Some(pin), index) })
    }

    fn check_readable(&self) -> Result<()> {
        if self.gone.load(Ordering::Acquire) { Err(EngineError::Gone(self.group)) } else { Ok(()) }
    }
}

fn lookup(index: &Index, key: &[u8]) -> Result<Option<Entry>> {
    index.get(&user_key(key))?.map(|bytes| Entry::decode(&bytes)).transpose()
}

/// The records that say what a memtable reflects.
pub(super) fn state_records(writer: &mut Writer) -> Vec<Change> {
    let touched = std::mem::take(&mut writer.ledger.touched);
    let live =
        |segment: SegmentRef| writer.ledger.live.get(&segment).map(|bytes| bytes.to_le_bytes().to_vec());
    let mut records: Vec<Change> = touched.into_iter().map(|s| (live_key(s), live(s))).collect();
    records.push((APPLIED_KEY.to_vec(), Some(encode_applied(&writer.applied, writer.ledger.counts))));
    records
}

fn recover(index: &Index) -> Result<(Applied, Ledger)> {
    let Some(bytes) = index.get(&APPLIED_KEY)? else { return Ok(Default::default()) };
    let (applied, counts) = decode_applied(&bytes)?;
    let mut ledger = Ledger { counts, ..Default::default() };
    let high = undb_types::prefix_end(&LIVE_PREFIX).to_vec();
    for pair in index.range(Bound::Included(LIVE_PREFIX.to_vec()), Bound::Excluded(high)) {
        let (key, value) = pair?;
        let bytes =
            (*value).try_into().map_err(|_| EngineError::corrupt("index", "live bytes of a wrong length"))?;
        ledger.live.insert(parse_live_key(&key)?, u64::from_le_bytes(bytes));
    }
    Ok((applied, ledger))
}

impl Tree for IndexTree {
    fn applied(&self) -> Applied {
        self.applied.read().clone()
    }

    fn durable(&self) -> Option<LogId> {
        self.durable.read().log_id
    }

    fn get(&self, key: &[u8]) -> Result<Option<Row>> {
        self.check_readable()?;
        let mut failed_at = None;
        loop {
            let Some(entry) = self.entry(key)? else { return Ok(None) };
            match self.shared.values.read(key, &entry) {
                Ok(value) => {
                    return Ok(Some(Row {
                        key: Bytes::copy_from_slice(key),
                        meta: entry.meta,
                        value: Some(value),
                    }));
                }
                // Between the look-up and the read, the value may have been moved and its old file deleted.
                Err(error) if failed_at == entry.pointer() => return Err(error),
                Err(_) => failed_at = entry.pointer(),
            }
        }
    }

    fn meta(&self, key: &[u8]) -> Result<Option<RecordMeta>> {
        self.check_readable()?;
        Ok(self.entry(key)?.map(|entry| entry.meta))
    }

    fn scan(&self, range: &KeyRange, reverse: bool, keys_only: bool) -> Result<Rows<'_>> {
        Ok(Box::new(self.scan_rows(range, RowOrder { reverse, keys_only })?))
    }

    fn system(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.check_readable()?;
        Ok(self.index().get(&system_key(key))?.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan_system(
        &self,
        prefix: &[u8],
        start_after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        self.check_readable()?;
        let (low, high) = system_bounds(prefix, start_after);
        system_rows(self.index().range(low, high), limit)
    }

    fn write(&self, batch: TreeBatch) -> Result<()> {
        self.check_usable()?;
        let memtable_bytes = self.shared.options.memtable_bytes;
        if self.memtable_bytes() > 2 * memtable_bytes {
            // Background flushes do not keep up: the writer pays, so that memory stays bounded.
            self.flush()?;
        }
        let mut writer = self.writer.lock();
        let index = self.index();
        let changes = fold(batch.ops, self.threshold(), |key| lookup(&index, key))?;
        let mut records = Vec::with_capacity(changes.len() + batch.system.len());
        for (key, value) in batch.system {
            check_key(&key)?;
            records.push((system_key(&key), value.map(|value| value.to_vec())));
        }
        self.apply(&mut writer, &changes, records)?;
        writer.applied = batch.applied.clone();
        *self.applied.write() = batch.applied;
        if index.active_bytes() >= memtable_bytes
            && let Some(mut flushing) = self.flushing.try_lock()
            && flushing.is_none()
        {
            self.rotate(&mut writer, &mut flushing);
        }
        Ok(())
    }

    fn flush(&self) -> Result<Option<LogId>> {
        self.check_usable()?;
        self.flush_locked(&mut self.flushing.lock())?;
        Ok(self.durable())
    }

    fn snapshot(&self) -> Result<Arc<dyn TreeSnapshot>> {
        self.check_usable()?;
        let mut flushing = self.flushing.lock();
        let snapshot = {
            let mut writer = self.writer.lock();
            self.rotate(&mut writer, &mut flushing);
            let pin = self.shared.pins.pin();
            let index = self.index();
            let view = index.view();
            let applied = writer.applied.clone();
            IndexSnapshot { applied, view, index, shared: Arc::clone(&self.shared), _pin: pin }
        };
        self.flush_sealed(&mut flushing)?;
        Ok(Arc::new(snapshot))
    }

    fn install(&self, applied: Applied, items: &mut dyn Iterator<Item = Result<Item>>) -> Result<()> {
        super::install::install(self, applied, items)
    }

    fn stats(&self) -> TreeStats {
        let index = self.index();
        let writer = self.writer.lock();
        TreeStats {
            keys: writer.ledger.counts.keys,
            live_bytes: writer.ledger.counts.live_bytes,
            live_by_segment: writer.ledger.live.clone(),
            memtable_bytes: index.active_bytes(),
            index_bytes: index.disk_bytes(),
        }
    }

    fn maintain(&self) -> Result<bool> {
        self.check_usable()?;
        {
            let mut flushing = self.flushing.lock();
            if self.memtable_bytes() >= self.shared.options.memtable_bytes {
                self.flush_locked(&mut flushing)?;
            } else {
                self.flush_sealed(&mut flushing)?;
            }
        }
        let compacted = self.step("engine.compact.begin").and_then(|()| self.index().compact());
        let compacted = compacted.map_err(|e| self.poison(e))?;
        self.step("engine.compact.end")?;
        Ok(compacted)
    }
}
