//! A file system that crashes, over a real directory.
//!
//! The real files hold what is durable; what was written since waits in memory. So lsm-tree and sled, which
//! open their files by themselves, live beside ours in one directory, and a "restart" is a fresh [`SimFs`]
//! over the same directory.
//!
//! What [`SimFs::crash`] may do, by seed: keep, drop, tear (by 512-byte sectors) or replace with garbage any
//! 4 KiB block that was written and not synced; keep the old or the new length; take back any suffix of the
//! creations, renames and removals of a directory that was not synced.
//!
//! Not simulated: files that others open by themselves (use [`Fs::step`] to place crash points between
//! their operations), and a quota for them.

mod fault;
mod names;
mod node;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::counters::Classes;
use crate::os::{list_real, space_real};
use crate::{Counters, File, Fs, Locked, OpenHow, Space};

pub use fault::{Crashed, Fault, OpKind};
use fault::{Gate, Verdict};
use names::{Change, Names};
use node::{Node, SimFile};

/// A file system that loses what was not synced. Clones share everything.
#[derive(Clone, Debug)]
pub struct SimFs {
    shared: Arc<Shared>,
}

/// One process's view of the disk.
#[derive(Debug)]
struct Shared {
    root: PathBuf,
    classes: Classes,
    gate: Gate,
    disk: Arc<Disk>,
}

/// What outlives a process, and what of it a crash loses.
#[derive(Debug)]
struct Disk {
    /// Operations hold it for reading, a crash for writing: none is half done when the loss is applied.
    running: RwLock<()>,
    /// Lock order: `running`, `files`, a node, `quota`.
    files: Mutex<Files>,
    quota: Mutex<Quota>,
}

#[derive(Debug, Default)]
struct Quota {
    max: Option<u64>,
    used: u64,
}

#[derive(Debug, Default)]
struct Files {
    nodes: HashMap<PathBuf, Arc<Node>>,
    names: Names,
    locks: HashSet<PathBuf>,
}

impl SimFs {
    /// Over the real directory `root`, as after a restart: everything in it is durable.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let files = Files { names: Names::new(&root), ..Files::default() };
        let quota = Quota { max: None, used: used_below(&root) };
        SimFs {
            shared: Arc::new(Shared {
                root,
                classes: Classes::default(),
                gate: Gate::default(),
                disk: Arc::new(Disk {
                    running: RwLock::default(),
                    files: Mutex::new(files),
                    quota: Mutex::new(quota),
                }),
            }),
        }
    }

    /// Number of mutating operations and steps so far: the possible crash points.
    pub fn ops(&self) -> u64 {
        self.shared.gate.ops()
    }

    /// The mutating operations so far, for a failing test's message.
    pub fn history(&self) -> Vec<String> {
        self.shared.gate.history()
    }

    /// Operation `n` (from 0) takes effect but not for sure and fails, as do all later ones.
    pub fn crash_at(&self, n: u64) {
        self.shared.gate.crash_at(n);
    }

    /// True from the crash on.
    pub fn crashed(&self) -> bool {
        self.shared.gate.crashed()
    }

    /// The power fails: every later operation fails, and what was not synced is lost as `seed` wants it.
    pub fn crash(&self, seed: u64) {
        let _alone = self.shared.disk.running.write();
        self.shared.gate.crash();
        let mut files = self.shared.disk.files.lock();
        let mut rng = StdRng::seed_from_u64(seed);
        // Sorted, so that a seed means the same in every run.
        let mut nodes: Vec<_> = files.nodes.drain().collect();
        nodes.sort_by(|a, b| a.0.cmp(&b.0));
        for (_, node) in nodes {
            node.lose(&mut rng);
        }
        files.names.lose(&mut rng);
    }

    /// The process dies (kill -9) and the machine does not: every later operation of this view fails, and the
    /// view that is returned sees all that was written, synced or not. A crash of that one can still lose it.
    pub fn kill(&self) -> SimFs {
        let _alone = self.shared.disk.running.write();
        self.shared.gate.crash();
        self.shared.disk.files.lock().locks.clear();
        SimFs {
            shared: Arc::new(Shared {
                root: self.shared.root.clone(),
                classes: Classes::default(),
                gate: Gate::default(),
                disk: self.shared.disk.clone(),
            }),
        }
    }

    /// At most this many bytes in files of this file system; `None`: what the real disk has.
    pub fn set_quota(&self, bytes: Option<u64>) {
        self.shared.disk.quota.lock().max = bytes;
    }

    /// Bytes that count against the quota.
    pub fn used(&self) -> u64 {
        self.shared.disk.quota.lock().used
    }

    /// Makes operations fail.
    pub fn inject(&self, fault: Fault) {
        self.shared.gate.inject(fault);
    }

    /// Ends all injected faults.
    pub fn heal(&self) {
        self.shared.gate.heal();
    }

    /// Flips the bits of `mask` in one byte of a file, durably.
    pub fn flip(&self, path: &Path, offset: u64, mask: u8) -> io::Result<()> {
        self.shared.node(path, OpenHow::Write)?.flip(offset, mask)
    }

    /// Runs one operation through the gate; a crash at it lets it happen and then fails.
    fn run<T>(
        &self,
        kind: OpKind,
        path: &Path,
        body: impl FnOnce(&Shared) -> io::Result<T>,
    ) -> io::Result<T> {
        let _running = self.shared.disk.running.read();
        match self.shared.gate.enter(kind, path)? {
            Verdict::Go => body(&self.shared),
            Verdict::GoAndCrash => {
                let _ = body(&self.shared);
                Err(Crashed::error())
            }
        }
    }
}

impl Shared {
    fn node(&self, path: &Path, how: OpenHow) -> io::Result<Arc<Node>> {
        let mut files = self.disk.files.lock();
        if how == OpenHow::CreateNew {
            let real = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
            files.names.push(Change::Created(path.to_owned()));
            let node = Arc::new(Node::new(real)?);
            files.nodes.insert(path.to_owned(), node.clone());
            return Ok(node);
        }
        if let Some(node) = files.nodes.get(path) {
            node.refresh()?;
            return Ok(node.clone());
        }
        // Keeps the number of real descriptors bounded: a clean file that nobody holds has nothing to lose.
        if files.nodes.len() >= 128 {
            files.nodes.retain(|_, node| Arc::strong_count(node) > 1 || node.is_dirty());
        }
        let real = fs::OpenOptions::new().read(true).write(true).open(path)?;
        let node = Arc::new(Node::new(real)?);
        files.nodes.insert(path.to_owned(), node.clone());
        Ok(node)
    }

    /// Takes quota for growth; gives how many of the wanted bytes may be written.
    fn take(&self, want: u64) -> u64 {
        let mut quota = self.disk.quota.lock();
        let granted = match quota.max {
            Some(max) => want.min(max.saturating_sub(quota.used)),
            None => want,
        };
        quota.used += granted;
        granted
    }

    fn give_back(&self, bytes: u64) {
        let mut quota = self.disk.quota.lock();
        quota.used = quota.used.saturating_sub(bytes);
    }

    fn forget(&self, files: &mut Files, path: &Path) {
        let bytes = match files.nodes.remove(path) {
            Some(node) => node.allocated(),
            None => used_below(path),
        };
        self.give_back(bytes);
    }
}

fn used_below(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    let names = list_real(path).unwrap_or_default();
    names.iter().map(|name| used_below(&path.join(name))).sum()
}

#[derive(Debug)]
struct LockGuard {
    shared: Arc<Shared>,
    path: PathBuf,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.shared.disk.files.lock().locks.remove(&self.path);
    }
}

impl Fs for SimFs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let kind = if how == OpenHow::CreateNew { OpKind::Create } else { OpKind::Open };
        let node = self.run(kind, path, |shared| shared.node(path, how))?;
        let class = self.shared.classes.of(&self.shared.root, path);
        Ok(Arc::new(SimFile { fs: self.clone(), node, class, path: path.to_owned(), how }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.run(OpKind::Rename, to, |shared| {
            let mut files = shared.disk.files.lock();
            let replaced = match to.try_exists()? && !to.is_dir() {
                true => {
                    shared.forget(&mut files, to);
                    Some(files.names.stash(to)?)
                }
                false => None,
            };
            fs::rename(from, to)?;
            let moved: Vec<_> = files.nodes.keys().filter(|p| p.starts_with(from)).cloned().collect();
            for old in moved {
                if let (Some(node), Ok(below)) = (files.nodes.remove(&old), old.strip_prefix(from)) {
                    let new = if below.as_os_str().is_empty() { to.to_owned() } else { to.join(below) };
                    files.nodes.insert(new, node);
                }
            }
            files.names.push(Change::Renamed { from: from.to_owned(), to: to.to_owned(), replaced });
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.run(OpKind::Remove, path, |shared| {
            let mut files = shared.disk.files.lock();
            if path.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            shared.forget(&mut files, path);
            let stash = files.names.stash(path)?;
            files.names.push(Change::Removed { path: path.to_owned(), stash });
            Ok(())
        })
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.run(OpKind::Remove, path, |shared| {
            let mut files = shared.disk.files.lock();
            let inside: Vec<_> = files.nodes.keys().filter(|p| p.starts_with(path)).cloned().collect();
            for node in inside {
                shared.forget(&mut files, &node);
            }
            shared.give_back(used_below(path));
            let stash = files.names.stash(path)?;
            files.names.push(Change::Removed { path: path.to_owned(), stash });
            Ok(())
        })
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.run(OpKind::CreateDir, path, |shared| {
            let mut files = shared.disk.files.lock();
            let mut missing: Vec<_> = path.ancestors().take_while(|p| !p.exists()).collect();
            while let Some(dir) = missing.pop() {
                if dir.as_os_str().is_empty() {
                    continue;
                }
                fs::create_dir(dir)?;
                files.names.push(Change::Created(dir.to_owned()));
            }
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.run(OpKind::List, dir, |_| list_real(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.run(OpKind::List, path, |_| path.try_exists())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let _running = self.shared.disk.running.read();
        self.shared.classes.of(&self.shared.root, dir).synced();
        // A crash at a sync may come before it did anything; what it might have done, the loss decides.
        match self.shared.gate.enter(OpKind::SyncDir, dir)? {
            Verdict::Go => self.shared.disk.files.lock().names.synced(dir),
            Verdict::GoAndCrash => Err(Crashed::error()),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.run(OpKind::Open, path, |_| Ok(()))?;
        if !self.shared.disk.files.lock().locks.insert(path.to_owned()) {
            let locked = Locked { path: path.to_owned(), pid: Some(std::process::id()) };
            return Err(io::Error::new(io::ErrorKind::WouldBlock, locked));
        }
        Ok(Box::new(LockGuard { shared: self.shared.clone(), path: path.to_owned() }))
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.run(OpKind::List, dir, |shared| {
            let quota = shared.disk.quota.lock();
            match quota.max {
                Some(max) => Ok(Space { total: max, free: max.saturating_sub(quota.used) }),
                None => space_real(dir),
            }
        })
    }

    fn step(&self, name: &'static str) -> io::Result<()> {
        self.run(OpKind::Step, Path::new(name), |_| Ok(()))
    }

    fn counters(&self) -> Counters {
        self.shared.classes.read()
    }
}

/// A random prefix length of `len` items; the ends are likely.
fn prefix(rng: &mut StdRng, len: usize) -> usize {
    match rng.random_range(0..4) {
        0 => 0,
        1 => len,
        _ => rng.random_range(0..=len),
    }
}
