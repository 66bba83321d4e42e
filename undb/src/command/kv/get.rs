//! `undb kv get`.

use super::io::{self, KeyFlags};
use crate::bytes_text;
use crate::connect::OnTable;
use crate::exit::{Exit, Outcome};
use crate::output;
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  undb kv get greeting              raw bytes; a newline only on a terminal
  undb kv get photo > photo.webp
  undb kv get greeting --json       with version and expiry
An absent key: exit 1, one line on stderr, nothing on stdout.";

/// Print the value of a key
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The key
    key: Option<OsString>,
    /// Print one JSON object with value, version and expiry
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: KeyFlags,
    #[command(flatten)]
    on: OnTable,
}

/// Prints the value and nothing else.
pub async fn run(args: Args) -> Outcome {
    let key = args.flags.key(args.key)?;
    let table = args.on.open().await?;
    let record = table.get(&key).await?.ok_or_else(|| io::absent(&key))?;
    if args.json {
        output::line(io::record_json(&key, &record, true).to_string())?;
    } else if args.flags.base64 {
        output::line(bytes_text::to_base64(&record.value))?;
    } else {
        output::bytes(&record.value)?;
        if output::is_terminal() {
            output::line("")?;
        }
    }
    Ok(Exit::Ok)
}
