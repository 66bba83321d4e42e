//! The whole operator against the scripted API server and a gate: processes that die at any call, sleep at the
//! worst moment, and see old watches. Time is the runtime's and moves by itself. Which test is of which known
//! failure of other operators: README.md.

mod crash;
mod roll;
mod sleep;
mod stale;

use crate::ctx::{Ctx, Settings};
use crate::store_cluster;
use crate::testing::{ApiServer, FakeGate, Key, Link, Verb, store_pods};
use kube::runtime::events::{Recorder, Reporter};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use undb_runtime::{Clock, Shutdown};

pub const NS: &str = "data";
const CLUSTER: &str = "storeclusters.undb.io";
const PDBS: &str = "poddisruptionbudgets.policy";
const SECOND: Duration = Duration::from_secs(1);

/// A cluster with three nodes, a control plane that is there, and a StoreCluster `main` of three.
struct World {
    server: ApiServer,
    gate: FakeGate,
    clock: Clock,
    /// From when all stores had been up once: at most one may be down.
    is_guarded: bool,
    /// Pods that do not get beyond Pending: their volume, their image, their node.
    stuck: Vec<String>,
    links: Mutex<Vec<Link>>,
}

/// One operator process.
struct Operator {
    link: Link,
    shutdown: Shutdown,
    task: tokio::task::JoinHandle<()>,
}

impl Operator {
    fn evictions(&self) -> usize {
        self.link.calls().iter().filter(|c| c.is(Verb::Create, "pods/eviction")).count()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.shutdown.begin();
        self.task.abort();
    }
}

impl World {
    fn new() -> Self {
        let filter = std::env::var("UNDB_LOG").unwrap_or_else(|_| "off".into());
        let _started = undb_runtime::telemetry::init(undb_runtime::telemetry::Format::Text, &filter);
        let server = ApiServer::default();
        for node in 0..3 {
            server.put(
                "nodes",
                json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": {"name": format!("node-{node}"), "labels": {"topology.kubernetes.io/zone": format!("z{node}")}},
                    "spec": {},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
                }),
            );
        }
        server.put(
            "controlplanes.undb.io",
            json!({
                "apiVersion": "undb.io/v1alpha1", "kind": "ControlPlane",
                "metadata": {"name": "undb", "namespace": NS}, "spec": {"tls": {"enabled": false}},
            }),
        );
        for secret in ["undb-tls", "undb-token"] {
            server.put("secrets", json!({"metadata": {"name": secret, "namespace": NS}, "data": {}}));
        }
        server.put(
            CLUSTER,
            json!({
                "apiVersion": "undb.io/v1alpha1", "kind": "StoreCluster",
                "metadata": {"name": "main", "namespace": NS},
                "spec": {"replicas": 3, "image": "undb:1"},
            }),
        );
        let clock = Clock::manual(1_800_000_000_000);
        let gate = FakeGate::new(clock.clone());
        Self { server, gate, clock, is_guarded: false, stuck: Vec::new(), links: Mutex::default() }
    }

    /// With an operator, once all three stores serve.
    async fn started() -> (Self, Operator) {
        let mut world = Self::new();
        let operator = world.operator();
        world.until("started", |w| w.is_settled(3, "undb:1")).await;
        (world, operator)
    }

    fn operator(&self) -> Operator {
        let (client, link) = self.server.client(NS);
        self.links.lock().push(link.clone());
        let reporter = Reporter { controller: "undb-operator".into(), instance: None };
        let ctx = Arc::new(Ctx {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            settings: Settings { image: "undb:0".into(), namespace: "ops".into(), ..Settings::default() },
            control: self.gate.connector(&link),
            clock: self.clock.clone(),
        });
        let shutdown = Shutdown::new(SECOND);
        let ends = shutdown.clone();
        let task = tokio::spawn(async move {
            let _ended = store_cluster::run(ctx, ends).await;
        });
        Operator { link, shutdown, task }
    }

    /// One second: kubelets, stores and clocks go on.
    async fn tick(&mut self) {
        tokio::time::sleep(SECOND).await;
        self.clock.advance(SECOND);
        let pods = self.server.with(|c| c.all(&Key::new("pods", NS, "")));
        for (key, pod) in pods.into_iter().filter(|(key, _)| !self.stuck.contains(&key.name)) {
            run_pod(&self.server, &key, &pod);
        }
        self.gate.tick(&store_pods(&self.server, NS));
        let down = self.gate.state.lock().down();
        self.is_guarded |= down.is_empty() && self.gate.state.lock().stores.len() >= 3;
        if self.is_guarded && down.len() > 1 {
            self.gate.state.lock().violations.push(format!("stores {down:?} are down at once"));
        }
    }

    /// Ticks until it is so. Panics with the state when it does not come to that.
    async fn until(&mut self, what: &str, mut is_so: impl FnMut(&World) -> bool) {
        for _ in 0..SECONDS_MAX {
            self.tick().await;
            self.check();
            if is_so(self) {
                return;
            }
        }
        let cluster = self.server.get(CLUSTER, NS, "main");
        let status = cluster.map(|c| c["status"].clone()).unwrap_or_default();
        let calls = self.links.lock().last().map(Link::calls).unwrap_or_default();
        let calls: Vec<String> = calls.iter().rev().take(30).map(|c| c.line()).collect();
        let leases = self.gate.state.lock().leases.clone();
        panic!("not {what} after {SECONDS_MAX} s: {status:#}, leases {leases:?}, last calls {calls:#?}");
    }

    fn check(&self) {
        let violations = self.gate.state.lock().violations.clone();
        assert!(violations.is_empty(), "{violations:?}");
    }

    /// All Pods are as wanted and up, nothing is held, no fence is open.
    fn is_settled(&self, replicas: usize, image: &str) -> bool {
        let pods = self.server.with(|c| c.all(&Key::new("pods", NS, "")));
        let fences = self.server.with(|c| c.all(&Key::new(PDBS, NS, "")));
        let stores = self.server.names("stores.undb.io", NS).len();
        let is_as_wanted = |pod: &Value| pod["spec"]["containers"][0]["image"] == image;
        let state = self.gate.state.lock();
        pods.len() == replicas
            && stores == replicas
            && pods.iter().all(|(_, pod)| is_as_wanted(pod))
            && fences.iter().all(|(_, fence)| fence["spec"]["minAvailable"] == 1)
            && state.leases.is_empty()
            && state.down().is_empty()
            && state.stores.values().filter(|s| state_holds(s)).count() == replicas
    }

    /// UID of each Pod by its name.
    fn pod_uids(&self) -> BTreeMap<String, String> {
        let pods = self.server.with(|c| c.all(&Key::new("pods", NS, "")));
        pods.into_iter().map(|(key, pod)| (key.name, pod["metadata"]["uid"].to_string())).collect()
    }

    fn condition(&self, type_: &str) -> Value {
        let cluster = self.server.get(CLUSTER, NS, "main").expect("the StoreCluster");
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|c| c["type"] == type_).unwrap_or_default()
    }

    fn change_spec(&self, change: impl FnOnce(&mut Value)) {
        self.server.change(CLUSTER, NS, "main", |cluster| change(&mut cluster["spec"]));
    }

    /// Everything that the operator made, without what differs from run to run.
    fn objects(&self) -> BTreeMap<String, Value> {
        let kinds = [
            "pods",
            "persistentvolumeclaims",
            "configmaps",
            "services",
            "stores.undb.io",
            PDBS,
            "networkpolicies.networking.k8s.io",
        ];
        let all = kinds.iter().flat_map(|kind| self.server.with(|c| c.all(&Key::new(kind, NS, ""))));
        // A number that was written down is never used again, so a death may cost one: stores by rank.
        let mut stores = self.server.names("stores.undb.io", NS);
        stores.sort_by_key(|name| name.rsplit('-').next().and_then(|n| n.parse::<u32>().ok()));
        let ranked = |text: String| {
            let ranks = stores.iter().enumerate();
            ranks.fold(text, |text, (rank, name)| text.replace(name.as_str(), &format!("store#{rank}")))
        };
        let plain = |(key, mut object): (Key, Value)| {
            for gone in ["nodeName", "ordinal"] {
                object["spec"].as_object_mut().and_then(|spec| spec.remove(gone));
            }
            let content = json!({
                "spec": object["spec"], "data": object["data"], "labels": object["metadata"]["labels"],
            });
            (ranked(format!("{}/{}", key.resource(), key.name)), json!(ranked(content.to_string())))
        };
        all.map(plain).collect()
    }
}

const SECONDS_MAX: usize = 400;

fn state_holds(store: &crate::testing::FakeStore) -> bool {
    store.state == undb_proto::v1::StoreState::StoreUp
}

/// What a kubelet does in a second: pending, running, ready.
fn run_pod(server: &ApiServer, key: &Key, pod: &Value) {
    let ordinal = key.name.rsplit('-').next().and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    let node = format!("node-{}", ordinal % 3);
    let running = json!([{"name": "undb", "ready": true, "restartCount": 0, "image": "i", "imageID": "i",
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]);
    match pod["status"]["phase"].as_str() {
        Some("Pending") => server.change("pods", NS, &key.name, |pod| {
            pod["spec"]["nodeName"] = json!(node);
            pod["status"] = json!({"phase": "Running", "containerStatuses": running, "conditions": []});
        }),
        Some("Running") if pod["status"]["conditions"] == json!([]) => {
            server.change("pods", NS, &key.name, |pod| {
                pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
            });
        }
        _ => {}
    }
}
