//! The case that tells UNDB apart: which store may be stopped is a question of its shards, not of a count.
//!
//! Stores a to e on nodes {a, b}, {c, d}, {e}; five shards on a, c, e and five on b, d, e. While a stands
//! still, c and e must be refused with the shards named, b and d must be allowed; the roll goes on with
//! these, and with c and e when a is back. Then once more with the gate switched off, where a shard must go
//! down: it proves that the case can fail.

use super::{first, found};
use crate::case::{Failure, Run};
use crate::harness::{HarnessError, Result};
use crate::k8s::images::{NEXT, TAG};
use crate::k8s::machine::Process;
use crate::k8s::stage::OPERATOR;
use crate::k8s::{Client, Done, LoadPod, LoadShape, Stage, objects, state};
use crate::load::report::Verdict;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const CASE: &str = "k8s-gate";
const STORES: &str = "gate";
const LABEL: &str = "undb-e2e-gate";
const TABLES: [&str; 2] = ["gate-ace", "gate-bde"];
const SHARDS: u32 = 5;
const WAIT: Duration = Duration::from_secs(300);
const ALLOWED_WAIT: Duration = Duration::from_secs(60);
/// Denials are watched for so long: a gate that only waits for a timeout is seen.
const REFUSED_FOR: Duration = Duration::from_secs(20);

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    let stage = Stage::prepare(CASE).await?;
    let result = play(&stage, run).await;
    if result.is_ok() {
        clear(&stage).await?;
    }
    stage.finish(result).await
}

async fn play(stage: &Stage, run: Run) -> Result<String, Failure> {
    let set = stage.steps.step("stores a to e and their shards", Set::make(stage)).await?;
    let (gated, blocked) = match with_gate(stage, &set, run.seed).await? {
        Some(figures) => figures,
        None => return Ok("skipped: no process of this cluster's machines can be stopped".into()),
    };
    let down = without_gate(stage, &set, run.seed).await?;
    Ok(format!(
        "c and e refused for {blocked} shards while a stood still, b and d allowed; {gated}; with the gate off {down}"
    ))
}

/// The five stores.
struct Set {
    /// Pod names.
    a: String,
    b: String,
    c: String,
    d: String,
    e: String,
}

/// Names by node: two nodes with two each and one with one. Pure.
fn letters(pods: &[(String, String)]) -> Option<Set> {
    let mut by_node: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (pod, node) in pods {
        by_node.entry(node).or_default().push(pod);
    }
    let mut groups: Vec<Vec<&str>> = by_node.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    match groups.as_slice() {
        [ab, cd, e] if (ab.len(), cd.len(), e.len()) == (2, 2, 1) => {
            Some(Set { a: ab[0].into(), b: ab[1].into(), c: cd[0].into(), d: cd[1].into(), e: e[0].into() })
        }
        _ => None,
    }
}

impl Set {
    async fn make(stage: &Stage) -> Result<Set, Failure> {
        let nodes = stage.nodes().await?;
        if nodes.len() < 3 {
            return Err(Failure::Missing(format!("the case needs three nodes, there are {}", nodes.len())));
        }
        let label = format!("{LABEL}=yes");
        for node in &nodes[..3] {
            stage.kube.kubectl(&["label", "node", node, &label, "--overwrite"]).await?;
        }
        stage.kube.apply(&objects::store_cluster(STORES, 5, LABEL, &stage.image(TAG))).await?;
        stage.object_settled("storecluster", STORES, WAIT).await?;
        for table in TABLES {
            stage.table(table, STORES, SHARDS).await?;
        }
        let pods = stage.store_pods(STORES).await?;
        let named: Vec<(String, String)> =
            pods.iter().map(|pod| (state::name(pod), state::node(pod))).collect();
        let set = letters(&named)
            .ok_or_else(|| found(format!("stores are not spread 2, 2, 1 over nodes: {named:?}")))?;
        let client = Client::start(stage, &first(nodes)?).await?;
        let ids = store_ids(stage).await?;
        for (table, stores) in TABLES.iter().zip([[&set.a, &set.c, &set.e], [&set.b, &set.d, &set.e]]) {
            let ids: Vec<String> =
                stores.iter().filter_map(|pod| ids.get(*pod)).map(u64::to_string).collect();
            let said =
                client.exec(stage, &["/e2e", "place", "--table", table, "--stores", &ids.join(",")]).await?;
            stage.steps.say(format_args!("{table}: {}", said.trim()));
        }
        Ok(set)
    }
}

async fn store_ids(stage: &Stage) -> Result<BTreeMap<String, u64>> {
    let stores = stage.kube.list(&["stores.undb.io"]).await?;
    let ids =
        stores.iter().filter_map(|store| Some((state::name(store), store["status"]["storeId"].as_u64()?)));
    Ok(ids.collect())
}

/// A load on one of the tables, which also asks the stores about their replicas.
async fn load(stage: &Stage, seed: u64) -> Result<LoadPod, Failure> {
    let node = first(stage.nodes().await?)?;
    let shape = LoadShape {
        name: "e2e-gate-load",
        table: TABLES[0].into(),
        stores: STORES.into(),
        resp: false,
        rate: super::rate_or(40),
        keys: 500,
    };
    Ok(LoadPod::start(stage, &node, &shape, seed).await?)
}

/// None: nothing can be frozen here. Else the figures of the load, and how many shards were named.
async fn with_gate(stage: &Stage, set: &Set, seed: u64) -> Result<Option<(String, usize)>, Failure> {
    let load = load(stage, seed).await?;
    load.calm(stage, 5).await?;
    let Some(frozen) = freeze(stage, &set.a).await? else { return Ok(None) };
    let result = while_frozen(stage, set, &load).await;
    // Whatever came of it, a store must not be left standing still.
    let woken = stage.machines.signal(&frozen, "CONT").await;
    let named = result?;
    // Its process may be another one by now: the roll may restart a store that does not serve.
    let _ = woken;
    load.during(stage, "a is back: the roll ends", rolled(stage, NEXT)).await?;
    load.calm(stage, 5).await?;
    let verdict = load.stop(stage).await?;
    println!("{}", load.table());
    let problems = load.problems(&verdict, false, 1);
    if problems.is_empty() {
        return Ok(Some((super::figure(&verdict), named)));
    }
    Err(found(problems.join("\n")))
}

async fn while_frozen(stage: &Stage, set: &Set, load: &LoadPod) -> Result<usize, Failure> {
    let refused = load.during(stage, "a stands still: c and e refused", refusals(stage, set)).await?;
    load.during(stage, "b and d allowed", async {
        allowed(stage, &set.b).await?;
        allowed(stage, &set.d).await
    })
    .await?;
    load.during(stage, "the roll goes on with b and d", async {
        set_image(stage, NEXT).await?;
        roll_with_b_and_d(stage, set).await
    })
    .await?;
    Ok(refused)
}

async fn freeze(stage: &Stage, pod: &str) -> Result<Option<Process>, Failure> {
    let Some(process) = stage.machines.process_of(&stage.kube, pod).await? else { return Ok(None) };
    match stage.machines.signal(&process, "STOP").await? {
        Done::Yes => Ok(Some(process)),
        Done::Skipped => Ok(None),
    }
}

/// c and e are refused every time, and shards are named. How many. An answer without shards (the control plane
/// was slow) is a refusal as well, but not the only one of a store.
async fn refusals(stage: &Stage, set: &Set) -> Result<usize, Failure> {
    let uids = uids(stage).await?;
    let until = std::time::Instant::now() + REFUSED_FOR;
    let mut named = BTreeMap::new();
    let mut last = String::new();
    while std::time::Instant::now() < until {
        for pod in [&set.c, &set.e] {
            let answer = stage.kube.evict(pod, false).await?;
            if answer.ok {
                return Err(found(format!("{pod} was allowed to stop while {} stands still", set.a)));
            }
            last = answer.text();
            let most: &mut usize = named.entry(pod).or_default();
            *most = (*most).max(shards_named(&last));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    unchanged(stage, &uids, &[&set.c, &set.e]).await?;
    match named.iter().find(|(_, shards)| **shards == 0) {
        Some((pod, _)) => {
            Err(found(format!("{pod} was refused and no shard was ever named: {}", last.trim())))
        }
        None => Ok(named.into_values().max().unwrap_or_default()),
    }
}

/// `shard 12`, `shards 12, 13`: how many different numbers follow. Pure.
fn shards_named(text: &str) -> usize {
    let mut found = std::collections::BTreeSet::new();
    for rest in text.split("shard").skip(1) {
        let rest = rest.trim_start_matches('s');
        let numbers =
            rest.split(|c: char| !c.is_ascii_digit() && c != ' ' && c != ',').next().unwrap_or_default();
        found.extend(numbers.split([' ', ',']).filter_map(|n| n.parse::<u64>().ok()));
    }
    found.len()
}

/// An eviction is allowed after its drain, and the store comes back.
async fn allowed(stage: &Stage, pod: &str) -> Result<()> {
    let before = uids(stage).await?.get(pod).cloned();
    let ask = || async {
        let answer = stage.kube.evict(pod, false).await?;
        Ok(if answer.ok { Ok(()) } else { Err(answer.text()) })
    };
    stage.kube.until(&format!("the eviction of {pod} is allowed"), ALLOWED_WAIT, ask).await?;
    let back = || async {
        let pods = stage.store_pods(STORES).await?;
        let there = pods.iter().find(|p| state::name(p) == pod && Some(state::uid(p)) != before);
        Ok(if there.is_some_and(state::is_pod_ready) { Ok(()) } else { Err("not there yet".to_owned()) })
    };
    stage.kube.until(&format!("{pod} is back"), WAIT, back).await
}

async fn set_image(stage: &Stage, tag: &str) -> Result<()> {
    stage.kube.patch("storecluster", STORES, &json!({"spec": {"image": stage.image(tag)}})).await
}

/// b and d get the new image; c and e must not while a has not come back, and the status says why.
async fn roll_with_b_and_d(stage: &Stage, set: &Set) -> Result<(), Failure> {
    let uids = uids(stage).await?;
    let image = stage.image(NEXT);
    let both = || async {
        let pods = stage.store_pods(STORES).await?;
        let has = |name: &str| {
            pods.iter().any(|p| state::name(p) == name && state::image(p) == image && state::is_pod_ready(p))
        };
        Ok(if has(&set.b) && has(&set.d) { Ok(()) } else { Err(words(&pods)) })
    };
    stage.kube.until("b and d have the new image", WAIT, both).await?;
    let pods = stage.store_pods(STORES).await?;
    let a = pods.iter().find(|pod| state::name(pod) == set.a);
    if a.is_some_and(|a| uids.get(&set.a) != Some(&state::uid(a))) {
        // The roll restarted the store that did not serve, which is its right: a is back by that.
        stage.steps.say("the roll restarted a itself; nothing is left to be refused");
        return Ok(());
    }
    unchanged(stage, &uids, &[&set.c, &set.e]).await?;
    let stores = stage.kube.get(&["storecluster", STORES]).await?;
    stage.steps.say(state::shown(&stores));
    if state::blocked(&stores).is_empty() {
        return Err(found("the roll waits for c and e, and status.blockedBy is empty"));
    }
    Ok(())
}

fn words(pods: &[Value]) -> String {
    let each = pods
        .iter()
        .map(|pod| format!("{} {} ready {}", state::name(pod), state::image(pod), state::is_pod_ready(pod)));
    each.collect::<Vec<_>>().join(", ")
}

async fn rolled(stage: &Stage, tag: &str) -> Result<()> {
    stage.object_settled("storecluster", STORES, WAIT).await?;
    let pods = stage.store_pods(STORES).await?;
    let done = pods.iter().all(|pod| state::image(pod) == stage.image(tag));
    if done {
        Ok(())
    } else {
        Err(HarnessError::Other(format!("the roll ended without all stores: {}", words(&pods))))
    }
}

async fn uids(stage: &Stage) -> Result<BTreeMap<String, String>> {
    let pods = stage.store_pods(STORES).await?;
    Ok(pods.iter().map(|pod| (state::name(pod), state::uid(pod))).collect())
}

async fn unchanged(
    stage: &Stage,
    before: &BTreeMap<String, String>,
    names: &[&String],
) -> Result<(), Failure> {
    let now = uids(stage).await?;
    match names.iter().find(|name| now.get(**name) != before.get(**name)) {
        None => Ok(()),
        Some(name) => Err(found(format!("{name} was stopped although it was refused"))),
    }
}

/// The control run: with the gate off the same evictions take a shard down.
async fn without_gate(stage: &Stage, set: &Set, seed: u64) -> Result<String, Failure> {
    stage.steps.step("switch the gate off", set_gate(stage, "off")).await?;
    let result = ungated(stage, set, seed).await;
    stage.steps.step("switch the gate on", set_gate(stage, "on")).await?;
    let verdict = result?;
    let lost = verdict.sampled.as_ref().map(|s| s.lost_quorum.len()).unwrap_or_default();
    let unavailable = verdict.sampled.as_ref().map(|s| s.unavailable_max).unwrap_or_default();
    if lost == 0 {
        return Err(found(format!(
            "with the gate off no shard lost its quorum (at most {unavailable} unavailable replicas): the case proves nothing"
        )));
    }
    if verdict.lost_count > 0 {
        return Err(found(format!("acknowledged writes are gone: {}", verdict.lost.join("; "))));
    }
    let failed = verdict.sdk.bad();
    Ok(format!("{lost} shards lost their quorum and {failed} requests failed"))
}

async fn ungated(stage: &Stage, set: &Set, seed: u64) -> Result<Verdict, Failure> {
    let load = load(stage, seed ^ 2).await?;
    load.calm(stage, 5).await?;
    let Some(frozen) = freeze(stage, &set.a).await? else { return Err(found("a cannot be frozen any more")) };
    let evicted = load.during(stage, "gate off: c goes while a stands still", async {
        let ask = || async {
            let answer = stage.kube.evict(&set.c, false).await?;
            Ok(if answer.ok { Ok(()) } else { Err(answer.text()) })
        };
        stage.kube.until("c goes with the gate off", ALLOWED_WAIT, ask).await?;
        // Long enough that the sampler calls it silent, whatever its new Pod does meanwhile.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok::<_, HarnessError>(())
    });
    let evicted = evicted.await;
    let _ = stage.machines.signal(&frozen, "CONT").await?;
    evicted?;
    stage.object_settled("storecluster", STORES, WAIT).await?;
    load.calm(stage, 5).await?;
    let verdict = load.stop(stage).await?;
    println!("{}", load.table());
    Ok(verdict)
}

async fn set_gate(stage: &Stage, word: &str) -> Result<()> {
    let value = if word == "off" { "UNDB_UNSAFE_GATE=off" } else { "UNDB_UNSAFE_GATE-" };
    stage.kube.kubectl(&["set", "env", OPERATOR, value]).await?;
    stage.operator_rolled_out().await
}

async fn clear(stage: &Stage) -> Result<()> {
    for table in TABLES {
        stage.kube.kubectl(&["delete", "table", table, "--timeout=100s"]).await?;
    }
    stage.kube.kubectl(&["delete", "storecluster", STORES, "--timeout=100s"]).await?;
    stage.kube.kubectl(&["delete", "pod", "e2e-gate-load", "--ignore-not-found", "--grace-period=1"]).await?;
    stage.kube.kubectl(&["label", "nodes", "--all", &format!("{LABEL}-")]).await.map(|_| ())
}

/// The short form: with three stores, one that stands still forbids every other one.
pub(super) async fn short(stage: &Stage) -> Result<String, Failure> {
    let pods = stage.store_pods(objects::STORES).await?;
    let names: Vec<String> = pods.iter().map(state::name).collect();
    let [a, b, ..] = names.as_slice() else {
        return Err(found(format!("two stores are needed, there are {names:?}")));
    };
    let Some(frozen) = freeze(stage, a).await? else {
        let skipped = "no process can be stopped here";
        return match std::env::var_os("UNDB_REQUIRE_ALL") {
            Some(_) => Err(Failure::Missing(skipped.into())),
            None => Ok(format!("skipped: {skipped}")),
        };
    };
    let refused = async {
        let mut named = 0;
        for _ in 0..5 {
            let answer = stage.kube.evict(b, false).await?;
            if answer.ok {
                return Err(found(format!("{b} was allowed to stop while {a} stands still")));
            }
            named = named.max(shards_named(&answer.text()));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        if named == 0 { Err(found(format!("{b} was refused without a shard named"))) } else { Ok(named) }
    };
    let refused = refused.await;
    let _ = stage.machines.signal(&frozen, "CONT").await?;
    let named = refused?;
    // Not only when all is settled: the drain that the refused eviction began waits for two minutes.
    let ask = || async {
        let answer = stage.kube.evict(b, false).await?;
        Ok(if answer.ok { Ok(()) } else { Err(answer.text()) })
    };
    stage.kube.until("the other store is allowed once the first is back", ALLOWED_WAIT, ask).await?;
    stage.object_settled("storecluster", objects::STORES, WAIT).await?;
    Ok(format!("refused for {named} shards, then allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_get_their_letters_by_their_nodes() {
        let pods = [("s-0", "n1"), ("s-1", "n2"), ("s-2", "n3"), ("s-3", "n3"), ("s-4", "n1")];
        let pods = pods.map(|(pod, node)| (pod.to_owned(), node.to_owned()));
        let set = letters(&pods).expect("2, 2, 1");
        assert_eq!([set.a, set.b, set.c, set.d, set.e], ["s-0", "s-4", "s-2", "s-3", "s-1"]);
        assert!(letters(&pods[..4]).is_none());
    }

    #[test]
    fn the_shards_of_a_refusal_are_counted() {
        let text = "Error from server (TooManyRequests): shard 12 of table gate-ace [..): store 1 does not answer; shard 14: same";
        assert_eq!(shards_named(text), 2);
        assert_eq!(shards_named("blocked by shards 3, 4, 5 of table x"), 3);
        assert_eq!(shards_named("Cannot evict pod as it would violate the pod's disruption budget."), 0);
    }
}
