//! A connected client and what its tables share.

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use undb_runtime::{Clock, Credentials, rpc};

use crate::admin::Admin;
use crate::lane::Lanes;
use crate::retry::Budget;
use crate::route::{Cache, Discovery, LiveRoute, RouteTable, discover, resolve, subscribe};
use crate::session::Session;
use crate::{Error, Options, Result, Table};

/// A connection to a cluster. Cheap to clone; all clones share routes and streams.
#[derive(Clone, Debug)]
pub struct Client {
    core: Arc<Core>,
}

/// What all tables of a client share.
#[derive(Debug)]
pub(crate) struct Core {
    pub options: Options,
    pub credentials: Credentials,
    pub clock: Clock,
    pub cache: Cache,
    pub lanes: Arc<Lanes>,
    pub discovery: ArcSwap<Discovery>,
    pub tables_changed: Arc<Notify>,
    // All leaf locks, none held with another.
    pub budget: Mutex<Budget>,
    sessions: Mutex<HashMap<u64, Arc<Session>>>,
    tables: Mutex<HashMap<String, Arc<LiveRoute>>>,
    routers: Mutex<HashMap<String, rpc::AuthChannel>>,
    subscription: Mutex<Option<AbortHandle>>,
    rediscovering: tokio::sync::Mutex<Option<Instant>>,
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Some(task) = self.subscription.lock().take() {
            task.abort();
        }
    }
}

impl Client {
    /// Finds the cluster at any of the endpoints. With a route cache it also starts while none answers.
    pub async fn connect(options: Options) -> Result<Client> {
        let credentials = options.credentials()?;
        let cache = Cache::open(options.cache_dir.as_deref());
        let found = discover(&options, &credentials, Instant::now() + options.timeouts.connect).await;
        let response = match (found, cache.discovery()) {
            (Ok(response), known) => {
                if let Some(known) = known.filter(|k| k.cluster_id != response.cluster_id) {
                    return Err(Error::invalid(format!(
                        "the route cache belongs to cluster {}, not to {}: use another cache directory",
                        known.cluster_id, response.cluster_id
                    )));
                }
                cache.save_discovery(&response);
                response
            }
            (Err(error @ Error::Unreachable { .. }), Some(known)) => {
                tracing::warn!(%error, "starting from the route cache");
                known
            }
            (Err(error), _) => return Err(error),
        };
        let core = Arc::new(Core {
            options,
            credentials,
            clock: Clock::real(),
            cache,
            lanes: Lanes::new(rand::random::<u64>),
            discovery: ArcSwap::from_pointee(Discovery::from(&response)),
            tables_changed: Arc::new(Notify::new()),
            budget: Mutex::new(Budget::new(std::time::Instant::now())),
            sessions: Mutex::default(),
            tables: Mutex::default(),
            routers: Mutex::default(),
            subscription: Mutex::default(),
            rediscovering: tokio::sync::Mutex::default(),
        });
        let task = tokio::spawn(subscribe(Arc::downgrade(&core)));
        *core.subscription.lock() = Some(task.abort_handle());
        Ok(Client { core })
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> String {
        self.core.discovery.load().cluster_id.clone()
    }

    /// A table by name. Fails with `TableNotFound` when there is none.
    pub async fn table(&self, name: impl AsRef<str>) -> Result<Table> {
        let name = name.as_ref();
        if let Some(route) = self.core.open_table(name).filter(|route| !route.is_gone()) {
            return Ok(Table::new(self.core.clone(), route));
        }
        let route = self.core.open(name).await?;
        Ok(Table::new(self.core.clone(), route))
    }

    /// The calls that change what exists.
    pub fn admin(&self) -> Admin {
        Admin::of(&self.core.options, self.core.credentials.clone())
    }
}

impl Core {
    async fn open(&self, name: &str) -> Result<Arc<LiveRoute>> {
        let deadline = Instant::now() + self.options.timeouts.connect;
        let mut round = 0;
        let route = loop {
            let error = match resolve(self, name, None).await {
                Ok(Some(route)) => break route,
                Ok(None) => Error::invalid("a router says not modified to one who knows nothing"),
                Err(error) => error,
            };
            if error.kind() != undb_proto::ErrorKind::Retry {
                return Err(error);
            }
            if let Some(known) = self.cache.route(name) {
                tracing::warn!(table = name, %error, "route from the cache");
                break known;
            }
            let pause = crate::retry::backoff(round + 4, rand::random());
            round += 1;
            if Instant::now() + pause >= deadline {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        };
        let table = RouteTable::from_snapshot(route)
            .map_err(|refused| Error::invalid(format!("the route of table {name:?}: {refused}")))?;
        self.cache.save_route(&table.to_snapshot());
        let route = Arc::new(LiveRoute::new(table));
        let route = {
            let mut tables = self.tables.lock();
            let slot = tables.entry(name.to_owned()).or_insert_with(|| route.clone());
            if slot.is_gone() {
                *slot = route;
            }
            slot.clone()
        };
        self.tables_changed.notify_one();
        Ok(route)
    }

    pub fn open_table(&self, name: &str) -> Option<Arc<LiveRoute>> {
        self.tables.lock().get(name).cloned()
    }

    pub fn open_tables(&self) -> Vec<Arc<LiveRoute>> {
        self.tables.lock().values().cloned().collect()
    }

    /// The table is no more. Handles to it find out with their next call.
    pub fn close_table(&self, name: &str) {
        if let Some(route) = self.tables.lock().remove(name) {
            route.set_gone();
        }
        self.cache.forget_route(name);
    }

    /// The way to a store; a new one when its address changed.
    pub fn session(&self, store: u64, address: &str) -> Arc<Session> {
        let mut sessions = self.sessions.lock();
        if let Some(known) = sessions.get(&store).filter(|s| s.address == address) {
            return known.clone();
        }
        let (credentials, connections) = (self.credentials.clone(), self.options.connections_per_store);
        let session = Arc::new(Session::new(store, address.to_owned(), credentials, connections));
        sessions.insert(store, session.clone());
        session
    }

    /// True while calls should avoid a store.
    pub fn is_avoided(&self, store: u64) -> bool {
        let session = self.sessions.lock().get(&store).cloned();
        session.is_some_and(|s| s.is_avoided())
    }

    pub fn router_channel(&self, address: &str) -> Result<rpc::AuthChannel> {
        let mut routers = self.routers.lock();
        if let Some(channel) = routers.get(address) {
            return Ok(channel.clone());
        }
        let channel = rpc::auth_channel(address, self.credentials.clone())
            .map_err(|e| Error::Unreachable { addresses: vec![address.into()], cause: e.to_string() })?;
        routers.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    /// Finds out anew who routes; at most one caller asks, and not more than once a second.
    pub async fn rediscover(&self, deadline: Instant) -> Result<()> {
        let mut last = self.rediscovering.lock().await;
        if last.is_some_and(|at| at.elapsed() < std::time::Duration::from_secs(1)) {
            return Ok(());
        }
        let found = discover(&self.options, &self.credentials, deadline).await;
        *last = Some(Instant::now());
        let response = found?;
        let next = Discovery::from(&response);
        let known = self.discovery.load_full();
        let same_cluster = next.cluster_id == known.cluster_id;
        if same_cluster && next.incarnation >= known.incarnation {
            self.cache.save_discovery(&response);
            self.discovery.store(Arc::new(next));
        } else {
            tracing::warn!(cluster = next.cluster_id, incarnation = next.incarnation, "discovery refused");
        }
        Ok(())
    }
}
