//! What a running Pod must be restarted for.
//!
//! Of what users set, not of what this version of the operator renders: an operator upgrade restarts
//! nothing. Labels, annotations, tolerations, affinity and the like hold for Pods made from now on.

use serde::Serialize;
use serde_json::{Value, json};

/// What needs a restart when it changes.
#[derive(Debug, Serialize)]
pub struct Restart<'a, S: Serialize> {
    /// The resolved image.
    pub image: &'a str,
    /// CPU and memory.
    pub resources: Option<&'a Value>,
    /// The user's Pod template; only its containers, volumes and identity count.
    pub pod_template: Option<&'a Value>,
    /// Whether the role speaks TLS.
    pub tls: bool,
    /// What users set that ends in the configuration file. A field that is added later must be
    /// left out while it has its default (`skip_serializing_if`).
    pub settings: S,
}

/// 16 hex digits, the same for the same wishes in every version of the operator.
pub fn restart_hash<S: Serialize>(restart: &Restart<'_, S>) -> String {
    const PARTS: [&str; 10] = [
        "containers",
        "initContainers",
        "volumes",
        "serviceAccountName",
        "securityContext",
        "runtimeClassName",
        "dnsPolicy",
        "dnsConfig",
        "hostAliases",
        "shareProcessNamespace",
    ];
    let spec = restart.pod_template.and_then(|template| template.get("spec"));
    let parts = PARTS.iter().filter_map(|part| {
        let value = spec?.get(part).filter(|value| !value.is_null())?;
        Some(((*part).to_string(), value.clone()))
    });
    let wishes = json!({
        "image": restart.image,
        "resources": restart.resources.filter(|value| !value.is_null()),
        "podTemplate": Value::Object(parts.collect()),
        "tls": restart.tls,
        "settings": serde_json::to_value(&restart.settings).unwrap_or(Value::Null),
    });
    // serde_json's maps are sorted, so the text is the same for the same value.
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(wishes.to_string().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(template: Value) -> String {
        restart_hash(&Restart {
            image: "undb:1",
            resources: None,
            pod_template: Some(&template),
            tls: true,
            settings: (),
        })
    }

    #[test]
    fn only_what_needs_a_restart_changes_the_hash() {
        let plain = hash(json!({}));
        let placement = json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"tolerations": [{"key": "x"}], "affinity": {}, "nodeSelector": {"disk": "ssd"}},
        });
        assert_eq!(hash(placement), plain);
        let env = json!({"spec": {"containers": [{"name": "undb", "env": [{"name": "A", "value": "1"}]}]}});
        assert_ne!(hash(env), plain);
    }

    #[test]
    fn the_hash_is_the_same_in_every_version() {
        assert_eq!(hash(json!({})), "de5c72cebf29f582");
    }
}
