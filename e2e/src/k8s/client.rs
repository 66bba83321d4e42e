//! A Pod with the client's programs and Secrets, in which commands run.

use super::Stage;
use super::kube::{Ended, must};
use super::objects;
use crate::harness::Result;
use std::time::Duration;

const EXEC_WAIT: Duration = Duration::from_secs(300);

/// The Pod.
#[derive(Clone, Debug)]
pub struct Client {
    name: String,
}

impl Client {
    /// Starts it, or finds it, on a node.
    pub async fn start(stage: &Stage, node: &str) -> Result<Client> {
        let name = "e2e-client";
        let pod = objects::client_pod(name, &stage.client_image(), node, &["wait".into()]);
        stage.restart_pod(name, &pod).await?;
        Ok(Client { name: name.into() })
    }

    /// Runs a program of the image: `/undb`, `/debian-packages`. A failure is an answer.
    pub async fn try_exec(
        &self,
        stage: &Stage,
        args: &[&str],
        input: Option<&str>,
        wait: Duration,
    ) -> Result<Ended> {
        let head = ["-n", &stage.kube.namespace, "exec"];
        let stdin: &[&str] = if input.is_some() { &["-i"] } else { &[] };
        let all =
            head.iter().chain(stdin).copied().chain([self.name.as_str(), "--"]).chain(args.iter().copied());
        stage.kube.try_run("kubectl", &all.collect::<Vec<_>>(), input, wait).await
    }

    /// The same; a failure is an error.
    pub async fn exec(&self, stage: &Stage, args: &[&str]) -> Result<String> {
        let ended = self.try_exec(stage, args, None, EXEC_WAIT).await?;
        must("exec", args, ended)
    }
}
