//! `undb kv incr`.

use super::io::{self, KeyFlags};
use crate::connect::OnTable;
use crate::exit::{Exit, Outcome};
use crate::output;
use std::ffi::OsString;
use std::time::Duration;
use undb_sdk::IncrementOptions;

const EXAMPLES: &str = "\
Examples:
  undb kv incr visits            prints the sum
  undb kv incr stock -3
  undb kv incr quota --ttl 1h    a counter that starts anew every hour
Exactly once, also when an answer is lost on the way.";

/// Add to a number and print the sum
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The key
    key: Option<OsString>,
    /// How much; may be negative
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    by: i64,
    /// What an absent record counts as
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "N")]
    initial: i64,
    /// Lifetime of a record that this creates
    #[arg(long, value_parser = io::duration, value_name = "TIME")]
    ttl: Option<Duration>,
    #[command(flatten)]
    flags: KeyFlags,
    #[command(flatten)]
    on: OnTable,
}

/// Adds and prints.
pub async fn run(args: Args) -> Outcome {
    let key = args.flags.key(args.key)?;
    let options = IncrementOptions { initial: args.initial, ttl: args.ttl };
    let sum = args.on.open().await?.increment_with(&key, args.by, options).await?;
    output::line(sum.to_string())?;
    Ok(Exit::Ok)
}
