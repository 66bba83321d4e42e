//! `undb kv cas`: compare and set.

use super::io::{self, KeyFlags};
use crate::connect::OnTable;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use std::ffi::OsString;
use std::path::PathBuf;
use undb_sdk::{Expect, Expiry, PutOptions};

const EXAMPLES: &str = "\
Examples:
  undb kv cas greeting 'hi' --expect 'hello'      only if the value is `hello`
  undb kv cas greeting 'hi' --version 12          only if nobody wrote since version 12
  undb kv cas greeting 'hi' --absent              only if there is no record
Exit 7: the condition did not hold and nothing was changed. The record keeps its time to live.";

/// Write a value if the record is as expected
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("expected").required(true).args(["expect", "expect_file", "version", "absent"]))]
pub struct Args {
    /// The key
    key: Option<OsString>,
    /// The new value; without it and without --file: what is piped in
    #[arg(allow_hyphen_values = true)]
    value: Option<OsString>,
    /// Take the new value from a file (- for stdin)
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The value that must be there
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    expect: Option<OsString>,
    /// A file with the value that must be there
    #[arg(long, value_name = "FILE")]
    expect_file: Option<PathBuf>,
    /// The version that must be there (`kv get --json` prints it)
    #[arg(long)]
    version: Option<u64>,
    /// There must be no record
    #[arg(long)]
    absent: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: KeyFlags,
    #[command(flatten)]
    on: OnTable,
}

/// Writes if the condition holds.
pub async fn run(args: Args) -> Outcome {
    let (key, value) = args.flags.words(args.key, args.value);
    let key = args.flags.key(key)?;
    let value = args.flags.value(value, args.file.as_deref())?;
    let expect = match (args.expect, args.expect_file, args.version, args.absent) {
        (Some(value), ..) => Expect::Value(args.flags.argument(value, "--expect")?),
        (_, Some(path), ..) => Expect::Value(args.flags.value(None, Some(&path))?),
        (_, _, Some(version), _) => Expect::Version(version),
        (_, _, _, true) => Expect::Absent,
        _ => return Err(Failure::usage("what must be there? give --expect, --version or --absent")),
    };
    let options = PutOptions::new().when(expect).expiry(Expiry::Keep).return_previous();
    let outcome = args.on.open().await?.put_with(&key, value, options).await?;
    if args.json {
        let applied = outcome.is_applied();
        let report = match &outcome {
            undb_sdk::WriteOutcome::Applied(changes) => {
                serde_json::json!({"applied": true, "version": changes.first().map(|c| c.version)})
            }
            undb_sdk::WriteOutcome::ConditionFailed { current, .. } => serde_json::json!({
                "applied": false,
                "current": current.as_ref().map(|record| io::record_json(&key, record, true)),
            }),
        };
        output::line(report.to_string())?;
        return Ok(if applied { Exit::Ok } else { Exit::Condition });
    }
    io::applied(&key, outcome)?;
    Ok(Exit::Ok)
}
