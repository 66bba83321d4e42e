//! Under a constant load: scale out, move, roll, drain each node, a bad image and back, scale in. No request
//! fails, nothing acknowledged is lost, and no shard ever lacks more than one replica.

use super::{found, judge, runs, start_load};
use crate::case::{Failure, Run};
use crate::harness::{HarnessError, Result};
use crate::k8s::images::{BROKEN, NEXT, TAG};
use crate::k8s::objects::STORES;
use crate::k8s::{Client, LoadPod, Stage, state};
use serde_json::json;
use std::time::Duration;

const CASE: &str = "k8s-load";
const RATE: u32 = 100;
const STORES_MIN: usize = 3;
const STORES_MAX: usize = 5;
const BROKEN_STAYS: Duration = Duration::from_secs(20);

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    super::played(CASE, run, play).await
}

async fn play(stage: &Stage, run: Run) -> Result<String, Failure> {
    let (load, node) = start_load(stage, RATE, run.seed).await?;
    let quiet = async {
        tokio::time::sleep(run.duration.min(Duration::from_secs(20))).await;
        Ok::<_, HarnessError>(())
    };
    load.during(stage, "nothing happens", quiet).await?;
    let scenario = scenario(stage, &load, &node, Duration::from_secs(600)).await;
    if let Err(failure) = scenario {
        // What the load met until then says most about why.
        println!("{}", load.table());
        return Err(failure);
    }
    judge(stage, &load, false, 1).await
}

/// Everything that a user does to stores, each step as a phase of the load. `patience`: for one step.
pub(super) async fn scenario(
    stage: &Stage,
    load: &LoadPod,
    node: &str,
    patience: Duration,
) -> Result<(), Failure> {
    load.during(stage, "scale 3 -> 5", scale(stage, load, STORES_MAX, patience)).await?;
    load.during(stage, "replicas to the new stores", spread(stage, node)).await?;
    load.during(stage, "roll a new image", roll(stage, load, NEXT, patience)).await?;
    for node in nodes_with_stores(stage).await? {
        load.during(stage, &format!("drain {node}"), drain(stage, load, &node, patience)).await?;
    }
    load.during(stage, "an image that cannot start", broken(stage, patience)).await?;
    load.during(stage, "back to one that can", roll(stage, load, TAG, patience)).await?;
    load.during(stage, "scale 5 -> 3", scale(stage, load, STORES_MIN, patience)).await?;
    Ok(())
}

pub(super) async fn scale(stage: &Stage, load: &LoadPod, to: usize, wait: Duration) -> Result<()> {
    stage.kube.patch("storecluster", STORES, &json!({"spec": {"replicas": to}})).await?;
    stage.object_settled("storecluster", STORES, wait).await?;
    load.calm(stage, to).await
}

/// New stores are empty until something is moved onto them.
async fn spread(stage: &Stage, node: &str) -> Result<()> {
    let client = Client::start(stage, node).await?;
    let said = client.exec(stage, &["/e2e", "spread", "--table", "load"]).await?;
    stage.steps.say(said.trim().lines().last().unwrap_or_default());
    Ok(())
}

pub(super) async fn roll(stage: &Stage, load: &LoadPod, tag: &str, wait: Duration) -> Result<()> {
    let image = stage.image(tag);
    let before = runs(stage, STORES).await?;
    stage.kube.patch("storecluster", STORES, &json!({"spec": {"image": image}})).await?;
    stage.object_settled("storecluster", STORES, wait).await?;
    let pods = stage.store_pods(STORES).await?;
    let wrong: Vec<String> = pods.iter().filter(|pod| state::image(pod) != image).map(state::name).collect();
    if !wrong.is_empty() {
        return Err(HarnessError::Other(format!("settled, but {wrong:?} do not run {image}")));
    }
    let after = runs(stage, STORES).await?;
    let changed = after.iter().filter(|(name, run)| before.get(*name) != Some(run)).count();
    stage.steps.say(format_args!("{changed} of {} stores restarted", after.len()));
    load.calm(stage, after.len()).await
}

async fn nodes_with_stores(stage: &Stage) -> Result<Vec<String>> {
    let pods = stage.store_pods(STORES).await?;
    let nodes: std::collections::BTreeSet<String> = pods.iter().map(state::node).collect();
    Ok(nodes.into_iter().filter(|node| !node.is_empty()).collect())
}

pub(super) async fn drain(stage: &Stage, load: &LoadPod, node: &str, wait: Duration) -> Result<()> {
    stage.drain(node, wait).await?;
    let left = stage.store_pods(STORES).await?;
    let left: Vec<String> = left.iter().filter(|pod| state::node(pod) == node).map(state::name).collect();
    if !left.is_empty() {
        return Err(HarnessError::Other(format!("kubectl drain ended, but {left:?} are still on {node}")));
    }
    stage.uncordon(node).await?;
    stage.object_settled("storecluster", STORES, wait).await?;
    load.calm(stage, stage.store_pods(STORES).await?.len()).await
}

/// One store tries the image and cannot; the others must not follow.
async fn broken(stage: &Stage, wait: Duration) -> Result<(), Failure> {
    let image = stage.image(BROKEN);
    stage.kube.patch("storecluster", STORES, &json!({"spec": {"image": image}})).await?;
    let one = || async {
        let with = with_image(stage, &image).await?;
        Ok(if with.is_empty() { Err("no store has got the image".to_owned()) } else { Ok(()) })
    };
    stage.kube.until("a store tries the image that cannot start", wait, one).await?;
    tokio::time::sleep(BROKEN_STAYS).await;
    let with = with_image(stage, &image).await?;
    if with.len() > 1 {
        return Err(found(format!("{with:?} were given an image that cannot start; one had to be enough")));
    }
    let told = || async {
        let stores = stage.kube.get(&["storecluster", STORES]).await?;
        let said = state::shown(&stores);
        Ok(if state::condition(&stores, "Stalled") == Some("True") { Ok(said) } else { Err(said) })
    };
    let said = stage.kube.until("the StoreCluster says that it is stalled", wait, told).await?;
    stage.steps.say(format_args!("{} waits with it: {said}", with.join(", ")));
    Ok(())
}

async fn with_image(stage: &Stage, image: &str) -> Result<Vec<String>> {
    let pods = stage.store_pods(STORES).await?;
    Ok(pods.iter().filter(|pod| state::image(pod) == image).map(state::name).collect())
}
