//! How far it is and how long it will take: a bar on a terminal, a plain line now and then elsewhere.

use crate::bytes_text::{size, span};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PLAIN_INTERVAL_MS: u64 = 5_000;

/// Shared by everybody who moves it.
pub struct Progress {
    bar: Option<ProgressBar>,
    plain: bool,
    started: Instant,
    total: Option<u64>,
    first_offset: u64,
    first_rows: u64,
    offset: AtomicU64,
    rows: AtomicU64,
    next_plain_ms: AtomicU64,
}

impl Progress {
    /// Over a file of `total` bytes, from an offset on.
    pub fn new(total: Option<u64>, offset: u64, rows: u64, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !quiet).then(|| bar(total, offset));
        Self {
            bar,
            plain: !terminal && !quiet,
            started: Instant::now(),
            total,
            first_offset: offset,
            first_rows: rows,
            offset: AtomicU64::new(offset),
            rows: AtomicU64::new(rows),
            next_plain_ms: AtomicU64::new(PLAIN_INTERVAL_MS),
        }
    }

    /// Everything before `offset`, `rows` rows, is done.
    pub fn at(&self, offset: u64, rows: u64, window: usize) {
        self.offset.store(offset, Ordering::Relaxed);
        self.rows.store(rows, Ordering::Relaxed);
        let (now, _) = self.since_start();
        let rate = now as f64 / self.elapsed().as_secs_f64().max(0.001);
        if let Some(bar) = &self.bar {
            bar.set_position(offset);
            bar.set_message(format!("{rows} rows, {rate:.0}/s, {window} batches under way"));
        }
        if self.plain {
            self.plain_line(offset, rows, rate);
        }
    }

    /// A line of words, beside the bar if there is one.
    pub fn say(&self, words: &str) {
        match &self.bar {
            Some(bar) => bar.println(words),
            None if self.plain => eprintln!("{words}"),
            None => {}
        }
    }

    fn plain_line(&self, offset: u64, rows: u64, rate: f64) {
        let elapsed_ms = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        if elapsed_ms < self.next_plain_ms.load(Ordering::Relaxed) {
            return;
        }
        self.next_plain_ms.store(elapsed_ms + PLAIN_INTERVAL_MS, Ordering::Relaxed);
        let left = self.total.map_or(String::new(), |total| {
            let done = offset.saturating_sub(self.first_offset) as f64;
            let speed = done / self.elapsed().as_secs_f64().max(0.001);
            let seconds = total.saturating_sub(offset) as f64 / speed.max(0.001);
            format!(
                ", {:.1}% of {}, {} left",
                offset as f64 * 100.0 / (total.max(1)) as f64,
                size(total),
                span(seconds)
            )
        });
        eprintln!("{rows} rows, {rate:.0} rows/s{left}");
    }

    /// Rows and bytes of this run.
    pub fn since_start(&self) -> (u64, u64) {
        (
            self.rows.load(Ordering::Relaxed).saturating_sub(self.first_rows),
            self.offset.load(Ordering::Relaxed).saturating_sub(self.first_offset),
        )
    }

    /// Time of this run.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: Option<u64>, offset: u64) -> ProgressBar {
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::new_spinner(),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    let template = match total {
        Some(_) => "{bar:30} {percent:>3}% {bytes}/{total_bytes} {bytes_per_sec} eta {eta}  {msg}",
        None => "{spinner} {bytes} {bytes_per_sec}  {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_position(offset);
    bar.reset_eta();
    bar
}
