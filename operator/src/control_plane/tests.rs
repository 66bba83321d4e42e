//! A ControlPlane against a scripted API server and a fake control plane, pass by pass.

use super::reconcile::reconcile;
use super::roll::{Member, MemberPod, Said, Step, next};
use super::wish::{GateOff, resolve};
use crate::control::fake::FakeControl;
use crate::ctx::{Ctx, Settings};
use crate::testing::{ApiServer, Link, pod};
use crate::workload::{ANNOTATION_TEMPLATE_HASH, Role};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use undb_proto::v1;
use undb_spec::k8s::ControlPlane;

const NS: &str = "ns";
const CRD: &str = "controlplanes.undb.io";

struct World {
    server: ApiServer,
    link: Link,
    control: FakeControl,
    ctx: Arc<Ctx>,
}

fn world(spec: Value) -> World {
    let server = ApiServer::default();
    let (client, link) = server.client(NS);
    let control = FakeControl::default();
    control.with(|state| {
        let meta = v1::MetaStatusResponse { leader_member_id: 3, ..Default::default() };
        state.status = v1::StatusResponse { meta: Some(meta), ..Default::default() };
    });
    let settings = Settings { image: "undb:1".into(), namespace: "ops".into(), ..Settings::default() };
    let ctx = Ctx::new(client, settings, Arc::new(control.clone()));
    let world = World { server, link, control, ctx };
    world.make(spec);
    world
}

impl World {
    fn make(&self, spec: Value) {
        self.server.put(
            CRD,
            json!({"apiVersion": "undb.io/v1alpha1", "kind": "ControlPlane",
                   "metadata": {"name": "undb", "namespace": NS}, "spec": spec}),
        );
    }

    fn parent(&self) -> ControlPlane {
        serde_json::from_value(self.server.get(CRD, NS, "undb").expect("there")).expect("a ControlPlane")
    }

    async fn pass(&self) {
        reconcile(Arc::new(self.parent()), self.ctx.clone()).await.expect("a pass");
    }

    fn condition(&self, type_: &str) -> (String, String) {
        let status = self.parent().status.expect("a status");
        let found = status.conditions.into_iter().find(|c| c.type_ == type_).expect(type_);
        (found.status, found.reason)
    }

    /// What StatefulSet and Deployment controllers, scheduler and kubelet would do.
    fn everything_runs(&self) {
        for (kind, name) in [("statefulsets.apps", "undb-meta"), ("statefulsets.apps", "undb-control")] {
            self.server.change(kind, NS, name, |set| {
                let count = set["spec"]["replicas"].clone();
                set["status"] = json!({"replicas": count, "readyReplicas": count, "updatedReplicas": count,
                    "observedGeneration": set["metadata"]["generation"],
                    "currentRevision": "a", "updateRevision": "a"});
            });
        }
        self.server.change("deployments.apps", NS, "undb-access", |object| {
            let count = object["spec"]["replicas"].clone();
            object["status"] = json!({"replicas": count, "readyReplicas": count, "updatedReplicas": count,
                "availableReplicas": count, "observedGeneration": object["metadata"]["generation"]});
        });
        self.members_run();
    }

    fn members_run(&self) {
        let set = self.server.get("statefulsets.apps", NS, "undb-meta").expect("there");
        let template = &set["spec"]["template"];
        for ordinal in 0..3 {
            let name = format!("undb-meta-{ordinal}");
            if self.server.get("pods", NS, &name).is_some() {
                continue;
            }
            let labels: BTreeMap<String, String> =
                serde_json::from_value(template["metadata"]["labels"].clone()).expect("labels");
            let mut made = pod(NS, &name, &labels, true);
            made["metadata"]["annotations"] = template["metadata"]["annotations"].clone();
            made["spec"]["containers"] = template["spec"]["containers"].clone();
            self.server.put("pods", made);
        }
    }

    fn hash_of(&self, pod: &str) -> String {
        let found = self.server.get("pods", NS, pod).expect("there");
        found["metadata"]["annotations"][ANNOTATION_TEMPLATE_HASH].as_str().unwrap_or_default().into()
    }

    fn image_of(&self, kind: &str, name: &str) -> String {
        let found = self.server.get(kind, NS, name).expect("there");
        found["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default().into()
    }

    fn wish_image(&self, image: &str) {
        self.server.change(CRD, NS, "undb", |object| object["spec"]["image"] = json!(image));
    }
}

#[tokio::test]
async fn a_control_plane_comes_up_and_then_nothing_more_is_written() {
    let world = world(json!({}));
    world.pass().await;
    assert_eq!(world.condition("Ready").0, "False");
    assert_eq!(world.condition("Reconciling").0, "True");
    world.everything_runs();
    world.pass().await;
    assert_eq!(world.condition("Ready"), ("True".into(), "Reconciled".into()));
    assert_eq!(world.condition("Reconciling").0, "False");
    let status = world.parent().status.expect("a status");
    assert_eq!(status.endpoint.as_deref(), Some("undb-access.ns.svc:7380"));
    assert_eq!((status.ready_members, status.client_secret.as_deref()), (3, Some("undb-client")));
    assert_eq!(status.version.as_deref(), Some("1"));
    assert!(status.members[2].leader && status.members[0].image.as_deref() == Some("undb:1"));
    world.link.clear();
    world.pass().await;
    assert_eq!(world.link.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn certificates_and_identity_are_there_before_any_pod() {
    let world = world(json!({}));
    world.pass().await;
    let writes = world.link.writes();
    let at = |what: &str| {
        writes.iter().position(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {writes:?}"))
    };
    assert!(at("Create configmaps") < at("statefulsets"), "{writes:?}");
    let secrets = world.server.names("secrets", NS);
    assert_eq!(secrets, ["undb-ca", "undb-client", "undb-tls", "undb-token"]);
    let last_secret = writes.iter().rposition(|line| line.contains("secrets")).expect("a Secret");
    let first_set = at("statefulsets");
    assert!(last_secret < first_set, "{writes:?}");
}

#[tokio::test]
async fn an_upgrade_of_the_operator_changes_no_image_and_restarts_nothing() {
    let world = world(json!({}));
    world.pass().await;
    world.everything_runs();
    let mut newer = (*world.ctx).clone();
    newer.settings.image = "undb:2".into();
    reconcile(Arc::new(world.parent()), Arc::new(newer)).await.expect("a pass");
    assert_eq!(world.image_of("statefulsets.apps", "undb-meta"), "undb:1");
    assert_eq!(world.server.names("pods", NS).len(), 3);
}

#[tokio::test]
async fn a_new_image_reaches_members_one_by_one_with_the_leader_last_and_others_after_them() {
    let world = world(json!({}));
    world.pass().await;
    world.everything_runs();
    world.pass().await;
    world.wish_image("undb:2");
    let mut gone = Vec::new();
    for _round in 0..3 {
        let before = world.server.names("pods", NS);
        // The template first, then the Pod.
        world.pass().await;
        let after = world.server.names("pods", NS);
        let missing: Vec<_> = before.into_iter().filter(|name| !after.contains(name)).collect();
        gone.extend(missing);
        assert_eq!(world.condition("Ready").0, "True", "a majority serves");
        assert_eq!(world.image_of("statefulsets.apps", "undb-control"), "undb:1");
        world.everything_runs();
    }
    assert_eq!(gone, ["undb-meta-1", "undb-meta-0", "undb-meta-2"]);
    world.pass().await;
    assert_eq!(world.image_of("statefulsets.apps", "undb-control"), "undb:2");
    assert_eq!(world.image_of("deployments.apps", "undb-access"), "undb:1");
    world.everything_runs();
    world.pass().await;
    assert_eq!(world.image_of("deployments.apps", "undb-access"), "undb:2");
    assert_eq!(world.hash_of("undb-meta-0"), world.hash_of("undb-meta-2"));
}

#[tokio::test]
async fn no_member_is_restarted_while_a_store_is_down_on_purpose_or_nobody_can_tell() {
    let world = world(json!({}));
    world.pass().await;
    world.everything_runs();
    world.wish_image("undb:2");
    world.control.with(|state| state.leases = vec![v1::DisruptionLease::default()]);
    world.pass().await;
    assert_eq!(world.condition("Reconciling").1, "WaitingForStores");
    world.control.with(|state| state.down = true);
    world.pass().await;
    assert_eq!(world.condition("Reconciling").1, "ControlPlaneUnreachable");
    assert_eq!(world.server.names("pods", NS).len(), 3);
}

#[tokio::test]
async fn one_that_is_made_again_over_the_same_volumes_is_the_same_cluster() {
    let world = world(json!({}));
    world.pass().await;
    let id = world.parent().status.and_then(|status| status.cluster_id).expect("an id");
    let ca = world.server.get("secrets", NS, "undb-ca").expect("there")["data"].clone();
    let old = world.parent().metadata.uid;
    let api: kube::Api<ControlPlane> = kube::Api::namespaced(world.ctx.client.clone(), NS);
    api.delete("undb", &Default::default()).await.expect("deleted");
    assert!(world.server.get("statefulsets.apps", NS, "undb-meta").is_none(), "it has an owner");
    world.make(json!({}));
    assert_ne!(world.parent().metadata.uid, old);
    world.pass().await;
    assert_eq!(world.parent().status.and_then(|status| status.cluster_id), Some(id));
    assert_eq!(world.server.get("secrets", NS, "undb-ca").expect("there")["data"], ca);
}

#[tokio::test]
async fn keys_go_with_the_object_only_where_data_does() {
    let world = world(json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}));
    world.pass().await;
    let set = world.server.get("statefulsets.apps", NS, "undb-meta").expect("there");
    assert_eq!(set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"], "Delete");
    let api: kube::Api<ControlPlane> = kube::Api::namespaced(world.ctx.client.clone(), NS);
    api.delete("undb", &Default::default()).await.expect("deleted");
    assert!(world.server.names("secrets", NS).is_empty());
    assert!(world.server.get("configmaps", NS, "undb-identity").is_none());
}

#[tokio::test]
async fn a_paused_one_is_looked_at_and_not_changed() {
    let world = world(json!({"paused": true}));
    world.pass().await;
    assert!(world.server.names("secrets", NS).is_empty());
    assert_eq!(world.condition("Reconciling"), ("False".into(), "ReconcilePaused".into()));
}

#[tokio::test]
async fn drift_is_undone() {
    let world = world(json!({}));
    world.pass().await;
    world.everything_runs();
    let api: kube::Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        kube::Api::namespaced(world.ctx.client.clone(), NS);
    api.delete("undb-meta", &Default::default()).await.expect("deleted");
    world.pass().await;
    let budget = world.server.get("poddisruptionbudgets.policy", NS, "undb-meta").expect("made again");
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
}

#[tokio::test]
async fn a_class_of_stores_goes_with_its_store_cluster() {
    let world = world(json!({}));
    world.server.put(
        "storeclusters.undb.io",
        json!({"apiVersion": "undb.io/v1alpha1", "kind": "StoreCluster",
               "metadata": {"name": "kept", "namespace": NS}, "spec": {"replicas": 3}}),
    );
    let ours = json!({"app.kubernetes.io/managed-by": "undb-operator"});
    let class =
        |name: &str, labels: &Value| json!({"metadata": {"name": name, "labels": labels}}).to_string();
    let known = [class("kept", &ours), class("gone", &ours), class("by-hand", &json!({}))];
    world.control.with(|state| state.objects = known.into());
    world.pass().await;
    let calls = world.control.with(|state| state.calls.clone());
    let deleted: Vec<&String> = calls.iter().filter(|call| call.starts_with("delete")).collect();
    assert_eq!(deleted, ["delete storecluster gone now=false"]);
}

#[tokio::test]
async fn a_member_whose_data_is_damaged_is_degraded_with_what_to_do() {
    let world = world(json!({}));
    world.pass().await;
    world.everything_runs();
    world.pass().await;
    assert_eq!(world.condition("Degraded").0, "False");
    world.server.change("pods", NS, "undb-meta-1", |pod| {
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
        pod["status"]["containerStatuses"] = json!([{"name": "undb", "ready": false, "restartCount": 3,
            "image": "i", "imageID": "i",
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 12}}}]);
    });
    world.pass().await;
    assert_eq!(world.condition("Degraded"), ("True".into(), "MemberDamaged".into()));
    let conditions = world.parent().status.expect("a status").conditions;
    let degraded = conditions.into_iter().find(|c| c.type_ == "Degraded").expect("said");
    assert!(degraded.message.contains("data-undb-meta-1"), "{}", degraded.message);
    assert!(degraded.message.contains("2 of 3 members serve"), "{}", degraded.message);
}

#[tokio::test]
async fn what_a_user_must_mend_is_stalled() {
    let world = world(json!({"podTemplate": {"metadata": {}, "spec": {"hostNetwork": true}}}));
    let failed = reconcile(Arc::new(world.parent()), world.ctx.clone()).await.expect_err("refused");
    assert!(failed.to_string().contains("spec.podTemplate.spec.hostNetwork"), "{failed}");
    assert_eq!(world.condition("Stalled"), ("True".into(), "InvalidSpec".into()));
}

fn member(name: &str, hash: &str, is_ready: bool) -> Member {
    let pod = MemberPod {
        uid: format!("uid-{name}"),
        template_hash: hash.into(),
        is_ready,
        is_ending: false,
        is_stopped: false,
        trouble: None,
        exit_code: None,
        unschedulable: None,
    };
    Member { name: name.into(), pod: Some(pod) }
}

fn calm(leader: usize) -> Result<Said, String> {
    Ok(Said { leader: Some(leader), leases: 0 })
}

#[test]
fn nobody_goes_while_somebody_is_behind() {
    let mut members =
        vec![member("m-0", "old", true), member("m-1", "new", false), member("m-2", "old", true)];
    assert!(matches!(next(&members, "new", &calm(0)), Step::Wait { reason: "WaitingForMember", .. }));
    members[1].pod = None;
    assert!(matches!(next(&members, "new", &calm(0)), Step::Wait { reason: "WaitingForMember", .. }));
    members[1] = member("m-1", "new", true);
    assert_eq!(next(&members, "new", &calm(0)), Step::Evict { name: "m-2".into(), uid: "uid-m-2".into() });
}

#[test]
fn a_member_that_cannot_run_is_let_go_first_without_asking() {
    let mut members =
        vec![member("m-0", "old", false), member("m-1", "old", true), member("m-2", "old", true)];
    assert_eq!(
        next(&members, "new", &Err("down".into())),
        Step::Evict { name: "m-0".into(), uid: "uid-m-0".into() }
    );
    if let Some(pod) = &mut members[0].pod {
        pod.is_stopped = true;
    }
    assert_eq!(
        next(&members, "new", &Err("down".into())),
        Step::Delete { name: "m-0".into(), uid: "uid-m-0".into() }
    );
}

#[test]
fn the_pods_of_metadata_are_as_they_were_agreed_on() {
    let parent: ControlPlane = serde_json::from_value(json!({
        "apiVersion": "undb.io/v1alpha1", "kind": "ControlPlane",
        "metadata": {"name": "undb", "namespace": NS, "uid": "u"},
        "spec": {"podTemplate": {"metadata": {"labels": {"team": "a"}},
            "spec": {"tolerations": [{"key": "mine", "operator": "Exists"}]}}},
    }))
    .expect("a ControlPlane");
    let wish = resolve(&parent, "undb:1", GateOff::No).expect("resolved");
    let template = super::build::template(&wish, Role::Meta, "id", "undb-meta-config-1").expect("a template");
    let set = super::build::metadata(&parent, &wish, template).expect("a set");
    let text = serde_yaml::to_string(&set).expect("plain data");
    let golden = include_str!("golden_meta.yaml");
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/control_plane/golden_meta.yaml");
        std::fs::write(path, &text).expect("written");
        return;
    }
    assert_eq!(text, golden, "UPDATE=1 writes what is now");
}
