//! `undb kv del`.

use super::io::{self, KeyFlags};
use crate::connect::OnTable;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use std::ffi::OsString;
use undb_sdk::Span;

const EXAMPLES: &str = "\
Examples:
  undb kv del greeting
  undb kv del a b c                 exit 1 if one of them was not there; the others are gone
  undb kv del --prefix tmp:         all keys that begin so; prints how many";

/// Delete records
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The keys
    keys: Vec<OsString>,
    /// All keys that begin so, in steps of 1,000; each step is atomic, the whole is not
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<OsString>,
    #[command(flatten)]
    flags: KeyFlags,
    #[command(flatten)]
    on: OnTable,
}

/// Deletes; silent when all is well.
pub async fn run(args: Args) -> Outcome {
    if let Some(prefix) = args.prefix {
        if !args.keys.is_empty() || args.flags.key_file.is_some() || args.flags.sort_key.is_some() {
            return Err(Failure::usage("give keys or --prefix, not both"));
        }
        let prefix = args.flags.argument(prefix, "--prefix")?;
        if prefix.is_empty() {
            return Err(Failure::usage(
                "an empty prefix would delete the whole table; `undb delete table` does that",
            ));
        }
        let removed = args.on.open().await?.delete_range(Span::Prefix(prefix)).await?;
        output::line(format!("{removed} deleted"))?;
        return Ok(Exit::Ok);
    }
    let keys = match args.keys.len() {
        0 => vec![args.flags.key(None)?],
        _ => args.keys.into_iter().map(|k| args.flags.key(Some(k))).collect::<Outcome<_>>()?,
    };
    let table = args.on.open().await?;
    let mut absent = None;
    for key in &keys {
        if !table.delete(key).await? {
            absent.get_or_insert_with(|| io::absent(key));
        }
    }
    absent.map_or(Ok(Exit::Ok), Err)
}
