//! Replies, written as RESP2 or RESP3.

use bytes::{BufMut, Bytes, BytesMut};

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// What a command answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Simple(&'static str),
    /// With its leading code word.
    Error(String),
    Integer(i64),
    Bulk(Bytes),
    Null,
    Array(Vec<Reply>),
    /// A flat array in RESP2.
    Map(Vec<(Reply, Reply)>),
    /// A set, which is an array in RESP2.
    Set(Vec<Reply>),
    /// Text for people: a verbatim string in RESP3.
    Text(String),
}

impl Reply {
    pub(crate) const OK: Reply = Reply::Simple("OK");

    pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(Bytes::copy_from_slice(text.as_ref()))
    }

    pub(crate) fn bulk_or_null(value: Option<Bytes>) -> Reply {
        value.map_or(Reply::Null, Reply::Bulk)
    }

    pub(crate) fn count(n: usize) -> Reply {
        Reply::Integer(i64::try_from(n).unwrap_or(i64::MAX))
    }

    pub(crate) fn flag(yes: bool) -> Reply {
        Reply::Integer(i64::from(yes))
    }

    pub(crate) fn write(&self, protocol: Protocol, out: &mut BytesMut) {
        let resp3 = protocol == Protocol::Resp3;
        match self {
            Reply::Simple(text) => line(out, b'+', text.as_bytes()),
            Reply::Error(text) => {
                // A line break would end the reply early.
                let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                line(out, b'-', clean.as_bytes());
            }
            Reply::Integer(n) => line(out, b':', n.to_string().as_bytes()),
            Reply::Bulk(bytes) => bulk(out, bytes),
            Reply::Null if resp3 => out.put_slice(b"_\r\n"),
            Reply::Null => out.put_slice(b"$-1\r\n"),
            Reply::Array(items) => aggregate(out, b'*', items.len(), items.iter(), protocol),
            Reply::Set(items) => {
                let mark = if resp3 { b'~' } else { b'*' };
                aggregate(out, mark, items.len(), items.iter(), protocol);
            }
            Reply::Map(pairs) => {
                let (mark, len) = if resp3 { (b'%', pairs.len()) } else { (b'*', pairs.len() * 2) };
                aggregate(out, mark, len, pairs.iter().flat_map(|(k, v)| [k, v]), protocol);
            }
            Reply::Text(text) if resp3 => {
                line(out, b'=', (text.len() + 4).to_string().as_bytes());
                out.put_slice(b"txt:");
                out.put_slice(text.as_bytes());
                out.put_slice(b"\r\n");
            }
            Reply::Text(text) => bulk(out, text.as_bytes()),
        }
    }
}

fn line(out: &mut BytesMut, mark: u8, text: &[u8]) {
    out.put_u8(mark);
    out.put_slice(text);
    out.put_slice(b"\r\n");
}

fn bulk(out: &mut BytesMut, bytes: &[u8]) {
    line(out, b'$', bytes.len().to_string().as_bytes());
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

// Nesting is ours: at most three deep.
fn aggregate<'a>(
    out: &mut BytesMut,
    mark: u8,
    len: usize,
    items: impl Iterator<Item = &'a Reply>,
    protocol: Protocol,
) {
    line(out, mark, len.to_string().as_bytes());
    items.for_each(|item| item.write(protocol, out));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reply: &Reply, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        reply.write(protocol, &mut out);
        String::from_utf8(out.to_vec()).expect("text")
    }

    #[test]
    fn replies_have_their_shape_in_both_protocols() {
        let map = Reply::Map(vec![(Reply::bulk("k"), Reply::Null)]);
        assert_eq!(text(&map, Protocol::Resp2), "*2\r\n$1\r\nk\r\n$-1\r\n");
        assert_eq!(text(&map, Protocol::Resp3), "%1\r\n$1\r\nk\r\n_\r\n");
        assert_eq!(text(&Reply::Error("ERR a\r\nb".into()), Protocol::Resp2), "-ERR a  b\r\n");
        assert_eq!(text(&Reply::Text("hi".into()), Protocol::Resp3), "=6\r\ntxt:hi\r\n");
        assert_eq!(text(&Reply::Set(vec![Reply::Integer(-1)]), Protocol::Resp3), "~1\r\n:-1\r\n");
    }
}
