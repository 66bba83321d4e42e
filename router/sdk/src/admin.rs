//! Calls that change or show what exists: for tools, not for the path of data.

use futures::future::BoxFuture;
use std::time::Duration;
use tokio::time::Instant;
use undb_proto::v1::{self, admin_client::AdminClient};
use undb_runtime::{Credentials, rpc};

use crate::{Error, Options, Result};

/// The admin calls. Each tries all endpoints until its time is over; all are idempotent.
#[derive(Clone, Debug)]
pub struct Admin {
    endpoints: Vec<String>,
    credentials: Credentials,
    timeout: Duration,
}

/// What an apply did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// `created`, `configured` or `unchanged`.
    pub result: String,
    /// Fields that have no effect here, and the like.
    pub warnings: Vec<String>,
}

type Answered<T> = Result<(Option<v1::Error>, T), tonic::Status>;

macro_rules! call {
    ($self:ident, $method:ident, $request:expr) => {{
        let request = $request;
        $self
            .on_any(|mut client: AdminClient<rpc::AuthChannel>| {
                let request = request.clone();
                Box::pin(async move {
                    let response = client.$method(request).await?.into_inner();
                    Ok((response.error.clone(), response))
                })
            })
            .await
    }};
}

impl Admin {
    /// Without looking for the cluster first: also works while it has no router.
    pub fn new(options: &Options) -> Result<Self> {
        if options.endpoints.is_empty() {
            return Err(Error::invalid("no endpoint given; give HOST:PORT of an access address"));
        }
        Ok(Self::of(options, options.credentials()?))
    }

    pub(crate) fn of(options: &Options, credentials: Credentials) -> Self {
        Self { endpoints: options.endpoints.clone(), credentials, timeout: options.timeouts.admin }
    }

    /// Creates or changes one object, given as JSON {apiVersion, kind, metadata, spec}.
    pub async fn apply(&self, object_json: impl Into<String>, dry_run: bool) -> Result<ApplyOutcome> {
        let object_json = object_json.into();
        let response = call!(self, apply, v1::ApplyRequest { object_json: object_json.clone(), dry_run })?;
        Ok(ApplyOutcome { result: response.result, warnings: response.warnings })
    }

    /// Objects of a kind (tables, stores, shards, storeclusters) as JSON. An empty name: all; `table`
    /// narrows shards down.
    pub async fn get(&self, kind: &str, name: &str, table: &str) -> Result<Vec<String>> {
        let request = v1::GetObjectsRequest { kind: kind.into(), name: name.into(), table: table.into() };
        Ok(call!(self, get, request.clone())?.objects_json)
    }

    /// Deletes an object; the answer says what happens with its data. `now`: without the grace time.
    pub async fn delete(&self, kind: &str, name: &str, now: bool) -> Result<String> {
        let request = v1::DeleteObjectRequest { kind: kind.into(), name: name.into(), now };
        Ok(call!(self, delete, request.clone())?.message)
    }

    /// Brings a deleted table back while its data is still kept.
    pub async fn undelete(&self, name: &str) -> Result<String> {
        let request = v1::UndeleteTableRequest { name: name.into() };
        Ok(call!(self, undelete, request.clone())?.message)
    }

    /// Is it fine, and if not, why.
    pub async fn status(&self) -> Result<v1::StatusResponse> {
        call!(self, status, v1::Empty {})
    }

    /// Asks for the right to have stores down. `done` is false when shards would not bear it: the
    /// answer names them.
    pub async fn acquire_disruption(
        &self,
        request: v1::AcquireDisruptionRequest,
    ) -> Result<v1::DisruptionResponse> {
        call!(self, acquire_disruption, request.clone())
    }

    /// Looks at a lease, keeps it alive, and moves it on. `done`: it has the phase that was wanted.
    pub async fn disruption_status(
        &self,
        request: v1::DisruptionStatusRequest,
    ) -> Result<v1::DisruptionResponse> {
        call!(self, disruption_status, request.clone())
    }

    /// Gives a lease back. `done` is false while its stores are not proven up.
    pub async fn release_disruption(&self, lease_id: u64, token: u64) -> Result<v1::DisruptionResponse> {
        let request = v1::ReleaseDisruptionRequest { lease_id, token };
        call!(self, release_disruption, request)
    }

    /// All leases.
    pub async fn list_disruptions(&self) -> Result<Vec<v1::DisruptionLease>> {
        Ok(call!(self, list_disruptions, v1::Empty {})?.leases)
    }

    /// Cordons, uncordons, drains or removes a store.
    pub async fn set_store(
        &self,
        store_id: u64,
        action: v1::StoreAction,
        lost: bool,
    ) -> Result<v1::SetStoreResponse> {
        let request = v1::SetStoreRequest { store_id, action: action as i32, lost };
        call!(self, set_store, request)
    }

    /// Begins to move one replica of a shard to another store; the answer says how to follow it.
    pub async fn move_replica(&self, shard_id: u64, from: u64, to: u64) -> Result<String> {
        let request =
            v1::MoveReplicaRequest { shard_id, from_store_id: from, to_store_id: to, cancel: false };
        Ok(call!(self, move_replica, request)?.message)
    }

    /// Gives up a shard's move, unless its members have begun to change.
    pub async fn cancel_move(&self, shard_id: u64) -> Result<String> {
        let request = v1::MoveReplicaRequest { shard_id, cancel: true, ..Default::default() };
        Ok(call!(self, move_replica, request)?.message)
    }

    /// What is, what is wanted, what is done about it and why: of a shard, a store or a table.
    pub async fn explain(&self, kind: &str, name: &str) -> Result<Vec<String>> {
        let request = v1::ExplainRequest { kind: kind.into(), name: name.into() };
        Ok(call!(self, explain, request.clone())?.lines)
    }

    async fn on_any<T>(
        &self,
        // Boxed, so that the calls can be spawned: the future of an async closure is not known to be Send.
        call: impl Fn(AdminClient<rpc::AuthChannel>) -> BoxFuture<'static, Answered<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + self.timeout;
        let mut last = None;
        let mut attempt: usize = 0;
        loop {
            let endpoint = &self.endpoints[attempt % self.endpoints.len()];
            let channel = rpc::auth_channel(endpoint, self.credentials.clone())
                .map_err(|e| Error::invalid(e.to_string()))?;
            let client = AdminClient::new(channel).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX);
            let error = match tokio::time::timeout_at(deadline, call(client)).await {
                Err(_) => return Err(self.out_of_time(attempt + 1, last.as_ref())),
                Ok(Ok((None, answer))) => return Ok(answer),
                Ok(Ok((Some(error), _))) => Error::from_wire(&error),
                Ok(Err(status)) if status.code() == tonic::Code::Unavailable => Error::Unreachable {
                    addresses: vec![endpoint.clone()],
                    cause: status.message().to_owned(),
                },
                Ok(Err(status)) => Error::from_status(&status),
            };
            let unreachable = matches!(error, Error::Unreachable { .. });
            if !matches!(error.kind(), undb_proto::ErrorKind::Retry | undb_proto::ErrorKind::Redirect) {
                return Err(error);
            }
            attempt += 1;
            // Nobody listening anywhere is told soon; a cluster in an election is waited for.
            if unreachable && attempt >= self.endpoints.len() * UNREACHABLE_ROUNDS_MAX {
                let cause = match error {
                    Error::Unreachable { cause, .. } => cause,
                    other => other.to_string(),
                };
                return Err(Error::Unreachable { addresses: self.endpoints.clone(), cause });
            }
            let round = u32::try_from(attempt / self.endpoints.len()).unwrap_or(u32::MAX);
            let pause = crate::retry::backoff(round.saturating_add(4), rand::random());
            if Instant::now() + pause >= deadline {
                return Err(error);
            }
            last = Some(error);
            tokio::time::sleep(pause).await;
        }
    }

    /// The time ended while an endpoint was asked, the `asked`-th.
    fn out_of_time(&self, asked: usize, last: Option<&Error>) -> Error {
        let tried = self.endpoints[..asked.min(self.endpoints.len())].join(", ");
        let last = match last {
            Some(error) => format!("tried {tried}; the last error: {error}"),
            None => format!("tried {tried}; none has answered yet"),
        };
        Error::DeadlineExceeded { waited: self.timeout, last }
    }
}

const UNREACHABLE_ROUNDS_MAX: usize = 5;
