//! What needs no cluster: help, exit codes, and what is said about wrong input.

mod harness;

use harness::{undb, undb_fed};

/// A port that nobody listens on while the listener's number is ours.
const NOBODY: &str = "127.0.0.1:1";

#[test]
fn the_exit_codes_are_documented() {
    let ran = undb(&["help", "exit-codes"]);
    assert_eq!(ran.code, 0);
    for code in ["0 ", "1 ", "2 ", "3 ", "7 ", "8 ", "12 ", "130 "] {
        assert!(ran.text().lines().any(|line| line.starts_with(code)), "{code}: {}", ran.text());
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in [
        "dev", "run", "apply", "get", "describe", "delete", "undelete", "status", "kv", "kv put", "kv get",
        "kv del", "kv scan", "kv cas", "kv incr", "kv ttl", "import", "bench", "bench kv", "inspect",
    ] {
        let words: Vec<&str> = ["help"].into_iter().chain(command.split(' ')).collect();
        let ran = undb(&words);
        assert_eq!(ran.code, 0, "{command}: {}", ran.stderr);
        assert!(ran.text().contains("Example"), "{command}: {}", ran.text());
    }
    assert_eq!(undb(&["help", "nonsense"]).code, 2);
}

#[test]
fn a_wrong_command_line_exits_2() {
    for args in [
        &["nonsense"][..],
        &["kv", "get"],
        &["kv", "put", "key", "value", "--nonsense"],
        &["kv", "put", "key", "value", "--file", "x"],
        &["kv", "put", "key", "value", "--if-absent", "--if-present"],
        &["kv", "put", "key", "value", "--ttl", "soon"],
        &["kv", "get", "--base64", "%%%"],
        &["kv", "cas", "key", "value"],
        &["get", "nonsense"],
        &["delete", "store", "1"],
        &["import", "--key", "{", "x.csv"],
        &["import", "--key", "id", "no-extension"],
        &["run", "nonsense", "--config", "x"],
        &["bench", "kv", "--rate", "0"],
    ] {
        let ran = undb(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.is_empty() && ran.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn an_empty_stdin_is_not_taken_for_a_value() {
    let ran = undb_fed(&["kv", "put", "key"], b"");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("stdin is empty"), "{}", ran.stderr);
}

#[test]
fn nobody_at_the_endpoint_exits_3_and_says_what_to_start() {
    for args in [&["kv", "get", "key"][..], &["status"], &["get", "tables"]] {
        let ran = undb(&[args, &["--endpoint", NOBODY, "--timeout", "1"]].concat());
        assert_eq!(ran.code, 3, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("undb dev") || ran.stderr.contains(NOBODY), "{}", ran.stderr);
    }
}

#[test]
fn a_missing_token_file_exits_11() {
    let ran = undb(&["status", "--token-file", "/nowhere/token"]);
    assert_eq!(ran.code, 11);
    assert!(ran.stderr.contains("/nowhere/token"), "{}", ran.stderr);
}

#[test]
fn wrong_yaml_is_told_with_line_and_column_before_anything_is_sent() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("t.yaml");
    std::fs::write(
        &file,
        "apiVersion: undb.io/v1alpha1\nkind: Table\nmetadata: {name: t}\nspec:\n  replicas: 3\n",
    )
    .expect("write");
    let ran = undb(&["apply", "-f", &file.to_string_lossy(), "--endpoint", NOBODY]);
    assert_eq!(ran.code, 6, "{}", ran.stderr);
    assert!(ran.stderr.contains("t.yaml:5:3: spec.replicas: unknown field"), "{}", ran.stderr);
    assert_eq!(undb(&["apply", "-f", &dir.path().join("none.yaml").to_string_lossy()]).code, 11);
    let empty = tempfile::tempdir().expect("temp dir");
    assert_eq!(undb(&["apply", "-f", &empty.path().to_string_lossy()]).code, 6);
}

#[test]
fn what_is_not_there_yet_says_so() {
    for command in ["export", "split", "merge", "migrate", "backup"] {
        let ran = undb(&[command, "--table", "t"]);
        assert_eq!(ran.code, 9, "{command}: {}", ran.stderr);
        assert!(ran.stderr.contains("not supported yet"), "{}", ran.stderr);
    }
}

#[test]
fn each_role_prints_its_configuration_and_refuses_a_wrong_one() {
    let dir = tempfile::tempdir().expect("temp dir");
    for role in ["meta", "control", "router", "access", "store", "proxy"] {
        let ran = undb(&["run", role, "--print-config"]);
        assert_eq!(ran.code, 0, "{role}: {}", ran.stderr);
        let file = dir.path().join(format!("{role}.toml"));
        std::fs::write(&file, format!("{}\nnonsense = 1\n", ran.text())).expect("write");
        let ran = undb(&["run", role, "--config", &file.to_string_lossy()]);
        assert_eq!(ran.code, 6, "{role}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("nonsense") && ran.stderr.contains(&format!("{role}.toml:")),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(undb(&["run", "store", "--config", "/nowhere/store.toml"]).code, 11);
}

#[test]
fn dev_refuses_other_machines_without_a_token() {
    let dir = tempfile::tempdir().expect("temp dir");
    let ran = undb(&["dev", "--dir", &dir.path().to_string_lossy(), "--api", "0.0.0.0:0"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("--token-file"), "{}", ran.stderr);
}

#[test]
fn a_port_in_use_is_told_by_the_name_of_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let dir = tempfile::tempdir().expect("temp dir");
    let dir = dir.path().to_string_lossy().into_owned();
    let ran =
        undb(&["dev", "--dir", &dir, "--api", "127.0.0.1:0", "--resp", &address, "--http", "127.0.0.1:0"]);
    assert_eq!(ran.code, 11);
    assert!(ran.stderr.contains("port is in use") && ran.stderr.contains("--resp"), "{}", ran.stderr);
}

#[test]
fn inspect_refuses_what_is_not_ours() {
    let dir = tempfile::tempdir().expect("temp dir");
    let ran = undb(&["inspect", &dir.path().to_string_lossy()]);
    assert_eq!(ran.code, 6, "{}", ran.stderr);
    let file = dir.path().join("photo.jpg");
    std::fs::write(&file, "x").expect("write");
    assert_eq!(undb(&["inspect", &file.to_string_lossy()]).code, 6);
    assert_eq!(undb(&["inspect", "/nowhere"]).code, 11);
}
