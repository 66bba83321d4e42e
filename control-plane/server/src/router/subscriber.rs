//! One subscriber: what it was sent last, and what it is due.
//!
//! A subscriber that is slow is not queued for: when there is room again it gets the difference to what
//! is true then, so each costs the same memory however far behind it is.

use super::Router;
use super::build::delta;
use super::publish::Published;
use super::service::{as_sent, find};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};
use undb_proto::v1::{self, ErrorCode, route_update::Update};

type Updates = mpsc::Sender<Result<v1::RouteUpdate, Status>>;

static SUBSCRIBERS: AtomicUsize = AtomicUsize::new(0);

/// What a subscriber has of a table.
#[derive(Clone)]
enum Has {
    /// Nothing, or something that we cannot build on.
    Nothing,
    /// It says that it has this version, from here or from another router.
    Version(v1::RouteVersion),
    /// It was sent this, with this flag.
    Sent(Arc<v1::TableRoute>, bool),
    /// It was told why there is none.
    Told(ErrorCode),
}

pub(super) struct Subscriber {
    router: Router,
    updates: Updates,
    tables: BTreeMap<String, Has>,
    _counted: Counted,
}

/// Takes a subscriber off the count however it ends.
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        let left = SUBSCRIBERS.fetch_sub(1, Ordering::Relaxed) - 1;
        metrics::gauge!("undb_router_subscribers").set(left as f64);
    }
}

impl Subscriber {
    /// `None`: there are too many.
    pub fn new(router: Router, updates: Updates) -> Option<Self> {
        let count = SUBSCRIBERS.fetch_add(1, Ordering::Relaxed) + 1;
        let counted = Counted;
        metrics::gauge!("undb_router_subscribers").set(count as f64);
        (count <= router.0.config.subscribers_max).then(|| Self {
            router,
            updates,
            tables: BTreeMap::new(),
            _counted: counted,
        })
    }

    /// Until the subscriber or the server is gone.
    pub async fn run(mut self, mut requests: Streaming<v1::SubscribeRequest>) {
        let mut routes = self.router.0.publisher.follow();
        let shutdown = self.router.0.tasks.shutdown().clone();
        let every = Duration::from_millis(self.router.0.config.digest_interval_ms);
        let mut digests = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
        loop {
            let now = routes.borrow_and_update().clone();
            if !self.send_due(&now).await {
                return;
            }
            tokio::select! {
                () = shutdown.begun() => return,
                () = self.updates.closed() => return,
                changed = routes.changed() => if changed.is_err() { return },
                _ = digests.tick() => if !self.send_digests().await { return },
                request = requests.message() => match request {
                    Ok(Some(request)) => if !self.take(request).await { return },
                    Ok(None) | Err(_) => return,
                },
            }
        }
    }

    /// The tables that it wants from now on.
    async fn take(&mut self, request: v1::SubscribeRequest) -> bool {
        if let Some(error) = self.router.wrong_cluster(&request.cluster_id) {
            let _gone = self.send(String::new(), Update::Error(error)).await;
            return false;
        }
        let old = std::mem::take(&mut self.tables);
        for wanted in request.tables {
            let has = match (wanted.known, old.get(&wanted.table)) {
                (None, _) => Has::Nothing,
                (Some(known), Some(Has::Sent(sent, stale))) if sent.version == Some(known) => {
                    Has::Sent(sent.clone(), *stale)
                }
                (Some(known), _) => Has::Version(known),
            };
            self.tables.insert(wanted.table, has);
        }
        true
    }

    async fn send_due(&mut self, now: &Published) -> bool {
        let names: Vec<String> = self.tables.keys().cloned().collect();
        for name in names {
            let has = self.tables.get(&name).cloned().unwrap_or(Has::Nothing);
            let (update, next) = match find(now, &name) {
                Ok(route) => match due(now, &has, &route) {
                    Some(update) => (update, Has::Sent(route, now.stale)),
                    None => {
                        self.tables.insert(name, Has::Sent(route, now.stale));
                        continue;
                    }
                },
                Err(error) => {
                    let code = error.code();
                    // Only that a table is gone is news; that it is not ready yet is not.
                    if code != ErrorCode::TableNotFound || matches!(has, Has::Told(told) if told == code) {
                        continue;
                    }
                    (Update::Error(error), Has::Told(code))
                }
            };
            self.tables.insert(name.clone(), next);
            if !self.send(name, update).await {
                return false;
            }
        }
        true
    }

    async fn send_digests(&self) -> bool {
        let digests = self.tables.iter().filter_map(|(table, has)| match has {
            Has::Sent(route, _) => {
                Some(v1::TableDigest { table: table.clone(), version: route.version, digest: route.digest })
            }
            _ => None,
        });
        let digests = v1::RouteDigests { digests: digests.collect() };
        self.send(String::new(), Update::Digests(digests)).await
    }

    async fn send(&self, table: String, update: Update) -> bool {
        let kind = match &update {
            Update::Snapshot(_) => "snapshot",
            Update::Delta(_) => "delta",
            Update::Digests(_) => "digests",
            Update::Goaway(_) => "goaway",
            Update::Error(_) => "error",
        };
        metrics::counter!("undb_router_updates_total", "kind" => kind).increment(1);
        self.updates.send(Ok(v1::RouteUpdate { update: Some(update), table })).await.is_ok()
    }
}

/// What brings a subscriber from what it has to `route`; `None`: nothing.
fn due(now: &Published, has: &Has, route: &Arc<v1::TableRoute>) -> Option<Update> {
    match has {
        Has::Version(known) if Some(*known) == route.version => None,
        Has::Sent(sent, _) if Arc::ptr_eq(sent, route) || sent.version == route.version => None,
        Has::Sent(sent, _) => Some(match delta(sent, route) {
            Some(delta) => Update::Delta(delta),
            None => Update::Snapshot(as_sent(now, route)),
        }),
        Has::Version(_) | Has::Nothing | Has::Told(_) => Some(Update::Snapshot(as_sent(now, route))),
    }
}
