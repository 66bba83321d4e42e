//! `undb move replica`: one copy of a shard to a store that a person chose.

use crate::connect::Connect;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undb get shards -o wide                          where replicas are, and how far moves are
  undb move replica --shard 12 --from 1 --to 4
  undb explain shard 12                            what it does now, and what it waits for
  undb move replica --shard 12 --cancel            until its members begin to change";

/// Move a replica of a shard to another store
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// replica
    #[arg(value_name = "replica")]
    kind: String,
    /// The shard
    #[arg(long, value_name = "ID")]
    shard: u64,
    /// The store that has the replica
    #[arg(long, value_name = "STORE", required_unless_present = "cancel")]
    from: Option<u64>,
    /// The store that is to have it
    #[arg(long, value_name = "STORE", required_unless_present = "cancel")]
    to: Option<u64>,
    /// Give the move of this shard up
    #[arg(long, conflicts_with_all = ["from", "to"])]
    cancel: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Begins the move, or gives it up.
pub async fn run(args: Args) -> Outcome {
    if !matches!(&args.kind[..], "replica" | "replicas") {
        return Err(Failure::usage(format!(
            "`{}` cannot be moved; write `undb move replica --shard S --from A --to B`",
            args.kind
        )));
    }
    let admin = args.connect.admin()?;
    let message = match (args.cancel, args.from, args.to) {
        (true, ..) => admin.cancel_move(args.shard).await?,
        (false, Some(from), Some(to)) => admin.move_replica(args.shard, from, to).await?,
        _ => return Err(Failure::usage("name both stores: --from A --to B")),
    };
    output::line(message)?;
    Ok(Exit::Ok)
}
