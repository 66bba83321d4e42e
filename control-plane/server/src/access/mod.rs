//! Access: where clients and tools begin. Discover answers who routes; Admin is forwarded to whoever
//! holds the control lease.

mod config;
mod forward;

pub use config::Config;

use crate::client::MetaClient;
use crate::running::{Bound, Shell, token_of};
use crate::{Running, ServerError};
use forward::Forward;
use rand::seq::SliceRandom;
use std::sync::Arc;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status};
use undb_proto::v1::access_server::AccessServer;
use undb_proto::v1::admin_server::AdminServer;
use undb_proto::v1::{self, ErrorCode};
use undb_proto::wire_error;
use undb_runtime::Shutdown;
use undb_runtime::rpc::{MESSAGE_BYTES_MAX, Routes};

const ROUTERS_PER_CLIENT_MAX: usize = 3;

/// Starts access on its own listener.
pub async fn start(config: Config, shutdown: Shutdown) -> Result<Running, ServerError> {
    config.validate()?;
    let token = token_of(config.token_file.as_deref())?;
    let bound = Bound::new(&config.listen, None, token.as_deref(), config.tls.as_ref(), shutdown).await?;
    let shell = &bound.shell;
    let meta = MetaClient::start(&config.meta, shell.credentials.clone(), &shell.tasks)?;
    let admin = AdminServer::new(Forward::new(meta.clone(), shell.credentials.clone()))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let routes = add_to(Routes::default(), config, meta, shell)
        .add_service(InterceptedService::new(admin, shell.check.clone()));
    Ok(bound.serve(routes))
}

/// Adds Discover. Admin is added by whoever knows where it is.
pub(crate) fn add_to(routes: Routes, config: Config, meta: MetaClient, shell: &Shell) -> Routes {
    let known = meta.clone();
    shell.readiness.register("access", move || match known.seen().borrow().begun {
        true => Ok(()),
        false => Err("metadata was not heard of yet; check that its members run".into()),
    });
    let service = AccessServer::new(Access(Arc::new((config, meta))));
    routes.add_service(InterceptedService::new(service, shell.check.clone()))
}

struct Access(Arc<(Config, MetaClient)>);

#[tonic::async_trait]
impl v1::access_server::Access for Access {
    async fn discover(
        &self,
        request: Request<v1::DiscoverRequest>,
    ) -> Result<Response<v1::DiscoverResponse>, Status> {
        let (config, meta) = &*self.0;
        let table = request.into_inner().table;
        let state = meta.state();
        let refused = |code, message: String| {
            let error = v1::Error { retry_after_ms: 200, ..wire_error(code, message) };
            Ok(Response::new(v1::DiscoverResponse { error: Some(error), ..Default::default() }))
        };
        if state.cluster().cluster_id.is_empty() {
            return refused(ErrorCode::RecoveryInProgress, "the cluster is starting".into());
        }
        if !table.is_empty() && state.live_table(&table).is_none() {
            return refused(ErrorCode::TableNotFound, format!("there is no table {table}"));
        }
        let mut routers = config.routers.clone();
        routers.shuffle(&mut rand::rng());
        routers.truncate(ROUTERS_PER_CLIENT_MAX);
        Ok(Response::new(v1::DiscoverResponse {
            error: None,
            cluster_id: state.cluster().cluster_id.clone(),
            incarnation: state.cluster().incarnation,
            router_group: config.router_group.clone(),
            routers,
            ttl_seconds: config.discover_ttl_seconds,
        }))
    }
}
