//! The state as one message: the image file of a member, its snapshots, and what watchers get first.
//!
//! Format version 1 is `v1::MetaImage` in protobuf; fields are added, never reused. A member writes
//! a higher number only when an older build would misread the image.

use crate::{ImageError, State};
use prost::Message;
use undb_proto::v1;

/// The format version that this build writes, and the highest that it reads.
pub const FORMAT_VERSION: u32 = 1;

impl State {
    /// The whole state.
    pub fn image(&self) -> v1::MetaImage {
        v1::MetaImage {
            format_version: FORMAT_VERSION,
            revision: self.revision,
            cluster: Some(self.cluster.clone()),
            stores: self.stores.values().cloned().collect(),
            store_clusters: self.store_clusters.values().cloned().collect(),
            tables: self.tables.values().cloned().collect(),
            shards: self.shards.values().cloned().collect(),
            control_lease: Some(self.control_lease.clone()),
            now_ms: self.now_ms,
            purged_shards: self.purged_shards.iter().copied().collect(),
            disruption_leases: self.disruption_leases.values().cloned().collect(),
            replica_moves: self.replica_moves.values().copied().collect(),
        }
    }

    /// The state of an image.
    pub fn from_image(image: v1::MetaImage) -> Result<Self, ImageError> {
        match image.format_version {
            0 => return Err(ImageError::Corrupt("it has no format version".into())),
            1..=FORMAT_VERSION => {}
            found => return Err(ImageError::Newer { found, supported: FORMAT_VERSION }),
        }
        if let Some(lost) = image.shards.iter().find(|s| s.shard.is_none()) {
            return Err(ImageError::Corrupt(format!(
                "a shard record of revision {} is empty",
                lost.revision
            )));
        }
        let shard_id = |s: &v1::ShardRecord| s.shard.as_ref().map_or(0, |s| s.shard_id);
        Ok(Self {
            revision: image.revision,
            now_ms: image.now_ms,
            cluster: image.cluster.unwrap_or_default(),
            stores: image.stores.into_iter().map(|s| (s.store_id, s)).collect(),
            store_clusters: image.store_clusters.into_iter().map(|s| (s.name.clone(), s)).collect(),
            tables: image.tables.into_iter().map(|t| (t.table_id, t)).collect(),
            shards: image.shards.into_iter().map(|s| (shard_id(&s), s)).collect(),
            control_lease: image.control_lease.unwrap_or_default(),
            purged_shards: image.purged_shards.into_iter().collect(),
            disruption_leases: image.disruption_leases.into_iter().map(|l| (l.lease_id, l)).collect(),
            replica_moves: image.replica_moves.into_iter().map(|m| (m.shard_id, m)).collect(),
        })
    }

    /// The image as bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.image().encode_to_vec()
    }

    /// The state of encoded bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        let image = v1::MetaImage::decode(bytes).map_err(|e| ImageError::Corrupt(e.to_string()))?;
        Self::from_image(image)
    }
}
