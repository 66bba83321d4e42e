//! A load's seconds cut into the phases of a case. Pure.

use crate::load::histogram::Histogram;
use crate::load::report::{Counts, Failed, Line, Second, Verdict, ms};
use std::time::Duration;

/// A part of a case, by the wall clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What was done.
    pub name: String,
    /// Milliseconds since 1970.
    pub from: u64,
    /// Milliseconds since 1970.
    pub to: u64,
}

/// What a load met in a phase.
#[derive(Clone, Debug, Default)]
pub struct Met {
    /// Through both ways.
    pub counts: Counts,
    /// Of all requests.
    pub latency: Histogram,
    /// The longest.
    pub worst: Duration,
    /// Unavailable replicas of the worst shard at the worst moment.
    pub unavailable: usize,
}

/// Everything a load said.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// In the order of time.
    pub seconds: Vec<Second>,
    /// The first failures.
    pub failures: Vec<Failed>,
    /// At the end.
    pub verdict: Option<Verdict>,
}

impl Heard {
    /// One line of its log; lines that are none of ours, and those heard twice, are left out.
    pub fn hear(&mut self, line: &str) {
        match serde_json::from_str::<Line>(line) {
            Ok(Line::Second(second)) if self.seconds.last().is_none_or(|last| last.t < second.t) => {
                self.seconds.push(second);
            }
            Ok(Line::Failure(failed)) if self.failures.last().is_none_or(|last| last.t <= failed.t) => {
                self.failures.push(failed);
            }
            Ok(Line::Verdict(verdict)) => self.verdict = Some(*verdict),
            Ok(_) | Err(_) => {}
        }
    }

    /// What it met in a phase: seconds that end in it.
    pub fn met(&self, phase: &Phase) -> Met {
        let mut met = Met::default();
        for second in self.seconds.iter().filter(|s| s.t > phase.from && s.t <= phase.to) {
            met.counts.add(&second.sdk);
            met.counts.add(&second.resp);
            met.latency.merge(&second.latency);
            met.worst = met.worst.max(Duration::from_micros(second.max_us));
            met.unavailable = met.unavailable.max(second.unavailable);
        }
        met
    }

    /// A table of all phases, for people.
    pub fn table(&self, phases: &[Phase]) -> String {
        let mut text = format!(
            "{:<34}{:>8}{:>10}{:>8}{:>9}{:>10}{:>10}{:>13}",
            "phase", "seconds", "requests", "failed", "repeated", "p99 ms", "worst ms", "unavailable"
        );
        for phase in phases {
            let met = self.met(phase);
            text += &format!(
                "\n{:<34}{:>8.1}{:>10}{:>8}{:>9}{:>10.1}{:>10.1}{:>13}",
                phase.name,
                phase.to.saturating_sub(phase.from) as f64 / 1000.0,
                met.counts.ok + met.counts.bad() + met.counts.wrong,
                met.counts.bad() + met.counts.wrong,
                met.counts.repeated,
                ms(met.latency.quantile(0.99)),
                ms(met.worst),
                met.unavailable,
            );
        }
        text
    }
}

/// What is wrong with a load's verdict; `failed_allowed`: requests may fail (a machine died), lost and
/// wrong answers never.
pub fn problems(verdict: &Verdict, failed_allowed: bool, unavailable_max: usize) -> Vec<String> {
    let mut found = Vec::new();
    let failed = verdict.sdk.bad() + verdict.resp.bad();
    if failed > 0 && !failed_allowed {
        let errors: Vec<String> =
            verdict.errors.iter().map(|(error, count)| format!("{count} x {error}")).collect();
        found.push(format!("{failed} failed requests: {}", errors.join("; ")));
    }
    let wrong = verdict.sdk.wrong + verdict.resp.wrong;
    if wrong > 0 {
        found.push(format!("{wrong} wrong answers"));
    }
    if verdict.lost_count > 0 {
        found.push(format!(
            "{} acknowledged writes not read back: {}",
            verdict.lost_count,
            verdict.lost.join("; ")
        ));
    }
    if verdict.acknowledged == 0 || verdict.read_back == 0 {
        found.push("nothing was written: the load did not work".into());
    }
    match &verdict.sampled {
        None => {}
        // Twice a second; half of it on a machine that is busy.
        Some(sampled) if (sampled.samples as f64) < verdict.seconds => {
            found.push(format!(
                "{} samples in {:.0} s: the sampler stood still",
                sampled.samples, verdict.seconds
            ));
        }
        Some(sampled) if sampled.shards == 0 => found.push("no store answered /replicas".into()),
        Some(sampled) if sampled.unavailable_max > unavailable_max => {
            let shown: Vec<String> =
                sampled.moments.iter().take(3).map(|moment| format!("{moment:?}")).collect();
            found.push(format!(
                "up to {} unavailable replicas in a shard ({} moments): {}",
                sampled.unavailable_max,
                sampled.moments_count,
                shown.join("; ")
            ));
        }
        Some(_) => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::sampler::Sampled;

    fn second(t: u64, ok: u64, failed: u64, took_ms: u64) -> Second {
        let mut latency = Histogram::default();
        latency.record(Duration::from_millis(took_ms));
        let sdk = Counts { ok, failed, ..Counts::default() };
        Second { t, sdk, latency, max_us: took_ms * 1000, unavailable: failed as usize, ..Second::default() }
    }

    #[test]
    fn a_phase_has_the_seconds_that_end_in_it_and_none_twice() {
        let mut heard = Heard::default();
        for s in [second(1000, 5, 0, 1), second(2000, 6, 1, 50), second(3000, 7, 0, 2)] {
            let line = serde_json::to_string(&Line::Second(s)).expect("JSON");
            heard.hear(&line);
            heard.hear(&line);
        }
        heard.hear("kubectl: lost the connection");
        let met = heard.met(&Phase { name: "roll".into(), from: 1000, to: 2999 });
        assert_eq!((met.counts.ok, met.counts.bad(), met.unavailable), (6, 1, 1));
        assert_eq!(met.worst, Duration::from_millis(50));
        assert!(heard.table(&[Phase { name: "all".into(), from: 0, to: 3000 }]).contains("19"));
    }

    #[test]
    fn a_verdict_is_judged_by_every_rule() {
        let good = Verdict { acknowledged: 5, read_back: 3, ..Verdict::default() };
        assert!(problems(&good, false, 1).is_empty());
        let mut bad = good.clone();
        bad.sdk.ambiguous = 1;
        assert_eq!(problems(&bad, false, 1).len(), 1);
        assert!(problems(&bad, true, 1).is_empty());
        (bad.lost_count, bad.resp.wrong) = (1, 1);
        assert_eq!(problems(&bad, true, 1).len(), 2);
        let sampled = Sampled { samples: 60, shards: 1, unavailable_max: 2, ..Sampled::default() };
        assert_eq!(problems(&Verdict { sampled: Some(sampled), ..good.clone() }, false, 1).len(), 1);
        assert_eq!(
            problems(&Verdict { sampled: Some(Sampled::default()), ..good.clone() }, false, 1).len(),
            1
        );
        let asleep = Sampled { samples: 10, shards: 1, ..Sampled::default() };
        let verdict = Verdict { sampled: Some(asleep), seconds: 30.0, ..good };
        assert_eq!(problems(&verdict, false, 1).len(), 1);
        assert_eq!(problems(&Verdict::default(), false, 1).len(), 1);
    }
}
