//! The file, read on a thread of its own and cut into batches.

use super::Format;
use super::row::{Mapping, Rejected, Row};
use crate::exit::{Failure, Outcome};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use undb_types::VALUE_BYTES_MAX;

const BATCH_ROWS_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 1 << 20;
/// A line above this cannot hold a value that fits; it is skipped, not kept in memory.
const LINE_BYTES_MAX: u64 = 2 * VALUE_BYTES_MAX as u64;
const QUEUE_BATCHES: usize = 4;

/// Consecutive rows.
#[derive(Debug, Default)]
pub struct Batch {
    pub seq: u64,
    pub rows: Vec<Row>,
    pub rejected: Vec<Rejected>,
    /// Rows before this batch that are in neither list: none; rows of this batch.
    pub row_count: u64,
    /// Where the next batch begins.
    pub end_offset: u64,
    /// Lines before the end.
    pub end_lines: u64,
}

/// Where rows come from.
pub struct Source {
    path: PathBuf,
    mapping: Mapping,
    reader: Box<dyn Read + Send>,
    offset: u64,
    lines: u64,
    total: Option<u64>,
    header: csv::ByteRecord,
}

impl Source {
    /// Opens a file at a checkpoint's place, or stdin at its beginning.
    pub fn open(path: &Path, mapping: Mapping, offset: u64, lines: u64) -> Outcome<Self> {
        let failed = |e: std::io::Error| Failure::file(path, &e);
        let mut source = Self {
            path: path.into(),
            mapping,
            reader: Box::new(std::io::empty()),
            offset,
            lines,
            total: None,
            header: csv::ByteRecord::new(),
        };
        if path.as_os_str() == "-" {
            source.reader = Box::new(std::io::stdin());
        } else {
            let mut file = File::open(path).map_err(failed)?;
            let meta = file.metadata().map_err(failed)?;
            if meta.is_dir() {
                return Err(Failure::local(format!("{} is a directory; name a file", path.display())));
            }
            source.total = Some(meta.len());
            if source.mapping.format == Format::Csv && offset > 0 {
                source.header =
                    header(&mut file, source.mapping.delimiter).map_err(|e| csv_failed(path, &e))?;
            }
            file.seek(SeekFrom::Start(offset)).map_err(failed)?;
            source.reader = Box::new(file);
        }
        Ok(source)
    }

    /// Length of the file, if it is one.
    pub fn total_bytes(&self) -> Option<u64> {
        self.total
    }

    /// Reads on a thread until the end, an error, or the receiver goes.
    pub fn batches(self) -> mpsc::Receiver<Outcome<Batch>> {
        let (sender, receiver) = mpsc::channel(QUEUE_BATCHES);
        tokio::task::spawn_blocking(move || {
            let failed = sender.clone();
            let result = match self.mapping.format {
                Format::Jsonl => self.read_jsonl(sender),
                Format::Csv => self.read_csv(sender),
            };
            if let Err(failure) = result {
                let _nobody_listens = failed.blocking_send(Err(failure));
            }
        });
        receiver
    }

    fn read_jsonl(self, sender: mpsc::Sender<Outcome<Batch>>) -> Outcome<()> {
        let Self { path, mapping, reader, mut offset, mut lines, .. } = self;
        let mut reader = BufReader::with_capacity(1 << 20, reader);
        let mut cut = Cutter::new(sender);
        let mut line = Vec::new();
        loop {
            line.clear();
            let got = reader
                .by_ref()
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)
                .map_err(|e| Failure::file(&path, &e))? as u64;
            if got == 0 {
                break;
            }
            offset += got;
            lines += 1;
            let too_long = got == LINE_BYTES_MAX && line.last() != Some(&b'\n');
            if too_long {
                offset += skip_line(&mut reader).map_err(|e| Failure::file(&path, &e))?;
            }
            while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
                line.pop();
            }
            let row = match too_long {
                true => Err(Rejected {
                    line: lines,
                    reason: format!("a line above {LINE_BYTES_MAX} bytes holds no value that fits"),
                    row: line[..1000].to_vec(),
                }),
                false if line.iter().all(u8::is_ascii_whitespace) => {
                    cut.skipped(offset, lines);
                    continue;
                }
                false => mapping.json_row(lines, &line),
            };
            if !cut.push(row, offset, lines) {
                return Ok(());
            }
        }
        cut.end();
        Ok(())
    }

    fn read_csv(self, sender: mpsc::Sender<Outcome<Batch>>) -> Outcome<()> {
        let Self { path, mapping, reader, offset, lines, mut header, .. } = self;
        let mut csv = csv_reader(reader, mapping.delimiter);
        let mut cut = Cutter::new(sender);
        if header.is_empty() {
            csv.read_byte_record(&mut header).map_err(|e| csv_failed(&path, &e))?;
        }
        check_columns(&header, &mapping)?;
        let mut row = csv::ByteRecord::new();
        while csv.read_byte_record(&mut row).map_err(|e| csv_failed(&path, &e))? {
            let line = lines + row.position().map_or(0, csv::Position::line);
            let end = csv.position();
            let parsed = mapping.csv_row(line, &header, &row);
            if !cut.push(parsed, offset + end.byte(), lines + end.line().saturating_sub(1)) {
                return Ok(());
            }
        }
        cut.end();
        Ok(())
    }
}

fn csv_reader<R: Read>(reader: R, delimiter: u8) -> csv::Reader<R> {
    csv::ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(reader)
}

fn csv_failed(path: &Path, error: &csv::Error) -> Failure {
    Failure::local(format!("{}: {error}", path.display()))
}

/// The first row.
fn header(file: &mut File, delimiter: u8) -> Result<csv::ByteRecord, csv::Error> {
    let mut header = csv::ByteRecord::new();
    csv_reader(file, delimiter).read_byte_record(&mut header)?;
    Ok(header)
}

/// A column that is not there would reject every row; better to say it once.
fn check_columns(header: &csv::ByteRecord, mapping: &Mapping) -> Outcome<()> {
    use super::template::Piece;
    let templates = std::iter::once(&mapping.key).chain(&mapping.sort_key);
    let named = templates.flat_map(|t| &t.pieces).filter_map(|p| match p {
        Piece::Column(name) => Some(name),
        Piece::Text(_) => None,
    });
    for name in named.chain(&mapping.value) {
        if !header.iter().any(|h| h == name.as_bytes()) {
            let columns: Vec<_> = header.iter().map(String::from_utf8_lossy).collect();
            return Err(Failure::invalid(format!(
                "there is no column `{name}`; the first line has: {}",
                columns.join(", ")
            )));
        }
    }
    Ok(())
}

/// Passes over the rest of a line.
fn skip_line(reader: &mut impl BufRead) -> std::io::Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(skipped);
        }
        let end = buffer.iter().position(|b| *b == b'\n');
        let used = end.map_or(buffer.len(), |at| at + 1);
        reader.consume(used);
        skipped += used as u64;
        if end.is_some() {
            return Ok(skipped);
        }
    }
}

/// Collects rows into batches.
struct Cutter {
    sender: mpsc::Sender<Outcome<Batch>>,
    batch: Batch,
    bytes: usize,
}

impl Cutter {
    fn new(sender: mpsc::Sender<Outcome<Batch>>) -> Self {
        Self { sender, batch: Batch::default(), bytes: 0 }
    }

    /// False: nobody listens any more.
    fn push(&mut self, row: Result<Row, Rejected>, end_offset: u64, end_lines: u64) -> bool {
        self.skipped(end_offset, end_lines);
        self.batch.row_count += 1;
        match row {
            Ok(row) => {
                self.bytes += row.key.hash.len() + row.key.sort.len() + row.value.len();
                self.batch.rows.push(row);
            }
            Err(rejected) => {
                self.bytes += rejected.row.len();
                self.batch.rejected.push(rejected);
            }
        }
        let full = self.batch.row_count as usize >= BATCH_ROWS_MAX || self.bytes >= BATCH_BYTES_MAX;
        !full || self.send()
    }

    fn skipped(&mut self, end_offset: u64, end_lines: u64) {
        self.batch.end_offset = end_offset;
        self.batch.end_lines = end_lines;
    }

    fn end(&mut self) {
        if self.batch.row_count > 0 {
            self.send();
        }
    }

    fn send(&mut self) -> bool {
        let next = Batch { seq: self.batch.seq + 1, ..Batch::default() };
        let batch = std::mem::replace(&mut self.batch, next);
        self.bytes = 0;
        self.sender.blocking_send(Ok(batch)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(format: Format) -> Mapping {
        Mapping { format, key: "id".parse().expect("column"), sort_key: None, value: None, delimiter: b',' }
    }

    async fn keys(path: &Path, format: Format, offset: u64, lines: u64) -> (Vec<String>, Vec<(u64, u64)>) {
        let source = Source::open(path, mapping(format), offset, lines).expect("open");
        let mut batches = source.batches();
        let (mut keys, mut ends) = (Vec::new(), Vec::new());
        while let Some(batch) = batches.recv().await {
            let batch = batch.expect("reads");
            keys.extend(batch.rows.iter().map(|r| String::from_utf8_lossy(&r.key.hash).into_owned()));
            ends.push((batch.end_offset, batch.end_lines));
        }
        (keys, ends)
    }

    #[tokio::test]
    async fn a_csv_file_goes_on_at_any_batch_end() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("a.csv");
        let mut text = String::from("id,text\n");
        (0..1200).for_each(|i| text.push_str(&format!("{i},\"two\nlines, {i}\"\n")));
        std::fs::write(&path, &text).expect("write");
        let (all, ends) = keys(&path, Format::Csv, 0, 0).await;
        assert_eq!((all.len(), ends.len()), (1200, 3));
        assert_eq!(ends[2].0, text.len() as u64);
        let (rest, _) = keys(&path, Format::Csv, ends[0].0, ends[0].1).await;
        assert_eq!(rest, all[500..]);
    }

    #[tokio::test]
    async fn json_lines_go_on_at_any_batch_end_and_blank_ones_are_skipped() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("a.jsonl");
        let mut text = String::new();
        (0..700).for_each(|i| text.push_str(&format!("{{\"id\": {i}}}\r\n\n")));
        text.push_str("{\"id\": \"last, no newline\"}");
        std::fs::write(&path, &text).expect("write");
        let (all, ends) = keys(&path, Format::Jsonl, 0, 0).await;
        assert_eq!((all.len(), ends[1].0), (701, text.len() as u64));
        let (rest, _) = keys(&path, Format::Jsonl, ends[0].0, ends[0].1).await;
        assert_eq!(rest, all[500..]);
    }

    #[tokio::test]
    async fn a_column_that_is_not_there_is_said_once() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("a.csv");
        std::fs::write(&path, "key,text\n1,a\n").expect("write");
        let mut batches = Source::open(&path, mapping(Format::Csv), 0, 0).expect("open").batches();
        let failure = batches.recv().await.expect("an answer").expect_err("no such column");
        assert!(failure.message.contains("no column `id`") && failure.message.contains("key, text"));
    }
}
