//! What to do after an attempt that did not answer. Pure: time and chance are passed in.

use std::time::{Duration, Instant};
use undb_proto::v1::{self, ErrorCode};

use crate::Error;

/// What an attempt ran into.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The store answered with an error.
    Wire(v1::Error),
    /// The stream to the store broke, or there was none. `sent`: the request may have got through.
    Lost { sent: bool, reason: String },
    /// No answer in this attempt's time.
    TimedOut,
}

impl Trouble {
    /// True when a write may have been applied by this attempt.
    pub(crate) fn leaves_doubt(&self) -> bool {
        match self {
            Trouble::Wire(error) => error.code().kind() == undb_proto::ErrorKind::Unknown,
            Trouble::Lost { sent, .. } => *sent,
            Trouble::TimedOut => true,
        }
    }

    /// For metrics; from a closed set.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Trouble::Wire(error) => error.code().as_str_name(),
            Trouble::Lost { .. } => "LOST",
            Trouble::TimedOut => "TIMED_OUT",
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Wire(error) if error.message.is_empty() => f.write_str(error.code().as_str_name()),
            Trouble::Wire(error) => write!(f, "{}: {}", error.code().as_str_name(), error.message),
            Trouble::Lost { reason, .. } => write!(f, "connection lost: {reason}"),
            Trouble::TimedOut => f.write_str("a store did not answer in time"),
        }
    }
}

/// What to do next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Ask this leader, at once.
    Leader { replica: u64, term: u64 },
    /// Ask another replica of the shard, at once while there is one that was not asked.
    Other,
    /// Take over the shards that the answer carries; if they bring nothing new, refresh the route.
    Learn,
    /// Refresh the route, then go on.
    Refresh,
    /// The same again after at least this long.
    Wait(Duration),
    /// The call is over.
    Stop(Error),
}

/// The behaviour for each kind of trouble: one line a code.
pub(crate) fn next_step(trouble: &Trouble) -> Step {
    let error = match trouble {
        Trouble::Lost { .. } | Trouble::TimedOut => return Step::Other,
        Trouble::Wire(error) => error,
    };
    let wait = Duration::from_millis(u64::from(error.retry_after_ms));
    match error.code() {
        ErrorCode::NotLeader if error.leader_replica_id != 0 => {
            Step::Leader { replica: error.leader_replica_id, term: error.term }
        }
        ErrorCode::NotLeader => Step::Other,
        ErrorCode::EpochNotMatch => Step::Learn,
        ErrorCode::ShardNotFound | ErrorCode::StoreMismatch | ErrorCode::Fenced => Step::Refresh,
        ErrorCode::ServerBusy
        | ErrorCode::QuotaExceeded
        | ErrorCode::Splitting
        | ErrorCode::ReadIndexNotReady
        | ErrorCode::RecoveryInProgress
        | ErrorCode::Frozen => Step::Wait(wait),
        ErrorCode::Unavailable => Step::Other,
        // The id makes asking again safe: a store that applied it answers with what it did.
        ErrorCode::Ambiguous | ErrorCode::DeadlineExceeded => Step::Wait(wait),
        // TOO_OLD, and all that will not change.
        _ => Step::Stop(Error::from_wire(error)),
    }
}

/// True when this refusal comes from the shard's own state, after it looked the request id up: then no
/// earlier attempt was applied either.
pub(crate) fn settles_doubt(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::WrongKind | ErrorCode::NotAnInteger | ErrorCode::Overflow)
}

const BACKOFF_FIRST: Duration = Duration::from_millis(2);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// The pause before round `round` (from 0): doubles from 2 ms to 500 ms, drawn from its upper half so
/// that clients spread. `draw` is in [0, 1).
pub(crate) fn backoff(round: u32, draw: f64) -> Duration {
    let full = BACKOFF_FIRST.saturating_mul(1 << round.min(8)).min(BACKOFF_MAX);
    full.mul_f64(0.5 + draw.clamp(0.0, 1.0) / 2.0)
}

/// How long attempt `attempt` (from 0) may take: `first`, then twice that, four times, no more.
pub(crate) fn attempt_timeout(first: Duration, attempt: u32) -> Duration {
    first.saturating_mul(1 << attempt.min(2))
}

/// Retries earn their right from successes: 10 % of them, plus ten a second. A client over its budget
/// goes on at the slowest pace instead of failing, so that a failover is ridden out and a storm is not fed.
#[derive(Debug)]
pub(crate) struct Budget {
    tokens: f64,
    refilled: Instant,
}

const BUDGET_PER_SECOND: f64 = 10.0;
const BUDGET_PER_SUCCESS: f64 = 0.1;
const BUDGET_MAX: f64 = 1000.0;
const BUDGET_START: f64 = 100.0;

impl Budget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { tokens: BUDGET_START, refilled: now }
    }

    pub(crate) fn success(&mut self) {
        self.tokens = (self.tokens + BUDGET_PER_SUCCESS).min(BUDGET_MAX);
    }

    /// The pause before a retry that would wait `planned`.
    pub(crate) fn pace(&mut self, now: Instant, planned: Duration) -> Duration {
        let elapsed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.refilled = now;
        self.tokens = (self.tokens + elapsed * BUDGET_PER_SECOND).min(BUDGET_MAX);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            planned
        } else {
            planned.max(BACKOFF_MAX)
        }
    }
}

/// Keeps calls away from a store that does not answer: closed -> open after three failures in a row ->
/// one probe after a pause -> closed, or open for longer.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    open_until: Option<Instant>,
}

const BREAKER_FAILURES: u32 = 3;
const BREAKER_PAUSE: Duration = Duration::from_millis(500);
const BREAKER_PAUSE_MAX: Duration = Duration::from_secs(5);

impl Breaker {
    /// True while calls should go elsewhere.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.open_until.is_some_and(|until| now < until)
    }

    pub(crate) fn success(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn failure(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= BREAKER_FAILURES {
            let doublings = (self.failures - BREAKER_FAILURES).min(4);
            self.open_until = Some(now + (BREAKER_PAUSE * (1 << doublings)).min(BREAKER_PAUSE_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undb_proto::wire_error;

    fn wire(code: ErrorCode) -> Trouble {
        Trouble::Wire(wire_error(code, ""))
    }

    #[test]
    fn every_code_has_its_behaviour() {
        let hinted = v1::Error { leader_replica_id: 7, term: 3, ..wire_error(ErrorCode::NotLeader, "") };
        assert!(matches!(next_step(&Trouble::Wire(hinted)), Step::Leader { replica: 7, term: 3 }));
        assert!(matches!(next_step(&wire(ErrorCode::NotLeader)), Step::Other));
        assert!(matches!(next_step(&wire(ErrorCode::EpochNotMatch)), Step::Learn));
        assert!(matches!(next_step(&wire(ErrorCode::ShardNotFound)), Step::Refresh));
        assert!(matches!(next_step(&wire(ErrorCode::Ambiguous)), Step::Wait(_)));
        assert!(matches!(next_step(&wire(ErrorCode::TooLarge)), Step::Stop(_)));
        assert!(matches!(next_step(&wire(ErrorCode::TooOld)), Step::Stop(Error::Ambiguous { .. })));
        assert!(matches!(next_step(&Trouble::TimedOut), Step::Other));
        let busy = v1::Error { retry_after_ms: 30, ..wire_error(ErrorCode::ServerBusy, "") };
        assert!(matches!(next_step(&Trouble::Wire(busy)), Step::Wait(d) if d == Duration::from_millis(30)));
    }

    #[test]
    fn only_attempts_that_may_have_arrived_leave_doubt() {
        assert!(Trouble::TimedOut.leaves_doubt());
        assert!(Trouble::Lost { sent: true, reason: String::new() }.leaves_doubt());
        assert!(!Trouble::Lost { sent: false, reason: String::new() }.leaves_doubt());
        assert!(wire(ErrorCode::Ambiguous).leaves_doubt());
        assert!(!wire(ErrorCode::NotLeader).leaves_doubt());
    }

    #[test]
    fn backoff_grows_and_stays_within_bounds() {
        assert_eq!(backoff(0, 1.0), Duration::from_millis(2));
        assert_eq!(backoff(3, 0.0), Duration::from_millis(8));
        for round in 0..100 {
            for draw in [0.0, 0.3, 0.999] {
                let pause = backoff(round, draw);
                assert!(pause >= Duration::from_millis(1) && pause <= BACKOFF_MAX);
            }
        }
    }

    #[test]
    fn a_spent_budget_slows_down_and_successes_refill_it() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        let short = Duration::from_millis(2);
        let quick = (0..1000).filter(|_| budget.pace(now, short) == short).count();
        assert_eq!(quick, BUDGET_START as usize);
        assert_eq!(budget.pace(now, short), BACKOFF_MAX);
        (0..11).for_each(|_| budget.success());
        assert_eq!(budget.pace(now, short), short);
        assert_eq!(budget.pace(now + Duration::from_secs(1), short), short);
    }

    #[test]
    fn a_breaker_opens_after_three_failures_and_probes_later() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        breaker.failure(now);
        breaker.failure(now);
        assert!(!breaker.is_open(now));
        breaker.failure(now);
        assert!(breaker.is_open(now));
        let later = now + BREAKER_PAUSE;
        assert!(!breaker.is_open(later));
        breaker.failure(later);
        assert!(breaker.is_open(later + BREAKER_PAUSE), "open for longer");
        breaker.success();
        assert!(!breaker.is_open(later));
    }
}
