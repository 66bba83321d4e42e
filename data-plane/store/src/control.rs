//! Speaking to cluster control: register once, then a heartbeat a second. When control is away the
//! store keeps serving with the addresses it last heard.

use crate::directory::Identity;
use crate::error::StoreError;
use crate::stats;
use crate::store::Store;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tonic::Code;
use undb_proto::v1::control_client::ControlClient;
use undb_proto::v1::{ErrorCode, StoreState};
use undb_proto::{ErrorKind, v1};
use undb_runtime::rpc::{AuthChannel, MESSAGE_BYTES_MAX, auth_channel};
use undb_runtime::{Backoff, Credentials, Shutdown};

const CALL_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(3);
/// Redirects followed in one call.
const REDIRECTS_MAX: usize = 4;

/// Whom to ask next. Pure.
#[derive(Debug)]
struct Targets {
    endpoints: Vec<String>,
    next: usize,
    owner: Option<String>,
}

impl Targets {
    fn new(endpoints: Vec<String>) -> Self {
        Self { endpoints, next: 0, owner: None }
    }

    /// The owner if one is known, else one endpoint after the other.
    fn pick(&self) -> String {
        match &self.owner {
            Some(owner) => owner.clone(),
            None => self.endpoints[self.next % self.endpoints.len()].clone(),
        }
    }

    fn redirected(&mut self, owner: &str) {
        self.owner = (!owner.is_empty()).then(|| owner.to_string());
        if self.owner.is_none() {
            self.next += 1;
        }
    }

    fn failed(&mut self) {
        self.owner = None;
        self.next += 1;
    }
}

/// Connections to the members of cluster control.
pub struct Control {
    credentials: Credentials,
    // Leaf locks.
    targets: Mutex<Targets>,
    clients: Mutex<HashMap<String, ControlClient<AuthChannel>>>,
    echo: Mutex<Option<Echo>>,
}

/// The owner's clock, as its last answer said it.
#[derive(Clone, Copy, Debug)]
struct Echo {
    lease: u64,
    owner_ms: u64,
    came: Instant,
}

/// Why control gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Nobody who can answer was reached.
    #[error("{0}")]
    Away(String),
    /// It does not talk to us: the token is wrong.
    #[error("{0}")]
    Denied(String),
}

/// What every answer of control says apart from its content.
struct Verdict {
    error: Option<v1::Error>,
    owner_address: String,
}

impl Control {
    /// `endpoints` must not be empty.
    pub fn new(endpoints: Vec<String>, credentials: Credentials) -> Self {
        Self {
            credentials,
            targets: Mutex::new(Targets::new(endpoints)),
            clients: Mutex::default(),
            echo: Mutex::default(),
        }
    }

    fn client(&self, address: &str) -> Result<ControlClient<AuthChannel>, String> {
        if let Some(client) = self.clients.lock().get(address) {
            return Ok(client.clone());
        }
        let channel = auth_channel(address, self.credentials.clone()).map_err(|e| e.to_string())?;
        let client = ControlClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        self.clients.lock().insert(address.to_string(), client.clone());
        Ok(client)
    }

    /// One call, following redirects to the owner of the lease.
    async fn call<Q: Clone, A, F>(
        &self,
        request: Q,
        send: impl Fn(ControlClient<AuthChannel>, Q) -> F,
        verdict: impl Fn(&A) -> Verdict,
    ) -> Result<A, Trouble>
    where
        F: Future<Output = Result<tonic::Response<A>, tonic::Status>>,
    {
        let mut last = String::from("nobody owns the control lease");
        for _ in 0..REDIRECTS_MAX {
            let address = self.targets.lock().pick();
            let client = self.client(&address).map_err(Trouble::Away)?;
            let answer = match timeout(CALL_TIMEOUT, send(client, request.clone())).await {
                Ok(Ok(answer)) => answer.into_inner(),
                Ok(Err(status)) => {
                    self.targets.lock().failed();
                    let message = format!("{address}: {}", status.message());
                    let denied = matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
                    return Err(if denied { Trouble::Denied(message) } else { Trouble::Away(message) });
                }
                Err(_) => {
                    self.targets.lock().failed();
                    let message = format!("{address}: no answer in {} s", CALL_TIMEOUT.as_secs());
                    return Err(Trouble::Away(message));
                }
            };
            let Verdict { error, owner_address } = verdict(&answer);
            let Some(error) = error.filter(|e| e.code() == ErrorCode::NotLeader) else { return Ok(answer) };
            last = format!("{address}: {}", error.message);
            self.targets.lock().redirected(&owner_address);
        }
        Err(Trouble::Away(last))
    }

    async fn register(
        &self,
        request: v1::RegisterStoreRequest,
    ) -> Result<v1::RegisterStoreResponse, Trouble> {
        self.call(
            request,
            |mut client, request| async move { client.register(request).await },
            |a: &v1::RegisterStoreResponse| Verdict {
                error: a.error.clone(),
                owner_address: a.owner_address.clone(),
            },
        )
        .await
    }

    async fn heartbeat(&self, request: v1::HeartbeatRequest) -> Result<v1::HeartbeatResponse, Trouble> {
        let answer = self
            .call(
                request,
                |mut client, request| async move { client.heartbeat(request).await },
                |a: &v1::HeartbeatResponse| Verdict {
                    error: a.error.clone(),
                    owner_address: a.owner_address.clone(),
                },
            )
            .await?;
        if answer.error.is_none() {
            let (lease, owner_ms) = (answer.control_lease, answer.now_ms);
            *self.echo.lock() = Some(Echo { lease, owner_ms, came: Instant::now() });
        }
        Ok(answer)
    }

    /// Registers, trying until control answers or the end begins. An answer that asks for a person
    /// is an error.
    pub async fn register_until(
        &self,
        request: v1::RegisterStoreRequest,
        dir: &Path,
        shutdown: &Shutdown,
    ) -> Result<v1::RegisterStoreResponse, StoreError> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
        loop {
            let problem = match self.register(request.clone()).await {
                Ok(answer) => match &answer.error {
                    None => {
                        let store = answer.store.clone().unwrap_or_default();
                        refuse_removed(&store, &request.uuid, dir)?;
                        return Ok(answer);
                    }
                    Some(error) => match refusal(error, &request.cluster_id, &answer.cluster_id, dir) {
                        Some(refusal) => return Err(refusal),
                        None => error.message.clone(),
                    },
                },
                Err(Trouble::Denied(why)) => return Err(StoreError::Refused(why)),
                Err(Trouble::Away(problem)) => problem,
            };
            if backoff.attempts() == 0 {
                tracing::warn!(problem, "cluster control does not answer yet; trying on");
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_delay()) => {}
                () = shutdown.begun() => return Err(StoreError::Stopped),
            }
        }
    }
}

/// The registration of a store as it is now.
pub fn registration(
    store: &Identity,
    config: &crate::Config,
    address: &str,
    empty: bool,
) -> v1::RegisterStoreRequest {
    v1::RegisterStoreRequest {
        cluster_id: store.cluster_id.clone(),
        uuid: store.uuid.clone(),
        address: address.to_string(),
        zone: config.zone.clone(),
        store_cluster: config.store_cluster.clone(),
        empty,
        token: config.token.clone(),
    }
}

/// What a refused registration means for the process; none: try again.
fn refusal(error: &v1::Error, ours: &str, theirs: &str, dir: &Path) -> Option<StoreError> {
    match error.code() {
        ErrorCode::ClusterMismatch => Some(StoreError::OtherCluster {
            path: dir.to_path_buf(),
            found: ours.to_string(),
            wanted: if theirs.is_empty() { error.message.clone() } else { theirs.to_string() },
        }),
        ErrorCode::Fenced => Some(StoreError::Removed {
            store_id: 0,
            detail: format!(" ({})", error.message),
            path: dir.to_path_buf(),
        }),
        code if code.kind() == ErrorKind::Reject => Some(StoreError::Refused(error.message.clone())),
        _ => None,
    }
}

fn refuse_removed(store: &v1::StoreRecord, uuid: &str, dir: &Path) -> Result<(), StoreError> {
    if store.uuid == uuid && store.state() == StoreState::StoreRemoved {
        let detail = match store.superseded_by.as_str() {
            "" => String::new(),
            by => format!(" (superseded by the store with uuid {by})"),
        };
        return Err(StoreError::Removed { store_id: store.store_id, detail, path: dir.to_path_buf() });
    }
    Ok(())
}

impl Store {
    /// Heartbeats until the rpc server ends; registers first, and again when control asks for it.
    pub(crate) async fn heartbeats(
        self: Arc<Self>,
        control: Arc<Control>,
        identity: Identity,
        ended: Shutdown,
    ) {
        let mut registered = false;
        let mut away = false;
        loop {
            let outcome = match registered {
                true => self.beat(&control).await,
                false => self.announce(&control, &identity).await,
            };
            match outcome {
                Ok(again) => {
                    registered = !again;
                    if std::mem::take(&mut away) {
                        tracing::info!(store = self.store_id, "cluster control answers again");
                    }
                }
                Err(problem) if !std::mem::replace(&mut away, true) => {
                    tracing::warn!(store = self.store_id, problem, "cluster control is away; serving on");
                }
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(self.config.heartbeat_ms)) => {}
                () = self.beat_now.notified() => {}
                () = ended.begun() => return,
            }
        }
    }

    /// Says where this store is now.
    async fn announce(&self, control: &Control, identity: &Identity) -> Result<bool, String> {
        let empty = self.replicas.read().is_empty();
        let request = registration(identity, &self.config, &self.address, empty);
        let answer = control.register(request).await.map_err(|e| e.to_string())?;
        match &answer.error {
            None => {
                let store = answer.store.unwrap_or_default();
                if let Err(error) = refuse_removed(&store, &self.uuid, &self.dir) {
                    self.fail(error);
                }
                self.registered.store(true, Ordering::Relaxed);
                Ok(false)
            }
            Some(error) => {
                // A store that serves ends only when it must never serve again; anything else may be
                // control's mistake and pass.
                let refusal = refusal(error, &self.cluster_id, &answer.cluster_id, &self.dir);
                if let Some(fatal @ (StoreError::OtherCluster { .. } | StoreError::Removed { .. })) = refusal
                {
                    self.fail(fatal);
                }
                Err(error.message.clone())
            }
        }
    }

    /// One heartbeat; true when control does not know this store and wants it to register.
    async fn beat(self: &Arc<Self>, control: &Control) -> Result<bool, String> {
        // Before anything is gathered: what follows was not said earlier.
        let echo = *control.echo.lock();
        let echo_ms_ago = echo.map_or(0, |e| u64::try_from(e.came.elapsed().as_millis()).unwrap_or(0));
        let store = self.clone();
        let collected = tokio::task::spawn_blocking(move || {
            let replicas = store.all().iter().map(|replica| replica.report()).collect();
            (stats::collect(&store), replicas)
        });
        let (stats, replicas) = collected.await.map_err(|e| e.to_string())?;
        let request = v1::HeartbeatRequest {
            cluster_id: self.cluster_id.clone(),
            store_id: self.store_id,
            uuid: self.uuid.clone(),
            stats: Some(stats),
            replicas,
            stopping: self.is_stopping(),
            address: self.address.clone(),
            echo_lease: echo.map_or(0, |e| e.lease),
            echo_ms: echo.map_or(0, |e| e.owner_ms),
            echo_ms_ago,
        };
        let answer = control.heartbeat(request).await.map_err(|e| e.to_string())?;
        self.addresses.learn(&answer.stores);
        if let Some(own) = answer.stores.iter().find(|s| s.store_id == self.store_id)
            && let Err(error) = refuse_removed(own, &self.uuid, &self.dir)
        {
            self.fail(error);
        }
        if let Some(error) = answer.error {
            return self.heartbeat_refused(error);
        }
        let store = self.clone();
        let admitted = tokio::task::spawn_blocking(move || {
            // An owner that lost its lease meanwhile is no authority, and no problem of ours either.
            let _fenced = store.admit(answer.incarnation, answer.control_lease);
        });
        admitted.await.map_err(|e| e.to_string())?;
        Ok(false)
    }

    fn heartbeat_refused(&self, error: v1::Error) -> Result<bool, String> {
        match error.code() {
            ErrorCode::NotFound | ErrorCode::StoreMismatch => Ok(true),
            ErrorCode::Fenced | ErrorCode::ClusterMismatch => {
                if let Some(refusal) = refusal(&error, &self.cluster_id, "", &self.dir) {
                    self.fail(refusal);
                }
                Err(error.message)
            }
            _ => Err(error.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_followed_until_it_fails() {
        let mut targets = Targets::new(vec!["a:1".into(), "b:1".into()]);
        assert_eq!(targets.pick(), "a:1");
        targets.redirected("c:1");
        assert_eq!(targets.pick(), "c:1");
        targets.failed();
        assert_eq!(targets.pick(), "b:1");
        targets.redirected("");
        assert_eq!(targets.pick(), "a:1");
    }

    #[test]
    fn only_answers_that_a_person_must_act_on_end_the_process() {
        let refused = |code| {
            let error = undb_proto::wire_error(code, "why");
            refusal(&error, "ours", "theirs", Path::new("/d"))
        };
        assert!(matches!(refused(ErrorCode::ClusterMismatch), Some(StoreError::OtherCluster { .. })));
        assert!(matches!(refused(ErrorCode::Fenced), Some(StoreError::Removed { .. })));
        assert!(matches!(refused(ErrorCode::AlreadyExists), Some(StoreError::Refused(_))));
        assert!(refused(ErrorCode::Unavailable).is_none());
        assert!(refused(ErrorCode::ServerBusy).is_none());
    }

    #[test]
    fn a_store_that_was_superseded_does_not_go_on() {
        let removed = v1::StoreRecord {
            uuid: "u".into(),
            store_id: 4,
            state: StoreState::StoreRemoved as i32,
            superseded_by: "v".into(),
            ..Default::default()
        };
        let error = refuse_removed(&removed, "u", Path::new("/d")).expect_err("refused").to_string();
        assert!(error.contains("superseded") && error.contains('4'), "{error}");
        assert!(refuse_removed(&removed, "other", Path::new("/d")).is_ok());
    }
}
