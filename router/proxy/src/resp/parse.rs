//! Commands from bytes: arrays of bulk strings, or a line of words. Incremental and bounded.

use bytes::{Buf, Bytes, BytesMut};

/// A command's words; the first is its name.
pub type Args = Vec<Bytes>;

const INLINE_BYTES_MAX: usize = 64 * 1024;
const ARGS_MAX: i64 = 1024 * 1024;
// Room for the largest value and a little more; redis-server allows 512 MiB.
const BULK_BYTES_MAX: i64 = 64 * 1024 * 1024;

/// The peer does not speak the protocol: it is told, and the connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Protocol error: {0}")]
pub struct ParseError(String);

fn bad<T>(why: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError(why.into()))
}

/// Takes the next whole command off `input`. `None`: more bytes are needed; nothing was taken then.
/// An empty command (a bare line end, an empty array) gives empty args.
pub fn parse(input: &mut BytesMut) -> Result<Option<Args>, ParseError> {
    match input.first() {
        None => Ok(None),
        Some(b'*') => parse_array(input),
        Some(_) => parse_inline(input),
    }
}

/// A line without its end, and where the next one begins.
fn line(input: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = input.get(from..)?;
    let newline = rest.iter().position(|b| *b == b'\n')?;
    let end = if newline > 0 && rest[newline - 1] == b'\r' { newline - 1 } else { newline };
    Some((&rest[..end], from + newline + 1))
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn parse_array(input: &mut BytesMut) -> Result<Option<Args>, ParseError> {
    let Some((head, mut at)) = line(input, 1) else {
        return if input.len() > INLINE_BYTES_MAX { bad("too big mbulk count string") } else { Ok(None) };
    };
    let count = match number(head) {
        Some(n) if n <= ARGS_MAX => n.max(0) as usize,
        _ => return bad("invalid multibulk length"),
    };
    // First find that all of it is here, so that nothing is copied twice.
    let mut spans = Vec::with_capacity(count.min(64));
    for _ in 0..count {
        match bulk_span(input, at)? {
            None => return Ok(None),
            Some((start, end)) => {
                spans.push((start, end));
                at = end + 2;
            }
        }
    }
    let frame = input.split_to(at).freeze();
    Ok(Some(spans.into_iter().map(|(start, end)| frame.slice(start..end)).collect()))
}

/// Where the bulk string at `at` starts and ends, once it and its line end are here.
fn bulk_span(input: &[u8], at: usize) -> Result<Option<(usize, usize)>, ParseError> {
    match input.get(at) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(&other) => return bad(format!("expected '$', got '{}'", char::from(other).escape_default())),
    }
    let Some((head, start)) = line(input, at + 1) else {
        return if input.len() - at > INLINE_BYTES_MAX { bad("too big bulk count string") } else { Ok(None) };
    };
    let len = match number(head) {
        Some(n) if (0..=BULK_BYTES_MAX).contains(&n) => n as usize,
        _ => return bad("invalid bulk length"),
    };
    let end = start + len;
    match input.get(end..end + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some((start, end))),
        Some(_) => bad("bulk string is not followed by a line end"),
    }
}

fn parse_inline(input: &mut BytesMut) -> Result<Option<Args>, ParseError> {
    let Some((text, next)) = line(input, 0) else {
        return if input.len() > INLINE_BYTES_MAX { bad("too big inline request") } else { Ok(None) };
    };
    let args = split_words(text)?;
    input.advance(next);
    Ok(Some(args))
}

/// Words as redis-cli writes them: blanks part them; "..." with escapes and '...' keep blanks.
fn split_words(text: &[u8]) -> Result<Args, ParseError> {
    let mut args = Args::new();
    let mut rest = text;
    loop {
        while let Some(b) = rest.first().filter(|b| b.is_ascii_whitespace() || **b == 0) {
            let _ = b;
            rest = &rest[1..];
        }
        if rest.is_empty() {
            return Ok(args);
        }
        let (word, after) = take_word(rest)?;
        args.push(word.into());
        rest = after;
    }
}

fn take_word(text: &[u8]) -> Result<(Vec<u8>, &[u8]), ParseError> {
    let mut word = Vec::new();
    let mut at = 0;
    while let Some(&b) = text.get(at) {
        match b {
            b'"' | b'\'' => {
                at = quoted(text, at + 1, b, &mut word)?;
                if text.get(at).is_some_and(|next| !next.is_ascii_whitespace()) {
                    return bad("unbalanced quotes in request");
                }
            }
            b if b.is_ascii_whitespace() => break,
            b => {
                word.push(b);
                at += 1;
            }
        }
    }
    Ok((word, &text[at..]))
}

/// Reads up to the closing quote; answers where the text goes on.
fn quoted(text: &[u8], mut at: usize, quote: u8, word: &mut Vec<u8>) -> Result<usize, ParseError> {
    while let Some(&b) = text.get(at) {
        at += 1;
        if b == quote {
            return Ok(at);
        }
        if b != b'\\' {
            word.push(b);
            continue;
        }
        match (quote, text.get(at)) {
            (b'\'', Some(b'\'')) => {
                word.push(b'\'');
                at += 1;
            }
            (b'\'', _) => word.push(b'\\'),
            (_, Some(b'x')) if hex(text, at + 1).is_some() => {
                word.extend(hex(text, at + 1));
                at += 3;
            }
            (_, Some(&escaped)) => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                });
                at += 1;
            }
            (_, None) => break,
        }
    }
    bad("unbalanced quotes in request")
}

fn hex(text: &[u8], at: usize) -> Option<u8> {
    let digits = std::str::from_utf8(text.get(at..at + 2)?).ok()?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> Result<Vec<Args>, ParseError> {
        let mut input = BytesMut::from(bytes);
        let mut found = Vec::new();
        while let Some(args) = parse(&mut input)? {
            found.push(args);
        }
        Ok(found)
    }

    fn wire(args: &[Vec<u8>]) -> Vec<u8> {
        let mut out = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            out.extend(format!("${}\r\n", arg.len()).bytes());
            out.extend(arg);
            out.extend(b"\r\n");
        }
        out
    }

    #[test]
    fn inline_words_and_quotes_are_split_as_redis_cli_writes_them() {
        let args = all(b"SET \"a b\\x41\\n\" 'it''s'\r\n");
        assert!(args.is_err(), "a quote must be followed by a blank");
        let args = all(b"  SET \"a b\\x41\\n\"  'it\\'s' plain\n\r\n").expect("valid");
        assert_eq!(args[0], vec![&b"SET"[..], b"a bA\n", b"it's", b"plain"]);
        assert!(args[1].is_empty());
    }

    #[test]
    fn what_is_not_the_protocol_is_refused_with_redis_texts() {
        let text = |bytes: &[u8]| all(bytes).expect_err("refused").to_string();
        assert_eq!(text(b"*abc\r\n"), "Protocol error: invalid multibulk length");
        assert_eq!(text(b"*1\r\n:3\r\n"), "Protocol error: expected '$', got ':'");
        assert_eq!(text(b"*1\r\n$-4\r\n"), "Protocol error: invalid bulk length");
        assert_eq!(text(b"GET \"a\r\n"), "Protocol error: unbalanced quotes in request");
        assert_eq!(text(b"*1\r\n$99999999999\r\n"), "Protocol error: invalid bulk length");
    }

    proptest! {
        #[test]
        fn commands_survive_any_cutting_of_the_stream(
            commands in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 1..6),
            cuts in prop::collection::vec(1usize..50, 1..40),
        ) {
            let stream: Vec<u8> = commands.iter().flat_map(|c| wire(c)).collect();
            let mut input = BytesMut::new();
            let mut found: Vec<Args> = Vec::new();
            let mut rest = &stream[..];
            let mut cuts = cuts.into_iter().cycle();
            while !rest.is_empty() {
                let n = cuts.next().unwrap_or(1).min(rest.len());
                input.extend_from_slice(&rest[..n]);
                rest = &rest[n..];
                while let Some(args) = parse(&mut input).expect("valid") {
                    found.push(args);
                }
            }
            prop_assert_eq!(found, commands.iter().map(|c| c.iter().map(|a| Bytes::copy_from_slice(a)).collect::<Args>()).collect::<Vec<_>>());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = all(&bytes);
        }
    }
}
