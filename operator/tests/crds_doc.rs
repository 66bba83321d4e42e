//! Tables of docs/crds.md are made from the definitions and from the wrong manifests. `UPDATE=1 cargo test
//! -p undb-operator --test crds_doc` writes them again.

use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

const KINDS: [&str; 5] = ["ControlPlane", "StoreCluster", "Router", "Table", "Store"];

fn range(of: &Value) -> String {
    let bound = |name: &str| of.get(name).and_then(Value::as_f64).map(|n| format!("{n}"));
    match (bound("minimum"), bound("maximum")) {
        (Some(min), Some(max)) => format!("number, {min} to {max}"),
        (Some(min), None) if min != "0" => format!("number, from {min}"),
        (None, Some(max)) => format!("number, up to {max}"),
        _ => "number".into(),
    }
}

fn type_of(of: &Value) -> String {
    if of["x-kubernetes-int-or-string"] == true {
        return "amount".into();
    }
    if let Some(words) = of["enum"].as_array() {
        let words: Vec<String> = words.iter().filter_map(Value::as_str).map(|w| format!("`{w}`")).collect();
        return words.join(", ");
    }
    match of["type"].as_str().unwrap_or_default() {
        "integer" => range(of),
        "boolean" => "true, false".into(),
        "array" => format!("list of {}", type_of(&of["items"])),
        "object" if of.get("additionalProperties").is_some() => "map".into(),
        "object" if of["x-kubernetes-preserve-unknown-fields"] == true => "as in Kubernetes".into(),
        "object" => "object".into(),
        _ if of["format"] == "date-time" => "time".into(),
        _ => "text".into(),
    }
}

fn default_of(of: &Value) -> String {
    match of.get("default") {
        None | Some(Value::Object(_)) => String::new(),
        Some(Value::String(text)) => format!("`{text}`"),
        Some(other) => format!("`{other}`"),
    }
}

/// One line a field; what the user cannot look into (conditions) stays one line.
fn rows(path: &str, of: &Value, out: &mut String) {
    let Some(fields) = of["properties"].as_object() else { return };
    for (name, field) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let about = field["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        let (kind, default) = (type_of(field), default_of(field));
        let _ = writeln!(out, "| `{path}` | {kind} | {default} | {about} |");
        if name != "conditions" {
            rows(&path, field, out);
            rows(&format!("{path}[]"), &field["items"], out);
        }
    }
}

fn fields() -> String {
    let mut out = String::new();
    for kind in KINDS {
        let schema = undb_spec::k8s::crds::schema(kind).expect("a kind of ours");
        let about = schema["description"].as_str().unwrap_or_default();
        for part in ["spec", "status"] {
            let _ = writeln!(out, "\n### {kind}: {part}\n");
            if part == "spec" {
                let _ = writeln!(out, "{about}\n");
            }
            let _ = writeln!(out, "| field | type | default | what |\n|---|---|---|---|");
            rows("", &schema["properties"][part], &mut out);
        }
    }
    out
}

fn wrong() -> String {
    let folder = root().join("e2e/manifests/wrong");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("there").map(|e| e.expect("entry").path()).collect();
    paths.sort();
    let mut out = String::from("\n| manifest | what is wrong | answer |\n|---|---|---|\n");
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("text");
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let answer = text.lines().next().unwrap_or_default().trim_start_matches("# refused: ");
        let specs: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("spec: ")).collect();
        let mut what = format!("`{}`", specs.join("` then `"));
        if specs == ["{}"] {
            let of = text.lines().find(|line| line.starts_with("metadata: ")).unwrap_or_default();
            what = format!("`{of}`");
        }
        let _ = writeln!(out, "| {name} | {} | {} |", what.replace('|', "\\|"), answer.replace('|', "\\|"));
    }
    out
}

fn between(text: &str, mark: &str, content: &str) -> String {
    let (begin, end) = (format!("<!-- {mark}: begin -->\n"), format!("<!-- {mark}: end -->"));
    let (before, rest) = text.split_once(&begin).expect("the mark is in the document");
    let (_, after) = rest.split_once(&end).expect("the mark is in the document");
    format!("{before}{begin}{content}\n{end}{after}")
}

#[test]
fn the_documented_fields_and_refusals_are_those_of_the_code() {
    let path = root().join("docs/crds.md");
    let text = std::fs::read_to_string(&path).expect("committed");
    let made = between(&between(&text, "fields", &fields()), "wrong", &wrong());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &made).expect("written");
    } else {
        assert!(text == made, "docs/crds.md differs from base/spec; run this test with UPDATE=1");
    }
}
