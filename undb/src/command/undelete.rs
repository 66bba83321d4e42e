//! `undb undelete table`: brings a deleted table back while its data is kept.

use super::apply::wait_until_usable;
use crate::connect::Connect;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use std::time::Duration;

/// Bring a deleted table back, within seven days
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  undb undelete table sessions")]
pub struct Args {
    /// table
    kind: String,
    /// Its name
    name: String,
    #[command(flatten)]
    connect: Connect,
}

const WAIT: Duration = Duration::from_secs(60);

/// Brings it back.
pub async fn run(args: Args) -> Outcome {
    if !matches!(args.kind.as_str(), "table" | "tables") {
        return Err(Failure::usage(format!("`{}` cannot be brought back; only a table can", args.kind)));
    }
    let message = args.connect.admin()?.undelete(&args.name).await?;
    // Routers hear of it a moment later; the next command of a script should find it.
    wait_until_usable(&args.connect, std::slice::from_ref(&args.name), WAIT).await?;
    output::line(if message.is_empty() { format!("table/{} is back", args.name) } else { message })?;
    Ok(Exit::Ok)
}
