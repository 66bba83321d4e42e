//! ControlPlane: metadata, cluster control and access of one UNDB.

use super::Condition;
use crate::kubernetes::is_default;
use crate::{ByteSize, PodTemplate, ResourcesSpec, VolumeRetention};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wanted of a control plane.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "undb.io",
    version = "v1alpha1",
    kind = "ControlPlane",
    plural = "controlplanes",
    shortname = "ucp",
    category = "undb",
    namespaced,
    derive = "PartialEq",
    status = "ControlPlaneStatus"
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlPlaneSpec {
    /// The container image; unset: what the operator had when the first Pod began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The members that keep metadata.
    #[serde(default)]
    pub metadata: MetadataSpec,
    /// The processes that place and repair shards; one of them leads.
    #[serde(default)]
    pub control: ComponentSpec,
    /// The processes that clients and the operator ask.
    #[serde(default)]
    pub access: ComponentSpec,
    /// Certificates between all processes and for clients.
    #[serde(default)]
    pub tls: TlsSpec,
    /// What else the Pods should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
    /// What happens to the volumes of the members.
    #[serde(default, skip_serializing_if = "is_default")]
    pub persistent_volume_claim_retention_policy: ControlPlaneVolumeRetentionSpec,
    /// When a store that is silent counts as gone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tuning: TuningSpec,
    /// The operator changes nothing while it is true.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
}

/// The members that keep metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetadataSpec {
    /// 1, 3 or 5; it cannot be changed later yet.
    #[serde(default = "default_members")]
    pub replicas: u32,
    /// The volume of each.
    #[serde(default)]
    pub storage: MetadataStorageSpec,
    /// CPU and memory of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
}

fn default_members() -> u32 {
    3
}

impl Default for MetadataSpec {
    fn default() -> Self {
        Self { replicas: default_members(), storage: MetadataStorageSpec::default(), resources: None }
    }
}

/// The volume of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetadataStorageSpec {
    /// Its size; it cannot be changed later yet.
    #[serde(default = "default_member_size")]
    pub size: ByteSize,
    /// The StorageClass; unset: the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

fn default_member_size() -> ByteSize {
    ByteSize(1 << 30)
}

impl Default for MetadataStorageSpec {
    fn default() -> Self {
        Self { size: default_member_size(), class: None }
    }
}

/// Some processes that keep nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ComponentSpec {
    /// How many.
    #[serde(default = "default_component_replicas")]
    pub replicas: u32,
    /// CPU and memory of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
}

pub(super) fn default_component_replicas() -> u32 {
    2
}

impl Default for ComponentSpec {
    fn default() -> Self {
        Self { replicas: default_component_replicas(), resources: None }
    }
}

/// Certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsSpec {
    /// Whether processes speak TLS, with certificates that the operator makes and renews.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

impl Default for TlsSpec {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// What happens to the volumes of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlPlaneVolumeRetentionSpec {
    /// When the ControlPlane is deleted.
    #[serde(default)]
    pub when_deleted: VolumeRetention,
}

/// When a silent store counts as gone. Unset: the control plane's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TuningSpec {
    /// Seconds of silence until nothing new is placed on it; unset: 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnected_seconds: Option<u32>,
    /// Seconds of silence until its replicas are made again elsewhere; unset: 1800.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_seconds: Option<u32>,
}

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The image in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The tag of the image, once every process runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Identity of this UNDB; stores of another one are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Where clients ask: HOST:PORT inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The Secret with what a client needs: endpoint, token, ca.crt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// Members of metadata that are caught up.
    pub ready_members: u32,
    /// All members of metadata.
    pub members: Vec<MemberStatus>,
    /// Control processes that are ready.
    pub control_ready_replicas: u32,
    /// Access processes that are ready.
    pub access_ready_replicas: u32,
    /// Ready, Reconciling, Stalled.
    pub conditions: Vec<Condition>,
}

/// A member of metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemberStatus {
    /// Its Pod.
    pub name: String,
    /// Its id in the group.
    pub member_id: u64,
    /// Whether it is caught up.
    pub ready: bool,
    /// Whether it leads.
    pub leader: bool,
    /// The image that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}
