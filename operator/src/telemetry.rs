//! Metrics of the operator: what it did, what it was refused, and how old what it knows is.
//!
//! Labels come from closed sets; the two gauges that name objects (a StoreCluster, a ControlPlane) have one
//! value for each of the few that there are. docs/metrics.md says what each means.

use crate::error::Error;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

/// One reconcile: counted with its outcome, and timed.
pub async fn reconcile<T>(
    kind: &'static str,
    pass: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let begun = Instant::now();
    let outcome = pass.await;
    let result = outcome.as_ref().err().map_or("ok", Error::reason);
    metrics::counter!("undb_operator_reconciles_total", "kind" => kind, "result" => result).increment(1);
    metrics::histogram!("undb_operator_reconcile_seconds", "kind" => kind).record(begun.elapsed());
    outcome
}

/// Who asks whether a store may stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Roll,
    Eviction,
    ScaleIn,
    Replacement,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    Denied,
    /// Nobody could be asked, which is a denial.
    Unknown,
}

impl Source {
    fn label(self) -> &'static str {
        match self {
            Self::Roll => "roll",
            Self::Eviction => "eviction",
            Self::ScaleIn => "scale-in",
            Self::Replacement => "replacement",
        }
    }
}

impl Decision {
    /// Its word, in labels.
    pub fn label(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
        }
    }
}

/// A store asked to be stopped. `reason`: the first blocking shard's word, or empty.
pub fn decided(source: Source, decision: Decision, reason: &str) {
    let reason = known_reason(reason);
    metrics::counter!(
        "undb_operator_disruption_decisions_total",
        "source" => source.label(), "decision" => decision.label(), "reason" => reason
    )
    .increment(1);
}

/// Reasons cross the wire as text; labels come from a closed set.
fn known_reason(reason: &str) -> &'static str {
    const KNOWN: [&str; 17] = [
        "",
        "BeingCreated",
        "NoLeaderKnown",
        "StaleObservation",
        "ConfigChangeInProgress",
        "ReplicaLagging",
        "StoreSilent",
        "StoreDown",
        "UnderLease",
        "TooFewVoters",
        "SingleReplicaTable",
        "LeaderStillHere",
        "ReplicaStillHere",
        "NoTarget",
        "Draining",
        "Refused",
        "ControlPlaneUnreachable",
    ];
    KNOWN.iter().find(|known| **known == reason).copied().unwrap_or("other")
}

/// The webhook answered.
pub fn eviction_answered(decision: &'static str) {
    metrics::counter!("undb_operator_eviction_requests_total", "decision" => decision).increment(1);
}

/// For how long the step that a StoreCluster wants has been refused; zero: it is not.
pub fn blocked(namespace: &str, store_cluster: &str, since: Duration) {
    let labels = [("namespace", namespace.to_owned()), ("store_cluster", store_cluster.to_owned())];
    metrics::gauge!("undb_operator_disruption_blocked_seconds", &labels).set(since.as_secs_f64());
}

/// How old the newest answer of a control plane is.
pub fn observed(namespace: &str, control_plane: &str, age: Duration) {
    let labels = [("namespace", namespace.to_owned()), ("control_plane", control_plane.to_owned())];
    metrics::gauge!("undb_operator_observation_age_seconds", &labels).set(age.as_secs_f64());
}

/// Whether this process leads.
pub fn leads(leads: Leads) {
    metrics::gauge!("undb_operator_lease_held").set(if leads == Leads::Yes { 1.0 } else { 0.0 });
}

/// Of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    Yes,
    No,
}

/// When the certificate of a ControlPlane's roles ends, in seconds from now.
pub fn role_certificate_left(namespace: &str, control_plane: &str, left: Duration) {
    let labels = [("namespace", namespace.to_owned()), ("control_plane", control_plane.to_owned())];
    metrics::gauge!("undb_operator_certificate_left_seconds", &labels).set(left.as_secs_f64());
}

/// When the webhook's certificate ends, in seconds from now.
pub fn certificate_left(left: Duration) {
    metrics::gauge!("undb_operator_webhook_certificate_left_seconds").set(left.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_is_not_known_is_counted_as_other() {
        assert_eq!(known_reason("ReplicaLagging"), "ReplicaLagging");
        assert_eq!(known_reason("table secret-name is odd"), "other");
    }
}
