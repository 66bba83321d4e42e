//! The metadata service: one Raft group (shard 0) whose machine is `undb_meta::State`.
//!
//! ```text
//! dir/  LOCK           held while a process runs
//!       identity.json  cluster id, member id, format version; never changes
//!       image          the state at an entry; replaced atomically; the log before it is purged
//!       log/           undb-log segments
//! ```
//! All of `dir` goes when the member is given up for ever, never before: a member whose directory is
//! lost is replaced by one with a new id.

mod config;
mod directory;
mod image_file;
mod machine;
mod ring;
mod service;

pub use config::{Config, Member};
pub use image_file::IMAGE_FILE_VERSION;

use crate::running::{Bound, Shell, token_of};
use crate::{Running, ServerError};
use directory::Directory;
use machine::MetaMachine;
use service::MetaService;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use undb_log::{Log, LogError, LogOptions};
use undb_proto::v1::meta_server::MetaServer;
use undb_raft::{Group, Host, HostOptions, LastKnown, Timing};
use undb_runtime::rpc::{MESSAGE_BYTES_MAX, Routes};
use undb_runtime::{Clock, Shutdown};
use undb_types::{GroupId, ReplicaId, ShardId};
use undb_vfs::{Fs, OsFs};

/// Reads the bytes of an image file without starting a member, for tools.
pub fn read_image(
    bytes: &[u8],
    path: &std::path::Path,
) -> Result<undb_proto::v1::MetaImageFile, ServerError> {
    image_file::decode(bytes, path)
}

/// Starts a member on its own listener.
pub async fn start(config: Config, shutdown: Shutdown) -> Result<Running, ServerError> {
    config.validate()?;
    let token = token_of(config.token_file.as_deref())?;
    let bound = Bound::new(
        &config.listen,
        config.advertise.as_deref(),
        token.as_deref(),
        config.tls.as_ref(),
        shutdown,
    )
    .await?;
    let part = open(config, &bound.shell, Arc::new(OsFs::default())).await?;
    let routes = part.add_to(Routes::default(), &bound.shell);
    Ok(bound.serve(routes))
}

/// A member without its listener.
pub(crate) struct Part {
    service: MetaService,
    host: Host,
}

impl Part {
    /// Adds what the member serves.
    pub fn add_to(&self, routes: Routes, shell: &Shell) -> Routes {
        let meta = MetaServer::new(self.service.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let check = shell.internal.clone();
        routes
            .add_service(tonic::service::interceptor::InterceptedService::new(meta, check.clone()))
            .add_service(tonic::service::interceptor::InterceptedService::new(self.host.service(), check))
    }
}

/// Opens the directory, joins the group, and spawns what keeps it going.
pub(crate) async fn open(config: Config, shell: &Shell, fs: Arc<dyn Fs>) -> Result<Part, ServerError> {
    config.validate()?;
    let members = members_of(&config, &shell.advertise);
    let blocking_config = config.clone();
    let (directory, machine, log) = tokio::task::spawn_blocking(move || open_files(&blocking_config, fs))
        .await
        .map_err(|e| ServerError::Log(format!("opening the directory: {e}")))??;
    let host = Host::start(HostOptions {
        cluster_id: directory.cluster_id.clone(),
        store: config.member_id,
        log: log.clone(),
        addresses: Arc::new(LastKnown),
        timing: timing(&config),
        snapshot_bytes_per_s: 0,
        credentials: shell.credentials.clone(),
    })?;
    let group_id = GroupId { shard: ShardId(0), replica: ReplicaId(config.member_id) };
    let group = host.open(group_id, machine.clone()).await?;
    group.initialize(members.clone()).await?;
    let clock = Clock::real();
    let service = MetaService::new(service::Parts {
        cluster_id: directory.cluster_id.clone(),
        member_id: config.member_id,
        group: group.clone(),
        machine: machine.clone(),
        members,
        clock,
        tasks: shell.tasks.clone(),
    });
    spawn_keepers(&config, shell, &service, &group, &machine);
    spawn_closer(shell, host.clone(), log, directory);
    register_readiness(shell, &group);
    Ok(Part { service, host })
}

fn open_files(config: &Config, fs: Arc<dyn Fs>) -> Result<(Directory, Arc<MetaMachine>, Log), ServerError> {
    let directory = Directory::open(fs.clone(), config)?;
    let machine = MetaMachine::open(fs.clone(), &config.dir, config.watch_ring_len)?;
    let options = LogOptions { store: format!("meta-{}", config.member_id), ..LogOptions::default() };
    let log = Log::open(fs, &config.dir.join("log"), options).map_err(|e| log_failed(&config.dir, e))?;
    Ok((directory, Arc::new(machine), log))
}

fn log_failed(dir: &std::path::Path, error: LogError) -> ServerError {
    match error {
        LogError::Corrupt { segment, offset, what } => ServerError::Damaged {
            path: dir.join("log"),
            problem: format!("segment {segment} at offset {offset}: {what}"),
        },
        LogError::NewerFormat { path, found, supported } => {
            ServerError::NewerFormat { path, found, supported }
        }
        other => ServerError::Log(other.to_string()),
    }
}

fn members_of(config: &Config, advertise: &str) -> BTreeMap<u64, undb_raft::Member> {
    let one = |id, address: &str| (id, undb_raft::Member { store: id, address: address.into() });
    match config.members.is_empty() {
        true => BTreeMap::from([one(config.member_id, advertise)]),
        false => config.members.iter().map(|m| one(m.id, &m.address)).collect(),
    }
}

fn timing(config: &Config) -> Timing {
    Timing {
        heartbeat: Duration::from_millis(config.heartbeat_ms),
        election_min: Duration::from_millis(config.election_ms),
        election_max: Duration::from_millis(2 * config.election_ms),
        ..Timing::default()
    }
}

/// Gives the cluster its identity once this member leads, and purges the log behind images.
fn spawn_keepers(
    config: &Config,
    shell: &Shell,
    service: &MetaService,
    group: &Group,
    machine: &Arc<MetaMachine>,
) {
    let shutdown = shell.tasks.shutdown().clone();
    let service = service.clone();
    shell.tasks.spawn("meta-identity", async move {
        tokio::select! {
            () = shutdown.begun() => {}
            () = service.keep_identity() => {}
        }
    });
    let shutdown = shell.tasks.shutdown().clone();
    let (group, machine) = (group.clone(), machine.clone());
    let every = config.image_after_entries;
    shell.tasks.spawn("meta-image", async move {
        tokio::select! {
            () = shutdown.begun() => {}
            () = purge_behind_images(group, machine, every) => {}
        }
    });
}

async fn purge_behind_images(group: Group, machine: Arc<MetaMachine>, every: u64) {
    let mut changes = machine.changes();
    while changes.changed().await.is_ok() {
        let Some(applied) = machine.due_for_image(every) else { continue };
        match group.purge_to_durable(applied).await {
            Ok(_) => tracing::debug!(index = applied.index, "metadata log purged"),
            Err(error) => tracing::warn!(%error, "metadata log not purged"),
        }
    }
}

/// The last thing to end: the group stops, then the log is closed, then the lock is given back.
fn spawn_closer(shell: &Shell, host: Host, log: Log, directory: Directory) {
    let shutdown = shell.tasks.shutdown().clone();
    shell.tasks.spawn("meta-close", async move {
        shutdown.begun().await;
        host.shutdown().await;
        drop(host);
        let closed = tokio::task::spawn_blocking(move || {
            log.close();
            drop(directory);
        });
        if let Err(error) = closed.await {
            tracing::error!(%error, "metadata log not closed");
        }
    });
}

fn register_readiness(shell: &Shell, group: &Group) {
    let group = group.clone();
    shell.readiness.register("meta", move || {
        let status = group.status();
        if let Some(fatal) = status.fatal {
            return Err(format!("the metadata group stopped: {fatal}"));
        }
        match status.leader {
            Some(_) => Ok(()),
            None => Err("the metadata group has no leader; start a majority of its members".into()),
        }
    });
}
