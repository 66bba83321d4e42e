//! The rules, field by field. Each message names the value and what to write instead.

use crate::kubernetes::is_default;
use crate::{
    API_VERSION, EngineType, Metadata, Object, PartitioningSpec, PartitioningType, ReplicationSpec,
    StoreClusterSpec, TableSpec, Violation,
};

const NAME_LEN_MAX: usize = 63;
const REPLICAS_MAX: u32 = 1000;
const SHARDS_MAX: u32 = 1024;
const SPLIT_KEY_BYTES_MAX: usize = 64 * 1024;
const THRESHOLD_BYTES_MAX: u64 = 1 << 20;
const MEMORY_BYTES_MIN: u64 = 16 << 20;
const STORAGE_BYTES_MIN: u64 = 256 << 20;
// A hundred years: milliseconds of it and of any wall clock add up without overflow.
const TTL_SECONDS_MAX: u64 = 3_155_760_000;

/// Collects what does not hold.
#[derive(Default)]
struct Rules(Vec<Violation>);

impl Rules {
    fn require(&mut self, holds: bool, path: &str, message: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation { path: path.into(), message: message() });
        }
    }
}

pub(crate) fn violations(object: &Object) -> Vec<Violation> {
    let mut rules = Rules::default();
    match object {
        Object::StoreCluster(o) => {
            envelope(&mut rules, &o.api_version, &o.metadata);
            store_cluster(&mut rules, &o.spec);
        }
        Object::Table(o) => {
            envelope(&mut rules, &o.api_version, &o.metadata);
            table(&mut rules, &o.spec);
        }
    }
    rules.0
}

fn envelope(rules: &mut Rules, api_version: &str, metadata: &Metadata) {
    rules.require(api_version == API_VERSION, "apiVersion", || {
        format!("`{api_version}` is not known to this version; write {API_VERSION}")
    });
    name(rules, "metadata.name", &metadata.name);
}

fn name(rules: &mut Rules, path: &str, name: &str) {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    let fits = bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.len() <= NAME_LEN_MAX;
    rules.require(fits, path, || {
        format!(
            "`{}` is not a name; write 1 to {NAME_LEN_MAX} of a-z, 0-9 and `-`, with a letter or digit at both ends",
            name.chars().take(80).collect::<String>()
        )
    });
}

fn store_cluster(rules: &mut Rules, spec: &StoreClusterSpec) {
    rules.require((1..=REPLICAS_MAX).contains(&spec.replicas), "spec.replicas", || {
        format!("{} is not possible; write 1 to {REPLICAS_MAX}", spec.replicas)
    });
    let threshold = spec.engine.separation.threshold;
    rules.require(threshold.0 <= THRESHOLD_BYTES_MAX, "spec.engine.separation.threshold", || {
        format!(
            "{threshold} is too large; write at most 1Mi, or engine type lsm to keep every value in the index"
        )
    });
    if let Some(memory) = spec.engine.memory {
        rules.require(memory.0 >= MEMORY_BYTES_MIN, "spec.engine.memory", || {
            format!("{memory} is too little for a store to run; write 16Mi or more")
        });
    }
    if let Some(size) = spec.storage.as_ref().and_then(|s| s.size) {
        rules.require(size.0 >= STORAGE_BYTES_MIN, "spec.storage.size", || {
            format!("{size} is too little for a log of several segments; write 256Mi or more")
        });
    }
}

fn table(rules: &mut Rules, spec: &TableSpec) {
    name(rules, "spec.storeCluster", &spec.store_cluster);
    replication(rules, &spec.replication);
    partitioning(rules, &spec.partitioning);
    rules.require(spec.ttl_seconds <= TTL_SECONDS_MAX, "spec.ttlSeconds", || {
        format!("{} is more than a hundred years; write 0 for records that never expire", spec.ttl_seconds)
    });
    if let Some(quota) = &spec.quota {
        rules.require(quota.bytes.is_none_or(|b| b.0 > 0), "spec.quota.bytes", || {
            "0 would refuse every write; leave it out for no bound".into()
        });
        rules.require(quota.requests_per_second != Some(0), "spec.quota.requestsPerSecond", || {
            "0 would refuse every request; leave it out for no bound".into()
        });
    }
}

fn replication(rules: &mut Rules, spec: &ReplicationSpec) {
    let factor = spec.factor;
    rules.require(matches!(factor, 1 | 3 | 5 | 7), "spec.replication.factor", || {
        let why = if factor > 0 && factor.is_multiple_of(2) {
            " (an even number survives no more failures than the odd one below)"
        } else {
            ""
        };
        format!("{factor} is not possible{why}; write 1, 3, 5 or 7")
    });
    if let Some(min) = spec.min_available {
        let least = u32::from(factor > 1);
        rules.require((least..=factor.max(1)).contains(&min), "spec.replication.minAvailable", || {
            format!("{min} is not possible with factor {factor}; write {least} to {factor}, or leave it out for the majority")
        });
    }
}

fn partitioning(rules: &mut Rules, spec: &PartitioningSpec) {
    match spec.kind {
        PartitioningType::Range => {
            rules.require(spec.shards.is_none(), "spec.partitioning.shards", || {
                "a range table has no number of shards; write splitKeys, or type: hash".into()
            });
            split_keys(rules, &spec.split_keys);
        }
        PartitioningType::Hash => {
            rules.require(spec.split_keys.is_empty(), "spec.partitioning.splitKeys", || {
                "a hash table has no split keys; write shards: 8, or type: range".into()
            });
            let shards = spec.shard_count();
            rules.require((1..=SHARDS_MAX).contains(&shards), "spec.partitioning.shards", || {
                format!("{shards} is not possible; write 1 to {SHARDS_MAX}")
            });
        }
    }
}

fn split_keys(rules: &mut Rules, keys: &[String]) {
    let path = "spec.partitioning.splitKeys";
    rules.require(keys.len() < SHARDS_MAX as usize, path, || {
        format!("{} keys are too many; write at most {}", keys.len(), SHARDS_MAX - 1)
    });
    for (i, key) in keys.iter().enumerate() {
        let path = format!("{path}[{i}]");
        rules.require(!key.is_empty(), &path, || {
            "an empty key would leave the first shard without keys; remove it".into()
        });
        rules.require(key.len() <= SPLIT_KEY_BYTES_MAX, &path, || {
            format!("{} bytes are too many for a key; write at most {SPLIT_KEY_BYTES_MAX}", key.len())
        });
        if let Some(before) = i.checked_sub(1).and_then(|b| keys.get(b)) {
            let shown = |k: &str| k.chars().take(40).collect::<String>();
            rules.require(before.as_bytes() < key.as_bytes(), &path, || {
                format!(
                    "`{}` does not come after `{}` in byte order; sort the keys and write each once",
                    shown(key),
                    shown(before)
                )
            });
        }
    }
}

pub(crate) fn warnings(object: &Object) -> Vec<String> {
    let mut out = Vec::new();
    match object {
        Object::StoreCluster(o) => {
            ignored(&mut out, &kubernetes_metadata(&o.metadata));
            ignored(&mut out, &kubernetes_store_cluster(&o.spec));
            server_side(&mut out, o.status.is_some());
            if o.spec.engine.kind == EngineType::Sled {
                out.push(
                    "spec.engine.type: sled is experimental; keep no data in it that you cannot rebuild"
                        .into(),
                );
            }
        }
        Object::Table(o) => {
            ignored(&mut out, &kubernetes_metadata(&o.metadata));
            ignored(&mut out, &[("spec.controlPlaneRef", o.spec.control_plane_ref.is_some())]);
            server_side(&mut out, o.status.is_some());
            if o.spec.quota.is_some() {
                out.push("spec.quota is kept but not enforced yet".into());
            }
            if o.spec.replication.factor == 1 {
                out.push("spec.replication.factor: 1 keeps one copy; a lost disk loses data".into());
            }
        }
    }
    out
}

fn ignored(out: &mut Vec<String>, fields: &[(&str, bool)]) {
    let set = fields.iter().filter(|(_, set)| *set);
    out.extend(
        set.map(|(path, _)| format!("{path} means something only on Kubernetes and has no effect here")),
    );
}

fn server_side(out: &mut Vec<String>, set: bool) {
    if set {
        out.push("status is written by the servers and ignored here".into());
    }
}

fn kubernetes_metadata(m: &Metadata) -> [(&'static str, bool); 9] {
    [
        ("metadata.namespace", m.namespace.is_some()),
        ("metadata.uid", m.uid.is_some()),
        ("metadata.resourceVersion", m.resource_version.is_some()),
        ("metadata.generation", m.generation.is_some()),
        ("metadata.creationTimestamp", m.creation_timestamp.is_some()),
        ("metadata.deletionTimestamp", m.deletion_timestamp.is_some()),
        ("metadata.finalizers", m.finalizers.is_some()),
        ("metadata.ownerReferences", m.owner_references.is_some()),
        ("metadata.managedFields", m.managed_fields.is_some()),
    ]
}

fn kubernetes_store_cluster(s: &StoreClusterSpec) -> [(&'static str, bool); 11] {
    [
        ("spec.storage.class", s.storage.as_ref().is_some_and(|s| s.class.is_some())),
        ("spec.controlPlaneRef", s.control_plane_ref.is_some()),
        ("spec.image", s.image.is_some()),
        ("spec.resources", s.resources.is_some()),
        ("spec.podTemplate", s.pod_template.is_some()),
        ("spec.topology", !is_default(&s.topology)),
        ("spec.updateStrategy", !is_default(&s.update_strategy)),
        ("spec.disruptionPolicy", !is_default(&s.disruption_policy)),
        ("spec.replacementPolicy", !is_default(&s.replacement_policy)),
        (
            "spec.persistentVolumeClaimRetentionPolicy",
            !is_default(&s.persistent_volume_claim_retention_policy),
        ),
        ("spec.paused", s.paused),
    ]
}
