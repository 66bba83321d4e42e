//! openraft's own suite, on the shared log.

#[path = "../../tests/support/registers.rs"]
#[allow(dead_code)]
mod registers;

use super::GroupLog;
use crate::kinds::Kinds;
use crate::state_machine::{Shared, StateMachine};
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use registers::{Disk, Registers};
use std::sync::Arc;
use tempfile::TempDir;
use undb_log::{Log, LogOptions};
use undb_types::{GroupId, ReplicaId, ShardId};
use undb_vfs::OsFs;

struct Builder;

impl StoreBuilder<Kinds, GroupLog, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, GroupLog, StateMachine), StorageError<Kinds>> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let log = Log::open(Arc::new(OsFs::default()), dir.path(), LogOptions::default()).expect("opens");
        let group = GroupId { shard: ShardId(1), replica: ReplicaId(1) };
        let shared = Shared::new(Registers::with_gaps(&Disk::default())).expect("reads");
        Ok((dir, GroupLog::new(log.clone(), group), StateMachine::new(shared, log, group)))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shared_log_passes_openrafts_suite() {
    Suite::test_all(Builder).await.expect("the suite passes");
}

#[tokio::test]
async fn entries_in_memory_and_in_files_read_alike() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let group = GroupId { shard: ShardId(1), replica: ReplicaId(1) };
    let open = |cache_bytes| {
        let options = LogOptions { cache_bytes, ..LogOptions::default() };
        Log::open(Arc::new(OsFs::default()), dir.path(), options).expect("opens")
    };
    let entry = |index| undb_log::Entry {
        id: undb_types::LogId { term: 1, leader: 1, index },
        kind: crate::codec::KIND_COMMAND,
        payload: vec![index as u8; 100].into(),
    };
    let log = open(1 << 20);
    super::durable(|done| log.append(group, (0..50).map(entry).collect(), done)).await.expect("appends");
    assert!(log.read_cached(group, 0..50, usize::MAX).is_some_and(|cached| cached.len() == 50));
    let cached = GroupLog::new(log.clone(), group).read(0, 50, usize::MAX).await.expect("reads");
    log.close();
    let log = open(0);
    assert!(log.read_cached(group, 0..50, usize::MAX).is_none());
    let cold = GroupLog::new(log, group).read(0, 50, usize::MAX).await.expect("reads");
    assert_eq!(cached, cold);
}
