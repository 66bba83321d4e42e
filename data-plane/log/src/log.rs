//! The log's face.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use undb_types::{GroupId, LogId};
use undb_vfs::Fs;

use crate::{LogError, LogOptions};

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

/// The log of one store. Clones share it.
#[derive(Clone)]
pub struct Log(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    groups: BTreeMap<GroupId, Group>,
    bytes: BytesMut,
}

#[derive(Default)]
struct Group {
    state: GroupState,
    entries: BTreeMap<u64, (Entry, EntryLocation)>,
}

impl Group {
    fn set_last(&mut self) {
        self.state.last = self.entries.values().next_back().map(|(e, _)| e.id).or(self.state.purged);
    }
}

impl Log {
    pub fn open(_fs: Arc<dyn Fs>, _dir: &Path, _options: LogOptions) -> Result<Log, LogError> {
        Ok(Log(Arc::default()))
    }
    pub fn groups(&self) -> Vec<GroupId> {
        self.0.lock().groups.keys().copied().collect()
    }
    pub fn state(&self, group: GroupId) -> GroupState {
        self.0.lock().groups.get(&group).map(|g| g.state.clone()).unwrap_or_default()
    }
    pub fn append(&self, group: GroupId, entries: Vec<Entry>, done: Done) {
        {
            let mut inner = self.0.lock();
            let inner = &mut *inner;
            let g = inner.groups.entry(group).or_default();
            for entry in entries {
                let at = EntryLocation {
                    segment: 1,
                    offset: inner.bytes.len() as u64,
                    len: entry.payload.len() as u32,
                };
                inner.bytes.extend_from_slice(&entry.payload);
                g.entries.insert(entry.id.index, (entry, at));
            }
            g.set_last();
        }
        done(Ok(()));
    }
    pub fn save_vote(&self, group: GroupId, vote: Bytes, done: Done) {
        self.0.lock().groups.entry(group).or_default().state.vote = Some(vote);
        done(Ok(()));
    }
    pub fn save_committed(&self, group: GroupId, id: Option<LogId>) {
        self.0.lock().groups.entry(group).or_default().state.committed = id;
    }
    pub fn truncate_after(&self, group: GroupId, last: Option<LogId>, done: Done) {
        {
            let mut inner = self.0.lock();
            let g = inner.groups.entry(group).or_default();
            g.entries.retain(|index, _| last.is_some_and(|last| *index <= last.index));
            g.set_last();
        }
        done(Ok(()));
    }
    pub fn purge(&self, group: GroupId, upto: LogId, done: Done) {
        {
            let mut inner = self.0.lock();
            let g = inner.groups.entry(group).or_default();
            g.entries.retain(|index, _| *index > upto.index);
            g.state.purged = g.state.purged.max(Some(upto));
            g.set_last();
        }
        done(Ok(()));
    }
    pub fn drop_group(&self, group: GroupId, done: Done) {
        self.0.lock().groups.remove(&group);
        done(Ok(()));
    }
    pub fn read(&self, group: GroupId, range: Range<u64>, bytes_max: usize) -> Result<Vec<Entry>, LogError> {
        let inner = self.0.lock();
        let mut out = Vec::new();
        let mut bytes = 0;
        for (entry, _) in inner.groups.get(&group).iter().flat_map(|g| g.entries.range(range.clone())).map(|e| e.1) {
            bytes += entry.payload.len();
            if !out.is_empty() && bytes > bytes_max {
                break;
            }
            out.push(entry.clone());
        }
        Ok(out)
    }
    pub fn locate(&self, group: GroupId, index: u64) -> Option<EntryLocation> {
        Some(self.0.lock().groups.get(&group)?.entries.get(&index)?.1)
    }
    pub fn durable_index(&self, group: GroupId) -> Option<u64> {
        self.state(group).last.map(|id| id.index)
    }
    pub fn wait_durable(&self, _group: GroupId, _index: u64) -> Result<(), LogError> {
        Ok(())
    }
    pub fn read_at(&self, segment: u64, offset: u64, len: usize) -> Result<Bytes, LogError> {
        let inner = self.0.lock();
        let end = offset as usize + len;
        match inner.bytes.get(offset as usize..end) {
            Some(bytes) => Ok(Bytes::copy_from_slice(bytes)),
            None => Err(LogError::SegmentGone { segment }),
        }
    }
    pub fn segments(&self) -> Vec<SegmentInfo> {
        Vec::new()
    }
    pub fn pin(&self, _segment: u64) -> bool {
        true
    }
    pub fn unpin(&self, _segment: u64) {}
    pub fn delete_segment(&self, _segment: u64) -> Result<bool, LogError> {
        Ok(false)
    }
    pub fn retained_bytes(&self, group: GroupId) -> u64 {
        let inner = self.0.lock();
        inner.groups.get(&group).map_or(0, |g| g.entries.values().map(|(_, at)| u64::from(at.len)).sum())
    }
    pub fn total_bytes(&self) -> u64 {
        self.0.lock().bytes.len() as u64
    }
    pub fn poisoned(&self) -> Option<String> {
        None
    }
    pub fn counters(&self) -> LogCounters {
        LogCounters::default()
    }
    pub fn flush(&self) -> Result<(), LogError> {
        Ok(())
    }
    pub fn close(self) {}
}
