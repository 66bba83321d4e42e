//! The operator is killed all the time, stands still past its lease, and its webhook is away: nothing is
//! stopped that must not be.

use super::{found, judge, load as scenario, start_load};
use crate::case::{Failure, Run};
use crate::harness::Result;
use crate::k8s::images::{NEXT, TAG};
use crate::k8s::objects::STORES;
use crate::k8s::stage::{CHART, OPERATOR};
use crate::k8s::{Done, LoadPod, Stage, state};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CASE: &str = "k8s-operator";
const RATE: u32 = 60;
/// For one step, while the operator is killed every few seconds.
const PATIENCE: Duration = Duration::from_secs(1500);
const PODS: &str = "app.kubernetes.io/name=undb-operator";
const LEASE: &str = "undb-operator";
/// A Pod that is just being made cannot be killed yet; more seldom than this is not "all the time".
const SECONDS_PER_KILL_MAX: u64 = 10;
/// Longer than a lease of the operator lasts, by the chart's own value.
const PAST_LEASE: Duration = Duration::from_secs(30);
/// With the chart's 15 s nobody would lead: of two that live for some seconds, neither sees the lease run out.
const SHORT_LEASE: &str = "operator.leaseSeconds=4";

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    super::played(CASE, run, play).await
}

async fn play(stage: &Stage, run: Run) -> Result<String, Failure> {
    let (load, node) = start_load(stage, RATE, run.seed).await?;
    let kills = killed_all_the_time(stage, &load, &node, run.seed).await?;
    let slept =
        load.during(stage, "the leader stands still past its lease", past_its_lease(stage, &load)).await?;
    load.during(stage, "a drain without the webhook", without_webhook(stage, &load)).await?;
    load.during(stage, "the node of the only operator drained", only_operator(stage, &load)).await?;
    let figure = judge(stage, &load, false, 1).await?;
    let slept = if slept == Done::Yes { "a leader resumed past its lease" } else { "standing still skipped" };
    Ok(format!("{kills} times killed, {slept}, nothing evicted without the webhook; {figure}"))
}

/// The whole scenario of the load case, with an operator that lives for 2 to 5 seconds.
async fn killed_all_the_time(stage: &Stage, load: &LoadPod, node: &str, seed: u64) -> Result<u64, Failure> {
    upgraded(stage, &["--set", SHORT_LEASE]).await?;
    let kills = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let killing = tokio::spawn(kill(stage.kube.clone(), seed, kills.clone()));
    let result = scenario::scenario(stage, load, node, PATIENCE).await;
    killing.abort();
    match result {
        Ok(()) => {
            upgraded(stage, &[]).await?;
            let (kills, seconds) = (kills.load(Ordering::Relaxed), started.elapsed().as_secs());
            if kills < seconds / SECONDS_PER_KILL_MAX {
                return Err(found(format!("only {kills} kills in {seconds} s")));
            }
            Ok(kills)
        }
        Err(failure) => {
            println!("{}", load.table());
            Err(failure)
        }
    }
}

/// The operator with other values, once all its Pods have them.
async fn upgraded(stage: &Stage, values: &[&str]) -> Result<()> {
    stage.chart_command("upgrade", CHART, values).await?;
    stage.operator_rolled_out().await
}

/// Deletes a random Pod of the operator without grace: its process gets SIGKILL, and another Pod is made at
/// once, without the kubelet's growing pauses between restarts.
async fn kill(kube: crate::k8s::Kube, seed: u64, kills: Arc<AtomicU64>) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        tokio::time::sleep(Duration::from_millis(rng.random_range(2000..5000))).await;
        let Ok(pods) = kube.list(&["pods", "-l", PODS]).await else { continue };
        let running: Vec<String> =
            pods.iter().filter(|pod| state::is_pod_ready(pod)).map(state::name).collect();
        if running.is_empty() {
            continue;
        }
        let victim = &running[rng.random_range(0..running.len())];
        let args = ["delete", "pod", victim, "--grace-period=0", "--force", "--wait=false"];
        if kube.try_kubectl(&args).await.is_ok_and(|ended| ended.ok) {
            kills.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A roll begins, its leader is stopped in the midst and resumed when another one leads: at no moment are two
/// stores away, which the load's sampler sees.
async fn past_its_lease(stage: &Stage, load: &LoadPod) -> Result<Done, Failure> {
    let leader = leader(stage).await?;
    let Some(process) = stage.machines.process_of(&stage.kube, &leader).await? else {
        return Ok(Done::Skipped);
    };
    let patch = json!({"spec": {"image": stage.image(NEXT)}});
    stage.kube.patch("storecluster", STORES, &patch).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    if stage.machines.signal(&process, "STOP").await? == Done::Skipped {
        return Ok(Done::Skipped);
    }
    tokio::time::sleep(PAST_LEASE).await;
    let other = self::leader(stage).await;
    let _ = stage.machines.signal(&process, "CONT").await?;
    let other = other?;
    stage.steps.say(format_args!("{leader} stood still, {other} leads"));
    if other == leader {
        return Err(found(format!(
            "{leader} still holds the lease after {PAST_LEASE:?} without a sign of life"
        )));
    }
    stage.object_settled("storecluster", STORES, Duration::from_secs(600)).await?;
    load.calm(stage, stage.store_pods(STORES).await?.len()).await?;
    scenario::roll(stage, load, TAG, Duration::from_secs(600)).await?;
    Ok(Done::Yes)
}

/// The Pod that holds the operator's lease.
async fn leader(stage: &Stage) -> Result<String> {
    let ask = || async {
        let lease = stage.kube.get(&["lease", LEASE]).await?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let pods = stage.kube.list(&["pods", "-l", PODS]).await?;
        let pod = pods.iter().map(state::name).find(|pod| holder.starts_with(pod.as_str()));
        Ok(pod.ok_or_else(|| format!("the lease is held by {holder:?}")))
    };
    stage.kube.until("the operator has a leader", Duration::from_secs(60), ask).await
}

/// With no operator there is no webhook; the PDBs alone must refuse every store.
async fn without_webhook(stage: &Stage, load: &LoadPod) -> Result<(), Failure> {
    let before = super::runs(stage, STORES).await?;
    scaled(stage, "0").await?;
    let drained = drained_alone(stage).await;
    // The cases behind this one need an operator, whatever came of it.
    scaled(stage, "2").await?;
    let refused = drained?;
    let after = super::runs(stage, STORES).await?;
    if !refused || after != before {
        return Err(found(format!(
            "with the webhook away a node was drained of its stores: {before:?}, then {after:?}"
        )));
    }
    stage.object_settled("storecluster", STORES, Duration::from_secs(300)).await?;
    load.calm(stage, after.len()).await?;
    Ok(())
}

async fn scaled(stage: &Stage, replicas: &str) -> Result<()> {
    stage.kube.kubectl(&["scale", OPERATOR, &format!("--replicas={replicas}")]).await?;
    if replicas == "0" {
        let gone = ["wait", "--for=delete", "pod", "-l", PODS, "--timeout=60s"];
        return stage.kube.kubectl(&gone).await.map(|_| ());
    }
    stage.operator_rolled_out().await
}

/// Whether a node kept its stores in a drain of 20 s.
async fn drained_alone(stage: &Stage) -> Result<bool, Failure> {
    let pods = stage.store_pods(STORES).await?;
    let Some(node) = pods.first().map(state::node) else { return Err(found("no store")) };
    let drained = stage.drain(&node, Duration::from_secs(20)).await;
    stage.uncordon(&node).await?;
    match drained {
        Ok(_) => Ok(false),
        Err(error) if error.to_string().contains("disruption budget") => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// It is evicted like any Pod and goes on elsewhere, and then the stores of that node go.
async fn only_operator(stage: &Stage, load: &LoadPod) -> Result<(), Failure> {
    stage.kube.kubectl(&["scale", OPERATOR, "--replicas=1"]).await?;
    let one = || async {
        let pods = stage.kube.list(&["pods", "-l", PODS]).await?;
        match pods.as_slice() {
            [pod] if state::is_pod_ready(pod) => Ok(Ok(state::node(pod))),
            pods => Ok(Err(format!("{} Pods", pods.len()))),
        }
    };
    let node = stage.kube.until("one operator", Duration::from_secs(60), one).await?;
    let drained = scenario::drain(stage, load, &node, Duration::from_secs(300)).await;
    scaled(stage, "2").await?;
    Ok(drained?)
}
