//! A control plane on loopback, and stores that are only a model: what they are told is real gRPC.

#![allow(dead_code)]

#[path = "../../../meta/tests/world/mod.rs"]
mod world;

use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use undb_proto::v1::admin_client::AdminClient;
use undb_proto::v1::control_client::ControlClient;
use undb_proto::v1::{self, ErrorCode};
use undb_runtime::{Shutdown, rpc};
use undb_server::{Running, control, embedded};
pub use world::World;

const BEAT: Duration = Duration::from_millis(40);
const PATIENCE: Duration = Duration::from_secs(60);

pub type Shared = Arc<Mutex<World>>;

pub fn shutdown() -> Shutdown {
    Shutdown::new(Duration::from_secs(5))
}

/// Fast enough for tests, slow enough for a loaded machine.
pub fn tuning() -> control::Tuning {
    control::Tuning {
        lease_ttl_ms: 3000,
        disconnected_ms: 8000,
        down_ms: 16_000,
        suspect_ms: 0,
        leader_cooldown_ms: 0,
        plan_interval_ms: 100,
        share_default_stores: true,
        ..control::Tuning::default()
    }
}

pub fn config(dir: &Path) -> embedded::Config {
    embedded::Config {
        listen: "127.0.0.1:0".into(),
        dir: dir.to_path_buf(),
        tuning: tuning(),
        ..embedded::Config::default()
    }
}

pub async fn start(dir: &Path) -> Running {
    embedded::start(config(dir), shutdown()).await.expect("the control plane starts")
}

pub fn channel(address: impl ToString) -> Channel {
    rpc::channel(&address.to_string()).expect("an address")
}

pub fn admin(running: &Running) -> AdminClient<Channel> {
    AdminClient::new(channel(running.address))
}

/// Asks until the answer is there; says what was missing when it never comes.
pub async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(missing) if tokio::time::Instant::now() > deadline => panic!("{what}: {missing}"),
            Err(_) => tokio::time::sleep(BEAT / 2).await,
        }
    }
}

/// A store process that keeps its replicas in the model.
pub struct FakeStore {
    pub world: Shared,
    pub id: u64,
    pub uuid: String,
    pub address: String,
    pub ended: Shutdown,
}

/// Starts `count` stores that find control at `address`, and the clock of their groups.
pub async fn start_stores(world: &Shared, count: usize, address: String) -> Vec<FakeStore> {
    let ticking = world.clone();
    tokio::spawn(async move {
        loop {
            ticking.lock().tick();
            tokio::time::sleep(BEAT).await;
        }
    });
    let mut stores = Vec::new();
    for _ in 0..count {
        stores.push(start_store(world, &address, "").await);
    }
    stores
}

/// Starts a store with an empty disk; at `listen`, or anywhere.
pub async fn start_store(world: &Shared, control: &str, listen: &str) -> FakeStore {
    let listen = if listen.is_empty() { "127.0.0.1:0" } else { listen };
    let bind = || async { TcpListener::bind(listen).await.map_err(|e| e.to_string()) };
    let listener = eventually("a port", bind).await;
    let address = listener.local_addr().expect("bound").to_string();
    let uuid = format!("uuid-{}", rand::random::<u64>());
    let request = v1::RegisterStoreRequest {
        uuid: uuid.clone(),
        address: address.clone(),
        zone: address.clone(),
        empty: true,
        ..Default::default()
    };
    let registered = eventually("registration", || async {
        let mut client = ControlClient::new(channel(control));
        let answer = client.register(request.clone()).await.map_err(|e| e.to_string())?.into_inner();
        match answer.error {
            None => Ok(answer),
            Some(error) => Err(error.message),
        }
    })
    .await;
    let id = registered.store.expect("registered").store_id;
    world.lock().add_store(id);
    let ended = shutdown();
    let service = v1::store_server::StoreServer::new(Calls { world: world.clone(), id });
    let begun = ended.token().cancelled_owned();
    let serving = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), begun);
    tokio::spawn(serving);
    let store = FakeStore { world: world.clone(), id, uuid, address, ended };
    store.beat(registered.cluster_id, control.to_owned());
    store
}

impl FakeStore {
    fn beat(&self, cluster_id: String, control: String) {
        let (world, id, ended) = (self.world.clone(), self.id, self.ended.clone());
        let (uuid, address) = (self.uuid.clone(), self.address.clone());
        tokio::spawn(async move {
            let mut target = control;
            while !ended.is_begun() {
                let replicas = world.lock().reports(id);
                let request = v1::HeartbeatRequest {
                    cluster_id: cluster_id.clone(),
                    store_id: id,
                    uuid: uuid.clone(),
                    replicas,
                    address: address.clone(),
                    ..Default::default()
                };
                let answer = ControlClient::new(channel(&target)).heartbeat(request).await;
                if let Ok(answer) = answer
                    && !answer.get_ref().owner_address.is_empty()
                {
                    target = answer.into_inner().owner_address;
                }
                tokio::time::sleep(BEAT).await;
            }
        });
    }

    /// As kill -9 would.
    pub fn kill(&self) {
        self.world.lock().stores.get_mut(&self.id).expect("known").up = false;
        self.ended.begin();
    }
}

struct Calls {
    world: Shared,
    id: u64,
}

fn outcome(done: bool) -> Result<Response<v1::Outcome>, Status> {
    let error = (!done).then(|| undb_proto::wire_error(ErrorCode::Conflict, "refused by the model"));
    Ok(Response::new(v1::Outcome { error }))
}

#[tonic::async_trait]
impl v1::store_server::Store for Calls {
    async fn create_replica(
        &self,
        r: Request<v1::CreateReplicaRequest>,
    ) -> Result<Response<v1::Outcome>, Status> {
        let r = r.into_inner();
        let shard = r.shard.expect("a shard");
        outcome(self.world.lock().create_replica(self.id, &shard, r.replica_id, r.bootstrap))
    }

    async fn destroy_replica(
        &self,
        r: Request<v1::DestroyReplicaRequest>,
    ) -> Result<Response<v1::Outcome>, Status> {
        let r = r.into_inner();
        outcome(self.world.lock().destroy_replica(self.id, r.shard_id, r.replica_id))
    }

    async fn change_members(
        &self,
        r: Request<v1::ChangeMembersRequest>,
    ) -> Result<Response<v1::ChangeMembersResponse>, Status> {
        let r = r.into_inner();
        let expected = r.expected.map_or((0, 0), |e| (e.version, e.conf));
        let changed = self.world.lock().change_members(self.id, r.shard_id, expected, &r.replicas);
        Ok(Response::new(match changed {
            Ok(shard) => v1::ChangeMembersResponse { shard: Some(shard), error: None },
            Err(message) => v1::ChangeMembersResponse {
                error: Some(undb_proto::wire_error(ErrorCode::Conflict, message)),
                shard: None,
            },
        }))
    }

    async fn transfer_leader(
        &self,
        r: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::Outcome>, Status> {
        let r = r.into_inner();
        outcome(self.world.lock().transfer_leader(self.id, r.shard_id, r.to_replica_id))
    }

    async fn list_replicas(
        &self,
        _: Request<v1::ListReplicasRequest>,
    ) -> Result<Response<v1::ListReplicasResponse>, Status> {
        let replicas = self.world.lock().reports(self.id);
        Ok(Response::new(v1::ListReplicasResponse { replicas, error: None }))
    }
}
