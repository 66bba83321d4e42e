//! A whole cluster through the command line: what is written is read, listed, imported, kept over a
//! restart, and found good on disk.

mod harness;

use harness::{Dev, undb};
use std::path::Path;

#[test]
fn a_cluster_is_used_restarted_and_inspected() {
    let dir = tempfile::tempdir().expect("temp dir");
    let data = dir.path().join("data");
    let dev = Dev::start(&data);
    assert!(dev.ready.contains("kv put") && dev.ready.contains("redis-cli"), "{}", dev.ready);

    records(&dev);
    one_redis_command(&dev);
    objects(&dev);
    import(&dev, dir.path());
    in_use(&data);

    let dev = dev.restart(&data);
    assert_eq!(dev.good(&["kv", "get", "greeting"]), "hi");
    assert_eq!(dev.good(&["kv", "scan", "--table", "letters", "--count"]), "26\n");
    assert_eq!(dev.good(&["kv", "incr", "visits"]), "8\n");
    dev.stop();

    let ran = undb(&["inspect", &data.to_string_lossy()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.text().contains("metadata member") && ran.text().contains("store-3"), "{}", ran.text());
    let ran = undb(&["inspect", "--check", &data.to_string_lossy()]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.text(), ran.stderr);
    assert_eq!(ran.text().matches(": good").count(), 3, "{}", ran.text());
}

fn records(dev: &Dev) {
    assert_eq!(dev.good(&["kv", "put", "greeting", "hello"]), "");
    assert_eq!(dev.good(&["kv", "get", "greeting"]), "hello");

    let absent = dev.run(&["kv", "get", "nothing"]);
    assert_eq!((absent.code, absent.stdout.len()), (1, 0));
    assert_eq!(absent.stderr.lines().count(), 1, "{}", absent.stderr);

    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    assert_eq!(dev.run_fed(&["kv", "put", "binary"], &bytes).code, 0);
    assert_eq!(dev.run(&["kv", "get", "binary"]).stdout, bytes);

    let json: serde_json::Value =
        serde_json::from_str(&dev.good(&["kv", "get", "greeting", "--json"])).expect("json");
    assert_eq!(json["value"], "hello");
    assert_eq!(dev.run(&["kv", "cas", "greeting", "hi", "--expect", "nope"]).code, 7);
    let version = json["version"].to_string();
    assert_eq!(dev.good(&["kv", "cas", "greeting", "hi", "--version", &version]), "");
    assert_eq!(dev.run(&["kv", "cas", "greeting", "ho", "--version", &version]).code, 7);
    assert_eq!(dev.run(&["kv", "put", "greeting", "x", "--if-absent"]).code, 7);

    assert_eq!(dev.good(&["kv", "incr", "visits", "10"]), "10\n");
    assert_eq!(dev.good(&["kv", "incr", "visits", "-3"]), "7\n");
    assert_eq!(dev.run(&["kv", "incr", "greeting"]).code, 6);

    assert_eq!(dev.good(&["kv", "ttl", "greeting"]), "never\n");
    dev.good(&["kv", "ttl", "greeting", "--set", "1h"]);
    let left: u64 = dev.good(&["kv", "ttl", "greeting"]).trim().parse().expect("seconds");
    assert!((3000..=3600).contains(&left), "{left}");
    dev.good(&["kv", "ttl", "greeting", "--persist"]);

    for (key, sort) in [("user:1", "name"), ("user:1", "age"), ("user:2", "name")] {
        dev.good(&["kv", "put", key, "v", "--sort-key", sort]);
    }
    assert_eq!(
        dev.good(&["kv", "scan", "--prefix", "user:"]),
        "user:1\tage\tv\nuser:1\tname\tv\nuser:2\tname\tv\n"
    );
    assert_eq!(
        dev.good(&["kv", "scan", "--key", "user:1", "--reverse", "--limit", "1"]),
        "user:1\tname\tv\n"
    );
    assert_eq!(dev.good(&["kv", "del", "--prefix", "user:"]), "3 deleted\n");
    assert_eq!(dev.run(&["kv", "del", "binary"]).code, 0);
    assert_eq!(dev.run(&["kv", "del", "binary"]).code, 1);
    assert_eq!(dev.run(&["kv", "get", "x", "--table", "nothing"]).code, 5);
}

fn one_redis_command(dev: &Dev) {
    let resp = |args: &[&str]| undb(&[&["resp", "--proxy", &dev.resp][..], args].concat());
    assert_eq!(resp(&["SET", "over-resp", "-1"]).text(), "OK\n");
    assert_eq!(resp(&["--table", "default", "GET", "over-resp"]).text(), "-1\n");
    assert_eq!(dev.good(&["kv", "get", "over-resp"]), "-1");
    let absent = resp(&["GET", "nothing"]);
    assert_eq!((absent.code, absent.stdout.len()), (1, 0), "{}", absent.stderr);
    let refused = resp(&["NOSUCH"]);
    assert!(refused.code == 6 && refused.stderr.contains("unknown command"), "{}", refused.stderr);
    let elsewhere = undb(&["resp", "--proxy", "127.0.0.1:1", "--timeout", "0.5", "PING"]);
    assert!(elsewhere.code == 3 && elsewhere.stderr.contains("--proxy"), "{}", elsewhere.stderr);
}

fn objects(dev: &Dev) {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let applied = dev.run(&["apply", "-f", examples]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.text().contains("storecluster/small-values created"), "{}", applied.text());
    assert!(applied.text().contains("table/packages created"), "{}", applied.text());
    assert!(applied.stderr.contains("warning:"), "{}", applied.stderr);
    assert!(dev.good(&["apply", "-f", examples]).contains("table/packages unchanged"));

    assert!(dev.good(&["get", "tables"]).contains("packages"));
    assert_eq!(dev.good(&["get", "stores"]).lines().count(), 4);
    assert_eq!(dev.good(&["get", "shards", "--table", "packages"]).lines().count(), 4);
    let yaml = dev.good(&["get", "table", "sessions", "-o", "yaml"]);
    assert!(undb_spec::parse_yaml(&yaml, "get").is_ok(), "{yaml}");
    assert_eq!(dev.run(&["get", "table", "nothing"]).code, 5);
    assert!(dev.good(&["describe", "table", "packages"]).contains("shards (3)"));
    dev.good(&["delete", "table", "sessions"]);
    dev.good(&["undelete", "table", "sessions"]);
}

fn import(dev: &Dev, dir: &Path) {
    let table = dir.join("letters.yaml");
    std::fs::write(
        &table,
        "apiVersion: undb.io/v1alpha1\nkind: Table\nmetadata: {name: letters}\nspec: {partitioning: {type: hash, shards: 2}}\n",
    )
    .expect("write");
    dev.good(&["apply", "-f", &table.to_string_lossy()]);
    let file = dir.join("letters.csv");
    let mut text = String::from("letter,number\n");
    ('a'..='z').enumerate().for_each(|(i, letter)| text.push_str(&format!("{letter},{i}\n")));
    text.push_str("short\n");
    std::fs::write(&file, text).expect("write");
    let file = file.to_string_lossy().into_owned();
    let ran = dev.run(&["import", "--table", "letters", "--key", "letter", "--value", "number", &file]);
    assert_eq!(ran.code, 10, "{}", ran.stderr);
    let rejected = std::fs::read_to_string(format!("{file}.rejected.jsonl")).expect("rejected rows");
    assert!(rejected.contains("\"line\":28") && rejected.contains("1 columns"), "{rejected}");
    assert_eq!(dev.good(&["kv", "get", "--table", "letters", "c"]), "2");
}

fn in_use(data: &Path) {
    let ran = undb(&[
        "dev",
        "--dir",
        &data.to_string_lossy(),
        "--api",
        "127.0.0.1:0",
        "--resp",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
    ]);
    assert_eq!(ran.code, 11, "{}", ran.stderr);
    assert!(ran.stderr.contains("in use by process"), "{}", ran.stderr);
    let store = data.join("store-1");
    let ran = undb(&["inspect", "--check", &store.to_string_lossy()]);
    assert_eq!(ran.code, 11, "{}", ran.stderr);
}

#[test]
fn only_the_right_token_gets_in() {
    let dir = tempfile::tempdir().expect("temp dir");
    let token = dir.path().join("token");
    std::fs::write(&token, "correct-horse\n").expect("write");
    let wrong = dir.path().join("wrong");
    std::fs::write(&wrong, "incorrect-horse\n").expect("write");
    let data = dir.path().join("data");
    let (token, wrong) = (token.to_string_lossy().into_owned(), wrong.to_string_lossy().into_owned());
    let dev = Dev::start_at(&data, ["127.0.0.1:0"; 3], &["--stores", "1", "--token-file", &token]);
    let denied = dev.run(&["kv", "put", "a", "b"]);
    assert_eq!(denied.code, 4, "{}", denied.stderr);
    assert!(denied.stderr.contains("--token-file"), "{}", denied.stderr);
    assert_eq!(dev.run(&["status", "--token-file", &wrong]).code, 4);
    assert_eq!(dev.good(&["kv", "put", "a", "b", "--token-file", &token]), "");
    assert_eq!(dev.good(&["kv", "get", "a", "--token-file", &token]), "b");
    let resp = |token: &[&str]| undb(&[&["resp", "--proxy", &dev.resp][..], token, &["GET", "a"]].concat());
    assert_eq!(resp(&["--token-file", &token]).text(), "b\n");
    for denied in [resp(&[]), resp(&["--token-file", &wrong])] {
        assert!(denied.code == 4 && denied.stderr.contains("--token-file"), "{}", denied.stderr);
    }
    dev.stop();
}
