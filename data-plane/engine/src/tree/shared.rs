//! What the trees of one store share.

use super::index::IndexShared;
use super::values::Values;
use crate::error::{EngineError, Result};
use crate::gc::data_file::{DataHead, DataWriter};
use crate::gc::pins::Pins;
use crate::manifest::{DataRecord, Manifest};
use crate::options::EngineOptions;
use crate::store_log::StoreLog;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use undb_types::GroupId;
use undb_vfs::{Fs, write_file_atomic};

/// What the trees of one store share.
pub struct Shared {
    /// The file system.
    pub fs: Arc<dyn Fs>,
    /// The engine's directory.
    pub dir: PathBuf,
    /// Settings.
    pub options: EngineOptions,
    /// The store's log.
    pub log: StoreLog,
    /// Values by pointer.
    pub values: Values,
    /// Block cache and open files of the indexes.
    pub index: IndexShared,
    /// Who may still read old pointers.
    pub pins: Pins,
    /// Files in progress; lock rank: taken last, never across I/O.
    pub unfinished: Mutex<BTreeSet<u64>>,
    /// What there is; lock rank: behind a tree's flush lock, before its writer lock.
    manifest: Mutex<Manifest>,
    /// Directories that nobody names any more, with their last users.
    doomed: Mutex<Vec<Doomed>>,
    /// Why nothing may be written any more.
    poison: Mutex<Option<String>>,
}

impl Shared {
    /// Over an engine directory whose manifest was read.
    pub fn new(
        fs: Arc<dyn Fs>,
        dir: &Path,
        log: StoreLog,
        options: EngineOptions,
        manifest: Manifest,
    ) -> Arc<Shared> {
        let data_dir = dir.join(DATA_DIR);
        Arc::new(Shared {
            values: Values::new(Arc::clone(&fs), log.clone(), &data_dir, options.value_cache_bytes),
            index: IndexShared::new(options.block_cache_bytes, options.index_files_open_max),
            fs,
            dir: dir.into(),
            options,
            log,
            pins: Pins::default(),
            unfinished: Mutex::default(),
            manifest: Mutex::new(manifest),
            doomed: Mutex::default(),
            poison: Mutex::default(),
        })
    }

    /// Where data files lie.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join(DATA_DIR)
    }

    /// Where a generation of a tree lies.
    pub fn tree_dir(&self, group: GroupId, generation: u64) -> PathBuf {
        self.dir.join(TREES_DIR).join(tree_name(group, generation))
    }

    /// A copy of the manifest.
    pub fn manifest(&self) -> Manifest {
        self.manifest.lock().clone()
    }

    /// Changes the manifest durably, or not at all.
    pub fn change_manifest(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        self.check_poison()?;
        let mut manifest = self.manifest.lock();
        let mut next = manifest.clone();
        change(&mut next);
        let written = write_file_atomic(&*self.fs, &self.dir.join(MANIFEST_FILE), &next.encode());
        if let Err(source) = written {
            // What is on disk is not known now: the rename may have happened and its sync failed.
            return Err(self.poison_unless_full(EngineError::io("write the manifest", source)));
        }
        *manifest = next;
        Ok(())
    }

    /// A directory number that was never used.
    pub fn next_generation(&self) -> u64 {
        let mut manifest = self.manifest.lock();
        let generation = manifest.next_generation;
        manifest.next_generation += 1;
        generation
    }

    /// Begins a data file. It is protected from deletion until `finished`.
    pub fn create_data(&self, head: impl FnOnce(u64) -> DataHead) -> Result<(u64, DataWriter)> {
        let id = {
            let mut manifest = self.manifest.lock();
            let id = manifest.next_data_id;
            manifest.next_data_id += 1;
            id
        };
        self.unfinished.lock().insert(id);
        match DataWriter::create(&*self.fs, &self.data_dir(), head(id)) {
            Ok(writer) => Ok((id, writer)),
            Err(error) => {
                self.unfinished.lock().remove(&id);
                Err(error)
            }
        }
    }

    /// Makes written data files durable under their names, and known.
    pub fn commit_data(&self, files: &[(u64, DataRecord)], also: impl FnOnce(&mut Manifest)) -> Result<()> {
        if !files.is_empty() {
            let synced = self.fs.sync_dir(&self.data_dir());
            synced.map_err(|e| self.poison_unless_full(EngineError::io("sync the data directory", e)))?;
        }
        self.change_manifest(|manifest| {
            manifest.data.extend(files.iter().copied());
            also(manifest);
        })
    }

    /// The pointers into these files are in their tree, or the files are abandoned.
    pub fn finished(&self, ids: impl IntoIterator<Item = u64>) {
        let mut unfinished = self.unfinished.lock();
        for id in ids {
            unfinished.remove(&id);
        }
    }

    /// A tree directory that the manifest does not name any more: deleted once `user` is gone.
    pub fn doom(&self, dir: PathBuf, user: Weak<dyn Any + Send + Sync>) {
        self.doomed.lock().push(Doomed { dir, user });
    }

    /// Deletes the doomed directories that nobody uses, by way of the trash. Returns how many wait.
    pub fn sweep_doomed(&self) -> Result<usize> {
        let (free, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *self.doomed.lock()).into_iter().partition(|d| d.user.strong_count() == 0);
        let count = waiting.len();
        self.doomed.lock().extend(waiting);
        for doomed in free {
            trash(&*self.fs, &self.dir, &doomed.dir)?;
        }
        Ok(count)
    }

    /// Refuses when poisoned.
    pub fn check_poison(&self) -> Result<()> {
        match &*self.poison.lock() {
            Some(reason) => Err(EngineError::Poisoned(reason.clone())),
            None => Ok(()),
        }
    }

    /// Poisons the engine: an error of this kind leaves the disk in a state that is not known.
    pub fn poison_unless_full(&self, error: EngineError) -> EngineError {
        if !matches!(error, EngineError::DiskFull { .. } | EngineError::Poisoned(_)) {
            let mut poison = self.poison.lock();
            if poison.is_none() {
                tracing::error!(error = %error, "engine poisoned");
                *poison = Some(error.to_string());
            }
        }
        error
    }
}

struct Doomed {
    dir: PathBuf,
    user: Weak<dyn Any + Send + Sync>,
}

/// Holds the data files.
pub const DATA_DIR: &str = "data";
/// Moves a directory to the trash and deletes it there. Whatever is left by a crash is deleted at open.
pub fn trash(fs: &dyn Fs, engine_dir: &Path, dir: &Path) -> Result<()> {
    let failed = |e| EngineError::io("delete a tree", e);
    let Some(name) = dir.file_name() else { return Ok(()) };
    if !fs.exists(dir).map_err(failed)? {
        return Ok(());
    }
    let target = engine_dir.join(TRASH_DIR).join(name);
    if fs.exists(&target).map_err(failed)? {
        fs.remove_dir_all(&target).map_err(failed)?;
    }
    fs.rename(dir, &target).map_err(failed)?;
    fs.remove_dir_all(&target).map_err(failed)
}

/// Holds one directory per tree and generation.
pub const TREES_DIR: &str = "trees";
/// Holds what waits to be deleted.
pub const TRASH_DIR: &str = "trash";
/// The manifest.
pub const MANIFEST_FILE: &str = "MANIFEST";

/// The directory name of a tree's generation.
pub fn tree_name(group: GroupId, generation: u64) -> String {
    format!("{}-{}-{generation}", group.shard, group.replica)
}
