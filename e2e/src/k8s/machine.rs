//! What hurts a machine: its death, its silence, its network, and a process that stands still.
//!
//! The own cluster and kind can; elsewhere each call answers [`Done::Skipped`], and the case says so.

use super::kube::{Kube, must, run};
use crate::harness::{HarnessError, Result};
use serde_json::Value;
use std::time::Duration;
use tokio::process::Command;

const SCRIPT: &str = "e2e/cluster/cluster";
const CALL_WAIT: Duration = Duration::from_secs(120);

/// Whether it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Done {
    /// It was.
    Yes,
    /// This cluster cannot.
    Skipped,
}

/// Whose machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machines {
    /// `e2e/cluster/cluster`.
    Own,
    /// Containers of kind: a node's name is its container's.
    Kind,
    /// Nobody that could be hurt.
    Unknown,
}

/// Which program a container runs as, on which machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    node: String,
    pid: u32,
}

fn number(node: &str) -> Result<&str> {
    let number = node.strip_prefix("node").filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
    number.ok_or_else(|| HarnessError::Other(format!("{node} is no node of the own cluster")))
}

async fn call(program: &str, args: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args);
    must(program, args, run(command, None, CALL_WAIT).await?)
}

impl Machines {
    /// By what the nodes say of themselves, and whether KUBECONFIG is the own cluster's.
    pub fn of(nodes: &[Value], is_own: bool) -> Machines {
        let is_kind = |node: &Value| {
            node["spec"]["providerID"].as_str().is_some_and(|provider| provider.starts_with("kind://"))
        };
        match (is_own, nodes.iter().all(is_kind) && !nodes.is_empty()) {
            (true, _) => Machines::Own,
            (false, true) => Machines::Kind,
            (false, false) => Machines::Unknown,
        }
    }

    async fn either(&self, node: &str, own: &str, kind: &[&str]) -> Result<Done> {
        match self {
            Machines::Own => call(SCRIPT, &[own, number(node)?]).await?,
            Machines::Kind => {
                let args: Vec<&str> =
                    kind.iter().map(|word| if *word == "NODE" { node } else { word }).collect();
                call("docker", &args).await?
            }
            Machines::Unknown => return Ok(Done::Skipped),
        };
        Ok(Done::Yes)
    }

    /// The machine dies: its kubelet and every container, at once.
    pub async fn kill(&self, node: &str) -> Result<Done> {
        self.either(node, "kill-node", &["kill", "NODE"]).await
    }

    /// It comes back.
    pub async fn start(&self, node: &str) -> Result<Done> {
        self.either(node, "start-node", &["start", "NODE"]).await
    }

    /// No packet between its Pods and those of other machines.
    pub async fn cut(&self, node: &str) -> Result<Done> {
        self.either(node, "cut-node", &["network", "disconnect", "kind", "NODE"]).await
    }

    /// The network is whole again.
    pub async fn heal(&self, node: &str) -> Result<Done> {
        self.either(node, "heal-node", &["network", "connect", "kind", "NODE"]).await
    }

    /// The process of a Pod's first container, if this cluster's machines can be reached.
    pub async fn process_of(&self, kube: &Kube, pod: &str) -> Result<Option<Process>> {
        let pod_json = kube.get(&["pod", pod]).await?;
        let node = pod_json["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        let id = pod_json["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default();
        let id = id.rsplit('/').next().unwrap_or_default().to_owned();
        let tasks = match self {
            Machines::Own => call(SCRIPT, &["ctr", number(&node)?, "tasks", "ls"]).await?,
            Machines::Kind => call("docker", &["exec", &node, "ctr", "-n", "k8s.io", "tasks", "ls"]).await?,
            Machines::Unknown => return Ok(None),
        };
        let pid = pid_of(&tasks, &id);
        let pid = pid
            .ok_or_else(|| HarnessError::Other(format!("{pod}: container {id:?} does not run on {node}")))?;
        Ok(Some(Process { node, pid }))
    }

    /// SIGSTOP, SIGCONT, SIGKILL from the host.
    pub async fn signal(&self, process: &Process, signal: &str) -> Result<Done> {
        let pid = process.pid.to_string();
        let flag = format!("-{signal}");
        match self {
            Machines::Own => call("kill", &[&flag, &pid]).await?,
            Machines::Kind => call("docker", &["exec", &process.node, "kill", &flag, &pid]).await?,
            Machines::Unknown => return Ok(Done::Skipped),
        };
        Ok(Done::Yes)
    }
}

/// The PID of a container in the table `TASK PID STATUS`.
fn pid_of(tasks: &str, id: &str) -> Option<u32> {
    let rows = tasks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.into_iter().find(|row| !id.is_empty() && row.first() == Some(&id))?;
    row.get(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_process_of_a_container_is_found_in_the_table_of_tasks() {
        let tasks = "TASK    PID      STATUS\nabc     4711     RUNNING\nabcd    4712     STOPPED\n";
        assert_eq!(pid_of(tasks, "abcd"), Some(4712));
        assert_eq!(pid_of(tasks, "ab"), None);
        assert_eq!(pid_of(tasks, ""), None);
    }

    #[test]
    fn machines_that_nobody_may_hurt_are_recognized() {
        let kind = json!({"spec": {"providerID": "kind://docker/kind/kind-worker"}});
        let cloud = json!({"spec": {"providerID": "aws:///x"}});
        assert_eq!(Machines::of(std::slice::from_ref(&kind), false), Machines::Kind);
        assert_eq!(Machines::of(&[kind, cloud.clone()], false), Machines::Unknown);
        assert_eq!(Machines::of(&[cloud], true), Machines::Own);
        assert_eq!(Machines::of(&[], false), Machines::Unknown);
    }
}
