//! From the sources to what is served, in one place and one order.

use super::Router;
use super::build::{is_whole, table_route};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use undb_meta::State;
use undb_proto::v1::{self, TableState};

/// All routes at one time. Cheap to share.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    pub cluster_id: String,
    pub incarnation: u32,
    /// By table name.
    pub routes: BTreeMap<String, Arc<v1::TableRoute>>,
    /// Tables that exist and cannot be served yet, and why.
    pub creating: BTreeMap<String, String>,
    /// There was a source once, or a last-good file.
    pub begun: bool,
    /// Metadata is not followed now.
    pub stale: bool,
}

/// The current routes.
pub(super) struct Publisher {
    current: watch::Sender<Arc<Published>>,
    /// A client's hint said something new.
    pub hinted: Notify,
}

impl Publisher {
    /// Begins with the last good routes, if there are any.
    pub fn new(last_good: Option<Published>) -> Self {
        let current = watch::Sender::new(Arc::new(last_good.unwrap_or_default()));
        Self { current, hinted: Notify::new() }
    }

    pub fn now(&self) -> Arc<Published> {
        self.current.borrow().clone()
    }

    pub fn follow(&self) -> watch::Receiver<Arc<Published>> {
        self.current.subscribe()
    }
}

/// Rebuilds after every change of a source. Ends with the process.
pub(super) async fn publish(router: Router) {
    let mut seen = router.0.meta.seen();
    let mut leaders = router.0.leaders.follow();
    let coalesce = Duration::from_millis(router.0.config.coalesce_ms);
    loop {
        let following = seen.borrow_and_update().following;
        leaders.borrow_and_update();
        let state = router.0.meta.state();
        let old = router.0.publisher.now();
        if let Some(new) = next(&old, &state, &router.0.leaders.now(), following) {
            metrics::gauge!("undb_router_tables").set(new.routes.len() as f64);
            router.0.publisher.current.send_replace(Arc::new(new));
        }
        tokio::select! {
            changed = seen.changed() => if changed.is_err() { return },
            changed = leaders.changed() => if changed.is_err() { return },
            () = router.0.publisher.hinted.notified() => {}
        }
        tokio::time::sleep(coalesce).await;
    }
}

/// What is served next; `None`: nothing changed.
fn next(
    old: &Published,
    state: &State,
    leaders: &BTreeMap<u64, v1::LeaderInfo>,
    following: bool,
) -> Option<Published> {
    let cluster = state.cluster();
    if cluster.cluster_id.is_empty() {
        // No source yet: the last good routes stay.
        return (old.begun && !old.stale).then(|| Published { stale: true, ..old.clone() });
    }
    let same_cluster = old.cluster_id == cluster.cluster_id;
    if same_cluster && cluster.incarnation < old.incarnation {
        metrics::counter!("undb_router_refused_updates_total", "reason" => "incarnation").increment(1);
        return None;
    }
    let mut new = Published {
        cluster_id: cluster.cluster_id.clone(),
        incarnation: cluster.incarnation,
        begun: true,
        stale: !following,
        ..Published::default()
    };
    for table in state.tables() {
        match table.state() {
            TableState::TableReady => {
                let known = old.routes.get(&table.name).filter(|_| same_cluster);
                let route = table_route(state, leaders, table);
                new.routes.insert(table.name.clone(), chosen(known, route));
            }
            TableState::TableCreating => {
                new.creating.insert(table.name.clone(), table.condition.clone());
            }
            TableState::TableDeleted | TableState::Unspecified => {}
        }
    }
    let unchanged = same_cluster
        && new.stale == old.stale
        && new.begun == old.begun
        && new.creating == old.creating
        && new.routes.len() == old.routes.len()
        && new.routes.iter().all(|(name, route)| old.routes.get(name).is_some_and(|o| Arc::ptr_eq(o, route)));
    (!unchanged).then_some(new)
}

/// The old route when the new one says nothing new, or would take something back.
fn chosen(known: Option<&Arc<v1::TableRoute>>, new: v1::TableRoute) -> Arc<v1::TableRoute> {
    let Some(known) = known else { return Arc::new(new) };
    let rank = |r: &v1::TableRoute| r.version.map_or((0, 0), |v| (v.incarnation, v.version));
    if rank(&new) <= rank(known) {
        if rank(&new) < rank(known) {
            metrics::counter!("undb_router_refused_updates_total", "reason" => "older").increment(1);
        }
        return known.clone();
    }
    if !is_whole(&new) {
        metrics::counter!("undb_router_refused_updates_total", "reason" => "hole").increment(1);
        tracing::error!(table = new.name, "route with a hole refused");
        return known.clone();
    }
    Arc::new(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(version: u64, starts: &[&'static str]) -> v1::TableRoute {
        let ends = starts.iter().skip(1).copied().chain(std::iter::once(""));
        let shards = starts.iter().zip(ends).zip(1..).map(|((start, end), shard_id)| v1::RouteShard {
            shard: Some(v1::Shard {
                shard_id,
                range: Some(v1::KeyRange { start: (*start).into(), end: end.into() }),
                ..Default::default()
            }),
            ..Default::default()
        });
        v1::TableRoute {
            shards: shards.collect(),
            version: Some(v1::RouteVersion { incarnation: 1, version }),
            ..Default::default()
        }
    }

    #[test]
    fn a_route_that_is_older_or_has_a_hole_does_not_replace_the_last_good_one() {
        let good = Arc::new(route(5, &["", "m"]));
        assert!(Arc::ptr_eq(&chosen(Some(&good), route(4, &["", "k"])), &good), "older");
        assert!(Arc::ptr_eq(&chosen(Some(&good), route(6, &["a", "m"])), &good), "a hole at the start");
        assert!(Arc::ptr_eq(&chosen(Some(&good), route(6, &[])), &good), "emptied");
        assert_eq!(chosen(Some(&good), route(6, &["", "k"])).version.map(|v| v.version), Some(6));
    }
}
