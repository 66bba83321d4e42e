//! The real file system.

use std::fs;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use crate::counters::{Class, Classes};
use crate::{Counters, File, Fs, Locked, OpenHow, Space};

/// The real file system. Paths are used as given; the root only names the classes of its counters.
#[derive(Debug, Default)]
pub struct OsFs {
    root: PathBuf,
    classes: Classes,
}

impl OsFs {
    /// Counters are kept by the first path component below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        OsFs { root: root.into(), classes: Classes::default() }
    }
}

#[derive(Debug)]
struct OsFile {
    file: fs::File,
    class: Arc<Class>,
}

impl Fs for OsFs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match how {
            OpenHow::Read => {}
            OpenHow::Write => {
                options.write(true);
            }
            OpenHow::CreateNew => {
                options.write(true).create_new(true);
            }
        }
        Ok(Arc::new(OsFile { file: options.open(path)?, class: self.classes.of(&self.root, path) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        list_real(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.classes.of(&self.root, dir).synced();
        fs::File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut file =
            fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                let locked = Locked { path: path.to_owned(), pid: text.trim().parse().ok() };
                return Err(io::Error::new(io::ErrorKind::WouldBlock, locked));
            }
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Box::new(file))
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        space_real(dir)
    }

    fn counters(&self) -> Counters {
        self.classes.read()
    }
}

impl File for OsFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        self.class.wrote(bytes.len());
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.class.synced();
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            // Some file systems cannot reserve space; the file then grows as it is written.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

pub(crate) fn list_real(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

pub(crate) fn space_real(dir: &Path) -> io::Result<Space> {
    let stat = rustix::fs::statvfs(dir)?;
    let used = stat.f_blocks.saturating_sub(stat.f_bfree);
    Ok(Space { total: (used + stat.f_bavail) * stat.f_frsize, free: stat.f_bavail * stat.f_frsize })
}
