//! Cluster control: hears stores, decides with `undb_meta::plan`, and does it.
//!
//! ```text
//!  lease --epoch--> driver: plan(metadata mirror, heard, now) -> tasks --> stores, metadata
//!                      ^                     ^
//!  Admin (Apply ..) -> metadata       Register, Heartbeat (soft state) --> WatchLeaders
//! ```
//! Any number of processes may run; the one that holds the lease works, the others name it. Every
//! write to metadata and every call to a store carries the lease's epoch, so that an owner that was
//! paused while another took over changes nothing.

mod admin;
mod config;
mod describe;
mod driver;
mod execute;
mod explain;
mod gate;
mod gate_seen;
mod heard;
mod lease;
mod moves;
mod refuse;
mod service;
mod status;
mod store_client;
mod stores;
mod table_spec;

pub use config::{Config, Tuning};

use crate::client::MetaClient;
use crate::running::{Bound, Shell, token_of};
use crate::{Running, ServerError};
use heard::Heard;
use lease::Lease;
use std::sync::Arc;
use store_client::StoreClients;
use tonic::service::interceptor::InterceptedService;
use undb_meta::plan::Settings;
use undb_proto::v1::admin_server::AdminServer;
use undb_proto::v1::control_server::ControlServer;
use undb_runtime::rpc::{MESSAGE_BYTES_MAX, Routes};
use undb_runtime::{Clock, Shutdown};

/// Starts cluster control on its own listener.
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
    let control = open(config.tuning, shell, meta)?;
    let routes = add_to(Routes::default(), &control, shell);
    Ok(bound.serve(routes))
}

/// What control's parts share. Clones are the same.
#[derive(Clone)]
pub(crate) struct Control(Arc<Inner>);

struct Inner {
    tuning: Tuning,
    settings: Settings,
    gate: undb_meta::gate::Settings,
    meta: MetaClient,
    lease: Lease,
    heard: Heard,
    stores: StoreClients,
    clock: Clock,
    tasks: undb_runtime::Tasks,
}

/// Control without its listener; begins to ask for the lease.
pub(crate) fn open(tuning: Tuning, shell: &Shell, meta: MetaClient) -> Result<Control, ServerError> {
    tuning.validate()?;
    if tuning.unsafe_gate_off {
        tracing::warn!(
            "THE AVAILABILITY GATE IS OFF (tuning.unsafe_gate_off): every stop is allowed, and shards will go down"
        );
    }
    let clock = Clock::real();
    let settings = settings_of(&tuning);
    let control = Control(Arc::new(Inner {
        lease: Lease::new(shell.advertise.clone(), tuning.lease_ttl_ms),
        heard: Heard::new(monotonic_ms(&clock), settings.disconnected_ms),
        stores: StoreClients::new(shell.credentials.clone()),
        gate: gate_settings_of(&tuning),
        settings,
        meta,
        clock,
        tasks: shell.tasks.clone(),
        tuning,
    }));
    let shutdown = shell.tasks.shutdown();
    let (keeper, ended) = (control.clone(), shutdown.clone());
    shell.tasks.spawn("control-lease", async move {
        tokio::select! {
            () = ended.begun() => {}
            () = lease::keep(keeper) => {}
        }
    });
    let (driver, ended) = (control.clone(), shutdown.clone());
    shell.tasks.spawn("control-driver", async move {
        tokio::select! {
            () = ended.begun() => {}
            () = driver::drive(driver) => {}
        }
    });
    let (gauges, ended) = (control.clone(), shutdown.clone());
    shell.tasks.spawn("control-gate-gauges", async move {
        tokio::select! {
            () = ended.begun() => {}
            () = gate::keep_gauges(gauges) => {}
        }
    });
    let known = control.clone();
    shell.readiness.register("control", move || match known.0.meta.state().control_lease().epoch {
        0 => Err("nobody holds the control lease yet; check that metadata is ready".into()),
        _ => Ok(()),
    });
    Ok(control)
}

/// Adds what control serves.
pub(crate) fn add_to(routes: Routes, control: &Control, shell: &Shell) -> Routes {
    let service = ControlServer::new(control.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let admin = AdminServer::new(control.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    routes
        .add_service(InterceptedService::new(service, shell.internal.clone()))
        .add_service(InterceptedService::new(admin, shell.check.clone()))
}

fn settings_of(tuning: &Tuning) -> Settings {
    Settings {
        disconnected_ms: tuning.disconnected_ms,
        down_ms: tuning.down_ms,
        suspect_ms: tuning.suspect_ms,
        moves_per_store_max: tuning.moves_per_store_max,
        lag_entries_max: tuning.lag_entries_max,
        leader_cooldown_ms: tuning.leader_cooldown_ms,
        leader_moves_max: tuning.leader_moves_max,
        share_default_stores: tuning.share_default_stores,
    }
}

fn gate_settings_of(tuning: &Tuning) -> undb_meta::gate::Settings {
    undb_meta::gate::Settings {
        fresh_ms: tuning.gate_fresh_ms,
        lag_entries_max: tuning.lag_entries_max,
        share_default_stores: tuning.share_default_stores,
        ..undb_meta::gate::Settings::default()
    }
}

fn monotonic_ms(clock: &Clock) -> u64 {
    u64::try_from(clock.monotonic().as_millis()).unwrap_or(u64::MAX)
}

impl Control {
    /// The times that the plan takes.
    fn now(&self) -> undb_meta::plan::Now {
        undb_meta::plan::Now { monotonic_ms: monotonic_ms(&self.0.clock), wall_ms: self.0.clock.now_ms() }
    }
}
