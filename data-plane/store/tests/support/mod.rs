//! A cluster in one process: real stores over real gRPC, and a cluster control that only registers
//! stores, hands out addresses and passes orders on.
#![allow(dead_code)] // Each test binary uses a part.

pub mod caller;
pub mod control;
pub mod linear;

pub use caller::Caller;
pub use control::FakeControl;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use undb_proto::v1;
use undb_proto::v1::store_client::StoreClient;
use undb_runtime::{Clock, Shutdown, rpc};
use undb_store::{Config, Env, Running, StoreError, start_with};
use undb_vfs::SimFs;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// One store of the cluster and what outlives its process.
pub struct Node {
    pub dir: PathBuf,
    pub fs: SimFs,
    pub running: Option<Running>,
    pub store_id: u64,
    pub address: String,
}

/// A cluster with one table of one shard.
pub struct Cluster {
    pub control: Arc<FakeControl>,
    pub nodes: Vec<Node>,
    pub clock: Clock,
    pub shard: v1::Shard,
    pub table: v1::TableOptions,
    pub tune: fn(&mut Config),
    _dir: TempDir,
}

impl Cluster {
    /// `count` stores, and one shard of all keys on the first three.
    pub async fn start(count: usize) -> Cluster {
        Self::start_tuned(count, |_| {}).await
    }

    pub async fn start_tuned(count: usize, tune: fn(&mut Config)) -> Cluster {
        Self::start_on(count, tune, None).await
    }

    /// On disks of this many bytes each.
    pub async fn start_on(count: usize, tune: fn(&mut Config), disk_bytes: Option<u64>) -> Cluster {
        let dir = tempfile::tempdir().expect("tempdir");
        let control = FakeControl::start().await;
        let table = v1::TableOptions {
            name: "t".into(),
            engine: "separated".into(),
            threshold_bytes: 256,
            partitioning: v1::Partitioning::Range as i32,
            ttl_ms: 0,
        };
        let shard = v1::Shard {
            shard_id: 11,
            table_id: 5,
            range: Some(v1::KeyRange::default()),
            epoch: Some(v1::Epoch { version: 1, conf: 1 }),
            ..Default::default()
        };
        let clock = Clock::manual(1_700_000_000_000);
        let mut cluster = Cluster { control, nodes: Vec::new(), clock, shard, table, tune, _dir: dir };
        for i in 0..count {
            let dir = cluster._dir.path().join(format!("s{i}"));
            let fs = SimFs::new(&dir);
            fs.set_quota(disk_bytes);
            cluster.nodes.push(Node { dir, fs, running: None, store_id: 0, address: String::new() });
            cluster.up(i).await.expect("a store starts");
        }
        cluster.bootstrap().await;
        cluster
    }

    fn config(&self, i: usize) -> Config {
        let mut config = Config::new(&self.nodes[i].dir, vec![self.control.address.clone()]);
        config.listen = "127.0.0.1:0".into();
        config.heartbeat_ms = 40;
        config.raft.heartbeat_ms = 100;
        config.raft.election_min_ms = 500;
        config.raft.election_max_ms = 1000;
        config.log.segment_bytes = 4 << 20;
        config.engine.maintain_ms = 20;
        (self.tune)(&mut config);
        config
    }

    /// Starts a store that is down.
    pub async fn up(&mut self, i: usize) -> Result<(), StoreError> {
        let config = self.config(i);
        let env = Env { fs: Some(Arc::new(self.nodes[i].fs.clone())), clock: self.clock.clone() };
        let running = start_with(config, env, Shutdown::new(Duration::from_secs(10))).await?;
        let node = &mut self.nodes[i];
        node.store_id = running.store_id;
        node.address = running.address.clone();
        node.running = Some(running);
        Ok(())
    }

    /// Ends a store in order.
    pub async fn down(&mut self, i: usize) {
        let running = self.nodes[i].running.take().expect("it is up");
        running.begin_stop();
        running.join().await.expect("an orderly end");
        self.control.forget(self.nodes[i].store_id);
    }

    /// The power of a store fails: what was not synced is lost.
    pub async fn crash(&mut self, i: usize, seed: u64) -> StoreError {
        let running = self.nodes[i].running.take().expect("it is up");
        self.nodes[i].fs.crash(seed);
        running.begin_stop();
        let ended = running.join().await.err();
        self.control.forget(self.nodes[i].store_id);
        self.nodes[i].fs = SimFs::new(&self.nodes[i].dir);
        ended.unwrap_or(StoreError::Stopped)
    }

    pub fn authority(&self, store_id: u64) -> Option<v1::Authority> {
        Some(v1::Authority { cluster_id: "test".into(), incarnation: 1, control_lease: 1, store_id })
    }

    pub fn admin(&self, i: usize) -> StoreClient<rpc::Channel> {
        StoreClient::new(rpc::channel(&self.nodes[i].address).expect("an address"))
    }

    async fn bootstrap(&mut self) {
        let voters = self.nodes.iter().take(3).enumerate();
        self.shard.replicas = voters
            .map(|(i, node)| v1::Replica {
                replica_id: 101 + i as u64,
                store_id: node.store_id,
                role: v1::Role::Voter as i32,
            })
            .collect();
        for i in 0..self.shard.replicas.len() {
            self.create(i, 101 + i as u64, true).await.expect("created");
        }
    }

    /// Orders store `i` to make a replica.
    pub async fn create(&self, i: usize, replica_id: u64, bootstrap: bool) -> Result<(), v1::Error> {
        let request = v1::CreateReplicaRequest {
            authority: self.authority(self.nodes[i].store_id),
            shard: Some(self.shard.clone()),
            replica_id,
            table: Some(self.table.clone()),
            bootstrap,
        };
        let answer = self.admin(i).create_replica(request).await.expect("an answer");
        answer.into_inner().error.map_or(Ok(()), Err)
    }

    /// The node that leads, as it says itself and a quorum agrees.
    pub async fn leader(&self) -> usize {
        let store = self.control.wait("a leader", |control| control.leader(self.shard.shard_id)).await;
        self.nodes.iter().position(|n| n.store_id == store).expect("one of the nodes")
    }

    pub fn caller(&self) -> Caller {
        Caller::new(self.control.clone(), self.shard.clone())
    }
}
