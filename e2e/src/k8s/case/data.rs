//! A Pod imports the Debian package index and reads it back, through the SDK and through the proxy.

use super::{first, found, manifests};
use crate::case::import::read_index;
use crate::case::{Failure, Run};
use crate::harness::HarnessError;
use crate::k8s::{Client, Stage, objects};
use serde_json::json;
use std::time::Duration;

const CASE: &str = "k8s-data";
const TABLE: &str = "packages";
const STANZAS_PER_SECOND: u64 = 500;
/// From so many seconds on: all of the index.
const ALL_FROM: Duration = Duration::from_secs(120);
const WAIT: Duration = Duration::from_secs(1800);

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    super::played(CASE, run, play).await
}

async fn play(stage: &Stage, run: Run) -> Result<String, Failure> {
    let part = (run.duration < ALL_FROM).then(|| (run.duration.as_secs() * STANZAS_PER_SECOND).max(5000));
    stage.steps.step("examples", manifests::examples(stage)).await?;
    // `SELECT 1` is the table of the import.
    let tables = json!({"spec": {"proxy": {"tables": ["default", TABLE]}}});
    stage.kube.patch("router", objects::ROUTER, &tables).await?;
    let routed = stage.object_settled("router", objects::ROUTER, Duration::from_secs(180));
    stage.steps.step("proxies with the table", routed).await?;
    let client = Client::start(stage, &first(stage.nodes().await?)?).await?;
    // Cut here: what a program in the Pod does not read would hold up the connection to it.
    let whole = package_index().await?;
    let index = part.map_or(&whole[..], |part| first_stanzas(&whole, part as usize));
    let convert = ["/debian-packages", "convert", "/dev/stdin"];
    let rows = stage.steps.step("convert", piped(stage, &client, &convert, index)).await?;
    let count = rows.lines().count();
    let key = "{package}/{version}/{architecture}";
    let columns = ["--format", "jsonl", "--key", key, "--value", "stanza", "-"];
    let import = [&["/undb", "import", "--quiet", "--table", TABLE][..], &columns].concat();
    let began = std::time::Instant::now();
    stage.steps.step("import", piped(stage, &client, &import, &rows)).await?;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let verify = ["/debian-packages", "verify", "--table", TABLE, "/dev/stdin"];
    let said = stage.steps.step("read back through the SDK", piped(stage, &client, &verify, index)).await?;
    stage.steps.say(said.trim().lines().last().unwrap_or_default());
    let proxy = format!("{}-proxy.{}.svc:6379", objects::ROUTER, stage.kube.namespace);
    let compare = ["/e2e", "resp-compare", "--resp", &proxy, "--db", "1"];
    let said = stage.steps.step("read back through RESP", piped(stage, &client, &compare, &rows)).await?;
    stage.steps.say(said.trim().lines().last().unwrap_or_default());
    Ok(format!(
        "{count} stanzas imported from a Pod at {rate:.0} a second, each equal to its source through SDK and RESP"
    ))
}

async fn piped(stage: &Stage, client: &Client, args: &[&str], input: &str) -> Result<String, Failure> {
    let ended = client.try_exec(stage, args, Some(input), WAIT).await?;
    if ended.ok { Ok(ended.out) } else { Err(found(format!("{}: {}", args[0], ended.err.trim()))) }
}

/// So many records of the index, each with the empty line behind it; all, if there are no more.
fn first_stanzas(index: &str, count: usize) -> &str {
    let end = index.match_indices("\n\n").nth(count.saturating_sub(1)).map_or(index.len(), |(at, _)| at + 2);
    &index[..end]
}

async fn package_index() -> Result<String, Failure> {
    let dir = tempfile::tempdir().map_err(HarnessError::io("making a directory"))?;
    let path = dir.path().join("Packages");
    read_index(&path).await?;
    let bytes = std::fs::read(&path).map_err(HarnessError::io("reading the index"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_cut_behind_whole_stanzas() {
        let index = "Package: a\n\nPackage: b\n\nPackage: c\n";
        assert_eq!(first_stanzas(index, 2), "Package: a\n\nPackage: b\n\n");
        assert_eq!(first_stanzas(index, 9), index);
    }
}
