//! Integers and optional positions as bytes.

use undb_types::{GroupId, LogId, ReplicaId, ShardId};

/// Bytes that do not decode: which field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0}")]
pub struct Malformed(pub &'static str);

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_group(out: &mut Vec<u8>, group: GroupId) {
    put_varint(out, group.shard.0);
    put_varint(out, group.replica.0);
}

pub fn put_log_id(out: &mut Vec<u8>, id: LogId) {
    put_varint(out, id.term);
    put_varint(out, id.leader);
    put_varint(out, id.index);
}

pub fn put_option_log_id(out: &mut Vec<u8>, id: Option<LogId>) {
    match id {
        None => out.push(0),
        Some(id) => {
            out.push(1);
            put_log_id(out, id);
        }
    }
}

pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a byte string from front to back; every method refuses what is not there.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed(field))?;
        self.0 = rest;
        Ok(head)
    }

    pub fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        Ok(self.take(1, field)?[0])
    }

    pub fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        let bytes = self.take(4, field)?;
        Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| Malformed(field))?))
    }

    pub fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        let bytes = self.take(8, field)?;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| Malformed(field))?))
    }

    pub fn varint(&mut self, field: &'static str) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(field)?;
            let part = u64::from(byte & 0x7F);
            if shift == 63 && part > 1 {
                return Err(Malformed(field));
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                // One spelling per number, so that re-encoding gives the same bytes.
                return if byte == 0 && shift > 0 { Err(Malformed(field)) } else { Ok(value) };
            }
        }
        Err(Malformed(field))
    }

    pub fn group(&mut self) -> Result<GroupId, Malformed> {
        let shard = ShardId(self.varint("shard")?);
        Ok(GroupId { shard, replica: ReplicaId(self.varint("replica")?) })
    }

    pub fn log_id(&mut self, field: &'static str) -> Result<LogId, Malformed> {
        let (term, leader) = (self.varint(field)?, self.varint(field)?);
        Ok(LogId { term, leader, index: self.varint(field)? })
    }

    pub fn option_log_id(&mut self, field: &'static str) -> Result<Option<LogId>, Malformed> {
        match self.u8(field)? {
            0 => Ok(None),
            1 => self.log_id(field).map(Some),
            _ => Err(Malformed(field)),
        }
    }

    pub fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.varint(field)?).map_err(|_| Malformed(field))?;
        self.take(len, field)
    }
}
