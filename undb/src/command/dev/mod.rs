//! `undb dev`: a whole cluster in one process on one directory. Only a composition: each part is what
//! `undb run` starts.
//!
//! ```text
//! DIR/ LOCK        held while a process runs
//!      dev.json    how many stores there are
//!      control/    metadata member, last good routes
//!      store-N/    one store each
//!      proxy/      last good routes
//! start: control plane on --api -> stores on free ports -> default table ready -> proxy -> `ready`
//! end:   proxy -> stores -> control plane
//! ```

mod addresses;
mod directory;
mod start;

use crate::command::run::LogFlags;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use addresses::Addresses;
use directory::Directory;
use start::Cluster;
use std::path::PathBuf;
use std::time::Duration;
use undb_runtime::Shutdown;

const EXAMPLES: &str = "\
Examples:
  undb dev                                   three stores, everything on 127.0.0.1, data in ./undb-data
  undb dev --dir /tmp/try --stores 5
  undb dev --api 0.0.0.0:7380 --token-file token

Then, in another terminal:
  undb kv put hello world
  redis-cli -p 7379 get hello
  curl http://127.0.0.1:7381/readyz
  undb status

Data is kept across restarts; Ctrl-C ends it in order, twice at once. UNDB_LOG=info shows what it
does.";

/// Run a whole cluster in this process, for development and first steps
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where data is kept
    #[arg(long, default_value = "./undb-data", value_name = "DIR")]
    pub dir: PathBuf,
    /// Address of the API: what clients take as --endpoint
    #[arg(long, default_value = "127.0.0.1:7380", value_name = "HOST:PORT")]
    pub api: String,
    /// Address of the Redis protocol
    #[arg(long, default_value = "127.0.0.1:7379", value_name = "HOST:PORT")]
    pub resp: String,
    /// Address of HTTP: keys, /metrics, /healthz, /readyz
    #[arg(long, default_value = "127.0.0.1:7381", value_name = "HOST:PORT")]
    pub http: String,
    /// Number of stores; may grow later, not shrink [default: 3, or as before]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub stores: Option<u32>,
    /// File with the token that every client must give; needed for addresses beyond this machine
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogFlags,
}

/// For stores to hand over and flush; all of them end together, so there is not much to wait for.
const GRACE: Duration = Duration::from_secs(20);

/// Runs until a signal or a failure.
pub async fn run(args: Args) -> Outcome {
    let addresses = Addresses::check(&args).await?;
    let token = args.token_file.as_ref().map(undb_runtime::read_token_file).transpose()?;
    args.log.start("warn,openraft=error")?;
    let directory = Directory::open(&args.dir, args.stores)?;
    let signal = Shutdown::on_signals(GRACE);
    let starting = start::start(&args, &addresses, token, &directory);
    let cluster = tokio::select! {
        started = starting => started?,
        () = signal.begun() => return Err(Failure::new(Exit::Interrupted, "ended while starting")),
    };
    announce(&cluster, &args)?;
    let failed = tokio::select! {
        failed = cluster.failed() => Some(failed),
        () = signal.begun() => None,
    };
    signal.begin();
    let ended = cluster.stop().await;
    match failed {
        Some(failure) => Err(failure),
        None => ended.map(|()| Exit::Ok),
    }
}

/// Tells a person what there is and what to try. The last line begins with `ready`.
fn announce(cluster: &Cluster, args: &Args) -> Outcome<()> {
    let program = std::env::args().next().unwrap_or_else(|| "undb".into());
    let endpoint = match cluster.api.as_str() {
        "127.0.0.1:7380" => String::new(),
        api => format!(" --endpoint {api}"),
    };
    let token = match &args.token_file {
        Some(file) => format!(" --token-file {}", file.display()),
        None => String::new(),
    };
    let client = format!("{endpoint}{token}");
    let port = cluster.resp.rsplit(':').next().unwrap_or_default();
    output::line(format!(
        "{} stores, data in {}; try in another terminal:\n  {program} kv put hello world{client}\n  {program} kv get hello{client}\n  {program} status{client}\n  redis-cli -p {port} get hello\n  {program} apply -f examples/{client}",
        cluster.stores(),
        args.dir.display(),
    ))?;
    output::line(format!(
        "ready: api {}, redis {}, http http://{}; next: `{program} kv put hello world{client}`, `redis-cli -p {port} get hello`, `{program} status{client}`",
        cluster.api, cluster.resp, cluster.http
    ))
}
