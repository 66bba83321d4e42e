//! What an update may do to an object that exists. Pure: old and new in, the changes or the refusals
//! out.

use crate::{Object, StoreClusterSpec, TableSpec, Violation};
use std::fmt::Display;

/// One field that an update changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The field.
    pub path: String,
    /// Its value before, as written.
    pub from: String,
    /// Its value after, as written.
    pub to: String,
}

/// The fields that differ, or those that must not. No differences: nothing is to be done. Fields
/// that only Kubernetes has, labels and annotations do not count.
pub fn changes(old: &Object, new: &Object) -> Result<Vec<Change>, Vec<Violation>> {
    let mut diff = Diff::default();
    match (old, new) {
        (Object::StoreCluster(a), Object::StoreCluster(b)) => store_cluster(&mut diff, &a.spec, &b.spec),
        (Object::Table(a), Object::Table(b)) => table(&mut diff, &a.spec, &b.spec),
        _ => {
            diff.refuse("kind", format!("a {} cannot become a {}; use another name", old.kind(), new.kind()))
        }
    }
    if old.name() != new.name() {
        diff.refuse(
            "metadata.name",
            format!("`{}` cannot be renamed; create `{}` beside it", old.name(), new.name()),
        );
    }
    if diff.refused.is_empty() { Ok(diff.changes) } else { Err(diff.refused) }
}

#[derive(Default)]
struct Diff {
    changes: Vec<Change>,
    refused: Vec<Violation>,
}

impl Diff {
    fn refuse(&mut self, path: &str, message: String) {
        self.refused.push(Violation { path: path.into(), message });
    }

    fn allow(&mut self, path: &str, old: impl Display, new: impl Display) {
        let (from, to) = (old.to_string(), new.to_string());
        if from != to {
            self.changes.push(Change { path: path.into(), from, to });
        }
    }

    fn fixed(&mut self, path: &str, old: impl Display, new: impl Display, instead: &str) {
        let (from, to) = (old.to_string(), new.to_string());
        if from != to {
            self.refuse(path, format!("cannot be changed from {from} to {to}; {instead}"));
        }
    }
}

fn or_unset(value: Option<impl Display>) -> String {
    value.map_or("unset".into(), |v| v.to_string())
}

fn store_cluster(diff: &mut Diff, old: &StoreClusterSpec, new: &StoreClusterSpec) {
    diff.allow("spec.replicas", old.replicas, new.replicas);
    diff.fixed(
        "spec.engine.type",
        old.engine.kind.as_str(),
        new.engine.kind.as_str(),
        "create another StoreCluster and move tables there",
    );
    let threshold = |spec: &StoreClusterSpec| spec.engine.separation.threshold;
    diff.allow("spec.engine.separation.threshold", threshold(old), threshold(new));
    diff.allow("spec.engine.memory", or_unset(old.engine.memory), or_unset(new.engine.memory));
    let size = |spec: &StoreClusterSpec| spec.storage.as_ref().and_then(|s| s.size);
    match (size(old), size(new)) {
        (Some(from), Some(to)) if to < from => {
            diff.refuse("spec.storage.size", format!("cannot shrink from {from} to {to}; volumes only grow"));
        }
        (from, to) => diff.allow("spec.storage.size", or_unset(from), or_unset(to)),
    }
}

fn table(diff: &mut Diff, old: &TableSpec, new: &TableSpec) {
    diff.fixed(
        "spec.storeCluster",
        &old.store_cluster,
        &new.store_cluster,
        "moving a table between StoreClusters is not supported yet; create another table and import into it",
    );
    diff.allow("spec.replication.factor", old.replication.factor, new.replication.factor);
    diff.allow(
        "spec.replication.minAvailable",
        old.replication.min_available(),
        new.replication.min_available(),
    );
    let layout = |spec: &TableSpec| {
        let mut partitioning = spec.partitioning.clone();
        partitioning.shards = partitioning.shards.or(match partitioning.kind {
            crate::PartitioningType::Hash => Some(partitioning.shard_count()),
            crate::PartitioningType::Range => None,
        });
        serde_json::to_string(&partitioning).unwrap_or_default()
    };
    diff.fixed(
        "spec.partitioning",
        layout(old),
        layout(new),
        "the layout of a table stays; create another table and import into it",
    );
    diff.allow("spec.ttlSeconds", old.ttl_seconds, new.ttl_seconds);
    let quota = |spec: &TableSpec| spec.quota.clone().unwrap_or_default();
    diff.allow("spec.quota.bytes", or_unset(quota(old).bytes), or_unset(quota(new).bytes));
    diff.allow(
        "spec.quota.requestsPerSecond",
        or_unset(quota(old).requests_per_second),
        or_unset(quota(new).requests_per_second),
    );
    let policy = |spec: &TableSpec| format!("{:?}", spec.deletion_policy);
    diff.allow("spec.deletionPolicy", policy(old), policy(new));
}
