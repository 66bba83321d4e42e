//! The webhook against the scripted API server and a fake control plane, over HTTP and over TLS.

use super::identity::{self, Renewal, SECRET};
use super::*;
use crate::control::fake::FakeControl;
use crate::ctx::Settings;
use crate::testing::{ApiServer, Call, Fault, Key, Link, Target, Verb, pod, review as review_of};
use axum::body::Body;
use axum::http::Request as HttpRequest;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;
use undb_proto::v1;

const NS: &str = "data";
const POD: &str = "main-0";
const ADDRESS: &str = "main-0.main-stores.data.svc:7400";
const PDBS: &str = "poddisruptionbudgets.policy";

struct World {
    server: ApiServer,
    link: Link,
    control: FakeControl,
    ctx: Arc<Ctx>,
}

fn store_labels() -> BTreeMap<String, String> {
    let pairs = [
        ("app.kubernetes.io/name", "undb"),
        ("app.kubernetes.io/managed-by", "undb-operator"),
        ("undb.io/component", "store"),
        ("undb.io/control-plane", "undb"),
        ("undb.io/store-cluster", "main"),
        ("undb.io/store", POD),
    ];
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn world() -> World {
    let server = ApiServer::default();
    server.put("pods", pod(NS, POD, &store_labels(), true));
    let spec = undb_spec::k8s::StoreClusterSpec::default();
    server.put(
        "storeclusters.undb.io",
        json!({
            "apiVersion": "undb.io/v1alpha1", "kind": "StoreCluster",
            "metadata": {"name": "main", "namespace": NS},
            "spec": serde_json::to_value(spec).expect("a spec"),
        }),
    );
    let metadata = kube::api::ObjectMeta { name: Some(POD.into()), ..Default::default() };
    let mut fence = serde_json::to_value(crate::fence::closed(metadata)).expect("a budget");
    fence["metadata"]["namespace"] = json!(NS);
    server.put(PDBS, fence);
    let control = FakeControl::default();
    control.with(|state| {
        let record = |store_id, state: v1::StoreState| v1::StoreStatus {
            store: Some(v1::StoreRecord {
                store_id,
                address: ADDRESS.into(),
                state: state as i32,
                ..Default::default()
            }),
            ..Default::default()
        };
        state.status.stores =
            vec![record(9, v1::StoreState::StoreRemoved), record(7, v1::StoreState::StoreUp)];
    });
    let (client, link) = server.client(NS);
    let settings = Settings { namespace: "ops".into(), ..Settings::default() };
    let ctx = Ctx::new(client, settings, Arc::new(control.clone()));
    World { server, link, control, ctx }
}

fn call(body: Value) -> Call {
    Call {
        verb: Verb::Create,
        target: Target {
            key: Key::new("pods", NS, POD),
            subresource: "eviction".into(),
            version: "v1".into(),
        },
        query: BTreeMap::new(),
        content_type: "application/json".into(),
        body,
    }
}

async fn ask(world: &World, body: Value) -> Value {
    let review = review_of(&call(body)).to_string();
    let request = HttpRequest::post("/evict").body(Body::from(review)).expect("a request");
    let response = router(world.ctx.clone()).oneshot(request).await.expect("infallible");
    assert_eq!(response.status(), 200);
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
    let review: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(review["kind"], "AdmissionReview");
    assert_eq!(review["response"]["uid"], "review-1");
    review["response"].clone()
}

fn lease(phase: v1::DisruptionPhase, holder: &str) -> v1::DisruptionLease {
    v1::DisruptionLease {
        lease_id: 3,
        token: 4,
        stores: vec![7],
        holder: holder.into(),
        phase: phase as i32,
        expires_at_ms: u64::MAX,
        ..Default::default()
    }
}

fn granted(is_done: bool, phase: v1::DisruptionPhase, leaders_left: u32) -> v1::DisruptionResponse {
    let lease = Some(lease(phase, "eviction/any"));
    v1::DisruptionResponse { done: is_done, lease, leaders_left, ..Default::default() }
}

fn blocked() -> v1::DisruptionResponse {
    let range = v1::KeyRange { start: b"cafe".to_vec().into(), end: Vec::new().into() };
    let shard = v1::BlockingShard {
        shard_id: 12,
        table: "orders".into(),
        range: Some(range),
        reason: "ReplicaLagging".into(),
        message: "the copy on store 8 is 40 entries behind".into(),
        since_ms: 1_800_000_000_000,
    };
    v1::DisruptionResponse { blocking: vec![shard], blocking_count: 1, ..Default::default() }
}

fn is_open(world: &World) -> bool {
    world.server.get(PDBS, NS, POD).expect("the budget")["spec"]["minAvailable"] == 0
}

#[tokio::test]
async fn a_denied_eviction_is_429_and_names_the_shards() {
    let world = world();
    world.control.with(|c| c.disruptions.push_back(blocked()));
    let answer = ask(&world, json!({})).await;
    assert_eq!(answer["allowed"], false);
    let status = &answer["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(429), &json!("TooManyRequests")));
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["reason"], "ReplicaLagging");
    assert_eq!(cause["field"], "tables/orders/shards/12");
    assert_eq!(
        cause["message"],
        "shard 12 of table orders, keys 63616665 to the last: the copy on store 8 is 40 entries behind \
         since 2027-01-15T08:00:00Z"
    );
    assert!(!is_open(&world));
}

#[tokio::test]
async fn the_first_denied_eviction_begins_the_drain_and_a_later_one_goes() {
    use v1::DisruptionPhase::{Draining, SafeToStop};
    let world = world();
    world.control.with(|c| {
        c.disruptions.extend([granted(true, Draining, 4), granted(false, Draining, 4)]);
        c.disruptions.extend([granted(true, Draining, 0), granted(true, SafeToStop, 0)]);
    });
    let first = ask(&world, json!({})).await;
    assert_eq!(first["status"]["message"], "drain begun, 4 leaders left");
    assert!(!is_open(&world));
    let second = ask(&world, json!({})).await;
    assert_eq!(second["allowed"], true, "{second}");
    assert!(is_open(&world));
    let calls = world.control.with(|c| c.calls.clone());
    let uid = world.server.get("pods", NS, POD).expect("the Pod")["metadata"]["uid"].clone();
    let acquired = format!("acquire Restart [7] eviction/{}", uid.as_str().expect("a uid"));
    assert_eq!(calls.iter().filter(|line| **line == acquired).count(), 2, "{calls:?}");
}

#[tokio::test]
async fn an_eviction_goes_through_webhook_and_budget_together() {
    use v1::DisruptionPhase::SafeToStop;
    let world = world();
    world.server.admit_evictions_by(router(world.ctx.clone()));
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::namespaced(world.server.client(NS).0, NS);
    world.control.with(|c| c.disruptions.push_back(blocked()));
    let refused = pods.evict(POD, &Default::default()).await.expect_err("refused");
    let refusal = crate::error::Error::from(refused);
    assert!(refusal.is_too_many_requests(), "{refusal}");
    world.control.with(|c| {
        c.disruptions.extend([granted(true, SafeToStop, 0), granted(true, SafeToStop, 0)]);
    });
    pods.evict(POD, &Default::default()).await.expect("evicted");
    assert!(world.server.names("pods", NS).is_empty());
}

#[tokio::test]
async fn a_dry_run_begins_and_opens_nothing() {
    let world = world();
    let dry = json!({"deleteOptions": {"dryRun": ["All"]}});
    world.control.with(|c| c.disruptions.push_back(blocked()));
    assert_eq!(ask(&world, dry.clone()).await["allowed"], false);
    assert_eq!(ask(&world, dry).await["allowed"], true);
    assert!(!is_open(&world));
    let calls = world.control.with(|c| c.calls.clone());
    assert!(!calls.iter().any(|line| line.starts_with("lease")), "{calls:?}");
}

#[tokio::test]
async fn strangers_and_pods_that_do_not_serve_go_at_once() {
    let uid = |pod: &mut Value| pod["metadata"]["labels"]["app.kubernetes.io/name"] = json!("nginx");
    let meta = |pod: &mut Value| pod["metadata"]["labels"]["undb.io/component"] = json!("meta");
    let pending = |pod: &mut Value| pod["status"]["phase"] = json!("Pending");
    let done = |pod: &mut Value| pod["status"]["phase"] = json!("Succeeded");
    for change in [uid, meta, pending, done] {
        let world = world();
        world.control.with(|c| c.down = true);
        world.server.change("pods", NS, POD, change);
        assert_eq!(ask(&world, json!({})).await["allowed"], true);
        assert!(world.control.with(|c| c.calls.is_empty()), "nobody was asked");
    }
}

#[tokio::test]
async fn a_store_cluster_that_switched_the_webhook_off_is_left_to_its_budget() {
    let world = world();
    world.server.change("storeclusters.undb.io", NS, "main", |cluster| {
        cluster["spec"]["disruptionPolicy"]["evictionWebhook"] = json!("Off");
    });
    assert_eq!(ask(&world, json!({})).await["allowed"], true);
    assert!(!is_open(&world) && world.control.with(|c| c.calls.is_empty()));
}

#[tokio::test]
async fn what_is_not_known_is_denied() {
    let down = world();
    down.control.with(|c| c.down = true);
    let stranger = world();
    stranger.control.with(|c| c.status.stores.clear());
    let broken = world();
    broken.link.fail_once(Fault::Unreachable, |call| call.is(Verb::Get, "pods"));
    for world in [down, stranger, broken] {
        let answer = ask(&world, json!({})).await;
        assert_eq!(answer["status"]["code"], 429, "{answer}");
        let message = answer["status"]["message"].as_str().expect("a message");
        assert!(message.starts_with("not known whether it may stop: "), "{message}");
        assert!(!is_open(&world));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_api_server_is_not_waited_for() {
    let world = world();
    world.link.fail_once(Fault::Hang, |call| call.is(Verb::Get, PDBS));
    let before = tokio::time::Instant::now();
    assert_eq!(ask(&world, json!({})).await["status"]["code"], 429);
    assert!(before.elapsed() <= Duration::from_secs(3), "{:?}", before.elapsed());
}

#[tokio::test]
async fn a_lease_of_another_holder_that_is_safe_to_stop_allows_while_it_lives() {
    let world = world();
    let safe = lease(v1::DisruptionPhase::SafeToStop, "storecluster/u1");
    world.control.with(|c| c.leases = vec![safe.clone()]);
    assert_eq!(ask(&world, json!({})).await["allowed"], true);
    world.control.with(|c| {
        c.leases = vec![v1::DisruptionLease { expires_at_ms: 1, ..safe }];
        c.disruptions.push_back(blocked());
    });
    assert_eq!(ask(&world, json!({})).await["allowed"], false, "it has lapsed");
    assert!(!is_open(&world));
}

fn open_the_budget(world: &World) {
    world.server.change(PDBS, NS, POD, |pdb| {
        pdb["spec"]["minAvailable"] = json!(0);
        pdb["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
    });
}

/// Its own lease, or one of an operator that died: another store may have failed since the yes.
#[tokio::test]
async fn an_open_budget_is_not_believed_and_closes_when_the_gate_says_no_by_now() {
    use v1::DisruptionPhase::SafeToStop;
    let own = world();
    own.control.with(|c| c.disruptions.extend([granted(true, SafeToStop, 0), granted(false, SafeToStop, 0)]));
    let others = world();
    others.control.with(|c| {
        c.leases = vec![lease(SafeToStop, "storecluster/u1")];
        c.disruptions.push_back(blocked());
    });
    for world in [own, others] {
        open_the_budget(&world);
        let answer = ask(&world, json!({})).await;
        assert_eq!(answer["allowed"], false, "{answer}");
        assert!(!is_open(&world));
    }
}

#[tokio::test]
async fn an_open_budget_lets_through_whom_the_gate_still_allows_and_who_never_registered() {
    use v1::DisruptionPhase::SafeToStop;
    let still = world();
    still
        .control
        .with(|c| c.disruptions.extend([granted(true, SafeToStop, 0), granted(true, SafeToStop, 0)]));
    let stranger = world();
    stranger.control.with(|c| c.status.stores.clear());
    for world in [still, stranger] {
        open_the_budget(&world);
        assert_eq!(ask(&world, json!({})).await["allowed"], true);
        assert!(is_open(&world));
    }
}

#[tokio::test]
async fn a_budget_that_changed_while_the_gate_was_asked_is_not_opened() {
    use v1::DisruptionPhase::SafeToStop;
    let world = world();
    world.control.with(|c| {
        c.disruptions.extend([granted(true, SafeToStop, 0), granted(true, SafeToStop, 0)]);
    });
    world.link.fail(Fault::Sleep, 1, 1, |call| call.is(Verb::Get, PDBS));
    let (answer, ()) = tokio::join!(ask(&world, json!({})), async {
        while world.control.with(|c| c.calls.len()) < 4 {
            tokio::task::yield_now().await;
        }
        // Somebody else used the gate's answer, the store stopped and came back, the fence was closed.
        for open in [0, 1] {
            world.server.change(PDBS, NS, POD, |pdb| pdb["spec"]["minAvailable"] = json!(open));
        }
        world.link.wake();
    });
    assert_eq!(answer["allowed"], false, "{answer}");
    assert!(!is_open(&world));
}

#[tokio::test]
async fn what_is_not_a_review_of_an_eviction_is_a_bad_request() {
    let world = world();
    let mut other = review_of(&call(json!({})));
    other["request"]["subResource"] = json!("exec");
    for body in ["no JSON".to_owned(), "{}".into(), other.to_string()] {
        let request = HttpRequest::post("/evict").body(Body::from(body)).expect("a request");
        let response = router(world.ctx.clone()).oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), 400);
    }
}

fn configured(server: &ApiServer) {
    server.put(
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "undb-eviction-ops"},
            "webhooks": [{
                "name": "eviction.undb.io", "sideEffects": "NoneOnDryRun", "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"name": "undb-operator-webhook", "namespace": "ops"}},
            }],
        }),
    );
}

fn bundle(server: &ApiServer) -> String {
    let resource = "validatingwebhookconfigurations.admissionregistration.k8s.io";
    let found = server.get(resource, "", "undb-eviction-ops").expect("configured");
    let encoded = found["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default();
    let bytes = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, encoded).expect("base64");
    String::from_utf8(bytes).expect("PEM")
}

fn later(days: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + days * 24 * 3600).expect("a time")
}

#[tokio::test]
async fn the_first_replica_makes_the_certificate_and_the_others_read_it() {
    let world = world();
    configured(&world.server);
    let other =
        Ctx::new(world.server.client(NS).0, world.ctx.settings.clone(), Arc::new(world.control.clone()));
    let (first, second) = (Identity::default(), Identity::default());
    assert!(first.ready().is_err());
    let (a, b) = tokio::join!(
        identity::pass(&world.ctx, &first, Renewal::Theirs, later(0)),
        identity::pass(&other, &second, Renewal::Theirs, later(0)),
    );
    a.and(b).expect("both have it");
    assert!(first.ready().is_ok() && second.ready().is_ok());
    let secret = world.server.get("secrets", "ops", SECRET).expect("one Secret");
    let writes = |link: &Link| link.writes().iter().filter(|w| w.contains("secrets/ops")).count();
    assert!(writes(&world.link) <= 1 && secret["metadata"]["generation"] == 1);
    assert!(bundle(&world.server).contains("BEGIN CERTIFICATE"));
}

#[tokio::test]
async fn only_the_leader_renews_early_and_the_old_authority_stays_trusted() {
    let world = world();
    configured(&world.server);
    let identity = Identity::default();
    let pass = |renewal, days| identity::pass(&world.ctx, &identity, renewal, later(days));
    pass(Renewal::Theirs, 0).await.expect("made");
    let first = bundle(&world.server);
    pass(Renewal::Theirs, 300).await.expect("kept");
    assert_eq!(bundle(&world.server), first);
    world.link.clear();
    pass(Renewal::Ours, 300).await.expect("renewed");
    let second = bundle(&world.server);
    assert!(second != first && second.ends_with(&first));
    let writes = world.link.writes();
    let at = |part: &str| writes.iter().position(|w| w.contains(part)).expect("written");
    assert!(at("validatingwebhook") < at("secrets"), "{writes:?}");
    pass(Renewal::Theirs, 700).await.expect("expired: anybody renews it");
    assert_ne!(bundle(&world.server), second);
}

#[tokio::test]
async fn the_api_server_trusts_what_is_served_before_and_after_a_rotation() {
    let world = world();
    configured(&world.server);
    let identity = Identity::default();
    identity::pass(&world.ctx, &identity, Renewal::Ours, Timestamp::now()).await.expect("made");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let shutdown = undb_runtime::Shutdown::new(Duration::from_secs(5));
    let served = tokio::spawn(serve(listener, identity.clone(), router(world.ctx.clone()), shutdown.clone()));
    let before_rotation = bundle(&world.server);
    assert!(handshake(address, &before_rotation).await);
    world.server.change("secrets", "ops", SECRET, |secret| {
        let soon = Timestamp::now() + Duration::from_secs(3600);
        let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, soon.to_string());
        secret["data"]["expires"] = json!(encoded);
        let issued = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, later(-9_000).to_string());
        secret["data"]["issued"] = json!(issued);
    });
    identity::pass(&world.ctx, &identity, Renewal::Ours, Timestamp::now()).await.expect("renewed");
    assert!(handshake(address, &bundle(&world.server)).await);
    assert!(!handshake(address, &before_rotation).await, "the old bundle does not know the new authority");
    shutdown.begin();
    served.await.expect("joined").expect("served");
}

/// Whether a client that trusts this bundle accepts what is served under the Service's name.
async fn handshake(address: std::net::SocketAddr, bundle: &str) -> bool {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    for cert in rustls::pki_types::CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(cert.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(address).await.expect("connected");
    let name = rustls::pki_types::ServerName::try_from("undb-operator-webhook.ops.svc").expect("a name");
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.is_ok()
}
