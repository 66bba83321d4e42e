//! The user's Pod template over ours, by the rules of strategic merge: lists of named things by their
//! name, single values replaced. What UNDB depends on may not be set, and the error says which field.

use super::pod::CONTAINER;
use k8s_openapi::DeepMerge;
use k8s_openapi::api::core::v1::{PodTemplateSpec, ResourceRequirements};
use serde_json::{Value, json};

/// What of a Pod template is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct TemplateError {
    /// The field, for example `spec.podTemplate.spec.hostNetwork`.
    pub path: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

fn refuse<T>(path: impl Into<String>, problem: impl Into<String>) -> Result<T, TemplateError> {
    Err(TemplateError { path: path.into(), problem: problem.into() })
}

const ROOT: &str = "spec.podTemplate";

const METADATA: [&str; 2] = ["labels", "annotations"];
const SPEC: [&str; 22] = [
    "affinity",
    "containers",
    "dnsConfig",
    "dnsPolicy",
    "hostAliases",
    "imagePullSecrets",
    "initContainers",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
    "shareProcessNamespace",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
];
/// Of our own container.
const OWN: [&str; 5] = ["name", "env", "envFrom", "volumeMounts", "imagePullPolicy"];
const OWN_VOLUMES: [&str; 3] = ["files", "tmp", "data"];
const OWN_ENV: [&str; 5] = ["POD_NAME", "POD_NAMESPACE", "POD_IP", "POD_INDEX", "UNDB_TOKEN"];

/// Merges what the user wrote over ours.
pub fn merge(own: PodTemplateSpec, user: Option<&Value>) -> Result<PodTemplateSpec, TemplateError> {
    let Some(user) = user.filter(|value| !value.is_null()) else { return Ok(own) };
    check(user)?;
    let mut template: PodTemplateSpec = parse(user)?;
    let mut merged = own;
    if let Some(metadata) = template.metadata.take() {
        let of_ours = merged.metadata.get_or_insert_default();
        of_ours.labels.get_or_insert_default().extend(metadata.labels.unwrap_or_default());
        of_ours.annotations.get_or_insert_default().extend(metadata.annotations.unwrap_or_default());
    }
    if let Some(mut spec) = template.spec.take() {
        let of_ours = merged.spec.get_or_insert_default();
        // Ours keep a Pod alive on a lost node; theirs come on top.
        let tolerations = spec.tolerations.take().unwrap_or_default();
        of_ours.merge_from(spec);
        if !tolerations.is_empty() {
            of_ours.tolerations.get_or_insert_default().extend(tolerations);
        }
    }
    Ok(merged)
}

/// CPU and memory, as the user wrote them.
pub fn parse_resources(resources: &Value) -> Result<ResourceRequirements, TemplateError> {
    serde_json::from_value(resources.clone()).or_else(|error| {
        refuse("spec.resources", format!("{error}; write requests and limits, as in a container"))
    })
}

/// The types are lenient about missing lists: `containers` is required by the API, not by us.
fn parse(user: &Value) -> Result<PodTemplateSpec, TemplateError> {
    let mut user = user.clone();
    if let Some(spec) = user.get_mut("spec").and_then(Value::as_object_mut) {
        spec.entry("containers").or_insert_with(|| json!([]));
    }
    serde_json::from_value(user)
        .or_else(|error| refuse(ROOT, format!("{error}; write it as in the template of a Deployment")))
}

fn check(user: &Value) -> Result<(), TemplateError> {
    only(user, ROOT, &["metadata", "spec"])?;
    if let Some(metadata) = user.get("metadata") {
        only(metadata, &format!("{ROOT}.metadata"), &METADATA)?;
        for part in METADATA {
            own_keys(metadata.get(part), &format!("{ROOT}.metadata.{part}"))?;
        }
    }
    let Some(spec) = user.get("spec") else { return Ok(()) };
    let path = format!("{ROOT}.spec");
    only(spec, &path, &SPEC)?;
    for (i, container) in list(spec.get("containers")).iter().enumerate() {
        if container.get("name").and_then(Value::as_str) == Some(CONTAINER) {
            let path = format!("{path}.containers[{i}]");
            only(container, &path, &OWN)?;
            names(container.get("env"), &format!("{path}.env"), &OWN_ENV)?;
        }
    }
    names(spec.get("volumes"), &format!("{path}.volumes"), &OWN_VOLUMES)?;
    names(spec.get("initContainers"), &format!("{path}.initContainers"), &[CONTAINER])
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn only(value: &Value, path: &str, allowed: &[&str]) -> Result<(), TemplateError> {
    let Some(object) = value.as_object() else {
        return refuse(path, "is not an object; write fields below it");
    };
    match object.keys().find(|key| !allowed.contains(&key.as_str())) {
        Some(key) => refuse(
            format!("{path}.{key}"),
            format!("may not be set here; what may be is {}", allowed.join(", ")),
        ),
        None => Ok(()),
    }
}

/// Things with a name that is ours.
fn names(value: Option<&Value>, path: &str, own: &[&str]) -> Result<(), TemplateError> {
    let name = |item: &Value| item.get("name").and_then(Value::as_str).map(String::from);
    match list(value).iter().filter_map(name).find(|name| own.contains(&name.as_str())) {
        Some(name) => refuse(path, format!("`{name}` belongs to UNDB; use another name")),
        None => Ok(()),
    }
}

/// Labels and annotations that selectors and the operator depend on.
fn own_keys(value: Option<&Value>, path: &str) -> Result<(), TemplateError> {
    let Some(object) = value.and_then(Value::as_object) else { return Ok(()) };
    let ours = |key: &&String| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        domain == "undb.io"
            || domain.ends_with(".undb.io")
            || domain == "app.kubernetes.io"
            || domain == "topology.kubernetes.io"
    };
    match object.keys().find(ours) {
        Some(key) => refuse(path, format!("`{key}` is set by UNDB; use a key of your own domain")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> PodTemplateSpec {
        serde_json::from_value(json!({
            "metadata": {"labels": {"undb.io/component": "meta"}},
            "spec": {
                "containers": [{"name": "undb", "image": "undb:1", "env": [{"name": "POD_NAME", "value": "x"}]}],
                "tolerations": [{"key": "ours"}],
            },
        }))
        .expect("a template")
    }

    #[test]
    fn what_the_user_adds_is_merged_by_name_and_ours_stays() {
        let user = json!({
            "metadata": {"labels": {"team": "a"}, "annotations": {"mesh": "off"}},
            "spec": {
                "nodeSelector": {"disk": "ssd"},
                "priorityClassName": "high",
                "tolerations": [{"key": "theirs"}],
                "imagePullSecrets": [{"name": "registry"}],
                "containers": [
                    {"name": "undb", "env": [{"name": "UNDB_LOG", "value": "debug"}]},
                    {"name": "agent", "image": "agent:1"},
                ],
            },
        });
        let merged = serde_json::to_value(merge(own(), Some(&user)).expect("merged")).expect("plain data");
        let spec = &merged["spec"];
        assert_eq!(merged["metadata"]["labels"], json!({"team": "a", "undb.io/component": "meta"}));
        assert_eq!(spec["tolerations"], json!([{"key": "ours"}, {"key": "theirs"}]));
        assert_eq!(spec["containers"][0]["image"], "undb:1");
        assert_eq!(spec["containers"][0]["env"].as_array().map(Vec::len), Some(2));
        assert_eq!(spec["containers"][1]["name"], "agent");
        assert_eq!(spec["nodeSelector"]["disk"], "ssd");
        assert_eq!(merge(own(), None).expect("merged"), own());
    }

    #[test]
    fn what_undb_depends_on_is_refused_by_its_path() {
        for (user, path) in [
            (json!({"spec": {"hostNetwork": true}}), "spec.podTemplate.spec.hostNetwork"),
            (json!({"spec": {"hostname": "x"}}), "spec.podTemplate.spec.hostname"),
            (json!({"metadata": {"name": "x"}}), "spec.podTemplate.metadata.name"),
            (json!({"metadata": {"labels": {"undb.io/store": "x"}}}), "spec.podTemplate.metadata.labels"),
            (
                json!({"spec": {"containers": [{"name": "a"}, {"name": "undb", "image": "x"}]}}),
                "spec.podTemplate.spec.containers[1].image",
            ),
            (
                json!({"spec": {"containers": [{"name": "undb", "env": [{"name": "POD_NAME", "value": "x"}]}]}}),
                "spec.podTemplate.spec.containers[0].env",
            ),
            (json!({"spec": {"volumes": [{"name": "data"}]}}), "spec.podTemplate.spec.volumes"),
            (json!({"spec": {"tolerations": 3}}), "spec.podTemplate"),
        ] {
            assert_eq!(merge(own(), Some(&user)).expect_err(path).path, path);
        }
    }

    #[test]
    fn resources_that_are_none_are_refused() {
        assert!(parse_resources(&json!({"limits": {"memory": "1Gi"}})).is_ok());
        assert_eq!(parse_resources(&json!([])).expect_err("refused").path, "spec.resources");
    }
}
