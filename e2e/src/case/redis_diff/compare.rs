//! When two answers are the same, and which differences are known.

use super::resp::Reply;
use super::script::Command;

/// Times may differ by as much as the two servers were asked one after the other, in ms.
const TIME_SLACK_MS: i64 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Same,
    Different,
}

fn name(command: &Command) -> String {
    command.first().map(|word| String::from_utf8_lossy(word).to_uppercase()).unwrap_or_default()
}

/// Compares, leaving aside what Redis itself does not promise: the order of a hash's fields, and the
/// milliseconds that pass between two questions.
pub(super) fn compare(command: &Command, redis: &Reply, undb: &Reply) -> Comparison {
    let same = match (name(command).as_str(), redis, undb) {
        ("HGETALL", Reply::Array(a), Reply::Array(b)) => pairs(a) == pairs(b),
        ("HKEYS" | "HVALS", Reply::Array(a), Reply::Array(b)) => sorted(a) == sorted(b),
        ("PTTL" | "PEXPIRETIME", Reply::Int(a), Reply::Int(b)) if *a > 0 && *b > 0 => {
            (a - b).abs() <= TIME_SLACK_MS
        }
        ("TTL" | "EXPIRETIME", Reply::Int(a), Reply::Int(b)) if *a > 0 && *b > 0 => {
            (a - b).abs() <= TIME_SLACK_MS / 1000
        }
        // It names the server and its version.
        ("HELLO", Reply::Array(a), Reply::Array(b)) => field(a, "proto") == field(b, "proto"),
        _ => redis == undb,
    };
    if same { Comparison::Same } else { Comparison::Different }
}

fn sorted(items: &[Reply]) -> Vec<&Reply> {
    let mut items: Vec<&Reply> = items.iter().collect();
    items.sort();
    items
}

fn pairs(items: &[Reply]) -> Vec<&[Reply]> {
    let mut pairs: Vec<&[Reply]> = items.chunks(2).collect();
    pairs.sort();
    pairs
}

fn field<'a>(items: &'a [Reply], name: &str) -> Option<&'a Reply> {
    let pair = items.chunks(2).find(|pair| pair.first() == Some(&Reply::Bulk(name.as_bytes().to_vec())))?;
    pair.get(1)
}

type Difference = (&'static str, fn(&str, &Reply, &Reply) -> bool);

/// Differences that are meant, each with its reason. README and the proxy's help name them too.
const KNOWN: [Difference; 3] = [
    (
        "INCRBYFLOAT and HINCRBYFLOAT add in 64-bit floats, Redis in the 80-bit ones of x86: the last digits \
         differ",
        |name, redis, undb| {
            let both = (number(redis), number(undb));
            name.ends_with("INCRBYFLOAT") && matches!(both, (Some(a), Some(b)) if close(a, b))
        },
    ),
    (
        "SELECT takes a table's name too, so a word that is no number is an unknown table",
        |name, redis, undb| name == "SELECT" && matches!((redis, undb), (Reply::Error(_), Reply::Error(_))),
    ),
    (
        "CLIENT with a word too many is an unknown subcommand, not a wrong number of words",
        |name, redis, undb| name == "CLIENT" && matches!((redis, undb), (Reply::Error(_), Reply::Error(_))),
    ),
];

fn number(reply: &Reply) -> Option<f64> {
    match reply {
        Reply::Bulk(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs()).max(1.0)
}

/// The reason for a difference, if it is a known one.
pub(super) fn known(command: &Command, redis: &Reply, undb: &Reply) -> Option<&'static str> {
    let name = name(command);
    KNOWN.iter().find(|(_, is)| is(&name, redis, undb)).map(|(reason, _)| *reason)
}
