//! Which segments to empty, and when. Pure.
//!
//! Nothing is moved while the space budget holds: collecting at a fixed share of holes writes more at the same
//! space. Over it, victims come by cost and benefit, `(1 - u) / u * sqrt(age)`: young segments are given time to
//! die by themselves.

use crate::tree::SegmentRef;

/// A segment that could be emptied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Which.
    pub segment: SegmentRef,
    /// Bytes of its file.
    pub bytes: u64,
    /// Bytes of the records that were written to it (a log segment: of the file). Measured by these, a file
    /// without holes is full however small it is, so it is never rewritten in vain.
    pub record_bytes: u64,
    /// Bytes of live records in it.
    pub live_bytes: u64,
    /// How long ago it was written.
    pub age_ms: u64,
}

/// The space that values may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpaceBudget {
    /// Bytes of all files that values lie in.
    pub file_bytes: u64,
    /// Bytes of live records in them.
    pub live_bytes: u64,
    /// Allowed ratio of the two.
    pub amplification_max: f64,
}

impl SpaceBudget {
    /// Bytes above the budget.
    pub fn excess_bytes(&self) -> u64 {
        let allowed = self.live_bytes as f64 * self.amplification_max;
        (self.file_bytes as f64 - allowed).max(0.0) as u64
    }

    /// File bytes per live byte.
    pub fn amplification(&self) -> f64 {
        if self.live_bytes == 0 {
            return if self.file_bytes == 0 { 1.0 } else { f64::INFINITY };
        }
        self.file_bytes as f64 / self.live_bytes as f64
    }
}

/// Segments fuller than this are never worth moving.
const UTILISATION_MAX: f64 = 0.95;

/// Picks victims until they free the excess or hold `live_bytes_max` live bytes.
pub fn choose(mut candidates: Vec<Candidate>, budget: SpaceBudget, live_bytes_max: u64) -> Vec<Candidate> {
    let excess_bytes = budget.excess_bytes();
    if excess_bytes == 0 {
        return Vec::new();
    }
    candidates.retain(|c| utilisation(c) < UTILISATION_MAX);
    candidates.sort_by(|a, b| score(b).total_cmp(&score(a)).then(a.segment.cmp(&b.segment)));
    let (mut freed_bytes, mut live_bytes) = (0u64, 0u64);
    let mut victims = Vec::new();
    for candidate in candidates {
        let full = live_bytes + candidate.live_bytes > live_bytes_max && !victims.is_empty();
        if freed_bytes >= excess_bytes || full {
            break;
        }
        freed_bytes += candidate.bytes.saturating_sub(candidate.live_bytes);
        live_bytes += candidate.live_bytes;
        victims.push(candidate);
    }
    victims
}

fn utilisation(candidate: &Candidate) -> f64 {
    candidate.live_bytes as f64 / candidate.record_bytes.max(1) as f64
}

fn score(candidate: &Candidate) -> f64 {
    let u = utilisation(candidate).max(1e-6);
    (1.0 - u) / u * (candidate.age_ms.max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Origin;

    fn candidate(id: u64, live_bytes: u64, age_ms: u64) -> Candidate {
        let segment = SegmentRef { origin: Origin::Data, id };
        Candidate { segment, bytes: 1000, record_bytes: 1000, live_bytes, age_ms }
    }

    fn budget(file_bytes: u64, live_bytes: u64) -> SpaceBudget {
        SpaceBudget { file_bytes, live_bytes, amplification_max: 1.5 }
    }

    fn ids(victims: Vec<Candidate>) -> Vec<u64> {
        victims.iter().map(|v| v.segment.id).collect()
    }

    #[test]
    fn nothing_is_moved_while_the_budget_holds() {
        assert!(choose(vec![candidate(1, 10, 1000)], budget(1500, 1000), 10_000).is_empty());
    }

    #[test]
    fn the_emptier_and_the_older_come_first() {
        let candidates = vec![candidate(1, 500, 100), candidate(2, 200, 100), candidate(3, 500, 10_000)];
        // 1/1 * 10, 4/1 * 10, 1/1 * 100
        assert_eq!(ids(choose(candidates, budget(3800, 1200), 10_000)), vec![3, 2, 1]);
    }

    #[test]
    fn a_job_is_bounded_but_never_empty() {
        let candidates = vec![candidate(1, 500, 100), candidate(2, 500, 100)];
        assert_eq!(ids(choose(candidates, budget(9000, 1000), 100)), vec![1]);
    }

    #[test]
    fn full_segments_are_never_rewritten() {
        assert!(choose(vec![candidate(1, 1000, 1 << 40)], budget(9000, 1000), 10_000).is_empty());
        let small = Candidate { record_bytes: 50, ..candidate(1, 50, 1 << 40) };
        assert!(choose(vec![small], budget(9000, 1000), 10_000).is_empty(), "most of it is header");
    }
}
