//! The image file of a member, and the bytes of its snapshots: `v1::MetaImageFile` under a seal
//! (`sealed`). Replaced atomically by the next image; deleted only with the directory.

use crate::ServerError;
use crate::sealed::Seal;
use prost::Message;
use std::path::Path;
use undb_proto::v1;

/// The format version that this build writes, and the highest that it reads.
pub const IMAGE_FILE_VERSION: u32 = 1;
const SEAL: Seal = Seal { magic: b"UNDBMETA", version: IMAGE_FILE_VERSION, what: "a metadata image" };

/// The file's bytes.
pub(super) fn encode(image: &v1::MetaImageFile) -> Vec<u8> {
    SEAL.wrap(&image.encode_to_vec())
}

/// What the bytes of the file at `path` say.
pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<v1::MetaImageFile, ServerError> {
    let body = SEAL.unwrap(bytes, path)?;
    v1::MetaImageFile::decode(body)
        .map_err(|e| ServerError::Damaged { path: path.into(), problem: e.to_string() })
}
