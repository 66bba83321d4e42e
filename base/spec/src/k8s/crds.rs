//! The resource definitions, as the API server takes them: what the derive makes, made structural, with
//! the rules of `rules` and the columns of `columns`.

use super::columns::face;
use super::rules::{RULES, bounds};
use super::{ControlPlane, Router, Store, StoreCluster, Table};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

/// All definitions.
pub fn all() -> Vec<CustomResourceDefinition> {
    let derived = [ControlPlane::crd(), Router::crd(), Store::crd(), StoreCluster::crd(), Table::crd()];
    derived.iter().map(finish).collect()
}

/// Each definition as a file: name and YAML.
pub fn files() -> Vec<(String, String)> {
    let file = |crd: &CustomResourceDefinition| {
        let name = format!("undb.io_{}.yaml", crd.spec.names.plural);
        let yaml = serde_yaml::to_string(crd).expect("definitions are plain data");
        (name, format!("# Made by `undb-operator crds`; change base/spec instead.\n{yaml}"))
    };
    all().iter().map(file).collect()
}

/// The schema of a kind, as JSON, with its rules. None: no such kind.
pub fn schema(kind: &str) -> Option<Value> {
    let crd = all().into_iter().find(|crd| crd.spec.names.kind == kind)?;
    let version = crd.spec.versions.into_iter().next()?;
    serde_json::to_value(version.schema?.open_api_v3_schema?).ok()
}

fn about(kind: &str) -> &'static str {
    match kind {
        "ControlPlane" => "Metadata, cluster control and access of one UNDB.",
        "Router" => "Processes that hand out routes, and proxies that speak Redis and HTTP.",
        "Store" => "One store of a StoreCluster, made by the operator. Only spec.offline may be changed.",
        "StoreCluster" => "A class of stores: how many, which engine, which volumes.",
        _ => "Records under (hash key, sort key), cut into shards that are replicated over stores.",
    }
}

fn finish(derived: &CustomResourceDefinition) -> CustomResourceDefinition {
    let kind = derived.spec.names.kind.as_str();
    let mut crd = serde_json::to_value(derived).expect("definitions are plain data");
    let version = &mut crd["spec"]["versions"][0];
    let schema = &mut version["schema"]["openAPIV3Schema"];
    make_structural(schema);
    schema["description"] = json!(about(kind));
    if let Some(status) = find(schema, "status") {
        without_defaults(status);
    }
    if let Some(conditions) = find(schema, "status.conditions") {
        conditions["items"]["properties"].as_object_mut().into_iter().for_each(describe_condition);
        conditions["items"]["description"] = json!("One aspect of the state.");
        conditions["maxItems"] = json!(16);
        conditions["x-kubernetes-list-type"] = json!("map");
        conditions["x-kubernetes-list-map-keys"] = json!(["type"]);
    }
    for (of, at, patch) in bounds() {
        let node = if of.is_empty() || of == kind { find(schema, at) } else { None };
        if let (Some(Value::Object(node)), Value::Object(patch)) = (node, patch) {
            bound(node, patch);
        }
    }
    for rule in RULES.iter().filter(|rule| rule.kind == kind) {
        let node = find(schema, rule.at).expect("a rule is about a field that exists");
        let mut validation = json!({"rule": rule.rule, "message": rule.message});
        if !rule.field.is_empty() {
            validation["fieldPath"] = json!(rule.field);
        }
        match &mut node["x-kubernetes-validations"] {
            Value::Array(rules) => rules.push(validation),
            none => *none = json!([validation]),
        }
    }
    let face = face(kind);
    version["additionalPrinterColumns"] = Value::Array(face.columns);
    version["selectableFields"] = face.selectable.iter().map(|path| json!({"jsonPath": path})).collect();
    if face.scale {
        version["subresources"]["scale"] = json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        });
    }
    serde_json::from_value(crd).expect("the derive's shape is kept")
}

/// Bounds of resources go to the two maps in it.
fn bound(node: &mut Map<String, Value>, patch: Map<String, Value>) {
    let maps = ["requests", "limits"];
    let is_resources = node
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|p| maps.iter().all(|m| p.contains_key(*m)));
    if !is_resources {
        node.extend(patch);
        return;
    }
    for map in maps {
        if let Some(Value::Object(map)) = node.get_mut("properties").and_then(|p| p.get_mut(map)) {
            map.extend(patch.clone());
        }
    }
}

/// The schema of a field.
fn find<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut node = schema;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        node = node.get_mut("properties")?.get_mut(part.trim_end_matches("[]"))?;
        if part.ends_with("[]") {
            node = node.get_mut("items")?;
        }
    }
    Some(node)
}

/// Takes out what the API server refuses or warns about. An absent field and `null` are the same.
fn make_structural(node: &mut Value) {
    match node {
        Value::Object(map) => {
            // Only beside a type or another keyword of schemas is it a keyword, not the name of a field.
            if map.get("nullable").is_some_and(Value::is_boolean) {
                map.remove("nullable");
            }
            if map.get("x-kubernetes-int-or-string").is_some_and(Value::is_boolean) {
                map.remove("anyOf");
                map.insert("maxLength".into(), json!(32));
            }
            if map.get("title").is_some_and(Value::is_string) {
                map.remove("title");
            }
            if let Some(format) = map.get("format").and_then(Value::as_str)
                && format.starts_with("uint")
            {
                map.insert("format".into(), json!("int64"));
            }
            for bound in ["minimum", "maximum"] {
                if let Some(whole) = map.get(bound).and_then(Value::as_f64) {
                    map.insert(bound.into(), json!(whole));
                }
            }
            map.values_mut().for_each(make_structural);
        }
        Value::Array(items) => items.iter_mut().for_each(make_structural),
        _ => {}
    }
}

/// A status has what the operator wrote, nothing else.
fn without_defaults(node: &mut Value) {
    if let Value::Object(map) = node {
        if map.contains_key("type") || map.contains_key("x-kubernetes-int-or-string") {
            map.remove("default");
        }
        map.values_mut().for_each(without_defaults);
    }
}

fn describe_condition(fields: &mut Map<String, Value>) {
    let texts = [
        ("type", "Which aspect."),
        ("status", "True, False or Unknown."),
        ("reason", "One word on why."),
        ("message", "A sentence on why, and what to do."),
        ("lastTransitionTime", "Since when it has this status."),
        ("observedGeneration", "The generation of the spec that it is about."),
    ];
    for (name, text) in texts {
        if let Some(field) = fields.get_mut(name) {
            field["description"] = json!(text);
        }
    }
}
