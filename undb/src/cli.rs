//! Everything that can be typed. Each command's flags stand in its own file.

use crate::command::{
    apply, bench, cordon, delete, describe, dev, drain, explain, get, import, inspect, kv, move_replica,
    remove, resp, run, status, undelete, unsupported,
};
use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  undb dev                                    a whole cluster in one process, data in ./undb-data
  undb apply -f examples/                     create StoreClusters and Tables from YAML
  undb kv put greeting 'hello'                write; `undb kv get greeting` reads it back
  undb import --table packages --key package packages.jsonl
  undb status                                 what is where, is it fine, and if not why
  undb drain store 3 --wait                   move everything from a store; `undb explain store 3`
  undb bench kv --workload a --duration 30    throughput and latencies

`undb help COMMAND` says more; `undb help exit-codes` lists what scripts can rely on.";

/// A durable, replicated key-value store for values of up to some 32 KB
#[derive(Debug, Parser)]
#[command(name = "undb", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Dev(Box<dev::Args>),
    Run(run::Args),
    Apply(apply::Args),
    Get(get::Args),
    Describe(describe::Args),
    Delete(delete::Args),
    Undelete(undelete::Args),
    Status(status::Args),
    Explain(explain::Args),
    Cordon(cordon::Args),
    Uncordon(cordon::UncordonArgs),
    Drain(drain::Args),
    Remove(remove::Args),
    Move(move_replica::Args),
    Kv(kv::Args),
    Resp(resp::Args),
    Import(Box<import::Args>),
    Bench(bench::Args),
    Inspect(inspect::Args),
    /// Explain a command, or a topic: exit-codes, config
    Help(crate::command::help::Args),
    #[command(flatten)]
    Unsupported(unsupported::Command),
}
