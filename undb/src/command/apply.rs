//! `undb apply`: objects from YAML files to the cluster.

use super::get::{Kind, fetch};
use crate::connect::Connect;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;
use undb_sdk::{Admin, Client};
use undb_spec::{Object, Parsed};

const EXAMPLES: &str = "\
Examples:
  undb apply -f examples/                     every *.yaml and *.yml of a directory, not of those below it
  undb apply -f cluster.yaml -f tables.yaml
  cat tables.yaml | undb apply -f -
  undb apply -f examples/ --dry-run           check them against the cluster, change nothing

Everything is read and checked before the first object is sent. StoreClusters go first.";

/// Create or change StoreClusters and Tables from YAML or JSON files
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A file, a directory, or - for stdin; may be repeated
    #[arg(short, long = "file", value_name = "FILE|DIR", required = true)]
    file: Vec<PathBuf>,
    /// Say what would happen, change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not wait until the tables can be used
    #[arg(long)]
    no_wait: bool,
    /// Wait at most this long for them
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    wait: u64,
    #[command(flatten)]
    connect: Connect,
}

/// Reads, checks, then applies.
pub async fn run(args: Args) -> Outcome {
    let mut objects = Vec::new();
    let mut wrong = Vec::new();
    for file in files(&args.file)? {
        let text = read(&file)?;
        match undb_spec::parse_yaml(&text, &file.display().to_string()) {
            Ok(parsed) => objects.extend(parsed.into_iter().map(|p| (file.clone(), p))),
            Err(error) => wrong.push(error.to_string()),
        }
    }
    if !wrong.is_empty() {
        return Err(Failure::invalid(format!("nothing was applied:\n{}", wrong.join("\n"))));
    }
    if objects.is_empty() {
        return Err(Failure::invalid("the files hold no object; see `undb help apply`"));
    }
    // A table needs its StoreCluster; the order within a kind stays.
    objects.sort_by_key(|(_, parsed)| matches!(parsed.object, Object::Table(_)));
    let admin = args.connect.admin()?;
    let mut failed: Vec<Failure> = Vec::new();
    let mut tables = Vec::new();
    let total = objects.len();
    for (file, Parsed { object, warnings, line }) in objects {
        let name = format!("{}/{}", object.kind().to_lowercase(), object.name());
        for warning in &warnings {
            eprintln!("warning: {}:{line}: {name}: {warning}", file.display());
        }
        match admin.apply(object.to_json(), args.dry_run).await {
            Ok(done) => {
                let new_warnings = done.warnings.iter().filter(|w| !warnings.contains(w));
                new_warnings.for_each(|w| eprintln!("warning: {name}: {w}"));
                let dry = if args.dry_run { " (dry run)" } else { "" };
                output::line(format!("{name} {}{dry}", done.result))?;
                if matches!(object, Object::Table(_)) {
                    tables.push(object.name().to_owned());
                }
            }
            Err(error) => {
                let failure = Failure::from(error);
                eprintln!("undb: {}:{line}: {name}: {}", file.display(), failure.message);
                let unreachable = failure.exit == Exit::Unavailable || failure.exit == Exit::Denied;
                failed.push(failure);
                if unreachable {
                    break;
                }
            }
        }
    }
    let waits = !args.dry_run && !args.no_wait && failed.is_empty();
    if waits {
        return wait_until_usable(&args.connect, &tables, Duration::from_secs(args.wait)).await;
    }
    match failed.as_slice() {
        [] => Ok(Exit::Ok),
        [first, ..] if failed.len() == total || total == 1 => Err(Failure::new(first.exit, "")),
        _ if failed.iter().any(|f| f.exit == Exit::Unavailable || f.exit == Exit::Denied) => {
            Err(Failure::new(
                failed[failed.len() - 1].exit,
                "not everything was applied; the same command goes on",
            ))
        }
        _ => Err(Failure::new(Exit::Partial, format!("{} of {total} objects were refused", failed.len()))),
    }
}

/// A table is made in steps and routers hear of it a moment later; the next command of a script should
/// find it.
pub(super) async fn wait_until_usable(connect: &Connect, tables: &[String], limit: Duration) -> Outcome {
    if tables.is_empty() {
        return Ok(Exit::Ok);
    }
    let (admin, client) = (connect.admin()?, connect.client().await?);
    let deadline = Instant::now() + limit;
    for table in tables {
        while let Some(reason) = not_usable(&admin, &client, table).await? {
            if Instant::now() >= deadline {
                let message = format!(
                    "table/{table} is applied but not ready yet: {reason}; `undb describe table {table}` shows how far it is"
                );
                return Err(Failure::new(Exit::Unhealthy, message));
            }
            tokio::time::sleep(ASK_INTERVAL).await;
        }
    }
    Ok(Exit::Ok)
}

const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// Why a table cannot be used yet; `None`: it can.
async fn not_usable(admin: &Admin, client: &Client, table: &str) -> Outcome<Option<String>> {
    let found = fetch(admin, Kind::Tables, table, "").await?;
    let status = found.first().map(|o| o["status"].clone()).unwrap_or_default();
    if status["ready"].as_bool() != Some(true) {
        let reason = status["reason"].as_str().filter(|r| !r.is_empty()).unwrap_or("no reason given");
        return Ok(Some(reason.to_owned()));
    }
    match client.table(table).await {
        Ok(_) => Ok(None),
        Err(error @ undb_sdk::Error::TableNotFound { .. }) => Ok(Some(format!("a router says that {error}"))),
        Err(error) => Err(error.into()),
    }
}

/// The files that were named, those of a directory in order of their names.
fn files(named: &[PathBuf]) -> Outcome<Vec<PathBuf>> {
    let mut out = Vec::new();
    for path in named {
        if path.as_os_str() == "-" || !path.is_dir() {
            out.push(path.clone());
            continue;
        }
        let mut found = Vec::new();
        let entries = std::fs::read_dir(path).map_err(|e| Failure::file(path, &e))?;
        for entry in entries {
            let file = entry.map_err(|e| Failure::file(path, &e))?.path();
            let yaml = file.extension().is_some_and(|e| e == "yaml" || e == "yml");
            if yaml && file.is_file() {
                found.push(file);
            }
        }
        if found.is_empty() {
            return Err(Failure::invalid(format!("{} holds no *.yaml file", path.display())));
        }
        found.sort();
        out.extend(found);
    }
    Ok(out)
}

fn read(path: &Path) -> Outcome<String> {
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|e| Failure::file(path, &e))
}
