//! SET and its options.

use super::args::{Unit, expire_in_future, is};
use super::model::{Item, put_text, top};
use super::{Context, Outcome};
use crate::Failure;
use crate::resp::Reply;
use bytes::Bytes;
use undb_sdk::{Batch, Expect, Expiry, Mutation, PutOptions};

#[derive(Default)]
struct Options {
    expiry: Option<Expiry>,
    expect: Option<Expect>,
    get: bool,
}

fn options(words: &[Bytes], now_ms: u64) -> Result<Options, Failure> {
    let mut options = Options::default();
    // Redis reads all options before it looks at the time, and lets a word come again.
    let mut time: Option<((Unit, bool), &Bytes)> = None;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let next = words.get(at + 1);
        at += 1;
        if is(word, "GET") {
            options.get = true;
        } else if is(word, "NX") && options.expect.is_none_or_is(&Expect::Absent) {
            options.expect = Some(Expect::Absent);
        } else if is(word, "XX") && options.expect.is_none_or_is(&Expect::Present) {
            options.expect = Some(Expect::Present);
        } else if is(word, "KEEPTTL") && time.is_none() {
            options.expiry = Some(Expiry::Keep);
        } else if let (Some(kind), Some(amount), None) = (expiry_word(word), next, options.expiry)
            && time.is_none_or(|(before, _)| before == kind)
        {
            time = Some((kind, amount));
            at += 1;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    if let Some(((unit, relative), amount)) = time {
        let base = if relative { now_ms } else { 0 };
        options.expiry = Some(Expiry::AtMs(expire_in_future(amount, unit, base, "set")?));
    }
    Ok(options)
}

/// EX, PX, EXAT, PXAT: the unit, and whether it counts from now.
pub fn expiry_word(word: &[u8]) -> Option<(Unit, bool)> {
    let words = [
        ("EX", Unit::Seconds, true),
        ("PX", Unit::Millis, true),
        ("EXAT", Unit::Seconds, false),
        ("PXAT", Unit::Millis, false),
    ];
    words.iter().find(|(name, _, _)| is(word, name)).map(|(_, unit, relative)| (*unit, *relative))
}

trait NoneOrIs<T> {
    fn is_none_or_is(&self, want: &T) -> bool;
}

impl<T: PartialEq> NoneOrIs<T> for Option<T> {
    fn is_none_or_is(&self, want: &T) -> bool {
        self.as_ref().is_none_or(|have| have == want)
    }
}

/// SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]
pub async fn set(cx: Context, args: Vec<Bytes>) -> Outcome {
    let options = options(&args[3..], cx.now_ms)?;
    let (key, value) = (&args[1], &args[2]);
    let expiry = options.expiry.unwrap_or_default();
    if options.get {
        return set_get(cx, key, value, expiry, options.expect).await;
    }
    let mut put = PutOptions::new().expiry(expiry);
    put.expect = options.expect;
    let outcome = cx.keys.write(Batch::new().and(Mutation::put_with(top(key), value.clone(), put))).await?;
    Ok(if outcome.is_applied() { Reply::OK } else { Reply::Null })
}

async fn set_get(cx: Context, key: &Bytes, value: &Bytes, expiry: Expiry, expect: Option<Expect>) -> Outcome {
    cx.update(key, |item| {
        let exists = !matches!(item, Item::Absent);
        let old = Reply::maybe(item.text()?.map(|r| r.value));
        let wanted = match expect {
            Some(Expect::Absent) => !exists,
            Some(_) => exists,
            None => true,
        };
        Ok((wanted.then(|| put_text(key, value.clone(), expiry)), old))
    })
    .await
}

/// SETNX key value
pub async fn setnx(cx: Context, args: Vec<Bytes>) -> Outcome {
    let put = Mutation::put_with(top(&args[1]), args[2].clone(), PutOptions::new().if_absent());
    Ok(Reply::flag(cx.keys.write(Batch::new().and(put)).await?.is_applied()))
}

/// SETEX key seconds value
pub async fn setex(cx: Context, args: Vec<Bytes>) -> Outcome {
    set_expiring(cx, args, Unit::Seconds, "setex").await
}

/// PSETEX key ms value
pub async fn psetex(cx: Context, args: Vec<Bytes>) -> Outcome {
    set_expiring(cx, args, Unit::Millis, "psetex").await
}

async fn set_expiring(cx: Context, args: Vec<Bytes>, unit: Unit, name: &str) -> Outcome {
    let at = expire_in_future(&args[2], unit, cx.now_ms, name)?;
    cx.keys.write(Batch::new().and(put_text(&args[1], args[3].clone(), Expiry::AtMs(at)))).await?;
    Ok(Reply::OK)
}

/// GETSET key value
pub async fn getset(cx: Context, args: Vec<Bytes>) -> Outcome {
    set_get(cx, &args[1], &args[2], Expiry::Never, None).await
}

/// MSET key value [key value ...]: atomic per shard only.
pub async fn mset(cx: Context, args: Vec<Bytes>) -> Outcome {
    let puts = pairs(&args, "mset")?.map(|(key, value)| put_text(key, value.clone(), Expiry::Never));
    cx.keys.write_each(puts.collect()).await?;
    Ok(Reply::OK)
}

/// MSETNX key value [key value ...]: all keys must lie in one shard.
pub async fn msetnx(cx: Context, args: Vec<Bytes>) -> Outcome {
    let batch = pairs(&args, "msetnx")?
        .map(|(key, value)| Mutation::put_with(top(key), value.clone(), PutOptions::new().if_absent()));
    Ok(Reply::flag(cx.keys.write(batch.collect()).await?.is_applied()))
}

fn pairs<'a>(args: &'a [Bytes], name: &str) -> Result<impl Iterator<Item = (&'a Bytes, &'a Bytes)>, Failure> {
    if args.len().is_multiple_of(2) {
        return Err(Failure::new(format!("ERR wrong number of arguments for '{name}' command")));
    }
    // The last of two values of one key wins, also when they are written side by side.
    let mut seen = std::collections::HashSet::new();
    let mut kept: Vec<_> = args[1..].chunks_exact(2).rev().filter(|p| seen.insert(&p[0])).collect();
    kept.reverse();
    Ok(kept.into_iter().map(|pair| (&pair[0], &pair[1])))
}
