//! `undb import` while its cluster goes away.

mod harness;

use harness::{Dev, command};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// More than one batch, so that the first is written before the input ends.
const ROWS: usize = 1_200;

#[test]
fn an_import_without_its_cluster_says_so_soon_and_gives_up_when_it_was_told_to() {
    let dir = tempfile::tempdir().expect("temp dir");
    let dev = Dev::start(&dir.path().join("data"));
    let mut child = command()
        .args(["import", "--key", "id", "--format", "jsonl", "--retry-for", "5", "--endpoint", &dev.api])
        .arg("--rejected")
        .arg(dir.path().join("rejected.jsonl"))
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("piped");
    let mut feed = |from: usize| {
        let rows: String = (from..from + ROWS).map(|n| format!("{{\"id\":\"k{n}\"}}\n")).collect();
        stdin.write_all(rows.as_bytes()).expect("the binary reads");
    };
    feed(0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while dev.run(&["kv", "get", "k0"]).code != 0 {
        assert!(Instant::now() < deadline, "the first batch is written");
    }
    drop(dev);
    feed(ROWS);
    drop(stdin);
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(3), "{stderr}");
    assert!(stderr.contains("no write went through for ") && stderr.contains("(--retry-for)"), "{stderr}");
    assert!(stderr.contains("undb: no progress for 5s: "), "{stderr}");
}
