//! What ARCHITECTURE.md promises about the tree, proven from the tree itself.

use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("e2e lies in the workspace").to_path_buf()
}

fn packages() -> Vec<Value> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let all: Value = serde_json::from_slice(&out.stdout).expect("cargo prints JSON");
    all["packages"].as_array().expect("packages").clone()
}

fn edges(package: &Value) -> Vec<(String, bool)> {
    let deps = package["dependencies"].as_array().expect("dependencies");
    deps.iter()
        .map(|d| (d["name"].as_str().unwrap_or_default().to_string(), d["kind"].as_str() == Some("dev")))
        .collect()
}

#[test]
fn every_crate_imports_only_lower_levels() {
    let packages = packages();
    let levels: HashMap<String, u64> = packages
        .iter()
        .map(|p| {
            let name = p["name"].as_str().expect("name").to_string();
            let level = p["metadata"]["level"].as_u64().unwrap_or_else(|| panic!("{name} names no level"));
            (name, level)
        })
        .collect();
    for package in &packages {
        let name = package["name"].as_str().expect("name");
        for (dep, dev) in edges(package) {
            let Some(level) = levels.get(&dep) else { continue };
            // The engine and raft share level 3 with meta and the SDK but never import one another.
            assert!(
                *level < levels[name],
                "{name} (level {}) imports {dep} (level {level}, dev: {dev})",
                levels[name]
            );
        }
    }
}

#[test]
fn libraries_stay_where_the_architecture_puts_them() {
    let owners: [(&str, &[&str]); 8] = [
        ("openraft", &["undb-raft"]),
        ("lsm-tree", &["undb-engine"]),
        ("sled", &["undb-engine", "undb-sdk"]),
        ("clap", &["undb", "undb-bench", "undb-e2e", "undb-operator"]),
        // Others take connections from the shell; the webhook has a server of its own.
        ("rustls", &["undb-runtime", "undb-operator"]),
        ("tokio-rustls", &["undb-runtime", "undb-operator"]),
        ("rcgen", &["undb-operator"]),
        ("rustix", &["undb-vfs"]),
    ];
    for package in packages() {
        let name = package["name"].as_str().expect("name");
        for (dep, dev) in edges(&package) {
            for (library, users) in owners {
                assert!(dev || dep != library || users.contains(&name), "{name} imports {library}");
            }
        }
    }
}

#[test]
fn the_sync_crates_know_no_async() {
    for package in packages() {
        let name = package["name"].as_str().expect("name");
        if !["undb-types", "undb-spec", "undb-vfs", "undb-log", "undb-engine", "undb-meta"].contains(&name) {
            continue;
        }
        for (dep, _) in edges(&package) {
            assert!(!["tokio", "tonic", "futures", "axum"].contains(&dep.as_str()), "{name} imports {dep}");
        }
    }
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of the workspace") {
        let path = entry.expect("entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_string();
        if path.is_dir() && !name.starts_with('.') && !name.starts_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn files_stay_short_and_begin_with_what_they_are() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    assert!(files.len() > 50, "only {} sources found", files.len());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("readable source");
        let lines = text.lines().count();
        assert!(lines <= FILE_LINES_MAX, "{} has {lines} lines, at most {FILE_LINES_MAX}", path.display());
        let first = text.lines().find(|l| !l.starts_with("#!")).unwrap_or_default();
        assert!(first.starts_with("//!"), "{} does not say what it is", path.display());
        for word in ["todo!(", "unimplemented!(", "#[ignore"] {
            let own = path.ends_with("e2e/tests/tidy.rs");
            assert!(own || !text.contains(word), "{} contains {word}", path.display());
        }
    }
}

/// Names of metrics in a text: between quotes in sources, between backticks in the page.
fn metric_names(text: &str, quote: char) -> std::collections::BTreeSet<String> {
    let opening = format!("{quote}undb_");
    let starts = text.match_indices(&opening).map(|(at, _)| &text[at + 1..]);
    let name = |rest: &str| {
        rest.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap_or_default().to_string()
    };
    let kinds = ["_total", "_seconds", "_bytes", "_ratio", "_full", "_groups", "_connections", "_commands"];
    let kinds = kinds.into_iter().chain(["_revision", "_held", "_tasks", "_tables", "_subscribers"]);
    let kinds: Vec<&str> = kinds.collect();
    starts.map(name).filter(|n| kinds.iter().any(|kind| n.ends_with(kind))).collect()
}

#[test]
fn every_metric_is_documented_and_every_documented_one_is_there() {
    let page = std::fs::read_to_string(root().join("docs/metrics.md")).expect("docs/metrics.md");
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let mut found = std::collections::BTreeSet::new();
    for path in files.iter().filter(|path| !path.ends_with("e2e/tests/tidy.rs")) {
        found.append(&mut metric_names(&std::fs::read_to_string(path).expect("readable source"), '"'));
    }
    found.remove("undb_runtime_test_total");
    let documented = metric_names(&page, '`');
    let missing: Vec<_> = found.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&found).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "not documented: {missing:?}; documented but gone: {gone:?}"
    );
}
