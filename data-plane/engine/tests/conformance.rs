//! One suite over a shard on every kind of tree: whatever stores the records, a client sees the same.

mod support;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;
use support::engine_home::EngineHome;
use support::model::Model;
use support::world::{Home, MemHome, World};
use undb_engine::command::*;
use undb_engine::shard::*;
use undb_engine::tree::EngineKind;
use undb_types::KeyRange;

const NOW: u64 = 1_700_000_000_000;

fn put(key: &'static str, value: &'static str) -> Mutation {
    Mutation::put(key, value)
}

fn put_ttl(key: &'static str, ttl_ms: u64) -> Mutation {
    Mutation::new(key, Op::Put { value: "v".into(), kind: 0, expiry: Expiry::TtlMs(ttl_ms) })
}

fn incr(key: &'static str, by: i64) -> Mutation {
    Mutation::new(key, Op::Increment { by, initial: 0, ttl_ms: 0 })
}

fn request(client: u64, seq: u64, first_attempt_ms: u64, mutation: Mutation) -> Command {
    let request = Some(RequestId { client, seq, first_attempt_ms });
    Command { request, action: Action::Write(vec![mutation]) }
}

fn rejected(outcome: Outcome) -> RejectCode {
    match outcome {
        Outcome::Rejected { code, .. } => code,
        other => panic!("not rejected: {other:?}"),
    }
}

fn number(outcome: Outcome) -> i64 {
    match outcome {
        Outcome::Applied { results } => results[0].number,
        other => panic!("not applied: {other:?}"),
    }
}

fn a_put_is_read_back_after_restarts(w: &mut World) {
    let big: Bytes = vec![7; 5000].into();
    assert_eq!(w.write(NOW, put("a", "1")).version, w.version(0));
    assert!(w.write(NOW, put("a", "2")).existed);
    w.write(NOW, Mutation::put("big", big.clone()));
    for flush in [false, true, false] {
        if flush {
            w.flush();
        }
        w.reopen();
        assert_eq!(w.value(NOW, "a"), Some("2".into()));
        assert_eq!(w.get(NOW, "a").expect("there").meta.version, w.version(1));
        assert_eq!(w.value(NOW, "big"), Some(big.clone()));
    }
    assert!(w.write(NOW, Mutation::new("a", Op::Delete).with_previous()).previous.is_some());
    assert!(!w.write(NOW, Mutation::new("a", Op::Delete)).existed);
    assert_eq!(w.value(NOW, "a"), None);
}

fn conditions_decide_over_the_whole_command(w: &mut World) {
    let both = |condition| Command::write(vec![put("x", "new"), put("a", "new").when(condition)]);
    let failed = |current| Outcome::ConditionFailed { failed: 1, current };
    assert_eq!(w.command(NOW, both(Condition::Present)), failed(None));
    assert_eq!(w.command(NOW, both(Condition::Value("".into()))), failed(None));
    assert_eq!(w.value(NOW, "x"), None);
    let version = w.write(NOW, put("a", "1").when(Condition::Version(0))).version;
    for condition in [
        Condition::Absent,
        Condition::Version(version + 1),
        Condition::Version(0),
        Condition::Value("2".into()),
    ] {
        let Outcome::ConditionFailed { failed: 1, current: Some(current) } = w.command(NOW, both(condition))
        else {
            panic!("condition held");
        };
        assert_eq!((current.meta.version, current.value), (version, None));
    }
    let asked = Command::write(vec![put("a", "2").when(Condition::Absent).with_previous()]);
    let Outcome::ConditionFailed { current: Some(current), .. } = w.command(NOW, asked) else {
        panic!("held")
    };
    assert_eq!(current.value, Some("1".into()));
    assert_eq!(w.value(NOW, "x"), None);
    for condition in [Condition::Present, Condition::Value("new".into())] {
        assert!(matches!(
            w.command(NOW, both(condition)),
            Outcome::Applied { .. } | Outcome::ConditionFailed { .. }
        ));
    }
    let version = w.get(NOW, "a").expect("there").meta.version;
    assert!(matches!(w.command(NOW, both(Condition::Version(version))), Outcome::Applied { .. }));
    assert_eq!(w.value(NOW, "x"), Some("new".into()));
    let check = Mutation::new("a", Op::Check).when(Condition::Present);
    assert_eq!(w.write(NOW, check).version, w.get(NOW, "a").expect("there").meta.version);
}

fn increments_count_and_refuse_what_is_no_number(w: &mut World) {
    assert_eq!(w.write(NOW, Mutation::new("n", Op::Increment { by: 5, initial: 10, ttl_ms: 0 })).number, 15);
    assert_eq!(w.write(NOW, incr("n", -20)).number, -5);
    assert_eq!(w.value(NOW, "n"), Some("-5".into()));
    w.write(NOW, Mutation::put("max", i64::MAX.to_string()));
    assert_eq!(rejected(w.command(NOW, Command::write(vec![incr("max", 1)]))), RejectCode::Overflow);
    for text in ["", "x", "1.5", "+1", "01", " 1", "-0", "9223372036854775808"] {
        w.write(NOW, Mutation::put("t", text));
        let command = Command::write(vec![put("with", "it"), incr("t", 1)]);
        assert_eq!(rejected(w.command(NOW, command)), RejectCode::NotAnInteger, "{text:?}");
        assert_eq!(w.value(NOW, "with"), None, "a rejected command changes nothing");
    }
    w.write(NOW, Mutation::new("k", Op::Put { value: "1".into(), kind: 3, expiry: Expiry::Default }));
    assert_eq!(rejected(w.command(NOW, Command::write(vec![incr("k", 1)]))), RejectCode::WrongKind);
}

fn commands_of_one_entry_see_those_before(w: &mut World) {
    w.write(NOW, put("old", "v"));
    let outcomes = w.apply(
        NOW,
        &[
            Command::write(vec![put("a", "1"), put("a", "2")]),
            Command::write(vec![put("a", "3").when(Condition::Value("2".into())).with_previous()]),
            Command::write(vec![put("a", "4").when(Condition::Absent)]),
            Command::write(vec![incr("a", 4)]),
            Command::write(vec![Mutation::new("old", Op::Delete)]),
            Command::write(vec![put("old", "again").when(Condition::Absent)]),
            Command::write(vec![Mutation::new("", Op::DeleteRange { end: "b".into() })]),
            Command::write(vec![put("a", "5").when(Condition::Absent)]),
        ],
    );
    let applied: Vec<bool> = outcomes.iter().map(|o| matches!(o, Outcome::Applied { .. })).collect();
    assert_eq!(applied, [true, true, false, true, true, true, true, true]);
    assert_eq!((number(outcomes[3].clone()), number(outcomes[6].clone())), (7, 1));
    assert_eq!((w.value(NOW, "a"), w.value(NOW, "old")), (Some("5".into()), Some("again".into())));
}

fn records_expire_by_the_later_of_both_clocks(w: &mut World) {
    w.write(NOW, put_ttl("a", 1000));
    assert!(w.get(NOW + 999, "a").is_some());
    let reading = w.shard().get(&["a".into()], NOW + 1000, false).expect("readable");
    assert_eq!((reading.rows, reading.needs_tick), (vec![None], true), "only the reader's clock says so");
    assert!(w.shard().scan(&ScanRequest::default(), NOW + 1000).expect("readable").needs_tick);
    w.command(NOW + 1000, Command::tick());
    let reading = w.shard().get(&["a".into()], NOW, false).expect("readable");
    assert_eq!((reading.rows, reading.needs_tick), (vec![None], false), "time does not go back");
    assert_eq!(w.write(NOW, put("a", "2").when(Condition::Absent)).version, w.version(2));
    assert_eq!(w.get(NOW, "a").expect("there").meta.expire_at_ms, 0);
    // A leader with a slow clock: the replicated time stays.
    w.write(NOW - 50_000, put_ttl("b", 10));
    assert_eq!(w.get(NOW, "b").expect("there").meta.expire_at_ms, NOW + 1010);
}

fn expiries_are_kept_set_removed_and_defaulted(w: &mut World) {
    let keep = |key| Mutation::new(key, Op::Put { value: "v".into(), kind: 0, expiry: Expiry::Keep });
    let expiry = |w: &World, key| w.get(NOW, key).map(|row| row.meta.expire_at_ms);
    w.write(NOW, put_ttl("a", 1000));
    w.write(NOW, keep("a"));
    assert_eq!(expiry(w, "a"), Some(NOW + 1000));
    let version = w.get(NOW, "a").expect("there").meta.version;
    let set = w.write(NOW, Mutation::new("a", Op::SetExpiry(NewExpiry::TtlMs(77))));
    assert_eq!(
        (set.version, expiry(w, "a"), w.value(NOW, "a")),
        (version + 1, Some(NOW + 77), Some("v".into()))
    );
    w.write(NOW, Mutation::new("a", Op::SetExpiry(NewExpiry::Never)));
    assert_eq!(expiry(w, "a"), Some(0));
    assert!(!w.write(NOW, Mutation::new("none", Op::SetExpiry(NewExpiry::TtlMs(1)))).existed);
    assert_eq!(w.write(NOW, Mutation::new("a", Op::SetExpiry(NewExpiry::AtMs(NOW)))).version, 0);
    assert_eq!(w.get(NOW, "a"), None, "an expiry that has passed removes the record");
    w.default_ttl_ms = 5000;
    w.write(NOW, put("d", "v"));
    w.write(NOW, incr("n", 1));
    w.write(NOW, keep("k"));
    w.write(NOW, Mutation::new("m", Op::Increment { by: 1, initial: 0, ttl_ms: 9 }));
    assert_eq!(
        (expiry(w, "d"), expiry(w, "n"), expiry(w, "k")),
        (Some(NOW + 5000), Some(NOW + 5000), Some(NOW + 5000))
    );
    w.write(NOW, incr("m", 1));
    assert_eq!(expiry(w, "m"), Some(NOW + 9), "an increment keeps the expiry");
    w.check();
}

fn a_sweep_removes_exactly_what_has_expired(w: &mut World) {
    for (key, ttl_ms) in [("a", 10), ("b", 20), ("c", 30), ("d", 1000)] {
        w.write(NOW, put_ttl(key, ttl_ms));
    }
    w.write(NOW, put("e", "for ever"));
    assert!(!w.shard().sweep_due(NOW + 9).expect("readable"));
    assert!(w.shard().sweep_due(NOW + 10).expect("readable"));
    let two = Command { request: None, action: Action::Sweep { limit: 2 } };
    assert_eq!(w.command(NOW + 9, two.clone()), Outcome::Swept { removed: 0, more: false });
    assert_eq!(w.command(NOW + 30, two.clone()), Outcome::Swept { removed: 2, more: true });
    w.check();
    w.reopen();
    assert_eq!(w.command(NOW + 30, two), Outcome::Swept { removed: 1, more: false });
    assert_eq!(w.shard().stats().keys, 2);
    // Overwritten, removed and prolonged records leave nothing behind in the index.
    w.write(NOW, put("d", "for ever now"));
    w.write(NOW, put_ttl("f", 5));
    w.write(NOW, Mutation::new("f", Op::SetExpiry(NewExpiry::TtlMs(99_999))));
    assert_eq!(w.command(NOW + 2000, Command::sweep()), Outcome::Swept { removed: 0, more: false });
    w.write(NOW, Mutation::new("f", Op::Delete));
    w.check();
}

fn delete_range_goes_on_where_it_stopped(w: &mut World) {
    let keys: Vec<String> = (0..2345).map(|i| format!("k{i:05}")).collect();
    for chunk in keys.chunks(500) {
        let puts = chunk.iter().map(|key| Mutation::put(key.clone(), "v")).collect();
        assert!(matches!(w.command(NOW, Command::write(puts)), Outcome::Applied { .. }));
    }
    w.write(NOW, put("a", "before"));
    w.write(NOW, put("z", "behind"));
    let (mut at, mut removed, mut entries) = (Bytes::from_static(b"k"), 0, 0);
    loop {
        let result = w.write(NOW, Mutation::new(at.clone(), Op::DeleteRange { end: "l".into() }));
        removed += result.number;
        entries += 1;
        assert!(result.number <= 1000);
        match result.next {
            Some(next) => at = next,
            None => break,
        }
        if entries == 1 {
            w.flush();
            w.reopen();
        }
    }
    assert_eq!((removed, entries), (2345, 3));
    assert_eq!(w.contents(NOW, false, 10).len(), 2);
    assert_eq!(w.write(NOW, Mutation::new("z", Op::DeleteRange { end: Bytes::new() })).number, 1);
    let company = vec![put("a", "1"), Mutation::new("a", Op::DeleteRange { end: Bytes::new() })];
    assert_eq!(rejected(w.command(NOW, Command::write(company))), RejectCode::Invalid);
}

fn oversized_commands_are_rejected(w: &mut World) {
    let long = Mutation::put(vec![b'k'; 65_535], "v");
    assert_eq!(rejected(w.command(NOW, Command::write(vec![long]))), RejectCode::TooLarge);
    let many = (0..1001).map(|i| Mutation::put(i.to_string(), "v")).collect();
    assert_eq!(rejected(w.command(NOW, Command::write(many))), RejectCode::TooLarge);
    assert_eq!(rejected(w.command(NOW, Command::write(vec![Mutation::put("", "v")]))), RejectCode::Invalid);
    assert_eq!(w.shard().stats().keys, 0);
}

fn a_request_runs_once(w: &mut World) {
    let add = |seq| request(5, seq, NOW, incr("n", 1));
    assert_eq!(number(w.command(NOW, add(1))), 1);
    assert_eq!(number(w.command(NOW, add(1))), 1);
    let both = w.apply(NOW, &[add(2), add(2), add(1)]);
    assert_eq!(both.into_iter().map(number).collect::<Vec<_>>(), [2, 2, 1], "also within one entry");
    w.reopen();
    assert_eq!(number(w.command(NOW, add(2))), 2);
    w.flush();
    w.reopen();
    assert_eq!(number(w.command(NOW, add(1))), 1);
    // A failed condition stays failed for the same request, or a late duplicate would surprise.
    let once = request(5, 3, NOW, put("n", "x").when(Condition::Absent));
    assert!(matches!(w.command(NOW, once.clone()), Outcome::ConditionFailed { .. }));
    w.write(NOW, Mutation::new("n", Op::Delete));
    assert!(matches!(w.command(NOW, once), Outcome::ConditionFailed { .. }));
    assert_eq!(
        number(w.command(NOW, request(6, 1, NOW, incr("n", 1)))),
        1,
        "another client's seqs are its own"
    );
}

fn a_request_that_may_be_forgotten_is_never_run(w: &mut World) {
    let add = |seq: u64| request(5, seq, NOW + seq, incr("n", 1));
    for seq in 1..=(WINDOW_LEN as u64 + 10) {
        assert_eq!(number(w.command(NOW, add(seq))), seq as i64);
        if seq == 70 {
            w.flush();
            w.reopen();
        }
    }
    for round in 0..2 {
        for seq in 1..=10 {
            let old = w.command(NOW, add(seq));
            assert!(matches!(old, Outcome::TooOld { .. }), "{seq} in round {round}: {old:?}");
        }
        assert_eq!(number(w.command(NOW, add(11))), 11, "the oldest that is remembered");
        w.flush();
        w.reopen();
    }
    // A low seq that was first tried later than everything forgotten cannot have been run.
    let late = request(5, 0, NOW + 5000, incr("n", 1));
    assert_eq!(number(w.command(NOW, late)), WINDOW_LEN as i64 + 11);
}

fn an_idle_client_is_forgotten_by_replicated_time(w: &mut World) {
    let add = |client, at| request(client, 1, at, incr("n", 1));
    w.command(NOW, add(5, NOW));
    w.command(NOW + 1000, add(6, NOW + 1000));
    let later = NOW + CLIENT_IDLE_MS_MAX;
    w.command(later, Command::tick());
    assert_eq!(w.shard().stats().clients, 1);
    for _ in 0..2 {
        assert!(
            matches!(w.command(later, add(5, NOW)), Outcome::TooOld { watermark_ms } if watermark_ms == NOW)
        );
        assert_eq!(number(w.command(later, add(6, NOW + 1000))), 2, "still remembered");
        w.flush();
        w.reopen();
    }
    assert_eq!(number(w.command(later, add(5, NOW + 1))), 3, "first tried behind the watermark");
    let ahead = add(7, later + CLOCK_AHEAD_MS_MAX + 1000);
    assert_eq!(rejected(w.command(later, ahead)), RejectCode::ClockAhead);
    assert_eq!(w.value(later, "n"), Some("3".into()));
}

fn too_many_clients_push_the_idlest_out(w: &mut World) {
    let commands: Vec<Command> =
        (1..=CLIENTS_MAX as u64 + 3).map(|c| request(c, 1, NOW + c, Mutation::new("a", Op::Check))).collect();
    for (i, chunk) in commands.chunks(512).enumerate() {
        w.apply(NOW + i as u64, chunk);
    }
    assert_eq!(w.shard().stats().clients, CLIENTS_MAX as u64);
    w.flush();
    w.reopen();
    assert_eq!(w.shard().stats().clients, CLIENTS_MAX as u64);
    assert!(matches!(w.command(NOW, commands[0].clone()), Outcome::TooOld { .. }));
    assert!(matches!(w.command(NOW, commands[3].clone()), Outcome::Applied { .. }));
}

fn a_large_answer_is_not_kept(w: &mut World) {
    w.write(NOW, Mutation::put("a", vec![1; 5000]));
    let swap = request(5, 1, NOW, put("a", "2").with_previous());
    let Outcome::Applied { results } = w.command(NOW, swap.clone()) else { panic!("not applied") };
    assert_eq!(results[0].previous.as_ref().and_then(|r| r.value.as_ref()).map(Bytes::len), Some(5000));
    assert_eq!(w.command(NOW, swap), Outcome::Forgotten);
    assert_eq!(w.value(NOW, "a"), Some("2".into()));
}

fn scans_page_in_both_directions(w: &mut World) {
    for key in ["a", "b1", "b2", "b3", "c"] {
        w.write(NOW, put(key, "value"));
    }
    w.write(NOW, put_ttl("b15", 10));
    let scan = |w: &World, range: KeyRange, reverse, limit, bytes_max, keys_only| {
        let request = ScanRequest { range, reverse, limit, bytes_max, keys_only };
        let page = w.shard().scan(&request, NOW + 10).expect("readable");
        let keys: Vec<String> =
            page.rows.iter().map(|row| String::from_utf8_lossy(&row.key).into_owned()).collect();
        (keys, page.next)
    };
    let all = KeyRange::all;
    assert_eq!(scan(w, all(), false, 2, 0, false), (vec!["a".into(), "b1".into()], Some("b15".into())));
    assert_eq!(scan(w, all(), true, 2, 0, false), (vec!["c".into(), "b3".into()], Some("b3".into())));
    let prefix = KeyRange { start: "b".into(), end: undb_types::prefix_end(b"b") };
    assert_eq!(scan(w, prefix.clone(), true, 10, 0, true).0, ["b3", "b2", "b1"]);
    assert_eq!(scan(w, prefix, false, 3, 0, false), (vec!["b1".into(), "b2".into(), "b3".into()], None));
    assert_eq!(scan(w, all(), false, 0, 1, false).0, ["a"], "at least one record");
    assert_eq!(scan(w, KeyRange { start: "c".into(), end: "b".into() }, false, 0, 0, false), (vec![], None));
    for limit in 1..7 {
        let mut back = w.contents(NOW + 10, true, limit);
        back.reverse();
        assert_eq!(w.contents(NOW + 10, false, limit), back);
        assert_eq!(back.len(), 5);
    }
    let keys = ["c".into(), "none".into(), "a".into()];
    let rows = w.shard().get(&keys, NOW, true).expect("readable").rows;
    let lens: Vec<Option<u32>> = rows.iter().map(|row| row.as_ref().map(|row| row.meta.value_len)).collect();
    assert_eq!(lens, [Some(5), None, Some(5)]);
    assert!(rows.iter().flatten().all(|row| row.value.is_none()));
}

fn entries_come_once_and_in_order(w: &mut World) {
    w.entry(Body::Blank).expect("blank");
    w.entry(Body::Membership("members".into())).expect("members");
    w.command(NOW, request(1, 1, NOW, incr("n", 1)));
    w.apply_again();
    let mut gap =
        AppliedEntry { id: w.shard().applied().log_id.expect("applied"), body: Body::Blank, at: None };
    gap.id.index += 2;
    assert!(matches!(w.shard().apply(gap), Err(ShardError::Gap { applied: 2, got: 4 })));
    let damaged = w.entry(Body::Commands("not a command".into())).expect_err("corrupt");
    assert!(matches!(damaged, ShardError::Format(_)), "{damaged}");
    assert_eq!(w.shard().applied().log_id.expect("applied").index, 2, "never skipped");
    w.flush();
    w.reopen();
    assert_eq!(w.shard().applied().membership, Bytes::from_static(b"members"));
    assert_eq!(w.write(NOW, incr("n", 1)).number, 2);
}

fn a_damaged_snapshot_changes_nothing(w: &mut World) {
    w.write(NOW, put("a", "old"));
    let mut other = World::new(Box::new(MemHome::default()));
    for i in 0..50 {
        other.write(NOW, Mutation::put(format!("k{i}"), vec![i; 50]));
    }
    other.write(NOW, put_ttl("timed", 1000));
    let mut snapshot = other.shard().snapshot().expect("snapshot");
    let log_id = snapshot.log_id();
    let good: Vec<Bytes> = std::iter::from_fn(|| snapshot.next_chunk(200).expect("chunk")).collect();
    assert!(good.len() > 10);
    let before = (w.shard().applied(), w.shard().stats(), w.contents(NOW, false, 10));
    let refuse = |chunks: Vec<Bytes>, what: &str| {
        let error = w.shard().install(log_id, Bytes::new(), &mut chunks.into_iter().map(Ok));
        assert!(error.is_err(), "{what}");
        assert_eq!((w.shard().applied(), w.shard().stats(), w.contents(NOW, false, 10)), before, "{what}");
    };
    for i in 0..good.len() {
        refuse(good[..i].to_vec(), "cut off");
        let mut flipped = good.clone();
        let mut bytes = flipped[i].to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 4;
        flipped[i] = bytes.into();
        refuse(flipped, "a flipped bit");
        if i > 0 && i + 1 < good.len() {
            let mut missing = good.clone();
            missing.remove(i);
            refuse(missing, "a missing chunk");
        }
    }
    let wrong = w.shard().install(None, Bytes::new(), &mut good.clone().into_iter().map(Ok));
    assert!(matches!(wrong, Err(ShardError::Snapshot(_))), "another position than announced");
    w.shard().install(log_id, "m".into(), &mut good.into_iter().map(Ok)).expect("installs");
    assert_eq!(w.contents(NOW, false, 1000), other.contents(NOW, false, 1000));
    assert_eq!(w.shard().stats(), other.shard().stats());
    w.check();
}

/// The chunks come as slowly as a network: whoever waited for the install would wait for the peer, and a process
/// whose every thread waits receives no more chunks.
fn nobody_waits_for_a_snapshot_that_is_on_its_way(w: &mut World) {
    w.write(NOW, put("a", "old"));
    let mut other = World::new(Box::new(MemHome::default()));
    (0..50).for_each(|i| drop(other.write(NOW, Mutation::put(format!("k{i}"), vec![i; 50]))));
    let mut snapshot = other.shard().snapshot().expect("snapshot");
    let (log_id, shard) = (snapshot.log_id(), w.shard());
    let before = shard.stats();
    let used = || {
        shard.maintain().and_then(|_| shard.flush()).and_then(|_| shard.snapshot()).expect("as at any time");
        (shard.stats(), shard.durable() == shard.applied().log_id)
    };
    let installed = std::thread::scope(|threads| {
        let mut chunks = std::iter::from_fn(|| snapshot.next_chunk(200).expect("chunk")).map(|chunk| {
            let (tell, told) = std::sync::mpsc::channel();
            threads.spawn(move || tell.send(used()));
            match told.recv_timeout(Duration::from_secs(30)) {
                Ok(seen) if seen == (before, true) => Ok(chunk),
                Ok(seen) => Err(std::io::Error::other(format!("{seen:?} in the middle of an install"))),
                Err(_) => Err(std::io::Error::other("a user of the shard waits for the install")),
            }
        });
        shard.install(log_id, Bytes::new(), &mut chunks)
    });
    installed.expect("installs");
    assert_eq!(w.contents(NOW, false, 1000), other.contents(NOW, false, 1000));
    w.check();
}

fn random_mutation(rng: &mut StdRng, now_ms: u64, version: u64) -> Mutation {
    let key = format!("k{}", rng.random_range(0..24));
    let sizes = [0, 1, 2, 40, 600, 3000];
    let value = match rng.random_range(0..4) {
        0 => Bytes::from(rng.random_range(-50..50).to_string()),
        _ => vec![rng.random::<u8>(); sizes[rng.random_range(0..sizes.len())]].into(),
    };
    let soon = |rng: &mut StdRng| rng.random_range(0..400);
    let op = match rng.random_range(0..14) {
        0..6 => {
            let expiry = match rng.random_range(0..5) {
                0 => Expiry::TtlMs(soon(rng)),
                1 => Expiry::Keep,
                2 => Expiry::AtMs(now_ms - 50 + soon(rng)),
                _ => Expiry::Default,
            };
            Op::Put { value: value.clone(), kind: u32::from(rng.random_bool(0.1)), expiry }
        }
        6..8 => Op::Delete,
        8..10 => Op::Increment { by: rng.random_range(-5..5), initial: 3, ttl_ms: soon(rng) / 100 * 100 },
        10 => Op::SetExpiry(NewExpiry::Never),
        11 => Op::SetExpiry(NewExpiry::TtlMs(soon(rng))),
        12 => Op::SetExpiry(NewExpiry::AtMs(now_ms - 50 + soon(rng))),
        _ => Op::Check,
    };
    let condition = match rng.random_range(0..12) {
        0 => Some(Condition::Absent),
        1 => Some(Condition::Present),
        2 => Some(Condition::Version(version - rng.random_range(0..20))),
        3 => Some(Condition::Value(value)),
        _ => None,
    };
    Mutation { key: key.into(), condition, return_previous: rng.random_bool(0.2), op }
}

fn random_command(rng: &mut StdRng, now_ms: u64, version: u64, seq: &mut u64) -> Command {
    let action = match rng.random_range(0..20) {
        0 => Action::Tick,
        1 => Action::Sweep { limit: rng.random_range(1..6) },
        2 => {
            let end = format!("k{}", rng.random_range(0..24));
            let key = format!("k{}", rng.random_range(0..24));
            Action::Write(vec![Mutation::new(key, Op::DeleteRange { end: end.into() })])
        }
        _ => {
            let count = rng.random_range(1..4);
            Action::Write((0..count).map(|_| random_mutation(rng, now_ms, version)).collect())
        }
    };
    // Repeated seqs are retries; few enough that none is forgotten.
    let request = rng.random_bool(0.4).then(|| {
        if rng.random_bool(0.7) {
            *seq += 1;
        }
        RequestId { client: 1 + *seq % 4, seq: *seq, first_attempt_ms: now_ms }
    });
    Command { request, action }
}

/// Equal, or the answer to a repeated request was too large to keep.
fn agree(found: &Outcome, wanted: &Outcome) -> bool {
    let len = encode_outcomes(&Outcomes { now_ms: 0, outcomes: vec![wanted.clone()] }).len();
    found == wanted || (*found == Outcome::Forgotten && len > 1024)
}

/// Steps of a random history on `homes[0]`, which at times moves on to the next home by a snapshot.
fn random_history(seed: u64, homes: &mut dyn FnMut() -> Box<dyn Home>, steps: u32) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut w = World::new(homes());
    let mut model = Model::default();
    let (mut now_ms, mut seq) = (NOW, 0);
    for step in 0..steps {
        now_ms = (now_ms + rng.random_range(0..60)).saturating_sub(rng.random_range(0..30));
        w.default_ttl_ms = if rng.random_bool(0.2) { 300 } else { 0 };
        let version = w.version(w.next_index());
        let count = rng.random_range(1..5);
        let mut commands: Vec<Command> =
            (0..count).map(|_| random_command(&mut rng, now_ms, version, &mut seq)).collect();
        // A sweep is an entry of its own: its index is the tree's, as of before the entry.
        if let Some(sweep) = commands.iter().find(|c| matches!(c.action, Action::Sweep { .. })) {
            commands = vec![sweep.clone()];
        }
        let found = w.apply(now_ms, &commands);
        let wanted = model.apply(now_ms, w.default_ttl_ms, version, &commands);
        assert_eq!(found.len(), wanted.len());
        for ((found, wanted), command) in found.iter().zip(&wanted).zip(&commands) {
            let what = format!("seed {seed}, step {step}: {command:?}\nfound {found:?}\nwanted {wanted:?}");
            assert!(agree(found, wanted), "{}", what.chars().take(3000).collect::<String>());
        }
        match rng.random_range(0..40) {
            0..4 => w.flush(),
            4..6 => w.reopen(),
            6 => w.apply_again(),
            7 => w.move_into(homes()),
            8..10 => w.maintain(now_ms),
            _ => {}
        }
        if step % 8 == 0 {
            let at = now_ms + rng.random_range(0..100);
            assert_eq!(w.contents(at, false, 5), model.contents(at), "seed {seed}, step {step}");
            let mut back = w.contents(at, true, 3);
            back.reverse();
            assert_eq!(back, model.contents(at), "seed {seed}, step {step}, backwards");
        }
    }
    w.check();
    w.reopen();
    assert_eq!(w.contents(now_ms, false, 100), model.contents(now_ms), "seed {seed}, at the end");
    assert_eq!(w.shard().stats().keys, model.rows.len() as u64);
    w.check();
}

macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        macro_rules! on {
            ($kind:ident, $home:expr) => {
                mod $kind {
                    use super::*;
                    $(#[test] fn $name() { super::$name(&mut World::new($home)); })*

                    #[test]
                    fn random_histories_are_the_models() {
                        for seed in 0..6 {
                            random_history(seed, &mut || $home, 300);
                        }
                    }
                }
            };
        }
    };
}

suite![
    a_put_is_read_back_after_restarts,
    conditions_decide_over_the_whole_command,
    increments_count_and_refuse_what_is_no_number,
    commands_of_one_entry_see_those_before,
    records_expire_by_the_later_of_both_clocks,
    expiries_are_kept_set_removed_and_defaulted,
    a_sweep_removes_exactly_what_has_expired,
    delete_range_goes_on_where_it_stopped,
    oversized_commands_are_rejected,
    a_request_runs_once,
    a_request_that_may_be_forgotten_is_never_run,
    an_idle_client_is_forgotten_by_replicated_time,
    too_many_clients_push_the_idlest_out,
    a_large_answer_is_not_kept,
    scans_page_in_both_directions,
    entries_come_once_and_in_order,
    a_damaged_snapshot_changes_nothing,
    nobody_waits_for_a_snapshot_that_is_on_its_way,
];

fn home(kind: EngineKind, threshold: u32) -> Box<dyn Home> {
    Box::new(EngineHome::new(kind, threshold))
}

on!(memory, Box::new(MemHome::default()));
on!(separated_always, home(EngineKind::Separated, 0));
on!(separated_from_1_byte, home(EngineKind::Separated, 1));
on!(separated_from_512_bytes, home(EngineKind::Separated, 512));
on!(separated_never, home(EngineKind::Separated, u32::MAX));
on!(lsm, home(EngineKind::Lsm, 0));
on!(sled, home(EngineKind::Sled, 0));

#[test]
fn a_shard_moves_between_all_kinds_of_engine() {
    let kinds = [
        (EngineKind::Separated, 0),
        (EngineKind::Sled, 0),
        (EngineKind::Separated, 512),
        (EngineKind::Lsm, 0),
        (EngineKind::Separated, u32::MAX),
    ];
    for seed in 100..103 {
        let mut turn = seed as usize;
        let mut next = || {
            turn += 1;
            let (kind, threshold) = kinds[turn % kinds.len()];
            home(kind, threshold)
        };
        random_history(seed, &mut next, 400);
    }
}
