//! The control plane as a whole, over loopback: tables come, are found, are repaired, and go.

mod support;

use serde_json::{Value, json};
use support::{Shared, World, admin, channel, eventually, start, start_store, start_stores};
use tonic::transport::Channel;
use undb_proto::v1::access_client::AccessClient;
use undb_proto::v1::admin_client::AdminClient;
use undb_proto::v1::route_update::Update;
use undb_proto::v1::router_client::RouterClient;
use undb_proto::v1::{self, ErrorCode};

fn world() -> Shared {
    Shared::new(parking_lot::Mutex::new(World::default()))
}

async fn resolve(address: impl ToString, table: &str) -> Result<v1::TableRoute, String> {
    let mut client = RouterClient::new(channel(address));
    let request = v1::ResolveRequest { table: table.into(), ..Default::default() };
    let answer = client.resolve(request).await.map_err(|e| e.to_string())?.into_inner();
    match (answer.error, answer.route) {
        (Some(error), _) => Err(format!("{:?}: {}", error.code(), error.message)),
        (None, Some(route)) if route.shards.iter().all(|s| s.leader_replica_id != 0) => Ok(route),
        (None, route) => Err(format!("no leader: {route:?}")),
    }
}

async fn get(client: &mut AdminClient<Channel>, kind: &str, name: &str) -> Result<Vec<Value>, v1::Error> {
    let request = v1::GetObjectsRequest { kind: kind.into(), name: name.into(), table: String::new() };
    let answer = client.get(request).await.expect("an answer").into_inner();
    match answer.error {
        Some(error) => Err(error),
        None => Ok(answer.objects_json.iter().map(|o| serde_json::from_str(o).expect("JSON")).collect()),
    }
}

async fn apply(client: &mut AdminClient<Channel>, object: Value) -> Result<v1::ApplyResponse, v1::Error> {
    let request = v1::ApplyRequest { object_json: object.to_string(), dry_run: false };
    let answer = client.apply(request).await.expect("an answer").into_inner();
    match answer.error {
        Some(error) => Err(error),
        None => Ok(answer),
    }
}

fn table(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "undb.io/v1alpha1", "kind": "Table", "metadata": {"name": name}, "spec": spec})
}

async fn healthy(client: &AdminClient<Channel>) -> v1::StatusResponse {
    eventually("a healthy cluster", || {
        let mut client = client.clone();
        async move {
            let status = client.status(v1::Empty {}).await.map_err(|e| e.to_string())?.into_inner();
            match status.healthy && status.tables > 0 {
                true => Ok(status),
                false => Err(format!("{:?} {:?}", status.error, status.problems)),
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_table_is_there_after_the_first_start_and_after_the_next() {
    let dir = tempfile::tempdir().expect("a directory");
    let running = start(dir.path()).await;
    let world = world();
    let stores = start_stores(&world, 3, running.address.to_string()).await;
    let route = eventually("the default table", || resolve(running.address, "default")).await;
    assert_eq!((route.shards.len(), route.stores.len(), route.stale), (1, 3, false));
    let status = healthy(&admin(&running)).await;
    assert_eq!((status.tables, status.shards_available, status.stores.len()), (1, 1, 3));

    let mut access = AccessClient::new(channel(running.address));
    let found = access.discover(v1::DiscoverRequest::default()).await.expect("an answer").into_inner();
    assert_eq!(found.routers, [running.address.to_string()]);
    assert_eq!(found.cluster_id, status.cluster_id);
    let unknown = access.discover(v1::DiscoverRequest { table: "nope".into() }).await.expect("an answer");
    assert_eq!(unknown.into_inner().error.expect("unknown").code(), ErrorCode::TableNotFound);

    let listen = running.address.to_string();
    running.stop().await.expect("an orderly end");
    let again = undb_server::embedded::Config { listen, ..support::config(dir.path()) };
    let running = undb_server::embedded::start(again, support::shutdown()).await.expect("starts again");
    let after = eventually("the same table", || resolve(running.address, "default")).await;
    assert_eq!(after.table_id, route.table_id);
    assert_eq!(healthy(&admin(&running)).await.cluster_id, status.cluster_id);
    drop(stores);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_applied_described_routed_deleted_and_brought_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let running = start(dir.path()).await;
    let world = world();
    let _stores = start_stores(&world, 3, running.address.to_string()).await;
    let mut client = admin(&running);
    healthy(&client).await;

    let class = json!({
        "apiVersion": "undb.io/v1alpha1", "kind": "StoreCluster", "metadata": {"name": "small"},
        "spec": {"replicas": 3, "engine": {"type": "lsm"}, "storage": {"size": "20Gi"}},
    });
    assert_eq!(apply(&mut client, class.clone()).await.expect("good").result, "created");
    assert_eq!(apply(&mut client, class).await.expect("good").result, "unchanged");
    let spec = json!({
        "storeCluster": "small", "partitioning": {"type": "range", "splitKeys": ["g", "n"]},
        "quota": {"requestsPerSecond": 5},
    });
    let created = apply(&mut client, table("packages", spec.clone())).await.expect("good");
    assert_eq!(created.result, "created");
    assert!(created.warnings.iter().any(|w| w.contains("quota")), "{:?}", created.warnings);
    assert_eq!(apply(&mut client, table("packages", spec.clone())).await.expect("good").result, "unchanged");
    let mut more = spec.clone();
    more["replication"] = json!({"factor": 3, "minAvailable": 3});
    assert_eq!(apply(&mut client, table("packages", more)).await.expect("good").result, "configured");

    let route = eventually("the table", || resolve(running.address, "packages")).await;
    assert_eq!(route.shards.len(), 3);
    healthy(&client).await;
    let described = get(&mut client, "tables", "packages").await.expect("there");
    assert_eq!(described[0]["status"]["ready"], json!(true), "{described:?}");
    assert_eq!(described[0]["status"]["shardsAvailable"], json!(3));
    assert_eq!(described[0]["spec"]["storeCluster"], json!("small"));
    assert_eq!(get(&mut client, "shards", "").await.expect("kinds").len(), 4);
    assert_eq!(get(&mut client, "ust", "").await.expect("kinds").len(), 3);
    assert_eq!(get(&mut client, "StoreClusters", "").await.expect("kinds").len(), 2);

    let delete = |now| v1::DeleteObjectRequest { kind: "table".into(), name: "packages".into(), now };
    let gone = client.delete(delete(false)).await.expect("an answer").into_inner();
    assert!(gone.error.is_none() && gone.message.contains("undb undelete table packages"), "{gone:?}");
    eventually("no route", || async {
        match resolve(running.address, "packages").await {
            Err(error) if error.starts_with("TableNotFound") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let why = get(&mut client, "tables", "packages").await.expect_err("deleted");
    assert!(why.code() == ErrorCode::TableNotFound && why.message.contains("undelete"), "{why:?}");
    let back =
        client.undelete(v1::UndeleteTableRequest { name: "packages".into() }).await.expect("an answer");
    assert!(back.into_inner().error.is_none());
    let again = eventually("the table again", || resolve(running.address, "packages")).await;
    assert_eq!(again.table_id, route.table_id);

    for group in world.lock().groups.values_mut().filter(|g| g.shard.table_id == route.table_id) {
        group.doomed = true;
    }
    let gone = client.delete(delete(true)).await.expect("an answer").into_inner();
    assert!(gone.error.is_none(), "{gone:?}");
    eventually("replicas destroyed", || async {
        let world = world.lock();
        let left: usize = world.stores.values().map(|s| s.replicas.len()).sum();
        if left == 3 { Ok(()) } else { Err(format!("{left} replicas, 3 are the default table's")) }
    })
    .await;
    assert_eq!(world.lock().violations, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_applied_is_refused_in_words() {
    let dir = tempfile::tempdir().expect("a directory");
    let running = start(dir.path()).await;
    let world = world();
    let _stores = start_stores(&world, 1, running.address.to_string()).await;
    let mut client = admin(&running);
    eventually("an owner", || {
        let mut client = client.clone();
        async move { get(&mut client, "tables", "").await.map_err(|e| e.message) }
    })
    .await;
    let cases = [
        (json!({"kind": "Pod"}), ErrorCode::InvalidArgument, "kind"),
        (table("t", json!({"storeClusta": "x"})), ErrorCode::InvalidArgument, "storeClusta"),
        (table("t", json!({"storeCluster": "nope"})), ErrorCode::NotFound, "there is no StoreCluster `nope`"),
        (
            table("t", json!({"replication": {"factor": 2}})),
            ErrorCode::InvalidArgument,
            "spec.replication.factor",
        ),
    ];
    for (object, code, text) in cases {
        let error = apply(&mut client, object).await.expect_err(text);
        assert!(error.code() == code && error.message.contains(text), "{error:?}");
    }
    apply(&mut client, table("t", json!({"ttlSeconds": 5}))).await.expect("good");
    let error = apply(&mut client, table("t", json!({"ttlSeconds": 6}))).await.expect_err("ttl");
    assert_eq!(error.code(), ErrorCode::NotSupported);
    let error =
        apply(&mut client, table("t", json!({"ttlSeconds": 5, "partitioning": {"type": "hash"}}))).await;
    assert!(error.expect_err("layout").message.contains("spec.partitioning"));
    let error = get(&mut client, "pods", "").await.expect_err("unknown kind");
    assert!(error.message.contains("ask for tables"), "{error:?}");
    let waits = eventually("the condition", || {
        let mut client = client.clone();
        async move {
            let found = get(&mut client, "tables", "t").await.map_err(|e| e.message)?;
            let reason = found[0]["status"]["reason"].as_str().unwrap_or_default().to_owned();
            if reason.starts_with("InsufficientStores") { Ok(reason) } else { Err(reason) }
        }
    })
    .await;
    assert!(waits.contains("3 stores of store cluster default"), "{waits}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_lost_its_disk_is_replaced_by_an_empty_one_at_its_address() {
    let dir = tempfile::tempdir().expect("a directory");
    let running = start(dir.path()).await;
    let world = world();
    let stores = start_stores(&world, 3, running.address.to_string()).await;
    let client = admin(&running);
    healthy(&client).await;
    let lost = &stores[1];
    lost.kill();
    world.lock().stores.get_mut(&lost.id).expect("known").replicas.clear();
    let new = start_store(&world, &running.address.to_string(), &lost.address).await;
    assert_ne!(new.id, lost.id);
    let status = healthy(&client).await;
    assert!(status.stores.iter().all(|s| s.store.as_ref().is_some_and(|s| s.store_id != lost.id)));
    let route = eventually("a route without the lost store", || async {
        let route = resolve(running.address, "default").await?;
        let held = route.stores.iter().any(|s| s.store_id == new.id);
        if held && route.stores.len() == 3 { Ok(route) } else { Err(format!("{:?}", route.stores)) }
    })
    .await;
    assert!(route.stores.iter().all(|s| s.store_id != lost.id));
    assert_eq!(world.lock().violations, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_gets_a_snapshot_then_what_changes() {
    let dir = tempfile::tempdir().expect("a directory");
    let running = start(dir.path()).await;
    let world = world();
    let _stores = start_stores(&world, 3, running.address.to_string()).await;
    let mut client = admin(&running);
    healthy(&client).await;
    apply(&mut client, table("t", json!({"partitioning": {"type": "hash", "shards": 12}})))
        .await
        .expect("good");
    eventually("the table", || resolve(running.address, "t")).await;
    healthy(&client).await;
    let tables = vec![
        v1::KnownTable { table: "t".into(), known: None },
        v1::KnownTable { table: "nope".into(), known: None },
    ];
    let request = v1::SubscribeRequest { tables, ..Default::default() };
    let (requests, outgoing) = tokio::sync::mpsc::channel(4);
    requests.send(request).await.expect("open");
    let stream = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    let mut router = RouterClient::new(channel(running.address));
    let mut updates = router.subscribe(stream).await.expect("subscribed").into_inner();
    let (mut version, mut told) = (None, false);
    while version.is_none() || !told {
        match updates.message().await.expect("open").expect("an update") {
            v1::RouteUpdate { update: Some(Update::Snapshot(route)), .. } => version = route.version,
            v1::RouteUpdate { update: Some(Update::Error(error)), table } => {
                assert_eq!((error.code(), &table[..]), (ErrorCode::TableNotFound, "nope"));
                told = true;
            }
            _ => {}
        }
    }
    // A leader moves by itself: the next update builds on the one before.
    let moved = {
        let mut world = world.lock();
        let group =
            world.groups.values_mut().find(|g| g.leader != 0 && g.shard.replicas.len() == 3).expect("led");
        let other =
            group.shard.replicas.iter().find(|r| r.replica_id != group.leader).expect("three").replica_id;
        (group.leader, group.term) = (other, group.term + 1);
        (group.shard.shard_id, group.shard.table_id)
    };
    let route = eventually("the table", || resolve(running.address, "t")).await;
    if moved.1 != route.table_id {
        return; // It was the default table's: another subscriber's news.
    }
    loop {
        let update = updates.message().await.expect("open").expect("an update");
        match update.update {
            Some(Update::Delta(delta)) => {
                assert_eq!(delta.base, version, "it builds on what was sent");
                assert!(delta.next.map(|v| v.version) > version.map(|v| v.version));
                version = delta.next;
                let ids: Vec<u64> =
                    delta.upserts.iter().filter_map(|s| Some(s.shard.as_ref()?.shard_id)).collect();
                if ids.contains(&moved.0) {
                    break;
                }
            }
            Some(Update::Snapshot(route)) => version = route.version,
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_token_nothing_is_answered() {
    let dir = tempfile::tempdir().expect("a directory");
    let token = dir.path().join("token");
    std::fs::write(&token, "correct-horse-battery").expect("writable");
    let config = undb_server::embedded::Config { token_file: Some(token), ..support::config(dir.path()) };
    let running = undb_server::embedded::start(config, support::shutdown()).await.expect("starts");
    let refused = admin(&running).status(v1::Empty {}).await.expect_err("no token");
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    let refused = RouterClient::new(channel(running.address)).resolve(v1::ResolveRequest::default()).await;
    assert_eq!(refused.expect_err("no token").code(), tonic::Code::Unauthenticated);
    let bearer = undb_runtime::Bearer::new(Some("correct-horse-battery")).expect("visible");
    let with = undb_runtime::rpc::auth_channel(&running.address.to_string(), bearer).expect("an address");
    eventually("an answer with the token", || {
        let mut client = AccessClient::new(with.clone());
        async move {
            let found = client.discover(v1::DiscoverRequest::default()).await.map_err(|e| e.to_string())?;
            found.into_inner().error.map_or(Ok(()), |e| Err(e.message))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_in_use_and_one_of_another_cluster_are_refused_in_words() {
    let dir = tempfile::tempdir().expect("a directory");
    let running = start(dir.path()).await;
    let error = undb_server::embedded::start(support::config(dir.path()), support::shutdown()).await;
    let text = error.expect_err("in use").to_string();
    assert!(text.contains("in use") && text.contains("choose another directory"), "{text}");
    running.stop().await.expect("an orderly end");
    let other = undb_server::meta::Config {
        listen: "127.0.0.1:0".into(),
        dir: dir.path().join("meta"),
        cluster_id: Some("another".into()),
        ..undb_server::meta::Config::default()
    };
    let text = undb_server::meta::start(other, support::shutdown()).await.expect_err("other").to_string();
    assert!(text.contains("belongs to cluster") && text.contains("not to cluster another"), "{text}");
    let identity = dir.path().join("meta/identity.json");
    std::fs::write(&identity, r#"{"format_version": 9, "shape": "new"}"#).expect("writable");
    let error = undb_server::embedded::start(support::config(dir.path()), support::shutdown()).await;
    let text = error.expect_err("newer").to_string();
    assert!(text.contains("format version 9") && text.contains("up to 1"), "{text}");
}
