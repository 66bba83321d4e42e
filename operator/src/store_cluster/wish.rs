//! What a StoreCluster's spec comes to, once its ControlPlane is known: the image, the addresses, the
//! hash of what a Pod must be restarted for.

use crate::apply::api;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::workload::{Instance, Restart, names, restart_hash};
use kube::ResourceExt;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::Value;
use undb_spec::EngineSpec;
use undb_spec::k8s::{ControlPlane, StoreCluster};

/// Resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    pub instance: Instance,
    pub image: String,
    pub has_tls: bool,
    /// The user's, as JSON.
    pub resources: Option<Value>,
    pub pod_template: Option<Value>,
    pub template_hash: String,
}

/// What of the spec ends in the configuration file.
#[derive(Serialize)]
struct Settings<'a> {
    engine: &'a EngineSpec,
    capacity: Option<u64>,
    control_plane: &'a str,
}

/// Which ControlPlane a reference, or its absence, means.
pub async fn control_plane(ctx: &Ctx, namespace: &str, named: Option<&str>) -> Result<ControlPlane> {
    let missing = |name: &str| Error::Missing {
        what: "ControlPlane",
        name: format!("{namespace}/{name}"),
        remedy: "create it, or name another one in spec.controlPlaneRef".into(),
    };
    if let Some(name) = named {
        return api::<ControlPlane>(ctx, namespace).get_opt(name).await?.ok_or_else(|| missing(name));
    }
    let mut all = api::<ControlPlane>(ctx, namespace).list(&ListParams::default()).await?.items;
    if all.len() == 1 {
        return all.pop().ok_or_else(|| missing("undb"));
    }
    all.into_iter().find(|c| c.name_any() == "undb").ok_or_else(|| missing("undb"))
}

/// The image that is named or kept, else that of the ControlPlane. It is kept in the status, so that an
/// upgrade of the operator restarts nothing.
pub fn image(own: Option<String>, control_plane: &ControlPlane, default_image: &str) -> String {
    let status = || control_plane.status.as_ref().and_then(|status| status.image.clone());
    let found = own.or_else(status).or_else(|| control_plane.spec.image.clone());
    found.unwrap_or_else(|| default_image.to_owned())
}

/// From the spec and its ControlPlane. Pure.
pub fn resolve(parent: &StoreCluster, control_plane: &ControlPlane, default_image: &str) -> Result<Wish> {
    let spec = &parent.spec;
    let kept = parent.status.as_ref().and_then(|s| s.image.clone());
    let image = image(spec.image.clone().or(kept), control_plane, default_image);
    let json = |value: serde_json::Result<Value>, field: &str| {
        value.map_err(|e| Error::invalid(field, e.to_string()))
    };
    let resources =
        spec.resources.as_ref().map(|r| json(serde_json::to_value(r), "spec.resources")).transpose()?;
    let pod_template =
        spec.pod_template.as_ref().map(|t| json(serde_json::to_value(t), "spec.podTemplate")).transpose()?;
    let control_plane_name = control_plane.name_any();
    let settings = Settings {
        engine: &spec.engine,
        capacity: spec.storage.as_ref().and_then(|s| s.size).map(|s| s.bytes()),
        control_plane: &control_plane_name,
    };
    let has_tls = control_plane.spec.tls.enabled;
    let template_hash = restart_hash(&Restart {
        image: &image,
        resources: resources.as_ref(),
        pod_template: pod_template.as_ref(),
        tls: has_tls,
        settings,
    });
    let instance = Instance {
        namespace: crate::apply::namespace(parent)?,
        name: parent.name_any(),
        control_plane: control_plane_name,
    };
    Ok(Wish { instance, image, has_tls, resources, pod_template, template_hash })
}

impl Wish {
    /// Where the stores register.
    pub fn control_endpoint(&self) -> String {
        names::control_endpoint(&self.instance.control_plane, &self.instance.namespace)
    }

    /// The memory that a store's container may use.
    pub fn memory_bytes(&self) -> Option<u64> {
        let resources = crate::workload::parse_resources(self.resources.as_ref()?).ok()?;
        crate::workload::memory_limit_bytes(&resources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn without_an_image_stores_begin_with_that_of_their_control_plane_and_keep_it() {
        let of = |status: serde_json::Value, image: &str| {
            let parent = json!({"apiVersion": "undb.io/v1alpha1", "kind": "StoreCluster",
                "metadata": {"name": "main", "namespace": "ns"}, "spec": {"replicas": 3}, "status": status});
            let control_plane = json!({"apiVersion": "undb.io/v1alpha1", "kind": "ControlPlane",
                "metadata": {"name": "undb", "namespace": "ns"}, "spec": {}, "status": {"image": image}});
            let parent = serde_json::from_value(parent).expect("a StoreCluster");
            let control_plane = serde_json::from_value(control_plane).expect("a ControlPlane");
            resolve(&parent, &control_plane, "undb:default").expect("a wish").image
        };
        assert_eq!(of(json!({}), "undb:2"), "undb:2");
        assert_eq!(of(json!({"image": "undb:2"}), "undb:3"), "undb:2");
    }

    #[test]
    fn a_control_plane_that_was_made_again_restarts_no_store() {
        let parent = json!({"apiVersion": "undb.io/v1alpha1", "kind": "StoreCluster",
            "metadata": {"name": "main", "namespace": "ns"}, "spec": {"replicas": 3}});
        let parent: StoreCluster = serde_json::from_value(parent).expect("a StoreCluster");
        let wish = |uid: &str| {
            let control_plane = json!({"apiVersion": "undb.io/v1alpha1", "kind": "ControlPlane",
                "metadata": {"name": "undb", "namespace": "ns", "uid": uid}, "spec": {}});
            let control_plane = serde_json::from_value(control_plane).expect("a ControlPlane");
            resolve(&parent, &control_plane, "undb:1").expect("a wish")
        };
        assert_eq!(wish("one"), wish("another"), "its identity is in the data, and not in its uid");
    }
}
