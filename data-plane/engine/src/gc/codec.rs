//! How values are packed in a data file: raw, or zstd with the file's own dictionary.

use crate::error::{EngineError, Result};
use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::DecoderDictionary;

const LEVEL: i32 = 3;
/// Compression must save more than this share of the bytes.
const GAIN_MIN: f64 = 0.05;
const DICTIONARY_BYTES_MAX: usize = 32 << 10;

/// The packing of one file, before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As they are.
    Raw,
    /// zstd; the dictionary may be empty.
    Zstd {
        /// The dictionary.
        dictionary: Vec<u8>,
    },
}

impl Codec {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Codec::Raw => 0,
            Codec::Zstd { .. } => 1,
        }
    }

    /// The dictionary, or nothing.
    pub fn dictionary(&self) -> &[u8] {
        match self {
            Codec::Raw => &[],
            Codec::Zstd { dictionary } => dictionary,
        }
    }

    /// Picks the packing for `total_bytes` of values like these samples.
    pub fn choose(samples: &[Vec<u8>], total_bytes: u64) -> Codec {
        // Compressed as one piece, the samples share what a dictionary would hold: no gain here, none with one.
        let joined = samples.concat();
        let packed_len = zstd::bulk::compress(&joined, 1).map_or(joined.len(), |packed| packed.len());
        if packed_len as f64 > joined.len() as f64 * (1.0 - GAIN_MIN) {
            return Codec::Raw;
        }
        // Trained on one half, measured on the other: a dictionary always likes what it was trained on.
        let (train, measure): (Vec<_>, Vec<_>) = samples.iter().enumerate().partition(|(i, _)| i % 2 == 0);
        let measure: Vec<&[u8]> = measure.iter().map(|(_, s)| s.as_slice()).collect();
        let train: Vec<&[u8]> = train.iter().map(|(_, s)| s.as_slice()).collect();
        let trained = zstd::dict::from_samples(&train, DICTIONARY_BYTES_MAX).ok();
        let candidates = [Some(Vec::new()), trained].into_iter().flatten();
        let best = candidates
            .map(|dictionary| (gain(&dictionary, &measure, total_bytes), dictionary))
            .max_by(|(a, _), (b, _)| a.total_cmp(b));
        match best {
            Some((gain, dictionary)) if gain > GAIN_MIN => Codec::Zstd { dictionary },
            _ => Codec::Raw,
        }
    }
}

/// The share of `total_bytes` that a dictionary saves, its own size counted.
fn gain(dictionary: &[u8], samples: &[&[u8]], total_bytes: u64) -> f64 {
    let raw_bytes: usize = samples.iter().map(|s| s.len()).sum();
    let Ok(mut compressor) = Compressor::with_dictionary(LEVEL, dictionary) else { return 0.0 };
    let packed_bytes: usize =
        samples.iter().map(|s| compressor.compress(s).map_or(s.len(), |p| p.len())).sum();
    if raw_bytes == 0 || total_bytes == 0 {
        return 0.0;
    }
    1.0 - packed_bytes as f64 / raw_bytes as f64 - dictionary.len() as f64 / total_bytes as f64
}

/// Packs the values of one file.
pub enum Packer {
    /// As they are.
    Raw,
    /// zstd.
    Zstd(Box<Compressor<'static>>),
}

impl Packer {
    /// For a file with this packing.
    pub fn new(codec: &Codec) -> Result<Packer> {
        let Codec::Zstd { dictionary } = codec else { return Ok(Packer::Raw) };
        let compressor = if dictionary.is_empty() {
            Compressor::new(LEVEL)
        } else {
            Compressor::with_dictionary(LEVEL, dictionary)
        };
        Ok(Packer::Zstd(Box::new(compressor.map_err(|e| EngineError::io("prepare compression", e))?)))
    }

    /// The bytes to store.
    pub fn pack<'a>(&mut self, value: &'a [u8]) -> Result<std::borrow::Cow<'a, [u8]>> {
        match self {
            Packer::Raw => Ok(value.into()),
            Packer::Zstd(compressor) => {
                Ok(compressor.compress(value).map_err(|e| EngineError::io("compress", e))?.into())
            }
        }
    }
}

/// Unpacks the values of one file; shared between readers.
pub enum Unpacker {
    /// As they are.
    Raw,
    /// zstd; no dictionary if none.
    Zstd(Option<DecoderDictionary<'static>>),
}

impl Unpacker {
    /// For the codec code and dictionary of a header.
    pub fn new(code: u8, dictionary: &[u8]) -> Option<Unpacker> {
        match code {
            0 => Some(Unpacker::Raw),
            1 if dictionary.is_empty() => Some(Unpacker::Zstd(None)),
            1 => Some(Unpacker::Zstd(Some(DecoderDictionary::copy(dictionary)))),
            _ => None,
        }
    }

    /// The value of `value_len` bytes that `stored` packs.
    pub fn unpack(&self, stored: bytes::Bytes, value_len: u32) -> Result<bytes::Bytes> {
        let wrong = |detail: String| EngineError::corrupt("value in a data file", detail);
        let value = match self {
            Unpacker::Raw => stored,
            Unpacker::Zstd(dictionary) => {
                let mut decompressor = match dictionary {
                    None => Decompressor::new(),
                    Some(dictionary) => Decompressor::with_prepared_dictionary(dictionary),
                }
                .map_err(|e| EngineError::io("prepare decompression", e))?;
                let value = decompressor.decompress(&stored, value_len as usize);
                value.map_err(|e| wrong(e.to_string()))?.into()
            }
        };
        if value.len() != value_len as usize {
            return Err(wrong(format!("has {} bytes, the index says {value_len}", value.len())));
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngCore, SeedableRng};

    fn json(n: usize) -> Vec<u8> {
        format!("{{\"id\":{n},\"name\":\"user number {n}\",\"city\":\"Utrecht\",\"active\":true}}")
            .into_bytes()
    }

    #[test]
    fn alike_small_values_get_a_dictionary_and_come_back() {
        let samples: Vec<_> = (0..400).map(json).collect();
        let codec = Codec::choose(&samples, 64 << 20);
        assert!(!codec.dictionary().is_empty());
        let mut packer = Packer::new(&codec).expect("packer");
        let unpacker = Unpacker::new(codec.code(), codec.dictionary()).expect("known codec");
        let packed = packer.pack(&samples[7]).expect("pack").into_owned();
        assert!(packed.len() < samples[7].len());
        let value = unpacker.unpack(packed.into(), samples[7].len() as u32).expect("unpack");
        assert_eq!(value, samples[7]);
    }

    #[test]
    fn random_values_stay_raw() {
        let mut rng = rand::rngs::StdRng::seed_from_u64(1);
        let samples: Vec<_> = (0..64)
            .map(|_| {
                let mut value = vec![0; 4096];
                rng.fill_bytes(&mut value);
                value
            })
            .collect();
        assert_eq!(Codec::choose(&samples, 64 << 20), Codec::Raw);
        assert_eq!(Codec::choose(&[], 0), Codec::Raw);
    }

    #[test]
    fn a_length_that_differs_is_an_error() {
        let mut packer = Packer::new(&Codec::Zstd { dictionary: vec![] }).expect("packer");
        let packed = packer.pack(b"value value value").expect("pack").into_owned();
        let unpacker = Unpacker::new(1, &[]).expect("known codec");
        assert!(unpacker.unpack(packed.clone().into(), 3).is_err());
        assert!(unpacker.unpack(packed.into(), 1000).is_err());
        assert!(Unpacker::new(9, &[]).is_none());
    }
}
