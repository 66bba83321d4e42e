//! Pods, the way every role of UNDB runs.
//!
//! ```text
//! RolePod { role, image, config ... } --template--> PodTemplateSpec --merge--> with what the user set
//!                                      restart_hash: of what a running Pod must be restarted for
//! ```
//! Every Pod: not root, no privileges, a read-only root file system, no token of the API server, one
//! volume with its files (`/etc/undb`: config.toml, token, tls/), probes on a plain port. No liveness
//! probe: one that kills what is slow makes it slower.
//!
//! Where to look: names and addresses -> `names`; the Pod -> `pod`; what users may set -> `merge`;
//! Services, budgets, network policies -> `service`.

mod deployment;
mod hash;
mod merge;
pub mod names;
mod pod;
mod quantity;
mod service;

pub use deployment::{Progress, Replicas, deployment, progress};
pub use hash::{Restart, restart_hash};
pub use merge::{TemplateError, merge, parse_resources};
pub use names::{Instance, Role, labels, selector};
pub use pod::{CONTAINER, DATA_DIR, DATA_VOLUME, Data, FILES_DIR, RolePod};
pub use quantity::{bytes, memory_limit_bytes};
pub use service::{budget, headless_service, network_policy, service};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// The label of every object: which ControlPlane it belongs to.
pub const LABEL_CONTROL_PLANE: &str = "undb.io/control-plane";
/// Which part of the platform a Pod is.
pub const LABEL_COMPONENT: &str = "undb.io/component";
/// Which StoreCluster a store belongs to.
pub const LABEL_STORE_CLUSTER: &str = "undb.io/store-cluster";
/// Which Store a Pod, a volume claim or a budget belongs to.
pub const LABEL_STORE: &str = "undb.io/store";
/// On Pods: what `restart_hash` was when the Pod was made.
pub const ANNOTATION_TEMPLATE_HASH: &str = "undb.io/template-hash";
/// Who looks after an object.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Who writes, for server-side apply and in `managed-by`.
pub const FIELD_MANAGER: &str = "undb-operator";

/// Words of the kubelet for a container that does not start by waiting.
pub const KUBELET_STALLING: [&str; 7] = [
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
];

/// The kubelet's word for what keeps a container from running, and a sentence.
pub fn kubelet_trouble(pod: &Pod) -> Option<(String, String)> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = containers.iter().find_map(|container| container.state.as_ref()?.waiting.as_ref())?;
    let word =
        waiting.reason.clone().filter(|word| word != "ContainerCreating" && word != "PodInitializing")?;
    let message = waiting.message.clone().unwrap_or_default();
    Some((word.clone(), format!("Pod {} does not run: {word} {message}", pod.name_any())))
}
