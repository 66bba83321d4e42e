//! The tool `undb` in a Pod: it says what a person needs to know.

use super::super::found;
use crate::case::Failure;
use crate::harness::{HarnessError, Result};
use crate::k8s::objects::STORES;
use crate::k8s::{Client, Stage, state};
use serde_json::{Value, json};
use std::time::Duration;

const TABLE: &str = "changes";
const LOADED: &str = "load";
/// Until the control plane has heard of what the stores do.
const HEARD_WAIT: Duration = Duration::from_secs(60);
const SETTLED_WAIT: Duration = Duration::from_secs(120);

/// A shard and its leader's store are explained; the store is cordoned, and takes replicas again.
pub(super) async fn cordon(stage: &Stage, client: &Client) -> Result<(), Failure> {
    let (shard, holders, store) = shard_and_store(stage, client).await?;
    let on: Vec<String> = holders.iter().map(|store| format!("on store {store}: ")).collect();
    let mut words: Vec<&str> = on.iter().map(String::as_str).collect();
    words.extend(["of table load", "leader", "is fine", "wanted: 3 replicas", "next: "]);
    until_says(stage, client, &format!("explain shard {shard}"), &words).await?;
    let table = ["table load: ready", "0 lack a replica", "wanted: 3 replicas", "next: "];
    until_says(stage, client, &format!("explain table {LOADED}"), &table).await?;
    let explain = format!("explain store {store}");
    until_says(stage, client, &explain, &["StoreCluster default", "is Up", " leaders", "next: "]).await?;

    let said = tell(stage, client, &format!("cordon store {store}")).await?;
    contains_all("cordon", &said, &[&format!("store {store} is cordoned"), "gets nothing new"])?;
    until_says(stage, client, &explain, &["is Cordoned", "it takes no new replicas now"]).await?;
    until_says(stage, client, "get stores", &["Cordoned"]).await?;
    let said = tell(stage, client, &format!("uncordon store {store}")).await?;
    contains_all("uncordon", &said, &[&format!("store {store} takes replicas and leaders")])?;
    until_says(stage, client, &explain, &["is Up"]).await?;
    Ok(())
}

/// With as many stores as copies a drain cannot end: it says so, and is called off.
pub(super) async fn drain(stage: &Stage, client: &Client) -> Result<(), Failure> {
    let (_, _, store) = shard_and_store(stage, client).await?;
    let explain = format!("explain store {store}");
    let said = tell(stage, client, &format!("drain store {store}")).await;
    let explained = until_says(stage, client, &explain, &["is Draining", "still to move", "waits: "]).await;
    // Whatever was said, it must not stay so.
    let undone = tell(stage, client, &format!("uncordon store {store}")).await?;
    let draining = format!("store {store} is being drained");
    contains_all("drain", &said?, &[&draining, "are to move", "start more stores"])?;
    explained?;
    contains_all("uncordon", &undone, &[&format!("the drain of store {store} is cancelled")])?;
    until_says(stage, client, &explain, &["is Up"]).await?;
    Ok(())
}

/// A quota is kept, what was written stays; with `deletionPolicy: Delete` the table is gone for the tool, too.
pub(super) async fn table(stage: &Stage, client: &Client) -> Result<(), Failure> {
    stage.table(TABLE, STORES, 2).await?;
    tell(stage, client, &format!("kv put greeting hello --table {TABLE}")).await?;
    let quota = json!({"bytes": "10Gi", "requestsPerSecond": 100_000});
    stage.kube.patch("table", TABLE, &json!({"spec": {"quota": quota}})).await?;
    stage.object_settled("table", TABLE, SETTLED_WAIT).await?;
    let tables = objects(stage, client, "get tables -o json").await?;
    let found_quota = tables.iter().find(|table| state::name(table) == TABLE).map(|t| &t["spec"]["quota"]);
    if found_quota.is_none_or(|quota| quota["requestsPerSecond"] != 100_000 || quota["bytes"].is_null()) {
        return Err(found(format!(
            "the quota that was set is not what `undb get tables` has: {found_quota:?}"
        )));
    }
    let said = tell(stage, client, &format!("kv get greeting --table {TABLE}")).await?;
    contains_all("kv get", &said, &["hello"])?;
    let args = ["delete", "table", TABLE, "--wait", "--timeout=100s"];
    stage.kube.kubectl(&args).await?;
    let gone = || async {
        let tables = objects(stage, client, "get tables -o json").await?;
        let left: Vec<String> = tables.iter().map(state::name).collect();
        let is_there = left.iter().any(|name| name == TABLE);
        Ok(if is_there { Err(format!("tables {left:?}")) } else { Ok(left) })
    };
    let left = stage.kube.until(&format!("`undb get tables` without {TABLE}"), HEARD_WAIT, gone).await?;
    stage.steps.say(format_args!("{TABLE} is deleted; `undb get tables` has {left:?}"));
    Ok(())
}

/// A new connection is served.
pub(super) async fn answers(stage: &Stage, client: &Client) -> Result<(), Failure> {
    until_says(stage, client, &format!("get table {LOADED}"), &[LOADED]).await.map(|_| ()).map_err(Into::into)
}

/// A shard of the load, the stores that hold it, and its leader's store.
async fn shard_and_store(stage: &Stage, client: &Client) -> Result<(String, Vec<u64>, u64), Failure> {
    let shards = objects(stage, client, &format!("get shards --table {LOADED} -o json")).await?;
    let led = shards.iter().find_map(|shard| Some((shard, shard["status"]["leader"]["store"].as_u64()?)));
    let Some((shard, store)) = led else {
        return Err(found(format!("no shard of {LOADED} with a leader: {shards:?}")));
    };
    let replicas = shard["status"]["replicas"].as_array().cloned().unwrap_or_default();
    Ok((state::name(shard), replicas.iter().filter_map(|r| r["store"].as_u64()).collect(), store))
}

/// Runs `undb COMMAND` and prints what it said.
async fn tell(stage: &Stage, client: &Client, command: &str) -> Result<String> {
    let said = quietly(stage, client, command).await?;
    stage.steps.say(format_args!("undb {command}: {}", said.trim()));
    Ok(said)
}

async fn quietly(stage: &Stage, client: &Client, command: &str) -> Result<String> {
    let args: Vec<&str> = ["/undb"].into_iter().chain(command.split_whitespace()).collect();
    client.exec(stage, &args).await
}

async fn objects(stage: &Stage, client: &Client, command: &str) -> Result<Vec<Value>> {
    let said = quietly(stage, client, command).await?;
    let parsed: serde_json::Result<Value> = serde_json::from_str(&said);
    Ok(items(parsed.map_err(|e| HarnessError::Other(format!("undb {command}: {e}: {said}")))?))
}

/// One object is printed alone, several as a list.
fn items(printed: Value) -> Vec<Value> {
    match printed["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![printed],
    }
}

/// Asks until all words are said; the answer is printed.
async fn until_says(stage: &Stage, client: &Client, command: &str, words: &[&str]) -> Result<String> {
    let ask = || async {
        let said = quietly(stage, client, command).await?;
        let missing = missing(&said, words);
        Ok(if missing.is_empty() { Ok(said) } else { Err(format!("without {missing:?}: {}", said.trim())) })
    };
    let what = format!("`undb {command}` says what a person needs");
    let said = stage.kube.until(&what, HEARD_WAIT, ask).await?;
    stage.steps.say(format_args!("undb {command}:\n{}", said.trim()));
    Ok(said)
}

fn contains_all(command: &str, said: &str, words: &[&str]) -> Result<(), Failure> {
    let missing = missing(said, words);
    if missing.is_empty() {
        return Ok(());
    }
    Err(found(format!("`undb {command}` does not say {missing:?}: {}", said.trim())))
}

fn missing<'a>(said: &str, words: &[&'a str]) -> Vec<&'a str> {
    words.iter().filter(|word| !said.contains(**word)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_alone_is_read_like_a_list() {
        let one = json!({"kind": "Table", "metadata": {"name": "load"}});
        assert_eq!(items(one.clone()), vec![one.clone()]);
        assert_eq!(items(json!({"kind": "List", "items": [one.clone(), one]})).len(), 2);
        assert!(items(json!({"kind": "List", "items": []})).is_empty());
    }

    #[test]
    fn what_is_not_said_is_named_beside_what_was() {
        assert!(contains_all("cordon", "store 3 is cordoned", &["store 3", "cordoned"]).is_ok());
        let error = contains_all("cordon", "store 3 is up", &["store 3", "cordoned"]).expect_err("missing");
        assert_eq!(error.to_string(), "`undb cordon` does not say [\"cordoned\"]: store 3 is up");
    }
}
