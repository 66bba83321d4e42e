//! Data files: values that were moved out of the log, sorted by group and key. Immutable once written.
//!
//! ```text
//! header: magic "UNDBDATA" | format u16 = 1 | codec u8 (0 raw, 1 zstd) | class u8 | 0 u32
//!         | id u64 | created_ms u64 | dictionary_len u32 | crc32c u32 of the 36 bytes before and the dictionary
//!         | dictionary
//! body:   value records (see `record`); with codec 1 their value part is a zstd frame
//! footer: crc32c u32 of the body | count u32 | sections { shard, replica, offset, records, bytes: u64 each }
//!         | crc32c u32 of the footer | footer_len u32 (all before) | magic "UNDBDEND"
//! ```
//! All numbers little-endian. A file is used only after it, its directory and the manifest are synced; it is
//! deleted when no live value points into it, or at open when the manifest does not name it.

use super::codec::{Codec, Packer, Unpacker};
use crate::error::{EngineError, Result};
use crate::record::encode_record;
use crate::tree::entry::Pointer;
use crate::tree::{Origin, SegmentRef};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use undb_types::GroupId;
use undb_vfs::{File, Fs, OpenHow};

const MAGIC: [u8; 8] = *b"UNDBDATA";
const END_MAGIC: [u8; 8] = *b"UNDBDEND";
/// The newest format known here.
pub const DATA_FORMAT: u16 = 1;
const HEADER_LEN: usize = 40;
const TRAILER_LEN: usize = 16;
const SECTION_LEN: usize = 40;
const BUFFER_BYTES: usize = 1 << 20;

/// Where the data file with this id lies.
pub fn data_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:016x}.data"))
}

/// The id in a data file's name.
pub fn parse_data_name(name: &str) -> Option<u64> {
    let stem = name.strip_suffix(".data").filter(|stem| stem.len() == 16)?;
    u64::from_str_radix(stem, 16).ok()
}

/// What a new data file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// Its id.
    pub id: u64,
    /// How often its values survived a collection.
    pub class: u8,
    /// Now, in milliseconds.
    pub created_ms: u64,
    /// How its values are packed.
    pub codec: Codec,
}

/// The records of one group in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Whose.
    pub group: GroupId,
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// How large a data file became.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSize {
    /// The whole file.
    pub bytes: u64,
    /// Its records.
    pub record_bytes: u64,
}

/// Writes one data file.
pub struct DataWriter {
    file: Arc<dyn File>,
    head: DataHead,
    packer: Packer,
    buffer: Vec<u8>,
    written_bytes: u64,
    body_crc: u32,
    sections: Vec<Section>,
}

impl DataWriter {
    /// Creates the file. It must not exist.
    pub fn create(fs: &dyn Fs, dir: &Path, head: DataHead) -> Result<DataWriter> {
        let path = data_path(dir, head.id);
        let file =
            fs.open(&path, OpenHow::CreateNew).map_err(|e| EngineError::io("create a data file", e))?;
        let packer = Packer::new(&head.codec)?;
        let buffer = encode_header(&head);
        Ok(DataWriter { file, head, packer, buffer, written_bytes: 0, body_crc: 0, sections: Vec::new() })
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    /// Appends a value; groups come one after the other, keys in order within each.
    pub fn append(&mut self, group: GroupId, key: &[u8], value: &[u8]) -> Result<Pointer> {
        let offset = self.bytes();
        let start = self.buffer.len();
        let stored = self.packer.pack(value)?;
        encode_record(&mut self.buffer, key, &stored);
        let record = &self.buffer[start..];
        self.body_crc = crc32c::crc32c_append(self.body_crc, record);
        let record_len = u32::try_from(record.len()).expect("values are bounded far below 4 GiB");
        match self.sections.last_mut().filter(|s| s.group == group) {
            Some(section) => {
                section.records += 1;
                section.bytes += u64::from(record_len);
            }
            None => self.sections.push(Section { group, offset, records: 1, bytes: record_len.into() }),
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_buffer()?;
        }
        let segment = SegmentRef { origin: Origin::Data, id: self.head.id };
        Ok(Pointer { segment, offset, record_len })
    }

    fn write_buffer(&mut self) -> Result<()> {
        self.file
            .write_all_at(&self.buffer, self.written_bytes)
            .map_err(|e| EngineError::io("write a data file", e))?;
        self.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the footer and syncs the file; returns its size and that of its records. The caller syncs the
    /// directory.
    pub fn finish(mut self) -> Result<DataSize> {
        let record_bytes = self.sections.iter().map(|s| s.bytes).sum();
        encode_footer(&mut self.buffer, self.body_crc, &self.sections);
        self.write_buffer()?;
        self.file.sync_data().map_err(|e| EngineError::io("sync a data file", e))?;
        Ok(DataSize { bytes: self.written_bytes, record_bytes })
    }
}

fn encode_header(head: &DataHead) -> Vec<u8> {
    let dictionary = head.codec.dictionary();
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&DATA_FORMAT.to_le_bytes());
    out.extend_from_slice(&[head.codec.code(), head.class, 0, 0, 0, 0]);
    out.extend_from_slice(&head.id.to_le_bytes());
    out.extend_from_slice(&head.created_ms.to_le_bytes());
    out.extend_from_slice(&u32::try_from(dictionary.len()).expect("at most 32 KiB").to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&out), dictionary);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(dictionary);
    out
}

fn encode_footer(out: &mut Vec<u8>, body_crc: u32, sections: &[Section]) {
    let start = out.len();
    out.extend_from_slice(&body_crc.to_le_bytes());
    out.extend_from_slice(&u32::try_from(sections.len()).expect("one per group").to_le_bytes());
    for s in sections {
        for n in [s.group.shard.0, s.group.replica.0, s.offset, s.records, s.bytes] {
            out.extend_from_slice(&n.to_le_bytes());
        }
    }
    let footer_len = out.len() - start;
    let crc = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&u32::try_from(footer_len).expect("one section per group").to_le_bytes());
    out.extend_from_slice(&END_MAGIC);
}

/// An open data file.
pub struct DataReader {
    file: Arc<dyn File>,
    path: PathBuf,
    len: u64,
    unpacker: Unpacker,
    body_at: u64,
}

impl DataReader {
    /// Opens a file and checks its header.
    pub fn open(fs: &dyn Fs, dir: &Path, id: u64) -> Result<DataReader> {
        let path = data_path(dir, id);
        let file = fs.open(&path, OpenHow::Read).map_err(|e| EngineError::io("open a data file", e))?;
        let len = file.len().map_err(|e| EngineError::io("open a data file", e))?;
        let bad = |detail: &str| EngineError::corrupt(path.display().to_string(), detail);
        if len < (HEADER_LEN + TRAILER_LEN) as u64 {
            return Err(bad("cut off"));
        }
        let header = read(&*file, 0, HEADER_LEN)?;
        if header[..8] != MAGIC {
            return Err(bad("not a data file"));
        }
        let found = u16::from_le_bytes([header[8], header[9]]);
        if found > DATA_FORMAT {
            return Err(EngineError::NewerFormat {
                path,
                found: found.into(),
                supported: DATA_FORMAT.into(),
            });
        }
        let dictionary_len = le_u32(&header, 32);
        if u64::from(dictionary_len) > len - HEADER_LEN as u64 {
            return Err(bad("dictionary cut off"));
        }
        let dictionary = read(&*file, HEADER_LEN as u64, dictionary_len as usize)?;
        if crc32c::crc32c_append(crc32c::crc32c(&header[..36]), &dictionary) != le_u32(&header, 36) {
            return Err(bad("header checksum differs"));
        }
        if le_u64(&header, 16) != id {
            return Err(bad("header has another id"));
        }
        let unpacker = Unpacker::new(header[10], &dictionary).ok_or_else(|| bad("unknown codec"))?;
        Ok(DataReader { file, len, unpacker, body_at: (HEADER_LEN + dictionary.len()) as u64, path })
    }

    /// The bytes of a record.
    pub fn read(&self, pointer: Pointer) -> Result<Bytes> {
        let end = pointer.offset.checked_add(pointer.record_len.into());
        if end.is_none_or(|end| end > self.len) || pointer.offset < self.body_at {
            return Err(EngineError::corrupt(self.path.display().to_string(), "pointer outside of the file"));
        }
        Ok(read(&*self.file, pointer.offset, pointer.record_len as usize)?.into())
    }

    /// Unpacks a record's value.
    pub fn unpack(&self, stored: Bytes, value_len: u32) -> Result<Bytes> {
        self.unpacker.unpack(stored, value_len)
    }

    /// Checks the whole file, and lists whose records it holds.
    pub fn verify(&self) -> Result<Vec<Section>> {
        let bad = |detail: &str| EngineError::corrupt(self.path.display().to_string(), detail);
        let trailer_at = self.len - TRAILER_LEN as u64;
        let trailer = read(&*self.file, trailer_at, TRAILER_LEN)?;
        if trailer[8..] != END_MAGIC {
            return Err(bad("no footer"));
        }
        let footer_len = u64::from(le_u32(&trailer, 4));
        let footer_at =
            trailer_at.checked_sub(footer_len).filter(|at| *at >= self.body_at && footer_len >= 8);
        let footer_at = footer_at.ok_or_else(|| bad("footer has a wrong length"))?;
        let footer = read(&*self.file, footer_at, footer_len as usize)?;
        let count = le_u32(&footer, 4) as usize;
        if crc32c::crc32c(&footer) != le_u32(&trailer, 0) || footer.len() != 8 + count * SECTION_LEN {
            return Err(bad("footer checksum differs"));
        }
        let (mut crc, mut at) = (0, self.body_at);
        while at < footer_at {
            let chunk = read(&*self.file, at, (footer_at - at).min(BUFFER_BYTES as u64) as usize)?;
            crc = crc32c::crc32c_append(crc, &chunk);
            at += chunk.len() as u64;
        }
        if crc != le_u32(&footer, 0) {
            return Err(bad("body checksum differs"));
        }
        Ok((0..count).map(|i| decode_section(&footer, 8 + i * SECTION_LEN)).collect())
    }
}

fn decode_section(footer: &[u8], at: usize) -> Section {
    let n = |i: usize| le_u64(footer, at + i * 8);
    Section {
        group: GroupId { shard: undb_types::ShardId(n(0)), replica: undb_types::ReplicaId(n(1)) },
        offset: n(2),
        records: n(3),
        bytes: n(4),
    }
}

fn read(file: &dyn File, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).map_err(|e| EngineError::io("read a data file", e))?;
    Ok(bytes)
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes, length checked by the caller"))
}

fn le_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes, length checked by the caller"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::decode_record;
    use undb_types::{ReplicaId, ShardId};
    use undb_vfs::OsFs;

    const GROUP: GroupId = GroupId { shard: ShardId(1), replica: ReplicaId(2) };

    fn write(dir: &Path, codec: Codec) -> Vec<Pointer> {
        let head = DataHead { id: 5, class: 1, created_ms: 9, codec };
        let mut writer = DataWriter::create(&OsFs::default(), dir, head).expect("create");
        let values = [&b"one one one one one one one"[..], b"two", &[3; 9000]];
        let keys = [&b"a"[..], b"b", b"c"];
        let pointers =
            keys.iter().zip(values).map(|(k, v)| writer.append(GROUP, k, v).expect("append")).collect();
        let size = writer.finish().expect("finish");
        assert_eq!(size.bytes, std::fs::metadata(data_path(dir, 5)).expect("there").len());
        pointers
    }

    #[test]
    fn what_was_written_is_read_back_packed_or_not() {
        for codec in [Codec::Raw, Codec::Zstd { dictionary: vec![] }] {
            let dir = tempfile::tempdir().expect("dir");
            let pointers = write(dir.path(), codec);
            let reader = DataReader::open(&OsFs::default(), dir.path(), 5).expect("open");
            let record = decode_record(&reader.read(pointers[2]).expect("read")).expect("record");
            assert_eq!(&record.key[..], b"c");
            assert_eq!(&reader.unpack(record.value, 9000).expect("unpack")[..], &[3; 9000]);
            let sections = reader.verify().expect("verify");
            assert_eq!(sections.len(), 1);
            assert_eq!((sections[0].group, sections[0].records), (GROUP, 3));
        }
    }

    #[test]
    fn any_flipped_byte_is_found_by_verify() {
        let dir = tempfile::tempdir().expect("dir");
        write(dir.path(), Codec::Raw);
        let path = data_path(dir.path(), 5);
        let good = std::fs::read(&path).expect("read");
        for at in (0..good.len()).filter(|at| *at < 200 || good.len() - at < 200 || at % 97 == 0) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            std::fs::write(&path, &bad).expect("write");
            let found = DataReader::open(&OsFs::default(), dir.path(), 5).and_then(|reader| reader.verify());
            assert!(found.is_err(), "byte {at}");
        }
        for len in [0, 10, HEADER_LEN, good.len() - 1] {
            std::fs::write(&path, &good[..len]).expect("write");
            assert!(
                DataReader::open(&OsFs::default(), dir.path(), 5).and_then(|reader| reader.verify()).is_err()
            );
        }
    }

    #[test]
    fn names_parse_back_and_strangers_do_not() {
        let path = data_path(Path::new("d"), 0xABCDEF);
        let name = path.file_name().and_then(|n| n.to_str()).expect("utf-8");
        assert_eq!(parse_data_name(name), Some(0xABCDEF));
        assert_eq!(parse_data_name("1.data"), None);
        assert_eq!(parse_data_name("x"), None);
    }
}
