//! replicas/SHARD-REPLICA.json: one replica on this store. Format version 1.
//!
//! Written before anything of the replica exists, rewritten when it has log entries, and kept for
//! ever as a tombstone when it is destroyed: a replica id is never used again, and a late
//! CreateReplica must not bring back a voter that has forgotten its votes.

use crate::error::StoreError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use undb_proto::v1;
use undb_types::{Epoch, GroupId, KeyRange, ReplicaId, ShardId};
use undb_vfs::Fs;

const FORMAT_VERSION: u32 = 1;

/// Where a replica is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// Made, but its log may still be empty.
    Created,
    /// Its log has entries: from here an empty log is a fault.
    Started,
    /// In the trash; the id is spent.
    Destroyed,
}

/// What a store must know of a replica before its tree and log are opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Layout of this file.
    pub format_version: u32,
    /// The shard.
    pub shard_id: u64,
    /// This store's copy of it.
    pub replica_id: u64,
    /// The table.
    pub table_id: u64,
    /// First key; base 16.
    pub start: String,
    /// First key behind; base 16; empty: none.
    pub end: String,
    /// Version of the range.
    pub epoch_version: u64,
    /// Base of the versions of its records.
    pub version_base: u64,
    /// Name of the table when the replica was made.
    pub table_name: String,
    /// Time to live of records that name none, in ms; 0: for ever.
    pub ttl_ms: u64,
    /// separated | lsm | sled.
    pub engine: String,
    /// Values from this size on are separated, in bytes.
    pub threshold_bytes: u64,
    /// True when keys carry a hash prefix.
    pub hash: bool,
    /// Where it is in its life.
    pub state: ReplicaState,
}

impl Descriptor {
    /// From cluster control's order.
    pub fn from_wire(shard: &v1::Shard, replica_id: u64, table: &v1::TableOptions) -> Self {
        let range = shard.range.clone().unwrap_or_default();
        Self {
            format_version: FORMAT_VERSION,
            shard_id: shard.shard_id,
            replica_id,
            table_id: shard.table_id,
            start: to_hex(&range.start),
            end: to_hex(&range.end),
            epoch_version: shard.epoch.map_or(0, |e| e.version),
            version_base: shard.version_base,
            table_name: table.name.clone(),
            ttl_ms: table.ttl_ms,
            engine: table.engine.clone(),
            threshold_bytes: table.threshold_bytes,
            hash: table.partitioning == v1::Partitioning::Hash as i32,
            state: ReplicaState::Created,
        }
    }

    /// Its log and tree.
    pub fn group(&self) -> GroupId {
        GroupId { shard: ShardId(self.shard_id), replica: ReplicaId(self.replica_id) }
    }

    /// The keys that it holds.
    pub fn range(&self) -> Result<KeyRange, String> {
        Ok(KeyRange { start: from_hex(&self.start)?.into(), end: from_hex(&self.end)?.into() })
    }

    /// Its epoch with the members' count from the applied log.
    pub fn epoch(&self, conf: u64) -> Epoch {
        Epoch { version: self.epoch_version, conf }
    }
}

/// The folder of descriptors.
#[derive(Clone)]
pub struct Replicas {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
}

impl Replicas {
    pub(super) fn new(fs: Arc<dyn Fs>, dir: PathBuf) -> Self {
        Self { fs, dir }
    }

    fn path(&self, group: GroupId) -> PathBuf {
        self.dir.join(format!("{}-{}.json", group.shard, group.replica))
    }

    /// Writes one, durably.
    pub fn write(&self, descriptor: &Descriptor) -> Result<(), StoreError> {
        let path = self.path(descriptor.group());
        let bytes = serde_json::to_vec_pretty(descriptor).map_err(|e| StoreError::Internal(e.to_string()))?;
        undb_vfs::write_file_atomic(&*self.fs, &path, &bytes)
            .map_err(|source| StoreError::Io { path, source })
    }

    /// All of them, tombstones included.
    pub fn read_all(&self) -> Result<Vec<Descriptor>, StoreError> {
        let at = |source| StoreError::Io { path: self.dir.clone(), source };
        let mut names = self.fs.list(&self.dir).map_err(at)?;
        names.retain(|name| name.ends_with(".json"));
        names.sort();
        names.iter().map(|name| self.read(self.dir.join(name))).collect()
    }

    fn read(&self, path: PathBuf) -> Result<Descriptor, StoreError> {
        let bytes = undb_vfs::read_file(&*self.fs, &path)
            .map_err(|source| StoreError::Io { path: path.clone(), source })?;
        let descriptor: Descriptor = serde_json::from_slice(&bytes)
            .map_err(|e| StoreError::Corrupt { path: path.clone(), detail: e.to_string() })?;
        if descriptor.format_version > FORMAT_VERSION {
            let (found, known) = (descriptor.format_version, FORMAT_VERSION);
            return Err(StoreError::NewerFormat { path, found, known });
        }
        Ok(descriptor)
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return Err(format!("odd number of base 16 digits in {text:?}"));
    }
    pairs
        .iter()
        .map(|[a, b]| digit(*a).zip(digit(*b)).map(|(a, b)| a << 4 | b))
        .collect::<Option<_>>()
        .ok_or_else(|| format!("not base 16: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Descriptor {
        let shard = v1::Shard {
            shard_id: 3,
            table_id: 2,
            range: Some(v1::KeyRange { start: b"a\x00".as_slice().into(), end: b"\xff".as_slice().into() }),
            epoch: Some(v1::Epoch { version: 4, conf: 5 }),
            replicas: vec![],
            version_base: 1000,
        };
        let table = v1::TableOptions { name: "t".into(), engine: "lsm".into(), ..Default::default() };
        Descriptor::from_wire(&shard, 9, &table)
    }

    #[test]
    fn a_descriptor_reads_back_as_it_was_written() {
        let dir = tempfile::tempdir().expect("tempdir");
        let replicas = Replicas::new(Arc::new(undb_vfs::OsFs::new(dir.path())), dir.path().to_path_buf());
        let mut one = descriptor();
        replicas.write(&one).expect("written");
        one.state = ReplicaState::Destroyed;
        replicas.write(&one).expect("rewritten");
        assert_eq!(replicas.read_all().expect("read"), vec![one]);
    }

    #[test]
    fn ranges_keep_every_byte_and_bad_digits_are_an_error() {
        let range = descriptor().range().expect("base 16");
        assert_eq!((&range.start[..], &range.end[..]), (&b"a\x00"[..], &b"\xff"[..]));
        assert!(from_hex("abc").is_err());
        assert!(from_hex("zz").is_err());
    }

    #[test]
    fn the_format_is_the_golden_one() {
        let text = serde_json::to_string(&descriptor()).expect("json");
        assert_eq!(
            text,
            r#"{"format_version":1,"shard_id":3,"replica_id":9,"table_id":2,"start":"6100","end":"ff","epoch_version":4,"version_base":1000,"table_name":"t","ttl_ms":0,"engine":"lsm","threshold_bytes":0,"hash":false,"state":"created"}"#
        );
    }
}
