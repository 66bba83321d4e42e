//! `undb remove store`: a store is no part of the cluster any more, for ever.

use super::store_action::{set, store_id};
use crate::connect::Connect;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use undb_proto::v1::{StoreAction, StoreState};

const EXAMPLES: &str = "\
Examples:
  undb remove store 3          refused while it holds replicas: `undb drain store 3` first
  undb remove store 3 --lost   its process and disk are gone: its replicas are made again from the
                               others; refused where a shard would not bear it, with those shards named
Exit code 7: refused; nothing was changed.";

/// Remove a store for ever
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// store and its number
    #[arg(required = true, num_args = 1..=2, value_name = "store N")]
    store: Vec<String>,
    /// Its process and its disk are gone; what it holds is given up
    #[arg(long)]
    lost: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Removes.
pub async fn run(args: Args) -> Outcome {
    let id = store_id("remove", &args.store)?;
    let answer = set(&args.connect.admin()?, id, StoreAction::StoreRemove, args.lost).await?;
    let removed = answer.store.as_ref().is_some_and(|s| s.state() == StoreState::StoreRemoved);
    if removed {
        output::line(answer.message)?;
        return Ok(Exit::Ok);
    }
    let blocking = answer
        .blocking
        .iter()
        .map(|b| format!("\n  shard {} of table {}: {} ({})", b.shard_id, b.table, b.message, b.reason));
    Err(Failure::new(Exit::Condition, answer.message + &blocking.collect::<String>()))
}
