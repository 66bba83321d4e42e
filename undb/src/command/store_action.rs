//! What `cordon`, `uncordon`, `drain` and `remove` share: the store that is meant, and the call.

use crate::exit::{Failure, Outcome};
use undb_proto::v1;
use undb_sdk::Admin;

/// The number of a store that was typed as `store N` or `store/N`.
pub fn store_id(command: &str, words: &[String]) -> Outcome<u64> {
    let usage = || {
        let given = words.join(" ");
        Failure::usage(format!(
            "`{given}` names no store; write `undb {command} store N`, `undb get stores` lists them"
        ))
    };
    let (kind, number) = match words {
        [one] => one.split_once('/').ok_or_else(usage)?,
        [kind, number] => (&kind[..], &number[..]),
        _ => return Err(usage()),
    };
    if !matches!(&kind.to_ascii_lowercase()[..], "store" | "stores" | "ust") {
        return Err(Failure::usage(format!("`undb {command}` works on stores, not on `{kind}`")));
    }
    number.parse().map_err(|_| usage())
}

/// Asks for it.
pub async fn set(
    admin: &Admin,
    store_id: u64,
    action: v1::StoreAction,
    lost: bool,
) -> Outcome<v1::SetStoreResponse> {
    Ok(admin.set_store(store_id, action, lost).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_its_kind_and_number() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(store_id("drain", &words("store 3")).expect("good"), 3);
        assert_eq!(store_id("drain", &words("store/3")).expect("good"), 3);
        for bad in ["3", "store", "store x", "table 3", "store 3 4"] {
            let failure = store_id("drain", &words(bad)).expect_err(bad);
            assert!(failure.message.contains("store"), "{}", failure.message);
        }
    }
}
