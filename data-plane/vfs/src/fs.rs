//! The traits, and the small types that cross them.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Counters;

/// How a file is opened. Every mode can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenHow {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// A file that must not exist yet, to read and write.
    CreateNew,
}

/// Room on the disk below a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What is used and what is free, in bytes: the size of the file system without what it keeps for root.
    pub total: u64,
    /// What an unprivileged process may still write, in bytes.
    pub free: u64,
}

/// Somebody else holds the lock. Found inside the `io::Error` (kind `WouldBlock`) of [`Fs::lock`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is locked by {}; stop it or use another directory", .path.display(), holder(.pid))]
pub struct Locked {
    /// The lock file.
    pub path: PathBuf,
    /// The process that holds it, when its file names one.
    pub pid: Option<u32>,
}

fn holder(pid: &Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

/// A file system. Cheap to share; all methods block.
pub trait Fs: Send + Sync + Debug + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>>;
    /// Renames a file or directory, replacing a file at `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and everything in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Creates a directory and its parents. The new names are durable after `sync_dir` of each parent.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// True when something has this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes an advisory lock, held until the guard is dropped; refuses with [`Locked`] when another has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
    /// Room on the disk.
    fn space(&self, dir: &Path) -> io::Result<Space>;
    /// A named crash point for work that is done around this trait (lsm-tree and sled open their own
    /// files). A simulated crash makes it fail; the real file system does nothing.
    fn step(&self, _name: &'static str) -> io::Result<()> {
        Ok(())
    }
    /// What was written and synced through this file system.
    fn counters(&self) -> Counters;
}

/// An open file. Positional only, so that it can be shared between threads.
pub trait File: Send + Sync + Debug {
    /// Fills `buf` from `offset`, or fails with `UnexpectedEof`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the contents and the length durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// True when the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Takes disk space for `len` bytes and extends the file with zeros to at least that.
    fn allocate(&self, len: u64) -> io::Result<()>;
}

/// True when an error says that the disk, or the quota on it, is full.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
