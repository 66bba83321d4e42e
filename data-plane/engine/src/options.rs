//! Settings of an engine.

/// How an engine spends memory and disk.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    /// A tree's memtable is flushed at this size. A writer waits at twice of it. Default 32 MiB.
    pub memtable_bytes: u64,
    /// Memtables of all trees together; above it the largest is flushed. Default 256 MiB.
    pub memtable_bytes_total: u64,
    /// Blocks of all indexes in memory. Default 64 MiB.
    pub block_cache_bytes: u64,
    /// Values in memory. Default 64 MiB.
    pub value_cache_bytes: u64,
    /// Cache of each sled tree. Default 32 MiB.
    pub sled_cache_bytes: u64,
    /// Index files kept open. Default 256.
    pub index_files_open_max: usize,
    /// A data file is closed at this size. Default 64 MiB.
    pub data_file_bytes: u64,
    /// Bytes of value files allowed per live byte, before live values are moved out of them. Default 1.5.
    pub space_amplification_max: f64,
    /// Live bytes that one garbage collection job moves at most. Default 128 MiB.
    pub relocate_bytes_max: u64,
    /// Log bytes behind a tree's durable position, above which it is flushed. Bounds a restart. Default 512 MiB.
    pub log_tail_bytes_max: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            memtable_bytes: 32 << 20,
            memtable_bytes_total: 256 << 20,
            block_cache_bytes: 64 << 20,
            value_cache_bytes: 64 << 20,
            sled_cache_bytes: 32 << 20,
            index_files_open_max: 256,
            data_file_bytes: 64 << 20,
            space_amplification_max: 1.5,
            relocate_bytes_max: 128 << 20,
            log_tail_bytes_max: 512 << 20,
        }
    }
}

impl EngineOptions {
    /// The defaults, cut to a memory budget: half for memtables, a quarter each for blocks and values.
    pub fn within_memory(memory_bytes: u64) -> Self {
        let memtable_bytes_total = memory_bytes / 2;
        Self {
            memtable_bytes: (memtable_bytes_total / 4).clamp(256 << 10, 32 << 20),
            memtable_bytes_total,
            block_cache_bytes: memory_bytes / 4,
            value_cache_bytes: memory_bytes / 4,
            sled_cache_bytes: (memory_bytes / 8).max(1 << 20),
            ..Self::default()
        }
    }
}
