//! Log directories and segments.

use super::damaged;
use crate::bytes_text::size;
use crate::exit::{Failure, Outcome};
use crate::output::aligned;
use std::path::Path;
use undb_log::inspect::{self, FrameReport, SegmentReport};
use undb_types::LogId;
use undb_vfs::Fs;

const SEGMENT_SUFFIX: &str = ".seg";

/// True when a directory holds segments.
pub fn is_log(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().any(|e| e.file_name().to_string_lossy().ends_with(SEGMENT_SUFFIX))
}

/// Segments, groups and the end.
pub fn print(fs: &dyn Fs, dir: &Path, out: &mut String) -> Outcome<()> {
    let summary = inspect::summary(fs, dir).map_err(|e| damaged(dir, e))?;
    match summary.log_id {
        Some(id) => out.push_str(&format!("log {id:016x}, incarnation {}\n", summary.incarnation)),
        None => out.push_str("empty log\n"),
    }
    let segments = inspect::segments(fs, dir).map_err(|e| damaged(dir, e))?;
    let mut rows =
        vec![["SEGMENT", "FILE", "STATE", "ENTRIES", "GROUPS", "CLASS"].map(String::from).to_vec()];
    rows.extend(segments.iter().map(segment_row));
    out.push_str(&aligned(&rows));
    if let Some((segment, offset, why)) = &summary.cut {
        out.push_str(&format!("the next start cuts segment {segment} at {offset}: {why}\n"));
    }
    for segment in &summary.torn {
        out.push_str(&format!("segment {segment}: its beginning never reached the disk\n"));
    }
    let mut rows = vec![["GROUP", "PURGED", "LAST", "COMMITTED", "VOTE"].map(String::from).to_vec()];
    for (group, state) in &summary.groups {
        let vote = state.vote.as_ref().map_or("-".into(), |v| format!("{} bytes", v.len()));
        rows.push(vec![
            group.to_string(),
            position(state.purged),
            position(state.last),
            position(state.committed),
            vote,
        ]);
    }
    out.push_str(&aligned(&rows));
    Ok(())
}

fn position(id: Option<LogId>) -> String {
    id.map_or("-".into(), |id| format!("{}@{}", id.index, id.term))
}

fn segment_row(s: &SegmentReport) -> Vec<String> {
    let footer = |f: &dyn Fn(&undb_log::format::Footer) -> String| s.footer.as_ref().map_or("-".into(), f);
    let state = match (&s.header, &s.footer) {
        (Err(what), _) => format!("header: {what}"),
        (Ok(_), Some(_)) => "sealed".into(),
        (Ok(_), None) => "open".into(),
    };
    vec![
        s.id.to_string(),
        size(s.file_bytes),
        state,
        footer(&|f| f.groups.iter().map(|(_, g)| g.entries).sum::<u64>().to_string()),
        footer(&|f| f.groups.len().to_string()),
        s.header.as_ref().map_or("-".into(), |h| h.class.to_string()),
    ]
}

/// One segment, frame by frame.
pub fn print_segment(fs: &dyn Fs, dir: &Path, path: &Path, entries: bool, out: &mut String) -> Outcome<()> {
    let segments = inspect::segments(fs, dir).map_err(|e| damaged(dir, e))?;
    let known = segments.into_iter().find(|s| s.path.file_name() == path.file_name());
    let segment = known.ok_or_else(|| {
        Failure::invalid(format!(
            "{} is no file that UNDB writes; `undb help inspect` lists them",
            path.display()
        ))
    })?;
    let header = segment.header.map_err(|what| damaged(path, what))?;
    out.push_str(&format!(
        "segment {} of log {:016x}, incarnation {}, first frame {}, class {}, {}\n",
        header.segment,
        header.log_id,
        header.incarnation,
        header.first_seq,
        header.class,
        if segment.footer.is_some() { "sealed" } else { "open" }
    ));
    let frames = inspect::frames(fs, dir, segment.id).map_err(|e| damaged(path, e))?;
    for frame in &frames.frames {
        print_frame(frame, entries, out);
    }
    out.push_str(&format!("{} good frames end at {}: {}\n", frames.frames.len(), frames.end, frames.why));
    Ok(())
}

fn print_frame(frame: &FrameReport, entries: bool, out: &mut String) {
    let h = &frame.header;
    let found = frame.entries();
    out.push_str(&format!(
        "frame {} at {}: {} bytes, {} records, {} entries, durable through {}\n",
        h.seq,
        h.offset,
        h.body_len,
        frame.records.len(),
        found.len(),
        h.durable_seq
    ));
    if entries {
        for e in found {
            out.push_str(&format!(
                "  {} index {} term {} leader {} kind {} at {} ({} bytes)\n",
                e.group, e.id.index, e.id.term, e.id.leader, e.kind, e.location.offset, e.location.len
            ));
        }
    }
}
