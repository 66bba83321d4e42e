//! Files with a header that says what they are, of which version, and whether they are whole.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic |
//! | 8..12 | format version, u32 LE |
//! | 12..16 | crc32c of the body, u32 LE |
//! | 16..24 | length of the body, u64 LE |
//! | 24.. | body |

use crate::ServerError;
use std::path::Path;

const HEADER_LEN: usize = 24;

/// What a kind of file begins with, and the highest version of it that this build knows.
pub(crate) struct Seal {
    pub magic: &'static [u8; 8],
    pub version: u32,
    /// Completes "it is not ...".
    pub what: &'static str,
}

impl Seal {
    /// The file's bytes.
    pub fn wrap(&self, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN + body.len());
        out.extend_from_slice(self.magic);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
        out.extend_from_slice(&(body.len() as u64).to_le_bytes());
        out.extend_from_slice(body);
        out
    }

    /// The body of the bytes of the file at `path`.
    pub fn unwrap<'a>(&self, bytes: &'a [u8], path: &Path) -> Result<&'a [u8], ServerError> {
        let damaged = |problem: String| ServerError::Damaged { path: path.into(), problem };
        let header = bytes.get(..HEADER_LEN).ok_or_else(|| damaged("it is cut off".into()))?;
        if &header[..8] != self.magic {
            return Err(damaged(format!("it is not {}", self.what)));
        }
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let found = word(8);
        if found > self.version {
            return Err(ServerError::NewerFormat { path: path.into(), found, supported: self.version });
        }
        let body = &bytes[HEADER_LEN..];
        let len = u64::from(word(16)) | (u64::from(word(20)) << 32);
        if body.len() as u64 != len {
            return Err(damaged(format!("its body has {} bytes instead of {len}", body.len())));
        }
        if crc32c::crc32c(body) != word(12) {
            return Err(damaged("its checksum does not match".into()));
        }
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEAL: Seal = Seal { magic: b"UNDBTEST", version: 2, what: "a test file" };

    #[test]
    fn every_changed_byte_of_a_sealed_file_is_found() {
        let path = Path::new("f");
        let good = SEAL.wrap(b"some body");
        assert_eq!(SEAL.unwrap(&good, path).expect("whole"), b"some body");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            // A lower version is a valid older file; its body is still checked.
            if (8..12).contains(&at) {
                continue;
            }
            assert!(SEAL.unwrap(&bad, path).is_err(), "byte {at}");
            assert!(SEAL.unwrap(&good[..at], path).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_newer_version_is_named_with_a_next_step() {
        let newer = Seal { version: 3, ..SEAL }.wrap(b"x");
        let text = SEAL.unwrap(&newer, Path::new("image")).expect_err("newer").to_string();
        assert!(
            text.contains("format version 3") && text.contains("up to 2") && text.contains("start the build"),
            "{text}"
        );
    }
}
