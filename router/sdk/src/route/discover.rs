//! Finding the cluster, and asking its routers.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::time::Duration;
use tokio::time::Instant;
use undb_proto::v1::{self, ErrorCode, access_client::AccessClient, router_client::RouterClient};
use undb_runtime::{Credentials, backoff, rpc};

use crate::client::Core;
use crate::{Error, Options, Result};

const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// What the cluster is and who routes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Discovery {
    pub cluster_id: String,
    pub incarnation: u32,
    pub routers: Vec<String>,
}

impl From<&v1::DiscoverResponse> for Discovery {
    fn from(r: &v1::DiscoverResponse) -> Self {
        Self { cluster_id: r.cluster_id.clone(), incarnation: r.incarnation, routers: r.routers.clone() }
    }
}

/// Asks all access addresses at once, again and again until `deadline`; the first good answer counts.
pub(crate) async fn discover(
    options: &Options,
    credentials: &Credentials,
    deadline: Instant,
) -> Result<v1::DiscoverResponse> {
    if options.endpoints.is_empty() {
        return Err(Error::invalid("no endpoint given; give HOST:PORT of an access address"));
    }
    let mut round = 0;
    loop {
        let mut asked: FuturesUnordered<_> =
            options.endpoints.iter().map(|endpoint| discover_at(endpoint, credentials)).collect();
        let mut cause = String::new();
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(found) => return Ok(found),
                Err(error) if matches!(error, Error::Rejected { .. } | Error::InvalidArgument { .. }) => {
                    return Err(error);
                }
                Err(error) => cause = error.to_string(),
            }
        }
        let pause = backoff::delay(Duration::from_millis(50), Duration::from_secs(1), round, rand::random());
        round += 1;
        if Instant::now() + pause >= deadline {
            return Err(Error::Unreachable { addresses: options.endpoints.clone(), cause });
        }
        tokio::time::sleep(pause).await;
    }
}

async fn discover_at(endpoint: &str, credentials: &Credentials) -> Result<v1::DiscoverResponse> {
    let channel =
        rpc::auth_channel(endpoint, credentials.clone()).map_err(|e| Error::invalid(e.to_string()))?;
    let mut client = AccessClient::new(channel);
    let asked = client.discover(v1::DiscoverRequest::default());
    let response = within(asked).await?.into_inner();
    if let Some(error) = &response.error {
        return Err(Error::from_wire(error));
    }
    if response.routers.is_empty() {
        let message = format!("{endpoint} knows no router yet");
        return Err(Error::Unavailable { code: ErrorCode::Unavailable, message });
    }
    Ok(response)
}

/// A table's route if it is newer than `known`. Asks the routers one after the other; when none answers,
/// finds out anew who they are and tries once more.
pub(crate) async fn resolve(
    core: &Core,
    table: &str,
    known: Option<(u32, u64)>,
) -> Result<Option<v1::TableRoute>> {
    match resolve_at(core, table, known).await {
        Err(error) if error.kind() == undb_proto::ErrorKind::Retry => {
            core.rediscover(Instant::now() + ASK_TIMEOUT).await?;
            resolve_at(core, table, known).await
        }
        other => other,
    }
}

async fn resolve_at(core: &Core, table: &str, known: Option<(u32, u64)>) -> Result<Option<v1::TableRoute>> {
    let discovery = core.discovery.load_full();
    let request = v1::ResolveRequest {
        cluster_id: discovery.cluster_id.clone(),
        table: table.to_owned(),
        known: known.map(|(incarnation, version)| v1::RouteVersion { incarnation, version }),
        token: core.options.token.clone().unwrap_or_default(),
    };
    let mut last = Error::Unreachable { addresses: discovery.routers.clone(), cause: "no router".into() };
    for router in &discovery.routers {
        let channel = match core.router_channel(router) {
            Ok(channel) => channel,
            Err(error) => {
                last = error;
                continue;
            }
        };
        let mut client = RouterClient::new(channel).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX);
        match within(client.resolve(request.clone())).await.map(|r| r.into_inner()) {
            Ok(v1::ResolveResponse { error: Some(error), .. }) => {
                let error = table_error(&error, table);
                if error.kind() != undb_proto::ErrorKind::Retry {
                    return Err(error);
                }
                last = error;
            }
            Ok(v1::ResolveResponse { not_modified: true, .. }) => return Ok(None),
            Ok(v1::ResolveResponse { route: Some(route), .. }) => return Ok(Some(route)),
            Ok(_) => {
                last = Error::Unavailable { code: ErrorCode::Unavailable, message: "empty answer".into() }
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// An error about a table names the table.
pub(crate) fn table_error(error: &v1::Error, table: &str) -> Error {
    match error.code() {
        ErrorCode::TableNotFound => Error::TableNotFound { table: table.to_owned() },
        _ => Error::from_wire(error),
    }
}

async fn within<T>(call: impl Future<Output = Result<T, tonic::Status>>) -> Result<T> {
    match tokio::time::timeout(ASK_TIMEOUT, call).await {
        Ok(result) => result.map_err(|status| Error::from_status(&status)),
        Err(_) => {
            Err(Error::Unavailable { code: ErrorCode::Unavailable, message: "no answer in 1 s".into() })
        }
    }
}
