//! The cases, in the order in which they are run; each can run alone.

pub mod changes;
pub mod control;
pub mod data;
pub mod gate;
pub mod install;
pub mod lifecycle;
pub mod load;
pub mod machine;
pub mod manifests;
pub mod operator;
pub mod short;

use super::{LoadPod, LoadShape, Stage, objects, state};
use crate::case::{Failure, Run};
use crate::harness::Result;
use crate::load::report::Verdict;
use serde_json::Value;
use std::collections::BTreeMap;

/// Of the tables that a load writes.
const LOAD_SHARDS: u32 = 8;

fn found(text: impl Into<String>) -> Failure {
    Failure::Found(text.into())
}

/// The suite's usual load on the installation's stores; made with its table.
async fn start_load(stage: &Stage, rate: u32, seed: u64) -> Result<(LoadPod, String), Failure> {
    stage.table("load", objects::STORES, LOAD_SHARDS).await?;
    let node = first(stage.nodes().await?)?;
    let shape = LoadShape {
        name: "e2e-load",
        table: "load".into(),
        stores: objects::STORES.into(),
        resp: true,
        rate: rate_or(rate),
        keys: 5000,
    };
    Ok((LoadPod::start(stage, &node, &shape, seed).await?, node))
}

/// UNDB_E2E_RATE, or the case's own: a machine that compiles beside it bears less.
fn rate_or(own: u32) -> u32 {
    std::env::var("UNDB_E2E_RATE").ok().and_then(|text| text.parse().ok()).unwrap_or(own)
}

/// Plays on an installation that is ready; of a failure, what tells why is kept.
async fn played(
    case: &'static str,
    run: Run,
    play: impl AsyncFnOnce(&Stage, Run) -> Result<String, Failure>,
) -> Result<String, Failure> {
    let stage = Stage::prepare(case).await?;
    let result = play(&stage, run).await;
    stage.finish(result).await
}

/// The end of a load: its table of phases is printed, what is wrong is a find; the answer is the figure.
async fn judge(
    stage: &Stage,
    load: &LoadPod,
    failed_allowed: bool,
    unavailable_max: usize,
) -> Result<String, Failure> {
    let verdict = stage.steps.step("stop and read back", load.stop(stage)).await?;
    println!("{}", load.table());
    let problems = load.problems(&verdict, failed_allowed, unavailable_max);
    if !problems.is_empty() {
        return Err(found(problems.join("\n")));
    }
    Ok(figure(&verdict))
}

fn figure(verdict: &Verdict) -> String {
    let requests = verdict.sdk.ok + verdict.resp.ok + verdict.sdk.bad() + verdict.resp.bad();
    let failed = verdict.sdk.bad() + verdict.resp.bad();
    let unavailable = verdict.sampled.as_ref().map(|s| s.unavailable_max).unwrap_or_default();
    format!(
        "{requests} requests in {:.0} s, {failed} failed, {} repeated; {} acknowledged writes, {} keys read back, {} lost; \
         at most {unavailable} unavailable replicas in a shard",
        verdict.seconds, verdict.resp.repeated, verdict.acknowledged, verdict.read_back, verdict.lost_count
    )
}

fn first(nodes: Vec<String>) -> Result<String, Failure> {
    nodes.into_iter().next().ok_or_else(|| found("the cluster has no node"))
}

/// What identifies the run of each Pod: UID and restarts.
type Runs = BTreeMap<String, (String, u64)>;

/// The runs of the Pods of a StoreCluster.
async fn runs(stage: &Stage, stores: &str) -> Result<Runs> {
    Ok(runs_of(&stage.store_pods(stores).await?))
}

fn runs_of(pods: &[Value]) -> Runs {
    pods.iter().map(|pod| (state::name(pod), (state::uid(pod), state::restarts(pod)))).collect()
}
