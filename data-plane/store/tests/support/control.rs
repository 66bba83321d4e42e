//! A cluster control without a plan.

use super::PATIENCE;
use futures::stream;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use undb_proto::v1;
use undb_proto::v1::control_server::{Control, ControlServer};
use undb_runtime::{Shutdown, rpc};

#[derive(Default)]
pub struct State {
    pub stores: BTreeMap<u64, v1::StoreRecord>,
    pub heartbeats: BTreeMap<u64, v1::HeartbeatRequest>,
    pub lease: u64,
}

impl State {
    /// The store that leads a shard; of several that say so the one of the highest term, and only when
    /// nobody knows a higher one.
    pub fn leader(&self, shard: u64) -> Option<u64> {
        let reports =
            self.heartbeats.iter().flat_map(|(store, h)| h.replicas.iter().map(move |r| (store, r)));
        let ours = reports.filter(|(_, r)| r.shard.as_ref().is_some_and(|s| s.shard_id == shard));
        let newest = ours.clone().map(|(_, r)| r.term).max()?;
        ours.filter(|(_, r)| r.is_leader && r.term == newest).map(|(store, _)| *store).next()
    }

    pub fn report(&self, store: u64, shard: u64) -> Option<&v1::ReplicaReport> {
        let replicas = &self.heartbeats.get(&store)?.replicas;
        replicas.iter().find(|r| r.shard.as_ref().is_some_and(|s| s.shard_id == shard))
    }
}

pub struct FakeControl {
    pub address: String,
    pub state: Mutex<State>,
    changed: watch::Sender<u64>,
}

impl FakeControl {
    pub async fn start() -> Arc<FakeControl> {
        let listener = rpc::bind("127.0.0.1:0", "listen").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let state = Mutex::new(State { lease: 1, ..State::default() });
        let control = Arc::new(FakeControl { address, state, changed: watch::channel(0).0 });
        let service =
            ControlServer::new(Service(control.clone())).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX);
        let shutdown = Shutdown::new(Duration::from_secs(1));
        tokio::spawn(rpc::serve(listener, rpc::Routes::new(service), shutdown));
        control
    }

    /// Waits for the next heartbeat of any store.
    pub async fn next_heartbeat(&self) {
        let mut changed = self.changed.subscribe();
        tokio::time::timeout(PATIENCE, changed.changed()).await.expect("heartbeats go on").expect("alive");
    }

    /// Waits until `found` finds something.
    pub async fn wait<T>(&self, what: &str, found: impl Fn(&State) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        let waiting = async {
            loop {
                if let Some(it) = found(&self.state.lock()) {
                    return it;
                }
                changed.changed().await.expect("alive");
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(it) => it,
            Err(_) => panic!("waited in vain for {what}: {:?}", self.state.lock().heartbeats),
        }
    }

    /// What was reported before does not count any more.
    pub fn forget(&self, store: u64) {
        self.state.lock().heartbeats.remove(&store);
    }

    pub fn address_of(&self, store: u64) -> Option<String> {
        self.state.lock().stores.get(&store).map(|s| s.address.clone())
    }
}

struct Service(Arc<FakeControl>);

#[tonic::async_trait]
impl Control for Service {
    async fn register(
        &self,
        request: Request<v1::RegisterStoreRequest>,
    ) -> Result<Response<v1::RegisterStoreResponse>, Status> {
        let request = request.into_inner();
        if !request.cluster_id.is_empty() && request.cluster_id != "test" {
            let error = Some(undb_proto::wire_error(v1::ErrorCode::ClusterMismatch, "another cluster"));
            let answer = v1::RegisterStoreResponse { error, cluster_id: "test".into(), ..Default::default() };
            return Ok(Response::new(answer));
        }
        let mut state = self.0.state.lock();
        let known = state.stores.values().find(|s| s.uuid == request.uuid).map(|s| s.store_id);
        let store_id = known.unwrap_or(state.stores.len() as u64 + 1);
        let revision = state.stores.get(&store_id).map_or(1, |s| s.revision + 1);
        let record = v1::StoreRecord {
            store_id,
            uuid: request.uuid,
            address: request.address,
            zone: request.zone,
            store_cluster: request.store_cluster,
            state: v1::StoreState::StoreUp as i32,
            revision,
            superseded_by: String::new(),
        };
        state.stores.insert(store_id, record.clone());
        let cluster_id = "test".into();
        let store = Some(record);
        Ok(Response::new(v1::RegisterStoreResponse {
            cluster_id,
            incarnation: 1,
            store,
            ..Default::default()
        }))
    }

    async fn heartbeat(
        &self,
        request: Request<v1::HeartbeatRequest>,
    ) -> Result<Response<v1::HeartbeatResponse>, Status> {
        let request = request.into_inner();
        let answer = {
            let mut state = self.0.state.lock();
            state.heartbeats.insert(request.store_id, request);
            let stores = state.stores.values().cloned().collect();
            v1::HeartbeatResponse { control_lease: state.lease, stores, incarnation: 1, ..Default::default() }
        };
        self.0.changed.send_modify(|n| *n += 1);
        Ok(Response::new(answer))
    }

    type WatchLeadersStream = Pin<Box<dyn futures::Stream<Item = Result<v1::LeadersEvent, Status>> + Send>>;

    async fn watch_leaders(
        &self,
        _request: Request<v1::Empty>,
    ) -> Result<Response<Self::WatchLeadersStream>, Status> {
        Ok(Response::new(Box::pin(stream::empty())))
    }
}
