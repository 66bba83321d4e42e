//! Which key is next.

use bytes::Bytes;
use rand::Rng;

const THETA: f64 = 0.99;

/// YCSB's scrambled Zipfian: few keys are hot, and the hot ones lie anywhere in the key space.
#[derive(Clone, Debug)]
pub struct Zipf {
    keys: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// Over `keys` keys, at least one. Takes time linear in `keys`, once.
    pub fn new(keys: u64) -> Self {
        let keys = keys.max(1);
        let all = zeta(keys);
        let alpha = 1.0 / (1.0 - THETA);
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - THETA)) / (1.0 - zeta(2.min(keys)) / all);
        Self { keys, zeta: all, alpha, eta }
    }

    /// The next key's number, 0 to `keys - 1`.
    pub fn next(&self, rng: &mut impl Rng) -> u64 {
        scramble(self.rank(rng)) % self.keys
    }

    fn rank(&self, rng: &mut impl Rng) -> u64 {
        let u: f64 = rng.random();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(THETA) {
            return 1.min(self.keys - 1);
        }
        let rank = self.keys as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.keys - 1)
    }
}

fn zeta(n: u64) -> f64 {
    (1..=n).map(|i| 1.0 / (i as f64).powf(THETA)).sum()
}

/// FNV-1a over the eight bytes, as YCSB does.
pub fn scramble(n: u64) -> u64 {
    n.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// The name of key number `n`: hashed, so that a load spreads over range shards.
pub fn name(n: u64) -> Bytes {
    format!("user{:020}", scramble(n)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use std::collections::HashMap;

    #[test]
    fn few_keys_are_hot_and_all_are_in_range() {
        let zipf = Zipf::new(10_000);
        let mut rng = StdRng::seed_from_u64(1);
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for _ in 0..100_000 {
            let key = zipf.next(&mut rng);
            assert!(key < 10_000);
            *counts.entry(key).or_default() += 1;
        }
        let mut sorted: Vec<u64> = counts.values().copied().collect();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u64 = sorted[..100].iter().sum();
        assert!((45_000..65_000).contains(&hot), "the hottest 1% took {hot} of 100,000");
    }

    #[test]
    fn one_key_is_enough() {
        let mut rng = StdRng::seed_from_u64(1);
        assert_eq!(Zipf::new(1).next(&mut rng), 0);
    }
}
