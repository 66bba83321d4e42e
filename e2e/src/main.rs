//! `e2e CASE... --seconds N --seed N`: runs cases one after the other; the last line of each is its figure.
//! `e2e load` and `e2e load-stop` are what cases start as Pods.

use clap::{Parser, Subcommand, ValueEnum};
use std::process::ExitCode;
use std::time::Duration;
use undb_e2e::case::{Case, Failure, Run};
use undb_e2e::load::{self, LoadArgs, StopArgs};

/// The long tests of UNDB
#[derive(Debug, Parser)]
#[command(name = "e2e/run", args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    tool: Option<Tool>,
    /// What to run; nothing: everything
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
}

async fn run_tool(tool: Tool) -> ExitCode {
    let result = match tool {
        Tool::Load(args) => load::run(args).await,
        Tool::LoadStop(args) => load::stop(args).await.map(|()| true),
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

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(tool) = args.tool {
        return run_tool(tool).await;
    }
    if args.list {
        for case in Case::value_variants() {
            println!("{:<12}{}", name(*case), help(*case));
        }
        return ExitCode::SUCCESS;
    }
    let seed = args.seed.unwrap_or_else(rand::random);
    let run = Run { duration: Duration::from_secs(args.seconds.max(1)), seed };
    let cases = if args.cases.is_empty() { Case::value_variants().to_vec() } else { args.cases };
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
