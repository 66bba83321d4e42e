//! What the index keeps: entries of keys, and the engine's own records beside them.
//!
//! ```text
//! index key:   00 ..  the engine's records      01 ..  system records of the state machine      02 key
//! entry:       kind u8 (1 inline, 2 pointer into the log, 3 pointer into a data file)
//!              version, expire_at_ms, kind of value, value_len     varints (LEB128)
//!              inline: the value          pointer: segment, offset, record_len varints
//! 00 'A':      format u8 = 1 | has_log_id u8 [term, leader, index varints] | membership, state: varint length, bytes
//!              | keys, live_bytes varints
//! 00 'L' origin u8, segment u64 BE:   live record bytes u64 LE
//! ```

use super::{Applied, Origin, RecordMeta, SegmentRef};
use crate::error::{EngineError, Result};
use bytes::Bytes;
use undb_types::LogId;

const ENGINE: u8 = 0;
const SYSTEM: u8 = 1;
const USER: u8 = 2;

const INLINE: u8 = 1;
const IN_LOG: u8 = 2;
const IN_DATA: u8 = 3;

const APPLIED_FORMAT: u8 = 1;

/// The index key of the applied record.
pub const APPLIED_KEY: [u8; 2] = [ENGINE, b'A'];
/// The prefix of the index keys of live bytes.
pub const LIVE_PREFIX: [u8; 2] = [ENGINE, b'L'];
/// The first index key of user keys.
pub const USER_PREFIX: [u8; 1] = [USER];
/// The first index key of system records.
pub const SYSTEM_PREFIX: [u8; 1] = [SYSTEM];

/// The index key of a user key.
pub fn user_key(key: &[u8]) -> Vec<u8> {
    prefixed(USER, key)
}

/// The index key of a system record.
pub fn system_key(key: &[u8]) -> Vec<u8> {
    prefixed(SYSTEM, key)
}

fn prefixed(prefix: u8, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + key.len());
    out.push(prefix);
    out.extend_from_slice(key);
    out
}

/// The index key of a segment's live bytes.
pub fn live_key(segment: SegmentRef) -> Vec<u8> {
    let mut out = LIVE_PREFIX.to_vec();
    out.push(origin_byte(segment.origin));
    out.extend_from_slice(&segment.id.to_be_bytes());
    out
}

/// The segment of a live bytes key.
pub fn parse_live_key(key: &[u8]) -> Result<SegmentRef> {
    let bad = || EngineError::corrupt("index", "malformed key of live bytes");
    let rest = key.strip_prefix(&LIVE_PREFIX[..]).ok_or_else(bad)?;
    let (origin, id) = rest.split_first().ok_or_else(bad)?;
    let origin = match *origin {
        IN_LOG => Origin::Log,
        IN_DATA => Origin::Data,
        _ => return Err(bad()),
    };
    Ok(SegmentRef { origin, id: u64::from_be_bytes(id.try_into().map_err(|_| bad())?) })
}

fn origin_byte(origin: Origin) -> u8 {
    match origin {
        Origin::Log => IN_LOG,
        Origin::Data => IN_DATA,
    }
}

/// Where a value record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer {
    /// The file.
    pub segment: SegmentRef,
    /// Offset of the record in it.
    pub offset: u64,
    /// Bytes of the record as stored.
    pub record_len: u32,
}

/// A value or where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the entry itself.
    Inline(Bytes),
    /// Elsewhere.
    At(Pointer),
}

/// What the index knows of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Version, expiry, kind, length.
    pub meta: RecordMeta,
    /// The value.
    pub place: Place,
}

impl Entry {
    /// The pointer, if the value is elsewhere.
    pub fn pointer(&self) -> Option<Pointer> {
        match self.place {
            Place::Inline(_) => None,
            Place::At(pointer) => Some(pointer),
        }
    }

    /// Encodes the entry.
    pub fn encode(&self) -> Vec<u8> {
        let inline_len = if let Place::Inline(value) = &self.place { value.len() } else { 16 };
        let mut out = Vec::with_capacity(24 + inline_len);
        out.push(match &self.place {
            Place::Inline(_) => INLINE,
            Place::At(pointer) => origin_byte(pointer.segment.origin),
        });
        put_varint(&mut out, self.meta.version);
        put_varint(&mut out, self.meta.expire_at_ms);
        put_varint(&mut out, self.meta.kind.into());
        put_varint(&mut out, self.meta.value_len.into());
        match &self.place {
            Place::Inline(value) => out.extend_from_slice(value),
            Place::At(pointer) => {
                put_varint(&mut out, pointer.segment.id);
                put_varint(&mut out, pointer.offset);
                put_varint(&mut out, pointer.record_len.into());
            }
        }
        out
    }

    /// Decodes an entry.
    pub fn decode(bytes: &[u8]) -> Result<Entry> {
        let mut input = Input(bytes);
        let kind = input.byte()?;
        let meta = RecordMeta {
            version: input.varint()?,
            expire_at_ms: input.varint()?,
            kind: input.varint_u32()?,
            value_len: input.varint_u32()?,
        };
        let origin = match kind {
            INLINE => {
                if input.0.len() != meta.value_len as usize {
                    return Err(EngineError::corrupt("index entry", "inline value of another length"));
                }
                return Ok(Entry { meta, place: Place::Inline(Bytes::copy_from_slice(input.0)) });
            }
            IN_LOG => Origin::Log,
            IN_DATA => Origin::Data,
            other => return Err(EngineError::corrupt("index entry", format!("unknown kind {other}"))),
        };
        let segment = SegmentRef { origin, id: input.varint()? };
        let pointer = Pointer { segment, offset: input.varint()?, record_len: input.varint_u32()? };
        input.end()?;
        Ok(Entry { meta, place: Place::At(pointer) })
    }
}

/// Exact counts that are kept with the applied record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// User keys.
    pub keys: u64,
    /// Bytes of user keys and their values.
    pub live_bytes: u64,
}

/// Encodes the applied record.
pub fn encode_applied(applied: &Applied, counts: Counts) -> Vec<u8> {
    let mut out = vec![APPLIED_FORMAT];
    out.push(applied.log_id.is_some().into());
    if let Some(id) = applied.log_id {
        put_varint(&mut out, id.term);
        put_varint(&mut out, id.leader);
        put_varint(&mut out, id.index);
    }
    for bytes in [&applied.membership, &applied.state] {
        put_varint(&mut out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
    put_varint(&mut out, counts.keys);
    put_varint(&mut out, counts.live_bytes);
    out
}

/// Decodes the applied record.
pub fn decode_applied(bytes: &[u8]) -> Result<(Applied, Counts)> {
    let mut input = Input(bytes);
    let format = input.byte()?;
    if format != APPLIED_FORMAT {
        return Err(EngineError::NewerFormat {
            path: "applied record".into(),
            found: format.into(),
            supported: APPLIED_FORMAT.into(),
        });
    }
    let log_id = match input.byte()? {
        0 => None,
        _ => Some(LogId { term: input.varint()?, leader: input.varint()?, index: input.varint()? }),
    };
    let membership = input.bytes()?;
    let state = input.bytes()?;
    let counts = Counts { keys: input.varint()?, live_bytes: input.varint()? };
    input.end()?;
    Ok((Applied { log_id, membership, state }, counts))
}

/// Appends a LEB128 varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n as u8) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Reads what the writers above wrote; any bytes give a value or an error.
pub(crate) struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    fn short() -> EngineError {
        EngineError::corrupt("index record", "cut off")
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        let (byte, rest) = self.0.split_first().ok_or_else(Self::short)?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7F);
            if shift == 63 && part > 1 {
                break;
            }
            n |= part << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(EngineError::corrupt("index record", "number too large"))
    }

    pub(crate) fn varint_u32(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| EngineError::corrupt("index record", "number too large"))
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes> {
        let len = self.varint()?;
        if len > self.0.len() as u64 {
            return Err(Self::short());
        }
        let (bytes, rest) = self.0.split_at(len as usize);
        self.0 = rest;
        Ok(Bytes::copy_from_slice(bytes))
    }

    pub(crate) fn end(&self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(EngineError::corrupt("index record", "bytes behind its end"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        let meta = |value_len| RecordMeta { version: u64::MAX, expire_at_ms: 1, kind: 300, value_len };
        let at = |origin, id, offset, record_len| {
            Place::At(Pointer { segment: SegmentRef { origin, id }, offset, record_len })
        };
        vec![
            Entry { meta: meta(0), place: Place::Inline(Bytes::new()) },
            Entry { meta: meta(5), place: Place::Inline(Bytes::from_static(b"value")) },
            Entry { meta: meta(70_000), place: at(Origin::Log, 1, 4096, 70_015) },
            Entry { meta: meta(u32::MAX), place: at(Origin::Data, u64::MAX, u64::MAX, u32::MAX) },
        ]
    }

    #[test]
    fn entries_decode_to_what_was_encoded() {
        for entry in entries() {
            assert_eq!(Entry::decode(&entry.encode()).expect("our own encoding"), entry);
        }
    }

    #[test]
    fn cut_or_arbitrary_bytes_are_an_error_not_a_panic() {
        for entry in entries() {
            let bytes = entry.encode();
            for len in 0..bytes.len() {
                assert!(Entry::decode(&bytes[..len]).is_err());
            }
        }
        assert!(Entry::decode(&[0xFF; 40]).is_err());
        assert!(decode_applied(&[1, 1, 0xFF]).is_err());
    }

    #[test]
    fn the_applied_record_decodes_to_what_was_encoded() {
        for log_id in [None, Some(LogId { term: 3, leader: 2, index: 1 << 40 })] {
            let applied =
                Applied { log_id, membership: Bytes::from_static(b"m"), state: Bytes::from_static(b"") };
            let counts = Counts { keys: 7, live_bytes: 900 };
            let bytes = encode_applied(&applied, counts);
            assert_eq!(decode_applied(&bytes).expect("our own encoding"), (applied, counts));
        }
    }

    #[test]
    fn live_keys_parse_back() {
        for segment in
            [SegmentRef { origin: Origin::Log, id: 1 }, SegmentRef { origin: Origin::Data, id: u64::MAX }]
        {
            assert_eq!(parse_live_key(&live_key(segment)).expect("our own key"), segment);
        }
    }
}
