//! `undb kv scan`.

use super::io::{self, KeyFlags};
use crate::bytes_text::{escaped, to_base64};
use crate::connect::OnTable;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use bytes::Bytes;
use std::ffi::OsString;
use std::io::Write;
use undb_sdk::{Key, Record, ScanOptions, Span};

const EXAMPLES: &str = "\
Examples:
  undb kv scan                            KEY, a tab, VALUE; \\n and \\xNN for bytes that are no text
  undb kv scan --prefix user: --limit 10
  undb kv scan --from a --to f --reverse
  undb kv scan --key user:1               the sort keys of one key
  undb kv scan --json > table.jsonl       `undb import --key key --value value` reads it back
  undb kv scan --count";

/// List records in key order
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only keys that begin so (with --key: only sort keys that begin so)
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// From this key on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Up to and without this key
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Only records of this key, in the order of their sort keys
    #[arg(long, value_name = "KEY")]
    key: Option<OsString>,
    /// From the last to the first
    #[arg(long)]
    reverse: bool,
    /// At most so many records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Without values
    #[arg(long)]
    keys_only: bool,
    /// Print how many there are and nothing else
    #[arg(long, conflicts_with = "json")]
    count: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Bytes as they are; lines cannot be told apart if there are newlines in them
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Keys and values are base64, given and printed
    #[arg(long)]
    base64: bool,
    #[command(flatten)]
    on: OnTable,
}

/// Prints records page by page.
pub async fn run(args: Args) -> Outcome {
    let span = span(&args)?;
    let keys_only = args.keys_only || args.count;
    let mut options = ScanOptions::over(span);
    if args.reverse {
        options = options.reverse();
    }
    if keys_only {
        options = options.keys_only();
    }
    let limit = args.limit.unwrap_or(u64::MAX);
    options = options.page_len(u32::try_from(limit.clamp(1, 1000)).unwrap_or(1000));
    let table = args.on.open().await?;
    let mut scan = table.scan(options)?;
    let mut left = limit;
    let mut count: u64 = 0;
    while left > 0 {
        let Some(page) = scan.next_page().await? else { break };
        let mut out = Vec::new();
        for (key, record) in page.into_iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            left -= 1;
            count += 1;
            if !args.count {
                write_record(&mut out, &args, &key, &record, !keys_only);
            }
        }
        output::bytes(&out)?;
    }
    if args.count {
        output::line(count.to_string())?;
    }
    Ok(Exit::Ok)
}

fn span(args: &Args) -> Outcome<Span> {
    let flags = KeyFlags { sort_key: None, key_file: None, base64: args.base64 };
    let bytes =
        |text: &Option<OsString>, what: &str| text.clone().map(|t| flags.argument(t, what)).transpose();
    let prefix = bytes(&args.prefix, "--prefix")?;
    let (from, to) = (bytes(&args.from, "--from")?, bytes(&args.to, "--to")?);
    if let (Some(from), Some(to)) = (&from, &to)
        && from > to
    {
        return Err(Failure::usage(
            "--from comes after --to; swap them, and add --reverse for the other order",
        ));
    }
    Ok(match (bytes(&args.key, "--key")?, prefix, from, to) {
        (Some(key), Some(prefix), _, _) => Span::Within(key, prefix),
        (Some(key), None, None, None) => Span::Within(key, Bytes::new()),
        (Some(key), None, from, to) => Span::SortBetween(key, from.unwrap_or_default(), to),
        (None, Some(prefix), _, _) => Span::Prefix(prefix),
        (None, None, None, None) => Span::All,
        (None, None, from, to) => {
            Span::Between(Key::new(from.unwrap_or_default(), ""), to.map(|to| Key::new(to, "")))
        }
    })
}

fn write_record(out: &mut Vec<u8>, args: &Args, key: &Key, record: &Record, with_value: bool) {
    if args.json {
        out.extend_from_slice(io::record_json(key, record, with_value).to_string().as_bytes());
        out.push(b'\n');
        return;
    }
    let part = |out: &mut Vec<u8>, bytes: &[u8]| {
        if args.raw {
            out.extend_from_slice(bytes);
        } else if args.base64 {
            out.extend_from_slice(to_base64(bytes).as_bytes());
        } else {
            let _infallible = write!(out, "{}", escaped(bytes));
        }
    };
    part(out, &key.hash);
    if !key.sort.is_empty() {
        out.push(b'\t');
        part(out, &key.sort);
    }
    if with_value {
        out.push(b'\t');
        part(out, &record.value);
    }
    out.push(b'\n');
}
