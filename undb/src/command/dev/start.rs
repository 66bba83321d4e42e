//! Starting the parts in order, waiting until they work, and ending them in the other order.

use super::Args;
use super::addresses::Addresses;
use super::directory::Directory;
use crate::command::run::role::{first_reason, proxy_failed, server_failed, store_failed};
use crate::exit::{Exit, Failure, Outcome};
use futures::future::{join_all, select_all};
use std::time::Duration;
use tokio::time::Instant;
use undb_runtime::Shutdown;
use undb_runtime::admin::Readiness;
use undb_sdk::{Admin, Options};
use undb_server::embedded;

const READY_TIMEOUT: Duration = Duration::from_secs(120);
const ASK_INTERVAL: Duration = Duration::from_millis(100);
const PATIENCE_NOTE: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_secs(20);
/// Nobody is left to take leaders over when all stores end together.
const STORE_STOP_MS: u64 = 4_000;

/// What runs.
pub struct Cluster {
    pub api: String,
    pub resp: String,
    pub http: String,
    proxy: Part,
    stores: Vec<Part>,
    control: Part,
}

/// A part, its end, and the watcher that waits for it.
struct Part {
    shutdown: Shutdown,
    ended: tokio::sync::watch::Receiver<Option<Result<(), String>>>,
    name: String,
}

impl Part {
    fn new(
        name: String,
        shutdown: Shutdown,
        join: impl Future<Output = Outcome<()>> + Send + 'static,
    ) -> Self {
        let (sender, ended) = tokio::sync::watch::channel(None);
        // The process's main task owns the parts and waits for each in `stop`.
        tokio::spawn(async move {
            let result = join.await.map_err(|failure| failure.message);
            sender.send_replace(Some(result));
        });
        Self { shutdown, ended, name }
    }

    /// Completes when the part has ended.
    async fn ended(&self) -> Result<(), String> {
        let mut ended = self.ended.clone();
        let result = ended.wait_for(Option::is_some).await;
        match result {
            Ok(value) => value.clone().unwrap_or(Ok(())),
            Err(_) => Err("its task was lost".into()),
        }
    }

    async fn stop(&self) -> Result<(), String> {
        self.shutdown.begin();
        self.ended().await.map_err(|reason| format!("{}: {reason}", self.name))
    }
}

/// Starts everything and returns when a client can use it.
pub async fn start(
    args: &Args,
    addresses: &Addresses,
    token: Option<String>,
    directory: &Directory,
) -> Outcome<Cluster> {
    let readiness = Readiness::default();
    let (control, api) = start_control(args, addresses, directory, &readiness).await?;
    let stores = start_stores(directory, &api, token.as_deref(), &readiness).await?;
    wait_for_default_table(&api, token, &stores).await?;
    let shutdown = Shutdown::new(GRACE);
    let config = undb_proxy::Config {
        resp: addresses.resp.clone(),
        http: addresses.http.clone(),
        endpoints: vec![api.clone()],
        token_file: args.token_file.clone(),
        cache_dir: Some(directory.path.join("proxy")),
        ..undb_proxy::Config::default()
    };
    let proxy = undb_proxy::start(config, readiness, shutdown.clone()).await.map_err(proxy_failed)?;
    let (resp, http, tasks) = (proxy.resp, proxy.http, proxy.tasks);
    let proxy =
        Part::new("proxy".into(), shutdown, async move { tasks.join().await.map_err(Failure::local) });
    Ok(Cluster { api, resp, http, proxy, stores, control })
}

async fn start_control(
    args: &Args,
    addresses: &Addresses,
    directory: &Directory,
    readiness: &Readiness,
) -> Outcome<(Part, String)> {
    let shutdown = Shutdown::new(GRACE);
    let mut config = embedded::Config {
        listen: addresses.api.clone(),
        advertise: addresses.api_advertise.clone(),
        dir: directory.path.join("control"),
        token_file: args.token_file.clone(),
        ..embedded::Config::default()
    };
    config.tuning.stores_expected = directory.stores.min(3);
    let running = embedded::start(config, shutdown.clone()).await.map_err(server_failed)?;
    let checks = running.readiness.clone();
    readiness.register("control plane", move || first_reason(&checks));
    let api = addresses.api_advertise.clone().unwrap_or_else(|| running.address.to_string());
    let part =
        Part::new(
            "control plane".into(),
            shutdown,
            async move { running.join().await.map_err(Failure::local) },
        );
    Ok((part, api))
}

/// Stores that are known all at once, because they need each other; new ones in order, so that store-1
/// is store 1.
async fn start_stores(
    directory: &Directory,
    api: &str,
    token: Option<&str>,
    readiness: &Readiness,
) -> Outcome<Vec<Part>> {
    let is_new = |n: &u32| !directory.path.join(format!("store-{n}/identity.json")).exists();
    let (new, known): (Vec<u32>, Vec<u32>) = (1..=directory.stores).partition(is_new);
    let starting = known.into_iter().map(|n| start_store(n, directory, api, token, readiness));
    let mut stores: Vec<Part> = join_all(starting).await.into_iter().collect::<Outcome<_>>()?;
    for n in new {
        stores.push(start_store(n, directory, api, token, readiness).await?);
    }
    Ok(stores)
}

async fn start_store(
    n: u32,
    directory: &Directory,
    api: &str,
    token: Option<&str>,
    readiness: &Readiness,
) -> Outcome<Part> {
    let name = format!("store-{n}");
    let shutdown = Shutdown::new(GRACE);
    let mut config = undb_store::Config::new(directory.path.join(&name), vec![api.to_owned()]);
    config.listen = "127.0.0.1:0".into();
    config.zone = format!("zone-{n}");
    config.token = token.unwrap_or_default().to_owned();
    config.label = name.clone();
    config.stop_deadline_ms = STORE_STOP_MS;
    // On a machine that also compiles, a slow moment must not look like a lost leader.
    config.raft.heartbeat_ms = 400;
    config.raft.election_min_ms = 2_000;
    config.raft.election_max_ms = 3_000;
    let running = undb_store::start(config, shutdown.child()).await.map_err(store_failed)?;
    readiness.register(name.clone(), running.readiness_check());
    let (part, dir, end) = (name.clone(), directory.path.clone(), shutdown.clone());
    let join = async move {
        match running.join().await {
            // What somebody asked for is no failure: the others go on without it.
            Err(undb_store::StoreError::Removed { .. }) => {
                set_aside(&dir, &part);
                end.begun().await;
                Ok(())
            }
            ended => ended.map_err(store_failed),
        }
    };
    Ok(Part::new(name, shutdown, join))
}

/// A removed store never returns: its directory is kept under another name, and the next start begins an
/// empty store in its place.
fn set_aside(dir: &std::path::Path, name: &str) {
    let free = (1..).map(|n| dir.join(format!("{name}.removed-{n}"))).find(|path| !path.exists());
    let Some(aside) = free else { return };
    match std::fs::rename(dir.join(name), &aside) {
        Ok(()) => eprintln!("{name} was removed; what it had is in {}", aside.display()),
        Err(error) => eprintln!("{name} was removed; move its directory away: {error}"),
    }
}

/// Waits until the table that is there from the start can be used.
async fn wait_for_default_table(api: &str, token: Option<String>, stores: &[Part]) -> Outcome<()> {
    let mut options = Options::new([api]).token(token);
    options.timeouts.admin = Duration::from_secs(2);
    let admin = Admin::new(&options)?;
    let started = Instant::now();
    let mut next_note = started + PATIENCE_NOTE;
    loop {
        let reason = match default_table(&admin).await {
            Ok(()) => return Ok(()),
            Err(reason) => reason,
        };
        if let Some((name, reason)) = first_ended(stores) {
            return Err(Failure::local(format!("{name} ended: {reason}")));
        }
        if started.elapsed() > READY_TIMEOUT {
            return Err(Failure::new(
                Exit::Unavailable,
                format!(
                    "the table `default` is not ready after {}s: {reason}; UNDB_LOG=info shows more",
                    READY_TIMEOUT.as_secs()
                ),
            ));
        }
        if Instant::now() >= next_note {
            eprintln!("waiting: {reason}");
            next_note += PATIENCE_NOTE;
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}

async fn default_table(admin: &Admin) -> Result<(), String> {
    let objects = admin.get("tables", "default", "").await.map_err(|e| e.to_string())?;
    let Some(json) = objects.first() else { return Err("the table `default` is not there yet".into()) };
    let object: serde_json::Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
    let status = &object["status"];
    if status["ready"].as_bool() == Some(true) {
        return Ok(());
    }
    Err(status["reason"].as_str().filter(|r| !r.is_empty()).unwrap_or("no reason given").to_owned())
}

fn first_ended(stores: &[Part]) -> Option<(String, String)> {
    stores.iter().find_map(|part| {
        let ended = part.ended.borrow().clone()?;
        Some((part.name.clone(), ended.err().unwrap_or_else(|| "without a reason".into())))
    })
}

impl Cluster {
    /// How many stores run.
    pub fn stores(&self) -> usize {
        self.stores.len()
    }

    /// Completes when a part ends that nobody ended.
    pub async fn failed(&self) -> Failure {
        let parts = self.stores.iter().chain([&self.proxy, &self.control]);
        let ends = parts.map(|part| Box::pin(async move { (part.name.clone(), part.ended().await) }));
        let ((name, result), _, _) = select_all(ends).await;
        let reason = result.err().unwrap_or_else(|| "without a reason".into());
        Failure::local(format!("{name} ended: {reason}"))
    }

    /// Ends what clients use first and what stores need last.
    pub async fn stop(self) -> Outcome<()> {
        let mut failures = vec![self.proxy.stop().await];
        failures.extend(join_all(self.stores.iter().map(Part::stop)).await);
        failures.push(self.control.stop().await);
        let failures: Vec<String> = failures.into_iter().filter_map(Result::err).collect();
        if failures.is_empty() { Ok(()) } else { Err(Failure::local(failures.join("; "))) }
    }
}
