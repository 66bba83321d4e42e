//! A frame while it is filled.
//!
//! Its place (segment, offset) is fixed when it is begun, so an entry's place is known as soon as its payload
//! is copied in; the header is written when the writer takes the frame.

use bytes::Bytes;
use undb_types::GroupId;

use crate::format::{
    CLASS_HOT, EntryMeta, FRAME_HEADER_LEN, FrameHeader, Record, RunStart, put_entry, put_run_start, salt,
};
use crate::log::Done;

/// Where a frame goes and what it is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub log_id: u64,
    pub segment: u64,
    pub offset: u64,
    pub seq: u64,
    pub incarnation: u64,
}

/// A frame's bytes, and whose they are.
pub(crate) struct Frame {
    pub place: Place,
    /// Header (blank until finished), body, and once finished the directory.
    pub bytes: Vec<u8>,
    /// Groups with entries in this frame.
    pub groups: Vec<GroupId>,
    pub entries: u64,
    pub payload_bytes: usize,
}

pub(crate) struct FrameBuilder {
    pub frame: Frame,
    directory: Vec<u8>,
    pub dones: Vec<Answer>,
}

/// A callback and what it will be told.
pub(crate) struct Answer {
    pub done: Done,
    /// `None`: success, once durable.
    pub error: Option<crate::LogError>,
}

impl FrameBuilder {
    /// `buffer` is reused memory.
    pub fn new(place: Place, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(FRAME_HEADER_LEN, 0);
        let frame = Frame { place, bytes: buffer, groups: Vec::new(), entries: 0, payload_bytes: 0 };
        FrameBuilder { frame, directory: Vec::new(), dones: Vec::new() }
    }

    /// Length of the frame if it were finished now.
    pub fn len(&self) -> usize {
        self.frame.bytes.len() + self.directory.len()
    }

    pub fn has_records(&self) -> bool {
        !self.directory.is_empty()
    }

    pub fn record(&mut self, record: &Record) {
        record.encode(&mut self.directory);
    }

    pub fn begin_run(&mut self, start: &RunStart, count: usize) {
        put_run_start(&mut self.directory, start, count);
        if self.frame.groups.last() != Some(&start.group) {
            self.frame.groups.push(start.group);
        }
    }

    /// Copies a payload in; gives its offset in the segment file.
    pub fn entry(&mut self, kind: u8, payload: &Bytes, crc: u32) -> u64 {
        let frame = &mut self.frame;
        let offset = frame.place.offset + frame.bytes.len() as u64;
        frame.bytes.extend_from_slice(payload);
        frame.entries += 1;
        frame.payload_bytes += payload.len();
        let salted = crc ^ salt(frame.place.log_id, frame.place.segment, offset);
        put_entry(&mut self.directory, EntryMeta { kind, len: payload.len() as u32, crc: salted });
        offset
    }

    /// Appends the directory and fills the header in: the complete frame, and who waits for it.
    pub fn finish(self, durable_seq: u64) -> (Frame, Vec<Answer>) {
        let FrameBuilder { mut frame, directory, dones } = self;
        let Place { log_id, segment, offset, seq, incarnation } = frame.place;
        let header = FrameHeader {
            class: CLASS_HOT,
            segment,
            offset,
            seq,
            durable_seq,
            incarnation,
            body_len: (frame.bytes.len() - FRAME_HEADER_LEN) as u32,
            dir_len: directory.len() as u32,
            dir_crc: FrameHeader::directory_crc(log_id, segment, offset, &directory),
        };
        frame.bytes.extend_from_slice(&directory);
        frame.bytes[..FRAME_HEADER_LEN].copy_from_slice(&header.encode(log_id));
        (frame, dones)
    }
}

impl Frame {
    /// Where the frame ends in the segment file.
    pub fn end(&self) -> u64 {
        self.place.offset + self.bytes.len() as u64
    }

    /// A copy of `len` bytes at `offset` of the segment, if they are a part of this frame's body.
    pub fn slice(&self, segment: u64, offset: u64, len: usize) -> Option<Bytes> {
        if segment != self.place.segment {
            return None;
        }
        let from = usize::try_from(offset.checked_sub(self.place.offset)?).ok()?;
        Some(Bytes::copy_from_slice(self.bytes.get(from..from.checked_add(len)?)?))
    }
}
