//! Answers, and how each version of the protocol writes them.

use bytes::{Bytes, BytesMut};
use std::borrow::Cow;

/// Which version the client asked for with HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The default.
    #[default]
    Resp2,
    /// Maps, nulls and doubles have types of their own.
    Resp3,
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+OK`
    Simple(&'static str),
    /// `-ERR ...`; the text begins with its code word.
    Error(Cow<'static, str>),
    /// `:1`
    Int(i64),
    /// `$3`
    Bulk(Bytes),
    /// No value.
    Null,
    /// A list.
    Array(Vec<Reply>),
    /// Pairs: a flat array in version 2.
    Map(Vec<(Reply, Reply)>),
    /// Text for people: a bulk string in version 2.
    Text(String),
}

impl Reply {
    /// `+OK`
    pub const OK: Reply = Reply::Simple("OK");

    /// An error with its code word.
    pub fn error(text: impl Into<Cow<'static, str>>) -> Self {
        Reply::Error(text.into())
    }

    /// A bulk string of the text.
    pub fn text(text: &str) -> Self {
        Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()))
    }

    /// A value or none.
    pub fn maybe(value: Option<Bytes>) -> Self {
        value.map_or(Reply::Null, Reply::Bulk)
    }

    /// 1 or 0.
    pub fn flag(yes: bool) -> Self {
        Reply::Int(i64::from(yes))
    }

    /// Appends its bytes.
    pub fn write(&self, protocol: Protocol, out: &mut BytesMut) {
        match self {
            Reply::Simple(text) => line(out, b'+', text.as_bytes()),
            Reply::Error(text) => line(out, b'-', one_line(text).as_bytes()),
            Reply::Int(n) => line(out, b':', n.to_string().as_bytes()),
            Reply::Bulk(bytes) => bulk(out, bytes),
            Reply::Null if protocol == Protocol::Resp3 => out.extend_from_slice(b"_\r\n"),
            Reply::Null => out.extend_from_slice(b"$-1\r\n"),
            Reply::Array(items) => {
                head(out, b'*', items.len());
                items.iter().for_each(|item| item.write(protocol, out));
            }
            Reply::Map(pairs) => {
                match protocol {
                    Protocol::Resp3 => head(out, b'%', pairs.len()),
                    Protocol::Resp2 => head(out, b'*', pairs.len() * 2),
                }
                for (key, value) in pairs {
                    key.write(protocol, out);
                    value.write(protocol, out);
                }
            }
            Reply::Text(text) if protocol == Protocol::Resp3 => {
                head(out, b'=', text.len() + 4);
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Reply::Text(text) => bulk(out, text.as_bytes()),
        }
    }
}

/// A line end inside an error would be read as the next reply.
fn one_line(text: &str) -> Cow<'_, str> {
    if text.contains(['\r', '\n']) {
        Cow::Owned(text.replace(['\r', '\n'], " "))
    } else {
        Cow::Borrowed(text)
    }
}

fn line(out: &mut BytesMut, kind: u8, text: &[u8]) {
    out.extend_from_slice(&[kind]);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn head(out: &mut BytesMut, kind: u8, len: usize) {
    line(out, kind, len.to_string().as_bytes());
}

fn bulk(out: &mut BytesMut, bytes: &[u8]) {
    head(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reply: &Reply, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        reply.write(protocol, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn each_version_writes_maps_nulls_and_text_in_its_way() {
        let map = Reply::Map(vec![(Reply::text("a"), Reply::Int(1)), (Reply::text("b"), Reply::Null)]);
        assert_eq!(written(&map, Protocol::Resp2), "*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n$-1\r\n");
        assert_eq!(written(&map, Protocol::Resp3), "%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n_\r\n");
        assert_eq!(written(&Reply::Text("hi".into()), Protocol::Resp3), "=6\r\ntxt:hi\r\n");
        assert_eq!(written(&Reply::error("ERR a\r\nb"), Protocol::Resp2), "-ERR a  b\r\n");
    }
}
