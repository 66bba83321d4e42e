//! The tree over sled 0.34 (experimental): values in it, each batch atomic with the applied record.
//!
//! sled writes to disk when it likes, so a batch is applied only once the local log is durable through it. It has
//! no old versions: a scan or snapshot keeps the *old* values of what is written while it is open (an overlay).
//! ## Invariants
//! - Overlays are filled, and chunks of rows are read, under the writer lock: a reader sees one moment.

use super::entry::{APPLIED_KEY, Counts, Entry, Place, SYSTEM_PREFIX, USER_PREFIX};
use super::entry::{decode_applied, encode_applied, system_key, user_key};
use super::ledger::{KeyChange, Ledger, check_key, fold};
use super::rows::{Bounds, system_bounds, user_bounds, user_bounds_after};
use super::shared::Shared;
use super::{Applied, Item, RecordMeta, Row, Rows, Tree, TreeBatch, TreeSnapshot, TreeStats};
use crate::error::{EngineError, Result};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use undb_types::{GroupId, KeyRange, LogId};

const ROWS_PER_CHUNK: usize = 256;
const CHANGES_PER_BATCH: usize = 1024;

/// What was there before it was written over, by index key.
type Overlay = Mutex<BTreeMap<Vec<u8>, Option<Vec<u8>>>>;

/// A tree over sled.
pub struct SledTree {
    core: Arc<Core>,
}

struct Core {
    group: GroupId,
    shared: Arc<Shared>,
    /// Switched by install.
    db: RwLock<Arc<sled::Db>>,
    writer: Mutex<Writer>,
    durable: RwLock<Option<LogId>>,
    generation: Mutex<u64>,
    gone: AtomicBool,
}

#[derive(Default)]
struct Writer {
    applied: Applied,
    counts: Counts,
    overlays: Vec<Weak<Overlay>>,
}

fn sled_error(what: &str, error: sled::Error) -> EngineError {
    match error {
        sled::Error::Io(source) => EngineError::io(format!("sled: {what}"), source),
        other => EngineError::corrupt("sled tree", format!("{what}: {other}")),
    }
}

fn open_db(shared: &Shared, group: GroupId, generation: u64) -> Result<sled::Db> {
    let config = sled::Config::default()
        .path(shared.tree_dir(group, generation))
        .cache_capacity(shared.options.sled_cache_bytes)
        .flush_every_ms(None);
    let mut tries_left = LOCK_TRIES;
    loop {
        match config.open() {
            Ok(db) => return Ok(db),
            Err(e) if tries_left > 0 && is_locked(&e) => tries_left -= 1,
            Err(e) => return Err(sled_error("open", e)),
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// sled lets go of its lock only when its last background job ends, which may be after the tree was dropped.
/// The store's own lock says that no other process is here.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(25);

fn is_locked(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(e) if e.to_string().contains("could not acquire lock"))
}

impl SledTree {
    /// Opens or creates the tree in the directory of its generation.
    pub fn open(shared: &Arc<Shared>, group: GroupId, generation: u64) -> Result<SledTree> {
        let db = open_db(shared, group, generation)?;
        let record = db.get(APPLIED_KEY).map_err(|e| sled_error("open", e))?;
        let (applied, counts) = record.map(|r| decode_applied(&r)).transpose()?.unwrap_or_default();
        let core = Core {
            group,
            shared: Arc::clone(shared),
            db: RwLock::new(Arc::new(db)),
            durable: RwLock::new(applied.log_id),
            writer: Mutex::new(Writer { applied, counts, overlays: Vec::new() }),
            generation: Mutex::new(generation),
            gone: AtomicBool::new(false),
        };
        Ok(SledTree { core: Arc::new(core) })
    }

    /// No more use of this tree; sled is closed when the last reader is gone.
    pub fn retire(&self) -> Weak<sled::Db> {
        self.core.gone.store(true, Ordering::Release);
        Arc::downgrade(&self.core.db())
    }

    /// Counts as kept and as counted.
    pub fn recount(&self) -> Result<(Counts, Counts)> {
        let (rows, kept) = {
            let mut writer = self.core.writer.lock();
            let rows = self.core.open_rows(&mut writer, user_bounds(&KeyRange::all()), false);
            (rows, writer.counts)
        };
        let mut counted = Counts::default();
        for row in rows {
            let row = row?;
            counted.keys += 1;
            counted.live_bytes += row.key.len() as u64 + u64::from(row.meta.value_len);
        }
        Ok((kept, counted))
    }
}

impl Core {
    fn db(&self) -> Arc<sled::Db> {
        Arc::clone(&self.db.read())
    }

    fn check_usable(&self) -> Result<()> {
        self.check_readable()?;
        self.shared.check_poison()
    }

    fn check_readable(&self) -> Result<()> {
        if self.gone.load(Ordering::Acquire) { Err(EngineError::Gone(self.group)) } else { Ok(()) }
    }

    /// A cursor over a range as of now. The writer lock makes "now" one moment.
    fn open_rows(self: &Arc<Self>, writer: &mut Writer, bounds: Bounds, reverse: bool) -> SledRows {
        let overlay = Arc::new(Overlay::default());
        writer.overlays.push(Arc::downgrade(&overlay));
        self.rows_over(overlay, self.db(), bounds, reverse)
    }

    fn rows_over(
        self: &Arc<Self>,
        overlay: Arc<Overlay>,
        db: Arc<sled::Db>,
        bounds: Bounds,
        reverse: bool,
    ) -> SledRows {
        let read = VecDeque::new();
        SledRows {
            core: Arc::clone(self),
            db,
            overlay,
            bounds: Some(bounds),
            reverse,
            keys_only: false,
            read,
        }
    }

    fn flush(&self) -> Result<Option<LogId>> {
        let applied = self.writer.lock().applied.log_id;
        if *self.durable.read() == applied {
            return Ok(applied);
        }
        let step = |name| self.shared.fs.step(name).map_err(|e| EngineError::io(name, e));
        let flushed = step("engine.sled.flush.begin")
            .and_then(|()| self.db().flush().map_err(|e| sled_error("flush", e)))
            .and_then(|_| step("engine.sled.flush.end"));
        flushed.map_err(|e| self.shared.poison_unless_full(e))?;
        *self.durable.write() = applied;
        Ok(applied)
    }
}

/// A lazily read range.
struct SledRows {
    core: Arc<Core>,
    db: Arc<sled::Db>,
    overlay: Arc<Overlay>,
    /// What was not read yet.
    bounds: Option<Bounds>,
    reverse: bool,
    keys_only: bool,
    read: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl SledRows {
    fn read_chunk(&mut self) -> Result<()> {
        let Some(bounds) = self.bounds.take() else { return Ok(()) };
        if super::index::is_empty(&bounds.0, &bounds.1) {
            return Ok(());
        }
        let writer = self.core.writer.lock();
        let range = self.db.range::<Vec<u8>, _>(bounds.clone());
        let pairs: sled::Result<Vec<_>> = match self.reverse {
            false => range.take(ROWS_PER_CHUNK).collect(),
            true => range.rev().take(ROWS_PER_CHUNK).collect(),
        };
        let pairs = pairs.map_err(|e| sled_error("scan", e))?;
        let last = pairs.last().filter(|_| pairs.len() == ROWS_PER_CHUNK).map(|(key, _)| key.to_vec());
        let part = match (&last, self.reverse) {
            (None, _) => bounds.clone(),
            (Some(last), false) => (bounds.0.clone(), Bound::Included(last.clone())),
            (Some(last), true) => (Bound::Included(last.clone()), bounds.1.clone()),
        };
        let mut merged: BTreeMap<Vec<u8>, Option<Vec<u8>>> =
            pairs.into_iter().map(|(key, value)| (key.to_vec(), Some(value.to_vec()))).collect();
        for (key, old) in self.overlay.lock().range(part) {
            merged.insert(key.clone(), old.clone());
        }
        drop(writer);
        let found = merged.into_iter().filter_map(|(key, value)| Some((key, value?)));
        match self.reverse {
            false => self.read.extend(found),
            true => self.read.extend(found.rev()),
        }
        self.bounds = last.map(|last| match self.reverse {
            false => (Bound::Excluded(last), bounds.1),
            true => (bounds.0, Bound::Excluded(last)),
        });
        Ok(())
    }

    fn next_pair(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        while self.read.is_empty() && self.bounds.is_some() {
            self.read_chunk()?;
        }
        Ok(self.read.pop_front())
    }
}

impl Iterator for SledRows {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = match self.next_pair() {
            Ok(pair) => pair?,
            Err(error) => return Some(Err(error)),
        };
        Some(row_of(&key, &value, self.keys_only))
    }
}

fn row_of(key: &[u8], value: &[u8], keys_only: bool) -> Result<Row> {
    let key = key.strip_prefix(&USER_PREFIX[..]).unwrap_or(key);
    let entry = Entry::decode(value)?;
    let value = match entry.place {
        _ if keys_only => None,
        Place::Inline(value) => Some(value),
        Place::At(_) => return Err(EngineError::corrupt("sled tree", "an entry with a pointer")),
    };
    Ok(Row { key: Bytes::copy_from_slice(key), meta: entry.meta, value })
}

fn lookup(db: &sled::Db, key: &[u8]) -> Result<Option<Entry>> {
    let found = db.get(user_key(key)).map_err(|e| sled_error("get", e))?;
    found.map(|bytes| Entry::decode(&bytes)).transpose()
}

/// A view at P: rows as they were, by way of the overlay.
struct SledSnapshot {
    core: Arc<Core>,
    db: Arc<sled::Db>,
    overlay: Arc<Overlay>,
    applied: Applied,
}

impl SledSnapshot {
    fn range(&self, bounds: Bounds) -> SledRows {
        self.core.rows_over(Arc::clone(&self.overlay), Arc::clone(&self.db), bounds, false)
    }
}

impl TreeSnapshot for SledSnapshot {
    fn applied(&self) -> Applied {
        self.applied.clone()
    }

    fn rows(&self, start_after: Option<&[u8]>) -> Result<Rows<'_>> {
        Ok(Box::new(self.range(user_bounds_after(start_after))))
    }

    fn system(&self, start_after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        system_pairs(self.range(system_bounds(b"", start_after)), limit)
    }
}

fn system_pairs(mut rows: SledRows, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
    let mut out = Vec::new();
    while out.len() < limit
        && let Some((key, value)) = rows.next_pair()?
    {
        let key = key.strip_prefix(&SYSTEM_PREFIX[..]).unwrap_or(&key);
        out.push((Bytes::copy_from_slice(key), value.into()));
    }
    Ok(out)
}

impl Tree for SledTree {
    fn applied(&self) -> Applied {
        self.core.writer.lock().applied.clone()
    }

    fn durable(&self) -> Option<LogId> {
        *self.core.durable.read()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Row>> {
        self.core.check_readable()?;
        let found = self.core.db().get(user_key(key)).map_err(|e| sled_error("get", e))?;
        found
            .map(|bytes| {
                row_of(key, &bytes, false).map(|row| Row { key: Bytes::copy_from_slice(key), ..row })
            })
            .transpose()
    }

    fn meta(&self, key: &[u8]) -> Result<Option<RecordMeta>> {
        self.core.check_readable()?;
        Ok(lookup(&self.core.db(), key)?.map(|entry| entry.meta))
    }

    fn scan(&self, range: &KeyRange, reverse: bool, keys_only: bool) -> Result<Rows<'_>> {
        self.core.check_readable()?;
        if range.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let mut rows = self.core.open_rows(&mut self.core.writer.lock(), user_bounds(range), reverse);
        rows.keys_only = keys_only;
        Ok(Box::new(rows))
    }

    fn system(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.core.check_readable()?;
        let found = self.core.db().get(system_key(key)).map_err(|e| sled_error("get", e))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan_system(
        &self,
        prefix: &[u8],
        start_after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        self.core.check_readable()?;
        let bounds = system_bounds(prefix, start_after);
        let rows = self.core.open_rows(&mut self.core.writer.lock(), bounds, false);
        system_pairs(rows, limit)
    }

    fn write(&self, batch: TreeBatch) -> Result<()> {
        let core = &self.core;
        core.check_usable()?;
        core.shared.log.wait_durable(core.group, batch.applied.log_id)?;
        let mut writer = core.writer.lock();
        let db = core.db();
        let changes = fold(batch.ops, u32::MAX, |key| lookup(&db, key))?;
        let mut ledger = Ledger { counts: writer.counts, ..Default::default() };
        let mut pairs: Vec<(Vec<u8>, Option<Vec<u8>>)> =
            Vec::with_capacity(changes.len() + batch.system.len());
        for change in &changes {
            ledger.record(change)?;
            pairs.push((user_key(&change.key), change.new.as_ref().map(Entry::encode)));
        }
        for (key, value) in batch.system {
            check_key(&key)?;
            pairs.push((system_key(&key), value.map(|value| value.to_vec())));
        }
        writer.keep_old(&db, &pairs)?;
        pairs.push((APPLIED_KEY.to_vec(), Some(encode_applied(&batch.applied, ledger.counts))));
        let applied = db.apply_batch(sled_batch(pairs)).map_err(|e| sled_error("write", e));
        applied.map_err(|e| core.shared.poison_unless_full(e))?;
        writer.counts = ledger.counts;
        writer.applied = batch.applied;
        Ok(())
    }

    fn flush(&self) -> Result<Option<LogId>> {
        self.core.check_usable()?;
        self.core.flush()
    }

    fn snapshot(&self) -> Result<Arc<dyn TreeSnapshot>> {
        self.core.check_usable()?;
        let (overlay, db, applied) = {
            let mut writer = self.core.writer.lock();
            let overlay = Arc::new(Overlay::default());
            writer.overlays.push(Arc::downgrade(&overlay));
            (overlay, self.core.db(), writer.applied.clone())
        };
        self.core.flush()?;
        Ok(Arc::new(SledSnapshot { core: Arc::clone(&self.core), db, overlay, applied }))
    }

    fn install(&self, applied: Applied, items: &mut dyn Iterator<Item = Result<Item>>) -> Result<()> {
        let core = &self.core;
        core.check_usable()?;
        let generation = core.shared.next_generation();
        let dir = core.shared.tree_dir(core.group, generation);
        super::create_tree_dir(&*core.shared.fs, &dir)?;
        let db = open_db(&core.shared, core.group, generation)?;
        let built = fill(&db, &applied, items);
        let db = Arc::new(db);
        let switched = built.and_then(|counts| {
            core.shared.commit_data(&[], |manifest| {
                if let Some(record) = manifest.trees.get_mut(&core.group) {
                    record.generation = generation;
                }
            })?;
            Ok(counts)
        });
        let counts = match switched {
            Ok(counts) => counts,
            Err(error) => {
                core.shared.doom(dir, Arc::downgrade(&db) as _);
                return Err(error);
            }
        };
        let mut writer = core.writer.lock();
        *core.durable.write() = applied.log_id;
        writer.applied = applied;
        writer.counts = counts;
        let old = std::mem::replace(&mut *core.db.write(), db);
        let old_generation = std::mem::replace(&mut *core.generation.lock(), generation);
        core.shared.doom(core.shared.tree_dir(core.group, old_generation), Arc::downgrade(&old) as _);
        Ok(())
    }

    fn stats(&self) -> TreeStats {
        let counts = self.core.writer.lock().counts;
        let index_bytes = self.core.db().size_on_disk().unwrap_or(0);
        TreeStats { keys: counts.keys, live_bytes: counts.live_bytes, index_bytes, ..Default::default() }
    }

    fn maintain(&self) -> Result<bool> {
        self.flush().map(|_| false)
    }
}

impl Writer {
    /// Before a batch: gives every open view the old values that it does not have yet.
    fn keep_old(&mut self, db: &sled::Db, pairs: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<()> {
        self.overlays.retain(|overlay| overlay.strong_count() > 0);
        if self.overlays.is_empty() {
            return Ok(());
        }
        for (key, _) in pairs {
            let old = db.get(key).map_err(|e| sled_error("get", e))?.map(|value| value.to_vec());
            for overlay in self.overlays.iter().filter_map(Weak::upgrade) {
                overlay.lock().entry(key.clone()).or_insert_with(|| old.clone());
            }
        }
        Ok(())
    }
}

fn sled_batch(pairs: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> sled::Batch {
    let mut batch = sled::Batch::default();
    for (key, value) in pairs {
        match value {
            Some(value) => batch.insert(key, value),
            None => batch.remove(key),
        }
    }
    batch
}

/// Fills a new generation.
fn fill(db: &sled::Db, applied: &Applied, items: &mut dyn Iterator<Item = Result<Item>>) -> Result<Counts> {
    let mut ledger = Ledger::default();
    let mut pairs = Vec::new();
    for item in items {
        pairs.push(match item? {
            Item::System(key, value) => (system_key(&key), Some(value.to_vec())),
            Item::Row(row) => {
                check_key(&row.key)?;
                let value =
                    row.value.ok_or_else(|| EngineError::corrupt("snapshot", "row without a value"))?;
                let value_len = value.len() as u32;
                let entry = Entry { meta: RecordMeta { value_len, ..row.meta }, place: Place::Inline(value) };
                let change = KeyChange { key: row.key, old: None, new: Some(entry) };
                ledger.record(&change)?;
                (user_key(&change.key), change.new.as_ref().map(Entry::encode))
            }
        });
        if pairs.len() >= CHANGES_PER_BATCH {
            db.apply_batch(sled_batch(std::mem::take(&mut pairs))).map_err(|e| sled_error("install", e))?;
        }
    }
    pairs.push((APPLIED_KEY.to_vec(), Some(encode_applied(applied, ledger.counts))));
    db.apply_batch(sled_batch(pairs)).map_err(|e| sled_error("install", e))?;
    db.flush().map_err(|e| sled_error("install", e))?;
    Ok(ledger.counts)
}
