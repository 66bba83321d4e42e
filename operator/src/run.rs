//! The process: elector, controllers, webhook.
//!
//! ```text
//! every replica:  admin 9090, webhook 9443 (+ its certificate), elector
//! the leader:     one controller a kind
//! SIGTERM:        controllers end -> the Lease is given back -> webhook and admin end -> 0
//! Lease lost:     the process ends at once, whatever controllers are doing; no orderly end is due
//! ```

use crate::cli::Run;
use crate::control::KubeConnector;
use crate::ctx::Ctx;
use crate::elector::{self, Elector, Leadership};
use crate::error::{Error, Result};
use crate::{client, control_plane, router, store_cluster, table, telemetry, webhook};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, Config, CustomResourceExt};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use undb_runtime::admin::{self, Readiness};
use undb_runtime::{Shutdown, Tasks, rpc};
use undb_spec::k8s;

/// How the process ended, if it did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As it was told to.
    Orderly,
    /// Another replica leads now; this one must not do anything more.
    LeadershipLost { reason: String },
}

/// Why it could not start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("cannot reach the API server: {0}; in a Pod it needs a service account, elsewhere a kubeconfig")]
    ApiServer(String),
    #[error(
        "the API server does not serve {missing} of {group}; install the resource definitions: \
         `undb-operator crds | kubectl apply --server-side -f -`"
    )]
    Definitions { missing: String, group: String },
    #[error(transparent)]
    Runtime(#[from] undb_runtime::RuntimeError),
    #[error("{0}")]
    Task(String),
}

/// One controller: named for its kind.
type Controller = (&'static str, Pin<Box<dyn Future<Output = Result<()>> + Send>>);

/// All of them, to be polled by the leader only.
fn controllers(ctx: &Arc<Ctx>, shutdown: &Shutdown) -> Vec<Controller> {
    vec![
        ("ControlPlane", Box::pin(control_plane::run(ctx.clone(), shutdown.clone()))),
        ("StoreCluster", Box::pin(store_cluster::run(ctx.clone(), shutdown.clone()))),
        ("Router", Box::pin(router::run(ctx.clone(), shutdown.clone()))),
        ("Table", Box::pin(table::run(ctx.clone(), shutdown.clone()))),
    ]
}

/// Runs until told to end, or until leadership is lost.
pub async fn run(options: Run) -> Result<End, Failure> {
    // kube's own connector takes whatever provider is installed: there is one in the tree.
    let _installed_before = rustls::crypto::ring::default_provider().install_default();
    let shutdown = Shutdown::on_signals(options.grace());
    let _first_recorder = admin::install_metrics();
    let admin_listener = rpc::bind(&options.admin, "--admin").await?;
    let webhook_listener = rpc::bind(&options.webhook_listen, "--webhook-listen").await?;
    let config = Config::infer().await.map_err(|e| Failure::ApiServer(e.to_string()))?;
    let client = client::of_one_attempt(config).map_err(|e| Failure::ApiServer(e.to_string()))?;
    let settings = options.settings();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        image = settings.image,
        namespace = settings.namespace,
        watch_namespaces = ?settings.watch_namespaces,
        "operator starts"
    );
    let connector = Arc::new(KubeConnector::new(client.clone(), settings.unsafe_gate_off));
    let ctx = Ctx::new(client.clone(), settings, connector);
    let tasks = Tasks::new(shutdown.clone());
    let readiness = Readiness::default();
    let page = admin::router(readiness.clone());
    tasks.spawn_critical("admin", admin::serve(admin_listener, page, shutdown.clone()));
    check_definitions(&client).await?;

    let (told, heard) = watch::channel(Leadership::Following);
    let end = CancellationToken::new();
    serve_webhook(&tasks, &ctx, webhook_listener, &readiness, heard.clone());
    let identity = format!("{}_{:08x}", ctx.settings.pod_name, rand::random::<u32>());
    let leases: Api<Lease> = Api::namespaced(client, &ctx.settings.namespace);
    let elector = Elector::new(identity, options.terms());
    let election = elector::run(leases, options.lease.clone(), elector, end.clone(), told);
    tasks.spawn("elector", election);

    let ended = lead(heard, end, &shutdown, |shutdown| controllers(&ctx, shutdown)).await;
    if let Ok(End::LeadershipLost { .. }) = ended {
        return ended;
    }
    shutdown.begin();
    let released = tokio::time::timeout(RELEASE, table::release(&ctx)).await;
    if !matches!(released, Ok(Ok(()))) {
        tracing::warn!(?released, "finalizers of tables not looked at");
    }
    tasks.join().await.map_err(|failure| Failure::Task(failure.to_string()))?;
    ended
}

fn serve_webhook(
    tasks: &Tasks,
    ctx: &Arc<Ctx>,
    listener: tokio::net::TcpListener,
    readiness: &Readiness,
    heard: watch::Receiver<Leadership>,
) {
    let shutdown = tasks.shutdown().clone();
    let identity = webhook::Identity::default();
    let ready = identity.clone();
    readiness.register("webhook", move || ready.ready());
    let router = webhook::router(ctx.clone());
    tasks.spawn_critical("webhook", webhook::serve(listener, identity.clone(), router, shutdown.clone()));
    let leads = move || matches!(*heard.borrow(), Leadership::Leading { .. });
    let maintained = webhook::maintain(ctx.clone(), identity, leads, shutdown);
    tasks.spawn_critical("webhook certificate", maintained);
}

/// Starts controllers while this process leads; on an orderly end they stop before the Lease is given back.
async fn lead(
    mut heard: watch::Receiver<Leadership>,
    end: CancellationToken,
    shutdown: &Shutdown,
    controllers: impl Fn(&Shutdown) -> Vec<Controller>,
) -> Result<End, Failure> {
    telemetry::leads(telemetry::Leads::No);
    let led = tokio::select! {
        () = shutdown.begun() => false,
        led = heard.wait_for(|now| *now != Leadership::Following) => led.is_ok(),
    };
    let mut outcome = Ok(End::Orderly);
    if led {
        telemetry::leads(telemetry::Leads::Yes);
        let running = Tasks::new(shutdown.child());
        for (name, controller) in controllers(running.shutdown()) {
            running.spawn_critical(name, controller);
        }
        let lost = heard.wait_for(|now| matches!(now, Leadership::Lost { .. }));
        tokio::select! {
            biased;
            Ok(lost) = lost => {
                telemetry::leads(telemetry::Leads::No);
                let reason = match &*lost {
                    Leadership::Lost { reason } => reason.clone(),
                    other => format!("{other:?}"),
                };
                return Ok(End::LeadershipLost { reason });
            }
            joined = join(&running, shutdown) => {
                if let Err(failure) = joined {
                    outcome = Err(Failure::Task(failure.to_string()));
                }
            }
        }
    }
    end.cancel();
    let over = heard.wait_for(|now| matches!(now, Leadership::Over | Leadership::Lost { .. }));
    let _late = tokio::time::timeout(RELEASE, over).await;
    telemetry::leads(telemetry::Leads::No);
    outcome
}

/// How long giving the Lease back may take; without it others wait for it to run out.
const RELEASE: Duration = Duration::from_secs(5);

/// Controllers end when the process does, or when one of them fails.
async fn join(running: &Tasks, shutdown: &Shutdown) -> Result<(), undb_runtime::TaskFailure> {
    tokio::select! {
        () = shutdown.begun() => {}
        () = running.shutdown().token().cancelled_owned() => {}
    }
    running.shutdown().begin();
    running.join().await
}

/// The definitions that the controllers watch.
async fn check_definitions(client: &Client) -> Result<(), Failure> {
    let wanted = wanted_definitions();
    let mut missing = Vec::new();
    for (group_version, kind) in &wanted {
        match client.list_api_group_resources(group_version).await {
            Ok(list) if list.resources.iter().any(|r| r.kind == *kind) => {}
            Ok(_) => missing.push(kind.clone()),
            Err(kube::Error::Api(status)) if status.code == 404 => missing.push(kind.clone()),
            Err(error) => return Err(Failure::ApiServer(error.to_string())),
        }
    }
    let group = wanted.first().map(|(group, _)| group.clone()).unwrap_or_default();
    if missing.is_empty() { Ok(()) } else { Err(Failure::Definitions { missing: missing.join(", "), group }) }
}

/// (group/version, kind) of each.
fn wanted_definitions() -> Vec<(String, String)> {
    fn of<K: CustomResourceExt>() -> (String, String) {
        let resource = K::api_resource();
        (resource.api_version, resource.kind)
    }
    vec![
        of::<k8s::ControlPlane>(),
        of::<k8s::StoreCluster>(),
        of::<k8s::Store>(),
        of::<k8s::Router>(),
        of::<k8s::Table>(),
    ]
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Task(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    fn noted(notes: &Arc<Mutex<Vec<&'static str>>>, shutdown: &Shutdown) -> Vec<Controller> {
        let (notes, shutdown) = (notes.clone(), shutdown.clone());
        notes.lock().push("started");
        let controller = async move {
            shutdown.begun().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            notes.lock().push("stopped");
            Ok(())
        };
        vec![("Table", Box::pin(controller))]
    }

    struct Leading {
        told: watch::Sender<Leadership>,
        end: CancellationToken,
        shutdown: Shutdown,
        notes: Arc<Mutex<Vec<&'static str>>>,
        ended: tokio::task::JoinHandle<Result<End, Failure>>,
    }

    fn start() -> Leading {
        let (told, heard) = watch::channel(Leadership::Following);
        let end = CancellationToken::new();
        let shutdown = Shutdown::new(Duration::from_secs(25));
        let notes: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let ended = {
            let (end, shutdown, notes) = (end.clone(), shutdown.clone(), notes.clone());
            tokio::spawn(async move { lead(heard, end, &shutdown, |s| noted(&notes, s)).await })
        };
        Leading { told, end, shutdown, notes, ended }
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_starts_nothing_and_ends_in_order() {
        let leading = start();
        tokio::time::sleep(Duration::from_secs(100)).await;
        leading.shutdown.begin();
        leading.end.cancelled().await;
        leading.told.send_replace(Leadership::Over);
        assert_eq!(leading.ended.await.expect("joined").expect("no failure"), End::Orderly);
        assert!(leading.notes.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_given_back_only_after_the_controllers_have_stopped() {
        let leading = start();
        leading.told.send_replace(Leadership::Leading { transitions: 1 });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*leading.notes.lock(), ["started"]);
        leading.shutdown.begin();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!leading.end.is_cancelled(), "the controllers still run");
        leading.end.cancelled().await;
        assert_eq!(*leading.notes.lock(), ["started", "stopped"]);
        leading.told.send_replace(Leadership::Over);
        assert_eq!(leading.ended.await.expect("joined").expect("no failure"), End::Orderly);
    }

    #[tokio::test(start_paused = true)]
    async fn losing_the_lease_ends_at_once_and_waits_for_nobody() {
        let leading = start();
        leading.told.send_replace(Leadership::Leading { transitions: 1 });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = tokio::time::Instant::now();
        leading.told.send_replace(Leadership::Lost { reason: "asleep".into() });
        let ended = leading.ended.await.expect("joined").expect("no failure");
        assert_eq!(ended, End::LeadershipLost { reason: "asleep".into() });
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert!(!leading.end.is_cancelled(), "nothing is given back");
    }
}
