//! What was written, per key: the last acknowledged value, and those whose fate is not known.
//!
//! A key has at most one request in flight, so what a read must find is certain: the last acknowledged
//! value, or one written later (or before, if it was Ambiguous) that was never acknowledged.
//! A value says which write made it, so a value of another key or a torn one is seen.

use rand::Rng;

const VALUE_BYTES_MIN: usize = 300;
const VALUE_BYTES_MAX: usize = 4096;
/// Keys drawn before a tick is given up because all of them had a request in flight.
const DRAWS_MAX: usize = 50;

/// Which write: counts up over all keys of a book.
pub type Stamp = u64;

#[derive(Clone, Debug, Default)]
struct Entry {
    busy: bool,
    acked: Option<Stamp>,
    maybe: Vec<Stamp>,
}

/// All keys of one kind of client.
#[derive(Debug)]
pub struct Book {
    prefix: String,
    seed: u64,
    entries: Vec<Entry>,
    next: Stamp,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// It is there for good.
    Acknowledged,
    /// It may be there.
    Unknown,
}

impl Book {
    /// `keys` keys, none written.
    pub fn new(prefix: &str, seed: u64, keys: usize) -> Book {
        let entries = vec![Entry::default(); keys];
        Book { prefix: prefix.into(), seed, entries, next: 0, acknowledged: 0 }
    }

    /// A random key without a request in flight; it has one from now on.
    pub fn take(&mut self, rng: &mut impl Rng) -> Option<usize> {
        for _ in 0..DRAWS_MAX {
            let n = rng.random_range(0..self.entries.len());
            if !self.entries[n].busy {
                self.entries[n].busy = true;
                return Some(n);
            }
        }
        None
    }

    /// The key's name.
    pub fn key(&self, n: usize) -> String {
        format!("{}-{n:06}", self.prefix)
    }

    /// The stamp and the value of the next write to a key.
    pub fn next_write(&mut self, n: usize) -> (Stamp, Vec<u8>) {
        self.next += 1;
        (self.next, value(self.seed, n, self.next))
    }

    /// A write came to its end.
    pub fn wrote(&mut self, n: usize, stamp: Stamp, how: Wrote) {
        let entry = &mut self.entries[n];
        entry.busy = false;
        match how {
            Wrote::Acknowledged => {
                entry.acked = Some(stamp);
                self.acknowledged += 1;
            }
            Wrote::Unknown => entry.maybe.push(stamp),
        }
    }

    /// A read came to its end; what is wrong with what it found.
    pub fn read(&mut self, n: usize, found: Option<&[u8]>) -> Option<String> {
        self.entries[n].busy = false;
        self.judge(n, found)
    }

    /// A read failed.
    pub fn gave_up_reading(&mut self, n: usize) {
        self.entries[n].busy = false;
    }

    /// Keys that must be there.
    pub fn written(&self) -> impl Iterator<Item = usize> + '_ {
        self.entries.iter().enumerate().filter(|(_, entry)| entry.acked.is_some()).map(|(n, _)| n)
    }

    /// What is wrong with a value that was found under a key; none: nothing is.
    pub fn judge(&self, n: usize, found: Option<&[u8]>) -> Option<String> {
        let entry = &self.entries[n];
        let key = self.key(n);
        let Some(found) = found else {
            let stamp = entry.acked?;
            return Some(format!("{key}: write {stamp} was acknowledged and the key is not there"));
        };
        let Some(stamp) = stamp_of(found) else {
            return Some(format!("{key}: a value of {} bytes that nobody wrote", found.len()));
        };
        if value(self.seed, n, stamp) != found {
            return Some(format!("{key}: the value of write {stamp} is not what was written"));
        }
        if entry.acked == Some(stamp) || entry.maybe.contains(&stamp) {
            return None;
        }
        Some(format!("{key}: holds write {stamp}, the last acknowledged one is {:?}", entry.acked))
    }
}

/// `seed/key/stamp/` and a pattern of it, 300 to 4,096 bytes.
fn value(seed: u64, n: usize, stamp: Stamp) -> Vec<u8> {
    let mixed = (seed ^ stamp.rotate_left(20) ^ n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let len = VALUE_BYTES_MIN + (mixed >> 20) as usize % (VALUE_BYTES_MAX - VALUE_BYTES_MIN + 1);
    let mut value = format!("{seed}/{n}/{stamp}/").into_bytes();
    let mut word = mixed;
    while value.len() < len {
        // Compresses as badly as real data does, not at all.
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.extend(word.to_le_bytes());
    }
    value.truncate(len);
    value
}

fn stamp_of(value: &[u8]) -> Option<Stamp> {
    let stamp = value.split(|byte| *byte == b'/').nth(2)?;
    std::str::from_utf8(stamp).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn book() -> Book {
        Book::new("k", 7, 10)
    }

    #[test]
    fn a_lost_acknowledged_write_is_seen() {
        let mut book = book();
        let (first, old) = book.next_write(3);
        book.wrote(3, first, Wrote::Acknowledged);
        let (second, new) = book.next_write(3);
        book.wrote(3, second, Wrote::Acknowledged);
        assert_eq!(book.judge(3, Some(&new)), None);
        assert!(book.judge(3, Some(&old)).expect("stale").contains("the last acknowledged one is Some(2)"));
        assert!(book.judge(3, None).expect("gone").contains("not there"));
        assert!(book.judge(4, Some(&new)).is_some(), "a value of another key");
        assert_eq!(book.judge(4, None), None, "never written");
    }

    #[test]
    fn a_write_of_unknown_fate_may_be_there_or_not() {
        let mut book = book();
        let (first, old) = book.next_write(0);
        book.wrote(0, first, Wrote::Acknowledged);
        let (second, new) = book.next_write(0);
        book.wrote(0, second, Wrote::Unknown);
        assert_eq!(book.judge(0, Some(&old)), None);
        assert_eq!(book.judge(0, Some(&new)), None);
        assert!(book.judge(0, Some(&new[..new.len() - 1])).is_some(), "torn");
    }

    #[test]
    fn a_key_has_one_request_at_a_time() {
        let mut book = book();
        let mut rng = StdRng::seed_from_u64(1);
        let mut taken: Vec<usize> = std::iter::from_fn(|| book.take(&mut rng)).collect();
        taken.sort_unstable();
        let unique = taken.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(unique && taken.len() > 5, "{taken:?}");
        book.gave_up_reading(taken[0]);
        assert_eq!(std::iter::from_fn(|| book.take(&mut rng)).count(), 1);
    }

    #[test]
    fn values_have_the_sizes_of_small_records() {
        let sizes: Vec<usize> = (0..500).map(|n| value(1, n, n as u64 + 1).len()).collect();
        assert!(sizes.iter().all(|n| (VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(n)));
        assert!(sizes.iter().any(|n| *n < 600) && sizes.iter().any(|n| *n > 3700));
    }
}
