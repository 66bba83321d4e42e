//! Words of a command as numbers and options.

use crate::Failure;

/// True when `word` is `option`, whatever its case.
pub fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// A word for a message.
pub fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// A decimal i64, as strict as Redis: no blanks, no plus, no leading zeros.
pub fn integer(word: &[u8]) -> Result<i64, Failure> {
    parse_integer(word).ok_or(Failure::NOT_AN_INTEGER)
}

/// The same, without the error.
pub fn parse_integer(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let canonical = match digits {
        [b'0'] => digits.len() == word.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if canonical { std::str::from_utf8(word).ok()?.parse().ok() } else { None }
}

/// A finite number.
pub fn float(word: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(word).ok()?;
    if text.is_empty() || text.starts_with(|c: char| c.is_whitespace()) || text.ends_with(char::is_whitespace)
    {
        return None;
    }
    text.parse::<f64>().ok().filter(|n| !n.is_nan())
}

/// A number as Redis prints it: no exponent, no trailing zeros.
pub fn float_text(n: f64) -> String {
    let text = format!("{n:.17}");
    let short = format!("{n}");
    // The shortest text that reads back is what long doubles print for the numbers that people use.
    if short.contains('e') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { short }
}

/// When something expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds from now, or since 1970.
    Seconds,
    /// The same in ms.
    Millis,
}

/// The absolute time of an expiry, in ms; a relative one counts from `base_ms`.
pub fn expire_at(word: &[u8], unit: Unit, base_ms: u64, command: &str) -> Result<i64, Failure> {
    let n = integer(word)?;
    let invalid = || Failure::new(format!("ERR invalid expire time in '{command}' command"));
    let ms = match unit {
        Unit::Seconds => n.checked_mul(1000).ok_or_else(invalid)?,
        Unit::Millis => n,
    };
    ms.checked_add(base_ms as i64).ok_or_else(invalid)
}

/// The same where only the future is allowed (SET, SETEX, GETEX).
pub fn expire_in_future(word: &[u8], unit: Unit, base_ms: u64, command: &str) -> Result<u64, Failure> {
    if integer(word)? <= 0 {
        return Err(Failure::new(format!("ERR invalid expire time in '{command}' command")));
    }
    Ok(expire_at(word, unit, base_ms, command)?.max(1) as u64)
}

/// Glob patterns as in KEYS: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a special byte.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    // Iterative, with one place to come back to: linear in most cases, never recursive.
    let (mut p, mut t) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            back = Some((p, t));
            p += 1;
            continue;
        }
        if t == text.len() {
            return p == pattern.len();
        }
        match one(&pattern[p..], text[t]) {
            Some(used) => {
                p += used;
                t += 1;
            }
            None => match back {
                Some((star, at)) => {
                    back = Some((star, at + 1));
                    p = star + 1;
                    t = at + 1;
                }
                None => return false,
            },
        }
    }
}

/// How much of the pattern matches this byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', class @ ..] => in_class(class, byte),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

fn in_class(class: &[u8], byte: u8) -> Option<usize> {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    while let Some(&low) = class.get(at) {
        match low {
            b']' => break,
            b'\\' if at + 1 < class.len() => {
                found |= class[at + 1] == byte;
                at += 2;
            }
            _ if class.get(at + 1) == Some(&b'-') && class.get(at + 2).is_some() => {
                let high = class[at + 2];
                found |= (low.min(high)..=low.max(high)).contains(&byte);
                at += 3;
            }
            _ => {
                found |= low == byte;
                at += 1;
            }
        }
    }
    // '[' itself, the class, and its end where there is one.
    (found != negated).then_some(1 + (at + 1).min(class.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_as_strict_as_redis() {
        for (text, want) in [("0", Some(0)), ("-7", Some(-7)), ("9223372036854775807", Some(i64::MAX))] {
            assert_eq!(parse_integer(text.as_bytes()), want);
        }
        for text in ["", "+1", " 1", "1 ", "01", "-0", "9223372036854775808", "1.0", "0x1"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn globs_match_as_in_redis() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbbd", false),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("*a*b*", "xxaxxb", true),
            ("[abc", "a", true),
            ("", "a", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), want, "{pattern} on {text}");
        }
    }

    #[test]
    fn floats_are_printed_without_exponents() {
        assert_eq!(float_text(10.5 + 0.1), "10.6");
        assert_eq!(float_text(5.0e3), "5000");
        assert_eq!(float_text(3.0), "3");
    }
}
