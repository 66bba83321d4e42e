//! Reads everything that a pass decides on, from the API server itself and from the control plane.

use super::model::{
    Cluster, Control, Known, Lease, Mark, NodeSeen, NodeState, Observed, PodSeen, Record, Remains, State,
    StoreSeen, Why,
};
use super::wish::Wish;
use crate::apply::api;
use crate::conditions;
use crate::control::ControlApi;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::fence;
use crate::workload::{ANNOTATION_TEMPLATE_HASH, LABEL_STORE, LABEL_STORE_CLUSTER, names};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use std::collections::HashMap;
use std::sync::Arc;
use undb_proto::v1::{self, StoreState};
use undb_spec::k8s::{Store, StoreCluster};
use undb_spec::{ReplacementMode, UpdateStrategyType, VolumeRetention};

/// On a Store: why it is offline.
pub const MARK: &str = "undb.io/scale-in";
/// On a Store: the uid of the one whose place it took.
pub const REPLACES: &str = "undb.io/replaces";
/// On a Pod: the zone of its node, for the store to read.
pub const ZONE: &str = "undb.io/zone";
/// On a volume claim: where the scheduler put it.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The objects of a StoreCluster, as read.
#[derive(Clone, Debug, Default)]
pub struct Children {
    pub stores: Vec<Store>,
    pub pods: HashMap<String, Pod>,
    pub claims: HashMap<String, PersistentVolumeClaim>,
    pub fences: HashMap<String, PodDisruptionBudget>,
    pub nodes: HashMap<String, Node>,
}

/// What the control plane answered.
#[derive(Clone, Debug)]
pub struct Answers {
    pub status: v1::StatusResponse,
    pub leases: Vec<v1::DisruptionLease>,
}

/// Lists of the API server without a resource version are answered from its store, not from a cache.
pub async fn children(ctx: &Ctx, parent: &StoreCluster) -> Result<Children> {
    let namespace = crate::apply::namespace(parent)?;
    let name = parent.name_any();
    let ours = ListParams::default().labels(&format!("{LABEL_STORE_CLUSTER}={name}"));
    let (stores, pods) = (api::<Store>(ctx, &namespace), api::<Pod>(ctx, &namespace));
    let claims = api::<PersistentVolumeClaim>(ctx, &namespace);
    let fences = api::<PodDisruptionBudget>(ctx, &namespace);
    let nodes: Api<Node> = Api::all(ctx.client.clone());
    let nodes_all = ListParams::default();
    let (stores, pods, claims, fences, nodes) = tokio::try_join!(
        stores.list(&ours),
        pods.list(&ours),
        claims.list(&ours),
        fences.list(&ours),
        nodes.list(&nodes_all)
    )?;
    // A Store of a StoreCluster of the same name that was deleted is not ours.
    let uid = parent.uid();
    let is_ours = |s: &Store| {
        let mut owners = s.owner_references().iter();
        s.spec.store_cluster == name && owners.any(|o| Some(&o.uid) == uid.as_ref())
    };
    let mut stores: Vec<Store> = stores.items.into_iter().filter(is_ours).collect();
    stores.sort_by_key(|s| s.spec.ordinal);
    Ok(Children {
        stores,
        pods: by_store(pods.items),
        claims: by_store(claims.items),
        fences: by_store(fences.items),
        nodes: nodes.items.into_iter().map(|n| (n.name_any(), n)).collect(),
    })
}

fn by_store<K: Resource>(objects: Vec<K>) -> HashMap<String, K> {
    let store = |object: &K| object.labels().get(LABEL_STORE).cloned();
    objects.into_iter().filter_map(|o| Some((store(&o)?, o))).collect()
}

/// All answers or none.
pub async fn ask(control: &Arc<dyn ControlApi>) -> Result<Answers> {
    let (mut status, leases, all) =
        tokio::try_join!(control.status(), control.list(), control.get("stores", "", ""))?;
    // The status is about those that are there; that one is fenced for ever is what a scale-in waits for.
    status.stores.extend(all.iter().filter_map(|json| removed(json)));
    Ok(Answers { status, leases })
}

/// A store object of the control plane, if it says that it was removed.
fn removed(json: &str) -> Option<v1::StoreStatus> {
    let object: serde_json::Value = serde_json::from_str(json).ok()?;
    let text = |path: &str| object.pointer(path).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    if text("/status/state") != "Removed" {
        return None;
    }
    let record = v1::StoreRecord {
        store_id: text("/metadata/name").parse().ok()?,
        address: text("/spec/address"),
        zone: text("/spec/zone"),
        store_cluster: text("/spec/storeCluster"),
        state: StoreState::StoreRemoved as i32,
        ..v1::StoreRecord::default()
    };
    let replicas = object.pointer("/status/replicas").and_then(serde_json::Value::as_u64).unwrap_or(0);
    Some(v1::StoreStatus { store: Some(record), replicas, ..v1::StoreStatus::default() })
}

/// Puts it together. Pure.
pub fn assemble(
    parent: &StoreCluster,
    wish: &Wish,
    children: &Children,
    answers: Option<&Answers>,
) -> Observed {
    let namespace = parent.namespace().unwrap_or_default();
    let cluster_name = parent.name_any();
    let records = answers.map(|a| Records { status: &a.status });
    let stores = children.stores.iter().map(|store| {
        let address = names::store_address(&store.name_any(), &cluster_name, &namespace);
        store_seen(store, children, records.as_ref(), &address)
    });
    let control = answers.map(|a| Control { leases: a.leases.iter().cloned().map(Lease::new).collect() });
    let remains = remains(children, records.as_ref(), &cluster_name, &namespace);
    Observed { cluster: cluster(parent, wish), stores: stores.collect(), remains, control }
}

fn remains(children: &Children, records: Option<&Records>, cluster: &str, namespace: &str) -> Remains {
    let number = |store: &str| store.strip_prefix(cluster)?.strip_prefix('-')?.parse::<u32>().ok();
    let is_owned = |name: &str| children.stores.iter().any(|s| s.name_any() == name);
    let claims = children.claims.keys().filter(|name| !is_owned(name));
    let mut by_address: HashMap<&str, bool> = HashMap::new();
    for record in records.iter().flat_map(|r| &r.status.stores).filter_map(|s| s.store.as_ref()) {
        let is_removed = record.state() == StoreState::StoreRemoved;
        *by_address.entry(&record.address).or_insert(true) &= is_removed;
    }
    let removed = by_address.into_iter().filter(|(_, is_removed)| *is_removed).filter_map(|(address, _)| {
        let name = address.split('.').next()?;
        // The name alone could be of another namespace.
        let is_ours = names::store_address(name, cluster, namespace) == address;
        number(name).filter(|_| is_ours)
    });
    Remains { removed: removed.collect(), claims: claims.filter_map(|name| number(name)).collect() }
}

fn cluster(parent: &StoreCluster, wish: &Wish) -> Cluster {
    let spec = &parent.spec;
    let replace = &spec.replacement_policy;
    let is_automatic = replace.mode == ReplacementMode::Automatic;
    Cluster {
        uid: parent.uid().unwrap_or_default(),
        replicas: usize::try_from(spec.replicas).unwrap_or(usize::MAX),
        is_paused: spec.paused,
        is_rolling: spec.update_strategy.kind == UpdateStrategyType::RollingUpdate,
        template_hash: wish.template_hash.clone(),
        replace_after_ms: is_automatic.then(|| u64::from(replace.after_seconds) * 1000),
        is_claim_deleted: spec.persistent_volume_claim_retention_policy.when_scaled
            == VolumeRetention::Delete,
        next_ordinal: parent.status.as_ref().map_or(0, |s| s.next_ordinal),
        is_deleting: parent.meta().deletion_timestamp.is_some(),
    }
}

fn store_seen(store: &Store, children: &Children, records: Option<&Records>, address: &str) -> StoreSeen {
    let name = store.name_any();
    let pod = children.pods.get(&name);
    let claim = children.claims.get(&name);
    let status = store.status.clone().unwrap_or_default();
    let serving = conditions::find(&status.conditions, "Serving");
    StoreSeen {
        uid: store.uid().unwrap_or_default(),
        ordinal: store.spec.ordinal,
        is_offline: store.spec.offline,
        mark: match store.annotations().get(MARK).map(String::as_str) {
            Some("victim") => Mark::Victim,
            Some("cancelled") => Mark::Cancelled,
            _ => Mark::None,
        },
        replaces: store.annotations().get(REPLACES).cloned(),
        template_hash: store.spec.template_hash.clone(),
        is_deleting: store.meta().deletion_timestamp.is_some(),
        known_id: status.store_id,
        is_drained_written: conditions::is_true(&status.conditions, "Drained"),
        not_serving_since_ms: serving
            .filter(|c| c.status == "False")
            .map(|c| conditions::time_ms(&c.last_transition_time)),
        pod: pod.map(pod_seen),
        has_claim: claim.is_some(),
        fence: children.fences.get(&name).map(fence::read),
        node: node_seen(pod, claim, &children.nodes),
        record: records.map_or(Record::Unknown, |r| r.find(address, status.store_id)),
        name,
    }
}

struct Records<'a> {
    status: &'a v1::StatusResponse,
}

impl Records<'_> {
    /// The newest record of an address that is not removed; else the one that the store had, or the
    /// newest removed one.
    fn find(&self, address: &str, known_id: Option<u64>) -> Record {
        let at = |s: &&v1::StoreStatus| {
            s.store.as_ref().is_some_and(|r| r.address == address || Some(r.store_id) == known_id)
        };
        let rank = |s: &&v1::StoreStatus| {
            let record = s.store.as_ref();
            let is_removed = record.is_some_and(|r| r.state() == StoreState::StoreRemoved);
            (!is_removed, record.map_or(0, |r| r.store_id))
        };
        match self.status.stores.iter().filter(at).max_by_key(rank) {
            None => Record::Absent,
            Some(found) => found.store.as_ref().map_or(Record::Absent, |r| Record::Known(known(found, r))),
        }
    }
}

fn known(status: &v1::StoreStatus, record: &v1::StoreRecord) -> Known {
    Known {
        store_id: record.store_id,
        state: match record.state() {
            StoreState::StoreRemoved => State::Removed,
            StoreState::StoreDraining => State::Draining,
            StoreState::StoreCordoned => State::Cordoned,
            StoreState::StoreUp | StoreState::Unspecified => State::Up,
        },
        is_alive: status.alive,
        replicas: status.replicas,
        leaders: status.leaders,
        zone: record.zone.clone(),
    }
}

/// What a Pod says of itself.
pub fn pod_seen(pod: &Pod) -> PodSeen {
    let status = pod.status.clone().unwrap_or_default();
    let container = status.container_statuses.iter().flatten().find(|c| c.name == super::build::CONTAINER);
    let state = container.and_then(|c| c.state.clone()).unwrap_or_default();
    let waiting = state.waiting.map(|w| Why {
        reason: w.reason.unwrap_or_else(|| "ContainerWaiting".into()),
        message: w.message.unwrap_or_default(),
    });
    let ended = state.terminated.map(|t| Why {
        reason: "ContainerEnded".into(),
        message: format!("its process ended with code {}", t.exit_code),
    });
    let is_true =
        |type_: &str| status.conditions.iter().flatten().any(|c| c.type_ == type_ && c.status == "True");
    let scheduled = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled");
    PodSeen {
        uid: pod.uid().unwrap_or_default(),
        template_hash: pod.annotations().get(ANNOTATION_TEMPLATE_HASH).cloned().unwrap_or_default(),
        is_terminating: pod.meta().deletion_timestamp.is_some(),
        is_running: state.running.is_some(),
        is_ready: is_true("Ready"),
        is_pending: status.phase.as_deref() == Some("Pending"),
        zone: pod.annotations().get(ZONE).cloned(),
        waiting: waiting.filter(|w| w.reason != "ContainerCreating").or(ended),
        unschedulable: scheduled
            .filter(|c| c.status == "False")
            .map(|c| c.message.clone().unwrap_or_else(|| "it has no node".into())),
    }
}

fn node_seen(
    pod: Option<&Pod>,
    claim: Option<&PersistentVolumeClaim>,
    nodes: &HashMap<String, Node>,
) -> NodeSeen {
    let bound = pod.and_then(|p| p.spec.as_ref()?.node_name.clone());
    let name = bound.or_else(|| claim.and_then(|c| c.annotations().get(SELECTED_NODE).cloned()));
    let Some(name) = name else { return NodeSeen::default() };
    let Some(node) = nodes.get(&name) else {
        return NodeSeen { name: Some(name), state: NodeState::Gone, ..NodeSeen::default() };
    };
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|c| c.type_ == "Ready"));
    let state = match ready {
        Some(ready) if ready.status == "True" => NodeState::Ready,
        Some(ready) => NodeState::NotReady {
            since_ms: ready.last_transition_time.as_ref().map_or(u64::MAX, conditions::time_ms),
        },
        None => NodeState::NotReady { since_ms: u64::MAX },
    };
    NodeSeen {
        name: Some(name),
        state,
        is_cordoned: node.spec.as_ref().is_some_and(|s| s.unschedulable == Some(true)),
        zone: None,
    }
}

/// Fills in zones, by the node label that stores are spread over.
pub fn with_zones(mut observed: Observed, nodes: &HashMap<String, Node>, label: &str) -> Observed {
    for store in &mut observed.stores {
        let node = store.node.name.as_ref().and_then(|name| nodes.get(name));
        store.node.zone = node.and_then(|n| n.labels().get(label).cloned());
    }
    observed
}

/// How many zones have a node that takes Pods.
pub fn zones_up(nodes: &HashMap<String, Node>, label: &str) -> usize {
    let is_up = |node: &&Node| {
        let conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
        is_ready && node.spec.as_ref().is_none_or(|s| s.unschedulable != Some(true))
    };
    let zones = nodes.values().filter(is_up).filter_map(|n| n.labels().get(label));
    zones.collect::<std::collections::BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(records: &[(u64, &str, StoreState)]) -> v1::StatusResponse {
        let stores = records.iter().map(|(id, address, state)| v1::StoreStatus {
            store: Some(v1::StoreRecord {
                store_id: *id,
                address: (*address).into(),
                state: *state as i32,
                ..v1::StoreRecord::default()
            }),
            ..v1::StoreStatus::default()
        });
        v1::StatusResponse { stores: stores.collect(), ..v1::StatusResponse::default() }
    }

    fn found(status: &v1::StatusResponse, address: &str, known_id: Option<u64>) -> Option<(u64, State)> {
        match (Records { status }).find(address, known_id) {
            Record::Known(known) => Some((known.store_id, known.state)),
            Record::Absent | Record::Unknown => None,
        }
    }

    #[test]
    fn a_store_is_the_newest_at_its_address_that_was_not_removed() {
        use StoreState::{StoreRemoved, StoreUp};
        let status =
            status(&[(1, "a", StoreRemoved), (2, "a", StoreUp), (3, "b", StoreUp), (4, "c", StoreRemoved)]);
        assert_eq!(found(&status, "a", Some(1)), Some((2, State::Up)));
        assert_eq!(found(&status, "c", Some(4)), Some((4, State::Removed)));
        assert_eq!(found(&status, "d", None), None);
    }

    #[test]
    fn numbers_of_removed_stores_are_known_by_address() {
        use StoreState::{StoreRemoved, StoreUp};
        let at = |name: &str| names::store_address(name, "main", "data");
        let status = status(&[
            (1, &at("main-0"), StoreUp),
            (2, &at("main-1"), StoreRemoved),
            // It lost its disk and is there again.
            (3, &at("main-2"), StoreRemoved),
            (4, &at("main-2"), StoreUp),
            (5, &names::store_address("main-5", "main", "other"), StoreRemoved),
        ]);
        let claim = ("main-1".to_owned(), PersistentVolumeClaim::default());
        let children = Children { claims: [claim].into(), ..Children::default() };
        let found = remains(&children, Some(&Records { status: &status }), "main", "data");
        assert_eq!(found, Remains { removed: [1].into(), claims: [1].into() });
    }

    #[test]
    fn a_pod_whose_status_names_no_container_may_run() {
        let pod = |phase: &str, containers: serde_json::Value| {
            let status = serde_json::json!({"phase": phase, "containerStatuses": containers});
            let pod: Pod = serde_json::from_value(serde_json::json!({"status": status})).expect("a Pod");
            pod_seen(&pod).may_run()
        };
        let container = |state: serde_json::Value| {
            serde_json::json!([{
                "name": super::super::build::CONTAINER, "image": "i", "imageID": "", "ready": false,
                "restartCount": 1, "state": state,
            }])
        };
        assert!(pod("Running", serde_json::json!([])));
        assert!(pod("Running", container(serde_json::json!({"running": {}}))));
        assert!(!pod("Running", container(serde_json::json!({"waiting": {"reason": "CrashLoopBackOff"}}))));
        assert!(!pod("Running", container(serde_json::json!({"terminated": {"exitCode": 1}}))));
        assert!(!pod("Pending", serde_json::json!([])));
    }

    #[test]
    fn a_removed_store_is_known_from_its_object() {
        let json = r#"{"metadata":{"name":"7"},"spec":{"address":"a:1"},"status":{"state":"Removed"}}"#;
        let store = removed(json).and_then(|s| s.store).expect("removed");
        assert_eq!((store.store_id, store.address.as_str()), (7, "a:1"));
        assert!(removed(&json.replace("Removed", "Up")).is_none());
    }
}
