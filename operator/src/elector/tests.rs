//! The elector against a Lease in memory: by hand, and by random schedules with clocks of their own.

use super::*;
use proptest::prelude::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn now(ms: u64) -> Now {
    Now { monotonic: MS(ms), wall: Timestamp::UNIX_EPOCH }
}

fn lease(holder: &str, version: &str, renewals: i64) -> Lease {
    let renewed = Timestamp::from_second(renewals).expect("a small time");
    let spec = LeaseSpec {
        holder_identity: Some(holder.into()),
        lease_duration_seconds: Some(15),
        renew_time: Some(MicroTime(renewed)),
        ..LeaseSpec::default()
    };
    let metadata = ObjectMeta { resource_version: Some(version.into()), ..ObjectMeta::default() };
    Lease { metadata, spec: Some(spec) }
}

fn replaced(effects: &[Effect]) -> Option<Lease> {
    effects.iter().find_map(|e| match e {
        Effect::Replace(lease) => Some((**lease).clone()),
        _ => None,
    })
}

fn leader() -> Elector {
    let mut elector = Elector::new("a", Terms::default());
    elector.step(Event::Wake, now(0));
    let effects = elector.step(Event::Found(None), now(0));
    let Some(Effect::Create(lease)) = effects.first() else { panic!("{effects:?}") };
    let effects = elector.step(Event::Written((**lease).clone()), now(100));
    assert!(matches!(effects.first(), Some(Effect::Lead { transitions: 0 })), "{effects:?}");
    elector
}

#[test]
fn an_absent_lease_is_created_and_led_from_when_it_was_sent() {
    let elector = leader();
    assert!(elector.leads(MS(9_999)));
    assert!(!elector.leads(MS(10_000)));
}

#[test]
fn a_held_lease_is_taken_only_after_its_duration_without_a_change_as_seen_here() {
    let mut elector = Elector::new("b", Terms::default());
    // Times in the record say nothing: this holder's clock is years behind.
    assert!(replaced(&elector.step(Event::Found(Some(lease("a", "1", -900_000_000))), now(0))).is_none());
    assert!(replaced(&elector.step(Event::Found(Some(lease("a", "2", 1))), now(14_000))).is_none());
    assert!(replaced(&elector.step(Event::Found(Some(lease("a", "2", 1))), now(28_999))).is_none());
    let effects = elector.step(Event::Found(Some(lease("a", "2", 1))), now(29_000));
    let wanted = replaced(&effects).expect("taken over");
    assert_eq!(wanted.metadata.resource_version.as_deref(), Some("2"));
    assert_eq!(wanted.spec.as_ref().and_then(|s| s.lease_transitions), Some(1));
    let effects = elector.step(Event::Conflict, now(29_100));
    assert!(matches!(effects[..], [Effect::Wake(_)]), "{effects:?}");
    assert!(!elector.leads(MS(29_100)));
}

#[test]
fn a_deleted_lease_is_not_taken_before_what_was_seen_of_it_is_over() {
    let mut elector = Elector::new("b", Terms::default());
    elector.step(Event::Found(Some(lease("a", "1", 0))), now(0));
    assert!(matches!(elector.step(Event::Found(None), now(14_999))[..], [Effect::Wake(_)]));
    assert!(matches!(elector.step(Event::Found(None), now(15_000)).first(), Some(Effect::Create(_))));
}

#[test]
fn a_holder_that_slept_has_lost_whatever_wakes_it() {
    for event in [Event::Wake, Event::Conflict, Event::Written(lease("a", "2", 1)), Event::Found(None)] {
        let mut elector = leader();
        let effects = elector.step(event, now(10_000));
        assert!(matches!(effects.first(), Some(Effect::Lost { .. })), "{effects:?}");
        assert!(!elector.leads(MS(10_000)));
    }
}

#[test]
fn a_leader_that_meets_another_holder_stops_at_once() {
    let mut elector = leader();
    elector.step(Event::Wake, now(2_100));
    assert!(matches!(elector.step(Event::Conflict, now(2_200)).first(), Some(Effect::Read)));
    let effects = elector.step(Event::Found(Some(lease("b", "7", 0))), now(2_300));
    assert!(matches!(effects.first(), Some(Effect::Lost { .. })), "{effects:?}");
}

#[test]
fn failed_renewals_are_tried_again_until_the_deadline() {
    let mut elector = leader();
    let mut at = 2_100;
    let mut lost = false;
    while at < 20_000 && !lost {
        for event in [Event::Wake, Event::Failed("no answer".into())] {
            let effects = elector.step(event, now(at));
            lost |= effects.iter().any(|e| matches!(e, Effect::Lost { .. }));
            if let Some(Effect::Wake(next)) = effects.last() {
                at = u64::try_from(next.as_millis()).expect("small").max(at);
            }
        }
    }
    assert!(lost && at == 10_000, "lost: {lost} at {at} ms");
}

#[test]
fn an_orderly_end_gives_the_lease_back_and_only_if_it_is_ours() {
    let mut elector = leader();
    assert!(matches!(elector.step(Event::End, now(3_000)).first(), Some(Effect::Read)));
    let effects = elector.step(Event::Found(Some(lease("a", "4", 0))), now(3_100));
    let given = replaced(&effects).expect("released");
    assert_eq!(holder(&given), "");
    assert_eq!(given.metadata.resource_version.as_deref(), Some("4"));
    assert!(matches!(elector.step(Event::Written(given), now(3_200))[..], [Effect::Over]));

    let mut elector = leader();
    elector.step(Event::End, now(3_000));
    let effects = elector.step(Event::Found(Some(lease("b", "4", 0))), now(3_100));
    assert!(matches!(effects[..], [Effect::Over]), "{effects:?}");
}

/// Candidates over one Lease; each has a clock of its own (offset and rate) and may sleep.
struct World {
    stored: Option<Lease>,
    version: u64,
    candidates: Vec<Candidate>,
}

struct Candidate {
    elector: Elector,
    offset_ms: u64,
    rate_percent: u64,
    wake: Duration,
    request: Option<Effect>,
    answer: Option<Event>,
}

impl Candidate {
    fn clock(&self, true_ms: u64) -> Duration {
        MS(self.offset_ms + true_ms * self.rate_percent / 100)
    }

    fn take(&mut self, event: Event, true_ms: u64) {
        let monotonic = self.clock(true_ms);
        for effect in self.elector.step(event, Now { monotonic, wall: wall(true_ms) }) {
            match effect {
                Effect::Wake(at) => self.wake = at,
                Effect::Lead { .. } | Effect::Lost { .. } | Effect::Over => {}
                request => {
                    self.request = Some(request);
                    self.answer = None;
                }
            }
        }
    }
}

fn wall(true_ms: u64) -> Timestamp {
    Timestamp::from_millisecond(i64::try_from(true_ms).expect("small")).expect("small")
}

impl World {
    /// What the API server does with a request that arrives.
    fn serve(&mut self, request: &Effect) -> Event {
        let (lease, expected) = match request {
            Effect::Read => return Event::Found(self.stored.clone()),
            Effect::Create(lease) => (lease, None),
            Effect::Replace(lease) => (lease, lease.metadata.resource_version.clone()),
            other => panic!("{other:?} is not a request"),
        };
        let current = self.stored.as_ref().and_then(|l| l.metadata.resource_version.clone());
        if current != expected {
            return Event::Conflict;
        }
        self.version += 1;
        let mut stored = (**lease).clone();
        stored.metadata.resource_version = Some(self.version.to_string());
        self.stored = Some(stored.clone());
        Event::Written(stored)
    }

    fn step(&mut self, who: usize, what: u8, true_ms: u64) {
        let request = self.candidates[who].request.clone();
        match (what % 8, request) {
            // The request arrives; its answer is on its way back.
            (0..=2, Some(request)) => {
                let answer = self.serve(&request);
                let candidate = &mut self.candidates[who];
                candidate.request = None;
                candidate.answer = Some(answer);
            }
            // It never arrives.
            (3, Some(_)) => {
                self.candidates[who].request = None;
                self.candidates[who].take(Event::Failed("lost".into()), true_ms);
            }
            _ => {}
        }
        let candidate = &mut self.candidates[who];
        if what >= 8
            && let Some(answer) = candidate.answer.take()
        {
            let lost = what % 16 == 8;
            let answer = if lost { Event::Failed("answer lost".into()) } else { answer };
            candidate.take(answer, true_ms);
        }
        if candidate.clock(true_ms) >= candidate.wake && !what.is_multiple_of(3) {
            candidate.take(Event::Wake, true_ms);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_never_both_hold_by_their_own_clocks(
        clocks in prop::collection::vec((0u64..1_000_000, 85u64..115), 3),
        schedule in prop::collection::vec((0usize..3, any::<u8>(), 0u64..900, 0u64..200), 100..600),
    ) {
        let candidate = |(n, (offset_ms, rate_percent)): (usize, (u64, u64))| Candidate {
            elector: Elector::new(format!("c{n}"), Terms::default()),
            offset_ms,
            rate_percent,
            wake: Duration::ZERO,
            request: None,
            answer: None,
        };
        let candidates = clocks.into_iter().enumerate().map(candidate).collect();
        let mut world = World { stored: None, version: 0, candidates };
        let mut true_ms = 0;
        for (who, what, pause, sleep) in schedule {
            // Now and then everybody but one sleeps for long.
            true_ms += if sleep == 0 { 20_000 } else { pause };
            world.step(who, what, true_ms);
            let leads = |c: &&Candidate| c.elector.leads(c.clock(true_ms));
            let leaders = world.candidates.iter().filter(leads).count();
            prop_assert!(leaders <= 1, "{leaders} lead at {true_ms} ms");
        }
    }
}
