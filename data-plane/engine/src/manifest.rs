//! The engine's manifest: which trees and which data files there are. What it does not name is deleted at open.
//!
//! ```text
//! magic "UNDBMANI" | format u32 LE = 1 | body_len u32 LE | crc32c u32 LE of the body | body
//! body: next_generation, next_data_id
//!       count of trees { shard, replica, kind, threshold, generation }
//!       count of data files { id, bytes, record_bytes, created_ms, class }     (all varints)
//! ```
//! The file is replaced as a whole (temporary file, sync, rename, sync of the directory).

use crate::error::{EngineError, Result};
use crate::tree::EngineKind;
use crate::tree::entry::{Input, put_varint};
use std::collections::BTreeMap;
use std::path::Path;
use undb_types::{GroupId, ReplicaId, ShardId};

const MAGIC: [u8; 8] = *b"UNDBMANI";
/// The newest format known here.
pub const MANIFEST_FORMAT: u32 = 1;
const HEADER_LEN: usize = 20;

/// A tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeRecord {
    /// Which engine keeps it.
    pub kind: EngineKind,
    /// Values from so many bytes on are kept apart.
    pub threshold: u32,
    /// Names its directory.
    pub generation: u64,
}

/// A data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRecord {
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes of the records in it when it was written.
    pub record_bytes: u64,
    /// When it was written, as the garbage collector's caller told.
    pub created_ms: u64,
    /// How often its values survived a collection.
    pub class: u8,
}

/// The whole manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The next directory number, never used before.
    pub next_generation: u64,
    /// The next data file id, never used before.
    pub next_data_id: u64,
    /// Trees.
    pub trees: BTreeMap<GroupId, TreeRecord>,
    /// Data files.
    pub data: BTreeMap<u64, DataRecord>,
}

impl Manifest {
    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![];
        put_varint(&mut body, self.next_generation);
        put_varint(&mut body, self.next_data_id);
        put_varint(&mut body, self.trees.len() as u64);
        for (group, tree) in &self.trees {
            let numbers = [
                group.shard.0,
                group.replica.0,
                tree.kind.code().into(),
                tree.threshold.into(),
                tree.generation,
            ];
            numbers.into_iter().for_each(|n| put_varint(&mut body, n));
        }
        put_varint(&mut body, self.data.len() as u64);
        for (id, data) in &self.data {
            let numbers = [*id, data.bytes, data.record_bytes, data.created_ms, data.class.into()];
            numbers.into_iter().for_each(|n| put_varint(&mut body, n));
        }
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&MANIFEST_FORMAT.to_le_bytes());
        out.extend_from_slice(&u32::try_from(body.len()).expect("a manifest is small").to_le_bytes());
        out.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    /// Decodes it; `path` is for messages.
    pub fn decode(path: &Path, bytes: &[u8]) -> Result<Manifest> {
        let bad = |detail: &str| EngineError::corrupt(path.display().to_string(), detail);
        let word = |at: usize| -> Result<u32> {
            let word = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or_else(|| bad("cut off"))?;
            Ok(u32::from_le_bytes(word))
        };
        if bytes.get(..8) != Some(&MAGIC[..]) {
            return Err(bad("not a manifest"));
        }
        let found = word(8)?;
        if found > MANIFEST_FORMAT {
            return Err(EngineError::NewerFormat { path: path.into(), found, supported: MANIFEST_FORMAT });
        }
        let body = bytes.get(HEADER_LEN..).ok_or_else(|| bad("cut off"))?;
        if body.len() != word(12)? as usize || crc32c::crc32c(body) != word(16)? {
            return Err(bad("checksum differs"));
        }
        Self::decode_body(Input(body))
    }

    fn decode_body(mut input: Input<'_>) -> Result<Manifest> {
        let mut manifest = Manifest {
            next_generation: input.varint()?,
            next_data_id: input.varint()?,
            ..Default::default()
        };
        for _ in 0..input.varint()? {
            let group = GroupId { shard: ShardId(input.varint()?), replica: ReplicaId(input.varint()?) };
            let kind = EngineKind::from_code(input.byte()?)?;
            let tree = TreeRecord { kind, threshold: input.varint_u32()?, generation: input.varint()? };
            manifest.trees.insert(group, tree);
        }
        for _ in 0..input.varint()? {
            let id = input.varint()?;
            let (bytes, record_bytes) = (input.varint()?, input.varint()?);
            let data = DataRecord { bytes, record_bytes, created_ms: input.varint()?, class: input.byte()? };
            manifest.data.insert(id, data);
        }
        input.end()?;
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let group = GroupId { shard: ShardId(300), replica: ReplicaId(7) };
        let tree = TreeRecord { kind: EngineKind::Separated, threshold: 1024, generation: 9 };
        let data =
            DataRecord { bytes: 1 << 26, record_bytes: 1 << 25, created_ms: 1_700_000_000_000, class: 2 };
        Manifest {
            next_generation: 10,
            next_data_id: 5,
            trees: [(group, tree)].into(),
            data: [(4, data)].into(),
        }
    }

    #[test]
    fn a_manifest_decodes_to_what_was_encoded() {
        for manifest in [Manifest::default(), manifest()] {
            assert_eq!(
                Manifest::decode(Path::new("m"), &manifest.encode()).expect("our own encoding"),
                manifest
            );
        }
    }

    #[test]
    fn any_flipped_bit_is_an_error() {
        let good = manifest().encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let refused = Manifest::decode(Path::new("m"), &bad);
            // The format field is not summed: a smaller number would be an older format with this layout.
            assert!(refused.is_err() || (8..12).contains(&(bit / 8)), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_names_both_versions() {
        let mut newer = manifest().encode();
        newer[8] = 2;
        let refused = Manifest::decode(Path::new("m"), &newer).expect_err("newer");
        assert!(matches!(refused, EngineError::NewerFormat { found: 2, supported: 1, .. }));
    }
}
