//! `undb import`: CSV and JSON lines into a table.
//!
//! ```text
//! source (a thread) --batches, bounded--> load (window of put_many, AIMD) --> ledger
//!                                                                              |-> rejected rows
//!                                                                              `-> checkpoint
//! ```
//! Invariant: everything before the checkpoint's offset is acknowledged or in the file of rejected
//! rows, and nothing behind it is in that file. So an interrupted run goes on without loss, and what
//! is written twice is the same record again.

mod checkpoint;
mod ledger;
mod load;
mod progress;
mod row;
mod source;
mod stall;
mod template;
mod window;

use crate::bytes_text::{size, span};
use crate::command::kv::io::duration;
use crate::connect::OnTable;
use crate::exit::{Exit, Failure, Outcome};
use checkpoint::{Checkpoint, Print};
use ledger::Ledger;
use load::Writing;
use progress::Progress;
use row::Mapping;
use source::Source;
use std::path::{Path, PathBuf};
use std::time::Duration;
use template::Template;

const EXAMPLES: &str = "\
Examples:
  undb import --table packages --key package packages.jsonl        the whole line is the value
  undb import --key '{package}/{version}' --value stanza packages.jsonl
  undb import --key user --sort-key date --value amount sales.csv  one column is the value
  zcat big.jsonl.gz | undb import --key id --format jsonl -

--key and --sort-key take a column, or a template with {column}s. Of a CSV file the whole row becomes
a JSON object. When it is interrupted, the same command goes on where it stopped. Rows that cannot be
written go to FILE.rejected.jsonl with the reason, and the exit code is 10.";

/// Load a CSV or JSONL file into a table
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file, or - for stdin
    file: PathBuf,
    /// Column of the key, or a template: '{package}/{version}'
    #[arg(long, value_name = "COLUMN|TEMPLATE")]
    key: Template,
    /// Column or template of the sort key
    #[arg(long, value_name = "COLUMN|TEMPLATE")]
    sort_key: Option<Template>,
    /// Column of the value; without it the whole row is
    #[arg(long, value_name = "COLUMN")]
    value: Option<String>,
    /// What the file holds; without it its name decides
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// What separates the columns of a CSV file
    #[arg(long, default_value = ",", value_name = "CHAR")]
    delimiter: String,
    /// Records vanish after this time: 30s, 10m, 2h, 7d
    #[arg(long, value_parser = duration, value_name = "TIME")]
    ttl: Option<Duration>,
    /// Most batches under way at once; fewer when the stores are busy
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    concurrency: u32,
    /// Give up when no write went through for this long; the same command then goes on there
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    retry_for: u64,
    /// Where to note how far it came [default: FILE.undb-checkpoint]
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Where to put rows that cannot be written [default: FILE.rejected.jsonl]
    #[arg(long, value_name = "FILE")]
    rejected: Option<PathBuf>,
    /// Begin at the first row, whatever the checkpoint says
    #[arg(long)]
    restart: bool,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    on: OnTable,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated, the first line names the columns
    Csv,
    /// One JSON object a line
    Jsonl,
}

/// Loads, or goes on loading.
pub async fn run(args: Args) -> Outcome {
    let stdin = args.file.as_os_str() == "-";
    let format = format_of(&args)?;
    let mapping = Mapping {
        format,
        key: args.key.clone(),
        sort_key: args.sort_key.clone(),
        value: args.value.clone(),
        delimiter: delimiter(&args.delimiter)?,
    };
    // Connect first: a wrong table is found out before a large file is looked at.
    let client = args.on.connect.client().await?;
    let table = client.table(&args.on.table).await?;
    let print =
        Print { cluster: client.cluster_id(), table: args.on.table.clone(), mapping: mapping.describe() };
    let at = |named: &Option<PathBuf>, suffix: &str| {
        named.clone().or_else(|| (!stdin).then(|| beside(&args.file, suffix)))
    };
    let checkpoint_path = at(&args.checkpoint, ".undb-checkpoint").filter(|_| !stdin);
    let rejected_path =
        at(&args.rejected, ".rejected.jsonl").unwrap_or_else(|| "stdin.rejected.jsonl".into());

    let start = match (&checkpoint_path, args.restart) {
        (Some(path), false) => Checkpoint::load(path, &args.file, &print)?.unwrap_or_default(),
        _ => Checkpoint::default(),
    };
    if start.offset > 0 {
        eprintln!("going on after row {} ({}); --restart begins anew", start.rows, size(start.offset));
    }
    let source = Source::open(&args.file, mapping, start.offset, start.lines)?;
    let progress = Progress::new(source.total_bytes(), start.offset, start.rows, args.quiet);
    let mut ledger = Ledger::new(start, &args.file, checkpoint_path, rejected_path, print)?;
    let stop = load::stop_on_signal();
    let writing = Writing {
        ttl: args.ttl,
        concurrency: args.concurrency,
        retry_for: Duration::from_secs(args.retry_for),
    };
    let ended = load::load(source, &table, writing, &mut ledger, &progress, stop).await;
    ledger.save(true)?;
    progress.finish();
    report(ended, &ledger, &progress)
}

fn report(ended: Outcome<load::Ended>, ledger: &Ledger, progress: &Progress) -> Outcome {
    let state = ledger.state();
    let again = if ledger.can_resume() { "; the same command goes on there" } else { "" };
    let ended = ended.map_err(|failure| {
        Failure::new(failure.exit, format!("{} (after row {}{again})", failure.message, state.rows))
    })?;
    if ended == load::Ended::Stopped {
        return Err(Failure::new(Exit::Interrupted, format!("stopped after row {}{again}", state.rows)));
    }
    let seconds = progress.elapsed().as_secs_f64();
    let (rows, bytes) = progress.since_start();
    eprintln!(
        "{} rows imported ({} now, {} in {}, {:.0} rows/s, {}/s)",
        state.rows - state.rejected,
        rows,
        size(bytes),
        span(seconds),
        rows as f64 / seconds.max(0.001),
        size((bytes as f64 / seconds.max(0.001)) as u64),
    );
    if state.rejected > 0 {
        return Err(Failure::new(
            Exit::Partial,
            format!("{} rows were rejected; see {}", state.rejected, ledger.rejected_path().display()),
        ));
    }
    ledger.done()?;
    Ok(Exit::Ok)
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn format_of(args: &Args) -> Outcome<Format> {
    let extension = args.file.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    match (args.format, extension.as_deref()) {
        (Some(format), _) => Ok(format),
        (None, Some("csv" | "tsv")) => Ok(Format::Csv),
        (None, Some("jsonl" | "ndjson" | "json")) => Ok(Format::Jsonl),
        _ => Err(Failure::usage("the file's name does not say what it holds; give --format csv or jsonl")),
    }
}

fn delimiter(text: &str) -> Outcome<u8> {
    match text.as_bytes() {
        [one] => Ok(*one),
        b"\\t" => Ok(b'\t'),
        _ => Err(Failure::usage("--delimiter must be one byte, or \\t")),
    }
}
