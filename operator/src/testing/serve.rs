//! The server as a tower service behind `kube::Client`.

use super::cluster::{Cluster, Refusal};
use super::link::{Fault, Link};
use super::request::{Call, Key, Verb, query, target};
use super::watch;
use axum::body::Body;
use axum::http::{Method, Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tower::ServiceExt;

/// One API server. Clones share it.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: Mutex<Cluster>,
    news: tokio::sync::watch::Sender<u64>,
    /// Watches and cached lists show nothing newer than this.
    frozen_at: Mutex<Option<u64>>,
    /// The validating webhook of evictions.
    admission: Mutex<Option<axum::Router>>,
    cut: std::sync::atomic::AtomicU64,
}

impl Default for ApiServer {
    fn default() -> Self {
        let inner = Inner {
            cluster: Mutex::default(),
            news: tokio::sync::watch::Sender::new(0),
            frozen_at: Mutex::default(),
            admission: Mutex::default(),
            cut: std::sync::atomic::AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("version", &self.inner.cluster.lock().version).finish()
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl ApiServer {
    /// A process of its own: a client and the link to hurt it by.
    pub fn client(&self, namespace: &str) -> (kube::Client, Link) {
        let link = Link::default();
        let (server, of_client) = (self.clone(), link.clone());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, link) = (server.clone(), of_client.clone());
            async move { server.serve(request, &link).await }
        });
        (kube::Client::new(service, namespace), link)
    }

    /// The objects, for a look or a change by hand; watchers are told.
    pub fn with<T>(&self, look: impl FnOnce(&mut Cluster) -> T) -> T {
        let mut cluster = self.inner.cluster.lock();
        let before = cluster.version;
        let result = look(&mut cluster);
        let version = cluster.version;
        drop(cluster);
        if version != before {
            self.inner.news.send_replace(version);
        }
        result
    }

    /// One object, as it is.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.with(|cluster| cluster.get(&Key::new(resource, namespace, name)))
    }

    /// Names of all objects of a resource in a namespace.
    pub fn names(&self, resource: &str, namespace: &str) -> Vec<String> {
        let all = self.with(|cluster| cluster.all(&Key::new(resource, namespace, "")));
        all.into_iter().map(|(key, _)| key.name).collect()
    }

    /// Stores an object, status and all, as the cluster itself would; budgets follow.
    pub fn put(&self, resource: &str, object: Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key::new(resource, &text("namespace"), &text("name"));
        self.with(|cluster| {
            cluster.store(&key, object);
            if !cluster.disruption_controller_stopped {
                super::pdb::settle(cluster);
            }
        });
    }

    /// Changes an object that is there, status and all.
    pub fn change(&self, resource: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(resource, namespace, name).expect("the object is there");
        change(&mut object);
        self.put(resource, object);
    }

    /// From now on watches, and lists that may come from a cache, stand still.
    pub fn freeze_watches(&self) {
        *self.inner.frozen_at.lock() = Some(self.with(|cluster| cluster.version));
    }

    /// They catch up.
    pub fn thaw_watches(&self) {
        *self.inner.frozen_at.lock() = None;
        self.inner.news.send_modify(|_| {});
    }

    /// Ends all watches and forgets the history: the next one from an old version is 410 Gone.
    pub fn compact(&self) {
        self.with(|cluster| cluster.compacted = cluster.version);
        self.inner.cut.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.inner.news.send_modify(|_| {});
    }

    /// Evictions ask this webhook first, as `POST /evict`.
    pub fn admit_evictions_by(&self, webhook: axum::Router) {
        *self.inner.admission.lock() = Some(webhook);
    }

    pub(super) fn visible(&self) -> u64 {
        let frozen = *self.inner.frozen_at.lock();
        frozen.unwrap_or_else(|| self.with(|cluster| cluster.version))
    }

    pub(super) fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.news.subscribe()
    }

    pub(super) fn watches_cut(&self, call: &Call) -> bool {
        let begun = call.query.get("cut").and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        begun < self.inner.cut.load(std::sync::atomic::Ordering::Relaxed)
    }

    async fn serve(
        &self,
        request: Request<kube::client::Body>,
        link: &Link,
    ) -> Result<Response<Body>, Failure> {
        let call = read(request).await?;
        match link.take(&call) {
            None => {}
            Some(Fault::Answer { code, reason }) => {
                return Ok(refuse(&Refusal::new(code, &reason, "a scripted answer")));
            }
            Some(Fault::Unreachable) => return Err("connection refused (scripted)".into()),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Sleep) => link.asleep().await,
            Some(Fault::AnswerLost) => {
                let _lost = self.decide(call).await;
                return Err("connection reset (scripted)".into());
            }
        }
        Ok(self.decide(call).await.unwrap_or_else(|refusal| refuse(&refusal)))
    }

    async fn decide(&self, mut call: Call) -> Result<Response<Body>, Refusal> {
        if call.verb == Verb::Watch {
            let cut = self.inner.cut.load(std::sync::atomic::Ordering::Relaxed);
            call.query.insert("cut".into(), cut.to_string());
            return Ok(Response::new(watch::open(self, call)?));
        }
        if call.target.subresource == "eviction" {
            self.admit(&call).await?;
        }
        let cached = call.verb == Verb::List && call.query.contains_key("resourceVersion");
        if cached {
            let visible = self.visible();
            let list = self.with(|c| c.list(&call, c.all_at(&call.target.key, visible), visible));
            return Ok(answer(200, &list));
        }
        let body = self.with(|cluster| cluster.answer(&call))?;
        Ok(answer(if call.verb == Verb::Create { 201 } else { 200 }, &body))
    }

    /// What an API server does with a validating webhook under `failurePolicy: Ignore`.
    async fn admit(&self, call: &Call) -> Result<(), Refusal> {
        let Some(webhook) = self.inner.admission.lock().clone() else { return Ok(()) };
        let review = review(call).to_string();
        let request = Request::post("/evict").header("content-type", "application/json");
        let Ok(request) = request.body(Body::from(review)) else { return Ok(()) };
        let Ok(response) = webhook.oneshot(request).await;
        let Ok(bytes) = axum::body::to_bytes(response.into_body(), 1 << 20).await else { return Ok(()) };
        let Ok(review) = serde_json::from_slice::<Value>(&bytes) else { return Ok(()) };
        if review["response"]["allowed"] == true || review["response"]["uid"] != "review-1" {
            return Ok(());
        }
        let status = &review["response"]["status"];
        let code = status["code"].as_u64().and_then(|c| u16::try_from(c).ok()).unwrap_or(403);
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        Err(Refusal { code, reason: text("reason"), message: text("message") })
    }
}

/// The AdmissionReview of an eviction, as an API server sends it.
pub fn review(call: &Call) -> Value {
    let key = &call.target.key;
    let dry_run = call.body["deleteOptions"]["dryRun"].as_array().is_some_and(|d| !d.is_empty());
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "review-1",
            "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "subResource": "eviction",
            "requestKind": {"group": "policy", "version": "v1", "kind": "Eviction"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "requestSubResource": "eviction",
            "name": key.name, "namespace": key.namespace, "operation": "CREATE",
            "userInfo": {"username": "someone", "groups": ["system:authenticated"]},
            "object": call.body, "oldObject": null, "dryRun": dry_run,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

async fn read(request: Request<kube::client::Body>) -> Result<Call, Failure> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect_bytes().await?;
    let query = query(parts.uri.query().unwrap_or_default());
    let target = target(parts.uri.path()).ok_or_else(|| format!("no such path: {}", parts.uri))?;
    let one = !target.key.name.is_empty();
    let watched = query.get("watch").is_some_and(|v| v == "true" || v == "1");
    let verb = match (&parts.method, one) {
        (&Method::GET, _) if watched => Verb::Watch,
        (&Method::GET, true) => Verb::Get,
        (&Method::GET, false) => Verb::List,
        (&Method::POST, _) => Verb::Create,
        (&Method::PUT, _) => Verb::Update,
        (&Method::PATCH, _) => Verb::Patch,
        (&Method::DELETE, true) => Verb::Delete,
        (&Method::DELETE, false) => Verb::DeleteAll,
        (other, _) => return Err(format!("{other} is not served here").into()),
    };
    let content_type = parts.headers.get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
    let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes)? };
    Ok(Call { verb, target, query, content_type: content_type.to_owned(), body })
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    let built = Response::builder().status(code).header("content-type", "application/json");
    built.body(Body::from(body.to_string())).expect("a valid answer")
}

fn refuse(refusal: &Refusal) -> Response<Body> {
    answer(refusal.code, &refusal.body())
}

/// A Pod that runs, ready or not.
pub fn pod(namespace: &str, name: &str, labels: &BTreeMap<String, String>, ready: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "undb", "image": "undb:1"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        },
    })
}
