//! A frame: what one turn of group commit wrote, for any number of groups.
//!
//! `header (64 bytes) | body: payloads of entries, back to back | directory: records`
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `UFRM` |
//! | 4 | 1 | format version |
//! | 5 | 1 | temperature class |
//! | 6 | 2 | zero |
//! | 8 | 8 | segment id |
//! | 16 | 8 | offset of this frame in the segment file |
//! | 24 | 8 | frame_seq: counts the frames of the log, without gaps |
//! | 32 | 8 | durable_seq: the highest frame known synced when this one was written |
//! | 40 | 8 | incarnation of the log |
//! | 48 | 4 | length of the body |
//! | 52 | 4 | length of the directory |
//! | 56 | 4 | crc32c of the directory, salted |
//! | 60 | 4 | crc32c of bytes 0..60, salted |
//!
//! The directory lies behind the body so that an entry's place is known as soon as it is appended. The body
//! has a checksum per entry (in the directory), so that one entry can be verified alone, and so that a
//! sealed segment is indexed without reading payloads.

use super::salt;
use super::wire::Reader;

/// Bytes before a frame's body.
pub const FRAME_HEADER_LEN: usize = 64;
/// The first bytes of a frame.
pub const FRAME_MAGIC: [u8; 4] = *b"UFRM";

const VERSION: u8 = super::FORMAT_VERSION as u8;
const CRC_AT: usize = FRAME_HEADER_LEN - 4;
/// The directory's salt differs from the header's: it is made for the place behind it.
const DIRECTORY_SALT_AT: u64 = 1;

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Temperature class.
    pub class: u8,
    /// Which segment it was written to.
    pub segment: u64,
    /// Where in the file.
    pub offset: u64,
    /// Its number.
    pub seq: u64,
    /// The highest frame known synced when it was written.
    pub durable_seq: u64,
    /// Of the log.
    pub incarnation: u64,
    /// Length of the body.
    pub body_len: u32,
    /// Length of the directory.
    pub dir_len: u32,
    /// Salted checksum of the directory.
    pub dir_crc: u32,
}

impl FrameHeader {
    /// The bytes of this header.
    pub fn encode(&self, log_id: u64) -> [u8; FRAME_HEADER_LEN] {
        let mut out = [0; FRAME_HEADER_LEN];
        out[0..4].copy_from_slice(&FRAME_MAGIC);
        out[4] = VERSION;
        out[5] = self.class;
        let numbers = [self.segment, self.offset, self.seq, self.durable_seq, self.incarnation];
        for (i, number) in numbers.iter().enumerate() {
            out[8 + 8 * i..16 + 8 * i].copy_from_slice(&number.to_le_bytes());
        }
        out[48..52].copy_from_slice(&self.body_len.to_le_bytes());
        out[52..56].copy_from_slice(&self.dir_len.to_le_bytes());
        out[56..60].copy_from_slice(&self.dir_crc.to_le_bytes());
        let crc = crc32c::crc32c(&out[..CRC_AT]) ^ salt(log_id, self.segment, self.offset);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header in `bytes`, which were read at `offset` of `segment` of log `log_id`.
    pub fn decode(bytes: &[u8], log_id: u64, segment: u64, offset: u64) -> Result<Self, &'static str> {
        let bytes = bytes.get(..FRAME_HEADER_LEN).ok_or("frame header cut off")?;
        if bytes[..4] != FRAME_MAGIC {
            return Err("no frame begins here");
        }
        let mut reader = Reader(&bytes[8..]);
        let mut number = || reader.u64("frame header").map_err(|_| "frame header");
        let numbers = [number()?, number()?, number()?, number()?, number()?];
        let mut length = || reader.u32("frame header").map_err(|_| "frame header");
        let header = FrameHeader {
            class: bytes[5],
            segment: numbers[0],
            offset: numbers[1],
            seq: numbers[2],
            durable_seq: numbers[3],
            incarnation: numbers[4],
            body_len: length()?,
            dir_len: length()?,
            dir_crc: length()?,
        };
        if (header.segment, header.offset) != (segment, offset) {
            return Err("frame of another place");
        }
        if header.encode(log_id) != bytes {
            return Err("frame header checksum");
        }
        Ok(header)
    }

    /// Salted checksum of a directory.
    pub fn directory_crc(log_id: u64, segment: u64, offset: u64, directory: &[u8]) -> u32 {
        crc32c::crc32c(directory) ^ salt(log_id, segment, offset.wrapping_add(DIRECTORY_SALT_AT))
    }

    /// Length of the whole frame.
    pub fn frame_len(&self) -> u64 {
        FRAME_HEADER_LEN as u64 + u64::from(self.body_len) + u64::from(self.dir_len)
    }
}

/// The durable_seq of bytes that look like a frame written at this place, when the log's id is not known
/// for sure and the checksum proves nothing.
pub fn durable_seq_of_plausible(bytes: &[u8], segment: u64, offset: u64) -> Option<u64> {
    let mut reader = Reader(bytes.get(..FRAME_HEADER_LEN)?);
    if reader.take(4, "magic").ok()? != FRAME_MAGIC {
        return None;
    }
    reader.u32("version").ok()?;
    let (of, at) = (reader.u64("segment").ok()?, reader.u64("offset").ok()?);
    reader.u64("seq").ok()?;
    ((of, at) == (segment, offset)).then(|| reader.u64("durable_seq").ok())?
}
