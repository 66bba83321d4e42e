//! `undb-peers`: UNDB, redis-server and etcd under the same load, one after the other, in one table.

mod peers;

use clap::Parser;
use peers::{Etcd, Process, Redis};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use undb_bench::{Plan, Report, Target, TargetError, UndbTarget, Workload, run};
use undb_sdk::{Client, Options};

/// Measures UNDB beside redis-server and etcd, with a sync before every answered write.
///
/// UNDB runs as three stores in one process (`undb dev`), etcd as three members, Redis alone (it does
/// not replicate synchronously). All share this machine's disk and processors, one after the other.
#[derive(Parser)]
#[command(
    after_help = "Example:\n  cargo build --release && cargo run --release -p undb-bench -- --sizes 1024,4096 --seconds 20"
)]
struct Args {
    /// Who: undb, redis, etcd. One that is not installed is left out, with a line that says so.
    #[arg(long, value_delimiter = ',', default_value = "undb,redis,etcd")]
    peers: Vec<String>,
    /// What.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "load,a,b,c,f")]
    workloads: Vec<Workload>,
    /// Bytes of a value.
    #[arg(long, value_delimiter = ',', default_value = "1024,4096,16384,32768")]
    sizes: Vec<usize>,
    /// Data per run: the number of keys is this divided by the value's size.
    #[arg(long, default_value_t = 64)]
    data_mib: u64,
    /// Of each run, half in the closed and half in the open loop.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Requests under way.
    #[arg(long, default_value_t = 64)]
    threads: usize,
    /// Where keys and values come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The binary to measure.
    #[arg(long, default_value = "target/release/undb")]
    undb: PathBuf,
    /// One JSON object a run instead of the table.
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let dir = tempfile::tempdir_in(".")?;
    if !args.json {
        println!("{}", Report::header());
    }
    for size in &args.sizes {
        for peer in &args.peers {
            let home = dir.path().join(format!("{peer}-{size}"));
            if let Err(error) = one_peer(&args, peer, *size, &home).await {
                eprintln!("{peer} left out: {error}");
            }
            // The next peer finds the disk as empty as this one did.
            let _ = std::fs::remove_dir_all(&home);
        }
    }
    Ok(())
}

async fn one_peer(args: &Args, peer: &str, size: usize, home: &Path) -> Result<(), TargetError> {
    match peer {
        "undb" => {
            let (target, _process) = start_undb(args, home).await?;
            workloads(args, Arc::new(target), peer, size).await
        }
        "redis" => workloads(args, Arc::new(Redis::start(home).await?), peer, size).await,
        "etcd" => workloads(args, Arc::new(Etcd::start(home).await?), peer, size).await,
        other => Err(TargetError(format!("unknown peer {other:?}; known: undb, redis, etcd"))),
    }
}

async fn start_undb(args: &Args, home: &Path) -> Result<(UndbTarget, Process), TargetError> {
    let failed = |e: io::Error| TargetError(e.to_string());
    let ports = peers::free_ports(3).map_err(failed)?;
    let at = |i: usize| format!("127.0.0.1:{}", ports[i]);
    let program = std::fs::canonicalize(&args.undb).map_err(|e| {
        TargetError(format!("{}: {e}; build it with 'cargo build --release'", args.undb.display()))
    })?;
    let words =
        ["dev", "--dir", "data", "--api", &at(0), "--resp", &at(1), "--http", &at(2)].map(str::to_owned);
    let process = peers::start(&program.to_string_lossy(), &words, home).map_err(failed)?;
    peers::listening(ports[2]).await?;
    let mut options = Options::new([at(0)]);
    options.timeouts.connect = Duration::from_secs(30);
    let client = Client::connect(options).await?;
    let table = client.table("default").await?;
    Ok((UndbTarget::new(client, table), process))
}

async fn workloads<T: Target>(
    args: &Args,
    target: Arc<T>,
    peer: &str,
    size: usize,
) -> Result<(), TargetError> {
    let mut loaded = false;
    for workload in &args.workloads {
        let plan = Plan {
            workload: *workload,
            keys: (args.data_mib << 20) / size.max(1) as u64,
            value_bytes: size,
            threads: args.threads,
            duration: Duration::from_secs(args.seconds),
            rate: None,
            load_first: !loaded,
            seed: args.seed,
        };
        loaded = true;
        let report = run(target.clone(), peer, &plan, Arc::new(|_, _, _| {})).await?;
        if args.json {
            println!("{}", serde_json::to_string(&report).unwrap_or_default());
        } else {
            println!("{}", report.row());
        }
        if let Some(error) = &report.error {
            eprintln!("{peer} {}: {} errors, one of them: {error}", report.workload, report.errors);
        }
    }
    Ok(())
}
