//! Commands on keys of any type.

use super::args::{Unit, expire_at, glob, integer, is, parse_integer};
use super::model::{Item, KIND_HASH, back_off, top};
use super::string::expiry_or_delete;
use super::{ATTEMPTS_MAX, Context, Outcome};
use crate::Failure;
use crate::resp::Reply;
use bytes::Bytes;
use undb_sdk::{Batch, Expect, Expiry, Mutation, Record, WriteOutcome};

/// DEL key [key ...], UNLINK the same
pub async fn del(cx: Context, args: Vec<Bytes>) -> Outcome {
    let keys = &args[1..];
    let heads = cx.heads(keys).await?;
    let mut hashes = Vec::new();
    for (key, head) in keys.iter().zip(heads) {
        if head.is_some_and(|record| record.kind == KIND_HASH)
            && let Item::Hash(hash, _) = cx.item(key).await?
        {
            hashes.push((key, hash));
        }
    }
    // A key that is named twice counts once: the second delete finds nothing.
    let deletes = keys.iter().map(|key| Mutation::delete(top(key))).collect();
    let outcomes = cx.keys.write_each(deletes).await?;
    for (key, hash) in hashes {
        cx.drop_generation(key, hash).await;
    }
    let removed =
        outcomes.into_iter().filter_map(|outcome| outcome.change()).filter(|change| change.existed).count();
    Ok(Reply::Int(removed as i64))
}

/// EXISTS key [key ...]
pub async fn exists(cx: Context, args: Vec<Bytes>) -> Outcome {
    let heads = cx.heads(&args[1..]).await?;
    Ok(Reply::Int(heads.iter().flatten().count() as i64))
}

/// TYPE key
pub async fn kind(cx: Context, args: Vec<Bytes>) -> Outcome {
    let head = cx.heads(&args[1..2]).await?.pop().flatten();
    Ok(Reply::Simple(head.map_or("none", |record| type_name(&record))))
}

fn type_name(record: &Record) -> &'static str {
    if record.kind == KIND_HASH { "hash" } else { "string" }
}

/// TTL, PTTL, EXPIRETIME, PEXPIRETIME
async fn expiry(cx: Context, key: &Bytes, unit: Unit, relative: bool) -> Outcome {
    let Some(record) = cx.heads(std::slice::from_ref(key)).await?.pop().flatten() else {
        return Ok(Reply::Int(-2));
    };
    if record.expire_at_ms == 0 {
        return Ok(Reply::Int(-1));
    }
    let ms = if relative { record.expire_at_ms.saturating_sub(cx.now_ms) } else { record.expire_at_ms };
    Ok(Reply::Int(match unit {
        Unit::Millis => ms,
        Unit::Seconds if relative => (ms + 500) / 1000,
        Unit::Seconds => ms / 1000,
    } as i64))
}

/// TTL key
pub async fn ttl(cx: Context, args: Vec<Bytes>) -> Outcome {
    expiry(cx, &args[1], Unit::Seconds, true).await
}

/// PTTL key
pub async fn pttl(cx: Context, args: Vec<Bytes>) -> Outcome {
    expiry(cx, &args[1], Unit::Millis, true).await
}

/// EXPIRETIME key
pub async fn expiretime(cx: Context, args: Vec<Bytes>) -> Outcome {
    expiry(cx, &args[1], Unit::Seconds, false).await
}

/// PEXPIRETIME key
pub async fn pexpiretime(cx: Context, args: Vec<Bytes>) -> Outcome {
    expiry(cx, &args[1], Unit::Millis, false).await
}

/// PERSIST key
pub async fn persist(cx: Context, args: Vec<Bytes>) -> Outcome {
    change_expiry(cx, &args[1], Expiry::Never, |record| record.expire_at_ms != 0).await
}

/// EXPIRE key seconds [NX | XX | GT | LT]
pub async fn expire(cx: Context, args: Vec<Bytes>) -> Outcome {
    let base = cx.now_ms;
    set_expiry(cx, args, Unit::Seconds, base, "expire").await
}

/// PEXPIRE key ms [NX | XX | GT | LT]
pub async fn pexpire(cx: Context, args: Vec<Bytes>) -> Outcome {
    let base = cx.now_ms;
    set_expiry(cx, args, Unit::Millis, base, "pexpire").await
}

/// EXPIREAT key seconds-since-1970 [NX | XX | GT | LT]
pub async fn expireat(cx: Context, args: Vec<Bytes>) -> Outcome {
    set_expiry(cx, args, Unit::Seconds, 0, "expireat").await
}

/// PEXPIREAT key ms-since-1970 [NX | XX | GT | LT]
pub async fn pexpireat(cx: Context, args: Vec<Bytes>) -> Outcome {
    set_expiry(cx, args, Unit::Millis, 0, "pexpireat").await
}

#[derive(Default)]
struct Only {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

fn only(words: &[Bytes]) -> Result<Only, Failure> {
    let mut only = Only::default();
    for word in words {
        let flag = match () {
            () if is(word, "NX") => &mut only.nx,
            () if is(word, "XX") => &mut only.xx,
            () if is(word, "GT") => &mut only.gt,
            () if is(word, "LT") => &mut only.lt,
            () => return Err(Failure::new(format!("ERR Unsupported option {}", super::args::shown(word)))),
        };
        *flag = true;
    }
    if only.nx && (only.xx || only.gt || only.lt) {
        return Err(Failure::new("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if only.gt && only.lt {
        return Err(Failure::new("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(only)
}

async fn set_expiry(cx: Context, args: Vec<Bytes>, unit: Unit, base_ms: u64, name: &str) -> Outcome {
    // As in Redis 7: the options first, then the number.
    let only = only(&args[3..])?;
    integer(&args[2])?;
    let at = expire_at(&args[2], unit, base_ms, name)?.max(1) as u64;
    change_expiry(cx, &args[1], Expiry::AtMs(at), move |record| {
        let old = record.expire_at_ms;
        let refused = (only.nx && old != 0)
            || (only.xx && old == 0)
            || (only.gt && (old == 0 || at <= old))
            || (only.lt && old != 0 && at >= old);
        !refused
    })
    .await
}

/// Changes the expiry of what is there, if `wanted` says so of it.
async fn change_expiry(
    cx: Context,
    key: &Bytes,
    expiry: Expiry,
    wanted: impl Fn(&Record) -> bool,
) -> Outcome {
    for attempt in 0..ATTEMPTS_MAX {
        let head = cx.heads(std::slice::from_ref(key)).await?.pop().flatten();
        let Some(record) = head.filter(&wanted) else { return Ok(Reply::Int(0)) };
        let mutation = expiry_or_delete(key, expiry, cx.now_ms).when(Expect::Version(record.version));
        if let WriteOutcome::Applied(_) = cx.keys.write(Batch::new().and(mutation)).await? {
            return Ok(Reply::Int(1));
        }
        back_off(attempt).await;
    }
    Err(Failure::CONTENDED)
}

const SCAN_COUNT: usize = 10;
const SCAN_COUNT_MAX: usize = 10_000;

struct ScanWords {
    pattern: Option<Bytes>,
    count: usize,
    type_name: Option<Bytes>,
}

/// MATCH, COUNT and, for SCAN, TYPE.
fn scan_words(words: &[Bytes], with_type: bool) -> Result<ScanWords, Failure> {
    let mut found = ScanWords { pattern: None, count: SCAN_COUNT, type_name: None };
    for pair in words.chunks(2) {
        match pair {
            [word, value] if is(word, "MATCH") => found.pattern = Some(value.clone()),
            [word, value] if is(word, "COUNT") => {
                let count = integer(value)?;
                if count < 1 {
                    return Err(Failure::SYNTAX);
                }
                found.count = (count as usize).min(SCAN_COUNT_MAX);
            }
            [word, value] if with_type && is(word, "TYPE") => found.type_name = Some(value.clone()),
            _ => return Err(Failure::SYNTAX),
        }
    }
    Ok(found)
}

fn cursor(word: &[u8]) -> Result<u64, Failure> {
    let cursor = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    cursor.ok_or(Failure::new("ERR invalid cursor"))
}

/// SCAN cursor [MATCH pattern] [COUNT n] [TYPE name]
pub async fn scan(cx: Context, args: Vec<Bytes>) -> Outcome {
    let cursor = cursor(&args[1])?;
    let words = scan_words(&args[2..], true)?;
    let from = cx.cursors.take(cursor)?;
    let (page, next) = cx.keys.walk(from, words.count).await?;
    let next = next.map_or(0, |next| cx.cursors.put(next));
    let tops = page.into_iter().filter(|found| found.key.sort.is_empty());
    let kept = tops.filter(|found| {
        words.pattern.as_ref().is_none_or(|pattern| glob(pattern, &found.key.hash))
            && words.type_name.as_ref().is_none_or(|name| is(name, type_name(&found.record)))
    });
    Ok(page_reply(next, kept.map(|found| Reply::Bulk(found.key.hash)).collect()))
}

fn page_reply(next: u64, items: Vec<Reply>) -> Reply {
    Reply::Array(vec![Reply::text(&next.to_string()), Reply::Array(items)])
}

/// HSCAN key cursor [MATCH pattern] [COUNT n]
pub async fn hscan(cx: Context, args: Vec<Bytes>) -> Outcome {
    let cursor = cursor(&args[2])?;
    let words = scan_words(&args[3..], false)?;
    let Some(hash) = cx.item(&args[1]).await?.hash()? else { return Ok(page_reply(0, Vec::new())) };
    let from = cx.cursors.take(cursor)?;
    let page = cx.keys.fields(args[1].clone(), hash.prefix(), from, words.count + 1, true).await?;
    let next = page.get(words.count).map_or(0, |found| cx.cursors.put(found.key.sort.clone()));
    let mut items = Vec::new();
    for found in page.into_iter().take(words.count) {
        let name = super::model::field_name(&found.key.sort);
        if words.pattern.as_ref().is_none_or(|pattern| glob(pattern, &name)) {
            items.extend([Reply::Bulk(name), Reply::Bulk(found.record.value)]);
        }
    }
    Ok(page_reply(next, items))
}

/// DBSIZE: walks all keys, so it takes as long as there are many.
pub async fn dbsize(cx: Context, _args: Vec<Bytes>) -> Outcome {
    let mut from = None;
    let mut count = 0;
    loop {
        let (page, next) = cx.keys.walk(from, SCAN_COUNT_MAX).await?;
        count += page.iter().filter(|found| found.key.sort.is_empty()).count() as i64;
        if next.is_none() {
            return Ok(Reply::Int(count));
        }
        from = next;
    }
}

/// What lies under the key, for OBJECT ENCODING and DEBUG-like tools; only its type is known here.
pub async fn object(cx: Context, args: Vec<Bytes>) -> Outcome {
    if !is(&args[1], "ENCODING") || args.len() != 3 {
        return Err(Failure::new("ERR only OBJECT ENCODING is supported by UNDB"));
    }
    match cx.item(&args[2]).await? {
        Item::Absent => Ok(Reply::Null),
        Item::Hash(..) => Ok(Reply::text("hashtable")),
        Item::Text(record) if parse_integer(&record.value).is_some() => Ok(Reply::text("int")),
        Item::Text(_) => Ok(Reply::text("raw")),
    }
}
