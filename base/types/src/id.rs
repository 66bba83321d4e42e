//! Identities. Each is a number that metadata hands out once and never again.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A table.
    TableId
);
id!(
    /// A range of encoded keys of one table, kept by one Raft group.
    ShardId
);
id!(
    /// One copy of a shard in one placement; also its node id in the Raft group.
    ReplicaId
);
id!(
    /// One data process with one directory. Written to its disk; never an address or a pod name.
    StoreId
);
