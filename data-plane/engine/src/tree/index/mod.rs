//! The one module that knows the `lsm-tree` crate: an ordered map without a log of its own.
//!
//! What we rely on, as read in its source (3.1): tables, the version file and their directories are synced before
//! `current` names them; `flush` takes all sealed memtables in one new version; each version carries a number of
//! the same counter as the writes, and a reader at number v uses the newest version below v, so old versions (and
//! their memtables) stay while a reader below may come; keys are at most 65,535 bytes.
//!
//! ## Invariants
//! - Readers never see half of a batch: a batch is inserted under the write lock of `gate`, readers take their
//!   view under its read lock.
//! - `evict_below` is never above a view that is open.

use crate::error::{EngineError, Result};
use lsm_tree::{AbstractTree, AnyTree, Cache, Config, DescriptorTable, Guard, SeqNo, SequenceNumberCounter};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A key and its value, out of the index.
pub type Pair = (lsm_tree::Slice, lsm_tree::Slice);

/// A change of the index: none removes.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// What all indexes of a store share.
#[derive(Clone)]
pub struct IndexShared {
    blocks: Arc<Cache>,
    files: Arc<DescriptorTable>,
    /// Bytes of all table files that flushes and compactions wrote.
    written_bytes: Arc<AtomicU64>,
}

impl IndexShared {
    /// A block cache of so many bytes, and at most so many open files.
    pub fn new(block_cache_bytes: u64, files_max: usize) -> Self {
        Self {
            blocks: Arc::new(Cache::with_capacity_bytes(block_cache_bytes)),
            files: Arc::new(DescriptorTable::new(files_max)),
            written_bytes: Arc::default(),
        }
    }

    /// Bytes of table files written since the process started. The crate writes around our files, so
    /// they are counted by looking at the tables that each flush and compaction left; its small version
    /// files are not in it.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }
}

/// The index of one tree.
pub struct Index {
    lsm: AnyTree,
    /// The next sequence number; lsm-tree draws from it for its versions.
    numbers: SequenceNumberCounter,
    /// Readers see what is below.
    visible: AtomicU64,
    /// Read: taking a view. Write: inserting a batch.
    gate: RwLock<()>,
    /// Open views by number; rank: innermost.
    views: Mutex<BTreeMap<SeqNo, usize>>,
    /// Bytes in the active memtable.
    active_bytes: AtomicU64,
    /// Tables whose bytes are counted as written; rank: leaf.
    counted: Mutex<HashSet<u64>>,
    written_bytes: Arc<AtomicU64>,
}

fn index_error(what: &str, error: lsm_tree::Error) -> EngineError {
    match error {
        lsm_tree::Error::Io(source) => EngineError::io(format!("index: {what}"), source),
        other => EngineError::corrupt("index", format!("{what}: {other:?}")),
    }
}

impl Index {
    /// Opens or creates the index in `dir`.
    pub fn open(dir: &Path, shared: &IndexShared) -> Result<Index> {
        let numbers = SequenceNumberCounter::new(1);
        let lsm = Config::new(dir, numbers.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::clone(&shared.blocks))
            .use_descriptor_table(Some(Arc::clone(&shared.files)))
            .open()
            .map_err(|e| index_error("open", e))?;
        let next = lsm.get_highest_persisted_seqno().map_or(1, |n| n + 1);
        numbers.fetch_max(next);
        let counted = lsm.current_version().iter_tables().map(|table| table.id()).collect();
        Ok(Index {
            counted: Mutex::new(counted),
            written_bytes: Arc::clone(&shared.written_bytes),
            lsm,
            visible: AtomicU64::new(numbers.get()),
            numbers,
            gate: RwLock::new(()),
            views: Mutex::default(),
            active_bytes: AtomicU64::new(0),
        })
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<lsm_tree::Slice>> {
        let _gate = self.gate.read();
        self.lsm.get(key, SeqNo::MAX).map_err(|e| index_error("get", e))
    }

    /// The pairs of a range as of now.
    pub fn range(&self, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>) -> Range {
        let _gate = self.gate.read();
        self.range_at(low, high, self.visible.load(Ordering::Acquire))
    }

    fn range_at(&self, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>, at: SeqNo) -> Range {
        // The crate underneath panics on a range whose ends are crossed.
        if is_empty(&low, &high) {
            return Range(Box::new(std::iter::empty()));
        }
        Range(Box::new(
            self.lsm
                .range::<Vec<u8>, _>((low, high), at, None)
                .map(|guard| guard.into_inner().map_err(|e| index_error("scan", e))),
        ))
    }

    /// Inserts a batch that readers see as a whole. One caller at a time.
    pub fn write(&self, changes: Vec<Change>) {
        let _gate = self.gate.write();
        let number = self.numbers.next();
        let mut bytes = 0;
        for (key, value) in changes {
            let (_, memtable_bytes) = match value {
                Some(value) => self.lsm.insert(key, value, number),
                None => self.lsm.remove(key, number),
            };
            bytes = memtable_bytes;
        }
        if bytes > 0 {
            self.active_bytes.store(bytes, Ordering::Relaxed);
        }
        self.visible.store(number + 1, Ordering::Release);
    }

    /// Bytes in the active memtable.
    pub fn active_bytes(&self) -> u64 {
        self.active_bytes.load(Ordering::Relaxed)
    }

    /// Freezes the active memtable; a later flush makes it durable. Not during a write.
    pub fn rotate(&self) -> bool {
        let _gate = self.gate.write();
        self.active_bytes.store(0, Ordering::Relaxed);
        self.lsm.rotate_memtable().is_some()
    }

    /// Makes all frozen memtables durable in one step.
    pub fn flush_sealed(&self) -> Result<()> {
        let lock = self.lsm.get_flush_lock();
        self.lsm.flush(&lock, self.evict_below()).map_err(|e| index_error("flush", e))?;
        self.count_written();
        Ok(())
    }

    /// Adds the tables that are new since the last look.
    fn count_written(&self) {
        // Under the lock, or an older version could undo what a newer one counted.
        let mut counted = self.counted.lock();
        let version = self.lsm.current_version();
        let mut now = HashSet::with_capacity(counted.len());
        let mut new_bytes = 0;
        for table in version.iter_tables() {
            now.insert(table.id());
            new_bytes += if counted.contains(&table.id()) { 0 } else { table.metadata.file_size };
        }
        *counted = now;
        self.written_bytes.fetch_add(new_bytes, Ordering::Relaxed);
    }

    /// One leveled compaction, if the shape asks for one. True when files changed.
    pub fn compact(&self) -> Result<bool> {
        let before = self.lsm.current_version().id();
        let strategy = Arc::new(lsm_tree::compaction::Leveled::default());
        self.lsm.compact(strategy, self.evict_below()).map_err(|e| index_error("compact", e))?;
        self.count_written();
        Ok(self.lsm.current_version().id() != before)
    }

    /// Rewrites the whole index, dropping what is overwritten or deleted.
    #[cfg(test)]
    pub fn compact_fully(&self) -> Result<()> {
        const TABLE_BYTES: u64 = 64 << 20;
        self.lsm.major_compact(TABLE_BYTES, self.evict_below()).map_err(|e| index_error("compact", e))
    }

    /// Bytes of the index's files.
    pub fn disk_bytes(&self) -> u64 {
        self.lsm.disk_space()
    }

    /// What no view needs: versions of a key that are hidden below this number.
    fn evict_below(&self) -> SeqNo {
        // IMPORTANT: read `visible` before the views. A view that opens in between is at or above it.
        let visible = self.visible.load(Ordering::Acquire);
        let views = self.views.lock();
        views.first_key_value().map_or(visible, |(oldest, _)| visible.min(*oldest))
    }

    /// A view as of now.
    pub fn view(self: &Arc<Self>) -> View {
        let _gate = self.gate.read();
        let number = self.visible.load(Ordering::Acquire);
        *self.views.lock().entry(number).or_default() += 1;
        View { index: Arc::clone(self), number }
    }
}

/// True when no key can lie between the bounds.
pub fn is_empty(low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> bool {
    match (low, high) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
            low >= high
        }
    }
}

/// Pairs in key order; reads from both ends.
pub struct Range(Box<dyn DoubleEndedIterator<Item = Result<Pair>> + Send>);

impl Iterator for Range {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}

/// The index as of one moment, until dropped.
pub struct View {
    index: Arc<Index>,
    number: SeqNo,
}

impl View {
    /// The pairs of a range as of the view.
    pub fn range(&self, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>) -> Range {
        self.index.range_at(low, high, self.number)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let mut views = self.index.views.lock();
        if let Some(count) = views.get_mut(&self.number) {
            *count -= 1;
            if *count == 0 {
                views.remove(&self.number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> Arc<Index> {
        Arc::new(Index::open(dir, &IndexShared::new(1 << 20, 64)).expect("open"))
    }

    fn put(index: &Index, key: &str, value: &str) {
        index.write(vec![(key.into(), Some(value.into()))]);
    }

    fn flush(index: &Index) {
        index.rotate();
        index.flush_sealed().expect("flush");
    }

    fn all(range: Range) -> Vec<(Vec<u8>, Vec<u8>)> {
        range.map(|p| p.expect("pair")).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
    }

    #[test]
    fn what_was_flushed_survives_and_what_was_not_is_lost() {
        let dir = tempfile::tempdir().expect("dir");
        let index = open(dir.path());
        put(&index, "a", "1");
        flush(&index);
        put(&index, "b", "2");
        drop(index);
        let index = open(dir.path());
        assert_eq!(index.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
        assert_eq!(index.get(b"b").expect("get"), None);
    }

    #[test]
    fn every_table_that_is_written_is_counted_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let shared = IndexShared::new(1 << 20, 16);
        let index = Index::open(dir.path(), &shared).expect("opens");
        put(&index, "a", "1");
        flush(&index);
        let first = shared.written_bytes();
        assert_eq!(first, index.disk_bytes());
        put(&index, "b", "2");
        flush(&index);
        assert_eq!(shared.written_bytes(), index.disk_bytes());
        drop(index);
        let shared = IndexShared::new(1 << 20, 16);
        let _reopened = Index::open(dir.path(), &shared).expect("opens");
        assert_eq!(shared.written_bytes(), 0, "what was there before is not written again");
    }

    #[test]
    fn a_view_keeps_what_it_saw_through_flushes_and_compactions() {
        let dir = tempfile::tempdir().expect("dir");
        let index = open(dir.path());
        put(&index, "a", "old");
        flush(&index);
        let view = index.view();
        for round in 0..12 {
            put(&index, "a", &format!("new{round}"));
            flush(&index);
            index.compact().expect("compact");
        }
        index.compact_fully().expect("compact");
        assert_eq!(
            all(view.range(Bound::Unbounded, Bound::Unbounded)),
            vec![(b"a".to_vec(), b"old".to_vec())]
        );
        assert_eq!(index.get(b"a").expect("get").as_deref(), Some(&b"new11"[..]));
    }

    #[test]
    fn gets_and_scans_agree_with_a_model_over_many_overlapping_tables() {
        use rand::{Rng, SeedableRng};
        let mut rng = rand::rngs::StdRng::seed_from_u64(316);
        let dir = tempfile::tempdir().expect("dir");
        let index = open(dir.path());
        let mut model = BTreeMap::new();
        for step in 0..3_000u32 {
            let key = format!("{:03}", rng.random_range(0..200)).into_bytes();
            if rng.random_bool(0.3) {
                model.remove(&key);
                index.write(vec![(key, None)]);
            } else {
                model.insert(key.clone(), step.to_le_bytes().to_vec());
                index.write(vec![(key, Some(step.to_le_bytes().to_vec()))]);
            }
            if rng.random_bool(0.02) {
                flush(&index);
            }
            if rng.random_bool(0.01) {
                index.compact().expect("compact");
            }
        }
        let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(all(index.range(Bound::Unbounded, Bound::Unbounded)), expected);
        for n in 0..200 {
            let key = format!("{n:03}").into_bytes();
            assert_eq!(index.get(&key).expect("get").map(|v| v.to_vec()), model.get(&key).cloned(), "{n}");
        }
    }
}
