//! The bytes on disk: pure encoding and decoding, no I/O.
//!
//! A segment file is `header | frame | frame | ... | footer`; the footer exists once it is sealed. All
//! integers are little-endian; "varint" is LEB128. Every checksum is crc32c XOR a salt made of the log's id
//! and the place, so that bytes of another log, another segment or another offset never validate.

mod footer;
mod frame;
mod record;
mod segment;
mod wire;

pub use footer::{FOOTER_TRAILER_LEN, Footer, FooterGroup};
pub use frame::{FRAME_HEADER_LEN, FRAME_MAGIC, FrameHeader, durable_seq_of_plausible};
pub use record::{Checkpoint, EntryMeta, Record, RunStart, put_entry, put_run_start};
pub use segment::{FORMAT_VERSION, HeaderError, ORIGIN_LOG, SEGMENT_HEADER_LEN, SegmentHeader};
pub use wire::{Malformed, Reader};

/// Temperature classes of segments. Today one stream is open, and it is hot.
pub const CLASS_HOT: u8 = 0;

/// Binds a checksum to its place. SplitMix64's finalizer over the parts: cheap, and every bit counts.
pub fn salt(log_id: u64, segment: u64, offset: u64) -> u32 {
    let mut mixed = 0u64;
    for part in [log_id, segment, offset] {
        mixed = (mixed ^ part).wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
    }
    (mixed ^ (mixed >> 32)) as u32
}
