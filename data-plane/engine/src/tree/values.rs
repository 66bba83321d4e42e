//! Reading values where pointers say they are: log segments and data files, through one cache.

use super::Origin;
use super::entry::{Entry, Place, Pointer};
use crate::error::{EngineError, Result};
use crate::gc::data_file::DataReader;
use crate::record::decode_record;
use crate::store_log::StoreLog;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use undb_vfs::Fs;

/// Larger values are not cached.
const CACHED_VALUE_BYTES_MAX: usize = 64 << 10;
/// Open data files.
const DATA_FILES_OPEN_MAX: usize = 256;

#[derive(Clone)]
struct ValueWeight;

impl Weighter<Pointer, Bytes> for ValueWeight {
    fn weight(&self, _key: &Pointer, value: &Bytes) -> u64 {
        value.len() as u64 + 96
    }
}

/// Values by pointer.
pub struct Values {
    fs: Arc<dyn Fs>,
    log: StoreLog,
    data_dir: PathBuf,
    files: Cache<u64, Arc<DataReader>>,
    // Pointers are never used again within a run, so nothing in here goes stale.
    cache: Cache<Pointer, Bytes, ValueWeight>,
}

impl Values {
    /// Reads the log and the data files in `data_dir`, caching so many bytes of values.
    pub fn new(fs: Arc<dyn Fs>, log: StoreLog, data_dir: &Path, cache_bytes: u64) -> Values {
        let items = usize::try_from(cache_bytes / 1024).unwrap_or(usize::MAX).max(16);
        Values {
            fs,
            log,
            data_dir: data_dir.into(),
            files: Cache::new(DATA_FILES_OPEN_MAX),
            cache: Cache::with_weighter(items, cache_bytes, ValueWeight),
        }
    }

    /// The value of an entry. Checks the record's checksum, key and length.
    pub fn read(&self, key: &[u8], entry: &Entry) -> Result<Bytes> {
        match &entry.place {
            Place::Inline(value) => Ok(value.clone()),
            Place::At(pointer) => match self.cache.get(pointer) {
                Some(value) => Ok(value),
                None => {
                    let value = self.read_uncached(key, *pointer, entry.meta.value_len)?;
                    if value.len() <= CACHED_VALUE_BYTES_MAX {
                        // A copy, so that the cache does not keep a whole frame of the log alive.
                        self.cache.insert(*pointer, Bytes::copy_from_slice(&value));
                    }
                    Ok(value)
                }
            },
        }
    }

    /// As `read`, past the cache: for garbage collection and checks.
    pub fn read_uncached(&self, key: &[u8], pointer: Pointer, value_len: u32) -> Result<Bytes> {
        let reader = match pointer.segment.origin {
            Origin::Log => None,
            Origin::Data => Some(self.data_file(pointer.segment.id)?),
        };
        let bytes = match &reader {
            None => self.log.read(pointer.segment.id, pointer.offset, pointer.record_len)?,
            Some(reader) => reader.read(pointer)?,
        };
        let place = || format!("value at {:?} {} + {}", pointer.segment, pointer.offset, pointer.record_len);
        let record = decode_record(&bytes).map_err(|e| EngineError::corrupt(place(), e.to_string()))?;
        if record.len != pointer.record_len as usize || record.key != key {
            return Err(EngineError::corrupt(place(), "record of another key or length"));
        }
        let value = match &reader {
            None => record.value,
            Some(reader) => reader.unpack(record.value, value_len)?,
        };
        if value.len() != value_len as usize {
            return Err(EngineError::corrupt(place(), "value of another length"));
        }
        Ok(value)
    }

    fn data_file(&self, id: u64) -> Result<Arc<DataReader>> {
        self.files.get_or_insert_with(&id, || DataReader::open(&*self.fs, &self.data_dir, id).map(Arc::new))
    }

    /// Forgets an open data file that was deleted.
    pub fn forget(&self, id: u64) {
        self.files.remove(&id);
    }
}
