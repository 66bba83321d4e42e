//! What has been done, in order: batches end in any order, the checkpoint only moves over those
//! before which nothing is missing.

use super::checkpoint::{Checkpoint, Print};
use super::row::Rejected;
use crate::exit::{Failure, Outcome};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// A batch that has ended.
#[derive(Debug)]
pub struct Done {
    pub seq: u64,
    pub row_count: u64,
    pub rejected: Vec<Rejected>,
    pub end_offset: u64,
    pub end_lines: u64,
}

/// The state of an import.
pub struct Ledger {
    state: Checkpoint,
    next_seq: u64,
    // Ended, but one before has not.
    early: BTreeMap<u64, Done>,
    file: PathBuf,
    checkpoint_path: Option<PathBuf>,
    rejected_path: PathBuf,
    rejected: Option<File>,
    print: Print,
    saved: Instant,
}

impl Ledger {
    /// Begins at a checkpoint. Rejected rows behind it belong to what is repeated now.
    pub fn new(
        start: Checkpoint,
        file: &Path,
        checkpoint_path: Option<PathBuf>,
        rejected_path: PathBuf,
        print: Print,
    ) -> Outcome<Self> {
        let failed = |e: std::io::Error| Failure::file(&rejected_path, &e);
        let rejected = match rejected_path.exists() {
            false => None,
            true => {
                let mut old = OpenOptions::new().write(true).open(&rejected_path).map_err(failed)?;
                old.set_len(start.rejected_bytes).map_err(failed)?;
                old.seek(SeekFrom::End(0)).map_err(failed)?;
                Some(old)
            }
        };
        Ok(Self {
            state: start,
            next_seq: 0,
            early: BTreeMap::new(),
            file: file.into(),
            checkpoint_path,
            rejected_path,
            rejected,
            print,
            saved: Instant::now(),
        })
    }

    /// Notes a batch; saves from time to time.
    pub fn record(&mut self, done: Done) -> Outcome<()> {
        self.early.insert(done.seq, done);
        while let Some(done) = self.early.remove(&self.next_seq) {
            self.next_seq += 1;
            self.state.rows += done.row_count;
            self.state.offset = done.end_offset;
            self.state.lines = done.end_lines;
            self.reject(&done.rejected)?;
        }
        if self.saved.elapsed() >= SAVE_INTERVAL { self.save(false) } else { Ok(()) }
    }

    fn reject(&mut self, rows: &[Rejected]) -> Outcome<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let failed = |e: std::io::Error| Failure::file(&self.rejected_path, &e);
        let mut text = String::new();
        rows.iter().for_each(|row| text.push_str(&format!("{}\n", row.to_json())));
        let mut file = match self.rejected.take() {
            Some(file) => file,
            None => File::create(&self.rejected_path).map_err(failed)?,
        };
        file.write_all(text.as_bytes()).map_err(failed)?;
        self.rejected = Some(file);
        self.state.rejected += rows.len() as u64;
        self.state.rejected_bytes += text.len() as u64;
        Ok(())
    }

    /// Writes the checkpoint; `last`: also when it is young.
    pub fn save(&mut self, last: bool) -> Outcome<()> {
        let Some(path) = &self.checkpoint_path else { return Ok(()) };
        if !last && self.saved.elapsed() < SAVE_INTERVAL {
            return Ok(());
        }
        if let Some(file) = &self.rejected {
            // IMPORTANT: before the checkpoint, which says how many of these bytes count.
            file.sync_data().map_err(|e| Failure::file(&self.rejected_path, &e))?;
        }
        self.state.save(path, &self.file, &self.print)?;
        self.saved = Instant::now();
        Ok(())
    }

    /// Everything is in: the checkpoint goes, and an empty file of rejected rows.
    pub fn done(&self) -> Outcome<()> {
        let mut goes: Vec<&Path> = self.checkpoint_path.iter().map(PathBuf::as_path).collect();
        if self.rejected.is_some() && self.state.rejected_bytes == 0 {
            goes.push(&self.rejected_path);
        }
        for path in goes {
            match std::fs::remove_file(path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Failure::file(path, &e)),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn state(&self) -> &Checkpoint {
        &self.state
    }

    pub fn rejected_path(&self) -> &Path {
        &self.rejected_path
    }

    pub fn can_resume(&self) -> bool {
        self.checkpoint_path.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(seq: u64, rejected: usize) -> Done {
        let row = Rejected { line: seq, reason: "r".into(), row: b"x".to_vec() };
        Done {
            seq,
            row_count: 10,
            rejected: vec![row; rejected],
            end_offset: (seq + 1) * 100,
            end_lines: (seq + 1) * 10,
        }
    }

    #[test]
    fn the_checkpoint_waits_for_the_batch_that_is_missing() {
        let dir = tempfile::tempdir().expect("temp dir");
        let at = |name: &str| dir.path().join(name);
        let mut ledger =
            Ledger::new(Checkpoint::default(), &at("f"), None, at("r"), Print::default()).expect("new");
        ledger.record(done(1, 1)).expect("record");
        ledger.record(done(2, 0)).expect("record");
        assert_eq!((ledger.state().offset, ledger.state().rejected), (0, 0));
        assert!(!at("r").exists());
        ledger.record(done(0, 0)).expect("record");
        assert_eq!((ledger.state().offset, ledger.state().rows, ledger.state().rejected), (300, 30, 1));
        assert_eq!(std::fs::read_to_string(at("r")).expect("file").lines().count(), 1);
    }

    #[test]
    fn rejected_rows_behind_the_checkpoint_are_cut_off() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("r");
        std::fs::write(&path, "kept\nrepeated\n").expect("write");
        let start = Checkpoint { rejected_bytes: 5, rejected: 1, ..Checkpoint::default() };
        let mut ledger = Ledger::new(start, &path, None, path.clone(), Print::default()).expect("new");
        ledger.record(done(0, 1)).expect("record");
        let text = std::fs::read_to_string(&path).expect("file");
        assert!(text.starts_with("kept\n{\"line\":0") && !text.contains("repeated"), "{text}");
    }
}
