//! Is this request meant for us, and for this shard as it is now? Pure; the order is fixed: the
//! first answer is the one that helps the caller most.

use bytes::Bytes;
use undb_proto::v1::{ErrorCode, Header};
use undb_proto::{v1, wire_error};
use undb_types::{BATCH_LEN_MAX, KeyRange};

/// Most bytes of all records in the answer to one get.
pub const GET_BYTES_MAX: usize = 32 << 20;

/// Refuses a request for another cluster or another store.
pub fn check_store(header: &Header, cluster_id: &str, store_id: u64) -> Result<(), v1::Error> {
    if header.cluster_id != cluster_id {
        let message = format!("this store belongs to cluster {cluster_id}");
        return Err(wire_error(ErrorCode::ClusterMismatch, message));
    }
    if header.store_id != store_id {
        return Err(wire_error(ErrorCode::StoreMismatch, format!("this is store {store_id}")));
    }
    Ok(())
}

/// True when the caller's picture of the shard's range is ours. Members do not matter here: whoever
/// reaches the leader reaches the right one.
pub fn epoch_matches(header: &Header, table_id: u64, version: u64) -> bool {
    header.table_id == table_id && header.epoch.is_some_and(|e| e.version == version)
}

/// The keys that a request touches: what an epoch error must cover.
pub fn touched(op: &v1::kv_request::Op) -> KeyRange {
    match op {
        v1::kv_request::Op::Get(get) => hull(get.keys.iter()),
        v1::kv_request::Op::Scan(scan) => scan.range.clone().unwrap_or_default().into(),
        v1::kv_request::Op::Write(write) => hull(write.mutations.iter().map(|m| &m.key)),
    }
}

fn hull<'a>(keys: impl Iterator<Item = &'a Bytes> + Clone) -> KeyRange {
    let start = keys.clone().min().cloned().unwrap_or_default();
    // The first key behind the largest.
    let end = keys.max().map(|key| [&key[..], b"\0"].concat().into()).unwrap_or_default();
    KeyRange { start, end }
}

/// Refuses reads that nobody answers yet, and requests without content.
pub fn check_op(op: &v1::kv_request::Op) -> Result<(), v1::Error> {
    let consistency = match op {
        v1::kv_request::Op::Get(get) => get.consistency,
        v1::kv_request::Op::Scan(scan) => scan.consistency,
        v1::kv_request::Op::Write(write) if write.mutations.is_empty() => {
            return Err(wire_error(ErrorCode::InvalidArgument, "a write needs at least one mutation"));
        }
        v1::kv_request::Op::Write(_) => return Ok(()),
    };
    if consistency != v1::Consistency::Linearizable as i32 {
        let message = "only linearizable reads are served";
        return Err(wire_error(ErrorCode::NotSupported, message));
    }
    match op {
        v1::kv_request::Op::Get(get) if get.keys.len() > BATCH_LEN_MAX => {
            let message = format!("get of {} keys; at most {BATCH_LEN_MAX}", get.keys.len());
            Err(wire_error(ErrorCode::TooLarge, message))
        }
        v1::kv_request::Op::Get(get) if get.keys.is_empty() => {
            Err(wire_error(ErrorCode::InvalidArgument, "a get names no keys"))
        }
        v1::kv_request::Op::Scan(scan) if scan.range.is_none() => {
            Err(wire_error(ErrorCode::InvalidArgument, "a scan names no range"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            cluster_id: "c".into(),
            store_id: 3,
            table_id: 2,
            epoch: Some(v1::Epoch { version: 5, conf: 1 }),
            ..Default::default()
        }
    }

    #[test]
    fn another_cluster_is_said_before_another_store() {
        let code = |cluster: &str, store| check_store(&header(), cluster, store).map_err(|e| e.code());
        assert_eq!(code("c", 3), Ok(()));
        assert_eq!(code("d", 4), Err(ErrorCode::ClusterMismatch));
        assert_eq!(code("c", 4), Err(ErrorCode::StoreMismatch));
    }

    #[test]
    fn only_the_version_of_the_range_must_match() {
        assert!(epoch_matches(&header(), 2, 5));
        assert!(!epoch_matches(&header(), 2, 6));
        assert!(!epoch_matches(&header(), 3, 5));
        let other_conf = Header { epoch: Some(v1::Epoch { version: 5, conf: 9 }), ..header() };
        assert!(epoch_matches(&other_conf, 2, 5));
        assert!(!epoch_matches(&Header { epoch: None, ..header() }, 2, 5));
    }

    #[test]
    fn reads_that_are_not_linearizable_are_not_supported_yet() {
        for consistency in [1, 2, 77] {
            let get = v1::GetRequest { keys: vec![Bytes::from_static(b"k")], consistency, no_value: false };
            let error = check_op(&v1::kv_request::Op::Get(get)).expect_err("refused");
            assert_eq!(error.code(), ErrorCode::NotSupported);
        }
    }

    #[test]
    fn the_touched_range_covers_every_key() {
        let keys: Vec<Bytes> = vec!["m".into(), "a".into(), "z".into()];
        let range =
            touched(&v1::kv_request::Op::Get(v1::GetRequest { keys: keys.clone(), ..Default::default() }));
        assert!(keys.iter().all(|key| range.contains(key)));
        assert!(!range.contains(b"z\0"));
    }
}
