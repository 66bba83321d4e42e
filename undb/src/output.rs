//! Writing to stdout: a closed pipe is an end, not a panic; tables align; JSON and YAML are exact.

use crate::exit::{Exit, Failure, Outcome};
use serde_json::Value;
use std::io::{ErrorKind, IsTerminal, Write};

/// How objects are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Columns
    Table,
    /// More columns
    Wide,
    /// One JSON document
    Json,
    /// YAML documents that `undb apply` takes back
    Yaml,
}

/// Writes bytes to stdout and flushes them.
pub fn bytes(bytes: &[u8]) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(stdout_failed)
}

/// Writes one line to stdout.
pub fn line(text: impl AsRef<str>) -> Outcome<()> {
    let mut text = text.as_ref().to_owned();
    text.push('\n');
    bytes(text.as_bytes())
}

/// What a failed write to stdout means: whoever read us has seen enough, or the disk is full.
pub fn stdout_failed(error: std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::new(Exit::Ok, ""),
        _ => Failure::local(format!("cannot write to stdout: {error}")),
    }
}

/// True when a person looks at stdout.
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Prints objects in the chosen form.
pub fn objects(objects: &[Value], format: Format, columns: &[Column]) -> Outcome<()> {
    match format {
        Format::Json => {
            // One object alone, several as a list: what kubectl does, so that jq scripts carry over.
            let value = match objects {
                [one] => one.clone(),
                many => {
                    serde_json::json!({"apiVersion": undb_spec::API_VERSION, "kind": "List", "items": many})
                }
            };
            line(serde_json::to_string_pretty(&value).map_err(Failure::internal)?)
        }
        Format::Yaml => {
            let documents: Result<Vec<String>, _> = objects.iter().map(serde_yaml::to_string).collect();
            bytes(documents.map_err(Failure::internal)?.join("---\n").as_bytes())
        }
        Format::Table | Format::Wide => {
            let shown: Vec<&Column> =
                columns.iter().filter(|c| !c.wide_only || format == Format::Wide).collect();
            let mut rows = vec![shown.iter().map(|c| c.title.to_owned()).collect()];
            rows.extend(objects.iter().map(|o| shown.iter().map(|c| (c.cell)(o)).collect::<Vec<String>>()));
            bytes(aligned(&rows).as_bytes())
        }
    }
}

/// One column of a listing.
pub struct Column {
    pub title: &'static str,
    pub wide_only: bool,
    pub cell: fn(&Value) -> String,
}

/// Rows with every column as wide as its widest cell; the last one as it is.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        for (c, cell) in row.iter().enumerate() {
            out.push_str(cell);
            if c + 1 < row.len() {
                let pad = widths[c].saturating_sub(cell.chars().count()) + 2;
                out.extend(std::iter::repeat_n(' ', pad));
            }
        }
        out.push('\n');
    }
    out
}

/// A field by JSON pointer as a short text; `-` when it is not there.
pub fn field(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) if text.is_empty() => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_the_last_has_no_padding() {
        let rows = vec![vec!["NAME".into(), "READY".into()], vec!["default".into(), "yes".into()]];
        assert_eq!(aligned(&rows), "NAME     READY\ndefault  yes\n");
    }

    #[test]
    fn a_missing_field_is_a_dash() {
        let object = serde_json::json!({"a": {"b": 3, "c": ""}});
        assert_eq!(
            (field(&object, "/a/b"), field(&object, "/a/c"), field(&object, "/x")),
            ("3".into(), "-".into(), "-".into())
        );
    }
}
