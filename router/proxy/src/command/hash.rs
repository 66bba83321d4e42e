//! Commands on hashes.
//!
//! A write names the meta record's version, so that no other change of the hash's shape can come
//! between; a write that depends on a field's value names that field's version too.

use super::args::{float, integer, parse_integer};
use super::model::{
    Hash, Item, KIND_FIELD, KIND_HASH, any_field, back_off, field_name, generation_prefix, top,
};
use super::number::add_float;
use super::{ATTEMPTS_MAX, Context, Outcome};
use crate::Failure;
use crate::resp::Reply;
use bytes::Bytes;
use std::collections::BTreeMap;
use undb_sdk::{Batch, Expect, Expiry, Mutation, PutOptions, Record, WriteOutcome};

const FIELDS_MAX: usize = 900; // of one write; a batch holds 1,000 mutations
const PAGE: usize = 1000;

/// What a hash command decided: fields to write (None: to remove), and its answer.
struct Change {
    fields: Vec<(Bytes, Option<Bytes>)>,
    answer: Reply,
    // The new values depend on the old ones, so those must be unchanged.
    on_values: bool,
}

/// Reads the named fields, lets `decide` choose, and writes; again until nobody came between.
async fn change(
    cx: &Context,
    key: &Bytes,
    names: &[Bytes],
    mut decide: impl FnMut(&[Option<Record>]) -> Result<Change, Failure>,
) -> Outcome {
    if names.len() > FIELDS_MAX {
        return Err(Failure::new(format!("ERR at most {FIELDS_MAX} fields can be changed by one command")));
    }
    for attempt in 0..ATTEMPTS_MAX {
        let item = cx.item(key).await?;
        let old = item.hash()?;
        let hash = match old {
            Some(hash) => hash,
            None => match fresh(cx, key).await? {
                Some(hash) => hash,
                None => continue,
            },
        };
        let records = match old {
            Some(_) => cx.keys.get(names.iter().map(|name| hash.field(key, name)).collect(), true).await?,
            None => vec![None; names.len()],
        };
        let change = decide(&records)?;
        if change.fields.is_empty() {
            return Ok(change.answer);
        }
        let batch = batch(key, &item, hash, names, &records, &change);
        if let WriteOutcome::Applied(_) = cx.keys.write(batch).await? {
            return Ok(change.answer);
        }
        back_off(attempt).await;
    }
    Err(Failure::CONTENDED)
}

/// A new hash; what an interrupted drop left under the key is removed first. `None`: somebody else made
/// one in the meantime.
///
/// IMPORTANT: a generation is seen among the fields before the meta record is read. It is never used
/// again, so if the meta record does not name it then, it is dead for ever. The other way round, fields
/// of a hash made in between would be lost.
async fn fresh(cx: &Context, key: &Bytes) -> Result<Option<Hash>, Failure> {
    loop {
        let left = cx.keys.fields(key.clone(), any_field(), None, 1, false).await?;
        // A record of another kind is none of ours: somebody uses the table through the SDK too.
        let Some(found) = left.first().filter(|found| found.record.kind == KIND_FIELD) else {
            return Ok(Some(Hash::fresh()));
        };
        if !matches!(cx.item(key).await?, Item::Absent) {
            return Ok(None);
        }
        cx.keys.drop_fields(key.clone(), generation_prefix(&found.key.sort)).await?;
    }
}

fn batch(
    key: &Bytes,
    item: &Item,
    hash: Hash,
    names: &[Bytes],
    records: &[Option<Record>],
    change: &Change,
) -> Batch {
    let before: BTreeMap<&Bytes, &Option<Record>> = names.iter().zip(records).collect();
    let last: BTreeMap<&Bytes, &Option<Bytes>> = change.fields.iter().map(|(n, v)| (n, v)).collect();
    let mut len = hash.len;
    let mut fields = Vec::new();
    for (name, value) in last {
        let old = before.get(name).copied().and_then(Option::as_ref);
        let at = hash.field(key, name);
        let mutation = match value {
            Some(value) => {
                len += u64::from(old.is_none());
                Mutation::put_with(at, value.clone(), PutOptions::new().kind(KIND_FIELD))
            }
            None => {
                len = len.saturating_sub(u64::from(old.is_some()));
                Mutation::delete(at)
            }
        };
        fields.push(match old {
            _ if !change.on_values => mutation,
            Some(record) => mutation.when(Expect::Version(record.version)),
            None => mutation.when(Expect::Absent),
        });
    }
    let mut batch = Batch::new().and(meta(key, item, hash, len));
    fields.into_iter().for_each(|mutation| batch.push(mutation));
    batch
}

/// The meta record's part of a write: unchanged where no field came or went, gone with the last one.
fn meta(key: &Bytes, item: &Item, hash: Hash, len: u64) -> Mutation {
    let top = top(key);
    let unchanged = item.unchanged();
    if matches!(item, Item::Hash(..)) && len == hash.len {
        return Mutation::check(top, unchanged);
    }
    if len == 0 {
        return Mutation::delete(top).when(unchanged);
    }
    let expiry = if matches!(item, Item::Hash(..)) { Expiry::Keep } else { Expiry::Never };
    let value = Hash { len, ..hash }.encode();
    Mutation::put_with(top, value, PutOptions::new().kind(KIND_HASH).expiry(expiry)).when(unchanged)
}

fn pairs(args: &[Bytes], name: &str) -> Result<(Vec<Bytes>, Vec<Bytes>), Failure> {
    if !args.len().is_multiple_of(2) {
        return Err(Failure::new(format!("ERR wrong number of arguments for '{name}' command")));
    }
    Ok(args[2..].chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).unzip())
}

async fn set_fields(cx: &Context, key: &Bytes, names: &[Bytes], values: &[Bytes]) -> Result<i64, Failure> {
    let mut added = 0;
    change(cx, key, names, |records| {
        let mut new: Vec<&Bytes> =
            names.iter().zip(records).filter(|(_, r)| r.is_none()).map(|(n, _)| n).collect();
        new.sort_unstable();
        new.dedup();
        added = new.len() as i64;
        let fields = names.iter().cloned().zip(values.iter().cloned().map(Some)).collect();
        Ok(Change { fields, answer: Reply::OK, on_values: false })
    })
    .await?;
    Ok(added)
}

/// HSET key field value [field value ...]
pub async fn hset(cx: Context, args: Vec<Bytes>) -> Outcome {
    let (names, values) = pairs(&args, "hset")?;
    Ok(Reply::Int(set_fields(&cx, &args[1], &names, &values).await?))
}

/// HMSET key field value [field value ...]
pub async fn hmset(cx: Context, args: Vec<Bytes>) -> Outcome {
    let (names, values) = pairs(&args, "hmset")?;
    set_fields(&cx, &args[1], &names, &values).await?;
    Ok(Reply::OK)
}

/// HSETNX key field value
pub async fn hsetnx(cx: Context, args: Vec<Bytes>) -> Outcome {
    let (name, value) = (&args[2], &args[3]);
    change(&cx, &args[1], &args[2..3], |records| {
        let absent = records.iter().all(Option::is_none);
        let fields = if absent { vec![(name.clone(), Some(value.clone()))] } else { Vec::new() };
        Ok(Change { fields, answer: Reply::flag(absent), on_values: true })
    })
    .await
}

/// HDEL key field [field ...]
pub async fn hdel(cx: Context, args: Vec<Bytes>) -> Outcome {
    change(&cx, &args[1], &args[2..], |records| {
        let found: BTreeMap<_, _> = args[2..]
            .iter()
            .zip(records)
            .filter(|(_, r)| r.is_some())
            .map(|(n, _)| (n.clone(), None))
            .collect();
        let answer = Reply::Int(found.len() as i64);
        Ok(Change { fields: found.into_iter().collect(), answer, on_values: true })
    })
    .await
}

/// HINCRBY key field amount
pub async fn hincrby(cx: Context, args: Vec<Bytes>) -> Outcome {
    let by = integer(&args[3])?;
    change(&cx, &args[1], &args[2..3], |records| {
        let old = match records.iter().flatten().next() {
            None => 0,
            Some(r) => parse_integer(&r.value).ok_or(Failure::new("ERR hash value is not an integer"))?,
        };
        let sum = old.checked_add(by).ok_or(Failure::OVERFLOW)?;
        let fields = vec![(args[2].clone(), Some(Bytes::from(sum.to_string())))];
        Ok(Change { fields, answer: Reply::Int(sum), on_values: true })
    })
    .await
}

/// HINCRBYFLOAT key field amount
pub async fn hincrbyfloat(cx: Context, args: Vec<Bytes>) -> Outcome {
    let by = float(&args[3]).ok_or(Failure::NOT_A_FLOAT)?;
    change(&cx, &args[1], &args[2..3], |records| {
        let old = records.iter().flatten().next().map(|r| r.value.clone());
        let text = add_float(old, by, Failure::new("ERR hash value is not a float"))?;
        let fields = vec![(args[2].clone(), Some(text.clone()))];
        Ok(Change { fields, answer: Reply::Bulk(text), on_values: true })
    })
    .await
}

async fn read(
    cx: &Context,
    key: &Bytes,
    names: &[Bytes],
    values: bool,
) -> Result<Vec<Option<Record>>, Failure> {
    match cx.item(key).await?.hash()? {
        None => Ok(vec![None; names.len()]),
        Some(hash) => cx.keys.get(names.iter().map(|name| hash.field(key, name)).collect(), values).await,
    }
}

/// HGET key field
pub async fn hget(cx: Context, args: Vec<Bytes>) -> Outcome {
    let found = read(&cx, &args[1], &args[2..3], true).await?.pop().flatten();
    Ok(Reply::maybe(found.map(|r| r.value)))
}

/// HMGET key field [field ...]
pub async fn hmget(cx: Context, args: Vec<Bytes>) -> Outcome {
    let found = read(&cx, &args[1], &args[2..], true).await?;
    Ok(Reply::Array(found.into_iter().map(|r| Reply::maybe(r.map(|r| r.value))).collect()))
}

/// HEXISTS key field
pub async fn hexists(cx: Context, args: Vec<Bytes>) -> Outcome {
    let found = read(&cx, &args[1], &args[2..3], false).await?.pop().flatten();
    Ok(Reply::flag(found.is_some()))
}

/// HSTRLEN key field
pub async fn hstrlen(cx: Context, args: Vec<Bytes>) -> Outcome {
    let found = read(&cx, &args[1], &args[2..3], false).await?.pop().flatten();
    Ok(Reply::Int(found.map_or(0, |r| i64::from(r.value_len))))
}

/// HLEN key
pub async fn hlen(cx: Context, args: Vec<Bytes>) -> Outcome {
    Ok(Reply::Int(cx.item(&args[1]).await?.hash()?.map_or(0, |hash| hash.len as i64)))
}

/// All fields, in the order of their names. Over a page's worth of fields it is not one moment's view.
async fn all(cx: &Context, key: &Bytes, values: bool) -> Result<Vec<(Bytes, Bytes)>, Failure> {
    for attempt in 0..ATTEMPTS_MAX {
        let Some(hash) = cx.item(key).await?.hash()? else { return Ok(Vec::new()) };
        let fields = fields_of(cx, key, hash, values).await?;
        if fields.len() as u64 == hash.len {
            return Ok(fields);
        }
        // A field came or went, or the hash was dropped, between the two reads.
        back_off(attempt).await;
    }
    Err(Failure::CONTENDED)
}

async fn fields_of(
    cx: &Context,
    key: &Bytes,
    hash: Hash,
    values: bool,
) -> Result<Vec<(Bytes, Bytes)>, Failure> {
    let mut fields = Vec::new();
    let mut from = None;
    loop {
        let page = cx.keys.fields(key.clone(), hash.prefix(), from.take(), PAGE, values).await?;
        let full = page.len() == PAGE;
        for found in page {
            fields.push((field_name(&found.key.sort), found.record.value));
        }
        match fields.last() {
            Some((name, _)) if full => {
                // The smallest sort key behind the last one.
                let mut next = hash.field(key, name).sort.to_vec();
                next.push(0);
                from = Some(next.into());
            }
            _ => return Ok(fields),
        }
    }
}

/// HGETALL key
pub async fn hgetall(cx: Context, args: Vec<Bytes>) -> Outcome {
    let fields = all(&cx, &args[1], true).await?;
    Ok(Reply::Map(fields.into_iter().map(|(n, v)| (Reply::Bulk(n), Reply::Bulk(v))).collect()))
}

/// HKEYS key
pub async fn hkeys(cx: Context, args: Vec<Bytes>) -> Outcome {
    let fields = all(&cx, &args[1], false).await?;
    Ok(Reply::Array(fields.into_iter().map(|(n, _)| Reply::Bulk(n)).collect()))
}

/// HVALS key
pub async fn hvals(cx: Context, args: Vec<Bytes>) -> Outcome {
    let fields = all(&cx, &args[1], true).await?;
    Ok(Reply::Array(fields.into_iter().map(|(_, v)| Reply::Bulk(v)).collect()))
}
