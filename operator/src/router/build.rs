//! What a Router's spec comes to, and its objects. Pure.

use crate::apply::{self, owner_reference};
use crate::config::{self, ClientTls, Place};
use crate::error::{Error, Result};
use crate::store_cluster::wish::image;
use crate::workload::names::{HTTP_SERVICE_PORT, RESP_SERVICE_PORT};
use crate::workload::{
    Data, Instance, Replicas, Restart, Role, RolePod, budget, deployment, labels, names, network_policy,
    restart_hash, selector,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;
use undb_spec::ResourcesSpec;
use undb_spec::k8s::{ControlPlane, Router};

/// Resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// Whose.
    pub instance: Instance,
    /// The image of both roles.
    pub image: String,
    /// Whether roles speak TLS.
    pub has_tls: bool,
    /// Members of metadata.
    pub members: u32,
    /// Whether Redis and HTTP clients must speak TLS.
    pub client_tls: ClientTls,
    /// Tables by their number.
    pub tables: Vec<String>,
    pod_template: Option<Value>,
    resources: [Option<Value>; 2],
}

#[derive(Serialize)]
struct Settings<'a> {
    control_plane: &'a str,
    members: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tables: Option<&'a [String]>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    client_tls: bool,
}

/// From the spec and its ControlPlane. Where no image is named it is that of the ControlPlane when the
/// Router is first seen.
pub fn resolve(parent: &Router, control_plane: &ControlPlane, default_image: &str) -> Result<Wish> {
    let spec = &parent.spec;
    let kept = parent.status.as_ref().and_then(|status| status.image.clone());
    let image = image(spec.image.clone().or(kept), control_plane, default_image);
    if image.is_empty() {
        return Err(Error::invalid(
            "spec.image",
            "is not set, and the operator was started without UNDB_IMAGE",
        ));
    }
    if spec.proxy.tls.enabled && !control_plane.spec.tls.enabled {
        return Err(Error::invalid(
            "spec.proxy.tls.enabled",
            "needs certificates, which the ControlPlane does not have; set its spec.tls.enabled",
        ));
    }
    let json = |resources: &Option<ResourcesSpec>| {
        resources.as_ref().and_then(|resources| serde_json::to_value(resources).ok())
    };
    Ok(Wish {
        instance: Instance {
            namespace: apply::namespace(parent)?,
            name: parent.name_any(),
            control_plane: control_plane.name_any(),
        },
        image,
        has_tls: control_plane.spec.tls.enabled,
        members: control_plane.spec.metadata.replicas,
        client_tls: if spec.proxy.tls.enabled { ClientTls::Required } else { ClientTls::Plain },
        tables: spec.proxy.tables.clone(),
        pod_template: spec.pod_template.as_ref().and_then(|template| serde_json::to_value(template).ok()),
        resources: [json(&spec.routing.resources), json(&spec.proxy.resources)],
    })
}

impl Wish {
    /// The configuration file of a role.
    pub fn config(&self, role: Role) -> String {
        let place = Place {
            namespace: &self.instance.namespace,
            control_plane: &self.instance.control_plane,
            members: self.members,
            has_tls: self.has_tls,
        };
        match role {
            Role::Proxy => config::proxy(&place, &self.tables, self.client_tls),
            _ => config::routing(&place),
        }
    }

    fn resources(&self, role: Role) -> Option<&Value> {
        self.resources.get(usize::from(role == Role::Proxy))?.as_ref()
    }

    fn template_hash(&self, role: Role) -> String {
        let is_proxy = role == Role::Proxy;
        restart_hash(&Restart {
            image: &self.image,
            resources: self.resources(role),
            pod_template: self.pod_template.as_ref(),
            tls: self.has_tls,
            settings: Settings {
                control_plane: &self.instance.control_plane,
                members: self.members,
                tables: (is_proxy && !self.tables.is_empty()).then_some(&self.tables),
                client_tls: is_proxy && self.client_tls == ClientTls::Required,
            },
        })
    }
}

/// The Deployment of a role.
pub fn pods(parent: &Router, wish: &Wish, role: Role, config_map: &str) -> Result<Deployment> {
    let control_plane = &wish.instance.control_plane;
    let (token, tls) = (names::token_secret(control_plane), names::tls_secret(control_plane));
    let template = RolePod {
        instance: &wish.instance,
        role,
        image: &wish.image,
        config_map,
        token_secret: &token,
        tls_secret: wish.has_tls.then_some(tls.as_str()),
        resources: wish.resources(role),
        data: Data::None,
        pod_template: wish.pod_template.as_ref(),
        template_hash: &wish.template_hash(role),
        store: None,
    };
    let template = template.template().map_err(|error| Error::invalid(error.path, error.problem))?;
    let replicas =
        if role == Role::Proxy { parent.spec.proxy.replicas } else { parent.spec.routing.replicas };
    let mut object = deployment(&wish.instance, role, template, Replicas(replicas));
    object.metadata.owner_references = Some(vec![owner_reference(parent)?]);
    Ok(object)
}

/// Where Redis and HTTP clients connect. Routing is reached by the ControlPlane's own Service.
pub fn service(parent: &Router, wish: &Wish) -> Result<Service> {
    let port = |name: &str, port: i32| ServicePort {
        name: Some(name.into()),
        port,
        target_port: Some(IntOrString::String(name.into())),
        ..ServicePort::default()
    };
    let annotations = parent.spec.proxy.service_annotations.clone();
    Ok(Service {
        metadata: ObjectMeta {
            name: Some(names::service_name(&wish.instance.name, Role::Proxy)),
            namespace: Some(wish.instance.namespace.clone()),
            labels: Some(labels(&wish.instance, Role::Proxy)),
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: Some(vec![owner_reference(parent)?]),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            type_: Some(parent.spec.proxy.service_type.as_str().into()),
            selector: Some(selector(&wish.instance, Role::Proxy)),
            ports: Some(vec![port("resp", RESP_SERVICE_PORT), port("http", HTTP_SERVICE_PORT)]),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// How many of a part may be away on purpose.
pub fn budgets(parent: &Router, wish: &Wish) -> Result<Vec<PodDisruptionBudget>> {
    let mut all = [Role::Routing, Role::Proxy].map(|role| budget(&wish.instance, role)).to_vec();
    for object in &mut all {
        object.metadata.owner_references = Some(vec![owner_reference(parent)?]);
    }
    Ok(all)
}

/// Who may connect.
pub fn policies(parent: &Router, wish: &Wish) -> Result<Vec<NetworkPolicy>> {
    let mut all = [Role::Routing, Role::Proxy].map(|role| network_policy(&wish.instance, role)).to_vec();
    for object in &mut all {
        object.metadata.owner_references = Some(vec![owner_reference(parent)?]);
    }
    Ok(all)
}

/// Where Redis clients connect, inside the cluster.
pub fn endpoint(wish: &Wish) -> String {
    let service = names::service_name(&wish.instance.name, Role::Proxy);
    names::address(&service, &wish.instance.namespace, RESP_SERVICE_PORT)
}
