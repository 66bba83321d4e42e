//! The header of a segment file.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `UNDBSEG\n` |
//! | 8 | 4 | format version |
//! | 12 | 4 | length of this header, 96 |
//! | 16 | 8 | log id, random, one per log directory |
//! | 24 | 8 | segment id |
//! | 32 | 8 | incarnation of the log; each open raises it |
//! | 40 | 8 | frame_seq of the first frame, a checkpoint |
//! | 48 | 8 | creation time, ms since 1970 |
//! | 56 | 1 | origin: `L` log |
//! | 57 | 1 | temperature class |
//! | 58 | 34 | zero |
//! | 92 | 4 | crc32c of bytes 0..92, salted |

use super::salt;
use super::wire::Reader;

/// The version of segments, frames and footers that this build writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes before the first frame.
pub const SEGMENT_HEADER_LEN: usize = 96;
/// Written by the log.
pub const ORIGIN_LOG: u8 = b'L';

const MAGIC: [u8; 8] = *b"UNDBSEG\n";
const CRC_AT: usize = SEGMENT_HEADER_LEN - 4;

/// The first bytes of a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Which log.
    pub log_id: u64,
    /// Which segment.
    pub segment: u64,
    /// Of the log when the segment began; all its frames carry it.
    pub incarnation: u64,
    /// Of the checkpoint frame that follows.
    pub first_seq: u64,
    /// When the segment began.
    pub created_ms: u64,
    /// Who wrote it.
    pub origin: u8,
    /// Temperature class.
    pub class: u8,
}

/// Why bytes are not a segment header of this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Too short, wrong magic, wrong checksum.
    Bad(&'static str),
    /// A version that this build does not know.
    Newer(u32),
}

impl SegmentHeader {
    /// The bytes of this header.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_LEN] {
        let mut out = [0; SEGMENT_HEADER_LEN];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(SEGMENT_HEADER_LEN as u32).to_le_bytes());
        let numbers = [self.log_id, self.segment, self.incarnation, self.first_seq, self.created_ms];
        for (i, number) in numbers.iter().enumerate() {
            out[16 + 8 * i..24 + 8 * i].copy_from_slice(&number.to_le_bytes());
        }
        out[56] = self.origin;
        out[57] = self.class;
        let crc = crc32c::crc32c(&out[..CRC_AT]) ^ salt(self.log_id, self.segment, 0);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header at the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes = bytes.get(..SEGMENT_HEADER_LEN).ok_or(HeaderError::Bad("segment header cut off"))?;
        if bytes[..8] != MAGIC {
            return Err(HeaderError::Bad("segment magic"));
        }
        let mut reader = Reader(&bytes[8..]);
        let bad = |_| HeaderError::Bad("segment header");
        let version = reader.u32("version").map_err(bad)?;
        if version > FORMAT_VERSION {
            return Err(HeaderError::Newer(version));
        }
        reader.u32("header length").map_err(bad)?;
        let mut number = || reader.u64("number").map_err(bad);
        let header = SegmentHeader {
            log_id: number()?,
            segment: number()?,
            incarnation: number()?,
            first_seq: number()?,
            created_ms: number()?,
            origin: bytes[56],
            class: bytes[57],
        };
        if header.encode() != bytes {
            return Err(HeaderError::Bad("segment header checksum"));
        }
        Ok(header)
    }

    /// Whatever stands where the log id would be, for a header that does not validate.
    pub fn log_id_unchecked(bytes: &[u8]) -> Option<u64> {
        Reader(bytes.get(16..24)?).u64("log id").ok()
    }
}
