//! One of each role on one listener: what `undb dev` runs.

use crate::client::MetaClient;
use crate::running::{Bound, token_of};
use crate::{Running, ServerError, access, control, meta, router};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use undb_runtime::Shutdown;
use undb_runtime::rpc::Routes;
use undb_vfs::OsFs;

/// The control plane in one process. Its directory holds `meta/` and `routes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// HOST:PORT to listen on, for everybody.
    pub listen: String,
    /// HOST:PORT at which stores and clients reach it; default: what it listens on.
    pub advertise: Option<String>,
    /// Its own directory.
    pub dir: PathBuf,
    /// A file with the token that every call must carry; absent: no token.
    pub token_file: Option<PathBuf>,
    /// What cluster control decides by.
    pub tuning: control::Tuning,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7380".into(),
            advertise: None,
            dir: "undb-data/control".into(),
            token_file: None,
            // A StoreCluster is only a class here: its tables share the stores of `default`.
            tuning: control::Tuning { share_default_stores: true, ..control::Tuning::default() },
        }
    }
}

/// Starts all four roles. Stores are given `Running::address` as that of cluster control.
pub async fn start(config: Config, shutdown: Shutdown) -> Result<Running, ServerError> {
    config.tuning.validate()?;
    let token = token_of(config.token_file.as_deref())?;
    let bound =
        Bound::new(&config.listen, config.advertise.as_deref(), token.as_deref(), None, shutdown).await?;
    let shell = &bound.shell;
    let here = vec![shell.advertise.clone()];
    // Alone it waits for nobody; after a restart it stays quiet for twice the election time.
    let meta_config = meta::Config {
        dir: config.dir.join("meta"),
        heartbeat_ms: 100,
        election_ms: 300,
        ..meta::Config::default()
    };
    let member = meta::open(meta_config, shell, Arc::new(OsFs::default())).await?;
    let client = MetaClient::start(&here, shell.credentials.clone(), &shell.tasks)?;
    let control = control::open(config.tuning, shell, client.clone())?;
    let router_config = router::Config {
        meta: here.clone(),
        last_good_file: Some(config.dir.join("routes")),
        ..router::Config::default()
    };
    let router = router::open(router_config, shell, client.clone()).await?;
    let access_config = access::Config { meta: here.clone(), routers: here, ..access::Config::default() };
    let routes = member.add_to(Routes::default(), shell);
    let routes = control::add_to(routes, &control, shell);
    let routes = router::add_to(routes, &router, shell);
    let routes = access::add_to(routes, access_config, client, shell);
    Ok(bound.serve(routes))
}
