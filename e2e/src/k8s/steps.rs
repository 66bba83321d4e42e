//! How long everything took.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The steps of a case, printed as they end and once more at the end.
#[derive(Debug)]
pub struct Steps {
    case: &'static str,
    started: Instant,
    done: Mutex<Vec<(String, Duration)>>,
}

impl Steps {
    /// None yet.
    pub fn new(case: &'static str) -> Steps {
        Steps { case, started: Instant::now(), done: Mutex::default() }
    }

    /// A line of progress.
    pub fn say(&self, text: impl std::fmt::Display) {
        println!("{}: [{:6.1} s] {text}", self.case, self.started.elapsed().as_secs_f64());
    }

    /// Runs a step and says how long it took, also when it fails.
    pub async fn step<T, E: std::fmt::Display>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let started = Instant::now();
        let result = work.await;
        self.ended(name, started.elapsed(), result.as_ref().err().map(|e| e.to_string()));
        result
    }

    /// A step that was timed elsewhere.
    pub fn ended(&self, name: &str, took: Duration, failure: Option<String>) {
        match failure {
            None => self.say(format_args!("{name}: {:.1} s", took.as_secs_f64())),
            Some(error) => {
                self.say(format_args!("{name}: FAILED after {:.1} s: {error}", took.as_secs_f64()))
            }
        }
        self.done.lock().push((name.into(), took));
    }

    /// How long a step took, in seconds.
    pub fn seconds(&self, name: &str) -> f64 {
        let done = self.done.lock();
        let found = done.iter().find(|(step, _)| step == name);
        found.map(|(_, took)| took.as_secs_f64()).unwrap_or_default()
    }

    /// `a 1.2 s, b 3.4 s; 5 s in all`.
    pub fn summary(&self) -> String {
        let each: Vec<String> = self
            .done
            .lock()
            .iter()
            .map(|(name, took)| format!("{name} {:.1} s", took.as_secs_f64()))
            .collect();
        format!("{}; {:.0} s in all", each.join(", "), self.started.elapsed().as_secs_f64())
    }
}
