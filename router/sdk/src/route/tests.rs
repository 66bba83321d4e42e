//! The route table under updates that arrive late, twice, torn or from another time.

use super::table::{Refused, RouteTable, pick};
use bytes::Bytes;
use proptest::prelude::*;
use undb_proto::v1;

fn shard(id: u64, start: &str, end: &str, epoch: (u64, u64)) -> v1::Shard {
    let replica = |n: u64| v1::Replica { replica_id: id * 10 + n, store_id: n, role: v1::Role::Voter as i32 };
    v1::Shard {
        shard_id: id,
        table_id: 1,
        range: Some(v1::KeyRange {
            start: Bytes::copy_from_slice(start.as_bytes()),
            end: Bytes::copy_from_slice(end.as_bytes()),
        }),
        epoch: Some(v1::Epoch { version: epoch.0, conf: epoch.1 }),
        replicas: (1..=3).map(replica).collect(),
        version_base: 0,
    }
}

fn route(version: (u32, u64), shards: Vec<v1::Shard>) -> v1::TableRoute {
    let stores = (1..=3)
        .map(|n| v1::RouteStore { store_id: n, address: format!("127.0.0.1:{n}"), zone: String::new() })
        .collect();
    v1::TableRoute {
        table_id: 1,
        name: "t".into(),
        partitioning: v1::Partitioning::Range as i32,
        version: Some(v1::RouteVersion { incarnation: version.0, version: version.1 }),
        shards: shards
            .into_iter()
            .map(|s| v1::RouteShard { shard: Some(s), leader_replica_id: 0, term: 0 })
            .collect(),
        stores,
        digest: 0,
        stale: false,
    }
}

fn two_shards() -> RouteTable {
    RouteTable::from_snapshot(route((1, 5), vec![shard(1, "", "m", (1, 1)), shard(2, "m", "", (1, 1))]))
        .expect("covers all")
}

#[test]
fn every_key_has_one_shard() {
    let table = two_shards();
    for (key, want) in [("", 1), ("a", 1), ("lzzz", 1), ("m", 2), ("z", 2)] {
        assert_eq!(table.locate(key.as_bytes()).id, want, "{key}");
    }
    assert_eq!(table.locate_before(b"").id, 2);
    assert_eq!(table.locate_before(b"m").id, 1);
    assert_eq!(table.locate_before(b"n").id, 2);
}

#[test]
fn a_hole_an_overlap_or_nothing_keeps_the_last_good() {
    let table = two_shards();
    let holed = vec![shard(1, "", "k", (1, 1)), shard(2, "m", "", (1, 1))];
    assert_eq!(table.with_snapshot(route((1, 6), holed)).expect_err("hole"), Refused::Hole);
    let overlapping = vec![shard(1, "", "n", (1, 1)), shard(2, "m", "", (1, 1))];
    assert_eq!(table.with_snapshot(route((1, 6), overlapping)).expect_err("overlap"), Refused::Hole);
    assert_eq!(table.with_snapshot(route((1, 6), vec![])).expect_err("empty"), Refused::Empty);
    assert_eq!(table.version, (1, 5));
}

#[test]
fn a_lower_version_or_incarnation_is_refused() {
    let table = two_shards();
    for version in [(1, 4), (0, 99)] {
        let older = route(version, vec![shard(9, "", "", (9, 9))]);
        assert_eq!(table.with_snapshot(older).expect_err("older"), Refused::Older);
    }
    let newer = route((2, 1), vec![shard(9, "", "", (0, 0))]);
    assert_eq!(table.with_snapshot(newer).expect("newer incarnation").version, (2, 1));
}

#[test]
fn a_delta_needs_its_base_and_replaces_by_id() {
    let table = two_shards();
    let delta = |base: u64, next: u64| v1::RouteDelta {
        table_id: 1,
        name: "t".into(),
        base: Some(v1::RouteVersion { incarnation: 1, version: base }),
        next: Some(v1::RouteVersion { incarnation: 1, version: next }),
        upserts: [shard(2, "m", "t", (2, 1)), shard(3, "t", "", (2, 1))]
            .map(|s| v1::RouteShard { shard: Some(s), leader_replica_id: 0, term: 0 })
            .to_vec(),
        ..Default::default()
    };
    assert_eq!(table.with_delta(delta(4, 6)).expect_err("base"), Refused::Base);
    assert_eq!(table.with_delta(delta(4, 5)).expect_err("known"), Refused::Older);
    let next = table.with_delta(delta(5, 6)).expect("fits");
    assert_eq!(next.locate(b"z").id, 3);
    assert_eq!(next.shard_count(), 3);

    let tombstone = v1::RouteDelta { upserts: vec![], tombstones: vec![1, 2], ..delta(5, 6) };
    assert_eq!(table.with_delta(tombstone).expect_err("empties the table"), Refused::Empty);
}

#[test]
fn what_a_store_taught_outlives_an_older_snapshot() {
    let table = two_shards();
    let split = [shard(2, "m", "t", (2, 1)), shard(3, "t", "", (2, 1))];
    let learnt = table.with_shards(&split).expect("newer");
    assert_eq!(learnt.locate(b"z").id, 3);
    assert!(learnt.with_shards(&split).is_none(), "nothing new the second time");
    assert!(learnt.with_shards(&[shard(2, "m", "", (1, 1))]).is_none(), "older");
    assert!(table.with_shards(&split[..1]).is_none(), "would leave a hole");

    let moved = table.with_shards(&[shard(1, "", "m", (1, 2))]).expect("newer conf");
    let again = moved
        .with_snapshot(route((1, 6), vec![shard(1, "", "m", (1, 1)), shard(2, "m", "", (1, 1))]))
        .expect("newer version");
    assert_eq!(again.locate(b"a").epoch.conf, 2);
}

#[test]
fn a_leader_of_an_older_term_is_not_believed() {
    let table = two_shards().with_leader(1, 12, 5).expect("news");
    assert_eq!(table.locate(b"a").leader_store(), Some(2));
    assert!(table.with_leader(1, 13, 4).is_none());
    assert!(table.with_leader(1, 12, 5).is_none());
    let later = table.with_leader(1, 13, 6).expect("news");
    let snapshot = route((1, 6), vec![shard(1, "", "m", (1, 1)), shard(2, "m", "", (1, 1))]);
    let later = later.with_snapshot(snapshot).expect("newer");
    assert_eq!(later.locate(b"a").leader, 13, "survives a snapshot that does not know it");
}

#[test]
fn the_leader_is_asked_first_then_everybody_once() {
    let table = two_shards().with_leader(1, 12, 5).expect("news");
    let shard = table.locate(b"a");
    let mut asked = Vec::new();
    while let Some(store) = pick(shard, 7, |s| asked.contains(&s)) {
        asked.push(store);
    }
    assert_eq!(asked[0], 2);
    asked.sort();
    assert_eq!(asked, [1, 2, 3]);
}

#[test]
fn the_wire_form_comes_back_the_same() {
    let table = two_shards().with_leader(1, 12, 5).expect("news");
    let back = RouteTable::from_snapshot(table.to_snapshot()).expect("ours");
    assert_eq!(back.shards(), table.shards());
    assert_eq!((back.version, back.address(2)), (table.version, table.address(2)));
}

#[test]
fn a_route_with_a_shard_without_keys_is_refused() {
    let shards = vec![shard(1, "", "b", (1, 1)), shard(2, "b", "b", (1, 1)), shard(3, "b", "", (1, 1))];
    assert_eq!(RouteTable::from_snapshot(route((1, 1), shards)).err(), Some(Refused::Hole));
}

proptest! {
    #[test]
    fn whatever_is_told_the_route_covers_every_key(
        updates in prop::collection::vec(
            (0u64..8, prop::collection::vec((1u64..6, 0u8..6, 0u8..6, 0u64..4, 0u64..3), 0..4)), 0..20),
    ) {
        let text = |n: u8| if n == 0 { String::new() } else { String::from((b'a' + n) as char) };
        let mut table = two_shards();
        for (version, shards) in updates {
            let before = table.version;
            let shards: Vec<_> = shards
                .into_iter()
                .map(|(id, start, end, v, c)| shard(id, &text(start), &text(end), (v, c)))
                .collect();
            if version % 2 == 0 {
                if let Some(next) = table.with_shards(&shards) { table = next; }
            } else if let Ok(next) = table.with_snapshot(route((1, version), shards)) { table = next; }
            prop_assert!(table.version >= before);
            let all = table.shards();
            prop_assert!(all[0].range.start.is_empty() && all[all.len() - 1].range.end.is_empty());
            for pair in all.windows(2) {
                prop_assert_eq!(&pair[0].range.end, &pair[1].range.start);
                prop_assert!(pair[0].range.start < pair[1].range.start);
            }
        }
    }
}
