//! A store that is gone for good, given up through the SDK's Admin on real stores: refused while a shard
//! would not bear it, with that shard named; else its replicas are made again from the others. And a
//! disruption lease, seen by plan and people.

mod harness;

use harness::store::{eventually, healthy, shutdown, start_store, stop};
use undb_proto::v1::{self, DisruptionKind, StoreAction, StoreState};
use undb_sdk::{Admin, Options};
use undb_server::{control, embedded};

fn holders(status: &v1::StatusResponse) -> Vec<u64> {
    let with = status.stores.iter().filter(|s| s.replicas > 0);
    with.filter_map(|s| Some(s.store.as_ref()?.store_id)).collect()
}

async fn give_up(admin: &Admin, id: u64) -> Result<v1::SetStoreResponse, String> {
    admin.set_store(id, StoreAction::StoreRemove, true).await.map_err(|e| e.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_store_is_given_up_when_its_shards_bear_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let tuning = control::Tuning {
        lease_ttl_ms: 3_000,
        suspect_ms: 0,
        plan_interval_ms: 100,
        ..control::Tuning::default()
    };
    let config = embedded::Config {
        listen: "127.0.0.1:0".into(),
        dir: dir.path().join("control"),
        tuning,
        ..embedded::Config::default()
    };
    let control = embedded::start(config, shutdown()).await.expect("the control plane starts");
    let api = control.address.to_string();
    let admin = Admin::new(&Options::new([api.clone()])).expect("an address");
    let mut stores = Vec::new();
    for n in 1..=4 {
        stores.push(start_store(&dir.path().join(format!("store-{n}")), &api).await);
    }
    let held = holders(&healthy(&admin).await);
    assert_eq!(held.len(), 3, "one shard, three replicas, four stores");
    let mut take = |id: u64| {
        let at = stores.iter().position(|s| s.store_id == id).expect("it runs");
        stores.remove(at)
    };

    under_a_lease(&admin, held[0]).await;

    let alive = give_up(&admin, held[0]).await.expect_err("it runs");
    assert!(alive.contains("it is not lost"), "{alive}");
    stop(take(held[0])).await;
    stop(take(held[1])).await;
    let refused = eventually("a refusal with the shard", async || match give_up(&admin, held[0]).await {
        Ok(answer) if !answer.blocking.is_empty() => Ok(answer),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert_eq!(refused.store.as_ref().map(v1::StoreRecord::state), Some(StoreState::StoreUp));
    assert_eq!((refused.blocking.len(), &refused.blocking[0].table[..]), (1, "default"), "{refused:?}");

    let back = start_store(&dir.path().join(format!("store-{}", held[1])), &api).await;
    assert_eq!(back.store_id, held[1], "stores have the numbers of their directories");
    let removed = eventually("the removal", async || match give_up(&admin, held[0]).await {
        Ok(answer) if answer.store.as_ref().map(v1::StoreRecord::state) == Some(StoreState::StoreRemoved) => {
            Ok(answer)
        }
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(removed.message.contains("removed for ever"), "{removed:?}");
    eventually("three replicas again", async || {
        let status = admin.status().await.map_err(|e| e.to_string())?;
        let now = holders(&status);
        match status.healthy && now.len() == 3 && !now.contains(&held[0]) {
            true => Ok(()),
            false => Err(format!("{now:?} {:?}", status.problems)),
        }
    })
    .await;
    drop(back);
}

/// Its leader goes, a drain of another store waits, and people see why.
async fn under_a_lease(admin: &Admin, id: u64) {
    let request = v1::AcquireDisruptionRequest {
        kind: DisruptionKind::Restart as i32,
        stores: vec![id],
        holder: "test".into(),
        ttl_ms: 60_000,
        max_duration_ms: 600_000,
        ..Default::default()
    };
    let lease = eventually("a lease", async || {
        let answer = admin.acquire_disruption(request.clone()).await.map_err(|e| e.to_string())?;
        let why = format!("{answer:?}");
        answer.lease.filter(|_| answer.done).ok_or(why)
    })
    .await;
    eventually("no leader under a lease", async || {
        let status = admin.status().await.map_err(|e| e.to_string())?;
        let leads =
            |s: &&v1::StoreStatus| s.leaders > 0 && s.store.as_ref().is_some_and(|s| s.store_id == id);
        let led = status.stores.iter().any(|s| s.leaders > 0);
        if led && status.stores.iter().find(leads).is_none() { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    let lines = admin.explain("store", &id.to_string()).await.expect("an answer").join("\n");
    assert!(
        lines.contains("is under disruption lease") && lines.contains("RESTART, DRAINING, of test"),
        "{lines}"
    );
    let leases = admin.get("leases", "", "").await.expect("an answer");
    assert!(leases.len() == 1 && leases[0].contains("\"holder\":\"test\""), "{leases:?}");
    let gone = admin.release_disruption(lease.lease_id, lease.token).await.expect("an answer");
    assert!(gone.done, "a drain is cancelled: {gone:?}");
}
