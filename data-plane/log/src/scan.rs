//! Reading a segment file frame by frame. Never writes.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use undb_vfs::{File, Fs, OpenHow};

use crate::LogError;
use crate::files::segment_path;
use crate::format::{
    FOOTER_TRAILER_LEN, FRAME_HEADER_LEN, FRAME_MAGIC, Footer, FrameHeader, HeaderError, Record,
    SEGMENT_HEADER_LEN, SegmentHeader, durable_seq_of_plausible, salt,
};

const READ_AHEAD: usize = 64 * 1024;
const SEARCH_CHUNK: usize = 1024 * 1024;

/// A whole header in the wrong file: no crash does that.
pub(crate) const MISPLACED: &str = "segment header names another segment than the file";

/// An open segment file, and what its head says.
pub(crate) struct SegmentFile {
    pub id: u64,
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub len: u64,
    pub header: Result<SegmentHeader, &'static str>,
}

/// A frame without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScannedFrame {
    pub header: FrameHeader,
    pub records: Vec<Record>,
}

/// Where the good frames end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FramesEnd {
    pub offset: u64,
    /// What the next frame would be called.
    pub next_seq: u64,
    /// Why there is no good frame at `offset`.
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bodies {
    Verify,
    Skip,
}

impl SegmentFile {
    pub fn open(fs: &dyn Fs, dir: &std::path::Path, id: u64) -> Result<Self, LogError> {
        let path = segment_path(dir, id);
        let file = fs.open(&path, OpenHow::Read).map_err(LogError::io("open", &path))?;
        let len = file.len().map_err(LogError::io("measure", &path))?;
        let mut head = vec![0; len.min(SEGMENT_HEADER_LEN as u64) as usize];
        file.read_exact_at(&mut head, 0).map_err(LogError::io("read", &path))?;
        let header = match SegmentHeader::decode(&head) {
            Ok(header) if header.segment == id => Ok(header),
            Ok(_) => Err(MISPLACED),
            Err(HeaderError::Bad(what)) => Err(what),
            Err(HeaderError::Newer(found)) => {
                let supported = crate::format::FORMAT_VERSION;
                return Err(LogError::NewerFormat { path, found, supported });
            }
        };
        Ok(SegmentFile { id, path, file, len, header })
    }

    pub fn corrupt(&self, offset: u64, what: impl Into<String>) -> LogError {
        LogError::Corrupt { segment: self.id, offset, what: what.into() }
    }

    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset).map_err(LogError::io("read", &self.path))?;
        Ok(bytes)
    }

    /// The footer, when the file ends with a good one.
    pub fn footer(&self, log_id: u64) -> Result<Option<Footer>, LogError> {
        let Some(trailer_at) = self.len.checked_sub(FOOTER_TRAILER_LEN as u64) else { return Ok(None) };
        let trailer = self.read(trailer_at, FOOTER_TRAILER_LEN)?;
        let Some(body_len) = Footer::body_len(&trailer) else { return Ok(None) };
        let Some(begin) = trailer_at.checked_sub(body_len as u64) else { return Ok(None) };
        let bytes = self.read(begin, body_len + FOOTER_TRAILER_LEN)?;
        Ok(Footer::decode(&bytes, log_id, self.id, begin).ok())
    }

    /// Gives every good frame to `each`, in order, until one is bad, `limit` is reached or `each` breaks.
    pub fn frames(
        &self,
        header: &SegmentHeader,
        limit: u64,
        bodies: Bodies,
        mut each: impl FnMut(ScannedFrame) -> ControlFlow<()>,
    ) -> Result<FramesEnd, LogError> {
        let mut window = Window { segment: self, start: 0, bytes: Vec::new() };
        let mut end =
            FramesEnd { offset: SEGMENT_HEADER_LEN as u64, next_seq: header.first_seq, why: String::new() };
        while end.offset < limit {
            let frame = match read_frame(&mut window, header, &end, limit, bodies)? {
                Ok(frame) => frame,
                Err(why) => {
                    end.why = why;
                    return Ok(end);
                }
            };
            end.offset += frame.header.frame_len();
            end.next_seq += 1;
            if each(frame).is_break() {
                return Ok(end);
            }
        }
        end.why = "end of the frames".into();
        Ok(end)
    }

    /// The highest durable_seq that any frame header behind `from` claims. A header of this log that
    /// validates is believed; without a log id (the segment's header is bad) one that looks like it.
    pub fn durable_evidence(&self, from: u64, log_id: Option<u64>) -> Result<Option<u64>, LogError> {
        let mut highest = None;
        let mut at = from;
        while at + (FRAME_HEADER_LEN as u64) <= self.len {
            let take = (self.len - at).min(SEARCH_CHUNK as u64) as usize;
            let chunk = self.read(at, take)?;
            let last = take - FRAME_HEADER_LEN;
            let mut i = 0;
            while let Some(skip) = chunk[i..=last].iter().position(|byte| *byte == FRAME_MAGIC[0]) {
                i += skip;
                let (bytes, offset) = (&chunk[i..i + FRAME_HEADER_LEN], at + i as u64);
                let claim = match log_id {
                    Some(id) => FrameHeader::decode(bytes, id, self.id, offset).ok().map(|h| h.durable_seq),
                    None => durable_seq_of_plausible(bytes, self.id, offset),
                };
                highest = highest.max(claim);
                i += 1;
                if i > last {
                    break;
                }
            }
            at += last as u64 + 1;
        }
        Ok(highest)
    }

    /// True when every byte from `from` on is zero.
    pub fn is_zero_from(&self, from: u64) -> Result<bool, LogError> {
        let mut at = from;
        while at < self.len {
            let take = (self.len - at).min(SEARCH_CHUNK as u64) as usize;
            if self.read(at, take)?.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += take as u64;
        }
        Ok(true)
    }
}

/// A part of the file in memory, so that small frames do not cost a read each.
struct Window<'a> {
    segment: &'a SegmentFile,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// `len` bytes at `offset`, or `None` when the file ends before.
    fn get(&mut self, offset: u64, len: usize) -> Result<Option<&[u8]>, LogError> {
        let file_len = self.segment.len;
        if offset.checked_add(len as u64).is_none_or(|end| end > file_len) {
            return Ok(None);
        }
        let have = offset.checked_sub(self.start).map_or(self.bytes.len(), |skip| skip as usize);
        if have > self.bytes.len() || self.bytes.len() - have < len {
            let ahead = (len.max(READ_AHEAD) as u64).min(file_len - offset) as usize;
            self.bytes = self.segment.read(offset, ahead)?;
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        Ok(self.bytes.get(from..from + len))
    }
}

/// The frame at `at`, or why there is none. An I/O error is neither.
fn read_frame(
    window: &mut Window<'_>,
    segment: &SegmentHeader,
    at: &FramesEnd,
    limit: u64,
    bodies: Bodies,
) -> Result<Result<ScannedFrame, String>, LogError> {
    let (log_id, id, offset) = (segment.log_id, segment.segment, at.offset);
    let Some(bytes) = window.get(offset, FRAME_HEADER_LEN)? else {
        return Ok(Err("frame header cut off".into()));
    };
    let header = match FrameHeader::decode(bytes, log_id, id, offset) {
        Ok(header) => header,
        Err(why) => return Ok(Err(why.into())),
    };
    if header.incarnation != segment.incarnation || header.seq != at.next_seq {
        return Ok(Err(format!(
            "frame {} of incarnation {} where {} of {} belongs",
            header.seq, header.incarnation, at.next_seq, segment.incarnation
        )));
    }
    if offset.checked_add(header.frame_len()).is_none_or(|end| end > limit) {
        return Ok(Err("frame cut off".into()));
    }
    let body_at = offset + FRAME_HEADER_LEN as u64;
    let directory_at = body_at + u64::from(header.body_len);
    let Some(directory) = window.get(directory_at, header.dir_len as usize)? else {
        return Ok(Err("frame directory cut off".into()));
    };
    if FrameHeader::directory_crc(log_id, id, offset, directory) != header.dir_crc {
        return Ok(Err("frame directory checksum".into()));
    }
    let records = match Record::decode_all(directory) {
        Ok(records) => records,
        Err(why) => return Ok(Err(format!("frame directory: {why}"))),
    };
    if body_len(&records) != u64::from(header.body_len) {
        return Ok(Err("entries and body differ in length".into()));
    }
    if bodies == Bodies::Verify {
        let Some(body) = window.get(body_at, header.body_len as usize)? else {
            return Ok(Err("frame body cut off".into()));
        };
        if let Err(index) = verify_body(segment, body_at, &records, body) {
            return Ok(Err(format!("checksum of entry {index}")));
        }
    }
    Ok(Ok(ScannedFrame { header, records }))
}

fn body_len(records: &[Record]) -> u64 {
    let len = |record: &Record| match record {
        Record::Entries { entries, .. } => entries.iter().map(|entry| u64::from(entry.len)).sum(),
        _ => 0,
    };
    records.iter().map(len).sum()
}

/// Checks every payload; the index of the first bad one.
fn verify_body(segment: &SegmentHeader, body_at: u64, records: &[Record], body: &[u8]) -> Result<(), u64> {
    let mut at = 0;
    for record in records {
        let Record::Entries { start, entries } = record else { continue };
        for (i, entry) in entries.iter().enumerate() {
            let index = start.index + i as u64;
            let payload = body.get(at..at + entry.len as usize).ok_or(index)?;
            let salt = salt(segment.log_id, segment.segment, body_at + at as u64);
            if crc32c::crc32c(payload) ^ salt != entry.crc {
                return Err(index);
            }
            at += entry.len as usize;
        }
    }
    Ok(())
}

/// The segments of a directory, ascending.
pub(crate) fn list_segments(fs: &dyn Fs, dir: &std::path::Path) -> Result<Vec<u64>, LogError> {
    let names = match fs.list(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(LogError::io("list", dir)(error)),
    };
    let mut ids: Vec<u64> = names.iter().filter_map(|name| crate::files::segment_of(name)).collect();
    ids.sort_unstable();
    Ok(ids)
}
