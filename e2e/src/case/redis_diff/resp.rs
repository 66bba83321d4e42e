//! A Redis client that hides nothing: every reply as it came, errors included.

use super::script::Command;
use crate::harness::{HarnessError, Result};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::pin::Pin;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

const DEPTH_MAX: usize = 8;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reply {
    Nothing,
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Nothing => f.write_str("(nil)"),
            Reply::Simple(text) => f.write_str(text),
            Reply::Error(text) => write!(f, "(error) {text}"),
            Reply::Int(number) => write!(f, "(integer) {number}"),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Reply::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| item.to_string()).collect();
                write!(f, "[{}]", items.join(", "))
            }
        }
    }
}

pub(super) struct Connection {
    stream: BufStream<TcpStream>,
}

fn bad(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Connection {
    pub(super) async fn open(address: &str) -> Result<Connection> {
        let stream =
            TcpStream::connect(address).await.map_err(HarnessError::io(format!("dialing {address}")))?;
        stream.set_nodelay(true).map_err(HarnessError::io("setting nodelay"))?;
        Ok(Connection { stream: BufStream::new(stream) })
    }

    /// Sends all commands, then reads all replies.
    pub(super) async fn pipeline(&mut self, commands: &[Command]) -> io::Result<Vec<Reply>> {
        let mut out = Vec::new();
        for command in commands {
            out.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            for word in command {
                out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                out.extend_from_slice(word);
                out.extend_from_slice(b"\r\n");
            }
        }
        self.stream.write_all(&out).await?;
        self.stream.flush().await?;
        let mut replies = Vec::with_capacity(commands.len());
        for _ in commands {
            replies.push(self.read(0).await?);
        }
        Ok(replies)
    }

    /// Every key, by SCAN.
    pub(super) async fn scan(&mut self) -> io::Result<BTreeSet<Vec<u8>>> {
        let mut keys = BTreeSet::new();
        let mut cursor = b"0".to_vec();
        loop {
            let scan: Command = vec![b"SCAN".to_vec(), cursor, b"COUNT".to_vec(), b"3".to_vec()];
            let reply = self.pipeline(&[scan]).await?.pop();
            let Some(Reply::Array(parts)) = reply else {
                return Err(bad(format!("SCAN answered {reply:?}")));
            };
            let [Reply::Bulk(next), Reply::Array(page)] = parts.as_slice() else {
                return Err(bad(format!("SCAN answered {parts:?}")));
            };
            keys.extend(page.iter().filter_map(|key| match key {
                Reply::Bulk(key) => Some(key.clone()),
                _ => None,
            }));
            if next == b"0" {
                return Ok(keys);
            }
            cursor = next.clone();
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).await?;
        if !line.ends_with(b"\r\n") {
            return Err(bad(format!("a line ends early: {:?}", String::from_utf8_lossy(&line))));
        }
        line.truncate(line.len() - 2);
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn read(&mut self, depth: usize) -> Pin<Box<dyn Future<Output = io::Result<Reply>> + Send + '_>> {
        Box::pin(async move {
            let line = self.line().await?;
            let (kind, rest) = line.split_at_checked(1).ok_or_else(|| bad("an empty line".into()))?;
            let number = || rest.parse::<i64>().map_err(|_| bad(format!("no number in {line:?}")));
            Ok(match kind {
                "+" => Reply::Simple(rest.into()),
                "-" => Reply::Error(rest.into()),
                ":" => Reply::Int(number()?),
                "_" => Reply::Nothing,
                "$" => match usize::try_from(number()?) {
                    Ok(len) => {
                        let mut bytes = vec![0; len + 2];
                        self.stream.read_exact(&mut bytes).await?;
                        bytes.truncate(len);
                        Reply::Bulk(bytes)
                    }
                    Err(_) => Reply::Nothing,
                },
                // A map of RESP3 is the flat array of RESP2.
                "*" | "%" | "~" => match usize::try_from(number()?) {
                    Ok(_) if depth == DEPTH_MAX => return Err(bad("arrays in arrays in arrays".into())),
                    Ok(len) => {
                        let mut items = Vec::new();
                        for _ in 0..if kind == "%" { len * 2 } else { len } {
                            items.push(self.read(depth + 1).await?);
                        }
                        Reply::Array(items)
                    }
                    Err(_) => Reply::Nothing,
                },
                _ => return Err(bad(format!("a reply begins with {line:?}"))),
            })
        })
    }
}
