//! A load in a Pod, followed while it runs, and its phases.

use super::Stage;
use super::kube::must;
use super::objects;
use super::phases::{Heard, Met, Phase, problems};
use crate::harness::{HarnessError, Result};
use crate::load::report::{Verdict, wall_ms};
use parking_lot::Mutex;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinHandle;

const BEGIN_WAIT: Duration = Duration::from_secs(180);
const STOP_WAIT: Duration = Duration::from_secs(600);
const CALM_WAIT: Duration = Duration::from_secs(180);

/// How a load works.
#[derive(Clone, Debug)]
pub struct LoadShape {
    /// Of its Pod.
    pub name: &'static str,
    /// What the SDK writes.
    pub table: String,
    /// Of whose stores replicas are sampled.
    pub stores: String,
    /// Whether half of it goes through the proxy.
    pub resp: bool,
    /// Requests a second.
    pub rate: u32,
    /// Keys of each kind of client.
    pub keys: u32,
}

/// A running load.
pub struct LoadPod {
    name: &'static str,
    heard: Arc<Mutex<Heard>>,
    phases: Mutex<Vec<Phase>>,
    following: JoinHandle<()>,
}

impl Drop for LoadPod {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl LoadPod {
    /// Starts it on a node and waits until requests succeed.
    pub async fn start(stage: &Stage, node: &str, shape: &LoadShape, seed: u64) -> Result<LoadPod> {
        let ns = &stage.kube.namespace;
        let mut args: Vec<String> = ["load", "--table", &shape.table].map(String::from).into();
        args.extend(["--rate".into(), shape.rate.to_string(), "--keys".into(), shape.keys.to_string()]);
        args.extend(["--seed".into(), seed.to_string()]);
        args.extend(["--stores".into(), format!("{}-stores.{ns}.svc:9090", shape.stores)]);
        if shape.resp {
            args.extend(["--resp".into(), format!("{}-proxy.{ns}.svc:6379", objects::ROUTER)]);
        }
        let pod = objects::client_pod(shape.name, &stage.client_image(), node, &args);
        stage.restart_pod(shape.name, &pod).await?;
        let heard = Arc::new(Mutex::new(Heard::default()));
        let following = tokio::spawn(follow(stage.kube.clone(), shape.name, heard.clone()));
        let load = LoadPod { name: shape.name, heard, phases: Mutex::default(), following };
        let heard = load.heard.clone();
        let begun = move || {
            let heard = heard.clone();
            async move {
                let heard = heard.lock();
                let ok = heard.seconds.last().is_some_and(|second| second.sdk.ok > 0);
                Ok(if ok {
                    Ok(())
                } else {
                    Err(format!("{} seconds heard, none with an answer", heard.seconds.len()))
                })
            }
        };
        stage.kube.until("the load begins", BEGIN_WAIT, begun).await?;
        Ok(load)
    }

    /// Runs a step as a phase of the load.
    pub async fn during<T, E: std::fmt::Display>(
        &self,
        stage: &Stage,
        name: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let from = wall_ms();
        let result = stage.steps.step(name, work).await;
        self.phases.lock().push(Phase { name: name.into(), from, to: wall_ms() });
        result
    }

    /// What was heard so far.
    pub fn heard(&self) -> Heard {
        self.heard.lock().clone()
    }

    /// What it met in the phase of this name.
    pub fn met(&self, name: &str) -> Met {
        let phases = self.phases.lock();
        let phase = phases.iter().find(|phase| phase.name == name);
        phase.map(|phase| self.heard.lock().met(phase)).unwrap_or_default()
    }

    /// Waits until the stores themselves say that every replica is available, `stores` of them.
    pub async fn calm(&self, stage: &Stage, stores: usize) -> Result<()> {
        let from = wall_ms() + 2000;
        let calm = || async {
            let heard = self.heard.lock();
            let Some(last) = heard.seconds.last() else { return Ok(Err("nothing heard".into())) };
            let fine = last.t > from && last.unavailable == 0 && last.stores == stores;
            let word = || {
                format!("{} stores answer, {} replicas of a shard unavailable", last.stores, last.unavailable)
            };
            Ok(if fine { Ok(()) } else { Err(word()) })
        };
        stage.kube.until("all replicas available", CALM_WAIT, calm).await
    }

    /// Ends it and takes its verdict.
    pub async fn stop(&self, stage: &Stage) -> Result<Verdict> {
        let args = ["-n", &stage.kube.namespace, "exec", self.name, "--", "/e2e", "load-stop"];
        let ended = stage.kube.try_run("kubectl", &args, None, STOP_WAIT).await?;
        let text = must("kubectl", &args, ended)?;
        let mut heard = self.heard.lock();
        heard.hear(text.trim());
        heard
            .verdict
            .clone()
            .ok_or_else(|| HarnessError::Other(format!("the load ended without a verdict: {text}")))
    }

    /// Latencies and failures of every phase.
    pub fn table(&self) -> String {
        self.heard.lock().table(&self.phases.lock())
    }

    /// What is wrong with its verdict, and the first failures with their phase.
    pub fn problems(&self, verdict: &Verdict, failed_allowed: bool, unavailable_max: usize) -> Vec<String> {
        let mut found = problems(verdict, failed_allowed, unavailable_max);
        let (heard, phases) = (self.heard.lock(), self.phases.lock());
        if !found.is_empty() {
            for failed in heard.failures.iter().take(5) {
                let phase = phases.iter().find(|phase| failed.t > phase.from && failed.t <= phase.to);
                let phase = phase.map(|phase| phase.name.as_str()).unwrap_or("between phases");
                found.push(format!(
                    "in {phase}: {} {} of {} {} after {} ms: {}",
                    failed.via, failed.op, failed.key, failed.how, failed.ms, failed.error
                ));
            }
        }
        found
    }
}

/// Reads its log for as long as there is one; begins again where it was cut off.
async fn follow(kube: super::Kube, name: &'static str, heard: Arc<Mutex<Heard>>) {
    loop {
        let mut command = kube.command("kubectl");
        command.args(["-n", &kube.namespace, "logs", "-f", name]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Ok(mut child) = command.spawn() {
            if let Some(out) = child.stdout.take() {
                let mut lines = BufReader::new(out).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    heard.lock().hear(&line);
                }
            }
            // Whether it ended well says nothing: the log is asked for again.
            let _ = child.wait().await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
