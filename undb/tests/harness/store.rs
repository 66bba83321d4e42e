//! Real stores in this process, and waiting for what they do.

use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;
use undb_proto::v1;
use undb_runtime::Shutdown;
use undb_sdk::Admin;

const PATIENCE: Duration = Duration::from_secs(90);

pub fn shutdown() -> Shutdown {
    Shutdown::new(Duration::from_secs(10))
}

/// A store with short times, on a free port.
pub async fn start_store(dir: &Path, api: &str) -> undb_store::Running {
    let mut config = undb_store::Config::new(dir, vec![api.to_owned()]);
    config.listen = "127.0.0.1:0".into();
    config.heartbeat_ms = 200;
    config.stop_deadline_ms = 5_000;
    config.raft.heartbeat_ms = 200;
    config.raft.election_min_ms = 1_000;
    config.raft.election_max_ms = 2_000;
    undb_store::start(config, shutdown()).await.expect("a store starts")
}

pub async fn stop(store: undb_store::Running) {
    store.begin_stop();
    store.join().await.expect("an orderly end");
}

/// Asks until it is so; `Err` says what is missing.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(missing) => assert!(Instant::now() < deadline, "{what}: {missing}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// With a table whose shards can all be used.
pub async fn healthy(admin: &Admin) -> v1::StatusResponse {
    eventually("a healthy cluster", async || {
        let status = admin.status().await.map_err(|e| e.to_string())?;
        match status.healthy && status.tables > 0 && status.shards_available == status.shards {
            true => Ok(status),
            false => Err(format!("{:?}", status.problems)),
        }
    })
    .await
}
