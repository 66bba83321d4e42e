//! Several processes of a role: one of them goes, the others go on.

mod support;

use serde_json::json;
use std::path::Path;
use support::{Shared, World, channel, eventually, shutdown, start_stores, tuning};
use undb_proto::v1::admin_client::AdminClient;
use undb_proto::v1::control_client::ControlClient;
use undb_proto::v1::meta_client::MetaClient;
use undb_proto::v1::router_client::RouterClient;
use undb_proto::v1::{self, ErrorCode};
use undb_server::{Running, access, control, meta, router};

/// Addresses that were free a moment ago.
async fn free_addresses(count: usize) -> Vec<String> {
    let mut listeners = Vec::new();
    for _ in 0..count {
        listeners.push(tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port"));
    }
    listeners.iter().map(|l| l.local_addr().expect("bound").to_string()).collect()
}

async fn member(dir: &Path, addresses: &[String], id: u64) -> Running {
    let members = addresses.iter().zip(1..).map(|(a, id)| meta::Member { id, address: a.clone() }).collect();
    let config = meta::Config {
        listen: addresses[id as usize - 1].clone(),
        dir: dir.join(format!("meta-{id}")),
        cluster_id: Some("three".into()),
        member_id: id,
        members,
        image_after_entries: 20,
        ..meta::Config::default()
    };
    meta::start(config, shutdown()).await.expect("a member starts")
}

async fn control_process(meta: &[String]) -> Running {
    let config = control::Config {
        listen: "127.0.0.1:0".into(),
        meta: meta.to_vec(),
        tuning: tuning(),
        ..Default::default()
    };
    control::start(config, shutdown()).await.expect("control starts")
}

async fn resolve(address: impl ToString, table: &str) -> Result<v1::TableRoute, String> {
    let request = v1::ResolveRequest { table: table.into(), ..Default::default() };
    let answer = RouterClient::new(channel(address)).resolve(request).await.map_err(|e| e.to_string())?;
    let answer = answer.into_inner();
    answer.route.ok_or_else(|| format!("{:?}", answer.error))
}

/// Who leads, as every living member agrees.
async fn leader(addresses: &[String], except: u64) -> u64 {
    eventually("a leader of metadata", || async {
        for address in addresses {
            let Ok(status) = MetaClient::new(channel(address)).meta_status(v1::Empty {}).await else {
                continue;
            };
            let leader = status.into_inner().leader_member_id;
            if leader != 0 && leader != except {
                return Ok(leader);
            }
        }
        Err("none".to_owned())
    })
    .await
}

async fn apply_table(address: impl ToString + Copy, name: &str) {
    let object = json!({
        "apiVersion": "undb.io/v1alpha1", "kind": "Table", "metadata": {"name": name}, "spec": {},
    });
    eventually("the table applied", || async {
        let request = v1::ApplyRequest { object_json: object.to_string(), dry_run: false };
        let answer = AdminClient::new(channel(address)).apply(request).await.map_err(|e| e.to_string())?;
        answer.into_inner().error.map_or(Ok(()), |e| Err(e.message))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_made_and_found_after_the_leader_of_metadata_is_gone_and_routes_outlive_all_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let addresses = free_addresses(3).await;
    let mut members = Vec::new();
    for id in 1..=3 {
        members.push(Some(member(dir.path(), &addresses, id).await));
    }
    let control = control_process(&addresses).await;
    let last_good_file = Some(dir.path().join("routes"));
    let router_config = router::Config {
        listen: "127.0.0.1:0".into(),
        meta: addresses.clone(),
        last_good_file: last_good_file.clone(),
        ..Default::default()
    };
    let routing = router::start(router_config.clone(), shutdown()).await.expect("routing starts");
    let access_config = access::Config {
        listen: "127.0.0.1:0".into(),
        meta: addresses.clone(),
        routers: vec![routing.address.to_string()],
        ..Default::default()
    };
    let entry = access::start(access_config, shutdown()).await.expect("access starts");
    let world = Shared::new(parking_lot::Mutex::new(World::default()));
    let _stores = start_stores(&world, 3, control.address.to_string()).await;
    eventually("the default table", || resolve(routing.address, "default")).await;

    let first = leader(&addresses, 0).await;
    let gone = members[first as usize - 1].take().expect("it runs");
    gone.stop().await.expect("an orderly end");
    let second = leader(&addresses, first).await;
    assert_ne!(first, second);
    apply_table(entry.address, "after").await;
    eventually("the table made after it", || resolve(routing.address, "after")).await;

    // The one that was away comes back to its directory and has what it missed.
    members[first as usize - 1] = Some(member(dir.path(), &addresses, first).await);
    eventually("the member caught up", || async {
        let revision = |address: &String| {
            let mut client = MetaClient::new(channel(address));
            async move { client.meta_status(v1::Empty {}).await.map(|s| s.into_inner().revision) }
        };
        let back = revision(&addresses[first as usize - 1]).await.map_err(|e| e.to_string())?;
        let lead = revision(&addresses[second as usize - 1]).await.map_err(|e| e.to_string())?;
        if back + 2 >= lead { Ok(()) } else { Err(format!("{back} of {lead}")) }
    })
    .await;

    // All of metadata goes: what is known stays known, and says that it may be old.
    for running in members.into_iter().flatten() {
        let _late_or_not = running.stop().await;
    }
    let stale = |address| async move {
        let route = resolve(address, "after").await?;
        if route.stale { Ok(route) } else { Err("not stale".into()) }
    };
    eventually("a stale route", || stale(routing.address)).await;
    routing.stop().await.expect("an orderly end");
    let routing = router::start(router_config, shutdown()).await.expect("routing starts again");
    let route = eventually("a route from the file", || stale(routing.address)).await;
    assert_eq!(route.shards.len(), 1);
    assert_eq!(routing.readiness.not_ready(), Vec::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_control_process_works_and_the_other_names_it_until_it_is_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let addresses = free_addresses(1).await;
    let _member = member(dir.path(), &addresses, 1).await;
    let owner = control_process(&addresses).await;
    let world = Shared::new(parking_lot::Mutex::new(World::default()));
    let stores = start_stores(&world, 1, owner.address.to_string()).await;
    let other = control_process(&addresses).await;
    let request = || v1::RegisterStoreRequest { uuid: stores[0].uuid.clone(), ..Default::default() };
    eventually("a redirect", || async {
        let answer = ControlClient::new(channel(other.address)).register(request()).await;
        let answer = answer.map_err(|e| e.to_string())?.into_inner();
        let code = answer.error.as_ref().map(v1::Error::code);
        match (code, answer.owner_address == owner.address.to_string()) {
            (Some(ErrorCode::NotLeader), true) => Ok(()),
            _ => Err(format!("{answer:?}")),
        }
    })
    .await;
    owner.stop().await.expect("an orderly end");
    apply_table(other.address, "t").await;
}
