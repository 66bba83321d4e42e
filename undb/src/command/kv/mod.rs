//! `undb kv`: single records and scans, binary-safe.

mod cas;
mod del;
mod get;
mod incr;
pub mod io;
mod put;
mod scan;
mod ttl;

use crate::exit::Outcome;

const EXAMPLES: &str = "\
Examples:
  undb kv put greeting 'hello'            write
  undb kv get greeting                    the raw bytes and nothing else
  undb kv put photo --file photo.webp     from a file; `--file -` or a pipe for stdin
  undb kv get photo > copy.webp
  undb kv put user:1 --sort-key name Ada  all records of one key stay together
  undb kv scan --prefix user: --json      JSON lines that `undb import` reads
  undb kv cas greeting 'hi' --expect 'hello'
  undb kv incr visits

Keys and values are bytes. --base64 takes and prints them as base64, --json prints JSON.
Exit codes: 0 done, 1 absent, 7 condition not met; `undb help exit-codes` lists all.";

/// Read and write records
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Put(put::Args),
    Get(get::Args),
    Del(del::Args),
    Scan(scan::Args),
    Cas(cas::Args),
    Incr(incr::Args),
    Ttl(ttl::Args),
}

/// Runs one of them.
pub async fn run(args: Args) -> Outcome {
    match args.command {
        Command::Put(args) => put::run(args).await,
        Command::Get(args) => get::run(args).await,
        Command::Del(args) => del::run(args).await,
        Command::Scan(args) => scan::run(args).await,
        Command::Cas(args) => cas::run(args).await,
        Command::Incr(args) => incr::run(args).await,
        Command::Ttl(args) => ttl::run(args).await,
    }
}
