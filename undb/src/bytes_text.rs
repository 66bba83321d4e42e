//! Bytes as text and back: as they are, as base64, as JSON, or escaped for a terminal; and sizes,
//! counts and times for people.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Text of any bytes that a terminal shows and a person can read: what is not printable is \xNN.
pub fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\\' => out.push_str("\\\\"),
                c if c.is_control() => {
                    let mut buffer = [0; 4];
                    c.encode_utf8(&mut buffer).bytes().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
                }
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
    }
    out
}

pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text.trim()).map_err(|e| format!("not base64: {e}"))
}

/// Puts bytes under `name` if they are text, else as base64 under `name_base64`.
pub fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.into(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), to_base64(bytes).into()),
    };
}

/// 1.5 GiB.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// 2h03m, 5m10s, 7.2s.
pub fn span(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "?".into();
    }
    let whole = seconds.round() as u64;
    match whole {
        0..=59 => format!("{seconds:.1}s"),
        60..=3599 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..=86_399 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_has_one_line_and_hides_nothing() {
        assert_eq!(escaped("grün\t\n\\".as_bytes()), "grün\\t\\n\\\\");
        assert_eq!(escaped(b"a\x00\xff\x1bz"), "a\\x00\\xff\\x1bz");
    }

    #[test]
    fn sizes_and_spans_are_short() {
        assert_eq!(
            (size(17).as_str(), size(1536).as_str(), size(3 << 30).as_str()),
            ("17 B", "1.5 KiB", "3.0 GiB")
        );
        assert_eq!(
            (span(7.25).as_str(), span(310.0).as_str(), span(7380.0).as_str()),
            ("7.2s", "5m10s", "2h03m")
        );
        assert_eq!(span(f64::INFINITY), "?");
    }
}
