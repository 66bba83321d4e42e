//! `undb`: one binary for every role and every tool.
//!
//! ```text
//! main -> cli (what can be typed) -> command/* (one file a command) -> SDK, servers, files
//!                                          `-> Failure { exit, message } -> stderr, exit code
//! ```
//! Never: logic of a role. A command composes what the crates below offer.

mod bytes_text;
mod cli;
mod command;
mod connect;
mod exit;
mod output;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(exit::Failure::internal(format!("no runtime: {error}"))),
    };
    let result = runtime.block_on(command::run(cli.command));
    // Blocking reads of stdin and the like must not hold up the end.
    runtime.shutdown_background();
    match result {
        Ok(code) => ExitCode::from(code as u8),
        Err(failure) => exit::report(failure),
    }
}
