//! The eviction webhook: what makes `kubectl drain` wait for shards.
//!
//! ```text
//! kubectl drain --eviction--> API server --AdmissionReview--> any replica of the operator
//!     not a store of ours, not running: allowed          (its PDB, if any, decides)
//!     a store: acquire RESTART as eviction/<pod uid>
//!        denied           429 with the shards that block
//!        granted, drains  429 "drain begun, N leaders left"      the client comes again
//!        SAFE_TO_STOP     its PDB is opened; allowed
//! ```
//! Never: waits for a drain (2 s for the control plane, then 429); decides in memory (any replica answers
//! alike, for the holder of the lease is the Pod's uid). It is a help, not the fence: a store's PDB stays closed
//! until the gate has allowed, so that a webhook that is down, slow or wrong stops nothing.
//!
//! Where to look: the wire -> `review`; the decision -> `decide`; certificates -> `certificate`; who issues,
//! rotates and reloads them -> `identity`; TLS -> `listen`.

pub mod certificate;
mod decide;
mod identity;
mod listen;
mod review;

pub use decide::Verdict;
pub use identity::{Identity, maintain};
pub use listen::serve;
pub use review::{Denied, Request};

use crate::ctx::Ctx;
use crate::telemetry;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use std::sync::Arc;

/// `POST /evict`, as the ValidatingWebhookConfiguration names it.
pub fn router(ctx: Arc<Ctx>) -> axum::Router {
    axum::Router::new().route("/evict", post(evict)).with_state(ctx)
}

async fn evict(State(ctx): State<Arc<Ctx>>, body: Bytes) -> Response {
    let request = match review::parse(&body) {
        Ok(request) => request,
        Err(problem) => {
            tracing::warn!(problem, "not an admission review");
            return (StatusCode::BAD_REQUEST, format!("{problem}\n")).into_response();
        }
    };
    let verdict = decide::decide(&ctx, &request).await;
    let (decision, reason) = match &verdict {
        Verdict::Allow { .. } => ("allowed", String::new()),
        Verdict::Deny(denied) => ("denied", denied.message.clone()),
    };
    telemetry::eviction_answered(decision);
    tracing::info!(
        namespace = request.namespace,
        pod = request.pod,
        dry_run = request.dry_run,
        decision,
        reason,
        "eviction answered"
    );
    let body = review::answer(&request, &verdict).to_string();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests;
