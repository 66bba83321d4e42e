//! The examples apply; what is wrong is refused, with the message that the docs quote.

use super::found;
use crate::case::{Failure, Run};
use crate::harness::HarnessError;
use crate::k8s::{Kube, Stage, state};
use std::path::Path;
use std::time::Duration;

const CASE: &str = "k8s-manifests";
const WRONG: &str = "e2e/manifests/wrong";
const WRONG_MIN: usize = 25;
const NAMESPACE: &str = "undb-e2e-wrong";
const APPLIED_WAIT: Duration = Duration::from_secs(300);

/// Runs the case.
pub async fn run(_: Run) -> Result<String, Failure> {
    let stage = Stage::prepare(CASE).await?;
    let result = play(&stage).await;
    stage.finish(result).await
}

async fn play(stage: &Stage) -> Result<String, Failure> {
    stage.steps.step("kubectl apply -f examples/", examples(stage)).await?;
    let mut wrong = stage.kube.clone();
    wrong.namespace = NAMESPACE.into();
    let result = stage.steps.step("wrong manifests", refusals(stage, &wrong)).await;
    // Objects of a namespace without a control plane; their finalizers have nobody to wait for.
    clear(&wrong).await?;
    let count = result?;
    Ok(format!("examples applied and ready; {count} wrong manifests refused as the docs say"))
}

/// Applies the examples and waits until their tables are ready.
pub(super) async fn examples(stage: &Stage) -> Result<(), HarnessError> {
    stage.kube.kubectl(&["apply", "-f", "examples/"]).await?;
    stage.object_settled("storecluster", "small-values", APPLIED_WAIT).await?;
    for table in ["packages", "sessions"] {
        stage.object_settled("table", table, APPLIED_WAIT).await?;
    }
    Ok(())
}

async fn refusals(stage: &Stage, kube: &Kube) -> Result<usize, Failure> {
    clear(kube).await?;
    kube.kubectl(&["create", "namespace", NAMESPACE]).await?;
    let docs = docs()?;
    let list = std::fs::read_dir(WRONG).map_err(HarnessError::io(format!("listing {WRONG}")))?;
    let mut files: Vec<_> = list.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let (mut problems, mut count, mut quoted) = (Vec::new(), 0, 0);
    for file in &files {
        let text = std::fs::read_to_string(file).map_err(HarnessError::io("reading a manifest"))?;
        let manifest = Wrong::read(file, &text)?;
        match manifest.refused(kube).await? {
            None => count += 1,
            Some(problem) => problems.push(problem),
        }
        quoted += usize::from(docs.contains(manifest.said_by_us()));
    }
    stage.steps.say(format_args!(
        "{count} of {} refused as they say; the docs quote {quoted} messages",
        files.len()
    ));
    if !problems.is_empty() {
        return Err(found(problems.join("\n")));
    }
    if count < WRONG_MIN || quoted < WRONG_MIN {
        return Err(found(format!(
            "{count} wrong manifests, {quoted} of them quoted by the docs; {WRONG_MIN} are wanted"
        )));
    }
    Ok(count)
}

/// All pages, one behind the other.
fn docs() -> Result<String, HarnessError> {
    let mut all = String::new();
    for entry in std::fs::read_dir("docs").map_err(HarnessError::io("listing docs"))?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "md") {
            all += &std::fs::read_to_string(entry.path()).map_err(HarnessError::io("reading a page"))?;
        }
    }
    Ok(all)
}

async fn clear(kube: &Kube) -> Result<(), HarnessError> {
    if kube.find(&["namespace", NAMESPACE]).await?.is_none() {
        return Ok(());
    }
    kube.kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"]).await?;
    for table in kube.list(&["tables"]).await? {
        let patch = serde_json::json!({"metadata": {"finalizers": null}});
        let args = ["patch", "table", &state::name(&table), "--type", "merge", "-p", &patch.to_string()];
        // One that the operator let go meanwhile is not there any more.
        kube.try_kubectl(&args).await?;
    }
    kube.kubectl(&["wait", "--for=delete", "namespace", NAMESPACE, "--timeout=100s"]).await.map(|_| ())
}

/// A file: `# refused: MESSAGE`, documents that are taken, and a last one that is not.
struct Wrong {
    name: String,
    message: String,
    before: Vec<String>,
    last: String,
}

impl Wrong {
    fn read(path: &Path, text: &str) -> Result<Wrong, Failure> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (first, rest) = text.split_once('\n').unwrap_or_default();
        let Some(message) =
            first.strip_prefix("# refused: ").map(str::trim).filter(|message| !message.is_empty())
        else {
            return Err(found(format!("{name}: its first line is not `# refused: MESSAGE`")));
        };
        let mut documents: Vec<String> = rest.split("\n---\n").map(str::to_owned).collect();
        let last = documents.pop().unwrap_or_default();
        Ok(Wrong { name, message: message.into(), before: documents, last })
    }

    /// The message without what the API server puts before it: path and value.
    fn said_by_us(&self) -> &str {
        let rest = self.message.split_once("Invalid value: ").map_or(self.message.as_str(), |(_, rest)| rest);
        rest.rsplit_once("\": ").map_or(rest, |(_, said)| said)
    }

    /// What went otherwise.
    async fn refused(&self, kube: &Kube) -> Result<Option<String>, HarnessError> {
        for document in &self.before {
            let taken = kube.try_apply(document).await?;
            if !taken.ok {
                return Ok(Some(format!(
                    "{}: a document before the last was refused: {}",
                    self.name,
                    taken.text()
                )));
            }
        }
        let ended = kube.try_apply(&self.last).await?;
        if ended.ok {
            return Ok(Some(format!("{}: was accepted; expected: {}", self.name, self.message)));
        }
        let said = ended.text();
        let as_said = said.contains(&self.message);
        Ok((!as_said).then(|| format!("{}: expected {:?}, got {:?}", self.name, self.message, said.trim())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_is_wrong_with_its_last_document() {
        let text = "# refused: spec.replicas: Invalid value: 9: write less\nkind: A\n---\nkind: B\n";
        let wrong = Wrong::read(Path::new("x/01-a.yaml"), text).expect("a wrong manifest");
        assert_eq!((wrong.before.len(), wrong.last.as_str()), (1, "kind: B\n"));
        assert_eq!((wrong.said_by_us(), wrong.name.as_str()), ("9: write less", "01-a.yaml"));
        assert!(Wrong::read(Path::new("x"), "kind: A\n").is_err());
    }

    #[test]
    fn every_wrong_manifest_of_the_tree_says_what_it_expects() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/wrong");
        let mut count = 0;
        for entry in std::fs::read_dir(dir).expect("wrong manifests").flatten() {
            let text = std::fs::read_to_string(entry.path()).expect("readable");
            Wrong::read(&entry.path(), &text).expect("a message");
            count += 1;
        }
        assert!(count >= WRONG_MIN, "only {count}");
    }
}
