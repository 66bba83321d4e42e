//! `undb status`: what is where, is it fine, and if not why and what to do.

use crate::bytes_text::{size, span};
use crate::connect::Connect;
use crate::exit::{Exit, Outcome};
use crate::output;
use serde_json::{Value, json};
use undb_proto::v1;

const EXAMPLES: &str = "\
Examples:
  undb status
  undb status --json | jq .problems
Exit code 13: the cluster answers, but something is not fine.";

/// Show whether the cluster is fine, and if not why
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Prints the status; the exit code says whether all is fine.
pub async fn run(args: Args) -> Outcome {
    let status = args.connect.admin()?.status().await?;
    let healthy = status.healthy;
    if args.json {
        output::line(serde_json::to_string_pretty(&as_json(&status)).unwrap_or_default())?;
    } else {
        output::bytes(as_text(&status).as_bytes())?;
    }
    Ok(if healthy { Exit::Ok } else { Exit::Unhealthy })
}

fn as_text(s: &v1::StatusResponse) -> String {
    let mut out = format!("cluster   {}\n", s.cluster_id);
    out.push_str(&format!("state     {}\n", if s.healthy { "fine" } else { "not fine" }));
    for problem in &s.problems {
        out.push_str(&format!("  - {problem}\n"));
    }
    if let Some(meta) = &s.meta {
        out.push_str(&format!(
            "metadata  {} member{}, leader {} ({}), revision {}\n",
            meta.members.len(),
            if meta.members.len() == 1 { "" } else { "s" },
            meta.leader_member_id,
            meta.leader_address,
            meta.revision
        ));
    }
    out.push_str(&format!("tables    {}\n", s.tables));
    out.push_str(&format!(
        "shards    {} of {} available, {} under-replicated\n",
        s.shards_available, s.shards, s.shards_under_replicated
    ));
    out.push_str(&format!(
        "stores    {} of {} alive\n",
        s.stores.iter().filter(|s| s.alive).count(),
        s.stores.len()
    ));
    let mut rows = vec![
        ["  STORE", "ALIVE", "ZONE", "REPLICAS", "LEADERS", "LIVE", "DISK", "FREE", "ADDRESS"]
            .map(String::from)
            .to_vec(),
    ];
    for store in &s.stores {
        rows.push(store_row(store));
    }
    out.push_str(&output::aligned(&rows));
    out
}

fn store_row(s: &v1::StoreStatus) -> Vec<String> {
    let record = s.store.clone().unwrap_or_default();
    let stats = s.stats.unwrap_or_default();
    let alive =
        if s.alive { "yes".into() } else { format!("no, silent {}", span(s.silent_ms as f64 / 1000.0)) };
    let zone = if record.zone.is_empty() { "-".into() } else { record.zone };
    vec![
        format!("  {}", record.store_id),
        alive,
        zone,
        s.replicas.to_string(),
        s.leaders.to_string(),
        size(stats.live_bytes),
        size(stats.disk_bytes),
        size(stats.free_bytes),
        record.address,
    ]
}

fn as_json(s: &v1::StatusResponse) -> Value {
    let stores: Vec<Value> = s.stores.iter().map(store_json).collect();
    let meta = s.meta.as_ref().map(|m| {
        json!({
            "leaderMemberId": m.leader_member_id, "leaderAddress": m.leader_address, "term": m.term,
            "appliedIndex": m.applied_index, "revision": m.revision,
            "members": m.members.iter().map(|m| json!({
                "memberId": m.member_id, "address": m.address, "voter": m.voter})).collect::<Vec<_>>(),
        })
    });
    json!({
        "clusterId": s.cluster_id, "healthy": s.healthy, "problems": s.problems, "meta": meta,
        "tables": s.tables, "shards": s.shards, "shardsAvailable": s.shards_available,
        "shardsUnderReplicated": s.shards_under_replicated, "stores": stores,
    })
}

fn store_json(s: &v1::StoreStatus) -> Value {
    let record = s.store.clone().unwrap_or_default();
    let stats = s.stats.unwrap_or_default();
    json!({
        "storeId": record.store_id, "uuid": record.uuid, "address": record.address, "zone": record.zone,
        "storeCluster": record.store_cluster, "alive": s.alive, "silentMs": s.silent_ms,
        "replicas": s.replicas, "leaders": s.leaders, "stats": stats_json(&stats),
    })
}

/// The counters of a store as JSON, with the names of the wire in camel case.
pub fn stats_json(s: &v1::StoreStats) -> Value {
    json!({
        "userBytes": s.user_bytes, "logBytes": s.log_bytes, "indexBytes": s.index_bytes,
        "relocatedBytes": s.relocated_bytes, "otherBytes": s.other_bytes, "liveBytes": s.live_bytes,
        "diskBytes": s.disk_bytes, "capacityBytes": s.capacity_bytes, "freeBytes": s.free_bytes,
        "reads": s.reads, "writes": s.writes, "memoryBytes": s.memory_bytes, "segments": s.segments,
    })
}
