//! Encodings keep their bytes, and hostile bytes are refused.

use super::*;

fn id(term: u64, leader: u64, index: u64) -> LogId {
    LogId { leader_id: LeaderId { term, node_id: leader }, index }
}

fn joint() -> Membership {
    let member = |store: u64| Member { store, address: format!("store-{store}:7400") };
    let configs = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([2, 3, 40])];
    let nodes: BTreeMap<u64, Member> =
        [1, 2, 3, 40, 50].into_iter().map(|id| (id, member(id * 10))).collect();
    Membership::new(configs, nodes).expect("a membership")
}

fn append() -> AppendEntriesRequest<Kinds> {
    let entry = |index, payload| Entry { log_id: id(3, 2, index), payload };
    AppendEntriesRequest {
        vote: Vote::new_committed(3, 2),
        prev_log_id: Some(id(2, 1, 6)),
        entries: vec![
            entry(7, EntryPayload::Blank),
            entry(8, EntryPayload::Normal(Command(Bytes::from_static(b"\x00command\xff")))),
            entry(9, EntryPayload::Membership(joint())),
        ],
        leader_commit: Some(id(2, 1, 5)),
    }
}

/// Every encoding of this version, by name.
fn samples() -> Vec<(&'static str, Bytes)> {
    let stored = StoredMembership::new(Some(id(3, 2, 9)), joint());
    let mut vote = VoteRequest::new(Vote::new(4, 3), Some(id(3, 2, 9)));
    vote.leadership_transfer = true;
    let meta = SnapshotMeta { last_log_id: Some(id(3, 2, 9)), last_membership: stored.clone() };
    let higher = AppendEntriesResponse::HigherVote(Vote::new_committed(9, 1));
    let changed =
        TransferLeaderError::VoteChanged { expected: Vote::new_committed(3, 2), actual: Vote::new(5, 1) };
    vec![
        ("vote", encode_vote(&Vote::new_committed(3, 2))),
        ("membership", encode_membership(&stored)),
        ("membership entry", encode_payload(&append().entries[2]).1),
        ("append", encode_append(&append())),
        ("append success", encode_append_reply(&AppendEntriesResponse::Success)),
        ("append conflict", encode_append_reply(&AppendEntriesResponse::Conflict)),
        ("append higher vote", encode_append_reply(&higher)),
        ("vote request", encode_vote_request(&vote)),
        ("vote reply", encode_vote_reply(&VoteResponse::new(Vote::new(4, 3), Some(id(3, 2, 9)), true))),
        ("transfer", encode_transfer(&TransferLeaderRequest::new(Vote::new_committed(3, 2), 40, None))),
        ("transfer accepted", encode_transfer_reply(&Ok(()))),
        ("transfer refused", encode_transfer_reply(&Err(changed))),
        ("snapshot header", encode_snapshot_meta(&meta)),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn version_1_is_encoded_as_it_was() {
    let now: String = samples().iter().map(|(name, bytes)| format!("{name}: {}\n", hex(bytes))).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/codec/v1.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &now).expect("writes");
    }
    assert_eq!(now, std::fs::read_to_string(path).expect("the golden file"));
}

#[test]
fn requests_decode_to_what_was_encoded() {
    let (sent, got) = (append(), decode_append(encode_append(&append())).expect("decodes"));
    assert_eq!(
        (sent.vote, sent.prev_log_id, sent.leader_commit),
        (got.vote, got.prev_log_id, got.leader_commit)
    );
    assert_eq!(sent.entries, got.entries);
    let vote = VoteRequest::new(Vote::new(4, 3), None);
    assert_eq!(decode_vote_request(encode_vote_request(&vote)).expect("decodes"), vote);
    let transfer = TransferLeaderRequest::new(Vote::new_committed(3, 2), 40, Some(id(3, 2, 9)));
    assert_eq!(decode_transfer(encode_transfer(&transfer)).expect("decodes"), transfer);
    let stored = StoredMembership::new(Some(id(3, 2, 9)), joint());
    assert_eq!(decode_membership(encode_membership(&stored)).expect("decodes"), stored);
    assert_eq!(decode_membership(Bytes::new()).expect("decodes"), StoredMembership::default());
    let meta = SnapshotMeta { last_log_id: Some(id(3, 2, 9)), last_membership: stored };
    assert_eq!(decode_snapshot_meta(encode_snapshot_meta(&meta)).expect("decodes"), meta);
}

#[test]
fn replies_decode_to_what_was_encoded() {
    for reply in [
        AppendEntriesResponse::Success,
        AppendEntriesResponse::PartialSuccess(Some(id(1, 1, 1))),
        AppendEntriesResponse::Conflict,
        AppendEntriesResponse::HigherVote(Vote::new(7, 1)),
    ] {
        assert_eq!(decode_append_reply(encode_append_reply(&reply)).expect("decodes"), reply);
    }
    let vote = VoteResponse::new(Vote::new(4, 3), None, false);
    assert_eq!(decode_vote_reply(encode_vote_reply(&vote)).expect("decodes"), vote);
    let flushed = TransferLeaderError::LogNotFlushed { expected: Some(id(1, 1, 9)), actual: None };
    for reply in [Ok(()), Err(flushed)] {
        assert_eq!(decode_transfer_reply(encode_transfer_reply(&reply)).expect("decodes"), reply);
    }
}

#[test]
fn a_newer_version_and_a_gap_are_refused_by_name() {
    let mut newer = encode_vote(&Vote::new(1, 1)).to_vec();
    newer[0] = 2;
    assert_eq!(decode_vote(newer.into()), Err(CodecError::Newer(2)));
    assert_eq!(decode_vote(Bytes::new()), Err(CodecError::Empty));
    let mut gap = append();
    gap.entries.remove(0);
    assert!(decode_append(encode_append(&gap)).is_err());
    let mut candidate = append();
    candidate.vote = Vote::new(3, 2);
    assert!(decode_append(encode_append(&candidate)).is_err());
}

proptest::proptest! {
    #[test]
    fn hostile_bytes_are_an_error_and_never_a_panic(bytes: Vec<u8>, at: usize, flip: u8) {
        let hostile = |bytes: Bytes| {
            let _ = decode_vote(bytes.clone());
            let _ = decode_membership(bytes.clone());
            let _ = decode_append(bytes.clone());
            let _ = decode_append_reply(bytes.clone());
            let _ = decode_vote_request(bytes.clone());
            let _ = decode_vote_reply(bytes.clone());
            let _ = decode_transfer(bytes.clone());
            let _ = decode_transfer_reply(bytes.clone());
            let _ = decode_snapshot_meta(bytes.clone());
            for kind in 0..4 {
                let _ = decode_entry(id(1, 1, 1), kind, bytes.clone());
            }
        };
        hostile(bytes.into());
        for (_, sample) in samples() {
            let mut bent = sample.to_vec();
            let at = at % bent.len();
            bent[at] ^= flip;
            hostile(bent.into());
        }
    }
}
