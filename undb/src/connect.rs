//! The flags that every client command has, and the connection they make.

use crate::exit::{Failure, Outcome};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use undb_sdk::{Admin, Client, Options, Table, Timeouts, TlsFiles, TlsOptions};

/// Where the cluster is and who asks.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub struct Connect {
    /// Access addresses HOST:PORT, separated by commas; any one that answers is enough
    #[arg(long, env = "UNDB_ENDPOINT", default_value = "127.0.0.1:7380", value_delimiter = ',')]
    pub endpoint: Vec<String>,
    #[command(flatten)]
    pub credentials: Credentials,
    /// Give up after this many seconds
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub timeout: f64,
}

/// Who asks, and how the other side is known.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub struct Credentials {
    /// File that holds the token; UNDB_TOKEN may hold the token itself
    #[arg(long, env = "UNDB_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// CA of a cluster that speaks TLS, a PEM file; without it everything is plain
    #[arg(long, env = "UNDB_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Certificate to show to the cluster, a PEM file
    #[arg(long, env = "UNDB_CERT_FILE", value_name = "FILE")]
    pub cert_file: Option<PathBuf>,
    /// Its private key, a PEM file
    #[arg(long, env = "UNDB_KEY_FILE", value_name = "FILE")]
    pub cert_key_file: Option<PathBuf>,
}

/// Which table, and where.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub struct OnTable {
    /// The table
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub table: String,
    #[command(flatten)]
    pub connect: Connect,
}

impl Connect {
    /// The SDK's options.
    pub fn options(&self) -> Outcome<Options> {
        let total = seconds(self.timeout)?;
        let defaults = Timeouts::default();
        let timeouts = Timeouts {
            connect: total.min(defaults.connect),
            read: total,
            write: total,
            admin: total.max(defaults.connect),
            ..defaults
        };
        Ok(Options::new(self.endpoint.clone())
            .token(self.credentials.token()?)
            .tls(self.credentials.tls()?)
            .timeouts(timeouts))
    }

    /// The calls that change or show objects.
    pub fn admin(&self) -> Outcome<Admin> {
        Ok(Admin::new(&self.options()?)?)
    }

    /// A client for data.
    pub async fn client(&self) -> Outcome<Client> {
        Ok(Client::connect(self.options()?).await?)
    }
}

impl Credentials {
    /// The token: of the file if one is named, else of the environment.
    pub fn token(&self) -> Outcome<Option<String>> {
        if let Some(file) = &self.token_file {
            return Ok(Some(undb_runtime::read_token_file(file)?));
        }
        Ok(std::env::var("UNDB_TOKEN").ok().filter(|token| !token.is_empty()))
    }

    /// TLS, if a CA is named.
    pub fn tls(&self) -> Outcome<Option<TlsOptions>> {
        let (cert_file, key_file) = (self.cert_file.clone(), self.cert_key_file.clone());
        match &self.ca_file {
            Some(ca_file) => Ok(Some(TlsFiles { ca_file: ca_file.clone(), cert_file, key_file }.into())),
            None if cert_file.is_some() || key_file.is_some() => {
                Err(Failure::usage("--cert-file and --cert-key-file are for TLS: give --ca-file FILE too"))
            }
            None => Ok(None),
        }
    }
}

impl OnTable {
    /// The table, open.
    pub async fn open(&self) -> Outcome<Table> {
        Ok(self.connect.client().await?.table(&self.table).await?)
    }
}

/// What `--timeout` says.
pub fn seconds(timeout: f64) -> Outcome<Duration> {
    if !(timeout.is_finite() && timeout > 0.0) {
        return Err(Failure::usage(format!("--timeout {timeout}: write seconds above 0")));
    }
    Ok(Duration::from_secs_f64(timeout.min(86_400.0)))
}
