//! The six roles: their configurations and how each is started and waited for.

use crate::exit::{Exit, Failure, Outcome};
use std::path::Path;
use undb_runtime::admin::{Pages, Readiness};
use undb_runtime::{RuntimeError, Shutdown, config};
use undb_server::ServerError;
use undb_store::StoreError;

/// What a process can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// What exists: a member of the metadata group
    Meta,
    /// Decides and repairs
    Control,
    /// Tells clients where shards are
    Router,
    /// Where clients begin
    Access,
    /// Keeps data
    Store,
    /// Redis and HTTP in front of the cluster
    Proxy,
}

impl Role {
    /// Every field with its unit and default.
    pub fn documented_config(self) -> &'static str {
        match self {
            Self::Meta => include_str!("config/meta.toml"),
            Self::Control => include_str!("config/control.toml"),
            Self::Router => include_str!("config/router.toml"),
            Self::Access => include_str!("config/access.toml"),
            Self::Store => include_str!("config/store.toml"),
            Self::Proxy => include_str!("config/proxy.toml"),
        }
    }

    /// Runs it until it ends. `readiness` gets its checks, `pages` what it has to show.
    pub async fn run(
        self,
        path: &Path,
        readiness: &Readiness,
        pages: &Pages,
        shutdown: &Shutdown,
    ) -> Outcome<()> {
        let server = match self {
            Self::Meta => undb_server::meta::start(config::load(path)?, shutdown.clone()).await,
            Self::Control => undb_server::control::start(config::load(path)?, shutdown.clone()).await,
            Self::Router => undb_server::router::start(config::load(path)?, shutdown.clone()).await,
            Self::Access => undb_server::access::start(config::load(path)?, shutdown.clone()).await,
            Self::Store => return store(config::load(path)?, readiness, pages, shutdown).await,
            Self::Proxy => return proxy(config::load(path)?, readiness, shutdown).await,
        };
        let running = server.map_err(server_failed)?;
        tracing::info!(role = self.name(), address = %running.address, "role serves");
        started(readiness);
        let checks = running.readiness.clone();
        readiness.register(self.name(), move || first_reason(&checks));
        running.join().await.map_err(Failure::local)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Control => "control",
            Self::Router => "router",
            Self::Access => "access",
            Self::Store => "store",
            Self::Proxy => "proxy",
        }
    }
}

fn started(readiness: &Readiness) {
    readiness.register("started", || Ok(()));
}

/// Folds the checks of a part into one of the process.
pub fn first_reason(checks: &Readiness) -> Result<(), String> {
    match checks.not_ready().into_iter().next() {
        Some((name, reason)) => Err(format!("{name}: {reason}")),
        None => Ok(()),
    }
}

async fn store(
    config: undb_store::Config,
    readiness: &Readiness,
    pages: &Pages,
    shutdown: &Shutdown,
) -> Outcome<()> {
    let running = undb_store::start(config, shutdown.clone()).await.map_err(store_failed)?;
    tracing::info!(role = "store", address = running.address, store = running.store_id, "role serves");
    started(readiness);
    readiness.register("store", running.readiness_check());
    pages.register("/replicas", running.replicas_page());
    running.join().await.map_err(store_failed)
}

async fn proxy(config: undb_proxy::Config, readiness: &Readiness, shutdown: &Shutdown) -> Outcome<()> {
    let running =
        undb_proxy::start(config, readiness.clone(), shutdown.clone()).await.map_err(proxy_failed)?;
    tracing::info!(role = "proxy", resp = running.resp, http = running.http, "role serves");
    started(readiness);
    running.tasks.join().await.map_err(Failure::local)
}

/// A server that did not start.
pub fn server_failed(error: ServerError) -> Failure {
    match error {
        ServerError::Runtime(error) => error.into(),
        ServerError::Config { .. } => Failure::invalid(error),
        ServerError::Damaged { .. } => Failure::new(Exit::Corrupt, error),
        _ => Failure::local(error),
    }
}

/// A store that did not start, or ended by itself.
pub fn store_failed(error: StoreError) -> Failure {
    let exit = match &error {
        StoreError::Config(_) => Exit::Invalid,
        StoreError::Corrupt { .. } | StoreError::Damaged { .. } | StoreError::IdentityMissing { .. } => {
            Exit::Corrupt
        }
        StoreError::Stopped => Exit::Interrupted,
        StoreError::Internal(_) | StoreError::Raft(_) => Exit::Internal,
        _ => Exit::Local,
    };
    Failure::new(exit, error)
}

/// A proxy that did not start.
pub fn proxy_failed(error: undb_proxy::StartError) -> Failure {
    match error {
        undb_proxy::StartError::Runtime(error) => RuntimeError::into(error),
        undb_proxy::StartError::Cluster(error) => error.into(),
        undb_proxy::StartError::Ended => Failure::new(Exit::Interrupted, error),
        other => Failure::local(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    /// The documented file says exactly what the code does without a file, field by field.
    fn documents<T: Serialize + DeserializeOwned>(role: Role, default: &T, optional: &[&str]) {
        let text = role.documented_config();
        let parsed: T = config::parse(text, role.name()).expect("the documented file is read");
        let json = |value: &T| serde_json::to_value(value).expect("plain data");
        assert_eq!(json(&parsed), json(default), "{role:?}");
        for field in fields(&json(default)) {
            assert!(
                text.contains(&format!("\n{field} = "))
                    || optional.contains(&field.as_str()) && text.contains(&format!("\n# {field} = ")),
                "{role:?}: {field} is not documented"
            );
        }
    }

    /// The commented-out table is one that is read, with every field of it.
    #[test]
    fn the_table_tls_of_every_role_is_documented() {
        let roles = [Role::Meta, Role::Control, Role::Router, Role::Access, Role::Store, Role::Proxy];
        for role in roles {
            let text = role.documented_config();
            let (_, table) = text.split_once("# [tls]\n").expect("a table tls");
            let lines = table.lines().filter(|l| l.contains("_file = "));
            let table: String = lines.map(|l| format!("{}\n", l.trim_start_matches("# "))).collect();
            let files: undb_runtime::TlsFiles = config::parse(&table, role.name()).expect("it is read");
            assert!(files.cert_file.is_some() && files.key_file.is_some(), "{role:?}");
        }
    }

    fn fields(value: &serde_json::Value) -> Vec<String> {
        let serde_json::Value::Object(map) = value else { return Vec::new() };
        map.iter()
            .flat_map(|(key, below)| match below {
                serde_json::Value::Object(_) => fields(below),
                _ => vec![key.clone()],
            })
            .collect()
    }

    #[test]
    fn every_field_is_documented_with_its_default() {
        use undb_server::{access, control, meta, router};
        documents(Role::Meta, &meta::Config::default(), &["advertise", "cluster_id", "token_file"]);
        documents(Role::Control, &control::Config::default(), &["advertise", "token_file"]);
        documents(Role::Router, &router::Config::default(), &["advertise", "token_file", "last_good_file"]);
        documents(Role::Access, &access::Config::default(), &["token_file"]);
        documents(Role::Proxy, &undb_proxy::Config::default(), &["token_file", "cache_dir"]);
        let store = undb_store::Config::new("undb-store", vec!["127.0.0.1:7391".into()]);
        documents(Role::Store, &store, &[]);
    }
}
