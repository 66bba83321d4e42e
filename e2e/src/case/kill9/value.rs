//! Values that say what they are: `id u64 | len u32 | filler made from the id | checksum u64`.

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

const HEAD: usize = 12;
const TAIL: usize = 8;

/// A value of at least `len` bytes.
pub(super) fn encode(id: u64, len: usize) -> Bytes {
    let len = len.max(HEAD + TAIL);
    let mut out = vec![0; len];
    out[..8].copy_from_slice(&id.to_le_bytes());
    out[8..HEAD].copy_from_slice(&(len as u32).to_le_bytes());
    SmallRng::seed_from_u64(id).fill_bytes(&mut out[HEAD..len - TAIL]);
    let sum = checksum(&out[..len - TAIL]);
    out[len - TAIL..].copy_from_slice(&sum.to_le_bytes());
    out.into()
}

/// The id of a value that is whole.
pub(super) fn decode(bytes: &[u8]) -> Option<u64> {
    let id = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
    (bytes.len() >= HEAD + TAIL && encode(id, bytes.len()) == bytes).then_some(id)
}

/// FNV-1a: only to notice bytes that are not ours.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, b| (sum ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_what_it_is_and_whether_it_is_whole() {
        for len in [0, 20, 21, 1000, 20_000] {
            let value = encode(7, len);
            assert_eq!(decode(&value), Some(7));
            assert_eq!(decode(&value[..value.len() - 1]), None);
            let mut bad = value.to_vec();
            bad[len / 2] ^= 1;
            assert_ne!(decode(&bad), Some(7));
        }
        assert_eq!(decode(b""), None);
    }
}
