//! A server that was started.

use crate::ServerError;
use std::net::SocketAddr;
use undb_runtime::admin::Readiness;
use undb_runtime::{Bearer, Credentials, InternalCheck, Shutdown, TaskFailure, TaskFailure as Failure};
use undb_runtime::{Tasks, Tls, TlsFiles, TokenCheck, rpc};

/// A role that serves. It ends when the shutdown it was given begins, or a critical task fails.
#[derive(Debug)]
pub struct Running {
    /// Where it listens; the port is the real one when 0 was asked for.
    pub address: SocketAddr,
    /// Its tasks.
    pub tasks: Tasks,
    /// Its readiness checks, for `/readyz`.
    pub readiness: Readiness,
}

impl Running {
    /// Waits until all has ended; the first failure by name.
    pub async fn join(self) -> Result<(), TaskFailure> {
        self.tasks.join().await
    }

    /// Begins the end and waits for it.
    pub async fn stop(self) -> Result<(), Failure> {
        self.tasks.shutdown().begin();
        self.tasks.join().await
    }
}

/// What every role needs around its own work.
#[derive(Clone, Debug)]
pub(crate) struct Shell {
    pub tasks: Tasks,
    pub readiness: Readiness,
    /// Shown to others.
    pub credentials: Credentials,
    /// For what clients call.
    pub check: TokenCheck,
    /// For what only processes of the cluster call.
    pub internal: InternalCheck,
    /// How others reach this process.
    pub advertise: String,
}

/// A bound listener with the shell of the role that will serve on it.
pub(crate) struct Bound {
    pub shell: Shell,
    pub listener: tokio::net::TcpListener,
    pub address: SocketAddr,
}

impl Bound {
    /// Binds, and reads the certificates.
    pub async fn new(
        listen: &str,
        advertise: Option<&str>,
        token: Option<&str>,
        tls: Option<&TlsFiles>,
        shutdown: Shutdown,
    ) -> Result<Self, ServerError> {
        let listener = rpc::bind(listen, "listen").await?;
        let address = listener.local_addr().map_err(|source| ServerError::Io {
            what: "asking for the own address",
            path: listen.into(),
            source,
        })?;
        let tls = tls.map(Tls::open_server).transpose()?;
        let check = TokenCheck::new(token);
        let shell = Shell {
            tasks: Tasks::new(shutdown),
            readiness: Readiness::default(),
            internal: InternalCheck::new(check.clone(), tls.as_ref()),
            credentials: Credentials::new(Bearer::new(token)?, tls),
            check,
            advertise: advertise.map_or_else(|| address.to_string(), str::to_owned),
        };
        Ok(Self { shell, listener, address })
    }

    /// Serves `routes` from now on.
    pub fn serve(self, routes: rpc::Routes) -> Running {
        let Self { shell, listener, address } = self;
        let tls = shell.credentials.tls.clone();
        let serving = rpc::serve_over(listener, tls, routes, shell.tasks.shutdown().clone());
        shell.tasks.spawn_critical("rpc", serving);
        Running { address, tasks: shell.tasks, readiness: shell.readiness }
    }
}

/// The token of a role: none without a file.
pub(crate) fn token_of(file: Option<&std::path::Path>) -> Result<Option<String>, ServerError> {
    Ok(file.map(undb_runtime::read_token_file).transpose()?)
}

/// 128 random bits in hex.
pub(crate) fn unique_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}
