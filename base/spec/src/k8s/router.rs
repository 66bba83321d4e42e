//! Router: the processes that hand out routes, and the proxies that speak Redis and HTTP.

use super::Condition;
use super::control_plane::default_component_replicas;
use crate::kubernetes::is_default;
use crate::{ControlPlaneRef, PodTemplate, ResourcesSpec};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is wanted of a router group.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "undb.io",
    version = "v1alpha1",
    kind = "Router",
    plural = "routers",
    shortname = "urt",
    category = "undb",
    namespaced,
    derive = "PartialEq",
    status = "RouterStatus"
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouterSpec {
    /// Which ControlPlane; unset: the only one of the namespace, or `undb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ControlPlaneRef>,
    /// The container image; unset: what the operator had when the first Pod began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The processes that hand out routes to SDKs and proxies.
    #[serde(default)]
    pub routing: RoutingSpec,
    /// The proxies.
    #[serde(default)]
    pub proxy: ProxySpec,
    /// What else the Pods should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
    /// The operator changes nothing while it is true.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
}

/// The processes that hand out routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoutingSpec {
    /// How many.
    #[serde(default = "default_component_replicas")]
    pub replicas: u32,
    /// CPU and memory of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
}

impl Default for RoutingSpec {
    fn default() -> Self {
        Self { replicas: default_component_replicas(), resources: None }
    }
}

/// The proxies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxySpec {
    /// How many.
    #[serde(default = "default_component_replicas")]
    pub replicas: u32,
    /// CPU and memory of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
    /// Tables that Redis clients reach by number: `SELECT 0` is the first. Unset: `default`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<String>,
    /// TLS towards Redis and HTTP clients.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tls: ProxyTlsSpec,
    /// How the Service of the proxies is reached.
    #[serde(default, skip_serializing_if = "is_default")]
    pub service_type: ServiceType,
    /// Annotations of the Service, for example for a load balancer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_annotations: BTreeMap<String, String>,
}

impl Default for ProxySpec {
    fn default() -> Self {
        Self {
            replicas: default_component_replicas(),
            resources: None,
            tables: Vec::new(),
            tls: ProxyTlsSpec::default(),
            service_type: ServiceType::default(),
            service_annotations: BTreeMap::new(),
        }
    }
}

/// TLS towards Redis and HTTP clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxyTlsSpec {
    /// Whether they must speak TLS.
    #[serde(default)]
    pub enabled: bool,
}

/// The type of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Inside the cluster.
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// On a port of every node.
    NodePort,
    /// Through a load balancer.
    LoadBalancer,
}

impl ServiceType {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouterStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The image in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Where Redis clients connect: HOST:PORT inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Routing and proxy processes that are ready.
    pub ready_replicas: u32,
    /// Of them, routing.
    pub routing_ready_replicas: u32,
    /// Of them, proxies.
    pub proxy_ready_replicas: u32,
    /// Labels of the proxies' Pods, as one selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Ready, Reconciling, Stalled.
    pub conditions: Vec<Condition>,
}
