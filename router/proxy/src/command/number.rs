//! Commands that add.

use super::args::{float, float_text, integer};
use super::model::{put_text, top};
use super::{Context, Outcome};
use crate::Failure;
use crate::resp::Reply;
use bytes::Bytes;
use undb_sdk::{Batch, Expiry, Mutation};

/// INCR key
pub async fn incr(cx: Context, args: Vec<Bytes>) -> Outcome {
    add(cx, &args[1], 1).await
}

/// DECR key
pub async fn decr(cx: Context, args: Vec<Bytes>) -> Outcome {
    add(cx, &args[1], -1).await
}

/// INCRBY key amount
pub async fn incrby(cx: Context, args: Vec<Bytes>) -> Outcome {
    let by = integer(&args[2])?;
    add(cx, &args[1], by).await
}

/// DECRBY key amount
pub async fn decrby(cx: Context, args: Vec<Bytes>) -> Outcome {
    let by = integer(&args[2])?.checked_neg().ok_or(Failure::new("ERR decrement would overflow"))?;
    add(cx, &args[1], by).await
}

/// One write, exactly once: the store adds.
async fn add(cx: Context, key: &Bytes, by: i64) -> Outcome {
    let outcome = cx.keys.write(Batch::new().and(Mutation::increment(top(key), by))).await?;
    let change = outcome.change().ok_or(Failure::CONTENDED)?;
    Ok(Reply::Int(change.number))
}

/// INCRBYFLOAT key amount
pub async fn incrbyfloat(cx: Context, args: Vec<Bytes>) -> Outcome {
    let key = &args[1];
    cx.update(key, |item| {
        let old = item.text()?.map(|r| r.value);
        // The type is judged before the number.
        let by = float(&args[2]).ok_or(Failure::NOT_A_FLOAT)?;
        let text = add_float(old, by, Failure::NOT_A_FLOAT)?;
        Ok((Some(put_text(key, text.clone(), Expiry::Keep)), Reply::Bulk(text)))
    })
    .await
}

/// The sum as text.
pub fn add_float(old: Option<Bytes>, by: f64, not_a_float: Failure) -> Result<Bytes, Failure> {
    let old = match old {
        None => 0.0,
        Some(text) => float(&text).ok_or(not_a_float)?,
    };
    let sum = old + by;
    if !sum.is_finite() {
        return Err(Failure::new("ERR increment would produce NaN or Infinity"));
    }
    Ok(float_text(sum).into())
}
