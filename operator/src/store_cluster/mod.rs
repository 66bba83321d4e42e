//! StoreCluster and its Stores.
