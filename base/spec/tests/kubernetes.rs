//! The rules that the API server checks, evaluated here: each refuses something with its own sentence,
//! and what is documented passes. The same files are applied to a real API server by the e2e suite.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The YAML files of a folder, by name.
fn files(folder: &str) -> Vec<(String, String)> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(root().join(folder))
        .expect("a folder")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).expect("text"))
    };
    paths.iter().map(read).collect()
}

fn documents(text: &str) -> Vec<Value> {
    text.split("\n---\n").map(|document| serde_yaml::from_str(document).expect("YAML")).collect()
}

/// What the rules say to one object, as kind and sentence.
fn refused(object: &Value, old: Option<&Value>) -> BTreeSet<(String, String)> {
    let kind = object["kind"].as_str().expect("kind");
    let schema = undb_spec::k8s::crds::schema(kind).expect("a kind of ours");
    let validator = kube::core::cel::Validator::new();
    let failed = validator.validate(&schema, object, old).err().into_iter().flat_map(|e| e.into_vec());
    failed.map(|e| (kind.to_owned(), e.message)).collect()
}

fn sentences(kind: &str, node: &Value, found: &mut BTreeSet<(String, String)>) {
    match node {
        Value::Object(map) => {
            let rules = map.get("x-kubernetes-validations").and_then(Value::as_array);
            for rule in rules.into_iter().flatten() {
                found.insert((kind.into(), rule["message"].as_str().expect("a sentence").into()));
            }
            map.values().for_each(|below| sentences(kind, below, found));
        }
        Value::Array(items) => items.iter().for_each(|below| sentences(kind, below, found)),
        _ => {}
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "undb.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Pairs of before and after that no file shows: the same rule at another kind.
fn more() -> Vec<(Option<Value>, Value)> {
    let greedy = json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}});
    let ours = json!({"metadata": {"labels": {"undb.io/component": "mine"}}});
    let members = |storage: Value| object("ControlPlane", "undb", json!({"metadata": {"storage": storage}}));
    vec![
        (None, object("ControlPlane", "Undb", json!({}))),
        (None, object("ControlPlane", "undb", json!({"access": {"resources": greedy}}))),
        (None, object("ControlPlane", "undb", json!({"podTemplate": ours}))),
        (None, members(json!({"size": "1Mi"}))),
        (Some(members(json!({"size": "2Gi"}))), members(json!({"size": "1Gi"}))),
        (Some(members(json!({"class": "a"}))), members(json!({"class": "b"}))),
        (None, object("Router", "1undb", json!({}))),
        (None, object("Router", "undb", json!({"proxy": {"resources": greedy}}))),
        (None, object("Router", "undb", json!({"podTemplate": ours}))),
        (None, object("Table", "packages", json!({"storeCluster": "Small"}))),
    ]
}

#[test]
fn every_rule_refuses_something_with_its_sentence() {
    let mut all = BTreeSet::new();
    for crd in undb_spec::k8s::crds::all() {
        let kind = crd.spec.names.kind;
        sentences(&kind, &undb_spec::k8s::crds::schema(&kind).expect("known"), &mut all);
    }
    let mut seen = BTreeSet::new();
    for (file, text) in files("e2e/manifests/wrong") {
        let first = text.lines().next().unwrap_or_default();
        let want = first.strip_prefix("# refused: ").unwrap_or_else(|| panic!("{file}: {first}"));
        let documents = documents(&text);
        let last = documents.last().expect("an object");
        let before = documents.len().checked_sub(2).and_then(|i| documents.get(i));
        if let Some(before) = before {
            assert_eq!(refused(before, None), BTreeSet::new(), "{file}: the first object is fine");
        }
        let said = refused(last, before);
        let by_rule = all
            .iter()
            .any(|(kind, message)| Some(kind.as_str()) == last["kind"].as_str() && want.ends_with(message));
        // Types and bounds of the schema refuse the others; no rule is asked then.
        if by_rule {
            assert!(said.iter().any(|(_, message)| want.ends_with(message)), "{file}: {said:?}");
            assert_eq!(said.len(), 1, "{file}: one thing is wrong in it: {said:?}");
            seen.extend(said);
        }
    }
    for (before, after) in more() {
        let said = refused(&after, before.as_ref());
        assert_eq!(said.len(), 1, "{after}: {said:?}");
        seen.extend(said);
    }
    let silent: Vec<_> = all.difference(&seen).collect();
    assert!(silent.is_empty(), "rules that no test breaks: {silent:?}");
    assert!(seen.is_subset(&all), "not evaluated: {:?}", seen.difference(&all));
}

#[test]
fn what_is_documented_passes_here_and_without_kubernetes() {
    for (file, text) in files("examples").into_iter().chain(files("examples/kubernetes")) {
        for object in documents(&text) {
            assert_eq!(refused(&object, None), BTreeSet::new(), "{file}");
            assert_eq!(refused(&object, Some(&object)), BTreeSet::new(), "{file}: applied twice");
        }
    }
    for (file, text) in files("examples") {
        undb_spec::parse_yaml(&text, &file).expect("undb apply takes it");
    }
}

#[test]
fn what_may_change_later_is_not_refused() {
    let before = object("StoreCluster", "small", json!({"replicas": 3, "storage": {"size": "1Gi"}}));
    let after = object(
        "StoreCluster",
        "small",
        json!({
            "replicas": 5, "storage": {"size": "1024Mi"}, "image": "undb:2", "controlPlaneRef": {"name": "undb"},
            "engine": {"memory": "1Gi", "separation": {"threshold": "2Ki"}}, "paused": true,
        }),
    );
    assert_eq!(refused(&after, Some(&before)), BTreeSet::new());
    let store = |offline: bool, hash: &str| {
        object(
            "Store",
            "small-0",
            json!({"storeCluster": "small", "ordinal": 0, "offline": offline, "templateHash": hash}),
        )
    };
    assert_eq!(refused(&store(true, "b"), Some(&store(false, "a"))), BTreeSet::new());
}

#[test]
fn specs_of_both_worlds_read_the_same_yaml() {
    let text = "replicas: 4\nresources: {requests: {cpu: 2, memory: 1Gi}, limits: {memory: 1.5Gi}}\npodTemplate: {spec: {nodeSelector: {disk: fast}}}\n";
    let spec: undb_spec::StoreClusterSpec = serde_yaml::from_str(text).expect("fits");
    let resources = spec.resources.as_ref().expect("there");
    let theirs = k8s_openapi::api::core::v1::ResourceRequirements::from(resources);
    assert_eq!(theirs.requests.expect("requests")["cpu"].0, "2");
    let template = spec.pod_template.expect("there").partial().expect("a partial Pod");
    assert_eq!(template.spec.expect("spec").node_selector.expect("labels")["disk"], "fast");
    let wrong: undb_spec::PodTemplate =
        serde_yaml::from_str("spec: {tolerations: none}").expect("not looked at");
    assert!(wrong.partial().expect_err("no list").starts_with("podTemplate: "));
}
