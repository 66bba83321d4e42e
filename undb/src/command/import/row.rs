//! One line or row to a key and a value. Pure.

use super::Format;
use super::template::{Piece, Template};
use crate::bytes_text;
use bytes::Bytes;
use serde_json::{Map, Value};
use undb_sdk::Key;

/// How rows become records.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub format: Format,
    pub key: Template,
    pub sort_key: Option<Template>,
    pub value: Option<String>,
    pub delimiter: u8,
}

/// A record to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub line: u64,
    pub key: Key,
    pub value: Bytes,
}

/// A row that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    pub line: u64,
    pub reason: String,
    /// As it was read, or what would have been written.
    pub row: Vec<u8>,
}

impl Rejected {
    /// As one line of the file of rejected rows.
    pub fn to_json(&self) -> String {
        let mut object = Map::new();
        object.insert("line".into(), self.line.into());
        object.insert("reason".into(), self.reason.clone().into());
        bytes_text::put_bytes(&mut object, "row", &self.row);
        Value::Object(object).to_string()
    }
}

impl Mapping {
    /// Names the mapping in a checkpoint: another one must not go on with it.
    pub fn describe(&self) -> String {
        format!(
            "{:?} key={} sort_key={} value={} delimiter={}",
            self.format,
            self.key,
            self.sort_key.as_ref().map_or(String::new(), ToString::to_string),
            self.value.as_deref().unwrap_or("(row)"),
            self.delimiter
        )
    }

    /// A line of JSON.
    pub fn json_row(&self, line: u64, text: &[u8]) -> Result<Row, Rejected> {
        let refuse = |reason: String| Rejected { line, reason, row: text.to_vec() };
        let object: Map<String, Value> =
            serde_json::from_slice(text).map_err(|e| refuse(format!("not a JSON object: {e}")))?;
        let column = |name: &str| json_column(&object, name);
        let value = match &self.value {
            Some(name) => column(name).map_err(refuse)?.into(),
            None => Bytes::copy_from_slice(text),
        };
        Ok(Row { line, key: self.key_of(column).map_err(refuse)?, value })
    }

    /// A row of CSV with its header.
    pub fn csv_row(
        &self,
        line: u64,
        header: &csv::ByteRecord,
        row: &csv::ByteRecord,
    ) -> Result<Row, Rejected> {
        let refuse = |reason: String| Rejected { line, reason, row: joined(row, self.delimiter) };
        if row.len() != header.len() {
            return Err(refuse(format!("{} columns, the first line has {}", row.len(), header.len())));
        }
        let column = |name: &str| csv_column(header, row, name);
        let value = match &self.value {
            Some(name) => column(name).map_err(refuse)?.into(),
            None => csv_object(header, row).map_err(refuse)?.into(),
        };
        Ok(Row { line, key: self.key_of(column).map_err(refuse)?, value })
    }

    fn key_of(&self, column: impl Fn(&str) -> Result<Vec<u8>, String>) -> Result<Key, String> {
        let hash = filled(&self.key, &column)?;
        if hash.is_empty() {
            return Err("the key is empty".into());
        }
        let sort = self.sort_key.as_ref().map(|t| filled(t, &column)).transpose()?;
        Ok(Key::new(hash, sort.unwrap_or_default()))
    }
}

fn filled(template: &Template, column: impl Fn(&str) -> Result<Vec<u8>, String>) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    for piece in &template.pieces {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Column(name) => out.extend(column(name)?),
        }
    }
    Ok(out)
}

/// A field as bytes: text as it is, `NAME_base64` decoded, anything else as JSON.
fn json_column(object: &Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    match object.get(name) {
        Some(Value::String(text)) => Ok(text.clone().into_bytes()),
        Some(Value::Null) => Err(format!("field `{name}` is null")),
        Some(other) => Ok(other.to_string().into_bytes()),
        None => match object.get(&format!("{name}_base64")) {
            Some(Value::String(text)) => {
                bytes_text::from_base64(text).map_err(|e| format!("field `{name}_base64`: {e}"))
            }
            _ => Err(format!("no field `{name}`")),
        },
    }
}

fn csv_column(header: &csv::ByteRecord, row: &csv::ByteRecord, name: &str) -> Result<Vec<u8>, String> {
    let at = header.iter().position(|h| h == name.as_bytes());
    let field = at.and_then(|i| row.get(i)).ok_or_else(|| format!("no column `{name}`"))?;
    Ok(field.to_vec())
}

fn csv_object(header: &csv::ByteRecord, row: &csv::ByteRecord) -> Result<Vec<u8>, String> {
    let mut object = Map::new();
    for (name, field) in header.iter().zip(row) {
        bytes_text::put_bytes(&mut object, &String::from_utf8_lossy(name), field);
    }
    Ok(Value::Object(object).to_string().into_bytes())
}

/// A row as text again, good enough to be found in the file.
fn joined(row: &csv::ByteRecord, delimiter: u8) -> Vec<u8> {
    let fields: Vec<&[u8]> = row.iter().collect();
    fields.join(&delimiter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(format: Format, key: &str, value: Option<&str>) -> Mapping {
        let key = key.parse().expect("template");
        Mapping { format, key, sort_key: None, value: value.map(Into::into), delimiter: b',' }
    }

    #[test]
    fn a_json_line_is_a_value_as_a_whole_or_by_column() {
        let line = br#"{"p": "vim", "v": 9, "s": "text\n"}"#;
        let row = mapping(Format::Jsonl, "{p}/{v}", None).json_row(3, line).expect("fits");
        assert_eq!((row.key, &row.value[..]), (Key::new("vim/9", ""), &line[..]));
        let row = mapping(Format::Jsonl, "p", Some("s")).json_row(3, line).expect("fits");
        assert_eq!(&row.value[..], b"text\n");
        let row = mapping(Format::Jsonl, "k", Some("b"));
        let row = row.json_row(1, br#"{"k_base64": "/w==", "b_base64": "AAE="}"#).expect("fits");
        assert_eq!((row.key, &row.value[..]), (Key::new(&b"\xff"[..], ""), &b"\x00\x01"[..]));
    }

    #[test]
    fn a_row_that_does_not_fit_says_why() {
        let mapping = mapping(Format::Jsonl, "p", None);
        for (line, want) in [
            (&b"[1]"[..], "not a JSON object"),
            (b"{", "not a JSON object"),
            (b"{\"q\": 1}", "no field `p`"),
            (b"{\"p\": null}", "field `p` is null"),
            (b"{\"p\": \"\"}", "the key is empty"),
        ] {
            let rejected = mapping.json_row(7, line).expect_err("does not fit");
            assert!(rejected.reason.contains(want), "{}", rejected.reason);
            assert_eq!(rejected.line, 7);
        }
    }

    #[test]
    fn a_csv_row_becomes_an_object_or_a_column() {
        let header = csv::ByteRecord::from(vec!["id", "name"]);
        let row = csv::ByteRecord::from(vec!["7", "Ada"]);
        let whole = mapping(Format::Csv, "id", None).csv_row(2, &header, &row).expect("fits");
        assert_eq!(&whole.value[..], br#"{"id":"7","name":"Ada"}"#);
        let column = mapping(Format::Csv, "id", Some("name")).csv_row(2, &header, &row).expect("fits");
        assert_eq!(&column.value[..], b"Ada");
        let short = csv::ByteRecord::from(vec!["7"]);
        let rejected = mapping(Format::Csv, "id", None).csv_row(2, &header, &short).expect_err("short");
        assert_eq!(rejected.reason, "1 columns, the first line has 2");
    }
}
