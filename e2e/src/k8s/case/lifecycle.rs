//! An upgrade of the chart restarts no store, an uninstall leaves them serving, a reinstall adopts them, and
//! deleting everything with `Delete` leaves nothing behind.

use super::{found, judge, runs, start_load};
use crate::case::{Failure, Run};
use crate::harness::{HarnessError, Result};
use crate::k8s::objects::{CONTROL_PLANE, ROUTER, STORES};
use crate::k8s::stage::CHART;
use crate::k8s::{Stage, state};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const CASE: &str = "k8s-lifecycle";
const RATE: u32 = 60;
const WAIT: Duration = Duration::from_secs(600);
const GONE_WAIT: Duration = Duration::from_secs(120);
const NAMESPACE_WAIT: Duration = Duration::from_secs(60);
/// Kinds of the objects that a database is made of.
const MADE: [&str; 8] =
    ["pvc", "pdb", "statefulsets", "deployments", "secrets", "configmaps", "services", "networkpolicies"];
const WITHOUT_OPERATOR: Duration = Duration::from_secs(15);

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    super::played(CASE, run, play).await
}

async fn play(stage: &Stage, run: Run) -> Result<String, Failure> {
    let (load, _) = start_load(stage, RATE, run.seed).await?;
    let before = runs(stage, STORES).await?;
    load.during(stage, "helm upgrade to a changed chart", upgrade(stage, &before)).await?;
    load.during(stage, "helm uninstall", uninstall(stage, &before)).await?;
    load.during(stage, "reinstall", reinstall(stage, &before)).await?;
    load.calm(stage, before.len()).await?;
    let figure = judge(stage, &load, false, 1).await?;
    stage.kube.kubectl(&["delete", "pods", "-l", crate::k8s::objects::OWN_LABEL, "--grace-period=1"]).await?;
    stage.steps.step("delete everything", delete_all(stage)).await?;
    let namespace =
        stage.steps.step("delete the namespace with the operator in it", delete_namespace(stage)).await?;
    Ok(format!(
        "no store restarted by upgrade, uninstall and reinstall; nothing left behind; namespace gone in {namespace:.0} s; {figure}"
    ))
}

async fn same(
    stage: &Stage,
    before: &BTreeMap<String, (String, u64)>,
    after_what: &str,
) -> Result<(), Failure> {
    let now = runs(stage, STORES).await?;
    if now == *before {
        return Ok(());
    }
    Err(found(format!("stores were restarted by {after_what}: {before:?}, then {now:?}")))
}

async fn upgrade(stage: &Stage, before: &BTreeMap<String, (String, u64)>) -> Result<(), Failure> {
    let dir = tempfile::tempdir().map_err(HarnessError::io("making a directory"))?;
    let chart = dir.path().join("undb");
    changed_copy(Path::new(CHART), &chart)?;
    let more = ["--set-string", "operator.podAnnotations.changed=yes"];
    stage.chart_command("upgrade", &chart.display().to_string(), &more).await?;
    stage.operator_rolled_out().await?;
    stage.settled(WAIT).await?;
    same(stage, before, "helm upgrade").await
}

/// The chart as a later release would be: another version of itself and of the application.
fn changed_copy(from: &Path, to: &Path) -> Result<()> {
    let io = HarnessError::io;
    std::fs::create_dir_all(to).map_err(io("copying the chart"))?;
    for entry in std::fs::read_dir(from).map_err(io("copying the chart"))?.flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            changed_copy(&path, &target)?;
        } else if entry.file_name() == "Chart.yaml" {
            let text = std::fs::read_to_string(&path).map_err(io("reading Chart.yaml"))?;
            std::fs::write(&target, later(&text)).map_err(io("writing Chart.yaml"))?;
        } else {
            std::fs::copy(&path, &target).map_err(io("copying the chart"))?;
        }
    }
    Ok(())
}

fn later(chart: &str) -> String {
    let line = |line: &str| match line.split_once(':') {
        Some(("version", _)) => "version: 99.0.0".to_owned(),
        Some(("appVersion", _)) => "appVersion: \"99.0.0\"".to_owned(),
        _ => line.to_owned(),
    };
    chart.lines().map(line).map(|line| line + "\n").collect()
}

async fn uninstall(stage: &Stage, before: &BTreeMap<String, (String, u64)>) -> Result<(), Failure> {
    stage.kube.helm(&["uninstall", "undb", "--wait", "--timeout", "100s"]).await?;
    tokio::time::sleep(WITHOUT_OPERATOR).await;
    for kind in ["controlplane", "storecluster", "router"] {
        if stage.kube.list(&[kind]).await?.is_empty() {
            return Err(found(format!("helm uninstall deleted the {kind}")));
        }
    }
    same(stage, before, "helm uninstall").await
}

async fn reinstall(stage: &Stage, before: &BTreeMap<String, (String, u64)>) -> Result<(), Failure> {
    stage.install(&[]).await?;
    stage.settled(WAIT).await?;
    same(stage, before, "the reinstall").await
}

async fn delete_all(stage: &Stage) -> Result<(), Failure> {
    let delete = json!({"whenDeleted": "Delete"});
    let patch =
        |policy: &serde_json::Value| json!({"spec": {"persistentVolumeClaimRetentionPolicy": policy}});
    stage.kube.patch("controlplane", CONTROL_PLANE, &patch(&delete)).await?;
    for cluster in stage.kube.list(&["storecluster"]).await? {
        let both = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
        stage.kube.patch("storecluster", &state::name(&cluster), &patch(&both)).await?;
    }
    for table in stage.kube.list(&["table"]).await? {
        stage
            .kube
            .patch("table", &state::name(&table), &json!({"spec": {"deletionPolicy": "Delete"}}))
            .await?;
    }
    let names = (CONTROL_PLANE, STORES, ROUTER);
    stage.object_settled("storecluster", names.1, WAIT).await?;
    stage.object_settled("controlplane", names.0, WAIT).await?;
    for kind in ["tables", "routers", "storeclusters", "controlplanes"] {
        stage.kube.kubectl(&["delete", kind, "--all", "--timeout=100s"]).await?;
    }
    let empty = || async {
        let mut left = Vec::new();
        for kind in ["stores.undb.io", "tables.undb.io"] {
            let found = stage.kube.list(&[kind]).await?;
            left.extend(found.iter().map(|object| format!("{kind}/{}", state::name(object))));
        }
        // The chart's own objects have another name: they stay with the release.
        for kind in MADE {
            let found = stage.kube.list(&[kind, "-l", "app.kubernetes.io/name=undb"]).await?;
            left.extend(found.iter().map(|object| format!("{kind}/{}", state::name(object))));
        }
        let pods = stage.kube.list(&["pods", "-l", "undb.io/component"]).await?;
        left.extend(pods.iter().map(|pod| format!("pod/{}", state::name(pod))));
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join(", ")) })
    };
    stage.kube.until("nothing is left behind", GONE_WAIT, empty).await?;
    Ok(())
}

/// A whole installation, then its namespace is deleted with the operator inside. Seconds until it is gone.
async fn delete_namespace(stage: &Stage) -> Result<f64, Failure> {
    stage.kube.helm(&["uninstall", "undb", "--wait", "--timeout", "100s"]).await?;
    stage.install(&[]).await?;
    stage.settled(WAIT).await?;
    stage.table("short-lived", STORES, 4).await?;
    let started = Instant::now();
    let timeout = format!("--timeout={}s", NAMESPACE_WAIT.as_secs());
    let args = ["delete", "namespace", &stage.kube.namespace, "--wait", &timeout];
    let ended = stage.kube.try_kubectl_for(&args, NAMESPACE_WAIT + Duration::from_secs(10)).await?;
    if ended.ok {
        return Ok(started.elapsed().as_secs_f64());
    }
    let namespace = stage.kube.find(&["namespace", &stage.kube.namespace]).await?;
    let why = namespace.map(|n| n["status"]["conditions"].to_string()).unwrap_or_default();
    Err(found(format!("the namespace is not gone within {NAMESPACE_WAIT:?}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_chart_is_a_later_release() {
        let chart = "apiVersion: v2\nname: undb\nversion: 0.1.0\nappVersion: 0.1.0\n";
        assert_eq!(later(chart), "apiVersion: v2\nname: undb\nversion: 99.0.0\nappVersion: \"99.0.0\"\n");
    }
}
