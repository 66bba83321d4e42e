//! What clients ask.

use super::Router;
use super::publish::Published;
use super::subscriber::Subscriber;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use undb_proto::v1::{self, ErrorCode};
use undb_proto::wire_error;

impl Router {
    pub(super) fn wrong_cluster(&self, asked: &str) -> Option<v1::Error> {
        let now = self.0.publisher.now();
        let differs = !asked.is_empty() && !now.cluster_id.is_empty() && asked != now.cluster_id;
        differs.then(|| {
            let message = format!("this is cluster {}, not {asked}; check the endpoint", now.cluster_id);
            wire_error(ErrorCode::ClusterMismatch, message)
        })
    }
}

/// The route of a table, or why there is none.
pub(super) fn find(routes: &Published, table: &str) -> Result<Arc<v1::TableRoute>, v1::Error> {
    if let Some(route) = routes.routes.get(table) {
        return Ok(route.clone());
    }
    if let Some(condition) = routes.creating.get(table) {
        let why = if condition.is_empty() { "its replicas are being made" } else { condition };
        let error = wire_error(ErrorCode::Unavailable, format!("table {table} is not ready: {why}"));
        return Err(v1::Error { retry_after_ms: 100, ..error });
    }
    if !routes.begun || routes.stale {
        let message = format!("table {table} is not known here, and metadata is away");
        return Err(v1::Error { retry_after_ms: 200, ..wire_error(ErrorCode::Unavailable, message) });
    }
    Err(wire_error(ErrorCode::TableNotFound, format!("there is no table {table}")))
}

/// A route as it is sent now.
pub(super) fn as_sent(routes: &Published, route: &v1::TableRoute) -> v1::TableRoute {
    v1::TableRoute { stale: routes.stale, ..route.clone() }
}

#[tonic::async_trait]
impl v1::router_server::Router for Router {
    async fn resolve(
        &self,
        request: Request<v1::ResolveRequest>,
    ) -> Result<Response<v1::ResolveResponse>, Status> {
        let request = request.into_inner();
        metrics::counter!("undb_router_resolves_total").increment(1);
        let routes = self.0.publisher.now();
        let found = match self.wrong_cluster(&request.cluster_id) {
            Some(error) => Err(error),
            None => find(&routes, &request.table),
        };
        Ok(Response::new(match found {
            Ok(route) if request.known.is_some() && request.known == route.version => {
                v1::ResolveResponse { not_modified: true, ..Default::default() }
            }
            Ok(route) => v1::ResolveResponse { route: Some(as_sent(&routes, &route)), ..Default::default() },
            Err(error) => v1::ResolveResponse { error: Some(error), ..Default::default() },
        }))
    }

    type SubscribeStream = ReceiverStream<Result<v1::RouteUpdate, Status>>;

    async fn subscribe(
        &self,
        request: Request<Streaming<v1::SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let (updates, receiver) = mpsc::channel(self.0.config.queue_len_max);
        let subscriber = Subscriber::new(self.clone(), updates)
            .ok_or_else(|| Status::resource_exhausted("this router has as many subscribers as it takes"))?;
        self.0.tasks.spawn("router-subscriber", subscriber.run(request.into_inner()));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn report(&self, request: Request<v1::RouteReport>) -> Result<Response<v1::Empty>, Status> {
        let report = request.into_inner();
        metrics::counter!("undb_router_reports_total").increment(1);
        if report.leader_replica_id != 0 {
            let state = self.0.meta.state();
            let shard = state.shard(report.shard_id).and_then(|s| s.shard.as_ref());
            let listed =
                shard.is_some_and(|s| s.replicas.iter().any(|r| r.replica_id == report.leader_replica_id));
            if listed {
                self.0.leaders.learn([v1::LeaderInfo {
                    shard_id: report.shard_id,
                    replica_id: report.leader_replica_id,
                    term: report.term,
                    epoch: report.epoch,
                }]);
            }
        }
        self.0.publisher.hinted.notify_one();
        Ok(Response::new(v1::Empty {}))
    }
}
