//! `undb kv ttl`.

use super::io::{self, KeyFlags};
use crate::connect::OnTable;
use crate::exit::{Exit, Outcome};
use crate::output;
use std::ffi::OsString;
use std::time::Duration;
use undb_runtime::Clock;
use undb_sdk::Ttl;

const EXAMPLES: &str = "\
Examples:
  undb kv ttl session:7              seconds left, or `never`
  undb kv ttl session:7 --set 30m
  undb kv ttl session:7 --persist    it stays";

/// Show or set how long a record still lives
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The key
    key: Option<OsString>,
    /// Let it vanish after this time: 30s, 10m, 2h, 7d
    #[arg(long, value_parser = io::duration, value_name = "TIME")]
    set: Option<Duration>,
    /// Let it stay
    #[arg(long, conflicts_with = "set")]
    persist: bool,
    #[command(flatten)]
    flags: KeyFlags,
    #[command(flatten)]
    on: OnTable,
}

/// Prints or sets.
pub async fn run(args: Args) -> Outcome {
    let key = args.flags.key(args.key)?;
    let table = args.on.open().await?;
    if let Some(ttl) = args.set {
        return present(table.expire(&key, ttl).await?, &key);
    }
    if args.persist {
        return present(table.persist(&key).await?, &key);
    }
    match table.ttl(&key).await? {
        Ttl::Absent => Err(io::absent(&key)),
        Ttl::Never => output::line("never").map(|()| Exit::Ok),
        Ttl::AtMs(at) => {
            let left_ms = at.saturating_sub(Clock::real().now_ms());
            output::line(left_ms.div_ceil(1000).to_string()).map(|()| Exit::Ok)
        }
    }
}

fn present(there: bool, key: &undb_sdk::Key) -> Outcome {
    if there { Ok(Exit::Ok) } else { Err(io::absent(key)) }
}
