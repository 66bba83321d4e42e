//! `undb bench`: YCSB against a running cluster. The loops and the figures are `undb-bench`'s.

use crate::connect::OnTable;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use undb_bench::{Plan, Progress, Report, UndbTarget, Workload};

const EXAMPLES: &str = "\
Examples:
  undb bench kv --workload load --value-size 4096 --keys 100000
  undb bench kv --workload a --value-size 4096 --keys 100000 --threads 32 --duration 60
  undb bench kv --workload b --rate 5000 --json      latencies at 5,000 requests a second

Workloads (YCSB): a 50% reads 50% updates, b 95/5, c reads only, f 50% read-modify-write, load
inserts every key once. Keys are drawn by a scrambled zipf distribution (0.99).
Half of the time a closed loop finds the throughput, half of it an open loop measures latencies at
--rate (without it: 70% of the throughput). There a request's latency begins when it was due, so a
stall counts for every request that it delayed. WA and SA are bytes written and held for each byte
of keys and values, per replica, from the stores' own counters.";

/// Measure throughput and latencies
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Kv(KvArgs),
}

/// Key-value workloads
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct KvArgs {
    /// a, b, c, f or load
    #[arg(long, value_enum, default_value = "a")]
    workload: Workload,
    /// Bytes of a value
    #[arg(long, default_value_t = 4096, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=16_777_216))]
    value_size: u64,
    /// Records
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,
    /// Requests under way at once
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    threads: u64,
    /// Seconds of both loops together; `load` ends with its keys
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration: u64,
    /// Requests a second in the open loop
    #[arg(long, value_name = "N")]
    rate: Option<PerSecond>,
    /// The records are there already: do not load them first
    #[arg(long)]
    no_load: bool,
    /// Everything that is random comes from it
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    on: OnTable,
}

/// A rate that is a number above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PerSecond(f64);

impl FromStr for PerSecond {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(Self(rate)),
            _ => Err("write requests a second, above 0".into()),
        }
    }
}

/// Runs a workload and prints its figures.
pub async fn run(args: Args) -> Outcome {
    let Command::Kv(args) = args.command;
    let client = args.on.connect.client().await?;
    let table = client.table(&args.on.table).await?;
    let plan = Plan {
        workload: args.workload,
        keys: args.keys,
        value_bytes: usize::try_from(args.value_size).map_err(Failure::usage)?,
        threads: usize::try_from(args.threads).map_err(Failure::usage)?,
        duration: Duration::from_secs(args.duration),
        rate: args.rate.map(|rate| rate.0),
        load_first: !args.no_load,
        seed: args.seed,
    };
    let (bar, progress) = progress();
    let target = Arc::new(UndbTarget::new(client, table));
    let report = undb_bench::run(target, "undb", &plan, progress).await;
    bar.finish_and_clear();
    let report = report.map_err(|e| Failure::new(Exit::Unavailable, e))?;
    if args.json {
        output::line(serde_json::to_string(&report).map_err(Failure::internal)?)?;
    } else {
        output::line(Report::header())?;
        output::line(report.row())?;
    }
    match &report.error {
        Some(error) => Err(Failure::new(
            Exit::Partial,
            format!("{} requests failed, one of them: {error}", report.errors),
        )),
        None => Ok(Exit::Ok),
    }
}

fn progress() -> (ProgressBar, Progress) {
    let bar = ProgressBar::new(0);
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template("{msg:12} {bar:30} {pos}/{len} {per_sec} eta {eta}") {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let progress: Progress = Arc::new(move |phase, done, all| {
        shown.set_message(phase);
        shown.set_length(all);
        shown.set_position(done);
    });
    (bar, progress)
}
