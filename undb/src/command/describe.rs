//! `undb describe`: one object with everything that is known of it, and what it depends on.

use super::get::{Kind, fetch, replica_stores};
use crate::bytes_text;
use crate::connect::Connect;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, field};
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  undb describe table packages        its settings, its state, and each of its shards
  undb describe store 2
  undb describe shard 7";

/// Show one object with its state and the reasons for it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// table, store, shard or storecluster
    kind: String,
    /// Its name or number
    name: String,
    #[command(flatten)]
    connect: Connect,
}

/// Prints the object, and for a table its shards.
pub async fn run(args: Args) -> Outcome {
    let kind = Kind::parse(&args.kind)?;
    if args.name.is_empty() {
        return Err(Failure::usage("the name is empty"));
    }
    let admin = args.connect.admin()?;
    let mut out = String::new();
    for object in fetch(&admin, kind, &args.name, "").await? {
        describe(&mut out, &object);
    }
    if kind == Kind::Tables {
        let shards = fetch(&admin, Kind::Shards, "", &args.name).await?;
        out.push_str(&format!("shards ({}):\n", shards.len()));
        for shard in &shards {
            out.push_str(&shard_line(shard));
        }
    }
    output::bytes(out.as_bytes())?;
    Ok(Exit::Ok)
}

fn describe(out: &mut String, object: &Value) {
    out.push_str(&format!("{} {}\n", field(object, "/kind").to_lowercase(), field(object, "/metadata/name")));
    for section in ["spec", "status"] {
        if let Some(value) = object.get(section) {
            out.push_str(&format!("{section}:\n"));
            lines(out, value, 1, "");
        }
    }
}

fn shard_line(shard: &Value) -> String {
    let reason = field(shard, "/status/reason");
    let reason = if reason == "-" { String::new() } else { format!("  {reason}") };
    format!(
        "  {:<6} {}..{}  leader: store {}  stores: {}  {} keys{reason}\n",
        field(shard, "/metadata/name"),
        field(shard, "/spec/start"),
        field(shard, "/spec/end"),
        field(shard, "/status/leader/store"),
        replica_stores(shard),
        field(shard, "/status/liveKeys"),
    )
}

const INDENT_MAX: usize = 8;

/// Nested fields as indented lines; sizes for people.
fn lines(out: &mut String, value: &Value, indent: usize, name: &str) {
    let pad = "  ".repeat(indent);
    match value {
        Value::Object(map) if indent < INDENT_MAX => {
            for (key, below) in map {
                match below {
                    Value::String(text) if text.is_empty() => {}
                    Value::Object(inner) if !inner.is_empty() => {
                        out.push_str(&format!("{pad}{key}:\n"));
                        lines(out, below, indent + 1, key);
                    }
                    other => out.push_str(&format!("{pad}{key}: {}\n", scalar(key, other))),
                }
            }
        }
        other => out.push_str(&format!("{pad}{}\n", scalar(name, other))),
    }
}

fn scalar(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(n) if name.to_lowercase().ends_with("bytes") => {
            n.as_u64().map_or_else(|| n.to_string(), |b| format!("{b} ({})", bytes_text::size(b)))
        }
        other => other.to_string(),
    }
}
