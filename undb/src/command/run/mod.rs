//! `undb run`: one role as a process of its own.

pub mod role;

use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use role::Role;
use std::path::PathBuf;
use std::time::Duration;
use undb_runtime::admin::{self, Pages, Readiness};
use undb_runtime::{Shutdown, Tasks, rpc, telemetry};

const EXAMPLES: &str = "\
Examples:
  undb run store --print-config > store.toml      every field with its unit and default
  undb run store --config store.toml --admin 127.0.0.1:9101
  UNDB_LOG=info,undb_store=debug undb run store --config store.toml --log-format json

Roles: meta (what exists), control (decides and repairs), router (tells clients where shards are),
access (where clients begin), store (keeps data), proxy (Redis and HTTP).
Values of the file may name environment variables: \"${NAME}\" is replaced by NAME, ${NAME+1} by a
number and one more, $${ stands for ${ itself; keys and comments stay. A variable that is not set is an
error with its line. The table [tls] of every role names PEM files; they are read again when they
change, within 10 seconds and without a restart.

SIGTERM ends a role in order: a store moves its leaders away and flushes first. A second one ends
it at once.";

/// Run one role: meta, control, router, access, store or proxy
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Which role
    #[arg(value_enum)]
    role: Role,
    /// Its TOML file; fields that do not exist are refused
    #[arg(long, value_name = "FILE", required_unless_present = "print_config")]
    config: Option<PathBuf>,
    /// Print the documented default configuration
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    process: Process,
}

/// What every process has beside its role.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Process")]
pub struct Process {
    /// HOST:PORT of /metrics, /healthz and /readyz, for a store also /replicas (the proxy has them at its HTTP address)
    #[arg(long, env = "UNDB_ADMIN", value_name = "HOST:PORT")]
    pub admin: Option<String>,
    #[command(flatten)]
    pub log: LogFlags,
}

/// How it logs, to stderr.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Process")]
pub struct LogFlags {
    /// text or json
    #[arg(long, env = "UNDB_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub log_format: telemetry::Format,
    /// What to log, for example info,undb_store=debug
    #[arg(long, env = "UNDB_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

impl LogFlags {
    /// Starts metrics and logging.
    pub fn start(&self, default_filter: &str) -> Outcome<()> {
        admin::install_metrics();
        telemetry::init(self.log_format, self.log.as_deref().unwrap_or(default_filter))?;
        Ok(())
    }
}

/// Longest orderly end; each role may have a shorter one of its own.
const GRACE: Duration = Duration::from_secs(30);

/// Prints a configuration, or runs a role until a signal.
pub async fn run(args: Args) -> Outcome {
    if args.print_config {
        output::bytes(args.role.documented_config().as_bytes())?;
        return Ok(Exit::Ok);
    }
    let path = args.config.ok_or_else(|| Failure::usage("give --config FILE"))?;
    args.process.log.start("info,openraft=warn")?;
    let shutdown = Shutdown::on_signals(GRACE);
    let (readiness, pages) = (Readiness::default(), Pages::default());
    let tasks = Tasks::new(shutdown.clone());
    if let Some(address) = &args.process.admin {
        // Before the role: while it waits for others, /readyz says so.
        let listener = rpc::bind(address, "--admin").await?;
        readiness.register("started", || Err("the role is starting".into()));
        let router = admin::router_with(readiness.clone(), pages.clone());
        tasks.spawn_critical("admin", admin::serve(listener, router, shutdown.clone()));
    }
    let ended = args.role.run(&path, &readiness, &pages, &shutdown).await;
    shutdown.begin();
    let admin_ended = tasks.join().await.map_err(Failure::local);
    ended.and(admin_ended)?;
    Ok(Exit::Ok)
}
