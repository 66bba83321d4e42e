//! Conditions as kstatus reads them: each with the generation that it speaks of, and a time that moves
//! only when its status does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// True, False, or not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    True,
    False,
    /// Nobody can tell now. Never guessed in either direction.
    Unknown,
}

impl Status {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(is_true: bool) -> Self {
        if is_true { Self::True } else { Self::False }
    }
}

/// What is said about one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// `Ready`, `Stalled` ...
    pub type_: &'static str,
    pub status: Status,
    /// One word in CamelCase.
    pub reason: String,
    /// For a person.
    pub message: String,
}

impl Said {
    /// One statement.
    pub fn new(
        type_: &'static str,
        status: impl Into<Status>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { type_, status: status.into(), reason: reason.into(), message: message.into() }
    }
}

/// Writes one statement into a list; conditions of other types stay as they are.
pub fn set(conditions: &mut Vec<Condition>, said: Said, observed_generation: Option<i64>, now_ms: u64) {
    let found = conditions.iter_mut().find(|c| c.type_ == said.type_);
    let status = said.status.as_str();
    match found {
        Some(known) => {
            if known.status != status {
                known.status = status.into();
                known.last_transition_time = time(now_ms);
            }
            known.reason = said.reason;
            known.message = said.message;
            known.observed_generation = observed_generation;
        }
        None => conditions.push(Condition {
            type_: said.type_.into(),
            status: status.into(),
            reason: said.reason,
            message: said.message,
            observed_generation,
            last_transition_time: time(now_ms),
        }),
    }
}

/// One condition of a list.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Does the list say True of this type?
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == "True")
}

/// Milliseconds since 1970 as the API writes times: whole seconds.
pub fn time(now_ms: u64) -> Time {
    let seconds = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// A time of the API in milliseconds since 1970.
pub fn time_ms(time: &Time) -> u64 {
    u64::try_from(time.0.as_millisecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_moves_only_when_the_status_does() {
        let mut conditions = Vec::new();
        set(&mut conditions, Said::new("Ready", true, "A", ""), Some(1), 1_000_000);
        set(&mut conditions, Said::new("Ready", true, "B", "new"), Some(2), 2_000_000);
        let ready = find(&conditions, "Ready").expect("set");
        assert_eq!((time_ms(&ready.last_transition_time), ready.reason.as_str()), (1_000_000, "B"));
        assert_eq!(ready.observed_generation, Some(2));
        set(&mut conditions, Said::new("Ready", Status::Unknown, "C", ""), Some(2), 3_000_000);
        let ready = find(&conditions, "Ready").expect("set");
        assert_eq!((time_ms(&ready.last_transition_time), ready.status.as_str()), (3_000_000, "Unknown"));
        assert!(!is_true(&conditions, "Ready"));
    }
}
