//! What the callers and the writer share, and how a log is opened.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use parking_lot::{Condvar, Mutex};
use undb_vfs::{Fs, Locked, OpenHow, is_disk_full};

use crate::counters::Counters;
use crate::files::Files;
use crate::format::Footer;
use crate::recover::{Recovered, recover};
use crate::reserve::Reserve;
use crate::segment_io::{FirstBytes, footer_bytes, seal, sync};
use crate::state::{Limits, Segment, State};
use crate::writer::Writer;
use crate::{LogError, LogOptions};

/// A frame smaller than this could not hold a vote.
const FRAME_BYTES_MIN: usize = 4 << 10;
/// Frames that fit into a segment at least.
const FRAMES_MIN: u64 = 4;

pub(crate) struct Shared {
    pub log_id: u64,
    /// Lock order: this, then the reserve's, then nothing.
    pub state: Mutex<State>,
    /// The writer waits here for something to do.
    pub work: Condvar,
    /// Callers wait here for `durable_seq` to rise.
    pub durable: Condvar,
    /// Appends wait here for the queue to get shorter.
    pub room: Condvar,
    pub files: Files,
    pub reserve: Reserve,
    pub counters: Counters,
    pub options: LogOptions,
    pub writer_thread: OnceLock<ThreadId>,
    _lock: Box<dyn Send + Sync>,
}

impl Shared {
    pub fn preallocate_bytes(&self) -> u64 {
        if self.options.preallocate { self.options.segment_bytes } else { 0 }
    }

    /// Opens or creates a log; gives its writer, not yet running.
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        mut options: LogOptions,
    ) -> Result<(Arc<Shared>, Writer), LogError> {
        options.segment_bytes = options.segment_bytes.max(FRAMES_MIN * FRAME_BYTES_MIN as u64);
        let frame_bytes_max = usize::try_from(options.segment_bytes / FRAMES_MIN).unwrap_or(usize::MAX);
        options.frame_bytes_max = options.frame_bytes_max.clamp(FRAME_BYTES_MIN, frame_bytes_max);
        make_dir(&*fs, dir)?;
        let lock = take_lock(&*fs, dir)?;
        // IMPORTANT: nothing is changed before all of this has succeeded.
        let found = recover(&*fs, dir)?;
        let counters = Counters::new(&options.store);
        let files = Files::new(fs.clone(), dir.to_owned(), options.open_files_max);
        let margin = 2 * options.frame_bytes_max as u64;
        let reserve = Reserve::new(fs, dir.to_owned(), options.reserve_bytes, margin);
        let mut opening = Opening { files, reserve, counters, options };
        let (state, segment, file) = opening.begin(found)?;
        let Opening { files, reserve, counters, options } = opening;
        let shared = Arc::new(Shared {
            log_id: state.log_id,
            state: Mutex::new(state),
            work: Condvar::new(),
            durable: Condvar::new(),
            room: Condvar::new(),
            files,
            reserve,
            counters,
            options,
            writer_thread: OnceLock::new(),
            _lock: lock,
        });
        let writer = Writer { shared: shared.clone(), segment, file };
        Ok((shared, writer))
    }
}

fn make_dir(fs: &dyn Fs, dir: &Path) -> Result<(), LogError> {
    if fs.exists(dir).map_err(LogError::io("look for", dir))? {
        return Ok(());
    }
    fs.create_dir_all(dir).map_err(LogError::io("create", dir))?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            fs.sync_dir(parent).map_err(LogError::io("sync", parent))
        }
        _ => Ok(()),
    }
}

fn take_lock(fs: &dyn Fs, dir: &Path) -> Result<Box<dyn Send + Sync>, LogError> {
    let path = dir.join("LOCK");
    fs.lock(&path).map_err(|error| match error.get_ref().and_then(|e| e.downcast_ref::<Locked>()) {
        Some(locked) => LogError::InUse(locked.clone()),
        None => LogError::io("lock", path)(error),
    })
}

/// A random number without a dependency: the standard library seeds its hashers with one.
fn random_id() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

struct Opening {
    files: Files,
    reserve: Reserve,
    counters: Counters,
    options: LogOptions,
}

impl Opening {
    /// Cuts the tail, begins a new segment with a raised incarnation, and removes what is left over.
    fn begin(&mut self, found: Recovered) -> Result<(State, u64, Arc<dyn undb_vfs::File>), LogError> {
        let log_id = found.log_id.unwrap_or_else(random_id);
        let mut state = State::new(
            log_id,
            found.incarnation + 1,
            found.next_seq,
            Limits {
                segment_bytes: self.options.segment_bytes,
                frame_bytes_max: self.options.frame_bytes_max,
                cache_bytes_max: self.options.cache_bytes,
                now_ms: self.options.now_ms,
            },
        );
        if let Some((segment, end)) = &found.cut {
            tracing::warn!(segment, offset = end.offset, why = end.why, "torn tail of the log cut");
        }
        let mut empty = Vec::new();
        for segment in &found.segments {
            let id = segment.header.segment;
            if !segment.has_entries {
                empty.push(id);
            }
            state.segments.insert(id, Segment::new(segment.bytes, true, &segment.header));
        }
        state.adopt(found.groups);
        self.end_last(&mut state, found.unsealed.as_ref())?;
        // IMPORTANT: a torn beginning goes before the next segment comes: it is recognized by being the last.
        self.remove(&found.torn)?;
        let first = FirstBytes::new(state.begin(found.next_segment));
        let preallocate = if self.options.preallocate { self.options.segment_bytes } else { 0 };
        let file = self.with_room("begin", first.segment, |this| {
            first.write(&this.files, preallocate, &this.counters)
        })?;
        state.durable_seq = first.mark_seq;
        self.files.begin_tail(first.segment, first.end);
        self.remove(&empty)?;
        state.segments.retain(|id, _| !empty.contains(id));
        let held = self.reserve.hold().map_err(LogError::io("reserve space in", &self.files.dir))?;
        state.full = !held;
        self.counters.full(state.full);
        Ok((state, first.segment, file))
    }

    /// Makes durable what was found in the last segment, and seals it.
    ///
    /// IMPORTANT: after a kill -9 all of it, the footer included, may be in the page cache only; the next
    /// segment's existence will say that it is durable.
    fn end_last(&self, state: &mut State, unsealed: Option<&Footer>) -> Result<(), LogError> {
        let footer = unsealed.map(|footer| footer_bytes(footer, state.log_id));
        let Some(mut last) = state.segments.last_entry() else { return Ok(()) };
        let id = *last.key();
        let len = self.with_room("seal", id, |this| {
            let file = this.files.fs.open(&this.files.path(id), OpenHow::Write)?;
            sync(&*file, &this.counters)?;
            match &footer {
                Some((bytes, at)) => seal(&*file, bytes, *at, &this.counters),
                None => file.len(),
            }
        })?;
        last.get_mut().bytes = len;
        Ok(())
    }

    fn remove(&self, segments: &[u64]) -> Result<(), LogError> {
        for segment in segments {
            let path = self.files.path(*segment);
            self.files.fs.remove_file(&path).map_err(LogError::io("remove", path))?;
        }
        match segments.is_empty() {
            true => Ok(()),
            false => self.files.fs.sync_dir(&self.files.dir).map_err(LogError::io("sync", &self.files.dir)),
        }
    }

    /// Runs an operation; on a full disk once more without the reserve of an earlier run.
    fn with_room<T>(
        &self,
        action: &'static str,
        segment: u64,
        mut operation: impl FnMut(&Self) -> std::io::Result<T>,
    ) -> Result<T, LogError> {
        let mut result = operation(self);
        if result.as_ref().is_err_and(is_disk_full) && self.reserve.release_leftover() {
            result = operation(self);
        }
        result.map_err(|error| match is_disk_full(&error) {
            true => LogError::DiskFull { dir: self.files.dir.clone() },
            false => LogError::io(action, self.files.path(segment))(error),
        })
    }
}
