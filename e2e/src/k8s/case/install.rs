//! An empty cluster, one command, a working database.

use super::found;
use crate::case::{Failure, Run};
use crate::k8s::Stage;
use crate::k8s::stage::SETTLE_WAIT;

const CASE: &str = "k8s-install";

/// Runs the case.
pub async fn run(_: Run) -> Result<String, Failure> {
    let stage = Stage::bare(CASE).await?;
    let result = play(&stage).await;
    stage.finish(result).await
}

pub(super) async fn play(stage: &Stage) -> Result<String, Failure> {
    stage.steps.step("clear", stage.clear()).await?;
    let left = stage.kube.try_kubectl(&["get", "storeclusters"]).await?;
    if left.ok {
        return Err(found("the resource definitions are still there after everything was removed"));
    }
    stage.steps.step("helm install", stage.install(&[])).await?;
    stage.steps.step("ready", stage.settled(SETTLE_WAIT)).await?;
    let test = ["test", "undb", "--logs", "--timeout", "120s"];
    let said = stage.steps.step("helm test", stage.kube.helm(&test)).await?;
    stage.steps.say(said.lines().last().unwrap_or_default());
    let seconds = stage.steps.seconds("helm install") + stage.steps.seconds("ready");
    Ok(format!(
        "from `helm install` to ready {seconds:.1} s; helm test {:.1} s",
        stage.steps.seconds("helm test")
    ))
}
