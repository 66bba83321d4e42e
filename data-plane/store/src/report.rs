//! `GET /replicas`: what each replica of this store says of itself, for people and for tests.

use crate::store::Store;
use serde::Serialize;
use undb_proto::v1;

/// A replica as this store sees it. Nothing of it is a promise to programs.
#[derive(Serialize)]
struct Line {
    store: u64,
    shard: u64,
    table_id: u64,
    replica: u64,
    term: u64,
    /// The leader's replica; 0: none is known.
    leader: u64,
    is_leader: bool,
    last_index: u64,
    committed_index: u64,
    applied_index: u64,
    caught_up: bool,
    joint: bool,
    voters: Vec<u64>,
    voters_incoming: Vec<u64>,
    peers: Vec<Peer>,
    fault: String,
}

#[derive(Serialize)]
struct Peer {
    replica: u64,
    match_index: u64,
    /// None: it never answered.
    ack_ms_ago: Option<u64>,
}

/// A JSON array.
pub fn page(store: &Store) -> String {
    let lines: Vec<Line> = store.all().iter().map(|r| line(store.store_id, r.report())).collect();
    serde_json::to_string(&lines).unwrap_or_default()
}

fn line(store: u64, report: v1::ReplicaReport) -> Line {
    let shard = report.shard.unwrap_or_default();
    let voters = shard.replicas.iter().filter(|r| r.role() == v1::Role::Voter);
    let peer = |p: &v1::PeerProgress| Peer {
        replica: p.replica_id,
        match_index: p.match_index,
        ack_ms_ago: (p.last_ack_ms_ago != u64::MAX).then_some(p.last_ack_ms_ago),
    };
    Line {
        store,
        shard: shard.shard_id,
        table_id: shard.table_id,
        replica: report.replica_id,
        term: report.term,
        leader: report.leader_replica_id,
        is_leader: report.is_leader,
        last_index: report.last_index,
        committed_index: report.committed_index,
        applied_index: report.applied_index,
        caught_up: !report.catching_up,
        joint: report.joint,
        voters: match report.joint {
            true => report.voters_outgoing,
            false => voters.map(|r| r.replica_id).collect(),
        },
        voters_incoming: report.voters_incoming,
        peers: report.peers.iter().map(peer).collect(),
        fault: report.fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_never_answered_has_no_age() {
        let peer =
            |replica_id, last_ack_ms_ago| v1::PeerProgress { replica_id, match_index: 3, last_ack_ms_ago };
        let report = v1::ReplicaReport {
            replica_id: 9,
            is_leader: true,
            peers: vec![peer(10, 40), peer(11, u64::MAX)],
            ..Default::default()
        };
        let line = serde_json::to_value(line(2, report)).expect("plain data");
        assert_eq!((line["store"].as_u64(), line["peers"][0]["ack_ms_ago"].as_u64()), (Some(2), Some(40)));
        assert!(line["peers"][1]["ack_ms_ago"].is_null());
    }
}
