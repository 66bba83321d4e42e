//! Metadata as the other roles see it: a copy that follows, and proposals that find the leader.
//!
//! ```text
//! members <--Watch-- follow() --> Mirror(State) <-- state(), changed()
//! members <--Propose-- propose(): leader, redirect, backoff; then waits until the mirror has it
//! ```
//! The mirror only grows older while no member leads; it is never emptied.

mod endpoints;
mod follow;

pub use endpoints::Endpoints;

use crate::error::CallError;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use undb_meta::State;
use undb_proto::v1::{self, ErrorCode, meta_command::Op};
use undb_runtime::{Backoff, Credentials, RuntimeError, Tasks};

const PROPOSE_WITHIN: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const MIRROR_WITHIN: Duration = Duration::from_secs(5);
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_CAP: Duration = Duration::from_millis(500);

/// A copy of metadata and a way to change it. Clones are the same.
#[derive(Clone)]
pub struct MetaClient(Arc<Inner>);

struct Inner {
    endpoints: Endpoints,
    // Leaf lock. Writers change it in place unless somebody still reads the old one.
    state: RwLock<Arc<State>>,
    /// (revision, heard from a leader lately). Woken after every change of the mirror.
    seen: watch::Sender<Seen>,
}

/// How far the mirror is, and whether it follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Revision of the mirror.
    pub revision: u64,
    /// True while a leading member feeds the mirror.
    pub following: bool,
    /// True once there is a mirror at all.
    pub begun: bool,
}

impl MetaClient {
    /// Begins to follow the members at `addresses`.
    pub fn start(
        addresses: &[String],
        credentials: Credentials,
        tasks: &Tasks,
    ) -> Result<Self, RuntimeError> {
        let endpoints = Endpoints::new(addresses, credentials)?;
        let inner = Inner { endpoints, state: RwLock::default(), seen: watch::Sender::default() };
        let client = Self(Arc::new(inner));
        let (follower, shutdown) = (client.clone(), tasks.shutdown().clone());
        tasks.spawn("meta-follow", async move {
            tokio::select! {
                () = shutdown.begun() => {}
                () = follow::follow(follower) => {}
            }
        });
        Ok(client)
    }

    /// The mirror as it is now.
    pub fn state(&self) -> Arc<State> {
        self.0.state.read().clone()
    }

    /// Follows the mirror's progress.
    pub fn seen(&self) -> watch::Receiver<Seen> {
        self.0.seen.subscribe()
    }

    /// Waits until there is a mirror of a cluster with an identity. Safe to cancel.
    pub async fn ready(&self) -> Arc<State> {
        let mut seen = self.seen();
        loop {
            let state = self.state();
            if !state.cluster().cluster_id.is_empty() || seen.changed().await.is_err() {
                return state;
            }
        }
    }

    /// Proposes under a control lease (0: none), and returns when the mirror has the outcome. Asks
    /// again after an unknown outcome: every command is idempotent or a compare-and-set, which then
    /// answers CONFLICT, and the caller looks at the mirror.
    pub async fn propose(&self, lease: u64, op: Op) -> Result<v1::MetaResult, CallError> {
        let command = v1::MetaCommand { now_ms: 0, control_lease: lease, op: Some(op) };
        let request = v1::ProposeRequest { command: Some(command), cluster_id: String::new() };
        let deadline = Instant::now() + PROPOSE_WITHIN;
        let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_CAP);
        loop {
            let error = match self.propose_once(&request).await {
                Ok(response) => match response.error {
                    None => {
                        self.wait_for(response.revision).await;
                        return Ok(response.result.unwrap_or_default());
                    }
                    Some(error) if !is_transient(error.code()) => {
                        self.wait_for(response.revision).await;
                        return Err(CallError::Refused(error));
                    }
                    Some(error) => CallError::Refused(error),
                },
                Err(error) => error,
            };
            let delay = backoff.next_delay();
            if Instant::now() + delay >= deadline {
                return Err(CallError::Unavailable(format!(
                    "metadata did not answer in time: {error}; check that a majority of its members runs"
                )));
            }
            tokio::time::sleep(delay).await;
        }
    }

    /// The status of the member that leads, or of any that answers.
    pub async fn meta_status(&self) -> Result<v1::MetaStatusResponse, CallError> {
        let (address, mut client) = self.0.endpoints.current();
        let call = tokio::time::timeout(CALL_TIMEOUT, client.meta_status(v1::Empty {})).await;
        match call {
            Ok(Ok(status)) => Ok(status.into_inner()),
            Ok(Err(status)) => Err(self.0.endpoints.failed(&address, status.message())),
            Err(_) => Err(self.0.endpoints.failed(&address, "no answer in time")),
        }
    }

    async fn propose_once(&self, request: &v1::ProposeRequest) -> Result<v1::ProposeResponse, CallError> {
        let (address, mut client) = self.0.endpoints.current();
        let call = tokio::time::timeout(CALL_TIMEOUT, client.propose(request.clone())).await;
        let response = match call {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return Err(self.0.endpoints.failed(&address, status.message())),
            Err(_) => return Err(self.0.endpoints.failed(&address, "no answer in time")),
        };
        if response.error.as_ref().is_some_and(|e| e.code() == ErrorCode::NotLeader) {
            self.0.endpoints.redirected(&address, &response.leader_address);
        }
        Ok(response)
    }

    /// IMPORTANT: a proposer plans from the mirror. Were it older than the answer, the next plan would
    /// do again what was just done, and a replica that was just listed would look unlisted.
    async fn wait_for(&self, revision: u64) {
        let mut seen = self.seen();
        let reached = seen.wait_for(|seen| seen.revision >= revision);
        if tokio::time::timeout(MIRROR_WITHIN, reached).await.is_err() {
            tracing::warn!(revision, "metadata mirror lags behind a proposal");
        }
    }
}

fn is_transient(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotLeader
            | ErrorCode::ServerBusy
            | ErrorCode::Ambiguous
            | ErrorCode::DeadlineExceeded
            | ErrorCode::Unavailable
            | ErrorCode::RecoveryInProgress
    )
}
