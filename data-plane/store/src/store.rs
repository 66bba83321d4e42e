//! What all parts of one store share: who it is, its replicas, its log and engine.

use crate::addresses::Addresses;
use crate::barrier::BarrierGate;
use crate::batcher::Bounds;
use crate::budget::Budget;
use crate::config::{Config, ReadBarrier};
use crate::directory::{AuthoritySeen, Descriptor, Directory, ReplicaState, Replicas, write_authority};
use crate::disk::DiskGate;
use crate::error::StoreError;
use crate::machine::ShardMachine;
use crate::meters::Meters;
use crate::replica::{Open, Replica};
use crate::writer::{Writer, WriterParts};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;
use undb_engine::Engine;
use undb_engine::shard::{Shard, ShardOptions};
use undb_engine::tree::EngineKind;
use undb_log::Log;
use undb_proto::v1::ErrorCode;
use undb_proto::{v1, wire_error};
use undb_raft::{Barrier, Host};
use undb_runtime::{Clock, Shutdown, Tasks};
use undb_types::{GroupId, KeyRange, LogId};
use undb_vfs::Fs;

/// Most shards in one EPOCH_NOT_MATCH.
const EPOCH_SHARDS_MAX: usize = 16;

/// The shared parts.
pub struct Store {
    pub config: Config,
    pub dir: PathBuf,
    pub fs: Arc<dyn Fs>,
    pub cluster_id: String,
    pub store_id: u64,
    pub uuid: String,
    /// HOST:PORT that others dial.
    pub address: String,
    pub log: Log,
    pub engine: Arc<Engine>,
    pub host: Host,
    pub descriptors: Replicas,
    pub addresses: Arc<Addresses>,
    pub tasks: Tasks,
    pub clock: Clock,
    pub shutdown: Shutdown,
    pub budget: Budget,
    pub disk: Arc<DiskGate>,
    pub meters: Arc<Meters>,
    /// Leaders are being moved away; control gives it no new ones.
    pub stopping: AtomicBool,
    /// Control has answered since the start.
    pub registered: AtomicBool,
    /// It has been ready once since the start.
    pub was_ready: AtomicBool,
    /// Sessions end.
    pub closing: CancellationToken,
    /// By shard. Leaf lock.
    pub replicas: RwLock<BTreeMap<u64, Arc<Replica>>>,
    /// Replica ids that are spent. Leaf lock.
    pub tombstones: Mutex<HashSet<GroupId>>,
    /// Rank: before the file system; held while the newest authority is written down.
    pub authority: Mutex<AuthoritySeen>,
    /// Serialises making and destroying replicas.
    pub changing: tokio::sync::Mutex<()>,
    /// Why the store ends. Leaf lock; the first stays.
    pub fatal: Mutex<Option<StoreError>>,
    /// A heartbeat is due before its time.
    pub beat_now: tokio::sync::Notify,
    /// Value of the label `store` on metrics.
    pub label: String,
    /// Logs that garbage collection waits for, and how far. Leaf lock.
    pub purge_wanted: Mutex<BTreeMap<GroupId, LogId>>,
    /// Keeps the directory locked until the end. Leaf lock.
    pub directory: Mutex<Option<Directory>>,
}

impl Store {
    /// This store's replica of a shard.
    pub fn replica(&self, shard: u64) -> Option<Arc<Replica>> {
        self.replicas.read().get(&shard).cloned()
    }

    /// All replicas.
    pub fn all(&self) -> Vec<Arc<Replica>> {
        self.replicas.read().values().cloned().collect()
    }

    /// Ends the store, saying why; the first reason counts.
    pub fn fail(&self, error: StoreError) {
        let mut fatal = self.fatal.lock();
        if fatal.is_none() {
            tracing::error!(store = self.store_id, %error, "store ends");
            *fatal = Some(error);
        }
        drop(fatal);
        self.shutdown.begin();
    }

    /// EPOCH_NOT_MATCH with the shards of a table here that cover a range.
    pub fn epoch_error(&self, table_id: u64, range: &KeyRange) -> v1::Error {
        let overlaps = |r: &&Arc<Replica>| {
            r.descriptor.lock().table_id == table_id && !r.range.intersect(range).is_empty()
        };
        let mut covering: Vec<Arc<Replica>> =
            self.replicas.read().values().filter(overlaps).cloned().collect();
        covering.sort_by(|a, b| a.range.start.cmp(&b.range.start));
        covering.truncate(EPOCH_SHARDS_MAX);
        let shards = covering.iter().map(|replica| replica.shard()).collect();
        v1::Error { shards, ..wire_error(ErrorCode::EpochNotMatch, "the shard's range is another one now") }
    }

    /// Opens what a descriptor names; a replica that cannot be opened is there, faulty.
    pub async fn open_replica(self: &Arc<Self>, descriptor: Descriptor) -> Arc<Replica> {
        let range = match descriptor.range() {
            Ok(range) => range,
            Err(why) => return Arc::new(Replica::faulty(descriptor, KeyRange::all(), why)),
        };
        let replica = match self.open_parts(&descriptor).await {
            Ok(open) => Replica::open(descriptor, range, open),
            Err(why) => {
                tracing::error!(group = %descriptor.group(), why, "replica not opened");
                Replica::faulty(descriptor, range, why)
            }
        };
        Arc::new(replica)
    }

    /// Tree, machine, group and the paths to them.
    pub async fn open_parts(self: &Arc<Self>, descriptor: &Descriptor) -> Result<Open, String> {
        let id = descriptor.group();
        let kind = engine_kind(&descriptor.engine)
            .ok_or_else(|| format!("engine {:?} is not known to this release", descriptor.engine))?;
        if descriptor.state == ReplicaState::Started && log_is_empty(&self.log, id) {
            return Err("its log is gone although it had one: the replica must be replaced".into());
        }
        let engine = self.engine.clone();
        let threshold = u32::try_from(descriptor.threshold_bytes).unwrap_or(u32::MAX);
        let options = ShardOptions { version_base: descriptor.version_base };
        let user_bytes = self.meters.user_bytes.clone();
        let machine = tokio::task::spawn_blocking(move || {
            let tree = engine.open_tree(id, kind, threshold).map_err(|e| e.to_string())?;
            let shard = Shard::open(tree, options).map_err(|e| e.to_string())?;
            ShardMachine::open(shard, user_bytes).map_err(|e| e.to_string())
        });
        let machine = Arc::new(machine.await.map_err(|e| e.to_string())??);
        let group = self.host.open(id, machine.clone()).await.map_err(|e| e.to_string())?;
        let limits = &self.config.limits;
        let parts = WriterParts {
            clock: self.clock.clone(),
            tasks: self.tasks.clone(),
            disk: self.disk.clone(),
            meters: self.meters.clone(),
            bounds: Bounds {
                commands: limits.entry_commands,
                bytes: limits.entry_bytes,
                queue: limits.shard_queue,
            },
            in_flight_max: limits.entries_in_flight,
        };
        let kind = match self.config.raft.reads {
            ReadBarrier::Lease => Barrier::Lease,
            ReadBarrier::ReadIndex => Barrier::ReadIndex,
        };
        Ok(Open {
            writer: Writer::new(group.clone(), parts, descriptor.ttl_ms),
            barrier: BarrierGate::new(group.clone(), kind, self.tasks.clone()),
            group,
            machine,
        })
    }

    /// Takes a replica out of service; the others go on, and control hears of it.
    pub fn quarantine(self: &Arc<Self>, replica: &Arc<Replica>, why: &str) {
        if replica.fault().is_some() {
            return;
        }
        replica.quarantine(why);
        tracing::error!(group = %replica.id, why, "replica quarantined");
        self.meters.quarantined.increment(1);
        let (host, id) = (self.host.clone(), replica.id);
        self.tasks.spawn("close group", async move {
            if let Err(error) = host.close(id).await {
                tracing::warn!(group = %id, %error, "group did not close");
            }
        });
    }

    /// Takes note of an authority; refuses one that is older than the newest seen. Blocks on the disk
    /// when it is newer.
    pub fn admit(&self, incarnation: u32, control_lease: u64) -> Result<(), v1::Error> {
        let said = AuthoritySeen { incarnation, control_lease };
        let mut seen = self.authority.lock();
        if said < *seen {
            let message = format!("authority {said:?} is older than {:?}, which this store has seen", *seen);
            return Err(wire_error(ErrorCode::Fenced, message));
        }
        if said > *seen {
            write_authority(&*self.fs, &self.dir, said)
                .map_err(|e| wire_error(ErrorCode::Internal, e.to_string()))?;
            *seen = said;
        }
        Ok(())
    }

    /// True while leaders are being moved away.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// The engine that users write as `name`; empty: the default.
pub fn engine_kind(name: &str) -> Option<EngineKind> {
    let known = [EngineKind::Separated, EngineKind::Lsm, EngineKind::Sled];
    if name.is_empty() {
        return Some(EngineKind::default());
    }
    known.into_iter().find(|kind| kind.name() == name)
}

/// True when a group has neither entries nor a vote in the log.
pub fn log_is_empty(log: &Log, id: GroupId) -> bool {
    let state = log.state(id);
    state.last.is_none() && state.purged.is_none() && state.vote.is_none()
}
