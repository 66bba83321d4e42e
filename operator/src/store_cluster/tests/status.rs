//! What is said of a StoreCluster while something is under way, or nobody answers.

use super::drive::{pass, running};
use super::sim::{BAD, Sim};
use crate::conditions;
use crate::store_cluster::act::{self, Effect};
use crate::store_cluster::model::{Observed, Why};
use crate::store_cluster::observe::Answers;
use crate::store_cluster::plan::plan;
use crate::store_cluster::status::{Pass, of_cluster};
use crate::store_cluster::store_status::of_store;
use crate::store_cluster::wish::Wish;
use crate::workload::Instance;
use undb_proto::v1;
use undb_spec::k8s::{Condition, StoreClusterStatus, StoreStatus};

const NOW_MS: u64 = 10_000_000;

struct Said {
    cluster: StoreClusterStatus,
    stores: Vec<StoreStatus>,
}

/// What a pass over this picture reports, of generation 2.
fn said(observed: &Observed, before: &StoreClusterStatus) -> Said {
    said_after(observed, before, &[])
}

fn said_after(observed: &Observed, before: &StoreClusterStatus, effects: &[Effect]) -> Said {
    let wish = Wish {
        instance: Instance { namespace: "ns".into(), name: "s".into(), control_plane: "undb".into() },
        image: "undb:1".into(),
        has_tls: false,
        resources: None,
        pod_template: None,
        template_hash: observed.cluster.template_hash.clone(),
    };
    let answers = observed.control.as_ref().map(|_| Answers {
        // Two StoreClusters in one control plane: a bad shard of the other one is not ours.
        status: v1::StatusResponse {
            shards: 9,
            shards_available: 8,
            store_clusters: vec![
                v1::StoreClusterStatus {
                    name: "other".into(),
                    shards: 5,
                    shards_available: 4,
                    ..Default::default()
                },
                v1::StoreClusterStatus {
                    name: "s".into(),
                    shards: 4,
                    shards_available: 4,
                    ..Default::default()
                },
            ],
            ..Default::default()
        },
        leases: vec![],
    });
    let plan = plan(observed, NOW_MS);
    let pass = Pass {
        generation: Some(2),
        wish: &wish,
        observed,
        answers: answers.as_ref(),
        plan: &plan,
        effects,
        error: None,
        now_ms: NOW_MS,
    };
    let stores = observed.stores.iter().map(|s| of_store(&pass, s, Some(1), &StoreStatus::default()));
    Said { stores: stores.collect(), cluster: of_cluster(&pass, before) }
}

fn status_of(conditions: &[Condition], type_: &str) -> String {
    conditions::find(conditions, type_).map(|c| c.status.clone()).unwrap_or_default()
}

impl Said {
    fn is(&self, type_: &str) -> String {
        status_of(&self.cluster.conditions, type_)
    }
}

fn observed(sim: &Sim) -> Observed {
    sim.state.lock().observe()
}

// 40
#[tokio::test]
async fn a_scale_in_is_progress_and_no_loss_of_service() {
    let sim = running(4, 4).await;
    let calm = said(&observed(&sim), &StoreClusterStatus::default());
    assert_eq!((calm.is("Ready"), calm.is("Progressing")), ("True".into(), "False".into()));
    sim.state.lock().cluster.replicas = 3;
    for _ in 0..3 {
        pass(&sim, |_| {}).await;
    }
    let seen = observed(&sim);
    assert!(seen.stores.iter().any(|s| s.is_offline), "one leaves");
    let now = said(&seen, &calm.cluster);
    for (type_, wanted) in [
        ("Ready", "True"),
        ("Available", "True"),
        ("Progressing", "True"),
        ("Reconciling", "True"),
        ("Degraded", "False"),
        ("Stalled", "False"),
    ] {
        assert_eq!(now.is(type_), wanted, "{type_}");
    }
}

#[tokio::test]
async fn a_store_that_cannot_leave_since_nothing_takes_its_copies_is_stalled_and_says_so() {
    for (replicas, is_stuck) in [(3, true), (4, false)] {
        let sim = running(replicas, 3).await;
        let calm = said(&observed(&sim), &StoreClusterStatus::default());
        sim.state.lock().cluster.replicas = replicas - 1;
        for _ in 0..3 {
            pass(&sim, |_| {}).await;
        }
        let seen = observed(&sim);
        let mut effects = Vec::new();
        for action in plan(&seen, NOW_MS).actions {
            effects.push(act::perform(&sim, &seen.cluster.uid, &action).await.expect("done"));
        }
        let now = said_after(&seen, &calm.cluster, &effects);
        assert_eq!(now.is("Stalled"), if is_stuck { "True" } else { "False" }, "of {replicas}");
        let stalled = conditions::find(&now.cluster.conditions, "Stalled").expect("said");
        assert_eq!(stalled.message.contains("start more stores"), is_stuck, "{}", stalled.message);
        assert_eq!(now.cluster.blocked_by.iter().any(|b| b.reason == "NoTarget"), is_stuck);
    }
}

#[tokio::test]
async fn a_paused_cluster_serves_and_is_not_as_wanted() {
    let sim = running(3, 3).await;
    let before = said(&observed(&sim), &StoreClusterStatus::default()).cluster;
    let mut seen = observed(&sim);
    seen.cluster.is_paused = true;
    let calm = said(&seen, &before);
    assert_eq!((calm.is("Ready"), calm.is("Reconciling")), ("True".into(), "False".into()));
    seen.cluster.template_hash = "two".into();
    let now = said(&seen, &before);
    assert_eq!(
        (now.is("Ready"), now.is("Reconciling"), now.is("Progressing")),
        ("True".into(), "True".into(), "False".into())
    );
    let ready = conditions::find(&now.cluster.conditions, "Ready").expect("said");
    assert!(ready.reason == "ReconcilePaused" && ready.message.contains("spec.paused"), "{ready:?}");
}

// 41
#[tokio::test]
async fn a_generation_that_is_not_reached_yet_is_never_all_done() {
    let sim = running(3, 3).await;
    let before = said(&observed(&sim), &StoreClusterStatus::default()).cluster;
    assert_eq!(before.observed_generation, Some(2));
    let all = before.conditions.iter().all(|c| c.observed_generation == Some(2));
    assert!(all, "{:?}", before.conditions);
    let mut larger = observed(&sim);
    larger.cluster.replicas = 5;
    let now = said(&larger, &before);
    assert_eq!((now.is("Ready"), now.is("Reconciling")), ("False".into(), "True".into()));
    let mut other = observed(&sim);
    other.cluster.template_hash = "two".into();
    let now = said(&other, &before);
    assert_eq!(now.is("Reconciling"), "True", "a roll goes on");
    assert_ne!(now.cluster.current_revision, now.cluster.update_revision);
}

#[tokio::test]
async fn what_needs_a_person_is_stalled_and_not_ready_though_every_shard_is_available() {
    let sim = running(4, 4).await;
    sim.state.lock().cluster.template_hash = BAD.into();
    for _ in 0..30 {
        pass(&sim, |_| {}).await;
        sim.state.lock().tick();
    }
    let mut seen = observed(&sim);
    let down = seen.stores.iter_mut().find(|s| !s.is_running()).expect("one is down");
    let why = Why { reason: "ImagePullBackOff".into(), message: "no such image".into() };
    down.pod.as_mut().expect("a pod").waiting = Some(why);
    let now = said(&seen, &StoreClusterStatus::default());
    for (type_, wanted) in
        [("Stalled", "True"), ("Ready", "False"), ("Available", "True"), ("Reconciling", "False")]
    {
        assert_eq!(now.is(type_), wanted, "{type_}");
    }
}

#[tokio::test]
async fn what_only_the_control_plane_knows_is_unknown_while_it_is_away() {
    let sim = running(3, 3).await;
    let before = said(&observed(&sim), &StoreClusterStatus::default()).cluster;
    sim.state.lock().is_control_down = true;
    let now = said(&observed(&sim), &before);
    for type_ in ["Ready", "Available", "Degraded", "DisruptionAllowed"] {
        assert_eq!(now.is(type_), "Unknown", "{type_}");
    }
    assert_eq!(now.is("Stalled"), "False", "waiting may mend it");
    for store in &now.stores {
        for type_ in ["Ready", "Serving", "Drained"] {
            assert_eq!(status_of(&store.conditions, type_), "Unknown", "{type_}");
        }
    }
    assert_eq!(now.cluster.shards, before.shards, "as they were seen last");
}
