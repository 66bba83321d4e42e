//! The cases. Each answers with its figure, or with what it found wrong.

pub mod import;
pub mod kill9;
pub mod lost_disk;
pub mod redis_diff;

use crate::harness::HarnessError;
use crate::k8s::case as k8s;
use std::time::Duration;

/// What every case is given.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// How long it works.
    pub duration: Duration,
    /// Decides everything random that the case itself decides.
    pub seed: u64,
}

/// How a case ended without a figure.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What it was there to find.
    #[error("{0}")]
    Found(String),
    /// It could not do its work.
    #[error(transparent)]
    Harness(#[from] HarnessError),
    /// This machine lacks something; the text says what to do.
    #[error("{0}")]
    Missing(String),
}

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Separate processes under writes, one killed with -9 every 1-3 s: nothing acknowledged is lost, and the history is linearizable
    Kill9,
    /// The Debian package index, imported with an interruption, every value compared with the source
    Import,
    /// Every store loses its disk in turn and comes back empty: nothing acknowledged is lost, and nobody helps
    LostDisk,
    /// Random commands against redis-server and the proxy, the answers compared
    RedisDiff,
    /// Kubernetes: an empty cluster, one `helm install`, ready, `helm test`
    K8sInstall,
    /// Kubernetes: the examples apply, wrong manifests are refused with the messages of the docs
    K8sManifests,
    /// Kubernetes: a Pod imports the Debian package index and reads it back, through SDK and RESP
    K8sData,
    /// Kubernetes: scale, roll, drain and a bad image under load: no failed request, at most one replica unavailable
    K8sLoad,
    /// Kubernetes: which store may stop depends on its shards; a control run without the gate must fail
    K8sGate,
    /// Kubernetes: machines die, come back, stay away, are cut off; a Pod is deleted
    K8sMachine,
    /// Kubernetes: the operator is killed all the time, sleeps past its lease, its webhook is away
    K8sOperator,
    /// Kubernetes: metadata and control are gone while stores serve
    K8sControl,
    /// Kubernetes: upgrade, uninstall, reinstall, delete everything
    K8sLifecycle,
    /// Kubernetes: a user's everyday changes under load: pause, resources, labels, Router, cordon and drain, certificates, tables; only what must restart does
    K8sChanges,
    /// Kubernetes: all of it in a few minutes
    K8sShort,
}

impl Case {
    /// Needs a Kubernetes cluster.
    pub fn is_kubernetes(self) -> bool {
        !matches!(self, Case::Kill9 | Case::Import | Case::LostDisk | Case::RedisDiff)
    }

    /// Runs it; the answer is its last line.
    pub async fn run(self, run: Run) -> Result<String, Failure> {
        match self {
            Case::Kill9 => kill9::run(run).await,
            Case::Import => import::run(run).await,
            Case::LostDisk => lost_disk::run(run).await,
            Case::RedisDiff => redis_diff::run(run).await,
            Case::K8sInstall => k8s::install::run(run).await,
            Case::K8sManifests => k8s::manifests::run(run).await,
            Case::K8sData => k8s::data::run(run).await,
            Case::K8sLoad => k8s::load::run(run).await,
            Case::K8sGate => k8s::gate::run(run).await,
            Case::K8sMachine => k8s::machine::run(run).await,
            Case::K8sOperator => k8s::operator::run(run).await,
            Case::K8sControl => k8s::control::run(run).await,
            Case::K8sLifecycle => k8s::lifecycle::run(run).await,
            Case::K8sChanges => k8s::changes::run(run).await,
            Case::K8sShort => k8s::short::run(run).await,
        }
    }
}

/// A line of progress.
pub(crate) fn say(case: &str, text: impl std::fmt::Display) {
    println!("{case}: {text}");
}
