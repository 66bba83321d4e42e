//! A cluster under test: metadata, a model of the stores, and cluster control that may die at any step.

use super::{Store, World};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use undb_meta::plan::{Action, Now, Observations, Settings, Task, first_shards, plan};
use undb_meta::{DEFAULT_NAME, State};
use undb_proto::v1::{self, Role, StoreState, TableState, meta_command::Op};

const HEARTBEAT_MS: u64 = 1000;

pub struct Run {
    pub state: State,
    pub world: World,
    pub heard: Observations,
    pub settings: Settings,
    pub now_ms: u64,
    pub random: StdRng,
    pub addresses: u64,
    /// What each store may keep in all, and what one copy takes of it; 0: nobody says.
    pub disk_bytes: u64,
    pub copy_bytes: u64,
}

impl Run {
    pub fn new(seed: u64) -> Self {
        let mut run = Self {
            state: State::default(),
            world: World::default(),
            heard: Observations::new(0),
            settings: Settings { down_ms: 60_000, suspect_ms: 5_000, ..Settings::default() },
            now_ms: 1_000_000,
            random: StdRng::seed_from_u64(seed),
            addresses: 0,
            disk_bytes: 0,
            copy_bytes: 0,
        };
        run.heard = Observations::new(run.now_ms);
        run.apply(Op::InitCluster(v1::InitCluster { cluster_id: "c".into() }));
        run.apply(Op::AcquireControlLease(v1::AcquireControlLease {
            owner: "o".into(),
            address: "a".into(),
            ttl_ms: 1000,
        }));
        let store_cluster = v1::StoreClusterRecord { name: DEFAULT_NAME.into(), ..Default::default() };
        run.apply(Op::PutStoreCluster(v1::PutStoreCluster { store_cluster: Some(store_cluster) }));
        run
    }

    pub fn apply(&mut self, op: Op) -> v1::MetaResult {
        self.try_apply(op).unwrap_or_else(|e| panic!("refused: {e}"))
    }

    pub fn try_apply(&mut self, op: Op) -> Result<v1::MetaResult, undb_meta::Reject> {
        let control_lease = self.state.control_lease().epoch;
        let command = v1::MetaCommand { now_ms: self.now_ms, control_lease, op: Some(op) };
        let applied = self.state.apply(command);
        assert_eq!(self.state.check(), Vec::<String>::new());
        applied.map(|a| a.result)
    }

    pub fn register(&mut self, address: String) -> u64 {
        let silent = |s: &&v1::StoreRecord| {
            self.heard.silent_ms(s.store_id, self.now_ms) >= self.settings.disconnected_ms
        };
        let disconnected = self.state.stores().filter(silent).map(|s| s.store_id).collect();
        let uuid = format!("u{}", self.random.random::<u64>());
        let op = Op::RegisterStore(v1::RegisterStore {
            uuid,
            address,
            zone: String::new(),
            store_cluster: DEFAULT_NAME.into(),
            empty: true,
            disconnected,
        });
        let store_id = self.apply(op).store.expect("registered").store_id;
        self.world.add_store(store_id);
        self.heard.registered(store_id, self.now_ms, self.settings.disconnected_ms);
        store_id
    }

    pub fn add_store(&mut self) -> u64 {
        self.addresses += 1;
        self.register(format!("h{}:1", self.addresses))
    }

    pub fn create_table(&mut self, name: &str, shards: u32) {
        let first_id = self.apply(Op::AllocateIds(v1::AllocateIds { count: shards + 1 })).first_id;
        let points = undb_types::hash_split_points(shards);
        let table = v1::TableRecord {
            table_id: first_id,
            name: name.into(),
            replication: 3,
            store_cluster: DEFAULT_NAME.into(),
            options: Some(v1::TableOptions::default()),
            ..Default::default()
        };
        let shards = first_shards(first_id, first_id + 1, &points);
        self.apply(Op::CreateTable(v1::CreateTable { table: Some(table), shards }));
    }

    pub fn now(&self) -> Now {
        Now { monotonic_ms: self.now_ms, wall_ms: self.now_ms }
    }

    /// One second: groups move, stores report, the plan is made and carried out, or a part of it.
    pub fn round(&mut self, crash_percent: u32) {
        self.now_ms += HEARTBEAT_MS;
        self.world.tick();
        let ids: Vec<u64> = self.world.stores.keys().copied().collect();
        for id in ids {
            let removed = self.state.store(id).is_some_and(|s| s.state() == StoreState::StoreRemoved);
            if self.world.stores[&id].up && !removed {
                let mut reports = self.world.reports(id);
                reports.iter_mut().for_each(|r| r.live_bytes = self.copy_bytes);
                let used_bytes = self.copy_bytes * reports.len() as u64;
                let seen = self.heard.heard(id, self.now_ms, self.settings.disconnected_ms, reports);
                seen.stats.capacity_bytes = self.disk_bytes;
                seen.stats.free_bytes = self.disk_bytes.saturating_sub(used_bytes);
            }
        }
        for task in plan(&self.state, &self.heard, &self.settings, self.now()) {
            if self.random.random_range(0..100) < crash_percent {
                // Control dies here; another takes over and knows nothing.
                self.heard = Observations::new(self.now_ms);
                return;
            }
            self.execute(task);
        }
    }

    pub fn execute(&mut self, task: Task) {
        match task.action {
            Action::PlaceReplicas { mut record, stores, role } => {
                let count = u32::try_from(stores.len()).expect("few");
                let first = self.apply(Op::AllocateIds(v1::AllocateIds { count })).first_id;
                let shard = record.shard.as_mut().expect("planned");
                for (store_id, replica_id) in stores.into_iter().zip(first..) {
                    shard.replicas.push(v1::Replica { replica_id, store_id, role: role as i32 });
                }
                self.apply(Op::PutShards(v1::PutShards { shards: vec![record] }));
            }
            Action::PutShard { record } => {
                self.apply(Op::PutShards(v1::PutShards { shards: vec![record] }));
            }
            Action::CreateReplica { store_id, shard, replica_id, bootstrap } => {
                self.world.create_replica(store_id, &shard, replica_id, bootstrap);
            }
            Action::ChangeMembers { store_id, shard_id, expected, replicas } => {
                let expected = (expected.version, expected.conf);
                let _refused = self.world.change_members(store_id, shard_id, expected, &replicas);
            }
            Action::TransferLeader { store_id, shard_id, to_replica_id } => {
                self.heard.moved_leader(shard_id, self.now_ms);
                self.world.transfer_leader(store_id, shard_id, to_replica_id);
            }
            Action::DestroyReplica { store_id, shard_id, replica_id, .. } => {
                self.world.destroy_replica(store_id, shard_id, replica_id);
            }
            Action::SetTable { table_id, state, condition, expected_revision } => {
                let state = state as i32;
                self.apply(Op::SetTableState(v1::SetTableState {
                    table_id,
                    state,
                    condition,
                    expected_revision,
                }));
            }
            Action::EndMove { shard_id, from_replica_id } => {
                self.apply(Op::EndMove(v1::EndMove { shard_id, from_replica_id }));
            }
            Action::PurgeTable { table_id } => {
                self.apply(Op::PurgeTable(v1::PurgeTable { table_id }));
            }
        }
    }

    pub fn settle(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.round(0);
        }
    }

    /// Everything that must hold once nothing has happened for long enough.
    pub fn assert_settled(&self, seed: u64) {
        let rest = plan(&self.state, &self.heard, &self.settings, self.now());
        assert_eq!(rest, Vec::new(), "seed {seed}: still something to do");
        assert_eq!(self.world.violations, Vec::<String>::new(), "seed {seed}");
        for table in self.state.tables() {
            assert_eq!(table.state(), TableState::TableReady, "seed {seed}: {table:?}");
        }
        let mut listed = std::collections::BTreeSet::new();
        for record in self.state.shards() {
            let shard = record.shard.as_ref().expect("whole");
            assert_eq!(shard.replicas.len(), 3, "seed {seed}: {shard:?}");
            assert_eq!(&self.world.groups[&shard.shard_id].shard, shard, "seed {seed}");
            for replica in &shard.replicas {
                assert_eq!(replica.role(), Role::Voter, "seed {seed}");
                let store = &self.world.stores[&replica.store_id];
                assert!(store.up && store.replicas.contains_key(&replica.replica_id), "seed {seed}");
                listed.insert(replica.replica_id);
            }
        }
        for (id, store) in self.world.stores.iter().filter(|(_, s)| s.up) {
            let orphans: Vec<_> = store.replicas.keys().filter(|r| !listed.contains(r)).collect();
            assert!(orphans.is_empty(), "seed {seed}: store {id} keeps {orphans:?}");
        }
    }

    pub fn assert_leaders_are_even(&self, seed: u64) {
        let mut led: std::collections::BTreeMap<u64, u64> =
            self.world.stores.iter().filter(|(_, s)| s.up).map(|(id, _)| (*id, 0)).collect();
        for record in self.state.shards() {
            let shard = record.shard.as_ref().expect("whole");
            let leader = self.world.groups[&shard.shard_id].leader;
            let at = shard.replicas.iter().find(|r| r.replica_id == leader).expect("led");
            *led.entry(at.store_id).or_default() += 1;
        }
        // A store leads only what it holds: no shard has a voter on a store that leads far fewer.
        let mean = led.values().sum::<u64>() as f64 / led.len() as f64;
        for record in self.state.shards() {
            let shard = record.shard.as_ref().expect("whole");
            let leader = self.world.groups[&shard.shard_id].leader;
            let high = shard.replicas.iter().find(|r| r.replica_id == leader).map_or(0, |r| led[&r.store_id]);
            let low = shard.replicas.iter().map(|r| led[&r.store_id]).min().unwrap_or(0);
            assert!((high - low) as f64 <= 1.0 + 0.05 * mean, "seed {seed}: {led:?}, {shard:?}");
        }
    }

    /// One misfortune that leaves every shard a quorum.
    pub fn misfortune(&mut self) {
        let up: Vec<u64> = self.world.stores.iter().filter(|(_, s)| s.up).map(|(id, _)| *id).collect();
        let Some(&victim) = up.choose(&mut self.random) else { return };
        match self.random.random_range(0..6) {
            0 => {
                // It is away for a while, shorter or longer than what counts as down.
                let seconds = self.random.random_range(1..100);
                self.store(victim).up = false;
                self.settle(seconds);
                self.store(victim).up = true;
            }
            1 => {
                // Its disk is lost, and it comes back empty at the same address.
                let address = self.state.store(victim).expect("registered").address.clone();
                self.store(victim).up = false;
                self.store(victim).replicas.clear();
                self.settle(25);
                self.register(address);
            }
            2 => {
                self.add_store();
            }
            3 => self.heard = Observations::new(self.now_ms),
            4 => {
                let live: Vec<String> = self
                    .state
                    .tables()
                    .filter(|t| t.state() != TableState::TableDeleted)
                    .map(|t| t.name.clone())
                    .collect();
                if live.len() > 1 {
                    let name = live.choose(&mut self.random).expect("some").clone();
                    self.delete_now(name);
                }
            }
            _ => {
                let name = format!("t{}", self.random.random::<u32>());
                let shards = self.random.random_range(1..6);
                self.create_table(&name, shards);
            }
        }
    }

    pub fn delete_now(&mut self, name: String) {
        let table_id = self.state.live_table(&name).expect("live").table_id;
        for group in self.world.groups.values_mut().filter(|g| g.shard.table_id == table_id) {
            group.doomed = true;
        }
        self.apply(Op::DeleteTable(v1::DeleteTable { name, now: true }));
    }

    /// A person wants a store in this state.
    pub fn set(&mut self, store_id: u64, state: StoreState) {
        let expected_revision = self.state.store(store_id).expect("known").revision;
        let state = state as i32;
        self.apply(Op::SetStoreState(v1::SetStoreState { store_id, state, expected_revision, lost: None }));
    }

    pub fn store(&mut self, id: u64) -> &mut Store {
        self.world.stores.get_mut(&id).expect("known")
    }
}
