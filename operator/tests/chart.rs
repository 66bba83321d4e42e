//! The chart's values are checked by the same schemas as the resources. `UPDATE=1 cargo test -p
//! undb-operator --test chart` writes them again.

use serde_json::{Map, Value, json};
use std::path::Path;

const KINDS: [&str; 4] = ["ControlPlane", "StoreCluster", "Router", "Table"];

/// A schema of a resource as Helm reads it: plain JSON Schema, and nothing unknown passes.
fn plain(node: &Value) -> Value {
    let Value::Object(map) = node else { return node.clone() };
    let flag = |name: &str| map.get(name).and_then(Value::as_bool) == Some(true);
    let mut out: Map<String, Value> = Map::new();
    for key in ["type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "maxItems"] {
        if let Some(value) = map.get(key) {
            out.insert(key.into(), value.clone());
        }
    }
    for key in ["description", "required", "maxProperties"] {
        if let Some(value) = map.get(key) {
            out.insert(key.into(), value.clone());
        }
    }
    if flag("x-kubernetes-int-or-string") {
        out.insert("type".into(), json!(["integer", "string"]));
    }
    if let Some(Value::Object(fields)) = map.get("properties") {
        let fields: Map<String, Value> = fields.iter().map(|(name, of)| (name.clone(), plain(of))).collect();
        out.insert("properties".into(), Value::Object(fields));
        out.insert("additionalProperties".into(), json!(flag("x-kubernetes-preserve-unknown-fields")));
    } else if let Some(of) = map.get("additionalProperties") {
        out.insert("additionalProperties".into(), plain(of));
    }
    if let Some(items) = map.get("items") {
        out.insert("items".into(), plain(items));
    }
    Value::Object(out)
}

#[test]
fn values_of_the_first_database_are_checked_like_the_resources() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/undb/values.schema.json");
    let text = std::fs::read_to_string(&path).expect("committed");
    let mut schema: Value = serde_json::from_str(&text).expect("JSON");
    for kind in KINDS {
        let of = undb_spec::k8s::crds::schema(kind).expect("a kind of ours");
        schema["definitions"][kind] = plain(&of["properties"]["spec"]);
    }
    let made = format!("{}\n", serde_json::to_string_pretty(&schema).expect("plain data"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &made).expect("written");
    } else {
        assert!(
            text == made,
            "charts/undb/values.schema.json differs from base/spec; run this test with UPDATE=1"
        );
    }
}

#[test]
fn the_operator_has_no_right_that_is_not_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/undb/templates");
    for file in ["rbac.yaml", "_helpers.tpl"] {
        let text = std::fs::read_to_string(root.join(file)).expect("committed");
        for line in
            text.lines().filter(|l| ["verbs:", "resources:", "apiGroups:"].iter().any(|k| l.contains(k)))
        {
            assert!(!line.contains('*'), "{file}: {line}");
        }
    }
}

/// The node of the only operator is drained: its Pod is no store's, its budget lets it go, and while it is
/// away the API server asks nobody. A new one gets no calls before it can answer them.
#[test]
fn an_operator_that_is_away_holds_up_no_eviction_and_is_ready_once_its_webhook_is() {
    let template = |file: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/undb/templates");
        std::fs::read_to_string(root.join(file)).expect("committed")
    };
    let webhook = template("webhook.yaml");
    assert!(webhook.contains("failurePolicy: Ignore"), "{webhook}");
    assert!(webhook.contains("resources: [pods/eviction]"), "nothing else passes by it: {webhook}");
    let deployment = template("deployment.yaml");
    let (_, budget) = deployment.split_once("kind: PodDisruptionBudget").expect("the operator has a budget");
    assert!(budget.contains("maxUnavailable: 1"), "{budget}");
    assert!(budget.contains("unhealthyPodEvictionPolicy: AlwaysAllow"), "{budget}");
    let (_, probe) = deployment.split_once("readinessProbe:").expect("it is asked");
    assert!(probe.trim_start().starts_with("httpGet: {path: /readyz"), "{probe}");
    let fresh = undb_operator::webhook::Identity::default();
    assert!(fresh.ready().is_err(), "no certificate, no calls");
}
