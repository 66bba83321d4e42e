//! Reads: the tree, minus what has expired.
//!
//! A reader's clock counts too: a record is gone at max(replicated time, reader's clock). Where only the
//! clock says so, the answer has `needs_tick`: a leader must then commit a tick before it answers, or a
//! later leader with a slower clock could show the record again.

use super::expiry::expired;
use super::{Result, Shard, expiry};
use crate::tree::Row;
use bytes::Bytes;
use undb_types::KeyRange;

/// Records of a page when the request names no limit.
pub const SCAN_LIMIT_DEFAULT: usize = 1000;
/// Most records of a page.
pub const SCAN_LIMIT_MAX: usize = 10_000;
/// Bytes of a page when the request names no bound.
pub const SCAN_BYTES_DEFAULT: usize = 1 << 20;
/// Most bytes of a page, its last record apart.
pub const SCAN_BYTES_MAX: usize = 8 << 20;
/// Expired rows that one page may step over, so that no request takes long.
const SKIPPED_LEN_MAX: usize = 10_000;

/// The answer to a get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// One per key asked for, in that order.
    pub rows: Vec<Option<Row>>,
    /// Commit a tick and read again before answering linearizably.
    pub needs_tick: bool,
}

/// What to scan.
#[derive(Clone, Debug, Default)]
pub struct ScanRequest {
    /// Where; a prefix scan is a range too.
    pub range: KeyRange,
    /// From the end.
    pub reverse: bool,
    /// Most live records; 0: the default. Bounded by `SCAN_LIMIT_MAX`.
    pub limit: usize,
    /// Bytes of keys and values after which the page ends; 0: the default. Bounded by `SCAN_BYTES_MAX`.
    pub bytes_max: usize,
    /// No values.
    pub keys_only: bool,
}

/// A page of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Live records; may be empty although there is more.
    pub rows: Vec<Row>,
    /// Go on here (forward: inclusive start; reverse: exclusive end). None: the range is exhausted.
    pub next: Option<Bytes>,
    /// Commit a tick and read again before answering linearizably.
    pub needs_tick: bool,
}

impl Shard {
    /// The live records of some keys as of `now_ms` on the reader's clock.
    pub fn get(&self, keys: &[Bytes], now_ms: u64, no_value: bool) -> Result<Reading> {
        let mut sight = Sight::new(self, now_ms);
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            let row = if no_value {
                self.tree.meta(key)?.map(|meta| Row { key: key.clone(), meta, value: None })
            } else {
                self.tree.get(key)?
            };
            rows.push(row.filter(|row| sight.sees(row)));
        }
        Ok(Reading { rows, needs_tick: sight.needs_tick })
    }

    /// A page of live records as of `now_ms` on the reader's clock.
    pub fn scan(&self, request: &ScanRequest, now_ms: u64) -> Result<Page> {
        let limit = bound(request.limit, SCAN_LIMIT_DEFAULT, SCAN_LIMIT_MAX);
        let bytes_max = bound(request.bytes_max, SCAN_BYTES_DEFAULT, SCAN_BYTES_MAX);
        let mut page = Page::default();
        if request.range.is_empty() {
            return Ok(page);
        }
        let mut sight = Sight::new(self, now_ms);
        let (mut bytes, mut skipped) = (0, 0);
        let mut last: Option<Bytes> = None;
        for row in self.tree.scan(&request.range, request.reverse, request.keys_only)? {
            let row = row?;
            if page.rows.len() >= limit || bytes >= bytes_max || skipped >= SKIPPED_LEN_MAX {
                // Reverse goes on below the last row seen, forward at this one.
                page.next = if request.reverse { last } else { Some(row.key) };
                break;
            }
            last = Some(row.key.clone());
            if sight.sees(&row) {
                bytes += row.key.len() + row.value.as_ref().map_or(0, Bytes::len);
                page.rows.push(row);
            } else {
                skipped += 1;
            }
        }
        page.needs_tick = sight.needs_tick;
        Ok(page)
    }

    /// True when a sweep at `now_ms` would remove something.
    pub fn sweep_due(&self, now_ms: u64) -> Result<bool> {
        let first = self.tree.scan_system(expiry::PREFIX, None, 1)?;
        match first.first() {
            Some((key, _)) => Ok(expired(expiry::expire_at_ms(key)?, now_ms.max(self.now_ms()))),
            None => Ok(false),
        }
    }
}

fn bound(asked: usize, default: usize, max: usize) -> usize {
    if asked == 0 { default } else { asked.min(max) }
}

/// What a reader may see, and whether its clock alone hid something.
struct Sight {
    replicated_ms: u64,
    now_ms: u64,
    needs_tick: bool,
}

impl Sight {
    fn new(shard: &Shard, now_ms: u64) -> Self {
        let replicated_ms = shard.now_ms();
        Sight { replicated_ms, now_ms: now_ms.max(replicated_ms), needs_tick: false }
    }

    fn sees(&mut self, row: &Row) -> bool {
        let gone = expired(row.meta.expire_at_ms, self.now_ms);
        self.needs_tick |= gone && !expired(row.meta.expire_at_ms, self.replicated_ms);
        !gone
    }
}
