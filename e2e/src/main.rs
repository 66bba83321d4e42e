//! `e2e CASE... --seconds N --seed N`: runs cases one after the other; the last line of each is its figure.
//! `e2e load` and `e2e load-stop` are what cases start as Pods.

use clap::{Parser, Subcommand, ValueEnum};
use std::process::ExitCode;
use std::time::Duration;
use undb_e2e::case::{Case, Failure, Run};
use undb_e2e::load::{self, LoadArgs, StopArgs};
use undb_e2e::tool::{self, CompareArgs, PlaceArgs, SpreadArgs};

/// The long tests of UNDB
#[derive(Debug, Parser)]
#[command(name = "e2e/run", args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    tool: Option<Tool>,
    /// What to run; nothing: everything that needs no Kubernetes
    #[arg(value_enum)]
    cases: Vec<Case>,
    /// How long each case works
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u64,
    /// Decides what the cases do at random; printed, so that a run can be repeated
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// List the cases and end
    #[arg(long)]
    list: bool,
}

/// What cases start somewhere else
#[derive(Debug, Subcommand)]
enum Tool {
    /// A constant load through SDK and RESP, a JSON line a second, until it is told to end
    Load(LoadArgs),
    /// Tells a load in the same Pod to end, and prints what it found
    LoadStop(StopArgs),
    /// Moves the replicas of a table onto given stores
    Place(PlaceArgs),
    /// Moves the replicas of a table until its stores keep about as many
    Spread(SpreadArgs),
    /// Compares rows of the package index with what a proxy answers
    RespCompare(CompareArgs),
    /// Waits, so that commands can run in the same Pod
    Wait,
}

async fn run_tool(tool: Tool) -> ExitCode {
    let result = match tool {
        Tool::Load(args) => load::run(args).await,
        Tool::LoadStop(args) => load::stop(args).await.map(|()| true),
        Tool::Place(args) => said(tool::place(args).await),
        Tool::Spread(args) => said(tool::spread(args).await),
        Tool::RespCompare(args) => said(tool::compare(args).await),
        Tool::Wait => {
            tool::wait().await;
            Ok(true)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("e2e: {problem}");
            ExitCode::from(2)
        }
    }
}

fn said(result: Result<String, String>) -> Result<bool, String> {
    println!("{}", result?);
    Ok(true)
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(tool) = args.tool {
        return run_tool(tool).await;
    }
    if args.list {
        for case in Case::value_variants() {
            println!("{:<16}{}", name(*case), help(*case));
        }
        return ExitCode::SUCCESS;
    }
    let seed = args.seed.unwrap_or_else(rand::random);
    let run = Run { duration: Duration::from_secs(args.seconds.max(1)), seed };
    let local = || Case::value_variants().iter().copied().filter(|case| !case.is_kubernetes()).collect();
    let cases: Vec<Case> = if args.cases.is_empty() { local() } else { args.cases };
    let mut failed = false;
    for case in cases {
        let name = name(case);
        println!("{name}: seed {seed}, {} s", args.seconds);
        // Ctrl-C drops the case, and its processes with it.
        let result = tokio::select! {
            result = case.run(run) => result,
            _ = tokio::signal::ctrl_c() => return ExitCode::from(130),
        };
        match result {
            Ok(figure) => println!("{name}: {figure}"),
            Err(failure) => {
                failed = true;
                let word = if matches!(failure, Failure::Missing(_)) { "CANNOT RUN" } else { "FAILED" };
                println!("{name}: {word}: {failure}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn name(case: Case) -> String {
    case.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

fn help(case: Case) -> String {
    case.to_possible_value()
        .and_then(|value| value.get_help().map(|help| help.to_string()))
        .unwrap_or_default()
}
