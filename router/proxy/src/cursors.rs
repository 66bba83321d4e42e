//! Positions of SCANs under way: a Redis cursor is a number, ours are keys.
//!
//! Kept in this process only, and only the newest: a client that comes back later than 10,000 other
//! pages, or to another proxy, is told that its cursor is invalid and begins again.

use crate::Failure;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};

const CURSORS_MAX: usize = 10_000;

/// Numbered positions. Cursors stay valid when taken, so that a repeated call finds the same page.
#[derive(Debug, Default)]
pub struct Cursors {
    // Leaf lock.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    at: HashMap<u64, Bytes>,
    oldest_first: VecDeque<u64>,
}

impl Cursors {
    /// A number for a position.
    pub fn put(&self, position: Bytes) -> u64 {
        let cursor = rand::random::<u64>() >> 1 | 1; // positive as an i64, never 0
        let mut state = self.state.lock();
        if state.oldest_first.len() >= CURSORS_MAX
            && let Some(oldest) = state.oldest_first.pop_front()
        {
            state.at.remove(&oldest);
        }
        state.oldest_first.push_back(cursor);
        state.at.insert(cursor, position);
        cursor
    }

    /// The position of a number; 0 is the beginning.
    pub fn take(&self, cursor: u64) -> Result<Option<Bytes>, Failure> {
        if cursor == 0 {
            return Ok(None);
        }
        let found = self.state.lock().at.get(&cursor).cloned();
        found.map(Some).ok_or(Failure::new("ERR invalid cursor"))
    }
}
