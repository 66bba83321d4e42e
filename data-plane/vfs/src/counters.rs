//! What a file system was asked to write, by class of file.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Totals of one class of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Bytes given to `write_all_at`.
    pub written_bytes: u64,
    /// Calls of `sync_data` and `sync_dir`.
    pub syncs: u64,
}

/// Totals since the file system object was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// All classes together.
    pub total: ClassCounters,
    /// By the first component of the path below the root (`log`, `engine`, ...).
    pub by_class: BTreeMap<String, ClassCounters>,
}

/// The live counters of one class; a file keeps its class, so that counting takes no lock.
#[derive(Debug, Default)]
pub(crate) struct Class {
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Class {
    pub(crate) fn wrote(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn synced(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }
}

/// All classes seen below one root.
#[derive(Debug, Default)]
pub(crate) struct Classes(Mutex<BTreeMap<String, Arc<Class>>>);

impl Classes {
    pub(crate) fn of(&self, root: &Path, path: &Path) -> Arc<Class> {
        let below = path.strip_prefix(root).unwrap_or(path);
        let first = below.components().find_map(|c| match c {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        });
        self.0.lock().entry(first.unwrap_or_default()).or_default().clone()
    }

    pub(crate) fn read(&self) -> Counters {
        let mut counters = Counters::default();
        for (name, class) in self.0.lock().iter() {
            let one = ClassCounters {
                written_bytes: class.written_bytes.load(Ordering::Relaxed),
                syncs: class.syncs.load(Ordering::Relaxed),
            };
            counters.total.written_bytes += one.written_bytes;
            counters.total.syncs += one.syncs;
            counters.by_class.insert(name.clone(), one);
        }
        counters
    }
}
