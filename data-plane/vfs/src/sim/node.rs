//! One file: the real one holds what is durable, blocks in memory what was written since.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, RngCore};

use super::fault::{Crashed, OpKind, Verdict};
use super::{SimFs, prefix};
use crate::counters::Class;
use crate::{File, OpenHow};

const BLOCK: u64 = 4096;
const SECTOR: usize = 512;

#[derive(Debug)]
pub(super) struct Node {
    real: fs::File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    len: u64,
    /// Real bytes from here on read as zeros: the file was cut and perhaps extended again.
    real_visible: u64,
    blocks: BTreeMap<u64, Block>,
    allocated: u64,
}

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    /// A failed sync dropped it: still readable, never durable.
    lost: bool,
}

impl Node {
    pub(super) fn new(real: fs::File) -> io::Result<Self> {
        let len = real.metadata()?.len();
        let state = State { len, real_visible: len, blocks: BTreeMap::new(), allocated: len };
        Ok(Node { real, state: Mutex::new(state) })
    }

    /// Takes over what somebody wrote to the real file by another way.
    pub(super) fn refresh(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.blocks.is_empty() && state.len == state.real_visible {
            let len = self.real.metadata()?.len();
            (state.len, state.real_visible, state.allocated) = (len, len, state.allocated.max(len));
        }
        Ok(())
    }

    pub(super) fn is_dirty(&self) -> bool {
        let state = self.state.lock();
        !state.blocks.is_empty() || state.len != state.real_visible
    }

    pub(super) fn allocated(&self) -> u64 {
        self.state.lock().allocated
    }

    pub(super) fn flip(&self, offset: u64, mask: u8) -> io::Result<()> {
        let mut state = self.state.lock();
        if offset >= state.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(block) = state.blocks.get_mut(&(offset / BLOCK)) {
            block.bytes[(offset % BLOCK) as usize] ^= mask;
        }
        if offset < self.real.metadata()?.len() {
            let mut byte = [0];
            self.real.read_exact_at(&mut byte, offset)?;
            self.real.write_all_at(&[byte[0] ^ mask], offset)?;
        }
        Ok(())
    }

    /// One block as it reads now.
    fn block(&self, state: &State, at: u64) -> io::Result<Vec<u8>> {
        if let Some(block) = state.blocks.get(&at) {
            return Ok(block.bytes.clone());
        }
        self.real_block(at, state.real_visible)
    }

    fn real_block(&self, at: u64, visible: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; BLOCK as usize];
        let have = visible.saturating_sub(at * BLOCK).min(BLOCK) as usize;
        self.real.read_exact_at(&mut bytes[..have], at * BLOCK)?;
        Ok(bytes)
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.state.lock();
        let end = offset.checked_add(buf.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        if end > state.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if state.blocks.is_empty() && end <= state.real_visible {
            return self.real.read_exact_at(buf, offset);
        }
        let mut at = offset;
        while at < end {
            let block = self.block(&state, at / BLOCK)?;
            let from = (at % BLOCK) as usize;
            let take = (BLOCK as usize - from).min((end - at) as usize);
            let to = (at - offset) as usize;
            buf[to..to + take].copy_from_slice(&block[from..from + take]);
            at += take as u64;
        }
        Ok(())
    }

    /// Writes what `granted` bytes of growth allow; the rest is `StorageFull`, as a short write is.
    fn write(&self, bytes: &[u8], offset: u64, take: impl FnOnce(u64) -> u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let end = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        let want = end.saturating_sub(state.allocated);
        let granted = take(want);
        state.allocated += granted;
        let end = end.min(if want > granted { state.allocated.max(offset) } else { end });
        let bytes_fit = &bytes[..(end - offset) as usize];
        let mut at = offset;
        while at < end {
            let mut block = self.block(&state, at / BLOCK)?;
            let into = (at % BLOCK) as usize;
            let len = (BLOCK as usize - into).min((end - at) as usize);
            let from = (at - offset) as usize;
            block[into..into + len].copy_from_slice(&bytes_fit[from..from + len]);
            state.blocks.insert(at / BLOCK, Block { bytes: block, lost: false });
            at += len as u64;
        }
        state.len = state.len.max(end);
        if want > granted { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn set_len(&self, len: u64) -> u64 {
        let mut state = self.state.lock();
        if len < state.len {
            state.blocks.retain(|at, _| at * BLOCK < len);
            if let Some(block) = state.blocks.get_mut(&(len / BLOCK)) {
                block.bytes[(len % BLOCK) as usize..].fill(0);
            }
            state.real_visible = state.real_visible.min(len);
        }
        state.len = len;
        let freed = state.allocated.saturating_sub(len);
        state.allocated -= freed;
        freed
    }

    fn allocate(
        &self,
        len: u64,
        take: impl FnOnce(u64) -> u64,
        give_back: impl FnOnce(u64),
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        let want = len.saturating_sub(state.allocated);
        let granted = take(want);
        if granted < want {
            give_back(granted);
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.allocated += granted;
        state.len = state.len.max(len);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.real_visible < self.real.metadata()?.len() {
            self.real.set_len(state.real_visible)?;
        }
        self.real.set_len(state.len)?;
        let mut blocks = std::mem::take(&mut state.blocks);
        for (at, block) in &blocks {
            if !block.lost {
                let len = state.len.saturating_sub(at * BLOCK).min(BLOCK) as usize;
                self.real.write_all_at(&block.bytes[..len], at * BLOCK)?;
            }
        }
        blocks.retain(|_, block| block.lost);
        state.blocks = blocks;
        state.real_visible = state.len;
        Ok(())
    }

    fn fail_sync(&self) {
        for block in self.state.lock().blocks.values_mut() {
            block.lost = true;
        }
    }

    /// Lets a random part of what was not synced reach the real file.
    pub(super) fn lose(&self, rng: &mut StdRng) {
        let state = self.state.lock();
        let Ok(old_len) = self.real.metadata().map(|m| m.len()) else { return };
        let cut = state.real_visible < old_len;
        let mode = rng.random_range(0..4);
        let (mut len, mut visible) = (old_len, old_len);
        let takes_len = mode == 1 || (mode > 1 && rng.random_bool(0.7));
        if takes_len && (cut || state.len != old_len) {
            visible = state.real_visible;
            let grown = state.len.saturating_sub(visible) as usize;
            len = visible + if mode == 1 { grown } else { prefix(rng, grown) } as u64;
        }
        let _ = self.real.set_len(visible.min(old_len));
        let _ = self.real.set_len(len);
        for (at, block) in &state.blocks {
            let start = at * BLOCK;
            if block.lost || start >= len || mode == 0 {
                continue;
            }
            let Ok(mut bytes) = self.real_block(*at, len) else { continue };
            // Blocks that were never durable may show what the disk held before.
            let fate = if mode == 1 { 0 } else { rng.random_range(0..if start >= old_len { 5 } else { 4 }) };
            match fate {
                0 | 1 => bytes.copy_from_slice(&block.bytes),
                2 => continue,
                3 => {
                    for (old, new) in bytes.chunks_mut(SECTOR).zip(block.bytes.chunks(SECTOR)) {
                        if rng.random_bool(0.5) {
                            old.copy_from_slice(new);
                        }
                    }
                }
                _ => rng.fill_bytes(&mut bytes),
            }
            let keep = (len - start).min(BLOCK) as usize;
            let _ = self.real.write_all_at(&bytes[..keep], start);
        }
    }
}

#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) fs: SimFs,
    pub(super) node: Arc<Node>,
    pub(super) class: Arc<Class>,
    pub(super) path: PathBuf,
    pub(super) how: OpenHow,
}

impl SimFile {
    fn run<T>(&self, kind: OpKind, body: impl FnOnce(&Node) -> io::Result<T>) -> io::Result<T> {
        let writes = matches!(kind, OpKind::Write | OpKind::Resize);
        if writes && self.how == OpenHow::Read {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.fs.run(kind, &self.path, |_| body(&self.node))
    }
}

impl File for SimFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.run(OpKind::Read, |node| node.read(buf, offset))
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.run(OpKind::Write, |node| node.write(bytes, offset, |want| self.fs.shared.take(want)))?;
        self.class.wrote(bytes.len());
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let _running = self.fs.shared.disk.running.read();
        self.class.synced();
        match self.fs.shared.gate.enter(OpKind::Sync, &self.path) {
            Ok(Verdict::Go) => self.node.sync(),
            // Nothing is for sure; the loss decides.
            Ok(Verdict::GoAndCrash) => Err(Crashed::error()),
            Err(error) => {
                if !self.fs.crashed() {
                    self.node.fail_sync();
                }
                Err(error)
            }
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.run(OpKind::Read, |node| Ok(node.state.lock().len))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.run(OpKind::Resize, |node| {
            let freed = node.set_len(len);
            self.fs.shared.give_back(freed);
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let shared = &self.fs.shared;
        self.run(OpKind::Resize, |node| {
            node.allocate(len, |want| shared.take(want), |back| shared.give_back(back))
        })
    }
}
