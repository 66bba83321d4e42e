//! Names, labels, ports and addresses: one place, because clients and certificates depend on them.

use super::{
    FIELD_MANAGER, LABEL_COMPONENT, LABEL_CONTROL_PLANE, LABEL_MANAGED_BY, LABEL_STORE, LABEL_STORE_CLUSTER,
};
use std::collections::BTreeMap;

/// Health and metrics of every role, plain HTTP.
pub const ADMIN_PORT: i32 = 9090;
/// Redis, as clients of the Service see it.
pub const RESP_SERVICE_PORT: i32 = 6379;
/// HTTP, as clients of the Service see it.
pub const HTTP_SERVICE_PORT: i32 = 80;
/// HTTP of the proxy's container.
pub const HTTP_PORT: i32 = 7381;

/// A role of the platform: what `undb run` is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Metadata.
    Meta,
    /// Cluster control.
    Control,
    /// Where clients begin.
    Access,
    /// Tells clients where shards are.
    Routing,
    /// Redis and HTTP.
    Proxy,
    /// Keeps data.
    Store,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Meta, Self::Control, Self::Access, Self::Routing, Self::Proxy, Self::Store];

    /// The value of `undb.io/component`.
    pub fn component(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Control => "control",
            Self::Access => "access",
            Self::Routing => "routing",
            Self::Proxy => "proxy",
            Self::Store => "store",
        }
    }

    /// The argument of `undb run`.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Routing => "router",
            other => other.component(),
        }
    }

    /// The port of its main protocol, as its container listens.
    pub fn port(self) -> i32 {
        match self {
            Self::Meta => 7390,
            Self::Control => 7391,
            Self::Access => 7380,
            Self::Routing => 7392,
            Self::Proxy => 7379,
            Self::Store => 7400,
        }
    }

    /// The name of that port. `grpc` in it lets meshes and gateways see what it speaks.
    pub fn port_name(self) -> &'static str {
        match self {
            Self::Proxy => "resp",
            _ => "grpc",
        }
    }
}

/// Whose objects these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The namespace.
    pub namespace: String,
    /// The name of the ControlPlane, StoreCluster or Router.
    pub name: String,
    /// The ControlPlane that it belongs to.
    pub control_plane: String,
}

/// Labels of everything that belongs to a part of an instance.
pub fn labels(instance: &Instance, role: Role) -> BTreeMap<String, String> {
    let mut labels = selector(instance, role);
    labels.insert(LABEL_MANAGED_BY.into(), FIELD_MANAGER.into());
    labels
}

/// Labels that never change, so that selectors may use them.
pub fn selector(instance: &Instance, role: Role) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        ("app.kubernetes.io/name".to_string(), "undb".to_string()),
        ("app.kubernetes.io/instance".into(), instance.name.clone()),
        (LABEL_COMPONENT.into(), role.component().into()),
        (LABEL_CONTROL_PLANE.into(), instance.control_plane.clone()),
    ]);
    if role == Role::Store {
        labels.insert(LABEL_STORE_CLUSTER.into(), instance.name.clone());
    }
    labels
}

/// Labels of one store's Pod, claim and budget.
pub fn store_labels(instance: &Instance, store: &str) -> BTreeMap<String, String> {
    let mut labels = labels(instance, Role::Store);
    labels.insert(LABEL_STORE.into(), store.into());
    labels
}

/// Labels that routing Pods of all Routers of a control plane have.
pub fn routing_of_control_plane(control_plane: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (LABEL_COMPONENT.to_string(), Role::Routing.component().to_string()),
        (LABEL_CONTROL_PLANE.into(), control_plane.into()),
    ])
}

/// `NAME.NAMESPACE.svc:PORT`.
pub fn address(service: &str, namespace: &str, port: i32) -> String {
    format!("{service}.{namespace}.svc:{port}")
}

/// The Service of a part of a ControlPlane or a Router.
pub fn service_name(instance: &str, role: Role) -> String {
    match role {
        Role::Store => stores_service(instance),
        _ => format!("{instance}-{}", role.component()),
    }
}

/// The headless Service of a StoreCluster.
pub fn stores_service(store_cluster: &str) -> String {
    format!("{store_cluster}-stores")
}

/// Where clients, tools and proxies begin.
pub fn access_endpoint(control_plane: &str, namespace: &str) -> String {
    address(&service_name(control_plane, Role::Access), namespace, Role::Access.port())
}

/// Cluster control, as stores reach it.
pub fn control_endpoint(control_plane: &str, namespace: &str) -> String {
    address(&service_name(control_plane, Role::Control), namespace, Role::Control.port())
}

/// Routing, as clients reach it: any Router of the control plane.
pub fn routing_endpoint(control_plane: &str, namespace: &str) -> String {
    address(&service_name(control_plane, Role::Routing), namespace, Role::Routing.port())
}

/// Metadata member number `ordinal`, from 0.
pub fn meta_address(control_plane: &str, namespace: &str, ordinal: u32) -> String {
    let service = service_name(control_plane, Role::Meta);
    address(&format!("{service}-{ordinal}.{service}"), namespace, Role::Meta.port())
}

/// All metadata members.
pub fn meta_addresses(control_plane: &str, namespace: &str, members: u32) -> Vec<String> {
    (0..members).map(|ordinal| meta_address(control_plane, namespace, ordinal)).collect()
}

/// What a store is dialled by; its identity in the cluster.
pub fn store_address(store: &str, store_cluster: &str, namespace: &str) -> String {
    address(&format!("{store}.{}", stores_service(store_cluster)), namespace, Role::Store.port())
}

/// The volume claim of a store.
pub fn store_claim(store: &str) -> String {
    format!("data-{store}")
}

/// The Secret with the CA and its key; for the operator only.
pub fn ca_secret(control_plane: &str) -> String {
    format!("{control_plane}-ca")
}

/// The Secret with the certificate of all roles.
pub fn tls_secret(control_plane: &str) -> String {
    format!("{control_plane}-tls")
}

/// The Secret with the token of the cluster.
pub fn token_secret(control_plane: &str) -> String {
    format!("{control_plane}-token")
}

/// The Secret that clients mount: token, ca.crt, endpoint.
pub fn client_secret(control_plane: &str) -> String {
    format!("{control_plane}-client")
}

/// What the names of the ConfigMaps of a part of an instance begin with.
pub fn config_prefix(instance: &str, role: Role) -> String {
    format!("{}-config-", service_name(instance, role))
}

/// The ConfigMap with the cluster's id, which lives as long as its data.
pub fn identity(control_plane: &str) -> String {
    format!("{control_plane}-identity")
}
