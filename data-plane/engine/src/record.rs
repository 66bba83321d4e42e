//! The value record: a value with its key and checksum, so that a pointer read verifies alone.
//!
//! ```text
//! crc32c u32 LE over all that follows | klen u32 LE | vlen u32 LE | key | value
//! ```
//! The same bytes stand inside a command in the log and in a data file (there, value may be compressed).

use crate::error::{EngineError, Result};
use bytes::Bytes;

/// Bytes before the key.
pub const RECORD_HEADER_LEN: usize = 12;

/// Bytes of a record with these lengths.
pub fn record_len(key_len: usize, value_len: usize) -> usize {
    RECORD_HEADER_LEN + key_len + value_len
}

/// Appends a record to `out`.
pub fn encode_record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let start = out.len();
    out.reserve(record_len(key.len(), value.len()));
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&len_u32(key.len()).to_le_bytes());
    out.extend_from_slice(&len_u32(value.len()).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    let crc = checksum(key, value);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// The checksum of a record with this key and value.
pub fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&len_u32(key.len()).to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &len_u32(value.len()).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, key), value)
}

fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("keys and values are bounded far below 4 GiB")
}

/// A record that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Bytes,
    /// The value as stored.
    pub value: Bytes,
    /// Bytes of the whole record.
    pub len: usize,
}

/// Decodes the record that `bytes` begin with.
pub fn decode_record(bytes: &Bytes) -> Result<Record> {
    let short = || EngineError::corrupt("value record", format!("cut off at {} bytes", bytes.len()));
    let word = |at: usize| -> Result<u32> {
        let b: [u8; 4] = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or_else(short)?;
        Ok(u32::from_le_bytes(b))
    };
    let (crc, key_len, value_len) = (word(0)?, word(4)? as usize, word(8)? as usize);
    let len = record_len(key_len, value_len);
    let body = bytes.get(4..len).ok_or_else(short)?;
    if crc32c::crc32c(body) != crc {
        return Err(EngineError::corrupt("value record", "checksum differs"));
    }
    let value_at = RECORD_HEADER_LEN + key_len;
    Ok(Record { key: bytes.slice(RECORD_HEADER_LEN..value_at), value: bytes.slice(value_at..len), len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_decodes_to_what_was_encoded() {
        for (key, value) in [(&b"k"[..], &b""[..]), (b"key", b"value"), (b"", b"x"), (b"k", &[7; 70_000])] {
            let mut out = vec![];
            encode_record(&mut out, key, value);
            out.extend_from_slice(b"behind");
            let record = decode_record(&out.into()).expect("our own encoding");
            assert_eq!((&record.key[..], &record.value[..]), (key, value));
            assert_eq!(record.len, record_len(key.len(), value.len()));
        }
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_an_error() {
        let mut good = vec![];
        encode_record(&mut good, b"key", b"value");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_record(&bad.into()).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(decode_record(&good[..len].to_vec().into()).is_err(), "cut at {len}");
        }
    }
}
