//! Reading entries and bytes, and the life of segments.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use undb_types::GroupId;

use crate::LogError;
use crate::group::Location;
use crate::log::{Entry, Log, SegmentInfo};
use crate::state::State;

/// An entry that was asked for: its payload, or where it lies.
struct Wanted {
    index: u64,
    at: Location,
    payload: Option<Bytes>,
}

impl Log {
    /// The entries of a range that are there, in order, while their payloads stay within `bytes_max`; at
    /// least one if there is one. Payloads that are not in memory are read and verified.
    pub fn read(&self, id: GroupId, range: Range<u64>, bytes_max: usize) -> Result<Vec<Entry>, LogError> {
        let (wanted, pinned) = {
            let mut state = self.shared().state.lock();
            let wanted = choose(&state, id, range, bytes_max);
            let mut pinned: Vec<u64> =
                wanted.iter().filter(|w| w.payload.is_none()).map(|w| w.at.segment).collect();
            pinned.dedup();
            for segment in &pinned {
                pin(&mut state, *segment);
            }
            (wanted, pinned)
        };
        let entries = self.fill(wanted);
        if !pinned.is_empty() {
            let mut state = self.shared().state.lock();
            pinned.iter().for_each(|segment| unpin(&mut state, *segment));
        }
        entries
    }

    /// The same without touching a file, for threads that must not wait for one: `None` if a payload is not
    /// in memory.
    pub fn read_cached(&self, id: GroupId, range: Range<u64>, bytes_max: usize) -> Option<Vec<Entry>> {
        let wanted = choose(&self.shared().state.lock(), id, range, bytes_max);
        let entry = |wanted: Wanted| {
            Some(Entry { id: wanted.at.log_id(wanted.index), kind: wanted.at.kind, payload: wanted.payload? })
        };
        wanted.into_iter().map(entry).collect()
    }

    /// Reads the payloads that are not in memory; neighbours with one read.
    fn fill(&self, mut wanted: Vec<Wanted>) -> Result<Vec<Entry>, LogError> {
        let mut i = 0;
        while i < wanted.len() {
            if wanted[i].payload.is_some() {
                i += 1;
                continue;
            }
            let (segment, offset) = (wanted[i].at.segment, wanted[i].at.offset);
            let mut end = offset;
            let mut next = i;
            while let Some(Wanted { at, payload: None, .. }) = wanted.get(next)
                && (at.segment, at.offset) == (segment, end)
            {
                end += u64::from(at.len);
                next += 1;
            }
            let bytes = self.read_at(segment, offset, (end - offset) as usize)?;
            for entry in &mut wanted[i..next] {
                let from = (entry.at.offset - offset) as usize;
                let payload = bytes.slice(from..from + entry.at.len as usize);
                if crc32c::crc32c(&payload) != entry.at.crc {
                    let what = format!("checksum of entry {}", entry.index);
                    return Err(LogError::Corrupt { segment, offset: entry.at.offset, what });
                }
                entry.payload = Some(payload);
            }
            i = next;
        }
        let entry = |wanted: Wanted| Entry {
            id: wanted.at.log_id(wanted.index),
            kind: wanted.at.kind,
            payload: wanted.payload.unwrap_or_default(),
        };
        Ok(wanted.into_iter().map(entry).collect())
    }

    /// Bytes of a segment, for pointers into it. Not verified: a pointer's record carries its own checksum.
    pub fn read_at(&self, segment: u64, offset: u64, len: usize) -> Result<Bytes, LogError> {
        let shared = self.shared();
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| !shared.files.is_written(segment, end))
            && let Some(bytes) = shared.state.lock().unwritten(segment, offset, len)
        {
            return Ok(bytes);
        }
        shared.files.read(segment, offset, len).map(Bytes::from)
    }

    /// The segments that are there, ascending.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let state = self.shared().state.lock();
        let now_ms = (state.now_ms)();
        let segments = state.segments.iter().filter(|(_, segment)| !segment.deleting);
        let info = |(id, segment): (&u64, &crate::state::Segment)| SegmentInfo {
            id: *id,
            bytes: segment.bytes,
            sealed: segment.sealed,
            purgeable: segment.purgeable(state.durable_seq),
            live_entries: segment.live,
            pins: segment.pins,
            class: segment.class,
            age: Duration::from_millis(now_ms.saturating_sub(segment.created_ms)),
        };
        segments.map(info).collect()
    }

    /// Keeps a segment's file until [`Log::unpin`]; false: it is gone.
    pub fn pin(&self, segment: u64) -> bool {
        pin(&mut self.shared().state.lock(), segment)
    }

    /// Ends one pin.
    pub fn unpin(&self, segment: u64) {
        unpin(&mut self.shared().state.lock(), segment);
    }

    /// Deletes a segment's file. False: refused, since it is not sealed, a group still counts on an entry in
    /// it (or what says that none does is not durable yet), or it is pinned. True: it is gone, durably.
    pub fn delete_segment(&self, id: u64) -> Result<bool, LogError> {
        let shared = self.shared();
        {
            let mut state = shared.state.lock();
            if let Some(why) = &state.poisoned {
                return Err(LogError::Poisoned(why.clone()));
            }
            let durable_seq = state.durable_seq;
            let Some(segment) = state.segments.get_mut(&id) else { return Ok(true) };
            if !segment.purgeable(durable_seq) || segment.pins > 0 || segment.deleting {
                return Ok(false);
            }
            segment.deleting = true;
        }
        let files = &shared.files;
        files.forget(id);
        let path = files.path(id);
        if let Err(error) = files.fs.remove_file(&path) {
            if let Some(segment) = shared.state.lock().segments.get_mut(&id) {
                segment.deleting = false;
            }
            return Err(LogError::io("remove", path)(error));
        }
        shared.state.lock().segments.remove(&id);
        shared.work.notify_one();
        files.fs.sync_dir(&files.dir).map_err(LogError::io("sync", &files.dir))?;
        Ok(true)
    }

    /// Payload bytes of the group's entries that are not purged.
    pub fn retained_bytes(&self, group: GroupId) -> u64 {
        self.shared().state.lock().groups.get(&group).map_or(0, |group| group.live_bytes)
    }

    /// Bytes in use in all segments.
    pub fn total_bytes(&self) -> u64 {
        self.shared().state.lock().segments.values().map(|segment| segment.bytes).sum()
    }
}

fn choose(state: &State, id: GroupId, range: Range<u64>, bytes_max: usize) -> Vec<Wanted> {
    let Some(group) = state.groups.get(&id) else { return Vec::new() };
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut bytes = 0usize;
    for index in range.start.max(group.first)..range.end.min(group.end()) {
        let Some(at) = group.get(index) else { break };
        bytes = bytes.saturating_add(at.len as usize);
        if bytes > bytes_max && !wanted.is_empty() {
            break;
        }
        wanted.push(Wanted { index, at: *at, payload: group.cached(index).cloned() });
    }
    wanted
}

fn pin(state: &mut State, segment: u64) -> bool {
    match state.segments.get_mut(&segment) {
        Some(segment) if !segment.deleting => {
            segment.pins += 1;
            true
        }
        _ => false,
    }
}

fn unpin(state: &mut State, segment: u64) {
    if let Some(segment) = state.segments.get_mut(&segment) {
        segment.pins = segment.pins.saturating_sub(1);
    }
}
