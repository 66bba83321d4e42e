//! What a user changes day by day, under load: only what must restart does, one store at a time.
//!
//! | change | restarts |
//! |---|---|
//! | `paused`, then an image | nothing, and the status says why |
//! | `paused: false`; `resources` | every store, one after the other |
//! | labels and annotations of `podTemplate` | nothing |
//! | `proxy.replicas` of the Router | nothing; proxies come and go |
//! | the certificate made anew | nothing; every process reads it |
//! | cordon, drain, uncordon; a table's quota; a table deleted | nothing |

mod tool;

use super::{Runs, found, judge, runs, runs_of, start_load};
use crate::case::{Failure, Run};
use crate::harness::Result;
use crate::k8s::images::{NEXT, TAG};
use crate::k8s::objects::{CONTROL_PLANE, ROUTER, STORES};
use crate::k8s::{Client, LoadPod, Stage, state};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::Duration;

const CASE: &str = "k8s-changes";
const RATE: u32 = 60;
const WAIT: Duration = Duration::from_secs(600);
/// So long nothing may happen before it counts as "nothing happens".
const QUIET: Duration = Duration::from_secs(20);
/// Until the kubelet has brought a Secret's new content to every Pod and the process has read it.
const FILES_WAIT: Duration = Duration::from_secs(240);
/// Everything of the installation but stores and operator.
const OTHERS: [&str; 5] = ["meta", "control", "access", "routing", "proxy"];
/// What a process logs when it uses changed certificates.
const CERTIFICATES_READ: &str = "tls certificates read";

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    super::played(CASE, run, play).await
}

async fn play(stage: &Stage, run: Run) -> Result<String, Failure> {
    let (load, node) = start_load(stage, RATE, run.seed).await?;
    let changed = changes(stage, &load, &node).await;
    // Also after a failure: another case finds what the suite installs.
    let restored = load.during(stage, "everything as it was", restore(stage, &load)).await;
    if changed.is_err() || restored.is_err() {
        println!("{}", load.table());
    }
    changed?;
    restored?;
    judge(stage, &load, false, 1).await
}

async fn changes(stage: &Stage, load: &LoadPod, node: &str) -> Result<(), Failure> {
    load.during(stage, "paused, then a new image", paused(stage)).await?;
    let go_on = json!({"spec": {"paused": false}});
    load.during(stage, "unpaused", one_by_one(stage, load, "unpausing", &go_on)).await?;
    let resources = json!({"spec": {"resources": {"requests": {"cpu": "60m"}}}});
    load.during(stage, "other resources", one_by_one(stage, load, "other resources", &resources)).await?;
    load.during(stage, "labels and annotations", labels(stage)).await?;
    load.during(stage, "three proxies", proxies(stage, 3)).await?;
    load.during(stage, "two proxies", proxies(stage, 2)).await?;
    let client = Client::start(stage, node).await?;
    let before = everything(stage).await?;
    load.during(stage, "explain, cordon, uncordon", tool::cordon(stage, &client)).await?;
    load.during(stage, "drain and its undo", tool::drain(stage, &client)).await?;
    stage.object_settled("storecluster", STORES, WAIT).await?;
    load.calm(stage, runs(stage, STORES).await?.len()).await?;
    load.during(stage, "a table's quota, a table deleted", tool::table(stage, &client)).await?;
    same(&before, &everything(stage).await?, "cordon, drain, uncordon and changes of tables")?;
    load.during(stage, "a new certificate", certificate(stage)).await?;
    tool::answers(stage, &client).await
}

/// Nothing restarts while it is paused, and the status says that it is.
async fn paused(stage: &Stage) -> Result<(), Failure> {
    let before = everything(stage).await?;
    stage.kube.patch("storecluster", STORES, &json!({"spec": {"paused": true}})).await?;
    says_paused(stage).await?;
    let image = json!({"spec": {"image": stage.image(NEXT)}});
    stage.kube.patch("storecluster", STORES, &image).await?;
    let said = says_paused(stage).await?;
    stage.steps.say(said);
    tokio::time::sleep(QUIET).await;
    same(&before, &everything(stage).await?, "a new image of a paused StoreCluster")?;
    says_paused(stage).await.map(|_| ()).map_err(Failure::from)
}

async fn says_paused(stage: &Stage) -> Result<String> {
    let ask = || async {
        let stores = stage.kube.get(&["storecluster", STORES]).await?;
        let said = state::shown(&stores);
        let is_said = state::is_observed(&stores) && said.contains("ReconcilePaused");
        Ok(if is_said { Ok(said) } else { Err(said) })
    };
    stage.kube.until("the StoreCluster says that it is paused", QUIET * 3, ask).await
}

/// A change that restarts every store, never two at a time, and nothing else.
async fn one_by_one(stage: &Stage, load: &LoadPod, what: &str, patch: &Value) -> Result<(), Failure> {
    let (before, others) = (runs(stage, STORES).await?, others(stage).await?);
    stage.kube.patch("storecluster", STORES, patch).await?;
    let away_max = rolled(stage, before.len()).await?;
    let after = runs(stage, STORES).await?;
    let kept: Vec<&String> =
        before.iter().filter(|(name, run)| after.get(*name) == Some(run)).map(|(name, _)| name).collect();
    stage.steps.say(format_args!(
        "{what}: {} of {} stores restarted, at most {} at a time",
        before.len() - kept.len(),
        before.len(),
        away_max.len()
    ));
    if !kept.is_empty() {
        return Err(found(format!("{what}: settled, but {kept:?} were not restarted: {after:?}")));
    }
    if away_max.len() > 1 {
        return Err(found(format!("{what}: {away_max:?} were away at the same time")));
    }
    same(&others, &self::others(stage).await?, what)?;
    Ok(load.calm(stage, after.len()).await?)
}

/// Waits until the roll is over; the answer is the most stores that were not ready at one look.
async fn rolled(stage: &Stage, wanted: usize) -> Result<Vec<String>> {
    let away_max = Mutex::new(Vec::new());
    let ask = || async {
        let pods = stage.store_pods(STORES).await?;
        let away = away(&pods, wanted);
        if away.len() > away_max.lock().len() {
            *away_max.lock() = away;
        }
        let stores = stage.kube.get(&["storecluster", STORES]).await?;
        Ok(if state::stores_settled(&stores) { Ok(()) } else { Err(state::shown(&stores)) })
    };
    stage.kube.until("the stores are as wanted", WAIT, ask).await?;
    Ok(away_max.into_inner())
}

/// Pods that are not ready, and those that are not there.
fn away(pods: &[Value], wanted: usize) -> Vec<String> {
    let not_ready = pods.iter().filter(|pod| !state::is_pod_ready(pod)).map(state::name);
    let missing = wanted.saturating_sub(pods.len());
    not_ready.chain(std::iter::repeat_n("(a Pod that is not there)".to_owned(), missing)).collect()
}

/// They hold for Pods made from now on.
async fn labels(stage: &Stage) -> Result<(), Failure> {
    let before = everything(stage).await?;
    let metadata = json!({"labels": {"example.com/team": "e2e"}, "annotations": {"example.com/note": "e2e"}});
    let patch = json!({"spec": {"podTemplate": {"metadata": metadata}}});
    stage.kube.patch("storecluster", STORES, &patch).await?;
    stage.object_settled("storecluster", STORES, WAIT).await?;
    tokio::time::sleep(QUIET).await;
    same(&before, &everything(stage).await?, "a label and an annotation of podTemplate")
}

/// Another number of proxies; every other Pod stays, and so do as many proxies as can.
async fn proxies(stage: &Stage, wanted: usize) -> Result<(), Failure> {
    let (before, old) = (everything(stage).await?, runs_of(&stage.pods_of("proxy").await?));
    let patch = json!({"spec": {"proxy": {"replicas": wanted}}});
    stage.kube.patch("router", ROUTER, &patch).await?;
    let ask = || async {
        let pods = stage.pods_of("proxy").await?;
        let ready = pods.iter().filter(|pod| state::is_pod_ready(pod)).count();
        let word = format!("{} Pods, {ready} ready", pods.len());
        Ok(if ready == wanted && pods.len() == wanted { Ok(()) } else { Err(word) })
    };
    stage.kube.until(&format!("{wanted} proxies"), WAIT, ask).await?;
    stage.object_settled("router", ROUTER, WAIT).await?;
    let (after, now) = (everything(stage).await?, runs_of(&stage.pods_of("proxy").await?));
    let kept = old.iter().filter(|(name, run)| now.get(*name) == Some(run)).count();
    if kept < old.len().min(wanted) {
        return Err(found(format!("{wanted} proxies: only {kept} of {old:?} stayed: {now:?}")));
    }
    let without = |mut all: Runs, proxies: &Runs| {
        all.retain(|name, _| !proxies.contains_key(name));
        all
    };
    same(&without(before, &old), &without(after, &now), &format!("{wanted} proxies"))
}

/// The Secret deleted: the operator makes another certificate of the same authority, and every process
/// reads it while it runs.
async fn certificate(stage: &Stage) -> Result<(), Failure> {
    let secret = format!("{CONTROL_PLANE}-tls");
    let before = everything(stage).await?;
    let read_before = certificates_read(stage, &before).await?;
    let old = stage.kube.get(&["secret", &secret]).await?;
    stage.kube.kubectl(&["delete", "secret", &secret]).await?;
    let made = || async {
        let Some(new) = stage.kube.find(&["secret", &secret]).await? else {
            return Ok(Err(format!("no Secret {secret}")));
        };
        let is_new = new["data"]["tls.crt"].is_string() && new["data"]["tls.crt"] != old["data"]["tls.crt"];
        Ok(if is_new { Ok(new) } else { Err(format!("{secret} has no new tls.crt")) })
    };
    let new = stage.kube.until("the operator makes the certificate anew", WAIT, made).await?;
    if new["data"]["ca.crt"] != old["data"]["ca.crt"] {
        return Err(found(format!("{secret}: with the certificate went the authority: ca.crt has changed")));
    }
    stage.steps.say(format_args!("{secret} has a new certificate of the same authority"));
    let read = || async {
        let now = certificates_read(stage, &before).await?;
        let late: Vec<&String> =
            now.iter().zip(&read_before).filter(|(now, old)| now.1 <= old.1).map(|(now, _)| &now.0).collect();
        Ok(if late.is_empty() { Ok(()) } else { Err(format!("not in the logs of {late:?}")) })
    };
    stage.kube.until(&format!("every Pod says {CERTIFICATES_READ:?}"), FILES_WAIT, read).await?;
    same(&before, &everything(stage).await?, "a new certificate")
}

/// How often each Pod said that it uses changed certificates.
async fn certificates_read(stage: &Stage, pods: &Runs) -> Result<Vec<(String, usize)>> {
    let mut all = Vec::new();
    for pod in pods.keys() {
        let log = stage.kube.kubectl(&["logs", pod, "--all-containers"]).await?;
        all.push((pod.clone(), log.matches(CERTIFICATES_READ).count()));
    }
    Ok(all)
}

/// What the suite installs.
async fn restore(stage: &Stage, load: &LoadPod) -> Result<()> {
    let spec = json!({"paused": false, "image": stage.image(TAG), "podTemplate": null,
        "resources": {"requests": {"cpu": "50m"}}});
    stage.kube.patch("storecluster", STORES, &json!({"spec": spec})).await?;
    stage.kube.patch("router", ROUTER, &json!({"spec": {"proxy": {"replicas": 2}}})).await?;
    stage.settled(WAIT).await?;
    load.calm(stage, runs(stage, STORES).await?.len()).await
}

async fn others(stage: &Stage) -> Result<Runs> {
    let mut all = Runs::new();
    for component in OTHERS {
        all.extend(runs_of(&stage.pods_of(component).await?));
    }
    Ok(all)
}

async fn everything(stage: &Stage) -> Result<Runs> {
    let mut all = others(stage).await?;
    all.extend(runs(stage, STORES).await?);
    Ok(all)
}

fn same(before: &Runs, after: &Runs, what: &str) -> Result<(), Failure> {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = |name: &&String| before.get(*name) != after.get(*name);
    let each = |name: &String| format!("{name}: {:?}, then {:?}", before.get(name), after.get(name));
    let changed: Vec<String> = names.into_iter().filter(differs).map(each).collect();
    if changed.is_empty() {
        return Ok(());
    }
    Err(found(format!("{what} restarted Pods (UID, restarts): {}", changed.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, ready: &str) -> Value {
        json!({
            "metadata": {"name": name, "uid": format!("{name}-1")},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    #[test]
    fn a_pod_that_is_not_there_is_away_like_one_that_is_not_ready() {
        let pods = [pod("a", "True"), pod("b", "False")];
        assert_eq!(away(&pods, 2), ["b"]);
        assert_eq!(away(&pods, 3).len(), 2);
    }

    #[test]
    fn a_restart_is_named_with_what_caused_it() {
        let (before, after) = (runs_of(&[pod("a", "True"), pod("b", "True")]), runs_of(&[pod("a", "True")]));
        assert!(same(&before, &before, "nothing").is_ok());
        let said = same(&before, &after, "a label").expect_err("b is gone").to_string();
        assert!(said.contains("a label") && said.contains("b-1") && !said.contains("a-1"), "{said}");
    }
}
