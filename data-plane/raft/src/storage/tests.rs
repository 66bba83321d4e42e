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
