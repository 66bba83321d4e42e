//! The footer of a sealed segment: `body | trailer (64 bytes)`, at the end of the file.
//!
//! Body: the number of groups, then per group shard, replica, smallest and largest index, entries, payload
//! bytes; all varints. It says which groups have entries here, so that open can pass over the segment.
//!
//! | trailer offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `UNDBFTR\n` |
//! | 8 | 4 | format version |
//! | 12 | 4 | length of the body |
//! | 16 | 8 | segment id |
//! | 24 | 8 | where the frames end and the body begins |
//! | 32 | 8 | frame_seq of the first frame |
//! | 40 | 8 | frame_seq of the last frame: all up to it were synced before this was written |
//! | 48 | 8 | incarnation |
//! | 56 | 4 | zero |
//! | 60 | 4 | crc32c of trailer 0..60 and body, salted |

use undb_types::GroupId;

use super::wire::{self, Malformed, Reader};
use super::{FORMAT_VERSION, salt};

/// Bytes of the trailer.
pub const FOOTER_TRAILER_LEN: usize = 64;

const MAGIC: [u8; 8] = *b"UNDBFTR\n";
const CRC_AT: usize = FOOTER_TRAILER_LEN - 4;
const GROUP_LEN_MIN: usize = 6;

/// What is in a sealed segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Which segment.
    pub segment: u64,
    /// Where the frames end.
    pub frames_end: u64,
    /// Of the first frame.
    pub first_seq: u64,
    /// Of the last frame.
    pub last_seq: u64,
    /// Of the log.
    pub incarnation: u64,
    /// Groups that have entries here, whether they still count or not.
    pub groups: Vec<(GroupId, FooterGroup)>,
}

/// One group's share of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterGroup {
    /// Smallest index.
    pub first: u64,
    /// Largest index.
    pub last: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
}

impl Footer {
    /// The bytes behind the last frame.
    pub fn encode(&self, log_id: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_TRAILER_LEN + 8 + self.groups.len() * 24);
        wire::put_varint(&mut out, self.groups.len() as u64);
        for (id, group) in &self.groups {
            wire::put_group(&mut out, *id);
            for number in [group.first, group.last, group.entries, group.bytes] {
                wire::put_varint(&mut out, number);
            }
        }
        let body_len = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&(body_len as u32).to_le_bytes());
        for number in [self.segment, self.frames_end, self.first_seq, self.last_seq, self.incarnation] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&[0; 4]);
        let crc = Self::crc(log_id, self.segment, self.frames_end, &out[body_len..], &out[..body_len]);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    fn crc(log_id: u64, segment: u64, frames_end: u64, trailer: &[u8], body: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(trailer), body) ^ salt(log_id, segment, frames_end)
    }

    /// Length of the body, as the trailer (the last bytes of a file) says.
    pub fn body_len(trailer: &[u8]) -> Option<usize> {
        if trailer.len() != FOOTER_TRAILER_LEN || trailer[..8] != MAGIC {
            return None;
        }
        usize::try_from(Reader(&trailer[12..]).u32("length").ok()?).ok()
    }

    /// The footer in `bytes`: body and trailer, which begin at `frames_end`.
    pub fn decode(bytes: &[u8], log_id: u64, segment: u64, frames_end: u64) -> Result<Self, Malformed> {
        let split = bytes.len().checked_sub(FOOTER_TRAILER_LEN).ok_or(Malformed("footer"))?;
        let (body, trailer) = bytes.split_at(split);
        if Self::body_len(trailer) != Some(split) {
            return Err(Malformed("footer"));
        }
        let crc = Reader(&trailer[CRC_AT..]).u32("footer checksum")?;
        if crc != Self::crc(log_id, segment, frames_end, &trailer[..CRC_AT], body) {
            return Err(Malformed("footer checksum"));
        }
        let mut reader = Reader(&trailer[16..]);
        let mut number = || reader.u64("footer");
        let numbers = [number()?, number()?, number()?, number()?, number()?];
        if (numbers[0], numbers[1]) != (segment, frames_end) {
            return Err(Malformed("footer of another place"));
        }
        Ok(Footer {
            segment,
            frames_end,
            first_seq: numbers[2],
            last_seq: numbers[3],
            incarnation: numbers[4],
            groups: Self::decode_groups(body)?,
        })
    }

    fn decode_groups(body: &[u8]) -> Result<Vec<(GroupId, FooterGroup)>, Malformed> {
        let mut reader = Reader(body);
        let count = usize::try_from(reader.varint("groups")?).map_err(|_| Malformed("groups"))?;
        if count > body.len() / GROUP_LEN_MIN {
            return Err(Malformed("groups"));
        }
        let mut groups = Vec::with_capacity(count);
        for _ in 0..count {
            let id = reader.group()?;
            let mut number = || reader.varint("group range");
            let group =
                FooterGroup { first: number()?, last: number()?, entries: number()?, bytes: number()? };
            groups.push((id, group));
        }
        if reader.is_empty() { Ok(groups) } else { Err(Malformed("groups")) }
    }
}
