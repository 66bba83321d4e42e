//! Which waiting commands share the next log entry. Pure.
//!
//! ## Invariants
//! - No two commands of one entry touch the same key or carry the same request id: all mutations of
//!   an entry get one version, and a version is a compare-and-set token.
//! - Commands that touch the same key enter entries in the order in which they arrived.
//! - A command that touches a range is alone.
//! - An entry stays within the bounds unless its only command is larger.

use std::collections::{HashSet, VecDeque};
use undb_engine::command::{Action, Command, Op, encoded_len};

/// Bounds of one entry.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most commands.
    pub commands: usize,
    /// Most bytes.
    pub bytes: usize,
    /// Most commands that wait; further ones are refused.
    pub queue: usize,
}

/// Commands that wait, each with what its answer needs.
pub struct Batcher<T> {
    bounds: Bounds,
    queue: VecDeque<Waiting<T>>,
}

struct Waiting<T> {
    command: Command,
    bytes: usize,
    token: T,
}

/// The content of one entry.
pub struct Batch<T> {
    /// In order of execution.
    pub commands: Vec<Command>,
    /// One per command.
    pub tokens: Vec<T>,
    /// About the size of the payload.
    pub bytes: usize,
}

// How far `next` looks past commands that cannot join, so that one hot key does not cost a scan of
// the whole queue for every entry.
const LOOK_AHEAD: usize = 4096;

impl<T> Batcher<T> {
    /// Nothing waits.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, queue: VecDeque::new() }
    }

    /// Adds a command; gives the token back when too many wait.
    pub fn push(&mut self, command: Command, token: T) -> Result<(), T> {
        if self.queue.len() >= self.bounds.queue {
            return Err(token);
        }
        let bytes = encoded_len(&command);
        self.queue.push_back(Waiting { command, bytes, token });
        Ok(())
    }

    /// Takes everything out, for refusing it.
    pub fn drain(&mut self) -> Vec<T> {
        self.queue.drain(..).map(|w| w.token).collect()
    }

    /// The next entry; none when nothing waits.
    pub fn next(&mut self) -> Option<Batch<T>> {
        let mut batch = Batch { commands: Vec::new(), tokens: Vec::new(), bytes: 0 };
        let mut seen = Footprint::default();
        let mut left = VecDeque::new();
        let mut full = false;
        while let Some(waiting) = self.queue.pop_front() {
            let fits = batch.commands.is_empty() || batch.bytes + waiting.bytes <= self.bounds.bytes;
            full |= !fits || batch.commands.len() >= self.bounds.commands || seen.everything;
            if full || left.len() >= LOOK_AHEAD {
                self.queue.push_front(waiting);
                break;
            }
            // What is left behind is seen too, or a later command would overtake it on its key.
            if !seen.add(&waiting.command, batch.commands.is_empty() && left.is_empty()) {
                left.push_back(waiting);
                continue;
            }
            batch.bytes += waiting.bytes;
            batch.commands.push(waiting.command);
            batch.tokens.push(waiting.token);
        }
        while let Some(waiting) = left.pop_back() {
            self.queue.push_front(waiting);
        }
        (!batch.commands.is_empty()).then_some(batch)
    }
}

#[derive(Default)]
struct Footprint {
    keys: HashSet<bytes::Bytes>,
    requests: HashSet<(u64, u64)>,
    everything: bool,
}

impl Footprint {
    /// Adds what a command touches; false when some of it was there before.
    fn add(&mut self, command: &Command, first: bool) -> bool {
        let Action::Write(mutations) = &command.action else {
            return true;
        };
        if mutations.iter().any(|m| matches!(m.op, Op::DeleteRange { .. })) {
            self.everything = true;
            return first;
        }
        let mut free = command.request.is_none_or(|r| self.requests.insert((r.client, r.seq)));
        let own: HashSet<_> = mutations.iter().map(|m| m.key.clone()).collect();
        for key in own {
            free &= self.keys.insert(key);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use undb_engine::command::{Mutation, RequestId};

    fn bounds() -> Bounds {
        Bounds { commands: 4, bytes: 1000, queue: 100 }
    }

    fn put(key: &str, len: usize) -> Command {
        Command::write(vec![Mutation::put(key.to_owned(), vec![0; len])])
    }

    fn batches(commands: Vec<Command>) -> Vec<Vec<usize>> {
        let mut batcher = Batcher::new(bounds());
        for (i, command) in commands.into_iter().enumerate() {
            batcher.push(command, i).expect("room");
        }
        std::iter::from_fn(|| batcher.next().map(|b| b.tokens)).collect()
    }

    #[test]
    fn commands_of_different_keys_share_an_entry_up_to_the_bounds() {
        let many = (0..6).map(|i| put(&format!("k{i}"), 1)).collect();
        assert_eq!(batches(many), vec![vec![0, 1, 2, 3], vec![4, 5]]);
        let large = vec![put("a", 600), put("b", 600), put("c", 5000), put("d", 1)];
        assert_eq!(batches(large), vec![vec![0], vec![1], vec![2], vec![3]]);
    }

    #[test]
    fn commands_of_one_key_enter_different_entries_in_their_order() {
        let commands = vec![put("a", 1), put("a", 2), put("b", 1), put("a", 3)];
        assert_eq!(batches(commands), vec![vec![0, 2], vec![1], vec![3]]);
    }

    #[test]
    fn a_command_does_not_overtake_one_that_was_left_behind() {
        let two = Command::write(vec![Mutation::put("a", "1"), Mutation::put("b", "1")]);
        assert_eq!(batches(vec![put("a", 1), two, put("b", 2)]), vec![vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn one_request_id_is_never_twice_in_an_entry() {
        let with_id = |key: &str| {
            let request = Some(RequestId { client: 1, seq: 1, first_attempt_ms: 1 });
            Command { request, ..put(key, 1) }
        };
        assert_eq!(batches(vec![with_id("a"), with_id("a")]), vec![vec![0], vec![1]]);
    }

    #[test]
    fn a_range_is_alone_and_nothing_passes_it() {
        let range = Command::write(vec![Mutation::new("a", Op::DeleteRange { end: "z".into() })]);
        assert_eq!(batches(vec![put("a", 1), range, put("b", 1)]), vec![vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn a_full_queue_gives_the_token_back() {
        let mut batcher = Batcher::new(Bounds { queue: 1, ..bounds() });
        assert_eq!(batcher.push(put("a", 1), 1), Ok(()));
        assert_eq!(batcher.push(put("b", 1), 2), Err(2));
    }

    proptest! {
        #[test]
        fn every_command_is_sent_once_and_keys_keep_their_order(keys in proptest::collection::vec(0u8..6, 0..60)) {
            let sent = batches(keys.iter().map(|k| put(&k.to_string(), 1)).collect());
            for batch in &sent {
                let distinct: HashSet<u8> = batch.iter().map(|i| keys[*i]).collect();
                prop_assert_eq!(distinct.len(), batch.len());
            }
            let flat: Vec<usize> = sent.concat();
            for key in 0..6 {
                let order: Vec<usize> = flat.iter().copied().filter(|i| keys[*i] == key).collect();
                prop_assert!(order.is_sorted());
            }
            let mut all = flat;
            all.sort_unstable();
            prop_assert_eq!(all, (0..keys.len()).collect::<Vec<_>>());
        }
    }
}
