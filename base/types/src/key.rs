//! How (hash_key, sort_key) becomes one ordered byte string, and ranges of them.
//!
//! ```text
//! range table:                escape(hash_key) 00 01 sort_key
//! hash table:   xxh3_64(hash_key) as 8 bytes, escape(hash_key) 00 01 sort_key
//! escape: 00 -> 00 FF
//! ```
//! `00 01` sorts before `00 FF`, so encoded keys order as (hash_key, sort_key) do, and all keys with
//! one hash_key are neighbours that no split point can part.

use bytes::Bytes;

const TERMINATOR: [u8; 2] = [0x00, 0x01];
const ESCAPED_ZERO: u8 = 0xFF;
const HASH_LEN: usize = 8;

/// How a table's keys are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Partitioning {
    /// By the bytes of the hash key: prefix scans over keys work.
    Range,
    /// By a hash of the hash key: load spreads by itself.
    Hash,
}

/// Bytes that are not an encoded key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Cut off before the terminator.
    #[error("encoded key of {0} bytes has no terminator after its hash key")]
    Unterminated(usize),
    /// A zero byte followed by something else than its escape or the terminator.
    #[error("encoded key has byte {byte:#04x} after a zero at {at}")]
    BadEscape { at: usize, byte: u8 },
}

/// A range of encoded keys: `start` inclusive, `end` exclusive; an empty `end` has no upper bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct KeyRange {
    /// First key of the range.
    pub start: Bytes,
    /// First key behind the range; empty: none.
    pub end: Bytes,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self::default()
    }

    /// True when `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && (self.end.is_empty() || key < &self.end[..])
    }

    /// True when every key of `other` lies in this range.
    pub fn covers(&self, other: &KeyRange) -> bool {
        other.start >= self.start && (self.end.is_empty() || (!other.end.is_empty() && other.end <= self.end))
    }

    /// True when no key can lie in the range.
    pub fn is_empty(&self) -> bool {
        !self.end.is_empty() && self.end <= self.start
    }

    /// The keys that lie in both.
    pub fn intersect(&self, other: &KeyRange) -> KeyRange {
        let end = match (self.end.is_empty(), other.end.is_empty()) {
            (true, _) => other.end.clone(),
            (_, true) => self.end.clone(),
            _ => self.end.clone().min(other.end.clone()),
        };
        KeyRange { start: self.start.clone().max(other.start.clone()), end }
    }
}

fn escape_into(out: &mut Vec<u8>, bytes: &[u8]) {
    for &b in bytes {
        out.push(b);
        if b == 0 {
            out.push(ESCAPED_ZERO);
        }
    }
}

fn hash_prefix(out: &mut Vec<u8>, partitioning: Partitioning, hash_key: &[u8]) {
    if partitioning == Partitioning::Hash {
        out.extend_from_slice(&xxhash_rust::xxh3::xxh3_64(hash_key).to_be_bytes());
    }
}

/// The encoded key of (hash_key, sort_key).
pub fn encode_key(partitioning: Partitioning, hash_key: &[u8], sort_key: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(HASH_LEN + hash_key.len() + TERMINATOR.len() + sort_key.len());
    hash_prefix(&mut out, partitioning, hash_key);
    escape_into(&mut out, hash_key);
    out.extend_from_slice(&TERMINATOR);
    out.extend_from_slice(sort_key);
    out.into()
}

/// The (hash_key, sort_key) of an encoded key.
pub fn decode_key(partitioning: Partitioning, key: &[u8]) -> Result<(Bytes, Bytes), KeyError> {
    let skip = if partitioning == Partitioning::Hash { HASH_LEN } else { 0 };
    let body = key.get(skip..).ok_or(KeyError::Unterminated(key.len()))?;
    let mut hash_key = Vec::with_capacity(body.len());
    let mut i = 0;
    while let Some(&b) = body.get(i) {
        if b != 0 {
            hash_key.push(b);
            i += 1;
            continue;
        }
        match body.get(i + 1) {
            Some(&ESCAPED_ZERO) => hash_key.push(0),
            Some(1) => return Ok((hash_key.into(), Bytes::copy_from_slice(&body[i + 2..]))),
            Some(&byte) => return Err(KeyError::BadEscape { at: skip + i, byte }),
            None => break,
        }
        i += 2;
    }
    Err(KeyError::Unterminated(key.len()))
}

/// The bytes that the encoded keys of a range table with this prefix of the hash key begin with.
pub fn key_prefix(hash_key_prefix: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(hash_key_prefix.len());
    escape_into(&mut out, hash_key_prefix);
    out.into()
}

/// The first byte string behind all that begin with `prefix`; empty: there is none.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            break;
        }
    }
    end.into()
}

/// Where a range table is split so that hash keys from `hash_key` on go right.
pub fn split_point(hash_key: &[u8]) -> Bytes {
    key_prefix(hash_key)
}

/// The `shards - 1` split points that cut a hash table into equal shards.
pub fn hash_split_points(shards: u32) -> Vec<Bytes> {
    (1..u128::from(shards))
        .map(|i| {
            let at = (i << 64) / u128::from(shards);
            Bytes::copy_from_slice(&(at as u64).to_be_bytes())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&[u8]; 8] = [b"", b"\x00", b"\x00\x00", b"\x00\x01", b"\x00\xff", b"a", b"a\x00", b"b\xff"];

    #[test]
    fn encoded_keys_decode_to_what_was_encoded() {
        for partitioning in [Partitioning::Range, Partitioning::Hash] {
            for hash_key in KEYS {
                for sort_key in KEYS {
                    let key = encode_key(partitioning, hash_key, sort_key);
                    let (h, s) = decode_key(partitioning, &key).expect("our own encoding");
                    assert_eq!((&h[..], &s[..]), (hash_key, sort_key));
                }
            }
        }
    }

    #[test]
    fn encoded_range_keys_order_as_their_pairs_do() {
        let mut pairs: Vec<_> = KEYS.iter().flat_map(|h| KEYS.iter().map(move |s| (*h, *s))).collect();
        pairs.sort();
        let encoded: Vec<_> = pairs.iter().map(|(h, s)| encode_key(Partitioning::Range, h, s)).collect();
        assert!(encoded.is_sorted());
    }

    #[test]
    fn a_split_point_parts_no_hash_key() {
        for at in KEYS {
            let point = split_point(at);
            for hash_key in KEYS {
                let right: Vec<bool> =
                    KEYS.iter().map(|s| encode_key(Partitioning::Range, hash_key, s) >= point).collect();
                assert!(right.iter().all(|r| *r == (hash_key >= at)), "{hash_key:?} at {at:?}");
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused_not_fatal() {
        assert_eq!(decode_key(Partitioning::Range, b"abc"), Err(KeyError::Unterminated(3)));
        assert_eq!(decode_key(Partitioning::Hash, b"abc"), Err(KeyError::Unterminated(3)));
        assert_eq!(
            decode_key(Partitioning::Range, b"a\x00\x07"),
            Err(KeyError::BadEscape { at: 1, byte: 7 })
        );
    }

    #[test]
    fn ranges_cover_and_intersect() {
        let r = |s: &'static [u8], e: &'static [u8]| KeyRange { start: s.into(), end: e.into() };
        assert!(KeyRange::all().covers(&r(b"a", b"")));
        assert!(!r(b"a", b"c").covers(&r(b"b", b"")));
        assert_eq!(r(b"a", b"c").intersect(&r(b"b", b"")), r(b"b", b"c"));
        assert!(r(b"c", b"b").is_empty());
        assert_eq!(prefix_end(b"a\xff"), Bytes::from_static(b"b"));
        assert_eq!(prefix_end(b"\xff"), Bytes::new());
    }

    #[test]
    fn hash_split_points_are_even() {
        assert_eq!(hash_split_points(2), vec![Bytes::from_static(&[0x80, 0, 0, 0, 0, 0, 0, 0])]);
        assert_eq!(hash_split_points(8).len(), 7);
    }
}
