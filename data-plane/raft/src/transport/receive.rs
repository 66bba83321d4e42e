//! The receiving end of a snapshot: chunks go into the machine as they come.

use crate::codec;
use crate::group::Group;
use crate::kinds::{SnapshotMeta, Vote};
use crate::state_machine::{Shared, SnapshotData};
use crate::storage::blocking;
use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::Streaming;
use undb_proto::v1::SnapshotChunk;

/// A sender that is silent for so long is gone.
const CHUNK_WITHIN: Duration = Duration::from_secs(60);

enum Piece {
    Chunk(Bytes),
    Broken(io::Error),
    End,
}

/// Installs the snapshot that begins with `first`; the encoded reply.
pub(super) async fn receive(
    group: &Group,
    vote: Vote,
    meta: SnapshotMeta,
    first: SnapshotChunk,
    rest: Streaming<SnapshotChunk>,
) -> io::Result<Bytes> {
    let raft = &group.inner.raft;
    let known = raft.metrics().borrow_watched().vote;
    if known > vote {
        // From a leader that is none any more: it learns so before it sends everything.
        return Ok(codec::encode_snapshot_reply(&openraft::raft::SnapshotResponse::new(known)));
    }
    install(group.inner.shared.clone(), meta.clone(), first, rest).await?;
    let snapshot = crate::kinds::Snapshot { meta, snapshot: SnapshotData::Installed };
    let reply = raft.install_full_snapshot(vote, snapshot).await.map_err(io::Error::other)?;
    Ok(codec::encode_snapshot_reply(&reply))
}

async fn install(
    shared: Shared,
    meta: SnapshotMeta,
    first: SnapshotChunk,
    rest: Streaming<SnapshotChunk>,
) -> io::Result<()> {
    let (tx, rx) = mpsc::channel(2);
    // When this future is dropped, `tx` is too, and the installation ends with an error.
    let installing = blocking(move || shared.receive(&meta, &mut Pieces { rx, over: false }));
    let (installed, ()) = tokio::join!(installing, pump(first, rest, tx));
    installed
}

async fn pump(first: SnapshotChunk, mut rest: Streaming<SnapshotChunk>, tx: mpsc::Sender<Piece>) {
    let mut next = Some(first);
    loop {
        let chunk = match next.take() {
            Some(chunk) => Ok(chunk),
            None => next_chunk(&mut rest).await,
        };
        let piece = match chunk {
            Ok(chunk) if chunk.crc32c != crc32c::crc32c(&chunk.data) => {
                Piece::Broken(io::Error::new(io::ErrorKind::InvalidData, "a chunk's checksum does not match"))
            }
            Ok(chunk) if chunk.last && chunk.data.is_empty() => Piece::End,
            Ok(SnapshotChunk { data, last, .. }) => {
                if tx.send(Piece::Chunk(data)).await.is_err() {
                    return;
                }
                if !last {
                    continue;
                }
                Piece::End
            }
            Err(e) => Piece::Broken(e),
        };
        // The installation may have ended before: it had enough.
        let _ = tx.send(piece).await;
        return;
    }
}

async fn next_chunk(rest: &mut Streaming<SnapshotChunk>) -> io::Result<SnapshotChunk> {
    match tokio::time::timeout(CHUNK_WITHIN, rest.message()).await {
        Ok(Ok(Some(chunk))) => Ok(chunk),
        Ok(Ok(None)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(Err(status)) => Err(io::Error::other(status)),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// The chunks, for a thread that may block. Ends well only after the sender's last chunk.
struct Pieces {
    rx: mpsc::Receiver<Piece>,
    over: bool,
}

impl Iterator for Pieces {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        match self.rx.blocking_recv() {
            Some(Piece::Chunk(data)) => Some(Ok(data)),
            Some(Piece::End) => {
                self.over = true;
                None
            }
            Some(Piece::Broken(e)) => {
                self.over = true;
                Some(Err(e))
            }
            None => {
                self.over = true;
                Some(Err(io::ErrorKind::UnexpectedEof.into()))
            }
        }
    }
}
