//! Keys over HTTP.
//!
//! ```text
//! GET    /v1/tables/{table}/kv/{key}            the value's bytes; x-undb-version, x-undb-expire-at-ms
//! PUT    /v1/tables/{table}/kv/{key}?ttl_ms=N   the body is the value; if-match: VERSION, if-none-match: *
//! DELETE /v1/tables/{table}/kv/{key}
//! GET    /v1/tables/{table}/scan?prefix=P&limit=N&values=true&cursor=C
//! ```
//! Keys are percent-encoded. Errors are JSON: {"code": "...", "message": "..."}. An address above 64 KiB
//! never gets here: hyper answers it with an empty 414.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use undb_runtime::TokenCheck;
use undb_sdk::{Client, Error, ErrorCode, Expect, Kind, PutOptions, Record, ScanOptions, WriteOutcome};
use undb_types::VALUE_BYTES_MAX;

const SCAN_LIMIT: u32 = 100;
const SCAN_LIMIT_MAX: u32 = 10_000;

/// What an address that is not served is told.
const SERVED: &str = "served are GET, PUT and DELETE of /v1/tables/TABLE/kv/KEY, GET of \
    /v1/tables/TABLE/scan, and GET of /healthz, /readyz and /metrics";

/// The routes beside those of `pages`, which need no token.
pub fn router(client: Client, token: TokenCheck, pages: Router) -> Router {
    let keys = Router::new()
        .route("/v1/tables/{table}/kv/{*key}", get(read).put(write).delete(remove))
        .route("/v1/tables/{table}/scan", get(scan))
        .with_state(client)
        .layer(from_fn_with_state(token, authorize));
    explained(keys.merge(pages))
}

/// With words for what no route takes.
fn explained(router: Router) -> Router {
    router.fallback(no_such_path).method_not_allowed_fallback(no_such_method)
}

// Not NOT_FOUND: that says that there is no such record.
async fn no_such_path() -> Response {
    problem(StatusCode::NOT_FOUND, "INVALID_ARGUMENT", &format!("there is nothing at this path; {SERVED}"))
}

async fn no_such_method() -> Response {
    let message = format!("this path does not take this method; {SERVED}");
    problem(StatusCode::METHOD_NOT_ALLOWED, "NOT_SUPPORTED", &message)
}

async fn authorize(State(token): State<TokenCheck>, request: Request, next: Next) -> Response {
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let sent = sent.and_then(|v| v.strip_prefix("Bearer ")).unwrap_or_default();
    if token.matches(sent) {
        return next.run(request).await;
    }
    let message = "send the token as 'authorization: Bearer TOKEN'";
    problem(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", message)
}

fn problem(status: StatusCode, code: &str, message: &str) -> Response {
    (status, axum::Json(json!({"code": code, "message": message}))).into_response()
}

// Boxed: a response is large, and most calls answer.
struct Refused(Box<Response>);

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let status = match (error.code(), error.kind()) {
            (ErrorCode::TableNotFound | ErrorCode::NotFound, _) => StatusCode::NOT_FOUND,
            (ErrorCode::TooLarge, _) => StatusCode::PAYLOAD_TOO_LARGE,
            (ErrorCode::QuotaExceeded, _) => StatusCode::TOO_MANY_REQUESTS,
            (ErrorCode::Unauthenticated, _) => StatusCode::UNAUTHORIZED,
            (ErrorCode::PermissionDenied, _) => StatusCode::FORBIDDEN,
            (ErrorCode::NotSupported, _) => StatusCode::NOT_IMPLEMENTED,
            (ErrorCode::DiskFull, _) => StatusCode::INSUFFICIENT_STORAGE,
            (_, Kind::Reject) => StatusCode::BAD_REQUEST,
            (_, Kind::Unknown) => StatusCode::GATEWAY_TIMEOUT,
            (_, Kind::Fatal) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(Box::new(problem(status, error.code_name(), &error.to_string())))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        *self.0
    }
}

fn bad(message: &str) -> Refused {
    Refused(Box::new(problem(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", message)))
}

fn absent() -> Response {
    problem(StatusCode::NOT_FOUND, "NOT_FOUND", "there is no record with this key")
}

fn described(record: &Record) -> [(&'static str, String); 2] {
    [("x-undb-version", record.version.to_string()), ("x-undb-expire-at-ms", record.expire_at_ms.to_string())]
}

async fn read(
    State(client): State<Client>,
    Path((table, key)): Path<(String, String)>,
) -> Result<Response, Refused> {
    let record = client.table(table).await?.get(key).await?;
    Ok(record.map_or_else(absent, |record| (described(&record), record.value).into_response()))
}

#[derive(Deserialize)]
struct WriteQuery {
    ttl_ms: Option<u64>,
}

async fn write(
    State(client): State<Client>,
    Path((table, key)): Path<(String, String)>,
    Query(query): Query<WriteQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refused> {
    let Ok(value) = to_bytes(body, VALUE_BYTES_MAX).await else {
        let message = format!("a value holds at most {VALUE_BYTES_MAX} bytes");
        return Ok(problem(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", &message));
    };
    let mut options = PutOptions::new();
    options.expect = expectation(&headers)?;
    if let Some(ttl_ms) = query.ttl_ms {
        options = options.ttl(Duration::from_millis(ttl_ms));
    }
    match client.table(table).await?.put_with(key, value, options).await? {
        WriteOutcome::Applied(changes) => {
            let version = changes.first().map_or(0, |change| change.version).to_string();
            Ok((StatusCode::NO_CONTENT, [("x-undb-version", version)]).into_response())
        }
        WriteOutcome::ConditionFailed { .. } => {
            let message = "the record is not as if-match or if-none-match want it";
            Ok(problem(StatusCode::PRECONDITION_FAILED, "CONFLICT", message))
        }
    }
}

fn expectation(headers: &HeaderMap) -> Result<Option<Expect>, Refused> {
    if headers.get(header::IF_NONE_MATCH).is_some_and(|value| value == "*") {
        return Ok(Some(Expect::Absent));
    }
    let Some(version) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let version = version.to_str().ok().and_then(|text| text.trim_matches('"').parse().ok());
    version
        .map(|v| Some(Expect::Version(v)))
        .ok_or_else(|| bad("if-match takes the number of x-undb-version"))
}

async fn remove(
    State(client): State<Client>,
    Path((table, key)): Path<(String, String)>,
) -> Result<Response, Refused> {
    let existed = client.table(table).await?.delete(key).await?;
    Ok(if existed { StatusCode::NO_CONTENT.into_response() } else { absent() })
}

#[derive(Deserialize)]
struct ScanQuery {
    prefix: Option<String>,
    limit: Option<u32>,
    values: Option<bool>,
    cursor: Option<String>,
}

async fn scan(
    State(client): State<Client>,
    Path(table): Path<String>,
    Query(query): Query<ScanQuery>,
) -> Result<Response, Refused> {
    let table = client.table(table).await?;
    let mut options = query.prefix.map_or_else(ScanOptions::all, ScanOptions::prefix);
    options = options.page_len(query.limit.unwrap_or(SCAN_LIMIT).clamp(1, SCAN_LIMIT_MAX));
    if query.values == Some(false) {
        options = options.keys_only();
    }
    if let Some(cursor) = query.cursor {
        let cursor = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad("the cursor is not one of ours"))?;
        options = options.resume(cursor.into());
    }
    let mut scan = table.scan(options)?;
    let page = scan.next_page().await?.unwrap_or_default();
    let records: Vec<_> = page
        .into_iter()
        .map(|(key, record)| {
            json!({
                "key": STANDARD.encode(&key.hash), "sort_key": STANDARD.encode(&key.sort),
                "value": STANDARD.encode(&record.value), "version": record.version,
                "expire_at_ms": record.expire_at_ms, "value_len": record.value_len,
            })
        })
        .collect();
    let cursor = scan.cursor().map(|cursor| URL_SAFE_NO_PAD.encode(cursor));
    Ok(axum::Json(json!({"encoding": "base64", "records": records, "cursor": cursor})).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::ServiceExt;

    async fn answer(method: &str, path: &str) -> (StatusCode, HeaderMap, serde_json::Value) {
        let key = get(async || "value").put(async || "written");
        let router = explained(Router::new().route("/v1/tables/{table}/kv/{*key}", key));
        let request = Request::builder().method(method).uri(path).body(Body::empty()).expect("valid");
        let (head, body) = router.oneshot(request).await.expect("it always answers").into_parts();
        let body = to_bytes(body, 10_000).await.expect("short");
        (head.status, head.headers, serde_json::from_slice(&body).expect("JSON"))
    }

    #[tokio::test]
    async fn a_path_that_is_not_served_is_told_which_are() {
        let (status, _, body) = answer("GET", "/v1/tables/default/kv").await;
        assert_eq!((status, &body["code"]), (StatusCode::NOT_FOUND, &json!("INVALID_ARGUMENT")));
        let message = body["message"].as_str().expect("text");
        assert!(message.contains("nothing at this path") && message.contains(SERVED), "{message}");
    }

    #[tokio::test]
    async fn a_method_that_is_not_served_is_told_which_are() {
        let (status, headers, body) = answer("POST", "/v1/tables/default/kv/k").await;
        assert_eq!((status, &body["code"]), (StatusCode::METHOD_NOT_ALLOWED, &json!("NOT_SUPPORTED")));
        assert_eq!(headers.get(header::ALLOW).expect("still there"), "GET,HEAD,PUT");
        let message = body["message"].as_str().expect("text");
        assert!(message.contains("this method") && message.contains(SERVED), "{message}");
    }
}
