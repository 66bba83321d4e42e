//! The log's face.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use undb_types::{GroupId, LogId};
use undb_vfs::Fs;

use crate::format::Record;
use crate::shared::Shared;
use crate::state::State;
use crate::{LogError, LogOptions};

/// Largest payload of one entry.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;
/// Largest vote.
pub const VOTE_BYTES_MAX: usize = 64 << 10;

/// One entry of a group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position.
    pub id: LogId,
    /// What the payload is; opaque to the log.
    pub kind: u8,
    /// Opaque to the log.
    pub payload: Bytes,
}

/// Where an entry's payload lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryLocation {
    /// Which segment.
    pub segment: u64,
    /// Of the payload's first byte in the segment file.
    pub offset: u64,
    /// Of the payload, in bytes.
    pub len: u32,
}

/// What a group's log holds besides its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Entries up to here are gone.
    pub purged: Option<LogId>,
    /// The last entry, or `purged` when there is none behind it.
    pub last: Option<LogId>,
    /// Opaque.
    pub vote: Option<Bytes>,
    /// A lower bound of what is committed; saved lazily.
    pub committed: Option<LogId>,
}

/// One segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its id; later segments have larger ones.
    pub id: u64,
    /// Bytes in use in the file.
    pub bytes: u64,
    /// Nothing is appended to it any more.
    pub sealed: bool,
    /// Sealed, and every group in it is past it, durably.
    pub purgeable: bool,
    /// Entries in it that a group still counts on.
    pub live_entries: u64,
    /// Pins held.
    pub pins: u32,
    /// Temperature class.
    pub class: u8,
    /// Since the segment began.
    pub age: Duration,
}

/// Totals since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Bytes of payloads appended.
    pub payload_bytes: u64,
    /// Bytes written to segment files: payloads, frames, headers, footers, checkpoints.
    pub written_bytes: u64,
    /// Syncs of segment files and of the directory.
    pub syncs: u64,
    /// Frames written.
    pub frames: u64,
    /// Entries appended.
    pub entries: u64,
    /// Segments begun.
    pub segments: u64,
}

/// Called on the writer thread once durable (or failed), in the order of the calls that took them.
pub type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// The log of one store. Clones share it; it is closed with the last of them.
///
/// Writing calls return at once and are ordered among themselves: what is called first is durable first and
/// is called back first. Their effect is visible to reads at once.
#[derive(Clone)]
pub struct Log(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("dir", &self.0.shared.files.dir).finish_non_exhaustive()
    }
}

impl Log {
    /// Opens the log in `dir`, or creates it. Fails without having changed anything when what is there is
    /// damaged, foreign, newer or in use.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path, options: LogOptions) -> Result<Log, LogError> {
        let (shared, writer) = Shared::open(fs, dir, options)?;
        let thread = std::thread::Builder::new()
            .name("undb-log".into())
            .spawn(move || writer.run())
            .map_err(LogError::io("start the writer of", dir))?;
        let _ = shared.writer_thread.set(thread.thread().id());
        Ok(Log(Arc::new(Handle { shared, thread: Mutex::new(Some(thread)) })))
    }

    fn state_mut(&self) -> MutexGuard<'_, State> {
        self.0.shared.state.lock()
    }

    /// Groups that have a state or entries.
    pub fn groups(&self) -> Vec<GroupId> {
        self.state_mut().groups.keys().copied().collect()
    }

    /// What a group's log holds; a group that was never written has nothing.
    pub fn state(&self, group: GroupId) -> GroupState {
        self.state_mut().groups.get(&group).map(|group| group.state()).unwrap_or_default()
    }

    /// Appends entries that follow the group's last one, or replace it and those behind the first of them.
    ///
    /// Readable at once; `done` is called when synced. Waits while too much is queued. On a full disk it is
    /// refused with [`LogError::DiskFull`] and nothing is changed.
    pub fn append(&self, group: GroupId, entries: Vec<Entry>, done: Done) {
        // Outside the lock: this is most of the work beside the copy.
        let crcs: Vec<u32> = entries.iter().map(|entry| crc32c::crc32c(&entry.payload)).collect();
        let mut state = self.wait_for_queue();
        if state.full {
            drop(state);
            self.retry_reserve();
            state = self.state_mut();
        }
        match self.refuse_append(&state, group, &entries) {
            Some(error) => self.refuse(state, done, error),
            None => {
                state.append(group, entries, &crcs);
                self.enqueue(state, done);
            }
        }
    }

    /// Saves a vote.
    pub fn save_vote(&self, group: GroupId, vote: Bytes, done: Done) {
        let mut state = self.state_mut();
        if vote.len() > VOTE_BYTES_MAX {
            let error = LogError::TooLarge { what: "vote", bytes: vote.len(), max: VOTE_BYTES_MAX };
            return self.refuse(state, done, error);
        }
        if let Some(error) = refuse_group(&state, group) {
            return self.refuse(state, done, error);
        }
        state.record(&Record::Vote(group, vote.clone()), vote.len());
        state.groups.entry(group).or_default().vote = Some(vote);
        self.enqueue(state, done);
    }

    /// Saves what is committed with whatever is written next; costs no sync of its own.
    pub fn save_committed(&self, group: GroupId, id: Option<LogId>) {
        let mut state = self.state_mut();
        if refuse_group(&state, group).is_none() {
            state.set_committed(group, id);
        }
    }

    /// Removes the entries behind `last`; `None`: all.
    pub fn truncate_after(&self, group: GroupId, last: Option<LogId>, done: Done) {
        let mut state = self.state_mut();
        if let Some(error) = refuse_group(&state, group) {
            return self.refuse(state, done, error);
        }
        let from = last.map_or(0, |last| last.index.saturating_add(1));
        if state.groups.get(&group).is_some_and(|group| group.end() > from) {
            let seq = state.record(&Record::Truncate(group, last), 0);
            state.cut(group, seq, |group, gone| group.truncate_from(from, gone));
        }
        self.enqueue(state, done);
    }

    /// Declares the entries up to `upto` not needed any more. Their bytes stay until the segment is deleted.
    pub fn purge(&self, group: GroupId, upto: LogId, done: Done) {
        let mut state = self.state_mut();
        if let Some(error) = refuse_group(&state, group) {
            return self.refuse(state, done, error);
        }
        let purged = state.groups.get(&group).and_then(|group| group.purged);
        if purged.is_none_or(|purged| purged.index < upto.index) {
            let seq = state.record(&Record::Purge(group, upto), 0);
            state.cut(group, seq, |group, gone| group.purge(upto, gone));
            state.evict();
        }
        self.enqueue(state, done);
    }

    /// Forgets a group. Its id must never be used again.
    pub fn drop_group(&self, group: GroupId, done: Done) {
        let mut state = self.state_mut();
        if let Some(error) = state.refusal() {
            return self.refuse(state, done, error);
        }
        if state.groups.contains_key(&group) {
            let seq = state.record(&Record::Drop(group), 0);
            state.remove_group(group, seq);
            state.evict();
        } else {
            state.dropped.insert(group);
        }
        self.enqueue(state, done);
    }

    /// Where an entry's payload lies, or will lie once written.
    pub fn locate(&self, group: GroupId, index: u64) -> Option<EntryLocation> {
        Some(self.state_mut().groups.get(&group)?.get(index)?.public())
    }

    /// The highest index that is durable, purged ones included. A rotated memtable is flushed only when the
    /// log is durable through its last entry.
    pub fn durable_index(&self, group: GroupId) -> Option<u64> {
        let state = self.state_mut();
        let group = state.groups.get(&group)?;
        group.durable.max(group.purged.map(|purged| purged.index))
    }

    /// Waits until an entry that was appended is durable. Not to be called from a [`Done`].
    pub fn wait_durable(&self, id: GroupId, index: u64) -> Result<(), LogError> {
        let mut state = self.state_mut();
        loop {
            let group = state.groups.get(&id).ok_or(LogError::NoEntry { group: id, index })?;
            if group.durable.max(group.purged.map(|purged| purged.index)) >= Some(index) {
                return Ok(());
            }
            if group.end() <= index {
                return Err(LogError::NoEntry { group: id, index });
            }
            if let Some(why) = &state.poisoned {
                return Err(LogError::Poisoned(why.clone()));
            }
            if state.ended {
                return Err(LogError::Closed);
            }
            self.0.shared.durable.wait(&mut state);
        }
    }

    /// Waits until everything so far is durable, what is saved lazily included.
    pub fn flush(&self) -> Result<(), LogError> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let mut state = self.state_mut();
        state.write_lazy();
        let done: Done = Box::new(move |result| drop(sender.send(result)));
        match state.refusal() {
            Some(error) => self.refuse(state, done, error),
            None => self.enqueue(state, done),
        }
        match receiver.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(LogError::of(&error).cloned().unwrap_or(LogError::Closed)),
            Err(_) => Err(LogError::Closed),
        }
    }

    /// Why nothing is acknowledged any more, if so.
    pub fn poisoned(&self) -> Option<String> {
        self.state_mut().poisoned.clone()
    }

    /// True while appends are refused for want of space.
    pub fn is_full(&self) -> bool {
        self.state_mut().full
    }

    /// Totals since the log was opened.
    pub fn counters(&self) -> LogCounters {
        self.0.shared.counters.read()
    }

    /// Writes what is queued, seals the segment and ends the writer. Dropping the last clone does the same.
    pub fn close(self) {
        self.0.close();
    }

    fn wait_for_queue(&self) -> MutexGuard<'_, State> {
        let shared = &self.0.shared;
        let mut state = shared.state.lock();
        // The writer's callbacks may append; it must not wait for itself.
        let may_wait = shared.writer_thread.get() != Some(&std::thread::current().id());
        while may_wait
            && state.queued_bytes > shared.options.queue_bytes_max
            && state.refusal().is_none()
            && !state.full
        {
            shared.room.wait(&mut state);
        }
        state
    }

    /// After a full disk: takes the reserve again if there is room, and ends the refusals.
    fn retry_reserve(&self) {
        let shared = &self.0.shared;
        if let Ok(true) = shared.reserve.hold() {
            tracing::info!("disk has room again, appends are accepted");
            shared.counters.full(false);
            shared.state.lock().full = false;
        }
    }

    fn refuse_append(&self, state: &State, id: GroupId, entries: &[Entry]) -> Option<LogError> {
        if let Some(error) = refuse_group(state, id) {
            return Some(error);
        }
        if state.full {
            return Some(LogError::DiskFull { dir: self.0.shared.files.dir.clone() });
        }
        let large = entries.iter().map(|entry| entry.payload.len()).find(|len| *len > ENTRY_BYTES_MAX);
        if let Some(bytes) = large {
            return Some(LogError::TooLarge { what: "entry", bytes, max: ENTRY_BYTES_MAX });
        }
        let mut last = None;
        for index in entries.iter().map(|entry| entry.id.index) {
            let follows = match last {
                None => state.groups.get(&id).is_none_or(|group| group.accepts(index)),
                Some(last) => Some(index) == u64::checked_add(last, 1),
            };
            if !follows {
                let group_last = state.groups.get(&id).and_then(|group| group.last()).map(|id| id.index);
                return Some(LogError::Gap { group: id, index, last: last.or(group_last) });
            }
            last = Some(index);
        }
        None
    }

    fn enqueue(&self, mut state: MutexGuard<'_, State>, done: Done) {
        state.on_durable(done);
        drop(state);
        self.0.shared.work.notify_one();
    }

    fn refuse(&self, mut state: MutexGuard<'_, State>, done: Done, error: LogError) {
        if state.ended {
            drop(state);
            return done(Err(error.into()));
        }
        state.refuse(done, error);
        drop(state);
        self.0.shared.work.notify_one();
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }
}

fn refuse_group(state: &State, group: GroupId) -> Option<LogError> {
    let refusal = state.refusal();
    refusal.or_else(|| state.dropped.contains(&group).then_some(LogError::Dropped { group }))
}

impl Handle {
    fn close(&self) {
        self.shared.state.lock().closing = true;
        self.shared.work.notify_one();
        self.shared.room.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic there has poisoned the log and was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
