//! `undb drain store`: its replicas and leaders move to other stores.

use super::store_action::{set, store_id};
use crate::connect::Connect;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use std::time::{Duration, Instant};
use undb_proto::v1::{SetStoreResponse, StoreAction, StoreState};

const EXAMPLES: &str = "\
Examples:
  undb drain store 3                       begins; asked again, it says what is left
  undb drain store 3 --wait                until the store holds nothing
  undb drain store 3 --wait --within 600   for at most ten minutes; then exit code 13
  undb uncordon store 3                    cancels it
  undb remove store 3                      ends the empty store for ever";

const POLL: Duration = Duration::from_secs(1);

/// Move everything from a store to others
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// store and its number
    #[arg(required = true, num_args = 1..=2, value_name = "store N")]
    store: Vec<String>,
    /// Wait until the store holds nothing, with the progress on stderr
    #[arg(long)]
    wait: bool,
    /// Wait for at most this long; the drain goes on
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    within: Option<u64>,
    #[command(flatten)]
    connect: Connect,
}

/// Drains.
pub async fn run(args: Args) -> Outcome {
    let id = store_id("drain", &args.store)?;
    let admin = args.connect.admin()?;
    let deadline = args.within.map(|s| Instant::now() + Duration::from_secs(s));
    let mut answer = set(&admin, id, StoreAction::StoreDrain, false).await?;
    while args.wait && answer.replicas_left > 0 {
        if deadline.is_some_and(|at| Instant::now() >= at) {
            let message =
                format!("{}; it goes on, `undb explain store {id}` says what it waits for", answer.message);
            return Err(Failure::new(Exit::Unhealthy, message));
        }
        eprintln!("{}", answer.message);
        answer = next(&admin, id, &answer, deadline).await?;
    }
    output::line(answer.message)?;
    Ok(Exit::Ok)
}

/// Looks until something has changed, without draining again what somebody has uncordoned meanwhile.
async fn next(
    admin: &undb_sdk::Admin,
    id: u64,
    before: &SetStoreResponse,
    deadline: Option<Instant>,
) -> Outcome<SetStoreResponse> {
    loop {
        tokio::time::sleep(POLL).await;
        let status = admin.status().await?;
        let found = status.stores.iter().find(|s| s.store.as_ref().is_some_and(|s| s.store_id == id));
        let draining =
            found.is_some_and(|s| s.store.as_ref().is_some_and(|s| s.state() == StoreState::StoreDraining));
        if !draining {
            let message = format!("the drain of store {id} was cancelled meanwhile");
            return Err(Failure::new(Exit::Condition, message));
        }
        let left = found.map_or(0, |s| s.replicas);
        if left != u64::from(before.replicas_left) || deadline.is_some_and(|at| Instant::now() >= at) {
            return set(admin, id, StoreAction::StoreDrain, false).await;
        }
    }
}
