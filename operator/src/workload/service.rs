//! Services, disruption budgets and network policies of a part of an instance.

use super::names::{ADMIN_PORT, Instance, Role, labels, selector};
use super::{LABEL_COMPONENT, LABEL_CONTROL_PLANE};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

fn metadata(instance: &Instance, role: Role, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some(instance.namespace.clone()),
        labels: Some(labels(instance, role)),
        ..ObjectMeta::default()
    }
}

fn grpc(role: Role) -> ServicePort {
    ServicePort {
        name: Some(role.port_name().into()),
        port: role.port(),
        target_port: Some(IntOrString::String(role.port_name().into())),
        ..ServicePort::default()
    }
}

/// A Service in front of the Pods that `selects` names.
pub fn service(instance: &Instance, role: Role, selects: BTreeMap<String, String>) -> Service {
    Service {
        metadata: metadata(instance, role, &super::names::service_name(&instance.name, role)),
        spec: Some(ServiceSpec {
            selector: Some(selects),
            ports: Some(vec![grpc(role)]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// A Service that only names Pods, ready or not: members find one another before anybody is ready,
/// or a cold start would never end.
pub fn headless_service(instance: &Instance, role: Role) -> Service {
    let mut service = service(instance, role, selector(instance, role));
    let spec = service.spec.get_or_insert_default();
    spec.cluster_ip = Some("None".into());
    spec.publish_not_ready_addresses = Some(true);
    service
}

/// At most one of these Pods may be away on purpose.
pub fn budget(instance: &Instance, role: Role) -> PodDisruptionBudget {
    let name = super::names::service_name(&instance.name, role);
    PodDisruptionBudget {
        metadata: metadata(instance, role, &name),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(selector(instance, role)),
                ..LabelSelector::default()
            }),
            unhealthy_pod_eviction_policy: Some("IfHealthyBudget".into()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}

/// Who may connect to the Pods of this role: for roles that only other roles talk to, the Pods of
/// the same control plane; for those that clients talk to, everybody. Health is for everybody.
pub fn network_policy(instance: &Instance, role: Role) -> NetworkPolicy {
    let port = |port: i32| NetworkPolicyPort {
        port: Some(IntOrString::Int(port)),
        protocol: Some("TCP".into()),
        end_port: None,
    };
    let rule = |ports: Vec<NetworkPolicyPort>, from: Option<Vec<NetworkPolicyPeer>>| {
        NetworkPolicyIngressRule { ports: Some(ports), from }
    };
    let main = match role {
        Role::Meta | Role::Control => rule(vec![port(role.port())], Some(vec![roles_of(instance)])),
        Role::Proxy => rule(vec![port(role.port()), port(super::names::HTTP_PORT)], None),
        Role::Access | Role::Routing | Role::Store => rule(vec![port(role.port())], None),
    };
    NetworkPolicy {
        metadata: metadata(instance, role, &super::names::service_name(&instance.name, role)),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(selector(instance, role)),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".into()]),
            ingress: Some(vec![main, rule(vec![port(ADMIN_PORT)], None)]),
            egress: None,
        }),
    }
}

fn roles_of(instance: &Instance) -> NetworkPolicyPeer {
    let roles = Role::ALL.map(|role| role.component().to_string()).to_vec();
    NetworkPolicyPeer {
        pod_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(
                LABEL_CONTROL_PLANE.to_string(),
                instance.control_plane.clone(),
            )])),
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: LABEL_COMPONENT.into(),
                operator: "In".into(),
                values: Some(roles),
            }]),
        }),
        ..NetworkPolicyPeer::default()
    }
}
