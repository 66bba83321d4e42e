//! The cases. Each answers with its figure, or with what it found wrong.

pub mod import;
pub mod kill9;
pub mod lost_disk;
pub mod redis_diff;

use crate::harness::HarnessError;
use std::time::Duration;

/// What every case is given.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// How long it works.
    pub duration: Duration,
    /// Decides everything random that the case itself decides.
    pub seed: u64,
}

/// How a case ended without a figure.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What it was there to find.
    #[error("{0}")]
    Found(String),
    /// It could not do its work.
    #[error(transparent)]
    Harness(#[from] HarnessError),
    /// This machine lacks something; the text says what to do.
    #[error("{0}")]
    Missing(String),
}

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Separate processes under writes, one killed with -9 every 1-3 s: nothing acknowledged is lost, and the history is linearizable
    Kill9,
    /// The Debian package index, imported with an interruption, every value compared with the source
    Import,
    /// Every store loses its disk in turn and comes back empty: nothing acknowledged is lost, and nobody helps
    LostDisk,
    /// Random commands against redis-server and the proxy, the answers compared
    RedisDiff,
}

impl Case {
    /// Runs it; the answer is its last line.
    pub async fn run(self, run: Run) -> Result<String, Failure> {
        match self {
            Case::Kill9 => kill9::run(run).await,
            Case::Import => import::run(run).await,
            Case::LostDisk => lost_disk::run(run).await,
            Case::RedisDiff => redis_diff::run(run).await,
        }
    }
}

/// A line of progress.
pub(crate) fn say(case: &str, text: impl std::fmt::Display) {
    println!("{case}: {text}");
}
