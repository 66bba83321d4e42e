//! The binary `undb-operator`: what was typed, then a run or a print, then an exit code.

use clap::Parser;
use std::path::Path;
use std::process::ExitCode;
use undb_operator::cli::{Cli, Command, LogFormat, Run};
use undb_operator::crds;
use undb_operator::run::{self, End, Failure};
use undb_runtime::telemetry::{self, Format};

const UNREACHABLE: u8 = 3;
const NO_DEFINITIONS: u8 = 5;
const LOCAL: u8 = 11;
const LEADERSHIP_LOST: u8 = 14;
const INTERNAL: u8 = 20;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Version => {
            println!("undb-operator {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Command::Crds { dir: None } => {
            for (_, yaml) in crds::render() {
                println!("---\n{}", yaml.trim_end());
            }
            ExitCode::SUCCESS
        }
        Command::Crds { dir: Some(dir) } => write_crds(&dir),
        Command::Run(options) => run_operator(*options),
    }
}

fn write_crds(dir: &Path) -> ExitCode {
    let written = std::fs::create_dir_all(dir).and_then(|()| {
        crds::render().into_iter().try_for_each(|(name, yaml)| std::fs::write(dir.join(name), yaml))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(LOCAL, &format!("cannot write into {}: {error}", dir.display())),
    }
}

fn run_operator(options: Run) -> ExitCode {
    let format = match options.log_format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    };
    if let Err(error) = telemetry::init(format, &options.log) {
        return fail(2, &error.to_string());
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(INTERNAL, &format!("no runtime: {error}")),
    };
    let ended = runtime.block_on(run::run(options));
    // IMPORTANT: whatever still runs is dropped with the process; a leader that lost must not do one step more.
    runtime.shutdown_background();
    match ended {
        Ok(End::Orderly) => ExitCode::SUCCESS,
        Ok(End::LeadershipLost { reason }) => {
            fail(LEADERSHIP_LOST, &format!("leadership was lost: {reason}; start it again"))
        }
        Err(failure) => fail(code(&failure), &failure.to_string()),
    }
}

fn code(failure: &Failure) -> u8 {
    match failure {
        Failure::ApiServer(_) => UNREACHABLE,
        Failure::Definitions { .. } => NO_DEFINITIONS,
        Failure::Runtime(_) => LOCAL,
        Failure::Task(_) => INTERNAL,
    }
}

fn fail(code: u8, message: &str) -> ExitCode {
    eprintln!("undb-operator: {message}");
    ExitCode::from(code)
}
