//! `undb cordon store` and `undb uncordon store`: whether a store gets anything new.

use super::store_action::{set, store_id};
use crate::connect::Connect;
use crate::exit::{Exit, Outcome};
use crate::output;
use undb_proto::v1::StoreAction;

const EXAMPLES: &str = "\
Examples:
  undb cordon store 3        it keeps what it has, and gets no new replicas and no leaders
  undb uncordon store 3      ends a cordon, and cancels a drain";

/// Place nothing new on a store
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// store and its number
    #[arg(required = true, num_args = 1..=2, value_name = "store N")]
    store: Vec<String>,
    #[command(flatten)]
    connect: Connect,
}

/// Cordons.
pub async fn run(args: Args) -> Outcome {
    let id = store_id("cordon", &args.store)?;
    let answer = set(&args.connect.admin()?, id, StoreAction::StoreCordon, false).await?;
    output::line(answer.message)?;
    Ok(Exit::Ok)
}

/// Let a store take replicas and leaders again; cancels a drain
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct UncordonArgs {
    /// store and its number
    #[arg(required = true, num_args = 1..=2, value_name = "store N")]
    store: Vec<String>,
    #[command(flatten)]
    connect: Connect,
}

/// Uncordons.
pub async fn run_uncordon(args: UncordonArgs) -> Outcome {
    let id = store_id("uncordon", &args.store)?;
    let answer = set(&args.connect.admin()?, id, StoreAction::StoreUncordon, false).await?;
    output::line(answer.message)?;
    Ok(Exit::Ok)
}
