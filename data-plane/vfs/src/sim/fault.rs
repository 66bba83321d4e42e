//! Which operations fail, and when the power does.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// What an operation is, for [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Opening an existing file; taking a lock.
    Open,
    /// Creating a file.
    Create,
    /// `read_exact_at`, `len`.
    Read,
    /// `write_all_at`.
    Write,
    /// `sync_data`.
    Sync,
    /// `set_len`, `allocate`.
    Resize,
    /// `rename`, by its target.
    Rename,
    /// `remove_file`, `remove_dir_all`.
    Remove,
    /// `create_dir_all`.
    CreateDir,
    /// `sync_dir`.
    SyncDir,
    /// `list`, `exists`, `space`.
    List,
    /// `step`, with its name as path.
    Step,
}

impl OpKind {
    /// True when a crash just before it differs from a crash just before its predecessor.
    fn is_crash_point(self) -> bool {
        !matches!(self, OpKind::Open | OpKind::Read | OpKind::List)
    }
}

/// The error of every operation after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the simulated machine has crashed")]
pub struct Crashed;

impl Crashed {
    pub(super) fn error() -> io::Error {
        io::Error::other(Crashed)
    }
}

/// A rule that makes operations fail.
#[derive(Clone, Debug)]
pub struct Fault {
    kind: OpKind,
    path_contains: String,
    skip: u64,
    times: u64,
    error: io::ErrorKind,
}

impl Fault {
    /// Every operation of this kind fails with this error. A failed `Sync` loses what it should have kept.
    pub fn new(kind: OpKind, error: io::ErrorKind) -> Self {
        Fault { kind, path_contains: String::new(), skip: 0, times: u64::MAX, error }
    }

    /// Only on paths that contain this.
    pub fn on(mut self, path_contains: impl Into<String>) -> Self {
        self.path_contains = path_contains.into();
        self
    }

    /// Only from the matching operation `n` (from 0) on.
    pub fn skip(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// At most this often.
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Go,
    GoAndCrash,
}

/// Every operation passes here first.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<GateState>);

#[derive(Debug, Default)]
struct GateState {
    ops: u64,
    history: Vec<(OpKind, PathBuf)>,
    crash_at: Option<u64>,
    crashed: bool,
    faults: Vec<Fault>,
}

impl Gate {
    pub(super) fn enter(&self, kind: OpKind, path: &Path) -> io::Result<Verdict> {
        let mut state = self.0.lock();
        if state.crashed {
            return Err(Crashed::error());
        }
        if kind.is_crash_point() {
            let op = state.ops;
            state.ops += 1;
            state.history.push((kind, path.to_owned()));
            if state.crash_at.is_some_and(|at| op >= at) {
                state.crashed = true;
                return Ok(Verdict::GoAndCrash);
            }
        }
        let text = path.to_string_lossy();
        for fault in &mut state.faults {
            if fault.kind != kind || !text.contains(&fault.path_contains) || fault.times == 0 {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            fault.times -= 1;
            return Err(fault.error.into());
        }
        Ok(Verdict::Go)
    }

    pub(super) fn ops(&self) -> u64 {
        self.0.lock().ops
    }

    pub(super) fn history(&self) -> Vec<String> {
        let state = self.0.lock();
        state
            .history
            .iter()
            .enumerate()
            .map(|(n, (kind, path))| format!("{n} {kind:?} {}", path.display()))
            .collect()
    }

    pub(super) fn crash_at(&self, n: u64) {
        self.0.lock().crash_at = Some(n);
    }

    pub(super) fn crash(&self) {
        self.0.lock().crashed = true;
    }

    pub(super) fn crashed(&self) -> bool {
        self.0.lock().crashed
    }

    pub(super) fn inject(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    pub(super) fn heal(&self) {
        self.0.lock().faults.clear();
    }
}
