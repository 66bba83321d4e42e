//! What the scripted API server promises to the tests that stand on it.

use super::*;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NS: &str = "ns";

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other} is not an answer"),
    }
}

fn map(name: &str, data: &Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).expect("a ConfigMap")
}

#[tokio::test]
async fn a_replace_with_an_old_resource_version_is_a_conflict() {
    let server = ApiServer::default();
    let api: Api<ConfigMap> = Api::namespaced(server.client(NS).0, NS);
    let first = api.create(&PostParams::default(), &map("a", &json!({"k": "1"}))).await.expect("created");
    let again = api.create(&PostParams::default(), &map("a", &json!({}))).await.expect_err("exists");
    assert_eq!(code(&again), 409);
    let mut second = first.clone();
    second.data = Some(BTreeMap::from([("k".into(), "2".into())]));
    api.replace("a", &PostParams::default(), &second).await.expect("replaced");
    let stale = api.replace("a", &PostParams::default(), &first).await.expect_err("conflict");
    assert_eq!(code(&stale), 409);
}

#[tokio::test]
async fn a_delete_with_another_uid_does_nothing() {
    let server = ApiServer::default();
    let api: Api<Secret> = Api::namespaced(server.client(NS).0, NS);
    let secret = serde_json::from_value(json!({"metadata": {"name": "s"}})).expect("a Secret");
    api.create(&PostParams::default(), &secret).await.expect("created");
    let wrong = Preconditions { uid: Some("another".into()), resource_version: None };
    let params = DeleteParams { preconditions: Some(wrong), ..DeleteParams::default() };
    assert_eq!(code(&api.delete("s", &params).await.expect_err("refused")), 409);
    assert_eq!(server.names("secrets", NS), ["s"]);
    api.delete("s", &DeleteParams::default()).await.expect("deleted");
    assert!(server.names("secrets", NS).is_empty());
}

#[tokio::test]
async fn an_apply_removes_what_its_manager_no_longer_names_and_nothing_else() {
    let server = ApiServer::default();
    let api: Api<ConfigMap> = Api::namespaced(server.client(NS).0, NS);
    let ours = PatchParams::apply("ours").force();
    api.patch("a", &ours, &Patch::Apply(&map("a", &json!({"x": "1", "y": "1"})))).await.expect("created");
    let theirs = PatchParams::apply("theirs").force();
    api.patch("a", &theirs, &Patch::Apply(&map("a", &json!({"z": "1"})))).await.expect("applied");
    api.patch("a", &ours, &Patch::Apply(&map("a", &json!({"x": "2"})))).await.expect("applied");
    let stored = server.get("configmaps", NS, "a").expect("stored");
    assert_eq!(stored["data"], json!({"x": "2", "z": "1"}));
    let version = stored["metadata"]["resourceVersion"].clone();
    api.patch("a", &ours, &Patch::Apply(&map("a", &json!({"x": "2"})))).await.expect("applied");
    let same = server.get("configmaps", NS, "a").expect("stored");
    assert_eq!(same["metadata"]["resourceVersion"], version, "an apply without a change writes nothing");
}

fn budget(min_available: i64, policy: &str) -> Value {
    json!({
        "metadata": {"name": "s-0", "namespace": NS},
        "spec": {
            "minAvailable": min_available, "unhealthyPodEvictionPolicy": policy,
            "selector": {"matchLabels": {"undb.io/store": "s-0"}},
        },
    })
}

fn store_pod(ready: bool) -> Value {
    pod(NS, "s-0", &BTreeMap::from([("undb.io/store".into(), "s-0".into())]), ready)
}

#[tokio::test]
async fn a_closed_budget_refuses_and_an_open_one_lets_go_ready_or_not() {
    for ready in [true, false] {
        let server = ApiServer::default();
        let api: Api<Pod> = Api::namespaced(server.client(NS).0, NS);
        server.put("pods", store_pod(ready));
        server.put("poddisruptionbudgets.policy", budget(1, "IfHealthyBudget"));
        assert_eq!(code(&api.evict("s-0", &EvictParams::default()).await.expect_err("closed")), 429);
        server.change("poddisruptionbudgets.policy", NS, "s-0", |pdb| {
            pdb["spec"] = budget(0, "AlwaysAllow")["spec"].clone();
        });
        api.evict("s-0", &EvictParams::default()).await.expect("open");
        assert!(server.names("pods", NS).is_empty());
    }
}

#[tokio::test]
async fn a_budget_whose_status_lags_refuses_a_ready_pod() {
    let server = ApiServer::default();
    let api: Api<Pod> = Api::namespaced(server.client(NS).0, NS);
    server.put("pods", store_pod(true));
    server.put("poddisruptionbudgets.policy", budget(0, "AlwaysAllow"));
    server.with(|cluster| cluster.disruption_controller_stopped = true);
    server.change("poddisruptionbudgets.policy", NS, "s-0", |pdb| {
        pdb["spec"] = budget(1, "IfHealthyBudget")["spec"].clone();
    });
    assert_eq!(code(&api.evict("s-0", &EvictParams::default()).await.expect_err("lags")), 429);
}

#[tokio::test]
async fn a_frozen_watch_shows_nothing_while_a_live_read_does() {
    let server = ApiServer::default();
    let (client, _link) = server.client(NS);
    let api: Api<ConfigMap> = Api::namespaced(client, NS);
    api.create(&PostParams::default(), &map("a", &json!({}))).await.expect("created");
    server.freeze_watches();
    api.create(&PostParams::default(), &map("b", &json!({}))).await.expect("created");
    let cached = api.list(&ListParams::default().match_any()).await.expect("listed");
    assert_eq!(cached.items.len(), 1);
    assert_eq!(api.list(&ListParams::default()).await.expect("listed").items.len(), 2);
    server.thaw_watches();
    assert_eq!(api.list(&ListParams::default().match_any()).await.expect("listed").items.len(), 2);
}

#[tokio::test]
async fn a_watch_follows_changes_and_survives_410() {
    let server = ApiServer::default();
    let api: Api<ConfigMap> = Api::namespaced(server.client(NS).0, NS);
    server.put("configmaps", json!({"metadata": {"name": "a", "namespace": NS}}));
    let stream = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    let mut stream = std::pin::pin!(stream.map(|o| o.map(|o| o.metadata.name.unwrap_or_default())));
    assert_eq!(stream.next().await.expect("open").expect("listed"), "a");
    server.put("configmaps", json!({"metadata": {"name": "b", "namespace": NS}}));
    assert_eq!(stream.next().await.expect("open").expect("watched"), "b");
    server.compact();
    server.put("configmaps", json!({"metadata": {"name": "c", "namespace": NS}}));
    let mut seen = Vec::new();
    while !seen.contains(&"c".to_owned()) {
        seen.extend(stream.next().await.expect("open"));
    }
}

#[tokio::test]
async fn a_lost_answer_is_done_and_a_dead_link_does_nothing() {
    let server = ApiServer::default();
    let (client, link) = server.client(NS);
    let api: Api<ConfigMap> = Api::namespaced(client, NS);
    link.fail_once(Fault::AnswerLost, |call| call.is(Verb::Create, "configmaps"));
    api.create(&PostParams::default(), &map("a", &json!({}))).await.expect_err("lost");
    assert_eq!(server.names("configmaps", NS), ["a"]);
    link.die_at_write(0, false);
    api.create(&PostParams::default(), &map("b", &json!({}))).await.expect_err("dead");
    assert!(link.is_dead());
    api.get("a").await.expect_err("dead");
    assert_eq!(server.names("configmaps", NS), ["a"]);
}

#[tokio::test]
async fn owners_take_their_children_and_finalizers_hold() {
    let server = ApiServer::default();
    let api: Api<ConfigMap> = Api::namespaced(server.client(NS).0, NS);
    let parent =
        json!({"metadata": {"name": "p", "namespace": NS, "uid": "u1", "finalizers": ["undb.io/table"]}});
    server.put("configmaps", parent);
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "u1"}]);
    server.put("secrets", json!({"metadata": {"name": "c", "namespace": NS, "ownerReferences": owner}}));
    api.delete("p", &DeleteParams::default()).await.expect("begun");
    assert_eq!(server.names("secrets", NS), ["c"]);
    let patch = json!({"metadata": {"finalizers": null}});
    api.patch("p", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("let go");
    assert!(server.names("configmaps", NS).is_empty() && server.names("secrets", NS).is_empty());
}

#[test]
fn label_selectors_are_read_as_kubernetes_reads_them() {
    let labels = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
    for (selector, matches) in [
        ("", true),
        ("a=1,b=2", true),
        ("a==1", true),
        ("a=2", false),
        ("a!=2,c!=1", true),
        ("a,!c", true),
        ("c", false),
        ("a in (1,3),b", true),
        ("a notin (1,3)", false),
        ("b=2,a in (2)", false),
    ] {
        assert_eq!(request::labels_match(selector, &labels), matches, "{selector}");
    }
}
