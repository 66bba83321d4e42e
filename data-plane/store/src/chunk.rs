//! What this crate adds to what the engine and undb-raft keep for it: the count of member changes.
//!
//! ```text
//! envelope  version u8 = 1 | conf u64 LE | membership (undb-raft's, opaque)   in the tree, with P
//! prologue  version u8 = 1 | conf u64 LE                     first chunk of a snapshot; the engine's follow
//! ```
//! `conf` is 1 after the first membership of a group and one more after each further one, so that it
//! is the same on every replica that has applied the same entries.

use bytes::{Buf, BufMut, Bytes};

/// The version that this build writes, and the newest that it reads.
pub const FORMAT_VERSION: u8 = 1;

const HEAD_LEN: usize = 9;

/// Bytes that are neither.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// Written by a newer release.
    #[error(
        "{what} has format version {found}, this release reads up to {FORMAT_VERSION}; upgrade this store first"
    )]
    Newer { what: &'static str, found: u8 },
    /// Cut off or nonsense.
    #[error("{0} is malformed")]
    Malformed(&'static str),
}

/// A membership and how many there were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Memberships applied so far; 0: none.
    pub conf: u64,
    /// The newest; opaque.
    pub membership: Bytes,
}

impl Envelope {
    /// Empty bytes are the envelope of a new replica.
    pub fn decode(mut bytes: Bytes) -> Result<Self, ChunkError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let conf = take_head("membership envelope", &mut bytes)?;
        Ok(Self { conf, membership: bytes })
    }

    /// To bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(HEAD_LEN + self.membership.len());
        put_head(&mut out, self.conf);
        out.put_slice(&self.membership);
        out.into()
    }
}

/// The first chunk of a snapshot.
pub fn encode_prologue(conf: u64) -> Bytes {
    let mut out = Vec::with_capacity(HEAD_LEN);
    put_head(&mut out, conf);
    out.into()
}

/// The count that the first chunk of a snapshot carries.
pub fn decode_prologue(mut chunk: Bytes) -> Result<u64, ChunkError> {
    let what = "snapshot prologue";
    let conf = take_head(what, &mut chunk)?;
    if chunk.is_empty() { Ok(conf) } else { Err(ChunkError::Malformed(what)) }
}

fn put_head(out: &mut Vec<u8>, conf: u64) {
    out.put_u8(FORMAT_VERSION);
    out.put_u64_le(conf);
}

fn take_head(what: &'static str, bytes: &mut Bytes) -> Result<u64, ChunkError> {
    let version = bytes.try_get_u8().map_err(|_| ChunkError::Malformed(what))?;
    if version > FORMAT_VERSION {
        return Err(ChunkError::Newer { what, found: version });
    }
    if version == 0 {
        return Err(ChunkError::Malformed(what));
    }
    bytes.try_get_u64_le().map_err(|_| ChunkError::Malformed(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formats_are_the_golden_ones() {
        let envelope = Envelope { conf: 3, membership: Bytes::from_static(b"mm") };
        let bytes = envelope.encode();
        assert_eq!(&bytes[..], b"\x01\x03\0\0\0\0\0\0\0mm");
        assert_eq!(Envelope::decode(bytes), Ok(envelope));
        let prologue = encode_prologue(0x0102);
        assert_eq!(&prologue[..], b"\x01\x02\x01\0\0\0\0\0\0");
        assert_eq!(decode_prologue(prologue), Ok(0x0102));
    }

    #[test]
    fn a_new_replica_has_an_empty_envelope() {
        assert_eq!(Envelope::decode(Bytes::new()), Ok(Envelope::default()));
    }

    #[test]
    fn newer_and_broken_bytes_are_told_apart() {
        let newer = decode_prologue(Bytes::from_static(b"\x02\0\0\0\0\0\0\0\0"));
        assert_eq!(newer, Err(ChunkError::Newer { what: "snapshot prologue", found: 2 }));
        for broken in [&b""[..], b"\x01", b"\x00\0\0\0\0\0\0\0\0", b"\x01\0\0\0\0\0\0\0\0x"] {
            let decoded = decode_prologue(Bytes::copy_from_slice(broken));
            assert!(matches!(decoded, Err(ChunkError::Malformed(_))), "{decoded:?}");
        }
    }
}
