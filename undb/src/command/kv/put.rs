//! `undb kv put`.

use super::io::{self, KeyFlags};
use crate::connect::OnTable;
use crate::exit::{Exit, Outcome};
use crate::output;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use undb_sdk::{Expect, Expiry, PutOptions};

const EXAMPLES: &str = "\
Examples:
  undb kv put greeting 'hello'
  undb kv put photo --file photo.webp
  date | undb kv put now --ttl 1h
  undb kv put lock me --if-absent --ttl 30s     exit 7 if somebody holds it
  undb kv put --base64 AAEC /wA=";

/// Write a value
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The key
    key: Option<OsString>,
    /// The value; without it and without --file: what is piped in
    #[arg(allow_hyphen_values = true)]
    value: Option<OsString>,
    /// Take the value from a file (- for stdin)
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The record vanishes after this time: 30s, 10m, 2h, 7d
    #[arg(long, value_parser = io::duration, value_name = "TIME")]
    ttl: Option<Duration>,
    /// Keep the time to live of the record that is replaced
    #[arg(long, conflicts_with = "ttl")]
    keep_ttl: bool,
    /// Only if there is no record
    #[arg(long, group = "condition")]
    if_absent: bool,
    /// Only if there is a record
    #[arg(long, group = "condition")]
    if_present: bool,
    /// Only if the record has this version
    #[arg(long, group = "condition", value_name = "VERSION")]
    if_version: Option<u64>,
    /// Print the new version as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: KeyFlags,
    #[command(flatten)]
    on: OnTable,
}

/// Writes; silent when all is well.
pub async fn run(args: Args) -> Outcome {
    let (key, value) = args.flags.words(args.key, args.value);
    let key = args.flags.key(key)?;
    let value = args.flags.value(value, args.file.as_deref())?;
    let mut options = PutOptions::new();
    options.expiry = match args.ttl {
        Some(ttl) => Expiry::After(ttl),
        None if args.keep_ttl => Expiry::Keep,
        None => Expiry::Never,
    };
    options.expect = match args.if_version {
        Some(version) => Some(Expect::Version(version)),
        None if args.if_absent => Some(Expect::Absent),
        None if args.if_present => Some(Expect::Present),
        None => None,
    };
    let table = args.on.open().await?;
    let change = io::applied(&key, table.put_with(&key, value, options).await?)?;
    if args.json {
        output::line(serde_json::json!({"version": change.version, "existed": change.existed}).to_string())?;
    }
    Ok(Exit::Ok)
}
