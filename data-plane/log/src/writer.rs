//! The one thread that writes: it takes what queued while the last sync ran, writes it, syncs once, calls back.
//!
//! - A failed sync, or a failed write other than for want of room, poisons the log for ever: nothing that
//!   waits or comes later is acknowledged.
//! - Want of room releases the reserve and tries again. If there is still none the writer waits until there
//!   is; appends are refused meanwhile, so only votes, purges and the like queue up.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use undb_vfs::{File, is_disk_full};

use crate::LogError;
use crate::frame::{Answer, Frame};
use crate::segment_io::{FirstBytes, footer_bytes, seal, sync};
use crate::shared::Shared;
use crate::state::{Roll, Work};

/// How often a full disk is tried again, unless a delete says that it is worth it.
const FULL_RETRY: Duration = Duration::from_millis(100);

pub(crate) struct Writer {
    pub shared: Arc<Shared>,
    pub segment: u64,
    pub file: Arc<dyn File>,
}

/// What is written and not synced, and who waits for it.
#[derive(Default)]
struct Pending {
    frames: Vec<Arc<Frame>>,
    answers: Vec<Answer>,
}

/// Ends the log if the thread ends in whatever way: nobody may wait for a thread that is gone.
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if std::thread::panicking() {
            state.poisoned.get_or_insert_with(|| "the log writer panicked".to_owned());
        }
        let left = state.take();
        state.ended = true;
        let error = state.refusal().unwrap_or(LogError::Closed);
        drop(state);
        self.0.durable.notify_all();
        self.0.room.notify_all();
        fail(answers_of(left), &error);
    }
}

fn answers_of(works: Vec<Work>) -> Vec<Answer> {
    let answers = works.into_iter().flat_map(|work| match work {
        Work::Frame(_, answers) => answers,
        Work::Roll(_) => Vec::new(),
        Work::Call(answer) => vec![answer],
    });
    answers.collect()
}

fn fail(answers: Vec<Answer>, error: &LogError) {
    for answer in answers {
        (answer.done)(Err(answer.error.unwrap_or_else(|| error.clone()).into()));
    }
}

impl Writer {
    pub fn run(mut self) {
        let _end = EndGuard(self.shared.clone());
        loop {
            let (works, refusal) = {
                let mut state = self.shared.state.lock();
                while !state.has_work() && !state.closing {
                    self.shared.work.wait(&mut state);
                }
                if !state.has_work() && !state.write_lazy() {
                    break;
                }
                (state.take(), state.poisoned.clone())
            };
            if let Some(why) = refusal {
                fail(answers_of(works), &LogError::Poisoned(why));
                continue;
            }
            self.turn(works);
        }
        self.finish();
    }

    /// Writes and syncs one turn's work, or poisons the log.
    fn turn(&mut self, works: Vec<Work>) {
        let mut pending = Pending::default();
        let mut works = works.into_iter();
        let mut result = Ok(());
        for work in works.by_ref() {
            result = match work {
                Work::Frame(frame, answers) => {
                    pending.answers.extend(answers);
                    let written = self.write(&frame);
                    pending.frames.push(frame);
                    written
                }
                Work::Roll(roll) => self.sync(&mut pending).and_then(|()| self.roll(*roll)),
                Work::Call(answer) => {
                    pending.answers.push(answer);
                    Ok(())
                }
            };
            if result.is_err() {
                break;
            }
        }
        if let Err(error) = result.and_then(|()| self.sync(&mut pending)) {
            pending.answers.extend(answers_of(works.collect()));
            self.poison(&error, pending.answers);
        }
    }

    fn write(&mut self, frame: &Frame) -> io::Result<()> {
        let file = self.file.clone();
        self.with_room(|| file.write_all_at(&frame.bytes, frame.place.offset))?;
        self.shared.files.tail_is_written(frame.end());
        self.shared.counters.wrote(frame.bytes.len());
        self.shared.counters.frame(frame.entries, frame.payload_bytes);
        Ok(())
    }

    fn sync(&mut self, pending: &mut Pending) -> io::Result<()> {
        let frames = std::mem::take(&mut pending.frames);
        if let Some(last) = frames.last() {
            let seq = last.place.seq;
            sync(&*self.file, &self.shared.counters)?;
            self.shared.state.lock().synced(seq, frames);
            self.shared.durable.notify_all();
            self.shared.room.notify_all();
        }
        for answer in pending.answers.drain(..) {
            (answer.done)(match answer.error {
                None => Ok(()),
                Some(error) => Err(error.into()),
            });
        }
        Ok(())
    }

    fn roll(&mut self, roll: Roll) -> io::Result<()> {
        let sealed = self.seal(&roll.seal)?;
        let first = FirstBytes::new(roll.begin);
        let shared = self.shared.clone();
        let preallocate = shared.preallocate_bytes();
        let file = self.with_room(|| first.write(&shared.files, preallocate, &shared.counters))?;
        shared.files.begin_tail(first.segment, first.end);
        shared.files.forget(self.segment);
        let mut state = shared.state.lock();
        // IMPORTANT: only now may the old segment be deleted: the new one's checkpoint stands for it.
        if let Some(segment) = state.segments.get_mut(&self.segment) {
            segment.sealed = true;
            segment.bytes = sealed;
        }
        state.synced(first.mark_seq, Vec::new());
        drop(state);
        tracing::debug!(segment = first.segment, "log segment begun");
        (self.segment, self.file) = (first.segment, file);
        Ok(())
    }

    fn seal(&mut self, footer: &crate::format::Footer) -> io::Result<u64> {
        let shared = self.shared.clone();
        let (bytes, at) = footer_bytes(footer, shared.log_id);
        let file = self.file.clone();
        self.with_room(|| seal(&*file, &bytes, at, &shared.counters))
    }

    /// Runs an operation again until the disk has room for it. When the log is closed meanwhile it fails.
    fn with_room<T>(&self, mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            let error = match operation() {
                Err(error) if is_disk_full(&error) => error,
                result => return result,
            };
            let mut state = self.shared.state.lock();
            if !state.full {
                tracing::warn!("disk full, appends are refused until there is room");
                state.full = true;
                self.shared.counters.full(true);
            }
            if self.shared.reserve.release() {
                continue;
            }
            if state.closing {
                return Err(error);
            }
            self.shared.room.notify_all();
            self.shared.work.wait_for(&mut state, FULL_RETRY);
        }
    }

    fn poison(&self, error: &io::Error, answers: Vec<Answer>) {
        let why = format!("segment {}: {error}", self.segment);
        tracing::error!(segment = self.segment, error = %error, "log poisoned");
        let mut state = self.shared.state.lock();
        let why = state.poisoned.get_or_insert(why).clone();
        drop(state);
        self.shared.durable.notify_all();
        self.shared.room.notify_all();
        fail(answers, &LogError::Poisoned(why));
    }

    /// Seals the last segment, so that the next open need not verify it frame by frame.
    fn finish(&mut self) {
        let footer = {
            let state = self.shared.state.lock();
            if state.poisoned.is_some() {
                return;
            }
            state.footer()
        };
        if let Err(error) = self.seal(&footer) {
            self.poison(&error, Vec::new());
        }
    }
}
