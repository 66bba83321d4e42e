//! Table: records under (hash key, sort key), cut into shards that are replicated over stores.

use crate::{ByteSize, ControlPlaneRef, Manifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The object.
pub type Table = Manifest<TableSpec>;

impl Table {
    /// Its kind.
    pub const KIND: &'static str = "Table";
}

/// What is wanted of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "kube", derive(kube::CustomResource))]
#[cfg_attr(
    feature = "kube",
    kube(
        group = "undb.io",
        version = "v1alpha1",
        kind = "Table",
        root = "TableResource",
        plural = "tables",
        shortname = "utb",
        category = "undb",
        namespaced,
        derive = "PartialEq",
        status = "crate::k8s::TableStatus"
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TableSpec {
    /// The class of stores that keep it.
    #[serde(default = "default_store_cluster")]
    pub store_cluster: String,
    /// How many copies.
    #[serde(default)]
    pub replication: ReplicationSpec,
    /// How keys are spread over shards; it cannot be changed later.
    #[serde(default)]
    pub partitioning: PartitioningSpec,
    /// Seconds until a record that sets no TTL of its own expires; 0: never.
    #[serde(default)]
    pub ttl_seconds: u64,
    /// Upper bounds for the table as a whole. Kept, not enforced yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaSpec>,
    /// What happens to data when the object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// Kubernetes only: which control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ControlPlaneRef>,
}

fn default_store_cluster() -> String {
    "default".into()
}

impl Default for TableSpec {
    fn default() -> Self {
        Self {
            store_cluster: default_store_cluster(),
            replication: ReplicationSpec::default(),
            partitioning: PartitioningSpec::default(),
            ttl_seconds: 0,
            quota: None,
            deletion_policy: DeletionPolicy::default(),
            control_plane_ref: None,
        }
    }
}

/// How many copies, and how many must stay while stores are taken away on purpose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplicationSpec {
    /// Copies of each shard, on different stores: 1, 3, 5 or 7.
    #[serde(default = "default_factor")]
    #[schemars(range(min = 1, max = 7))]
    pub factor: u32,
    /// Copies that a planned disruption leaves, at most `factor`; unset: the majority. 0, with a factor of 1
    /// only: planned restarts may take the one copy away, and its shards are not served meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available: Option<u32>,
}

fn default_factor() -> u32 {
    3
}

impl Default for ReplicationSpec {
    fn default() -> Self {
        Self { factor: default_factor(), min_available: None }
    }
}

impl ReplicationSpec {
    /// `minAvailable`, or the majority.
    pub fn min_available(&self) -> u32 {
        self.min_available.unwrap_or(self.factor / 2 + 1)
    }
}

/// How keys are spread over shards.
// One flat struct, not a tagged enum: its errors keep their line, and CRD schemas cannot say oneOf.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PartitioningSpec {
    /// By key order, or by a hash.
    #[serde(default, rename = "type")]
    pub kind: PartitioningType,
    /// For `range`: the hash keys at which a new shard begins, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split_keys: Vec<String>,
    /// For `hash`: how many equal shards, 1 to 1024; unset: 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
}

/// The two ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PartitioningType {
    /// In key order: prefix scans over keys work.
    #[default]
    Range,
    /// By a hash of the hash key: load spreads by itself.
    Hash,
}

impl PartitioningSpec {
    /// Shards that the table starts with.
    pub fn shard_count(&self) -> u32 {
        match self.kind {
            PartitioningType::Range => {
                u32::try_from(self.split_keys.len()).unwrap_or(u32::MAX).saturating_add(1)
            }
            PartitioningType::Hash => self.shards.unwrap_or(8),
        }
    }
}

/// Upper bounds for a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuotaSpec {
    /// Of keys and values, one copy counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<ByteSize>,
    /// Reads and writes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
}

/// What happens to data when its object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It stays for seven days and can be brought back.
    #[default]
    Retain,
    /// It goes with the object.
    Delete,
}
