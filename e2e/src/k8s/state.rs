//! What objects say of themselves, read from their JSON. Pure.

use serde_json::Value;

/// The status of a condition: True, False, Unknown; none: it is not there.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == kind)?["status"].as_str()
}

/// All conditions and the message, for errors.
pub fn shown(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let each = conditions.iter().map(|c| {
        let (reason, message) = (text(&c["reason"]), text(&c["message"]));
        format!("{}={} ({reason}: {message})", text(&c["type"]), text(&c["status"]))
    });
    let each: Vec<String> = each.collect();
    let name = text(&object["metadata"]["name"]);
    let blocked = blocked(object);
    let blocked =
        if blocked.is_empty() { String::new() } else { format!("; blocked by: {}", blocked.join("; ")) };
    format!("{name}: {}{blocked}; {}", each.join(", "), text(&object["status"]["message"]))
}

/// What blocks its next step.
pub fn blocked(object: &Value) -> Vec<String> {
    let all = object["status"]["blockedBy"].as_array().cloned().unwrap_or_default();
    let text = |b: &Value| {
        let shard = b["shard"].as_u64().map(|shard| format!("shard {shard} ")).unwrap_or_default();
        format!(
            "{shard}{} {}",
            b["reason"].as_str().unwrap_or_default(),
            b["message"].as_str().unwrap_or_default()
        )
    };
    all.iter().map(text).collect()
}

/// Its status is about the spec that is there now.
pub fn is_observed(object: &Value) -> bool {
    object["status"]["observedGeneration"].as_i64() == object["metadata"]["generation"].as_i64()
}

/// Ready about the spec that is there now, and nothing in progress.
pub fn is_settled(object: &Value) -> bool {
    let is = |kind: &str, wanted: &[Option<&str>]| wanted.contains(&condition(object, kind));
    is_observed(object)
        && is("Ready", &[Some("True")])
        && is("Reconciling", &[None, Some("False")])
        && is("Stalled", &[None, Some("False")])
        && is("Progressing", &[None, Some("False")])
}

/// A StoreCluster whose stores are all there, as wanted, and ready.
pub fn stores_settled(object: &Value) -> bool {
    let wanted = object["spec"]["replicas"].as_u64();
    let status = &object["status"];
    is_settled(object)
        && ["replicas", "readyReplicas", "updatedReplicas"]
            .iter()
            .all(|field| status[*field].as_u64() == wanted)
}

/// A Pod's Ready condition.
pub fn is_pod_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == Some("True") && pod["metadata"]["deletionTimestamp"].is_null()
}

/// The name of an object.
pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Its UID.
pub fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Where a Pod is.
pub fn node(pod: &Value) -> String {
    pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()
}

/// What a store's Pod runs.
pub fn image(pod: &Value) -> String {
    pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned()
}

/// How often a Pod's containers began again.
pub fn restarts(pod: &Value) -> u64 {
    let all = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    all.iter().filter_map(|container| container["restartCount"].as_u64()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stores(generation: u64, ready: &str, progressing: &str) -> Value {
        json!({
            "metadata": {"name": "default", "generation": generation},
            "spec": {"replicas": 3},
            "status": {
                "observedGeneration": 2, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3,
                "message": "m", "blockedBy": [{"shard": 7, "reason": "StoreDown", "message": "store 2"}],
                "conditions": [{"type": "Ready", "status": ready, "reason": "r"},
                    {"type": "Progressing", "status": progressing}],
            },
        })
    }

    #[test]
    fn settled_is_about_the_spec_that_is_there_now() {
        assert!(stores_settled(&stores(2, "True", "False")));
        assert!(!stores_settled(&stores(3, "True", "False")), "status of an older spec");
        assert!(!stores_settled(&stores(2, "Unknown", "False")));
        assert!(!stores_settled(&stores(2, "True", "True")));
        assert!(shown(&stores(2, "True", "True")).contains("shard 7 StoreDown store 2"));
    }

    #[test]
    fn an_object_without_status_is_not_settled() {
        assert!(!is_settled(&json!({"metadata": {"generation": 1}})));
        assert!(!is_settled(&json!({"metadata": {}})));
    }
}
