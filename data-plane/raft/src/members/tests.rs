//! A change of members takes one step after the other, whatever it finds.

use super::*;
use crate::PeerStatus;

fn members(ids: &[u64]) -> Members {
    ids.iter().map(|id| (*id, Member { store: *id, address: String::new() })).collect()
}

/// Replica 1 leads; peers are caught up except those in `behind`.
fn status(voters: &[u64], learners: &[u64], behind: &[u64]) -> GroupStatus {
    let peer =
        |id: &u64| PeerStatus { replica: *id, matched: (!behind.contains(id)).then_some(999), ack_age: None };
    GroupStatus {
        replica: 1,
        term: 1,
        leader: Some(1),
        is_leader: true,
        last_index: Some(999),
        committed: None,
        cluster_committed: None,
        applied: None,
        snapshot: None,
        purged: None,
        voters: members(voters),
        learners: members(learners),
        configs: vec![voters.iter().copied().collect()],
        joint: false,
        config_committed: true,
        quorum_age: None,
        peers: voters.iter().chain(learners).filter(|id| **id != 1).map(peer).collect(),
        fatal: None,
        running: true,
    }
}

fn step(status: &GroupStatus, voters: &[u64], learners: &[u64]) -> Step {
    next_step(status, &members(voters), &members(learners)).expect("a step")
}

fn set(ids: &[u64]) -> BTreeSet<u64> {
    ids.iter().copied().collect()
}

#[test]
fn a_replacement_goes_learner_first_then_joint_then_removal() {
    let add = |id: u64| Step::AddLearner(id, members(&[id])[&id].clone());
    assert_eq!(step(&status(&[1, 2, 3], &[], &[]), &[1, 2, 4], &[]), add(4));
    assert_eq!(step(&status(&[1, 2, 3], &[4], &[4]), &[1, 2, 4], &[]), Step::CatchUp(set(&[4])));
    assert_eq!(step(&status(&[1, 2, 3], &[4], &[]), &[1, 2, 4], &[]), Step::SetVoters(set(&[1, 2, 4])));
    assert_eq!(step(&status(&[1, 2, 4], &[3], &[]), &[1, 2, 4], &[]), Step::Remove(set(&[3])));
    assert_eq!(step(&status(&[1, 2, 4], &[], &[]), &[1, 2, 4], &[]), Step::Done);
    assert_eq!(step(&status(&[1, 2, 4], &[3], &[]), &[1, 2, 4], &[3]), Step::Done);
}

#[test]
fn what_was_left_half_done_is_finished_first() {
    let mut half = status(&[1, 2, 3, 4], &[], &[]);
    half.config_committed = false;
    assert_eq!(step(&half, &[1, 2, 3], &[]), Step::Settle);
    half.config_committed = true;
    half.joint = true;
    assert_eq!(step(&half, &[1, 2, 3], &[]), Step::Finish);
}

#[test]
fn a_leader_that_must_go_brings_the_others_in_and_hands_over() {
    assert_eq!(step(&status(&[1, 2, 3], &[4], &[]), &[2, 3, 4], &[]), Step::SetVoters(set(&[1, 2, 3, 4])));
    assert_eq!(step(&status(&[1, 2, 3, 4], &[], &[2]), &[2, 3, 4], &[]), Step::HandOver(3));
}

#[test]
fn senseless_members_are_refused() {
    let now = status(&[1, 2, 3], &[], &[]);
    let refused = |voters: Members, learners: Members| {
        assert!(matches!(next_step(&now, &voters, &learners), Err(RaftError::Refused(_))));
    };
    refused(members(&[]), members(&[1]));
    refused(members(&[1, 2]), members(&[2]));
    let moved = BTreeMap::from([(2, Member { store: 77, address: String::new() })]);
    refused(moved, members(&[]));
}
