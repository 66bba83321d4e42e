//! The routing service: what is where, versioned and pushed.
//!
//! ```text
//! metadata watch --ranges, replicas, stores--+
//!                                            +--> build --> Published --> Resolve, Subscribe
//! control --leaders------------------------- +                 |
//!                                                              v
//!                                     last-good file (served as stale while metadata is away)
//! ```
//! Invariants: a shard's epoch and term never go back; a route with a hole is refused and the last
//! good one stays; only what metadata says removes a route, never its absence.

mod build;
mod config;
mod last_good;
mod leaders;
mod publish;
mod service;
mod subscriber;

pub use config::Config;

use crate::client::MetaClient;
use crate::running::{Bound, Shell, token_of};
use crate::{Running, ServerError};
use last_good::LastGood;
use leaders::Leaders;
use publish::Publisher;
use std::sync::Arc;
use tonic::service::interceptor::InterceptedService;
use undb_proto::v1::router_server::RouterServer;
use undb_runtime::Shutdown;
use undb_runtime::rpc::{MESSAGE_BYTES_MAX, Routes};

/// Starts routing on its own listener.
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
    let shell = &bound.shell;
    let meta = MetaClient::start(&config.meta, shell.credentials.clone(), &shell.tasks)?;
    let router = open(config, shell, meta).await?;
    let routes = add_to(Routes::default(), &router, shell);
    Ok(bound.serve(routes))
}

/// What routing's parts share. Clones are the same.
#[derive(Clone)]
pub(crate) struct Router(Arc<Inner>);

struct Inner {
    config: Config,
    meta: MetaClient,
    leaders: Leaders,
    publisher: Publisher,
    tasks: undb_runtime::Tasks,
}

/// Routing without its listener.
pub(crate) async fn open(config: Config, shell: &Shell, meta: MetaClient) -> Result<Router, ServerError> {
    config.validate()?;
    let last_good = LastGood::new(config.last_good_file.clone());
    let loading = last_good.clone();
    let loaded = tokio::task::spawn_blocking(move || loading.load()).await.unwrap_or_default();
    let publisher = Publisher::new(loaded);
    let router = Router(Arc::new(Inner {
        leaders: Leaders::default(),
        publisher,
        meta,
        config,
        tasks: shell.tasks.clone(),
    }));
    spawn(shell, "router-leaders", leaders::follow(router.clone(), shell.credentials.clone()));
    spawn(shell, "router-publish", publish::publish(router.clone()));
    let shutdown = shell.tasks.shutdown().clone();
    shell.tasks.spawn("router-last-good", last_good::save(router.clone(), last_good, shutdown));
    let known = router.clone();
    shell.readiness.register("router", move || match known.0.publisher.now().begun {
        true => Ok(()),
        false => Err("there are no routes yet; check that metadata is ready".into()),
    });
    Ok(router)
}

fn spawn(shell: &Shell, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    let shutdown = shell.tasks.shutdown().clone();
    shell.tasks.spawn(name, async move {
        tokio::select! {
            () = shutdown.begun() => {}
            () = work => {}
        }
    });
}

/// Adds what routing serves.
pub(crate) fn add_to(routes: Routes, router: &Router, shell: &Shell) -> Routes {
    let service = RouterServer::new(router.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    routes.add_service(InterceptedService::new(service, shell.check.clone()))
}
