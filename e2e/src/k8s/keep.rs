//! What is kept of a cluster when a case failed: objects, events, logs, descriptions.

use super::kube::Kube;
use crate::harness::{HarnessError, Result};
use std::path::{Path, PathBuf};

/// Writes everything into a new folder and says where it is. What cannot be had is noted there, too.
pub async fn everything(kube: &Kube, case: &str) -> Result<PathBuf> {
    let dir = tempfile::Builder::new().prefix(&format!("undb-e2e-{case}-")).tempdir();
    let dir = dir.map_err(HarnessError::io("making a directory"))?.keep();
    let objects = "pods,statefulsets,deployments,services,configmaps,pvc,pdb,leases,jobs";
    let ours = "controlplanes,storeclusters,stores,tables,routers";
    let all: [(&str, &[&str]); 9] = [
        ("nodes.txt", &["get", "nodes", "-o", "wide"]),
        ("nodes-described.txt", &["describe", "nodes"]),
        ("objects.txt", &["get", objects, "-o", "wide"]),
        ("undb.txt", &["get", ours, "-o", "wide"]),
        ("undb.yaml", &["get", ours, "-o", "yaml"]),
        ("objects.yaml", &["get", objects, "-o", "yaml"]),
        ("described.txt", &["describe", "pods"]),
        ("webhooks.yaml", &["get", "validatingwebhookconfigurations", "-o", "yaml"]),
        ("events.txt", &["get", "events", "--sort-by=.lastTimestamp"]),
    ];
    for (name, args) in all {
        write(&dir, name, kube.try_kubectl(args).await.map(|ended| ended.text())).await?;
    }
    let names = kube.try_kubectl(&["get", "pods", "-o", "jsonpath={.items[*].metadata.name}"]).await;
    let names = names.map(|ended| ended.out).unwrap_or_default();
    for pod in names.split_whitespace() {
        for (suffix, flag) in [("log", "--previous=false"), ("previous.log", "--previous=true")] {
            let log = kube.try_kubectl(&["logs", pod, "--all-containers", "--timestamps", flag]).await;
            if flag.ends_with("true") && log.as_ref().is_ok_and(|ended| !ended.ok) {
                continue;
            }
            write(&dir, &format!("{pod}.{suffix}"), log.map(|ended| ended.text())).await?;
        }
    }
    Ok(dir)
}

async fn write(dir: &Path, name: &str, text: Result<String>) -> Result<()> {
    let text = text.unwrap_or_else(|error| format!("(not to be had: {error})\n"));
    std::fs::write(dir.join(name), text).map_err(HarnessError::io(format!("writing {name}")))
}
