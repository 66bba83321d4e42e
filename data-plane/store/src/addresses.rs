//! Where other stores are: the newest address that cluster control named for each.

use parking_lot::RwLock;
use std::collections::HashMap;
use undb_proto::v1::{StoreRecord, StoreState};

/// The address book of this store. It only learns: when control is away, the last one stays.
#[derive(Debug, Default)]
pub struct Addresses {
    // Leaf lock.
    known: RwLock<HashMap<u64, Known>>,
}

#[derive(Debug)]
struct Known {
    address: String,
    revision: u64,
}

impl Addresses {
    /// Takes over what a heartbeat's answer says; an older revision changes nothing.
    pub fn learn(&self, stores: &[StoreRecord]) {
        let mut known = self.known.write();
        for store in stores {
            let newer = known.get(&store.store_id).is_none_or(|k| k.revision <= store.revision);
            if !newer {
                continue;
            }
            if store.state() == StoreState::StoreRemoved || store.address.is_empty() {
                known.remove(&store.store_id);
                continue;
            }
            let entry = Known { address: store.address.clone(), revision: store.revision };
            known.insert(store.store_id, entry);
        }
    }

    /// The newest address of a store.
    pub fn get(&self, store: u64) -> Option<String> {
        self.known.read().get(&store).map(|k| k.address.clone())
    }
}

impl undb_raft::AddressBook for Addresses {
    fn address(&self, store: u64, fallback: &str) -> Option<String> {
        self.get(store).or_else(|| (!fallback.is_empty()).then(|| fallback.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(store_id: u64, address: &str, revision: u64) -> StoreRecord {
        StoreRecord { store_id, address: address.into(), revision, ..Default::default() }
    }

    #[test]
    fn an_older_record_does_not_replace_a_newer_one() {
        let book = Addresses::default();
        book.learn(&[record(1, "new:1", 5)]);
        book.learn(&[record(1, "old:1", 4), record(2, "b:1", 1)]);
        assert_eq!(book.get(1).as_deref(), Some("new:1"));
        assert_eq!(book.get(2).as_deref(), Some("b:1"));
    }

    #[test]
    fn a_removed_store_has_no_address() {
        let book = Addresses::default();
        book.learn(&[record(1, "a:1", 1)]);
        let state = StoreState::StoreRemoved as i32;
        book.learn(&[StoreRecord { state, ..record(1, "a:1", 2) }]);
        assert_eq!(book.get(1), None);
    }
}
