//! Names that were made, moved or removed and not yet synced.
//!
//! A change is done to the real directory at once; what it needs to be taken back is kept until `sync_dir`.
//! Removed files wait in a stash beside the root. Within one directory changes become durable in order.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;

static STASHES: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub(super) enum Change {
    Created(PathBuf),
    Renamed { from: PathBuf, to: PathBuf, replaced: Option<PathBuf> },
    Removed { path: PathBuf, stash: PathBuf },
}

impl Change {
    fn dir(&self) -> &Path {
        match self {
            Change::Created(path) | Change::Removed { path, .. } => parent_of(path),
            Change::Renamed { to, .. } => parent_of(to),
        }
    }

    fn forget_stash(&self) {
        if let Change::Removed { stash, .. } | Change::Renamed { replaced: Some(stash), .. } = self {
            remove_any(stash);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Names {
    changes: Vec<Change>,
    stash_dir: PathBuf,
    stashed: u64,
}

pub(super) fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn remove_any(path: &Path) {
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// `path` with a leading `from` replaced by `to`.
fn moved(path: &Path, from: &Path, to: &Path) -> PathBuf {
    match path.strip_prefix(from) {
        Ok(below) if below.as_os_str().is_empty() => to.to_owned(),
        Ok(below) => to.join(below),
        Err(_) => path.to_owned(),
    }
}

impl Names {
    pub(super) fn new(root: &Path) -> Self {
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        let unique = STASHES.fetch_add(1, Ordering::Relaxed);
        let stash_dir = parent_of(root).join(format!(".{name}.stash-{}-{unique}", std::process::id()));
        Names { changes: Vec::new(), stash_dir, stashed: 0 }
    }

    pub(super) fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Moves a name out of sight; gives where it is now.
    pub(super) fn stash(&mut self, path: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.stash_dir)?;
        let stash = self.stash_dir.join(self.stashed.to_string());
        self.stashed += 1;
        fs::rename(path, &stash)?;
        Ok(stash)
    }

    pub(super) fn synced(&mut self, dir: &Path) -> io::Result<()> {
        if !dir.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut kept: Vec<Change> = Vec::new();
        for change in std::mem::take(&mut self.changes) {
            if change.dir() != dir {
                kept.push(change);
                continue;
            }
            change.forget_stash();
            match &change {
                // What is still open below the old name is now below the new one.
                Change::Renamed { from, to, .. } => {
                    for earlier in &mut kept {
                        match earlier {
                            Change::Created(path) | Change::Removed { path, .. } => {
                                *path = moved(path, from, to)
                            }
                            Change::Renamed { from: f, to: t, .. } => {
                                *f = moved(f, from, to);
                                *t = moved(t, from, to);
                            }
                        }
                    }
                }
                Change::Removed { path, .. } => kept.retain(|earlier| !earlier.dir().starts_with(path)),
                Change::Created(_) => {}
            }
        }
        self.changes = kept;
        Ok(())
    }

    /// Takes back a random suffix of each directory's changes.
    pub(super) fn lose(&mut self, rng: &mut StdRng) {
        let mut counts: HashMap<PathBuf, usize> = HashMap::new();
        for change in &self.changes {
            *counts.entry(change.dir().to_owned()).or_default() += 1;
        }
        let mut dirs: Vec<_> = counts.keys().cloned().collect();
        dirs.sort();
        let keep: HashMap<_, _> =
            dirs.into_iter().map(|dir| (dir.clone(), super::prefix(rng, counts[&dir]))).collect();
        let mut renames: Vec<(PathBuf, PathBuf)> = Vec::new();
        for change in std::mem::take(&mut self.changes).into_iter().rev() {
            let nth = counts.get_mut(change.dir()).map_or(0, |left| {
                *left -= 1;
                *left
            });
            if nth < keep[change.dir()] {
                change.forget_stash();
                if let Change::Renamed { from, to, .. } = change {
                    renames.push((from, to));
                }
                continue;
            }
            // Later renames that are kept have moved what this change speaks of.
            let now =
                |path: &Path| renames.iter().rev().fold(path.to_owned(), |p, (from, to)| moved(&p, from, to));
            match change {
                Change::Created(path) => remove_any(&now(&path)),
                Change::Removed { path, stash } => {
                    let _ = fs::rename(stash, now(&path));
                }
                Change::Renamed { from, to, replaced } => {
                    let _ = fs::rename(now(&to), now(&from));
                    if let Some(stash) = replaced {
                        let _ = fs::rename(stash, now(&to));
                    }
                }
            }
        }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        if self.stashed > 0 {
            let _ = fs::remove_dir_all(&self.stash_dir);
        }
    }
}
