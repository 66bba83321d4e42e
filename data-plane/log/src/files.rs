//! Segment files by id, a bounded number of them open.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use undb_vfs::{File, Fs, OpenHow};

use crate::LogError;

const SUFFIX: &str = ".seg";
/// Digits of the id in a file name; names sort as ids do.
const DIGITS: usize = 16;

/// The file of a segment.
pub(crate) fn segment_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("{segment:0DIGITS$}{SUFFIX}"))
}

/// The segment of a file name.
pub(crate) fn segment_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let plain = digits.len() >= DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

struct Slot {
    file: Arc<dyn File>,
    used: AtomicU64,
}

pub(crate) struct Files {
    pub fs: Arc<dyn Fs>,
    pub dir: PathBuf,
    open: RwLock<HashMap<u64, Slot>>,
    clock: AtomicU64,
    open_max: usize,
    /// The segment that is written, and how much of it is in the file: what lies behind is in memory.
    tail_segment: AtomicU64,
    tail_written: AtomicU64,
}

impl Files {
    pub fn new(fs: Arc<dyn Fs>, dir: PathBuf, open_max: usize) -> Self {
        Files {
            fs,
            dir,
            open: RwLock::default(),
            clock: AtomicU64::default(),
            open_max: open_max.max(2),
            tail_segment: AtomicU64::default(),
            tail_written: AtomicU64::default(),
        }
    }

    pub fn path(&self, segment: u64) -> PathBuf {
        segment_path(&self.dir, segment)
    }

    /// The writer begins with a segment. IMPORTANT: the length is cleared first, so that a reader never
    /// takes the old length for the new segment's.
    pub fn begin_tail(&self, segment: u64, written: u64) {
        self.tail_written.store(0, Ordering::Release);
        self.tail_segment.store(segment, Ordering::Release);
        self.tail_written.store(written, Ordering::Release);
    }

    pub fn tail_is_written(&self, end: u64) {
        self.tail_written.store(end, Ordering::Release);
    }

    /// True when bytes up to `end` of the segment are certainly in its file.
    pub fn is_written(&self, segment: u64, end: u64) -> bool {
        let tail = self.tail_segment.load(Ordering::Acquire);
        segment < tail || (segment == tail && end <= self.tail_written.load(Ordering::Acquire))
    }

    pub fn get(&self, segment: u64) -> Result<Arc<dyn File>, LogError> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        if let Some(slot) = self.open.read().get(&segment) {
            slot.used.store(now, Ordering::Relaxed);
            return Ok(slot.file.clone());
        }
        let path = self.path(segment);
        let file = self.fs.open(&path, OpenHow::Read).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LogError::SegmentGone { segment },
            _ => LogError::io("open", path)(error),
        })?;
        self.put(segment, file.clone());
        Ok(file)
    }

    pub fn put(&self, segment: u64, file: Arc<dyn File>) {
        let used = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed));
        let mut open = self.open.write();
        open.insert(segment, Slot { file, used });
        while open.len() > self.open_max {
            let oldest =
                open.iter().min_by_key(|(_, slot)| slot.used.load(Ordering::Relaxed)).map(|(id, _)| *id);
            let Some(oldest) = oldest else { break };
            open.remove(&oldest);
        }
    }

    pub fn forget(&self, segment: u64) {
        self.open.write().remove(&segment);
    }

    /// Bytes of a segment file.
    pub fn read(&self, segment: u64, offset: u64, len: usize) -> Result<Vec<u8>, LogError> {
        let file = self.get(segment)?;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                LogError::Corrupt { segment, offset, what: format!("file ends within {len} bytes") }
            }
            _ => LogError::io("read", self.path(segment))(error),
        };
        // Bounds the allocation by the file, for an offset and length from a damaged pointer.
        let have = file.len().map_err(failed)?;
        if offset.checked_add(len as u64).is_none_or(|end| end > have) {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset).map_err(failed)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_segments() {
        assert_eq!(segment_of("0000000000000042.seg"), Some(42));
        let path = segment_path(Path::new("d"), u64::MAX);
        assert_eq!(segment_of(&path.file_name().expect("name").to_string_lossy()), Some(u64::MAX));
        for name in ["42.seg", "000000000000004x.seg", "0000000000000042.seg.tmp", "+000000000000042.seg"] {
            assert_eq!(segment_of(name), None, "{name}");
        }
    }
}
