//! The resource definitions, as the API server takes them: what the derive makes, made structural.

use super::{ControlPlane, Router, Store, StoreCluster, Table};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// All definitions.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![ControlPlane::crd(), Router::crd(), Store::crd(), StoreCluster::crd(), Table::crd()]
}

/// Each definition as a file: name and YAML.
pub fn files() -> Vec<(String, String)> {
    let file = |crd: &CustomResourceDefinition| {
        let name = format!("undb.io_{}.yaml", crd.spec.names.plural);
        (name, serde_yaml::to_string(crd).expect("definitions are plain data"))
    };
    all().iter().map(file).collect()
}
