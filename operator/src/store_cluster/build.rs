//! The objects of a StoreCluster: what it owns as a whole, and per store the Store, its volume claim, its
//! fence and its Pod. Pure.

use super::observe::{REPLACES, ZONE};
use super::wish::Wish;
use crate::apply::owner_reference;
use crate::error::{Error, Result};
use crate::fence;
use crate::workload::{Data, LABEL_STORE, Role, RolePod, names, selector};
use k8s_openapi::api::core::v1::{
    Affinity, ConfigMap, DownwardAPIVolumeFile, DownwardAPIVolumeSource, ObjectFieldSelector,
    PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod, PodAffinityTerm, PodAntiAffinity, PodSpec,
    TopologySpreadConstraint, Volume, VolumeMount, VolumeResourceRequirements, WeightedPodAffinityTerm,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use std::collections::BTreeMap;
use undb_spec::VolumeRetention;
use undb_spec::k8s::{Store, StoreCluster, StoreSpec};

/// The container of every role.
pub const CONTAINER: &str = "undb";
/// Where a store reads its zone: filled in once its Pod has a node.
pub const ZONE_FILE: &str = "/etc/undb-pod/zone";
const POD_VOLUME: &str = "pod";
const SIZE_DEFAULT: &str = "10Gi";

/// The name of store number `ordinal`.
pub fn store_name(parent: &StoreCluster, ordinal: u32) -> String {
    format!("{}-{ordinal}", parent.name_any())
}

/// A Store; its number makes its name, so that making it twice collides.
pub fn store(parent: &StoreCluster, wish: &Wish, ordinal: u32, replaces: Option<&str>) -> Result<Store> {
    let name = store_name(parent, ordinal);
    let spec = StoreSpec {
        store_cluster: parent.name_any(),
        ordinal,
        template_hash: wish.template_hash.clone(),
        ..StoreSpec::default()
    };
    let mut store = Store::new(&name, spec);
    store.metadata.namespace = parent.namespace();
    store.metadata.labels = Some(names::store_labels(&wish.instance, &name));
    store.metadata.owner_references = Some(vec![owner_reference(parent)?]);
    if let Some(uid) = replaces {
        store.metadata.annotations = Some(BTreeMap::from([(REPLACES.to_owned(), uid.to_owned())]));
    }
    Ok(store)
}

fn metadata(store: &Store, wish: &Wish, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: store.namespace(),
        labels: Some(names::store_labels(&wish.instance, &store.name_any())),
        ..ObjectMeta::default()
    }
}

/// The volume of a store. It has an owner only if it is to go with the StoreCluster.
pub fn claim(parent: &StoreCluster, store: &Store, wish: &Wish) -> Result<PersistentVolumeClaim> {
    let mut metadata = metadata(store, wish, names::store_claim(&store.name_any()));
    metadata.owner_references = claim_owners(parent)?;
    let storage = parent.spec.storage.clone().unwrap_or_default();
    let size = storage.size.map_or_else(|| SIZE_DEFAULT.to_owned(), |s| s.to_string());
    let spec = PersistentVolumeClaimSpec {
        access_modes: Some(vec!["ReadWriteOnce".into()]),
        storage_class_name: storage.class,
        resources: Some(VolumeResourceRequirements {
            requests: Some(BTreeMap::from([("storage".to_owned(), Quantity(size))])),
            limits: None,
        }),
        ..PersistentVolumeClaimSpec::default()
    };
    Ok(PersistentVolumeClaim { metadata, spec: Some(spec), status: None })
}

/// Who owns the volumes, by `whenDeleted`. Never the Store: it would take its volume with it.
pub fn claim_owners(
    parent: &StoreCluster,
) -> Result<Option<Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference>>> {
    let policy = parent.spec.persistent_volume_claim_retention_policy.when_deleted;
    let mut owner = owner_reference(parent)?;
    owner.controller = None;
    owner.block_owner_deletion = None;
    Ok((policy == VolumeRetention::Delete).then(|| vec![owner]))
}

/// The fence of a store, closed.
pub fn fence(store: &Store, wish: &Wish) -> Result<PodDisruptionBudget> {
    let mut metadata = metadata(store, wish, store.name_any());
    metadata.owner_references = Some(vec![owner_reference(store)?]);
    Ok(fence::closed(metadata))
}

/// How the Pods are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread<'a> {
    /// The node label of zones.
    pub label: &'a str,
    /// Zones with a node that takes Pods.
    pub zones_up: usize,
    /// Zones in which stores are, or all that there are.
    pub zones: usize,
}

/// The Pod of a store.
pub fn pod(store: &Store, wish: &Wish, config_map: &str, spread: Spread<'_>) -> Result<Pod> {
    let name = store.name_any();
    let token_secret = names::token_secret(&wish.instance.control_plane);
    let tls_secret = names::tls_secret(&wish.instance.control_plane);
    let role_pod = RolePod {
        instance: &wish.instance,
        role: Role::Store,
        image: &wish.image,
        config_map,
        token_secret: &token_secret,
        tls_secret: wish.has_tls.then_some(tls_secret.as_str()),
        resources: wish.resources.as_ref(),
        data: Data::Claim(names::store_claim(&name)),
        pod_template: wish.pod_template.as_ref(),
        template_hash: &wish.template_hash,
        store: Some(&name),
    };
    let template = role_pod.template().map_err(|e| Error::invalid(e.path, e.problem))?;
    let mut metadata = template.metadata.unwrap_or_default();
    metadata.name = Some(name.clone());
    metadata.namespace = store.namespace();
    metadata.owner_references = Some(vec![owner_reference(store)?]);
    let mut spec = template.spec.unwrap_or_default();
    spec.hostname = Some(name);
    spec.subdomain = Some(names::stores_service(&wish.instance.name));
    add_zone_file(&mut spec);
    add_placement(&mut spec, wish, spread);
    Ok(Pod { metadata, spec: Some(spec), status: None })
}

/// The zone is known when the Pod has a node, which is after it was made: a file that fills in later.
fn add_zone_file(spec: &mut PodSpec) {
    let file = DownwardAPIVolumeFile {
        path: "zone".into(),
        field_ref: Some(ObjectFieldSelector {
            field_path: format!("metadata.annotations['{ZONE}']"),
            api_version: None,
        }),
        ..DownwardAPIVolumeFile::default()
    };
    spec.volumes.get_or_insert_default().push(Volume {
        name: POD_VOLUME.into(),
        downward_api: Some(DownwardAPIVolumeSource { items: Some(vec![file]), default_mode: Some(0o444) }),
        ..Volume::default()
    });
    for container in spec.containers.iter_mut().filter(|c| c.name == CONTAINER) {
        container.volume_mounts.get_or_insert_default().push(VolumeMount {
            name: POD_VOLUME.into(),
            mount_path: "/etc/undb-pod".into(),
            read_only: Some(true),
            ..VolumeMount::default()
        });
    }
}

/// Zones even, by force only while as many as ever take Pods; hosts different where it can be.
fn add_placement(spec: &mut PodSpec, wish: &Wish, spread: Spread<'_>) {
    let peers = LabelSelector {
        match_labels: Some(selector(&wish.instance, Role::Store)),
        ..LabelSelector::default()
    };
    let is_hard = spread.zones > 1 && spread.zones_up >= spread.zones;
    let constraint = TopologySpreadConstraint {
        max_skew: 1,
        topology_key: spread.label.to_owned(),
        when_unsatisfiable: if is_hard { "DoNotSchedule" } else { "ScheduleAnyway" }.into(),
        label_selector: Some(peers.clone()),
        // A zone whose nodes take no store by their taints has none too few.
        node_taints_policy: Some("Honor".into()),
        ..TopologySpreadConstraint::default()
    };
    let constraints = spec.topology_spread_constraints.get_or_insert_default();
    if !constraints.iter().any(|c| c.topology_key == constraint.topology_key) {
        constraints.push(constraint);
    }
    let apart = WeightedPodAffinityTerm {
        weight: 100,
        pod_affinity_term: PodAffinityTerm {
            topology_key: "kubernetes.io/hostname".into(),
            label_selector: Some(peers),
            ..PodAffinityTerm::default()
        },
    };
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let anti: &mut PodAntiAffinity = affinity.pod_anti_affinity.get_or_insert_default();
    anti.preferred_during_scheduling_ignored_during_execution.get_or_insert_default().push(apart);
}

/// Which ConfigMap a Pod reads.
pub fn config_maps_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let projected = volumes.flat_map(|v| v.projected.iter().flat_map(|p| p.sources.iter().flatten()));
    projected.filter_map(|s| s.config_map.as_ref().map(|c| c.name.clone())).collect()
}

/// Immutable ConfigMaps of ours that no Pod reads and no new Pod would.
pub fn unused<'a>(maps: &'a [ConfigMap], pods: &[&Pod], current: &str) -> Vec<&'a ConfigMap> {
    let used: Vec<String> = pods.iter().flat_map(|p| config_maps_of(p)).collect();
    let is_unused = |m: &&ConfigMap| m.name_any() != current && !used.contains(&m.name_any());
    maps.iter().filter(is_unused).collect()
}

/// Selects the Pods of all stores, as one line.
pub fn selector_text(wish: &Wish, store: Option<&str>) -> String {
    let mut labels = selector(&wish.instance, Role::Store);
    if let Some(store) = store {
        labels.insert(LABEL_STORE.into(), store.into());
    }
    let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    pairs.join(",")
}
