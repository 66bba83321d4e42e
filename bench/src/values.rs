//! Values: random bytes, so that neither compression nor a dictionary helps anybody.

use bytes::Bytes;
use rand::RngCore;

/// A value of so many bytes.
pub fn value(bytes: usize, rng: &mut impl RngCore) -> Bytes {
    let mut value = vec![0; bytes];
    rng.fill_bytes(&mut value);
    value.into()
}
