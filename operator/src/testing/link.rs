//! One process's connection to the API server, and what can go wrong with it.

use super::request::Call;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This answer, and nothing is done.
    Answer { code: u16, reason: String },
    /// The connection breaks before anything is done.
    Unreachable,
    /// It is done, but the answer is lost.
    AnswerLost,
    /// Nothing is done and nothing is ever answered.
    Hang,
    /// The process sleeps before the call is sent, until `Link::wake`.
    Sleep,
}

type Matcher = Box<dyn Fn(&Call) -> bool + Send + Sync>;

struct Rule {
    matches: Matcher,
    fault: Fault,
    /// How many calls are let by first.
    after: usize,
    /// How many calls it then hits.
    times: usize,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    calls: Vec<Call>,
    /// The process is dead: no call is done any more.
    dead: bool,
    /// Dies at the n-th call from now: before it is done, or after.
    dies: Option<(usize, bool)>,
    writes_only: bool,
}

/// Shared by a client and the test that hurts it.
#[derive(Clone)]
pub struct Link {
    state: Arc<Mutex<State>>,
    awake: watch::Sender<bool>,
}

impl Default for Link {
    fn default() -> Self {
        Self { state: Arc::default(), awake: watch::Sender::new(true) }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("calls", &self.state.lock().calls.len()).finish()
    }
}

impl Link {
    /// The next call that matches meets the fault.
    pub fn fail_once(&self, fault: Fault, matches: impl Fn(&Call) -> bool + Send + Sync + 'static) {
        self.fail(fault, 0, 1, matches);
    }

    /// `after` matching calls pass, then `times` meet the fault.
    pub fn fail(
        &self,
        fault: Fault,
        after: usize,
        times: usize,
        matches: impl Fn(&Call) -> bool + Send + Sync + 'static,
    ) {
        if fault == Fault::Sleep {
            self.awake.send_replace(false);
        }
        self.state.lock().rules.push(Rule { matches: Box::new(matches), fault, after, times });
    }

    /// The process dies at its n-th write from now (0: the next): before it is done, or just after.
    pub fn die_at_write(&self, n: usize, done: bool) {
        let mut state = self.state.lock();
        state.dies = Some((n, done));
        state.writes_only = true;
    }

    /// The same, of all calls but watches.
    pub fn die_at_call(&self, n: usize, done: bool) {
        let mut state = self.state.lock();
        state.dies = Some((n, done));
        state.writes_only = false;
    }

    /// No call is done from now on.
    pub fn die(&self) {
        self.state.lock().dead = true;
    }

    /// Whether it died.
    pub fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    /// Ends `Fault::Sleep`.
    pub fn wake(&self) {
        self.awake.send_replace(true);
    }

    /// Waits for the end of a sleep.
    pub(super) async fn asleep(&self) {
        let mut awake = self.awake.subscribe();
        let _sender_lives = awake.wait_for(|awake| *awake).await;
    }

    /// Everything that was asked over this link, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.state.lock().calls.clone()
    }

    /// The lines of the calls that write.
    pub fn writes(&self) -> Vec<String> {
        let state = self.state.lock();
        state.calls.iter().filter(|c| c.verb.writes()).map(Call::line).collect()
    }

    /// Forgets the calls so far.
    pub fn clear(&self) {
        self.state.lock().calls.clear();
    }

    /// A call of the same process to something else than the API server, by its name: resource
    /// `NAME.control`, a write unless it only looks.
    pub fn take_outside(&self, name: &str) -> Option<Fault> {
        let looks = ["status", "list", "get"].contains(&name);
        let key = super::Key::new(&format!("{name}.control"), "", "");
        self.take(&Call {
            verb: if looks { super::Verb::Get } else { super::Verb::Create },
            target: super::Target { key, subresource: String::new(), version: String::new() },
            query: Default::default(),
            content_type: String::new(),
            body: serde_json::Value::Null,
        })
    }

    /// Notes a call and says what happens to it.
    pub(super) fn take(&self, call: &Call) -> Option<Fault> {
        let mut state = self.state.lock();
        if state.dead {
            return Some(Fault::Unreachable);
        }
        state.calls.push(call.clone());
        // Events are told to nobody who decides.
        let is_event = call.target.key.plural == "events";
        let counts = !is_event
            && if state.writes_only { call.verb.writes() } else { call.verb != super::request::Verb::Watch };
        if let (true, Some((left, done))) = (counts, state.dies) {
            if left == 0 {
                state.dead = true;
                return Some(if done { Fault::AnswerLost } else { Fault::Unreachable });
            }
            state.dies = Some((left - 1, done));
        }
        let rule = state.rules.iter_mut().find(|rule| rule.times > 0 && (rule.matches)(call))?;
        if rule.after > 0 {
            rule.after -= 1;
            return None;
        }
        rule.times -= 1;
        Some(rule.fault.clone())
    }
}
