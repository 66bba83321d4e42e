//! `undb delete`: an object goes; a table's data stays for seven days unless told otherwise.

use super::get::Kind;
use crate::connect::Connect;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undb delete table sessions          its data stays for seven days; `undb undelete table sessions`
  undb delete table sessions --now    at once and for ever
  undb delete storecluster small-values";

/// Delete a table or a storecluster
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// table or storecluster
    kind: String,
    /// Its name
    name: String,
    /// Do not keep a table's data for seven days
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Deletes one object.
pub async fn run(args: Args) -> Outcome {
    let kind = Kind::parse(&args.kind)?;
    if !matches!(kind, Kind::Tables | Kind::StoreClusters) {
        return Err(Failure::usage(format!(
            "{} are not deleted by hand; delete a table or a storecluster",
            kind.as_str()
        )));
    }
    let message = args.connect.admin()?.delete(kind.as_str(), &args.name, args.now).await?;
    let singular = kind.as_str().trim_end_matches('s');
    output::line(if message.is_empty() { format!("{singular}/{} deleted", args.name) } else { message })?;
    Ok(Exit::Ok)
}
