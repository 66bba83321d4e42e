//! Settings of a log.

use std::time::{SystemTime, UNIX_EPOCH};

/// How a log is kept. Validated by [`crate::Log::open`]: silly sizes are raised to the smallest that works.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// A new segment begins when the next frame might not fit. Default 64 MiB.
    pub segment_bytes: u64,
    /// A frame is closed at this size; a larger entry gets a frame of its own. Default 4 MiB.
    pub frame_bytes_max: usize,
    /// Entries kept in memory for replication and apply; those not written yet come on top. Default 64 MiB.
    pub cache_bytes: usize,
    /// Space held back so that votes, purges and deletes work on a full disk. Default 16 MiB.
    pub reserve_bytes: u64,
    /// `append` waits while more than this is queued for the writer. Default 64 MiB.
    pub queue_bytes_max: usize,
    /// Segment files kept open for reads. Default 256.
    pub open_files_max: usize,
    /// Takes the disk space of a segment when it begins, so that a sync need not grow the file. Default true.
    pub preallocate: bool,
    /// The wall clock that stamps segments, in milliseconds since 1970.
    pub now_ms: fn() -> u64,
    /// Label of the metrics.
    pub store: String,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 64 << 20,
            frame_bytes_max: 4 << 20,
            cache_bytes: 64 << 20,
            reserve_bytes: 16 << 20,
            queue_bytes_max: 64 << 20,
            open_files_max: 256,
            preallocate: true,
            now_ms: wall_clock_ms,
            store: String::new(),
        }
    }
}

fn wall_clock_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}
