//! The task that listens to a router and keeps all open tables fresh.
//!
//! ```text
//! connect to a router ──> say which tables and versions ──> snapshot | delta | digests ...
//!        ^ next router, pausing 100 ms to 5 s                  │ stream ends, 35 s of silence, goaway
//!        └─────────────────────────────────────────────────────┘
//! ```
//! An update that does not fit is dropped and a snapshot is asked for. A router that is away costs
//! freshness, not service: errors of stores teach the leaders and ranges that matter.

use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use undb_proto::v1::{self, ErrorCode, route_update::Update, router_client::RouterClient};
use undb_runtime::{Backoff, rpc};

use super::table::{Refused, version_of};
use crate::client::Core;

const SILENCE_MAX: Duration = Duration::from_secs(35);
const REDISCOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs until the client is dropped.
pub(crate) async fn subscribe(core: Weak<Core>) {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    let mut turn = rand::random::<u32>() as usize;
    loop {
        let Some(strong) = core.upgrade() else { return };
        let routers = strong.discovery.load().routers.clone();
        turn = turn.wrapping_add(1);
        if let Some(router) = routers.get(turn % routers.len().max(1)) {
            let began = Instant::now();
            let reason = listen(strong, &core, router).await;
            tracing::debug!(router, reason, "route subscription ended");
            if began.elapsed() > SILENCE_MAX {
                backoff.reset();
            }
        }
        tokio::time::sleep(backoff.next_delay()).await;
        if let Some(strong) = core.upgrade() {
            let _ = strong.rediscover(Instant::now() + REDISCOVER_TIMEOUT).await;
        }
    }
}

/// One subscription; returns why it ended. Holds the client only while it handles something.
async fn listen(strong: Arc<Core>, core: &Weak<Core>, router: &str) -> String {
    let channel = match strong.router_channel(router) {
        Ok(channel) => channel,
        Err(error) => return error.to_string(),
    };
    let tables_changed = strong.tables_changed.clone();
    let (requests, outgoing) = mpsc::channel(16);
    let _ = requests.try_send(request(&strong, &[]));
    drop(strong);
    let mut client = RouterClient::new(channel).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX);
    let opened =
        tokio::time::timeout(Duration::from_secs(2), client.subscribe(ReceiverStream::new(outgoing)));
    let mut updates = match opened.await {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => return status.message().to_owned(),
        Err(_) => return "no answer".into(),
    };
    let mut silent_until = Instant::now() + SILENCE_MAX;
    loop {
        let mut unfit = Vec::new();
        tokio::select! {
            update = updates.message() => {
                let Some(core) = core.upgrade() else { return "client dropped".into() };
                match update {
                    Ok(Some(update)) => match handle(&core, update) {
                        Handled::Fine => {}
                        Handled::Unfit(tables) => unfit = tables,
                        Handled::End(reason) => return reason,
                    },
                    Ok(None) => return "the router ended the stream".into(),
                    Err(status) => return status.message().to_owned(),
                }
                silent_until = Instant::now() + SILENCE_MAX;
                if unfit.is_empty() { continue }
            }
            () = tables_changed.notified() => {}
            () = tokio::time::sleep_until(silent_until) => return "silence".into(),
        }
        let Some(core) = core.upgrade() else { return "client dropped".into() };
        if requests.try_send(request(&core, &unfit)).is_err() {
            return "the router does not take requests".into();
        }
    }
}

/// Which tables, and what is known of each; nothing of those in `unfit`, which asks for a snapshot.
fn request(core: &Core, unfit: &[String]) -> v1::SubscribeRequest {
    let known = |route: Arc<super::LiveRoute>| {
        let (incarnation, version) = route.current().version;
        let fits = !unfit.contains(&route.name);
        v1::KnownTable {
            table: route.name.clone(),
            known: fits.then_some(v1::RouteVersion { incarnation, version }),
        }
    };
    v1::SubscribeRequest {
        cluster_id: core.discovery.load().cluster_id.clone(),
        token: core.options.token.clone().unwrap_or_default(),
        tables: core.open_tables().into_iter().map(known).collect(),
    }
}

enum Handled {
    Fine,
    Unfit(Vec<String>),
    End(String),
}

fn handle(core: &Core, update: v1::RouteUpdate) -> Handled {
    let named = update.table;
    match update.update {
        Some(Update::Snapshot(route)) => {
            let Some(live) = core.open_table(&route.name) else { return Handled::Fine };
            // Asking again at once would bring the same hole again: the next digest asks.
            if let Err(refused) = live.take_snapshot(route, &core.cache)
                && refused != Refused::Older
            {
                tracing::warn!(table = live.name, %refused, "route snapshot refused, keeping the last good one");
            }
            Handled::Fine
        }
        Some(Update::Delta(delta)) => {
            let Some(live) = core.open_table(&delta.name) else { return Handled::Fine };
            match live.take_delta(delta, &core.cache) {
                Ok(()) | Err(Refused::Older) => Handled::Fine,
                Err(refused) => {
                    tracing::debug!(table = live.name, %refused, "route delta refused");
                    Handled::Unfit(vec![live.name.clone()])
                }
            }
        }
        Some(Update::Digests(digests)) => {
            let differs = |d: &v1::TableDigest| {
                let Some(live) = core.open_table(&d.table) else { return false };
                let (known, theirs) = (live.current(), version_of(&d.version));
                theirs > known.version || (theirs == known.version && d.digest != known.digest)
            };
            let unfit: Vec<_> =
                digests.digests.iter().filter(|d| differs(d)).map(|d| d.table.clone()).collect();
            if unfit.is_empty() { Handled::Fine } else { Handled::Unfit(unfit) }
        }
        Some(Update::Goaway(_)) => Handled::End("goaway".into()),
        Some(Update::Error(error)) if error.code() == ErrorCode::TableNotFound => {
            core.close_table(&named);
            Handled::Fine
        }
        Some(Update::Error(error)) => Handled::End(error.message),
        None => Handled::Fine,
    }
}
