//! The last good routes on disk, so that a client can start while the control plane is away. Everything
//! in it can be fetched again: a cache that cannot be opened or read is as good as an empty one.

use prost::Message;
use std::path::Path;
use undb_proto::v1;

const DISCOVERY: &[u8] = b"discovery";
const ROUTE_PREFIX: &str = "route/";

/// A sled database: `discovery` -> DiscoverResponse, `route/TABLE` -> TableRoute.
#[derive(Debug)]
pub(crate) struct Cache(Option<sled::Db>);

impl Cache {
    pub fn open(dir: Option<&Path>) -> Self {
        let Some(dir) = dir else { return Self(None) };
        match sled::Config::new().path(dir).cache_capacity(1 << 20).open() {
            Ok(db) => Self(Some(db)),
            Err(error) => {
                tracing::warn!(%error, "route cache cannot be opened, going on without");
                Self(None)
            }
        }
    }

    pub fn discovery(&self) -> Option<v1::DiscoverResponse> {
        self.read(DISCOVERY)
    }

    pub fn save_discovery(&self, discovery: &v1::DiscoverResponse) {
        self.write(DISCOVERY, discovery);
    }

    pub fn route(&self, table: &str) -> Option<v1::TableRoute> {
        self.read(format!("{ROUTE_PREFIX}{table}").as_bytes())
    }

    pub fn save_route(&self, route: &v1::TableRoute) {
        self.write(format!("{ROUTE_PREFIX}{}", route.name).as_bytes(), route);
    }

    pub fn forget_route(&self, table: &str) {
        if let Some(db) = &self.0 {
            let _ = db.remove(format!("{ROUTE_PREFIX}{table}"));
        }
    }

    fn read<M: Message + Default>(&self, key: &[u8]) -> Option<M> {
        let bytes = self.0.as_ref()?.get(key).ok()??;
        M::decode(&bytes[..]).ok()
    }

    fn write<M: Message>(&self, key: &[u8], message: &M) {
        let Some(db) = &self.0 else { return };
        if let Err(error) = db.insert(key, message.encode_to_vec()) {
            tracing::warn!(%error, "route cache cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_there_after_reopening() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let cache = Cache::open(Some(dir.path()));
        assert!(cache.discovery().is_none());
        cache.save_discovery(&v1::DiscoverResponse { cluster_id: "c".into(), ..Default::default() });
        cache.save_route(&v1::TableRoute { name: "t".into(), table_id: 3, ..Default::default() });
        drop(cache);
        let cache = Cache::open(Some(dir.path()));
        assert_eq!(cache.discovery().expect("saved").cluster_id, "c");
        assert_eq!(cache.route("t").expect("saved").table_id, 3);
        cache.forget_route("t");
        assert!(cache.route("t").is_none());
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_an_empty_cache() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = dir.path().join("file");
        std::fs::write(&file, b"x").expect("writable");
        let cache = Cache::open(Some(&file));
        cache.save_discovery(&v1::DiscoverResponse::default());
        assert!(cache.discovery().is_none());
    }
}
