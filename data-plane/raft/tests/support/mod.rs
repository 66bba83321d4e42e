//! Stores with hosts on loopback, real logs in a temporary directory, and machines in memory.
#![allow(dead_code)]

pub mod registers;

use parking_lot::Mutex;
use registers::{Disk, Op, Registers, number};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use undb_log::{Log, LogOptions};
use undb_raft::{AddressBook, Group, Host, HostOptions, Member, RaftError, Timing};
use undb_runtime::{Credentials, Shutdown, Tasks, rpc};
use undb_types::{GroupId, LogId, ReplicaId, ShardId};
use undb_vfs::{Fs, OsFs, SimFs};

/// Longer than anything takes on a slow machine.
pub const LONG: Duration = Duration::from_secs(60);
pub const SHARD: ShardId = ShardId(7);

pub fn timing() -> Timing {
    Timing {
        heartbeat: Duration::from_millis(100),
        election_min: Duration::from_millis(500),
        election_max: Duration::from_millis(1000),
        transfer: Duration::from_secs(20),
        catch_up: LONG,
    }
}

#[derive(Default)]
pub struct Book(Mutex<HashMap<u64, String>>);

impl AddressBook for Book {
    fn address(&self, store: u64, _fallback: &str) -> Option<String> {
        self.0.lock().get(&store).cloned()
    }
}

pub struct Store {
    pub id: u64,
    pub host: Host,
    pub log: Log,
    pub machines: HashMap<GroupId, Arc<Registers>>,
    tasks: Tasks,
    pub address: String,
}

pub struct Cluster {
    pub dir: TempDir,
    pub book: Arc<Book>,
    pub stores: BTreeMap<u64, Store>,
    disks: HashMap<GroupId, Disk>,
    /// Simulated file systems of stores that have one.
    pub sims: HashMap<u64, Arc<SimFs>>,
    simulated: bool,
    /// Of stores that start from now on.
    pub timing: Timing,
}

pub fn group(shard: ShardId, replica: u64) -> GroupId {
    GroupId { shard, replica: ReplicaId(replica) }
}

impl Cluster {
    pub async fn start(stores: impl IntoIterator<Item = u64>) -> Self {
        Self::start_on(stores, false).await
    }

    /// On file systems that fail and lose what was not synced.
    pub async fn start_simulated(stores: impl IntoIterator<Item = u64>) -> Self {
        Self::start_on(stores, true).await
    }

    async fn start_on(stores: impl IntoIterator<Item = u64>, simulated: bool) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (book, stores_ids) = (Arc::default(), stores);
        let mut cluster = Self {
            dir,
            book,
            stores: BTreeMap::new(),
            disks: HashMap::new(),
            sims: HashMap::new(),
            simulated,
            timing: timing(),
        };
        for id in stores_ids {
            cluster.start_store(id).await;
        }
        cluster
    }

    fn log_dir(&self, store: u64) -> PathBuf {
        self.dir.path().join(format!("store-{store}"))
    }

    /// Starts a store on what its directory holds, at a new address.
    pub async fn start_store(&mut self, id: u64) {
        let options = LogOptions { segment_bytes: 1 << 20, reserve_bytes: 1 << 20, ..LogOptions::default() };
        let dir = self.log_dir(id);
        let fs: Arc<dyn Fs> = match self.simulated {
            true => {
                std::fs::create_dir_all(&dir).expect("a directory");
                let sim = Arc::new(SimFs::new(&dir));
                self.sims.insert(id, sim.clone());
                sim
            }
            false => Arc::new(OsFs::default()),
        };
        let log = Log::open(fs, &dir, options).expect("the log opens");
        let host = Host::start(HostOptions {
            cluster_id: "test".into(),
            store: id,
            log: log.clone(),
            addresses: self.book.clone(),
            timing: self.timing,
            snapshot_bytes_per_s: 0,
            credentials: Credentials::default(),
        })
        .expect("the host starts");
        let listener = rpc::bind("127.0.0.1:0", "listen").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        self.book.0.lock().insert(id, address.clone());
        let tasks = Tasks::new(Shutdown::new(Duration::from_millis(10)));
        let routes = rpc::Routes::new(host.service());
        tasks.spawn_critical("rpc", rpc::serve(listener, routes, tasks.shutdown().clone()));
        self.stores.insert(id, Store { id, host, log, machines: HashMap::new(), tasks, address });
    }

    /// Ends a store; its machines forget what was not flushed, its directory stays.
    pub async fn stop_store(&mut self, id: u64) {
        let store = self.stores.remove(&id).expect("it runs");
        store.host.shutdown().await;
        store.tasks.shutdown().begin();
        let _ = store.tasks.join().await;
        drop(store.host);
        drop(store.machines);
        store.log.close();
    }

    /// Stops a store and takes its disk away.
    pub async fn wipe_store(&mut self, id: u64) {
        self.stop_store(id).await;
        std::fs::remove_dir_all(self.log_dir(id)).expect("the directory goes");
    }

    /// Opens a replica on a store.
    pub async fn open(&mut self, store: u64, group: GroupId) -> Group {
        let machine = Registers::open(self.disks.entry(group).or_default());
        let store = self.stores.get_mut(&store).expect("it runs");
        store.machines.insert(group, machine.clone());
        store.host.open(group, machine).await.expect("the group opens")
    }

    /// A shard with replica N on store N for each store, led by one of them.
    pub async fn found(&mut self, shard: ShardId) -> u64 {
        let ids: Vec<u64> = self.stores.keys().copied().collect();
        let voters: BTreeMap<u64, Member> = ids.iter().map(|id| (*id, self.member(*id))).collect();
        for id in &ids {
            let group = self.open(*id, group(shard, *id)).await;
            group.initialize(voters.clone()).await.expect("initializes");
        }
        // Each stands for election at once; the first write shows who stays.
        self.put(shard, Op::Put("founded".into(), 1)).await;
        self.leader(shard).await
    }

    pub fn member(&self, store: u64) -> Member {
        let address = self.stores.get(&store).map(|s| s.address.clone()).unwrap_or_default();
        Member { store, address }
    }

    pub fn group(&self, store: u64, shard: ShardId) -> Group {
        self.stores[&store].host.group(shard).expect("the group is open")
    }

    pub fn machine(&self, store: u64, group: GroupId) -> Arc<Registers> {
        self.stores[&store].machines[&group].clone()
    }

    /// The store that leads a shard, once all that run agree.
    pub async fn leader(&self, shard: ShardId) -> u64 {
        let groups: Vec<(u64, Group)> =
            self.stores.iter().filter_map(|(id, s)| Some((*id, s.host.group(shard)?))).collect();
        leader_of(&groups).await
    }

    /// Proposes on the leader, following it, until done.
    pub async fn put(&self, shard: ShardId, op: Op) -> (LogId, u64) {
        propose(&self.groups(shard), op).await
    }

    pub fn groups(&self, shard: ShardId) -> Vec<(u64, Group)> {
        self.stores.iter().filter_map(|(id, s)| Some((*id, s.host.group(shard)?))).collect()
    }

    /// Asks the leader, whoever that is by now, until it is done.
    pub async fn on_leader<T, F: Future<Output = Result<T, RaftError>>>(
        &self,
        shard: ShardId,
        ask: impl Fn(Group) -> F,
    ) -> (u64, T) {
        let all = async {
            loop {
                let leader = self.leader(shard).await;
                match ask(self.group(leader, shard)).await {
                    Ok(done) => return (leader, done),
                    Err(RaftError::NotLeader { .. } | RaftError::Busy) => tokio::task::yield_now().await,
                    Err(e) => panic!("{e}"),
                }
            }
        };
        tokio::time::timeout(LONG, all).await.expect("in time")
    }

    /// Waits until a store has applied an entry.
    pub async fn applied(&self, store: u64, shard: ShardId, at: LogId) {
        let mut watch = self.group(store, shard).watch();
        let there = |s: &undb_raft::GroupStatus| s.applied.is_some_and(|id| id.index >= at.index);
        watch.wait_for("applied", LONG, there).await.expect("it is applied");
    }
}

/// The store whose replica leads and knows it, among these.
pub async fn leader_of(groups: &[(u64, Group)]) -> u64 {
    let waits = groups.iter().map(|(store, group)| {
        let (store, mut watch) = (*store, group.watch());
        Box::pin(async move {
            watch
                .wait_for("leading", LONG, |s| s.is_leader && s.leader == Some(s.replica))
                .await
                .map(|_| store)
        })
    });
    let (store, _) = futures::future::select_ok(waits).await.expect("somebody leads");
    store
}

/// Proposes wherever the leader is. For commands that may be repeated.
pub async fn propose(groups: &[(u64, Group)], op: Op) -> (LogId, u64) {
    let all = async {
        loop {
            let leader = leader_of(groups).await;
            let (_, group) = groups.iter().find(|(id, _)| *id == leader).expect("one of them");
            match tokio::time::timeout(Duration::from_secs(5), group.propose(op.encode())).await {
                Ok(Ok((id, answer))) => return (id, number(&answer)),
                Ok(Err(RaftError::Fatal(e))) => panic!("fatal: {e}"),
                Ok(Err(_)) | Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(LONG, all).await.expect("it is done in time")
}
