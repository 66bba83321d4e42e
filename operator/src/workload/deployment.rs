//! What keeps Pods without data running.

use super::names::{Instance, Role, labels, selector, service_name};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How many Pods, and how they may be exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas(pub u32);

/// A Deployment that never has fewer Pods than it should: a new one is ready before an old one goes.
pub fn deployment(
    instance: &Instance,
    role: Role,
    template: PodTemplateSpec,
    replicas: Replicas,
) -> Deployment {
    Deployment {
        metadata: ObjectMeta {
            name: Some(service_name(&instance.name, role)),
            namespace: Some(instance.namespace.clone()),
            labels: Some(labels(instance, role)),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: Some(i32::try_from(replicas.0).unwrap_or(i32::MAX)),
            selector: LabelSelector {
                match_labels: Some(selector(instance, role)),
                ..LabelSelector::default()
            },
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(1)),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            revision_history_limit: Some(2),
            template,
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// How far a Deployment or StatefulSet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Pods that are ready.
    pub ready: u32,
    /// True when every Pod is ready and made from the newest template, and no other is left.
    pub is_done: bool,
}

/// From a Deployment as it was read.
pub fn progress(found: &Deployment) -> Progress {
    let Some(status) = &found.status else { return Progress::default() };
    let wanted = found.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let is_seen = status.observed_generation >= found.metadata.generation;
    let ready = status.ready_replicas.unwrap_or(0);
    let all = [status.replicas, status.updated_replicas, status.available_replicas];
    let is_done = is_seen && all.iter().all(|count| count.unwrap_or(0) == wanted) && ready == wanted;
    Progress { ready: u32::try_from(ready).unwrap_or(0), is_done }
}
