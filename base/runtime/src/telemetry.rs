//! Tracing to stderr, as text for people or as one JSON object a line for machines.
//!
//! Messages are fixed lower-case phrases; fields carry the rest. Keys, values and tokens are never
//! logged.

use crate::RuntimeError;
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("log format `{other}` is not known; write text or json")),
        }
    }
}

/// Starts logging. The first call of a process counts; later ones change nothing, so that tests may
/// call it freely.
pub fn init(format: Format, filter: &str) -> Result<(), RuntimeError> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|e| RuntimeError::Filter { filter: filter.into(), reason: e.to_string() })?;
    let registry = tracing_subscriber::registry().with(filter);
    let line = fmt::layer().with_writer(std::io::stderr);
    let _already_started = match format {
        Format::Text => registry.with(line.with_ansi(false).compact()).try_init(),
        Format::Json => registry.with(line.json().flatten_event(true)).try_init(),
    };
    Ok(())
}
