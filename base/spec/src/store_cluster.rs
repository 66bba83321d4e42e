//! StoreCluster: a class of stores. On Kubernetes it owns them; elsewhere it is what stores say they
//! belong to, and where tables are placed.

use crate::kubernetes::is_default;
use crate::{
    ByteSize, ControlPlaneRef, DisruptionPolicySpec, Manifest, PodTemplate, ReplacementPolicySpec,
    ResourcesSpec, TopologySpec, UpdateStrategySpec, VolumeRetentionSpec,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The object.
pub type StoreCluster = Manifest<StoreClusterSpec>;

impl StoreCluster {
    /// Its kind.
    pub const KIND: &'static str = "StoreCluster";
}

/// What is wanted of a class of stores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "kube", derive(kube::CustomResource))]
#[cfg_attr(
    feature = "kube",
    kube(
        group = "undb.io",
        version = "v1alpha1",
        kind = "StoreCluster",
        root = "StoreClusterResource",
        plural = "storeclusters",
        shortname = "usc",
        category = "undb",
        namespaced,
        derive = "PartialEq",
        status = "crate::k8s::StoreClusterStatus"
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoreClusterSpec {
    /// How many stores, 1 to 1000. Outside Kubernetes nobody starts them: fewer show as
    /// InsufficientStores.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 1000))]
    pub replicas: u32,
    /// How they keep data.
    #[serde(default)]
    pub engine: EngineSpec,
    /// Where they keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,

    /// Kubernetes only: which ControlPlane; unset: the only one of the namespace, or `undb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ControlPlaneRef>,
    /// Kubernetes only: the container image; unset: what the operator had when the first store began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Kubernetes only: CPU and memory of each store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
    /// Kubernetes only: what else the Pods should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
    /// Kubernetes only: where Pods may run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub topology: TopologySpec,
    /// Kubernetes only: how a change rolls out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub update_strategy: UpdateStrategySpec,
    /// Kubernetes only: what guards shards while Pods go.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disruption_policy: DisruptionPolicySpec,
    /// Kubernetes only: when a lost store is replaced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replacement_policy: ReplacementPolicySpec,
    /// Kubernetes only: what happens to volumes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub persistent_volume_claim_retention_policy: VolumeRetentionSpec,
    /// Kubernetes only: the operator changes nothing while it is true.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
}

fn default_replicas() -> u32 {
    3
}

/// How a store keeps data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineSpec {
    /// Which engine; it cannot be changed later.
    #[serde(default, rename = "type")]
    pub kind: EngineType,
    /// For `separated`: which values stay out of the index.
    #[serde(default)]
    pub separation: SeparationSpec,
    /// Budget for caches and memtables of one store; unset: the store's own configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
}

/// The engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EngineType {
    /// Values stay in the log, the index points at them: the least written bytes.
    #[default]
    Separated,
    /// Values in the index tree: the baseline, best for values of a few bytes.
    Lsm,
    /// The sled crate: experimental.
    Sled,
}

impl EngineType {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Separated => "separated",
            Self::Lsm => "lsm",
            Self::Sled => "sled",
        }
    }
}

/// Which values are kept apart from the index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SeparationSpec {
    /// Values of this size and more; at most 1Mi. A change holds for new writes.
    #[serde(default = "default_threshold")]
    pub threshold: ByteSize,
}

impl Default for SeparationSpec {
    fn default() -> Self {
        Self { threshold: default_threshold() }
    }
}

fn default_threshold() -> ByteSize {
    ByteSize(1024)
}

/// Where a store keeps data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StorageSpec {
    /// Space of one store; it can grow, not shrink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// Kubernetes only: the StorageClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}
