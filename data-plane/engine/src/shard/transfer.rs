//! A shard as a stream of chunks, for a replica that is new or far behind; any engine kind to any other.
//!
//! ```text
//! chunk    crc32c u32 over the rest | version u8 = 1 | kind u8 | body
//! 1 head   has u8 [term u64 | leader u64 | index u64] | membership | state
//! 2 system count u32, (key, value)...        in key order, before the rows
//! 3 rows   count u32, (key, version u64, expire_at_ms u64, kind u32, value)...   in key order
//! 4 end    system records u64 | rows u64
//! ```
//! The end chunk makes a stream that was cut off a different one. A receiver switches to the new content
//! only when all of it has arrived.

use super::{Inner, Result, Shard, ShardError};
use crate::command::{FormatError, Reader, put_bytes};
use crate::error::EngineError;
use crate::tree::{Applied, Item, RecordMeta, Row, TreeSnapshot};
use bytes::{BufMut, Bytes};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use undb_types::LogId;

/// The version of the chunk format that this build writes, and the newest that it reads.
pub const SNAPSHOT_FORMAT_VERSION: u8 = 1;

const WHAT: &str = "snapshot chunk";
const HEAD: u8 = 1;
const SYSTEM: u8 = 2;
const ROWS: u8 = 3;
const END: u8 = 4;
const SYSTEM_PAGE: usize = 1024;

/// A frozen shard and how much of it was handed out.
pub struct ShardSnapshot {
    snapshot: Arc<dyn TreeSnapshot>,
    applied: Applied,
    step: Step,
    system_count: u64,
    row_count: u64,
}

enum Step {
    Head,
    /// Behind this system record.
    System(Option<Bytes>),
    /// Behind this key.
    Rows(Option<Bytes>),
    End,
    Done,
}

impl ShardSnapshot {
    /// The last entry it reflects.
    pub fn log_id(&self) -> Option<LogId> {
        self.applied.log_id
    }

    /// The members as of then; opaque.
    pub fn membership(&self) -> &Bytes {
        &self.applied.membership
    }

    /// The next chunk, of about `bytes_max` bytes (one row may exceed it); none: that was all.
    pub fn next_chunk(&mut self, bytes_max: usize) -> Result<Option<Bytes>> {
        loop {
            match std::mem::replace(&mut self.step, Step::Done) {
                Step::Head => {
                    self.step = Step::System(None);
                    return Ok(Some(seal(HEAD, |out| put_head(out, &self.applied))));
                }
                Step::System(after) => {
                    let page = self.snapshot.system(after.as_deref(), SYSTEM_PAGE)?;
                    let Some((last, _)) = page.last() else {
                        self.step = Step::Rows(None);
                        continue;
                    };
                    self.system_count += page.len() as u64;
                    self.step = Step::System(Some(last.clone()));
                    return Ok(Some(seal(SYSTEM, |out| put_system(out, &page))));
                }
                Step::Rows(after) => {
                    let rows = self.page(after.as_deref(), bytes_max)?;
                    let Some(last) = rows.last() else {
                        self.step = Step::End;
                        continue;
                    };
                    self.row_count += rows.len() as u64;
                    self.step = Step::Rows(Some(last.key.clone()));
                    return Ok(Some(seal(ROWS, |out| put_rows(out, &rows))));
                }
                Step::End => {
                    let (system, rows) = (self.system_count, self.row_count);
                    return Ok(Some(seal(END, |out| {
                        out.put_u64_le(system);
                        out.put_u64_le(rows);
                    })));
                }
                Step::Done => return Ok(None),
            }
        }
    }

    fn page(&self, after: Option<&[u8]>, bytes_max: usize) -> Result<Vec<Row>, EngineError> {
        let mut rows = Vec::new();
        let mut bytes = 0;
        for row in self.snapshot.rows(after)? {
            let row = row?;
            bytes += row.key.len() + row.value.as_ref().map_or(0, Bytes::len) + 28;
            rows.push(row);
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(rows)
    }
}

impl Shard {
    /// A frozen view; what it reflects is durable here.
    pub fn snapshot(&self) -> Result<ShardSnapshot> {
        let snapshot = self.tree.snapshot()?;
        let applied = snapshot.applied();
        Ok(ShardSnapshot { snapshot, applied, step: Step::Head, system_count: 0, row_count: 0 })
    }

    /// Replaces everything by what the chunks say, durably. `log_id` is what the sender announced. On an
    /// error the shard is as it was.
    pub fn install(
        &self,
        log_id: Option<LogId>,
        membership: Bytes,
        chunks: &mut dyn Iterator<Item = io::Result<Bytes>>,
    ) -> Result<()> {
        let mut inner = self.inner.lock();
        let mut stream =
            Stream { chunks, items: VecDeque::new(), system_count: 0, row_count: 0, ended: false };
        let head = stream.head()?;
        if head.log_id != log_id {
            let message = format!("it reflects {:?}, announced was {log_id:?}", head.log_id);
            return Err(ShardError::Snapshot(message));
        }
        let applied = Applied { membership, ..head };
        self.tree.install(applied, &mut stream)?;
        match Inner::load(self.tree.as_ref()) {
            Ok(loaded) => *inner = loaded,
            Err(e) => {
                inner.poisoned = Some(e.to_string());
                return Err(e);
            }
        }
        self.publish(&inner);
        Ok(())
    }
}

/// Chunks to items.
struct Stream<'a> {
    chunks: &'a mut dyn Iterator<Item = io::Result<Bytes>>,
    items: VecDeque<Item>,
    system_count: u64,
    row_count: u64,
    ended: bool,
}

fn broken(message: impl Into<String>) -> EngineError {
    EngineError::corrupt("snapshot stream", message)
}

impl Stream<'_> {
    fn chunk(&mut self) -> Result<(u8, Bytes), EngineError> {
        let chunk = self.chunks.next().ok_or_else(|| broken("it ends before its end chunk"))?;
        let chunk = chunk.map_err(|e| EngineError::io("receiving a snapshot", e))?;
        open(&chunk).map_err(|e| broken(e.to_string()))
    }

    fn head(&mut self) -> Result<Applied, ShardError> {
        match self.chunk()? {
            (HEAD, body) => Ok(read_head(&body)?),
            (kind, _) => Err(ShardError::Snapshot(format!("it begins with a chunk of kind {kind}"))),
        }
    }

    fn fill(&mut self) -> Result<(), EngineError> {
        let format = |e: FormatError| broken(e.to_string());
        match self.chunk()? {
            (SYSTEM, body) => self.items = read_system(&body).map_err(format)?,
            (ROWS, body) => self.items = read_rows(&body).map_err(format)?,
            (END, body) => {
                let mut reader = Reader::new(WHAT, &body);
                let announced = (reader.u64().map_err(format)?, reader.u64().map_err(format)?);
                let found = (self.system_count, self.row_count);
                if announced != found {
                    return Err(broken(format!("{found:?} records arrived of {announced:?}")));
                }
                self.ended = true;
            }
            (kind, _) => return Err(broken(format!("a chunk of kind {kind} in its middle"))),
        }
        Ok(())
    }
}

impl Iterator for Stream<'_> {
    type Item = Result<Item, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.items.pop_front() {
                match &item {
                    Item::Row(_) => self.row_count += 1,
                    Item::System(..) => self.system_count += 1,
                }
                return Some(Ok(item));
            }
            if self.ended {
                return None;
            }
            if let Err(e) = self.fill() {
                self.ended = true;
                return Some(Err(e));
            }
        }
    }
}

fn seal(kind: u8, body: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = vec![0; 4];
    out.put_u8(SNAPSHOT_FORMAT_VERSION);
    out.put_u8(kind);
    body(&mut out);
    let crc = crc32c::crc32c(&out[4..]);
    out[..4].copy_from_slice(&crc.to_le_bytes());
    out.into()
}

fn open(chunk: &Bytes) -> Result<(u8, Bytes), FormatError> {
    let mut reader = Reader::new(WHAT, chunk);
    let crc = reader.u32()?;
    if crc != crc32c::crc32c(&reader.rest()) {
        return Err(reader.bad("checksum", crc.into(), 4));
    }
    reader.version(SNAPSHOT_FORMAT_VERSION)?;
    let kind = reader.u8()?;
    Ok((kind, reader.rest()))
}

fn put_head(out: &mut Vec<u8>, applied: &Applied) {
    out.put_u8(applied.log_id.is_some().into());
    if let Some(id) = applied.log_id {
        out.put_u64_le(id.term);
        out.put_u64_le(id.leader);
        out.put_u64_le(id.index);
    }
    put_bytes(out, &applied.membership);
    put_bytes(out, &applied.state);
}

fn read_head(body: &Bytes) -> Result<Applied, FormatError> {
    let mut reader = Reader::new(WHAT, body);
    let log_id = if reader.flag("log id flag")? {
        Some(LogId { term: reader.u64()?, leader: reader.u64()?, index: reader.u64()? })
    } else {
        None
    };
    let applied = Applied { log_id, membership: reader.bytes()?, state: reader.bytes()? };
    reader.end()?;
    Ok(applied)
}

fn put_system(out: &mut Vec<u8>, page: &[(Bytes, Bytes)]) {
    out.put_u32_le(page.len() as u32);
    for (key, value) in page {
        put_bytes(out, key);
        put_bytes(out, value);
    }
}

fn read_system(body: &Bytes) -> Result<VecDeque<Item>, FormatError> {
    let mut reader = Reader::new(WHAT, body);
    let count = reader.count("system record count", 8)?;
    let items = (0..count)
        .map(|_| Ok(Item::System(reader.bytes()?, reader.bytes()?)))
        .collect::<Result<_, FormatError>>()?;
    reader.end()?;
    Ok(items)
}

fn put_rows(out: &mut Vec<u8>, rows: &[Row]) {
    out.put_u32_le(rows.len() as u32);
    for row in rows {
        put_bytes(out, &row.key);
        out.put_u64_le(row.meta.version);
        out.put_u64_le(row.meta.expire_at_ms);
        out.put_u32_le(row.meta.kind);
        put_bytes(out, row.value.as_deref().unwrap_or_default());
    }
}

fn read_rows(body: &Bytes) -> Result<VecDeque<Item>, FormatError> {
    let mut reader = Reader::new(WHAT, body);
    let count = reader.count("row count", 28)?;
    let mut items = VecDeque::with_capacity(count);
    for _ in 0..count {
        let key = reader.bytes()?;
        let (version, expire_at_ms, kind) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let value = reader.bytes()?;
        let meta = RecordMeta { version, expire_at_ms, kind, value_len: value.len() as u32 };
        items.push_back(Item::Row(Row { key, meta, value: Some(value) }));
    }
    reader.end()?;
    Ok(items)
}
