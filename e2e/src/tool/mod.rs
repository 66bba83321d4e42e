//! What the cases run inside a Pod beside the load: placing replicas, comparing rows, waiting.

mod compare;
mod place;

use std::path::PathBuf;
use undb_sdk::{Options, TlsFiles};

pub use compare::{CompareArgs, compare};
pub use place::{PlaceArgs, SpreadArgs, place, spread};

/// How to reach the cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct Connect {
    /// HOST:PORT of an access address
    #[arg(long, env = "UNDB_ENDPOINT")]
    pub endpoint: String,
    /// The token for clients
    #[arg(long, env = "UNDB_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificates to trust; with it, connections are TLS
    #[arg(long, env = "UNDB_CA_FILE")]
    pub ca_file: Option<PathBuf>,
}

impl Connect {
    /// For the SDK.
    pub fn options(&self) -> Result<Options, String> {
        let options = Options::new([self.endpoint.clone()]);
        let files = |ca_file| TlsFiles { ca_file, cert_file: None, key_file: None };
        let tls = self.ca_file.clone().map(files).map(Into::into);
        Ok(options.token(self.token()?).tls(tls))
    }

    /// The token, if there is one.
    pub fn token(&self) -> Result<Option<String>, String> {
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok(text.trim().to_owned())
        };
        self.token_file.as_ref().map(read).transpose()
    }
}

/// Waits to be told to end, so that commands can run in the same Pod.
pub async fn wait() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut term) => {
            tokio::select! {
                _ = term.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(_) => std::future::pending().await,
    }
}
