//! The store's directory: what lies where, who may open it.
//!
//! ```text
//! identity.json          who this store is (identity.rs)                       never deleted
//! authority.json         newest incarnation and control lease seen             never deleted
//! LOCK                   held while a process runs; contains its pid
//! replicas/S-R.json      one replica: range, epoch, options (descriptor.rs)    stays as a tombstone
//! log/                   segments of the shared log (undb-log)
//! engine/                trees and D-segments (undb-engine)
//! trash/                 what was destroyed by order (undb-engine)
//! ```
//! IMPORTANT: identity first. A directory with data and no identity is refused, because an empty
//! voter that has forgotten its votes could elect a second leader.

mod descriptor;
mod identity;

pub use descriptor::{Descriptor, ReplicaState, Replicas};
pub use identity::{FORMAT_VERSION, Identity, read as read_identity};

use crate::error::StoreError;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use undb_vfs::{Fs, Locked};

/// An opened, locked directory.
pub struct Directory {
    /// Where it is.
    pub path: PathBuf,
    /// Through which all files go.
    pub fs: Arc<dyn Fs>,
    /// Who the store is.
    pub identity: Identity,
    /// True when this start made the identity.
    pub fresh: bool,
    _lock: Box<dyn Send + Sync>,
}

/// The newest authority that has spoken to this store; older ones are fenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AuthoritySeen {
    /// Incarnation of the metadata.
    pub incarnation: u32,
    /// Epoch of the control lease within it.
    pub control_lease: u64,
}

impl Directory {
    /// Opens `path`, making it and a new identity when it is empty.
    pub fn open(fs: Arc<dyn Fs>, path: &Path) -> Result<Self, StoreError> {
        let at = |source| StoreError::Io { path: path.to_path_buf(), source };
        fs.create_dir_all(path).map_err(at)?;
        let lock = lock(&*fs, path)?;
        let found = identity::read(&*fs, path)?;
        let fresh = found.is_none();
        let identity = match found {
            Some(identity) => identity,
            None => {
                refuse_data_without_identity(&*fs, path)?;
                let identity = Identity::generate();
                identity.write(&*fs, path)?;
                identity
            }
        };
        for name in ["log", "engine", "replicas", "trash"] {
            fs.create_dir_all(&path.join(name)).map_err(at)?;
        }
        fs.sync_dir(path).map_err(at)?;
        Ok(Self { path: path.to_path_buf(), fs, identity, fresh, _lock: lock })
    }

    /// Where the shared log lies.
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Where the trees lie.
    pub fn engine(&self) -> PathBuf {
        self.path.join("engine")
    }

    /// The replicas' descriptors.
    pub fn replicas(&self) -> Replicas {
        Replicas::new(self.fs.clone(), self.path.join("replicas"))
    }

    /// Takes over what metadata said of this store, durably.
    pub fn adopt(&mut self, cluster_id: &str, store_id: u64) -> Result<(), StoreError> {
        self.identity.cluster_id = cluster_id.to_string();
        self.identity.store_id = store_id;
        self.identity.write(&*self.fs, &self.path)
    }

    /// The newest authority that was written down.
    pub fn authority(&self) -> Result<AuthoritySeen, StoreError> {
        let path = self.path.join("authority.json");
        if !self.fs.exists(&path).map_err(|source| StoreError::Io { path: path.clone(), source })? {
            return Ok(AuthoritySeen::default());
        }
        let bytes = undb_vfs::read_file(&*self.fs, &path)
            .map_err(|source| StoreError::Io { path: path.clone(), source })?;
        serde_json::from_slice(&bytes).map_err(|e| StoreError::Corrupt { path, detail: e.to_string() })
    }
}

/// Writes the newest authority down, durably.
pub(crate) fn write_authority(fs: &dyn Fs, dir: &Path, seen: AuthoritySeen) -> Result<(), StoreError> {
    let path = dir.join("authority.json");
    let bytes = serde_json::to_vec(&seen).map_err(|e| StoreError::Internal(e.to_string()))?;
    undb_vfs::write_file_atomic(fs, &path, &bytes).map_err(|source| StoreError::Io { path, source })
}

fn lock(fs: &dyn Fs, path: &Path) -> Result<Box<dyn Send + Sync>, StoreError> {
    let file = path.join("LOCK");
    fs.lock(&file).map_err(|source| {
        let held = source.get_ref().and_then(|inner| inner.downcast_ref::<Locked>());
        match held.map(|locked| locked.pid) {
            Some(pid) => {
                let holder = pid.map_or("another process".into(), |pid| format!("process {pid}"));
                StoreError::DirectoryInUse { path: path.to_path_buf(), holder }
            }
            None => StoreError::Io { path: file.clone(), source },
        }
    })
}

fn refuse_data_without_identity(fs: &dyn Fs, path: &Path) -> Result<(), StoreError> {
    for name in ["log", "engine", "replicas"] {
        let inside = path.join(name);
        let at = |source| StoreError::Io { path: inside.clone(), source };
        if fs.exists(&inside).map_err(at)? && !fs.list(&inside).map_err(at)?.is_empty() {
            return Err(StoreError::IdentityMissing { path: path.to_path_buf() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use undb_vfs::OsFs;

    fn fs() -> Arc<dyn Fs> {
        Arc::new(OsFs::default())
    }

    #[test]
    fn an_identity_survives_and_is_not_fresh_the_second_time() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut first = Directory::open(fs(), dir.path()).expect("new directory");
        assert!(first.fresh);
        first.adopt("c1", 7).expect("written");
        let uuid = first.identity.uuid.clone();
        drop(first);
        let second = Directory::open(fs(), dir.path()).expect("known directory");
        assert!(!second.fresh);
        assert_eq!((second.identity.uuid, second.identity.store_id), (uuid, 7));
    }

    #[test]
    fn a_directory_in_use_is_refused_with_the_pid() {
        let dir = tempfile::tempdir().expect("tempdir");
        let _held = Directory::open(fs(), dir.path()).expect("new directory");
        let error = Directory::open(fs(), dir.path()).err().expect("refused").to_string();
        assert!(error.contains("in use"), "{error}");
        assert!(error.contains(&std::process::id().to_string()), "{error}");
    }

    #[test]
    fn data_without_an_identity_is_refused() {
        let dir = tempfile::tempdir().expect("tempdir");
        drop(Directory::open(fs(), dir.path()).expect("new directory"));
        std::fs::write(dir.path().join("log").join("1.seg"), b"x").expect("write");
        std::fs::remove_file(dir.path().join("identity.json")).expect("remove");
        let error = Directory::open(fs(), dir.path()).err().expect("refused");
        assert!(matches!(error, StoreError::IdentityMissing { .. }), "{error}");
    }

    #[test]
    fn a_newer_format_is_refused_and_names_both_versions() {
        let dir = tempfile::tempdir().expect("tempdir");
        drop(Directory::open(fs(), dir.path()).expect("new directory"));
        let file = dir.path().join("identity.json");
        let text = std::fs::read_to_string(&file).expect("read");
        let newer = text.replace("\"format_version\": 1", "\"format_version\": 9");
        assert_ne!(text, newer);
        std::fs::write(&file, newer).expect("write");
        let error = Directory::open(fs(), dir.path()).err().expect("refused").to_string();
        assert!(error.contains('9') && error.contains('1'), "{error}");
    }
}
