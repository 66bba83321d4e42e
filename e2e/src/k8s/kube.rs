//! kubectl and helm as processes.

use crate::harness::{HarnessError, Result};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const CALL_WAIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(500);

/// How a process ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code was 0.
    pub ok: bool,
    /// What it printed.
    pub out: String,
    /// What it complained about.
    pub err: String,
}

impl Ended {
    /// Both outputs, for errors and for looking for words.
    pub fn text(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

/// A cluster as its administrator sees it.
#[derive(Clone, Debug)]
pub struct Kube {
    /// KUBECONFIG.
    pub config: PathBuf,
    /// In front of PATH: kubectl and helm of an own cluster.
    pub path: Option<PathBuf>,
    /// Where everything happens unless a call says otherwise.
    pub namespace: String,
}

impl Kube {
    /// The command, not started.
    pub fn command(&self, program: &str) -> Command {
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        if let Some(first) = &self.path {
            let mut joined = first.clone().into_os_string();
            joined.push(":");
            joined.push(&path);
            path = joined;
        }
        let mut program: PathBuf = program.into();
        if let Some(own) = self.path.as_ref().map(|dir| dir.join(&program)).filter(|own| own.is_file()) {
            program = own;
        }
        let mut command = Command::new(program);
        command.env("KUBECONFIG", &self.config).env("PATH", path).kill_on_drop(true);
        command
    }

    /// Runs a program to its end; an exit code other than 0 is an answer.
    pub async fn try_run(
        &self,
        program: &str,
        args: &[&str],
        input: Option<&str>,
        wait: Duration,
    ) -> Result<Ended> {
        let mut command = self.command(program);
        command.args(args);
        run(command, input, wait).await
    }

    /// kubectl in the namespace; a failure is an error.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let ended = self.try_kubectl(args).await?;
        must("kubectl", args, ended)
    }

    /// kubectl in the namespace; a failure is an answer.
    pub async fn try_kubectl(&self, args: &[&str]) -> Result<Ended> {
        self.try_kubectl_for(args, CALL_WAIT).await
    }

    /// The same, with patience.
    pub async fn try_kubectl_for(&self, args: &[&str], wait: Duration) -> Result<Ended> {
        let all: Vec<&str> = ["-n", &self.namespace].into_iter().chain(args.iter().copied()).collect();
        self.try_run("kubectl", &all, None, wait).await
    }

    /// helm in the namespace.
    pub async fn helm(&self, args: &[&str]) -> Result<String> {
        let all: Vec<&str> = ["-n", &self.namespace].into_iter().chain(args.iter().copied()).collect();
        let ended = self.try_run("helm", &all, None, Duration::from_secs(900)).await?;
        must("helm", args, ended)
    }

    /// `kubectl get ... -o json`.
    pub async fn get(&self, args: &[&str]) -> Result<Value> {
        let all: Vec<&str> = ["get"].into_iter().chain(args.iter().copied()).chain(["-o", "json"]).collect();
        let text = self.kubectl(&all).await?;
        serde_json::from_str(&text).map_err(|e| HarnessError::Other(format!("kubectl get {args:?}: {e}")))
    }

    /// The items of a list; an unknown kind or nothing there is an empty list.
    pub async fn list(&self, args: &[&str]) -> Result<Vec<Value>> {
        let all = self.get(args).await?;
        Ok(all["items"].as_array().cloned().unwrap_or_default())
    }

    /// An object, if it is there.
    pub async fn find(&self, args: &[&str]) -> Result<Option<Value>> {
        let all: Vec<&str> = ["get"]
            .into_iter()
            .chain(args.iter().copied())
            .chain(["--ignore-not-found", "-o", "json"])
            .collect();
        let text = self.kubectl(&all).await?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let parsed = serde_json::from_str(&text);
        parsed.map(Some).map_err(|e| HarnessError::Other(format!("kubectl get {args:?}: {e}")))
    }

    /// Applies objects.
    pub async fn apply(&self, objects: &Value) -> Result<()> {
        let ended = self.try_apply(&objects.to_string()).await?;
        must("kubectl", &["apply"], ended).map(|_| ())
    }

    /// Applies text; a refusal is an answer.
    pub async fn try_apply(&self, text: &str) -> Result<Ended> {
        let args = ["-n", &self.namespace, "apply", "-f", "-"];
        self.try_run("kubectl", &args, Some(text), CALL_WAIT).await
    }

    /// A merge patch.
    pub async fn patch(&self, kind: &str, name: &str, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        self.kubectl(&["patch", kind, name, "--type", "merge", "-p", &patch]).await?;
        Ok(())
    }

    /// Asks for an eviction, as `kubectl drain` does. The answer's text names what blocks it.
    pub async fn evict(&self, pod: &str, dry_run: bool) -> Result<Ended> {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", self.namespace);
        let mut body = serde_json::json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
        });
        if dry_run {
            body["deleteOptions"] = serde_json::json!({"dryRun": ["All"]});
        }
        let args = ["create", "--raw", &path, "-f", "-"];
        self.try_run("kubectl", &args, Some(&body.to_string()), CALL_WAIT).await
    }

    /// Asks until the answer is something, or time is over; then `what` and the last word are the error.
    pub async fn until<T, F: Future<Output = Result<Result<T, String>>>>(
        &self,
        what: &str,
        wait: Duration,
        mut ask: impl FnMut() -> F,
    ) -> Result<T> {
        let until = Instant::now() + wait;
        loop {
            // A call that fails is a "not yet", too: an API server may be slow for a moment.
            let word = match ask().await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(word)) => word,
                Err(error) => error.to_string(),
            };
            if Instant::now() >= until {
                return Err(HarnessError::Other(format!("{what}: not within {wait:?}; last seen: {word}")));
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Runs a command to its end.
pub async fn run(mut command: Command, input: Option<&str>, wait: Duration) -> Result<Ended> {
    let shown = format!("{:?}", command.as_std());
    let what = || format!("running {shown:.300}");
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(HarnessError::io(what()))?;
    let pipe = child.stdin.take();
    let feed = async {
        if let (Some(text), Some(mut pipe)) = (input, pipe) {
            // A program that reads nothing says itself what is wrong.
            let _ = pipe.write_all(text.as_bytes()).await;
        }
    };
    // At the same time: one that answers while it reads would wait for its reader, and we for ours.
    let work = async { tokio::join!(feed, child.wait_with_output()).1 };
    let Ok(output) = tokio::time::timeout(wait, work).await else {
        return Ok(Ended {
            ok: false,
            out: String::new(),
            err: format!("no end within {wait:?}: {shown:.300}"),
        });
    };
    let output = output.map_err(HarnessError::io(what()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ended { ok: output.status.success(), out: text(output.stdout), err: text(output.stderr) })
}

/// The output of what must not fail.
pub fn must(program: &str, args: &[&str], ended: Ended) -> Result<String> {
    if ended.ok {
        return Ok(ended.out);
    }
    Err(HarnessError::Other(format!("{program} {}: {}", args.join(" "), ended.text().trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_answers_while_it_reads_is_fed_and_read_to_its_end() {
        let more_than_a_pipe_holds = "a line\n".repeat(200_000);
        let ended = run(Command::new("cat"), Some(&more_than_a_pipe_holds), Duration::from_secs(60));
        let ended = ended.await.expect("it runs");
        assert!(ended.ok && ended.out == more_than_a_pipe_holds, "{}", ended.err);
    }
}
