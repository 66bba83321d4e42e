//! AdmissionReview v1 of `pods/eviction`: what is asked, and the answer with its 429.

use super::decide::Verdict;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use kube::core::response::{Status, StatusCause, StatusDetails};
use serde_json::Value;
use undb_proto::v1::BlockingShard;

/// An eviction that somebody asks for.
#[derive(Clone, Debug)]
pub struct Request {
    pub namespace: String,
    pub pod: String,
    /// The UID that the client insists on, if it does.
    pub uid: Option<String>,
    /// Nothing may be begun.
    pub dry_run: bool,
    asked: Box<AdmissionRequest<DynamicObject>>,
}

/// Why not now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// For a person.
    pub message: String,
    /// The shards that block, for people and machines.
    pub causes: Vec<StatusCause>,
}

impl Denied {
    /// Without shards to name.
    pub fn because(message: impl Into<String>) -> Self {
        Self { message: message.into(), causes: Vec::new() }
    }
}

// When the client should ask again. kubectl asks every 5 s whatever it is told.
const RETRY_AFTER_SECONDS: u32 = 5;
/// API servers cut what is much longer.
const MESSAGE_CHARS_MAX: usize = 1_000;

/// Reads a review; an error says what it is instead.
pub(super) fn parse(body: &[u8]) -> Result<Request, String> {
    let review: AdmissionReview<DynamicObject> =
        serde_json::from_slice(body).map_err(|e| format!("the body is not an AdmissionReview: {e}"))?;
    let version = review.types.api_version.clone();
    if version != "admission.k8s.io/v1" {
        return Err(format!("admission.k8s.io/v1 is served here, not `{version}`"));
    }
    let asked: AdmissionRequest<DynamicObject> =
        review.try_into().map_err(|_| "the AdmissionReview has no request".to_owned())?;
    let eviction = asked.sub_resource.as_deref() == Some("eviction") && asked.resource.resource == "pods";
    if !eviction {
        return Err("only pods/eviction is decided here; correct the rules of the webhook".into());
    }
    let body = asked.object.as_ref().map(|o| o.data.clone()).unwrap_or_default();
    let options = &body["deleteOptions"];
    let dry = options["dryRun"].as_array().is_some_and(|values| !values.is_empty());
    let object_name = asked.object.as_ref().and_then(|o| o.metadata.name.clone()).unwrap_or_default();
    Ok(Request {
        namespace: asked.namespace.clone().unwrap_or_default(),
        pod: if asked.name.is_empty() { object_name } else { asked.name.clone() },
        uid: options["preconditions"]["uid"].as_str().map(str::to_owned),
        dry_run: dry || asked.dry_run,
        asked: Box::new(asked),
    })
}

/// The whole answer.
pub(super) fn answer(request: &Request, verdict: &Verdict) -> Value {
    let mut response = AdmissionResponse::from(request.asked.as_ref());
    match verdict {
        Verdict::Allow { note } => {
            response.result = Status { code: 200, message: note.clone(), ..Status::success() };
        }
        Verdict::Deny(denied) => {
            response.allowed = false;
            let message: String = denied.message.chars().take(MESSAGE_CHARS_MAX).collect();
            let details = StatusDetails {
                name: request.pod.clone(),
                group: String::new(),
                kind: "pods".into(),
                uid: String::new(),
                causes: denied.causes.clone(),
                retry_after_seconds: RETRY_AFTER_SECONDS,
            };
            let status = Status::failure(&message, "TooManyRequests");
            response.result = status.with_code(429).with_details(details);
        }
    }
    serde_json::to_value(response.into_review()).unwrap_or_default()
}

/// A shard that blocks: table, range, why, since when.
pub(super) fn cause(shard: &BlockingShard) -> StatusCause {
    let range = shard.range.clone().unwrap_or_default();
    let since = match shard.since_ms {
        0 => String::new(),
        ms => i64::try_from(ms)
            .ok()
            .and_then(|ms| k8s_openapi::jiff::Timestamp::from_millisecond(ms).ok())
            .map_or_else(String::new, |at| format!(" since {at:.0}")),
    };
    StatusCause {
        reason: shard.reason.clone(),
        message: format!(
            "shard {} of table {}, keys {} to {}: {}{since}",
            shard.shard_id,
            shard.table,
            bound(&range.start, "the first"),
            bound(&range.end, "the last"),
            shard.message,
        ),
        field: format!("tables/{}/shards/{}", shard.table, shard.shard_id),
    }
}

/// Bounds of a range are keys: shown as hex, and not all of a long one.
fn bound(key: &[u8], open: &str) -> String {
    if key.is_empty() {
        return open.to_owned();
    }
    let shown: String = key.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    if key.len() > 8 { format!("{shown}...") } else { shown }
}
