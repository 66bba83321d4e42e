//! What an operator's tools ask a process: /metrics, /healthz, /readyz.
//!
//! healthz: the process runs. readyz: every named check passes, else 503 with one line a check that
//! says why. The body is text, for people first.

use crate::{RuntimeError, Shutdown};
use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;

const SECONDS_BUCKETS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const BYTES_BUCKETS: [f64; 8] =
    [256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 16_777_216.0];
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The process's one metrics recorder; installed by the first call. Everything that runs before is
/// not counted, so a binary calls it first.
pub fn install_metrics() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(install).clone()
}

fn install() -> PrometheusHandle {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS_BUCKETS)
        .and_then(|b| b.set_buckets_for_metric(Matcher::Suffix("_bytes".into()), &BYTES_BUCKETS))
        .expect("the buckets are not empty");
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!("another metrics recorder was installed before ours");
    }
    // Histograms collect samples until somebody drains them, asked for or not.
    let upkeep = handle.clone();
    let spawned = std::thread::Builder::new().name("metrics-upkeep".into()).spawn(move || {
        loop {
            std::thread::sleep(UPKEEP_INTERVAL);
            upkeep.run_upkeep();
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "metrics upkeep thread not started");
    }
    handle
}

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Named readiness checks. Clones share them.
#[derive(Clone, Default)]
pub struct Readiness {
    // Leaf lock; checks run outside it.
    checks: Arc<Mutex<BTreeMap<String, Check>>>,
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.checks.lock().keys()).finish()
    }
}

impl Readiness {
    /// Adds or replaces a check: `Err` carries why not, in a person's words. It must be quick.
    pub fn register(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks.lock().insert(name.into(), Arc::new(check));
    }

    /// The checks that do not pass, with their reasons.
    pub fn not_ready(&self) -> Vec<(String, String)> {
        self.report().into_iter().filter_map(|(name, result)| Some((name, result.err()?))).collect()
    }

    fn report(&self) -> Vec<(String, Result<(), String>)> {
        let checks: Vec<(String, Check)> =
            self.checks.lock().iter().map(|(name, check)| (name.clone(), check.clone())).collect();
        checks.into_iter().map(|(name, check)| (name, check())).collect()
    }

    fn page(&self) -> (StatusCode, String) {
        let report = self.report();
        let ready = report.iter().all(|(_, result)| result.is_ok());
        let lines = report.iter().map(|(name, result)| match result {
            Ok(()) => format!("ok     {name}\n"),
            Err(reason) => format!("not ok {name}: {reason}\n"),
        });
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let head = if ready { "ready\n" } else { "not ready\n" };
        (status, std::iter::once(head.to_owned()).chain(lines).collect())
    }
}

type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// Pages of JSON that a role adds once it runs. Read only, and about the process alone. Clones share them.
#[derive(Clone, Default)]
pub struct Pages {
    // Leaf lock; pages are made outside it.
    pages: Arc<Mutex<BTreeMap<String, Page>>>,
}

impl Pages {
    /// Adds or replaces the page at a path that begins with `/`.
    pub fn register(&self, path: impl Into<String>, page: impl Fn() -> String + Send + Sync + 'static) {
        self.pages.lock().insert(path.into(), Arc::new(page));
    }

    fn answer(&self, path: &str) -> axum::response::Response {
        let page = self.pages.lock().get(path).cloned();
        match page {
            Some(page) => ([(axum::http::header::CONTENT_TYPE, "application/json")], page()).into_response(),
            None => (StatusCode::NOT_FOUND, "there is no such page\n").into_response(),
        }
    }
}

/// The three endpoints, and the pages that a role adds.
pub fn router_with(readiness: Readiness, pages: Pages) -> Router {
    let page = move |uri: axum::http::Uri| async move { pages.answer(uri.path()) };
    router(readiness).fallback(get(page))
}

/// The three endpoints, to be served alone or merged into another router.
pub fn router(readiness: Readiness) -> Router {
    let metrics = install_metrics();
    Router::new()
        .route("/metrics", get(move || async move { metrics.render() }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { readiness.page() }))
}

/// Serves HTTP until the end begins; connections under way have until the deadline.
pub async fn serve(listener: TcpListener, router: Router, shutdown: Shutdown) -> Result<(), RuntimeError> {
    serve_from(listener, router, shutdown).await
}

/// The same from any listener, one with TLS for example.
pub async fn serve_from<L>(listener: L, router: Router, shutdown: Shutdown) -> Result<(), RuntimeError>
where
    L: axum::serve::Listener,
    L::Addr: std::fmt::Debug,
{
    let begun = shutdown.token().cancelled_owned();
    let serving = axum::serve(listener, router).with_graceful_shutdown(begun).into_future();
    let cut = async {
        shutdown.begun().await;
        tokio::time::sleep(DRAIN.min(shutdown.remaining())).await;
    };
    tokio::select! {
        result = serving => result.map_err(|e| RuntimeError::Serve(e.to_string())),
        () = cut => Ok(()),
    }
}

/// Idle keep-alive connections do not hold up the end.
const DRAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use tower::ServiceExt;

    async fn ask(router: &Router, path: &str) -> (StatusCode, String) {
        let request = axum::http::Request::get(path).body(axum::body::Body::empty()).expect("request");
        let response = router.clone().oneshot(request).await.expect("infallible");
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("body");
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn a_page_is_there_once_its_role_has_added_it() {
        let pages = Pages::default();
        let router = router_with(Readiness::default(), pages.clone());
        assert_eq!(ask(&router, "/replicas").await.0, StatusCode::NOT_FOUND);
        pages.register("/replicas", || "[]".into());
        assert_eq!(ask(&router, "/replicas").await, (StatusCode::OK, "[]".into()));
        assert_eq!(ask(&router, "/healthz").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn readyz_names_each_check_and_its_reason() {
        let readiness = Readiness::default();
        readiness.register("log", || Ok(()));
        readiness.register("shards", || Err("2 of 3 are caught up".into()));
        let router = router(readiness.clone());
        let (status, body) = ask(&router, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body, "not ready\nok     log\nnot ok shards: 2 of 3 are caught up\n");
        assert_eq!(readiness.not_ready().len(), 1);
        readiness.register("shards", || Ok(()));
        assert_eq!(ask(&router, "/readyz").await.0, StatusCode::OK);
        assert_eq!(ask(&router, "/healthz").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_are_rendered_from_the_one_recorder() {
        let router = router(Readiness::default());
        metrics::counter!("undb_runtime_test_total").increment(3);
        let (status, body) = ask(&router, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(body.contains("undb_runtime_test_total 3"), "{body}");
    }
}
