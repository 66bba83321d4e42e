//! Scans: in key order, over as many shards as the span has, a page at a time.

use bytes::Bytes;
use futures::Stream;
use std::collections::VecDeque;
use undb_proto::v1::{self, kv_request, kv_response};
use undb_types::{KeyRange, Partitioning, decode_key, encode_key, key_prefix, prefix_end};

use crate::invoke::{Anchor, Unanswered};
use crate::table::{smaller_end, unfit};
use crate::{Error, ErrorCode, Key, Record, Result, Table};

/// A stretch of a table's keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Span {
    /// All of them. A hash table's come in the order of their hashes.
    #[default]
    All,
    /// Those whose hash key begins so. Only range tables are in that order.
    Prefix(Bytes),
    /// From one key, inclusive, to another, exclusive; `None`: the end. Only range tables.
    Between(Key, Option<Key>),
    /// Those of one hash key whose sort key begins so.
    Within(Bytes, Bytes),
    /// Those of one hash key from one sort key, inclusive, to another, exclusive; `None`: the end.
    SortBetween(Bytes, Bytes, Option<Bytes>),
}

impl Span {
    /// The range of encoded keys that it is.
    pub fn encode(&self, partitioning: Partitioning) -> Result<KeyRange> {
        let begins = |prefix: Bytes| KeyRange { end: prefix_end(&prefix), start: prefix };
        match self {
            Span::All => Ok(KeyRange::all()),
            Span::Prefix(prefix) if prefix.is_empty() => Ok(KeyRange::all()),
            Span::Prefix(_) | Span::Between(..) if partitioning == Partitioning::Hash => {
                Err(Error::Rejected {
                    code: ErrorCode::NotSupported,
                    message:
                        "a hash table keeps no order between hash keys: scan all of it, or use a range table"
                            .into(),
                })
            }
            Span::Prefix(prefix) => Ok(begins(key_prefix(prefix))),
            Span::Between(from, to) => Ok(KeyRange {
                start: from.encode(partitioning)?,
                end: to.as_ref().map(|k| k.encode(partitioning)).transpose()?.unwrap_or_default(),
            }),
            Span::Within(hash, prefix) => Ok(begins(encode_key(partitioning, hash, prefix))),
            Span::SortBetween(hash, from, to) => Ok(KeyRange {
                start: encode_key(partitioning, hash, from),
                end: match to {
                    Some(to) => encode_key(partitioning, hash, to),
                    None => prefix_end(&encode_key(partitioning, hash, b"")),
                },
            }),
        }
    }
}

/// What to scan and how.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    span: Span,
    reverse: bool,
    keys_only: bool,
    page_len: u32,
    page_bytes: u32,
    resume: Option<Bytes>,
}

impl ScanOptions {
    /// Over a span.
    pub fn over(span: Span) -> Self {
        Self { span, reverse: false, keys_only: false, page_len: 1000, page_bytes: 1 << 20, resume: None }
    }

    /// Over everything.
    pub fn all() -> Self {
        Self::over(Span::All)
    }

    /// Over the hash keys that begin so; only on range tables.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        Self::over(Span::Prefix(Bytes::copy_from_slice(prefix.as_ref())))
    }

    /// From the last key to the first.
    pub fn reverse(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// Without values.
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// At most so many records a page, up to 10,000.
    pub fn page_len(mut self, len: u32) -> Self {
        self.page_len = len.clamp(1, 10_000);
        self
    }

    /// About so many bytes a page, up to 8 MiB.
    pub fn page_bytes(mut self, bytes: u32) -> Self {
        self.page_bytes = bytes.clamp(1, 8 << 20);
        self
    }

    /// Go on where a scan with the same span and direction was; see [`Scan::cursor`].
    pub fn resume(mut self, cursor: Bytes) -> Self {
        self.resume = Some(cursor);
        self
    }
}

/// A scan under way. Each page is read at one moment; different pages at different ones.
#[derive(Clone, Debug)]
pub struct Scan {
    table: Table,
    options: ScanOptions,
    /// What is left; `None`: nothing.
    left: Option<KeyRange>,
    buffer: VecDeque<(Key, Record)>,
}

impl Scan {
    pub(crate) fn new(table: Table, options: ScanOptions) -> Result<Self> {
        let mut range = options.span.encode(table.partitioning())?;
        if let Some(cursor) = options.resume.clone() {
            let bound = if options.reverse { &mut range.end } else { &mut range.start };
            *bound = cursor;
        }
        let left = (!range.is_empty()).then_some(range);
        Ok(Self { table, options, left, buffer: VecDeque::new() })
    }

    /// Where the next page begins, for [`ScanOptions::resume`]; `None`: there is none.
    pub fn cursor(&self) -> Option<Bytes> {
        let left = self.left.as_ref()?;
        Some(if self.options.reverse { left.end.clone() } else { left.start.clone() })
    }

    /// The next page, which may be empty in the middle of a scan; `None`: the span is exhausted.
    pub async fn next_page(&mut self) -> Result<Option<Vec<(Key, Record)>>> {
        let Some(left) = self.left.clone() else { return Ok(None) };
        let anchor = match self.options.reverse {
            false => Anchor::At(left.start.clone()),
            true => Anchor::Before(left.end.clone()),
        };
        let op = |shard: &crate::route::ShardRoute| {
            let range = left.intersect(&shard.range);
            Some(kv_request::Op::Scan(v1::ScanRequest {
                range: Some(range.into()),
                reverse: self.options.reverse,
                limit: self.options.page_len,
                max_bytes: self.options.page_bytes,
                keys_only: self.options.keys_only,
                consistency: v1::Consistency::Linearizable as i32,
            }))
        };
        let answer = self.table.read("scan").run(&anchor, op).await.map_err(Unanswered::into_error)?;
        let (kv_response::Result::Scan(page), shard) = answer else { return Err(unfit()) };
        self.left = after(&left, &shard.range, &page.next, self.options.reverse);
        let partitioning = self.table.partitioning();
        let mut records = Vec::with_capacity(page.records.len());
        for record in page.records {
            let (hash, sort) = decode_key(partitioning, &record.key).map_err(|e| Error::Fatal {
                code: ErrorCode::Corruption,
                message: format!("a store returned a key that cannot be one: {e}"),
            })?;
            records.push((Key { hash, sort }, record.into()));
        }
        Ok(Some(records))
    }

    /// The next record.
    pub async fn next(&mut self) -> Result<Option<(Key, Record)>> {
        loop {
            if let Some(record) = self.buffer.pop_front() {
                return Ok(Some(record));
            }
            match self.next_page().await? {
                Some(page) => self.buffer.extend(page),
                None => return Ok(None),
            }
        }
    }

    /// All records as a stream. It ends after its first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<(Key, Record)>> + Send {
        futures::stream::unfold(Some(self), |scan| async move {
            let mut scan = scan?;
            match scan.next().await {
                Ok(Some(record)) => Some((Ok(record), Some(scan))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }
}

/// What is left of `left` after a page of a shard that ended with `next` (empty: the shard is done).
fn after(left: &KeyRange, shard: &KeyRange, next: &Bytes, reverse: bool) -> Option<KeyRange> {
    let mut rest = left.clone();
    if reverse {
        rest.end = if next.is_empty() { shard.start.clone() } else { next.clone() };
        // An empty end would mean "no upper bound", but here nothing is left below.
        (!rest.end.is_empty() && !rest.is_empty()).then_some(rest)
    } else {
        let behind_shard = smaller_end(&left.end, &shard.end);
        if next.is_empty() && behind_shard == left.end {
            return None;
        }
        rest.start = if next.is_empty() { behind_shard } else { next.clone() };
        (!rest.is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(start: &'static str, end: &'static str) -> KeyRange {
        KeyRange { start: start.into(), end: end.into() }
    }

    #[test]
    fn a_page_moves_on_within_the_shard_then_to_the_next_then_ends() {
        let none = Bytes::new();
        assert_eq!(after(&r("a", "z"), &r("", "m"), &"c".into(), false), Some(r("c", "z")));
        assert_eq!(after(&r("c", "z"), &r("", "m"), &none, false), Some(r("m", "z")));
        assert_eq!(after(&r("m", "z"), &r("m", ""), &none, false), None);
        assert_eq!(after(&r("m", ""), &r("m", ""), &none, false), None);
        assert_eq!(after(&r("a", "m"), &r("", "m"), &none, false), None);

        assert_eq!(after(&r("a", "z"), &r("m", ""), &"p".into(), true), Some(r("a", "p")));
        assert_eq!(after(&r("a", "p"), &r("m", ""), &none, true), Some(r("a", "m")));
        assert_eq!(after(&r("a", "m"), &r("", "m"), &none, true), None);
        assert_eq!(after(&r("m", "z"), &r("m", ""), &none, true), None);
    }

    #[test]
    fn spans_become_ranges_and_hash_tables_refuse_what_they_cannot_do() {
        let within = Span::Within("h".into(), "s".into());
        for partitioning in [Partitioning::Range, Partitioning::Hash] {
            let range = within.encode(partitioning).expect("one hash key");
            assert!(range.contains(&encode_key(partitioning, b"h", b"sx")));
            assert!(!range.contains(&encode_key(partitioning, b"h", b"t")));
            assert!(!range.contains(&encode_key(partitioning, b"hs", b"s")));
        }
        let prefix = Span::Prefix("ab".into());
        let range = prefix.encode(Partitioning::Range).expect("ordered");
        assert!(range.contains(&encode_key(Partitioning::Range, b"abc", b"")));
        assert!(!range.contains(&encode_key(Partitioning::Range, b"ac", b"")));
        let refused = prefix.encode(Partitioning::Hash).expect_err("no order");
        assert_eq!(refused.code(), ErrorCode::NotSupported);
        let to_the_end = Span::SortBetween("h".into(), "b".into(), None).encode(Partitioning::Hash);
        let range = to_the_end.expect("one hash key");
        assert!(range.contains(&encode_key(Partitioning::Hash, b"h", b"\xff\xff")));
        assert!(!range.contains(&encode_key(Partitioning::Hash, b"h", b"a")));
    }
}
