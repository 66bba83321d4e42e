//! A Table against a scripted API server and a fake control plane, pass by pass.

use super::FINALIZER;
use super::reconcile::{object_json, reconcile};
use super::status::{of_failure, of_table, seen};
use crate::control::fake::FakeControl;
use crate::ctx::{Ctx, Settings};
use crate::error::Error;
use crate::testing::ApiServer;
use serde_json::{Value, json};
use std::sync::Arc;
use undb_sdk::ErrorCode;
use undb_spec::k8s::{Table, TableStatus};

const NS: &str = "ns";
const CRD: &str = "tables.undb.io";

struct World {
    server: ApiServer,
    control: FakeControl,
    ctx: Arc<Ctx>,
}

fn world(spec: Value) -> World {
    let server = ApiServer::default();
    let object = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "undb.io/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": NS},
               "spec": spec})
    };
    server.put("namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}));
    server.put("controlplanes.undb.io", object("ControlPlane", "undb", json!({})));
    server.put(CRD, object("Table", "orders", spec));
    let control = FakeControl::default();
    control.with(|state| state.objects = vec![told(2, 2, 0)]);
    let ctx = Ctx::new(
        server.client(NS).0,
        Settings { namespace: NS.into(), ..Settings::default() },
        Arc::new(control.clone()),
    );
    World { server, control, ctx }
}

fn told(shards: u32, available: u32, lacking: u32) -> String {
    json!({"metadata": {"name": "orders"}, "status": {
        "ready": shards == available, "reason": "UnderReplicated: some lack a replica", "state": "Ready",
        "tableId": 9, "shards": shards, "shardsAvailable": available, "shardsUnderReplicated": lacking,
    }})
    .to_string()
}

impl World {
    fn table(&self) -> Option<Table> {
        Some(serde_json::from_value(self.server.get(CRD, NS, "orders")?).expect("a Table"))
    }

    async fn pass(&self) -> crate::error::Result<()> {
        reconcile(Arc::new(self.table().expect("there")), self.ctx.clone()).await.map(|_| ())
    }

    async fn delete(&self) {
        let api: kube::Api<Table> = kube::Api::namespaced(self.ctx.client.clone(), NS);
        api.delete("orders", &Default::default()).await.expect("deleted");
    }

    fn calls(&self) -> Vec<String> {
        self.control.with(|state| std::mem::take(&mut state.calls))
    }
}

#[tokio::test]
async fn a_table_is_applied_and_its_state_reported() {
    let world = world(json!({"replication": {"factor": 3}}));
    world.pass().await.expect("a pass");
    let table = world.table().expect("there");
    assert_eq!(table.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_string()][..]));
    let status = table.status.expect("a status");
    assert_eq!((status.table_id, status.phase.as_deref()), (Some(9), Some("Available")));
    assert!(crate::conditions::is_true(&status.conditions, "FullyReplicated"));
    assert!(world.calls().iter().any(|call| call.starts_with("apply") && call.contains("orders")));
}

#[tokio::test]
async fn a_deleted_table_is_kept_or_removed_as_its_policy_says() {
    for (policy, now) in [("Retain", false), ("Delete", true)] {
        let world = world(json!({"deletionPolicy": policy}));
        world.pass().await.expect("a pass");
        world.delete().await;
        world.calls();
        world.pass().await.expect("a pass");
        assert_eq!(world.calls(), [format!("delete table orders now={now}")]);
        assert!(world.table().is_none(), "{policy}");
    }
}

#[tokio::test]
async fn a_table_stays_while_its_control_plane_does_not_answer_and_goes_when_that_goes() {
    let world = world(json!({}));
    world.pass().await.expect("a pass");
    world.delete().await;
    world.control.with(|state| state.down = true);
    assert!(world.pass().await.is_err());
    assert!(world.table().is_some());
    let api: kube::Api<undb_spec::k8s::ControlPlane> = kube::Api::namespaced(world.ctx.client.clone(), NS);
    api.delete("undb", &Default::default()).await.expect("deleted");
    world.pass().await.expect("a pass");
    assert!(world.table().is_none());
}

#[tokio::test]
async fn a_namespace_that_terminates_is_not_kept_waiting() {
    let world = world(json!({}));
    world.pass().await.expect("a pass");
    world.delete().await;
    world.server.put(
        "namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": NS, "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    world.control.with(|state| state.down = true);
    world.pass().await.expect("a pass");
    assert!(world.table().is_none());
}

#[tokio::test]
async fn an_operator_that_ends_with_its_namespace_lets_the_tables_go_and_takes_none_again() {
    let world = world(json!({}));
    world.pass().await.expect("a pass");
    super::release(&world.ctx).await.expect("nothing to do");
    let held = |table: Table| table.metadata.finalizers.unwrap_or_default().contains(&FINALIZER.to_string());
    assert!(world.table().is_some_and(held), "the namespace stays");
    world.server.put(
        "namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": NS, "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    super::release(&world.ctx).await.expect("released");
    assert!(!world.table().is_some_and(held));
    world.pass().await.expect("a pass");
    assert!(!world.table().is_some_and(held), "not taken again");
}

#[test]
fn what_only_kubernetes_has_does_not_reach_the_control_plane() {
    let table: Table = serde_json::from_value(json!({
        "apiVersion": "undb.io/v1alpha1", "kind": "Table", "metadata": {"name": "orders", "namespace": NS},
        "spec": {"controlPlaneRef": {"name": "undb"}, "ttlSeconds": 5},
    }))
    .expect("a Table");
    let sent: Value = serde_json::from_str(&object_json(&table)).expect("JSON");
    assert!(sent["spec"].get("controlPlaneRef").is_none() && sent["metadata"].get("namespace").is_none());
    assert_eq!((&sent["spec"]["ttlSeconds"], &sent["kind"]), (&json!(5), &json!("Table")));
}

#[test]
fn a_refusal_is_stalled_and_silence_is_unknown() {
    let condition = |status: &TableStatus, type_: &str| {
        let found = crate::conditions::find(&status.conditions, type_).expect("said");
        (found.status.clone(), found.message.clone())
    };
    let message = "spec.partitioning: cannot be changed".to_string();
    let refused = Error::Control(undb_sdk::Error::Rejected {
        code: ErrorCode::InvalidArgument,
        message: message.clone(),
    });
    let status = of_failure(&refused, &TableStatus::default(), Some(1), 1000);
    let stalled = condition(&status, "Stalled");
    assert!(stalled.0 == "True" && stalled.1.contains(&message), "{stalled:?}");
    assert!(condition(&status, "Ready").1.contains(&message));
    let silent = Error::ControlPlaneUnreachable {
        namespace: NS.into(),
        control_plane: "undb".into(),
        cause: "x".into(),
    };
    let status = of_failure(&silent, &TableStatus::default(), Some(1), 1000);
    assert_eq!(
        (condition(&status, "Ready").0, condition(&status, "Stalled").0),
        ("Unknown".into(), "False".into())
    );
}

#[test]
fn a_table_that_lacks_copies_serves_and_is_not_whole() {
    let found = seen(&told(4, 4, 1)).expect("readable");
    let status = of_table(Some(&found), &TableStatus::default(), Some(1), 1000);
    assert!(crate::conditions::is_true(&status.conditions, "Ready"));
    let whole = crate::conditions::find(&status.conditions, "FullyReplicated").expect("said");
    assert_eq!((whole.status.as_str(), whole.reason.as_str()), ("False", "UnderReplicated"));
    assert_eq!(status.phase.as_deref(), Some("Degraded"));
    let found = seen(&told(4, 3, 1)).expect("readable");
    let status = of_table(Some(&found), &TableStatus::default(), Some(1), 1000);
    assert_eq!(status.phase.as_deref(), Some("Unavailable"));
    assert_eq!(seen("{}"), None);
}
