//! The commands over a table in memory: what goes in and out of a connection, as text.

use crate::keyspace::Keyspace;
use crate::memory::Memory;
use crate::resp::Args;
use crate::server::Shared;
use crate::session::{Session, Step};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use undb_runtime::TokenCheck;

struct Client {
    session: Session,
    shared: Arc<Shared>,
    memory: Arc<Memory>,
}

impl Client {
    fn new(token: Option<&str>) -> Self {
        let memory = Arc::new(Memory::default());
        let table: Arc<dyn Keyspace> = memory.clone();
        let open = Box::new(move |name: String| {
            let found = (name == "default").then(|| table.clone());
            let found =
                found.ok_or(crate::Failure::new(format!("TABLE_NOT_FOUND table {name:?} does not exist")));
            Box::pin(std::future::ready(found)) as futures::future::BoxFuture<'static, _>
        });
        let tables = vec!["default".to_owned(), "missing".to_owned()];
        let shared = Arc::new(Shared::new(TokenCheck::new(token), tables, 10, open));
        memory.now_ms.store(shared.clock.now_ms(), Ordering::Relaxed);
        Self { session: Session::new(shared.clone(), 1), shared, memory }
    }

    /// The answer to a command line, with line ends shown as blanks.
    async fn ask(&mut self, line: &str) -> String {
        let mut input = BytesMut::from(format!("{line}\r\n").as_bytes());
        let args: Args = crate::resp::parse(&mut input).expect("valid").expect("whole");
        self.ask_args(args).await
    }

    async fn ask_args(&mut self, args: Args) -> String {
        let reply = match self.session.step(args) {
            Step::Answer(reply) | Step::Close(reply) => reply,
            Step::Run { future, .. } => future.await,
            Step::Alone(future) => {
                let found = future.await;
                self.session.selected(found)
            }
        };
        let mut out = BytesMut::new();
        reply.write(self.session.protocol, &mut out);
        String::from_utf8_lossy(&out).trim_end().replace("\r\n", " ")
    }

    async fn expect(&mut self, script: &[(&str, &str)]) {
        for (line, want) in script {
            assert_eq!(self.ask(line).await, *want, "{line}");
        }
    }
}

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[tokio::test]
async fn strings_behave_as_in_redis() {
    let mut client = Client::new(None);
    client
        .expect(&[
            ("GET a", "$-1"),
            ("SET a 1", "+OK"),
            ("GET a", "$1 1"),
            ("SET a 2 NX", "$-1"),
            ("SET b 2 XX", "$-1"),
            ("SET a 2 XX GET", "$1 1"),
            ("SET n x NX GET", "$-1"),
            ("SET a 2 NX XX", "-ERR syntax error"),
            ("SET a 2 EX 0", "-ERR invalid expire time in 'set' command"),
            ("SET a 2 EX x", "-ERR value is not an integer or out of range"),
            ("APPEND a xyz", ":4"),
            ("GETRANGE a -3 -1", "$3 xyz"),
            ("SETRANGE a 6 !", ":7"),
            ("STRLEN a", ":7"),
            ("GETDEL a", "$7 2xyz\0\0!"),
            ("EXISTS a n n", ":2"),
            ("MSET x 1 y 2 x 3", "+OK"),
            ("MGET x y z", "*3 $1 3 $1 2 $-1"),
            ("MSETNX x 1 w 2", ":0"),
            ("MSETNX v 1 w 2", ":1"),
            ("MSET a", "-ERR wrong number of arguments for 'mset' command"),
            ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
            ("DEL x y x nope", ":2"),
        ])
        .await;
}

#[tokio::test]
async fn numbers_behave_as_in_redis() {
    let mut client = Client::new(None);
    client
        .expect(&[
            ("INCR n", ":1"),
            ("DECRBY n 5", ":-4"),
            ("SET n 9223372036854775807", "+OK"),
            ("INCR n", "-ERR increment or decrement would overflow"),
            ("SET n abc", "+OK"),
            ("INCR n", "-ERR value is not an integer or out of range"),
            ("INCRBYFLOAT n 1", "-ERR value is not a valid float"),
            ("SET f 10.5", "+OK"),
            ("INCRBYFLOAT f 0.1", "$4 10.6"),
            ("HSET h x 1", ":1"),
            ("INCR h", WRONG),
            ("INCRBYFLOAT h x", WRONG),
        ])
        .await;
}

#[tokio::test]
async fn hashes_behave_as_in_redis() {
    let mut client = Client::new(None);
    client
        .expect(&[
            ("HSET h b 2 a 1 a 3", ":2"),
            ("HSET h a 4", ":0"),
            ("HGET h a", "$1 4"),
            ("HGET h nope", "$-1"),
            ("HMGET h a nope b", "*3 $1 4 $-1 $1 2"),
            ("HGETALL h", "*4 $1 a $1 4 $1 b $1 2"),
            ("HKEYS h", "*2 $1 a $1 b"),
            ("HVALS h", "*2 $1 4 $1 2"),
            ("HLEN h", ":2"),
            ("HSETNX h a 9", ":0"),
            ("HSETNX h c 9", ":1"),
            ("HINCRBY h c 1", ":10"),
            ("HINCRBYFLOAT h c 0.5", "$4 10.5"),
            ("HINCRBY h c 1", "-ERR hash value is not an integer"),
            ("HSTRLEN h c", ":4"),
            ("HEXISTS h c", ":1"),
            ("TYPE h", "+hash"),
            ("GET h", WRONG),
            ("APPEND h x", WRONG),
            ("MGET h", "*1 $-1"),
            ("HDEL h a b nope", ":2"),
            ("HDEL h c", ":1"),
            ("TYPE h", "+none"),
            ("HGETALL h", "*0"),
            ("SET s x", "+OK"),
            ("HSET s a 1", WRONG),
            ("HSET h a", "-ERR wrong number of arguments for 'hset' command"),
        ])
        .await;
}

#[tokio::test]
async fn a_hash_that_is_overwritten_or_deleted_never_shows_its_old_fields() {
    let mut client = Client::new(None);
    client
        .expect(&[
            ("HSET h old 1 older 2", ":2"),
            ("SET h text", "+OK"),
            ("GET h", "$4 text"),
            ("DEL h", ":1"),
            ("HSET h new 1", ":1"),
            ("HGETALL h", "*2 $3 new $1 1"),
            ("DEL h", ":1"),
            ("HGETALL h", "*0"),
        ])
        .await;
    assert_eq!(client.memory.len(), 0, "no fields are left behind");
}

#[tokio::test]
async fn expiries_behave_as_in_redis() {
    let mut client = Client::new(None);
    client
        .expect(&[
            ("TTL k", ":-2"),
            ("EXPIRE k 10", ":0"),
            ("SET k v EX x WHAT", "-ERR syntax error"),
            ("SET k v EX 0 EX 100", "+OK"),
            ("SET k v EX 100 EX 0", "-ERR invalid expire time in 'set' command"),
            ("SET k v EX 100 PX 100", "-ERR syntax error"),
            ("SET k v EX 100", "+OK"),
            ("TTL k", ":100"),
            ("EXPIRE k 50 GT", ":0"),
            ("EXPIRE k 50 NX", ":0"),
            ("EXPIRE k 50 LT", ":1"),
            ("TTL k", ":50"),
            ("APPEND k w", ":2"),
            ("TTL k", ":50"),
            ("SET k v KEEPTTL", "+OK"),
            ("TTL k", ":50"),
            ("PERSIST k", ":1"),
            ("PERSIST k", ":0"),
            ("TTL k", ":-1"),
            ("EXPIRE k 50 XX", ":0"),
            ("EXPIRE k x", "-ERR value is not an integer or out of range"),
            ("EXPIRE k 1 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible"),
            ("EXPIRE k 1 WHAT", "-ERR Unsupported option WHAT"),
            ("GETEX k EX 100", "$1 v"),
            ("GETEX nope PX x", "$-1"),
            ("GETEX k PX x", "-ERR value is not an integer or out of range"),
            ("GETEX k WHAT 1", "-ERR syntax error"),
            ("TTL k", ":100"),
            ("EXPIRE k -1", ":1"),
            ("GET k", "$-1"),
            ("HSET h f v", ":1"),
            ("EXPIRE h 100", ":1"),
            ("HSET h g v", ":1"),
            ("TTL h", ":100"),
            ("SET k v", "+OK"),
            ("EXPIREAT k 1", ":1"),
            ("EXISTS k", ":0"),
        ])
        .await;
}

#[tokio::test]
async fn scan_meets_every_key_once_and_keeps_its_options() {
    let mut client = Client::new(None);
    for i in 0..57 {
        client.ask(&format!("SET key:{i} v")).await;
    }
    client.ask("HSET hash a 1 b 2").await;
    let (mut cursor, mut met) = (String::from("0"), Vec::new());
    loop {
        let answer = client.ask(&format!("SCAN {cursor} COUNT 7")).await;
        let words: Vec<&str> = answer.split(' ').collect();
        met.extend(words[4..].iter().skip(1).step_by(2).map(|word| (*word).to_owned()));
        cursor = words[2].to_owned();
        if cursor == "0" {
            break;
        }
    }
    let unique: std::collections::HashSet<_> = met.iter().collect();
    assert_eq!((met.len(), unique.len()), (58, 58));
    client
        .expect(&[
            ("SCAN 0 COUNT 1000 MATCH key:1?", "*2 $1 0 *10 $6 key:10 $6 key:11 $6 key:12 $6 key:13 $6 key:14 $6 key:15 $6 key:16 $6 key:17 $6 key:18 $6 key:19"),
            ("SCAN 0 COUNT 1000 TYPE hash", "*2 $1 0 *1 $4 hash"),
            ("SCAN x", "-ERR invalid cursor"),
            ("SCAN 0 COUNT 0", "-ERR syntax error"),
            ("HSCAN hash 0", "*2 $1 0 *4 $1 a $1 1 $1 b $1 2"),
            ("DBSIZE", ":58"),
        ])
        .await;
}

#[tokio::test]
async fn what_clients_send_on_connecting_is_answered() {
    let mut client = Client::new(None);
    client
        .expect(&[
            ("PING", "+PONG"),
            ("PING hi", "$2 hi"),
            ("CLIENT SETINFO LIB-NAME x", "+OK"),
            ("CLIENT SETNAME me", "+OK"),
            ("CLIENT GETNAME", "$2 me"),
            ("COMMAND DOCS", "*0"),
            ("CONFIG GET save", "*2 $4 save $0"),
            ("SELECT 0", "+OK"),
            ("SELECT 1", "-TABLE_NOT_FOUND table \"missing\" does not exist"),
            ("SELECT 7", "-ERR DB index is out of range"),
            ("HELLO 4", "-NOPROTO unsupported protocol version"),
            ("NOSUCH a b", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b'"),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
        ])
        .await;
    assert!(client.ask("COMMAND").await.starts_with('*'));
    assert!(client.ask("INFO").await.contains("redis_version:7.0.15"));
    assert!(client.ask("HELLO 3").await.starts_with("%7 $6 server $5 redis"));
    client.expect(&[("GET nope", "_"), ("HGETALL nope", "%0")]).await;
}

#[tokio::test]
async fn without_the_token_nothing_is_answered() {
    let mut client = Client::new(Some("correct-horse"));
    client
        .expect(&[
            ("GET a", "-NOAUTH Authentication required."),
            ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH default correct-horse", "+OK"),
            ("GET a", "$-1"),
            ("RESET", "+RESET"),
            ("GET a", "-NOAUTH Authentication required."),
        ])
        .await;
    assert!(client.ask("HELLO 3 AUTH default correct-horse").await.starts_with('%'));
    client.expect(&[("GET a", "_")]).await;
}

#[tokio::test]
async fn concurrent_changes_of_one_hash_are_all_there() {
    let client = Client::new(None);
    let tasks: Vec<_> = (0..20)
        .map(|i| {
            let shared = client.shared.clone();
            tokio::spawn(async move {
                let run = |line: String| {
                    let args: Args =
                        line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
                    let mut session = Session::new(shared.clone(), i);
                    async move {
                        match session.step(args) {
                            Step::Run { future, .. } => future.await,
                            _ => panic!("a table command"),
                        }
                    }
                };
                run(format!("HSET h f{i} {i}")).await;
                run("HINCRBY h sum 1".to_owned()).await;
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let mut client = client;
    client.expect(&[("HLEN h", ":21"), ("HGET h sum", "$2 20")]).await;
}
