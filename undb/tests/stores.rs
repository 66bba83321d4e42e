//! Stores that are cordoned, drained and removed, and replicas that are moved, by command line and on
//! real stores: nothing that was written is lost, and every answer says what is next.

mod harness;

use harness::Dev;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(90);
const TABLE: &str = "apiVersion: undb.io/v1alpha1
kind: Table
metadata: {name: t}
spec:
  partitioning: {type: hash, shards: 6}
";

#[test]
fn replicas_move_and_stores_are_drained_and_removed_while_data_stays() {
    let dir = tempfile::tempdir().expect("temp dir");
    let dev = Dev::start_at(&dir.path().join("data"), ["127.0.0.1:0"; 3], &["--stores", "4"]);
    let file = dir.path().join("t.yaml");
    std::fs::write(&file, TABLE).expect("writable");
    dev.good(&["apply", "-f", &file.to_string_lossy()]);
    for i in 0..40 {
        let (key, value) = (format!("k{i}"), format!("v{i}"));
        until("a write", || {
            let ran = dev.run(&["kv", "put", "--table", "t", &key, &value]);
            if ran.code == 0 { Ok(()) } else { Err(ran.stderr) }
        });
    }

    refusals(&dev);
    a_move(&dev);
    let victim = cordon_and_drain(&dev);

    let out = dev.good(&["remove", "store", &victim]);
    assert!(out.contains("removed for ever"), "{out}");
    assert_eq!(dev.good(&["remove", "store", &victim]), out, "again: the same");
    let ran = dev.run(&["uncordon", "store", &victim]);
    assert!(ran.code != 0 && ran.stderr.contains("removed for ever"), "{} {}", ran.code, ran.stderr);
    let data = dir.path().join("data");
    until("its directory to be set aside", || {
        let names = std::fs::read_dir(&data).expect("there").flatten().map(|e| e.file_name());
        let aside = names.into_iter().any(|n| n.to_string_lossy().contains(".removed-"));
        if aside { Ok(()) } else { Err("it is where it was".into()) }
    });
    let dev = dev.restart(&data);
    until("an empty store in its place", || {
        let stores = objects(&dev, "stores");
        let up = stores.iter().filter(|s| s["status"]["state"] == "Up").count();
        if up == 4 { Ok(()) } else { Err(format!("{stores:?}")) }
    });
    for i in 0..40 {
        assert_eq!(dev.good(&["kv", "get", "--table", "t", &format!("k{i}")]), format!("v{i}"));
    }
}

fn refusals(dev: &Dev) {
    let holds = stores_of(&shards(dev)[0]).first().copied().expect("a store").to_string();
    for (args, code, text) in [
        (&["drain", "store", "99"][..], 5, "undb get stores"),
        (&["drain", "store"], 2, "undb get stores"),
        (&["cordon", "table", "t"], 2, "works on stores"),
        (&["explain", "shard", "99999"], 5, "undb get shards"),
        (&["explain", "table", "nope"], 5, "undb get tables"),
        (&["explain", "lease", "1"], 2, "ask for a shard"),
        (&["remove", "store", &holds], 6, "undb drain store"),
        (&["remove", "store", &holds, "--lost"], 6, "it is not lost"),
        (&["move", "replica", "--shard", "99999", "--from", "1", "--to", "2"], 5, "there is no"),
        (&["move", "shard", "--shard", "1", "--from", "1", "--to", "2"], 2, "undb move replica"),
        (&["move", "replica", "--shard", "1"], 2, "--from"),
    ] {
        let ran = dev.run(args);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(text), "{args:?}: {}", ran.stderr);
    }
    assert!(dev.run(&["get", "leases"]).stderr.contains("no leases"));
}

fn a_move(dev: &Dev) {
    let all: BTreeSet<u64> = objects(dev, "stores").iter().map(name).collect();
    let shard = shards(dev).into_iter().find(|s| stores_of(s).len() == 3).expect("three replicas");
    let (id, held) = (name(&shard).to_string(), stores_of(&shard));
    let from = held.first().expect("three").to_string();
    let to = all.difference(&held).next().expect("four stores").to_string();
    let out = dev.good(&["move", "replica", "--shard", &id, "--from", &from, "--to", &to]);
    assert!(out.contains("undb explain shard"), "{out}");
    let ran = dev.run(&["move", "replica", "--shard", &id, "--from", &to, "--to", &to]);
    assert_eq!(ran.code, 6, "{}", ran.stderr);
    until("the replica to have moved", || {
        let shard = shards(dev).into_iter().find(|s| name(s).to_string() == id).expect("there");
        let explained = dev.good(&["explain", "shard", &id]);
        let moved = stores_of(&shard).contains(&to.parse().expect("a number"))
            && !stores_of(&shard).contains(&from.parse().expect("a number"))
            && shard["status"]["move"].is_null();
        if moved { Ok(()) } else { Err(explained) }
    });
    let ran = dev.run(&["move", "replica", "--shard", &id, "--cancel"]);
    assert_eq!(ran.code, 5, "nothing is left to cancel: {}", ran.stderr);
}

fn cordon_and_drain(dev: &Dev) -> String {
    let victim = stores_of(&shards(dev)[0]).first().copied().expect("a store").to_string();
    let out = dev.good(&["cordon", "store", &victim]);
    assert!(out.contains("is cordoned"), "{out}");
    let store = objects(dev, "stores").into_iter().find(|s| name(s).to_string() == victim).expect("there");
    assert_eq!(store["status"]["state"], "Cordoned");
    assert_eq!(store["status"]["ready"], true);
    dev.good(&["uncordon", "store", &victim]);

    dev.good(&["drain", "store", &victim]);
    let out = dev.good(&["uncordon", "store", &victim]);
    assert!(out.contains("is cancelled"), "{out}");
    let out = dev.good(&["drain", "store", &victim, "--wait", "--within", "90"]);
    assert!(out.contains("it holds nothing"), "{out}");
    let out = dev.good(&["explain", "store", &victim]);
    assert!(out.contains("is Draining") && out.contains("0 replicas, 0 leaders"), "{out}");
    until("all shards to be whole", || {
        let text = dev.run(&["status"]);
        if text.code == 0 { Ok(()) } else { Err(text.text()) }
    });
    for shard in shards(dev) {
        assert!(!stores_of(&shard).contains(&victim.parse().expect("a number")), "{shard}");
    }
    victim
}

fn objects(dev: &Dev, kind: &str) -> Vec<Value> {
    let text = dev.good(&["get", kind, "-o", "json"]);
    let list: Value = serde_json::from_str(&text).expect("JSON");
    list["items"].as_array().expect("several").clone()
}

fn shards(dev: &Dev) -> Vec<Value> {
    objects(dev, "shards")
}

fn name(object: &Value) -> u64 {
    object["metadata"]["name"].as_str().expect("named").parse().expect("a number")
}

fn stores_of(shard: &Value) -> BTreeSet<u64> {
    let replicas = shard["status"]["replicas"].as_array().expect("replicas");
    replicas.iter().map(|r| r["store"].as_u64().expect("a number")).collect()
}

fn until(what: &str, mut done: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match done() {
            Ok(()) => return,
            Err(why) => assert!(Instant::now() < deadline, "{what}: {why}"),
        }
    }
}
