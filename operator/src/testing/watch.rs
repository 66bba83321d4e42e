//! Watches: the history of some objects from a version on, then what follows.

use super::cluster::{Change, Refusal, chosen};
use super::request::Call;
use super::serve::ApiServer;
use axum::body::{Body, Bytes};
use serde_json::{Value, json};
use std::convert::Infallible;

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

/// What a watcher is told of a change: an object that leaves its selection looks deleted to it.
fn told(call: &Call, change: &Change) -> Option<Bytes> {
    let matched = change.before.as_ref().is_some_and(|object| chosen(call, object));
    let matches = chosen(call, &change.object) && change.kind != "DELETED";
    let kind = match (matched, matches) {
        (false, false) => return None,
        (false, true) => "ADDED",
        (true, true) => "MODIFIED",
        (true, false) => "DELETED",
    };
    Some(line(kind, &change.object))
}

fn lines(server: &ApiServer, call: &Call, from: u64) -> (Vec<Bytes>, u64) {
    let visible = server.visible();
    let lines = server.with(|cluster| {
        let first = cluster.history.partition_point(|change| change.version <= from);
        let news = cluster.history[first..].iter().take_while(|change| change.version <= visible);
        let covered = news.filter(|change| call.target.key.covers(&change.key));
        covered.filter_map(|change| told(call, change)).collect()
    });
    (lines, visible.max(from))
}

/// The answer to a watch: an endless body, or 410 Gone.
pub(super) fn open(server: &ApiServer, call: Call) -> Result<Body, Refusal> {
    let from = call.query.get("resourceVersion").and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
    if from < server.with(|cluster| cluster.compacted) {
        return Err(Refusal::new(410, "Expired", "too old resource version"));
    }
    let news = server.changes();
    let server = server.clone();
    let stream =
        futures::stream::unfold((server, call, from, news), |(server, call, from, mut news)| async move {
            let mut from = from;
            loop {
                news.borrow_and_update();
                let (lines, seen) = lines(&server, &call, from);
                if !lines.is_empty() {
                    return Some((
                        Ok::<Bytes, Infallible>(lines.concat().into()),
                        (server, call, seen, news),
                    ));
                }
                from = seen;
                if server.watches_cut(&call) {
                    return None;
                }
                news.changed().await.ok()?;
            }
        });
    Ok(Body::from_stream(stream))
}
