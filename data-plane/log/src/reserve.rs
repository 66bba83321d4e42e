//! Disk space held back: a preallocated file that is removed when a write finds no room, so that votes,
//! purges and the ends of segments can still be written. Nothing is ever read from it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use undb_vfs::{Fs, OpenHow};

pub(crate) struct Reserve {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    bytes: u64,
    /// Free space beside the reserve that must be there before it is taken again.
    margin: u64,
    held: Mutex<bool>,
}

impl Reserve {
    pub fn new(fs: Arc<dyn Fs>, dir: PathBuf, bytes: u64, margin: u64) -> Self {
        Reserve { fs, dir, bytes, margin, held: Mutex::new(false) }
    }

    fn path(&self) -> PathBuf {
        self.dir.join("reserve")
    }

    /// Takes the space; false: there is not enough.
    pub fn hold(&self) -> io::Result<bool> {
        let mut held = self.held.lock();
        if *held {
            return Ok(true);
        }
        if self.fs.exists(&self.path())? {
            self.fs.remove_file(&self.path())?;
        }
        if self.fs.space(&self.dir)?.free < self.bytes.saturating_add(self.margin) {
            return Ok(false);
        }
        let file = self.fs.open(&self.path(), OpenHow::CreateNew)?;
        match file.allocate(self.bytes) {
            Ok(()) => {
                *held = true;
                Ok(true)
            }
            Err(error) if undb_vfs::is_disk_full(&error) => {
                self.fs.remove_file(&self.path())?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives up what an earlier run held; false: nothing was left.
    pub fn release_leftover(&self) -> bool {
        self.fs.remove_file(&self.path()).is_ok()
    }

    /// Gives the space up; false: it was not held.
    pub fn release(&self) -> bool {
        let mut held = self.held.lock();
        let released = *held && self.fs.remove_file(&self.path()).is_ok();
        *held = false;
        released
    }
}
