//! Configuration files: TOML, every unknown field refused, errors with file, line and column. Values
//! may name environment variables (`expand`).

mod expand;

use crate::RuntimeError;
use serde::de::DeserializeOwned;
use std::path::Path;

/// Reads a configuration file. The type decides that unknown fields are refused
/// (`#[serde(deny_unknown_fields)]`); each server's does.
pub fn load<T: DeserializeOwned>(path: impl AsRef<Path>) -> Result<T, RuntimeError> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|source| RuntimeError::Read {
        what: "the configuration",
        path: path.into(),
        source,
    })?;
    let text = expand::expand(&text, |name| std::env::var(name).ok()).map_err(|refused| {
        let (line, column) = line_and_column(&text, refused.offset);
        RuntimeError::Config { path: path.into(), line, column, message: refused.message }
    })?;
    parse(&text, path)
}

/// The same for text that is already in memory; `path` only names it in errors.
pub fn parse<T: DeserializeOwned>(text: &str, path: impl AsRef<Path>) -> Result<T, RuntimeError> {
    toml::from_str(text).map_err(|error| {
        let (line, column) = line_and_column(text, error.span().map_or(0, |span| span.start));
        let message = error.message().replace('\n', "; ");
        RuntimeError::Config { path: path.as_ref().into(), line, column, message }
    })
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |tail| tail.chars().count()) + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        listen: String,
        #[serde(default)]
        stores: u32,
    }

    #[test]
    fn a_file_that_fits_is_read() {
        let sample: Sample = parse("listen = \"a:1\"\nstores = 3\n", "x.toml").expect("fits");
        assert_eq!(sample, Sample { listen: "a:1".into(), stores: 3 });
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line() {
        let error = parse::<Sample>("listen = \"a:1\"\n\n  lisen = 2\n", "x.toml").expect_err("unknown");
        let text = error.to_string();
        assert!(text.starts_with("x.toml:3:3: unknown field `lisen`"), "{text}");
        assert!(text.contains("next:"), "{text}");
    }

    #[test]
    fn broken_toml_is_named_with_its_line() {
        let text = parse::<Sample>("listen = \"a\nstores = 1", "x.toml").expect_err("broken").to_string();
        assert!(text.starts_with("x.toml:1:"), "{text}");
    }

    #[test]
    fn a_variable_that_is_not_set_is_named_with_its_line() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("x.toml");
        std::fs::write(&path, "# one\nlisten = \"${UNDB_TEST_NOT_SET}:1\"\n").expect("write");
        let text = load::<Sample>(&path).expect_err("not set").to_string();
        assert!(
            text.contains("x.toml:2:11: the environment variable UNDB_TEST_NOT_SET is not set"),
            "{text}"
        );
        std::fs::write(&path, "listen = \"$${A}:1\"\n").expect("write");
        assert_eq!(load::<Sample>(&path).expect("a literal").listen, "${A}:1");
    }

    #[test]
    fn a_missing_file_is_named() {
        let text = load::<Sample>("/nowhere/x.toml").expect_err("missing").to_string();
        assert!(text.contains("/nowhere/x.toml") && text.contains("check the path"), "{text}");
    }
}
