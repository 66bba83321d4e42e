//! What stores and routing call.

use super::{Control, monotonic_ms};
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use undb_meta::DEFAULT_NAME;
use undb_proto::v1::{self, ErrorCode, StoreState, meta_command::Op};
use undb_proto::wire_error;

const EVENTS_QUEUED_MAX: usize = 16;

impl Control {
    async fn register_store(&self, request: v1::RegisterStoreRequest) -> Result<v1::StoreRecord, v1::Error> {
        let epoch = self.owned().map_err(|(error, _)| error)?;
        let state = self.0.meta.state();
        let now_ms = monotonic_ms(&self.0.clock);
        let part = state.stores().filter(|s| s.state() != StoreState::StoreRemoved);
        let store_cluster = match request.store_cluster.is_empty() {
            true => DEFAULT_NAME.to_owned(),
            false => request.store_cluster,
        };
        if state.store_cluster(&store_cluster).is_none() && store_cluster == DEFAULT_NAME {
            return Err(again("the cluster is being set up; ask again"));
        }
        let op = Op::RegisterStore(v1::RegisterStore {
            uuid: request.uuid,
            address: request.address,
            zone: request.zone,
            store_cluster,
            empty: request.empty,
            disconnected: self.0.heard.disconnected(part, now_ms),
        });
        let result = self.0.meta.propose(epoch, op).await.map_err(|error| match error.code() {
            // Its predecessor at this address may still be alive: time tells.
            ErrorCode::AlreadyExists => again(&error.to_string()),
            _ => v1::Error::from(error),
        })?;
        let Some(store) = result.store else {
            return Err(wire_error(ErrorCode::Internal, "metadata registered no store"));
        };
        self.0.heard.registered(store.store_id, epoch, now_ms);
        tracing::info!(store = store.store_id, address = store.address, "store registered");
        Ok(store)
    }

    fn take_heartbeat(&self, request: v1::HeartbeatRequest) -> Result<v1::HeartbeatResponse, v1::Error> {
        let epoch = self.owned().map_err(|(error, _)| error)?;
        let state = self.0.meta.state();
        let known = state.store(request.store_id).filter(|s| s.uuid == request.uuid);
        let Some(record) = known else {
            let message = format!("store {} with this uuid is not known; register it", request.store_id);
            return Err(wire_error(ErrorCode::StoreMismatch, message));
        };
        if record.state() == StoreState::StoreRemoved {
            let message = format!("store {} is removed for ever; end it", request.store_id);
            return Err(wire_error(ErrorCode::Fenced, message));
        }
        if !request.address.is_empty() && record.address != request.address {
            let message = format!("store {} has moved; register it", request.store_id);
            return Err(wire_error(ErrorCode::StoreMismatch, message));
        }
        let now_ms = monotonic_ms(&self.0.clock);
        self.0.heard.heartbeat(request, &state, &self.0.gate, epoch, now_ms);
        let part = |s: &&v1::StoreRecord| s.state() != StoreState::StoreRemoved;
        Ok(v1::HeartbeatResponse {
            control_lease: epoch,
            now_ms: monotonic_ms(&self.0.clock),
            stores: state.stores().filter(part).cloned().collect(),
            incarnation: state.cluster().incarnation,
            ..Default::default()
        })
    }

    fn owner_address(&self) -> String {
        self.owned().err().map(|(_, address)| address).unwrap_or_default()
    }

    /// Sends all leaders, then those that change, until the lease or the watcher is gone.
    async fn feed_leaders(self, events: mpsc::Sender<Result<v1::LeadersEvent, Status>>) {
        let mut leaders = self.0.heard.leaders();
        let mut epochs = self.0.lease.epochs();
        let mut sent: BTreeMap<u64, v1::LeaderInfo> = BTreeMap::new();
        let mut first = true;
        loop {
            if let Err((error, owner_address)) = self.owned() {
                let event = v1::LeadersEvent { error: Some(error), owner_address, ..Default::default() };
                let _gone = events.send(Ok(event)).await;
                return;
            }
            let now = leaders.borrow_and_update().clone();
            let due: Vec<v1::LeaderInfo> =
                now.values().filter(|l| sent.get(&l.shard_id) != Some(l)).copied().collect();
            if first || !due.is_empty() {
                first = false;
                sent.extend(due.iter().map(|l| (l.shard_id, *l)));
                let event = v1::LeadersEvent { leaders: due, ..Default::default() };
                if events.send(Ok(event)).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                changed = leaders.changed() => if changed.is_err() { return },
                _ = epochs.changed() => {}
                () = self.0.tasks.shutdown().begun() => return,
                () = events.closed() => return,
            }
        }
    }
}

/// A refusal that passes by itself.
fn again(message: &str) -> v1::Error {
    v1::Error { retry_after_ms: 200, ..wire_error(ErrorCode::Unavailable, message) }
}

#[tonic::async_trait]
impl v1::control_server::Control for Control {
    async fn register(
        &self,
        request: Request<v1::RegisterStoreRequest>,
    ) -> Result<Response<v1::RegisterStoreResponse>, Status> {
        let request = request.into_inner();
        let registered = match self.wrong_cluster(&request.cluster_id) {
            Some(error) => Err(error),
            None => self.register_store(request).await,
        };
        let state = self.0.meta.state();
        let response = match registered {
            Ok(store) => v1::RegisterStoreResponse {
                store: Some(store),
                cluster_id: state.cluster().cluster_id.clone(),
                incarnation: state.cluster().incarnation,
                ..Default::default()
            },
            Err(error) => v1::RegisterStoreResponse {
                owner_address: self.owner_address(),
                error: Some(error),
                ..Default::default()
            },
        };
        Ok(Response::new(response))
    }

    async fn heartbeat(
        &self,
        request: Request<v1::HeartbeatRequest>,
    ) -> Result<Response<v1::HeartbeatResponse>, Status> {
        let request = request.into_inner();
        let taken = match self.wrong_cluster(&request.cluster_id) {
            Some(error) => Err(error),
            None => self.take_heartbeat(request),
        };
        metrics::counter!("undb_control_heartbeats_total").increment(1);
        Ok(Response::new(taken.unwrap_or_else(|error| v1::HeartbeatResponse {
            owner_address: self.owner_address(),
            error: Some(error),
            ..Default::default()
        })))
    }

    type WatchLeadersStream = ReceiverStream<Result<v1::LeadersEvent, Status>>;

    async fn watch_leaders(
        &self,
        _request: Request<v1::Empty>,
    ) -> Result<Response<Self::WatchLeadersStream>, Status> {
        let (events, receiver) = mpsc::channel(EVENTS_QUEUED_MAX);
        self.0.tasks.spawn("control-leaders", self.clone().feed_leaders(events));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
