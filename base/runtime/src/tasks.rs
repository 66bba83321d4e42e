//! Named tasks that are joined. A critical one that fails, panics or ends too early begins the end
//! of the process, and `join` says which it was and why.

use crate::Shutdown;
use futures::FutureExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

/// Why the tasks as a whole failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskFailure {
    /// A critical task ended with an error.
    #[error("{task}: {message}")]
    Failed { task: String, message: String },
    /// A critical task panicked.
    #[error("{task} panicked: {message}")]
    Panicked { task: String, message: String },
    /// The grace time was over before these had ended; they were cut off.
    #[error("cut off at the end of the grace time: {}", tasks.join(", "))]
    TooSlow { tasks: Vec<String> },
}

/// The tasks of one process or one part of it. Clones share them.
#[derive(Clone, Debug)]
pub struct Tasks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shutdown: Shutdown,
    tracker: TaskTracker,
    // Leaf lock. Removed by each task as its last act.
    live: Mutex<HashMap<u64, (String, Option<AbortHandle>)>>,
    next: AtomicU64,
    // Leaf lock. The first failure stays.
    failure: Mutex<Option<TaskFailure>>,
}

/// Takes a task off the list however it ends, also when it is aborted.
struct Listed {
    inner: Arc<Inner>,
    id: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.inner.live.lock().remove(&self.id);
    }
}

impl Tasks {
    /// No tasks yet; critical failures begin `shutdown`.
    pub fn new(shutdown: Shutdown) -> Self {
        let tracker = TaskTracker::new();
        Self {
            inner: Arc::new(Inner {
                shutdown,
                tracker,
                live: Mutex::default(),
                next: AtomicU64::new(0),
                failure: Mutex::default(),
            }),
        }
    }

    /// The end that these tasks listen to.
    pub fn shutdown(&self) -> &Shutdown {
        &self.inner.shutdown
    }

    /// Runs a task whose end, even by panic, the process survives.
    pub fn spawn(&self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        let name = name.into();
        self.start(name.clone(), async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                let message = panic_message(&*panic);
                tracing::error!(task = name, message, "task panicked");
            }
        });
    }

    /// Runs a task that the process cannot do without: an error or a panic begins the end.
    pub fn spawn_critical<E: Display>(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let name = name.into();
        let inner = self.inner.clone();
        self.start(name.clone(), async move {
            let failure = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => TaskFailure::Failed { task: name, message: error.to_string() },
                Err(panic) => TaskFailure::Panicked { task: name, message: panic_message(&*panic) },
            };
            inner.failure.lock().get_or_insert(failure);
            inner.shutdown.begin();
        });
    }

    /// Names of the tasks that run now, for diagnosis.
    pub fn live(&self) -> Vec<String> {
        let mut names: Vec<String> = self.inner.live.lock().values().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// Waits until every task has ended, or the grace time of a begun shutdown is over; then cuts off
    /// the rest. Returns the first critical failure.
    pub async fn join(&self) -> Result<(), TaskFailure> {
        let inner = &self.inner;
        inner.tracker.close();
        let grace_over = async {
            inner.shutdown.begun().await;
            tokio::time::sleep_until(inner.shutdown.deadline()).await;
        };
        let mut late = Vec::new();
        tokio::select! {
            biased;
            () = inner.tracker.wait() => {}
            () = grace_over => late = self.cut_off(),
        }
        if let Some(failure) = inner.failure.lock().clone() {
            return Err(failure);
        }
        if late.is_empty() { Ok(()) } else { Err(TaskFailure::TooSlow { tasks: late }) }
    }

    fn start(&self, name: String, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.inner.next.fetch_add(1, Ordering::Relaxed);
        self.inner.live.lock().insert(id, (name, None));
        let listed = Listed { inner: self.inner.clone(), id };
        let handle = self.inner.tracker.spawn(async move {
            let _listed = listed;
            task.await;
        });
        if let Some(entry) = self.inner.live.lock().get_mut(&id) {
            entry.1 = Some(handle.abort_handle());
        }
    }

    fn cut_off(&self) -> Vec<String> {
        let names = self.live();
        let handles: Vec<AbortHandle> =
            self.inner.live.lock().values().filter_map(|(_, handle)| handle.clone()).collect();
        handles.iter().for_each(AbortHandle::abort);
        names
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn tasks() -> Tasks {
        Tasks::new(Shutdown::new(Duration::from_secs(5)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_critical_error_begins_the_end_and_is_reported_by_name() {
        let tasks = tasks();
        let waits = tasks.shutdown().clone();
        tasks.spawn("waits", async move { waits.begun().await });
        tasks.spawn_critical("disk", async { Err("it is full") });
        let failure = tasks.join().await.expect_err("disk failed");
        assert_eq!(failure, TaskFailure::Failed { task: "disk".into(), message: "it is full".into() });
        assert!(tasks.live().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_critical_panic_is_reported_and_a_plain_one_survived() {
        let tasks = tasks();
        tasks.spawn("plain", async { panic!("ignored") });
        tokio::task::yield_now().await;
        assert!(!tasks.shutdown().is_begun());
        tasks.spawn_critical("core", async {
            let broken = true;
            assert!(!broken, "invariant");
            Ok::<(), String>(())
        });
        let failure = tasks.join().await.expect_err("core panicked");
        assert_eq!(failure, TaskFailure::Panicked { task: "core".into(), message: "invariant".into() });
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_end_is_cut_off_and_named() {
        let tasks = tasks();
        tasks.spawn("stuck", std::future::pending());
        tasks.shutdown().begin();
        assert_eq!(tasks.join().await, Err(TaskFailure::TooSlow { tasks: vec!["stuck".into()] }));
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_all_end_are_a_success_without_shutdown() {
        let tasks = tasks();
        tasks.spawn_critical("short", async { Ok::<(), String>(()) });
        assert_eq!(tasks.join().await, Ok(()));
    }
}
