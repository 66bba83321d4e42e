//! Requests off the wire: RESP arrays of bulk strings, and inline commands as a person types them.
//!
//! Incremental: what is complete is taken out of the buffer, so that no byte is looked at twice.
//! Bounded: a client cannot make it hold more than [`COMMAND_BYTES_MAX`] of arguments.

use bytes::{Buf, Bytes, BytesMut};

/// Largest argument. Above the largest value, so that a value a bit too large gets an error of its own.
pub(crate) const BULK_BYTES_MAX: usize = 32 << 20;
/// Most bytes of one command.
pub(crate) const COMMAND_BYTES_MAX: usize = 64 << 20;
const ARGUMENTS_MAX: i64 = 1 << 20;
const LINE_BYTES_MAX: usize = 64 << 10;

/// Bytes that are no request; the connection ends after it is told.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("Protocol error: {0}")]
pub(crate) struct ProtocolError(String);

fn fail<T>(text: impl Into<String>) -> Result<T, ProtocolError> {
    Err(ProtocolError(text.into()))
}

/// What is known of a command that is still arriving.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    args: Vec<Bytes>,
    /// Arguments that are still to come.
    missing: usize,
    /// Length of the argument that is arriving.
    bulk_len: Option<usize>,
    size: usize,
}

impl Parser {
    /// The next whole command in `buffer`, if there is one. Empty ones are skipped.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        loop {
            if self.missing == 0 {
                match buffer.first() {
                    None => return Ok(None),
                    Some(b'*') => {
                        let Some(count) = length_line(buffer, "too big mbulk count string", "invalid multibulk length")?
                        else {
                            return Ok(None);
                        };
                        if count > ARGUMENTS_MAX {
                            return fail("invalid multibulk length");
                        }
                        self.missing = usize::try_from(count).unwrap_or(0);
                        self.size = 0;
                        continue;
                    }
                    Some(_) => match inline(buffer)? {
                        None => return Ok(None),
                        Some(args) if args.is_empty() => continue,
                        Some(args) => return Ok(Some(args)),
                    },
                }
            }
            if !self.bulk(buffer)? {
                return Ok(None);
            }
            if self.missing == 0 {
                return Ok(Some(std::mem::take(&mut self.args)));
            }
        }
    }

    /// Takes one argument; false: it is not all there.
    fn bulk(&mut self, buffer: &mut BytesMut) -> Result<bool, ProtocolError> {
        let len = match self.bulk_len {
            Some(len) => len,
            None => {
                match buffer.first() {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(other) => return fail(format!("expected '$', got '{}'", other.escape_ascii())),
                }
                let line = length_line(buffer, "too big bulk count string", "invalid bulk length")?;
                let Some(len) = line else { return Ok(false) };
                let Ok(len) = usize::try_from(len) else { return fail("invalid bulk length") };
                self.size += len;
                if len > BULK_BYTES_MAX || self.size > COMMAND_BYTES_MAX {
                    return fail("invalid bulk length");
                }
                self.bulk_len = Some(len);
                len
            }
        };
        if buffer.len() < len + 2 {
            buffer.reserve(len + 2 - buffer.len());
            return Ok(false);
        }
        self.args.push(buffer.split_to(len).freeze());
        buffer.advance(2);
        self.bulk_len = None;
        self.missing -= 1;
        Ok(true)
    }
}

/// `*N\r\n` or `$N\r\n`.
fn length_line(
    buffer: &mut BytesMut,
    too_long: &str,
    invalid: &str,
) -> Result<Option<i64>, ProtocolError> {
    let Some(end) = find_newline(buffer, too_long)? else { return Ok(None) };
    let line = buffer.split_to(end + 1);
    let text = line[1..end].strip_suffix(b"\r").unwrap_or(&line[1..end]);
    let number = std::str::from_utf8(text).ok().filter(|t| !t.starts_with('+')).and_then(|t| t.parse().ok());
    match number {
        Some(number) => Ok(Some(number)),
        None => fail(invalid),
    }
}

fn find_newline(buffer: &[u8], too_long: &str) -> Result<Option<usize>, ProtocolError> {
    let end = buffer.iter().take(LINE_BYTES_MAX).position(|b| *b == b'\n');
    if end.is_none() && buffer.len() >= LINE_BYTES_MAX {
        return fail(too_long);
    }
    Ok(end)
}

fn inline(buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
    let Some(end) = find_newline(buffer, "too big inline request")? else { return Ok(None) };
    let line = buffer.split_to(end + 1);
    let text = line[..end].strip_suffix(b"\r").unwrap_or(&line[..end]);
    match split_words(text) {
        Some(words) => Ok(Some(words)),
        None => fail("unbalanced quotes in request"),
    }
}

/// Words as a shell would see them: "..." with escapes, '...' nearly without.
fn split_words(text: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    let mut rest = text;
    loop {
        while rest.first().is_some_and(u8::is_ascii_whitespace) {
            rest = &rest[1..];
        }
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(&b) = rest.first().filter(|b| !b.is_ascii_whitespace()) {
            rest = &rest[1..];
            match b {
                b'"' | b'\'' => {
                    rest = quoted(rest, b, &mut word)?;
                    if rest.first().is_some_and(|b| !b.is_ascii_whitespace()) {
                        return None;
                    }
                }
                _ => word.push(b),
            }
        }
        words.push(word.into());
    }
}

/// What follows the closing quote.
fn quoted<'a>(mut rest: &'a [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match (quote, rest) {
            (_, [b, tail @ ..]) if *b == quote => return Some(tail),
            (b'"', [b'\\', b'x', a, b, tail @ ..]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                let hex = [*a, *b];
                word.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
                rest = tail;
            }
            (b'"', [b'\\', b, tail @ ..]) => {
                word.push(match b {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = tail;
            }
            (b'\'', [b'\\', b'\'', tail @ ..]) => {
                word.push(b'\'');
                rest = tail;
            }
            (_, [b, tail @ ..]) => {
                word.push(*b);
                rest = tail;
            }
            (_, []) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(input: &[u8]) -> Result<Vec<Vec<Bytes>>, ProtocolError> {
        let (mut parser, mut buffer) = (Parser::default(), BytesMut::from(input));
        let mut commands = Vec::new();
        while let Some(command) = parser.next(&mut buffer)? {
            commands.push(command);
        }
        Ok(commands)
    }

    fn encode(command: &[Vec<u8>]) -> Vec<u8> {
        let mut out = format!("*{}\r\n", command.len()).into_bytes();
        for arg in command {
            out.extend(format!("${}\r\n", arg.len()).bytes());
            out.extend_from_slice(arg);
            out.extend(b"\r\n");
        }
        out
    }

    #[test]
    fn inline_commands_are_split_like_a_shell_does() {
        let commands = all(b"SET k \"a b\\x41\\n\"\r\n\r\nGET 'it\\'s'\n").expect("valid");
        assert_eq!(commands[0], [&b"SET"[..], b"k", b"a bA\n"]);
        assert_eq!(commands[1], [&b"GET"[..], b"it's"]);
        assert!(all(b"GET \"x\r\n").is_err());
        assert!(all(b"GET \"x\"y\r\n").is_err());
    }

    #[test]
    fn bad_lengths_are_protocol_errors_with_the_texts_of_redis() {
        let text = |input: &[u8]| all(input).expect_err("refused").to_string();
        assert_eq!(text(b"*x\r\n"), "Protocol error: invalid multibulk length");
        assert_eq!(text(b"*99999999999\r\n"), "Protocol error: invalid multibulk length");
        assert_eq!(text(b"*1\r\n$-1\r\n"), "Protocol error: invalid bulk length");
        assert_eq!(text(b"*1\r\n$999999999\r\n"), "Protocol error: invalid bulk length");
        assert_eq!(text(b"*1\r\n:1\r\n"), "Protocol error: expected '$', got ':'");
        assert_eq!(text(&[b'a'; 70_000]), "Protocol error: too big inline request");
        assert_eq!(all(b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n").expect("skipped").len(), 1);
    }

    proptest! {
        #[test]
        fn commands_survive_any_cut(
            commands in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..5), 0..6),
            cuts in prop::collection::vec(1usize..9, 1..20),
        ) {
            let bytes: Vec<u8> = commands.iter().flat_map(|c| encode(c)).collect();
            let (mut parser, mut buffer, mut found) = (Parser::default(), BytesMut::new(), Vec::new());
            let (mut at, mut cuts) = (0, cuts.iter().cycle());
            while at < bytes.len() {
                let end = (at + cuts.next().expect("cycle")).min(bytes.len());
                buffer.extend_from_slice(&bytes[at..end]);
                at = end;
                while let Some(command) = parser.next(&mut buffer).expect("valid") {
                    found.push(command.iter().map(|a| a.to_vec()).collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(found, commands);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn arbitrary_bytes_never_panic(input in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = all(&input);
        }

        #[test]
        fn near_misses_never_panic(input in "[*$\\-0-9a\"'\\\\ \r\n]{0,60}") {
            let _ = all(input.as_bytes());
        }
    }
}
