//! One Redis connection: what it has selected and who it is, and commands in flight.
//!
//! Commands of one connection run side by side unless they touch a key in common and one of them
//! writes; answers go out in the order of the commands.

use crate::Failure;
use crate::command::{Command, Context, Outcome, Run, command, commands};
use crate::keyspace::Keyspace;
use crate::resp::{Args, Protocol, Reply};
use crate::server::Shared;
use bytes::Bytes;
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::sync::Arc;

const VERSION: &str = "7.0.15"; // the redis-server whose texts and behaviour we follow

/// What to do with a command.
pub enum Step {
    /// The answer is known.
    Answer(Reply),
    /// It runs; the keys that it touches, and whether it writes.
    Run { future: BoxFuture<'static, Reply>, keys: Vec<Bytes>, write: bool },
    /// It runs alone: what follows depends on it.
    Alone(BoxFuture<'static, Selected>),
    /// The last answer.
    Close(Reply),
}

/// What a SELECT found.
pub type Selected = Result<(String, Arc<dyn Keyspace>), Failure>;

/// One connection's state.
pub struct Session {
    shared: Arc<Shared>,
    id: u64,
    /// How answers are written.
    pub protocol: Protocol,
    authenticated: bool,
    name: Bytes,
    table: Option<(String, Arc<dyn Keyspace>)>,
}

impl Session {
    /// A new connection.
    pub fn new(shared: Arc<Shared>, id: u64) -> Self {
        let authenticated = !shared.token.is_on();
        Self { shared, id, protocol: Protocol::default(), authenticated, name: Bytes::new(), table: None }
    }

    /// Decides about the next command.
    pub fn step(&mut self, args: Args) -> Step {
        let Some(command) = command(&args[0]) else { return Step::Answer(unknown(&args)) };
        if !command.arity_fits(args.len()) {
            return Step::Answer(wrong_arity(command.name));
        }
        if !self.authenticated && !["auth", "hello", "quit", "reset"].contains(&command.name) {
            return Step::Answer(Reply::error("NOAUTH Authentication required."));
        }
        match command.run {
            Run::Session => self.session_command(command.name, &args),
            Run::Table(run) => self.table_command(command, run, args),
        }
    }

    fn table_command(
        &mut self,
        command: &Command,
        run: fn(Context, Vec<Bytes>) -> BoxFuture<'static, Outcome>,
        args: Args,
    ) -> Step {
        let keys = command.keys_of(&args).cloned().collect();
        let shared = self.shared.clone();
        let table = self.table.as_ref().map(|(_, keys)| keys.clone());
        let name = command.name;
        let future = Box::pin(async move {
            let table = match table {
                Some(table) => table,
                None => match shared.open(&shared.tables[0]).await {
                    Ok(table) => table,
                    Err(failure) => return Reply::Error(failure.0),
                },
            };
            let cx = Context { keys: table, cursors: shared.cursors.clone(), now_ms: shared.clock.now_ms() };
            let started = shared.clock.now_ms();
            let reply = run(cx, args).await.unwrap_or_else(|failure| Reply::Error(failure.0));
            let took = shared.clock.now_ms().saturating_sub(started) as f64 / 1000.0;
            metrics::histogram!("undb_proxy_command_duration_seconds", "command" => name).record(took);
            reply
        });
        Step::Run { future, keys, write: command.write }
    }

    /// Takes over what a SELECT found.
    pub fn selected(&mut self, found: Selected) -> Reply {
        match found {
            Ok(table) => {
                self.table = Some(table);
                Reply::OK
            }
            Err(failure) => Reply::Error(failure.0),
        }
    }

    fn session_command(&mut self, name: &str, args: &[Bytes]) -> Step {
        let reply = match name {
            "ping" if args.len() > 2 => wrong_arity("ping"),
            "ping" => args.get(1).map_or(Reply::Simple("PONG"), |text| Reply::Bulk(text.clone())),
            "echo" => Reply::Bulk(args[1].clone()),
            "quit" => return Step::Close(Reply::OK),
            "select" => return self.select(&args[1]),
            "auth" => self.auth(&args[1..]),
            "hello" => self.hello(&args[1..]),
            "reset" => self.reset(),
            "client" => self.client(&args[1..]),
            "command" => command_info(&args[1..]),
            "config" => config(&args[1..]),
            "info" => Reply::Text(self.info()),
            "time" => {
                let now = self.shared.clock.now_ms();
                let parts = [now / 1000, now % 1000 * 1000];
                Reply::Array(parts.iter().map(|n| Reply::text(&n.to_string())).collect())
            }
            _ => unknown(args),
        };
        Step::Answer(reply)
    }

    fn select(&mut self, word: &Bytes) -> Step {
        let text = String::from_utf8_lossy(word).into_owned();
        let name = match text.parse::<usize>() {
            Ok(number) => match self.shared.tables.get(number) {
                Some(name) => name.clone(),
                None => return Step::Answer(Reply::error("ERR DB index is out of range")),
            },
            Err(_) => text,
        };
        let shared = self.shared.clone();
        Step::Alone(Box::pin(async move { shared.open(&name).await.map(|keys| (name, keys)) }))
    }

    fn auth(&mut self, words: &[Bytes]) -> Reply {
        let (user, password) = match words {
            [password] => (None, password),
            [user, password] => (Some(user), password),
            _ => return Reply::error("ERR syntax error"),
        };
        if !self.shared.token.is_on() && user.is_none() {
            return Reply::error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            );
        }
        self.authenticate(user, password).unwrap_or(Reply::OK)
    }

    /// `None`: the password is right.
    fn authenticate(&mut self, user: Option<&Bytes>, password: &Bytes) -> Option<Reply> {
        let right = user.is_none_or(|user| &user[..] == b"default")
            && std::str::from_utf8(password).is_ok_and(|password| self.shared.token.matches(password));
        if right {
            self.authenticated = true;
            return None;
        }
        Some(Reply::error("WRONGPASS invalid username-password pair or user is disabled."))
    }

    fn hello(&mut self, words: &[Bytes]) -> Reply {
        let mut protocol = self.protocol;
        let mut rest = words;
        if let [version, after @ ..] = words {
            protocol = match &version[..] {
                b"2" => Protocol::Resp2,
                b"3" => Protocol::Resp3,
                other if other.iter().all(u8::is_ascii_digit) => {
                    return Reply::error("NOPROTO unsupported protocol version");
                }
                _ => return Reply::error("ERR Protocol version is not an integer or out of range"),
            };
            rest = after;
        }
        while !rest.is_empty() {
            match rest {
                [word, user, password, after @ ..] if word.eq_ignore_ascii_case(b"AUTH") => {
                    if let Some(refused) = self.authenticate(Some(user), password) {
                        return refused;
                    }
                    rest = after;
                }
                [word, name, after @ ..] if word.eq_ignore_ascii_case(b"SETNAME") => {
                    self.name = name.clone();
                    rest = after;
                }
                [word, ..] => {
                    let word = String::from_utf8_lossy(word);
                    return Reply::error(format!("ERR Syntax error in HELLO option '{word}'"));
                }
                [] => break,
            }
        }
        if !self.authenticated {
            return Reply::error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            );
        }
        self.protocol = protocol;
        let pairs = [
            ("server", Reply::text("redis")),
            ("version", Reply::text(VERSION)),
            ("proto", Reply::Int(if protocol == Protocol::Resp3 { 3 } else { 2 })),
            ("id", Reply::Int(self.id as i64)),
            ("mode", Reply::text("standalone")),
            ("role", Reply::text("master")),
            ("modules", Reply::Array(Vec::new())),
        ];
        Reply::Map(pairs.into_iter().map(|(key, value)| (Reply::text(key), value)).collect())
    }

    fn reset(&mut self) -> Reply {
        *self = Session::new(self.shared.clone(), self.id);
        Reply::Simple("RESET")
    }

    fn client(&mut self, words: &[Bytes]) -> Reply {
        let subcommand = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        match (subcommand.as_str(), words.len()) {
            ("SETNAME", 2) if words[1].iter().any(|b| !(b'!'..=b'~').contains(b)) => {
                Reply::error("ERR Client names cannot contain spaces, newlines or special characters.")
            }
            ("SETNAME", 2) => {
                self.name = words[1].clone();
                Reply::OK
            }
            ("GETNAME", 1) if self.name.is_empty() => Reply::Null,
            ("GETNAME", 1) => Reply::Bulk(self.name.clone()),
            ("ID", 1) => Reply::Int(self.id as i64),
            ("SETINFO", 3) | ("NO-EVICT", 2) | ("NO-TOUCH", 2) => Reply::OK,
            ("INFO" | "LIST", 1) => {
                let name = String::from_utf8_lossy(&self.name);
                Reply::Text(format!("id={} name={name} db={}\n", self.id, self.selected_name()))
            }
            _ => unknown_subcommand("CLIENT", &words[0]),
        }
    }

    fn selected_name(&self) -> &str {
        self.table.as_ref().map_or(&self.shared.tables[0], |(name, _)| name)
    }

    fn info(&self) -> String {
        let tables = self.shared.tables.iter().enumerate();
        let databases: String = tables.map(|(i, name)| format!("db{i}:table={name}\r\n")).collect();
        format!(
            "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nundb_version:{}\r\nuptime_in_seconds:{}\r\n\r\n\
             # Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n\r\n\
             # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
             # Cluster\r\ncluster_enabled:0\r\n\r\n# Keyspace\r\n{databases}",
            env!("CARGO_PKG_VERSION"),
            self.shared.clock.now_ms().saturating_sub(self.shared.started_ms) / 1000,
            self.shared.connections(),
            self.shared.connections_max,
        )
    }
}

/// Redis's own text; the words are cut as it cuts them.
fn unknown(args: &[Bytes]) -> Reply {
    const SHOWN_MAX: usize = 128;
    let cut = |word: &Bytes| String::from_utf8_lossy(&word[..word.len().min(SHOWN_MAX)]).into_owned();
    let mut shown = String::new();
    for arg in &args[1..] {
        if shown.len() >= SHOWN_MAX {
            break;
        }
        let room = SHOWN_MAX - shown.len();
        let word = String::from_utf8_lossy(&arg[..arg.len().min(room)]).into_owned();
        shown.push_str(&format!("'{word}' "));
    }
    Reply::error(format!("ERR unknown command '{}', with args beginning with: {shown}", cut(&args[0])))
}

fn unknown_subcommand(command: &str, word: &[u8]) -> Reply {
    let word = String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
    Reply::error(format!("ERR unknown subcommand '{word}'. Try {command} HELP."))
}

fn wrong_arity(name: &str) -> Reply {
    Reply::error(format!("ERR wrong number of arguments for '{name}' command"))
}

fn command_info(words: &[Bytes]) -> Reply {
    let Some(subcommand) = words.first() else {
        return Reply::Array(commands().iter().map(describe).collect());
    };
    if subcommand.eq_ignore_ascii_case(b"COUNT") {
        return Reply::Int(commands().len() as i64);
    }
    if subcommand.eq_ignore_ascii_case(b"DOCS") {
        return Reply::Map(Vec::new());
    }
    if subcommand.eq_ignore_ascii_case(b"LIST") {
        return Reply::Array(commands().iter().map(|c| Reply::text(c.name)).collect());
    }
    if subcommand.eq_ignore_ascii_case(b"INFO") {
        let found = words[1..].iter().map(|name| command(name).map_or(Reply::Null, describe));
        return Reply::Array(found.collect());
    }
    unknown_subcommand("COMMAND", subcommand)
}

fn describe(command: &Command) -> Reply {
    let (first, last, step) = command.keys;
    let flag = if command.write { "write" } else { "readonly" };
    let numbers = [first, last, step].map(|n| Reply::Int(i64::from(n)));
    let head = [
        Reply::text(command.name),
        Reply::Int(command.arity.into()),
        Reply::Array(vec![Reply::Simple(flag)]),
    ];
    Reply::Array(head.into_iter().chain(numbers).collect())
}

fn config(words: &[Bytes]) -> Reply {
    if !words[0].eq_ignore_ascii_case(b"GET") {
        return Reply::error(
            "ERR only CONFIG GET is supported by UNDB; tables are configured with 'undb apply'",
        );
    }
    // What redis-benchmark and clients ask about; the truth about durability, in Redis's words.
    let known: HashMap<&str, &str> =
        HashMap::from([("save", ""), ("appendonly", "yes"), ("appendfsync", "always"), ("databases", "16")]);
    let asked = words[1..].iter().map(|word| String::from_utf8_lossy(word).to_ascii_lowercase());
    let found = asked
        .filter_map(|name| known.get(name.as_str()).map(|value| (Reply::text(&name), Reply::text(value))));
    Reply::Map(found.collect())
}
