//! The objects of a ControlPlane. Pure.

use super::wish::{Wish, goes_with_the_object};
use crate::apply::owner_reference;
use crate::error::{Error, Result};
use crate::workload::{
    DATA_VOLUME, Data, Replicas, Role, RolePod, budget, deployment, headless_service, labels, names,
    network_policy, selector, service,
};
use k8s_openapi::api::apps::v1::{
    Deployment, StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
    StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, PersistentVolumeClaimSpec, PodTemplateSpec, Service,
    VolumeResourceRequirements,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use std::collections::BTreeMap;
use undb_spec::k8s::ControlPlane;

/// The key of the id in the identity's ConfigMap.
pub const CLUSTER_ID: &str = "cluster-id";

/// Owner of what goes with the data: none, unless data goes with the object.
pub fn data_owner(parent: &ControlPlane) -> Result<Option<OwnerReference>> {
    match goes_with_the_object(parent) {
        true => owner_reference(parent).map(Some),
        false => Ok(None),
    }
}

/// Whose data this is, kept as long as the data: a ControlPlane that is made again over the same
/// volumes must come back as the same.
pub fn identity(parent: &ControlPlane, wish: &Wish, cluster_id: &str) -> Result<ConfigMap> {
    Ok(ConfigMap {
        metadata: ObjectMeta {
            name: Some(names::identity(&wish.instance.name)),
            namespace: Some(wish.instance.namespace.clone()),
            labels: Some(labels(&wish.instance, Role::Meta)),
            owner_references: data_owner(parent)?.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some(BTreeMap::from([(CLUSTER_ID.to_string(), cluster_id.to_string())])),
        ..ConfigMap::default()
    })
}

/// The Pods of a role.
pub fn template(wish: &Wish, role: Role, cluster_id: &str, config_map: &str) -> Result<PodTemplateSpec> {
    let (token, tls) = (names::token_secret(&wish.instance.name), names::tls_secret(&wish.instance.name));
    RolePod {
        instance: &wish.instance,
        role,
        image: &wish.image,
        config_map,
        token_secret: &token,
        tls_secret: wish.has_tls.then_some(tls.as_str()),
        resources: wish.resources(role),
        data: if role == Role::Meta { Data::Template } else { Data::None },
        pod_template: wish.pod_template.as_ref(),
        template_hash: &wish.template_hash(role, cluster_id),
        store: None,
    }
    .template()
    .map_err(|error| Error::invalid(error.path, error.problem))
}

/// The members of metadata. Nothing but the operator restarts them: `OnDelete`.
pub fn metadata(parent: &ControlPlane, wish: &Wish, template: PodTemplateSpec) -> Result<StatefulSet> {
    let storage = &parent.spec.metadata.storage;
    let claim = PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(DATA_VOLUME.into()),
            labels: Some(selector(&wish.instance, Role::Meta)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            storage_class_name: storage.class.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_string(), Quantity(storage.size.to_string()))])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    };
    let when_deleted = if goes_with_the_object(parent) { "Delete" } else { "Retain" };
    let mut set = stateful_set(parent, wish, Role::Meta, wish.members, template)?;
    let spec = set.spec.get_or_insert_default();
    spec.update_strategy =
        Some(StatefulSetUpdateStrategy { type_: Some("OnDelete".into()), rolling_update: None });
    spec.volume_claim_templates = Some(vec![claim]);
    spec.persistent_volume_claim_retention_policy = Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
        when_deleted: Some(when_deleted.into()),
        when_scaled: Some("Retain".into()),
    });
    Ok(set)
}

/// The members of cluster control.
pub fn control(parent: &ControlPlane, wish: &Wish, template: PodTemplateSpec) -> Result<StatefulSet> {
    let mut set = stateful_set(parent, wish, Role::Control, parent.spec.control.replicas, template)?;
    let spec = set.spec.get_or_insert_default();
    spec.update_strategy =
        Some(StatefulSetUpdateStrategy { type_: Some("RollingUpdate".into()), rolling_update: None });
    Ok(set)
}

/// Where clients begin.
pub fn access(parent: &ControlPlane, wish: &Wish, template: PodTemplateSpec) -> Result<Deployment> {
    let mut object =
        deployment(&wish.instance, Role::Access, template, Replicas(parent.spec.access.replicas));
    object.metadata.owner_references = Some(vec![owner_reference(parent)?]);
    Ok(object)
}

fn stateful_set(
    parent: &ControlPlane,
    wish: &Wish,
    role: Role,
    replicas: u32,
    template: PodTemplateSpec,
) -> Result<StatefulSet> {
    let name = names::service_name(&wish.instance.name, role);
    Ok(StatefulSet {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(wish.instance.namespace.clone()),
            labels: Some(labels(&wish.instance, role)),
            owner_references: Some(vec![owner_reference(parent)?]),
            ..ObjectMeta::default()
        },
        spec: Some(StatefulSetSpec {
            service_name: Some(name),
            replicas: Some(i32::try_from(replicas).unwrap_or(i32::MAX)),
            // A group that starts after all its members were away needs them at the same time.
            pod_management_policy: Some("Parallel".into()),
            selector: LabelSelector {
                match_labels: Some(selector(&wish.instance, role)),
                ..LabelSelector::default()
            },
            revision_history_limit: Some(2),
            template,
            ..StatefulSetSpec::default()
        }),
        status: None,
    })
}

/// How the parts are reached.
pub fn services(parent: &ControlPlane, wish: &Wish) -> Result<Vec<Service>> {
    let routing = names::routing_of_control_plane(&wish.instance.name);
    let mut all = vec![
        headless_service(&wish.instance, Role::Meta),
        headless_service(&wish.instance, Role::Control),
        service(&wish.instance, Role::Access, selector(&wish.instance, Role::Access)),
        service(&wish.instance, Role::Routing, routing),
    ];
    for object in &mut all {
        object.metadata.owner_references = Some(vec![owner_reference(parent)?]);
    }
    Ok(all)
}

/// How many of a part may be away on purpose.
pub fn budgets(parent: &ControlPlane, wish: &Wish) -> Result<Vec<PodDisruptionBudget>> {
    let mut all = [Role::Meta, Role::Control, Role::Access].map(|role| budget(&wish.instance, role)).to_vec();
    for object in &mut all {
        object.metadata.owner_references = Some(vec![owner_reference(parent)?]);
    }
    Ok(all)
}

/// Who may connect to a part.
pub fn policies(parent: &ControlPlane, wish: &Wish) -> Result<Vec<NetworkPolicy>> {
    let roles = [Role::Meta, Role::Control, Role::Access];
    let mut all = roles.map(|role| network_policy(&wish.instance, role)).to_vec();
    for object in &mut all {
        object.metadata.owner_references = Some(vec![owner_reference(parent)?]);
    }
    Ok(all)
}
