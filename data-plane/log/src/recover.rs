//! What a directory holds, decided before anything in it is changed.
//!
//! ```text
//!   segments, ascending:   sealed ... sealed | last: sealed by a clean close, or open at a crash | torn?
//! ```
//! - The newest segment may be *torn at its beginning*: header or checkpoint did not reach the disk. A frame
//!   behind the checkpoint proves that they did (the mark, written after their sync).
//! - In the last segment frames count up to the first bad one. Had a bad frame been synced, a later frame may
//!   carry a durable_seq that says so: corruption. Else it is the tail of a crash, and is cut.
//! - Every other segment was synced whole before its successor was begun: any bad frame is corruption.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use undb_types::GroupId;
use undb_vfs::Fs;

use crate::LogError;
use crate::format::{Footer, FooterGroup, Record, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::group::Group;
use crate::replay::Replay;
use crate::scan::{Bodies, FramesEnd, MISPLACED, ScannedFrame, SegmentFile, list_segments};

/// A directory's log, and what must be done before it may be appended to.
pub(crate) struct Recovered {
    /// `None`: there is no log yet.
    pub log_id: Option<u64>,
    /// The highest seen.
    pub incarnation: u64,
    pub next_segment: u64,
    pub next_seq: u64,
    pub groups: BTreeMap<GroupId, Group>,
    pub segments: Vec<FoundSegment>,
    /// The last segment, when it has no footer: sync it, write this one.
    pub unsealed: Option<Footer>,
    /// Segments that were never begun for good.
    pub torn: Vec<u64>,
    /// Bytes behind the last good frame that are not zero and will be cut: where, and why.
    pub cut: Option<(u64, FramesEnd)>,
}

pub(crate) struct FoundSegment {
    pub header: SegmentHeader,
    /// Bytes in use.
    pub bytes: u64,
    pub has_entries: bool,
}

struct Known {
    id: u64,
    len: u64,
    header: SegmentHeader,
    footer: Option<Footer>,
}

/// Reads a directory. Never writes.
pub(crate) fn recover(fs: &dyn Fs, dir: &Path) -> Result<Recovered, LogError> {
    let ids = list_segments(fs, dir)?;
    let next_segment = ids.last().map_or(1, |id| id + 1);
    let mut known = Vec::with_capacity(ids.len());
    let mut torn = Vec::new();
    // What a torn successor with a good header proves about its predecessor.
    let mut durable = None;
    for (i, id) in ids.iter().enumerate() {
        let file = SegmentFile::open(fs, dir, *id)?;
        let expected = known.first().map(|first: &Known| first.header.log_id);
        if let (Ok(header), Some(expected)) = (&file.header, expected)
            && header.log_id != expected
        {
            return Err(LogError::Foreign { segment: *id, found: header.log_id, expected });
        }
        if i + 1 == ids.len() && is_torn(&file)? {
            durable = file.header.ok().map(|header| header.first_seq.saturating_sub(1));
            torn.push(*id);
            continue;
        }
        let header = file.header.map_err(|what| file.corrupt(0, what))?;
        known.push(Known { id: *id, len: file.len, header, footer: file.footer(header.log_id)? });
    }
    let Some(last) = known.last() else {
        return Ok(Recovered {
            log_id: None,
            incarnation: 0,
            next_segment,
            next_seq: 1,
            groups: BTreeMap::new(),
            segments: Vec::new(),
            unsealed: None,
            torn,
            cut: None,
        });
    };
    check_order(&known)?;
    let tail = read_last(fs, dir, last, durable)?;
    let groups = replay(fs, dir, &known, &tail)?;
    let unsealed = last.footer.is_none().then(|| tail.footer(&last.header));
    let segments = known.iter().map(|segment| {
        let of_last = unsealed.as_ref().filter(|footer| footer.segment == segment.id);
        FoundSegment {
            header: segment.header,
            bytes: if of_last.is_some() { tail.end.offset } else { segment.len },
            // Without a footer of its own an older segment is taken to have some.
            has_entries: segment.footer.as_ref().or(of_last).is_none_or(|f| !f.groups.is_empty()),
        }
    });
    Ok(Recovered {
        log_id: Some(last.header.log_id),
        incarnation: known.iter().map(|segment| segment.header.incarnation).max().unwrap_or(0),
        next_segment,
        next_seq: tail.end.next_seq,
        groups,
        segments: segments.collect(),
        cut: tail.cut.then(|| (last.id, tail.end.clone())),
        unsealed,
        torn,
    })
}

/// True when the newest segment was never begun for good.
fn is_torn(file: &SegmentFile) -> Result<bool, LogError> {
    let behind_checkpoint = SEGMENT_HEADER_LEN as u64 + 1;
    let (log_id, offset, why) = match &file.header {
        Err(what) if *what == MISPLACED => return Err(file.corrupt(0, *what)),
        Err(what) => (None, 0, (*what).to_owned()),
        Ok(header) => {
            let mut good = false;
            let end = file.frames(header, file.len, Bodies::Verify, |_| {
                good = true;
                ControlFlow::Break(())
            })?;
            if good {
                return Ok(false);
            }
            (Some(header.log_id), end.offset, end.why)
        }
    };
    match file.durable_evidence(behind_checkpoint, log_id)? {
        Some(_) => Err(file.corrupt(offset, why)),
        None => Ok(true),
    }
}

/// Neighbours fit together, and only the last may be without a footer (unless its end can be proven).
fn check_order(known: &[Known]) -> Result<(), LogError> {
    for pair in known.windows(2) {
        let (this, next) = (&pair[0], &pair[1]);
        let corrupt =
            |what: &str| LogError::Corrupt { segment: this.id, offset: this.len, what: what.into() };
        let adjacent = this.id + 1 == next.id;
        match &this.footer {
            None if !adjacent => {
                return Err(corrupt(
                    "footer unreadable and the next segment deleted: its end cannot be proven",
                ));
            }
            Some(footer) if adjacent && footer.last_seq + 1 != next.header.first_seq => {
                return Err(corrupt("its last frame and the first of the next segment do not meet"));
            }
            _ => {}
        }
        if this.header.first_seq >= next.header.first_seq {
            return Err(corrupt("segments out of order"));
        }
    }
    Ok(())
}

struct Tail {
    frames: Vec<ScannedFrame>,
    end: FramesEnd,
    cut: bool,
}

impl Tail {
    fn footer(&self, header: &SegmentHeader) -> Footer {
        let mut groups = BTreeMap::new();
        for record in self.frames.iter().flat_map(|frame| &frame.records) {
            if let Record::Entries { start, entries } = record {
                let bytes = entries.iter().map(|entry| u64::from(entry.len)).sum();
                count_run(&mut groups, start.group, start.index, entries.len() as u64, bytes);
            }
        }
        Footer {
            segment: header.segment,
            frames_end: self.end.offset,
            first_seq: header.first_seq,
            last_seq: self.end.next_seq - 1,
            incarnation: header.incarnation,
            groups: groups.into_iter().collect(),
        }
    }
}

/// Adds a run of entries to a segment's statistics.
pub(crate) fn count_run(
    groups: &mut BTreeMap<GroupId, FooterGroup>,
    group: GroupId,
    first: u64,
    entries: u64,
    bytes: u64,
) {
    let fresh = FooterGroup { first, last: first, entries: 0, bytes: 0 };
    let range = groups.entry(group).or_insert(fresh);
    range.first = range.first.min(first);
    range.last = range.last.max(first + entries - 1);
    range.entries += entries;
    range.bytes += bytes;
}

/// All frames of the last segment, and where they end.
fn read_last(fs: &dyn Fs, dir: &Path, last: &Known, durable: Option<u64>) -> Result<Tail, LogError> {
    let file = SegmentFile::open(fs, dir, last.id)?;
    let mut frames = Vec::new();
    let keep = |frame| {
        frames.push(frame);
        ControlFlow::Continue(())
    };
    if let Some(footer) = &last.footer {
        let end = file.frames(&last.header, footer.frames_end, Bodies::Skip, keep)?;
        check_sealed(&file, footer, &end)?;
        return Ok(Tail { frames, end, cut: false });
    }
    let end = file.frames(&last.header, file.len, Bodies::Verify, keep)?;
    let evidence = file.durable_evidence(end.offset, Some(last.header.log_id))?.max(durable);
    if evidence.is_some_and(|durable_seq| durable_seq >= end.next_seq) {
        return Err(file.corrupt(end.offset, format!("{}; it had been synced", end.why)));
    }
    let cut = !file.is_zero_from(end.offset)?;
    Ok(Tail { frames, end, cut })
}

fn check_sealed(file: &SegmentFile, footer: &Footer, end: &FramesEnd) -> Result<(), LogError> {
    if end.offset != footer.frames_end || end.next_seq != footer.last_seq + 1 {
        return Err(file.corrupt(end.offset, end.why.clone()));
    }
    Ok(())
}

/// Adds the segments up, oldest first, passing over those that no group needs.
fn replay(
    fs: &dyn Fs,
    dir: &Path,
    known: &[Known],
    tail: &Tail,
) -> Result<BTreeMap<GroupId, Group>, LogError> {
    let Some((last, older)) = known.split_last() else { return Ok(BTreeMap::new()) };
    let log_id = last.header.log_id;
    let add_tail = |replay: &mut Replay| {
        tail.frames.iter().enumerate().for_each(|(i, frame)| replay.frame(log_id, frame, i == 0));
    };
    let mut newest = Replay::default();
    add_tail(&mut newest);
    let floors = newest.floors();
    let needs = |(group, range): &(GroupId, FooterGroup)| {
        floors.get(group).is_some_and(|floor| floor.is_none_or(|floor| range.last > floor))
    };
    let mut replay = Replay::default();
    for (i, segment) in older.iter().enumerate() {
        if segment.footer.as_ref().is_some_and(|footer| !footer.groups.iter().any(needs)) {
            continue;
        }
        let file = SegmentFile::open(fs, dir, segment.id)?;
        let mut first = true;
        let limit = segment.footer.as_ref().map_or(file.len, |footer| footer.frames_end);
        let end = file.frames(&segment.header, limit, Bodies::Skip, |frame| {
            replay.frame(log_id, &frame, std::mem::take(&mut first));
            ControlFlow::Continue(())
        })?;
        match &segment.footer {
            Some(footer) => check_sealed(&file, footer, &end)?,
            None if end.next_seq != known[i + 1].header.first_seq => {
                return Err(file.corrupt(end.offset, end.why));
            }
            None => {
                tracing::warn!(segment = segment.id, "segment footer unreadable, frames are complete");
            }
        }
    }
    add_tail(&mut replay);
    replay.finish().map_err(|missing| {
        let (segment, offset) = missing.near.unwrap_or((last.id, tail.end.offset));
        let what = format!("entry {} of group {} is missing near here", missing.index, missing.group);
        LogError::Corrupt { segment, offset, what }
    })
}
