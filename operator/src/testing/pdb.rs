//! PodDisruptionBudgets: what the disruption controller writes, and what an eviction is told.

use super::cluster::{Cluster, Refusal, labels_of};
use super::request::Key;
use serde_json::{Value, json};

const PDBS: &str = "poddisruptionbudgets.policy";

fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

fn selects(pdb: &Value, pod: &Value) -> bool {
    let Some(wanted) = pdb["spec"]["selector"]["matchLabels"].as_object() else { return false };
    let labels = labels_of(pod);
    !wanted.is_empty() && wanted.iter().all(|(k, v)| labels.get(k).map(String::as_str) == v.as_str())
}

/// A number, or a share of `total` rounded up, as Kubernetes does it.
fn count(value: &Value, total: i64) -> Option<i64> {
    let share = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    value.as_i64().or_else(|| share.map(|percent| (total * percent + 99) / 100))
}

fn status(pdb: &Value, pods: &[Value]) -> Value {
    let chosen: Vec<&Value> = pods.iter().filter(|pod| selects(pdb, pod)).collect();
    let expected = i64::try_from(chosen.len()).unwrap_or(i64::MAX);
    let up = |pod: &&&Value| ready(pod) && pod["metadata"]["deletionTimestamp"].is_null();
    let healthy = i64::try_from(chosen.iter().filter(up).count()).unwrap_or(i64::MAX);
    let spec = &pdb["spec"];
    let desired = match count(&spec["maxUnavailable"], expected) {
        Some(down) => (expected - down).max(0),
        None => count(&spec["minAvailable"], expected).unwrap_or(1),
    };
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    json!({
        "observedGeneration": pdb["metadata"]["generation"],
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
    })
}

/// One round of the disruption controller.
pub fn settle(cluster: &mut Cluster) {
    for (key, pdb) in cluster.all(&Key::new(PDBS, "", "")) {
        let pods: Vec<Value> =
            cluster.all(&Key::new("pods", &key.namespace, "")).into_iter().map(|(_, pod)| pod).collect();
        let new = status(&pdb, &pods);
        if pdb["status"] != new {
            let mut changed = pdb;
            changed["status"] = new;
            cluster.store(&key, changed);
        }
    }
}

/// Asks the budgets of a Pod; takes one disruption from the budget that allows.
pub fn evict(cluster: &mut Cluster, key: &Key, pod: &Value) -> Result<(), Refusal> {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let ending = !pod["metadata"]["deletionTimestamp"].is_null();
    if ending || ["Pending", "Succeeded", "Failed"].contains(&phase) {
        return Ok(());
    }
    let budgets = cluster.all(&Key::new(PDBS, &key.namespace, ""));
    let mut budgets: Vec<(Key, Value)> = budgets.into_iter().filter(|(_, pdb)| selects(pdb, pod)).collect();
    if budgets.len() > 1 {
        let reason = "This pod has more than one PodDisruptionBudget";
        return Err(Refusal::new(500, "InternalError", reason));
    }
    let Some((budget, mut pdb)) = budgets.pop() else { return Ok(()) };
    let number = |pdb: &Value, field: &str| pdb["status"][field].as_i64().unwrap_or(0);
    if !ready(pod) {
        let healthy = number(&pdb, "currentHealthy") >= number(&pdb, "desiredHealthy");
        let budgeted = healthy && number(&pdb, "desiredHealthy") > 0;
        if pdb["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || budgeted {
            return Ok(());
        }
    }
    let lagging = number(&pdb, "observedGeneration") < pdb["metadata"]["generation"].as_i64().unwrap_or(0);
    if lagging || number(&pdb, "disruptionsAllowed") <= 0 {
        let why = format!(
            "Cannot evict pod as it would violate the pod's disruption budget ({}{}).",
            budget.name,
            if lagging { " is still being processed" } else { "" },
        );
        return Err(Refusal::new(429, "TooManyRequests", &why));
    }
    pdb["status"]["disruptionsAllowed"] = json!(number(&pdb, "disruptionsAllowed") - 1);
    cluster.store(&budget, pdb);
    Ok(())
}
