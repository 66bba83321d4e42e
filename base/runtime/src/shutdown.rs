//! The end of a process: begun once, by a signal or a failure, with a time by which it is over.
//!
//! ```text
//! running --begin()--> ending --all tasks done--> over
//!                        |----grace----|deadline: what still runs is cut off
//! ```

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Told to every task. Clones share the state; children end with their parent, or earlier.
#[derive(Clone, Debug)]
pub struct Shutdown {
    token: CancellationToken,
    grace: Duration,
    // Set by the first begin of this handle or of a parent.
    deadline: Arc<OnceLock<Instant>>,
}

impl Shutdown {
    /// Ends when `begin` is called, within `grace` from then.
    pub fn new(grace: Duration) -> Self {
        Self { token: CancellationToken::new(), grace, deadline: Arc::default() }
    }

    /// Ends on SIGTERM and SIGINT as well; a second signal ends the process at once.
    pub fn on_signals(grace: Duration) -> Self {
        let shutdown = Self::new(grace);
        let ours = shutdown.clone();
        tokio::spawn(async move {
            next_signal().await;
            tracing::info!(grace_s = grace.as_secs(), "signal received, ending");
            ours.begin();
            next_signal().await;
            tracing::warn!("second signal received, ending at once");
            std::process::exit(EXIT_SECOND_SIGNAL);
        });
        shutdown
    }

    /// Begins the end. Later calls change nothing.
    pub fn begin(&self) {
        self.deadline.get_or_init(|| Instant::now() + self.grace);
        self.token.cancel();
    }

    /// True from `begin` on.
    pub fn is_begun(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Completes when the end begins. Cancellation safe.
    pub async fn begun(&self) {
        self.token.cancelled().await;
    }

    /// The token behind it, for code that takes one.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// When the end must be over. Before it begins: `grace` from now.
    pub fn deadline(&self) -> Instant {
        if let Some(deadline) = self.deadline.get() {
            return *deadline;
        }
        if self.is_begun() {
            // A parent began and we have not looked until now.
            return *self.deadline.get_or_init(|| Instant::now() + self.grace);
        }
        Instant::now() + self.grace
    }

    /// Time left until the deadline.
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// A part that ends with this one, or earlier by its own `begin`.
    pub fn child(&self) -> Self {
        Self { token: self.token.child_token(), grace: self.grace, deadline: Arc::default() }
    }
}

/// What a shell reports for a process that SIGINT ended.
const EXIT_SECOND_SIGNAL: i32 = 130;

async fn next_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(error) => {
            tracing::warn!(%error, "sigterm cannot be awaited");
            let _sigint = tokio::signal::ctrl_c().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_child_ends_with_its_parent_and_not_the_other_way() {
        let parent = Shutdown::new(Duration::from_secs(9));
        let (first, second) = (parent.child(), parent.child());
        first.begin();
        assert!(first.is_begun() && !parent.is_begun() && !second.is_begun());
        parent.begin();
        second.begun().await;
        assert_eq!(parent.remaining(), Duration::from_secs(9));
        tokio::time::advance(Duration::from_secs(4)).await;
        parent.begin();
        assert_eq!(parent.remaining(), Duration::from_secs(5));
    }
}
