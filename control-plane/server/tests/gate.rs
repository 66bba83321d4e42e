//! Who is answered by the availability gate when little is known.

mod support;

use support::{Shared, World, admin, config, eventually, start_stores};
use undb_proto::v1::{self, DisruptionKind};
use undb_server::{Running, embedded};

async fn three_stores(dir: &std::path::Path, unsafe_gate_off: bool) -> (Running, Vec<support::FakeStore>) {
    let mut config = config(dir);
    config.tuning.unsafe_gate_off = unsafe_gate_off;
    let running = embedded::start(config, support::shutdown()).await.expect("the control plane starts");
    let world = Shared::new(parking_lot::Mutex::new(World::default()));
    let stores = start_stores(&world, 3, running.address.to_string()).await;
    eventually("a healthy cluster", || {
        let mut client = admin(&running);
        async move {
            let status = client.status(v1::Empty {}).await.map_err(|e| e.to_string())?.into_inner();
            match status.healthy && status.tables > 0 {
                true => Ok(()),
                false => Err(format!("{:?}", status.problems)),
            }
        }
    })
    .await;
    (running, stores)
}

async fn acquire(running: &Running, store: u64) -> v1::DisruptionResponse {
    let request = v1::AcquireDisruptionRequest {
        kind: DisruptionKind::Restart as i32,
        stores: vec![store],
        holder: format!("test/{store}"),
        ttl_ms: 10_000,
        max_duration_ms: 60_000,
        ..Default::default()
    };
    admin(running).acquire_disruption(request).await.expect("an answer").into_inner()
}

/// These stores never say which answer of control they follow, as those of an older build.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_whose_words_cannot_be_dated_are_not_stopped_however_well_they_look() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, stores) = three_stores(dir.path(), false).await;
    for store in &stores {
        let denied = acquire(&running, store.id).await;
        assert!(denied.error.is_none() && !denied.done && denied.lease.is_none(), "{denied:?}");
        assert!(denied.blocking_count > 0 || !denied.refusal.is_empty(), "{denied:?}");
    }
    let unknown = acquire(&running, 999).await;
    assert!(!unknown.done && !unknown.refusal.is_empty(), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_gate_off_every_store_may_go_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, stores) = three_stores(dir.path(), true).await;
    for store in &stores {
        let lease = acquire(&running, store.id).await;
        assert!(lease.done && lease.lease.is_some(), "{lease:?}");
    }
}
