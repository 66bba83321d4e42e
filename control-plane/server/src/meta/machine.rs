//! What the metadata group drives: the state in memory, its image on disk.

use super::image_file;
use super::ring::Ring;
use crate::ServerError;
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use undb_meta::State;
use undb_proto::{v1, wire_error};
use undb_raft::{Body, Committed, Machine, SnapshotSource};
use undb_types::LogId;
use undb_vfs::{Fs, read_file, write_file_atomic};

const CHUNK_BYTES: usize = 1 << 20;
const SNAPSHOT_BYTES_MAX: usize = 1 << 30;
const CHANGES_PER_READ_MAX: usize = 1000;

/// The replicated state of one member.
pub(super) struct MetaMachine {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    ring_len_max: usize,
    // Leaf lock; held for one command or one copy.
    inner: Mutex<Inner>,
    /// Index of the entry that the image on disk reflects.
    image_index: AtomicU64,
    /// The revision; woken after every apply.
    revision: watch::Sender<u64>,
}

struct Inner {
    state: State,
    applied: Option<LogId>,
    membership: Bytes,
    ring: Ring,
}

/// What a watcher gets next.
pub(super) enum Next {
    Snapshot(Box<v1::MetaImage>),
    Changes(Vec<(u64, v1::MetaChange)>),
}

impl MetaMachine {
    /// The state of the image in `dir`, or an empty one.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path, ring_len_max: usize) -> Result<Self, ServerError> {
        let path = dir.join("image");
        let failed = |source| ServerError::Io { what: "reading", path: path.clone(), source };
        let inner = match fs.exists(&path).map_err(failed)? {
            false => Inner {
                state: State::default(),
                applied: None,
                membership: Bytes::new(),
                ring: Ring::new(0, ring_len_max),
            },
            true => {
                let bytes = read_file(&*fs, &path).map_err(failed)?;
                Inner::of(image_file::decode(&bytes, &path)?, ring_len_max)
                    .map_err(|problem| ServerError::Damaged { path: path.clone(), problem })?
            }
        };
        let image_index = AtomicU64::new(inner.applied.map_or(0, |id| id.index));
        let revision = watch::Sender::new(inner.state.revision());
        Ok(Self { fs, path, ring_len_max, inner: Mutex::new(inner), image_index, revision })
    }

    /// Reads the state as it is.
    pub fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.inner.lock().state)
    }

    /// Woken after every apply.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// What a watcher at `revision` gets next; `None` revision: from the start.
    pub fn next_for(&self, revision: Option<u64>) -> Next {
        let inner = self.inner.lock();
        match revision.and_then(|r| inner.ring.after(r, CHANGES_PER_READ_MAX)) {
            Some(changes) => Next::Changes(changes),
            None => Next::Snapshot(Box::new(inner.state.image())),
        }
    }

    /// The last entry applied, when the image lies `every` entries behind it.
    pub fn due_for_image(&self, every: u64) -> Option<LogId> {
        let applied = self.inner.lock().applied?;
        (applied.index >= self.image_index.load(Ordering::Relaxed) + every).then_some(applied)
    }

    fn write_image(&self, file: &v1::MetaImageFile) -> io::Result<()> {
        let bytes = image_file::encode(file);
        write_file_atomic(&*self.fs, &self.path, &bytes)?;
        self.image_index.store(file.index, Ordering::Relaxed);
        metrics::gauge!("undb_meta_image_bytes").set(bytes.len() as f64);
        Ok(())
    }
}

impl Inner {
    fn of(file: v1::MetaImageFile, ring_len_max: usize) -> Result<Self, String> {
        let state = State::from_image(file.image.unwrap_or_default()).map_err(|e| e.to_string())?;
        let id = LogId { term: file.term, leader: file.leader, index: file.index };
        let ring = Ring::new(state.revision(), ring_len_max);
        Ok(Self { applied: (file.term > 0).then_some(id), membership: file.membership, state, ring })
    }

    fn file(&self) -> v1::MetaImageFile {
        let id = self.applied.unwrap_or_default();
        v1::MetaImageFile {
            term: id.term,
            leader: id.leader,
            index: id.index,
            membership: self.membership.clone(),
            image: Some(self.state.image()),
        }
    }

    fn apply(&mut self, entry: Committed) -> Bytes {
        self.applied = Some(entry.id);
        match entry.body {
            Body::Blank => Bytes::new(),
            Body::Membership(membership) => {
                self.membership = membership;
                Bytes::new()
            }
            Body::Command(command) => self.command(&command).encode_to_vec().into(),
        }
    }

    fn command(&mut self, bytes: &[u8]) -> v1::ProposeResponse {
        let applied = match v1::MetaCommand::decode(bytes) {
            Ok(command) => self.state.apply(command).map_err(v1::Error::from),
            Err(error) => Err(wire_error(v1::ErrorCode::InvalidArgument, error.to_string())),
        };
        match applied {
            Ok(applied) => {
                if applied.change != v1::MetaChange::default() {
                    self.ring.push(applied.revision, applied.change);
                }
                v1::ProposeResponse {
                    revision: applied.revision,
                    result: Some(applied.result),
                    ..Default::default()
                }
            }
            Err(error) => v1::ProposeResponse {
                revision: self.state.revision(),
                error: Some(error),
                ..Default::default()
            },
        }
    }
}

impl Machine for MetaMachine {
    fn applied(&self) -> io::Result<(Option<LogId>, Bytes)> {
        let inner = self.inner.lock();
        Ok((inner.applied, inner.membership.clone()))
    }

    fn apply(&self, entries: Vec<Committed>) -> io::Result<Vec<Bytes>> {
        let mut inner = self.inner.lock();
        let responses = entries.into_iter().map(|entry| inner.apply(entry)).collect();
        let revision = inner.state.revision();
        drop(inner);
        metrics::gauge!("undb_meta_revision").set(revision as f64);
        self.revision.send_replace(revision);
        Ok(responses)
    }

    fn snapshot(&self) -> io::Result<Box<dyn SnapshotSource>> {
        let file = self.inner.lock().file();
        self.write_image(&file)?;
        let log_id = LogId { term: file.term, leader: file.leader, index: file.index };
        let source = Source {
            log_id: (file.term > 0).then_some(log_id),
            membership: file.membership.clone(),
            rest: file.encode_to_vec().into(),
        };
        Ok(Box::new(source))
    }

    fn install(
        &self,
        log_id: Option<LogId>,
        membership: Bytes,
        chunks: &mut dyn Iterator<Item = io::Result<Bytes>>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for chunk in chunks {
            bytes.extend_from_slice(&chunk?);
            if bytes.len() > SNAPSHOT_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a metadata snapshot is too large"));
            }
        }
        let invalid = |e: String| io::Error::new(io::ErrorKind::InvalidData, e);
        let mut file = v1::MetaImageFile::decode(&bytes[..]).map_err(|e| invalid(e.to_string()))?;
        let id = log_id.unwrap_or_default();
        (file.term, file.leader, file.index) = (id.term, id.leader, id.index);
        file.membership = membership;
        let installed = Inner::of(file.clone(), self.ring_len_max).map_err(invalid)?;
        // IMPORTANT: the disk first. A crash between the two finds the new image and an older log,
        // which raft catches up from there; the other order would lose what was answered.
        self.write_image(&file)?;
        let revision = installed.state.revision();
        *self.inner.lock() = installed;
        self.revision.send_replace(revision);
        Ok(())
    }
}

struct Source {
    log_id: Option<LogId>,
    membership: Bytes,
    rest: Bytes,
}

impl SnapshotSource for Source {
    fn log_id(&self) -> Option<LogId> {
        self.log_id
    }

    fn membership(&self) -> Bytes {
        self.membership.clone()
    }

    fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.rest.split_to(self.rest.len().min(CHUNK_BYTES))))
    }
}
