//! The table of commands: what COMMAND answers, what arities are checked against, what runs.

use super::{Context, Outcome, hash, key, number, set, string};
use bytes::Bytes;
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::sync::OnceLock;

/// How a command runs.
#[derive(Clone, Copy)]
pub enum Run {
    /// It concerns the connection; the session knows how.
    Session,
    /// It concerns a table.
    Table(fn(Context, Vec<Bytes>) -> BoxFuture<'static, Outcome>),
}

/// A command.
pub struct Command {
    /// In lower case.
    pub name: &'static str,
    /// Words with the name; negative: at least so many.
    pub arity: i32,
    /// Where its keys stand: first, last (negative: from the end), every so many. 0: none.
    pub keys: (i32, i32, i32),
    /// It changes something.
    pub write: bool,
    /// What runs.
    pub run: Run,
}

impl Command {
    /// True when so many words are right.
    pub fn arity_fits(&self, words: usize) -> bool {
        let words = words as i32;
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    /// The keys among its words.
    pub fn keys_of<'a>(&self, args: &'a [Bytes]) -> impl Iterator<Item = &'a Bytes> {
        let (first, last, step) = self.keys;
        let last = if last < 0 { args.len() as i32 + last } else { last };
        let count = if first == 0 { 0 } else { (last + 1 - first).max(0) as usize };
        args.iter().skip(first as usize).take(count).step_by(step.max(1) as usize)
    }
}

macro_rules! commands {
    ($($name:literal $arity:literal $keys:tt $mode:ident $($run:path)?;)*) => {
        vec![$(Command {
            name: $name,
            arity: $arity,
            keys: $keys,
            write: stringify!($mode).len() == "write".len(),
            run: commands!(@run $($run)?),
        }),*]
    };
    (@run) => { Run::Session };
    (@run $run:path) => { Run::Table(|cx, args| Box::pin($run(cx, args))) };
}

/// All of them.
pub fn commands() -> &'static [Command] {
    static COMMANDS: OnceLock<Vec<Command>> = OnceLock::new();
    COMMANDS.get_or_init(|| {
        commands! {
            "auth" -2 (0,0,0) read; "client" -2 (0,0,0) read; "command" -1 (0,0,0) read;
            "config" -2 (0,0,0) read; "echo" 2 (0,0,0) read; "hello" -1 (0,0,0) read;
            "info" -1 (0,0,0) read; "ping" -1 (0,0,0) read; "quit" -1 (0,0,0) read;
            "reset" 1 (0,0,0) read; "select" 2 (0,0,0) read; "time" 1 (0,0,0) read;

            "get" 2 (1,1,1) read string::get; "mget" -2 (1,-1,1) read string::mget;
            "set" -3 (1,1,1) write set::set; "setnx" 3 (1,1,1) write set::setnx;
            "setex" 4 (1,1,1) write set::setex; "psetex" 4 (1,1,1) write set::psetex;
            "getset" 3 (1,1,1) write set::getset; "mset" -3 (1,-1,2) write set::mset;
            "msetnx" -3 (1,-1,2) write set::msetnx;
            "getdel" 2 (1,1,1) write string::getdel; "getex" -2 (1,1,1) write string::getex;
            "append" 3 (1,1,1) write string::append; "strlen" 2 (1,1,1) read string::strlen;
            "getrange" 4 (1,1,1) read string::getrange; "substr" 4 (1,1,1) read string::getrange;
            "setrange" 4 (1,1,1) write string::setrange;
            "incr" 2 (1,1,1) write number::incr; "decr" 2 (1,1,1) write number::decr;
            "incrby" 3 (1,1,1) write number::incrby; "decrby" 3 (1,1,1) write number::decrby;
            "incrbyfloat" 3 (1,1,1) write number::incrbyfloat;

            "del" -2 (1,-1,1) write key::del; "unlink" -2 (1,-1,1) write key::del;
            "exists" -2 (1,-1,1) read key::exists; "touch" -2 (1,-1,1) read key::exists;
            "type" 2 (1,1,1) read key::kind; "object" -2 (2,2,1) read key::object;
            "expire" -3 (1,1,1) write key::expire; "pexpire" -3 (1,1,1) write key::pexpire;
            "expireat" -3 (1,1,1) write key::expireat; "pexpireat" -3 (1,1,1) write key::pexpireat;
            "ttl" 2 (1,1,1) read key::ttl; "pttl" 2 (1,1,1) read key::pttl;
            "expiretime" 2 (1,1,1) read key::expiretime; "pexpiretime" 2 (1,1,1) read key::pexpiretime;
            "persist" 2 (1,1,1) write key::persist;
            "scan" -2 (0,0,0) read key::scan; "dbsize" 1 (0,0,0) read key::dbsize;

            "hset" -4 (1,1,1) write hash::hset; "hmset" -4 (1,1,1) write hash::hmset;
            "hsetnx" 4 (1,1,1) write hash::hsetnx; "hget" 3 (1,1,1) read hash::hget;
            "hmget" -3 (1,1,1) read hash::hmget; "hgetall" 2 (1,1,1) read hash::hgetall;
            "hdel" -3 (1,1,1) write hash::hdel; "hexists" 3 (1,1,1) read hash::hexists;
            "hlen" 2 (1,1,1) read hash::hlen; "hstrlen" 3 (1,1,1) read hash::hstrlen;
            "hincrby" 4 (1,1,1) write hash::hincrby; "hincrbyfloat" 4 (1,1,1) write hash::hincrbyfloat;
            "hkeys" 2 (1,1,1) read hash::hkeys; "hvals" 2 (1,1,1) read hash::hvals;
            "hscan" -3 (1,1,1) read key::hscan;
        }
    })
}

/// The command of a name, whatever its case.
pub fn command(name: &[u8]) -> Option<&'static Command> {
    static BY_NAME: OnceLock<HashMap<&'static [u8], &'static Command>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| commands().iter().map(|c| (c.name.as_bytes(), c)).collect());
    by_name.get(&name.to_ascii_lowercase()[..]).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_where_the_table_says() {
        let args: Vec<Bytes> = ["mset", "a", "1", "b", "2"].into_iter().map(Bytes::from).collect();
        let keys: Vec<_> = command(b"MSET").expect("known").keys_of(&args).cloned().collect();
        assert_eq!(keys, vec![Bytes::from("a"), Bytes::from("b")]);
        assert_eq!(command(b"get").expect("known").keys_of(&args[..2]).count(), 1);
        assert_eq!(command(b"ping").expect("known").keys_of(&args).count(), 0);
        assert!(command(b"nosuch").is_none());
    }
}
