//! The parts of a spec that mean something only on Kubernetes. They need nothing of Kubernetes to be
//! read: `undb apply` takes the same YAML, and says that they have no effect there.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Names a ControlPlane of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlPlaneRef {
    /// Its name.
    pub name: String,
}

/// What a container asks for, and what it may use at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourcesSpec {
    /// What the scheduler sets aside, for example `{cpu: "1", memory: 2Gi}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Amount>,
    /// What the container may use at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Amount>,
}

/// An amount as Kubernetes writes it: `500m`, `2`, `4Gi`. Kept as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Amount(pub String);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount, for example 500m or 4Gi")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
                let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let fits = !number.is_empty()
                    && number.bytes().all(|b| b.is_ascii_digit() || b == b'.')
                    && text.len() <= AMOUNT_LEN_MAX;
                let refuse =
                    || E::custom(format!("`{text:.40}` is not an amount; write for example 500m or 4Gi"));
                fits.then(|| Amount(text.into())).ok_or_else(refuse)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Amount, E> {
                Ok(Amount(number.to_string()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Amount, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Amount, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

const AMOUNT_LEN_MAX: usize = 32;

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "An amount, for example 500m or 4Gi.",
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": AMOUNT_LEN_MAX,
            "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$"
        })
    }
}

/// What Pods have besides what the operator gives them. Merged into them: maps by key, lists of named
/// things (containers, volumes, environment) by name, other lists as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodTemplate {
    /// Labels and annotations.
    #[serde(default)]
    pub metadata: PodMetadata,
    /// Any part of a Pod's spec, for example nodeSelector, tolerations, priorityClassName.
    #[serde(default)]
    #[schemars(schema_with = "anything")]
    pub spec: Map<String, Value>,
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Labels and annotations of Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodMetadata {
    /// Those of the operator win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Those of the operator win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Where stores may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopologySpec {
    /// The node label over whose values stores are spread evenly, for example the zone. Copies of a
    /// shard are kept in different ones while there are enough.
    #[serde(default = "default_spread")]
    pub spread: String,
}

fn default_spread() -> String {
    "topology.kubernetes.io/zone".into()
}

impl Default for TopologySpec {
    fn default() -> Self {
        Self { spread: default_spread() }
    }
}

/// How a change of the Pods reaches them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateStrategySpec {
    /// Who restarts stores.
    #[serde(default, rename = "type")]
    pub kind: UpdateStrategyType,
    /// What happens when a store may not be restarted for a long time.
    #[serde(default)]
    pub on_timeout: OnTimeout,
}

/// Who restarts stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategyType {
    /// The operator, one after the other, each as soon as no shard suffers by it.
    #[default]
    RollingUpdate,
    /// Nobody: a store takes a change when its Pod is evicted, for example by `kubectl drain`.
    OnDelete,
}

/// What happens when a store may not be restarted for a long time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnTimeout {
    /// It waits, and `status.blockedBy` says for what.
    #[default]
    Block,
}

/// What guards shards while Pods go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DisruptionPolicySpec {
    /// Whether an eviction begins a restart in order; the PDBs refuse it while it is not safe in any case.
    #[serde(default)]
    pub eviction_webhook: EvictionWebhook,
}

/// What the webhook does with an eviction of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EvictionWebhook {
    /// It asks the control plane, begins the hand-over, and names the shards it waits for.
    #[default]
    Enforce,
    /// It looks away. The PDB of a store stays closed, so that an eviction is refused.
    Off,
}

/// When a store that is gone is replaced by a new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplacementPolicySpec {
    /// By whom.
    #[serde(default)]
    pub mode: ReplacementMode,
    /// Seconds for which its node is NotReady or gone before it counts as lost. Never a cordoned node.
    #[serde(default = "default_replace_after_seconds")]
    #[schemars(range(min = 60, max = 604800))]
    pub after_seconds: u32,
}

fn default_replace_after_seconds() -> u32 {
    1800
}

impl Default for ReplacementPolicySpec {
    fn default() -> Self {
        Self { mode: ReplacementMode::default(), after_seconds: default_replace_after_seconds() }
    }
}

/// Who replaces a lost store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplacementMode {
    /// The operator, after `afterSeconds`.
    #[default]
    Automatic,
    /// A person, by `spec.offline: true` of the Store.
    Manual,
}

/// What happens to the volumes of stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeRetentionSpec {
    /// When the StoreCluster is deleted.
    #[serde(default)]
    pub when_deleted: VolumeRetention,
    /// When a store leaves because there are to be fewer.
    #[serde(default)]
    pub when_scaled: VolumeRetention,
}

/// What happens to a volume that nobody uses any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VolumeRetention {
    /// It stays, with its data.
    #[default]
    Retain,
    /// It goes, with its data.
    Delete,
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
