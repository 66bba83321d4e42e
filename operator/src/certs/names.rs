//! The names that the certificate of a ControlPlane is for.

use crate::workload::names::{Role, service_name};
use std::collections::BTreeSet;

/// DNS names of all Services of a ControlPlane, its Routers and its StoreClusters, and of the Pods
/// behind the headless ones. Sorted, so that equal sets are equal lists.
pub fn server_names(
    namespace: &str,
    control_plane: &str,
    routers: &[String],
    store_clusters: &[String],
) -> Vec<String> {
    let of_control_plane = [Role::Meta, Role::Control, Role::Access, Role::Routing];
    let mut services: BTreeSet<String> =
        of_control_plane.iter().map(|role| service_name(control_plane, *role)).collect();
    services.extend(routers.iter().map(|router| service_name(router, Role::Proxy)));
    services.extend(store_clusters.iter().map(|stores| service_name(stores, Role::Store)));
    let mut names: BTreeSet<String> = services.iter().flat_map(|s| of_service(s, namespace)).collect();
    // For `kubectl port-forward`.
    names.insert("localhost".into());
    names.into_iter().collect()
}

fn of_service(service: &str, namespace: &str) -> [String; 6] {
    let full = format!("{service}.{namespace}.svc");
    [
        service.into(),
        format!("{service}.{namespace}"),
        full.clone(),
        format!("{full}.cluster.local"),
        format!("*.{full}"),
        format!("*.{full}.cluster.local"),
    ]
}
