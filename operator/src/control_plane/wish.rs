//! What a ControlPlane's spec comes to. Pure.

use crate::apply;
use crate::config::{self, Place, Tuning};
use crate::error::{Error, Result};
use crate::workload::{Instance, Restart, Role, restart_hash};
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;
use undb_spec::k8s::ControlPlane;
use undb_spec::{ResourcesSpec, VolumeRetention};

/// Annotation of a ControlPlane: another text asks for another certificate authority.
pub const ROTATE_CA: &str = "undb.io/rotate-ca";
const MEMBERS: [u32; 3] = [1, 3, 5];

/// Resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// Whose.
    pub instance: Instance,
    /// The image of all roles.
    pub image: String,
    /// Whether roles speak TLS.
    pub has_tls: bool,
    /// Members of metadata.
    pub members: u32,
    /// What users and tests set of cluster control.
    pub tuning: Tuning,
    /// The user's, as JSON.
    pub pod_template: Option<Value>,
    /// By role.
    resources: [Option<Value>; 3],
}

#[derive(Serialize)]
struct Settings<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tuning: Option<&'a Tuning>,
    members: u32,
}

/// From the spec. `default_image`: of the operator, used only when nothing was resolved before.
pub fn resolve(parent: &ControlPlane, default_image: &str, is_gate_off: GateOff) -> Result<Wish> {
    let spec = &parent.spec;
    let kept = parent.status.as_ref().and_then(|status| status.image.clone());
    let image = spec.image.clone().or(kept).unwrap_or_else(|| default_image.to_owned());
    if image.is_empty() {
        return Err(Error::invalid(
            "spec.image",
            "is not set, and the operator was started without UNDB_IMAGE",
        ));
    }
    let members = spec.metadata.replicas;
    if !MEMBERS.contains(&members) {
        return Err(Error::invalid(
            "spec.metadata.replicas",
            format!("{members} is not possible; write 1, 3 or 5"),
        ));
    }
    let json = |resources: &Option<ResourcesSpec>| {
        resources.as_ref().and_then(|resources| serde_json::to_value(resources).ok())
    };
    Ok(Wish {
        instance: Instance {
            namespace: apply::namespace(parent)?,
            name: parent.name_any(),
            control_plane: parent.name_any(),
        },
        image,
        has_tls: spec.tls.enabled,
        members,
        tuning: Tuning {
            disconnected_seconds: spec.tuning.disconnected_seconds,
            down_seconds: spec.tuning.down_seconds,
            unsafe_gate_off: is_gate_off == GateOff::Yes,
        },
        pod_template: spec.pod_template.as_ref().and_then(|template| serde_json::to_value(template).ok()),
        resources: [
            json(&spec.metadata.resources),
            json(&spec.control.resources),
            json(&spec.access.resources),
        ],
    })
}

/// The test setting of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOff {
    /// The gate decides.
    No,
    /// The gate answers yes to everything.
    Yes,
}

/// True when data goes with the object, so that keys and identity go as well.
pub fn goes_with_the_object(parent: &ControlPlane) -> bool {
    parent.spec.persistent_volume_claim_retention_policy.when_deleted == VolumeRetention::Delete
}

impl Wish {
    /// Where roles find one another.
    pub fn place(&self) -> Place<'_> {
        Place {
            namespace: &self.instance.namespace,
            control_plane: &self.instance.control_plane,
            members: self.members,
            has_tls: self.has_tls,
        }
    }

    /// The configuration file of a role.
    pub fn config(&self, role: Role, cluster_id: &str) -> String {
        match role {
            Role::Meta => config::meta(&self.place(), cluster_id),
            Role::Control => config::control(&self.place(), &self.tuning),
            _ => config::access(&self.place()),
        }
    }

    /// CPU and memory of a role.
    pub fn resources(&self, role: Role) -> Option<&Value> {
        let index = match role {
            Role::Meta => 0,
            Role::Control => 1,
            _ => 2,
        };
        self.resources.get(index)?.as_ref()
    }

    /// What a running Pod of a role must be restarted for.
    pub fn template_hash(&self, role: Role, cluster_id: &str) -> String {
        restart_hash(&Restart {
            image: &self.image,
            resources: self.resources(role),
            pod_template: self.pod_template.as_ref(),
            tls: self.has_tls,
            settings: Settings {
                cluster_id: (role == Role::Meta).then_some(cluster_id),
                tuning: (role == Role::Control).then_some(&self.tuning),
                members: self.members,
            },
        })
    }
}
