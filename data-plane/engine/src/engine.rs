//! One engine per store: its directory, its trees, and what they share.
//!
//! ```text
//! engine/ MANIFEST           which trees and data files there are
//!         trees/<shard>-<replica>-<generation>/   a tree's index
//!         data/<id>.data     values moved out of the log, or received in a snapshot
//!         trash/             directories being deleted
//! ```
//! Opening deletes what the manifest does not name. It opens every tree that it names, because a log segment may
//! go only when *every* tree has been asked. A damaged tree is set aside: the others serve, it is refused, and until
//! it is dropped no file of values is deleted or moved, because nobody can say what it points to.

use crate::error::{EngineError, Result};
use crate::gc::GcState;
use crate::gc::data_file::{data_path, parse_data_name};
use crate::manifest::{Manifest, TreeRecord};
pub use crate::options::EngineOptions;
use crate::store_log::StoreLog;
use crate::tree::separated::IndexTree;
use crate::tree::shared::{DATA_DIR, MANIFEST_FILE, Shared, TRASH_DIR, TREES_DIR, trash, tree_name};
use crate::tree::sled_tree::SledTree;
use crate::tree::{EngineKind, SegmentRef, Tree, create_tree_dir};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use undb_log::Log;
use undb_types::GroupId;
use undb_vfs::{Fs, read_file, write_file_atomic};

/// The engine of one store.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    /// Lock rank: never held while a tree is used.
    trees: RwLock<BTreeMap<GroupId, Handle>>,
    /// Trees that the manifest names and that could not be read at open, and why. Leaf lock.
    damaged: Mutex<BTreeMap<GroupId, Damage>>,
    /// Serialises opening and dropping of trees; taken before everything else.
    admin: Mutex<()>,
    /// Serialises garbage collection; taken before any tree's locks.
    pub(crate) gc: Mutex<GcState>,
}

/// What is wrong with a tree.
#[derive(Clone, Debug)]
struct Damage {
    what: String,
    detail: String,
}

/// A tree of either make.
#[derive(Clone)]
pub(crate) enum Handle {
    /// `separated` and `lsm`.
    Index(Arc<IndexTree>, EngineKind),
    /// `sled`.
    Sled(Arc<SledTree>),
}

impl Handle {
    fn open(shared: &Arc<Shared>, group: GroupId, record: TreeRecord) -> Result<Handle> {
        let TreeRecord { kind, threshold, generation } = record;
        Ok(match kind {
            EngineKind::Separated | EngineKind::Lsm => {
                Handle::Index(Arc::new(IndexTree::open(shared, group, kind, threshold, generation)?), kind)
            }
            EngineKind::Sled => Handle::Sled(Arc::new(SledTree::open(shared, group, generation)?)),
        })
    }

    fn kind(&self) -> EngineKind {
        match self {
            Handle::Index(_, kind) => *kind,
            Handle::Sled(_) => EngineKind::Sled,
        }
    }

    pub(crate) fn tree(&self) -> Arc<dyn Tree> {
        match self {
            Handle::Index(tree, _) => Arc::clone(tree) as _,
            Handle::Sled(tree) => Arc::clone(tree) as _,
        }
    }

    pub(crate) fn index(&self) -> Option<&Arc<IndexTree>> {
        match self {
            Handle::Index(tree, _) => Some(tree),
            Handle::Sled(_) => None,
        }
    }
}

/// Totals of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// Trees.
    pub trees: u64,
    /// Keys in all trees.
    pub keys: u64,
    /// Bytes of keys and values.
    pub live_bytes: u64,
    /// Bytes of changes in memory.
    pub memtable_bytes: u64,
    /// Bytes of index files.
    pub index_bytes: u64,
    /// Bytes of index files written since the process started; sled's are not counted.
    pub index_written_bytes: u64,
    /// Data files.
    pub data_files: u64,
    /// Bytes of data files.
    pub data_bytes: u64,
    /// Bytes of sealed log segments.
    pub log_sealed_bytes: u64,
    /// Live record bytes in data files and log segments.
    pub value_live_bytes: u64,
    /// Bytes of value files (sealed log segments, data files) per live byte in them.
    pub space_amplification: f64,
    /// Scans and snapshots that are open.
    pub pins: u64,
}

impl Engine {
    /// Opens or creates the engine in `dir`, with every tree in it.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path, log: Log, options: EngineOptions) -> Result<Arc<Engine>> {
        let manifest = open_dir(&*fs, dir)?;
        let trees = manifest.trees.clone();
        let shared = Shared::new(fs, dir, StoreLog::new(log), options, manifest);
        let (mut handles, mut damaged) = (BTreeMap::new(), BTreeMap::new());
        for (group, record) in trees {
            match open_known(&shared, group, record) {
                Ok(handle) => {
                    handles.insert(group, handle);
                }
                Err(EngineError::Corrupt { what, detail }) => {
                    tracing::error!(%group, what, detail, "damaged tree set aside");
                    damaged.insert(group, Damage { what, detail });
                }
                Err(error) => return Err(error),
            }
        }
        tracing::info!(trees = handles.len(), damaged = damaged.len(), "engine opened");
        Ok(Arc::new(Engine {
            shared,
            trees: RwLock::new(handles),
            damaged: Mutex::new(damaged),
            admin: Mutex::default(),
            gc: Mutex::default(),
        }))
    }

    /// The tree of a replica; created if there is none. A damaged one stays refused until it is dropped.
    pub fn open_tree(&self, group: GroupId, kind: EngineKind, threshold: u32) -> Result<Arc<dyn Tree>> {
        let _admin = self.admin.lock();
        if let Some(handle) = self.handle(group) {
            if handle.kind() != kind {
                let (found, asked) = (handle.kind().name(), kind.name());
                return Err(EngineError::KindDiffers { group, found, asked });
            }
            if let Handle::Index(tree, _) = &handle {
                tree.set_threshold(threshold);
            }
            return Ok(handle.tree());
        }
        if let Some(Damage { what, detail }) = self.damaged.lock().get(&group).cloned() {
            return Err(EngineError::Corrupt { what, detail });
        }
        let generation = self.shared.next_generation();
        create_tree_dir(&*self.shared.fs, &self.shared.tree_dir(group, generation))?;
        let record = TreeRecord { kind, threshold, generation };
        let handle = Handle::open(&self.shared, group, record)?;
        self.shared.change_manifest(|manifest| {
            manifest.trees.insert(group, record);
        })?;
        self.trees.write().insert(group, handle.clone());
        tracing::info!(%group, kind = kind.name(), "tree created");
        Ok(handle.tree())
    }

    /// Removes a replica's tree, durably. Nothing happens when there is none.
    pub fn drop_tree(&self, group: GroupId) -> Result<()> {
        let _admin = self.admin.lock();
        let Some(record) = self.shared.manifest().trees.get(&group).copied() else { return Ok(()) };
        // IMPORTANT: the manifest first. From here on a crash finishes the work at the next open.
        self.shared.change_manifest(|manifest| {
            manifest.trees.remove(&group);
        })?;
        let handle = self.trees.write().remove(&group);
        self.damaged.lock().remove(&group);
        let dir = self.shared.tree_dir(group, record.generation);
        match handle {
            Some(Handle::Index(tree, _)) => self.shared.doom(dir, tree.retire() as _),
            Some(Handle::Sled(tree)) => self.shared.doom(dir, tree.retire() as _),
            None => trash(&*self.shared.fs, &self.shared.dir, &dir)?,
        }
        tracing::info!(%group, "tree dropped");
        self.shared.sweep_doomed().map(|_| ())
    }

    /// The replicas that have a tree, readable or not.
    pub fn groups(&self) -> Vec<GroupId> {
        self.trees.read().keys().chain(self.damaged.lock().keys()).copied().collect()
    }

    /// The trees that could not be read when the engine was opened, and why. Repair them from peers.
    pub fn damaged(&self) -> Vec<(GroupId, String)> {
        let damaged = self.damaged.lock();
        damaged.iter().map(|(group, d)| (*group, format!("{}: {}", d.what, d.detail))).collect()
    }

    fn handle(&self, group: GroupId) -> Option<Handle> {
        self.trees.read().get(&group).cloned()
    }

    pub(crate) fn handles(&self) -> Vec<(GroupId, Handle)> {
        self.trees.read().iter().map(|(group, handle)| (*group, handle.clone())).collect()
    }

    /// One round of background work: flushes by size, in total and by log tail, and compactions. True: there is
    /// more to do at once.
    pub fn maintain(&self) -> Result<bool> {
        self.shared.sweep_doomed()?;
        self.flush_largest()?;
        let mut more = self.flush_oldest()?.is_some();
        for (_, handle) in self.handles() {
            more |= skip_gone(handle.tree().maintain())?.unwrap_or(false);
        }
        Ok(more)
    }

    /// Flushes the tree with the largest memtable if all of them are over their budget.
    fn flush_largest(&self) -> Result<()> {
        let sizes = self
            .handles()
            .into_iter()
            .filter_map(|(_, h)| h.index().map(|t| (t.memtable_bytes(), h.clone())));
        let sizes: Vec<(u64, Handle)> = sizes.collect();
        let total: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
        if total <= self.shared.options.memtable_bytes_total {
            return Ok(());
        }
        match sizes.into_iter().max_by_key(|(bytes, _)| *bytes) {
            Some((_, handle)) => skip_gone(handle.tree().flush()).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Flushes the tree that holds back the most of the log, if that is over the budget. Returns it.
    pub fn flush_oldest(&self) -> Result<Option<GroupId>> {
        let mut segments = self.shared.log.all();
        segments.sort_unstable();
        let behind =
            |first: u64| segments.iter().filter(|(id, _)| *id > first).map(|(_, bytes)| bytes).sum::<u64>();
        let oldest = self.handles().into_iter().filter_map(|(group, handle)| {
            let first = self.shared.log.segment_behind(group, handle.tree().durable())?;
            Some((behind(first), group, handle))
        });
        match oldest.max_by_key(|(bytes, ..)| *bytes) {
            Some((bytes, group, handle)) if bytes > self.shared.options.log_tail_bytes_max => {
                tracing::info!(%group, bytes, "flush to release the log");
                skip_gone(handle.tree().flush())?;
                Ok(Some(group))
            }
            _ => Ok(None),
        }
    }

    /// Makes everything applied durable; for a clean stop.
    pub fn flush_all(&self) -> Result<()> {
        for (_, handle) in self.handles() {
            skip_gone(handle.tree().flush())?;
        }
        Ok(())
    }

    /// Why nothing may be written any more, if so.
    pub fn poisoned(&self) -> Option<String> {
        self.shared.check_poison().err().map(|e| e.to_string())
    }

    /// Totals.
    pub fn stats(&self) -> EngineStats {
        let manifest = self.shared.manifest();
        let mut stats = EngineStats {
            data_files: manifest.data.len() as u64,
            data_bytes: manifest.data.values().map(|d| d.bytes).sum(),
            log_sealed_bytes: self.shared.log.sealed().iter().map(|s| s.bytes).sum(),
            pins: self.shared.pins.len() as u64,
            index_written_bytes: self.shared.index.written_bytes(),
            ..Default::default()
        };
        let sealed: BTreeSet<u64> = self.shared.log.sealed().iter().map(|s| s.id).collect();
        let mut in_sealed_bytes = 0;
        for (_, handle) in self.handles() {
            let tree = handle.tree().stats();
            stats.trees += 1;
            stats.keys += tree.keys;
            stats.live_bytes += tree.live_bytes;
            stats.memtable_bytes += tree.memtable_bytes;
            stats.index_bytes += tree.index_bytes;
            for (segment, bytes) in tree.live_by_segment {
                stats.value_live_bytes += bytes;
                let counted = match segment {
                    SegmentRef { origin: crate::tree::Origin::Log, id } => sealed.contains(&id),
                    _ => true,
                };
                in_sealed_bytes += if counted { bytes } else { 0 };
            }
        }
        let file_bytes = stats.data_bytes + stats.log_sealed_bytes;
        stats.space_amplification =
            if in_sealed_bytes == 0 { 1.0 } else { file_bytes as f64 / in_sealed_bytes as f64 };
        stats
    }
}

/// Opens a tree that the manifest names. What is missing of it is damage: made anew it would be empty.
fn open_known(shared: &Arc<Shared>, group: GroupId, record: TreeRecord) -> Result<Handle> {
    let dir = shared.tree_dir(group, record.generation);
    if !shared.fs.exists(&dir).map_err(|e| EngineError::io("open a tree", e))? {
        return Err(EngineError::corrupt(dir.display().to_string(), "the tree's directory is missing"));
    }
    // A file of it that is not there is damage too; all else may pass, so the store does not start.
    Handle::open(shared, group, record).map_err(|error| match error {
        EngineError::Io { what, source } if source.kind() == std::io::ErrorKind::NotFound => {
            EngineError::corrupt(dir.display().to_string(), format!("{what}: {source}"))
        }
        other => other,
    })
}

/// A tree that was dropped meanwhile needs no background work.
pub(crate) fn skip_gone<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(EngineError::Gone(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the manifest and deletes what it does not name.
fn open_dir(fs: &dyn Fs, dir: &Path) -> Result<Manifest> {
    let failed = |e| EngineError::io("open the engine's directory", e);
    let path = dir.join(MANIFEST_FILE);
    let is_new = !fs.exists(&path).map_err(failed)?;
    for part in [DATA_DIR, TREES_DIR, TRASH_DIR] {
        if !is_new && !fs.exists(&dir.join(part)).map_err(failed)? && part != TRASH_DIR {
            return Err(EngineError::corrupt(
                dir.display().to_string(),
                format!("the directory {part} is missing"),
            ));
        }
        fs.create_dir_all(&dir.join(part)).map_err(failed)?;
    }
    fs.sync_dir(dir).map_err(failed)?;
    if is_new {
        for part in [DATA_DIR, TREES_DIR] {
            if !fs.list(&dir.join(part)).map_err(failed)?.is_empty() {
                let detail = "no manifest, but data: refusing to treat the data as garbage";
                return Err(EngineError::corrupt(path.display().to_string(), detail));
            }
        }
        let manifest = Manifest { next_generation: 1, next_data_id: 1, ..Default::default() };
        write_file_atomic(fs, &path, &manifest.encode()).map_err(failed)?;
        return Ok(manifest);
    }
    let bytes = read_file(fs, &path).map_err(|e| EngineError::io("read the manifest", e))?;
    let manifest = Manifest::decode(&path, &bytes)?;
    sweep(fs, dir, &manifest)?;
    Ok(manifest)
}

fn sweep(fs: &dyn Fs, dir: &Path, manifest: &Manifest) -> Result<()> {
    let failed = |e| EngineError::io("sweep the engine's directory", e);
    for name in fs.list(&dir.join(TRASH_DIR)).map_err(failed)? {
        fs.remove_dir_all(&dir.join(TRASH_DIR).join(name)).map_err(failed)?;
    }
    let named: BTreeSet<String> = manifest.trees.iter().map(|(g, t)| tree_name(*g, t.generation)).collect();
    for name in fs.list(&dir.join(TREES_DIR)).map_err(failed)? {
        if !named.contains(&name) {
            trash(fs, dir, &dir.join(TREES_DIR).join(name))?;
        }
    }
    let data_dir = dir.join(DATA_DIR);
    for name in fs.list(&data_dir).map_err(failed)? {
        // A name that is not ours is left alone.
        if let Some(id) = parse_data_name(&name).filter(|id| !manifest.data.contains_key(id)) {
            fs.remove_file(&data_path(&data_dir, id)).map_err(failed)?;
        }
    }
    for part in [TREES_DIR, DATA_DIR] {
        fs.sync_dir(&dir.join(part)).map_err(failed)?;
    }
    Ok(())
}
