//! Keys and values in and out: from arguments, files and stdin; as bytes, base64 or JSON.

use crate::bytes_text;
use crate::exit::{Exit, Failure, Outcome};
use bytes::Bytes;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use undb_sdk::{Key, Record, WriteOutcome};

/// Which record, beside the KEY argument.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Key and form")]
pub struct KeyFlags {
    /// The second part of the key: records of one KEY stay together and in its order
    #[arg(long, value_name = "SORT")]
    pub sort_key: Option<OsString>,
    /// Take the KEY from a file (- for stdin), byte for byte, in place of the argument
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Keys and values are base64, given and printed
    #[arg(long)]
    pub base64: bool,
}

impl KeyFlags {
    /// KEY and VALUE as they were meant: with `--key-file` the only word is the value.
    pub fn words(
        &self,
        key: Option<OsString>,
        value: Option<OsString>,
    ) -> (Option<OsString>, Option<OsString>) {
        if self.key_file.is_some() && value.is_none() { (None, key) } else { (key, value) }
    }

    /// The key of the argument or the file.
    pub fn key(&self, argument: Option<OsString>) -> Outcome<Key> {
        let hash = match (&self.key_file, argument) {
            (Some(path), None) => self.decode(read(path)?, "the key file")?,
            (None, Some(key)) => self.argument(key, "KEY")?,
            (Some(_), Some(_)) => return Err(Failure::usage("give the KEY or --key-file, not both")),
            (None, None) => return Err(Failure::usage("which key? give KEY or --key-file FILE")),
        };
        let sort = self.sort_key.clone().map(|s| self.argument(s, "--sort-key")).transpose()?;
        Ok(Key::new(hash, sort.unwrap_or_default()))
    }

    /// The bytes of an argument.
    pub fn argument(&self, text: OsString, what: &str) -> Outcome<Bytes> {
        self.decode(text.into_vec(), what)
    }

    fn decode(&self, bytes: Vec<u8>, what: &str) -> Outcome<Bytes> {
        if !self.base64 {
            return Ok(bytes.into());
        }
        let text = String::from_utf8_lossy(&bytes);
        let decoded = bytes_text::from_base64(&text);
        decoded.map(Bytes::from).map_err(|e| Failure::usage(format!("{what}: {e}")))
    }

    /// A value: of the argument, the file, or stdin when something is piped in.
    pub fn value(&self, argument: Option<OsString>, file: Option<&Path>) -> Outcome<Bytes> {
        match (argument, file) {
            (Some(_), Some(_)) => Err(Failure::usage("give the VALUE or --file, not both")),
            (Some(value), None) => self.argument(value, "VALUE"),
            (None, Some(path)) => self.decode(read(path)?, "the file"),
            (None, None) if std::io::stdin().is_terminal() => {
                Err(Failure::usage("which value? give VALUE, --file FILE, or pipe it in"))
            }
            (None, None) => {
                let bytes = read(Path::new("-"))?;
                if bytes.is_empty() {
                    // A forgotten argument in a script must not overwrite a record with nothing.
                    return Err(Failure::usage("stdin is empty; write VALUE '' if an empty value is meant"));
                }
                self.decode(bytes, "stdin")
            }
        }
    }
}

/// A whole file, or stdin.
pub fn read(path: &Path) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    let result = if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|mut f| f.read_to_end(&mut bytes))
    };
    result.map(|_| bytes).map_err(|e| Failure::file(path, &e))
}

/// `30s`, `10m`, `2h`, `7d`, `500ms`, or a number of seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| help(text))?;
    let ms = match unit {
        "ms" => Some(number),
        "" | "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => None,
    };
    match ms {
        Some(0) => Err("0 is no time to live; leave it out for records that never expire".into()),
        Some(ms) => Ok(Duration::from_millis(ms)),
        None => Err(help(text)),
    }
}

fn help(text: &str) -> String {
    format!("`{text}` is not a time; write seconds, or a number with ms, s, m, h or d")
}

/// A record as JSON: text as text, other bytes as base64 under `..._base64`.
pub fn record_json(key: &Key, record: &Record, with_value: bool) -> Value {
    let mut object = Map::new();
    bytes_text::put_bytes(&mut object, "key", &key.hash);
    if !key.sort.is_empty() {
        bytes_text::put_bytes(&mut object, "sort_key", &key.sort);
    }
    if with_value {
        bytes_text::put_bytes(&mut object, "value", &record.value);
    } else {
        object.insert("value_len".into(), record.value_len.into());
    }
    object.insert("version".into(), record.version.into());
    if record.expire_at_ms != 0 {
        object.insert("expire_at_ms".into(), record.expire_at_ms.into());
    }
    if record.kind != 0 {
        object.insert("kind".into(), record.kind.into());
    }
    Value::Object(object)
}

/// The failure for a key that is not there: one line on stderr, exit 1.
pub fn absent(key: &Key) -> Failure {
    Failure::new(Exit::Absent, format!("no record at key `{}`", shown(key)))
}

/// A key for a message, cut to a line.
pub fn shown(key: &Key) -> String {
    let mut text: String = bytes_text::escaped(&key.hash).chars().take(80).collect();
    if !key.sort.is_empty() {
        text.push_str(" / ");
        text.extend(bytes_text::escaped(&key.sort).chars().take(80));
    }
    text
}

/// A write that a condition may have stopped.
pub fn applied(key: &Key, outcome: WriteOutcome) -> Outcome<undb_sdk::Change> {
    match outcome {
        WriteOutcome::Applied(changes) => Ok(changes.into_iter().next().unwrap_or_default()),
        WriteOutcome::ConditionFailed { current, .. } => {
            let found = match current {
                Some(record) => format!(
                    "the record has version {} and {} bytes",
                    record.version,
                    record.value_len.max(u32::try_from(record.value.len()).unwrap_or(u32::MAX))
                ),
                None => "there is no record".into(),
            };
            Err(Failure::new(
                Exit::Condition,
                format!("condition not met at `{}`: {found}; nothing was changed", shown(key)),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_have_units() {
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "h", "-1", "1w", "0", "1.5h", "99999999999999999999", "18446744073709551615d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_become_base64_in_json() {
        let key = Key::new("k", "");
        let record = Record { value: Bytes::from_static(b"\xff\x00"), version: 7, ..Record::default() };
        assert_eq!(
            record_json(&key, &record, true).to_string(),
            r#"{"key":"k","value_base64":"/wA=","version":7}"#
        );
    }
}
