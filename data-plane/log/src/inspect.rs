//! Reads the segment files of a log that is not open: for people and for `undb inspect`. Never writes, and
//! goes on behind damage where it can.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use undb_types::{GroupId, LogId};
use undb_vfs::Fs;

use crate::format::{FRAME_HEADER_LEN, Footer, FrameHeader, Record, SegmentHeader};
use crate::scan::{Bodies, FramesEnd, ScannedFrame, SegmentFile, list_segments};
use crate::{EntryLocation, GroupState, LogError};

/// One segment file.
#[derive(Clone, Debug)]
pub struct SegmentReport {
    /// Its id, by its name.
    pub id: u64,
    /// Its file.
    pub path: PathBuf,
    /// Length of the file; a segment that is not sealed is preallocated.
    pub file_bytes: u64,
    /// Its header, or what is wrong with it.
    pub header: Result<SegmentHeader, &'static str>,
    /// Its footer; `None`: not sealed, or not readable.
    pub footer: Option<Footer>,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameReport {
    /// Its header.
    pub header: FrameHeader,
    /// What its directory says, in order.
    pub records: Vec<Record>,
}

/// One entry in a segment, whether it still counts or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryReport {
    /// Whose.
    pub group: GroupId,
    /// Its position.
    pub id: LogId,
    /// Opaque.
    pub kind: u8,
    /// Where the payload lies.
    pub location: EntryLocation,
}

/// All frames of a segment, and where they end.
#[derive(Clone, Debug)]
pub struct SegmentFrames {
    /// The good ones, in order.
    pub frames: Vec<FrameReport>,
    /// Offset behind the last good frame.
    pub end: u64,
    /// Why there is none behind.
    pub why: String,
    /// True when the frames end where the footer says.
    pub complete: bool,
}

/// What the log would hold if it were opened.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Random id of the log; `None`: there is none.
    pub log_id: Option<u64>,
    /// Raised by each open.
    pub incarnation: u64,
    /// Groups and their states.
    pub groups: Vec<(GroupId, GroupState)>,
    /// Segment and offset where a torn tail would be cut, and why.
    pub cut: Option<(u64, u64, String)>,
    /// Segments whose beginning never reached the disk.
    pub torn: Vec<u64>,
}

/// The segments of a log directory, ascending.
pub fn segments(fs: &dyn Fs, dir: &Path) -> Result<Vec<SegmentReport>, LogError> {
    let mut reports = Vec::new();
    for id in list_segments(fs, dir)? {
        let file = SegmentFile::open(fs, dir, id)?;
        let footer = match &file.header {
            Ok(header) => file.footer(header.log_id)?,
            Err(_) => None,
        };
        let SegmentFile { path, len, header, .. } = file;
        reports.push(SegmentReport { id, path, file_bytes: len, header, footer });
    }
    Ok(reports)
}

/// The frames of one segment; every payload is verified.
pub fn frames(fs: &dyn Fs, dir: &Path, segment: u64) -> Result<SegmentFrames, LogError> {
    let file = SegmentFile::open(fs, dir, segment)?;
    let header = file.header.map_err(|what| file.corrupt(0, what))?;
    let footer = file.footer(header.log_id)?;
    let limit = footer.as_ref().map_or(file.len, |footer| footer.frames_end);
    let mut frames = Vec::new();
    let FramesEnd { offset, why, .. } = file.frames(&header, limit, Bodies::Verify, |frame| {
        let ScannedFrame { header, records } = frame;
        frames.push(FrameReport { header, records });
        ControlFlow::Continue(())
    })?;
    let complete = footer.is_some_and(|footer| footer.frames_end == offset);
    Ok(SegmentFrames { frames, end: offset, why, complete })
}

impl FrameReport {
    /// The entries of this frame.
    pub fn entries(&self) -> Vec<EntryReport> {
        let mut offset = self.header.offset + FRAME_HEADER_LEN as u64;
        let mut reports = Vec::new();
        for record in &self.records {
            let Record::Entries { start, entries } = record else { continue };
            for (i, entry) in entries.iter().enumerate() {
                let index = start.index + i as u64;
                let location = EntryLocation { segment: self.header.segment, offset, len: entry.len };
                let id = LogId { term: start.term, leader: start.leader, index };
                reports.push(EntryReport { group: start.group, id, kind: entry.kind, location });
                offset += u64::from(entry.len);
            }
        }
        reports
    }
}

/// The payload of an entry.
pub fn payload(fs: &dyn Fs, dir: &Path, at: EntryLocation) -> Result<Bytes, LogError> {
    let file = SegmentFile::open(fs, dir, at.segment)?;
    if at.offset.checked_add(u64::from(at.len)).is_none_or(|end| end > file.len) {
        return Err(file.corrupt(at.offset, "the file ends before"));
    }
    file.read(at.offset, at.len as usize).map(Bytes::from)
}

/// Adds a whole directory up as an open would, without changing it.
pub fn summary(fs: &dyn Fs, dir: &Path) -> Result<Summary, LogError> {
    let found = crate::recover::recover(fs, dir)?;
    Ok(Summary {
        log_id: found.log_id,
        incarnation: found.incarnation,
        groups: found.groups.iter().map(|(id, group)| (*id, group.state())).collect(),
        cut: found.cut.map(|(segment, end)| (segment, end.offset, end.why)),
        torn: found.torn,
    })
}
