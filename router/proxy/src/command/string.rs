//! Commands on strings.

use super::args::{expire_in_future, integer, is};
use super::model::{Item, put_text, top};
use super::set::expiry_word;
use super::{Context, Outcome};
use crate::Failure;
use crate::resp::Reply;
use bytes::{Bytes, BytesMut};
use undb_sdk::{Expiry, Mutation};
use undb_types::VALUE_BYTES_MAX;

/// GET key
pub async fn get(cx: Context, args: Vec<Bytes>) -> Outcome {
    Ok(Reply::maybe(cx.item(&args[1]).await?.text()?.map(|r| r.value)))
}

/// MGET key [key ...]
pub async fn mget(cx: Context, args: Vec<Bytes>) -> Outcome {
    let found = cx.keys.get(args[1..].iter().map(top).collect(), true).await?;
    let value = |record: Option<_>| Ok(Item::from_record(record)?.text().unwrap_or(None).map(|r| r.value));
    let values: Result<Vec<_>, Failure> = found.into_iter().map(value).collect();
    Ok(Reply::Array(values?.into_iter().map(Reply::maybe).collect()))
}

/// STRLEN key
pub async fn strlen(cx: Context, args: Vec<Bytes>) -> Outcome {
    let head = cx.heads(&args[1..2]).await?.pop().flatten();
    match head {
        Some(record) if record.kind != 0 => Err(Failure::WRONG_TYPE),
        head => Ok(Reply::Int(head.map_or(0, |r| i64::from(r.value_len)))),
    }
}

/// GETDEL key
pub async fn getdel(cx: Context, args: Vec<Bytes>) -> Outcome {
    let key = &args[1];
    cx.update(key, |item| {
        let old = item.text()?;
        Ok((old.is_some().then(|| Mutation::delete(top(key))), Reply::maybe(old.map(|r| r.value))))
    })
    .await
}

/// GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]
pub async fn getex(cx: Context, args: Vec<Bytes>) -> Outcome {
    // As in Redis: the options' form first, then the key, then the number.
    let change = match &args[2..] {
        [] => None,
        [word] if is(word, "PERSIST") => Some(None),
        [word, amount] => Some(Some((expiry_word(word).ok_or(Failure::SYNTAX)?, amount))),
        _ => return Err(Failure::SYNTAX),
    };
    let key = &args[1];
    let now_ms = cx.now_ms;
    cx.update(key, |item| {
        let (Some(old), Some(change)) = (item.clone().text()?, &change) else {
            return Ok((None, Reply::maybe(item.text()?.map(|r| r.value))));
        };
        let expiry = match change {
            None => Expiry::Never,
            Some(((unit, relative), amount)) => {
                let base = if *relative { now_ms } else { 0 };
                Expiry::AtMs(expire_in_future(amount, *unit, base, "getex")?)
            }
        };
        Ok((Some(expiry_or_delete(key, expiry, now_ms)), Reply::Bulk(old.value)))
    })
    .await
}

/// An expiry in the past removes the key at once.
pub fn expiry_or_delete(key: &Bytes, expiry: Expiry, now_ms: u64) -> Mutation {
    match expiry {
        Expiry::AtMs(at) if at <= now_ms => Mutation::delete(top(key)),
        expiry => Mutation::set_expiry(top(key), expiry),
    }
}

/// APPEND key value
pub async fn append(cx: Context, args: Vec<Bytes>) -> Outcome {
    let (key, tail) = (&args[1], &args[2]);
    cx.update(key, |item| {
        let old = item.text()?.map(|r| r.value).unwrap_or_default();
        let mut value = BytesMut::with_capacity(old.len() + tail.len());
        value.extend_from_slice(&old);
        value.extend_from_slice(tail);
        let len = value.len() as i64;
        Ok((Some(put_text(key, value.freeze(), Expiry::Keep)), Reply::Int(len)))
    })
    .await
}

/// GETRANGE key start end
pub async fn getrange(cx: Context, args: Vec<Bytes>) -> Outcome {
    let (start, end) = (integer(&args[2])?, integer(&args[3])?);
    let value = cx.item(&args[1]).await?.text()?.map(|r| r.value).unwrap_or_default();
    Ok(Reply::Bulk(cut(&value, start, end)))
}

/// Both ends inclusive; negative ones count from the end.
fn cut(value: &Bytes, start: i64, end: i64) -> Bytes {
    let len = value.len() as i64;
    if len == 0 || (start < 0 && end < 0 && start > end) {
        return Bytes::new();
    }
    let absolute = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    let (start, end) = (absolute(start), absolute(end).min(len - 1));
    if start > end { Bytes::new() } else { value.slice(start as usize..=end as usize) }
}

/// SETRANGE key offset value
pub async fn setrange(cx: Context, args: Vec<Bytes>) -> Outcome {
    let (key, patch) = (&args[1], &args[3]);
    let offset =
        usize::try_from(integer(&args[2])?).map_err(|_| Failure::new("ERR offset is out of range"))?;
    if offset.saturating_add(patch.len()) > VALUE_BYTES_MAX && !patch.is_empty() {
        return Err(Failure::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    cx.update(key, |item| {
        let old = item.text()?.map(|r| r.value).unwrap_or_default();
        if patch.is_empty() {
            return Ok((None, Reply::Int(old.len() as i64)));
        }
        let mut value = BytesMut::from(&old[..]);
        value.resize(old.len().max(offset + patch.len()), 0);
        value[offset..offset + patch.len()].copy_from_slice(patch);
        let len = value.len() as i64;
        Ok((Some(put_text(key, value.freeze(), Expiry::Keep)), Reply::Int(len)))
    })
    .await
}
