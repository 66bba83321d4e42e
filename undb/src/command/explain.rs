//! `undb explain`: what is, what is wanted, what is done about it and why, and what it waits for.

use super::get::Kind;
use crate::connect::Connect;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undb explain shard 12
  undb explain store 3
  undb explain table packages";

/// Say why a shard, a store or a table is as it is, and what happens next
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// shard, store or table
    kind: String,
    /// Its number or name
    name: String,
    #[command(flatten)]
    connect: Connect,
}

/// Prints the explanation.
pub async fn run(args: Args) -> Outcome {
    let kind = Kind::parse(&args.kind)?;
    if !matches!(kind, Kind::Shards | Kind::Stores | Kind::Tables) {
        let message = format!("{} cannot be explained; ask for a shard, a store or a table", kind.as_str());
        return Err(Failure::usage(message));
    }
    let lines = args.connect.admin()?.explain(kind.as_str(), &args.name).await?;
    for line in lines {
        output::line(line)?;
    }
    Ok(Exit::Ok)
}
