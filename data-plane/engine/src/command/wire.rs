//! Reading little-endian fields from bytes that may be anything.

use bytes::{BufMut, Bytes};

/// Bytes that are not what their place says they are. Always corruption or a newer writer: entries
/// are encoded by our own leaders and checksummed by the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Written by a newer UNDB.
    #[error("{what} has format version {found}, this build reads up to {known}: start the newer build again")]
    Version {
        /// What was read.
        what: &'static str,
        /// Its version.
        found: u8,
        /// The newest version this build knows.
        known: u8,
    },
    /// Ends too early.
    #[error("{what} is cut off at byte {at}")]
    Short {
        /// What was read.
        what: &'static str,
        /// Where it ended.
        at: usize,
    },
    /// A field has a value it cannot have.
    #[error("{what} has {field} {found} at byte {at}")]
    Field {
        /// What was read.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// What it holds.
        found: u64,
        /// Where it lies.
        at: usize,
    },
    /// A value record is cut off, or its checksum does not match.
    #[error("{what} has a bad value record at byte {at}")]
    Record {
        /// What was read.
        what: &'static str,
        /// Where the record begins.
        at: usize,
    },
}

/// A cursor over one message.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    what: &'static str,
    all: &'a Bytes,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, all: &'a Bytes) -> Self {
        Self { what, all, at: 0 }
    }

    /// Where the next read begins.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn remaining(&self) -> usize {
        self.all.len() - self.at
    }

    /// `field` of the last `width` bytes read cannot be `found`.
    pub(crate) fn bad(&self, field: &'static str, found: u64, width: usize) -> FormatError {
        FormatError::Field { what: self.what, field, found, at: self.at.saturating_sub(width) }
    }

    pub(crate) fn bad_record(&self, at: usize) -> FormatError {
        FormatError::Record { what: self.what, at }
    }

    /// All that was not read yet.
    pub(crate) fn rest(&self) -> Bytes {
        self.all.slice(self.at..)
    }

    pub(crate) fn version(&mut self, known: u8) -> Result<(), FormatError> {
        match self.u8()? {
            found if found > known => Err(FormatError::Version { what: self.what, found, known }),
            0 => Err(self.bad("format version", 0, 1)),
            _ => Ok(()),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let rest = self.all.get(self.at..).unwrap_or_default();
        let Some((head, _)) = rest.split_first_chunk::<N>() else {
            return Err(FormatError::Short { what: self.what, at: self.all.len() });
        };
        self.at += N;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, FormatError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A boolean byte: 0 or 1.
    pub(crate) fn flag(&mut self, field: &'static str) -> Result<bool, FormatError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.bad(field, other.into(), 1)),
        }
    }

    /// How many of something follow, each of at least `bytes_min` bytes: refuses counts that the rest
    /// cannot hold, so that nobody reserves memory for them.
    pub(crate) fn count(&mut self, field: &'static str, bytes_min: usize) -> Result<usize, FormatError> {
        let count = self.u32()?;
        if (count as usize).saturating_mul(bytes_min) > self.remaining() {
            return Err(self.bad(field, count.into(), 4));
        }
        Ok(count as usize)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<Bytes, FormatError> {
        if len > self.remaining() {
            return Err(FormatError::Short { what: self.what, at: self.all.len() });
        }
        let bytes = self.all.slice(self.at..self.at + len);
        self.at += len;
        Ok(bytes)
    }

    /// A length (u32) and that many bytes.
    pub(crate) fn bytes(&mut self) -> Result<Bytes, FormatError> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    pub(crate) fn end(&self) -> Result<(), FormatError> {
        match self.remaining() {
            0 => Ok(()),
            n => Err(FormatError::Field {
                what: self.what,
                field: "trailing bytes",
                found: n as u64,
                at: self.at,
            }),
        }
    }
}

/// A length (u32) and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u32_le(bytes.len() as u32);
    out.put_slice(bytes);
}
