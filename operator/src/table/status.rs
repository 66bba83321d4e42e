//! What is reported of a Table, from what the control plane says of it. Pure.

use crate::conditions::{self, Said, Status};
use crate::error::Error;
use serde_json::Value;
use undb_sdk::Error as SdkError;
use undb_spec::k8s::{ShardCounts, TableStatus};

/// What the control plane says of a table: its object with a `status`, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its id.
    pub table_id: Option<u64>,
    /// All shards have a leader.
    pub is_ready: bool,
    /// Its replicas are being made for the first time.
    pub is_creating: bool,
    /// Why it is not fine, if it is not: a word, a colon, a sentence.
    pub reason: String,
    /// Its shards.
    pub shards: ShardCounts,
}

/// Reads it; what is missing counts as not there, never as fine.
pub fn seen(json: &str) -> Option<Seen> {
    let object: Value = serde_json::from_str(json).ok()?;
    let status = object.get("status")?;
    let count =
        |name: &str| u32::try_from(status.get(name).and_then(Value::as_u64).unwrap_or(0)).unwrap_or(u32::MAX);
    let (total, available) = (count("shards"), count("shardsAvailable"));
    Some(Seen {
        table_id: status.get("tableId").and_then(Value::as_u64),
        is_ready: status.get("ready").and_then(Value::as_bool).unwrap_or(false),
        is_creating: status.get("state").and_then(Value::as_str) == Some("Creating"),
        reason: status.get("reason").and_then(Value::as_str).unwrap_or_default().into(),
        shards: ShardCounts {
            total,
            available,
            degraded: count("shardsUnderReplicated"),
            unavailable: total.saturating_sub(available),
        },
    })
}

/// Errors that come back until somebody changes the Table.
pub fn needs_a_person(error: &Error) -> bool {
    match error {
        Error::InvalidSpec { .. } => true,
        Error::Control(error) => matches!(
            error,
            SdkError::Rejected { .. } | SdkError::InvalidArgument { .. } | SdkError::TooLarge { .. }
        ),
        _ => false,
    }
}

/// The status after a pass that went through. `before`: as it was read.
pub fn of_table(
    seen: Option<&Seen>,
    before: &TableStatus,
    generation: Option<i64>,
    now_ms: u64,
) -> TableStatus {
    let mut status = before.clone();
    status.observed_generation = generation;
    let Some(seen) = seen else {
        let message = "the control plane has taken the table and does not show it yet";
        status.phase = Some("Pending".into());
        return with(
            status,
            [
                Said::new("Ready", false, "Pending", message),
                Said::new("FullyReplicated", Status::Unknown, "Pending", message),
                Said::new("Reconciling", true, "Pending", message),
                Said::new("Stalled", false, "NotStalled", ""),
            ],
            now_ms,
        );
    };
    let (word, sentence) = split(&seen.reason);
    let is_whole = seen.shards.total > 0 && seen.shards.degraded == 0 && seen.is_ready;
    let phase = match (seen.is_ready, seen.is_creating) {
        (true, _) if seen.shards.degraded == 0 => "Available",
        (true, _) => "Degraded",
        (false, true) => "Creating",
        (false, false) => "Unavailable",
    };
    status.table_id = seen.table_id;
    status.phase = Some(phase.into());
    status.shards = Some(seen.shards.clone());
    let fine = "all shards have a leader and all their copies";
    let told =
        |is_fine: bool| if is_fine { ("Reconciled", fine.to_owned()) } else { (word, sentence.clone()) };
    let (ready, whole) = (told(seen.is_ready), told(is_whole));
    with(
        status,
        [
            Said::new("Ready", seen.is_ready, ready.0, ready.1),
            Said::new("FullyReplicated", is_whole, whole.0, whole.1.clone()),
            Said::new("Reconciling", !seen.is_ready, whole.0, whole.1),
            Said::new("Stalled", false, "NotStalled", ""),
        ],
        now_ms,
    )
}

/// The status after a pass that did not go through.
pub fn of_failure(error: &Error, before: &TableStatus, generation: Option<i64>, now_ms: u64) -> TableStatus {
    let mut status = before.clone();
    status.observed_generation = generation;
    let is_stalled = needs_a_person(error);
    let reason = if is_stalled { "Refused" } else { error.reason() };
    let message = error.to_string();
    // Nobody can tell how a table is while its control plane does not answer.
    let ready = if error.is_unreachable() { Status::Unknown } else { Status::False };
    if status.phase.is_none() {
        status.phase = Some("Pending".into());
    }
    let mut said = vec![
        Said::new("Ready", ready, reason, message.clone()),
        Said::new("Reconciling", !is_stalled, reason, message.clone()),
        Said::new("Stalled", is_stalled, reason, message.clone()),
    ];
    if error.is_unreachable() {
        said.push(Said::new("FullyReplicated", Status::Unknown, reason, message));
    }
    with(status, said, now_ms)
}

/// The status of one that is leaving.
pub fn of_leaving(message: &str, before: &TableStatus, generation: Option<i64>, now_ms: u64) -> TableStatus {
    let mut status = before.clone();
    status.observed_generation = generation;
    status.phase = Some("Deleting".into());
    with(
        status,
        [
            Said::new("Ready", false, "Deleting", message),
            Said::new("Reconciling", true, "Deleting", message),
            Said::new("Stalled", false, "NotStalled", ""),
        ],
        now_ms,
    )
}

fn with(mut status: TableStatus, said: impl IntoIterator<Item = Said>, now_ms: u64) -> TableStatus {
    for said in said {
        conditions::set(&mut status.conditions, said, status.observed_generation, now_ms);
    }
    status
}

/// `Word: sentence`, as the control plane writes reasons. The word becomes a reason of the API.
fn split(reason: &str) -> (&str, String) {
    let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric());
    match reason.split_once(": ").filter(|(word, _)| is_word(word)) {
        Some((word, sentence)) => (word, sentence.into()),
        None => ("NotReady", reason.into()),
    }
}
