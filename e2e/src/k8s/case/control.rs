//! Metadata and cluster control are gone while stores serve: reads and writes go on; a roll waits and says
//! why, and goes on when they are back.

use super::{found, judge, runs, start_load};
use crate::case::{Failure, Run};
use crate::harness::Result;
use crate::k8s::images::{NEXT, TAG};
use crate::k8s::objects::STORES;
use crate::k8s::{LoadPod, Stage, state};
use serde_json::json;
use std::time::Duration;

const CASE: &str = "k8s-control";
const RATE: u32 = 100;
const AWAY: Duration = Duration::from_secs(45);
const WAIT: Duration = Duration::from_secs(600);

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    super::played(CASE, run, play).await
}

async fn play(stage: &Stage, run: Run) -> Result<String, Failure> {
    let (load, _) = start_load(stage, RATE, run.seed).await?;
    for round in 1..=3 {
        let name = format!("metadata and control killed at once, {round}");
        load.during(stage, &name, killed(stage, &load)).await?;
    }
    let nodes = stage.nodes().await?;
    let away = load.during(stage, "both stay away, a roll waits", away(stage, &nodes)).await;
    for node in &nodes {
        stage.uncordon(node).await?;
    }
    let why = away?;
    load.during(stage, "they are back, the roll goes on", rolled(stage, &load)).await?;
    let figure = judge(stage, &load, false, 1).await?;
    Ok(format!("the roll waited because {why}; {figure}"))
}

async fn kill(stage: &Stage) -> Result<()> {
    for component in ["meta", "control"] {
        let selector = format!("undb.io/component={component}");
        let args = ["delete", "pods", "-l", &selector, "--grace-period=0", "--force", "--wait=false"];
        stage.kube.kubectl(&args).await?;
    }
    Ok(())
}

async fn killed(stage: &Stage, load: &LoadPod) -> Result<()> {
    kill(stage).await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    stage.object_settled("controlplane", crate::k8s::objects::CONTROL_PLANE, WAIT).await?;
    stage.object_settled("storecluster", STORES, WAIT).await?;
    load.calm(stage, stage.store_pods(STORES).await?.len()).await
}

/// No node takes a Pod, so nothing of what is killed comes back. Why the roll waits.
async fn away(stage: &Stage, nodes: &[String]) -> Result<String, Failure> {
    for node in nodes {
        stage.kube.kubectl(&["cordon", node]).await?;
    }
    kill(stage).await?;
    let before = runs(stage, STORES).await?;
    let patch = json!({"spec": {"image": stage.image(NEXT)}});
    stage.kube.patch("storecluster", STORES, &patch).await?;
    tokio::time::sleep(AWAY).await;
    let after = runs(stage, STORES).await?;
    if before != after {
        return Err(found(format!(
            "stores were restarted without a control plane: {before:?}, then {after:?}"
        )));
    }
    let stores = stage.kube.get(&["storecluster", STORES]).await?;
    let said = state::shown(&stores);
    stage.steps.say(&said);
    let says = ["ontrolPlane", "ontrol plane", "nreachable"].iter().any(|word| said.contains(word));
    if says { Ok(said) } else { Err(found(format!("the roll waits and does not say why: {said}"))) }
}

async fn rolled(stage: &Stage, load: &LoadPod) -> Result<()> {
    stage.object_settled("controlplane", crate::k8s::objects::CONTROL_PLANE, WAIT).await?;
    super::load::roll(stage, load, NEXT, WAIT).await?;
    super::load::roll(stage, load, TAG, WAIT).await
}
