//! Values: incompressible, different at every write, cheap to make.

use bytes::{Bytes, BytesMut};
use rand::RngCore;

/// Slices of one random block, so that making a value costs a copy and not a random number a byte.
#[derive(Clone, Debug)]
pub struct Values {
    block: Bytes,
    value_bytes: usize,
}

impl Values {
    /// Values of `value_bytes` each.
    pub fn new(value_bytes: usize, rng: &mut impl RngCore) -> Self {
        let mut block = vec![0; value_bytes * 2 + 4096];
        rng.fill_bytes(&mut block);
        Self { block: block.into(), value_bytes }
    }

    /// The next value: part of the block, made unique at its front.
    pub fn next(&self, rng: &mut impl RngCore) -> Bytes {
        let from = rng.next_u32() as usize % (self.block.len() - self.value_bytes + 1);
        let mut value = BytesMut::from(&self.block[from..from + self.value_bytes]);
        let unique = rng.next_u64().to_le_bytes();
        let front = unique.len().min(value.len());
        value[..front].copy_from_slice(&unique[..front]);
        value.freeze()
    }
}
