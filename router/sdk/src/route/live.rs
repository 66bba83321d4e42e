//! The current route of one table, shared by all its handles.

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use undb_proto::v1::{self, ErrorCode};

use super::table::{Refused, RouteTable};
use super::{Cache, resolve};
use crate::client::Core;
use crate::{Error, Result};

/// Routers are not asked more often than this for one table, give or take half.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// A table's route and how it is renewed.
#[derive(Debug)]
pub(crate) struct LiveRoute {
    pub name: String,
    current: ArcSwap<RouteTable>,
    // Serialises changes of `current`. Leaf lock.
    changing: Mutex<()>,
    // When the last refresh ended; held while one runs, so that one asks for all.
    refreshing: tokio::sync::Mutex<Option<Instant>>,
    refresh_runs: AtomicBool,
    gone: AtomicBool,
}

impl LiveRoute {
    pub fn new(table: RouteTable) -> Self {
        Self {
            name: table.name.clone(),
            current: ArcSwap::from_pointee(table),
            changing: Mutex::new(()),
            refreshing: tokio::sync::Mutex::new(None),
            refresh_runs: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }

    pub fn current(&self) -> Arc<RouteTable> {
        self.current.load_full()
    }

    /// True when a router said that the table is no more.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Takes a snapshot if it fits.
    pub fn take_snapshot(&self, route: v1::TableRoute, cache: &Cache) -> Result<(), Refused> {
        self.change(cache, |now| now.with_snapshot(route))
    }

    /// Takes a delta if it fits.
    pub fn take_delta(&self, delta: v1::RouteDelta, cache: &Cache) -> Result<(), Refused> {
        self.change(cache, |now| now.with_delta(delta))
    }

    /// Learns from a store. True: it was news.
    pub fn learn_shards(&self, shards: &[v1::Shard]) -> bool {
        self.learn(|now| now.with_shards(shards))
    }

    /// Learns from a store. True: it was news.
    pub fn learn_leader(&self, shard: u64, replica: u64, term: u64) -> bool {
        self.learn(|now| now.with_leader(shard, replica, term))
    }

    /// Learns that a store leads, because it answered.
    pub fn prove_leader(&self, shard: u64, store: u64) {
        self.learn(|now| now.with_proven_leader(shard, store));
    }

    fn change(
        &self,
        cache: &Cache,
        next: impl FnOnce(&RouteTable) -> Result<RouteTable, Refused>,
    ) -> Result<(), Refused> {
        let _changing = self.changing.lock();
        let result = next(&self.current.load());
        let label = if result.is_ok() { "taken" } else { "refused" };
        metrics::counter!("undb_sdk_route_updates_total", "result" => label).increment(1);
        let table = result?;
        cache.save_route(&table.to_snapshot());
        self.current.store(Arc::new(table));
        self.gone.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn learn(&self, next: impl FnOnce(&RouteTable) -> Option<RouteTable>) -> bool {
        let _changing = self.changing.lock();
        let news = next(&self.current.load());
        let is_news = news.is_some();
        if let Some(table) = news {
            self.current.store(Arc::new(table));
        }
        is_news
    }

    /// Asks a router, unless somebody did since `since`. A router that is away is no error: what is known
    /// goes on being used.
    pub async fn refresh(&self, core: &Core, since: Instant) -> Result<()> {
        let mut last = self.refreshing.lock().await;
        if let Some(ended) = *last {
            if ended >= since {
                return self.check();
            }
            let spread = 0.5 + rand::random::<f64>();
            tokio::time::sleep_until(ended + REFRESH_INTERVAL.mul_f64(spread)).await;
        }
        match resolve(core, &self.name, Some(self.current().version)).await {
            Ok(Some(route)) => {
                if let Err(refused) = self.take_snapshot(route, &core.cache) {
                    tracing::debug!(table = self.name, %refused, "route not taken");
                }
            }
            Ok(None) => self.gone.store(false, Ordering::Relaxed),
            Err(error) if error.code() == ErrorCode::TableNotFound => self.set_gone(),
            Err(error) => tracing::debug!(table = self.name, %error, "route refresh failed"),
        }
        *last = Some(Instant::now());
        drop(last);
        self.check()
    }

    /// The same in the background, once at a time.
    pub fn refresh_soon(self: &Arc<Self>, core: &Arc<Core>) {
        if self.refresh_runs.swap(true, Ordering::AcqRel) {
            return;
        }
        let (route, core) = (self.clone(), core.clone());
        tokio::spawn(async move {
            let _ = route.refresh(&core, Instant::now()).await;
            route.refresh_runs.store(false, Ordering::Release);
        });
    }

    fn check(&self) -> Result<()> {
        if self.is_gone() { Err(Error::TableNotFound { table: self.name.clone() }) } else { Ok(()) }
    }
}
