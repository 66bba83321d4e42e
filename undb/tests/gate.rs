//! The availability gate over a whole cluster: three real stores, stopped and started as an orchestrator
//! does it.

mod harness;

use harness::store::{eventually, healthy, shutdown, start_store, stop};
use undb_proto::v1::{self, DisruptionKind, DisruptionPhase as Phase};
use undb_sdk::{Admin, Options};
use undb_server::{control, embedded};

const TTL_MS: u64 = 60_000;

struct Cluster {
    control: undb_server::Running,
    admin: Admin,
    stores: Vec<Option<undb_store::Running>>,
    ids: Vec<u64>,
    dir: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let tuning = control::Tuning {
            lease_ttl_ms: 3_000,
            suspect_ms: 0,
            plan_interval_ms: 100,
            leader_cooldown_ms: 600_000,
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
        let (mut stores, mut ids) = (Vec::new(), Vec::new());
        for n in 1..=3 {
            let store = start_store(&dir.path().join(format!("store-{n}")), &api).await;
            ids.push(store.store_id);
            stores.push(Some(store));
        }
        let admin = Admin::new(&Options::new([api])).expect("an address");
        let cluster = Self { control, admin, stores, ids, dir };
        healthy(&cluster.admin).await;
        cluster
    }

    /// Of the only shard.
    async fn leading(&self) -> usize {
        let status = healthy(&self.admin).await;
        let led = status.stores.iter().find(|s| s.leaders > 0).and_then(|s| s.store.as_ref());
        let id = led.expect("a healthy table has a leader").store_id;
        self.ids.iter().position(|known| *known == id).expect("one of ours")
    }

    async fn acquire(&self, store: usize, ttl_ms: u64) -> v1::DisruptionResponse {
        let request = v1::AcquireDisruptionRequest {
            kind: DisruptionKind::Restart as i32,
            stores: vec![self.ids[store]],
            holder: format!("test/{store}"),
            ttl_ms,
            max_duration_ms: ttl_ms.max(1_000),
            ..Default::default()
        };
        self.admin.acquire_disruption(request).await.expect("an answer")
    }

    async fn acquired(&self, store: usize, ttl_ms: u64) -> v1::DisruptionLease {
        let lease = eventually("a lease", async || {
            let answer = self.acquire(store, ttl_ms).await;
            let why = format!("{answer:?}");
            answer.lease.filter(|_| answer.done).ok_or(why)
        });
        lease.await
    }

    async fn wants(&self, lease: &v1::DisruptionLease, phase: Phase) -> v1::DisruptionResponse {
        let request = v1::DisruptionStatusRequest {
            lease_id: lease.lease_id,
            token: lease.token,
            ttl_ms: TTL_MS,
            wanted: phase as i32,
            ..Default::default()
        };
        self.admin.disruption_status(request).await.expect("an answer")
    }

    async fn reaches(&self, lease: &v1::DisruptionLease, phase: Phase) {
        eventually("a phase", async || {
            let answer = self.wants(lease, phase).await;
            if answer.done { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    }

    async fn stop_store(&mut self, store: usize) {
        stop(self.stores[store].take().expect("it runs")).await;
    }

    async fn start_store(&mut self, store: usize) {
        let api = self.control.address.to_string();
        let running = start_store(&self.dir.path().join(format!("store-{}", store + 1)), &api).await;
        self.stores[store] = Some(running);
    }

    async fn released(&self, lease: &v1::DisruptionLease) {
        eventually("a release", async || {
            let answer = self.admin.release_disruption(lease.lease_id, lease.token).await;
            let answer = answer.map_err(|e| e.to_string())?;
            if answer.done { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_store_after_the_other_may_be_restarted_and_never_two() {
    let mut cluster = Cluster::start().await;
    let first = cluster.leading().await;
    let second = (first + 1) % 3;

    let lease = cluster.acquired(first, TTL_MS).await;
    assert_eq!(lease.phase(), Phase::Draining);
    let same = cluster.acquire(first, TTL_MS).await;
    assert_eq!(same.lease.map(|l| l.lease_id), Some(lease.lease_id), "the holder gets what it has");
    let denied = cluster.acquire(second, TTL_MS).await;
    assert!(!denied.done && denied.lease.is_none(), "{denied:?}");
    assert_eq!((denied.blocking_count, &denied.blocking[0].table[..]), (1, "default"));
    assert!(!denied.blocking[0].reason.is_empty() && !denied.blocking[0].message.is_empty());
    let early = cluster.admin.release_disruption(lease.lease_id, lease.token + 1).await;
    assert!(early.expect_err("another's token").to_string().contains("token"));

    // The leader leaves, says so itself, and only then the store may stop.
    cluster.reaches(&lease, Phase::SafeToStop).await;
    assert_ne!(cluster.leading().await, first);
    cluster.stop_store(first).await;
    assert!(cluster.wants(&lease, Phase::Stopped).await.done);
    assert!(!cluster.acquire(second, TTL_MS).await.done);

    // Its holder says that it is back; the lease stays until that is so.
    assert!(cluster.wants(&lease, Phase::CatchingUp).await.done);
    let kept = cluster.admin.release_disruption(lease.lease_id, lease.token).await.expect("an answer");
    assert!(!kept.done && kept.lease.is_some(), "{kept:?}");
    assert_eq!(cluster.admin.list_disruptions().await.expect("an answer").len(), 1);
    cluster.start_store(first).await;
    cluster.released(&lease).await;
    assert_eq!(cluster.admin.list_disruptions().await.expect("an answer"), []);
    let ready = cluster.stores[first].as_ref().expect("it runs").readiness();
    assert_eq!(ready, Ok(()), "a store that is proven up is ready");

    // Now the next; its holder goes away, and its store counts as down for all that.
    let lease = cluster.acquired(second, 1_000).await;
    eventually("the end of its time", async || {
        let look = v1::DisruptionStatusRequest { lease_id: lease.lease_id, ..Default::default() };
        let seen = cluster.admin.disruption_status(look).await.map_err(|e| e.to_string())?;
        let expires_at_ms = seen.lease.as_ref().map_or(0, |l| l.expires_at_ms);
        let now_ms = undb_runtime::Clock::real().now_ms();
        if expires_at_ms < now_ms { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    let denied = cluster.acquire(first, TTL_MS).await;
    assert!(!denied.done && denied.blocking[0].table == "default", "{denied:?}");
    let late = v1::DisruptionStatusRequest {
        lease_id: lease.lease_id,
        token: lease.token,
        ttl_ms: TTL_MS,
        wanted: Phase::SafeToStop as i32,
        ..Default::default()
    };
    assert!(!cluster.admin.disruption_status(late).await.is_ok_and(|a| a.done), "it has lasted its longest");
    assert!(cluster.wants(&lease, Phase::CatchingUp).await.done);
    cluster.released(&lease).await;
    assert!(cluster.acquired(first, TTL_MS).await.token > lease.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_ends_hands_its_leader_over_and_without_peers_it_ends_in_time() {
    let mut cluster = Cluster::start().await;
    let first = cluster.leading().await;
    cluster.stop_store(first).await;
    let page = cluster.stores[(first + 1) % 3].as_ref().expect("it runs").replicas_page();
    let replicas: serde_json::Value = serde_json::from_str(&page()).expect("JSON");
    let leader = replicas[0]["leader"].as_u64().expect("a number");
    let own = |n: usize| {
        let page = cluster.stores[n].as_ref().map(|s| s.replicas_page()());
        page.is_some_and(|p| p.contains(&format!("\"replica\":{leader},\"term\"")))
    };
    assert!(leader > 0 && (own(0) || own(1) || own(2)), "a store that runs leads: {replicas}");
    cluster.stop_store((first + 1) % 3).await;
    cluster.stop_store((first + 2) % 3).await;
    cluster.control.stop().await.expect("an orderly end");
}
