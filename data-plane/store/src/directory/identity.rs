//! identity.json: who this store is. Format version 1; an unknown version is refused.

use crate::error::StoreError;
use serde::{Deserialize, Serialize};
use std::path::Path;
use undb_vfs::Fs;

/// Version of the whole directory's layout.
pub const FORMAT_VERSION: u32 = 1;

const FILE: &str = "identity.json";

/// Who a store is. `cluster_id` is empty and `store_id` 0 until it has registered once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Layout of the directory.
    pub format_version: u32,
    /// The cluster that this store belongs to.
    pub cluster_id: String,
    /// Chosen by the store on its first start; never changes.
    pub uuid: String,
    /// Given by metadata; never used again after this directory is gone.
    pub store_id: u64,
}

#[derive(Deserialize)]
struct VersionOnly {
    format_version: u32,
}

impl Identity {
    /// A new one that has not registered.
    pub fn generate() -> Self {
        Self { format_version: FORMAT_VERSION, cluster_id: String::new(), uuid: random_uuid(), store_id: 0 }
    }

    /// True when metadata knows this store.
    pub fn registered(&self) -> bool {
        self.store_id != 0 && !self.cluster_id.is_empty()
    }

    pub(super) fn write(&self, fs: &dyn Fs, dir: &Path) -> Result<(), StoreError> {
        let path = dir.join(FILE);
        let bytes = serde_json::to_vec_pretty(self).map_err(|e| StoreError::Internal(e.to_string()))?;
        undb_vfs::write_file_atomic(fs, &path, &bytes).map_err(|source| StoreError::Io { path, source })
    }
}

/// The identity in a directory; none: it has not been a store yet.
pub fn read(fs: &dyn Fs, dir: &Path) -> Result<Option<Identity>, StoreError> {
    let path = dir.join(FILE);
    let at = |source| StoreError::Io { path: path.clone(), source };
    if !fs.exists(&path).map_err(at)? {
        return Ok(None);
    }
    let bytes = undb_vfs::read_file(fs, &path).map_err(at)?;
    let corrupt = |e: serde_json::Error| StoreError::Corrupt { path: path.clone(), detail: e.to_string() };
    let version: VersionOnly = serde_json::from_slice(&bytes).map_err(corrupt)?;
    if version.format_version > FORMAT_VERSION {
        return Err(StoreError::NewerFormat { path, found: version.format_version, known: FORMAT_VERSION });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(corrupt)
}

fn random_uuid() -> String {
    let n: u128 = rand::random();
    let n = (n & !(0xF << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{n:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_of_version_four_and_differ() {
        let (a, b) = (random_uuid(), random_uuid());
        assert_ne!(a, b);
        assert_eq!(a.len(), 36);
        assert_eq!(&a[14..15], "4");
    }
}
