//! Random commands: the invariants hold after each, a refused one changes nothing, a mirror that takes
//! the changes is the same state, and so is one that goes through an image.

use proptest::prelude::*;
use undb_meta::{DEFAULT_NAME, ImageError, State, TABLE_RETENTION_MS};
use undb_proto::v1::{self, ErrorCode, Role, StoreState, TableState, meta_command::Op};

fn any_state() -> impl Strategy<Value = i32> {
    0..4_i32
}

fn shard_record() -> impl Strategy<Value = v1::ShardRecord> {
    let replica = (1..40_u64, 1..8_u64, 0..3_i32).prop_map(|(replica_id, store_id, role)| v1::Replica {
        replica_id,
        store_id,
        role,
    });
    let ends = prop::sample::select(vec!["", "", "g", "m"]);
    let starts = prop::sample::select(vec!["", "", "g", "m"]);
    let shape = (1..40_u64, 1..40_u64, starts, ends, 1..3_u64, 1..4_u64);
    (shape, prop::collection::vec(replica, 0..4), 0..60_u64, any::<bool>()).prop_map(
        |((shard_id, table_id, start, end, version, conf), replicas, revision, bootstrapping)| {
            v1::ShardRecord {
                shard: Some(v1::Shard {
                    shard_id,
                    table_id,
                    range: Some(v1::KeyRange { start: start.into(), end: end.into() }),
                    epoch: Some(v1::Epoch { version, conf }),
                    replicas,
                    version_base: 0,
                }),
                revision,
                bootstrapping,
            }
        },
    )
}

fn table_record() -> impl Strategy<Value = v1::TableRecord> {
    (1..40_u64, "[ab]", "[xy]", 1..4_u32, any::<bool>()).prop_map(
        |(table_id, name, spec, replication, good)| v1::TableRecord {
            table_id,
            name,
            spec_json: spec,
            replication,
            options: Some(v1::TableOptions::default()),
            store_cluster: if good { DEFAULT_NAME.into() } else { "none".into() },
            ..Default::default()
        },
    )
}

fn disruption() -> impl Strategy<Value = Op> {
    let stores = || prop::collection::vec(1..8_u64, 0..3);
    let decision = || Some(v1::GateDecision::default());
    prop_oneof![
        (0..4_i32, stores(), "[ab]", 0..20_u64, 0..60_u64).prop_map(
            move |(kind, stores, holder, ttl_ms, max_duration_ms)| {
                let decision = decision();
                Op::AcquireDisruption(v1::AcquireDisruption {
                    kind,
                    stores,
                    holder,
                    ttl_ms,
                    max_duration_ms,
                    decision,
                })
            }
        ),
        (1..40_u64, 0..20_u64, 0..5_i32).prop_map(move |(lease_id, ttl_ms, phase)| {
            Op::RenewDisruption(v1::RenewDisruption {
                lease_id,
                token: 0,
                ttl_ms,
                phase,
                decision: decision(),
            })
        }),
        (1..40_u64, stores()).prop_map(move |(lease_id, proven_up)| {
            Op::ReleaseDisruption(v1::ReleaseDisruption {
                lease_id,
                token: 0,
                proven_up,
                decision: decision(),
            })
        }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let word = "[abc]";
    prop_oneof![
        1 => word.prop_map(|cluster_id| Op::InitCluster(v1::InitCluster { cluster_id })),
        1 => (word, word, 0..30_u64).prop_map(|(owner, address, ttl_ms)| Op::AcquireControlLease(
            v1::AcquireControlLease { owner, address, ttl_ms }
        )),
        3 => ("[a-f]", "[a-d]", any::<bool>(), prop::collection::vec(1..8_u64, 0..3)).prop_map(
            |(uuid, address, empty, disconnected)| Op::RegisterStore(v1::RegisterStore {
                uuid, address, zone: String::new(), store_cluster: DEFAULT_NAME.into(), empty, disconnected
            })
        ),
        1 => (1..8_u64, any_state(), 0..60_u64).prop_map(|(store_id, state, expected_revision)| {
            Op::SetStoreState(v1::SetStoreState { store_id, state, expected_revision, lost: None })
        }),
        1 => ("(default|b)", word, 0..60_u64).prop_map(|(name, spec_json, revision)| Op::PutStoreCluster(
            v1::PutStoreCluster {
                store_cluster: Some(v1::StoreClusterRecord { name, spec_json, revision })
            }
        )),
        1 => "(default|b)".prop_map(|name| Op::DeleteStoreCluster(v1::DeleteStoreCluster { name })),
        3 => (table_record(), prop::collection::vec(shard_record(), 1..3)).prop_map(|(mut table, mut shards)| {
            table.store_cluster = DEFAULT_NAME.into();
            for shard in &mut shards {
                shard.bootstrapping = true;
                if let Some(shard) = shard.shard.as_mut() {
                    shard.table_id = table.table_id;
                }
            }
            Op::CreateTable(v1::CreateTable { table: Some(table), shards })
        }),
        1 => (table_record(), 0..60_u64).prop_map(|(table, expected_revision)| Op::AlterTable(v1::AlterTable {
            table: Some(table), expected_revision
        })),
        1 => ("[ab]", any::<bool>()).prop_map(|(name, now)| Op::DeleteTable(v1::DeleteTable { name, now })),
        1 => "[ab]".prop_map(|name| Op::UndeleteTable(v1::UndeleteTable { name })),
        1 => (1..40_u64, any_state(), 0..60_u64).prop_map(|(table_id, state, expected_revision)| Op::SetTableState(
            v1::SetTableState { table_id, state, condition: String::new(), expected_revision }
        )),
        2 => prop::collection::vec(shard_record(), 1..3).prop_map(|shards| Op::PutShards(v1::PutShards { shards })),
        1 => (1..40_u64).prop_map(|table_id| Op::PurgeTable(v1::PurgeTable { table_id })),
        2 => (0..9_u32).prop_map(|count| Op::AllocateIds(v1::AllocateIds { count })),
        3 => disruption(),
        2 => (1..40_u64, 1..8_u64, 1..8_u64).prop_map(|(shard_id, from_store_id, to_store_id)| Op::StartMove(
            v1::StartMove { shard_id, from_store_id, to_store_id }
        )),
        1 => (1..40_u64, 1..40_u64).prop_map(|(shard_id, from_replica_id)| Op::EndMove(
            v1::EndMove { shard_id, from_replica_id }
        )),
    ]
}

/// Compare-and-set commands get the right revision most of the time, or little would ever change.
fn aim(state: &State, mut op: Op, right: bool) -> Op {
    if !right {
        return op;
    }
    let now = |state: &State| Some(v1::GateDecision { revision: state.revision(), at_ms: state.now_ms() });
    let lease = state.disruption_leases().last().map_or((0, 0), |l| (l.lease_id, l.token));
    match &mut op {
        Op::AcquireDisruption(op) => op.decision = now(state),
        Op::RenewDisruption(op) => (op.lease_id, op.token, op.decision) = (lease.0, lease.1, now(state)),
        Op::ReleaseDisruption(op) => (op.lease_id, op.token, op.decision) = (lease.0, lease.1, now(state)),
        Op::EndMove(op) => {
            let last = state.replica_moves().last();
            (op.shard_id, op.from_replica_id) = last.map_or((0, 0), |m| (m.shard_id, m.from_replica_id));
        }
        Op::StartMove(op) => {
            let served = state.shards().find(|s| !s.bootstrapping).and_then(|s| s.shard.as_ref());
            op.shard_id = served.map_or(op.shard_id, |s| s.shard_id);
        }
        Op::SetStoreState(op) => op.expected_revision = state.store(op.store_id).map_or(0, |s| s.revision),
        Op::PutStoreCluster(op) => {
            if let Some(record) = op.store_cluster.as_mut() {
                record.revision = state.store_cluster(&record.name).map_or(0, |s| s.revision);
            }
        }
        Op::AlterTable(op) => {
            if let Some(table) = op.table.as_mut()
                && let Some(known) = state.live_table(&table.name)
            {
                op.expected_revision = known.revision;
                table.table_id = known.table_id;
            }
        }
        Op::SetTableState(op) => op.expected_revision = state.table(op.table_id).map_or(0, |t| t.revision),
        Op::PutShards(op) => {
            for record in &mut op.shards {
                let Some(shard) = record.shard.as_mut() else { continue };
                if let Some(known) = state.shard(shard.shard_id) {
                    record.revision = known.revision;
                    let was = known.shard.as_ref().expect("whole");
                    (shard.table_id, shard.range) = (was.table_id, was.range.clone());
                }
            }
        }
        _ => {}
    }
    op
}

fn begun() -> State {
    let mut state = State::default();
    let ops = [
        Op::InitCluster(v1::InitCluster { cluster_id: "a".into() }),
        Op::AcquireControlLease(v1::AcquireControlLease {
            owner: "a".into(),
            address: "a".into(),
            ttl_ms: 9,
        }),
    ];
    for op in ops {
        state.apply(v1::MetaCommand { now_ms: 1, control_lease: 0, op: Some(op) }).expect("a new cluster");
    }
    let record = v1::StoreClusterRecord { name: DEFAULT_NAME.into(), ..Default::default() };
    let op = Op::PutStoreCluster(v1::PutStoreCluster { store_cluster: Some(record) });
    state.apply(v1::MetaCommand { now_ms: 1, control_lease: 1, op: Some(op) }).expect("the first");
    state
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn invariants_hold_and_copies_are_equal(
        commands in prop::collection::vec((op(), 0..20_u64, 0..10_u32), 1..80)
    ) {
        let mut state = begun();
        let mut mirror = State::from_image(state.image()).expect("our own image");
        let mut other = state.clone();
        let mut now_ms = 10;
        for (op, step, luck) in commands {
            now_ms += if luck == 0 { TABLE_RETENTION_MS } else { step };
            let control_lease = if luck == 1 { 0 } else { state.control_lease().epoch };
            let op = aim(&state, op, luck > 2);
            let command = v1::MetaCommand { now_ms, control_lease, op: Some(op) };
            let before = state.clone();
            let applied = state.apply(command.clone());
            prop_assert_eq!(&applied, &other.apply(command), "deterministic");
            prop_assert_eq!(state.check(), Vec::<String>::new());
            match applied {
                Ok(applied) if applied.change != v1::MetaChange::default() => {
                    prop_assert_eq!(applied.revision, before.revision() + 1);
                    mirror.absorb(applied.revision, applied.change);
                }
                Ok(_) | Err(_) => {
                    let (mut a, mut b) = (before.image(), state.image());
                    (a.now_ms, b.now_ms) = (0, 0);
                    prop_assert_eq!(a, b, "nothing but the time changes");
                }
            }
            let (mut a, mut b) = (mirror.image(), state.image());
            (a.now_ms, b.now_ms) = (0, 0);
            prop_assert_eq!(a, b, "the mirror follows");
            prop_assert_eq!(&State::decode(&state.encode()).expect("our own"), &state);
        }
    }
}

#[test]
fn image_of_a_newer_format_is_refused_by_name() {
    let mut image = begun().image();
    image.format_version = undb_meta::FORMAT_VERSION + 1;
    let error = State::from_image(image).expect_err("newer");
    assert!(matches!(error, ImageError::Newer { .. }));
    assert!(error.to_string().contains("start the build that wrote it"), "{error}");
}

fn apply(state: &mut State, now_ms: u64, op: Op) -> Result<v1::MetaResult, undb_meta::Reject> {
    let control_lease = state.control_lease().epoch;
    let done = state.apply(v1::MetaCommand { now_ms, control_lease, op: Some(op) });
    assert_eq!(state.check(), Vec::<String>::new());
    done.map(|a| a.result)
}

fn register(uuid: &str, address: &str, empty: bool, disconnected: Vec<u64>) -> Op {
    Op::RegisterStore(v1::RegisterStore {
        uuid: uuid.into(),
        address: address.into(),
        zone: "z".into(),
        store_cluster: DEFAULT_NAME.into(),
        empty,
        disconnected,
    })
}

#[test]
fn an_empty_store_takes_the_place_of_a_silent_one_and_the_old_one_never_returns() {
    let mut state = begun();
    let old = apply(&mut state, 2, register("old", "h:1", true, vec![])).expect("new").store.expect("store");
    let alive = apply(&mut state, 3, register("new", "h:1", true, vec![])).expect_err("it is alive");
    assert_eq!(alive.code, ErrorCode::AlreadyExists);
    let full =
        apply(&mut state, 3, register("new", "h:1", false, vec![old.store_id])).expect_err("not empty");
    assert_eq!(full.code, ErrorCode::Conflict);
    let new = apply(&mut state, 4, register("new", "h:1", true, vec![old.store_id])).expect("empty");
    let new = new.store.expect("store");
    assert_ne!(new.store_id, old.store_id);
    let fenced = state.store(old.store_id).expect("kept");
    assert_eq!((fenced.state(), &fenced.superseded_by[..]), (StoreState::StoreRemoved, "new"));
    let back = apply(&mut state, 5, register("old", "h:2", true, vec![])).expect_err("for ever");
    assert_eq!(back.code, ErrorCode::Fenced);
}

#[test]
fn a_store_that_moved_keeps_its_id() {
    let mut state = begun();
    let first = apply(&mut state, 2, register("u", "h:1", true, vec![])).expect("new").store.expect("store");
    let again =
        apply(&mut state, 3, register("u", "h:9", false, vec![])).expect("known").store.expect("store");
    assert_eq!((again.store_id, &again.address[..]), (first.store_id, "h:9"));
}

#[test]
fn a_control_lease_fences_the_owner_before_it() {
    let mut state = begun();
    let lease = |owner: &str, address: &str| {
        Op::AcquireControlLease(v1::AcquireControlLease {
            owner: owner.into(),
            address: address.into(),
            ttl_ms: 100,
        })
    };
    apply(&mut state, 10, lease("a", "a")).expect("renewed");
    assert_eq!(state.control_lease().epoch, 1);
    assert_eq!(apply(&mut state, 50, lease("b", "b")).expect_err("held").code, ErrorCode::Conflict);
    apply(&mut state, 110, lease("b", "b")).expect("over");
    assert_eq!(state.control_lease().epoch, 2);
    let old = v1::MetaCommand {
        now_ms: 111,
        control_lease: 1,
        op: Some(Op::AllocateIds(v1::AllocateIds { count: 1 })),
    };
    assert_eq!(state.apply(old).expect_err("fenced").code, ErrorCode::Fenced);
    apply(&mut state, 112, lease("b2", "b")).expect("a process at the holder's address need not wait");
    assert_eq!(state.control_lease().epoch, 3);
}

fn table(state: &mut State, name: &str, spec: &str) -> Result<v1::MetaResult, undb_meta::Reject> {
    let ids = apply(state, 2, Op::AllocateIds(v1::AllocateIds { count: 4 })).expect("ids").first_id;
    let record = v1::TableRecord {
        table_id: ids,
        name: name.into(),
        spec_json: spec.into(),
        replication: 1,
        options: Some(v1::TableOptions::default()),
        store_cluster: DEFAULT_NAME.into(),
        ..Default::default()
    };
    let shards = undb_meta::plan::first_shards(ids, ids + 1, &["m".into()]);
    apply(state, 2, Op::CreateTable(v1::CreateTable { table: Some(record), shards }))
}

#[test]
fn a_table_is_created_once_and_kept_for_seven_days_after_its_deletion() {
    let mut state = begun();
    let first = table(&mut state, "t", "x").expect("new").table.expect("table");
    let again = table(&mut state, "t", "x").expect("the same").table.expect("table");
    assert_eq!(first.table_id, again.table_id);
    assert_eq!(table(&mut state, "t", "y").expect_err("another").code, ErrorCode::AlreadyExists);
    let delete = |now| Op::DeleteTable(v1::DeleteTable { name: "t".into(), now });
    let undelete = || Op::UndeleteTable(v1::UndeleteTable { name: "t".into() });
    let purge = || Op::PurgeTable(v1::PurgeTable { table_id: first.table_id });
    apply(&mut state, 10, delete(false)).expect("live");
    assert_eq!(apply(&mut state, 11, purge()).expect_err("kept").code, ErrorCode::Conflict);
    apply(&mut state, 12, undelete()).expect("kept");
    apply(&mut state, 20, delete(false)).expect("live");
    assert_eq!(
        apply(&mut state, 20 + TABLE_RETENTION_MS, undelete()).expect_err("over").code,
        ErrorCode::TableNotFound
    );
    apply(&mut state, 20 + TABLE_RETENTION_MS, purge()).expect("over");
    assert_eq!((state.tables().count(), state.shards().count()), (0, 0));
    assert!(state.is_purged(first.table_id + 1) && state.is_purged(first.table_id + 2));
}

#[test]
fn a_shard_never_goes_back_to_an_older_epoch_or_revision() {
    let mut state = begun();
    let store = apply(&mut state, 2, register("u", "h:1", true, vec![])).expect("new").store.expect("store");
    let first = table(&mut state, "t", "x").expect("new").table.expect("table");
    let replica_id =
        apply(&mut state, 3, Op::AllocateIds(v1::AllocateIds { count: 1 })).expect("ids").first_id;
    let mut record = state.shard(first.table_id + 1).expect("created").clone();
    let put = |record: &v1::ShardRecord| Op::PutShards(v1::PutShards { shards: vec![record.clone()] });
    let shard = record.shard.as_mut().expect("whole");
    shard.replicas.push(v1::Replica { replica_id, store_id: store.store_id, role: Role::Voter as i32 });
    shard.epoch = Some(v1::Epoch { version: 1, conf: 5 });
    record.bootstrapping = false;
    apply(&mut state, 4, put(&record)).expect("newer");
    assert_eq!(apply(&mut state, 5, put(&record)).expect_err("old revision").code, ErrorCode::Conflict);
    record.revision = state.revision();
    record.shard.as_mut().expect("whole").epoch = Some(v1::Epoch { version: 1, conf: 4 });
    let back = apply(&mut state, 6, put(&record)).expect_err("old epoch");
    assert!(back.message.contains("would go back from epoch 1.5 to 1.4"), "{back}");
    record.shard.as_mut().expect("whole").epoch = Some(v1::Epoch { version: 2, conf: 5 });
    record.shard.as_mut().expect("whole").range = Some(v1::KeyRange { start: "".into(), end: "k".into() });
    let hole = apply(&mut state, 7, put(&record)).expect_err("k to m");
    assert!(hole.message.contains("hole"), "{hole}");
}

/// The image of format version 1, as the first release wrote it.
#[test]
fn the_first_format_stays_readable() {
    let mut state = begun();
    for (uuid, address) in [("u1", "h1:7400"), ("u2", "h2:7400")] {
        apply(&mut state, 2, register(uuid, address, true, vec![])).expect("new");
    }
    table(&mut state, "t", "{}").expect("new");
    table(&mut state, "gone", "{}").expect("new");
    apply(&mut state, 3, Op::DeleteTable(v1::DeleteTable { name: "gone".into(), now: true })).expect("live");
    let id = state.deleted_table("gone").expect("deleted").table_id;
    apply(&mut state, 4, Op::PurgeTable(v1::PurgeTable { table_id: id })).expect("due");
    let hex: String = state.encode().iter().map(|b| format!("{b:02x}")).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/image_v1.hex");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, format!("{hex}\n")).expect("writable");
    }
    let golden = std::fs::read_to_string(path).expect("the golden file");
    assert_eq!(golden.trim(), hex, "the format changed: raise FORMAT_VERSION, or UPDATE=1 for a new field");
    let bytes: Vec<u8> = (0..golden.trim().len() / 2)
        .map(|i| u8::from_str_radix(&golden[2 * i..2 * i + 2], 16).expect("hex"))
        .collect();
    assert_eq!(State::decode(&bytes).expect("version 1"), state);
    assert_eq!(state.table(id).map(v1::TableRecord::state), None::<TableState>);
}
