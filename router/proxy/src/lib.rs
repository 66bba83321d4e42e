//! The doors: the Redis protocol and HTTP in front of the SDK.
//!
//! **What it does.** Lets Redis clients use tables (strings, hashes, expiry, SCAN; `command` has the
//! list), and HTTP clients read and write keys. It keeps no data: any number of proxies can stand
//! beside one another.
//!
//! **What it never does.** It imports nothing of the data plane or the control plane; it answers nothing
//! from a cache.
//!
//! ```text
//! bytes ─ resp ─> session ─ command ─> keyspace ─> SDK
//!         HTTP ─> http ──────────────────────────> SDK
//! ```
//! **Invariants.** Answers of a connection are in the order of its commands; commands that touch a key in
//! common, one of them writing, run one after the other. A hash's meta record and its fields change
//! together. **Where to start**: `command/table.rs`, then `command/model.rs`.

mod command;
mod config;
mod cursors;
mod error;
mod http;
mod keyspace;
#[cfg(test)]
mod memory;
mod resp;
mod sdk_keyspace;
mod server;
mod session;
#[cfg(test)]
mod tests;

pub use config::Config;
use cursors::Cursors;
use error::Failure;

use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use undb_runtime::admin::{self, Readiness};
use undb_runtime::tls::{Speaks, TlsListener};
use undb_runtime::{Shutdown, Tasks, Tls, TokenCheck, read_token_file, rpc};
use undb_sdk::{Client, Options, TlsOptions};

/// A proxy that runs.
#[derive(Debug)]
pub struct Running {
    /// Where Redis clients connect.
    pub resp: String,
    /// Where HTTP clients connect.
    pub http: String,
    /// Ends when everything of the proxy has ended.
    pub tasks: Tasks,
}

/// Binds both ports, finds the cluster (for as long as that takes) and serves.
pub async fn start(config: Config, readiness: Readiness, shutdown: Shutdown) -> Result<Running, StartError> {
    let resp = rpc::bind(&config.resp, "the Redis protocol").await?;
    let http = rpc::bind(&config.http, "HTTP").await?;
    let token = config.token_file.as_ref().map(read_token_file).transpose()?;
    let address = |listener: &TcpListener| listener.local_addr().map(|a| a.to_string()).unwrap_or_default();
    let (resp_address, http_address) = (address(&resp), address(&http));
    let tls = serving_tls(&config)?;
    let check = TokenCheck::new(token.as_deref());
    for listener in [&resp, &http] {
        if !check.is_on() && !listener.local_addr().is_ok_and(|address| address.ip().is_loopback()) {
            return Err(StartError::Open(address(listener)));
        }
    }

    let mut options = Options::new(config.endpoints.clone()).token(token);
    options.tls = config.tls.clone().map(TlsOptions::Files);
    options.cache_dir = config.cache_dir.clone();
    let client = connect(options, &shutdown).await?;
    let opener = opener(client.clone());
    let shared =
        Arc::new(server::Shared::new(check.clone(), config.tables.clone(), config.connections_max, opener));

    let tasks = Tasks::new(shutdown.clone());
    let router = http::router(client, check, admin::router(readiness));
    match tls {
        None => {
            tasks.spawn("proxy resp", server::serve(resp, shared, shutdown.clone()));
            tasks.spawn_critical("proxy http", admin::serve(http, router, shutdown));
        }
        Some(tls) => {
            let resp = TlsListener::new(resp, tls.clone(), Speaks::Resp);
            let http = TlsListener::new(http, tls, Speaks::Http);
            tasks.spawn("proxy resp", server::serve_tls(resp, shared, shutdown.clone()));
            tasks.spawn_critical("proxy http", admin::serve_from(http, router, shutdown));
        }
    }
    Ok(Running { resp: resp_address, http: http_address, tasks })
}

/// What clients of the proxy are shown; none: they speak plain.
fn serving_tls(config: &Config) -> Result<Option<Tls>, StartError> {
    match (&config.tls, config.resp_tls) {
        (_, false) => Ok(None),
        (Some(files), true) => Ok(Some(Tls::open_server(files)?)),
        (None, true) => Err(StartError::NoCertificate),
    }
}

const CONNECT_AGAIN: Duration = Duration::from_millis(500);

/// The cluster may start after its proxies.
async fn connect(options: Options, shutdown: &Shutdown) -> Result<Client, StartError> {
    loop {
        match Client::connect(options.clone()).await {
            Ok(client) => return Ok(client),
            Err(error) if error.kind() == undb_sdk::Kind::Retry => {
                tracing::info!(%error, "cluster not found yet, trying again");
            }
            Err(error) => return Err(error.into()),
        }
        tokio::select! {
            () = tokio::time::sleep(CONNECT_AGAIN) => {}
            () = shutdown.begun() => return Err(StartError::Ended),
        }
    }
}

fn opener(client: Client) -> server::Opener {
    Box::new(move |name| {
        let client = client.clone();
        Box::pin(async move {
            let table = client.table(&name).await?;
            Ok(Arc::new(table) as Arc<dyn keyspace::Keyspace>)
        })
    })
}

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port, a file or a setting.
    #[error(transparent)]
    Runtime(#[from] undb_runtime::RuntimeError),
    /// The cluster refuses us.
    #[error(transparent)]
    Cluster(#[from] undb_sdk::Error),
    /// Anybody could come in from outside.
    #[error("refusing to listen on {0} without a token: set token_file, or listen on 127.0.0.1")]
    Open(String),
    /// TLS without certificates.
    #[error("resp_tls needs a certificate: add [tls] with cert_file, key_file and ca_file")]
    NoCertificate,
    /// Told to end before the cluster was found.
    #[error("ended before the cluster was found")]
    Ended,
}
