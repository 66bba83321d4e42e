//! All of it in a few minutes, for the gate in CI: install, apply, write, roll, drain one node, the gate with
//! one metadata member and small shards, uninstall.

use super::{first, found, gate, load as steps, runs};
use crate::case::{Failure, Run};
use crate::harness::{HarnessError, Result};
use crate::k8s::images::NEXT;
use crate::k8s::objects::{ROUTER, STORES};
use crate::k8s::stage::SETTLE_WAIT;
use crate::k8s::{Client, LoadPod, LoadShape, Stage, state};
use std::time::Duration;

const CASE: &str = "k8s-short";
const RATE: u32 = 25;
const TABLE: &str = "short";
const STEP_WAIT: Duration = Duration::from_secs(300);

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    let stage = Stage::bare(CASE).await?;
    let result = play(&stage, run).await;
    stage.finish(result).await
}

async fn play(stage: &Stage, run: Run) -> Result<String, Failure> {
    stage.steps.step("clear", stage.clear()).await?;
    let one = ["--set", "controlPlane.spec.metadata.replicas=1"];
    stage.steps.step("helm install", stage.install(&one)).await?;
    stage.steps.step("ready", stage.settled(SETTLE_WAIT)).await?;
    stage.steps.step("apply a table", stage.table(TABLE, STORES, 4)).await?;
    let node = first(stage.nodes().await?)?;
    stage.steps.step("write and read from a Pod", write(stage, &node)).await?;
    let shape = LoadShape {
        name: "e2e-short-load",
        table: TABLE.into(),
        stores: STORES.into(),
        resp: true,
        rate: super::rate_or(RATE),
        keys: 1000,
    };
    let load = stage.steps.step("start a load", LoadPod::start(stage, &node, &shape, run.seed)).await?;
    load.during(stage, "roll a new image", steps::roll(stage, &load, NEXT, STEP_WAIT)).await?;
    let drained = drained_node(stage, &node).await?;
    load.during(stage, &format!("drain {drained}"), steps::drain(stage, &load, &drained, STEP_WAIT)).await?;
    let gate = load.during(stage, "gate: one store stands still", gate::short(stage)).await?;
    load.calm(stage, 3).await?;
    let figure = super::judge(stage, &load, false, 1).await?;
    let before = runs(stage, STORES).await?;
    stage.steps.step("helm uninstall", uninstall(stage)).await?;
    if runs(stage, STORES).await? != before {
        return Err(found("helm uninstall restarted or removed stores"));
    }
    stage.steps.step("delete the namespace", stage.clear()).await?;
    Ok(format!("{figure}; gate: {gate}; {}", stage.steps.summary()))
}

/// Written through the SDK, read through it and through the proxy.
async fn write(stage: &Stage, node: &str) -> Result<(), Failure> {
    let client = Client::start(stage, node).await?;
    client.exec(stage, &["/undb", "kv", "put", "greeting", "hello", "--table", TABLE]).await?;
    let said = client.exec(stage, &["/undb", "kv", "get", "greeting", "--table", TABLE]).await?;
    if said.trim() != "hello" {
        return Err(found(format!("`undb kv get` said {said:?} instead of hello")));
    }
    let proxy = format!("{ROUTER}-proxy.{}.svc:6379", stage.kube.namespace);
    let resp = ["/undb", "resp", "--plain", "--proxy", &proxy, "--table", TABLE, "GET", "greeting"];
    let said = client.exec(stage, &resp).await?;
    if said.trim() != "hello" {
        return Err(found(format!("the proxy said {said:?} instead of hello")));
    }
    Ok(())
}

async fn drained_node(stage: &Stage, spared: &str) -> Result<String> {
    let pods = stage.store_pods(STORES).await?;
    let node = pods.iter().map(state::node).find(|node| node != spared && !node.is_empty());
    node.ok_or_else(|| HarnessError::Other("no node but the load's has a store".into()))
}

async fn uninstall(stage: &Stage) -> Result<()> {
    stage.kube.helm(&["uninstall", "undb", "--wait", "--timeout", "100s"]).await.map(|_| ())
}
