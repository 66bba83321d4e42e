//! The client of the Kubernetes API: every call is one attempt.
//!
//! The library would send a call that is answered 429 or 503 again, with pauses that grow to minutes. For an
//! eviction 429 means "not now": the pass that asked must hear that, look again and ask the gate again,
//! not hold what it knew then while the world goes on.

use kube::{Client, Config};

/// A client that repeats nothing; controllers begin a new pass instead.
pub fn of_one_attempt(mut config: Config) -> kube::Result<Client> {
    config.default_retry = false;
    Client::try_from(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use kube::api::EvictParams;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn an_eviction_that_is_refused_comes_back_after_one_attempt() {
        let _installed_before = rustls::crypto::ring::default_provider().install_default();
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = attempts.clone();
        let refuse = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async { (StatusCode::TOO_MANY_REQUESTS, r#"{"kind":"Status","status":"Failure","code":429}"#) }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(refuse)).await });
        let url = format!("http://{address}").parse().expect("a URL");
        let pods: Api<Pod> = Api::namespaced(of_one_attempt(Config::new(url)).expect("a client"), "ns");
        let refused = pods.evict("store-0", &EvictParams::default()).await;
        assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 429));
        assert_eq!(attempts.load(Ordering::Relaxed), 1);
    }
}
