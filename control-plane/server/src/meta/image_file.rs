//! The image file of a member, and the bytes of its snapshots.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `UNDBMETA` |
//! | 8..12 | format version, u32 LE |
//! | 12..16 | crc32c of the body, u32 LE |
//! | 16..24 | length of the body, u64 LE |
//! | 24.. | body: `v1::MetaImageFile` |
//!
//! Replaced atomically by the next image; deleted only with the directory.

use crate::ServerError;
use prost::Message;
use std::path::Path;
use undb_proto::v1;

/// The format version that this build writes, and the highest that it reads.
pub const IMAGE_FILE_VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"UNDBMETA";
const HEADER_LEN: usize = 24;

/// The file's bytes.
pub(super) fn encode(image: &v1::MetaImageFile) -> Vec<u8> {
    let body = image.encode_to_vec();
    let mut out = Vec::with_capacity(HEADER_LEN + body.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&IMAGE_FILE_VERSION.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    out.extend_from_slice(&body);
    out
}

/// What the bytes of the file at `path` say.
pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<v1::MetaImageFile, ServerError> {
    let damaged = |problem: String| ServerError::Damaged { path: path.into(), problem };
    let header = bytes.get(..HEADER_LEN).ok_or_else(|| damaged("it is cut off".into()))?;
    if &header[..8] != MAGIC {
        return Err(damaged("it is not a metadata image".into()));
    }
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let found = word(8);
    if found > IMAGE_FILE_VERSION {
        return Err(ServerError::NewerFormat { path: path.into(), found, supported: IMAGE_FILE_VERSION });
    }
    let body = &bytes[HEADER_LEN..];
    let len = u64::from(word(16)) | (u64::from(word(20)) << 32);
    if body.len() as u64 != len {
        return Err(damaged(format!("its body has {} bytes instead of {len}", body.len())));
    }
    if crc32c::crc32c(body) != word(12) {
        return Err(damaged("its checksum does not match".into()));
    }
    v1::MetaImageFile::decode(body).map_err(|e| damaged(e.to_string()))
}
