//! Ending and beginning a segment file. The order of syncs here is what recovery relies on.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use undb_vfs::{File, OpenHow};

use crate::counters::Counters;
use crate::files::Files;
use crate::format::Footer;
use crate::state::Begin;

/// Writes the footer, gives back the space behind it and syncs. All frames must be synced before, since the
/// footer says that they are. Gives the length of the file.
pub(crate) fn seal(file: &dyn File, footer: &[u8], at: u64, counters: &Counters) -> io::Result<u64> {
    file.write_all_at(footer, at)?;
    counters.wrote(footer.len());
    let len = at + footer.len() as u64;
    file.set_len(len)?;
    sync(file, counters)?;
    Ok(len)
}

/// What of a segment's beginning is ready to write.
pub(crate) struct FirstBytes {
    pub segment: u64,
    /// Header and checkpoint.
    head: Vec<u8>,
    mark: Vec<u8>,
    pub end: u64,
    pub mark_seq: u64,
}

/// Preallocated is only what is a small part of the free space. On a disk that is nearly full it would take
/// the room that votes, the reserve and the other stores need, at every start anew.
const PREALLOCATE_SHARE: u64 = 8;

impl FirstBytes {
    pub fn new(begin: Begin) -> Self {
        let checkpoint_seq = begin.header.first_seq;
        let (checkpoint, _) = begin.checkpoint.finish(checkpoint_seq - 1);
        // IMPORTANT: the mark claims that the checkpoint is durable. It is what tells a segment whose
        // beginning rotted from one whose beginning never reached the disk.
        let (mark, _) = begin.mark.finish(checkpoint_seq);
        let mut head = begin.header.encode().to_vec();
        head.extend_from_slice(&checkpoint.bytes);
        let (end, mark_seq) = (mark.end(), mark.place.seq);
        FirstBytes { segment: begin.header.segment, head, mark: mark.bytes, end, mark_seq }
    }

    /// Creates the file and makes it durable. May be tried again after the disk was full.
    pub fn write(&self, files: &Files, preallocate: u64, counters: &Counters) -> io::Result<Arc<dyn File>> {
        let path = files.path(self.segment);
        if files.fs.exists(&path)? {
            files.fs.remove_file(&path)?;
        }
        let file = files.fs.open(&path, OpenHow::CreateNew)?;
        if preallocate > 0
            && files.fs.space(&files.dir)?.free / PREALLOCATE_SHARE >= preallocate
            && let Err(error) = file.allocate(preallocate)
            && !undb_vfs::is_disk_full(&error)
        {
            return Err(error);
        }
        file.write_all_at(&self.head, 0)?;
        sync(&*file, counters)?;
        let mark_at = self.head.len() as u64;
        file.write_all_at(&self.mark, mark_at)?;
        sync(&*file, counters)?;
        let began = Instant::now();
        files.fs.sync_dir(&files.dir)?;
        counters.synced(began.elapsed());
        counters.wrote(self.head.len() + self.mark.len());
        counters.segment();
        Ok(file)
    }
}

pub(crate) fn sync(file: &dyn File, counters: &Counters) -> io::Result<()> {
    let began = Instant::now();
    file.sync_data()?;
    counters.synced(began.elapsed());
    Ok(())
}

/// The footer's bytes and where they go.
pub(crate) fn footer_bytes(footer: &Footer, log_id: u64) -> (Vec<u8>, u64) {
    (footer.encode(log_id), footer.frames_end)
}
