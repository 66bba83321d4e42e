//! A Router against a scripted API server, pass by pass.

use super::reconcile::reconcile;
use crate::control::fake::FakeControl;
use crate::ctx::{Ctx, Settings};
use crate::testing::{ApiServer, Link};
use serde_json::{Value, json};
use std::sync::Arc;
use undb_spec::k8s::Router;

const NS: &str = "ns";
const CRD: &str = "routers.undb.io";

struct World {
    server: ApiServer,
    link: Link,
    ctx: Arc<Ctx>,
}

fn world(control_plane: Option<Value>, spec: Value) -> World {
    let server = ApiServer::default();
    let (client, link) = server.client(NS);
    let object = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "undb.io/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": NS},
               "spec": spec, "status": {"image": "undb:7"}})
    };
    if let Some(spec) = control_plane {
        server.put("controlplanes.undb.io", object("ControlPlane", "undb", spec));
    }
    let mut router = object("Router", "edge", spec);
    router["status"] = Value::Null;
    server.put(CRD, router);
    let ctx = Ctx::new(client, Settings::default(), Arc::new(FakeControl::default()));
    World { server, link, ctx }
}

impl World {
    fn parent(&self) -> Router {
        serde_json::from_value(self.server.get(CRD, NS, "edge").expect("there")).expect("a Router")
    }

    async fn pass(&self) {
        reconcile(Arc::new(self.parent()), self.ctx.clone()).await.expect("a pass");
    }

    fn condition(&self, type_: &str) -> (String, String) {
        let status = self.parent().status.expect("a status");
        let found = status.conditions.into_iter().find(|c| c.type_ == type_).expect(type_);
        (found.status, found.reason)
    }

    fn runs(&self, name: &str) {
        self.server.change("deployments.apps", NS, name, |object| {
            let count = object["spec"]["replicas"].clone();
            object["status"] = json!({"replicas": count, "readyReplicas": count, "updatedReplicas": count,
                "availableReplicas": count, "observedGeneration": object["metadata"]["generation"]});
        });
    }

    fn image_of(&self, name: &str) -> String {
        let found = self.server.get("deployments.apps", NS, name).expect("there");
        found["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default().into()
    }
}

#[tokio::test]
async fn a_router_comes_up_with_the_image_of_its_control_plane_and_then_is_still() {
    let world = world(Some(json!({})), json!({"proxy": {"replicas": 3}}));
    world.pass().await;
    assert_eq!(world.image_of("edge-routing"), "undb:7");
    assert_eq!(world.condition("Ready").0, "False");
    world.runs("edge-routing");
    world.runs("edge-proxy");
    world.pass().await;
    assert_eq!(world.condition("Ready"), ("True".into(), "Reconciled".into()));
    let status = world.parent().status.expect("a status");
    assert_eq!((status.ready_replicas, status.proxy_ready_replicas), (5, 3));
    assert_eq!(status.endpoint.as_deref(), Some("edge-proxy.ns.svc:6379"));
    world.link.clear();
    world.pass().await;
    assert_eq!(world.link.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_new_image_reaches_routing_before_proxies() {
    let world = world(Some(json!({})), json!({}));
    world.pass().await;
    world.runs("edge-routing");
    world.runs("edge-proxy");
    world.server.change(CRD, NS, "edge", |object| object["spec"]["image"] = json!("undb:8"));
    world.pass().await;
    assert_eq!(
        (world.image_of("edge-routing"), world.image_of("edge-proxy")),
        ("undb:8".into(), "undb:7".into())
    );
    world.runs("edge-routing");
    world.pass().await;
    assert_eq!(world.image_of("edge-proxy"), "undb:8");
}

#[tokio::test]
async fn without_its_control_plane_it_waits_and_says_so() {
    let world = world(None, json!({}));
    assert!(reconcile(Arc::new(world.parent()), world.ctx.clone()).await.is_err());
    assert_eq!(world.condition("Ready"), ("False".into(), "DependencyNotFound".into()));
    assert_eq!(world.condition("Stalled").0, "False");
}

#[tokio::test]
async fn tls_towards_clients_needs_certificates() {
    let world = world(Some(json!({"tls": {"enabled": false}})), json!({"proxy": {"tls": {"enabled": true}}}));
    assert!(reconcile(Arc::new(world.parent()), world.ctx.clone()).await.is_err());
    assert_eq!(world.condition("Stalled"), ("True".into(), "InvalidSpec".into()));
}
