//! What the store says of itself as a whole.

use crate::disk::Measured;
use crate::store::Store;
use std::sync::atomic::Ordering;
use undb_proto::v1;

/// Free space by the file system and by the configured size, whichever is less.
pub fn measure(store: &Store) -> std::io::Result<Measured> {
    let space = store.fs.space(&store.dir)?;
    let configured = store.config.capacity_bytes;
    if configured == 0 {
        return Ok(Measured { capacity: space.total, free: space.free });
    }
    let left = configured.saturating_sub(disk_bytes(store));
    Ok(Measured { capacity: configured.min(space.total), free: left.min(space.free) })
}

/// Allocated by the log and the engine.
fn disk_bytes(store: &Store) -> u64 {
    let engine = store.engine.stats();
    store.log.total_bytes() + engine.data_bytes + engine.index_bytes
}

/// The counters of a heartbeat. Blocks on the file system.
pub fn collect(store: &Store) -> v1::StoreStats {
    let log = store.log.counters();
    let engine = store.engine.stats();
    let relocated_bytes = store.meters.relocated_bytes.load(Ordering::Relaxed);
    let written = store.fs.counters().total.written_bytes;
    let measured = measure(store).unwrap_or_default();
    let live_bytes = store
        .all()
        .iter()
        .filter_map(|replica| replica.serving().ok())
        .map(|open| open.machine.shard().stats().bytes)
        .sum();
    v1::StoreStats {
        user_bytes: store.meters.user_bytes.load(Ordering::Relaxed),
        log_bytes: log.written_bytes,
        index_bytes: engine.index_written_bytes,
        relocated_bytes,
        other_bytes: written.saturating_sub(log.written_bytes + relocated_bytes),
        live_bytes,
        disk_bytes: disk_bytes(store),
        capacity_bytes: measured.capacity,
        free_bytes: measured.free,
        reads: store.meters.reads(),
        writes: store.meters.writes(),
        memory_bytes: resident_bytes(),
        segments: store.log.segments().len() as u64,
    }
}

/// RSS of the process; 0 where the kernel does not say.
fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}
