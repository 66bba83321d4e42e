//! A cluster with UNDB on it: found or brought up, installed, asked, changed.

use super::images::{Images, TAG};
use super::kube::Kube;
use super::machine::Machines;
use super::objects::{self, CONTROL_PLANE, OWN_LABEL, ROUTER, STORES};
use super::{keep, state, steps::Steps};
use crate::case::Failure;
use crate::harness::{HarnessError, Result};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::Command;

const NAMESPACE: &str = "undb-e2e";
const RELEASE: &str = "undb";
/// The chart of the operator.
pub const CHART: &str = "charts/undb";
/// What the chart runs.
pub const OPERATOR: &str = "deployment/undb-operator";
const CRDS_CHART: &str = "charts/undb-crds";
const UP_WAIT: Duration = Duration::from_secs(3600);
const POD_WAIT: Duration = Duration::from_secs(120);
/// Until an installation is ready, a roll of some stores has ended, a store is replaced.
pub const SETTLE_WAIT: Duration = Duration::from_secs(600);

/// What a case plays on.
pub struct Stage {
    /// The cluster.
    pub kube: Kube,
    /// Its machines.
    pub machines: Machines,
    /// The time of everything.
    pub steps: Steps,
    /// The images.
    pub images: Images,
    case: &'static str,
}

impl Stage {
    /// A cluster with the images on it; nothing is installed.
    pub async fn bare(case: &'static str) -> Result<Stage> {
        let steps = Steps::new(case);
        let (kube, is_own) = steps.step("cluster", connect()).await?;
        let nodes = kube.list(&["nodes"]).await?;
        let machines = Machines::of(&nodes, is_own);
        let images = Images::new();
        steps.step("images", images.bring(&kube, &machines)).await?;
        let stage = Stage { kube, machines, steps, images, case };
        Ok(stage)
    }

    /// The same with UNDB installed and ready, in the form that the suite uses.
    pub async fn prepare(case: &'static str) -> Result<Stage> {
        let stage = Stage::bare(case).await?;
        let started = std::time::Instant::now();
        let result = stage.ensure_installed().await;
        let failure = result.as_ref().err().map(ToString::to_string);
        stage.steps.ended("installed", started.elapsed(), failure);
        match result {
            Ok(()) => Ok(stage),
            Err(error) => Err(stage.kept(error).await),
        }
    }

    async fn ensure_installed(&self) -> Result<()> {
        if !self.is_installed().await? {
            self.install(&[]).await?;
        }
        self.uncordon_all().await?;
        self.restore().await?;
        self.settled(SETTLE_WAIT).await
    }

    /// Whether the release is there.
    pub async fn is_installed(&self) -> Result<bool> {
        let args = ["-n", &self.kube.namespace, "status", RELEASE];
        Ok(self.kube.try_run("helm", &args, None, POD_WAIT).await?.ok)
    }

    /// `helm install`, with the suite's values and others; waits for nothing.
    pub async fn install(&self, more: &[&str]) -> Result<()> {
        self.install_crds().await?;
        self.chart_command("install", CHART, more).await
    }

    /// The definitions, where their chart is one of its own.
    pub async fn install_crds(&self) -> Result<()> {
        let args = [
            "-n",
            &self.kube.namespace,
            "upgrade",
            "--install",
            "undb-crds",
            CRDS_CHART,
            "--create-namespace",
        ];
        let ended = self.kube.try_run("helm", &args, None, SETTLE_WAIT).await?;
        super::kube::must("helm", &args, ended).map(|_| ())
    }

    /// `helm install|upgrade RELEASE CHART` with the suite's values.
    pub async fn chart_command(&self, verb: &str, chart: &str, more: &[&str]) -> Result<()> {
        let dir = tempfile::tempdir().map_err(HarnessError::io("making a directory"))?;
        let values = dir.path().join("values.json");
        std::fs::write(&values, self.values().to_string()).map_err(HarnessError::io("writing values"))?;
        let values = values.display().to_string();
        let create: &[&str] = if verb == "install" { &["--create-namespace"] } else { &[] };
        let args: Vec<&str> = [verb, RELEASE, chart, "-f", &values]
            .into_iter()
            .chain(create.iter().copied())
            .chain(more.iter().copied())
            .collect();
        self.kube.helm(&args).await.map(|_| ())
    }

    /// Small, so that everything fits on one machine.
    pub fn values(&self) -> Value {
        let small = json!({"requests": {"cpu": "20m", "memory": "48Mi"}});
        json!({
            "operator": {
                "image": {"repository": self.images.repository("undb-operator"), "tag": TAG},
                "replicas": 2,
            },
            "image": {"repository": self.images.repository("undb"), "tag": TAG},
            "controlPlane": {"create": true, "name": CONTROL_PLANE, "spec": {
                "metadata": {"replicas": 3, "storage": {"size": "1Gi"}, "resources": small},
                "control": {"replicas": 2, "resources": small},
                "access": {"replicas": 2, "resources": small},
                "tuning": {"disconnectedSeconds": 10, "downSeconds": 60},
            }},
            "storeCluster": {"create": true, "name": STORES, "spec": {
                "replicas": 3,
                "storage": {"size": "1Gi"},
                "engine": {"memory": "64Mi"},
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "768Mi"}},
            }},
            "router": {"create": true, "name": ROUTER, "spec": {
                "routing": {"replicas": 2, "resources": small},
                "proxy": {"replicas": 2, "resources": small},
            }},
        })
    }

    /// Waits until everything of the installation is ready about its present spec.
    pub async fn settled(&self, wait: Duration) -> Result<()> {
        for (kind, name) in [("controlplane", CONTROL_PLANE), ("storecluster", STORES), ("router", ROUTER)] {
            self.object_settled(kind, name, wait).await?;
        }
        Ok(())
    }

    /// Waits until an object is ready about its present spec.
    pub async fn object_settled(&self, kind: &str, name: &str, wait: Duration) -> Result<()> {
        let ask = || async {
            let Some(object) = self.kube.find(&[kind, name]).await? else {
                return Ok(Err(format!("{kind} {name} is not there")));
            };
            let fine = if kind == "storecluster" {
                state::stores_settled(&object)
            } else {
                state::is_settled(&object)
            };
            Ok(if fine { Ok(()) } else { Err(state::shown(&object)) })
        };
        self.kube.until(&format!("{kind} {name} ready"), wait, ask).await
    }

    /// Brings the StoreCluster back to what the suite installs, whatever an earlier case did to it.
    async fn restore(&self) -> Result<()> {
        if self.kube.find(&["storecluster", STORES]).await?.is_some() {
            let patch = json!({"spec": {"replicas": 3, "image": self.image(TAG), "paused": false}});
            self.kube.patch("storecluster", STORES, &patch).await?;
        }
        // A case that was cut short may have left the gate off.
        self.kube.kubectl(&["set", "env", OPERATOR, "UNDB_UNSAFE_GATE-"]).await.map(|_| ())
    }

    /// Waits until all Pods of the operator are of its newest template.
    pub async fn operator_rolled_out(&self) -> Result<()> {
        self.kube.kubectl(&["rollout", "status", OPERATOR, "--timeout=110s"]).await.map(|_| ())
    }

    /// The image of the roles.
    pub fn image(&self, tag: &str) -> String {
        self.images.name("undb", tag)
    }

    /// The image of the suite's own Pods.
    pub fn client_image(&self) -> String {
        self.images.name("undb-e2e", TAG)
    }

    /// A Pod of the suite's own, made anew, once it runs.
    pub async fn restart_pod(&self, name: &str, pod: &Value) -> Result<()> {
        self.kube
            .kubectl(&["delete", "pod", name, "--ignore-not-found", "--wait", "--grace-period=1"])
            .await?;
        self.kube.apply(pod).await?;
        let ask = || async {
            let pod = self.kube.get(&["pod", name]).await?;
            let phase = pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
            Ok(if phase == "Running" {
                Ok(())
            } else {
                Err(format!("{phase} {}", pod["status"]["containerStatuses"]))
            })
        };
        self.kube.until(&format!("Pod {name} runs"), POD_WAIT, ask).await
    }

    /// A table, once all its shards are available.
    pub async fn table(&self, name: &str, stores: &str, shards: u32) -> Result<()> {
        self.kube.apply(&objects::table(name, stores, shards)).await?;
        self.object_settled("table", name, Duration::from_secs(120)).await
    }

    /// Names of the nodes, those that are ready first.
    pub async fn nodes(&self) -> Result<Vec<String>> {
        let mut nodes = self.kube.list(&["nodes"]).await?;
        nodes.sort_by_key(|node| (state::condition(node, "Ready") != Some("True"), state::name(node)));
        Ok(nodes.iter().map(state::name).collect())
    }

    /// Pods of a StoreCluster, by name.
    pub async fn store_pods(&self, stores: &str) -> Result<Vec<Value>> {
        let selector = format!("undb.io/component=store,undb.io/store-cluster={stores}");
        let mut pods = self.kube.list(&["pods", "-l", &selector]).await?;
        pods.sort_by_key(state::name);
        Ok(pods)
    }

    /// Pods of a component: meta, control, access, routing, proxy; `operator` is the operator's.
    pub async fn pods_of(&self, component: &str) -> Result<Vec<Value>> {
        let selector = format!("undb.io/component={component}");
        self.kube.list(&["pods", "-l", &selector]).await
    }

    /// `kubectl drain`, as a person types it; the suite's own Pods stay. Repeated until it is through.
    pub async fn drain(&self, node: &str, wait: Duration) -> Result<String> {
        let timeout = format!("--timeout={}s", wait.as_secs());
        let own = format!("--pod-selector=!{OWN_LABEL}");
        let args = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", &own, &timeout];
        let ended = self.kube.try_kubectl_for(&args, wait + Duration::from_secs(10)).await?;
        super::kube::must("kubectl", &args, ended)
    }

    /// Makes a node usable again.
    pub async fn uncordon(&self, node: &str) -> Result<()> {
        self.kube.kubectl(&["uncordon", node]).await.map(|_| ())
    }

    /// What a case that was cut short left. On a cluster of somebody else nodes may be cordoned on purpose.
    async fn uncordon_all(&self) -> Result<()> {
        if self.machines == Machines::Unknown {
            return Ok(());
        }
        for node in self.nodes().await? {
            self.uncordon(&node).await?;
        }
        Ok(())
    }

    /// Removes release, objects and namespace, whatever state they are in.
    pub async fn clear(&self) -> Result<()> {
        if self.kube.find(&["namespace", &self.kube.namespace]).await?.is_some() {
            if self.is_installed().await? {
                self.kube.helm(&["uninstall", RELEASE, "--wait", "--timeout", "100s"]).await?;
            }
            self.forget_tables().await?;
            let args = ["delete", "namespace", &self.kube.namespace, "--wait", "--timeout=180s"];
            let ended = self.kube.try_kubectl_for(&args, Duration::from_secs(200)).await?;
            super::kube::must("kubectl", &args, ended)?;
        }
        self.refuse_others().await?;
        let kinds = "clusterroles,clusterrolebindings,validatingwebhookconfigurations";
        let label = "app.kubernetes.io/name=undb-operator";
        self.kube.kubectl(&["delete", kinds, "-l", label, "--ignore-not-found"]).await?;
        let crds = ["controlplanes", "routers", "stores", "storeclusters", "tables"]
            .map(|name| format!("{name}.undb.io"));
        let args: Vec<&str> = ["delete", "crd", "--ignore-not-found"]
            .into_iter()
            .chain(crds.iter().map(String::as_str))
            .collect();
        self.kube.kubectl(&args).await?;
        Ok(())
    }

    /// With the definitions go all objects of the cluster: nobody else's may be among them.
    async fn refuse_others(&self) -> Result<()> {
        let kinds = "controlplanes,storeclusters,stores,routers,tables";
        let namespaces = "jsonpath={.items[*].metadata.namespace}";
        // They are not there at all: nothing goes.
        let found = self.kube.try_kubectl(&["get", kinds, "--all-namespaces", "-o", namespaces]).await?;
        let found = if found.ok { found.out } else { String::new() };
        match found.split_whitespace().find(|namespace| *namespace != self.kube.namespace) {
            None => Ok(()),
            Some(other) => Err(HarnessError::Other(format!(
                "this case removes the resource definitions, and namespace {other} has objects of UNDB; give it \
                 a cluster of its own"
            ))),
        }
    }

    /// Takes the finalizer off every table: it is the operator's, which is gone.
    async fn forget_tables(&self) -> Result<()> {
        if !self.kube.try_kubectl(&["get", "tables"]).await?.ok {
            return Ok(());
        }
        self.kube.kubectl(&["delete", "tables", "--all", "--wait=false"]).await?;
        for table in self.kube.list(&["tables"]).await? {
            let patch = json!({"metadata": {"finalizers": null}});
            let args = ["patch", "table", &state::name(&table), "--type", "merge", "-p", &patch.to_string()];
            // One without a finalizer is gone already.
            self.kube.try_kubectl(&args).await?;
        }
        Ok(())
    }

    /// The verdict of a case: its figure, or everything kept and said where.
    pub async fn finish(self, result: Result<String, Failure>) -> Result<String, Failure> {
        let summary = self.steps.summary();
        self.steps.say(format_args!("steps: {summary}"));
        match result {
            Ok(figure) => Ok(figure),
            Err(Failure::Harness(error)) => Err(self.kept(error).await.into()),
            Err(Failure::Found(text)) => {
                let error = self.kept(HarnessError::Other(text)).await;
                Err(Failure::Found(error.to_string()))
            }
            Err(missing) => Err(missing),
        }
    }

    /// The error with the folder where everything is.
    async fn kept(&self, error: HarnessError) -> HarnessError {
        match keep::everything(&self.kube, self.case).await {
            Ok(dir) => HarnessError::Other(format!(
                "{error}\nobjects, events and logs are kept in {}",
                dir.display()
            )),
            Err(problem) => HarnessError::Other(format!("{error}\n(nothing could be kept: {problem})")),
        }
    }
}

/// KUBECONFIG, or the own cluster, brought up if it is not.
async fn connect() -> Result<(Kube, bool)> {
    let own = own_environment().await?;
    let given = std::env::var_os("KUBECONFIG").map(PathBuf::from).filter(|path| path.is_file());
    let namespace = std::env::var("UNDB_E2E_NAMESPACE").unwrap_or_else(|_| NAMESPACE.into());
    let (config, is_own) = match given {
        Some(path) => {
            let is_own = path == own.0;
            (path, is_own)
        }
        None => {
            let mut command = Command::new("e2e/cluster/cluster");
            command.args(["up", "4"]);
            let args = ["up", "4"];
            super::kube::must("e2e/cluster/cluster", &args, super::kube::run(command, None, UP_WAIT).await?)?;
            (own.0.clone(), true)
        }
    };
    let path = is_own.then_some(own.1);
    Ok((Kube { config, path, namespace }, is_own))
}

/// KUBECONFIG and the programs of the own cluster, whether it is up or not.
async fn own_environment() -> Result<(PathBuf, PathBuf)> {
    let mut command = Command::new("e2e/cluster/cluster");
    command.arg("env");
    let text =
        super::kube::must("e2e/cluster/cluster", &["env"], super::kube::run(command, None, POD_WAIT).await?)?;
    parse_environment(&text)
        .ok_or_else(|| HarnessError::Other(format!("`e2e/cluster/cluster env` said: {text}")))
}

/// `export KUBECONFIG=FILE PATH=DIR:$PATH`
fn parse_environment(text: &str) -> Option<(PathBuf, PathBuf)> {
    let word = |name: &str| text.split_whitespace().find_map(|word| word.strip_prefix(name));
    let path = word("PATH=")?.split(':').next()?;
    Some((word("KUBECONFIG=")?.into(), path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_clusters_environment_is_read() {
        let text = "export KUBECONFIG=/state/admin.conf PATH=/cache/bin:$PATH\n";
        assert_eq!(parse_environment(text), Some(("/state/admin.conf".into(), "/cache/bin".into())));
        assert_eq!(parse_environment("usage"), None);
    }
}
