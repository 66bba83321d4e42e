//! Machines that die, come back, do not come back, and are cut off; a Pod that is deleted directly.

use super::{found, judge, start_load};
use crate::case::{Failure, Run};
use crate::harness::{HarnessError, Result};
use crate::k8s::objects::STORES;
use crate::k8s::{Done, LoadPod, Stage, state};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

const CASE: &str = "k8s-machine";
const NODES_MIN: usize = 4;
const RATE: u32 = 60;
const CUT: Duration = Duration::from_secs(20);
const WAIT: Duration = Duration::from_secs(600);
/// The least that a StoreCluster takes.
const REPLACE_AFTER_SECONDS: u32 = 60;
/// In which nothing may fail, after each fault.
const QUIET: Duration = Duration::from_secs(5);

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    super::played(CASE, run, play).await
}

async fn play(stage: &Stage, run: Run) -> Result<String, Failure> {
    if stage.nodes().await?.len() < NODES_MIN {
        return Err(Failure::Missing(format!(
            "the case needs {NODES_MIN} nodes: e2e/cluster/cluster up {NODES_MIN}"
        )));
    }
    let (load, node) = start_load(stage, RATE, run.seed).await?;
    let mut did = Vec::new();
    load.during(stage, "a Pod is deleted directly", deleted(stage, &load)).await?;
    quiet(stage, &load, "quiet after the Pod").await?;
    did.push("a Pod deleted".to_owned());
    let name = "a machine dies and comes back";
    match load.during(stage, name, dies(stage, &load, &node)).await? {
        Done::Yes => did.push(felt(stage, &load, name).await?),
        Done::Skipped => did.push("a machine's death skipped".into()),
    }
    let name = "a machine's Pods are cut off";
    match load.during(stage, name, cut(stage, &load, &node)).await? {
        Done::Yes => did.push(felt(stage, &load, name).await?),
        Done::Skipped => did.push("a cut network skipped".into()),
    }
    let name = "a machine dies for good";
    match load.during(stage, name, gone(stage, &load, &node)).await? {
        Done::Yes => did.push(felt(stage, &load, name).await?),
        Done::Skipped => did.push("a machine's loss skipped".into()),
    }
    // Requests may fail while leaders are gone; what was acknowledged may not be lost.
    let figure = judge(stage, &load, true, 1).await?;
    Ok(format!("{}; {figure}", did.join(", ")))
}

/// A fault that no store felt proves nothing; and when it is over, nothing fails any more.
async fn felt(stage: &Stage, load: &LoadPod, name: &str) -> Result<String, Failure> {
    if load.met(name).unavailable == 0 {
        return Err(found(format!("{name}: no replica was ever unavailable; nothing has happened")));
    }
    quiet(stage, load, &format!("quiet: {name}")).await?;
    Ok(name.to_owned())
}

async fn quiet(stage: &Stage, load: &LoadPod, name: &str) -> Result<(), Failure> {
    let wait = async {
        tokio::time::sleep(QUIET).await;
        Ok::<_, HarnessError>(())
    };
    load.during(stage, name, wait).await?;
    let failed = load.met(name).counts.bad();
    if failed > 0 {
        return Err(found(format!("{name}: {failed} requests failed after the fault was over")));
    }
    Ok(())
}

/// A node with a store on it and without the load.
async fn victim(stage: &Stage, spared: &str) -> Result<(String, String), Failure> {
    let pods = stage.store_pods(STORES).await?;
    let pod = pods.iter().find(|pod| state::node(pod) != spared && !state::node(pod).is_empty());
    let pod = pod.ok_or_else(|| found("no node but the load's has a store"))?;
    Ok((state::node(pod), state::name(pod)))
}

async fn deleted(stage: &Stage, load: &LoadPod) -> Result<()> {
    let pods = stage.store_pods(STORES).await?;
    let Some(pod) = pods.first().map(state::name) else {
        return Err(HarnessError::Other("no store".into()));
    };
    stage.kube.kubectl(&["delete", "pod", &pod, "--wait"]).await?;
    stage.object_settled("storecluster", STORES, WAIT).await?;
    load.calm(stage, pods.len()).await
}

async fn dies(stage: &Stage, load: &LoadPod, spared: &str) -> Result<Done, Failure> {
    let (node, pod) = victim(stage, spared).await?;
    stage.steps.say(format_args!("{node} with {pod} dies"));
    if stage.machines.kill(&node).await? == Done::Skipped {
        return Ok(Done::Skipped);
    }
    // Whatever comes of it, the machine must not stay dead.
    let noticed = node_is(stage, &node, "Unknown").await;
    let _ = stage.machines.start(&node).await?;
    noticed?;
    node_is(stage, &node, "True").await?;
    stage.object_settled("storecluster", STORES, WAIT).await?;
    load.calm(stage, stage.store_pods(STORES).await?.len()).await?;
    Ok(Done::Yes)
}

async fn cut(stage: &Stage, load: &LoadPod, spared: &str) -> Result<Done, Failure> {
    let (node, pod) = victim(stage, spared).await?;
    stage.steps.say(format_args!("{node} with {pod} is cut off"));
    if stage.machines.cut(&node).await? == Done::Skipped {
        return Ok(Done::Skipped);
    }
    tokio::time::sleep(CUT).await;
    let _ = stage.machines.heal(&node).await?;
    stage.object_settled("storecluster", STORES, WAIT).await?;
    load.calm(stage, stage.store_pods(STORES).await?.len()).await?;
    Ok(Done::Yes)
}

/// The machine stays away: its store is replaced by a new one, under another name, with all replicas.
async fn gone(stage: &Stage, load: &LoadPod, spared: &str) -> Result<Done, Failure> {
    let policy =
        json!({"spec": {"replacementPolicy": {"mode": "Automatic", "afterSeconds": REPLACE_AFTER_SECONDS}}});
    stage.kube.patch("storecluster", STORES, &policy).await?;
    let before = stores(stage).await?;
    let (node, pod) = victim(stage, spared).await?;
    stage.steps.say(format_args!("{node} with {pod} dies and stays away"));
    if stage.machines.kill(&node).await? == Done::Skipped {
        return Ok(Done::Skipped);
    }
    let replaced = async {
        let new = || async {
            let now = stores(stage).await?;
            let cluster = stage.kube.get(&["storecluster", STORES]).await?;
            let fresh: Vec<&String> = now.difference(&before).collect();
            Ok(if fresh.is_empty() { Err(state::shown(&cluster)) } else { Ok(format!("{fresh:?}")) })
        };
        let fresh = stage.kube.until("a new store takes its place", WAIT, new).await?;
        stage.steps.say(format_args!("{fresh} takes the place of {pod}"));
        stage.object_settled("table", "load", WAIT).await?;
        let whole = || async {
            let table = stage.kube.get(&["table", "load"]).await?;
            let full = state::condition(&table, "FullyReplicated") == Some("True");
            Ok(if full { Ok(()) } else { Err(state::shown(&table)) })
        };
        stage.kube.until("every shard has all its replicas again", WAIT, whole).await?;
        load.calm(stage, before.len()).await
    };
    let replaced = replaced.await;
    // The machine must not stay dead for the cases behind this one.
    let _ = stage.machines.start(&node).await?;
    replaced?;
    node_is(stage, &node, "True").await?;
    stage.object_settled("storecluster", STORES, WAIT).await?;
    let left = stores(stage).await?;
    if left.contains(&pod) {
        return Err(found(format!("{pod} was replaced and is still there: {left:?}")));
    }
    Ok(Done::Yes)
}

async fn stores(stage: &Stage) -> Result<BTreeSet<String>> {
    let all = stage.kube.list(&["stores.undb.io"]).await?;
    Ok(all.iter().filter(|store| store["spec"]["storeCluster"] == STORES).map(state::name).collect())
}

async fn node_is(stage: &Stage, node: &str, ready: &str) -> Result<()> {
    let ask = || async {
        let object = stage.kube.get(&["node", node]).await?;
        let now = state::condition(&object, "Ready").unwrap_or_default().to_owned();
        Ok(if now == ready { Ok(()) } else { Err(format!("Ready is {now}")) })
    };
    stage.kube.until(&format!("{node} Ready={ready}"), WAIT, ask).await
}
