//! From a configuration to a store that serves, and back.
//!
//! ```text
//! directory -> log, engine -> register (the first time: wait for control) -> replicas -> serve
//! ```

use crate::addresses::Addresses;
use crate::admin::AdminService;
use crate::budget::Budget;
use crate::config::Config;
use crate::control::{Control, registration};
use crate::directory::{Directory, Identity, ReplicaState};
use crate::disk::DiskGate;
use crate::error::StoreError;
use crate::kv::KvService;
use crate::meters::Meters;
use crate::store::Store;
use futures::StreamExt;
use futures::stream;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::interceptor::InterceptedService;
use undb_engine::{Engine, EngineError, EngineOptions};
use undb_log::{Log, LogError, LogOptions};
use undb_proto::v1::kv_server::KvServer;
use undb_proto::v1::store_server::StoreServer;
use undb_raft::{Host, HostOptions, Timing};
use undb_runtime::rpc::{self, MESSAGE_BYTES_MAX, Routes};
use undb_runtime::{Bearer, Clock, Credentials, InternalCheck, Shutdown, Tasks, Tls, TokenCheck};
use undb_vfs::{Fs, OsFs};

/// What a store takes from the machine; tests give their own.
#[derive(Clone, Debug)]
pub struct Env {
    /// Through which all files go; none: the real ones.
    pub fs: Option<Arc<dyn Fs>>,
    /// Time for entries and expiry.
    pub clock: Clock,
}

impl Default for Env {
    fn default() -> Self {
        Self { fs: None, clock: Clock::real() }
    }
}

/// A store that serves.
pub struct Running {
    /// HOST:PORT that others dial.
    pub address: String,
    /// Given by metadata.
    pub store_id: u64,
    store: Arc<Store>,
}

impl Running {
    /// `Err` says in a person's words what keeps it from being ready.
    pub fn readiness(&self) -> Result<(), String> {
        self.store.readiness()
    }

    /// The same as a check that outlives this handle.
    pub fn readiness_check(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static {
        let store = self.store.clone();
        move || store.readiness()
    }

    /// What each replica here says of itself, as a JSON array: for people, and for tests that look at a
    /// cluster from outside.
    pub fn replicas_page(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let store = self.store.clone();
        move || crate::report::page(&store)
    }

    /// Begins the end of this store alone.
    pub fn begin_stop(&self) {
        self.store.shutdown.begin();
    }

    /// Waits for the end; the error says why it ended, if not because it was asked to.
    pub async fn join(self) -> Result<(), StoreError> {
        let ended = self.store.tasks.join().await;
        if let Some(fatal) = self.store.fatal.lock().take() {
            return Err(fatal);
        }
        ended.map_err(|failure| StoreError::Internal(failure.to_string()))
    }
}

/// Starts a store and returns when it serves. It ends when `shutdown` begins, or by itself when it
/// cannot go on; `Running::join` says why.
pub async fn start(config: Config, shutdown: Shutdown) -> Result<Running, StoreError> {
    start_with(config, Env::default(), shutdown).await
}

/// The same with files and time of the caller's.
pub async fn start_with(mut config: Config, env: Env, shutdown: Shutdown) -> Result<Running, StoreError> {
    config.validate()?;
    if let Some(file) = &config.zone_file {
        config.zone = crate::zone::wait_for(file).await?;
    }
    let bearer = Bearer::new(Some(&config.token)).map_err(|e| StoreError::Config(format!("token: {e}")))?;
    let tls = config.tls.as_ref().map(Tls::open_server).transpose();
    let tls = tls.map_err(|e| StoreError::Config(e.to_string()))?;
    let credentials = Credentials::new(bearer, tls.clone());
    let shutdown = shutdown.child();
    let (mut directory, log, engine) = open_disk(&config, &env).await?;
    let listener = listen(&config.listen).await?;
    let address = advertised(&config, &listener)?;
    let control = Arc::new(Control::new(config.control.clone(), credentials.clone()));
    let addresses = Arc::new(Addresses::default());
    if !directory.identity.registered() {
        directory = register_first(&config, directory, &control, &address, &shutdown).await?;
    }
    let identity = directory.identity.clone();
    let raft = &config.raft;
    let ms = Duration::from_millis;
    let host = Host::start(HostOptions {
        cluster_id: identity.cluster_id.clone(),
        store: identity.store_id,
        log: log.clone(),
        addresses: addresses.clone(),
        timing: Timing {
            heartbeat: ms(raft.heartbeat_ms),
            election_min: ms(raft.election_min_ms),
            election_max: ms(raft.election_max_ms),
            ..Timing::default()
        },
        snapshot_bytes_per_s: raft.snapshot_bytes_per_s,
        credentials,
    })
    .map_err(|e| StoreError::Raft(e.to_string()))?;
    let store = Arc::new(assemble(config, env, directory, log, engine, host, addresses, address, shutdown)?);
    open_all(&store).await?;
    serve(&store, listener, tls, control, identity);
    tracing::info!(
        store = store.store_id,
        address = store.address,
        replicas = store.replicas.read().len(),
        "store serves"
    );
    Ok(Running { address: store.address.clone(), store_id: store.store_id, store })
}

async fn open_disk(config: &Config, env: &Env) -> Result<(Directory, Log, Arc<Engine>), StoreError> {
    let (config, fs) = (config.clone(), env.fs.clone());
    let fs = fs.unwrap_or_else(|| Arc::new(OsFs::new(&config.dir)));
    let opened = tokio::task::spawn_blocking(move || {
        let directory = Directory::open(fs.clone(), &config.dir)?;
        let space =
            fs.space(&config.dir).map_err(|source| StoreError::Io { path: config.dir.clone(), source })?;
        let capacity =
            if config.capacity_bytes == 0 { space.total } else { space.total.min(config.capacity_bytes) };
        let log_options = LogOptions {
            // Below ours, so that a user's write is refused before it can stop a replica.
            reserve_bytes: (config.reserve_bytes(capacity) / 2).min(LogOptions::default().reserve_bytes),
            segment_bytes: config.log.segment_bytes,
            cache_bytes: config.log.cache_bytes as usize,
            store: config.label.clone(),
            ..LogOptions::default()
        };
        let log =
            Log::open(fs.clone(), &directory.log(), log_options).map_err(|e| log_failed(&config.dir, e))?;
        let options = EngineOptions {
            log_tail_bytes_max: config.log.retained_bytes / 2,
            ..EngineOptions::within_memory(config.engine.memory_bytes)
        };
        let engine = Engine::open(fs, &directory.engine(), log.clone(), options)
            .map_err(|e| engine_failed(&config.dir, e))?;
        Ok((directory, log, engine))
    });
    opened.await.map_err(|e| StoreError::Internal(e.to_string()))?
}

fn log_failed(dir: &Path, error: LogError) -> StoreError {
    match error {
        LogError::Corrupt { segment, offset, what } => StoreError::Damaged {
            path: dir.to_path_buf(),
            detail: format!("log segment {segment} at offset {offset}: {what}"),
        },
        LogError::NewerFormat { path, found, supported } => {
            StoreError::NewerFormat { path, found, known: supported }
        }
        other => StoreError::Log(other.to_string()),
    }
}

fn engine_failed(dir: &Path, error: EngineError) -> StoreError {
    match error {
        EngineError::Corrupt { what, detail } => {
            StoreError::Damaged { path: dir.to_path_buf(), detail: format!("{what}: {detail}") }
        }
        EngineError::NewerFormat { path, found, supported } => {
            StoreError::NewerFormat { path, found, known: supported }
        }
        other => StoreError::Engine(other.to_string()),
    }
}

async fn listen(address: &str) -> Result<TcpListener, StoreError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StoreError::Listen { address: address.to_string(), source })
}

fn advertised(config: &Config, listener: &TcpListener) -> Result<String, StoreError> {
    if !config.advertise.is_empty() {
        return Ok(config.advertise.clone());
    }
    let bound = listener
        .local_addr()
        .map_err(|source| StoreError::Listen { address: config.listen.clone(), source })?;
    if bound.ip().is_unspecified() {
        let message = "advertise: name the address that others dial, because `listen` is on all interfaces";
        return Err(StoreError::Config(message.into()));
    }
    Ok(bound.to_string())
}

/// A new store has no id until control gives it one.
async fn register_first(
    config: &Config,
    mut directory: Directory,
    control: &Control,
    address: &str,
    shutdown: &Shutdown,
) -> Result<Directory, StoreError> {
    let request = registration(&directory.identity, config, address, true);
    let answer = control.register_until(request, &config.dir, shutdown).await?;
    let store_id = answer.store.map_or(0, |s| s.store_id);
    if store_id == 0 || answer.cluster_id.is_empty() {
        return Err(StoreError::Refused("its answer names no store id or no cluster id".into()));
    }
    let adopted = tokio::task::spawn_blocking(move || {
        directory.adopt(&answer.cluster_id, store_id)?;
        Ok(directory)
    });
    adopted.await.map_err(|e| StoreError::Internal(e.to_string()))?
}

#[allow(clippy::too_many_arguments)] // The one place where all parts meet.
fn assemble(
    config: Config,
    env: Env,
    directory: Directory,
    log: Log,
    engine: Arc<Engine>,
    host: Host,
    addresses: Arc<Addresses>,
    address: String,
    shutdown: Shutdown,
) -> Result<Store, StoreError> {
    let Identity { cluster_id, uuid, store_id, .. } = directory.identity.clone();
    let label = if config.label.is_empty() { store_id.to_string() } else { config.label.clone() };
    Ok(Store {
        budget: Budget::new(config.request_memory_bytes),
        dir: directory.path.clone(),
        fs: directory.fs.clone(),
        cluster_id,
        store_id,
        uuid,
        label: label.clone(),
        address,
        log,
        engine,
        host,
        descriptors: directory.replicas(),
        addresses,
        tasks: Tasks::new(shutdown.clone()),
        clock: env.clock,
        shutdown,
        disk: Arc::new(DiskGate::default()),
        meters: Arc::new(Meters::new(&label)),
        stopping: AtomicBool::new(false),
        registered: AtomicBool::new(false),
        was_ready: AtomicBool::new(false),
        closing: CancellationToken::new(),
        beat_now: tokio::sync::Notify::new(),
        replicas: RwLock::new(BTreeMap::new()),
        tombstones: Mutex::new(HashSet::new()),
        authority: Mutex::new(directory.authority()?),
        changing: tokio::sync::Mutex::default(),
        fatal: Mutex::new(None),
        purge_wanted: Mutex::default(),
        config,
        directory: Mutex::new(Some(directory)),
    })
}

/// Opens what the descriptors name, and ends destructions that a crash cut off.
async fn open_all(store: &Arc<Store>) -> Result<(), StoreError> {
    let descriptors = store.descriptors.clone();
    let all = tokio::task::spawn_blocking(move || descriptors.read_all());
    let all = all.await.map_err(|e| StoreError::Internal(e.to_string()))??;
    let (gone, here): (Vec<_>, Vec<_>) = all.into_iter().partition(|d| d.state == ReplicaState::Destroyed);
    let left_over: HashSet<_> = store.log.groups().into_iter().chain(store.engine.groups()).collect();
    for descriptor in &gone {
        store.tombstones.lock().insert(descriptor.group());
        if left_over.contains(&descriptor.group())
            && let Err(error) = store.bury(descriptor.group()).await
        {
            tracing::warn!(group = %descriptor.group(), error = error.message, "destroyed replica not buried yet");
        }
    }
    let opening = here.into_iter().map(|descriptor| store.open_replica(descriptor));
    let concurrency = store.config.limits.open_concurrency;
    let opened: Vec<_> = stream::iter(opening).buffer_unordered(concurrency).collect().await;
    let mut replicas = store.replicas.write();
    for replica in opened {
        replicas.insert(replica.id.shard.0, replica);
    }
    Ok(())
}

fn serve(
    store: &Arc<Store>,
    listener: TcpListener,
    tls: Option<Tls>,
    control: Arc<Control>,
    identity: Identity,
) {
    let token = TokenCheck::new(Some(&store.config.token));
    let internal = InternalCheck::new(token.clone(), tls.as_ref());
    let kv = KvServer::new(KvService { store: store.clone() })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let admin = StoreServer::new(AdminService { store: store.clone() });
    let routes = Routes::new(InterceptedService::new(kv, token))
        .add_service(InterceptedService::new(admin, internal.clone()))
        .add_service(InterceptedService::new(store.host.service(), internal));
    // The server outlives the beginning of the end: leaders move away while it serves.
    let ended = Shutdown::new(Duration::from_millis(store.config.stop_deadline_ms));
    store.tasks.spawn_critical("rpc", rpc::serve_over(listener, tls, routes, ended.clone()));
    store.tasks.spawn("heartbeats", store.clone().heartbeats(control, identity, ended.clone()));
    store.tasks.spawn("watch", store.clone().watch());
    store.tasks.spawn("tend", store.clone().tend());
    store.tasks.spawn("upkeep", store.clone().upkeep());
    store.tasks.spawn("stop", store.clone().stop_in_order(ended));
}

/// Reads who a store is without starting it, for tools.
pub fn identity_of(fs: Arc<dyn Fs>, dir: &Path) -> Result<Option<Identity>, StoreError> {
    crate::directory::read_identity(&*fs, dir)
}
