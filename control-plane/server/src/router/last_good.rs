//! The last good routes on disk: `v1::LastGoodRoutes` under a seal (`sealed`). Written at most once a
//! second after a change, replaced atomically; may be deleted at any time, it is only needed while
//! metadata is away. A file that cannot be used is as good as none.

use super::Router;
use super::publish::Published;
use crate::ServerError;
use crate::sealed::Seal;
use prost::Message;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use undb_proto::v1;
use undb_runtime::Shutdown;
use undb_vfs::{Fs, OsFs, read_file, write_file_atomic};

const SEAL: Seal = Seal { magic: b"UNDBROUT", version: 1, what: "a file of routes" };
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// The file, if one was asked for.
#[derive(Clone)]
pub(super) struct LastGood {
    path: Option<PathBuf>,
    fs: Arc<OsFs>,
}

impl LastGood {
    pub fn new(path: Option<PathBuf>) -> Self {
        Self { path, fs: Arc::new(OsFs::default()) }
    }

    /// Blocks.
    pub fn load(&self) -> Option<Published> {
        let path = self.path.as_ref()?;
        if !self.fs.exists(path).unwrap_or(false) {
            return None;
        }
        match self.read(path) {
            Ok(file) => Some(published(file)),
            Err(error) => {
                tracing::warn!(%error, "last good routes not used");
                None
            }
        }
    }

    fn read(&self, path: &Path) -> Result<v1::LastGoodRoutes, ServerError> {
        let bytes = read_file(&*self.fs, path).map_err(|source| ServerError::Io {
            what: "reading",
            path: path.into(),
            source,
        })?;
        let body = SEAL.unwrap(&bytes, path)?;
        v1::LastGoodRoutes::decode(body)
            .map_err(|e| ServerError::Damaged { path: path.into(), problem: e.to_string() })
    }

    /// Blocks.
    fn store(&self, routes: &Published) {
        let Some(path) = &self.path else { return };
        let file = v1::LastGoodRoutes {
            cluster_id: routes.cluster_id.clone(),
            incarnation: routes.incarnation,
            routes: routes.routes.values().map(|r| (**r).clone()).collect(),
        };
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let made = parent.map_or(Ok(()), |p| self.fs.create_dir_all(p));
        let written =
            made.and_then(|()| write_file_atomic(&*self.fs, path, &SEAL.wrap(&file.encode_to_vec())));
        if let Err(error) = written {
            tracing::warn!(%error, path = %path.display(), "last good routes not written");
        }
    }
}

fn published(file: v1::LastGoodRoutes) -> Published {
    Published {
        cluster_id: file.cluster_id,
        incarnation: file.incarnation,
        routes: file.routes.into_iter().map(|r| (r.name.clone(), Arc::new(r))).collect(),
        begun: true,
        stale: true,
        ..Published::default()
    }
}

/// Writes after changes, and what is not written yet when the end begins.
pub(super) async fn save(router: Router, last_good: LastGood, shutdown: Shutdown) {
    let mut routes = router.0.publisher.follow();
    let mut saved = routes.borrow_and_update().clone();
    while !shutdown.is_begun() {
        tokio::select! {
            changed = routes.changed() => if changed.is_err() { break },
            () = shutdown.begun() => {}
        }
        let now = routes.borrow_and_update().clone();
        save_if_changed(&mut saved, now, &last_good).await;
        tokio::select! {
            () = tokio::time::sleep(SAVE_INTERVAL) => {}
            () = shutdown.begun() => {}
        }
    }
    let now = routes.borrow_and_update().clone();
    save_if_changed(&mut saved, now, &last_good).await;
}

async fn save_if_changed(saved: &mut Arc<Published>, now: Arc<Published>, last_good: &LastGood) {
    // Whether they are stale is about the moment, not about the routes.
    if (&now.cluster_id, now.incarnation, &now.routes)
        == (&saved.cluster_id, saved.incarnation, &saved.routes)
    {
        return;
    }
    *saved = now.clone();
    let file = last_good.clone();
    if let Err(error) = tokio::task::spawn_blocking(move || file.store(&now)).await {
        tracing::warn!(%error, "last good routes not written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_served_as_stale_and_a_damaged_file_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = LastGood::new(Some(dir.path().join("sub/routes")));
        assert!(file.load().is_none());
        let route = v1::TableRoute { name: "t".into(), table_id: 7, ..Default::default() };
        let routes = Published {
            cluster_id: "c".into(),
            incarnation: 2,
            routes: [("t".to_owned(), Arc::new(route))].into(),
            ..Published::default()
        };
        file.store(&routes);
        let loaded = file.load().expect("saved");
        assert!(loaded.stale && loaded.begun && loaded.incarnation == 2);
        assert_eq!(loaded.routes["t"].table_id, 7);
        std::fs::write(dir.path().join("sub/routes"), b"UNDBROUT then nonsense").expect("writable");
        assert!(file.load().is_none());
    }
}
