//! Random commands over few keys, so that they meet: right ones, wrong ones, and on keys of the wrong type.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::time::Duration;

/// The words of a command.
pub(super) type Command = Vec<Vec<u8>>;

/// Every key that is ever used.
pub(super) const KEYS: [&str; 8] = ["a", "b", "c", "d{x}", "e:f", "long-long-long-key", "h1", "h2"];
const FIELDS: [&str; 6] = ["f", "g", "h", "", "field \n", "z"];

/// Expiries are this far away or very far.
pub(super) const SOON: Duration = Duration::from_millis(5);

pub(super) fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    words.into_iter().map(|word| word.as_bytes().to_vec()).collect()
}

pub(super) fn shown(command: &Command) -> String {
    let word = |word: &Vec<u8>| {
        let text = word.escape_ascii().to_string();
        if text.is_empty() || text.contains(' ') { format!("\"{text}\"") } else { text }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// True when the command may make a key expire within `SOON`.
pub(super) fn expires_soon(command: &Command) -> bool {
    let soon = SOON.as_millis().to_string();
    command.iter().any(|word| word == soon.as_bytes())
}

/// True for commands whose last digits are known to differ.
pub(super) fn adds_floats(command: &Command) -> bool {
    command.first().is_some_and(|name| name.to_ascii_uppercase().ends_with(b"INCRBYFLOAT"))
}

fn key(rng: &mut StdRng) -> String {
    KEYS.choose(rng).copied().unwrap_or("a").into()
}

fn field(rng: &mut StdRng) -> String {
    FIELDS.choose(rng).copied().unwrap_or("f").into()
}

fn value(rng: &mut StdRng) -> String {
    match rng.random_range(0..8) {
        0..4 => rng.random_range(-1000i64..1000).to_string(),
        4 => ["", "abc", "hello world", "0", "-0", "01", "+1", " 1", "1 ", "1.5", "nan", "inf", "1e3"]
            .choose(rng)
            .copied()
            .unwrap_or("")
            .into(),
        5 => i64::MAX.to_string(),
        6 => "x".repeat(rng.random_range(0..2000)),
        _ => format!("v{}", rng.random_range(0..10)),
    }
}

fn number(rng: &mut StdRng) -> String {
    match rng.random_range(0..20) {
        0 => i64::MAX.to_string(),
        1 => i64::MIN.to_string(),
        2 => "9223372036854775808".into(),
        3 => ["x", "", "1.0", " 1", "1e2", "--1"].choose(rng).copied().unwrap_or("x").into(),
        _ => rng.random_range(-100..100).to_string(),
    }
}

fn float(rng: &mut StdRng) -> String {
    ["0.5", "1", "-2.25", "10.1", "3.0e2", "x", "", "0"].choose(rng).copied().unwrap_or("1").into()
}

fn seconds(rng: &mut StdRng) -> String {
    match rng.random_range(0..10) {
        0 => ["0", "-1", "x", "9223372036854775807", "1.5"].choose(rng).copied().unwrap_or("0").into(),
        _ => rng.random_range(1000..100_000).to_string(),
    }
}

fn millis(rng: &mut StdRng) -> String {
    match rng.random_range(0..4) {
        0 => SOON.as_millis().to_string(),
        1 => ["0", "-1", "x", "9223372036854775807"].choose(rng).copied().unwrap_or("0").into(),
        _ => rng.random_range(1_000_000..100_000_000).to_string(),
    }
}

fn at_seconds(rng: &mut StdRng) -> String {
    ["1", "4102444800", "4102444801", "0", "-5", "x"].choose(rng).copied().unwrap_or("1").into()
}

fn index(rng: &mut StdRng) -> String {
    if rng.random_bool(0.05) { "x".into() } else { rng.random_range(-8i64..12).to_string() }
}

/// A command.
pub(super) fn command(rng: &mut StdRng) -> Command {
    let words: Vec<String> = match rng.random_range(0..10) {
        0..3 => string(rng),
        3..5 => counter(rng),
        5..7 => keyspace(rng),
        7..9 => hash(rng),
        _ => odd(rng),
    };
    let mut command: Command = words.into_iter().map(String::into_bytes).collect();
    // Sometimes a word too many or too few.
    match rng.random_range(0..60) {
        0 if command.len() > 1 => drop(command.pop()),
        1 => command.push(b"extra".to_vec()),
        2 => command[0] = command[0].to_ascii_lowercase(),
        _ => {}
    }
    command
}

fn of(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

fn string(rng: &mut StdRng) -> Vec<String> {
    let (k, v) = (key(rng), value(rng));
    match rng.random_range(0..18) {
        0..4 => of(&["GET", &k]),
        4..8 => set(rng),
        8 => of(&["SETNX", &k, &v]),
        9 => of(&["SETEX", &k, &seconds(rng), &v]),
        10 => of(&["PSETEX", &k, &millis(rng), &v]),
        11 => of(&["GETSET", &k, &v]),
        12 => of(&["GETDEL", &k]),
        13 => getex(rng),
        14 => of(&["APPEND", &k, &v]),
        15 => of(&["GETRANGE", &k, &index(rng), &index(rng)]),
        16 => of(&["SETRANGE", &k, &index(rng), &v]),
        _ => many(rng),
    }
}

fn set(rng: &mut StdRng) -> Vec<String> {
    let mut words = of(&["SET", &key(rng), &value(rng)]);
    for _ in 0..rng.random_range(0..3) {
        match rng.random_range(0..9) {
            0 => words.push("NX".into()),
            1 => words.push("XX".into()),
            2 => words.push("GET".into()),
            3 => words.push("KEEPTTL".into()),
            4 => words.extend(of(&["EX", &seconds(rng)])),
            5 => words.extend(of(&["PX", &millis(rng)])),
            6 => words.extend(of(&["EXAT", &at_seconds(rng)])),
            7 => words.push("WHAT".into()),
            _ => {}
        }
    }
    words
}

fn getex(rng: &mut StdRng) -> Vec<String> {
    let mut words = of(&["GETEX", &key(rng)]);
    match rng.random_range(0..5) {
        0 => words.extend(of(&["EX", &seconds(rng)])),
        1 => words.extend(of(&["PX", &millis(rng)])),
        2 => words.push("PERSIST".into()),
        3 => words.extend(of(&["EXAT", &at_seconds(rng)])),
        _ => {}
    }
    words
}

fn many(rng: &mut StdRng) -> Vec<String> {
    let count = rng.random_range(1..4);
    match rng.random_range(0..3) {
        0 => ["MGET".into()].into_iter().chain((0..count).map(|_| key(rng))).collect(),
        kind => {
            let name = if kind == 1 { "MSET" } else { "MSETNX" };
            let mut words = of(&[name]);
            for _ in 0..count {
                words.extend([key(rng), value(rng)]);
            }
            words
        }
    }
}

fn counter(rng: &mut StdRng) -> Vec<String> {
    let k = key(rng);
    match rng.random_range(0..8) {
        0..2 => of(&["INCR", &k]),
        2 => of(&["DECR", &k]),
        3 => of(&["INCRBY", &k, &number(rng)]),
        4 => of(&["DECRBY", &k, &number(rng)]),
        5 => of(&["INCRBYFLOAT", &k, &float(rng)]),
        6 => of(&["HINCRBYFLOAT", &k, &field(rng), &float(rng)]),
        _ => of(&["HINCRBY", &k, &field(rng), &number(rng)]),
    }
}

fn keyspace(rng: &mut StdRng) -> Vec<String> {
    let k = key(rng);
    match rng.random_range(0..16) {
        0..2 => of(&["DEL", &k]),
        2 => of(&["UNLINK", &k, &key(rng), &key(rng)]),
        3 => of(&["EXISTS", &k, &key(rng), &k]),
        4 => of(&["TYPE", &k]),
        5 => with_condition(of(&["EXPIRE", &k, &seconds(rng)]), rng),
        6 => with_condition(of(&["PEXPIRE", &k, &millis(rng)]), rng),
        7 => with_condition(of(&["EXPIREAT", &k, &at_seconds(rng)]), rng),
        8..10 => of(&["TTL", &k]),
        10 => of(&["PTTL", &k]),
        11 => of(&["EXPIRETIME", &k]),
        12 => of(&["PERSIST", &k]),
        13 => of(&["STRLEN", &k]),
        14 => of(&["TOUCH", &k, &key(rng)]),
        _ => of(&["PEXPIRETIME", &k]),
    }
}

fn with_condition(mut words: Vec<String>, rng: &mut StdRng) -> Vec<String> {
    if rng.random_bool(0.4) {
        words.push(["NX", "XX", "GT", "LT", "WHAT"].choose(rng).copied().unwrap_or("NX").into());
    }
    words
}

fn hash(rng: &mut StdRng) -> Vec<String> {
    let (k, f, v) = (key(rng), field(rng), value(rng));
    match rng.random_range(0..16) {
        0..3 => of(&["HSET", &k, &f, &v]),
        3 => of(&["HSET", &k, &f, &v, &field(rng), &value(rng), &field(rng), &value(rng)]),
        4 => of(&["HMSET", &k, &f, &v, &field(rng), &value(rng)]),
        5 => of(&["HSETNX", &k, &f, &v]),
        6..8 => of(&["HGET", &k, &f]),
        8 => of(&["HMGET", &k, &f, &field(rng)]),
        9..11 => of(&["HGETALL", &k]),
        11 => of(&["HDEL", &k, &f, &field(rng)]),
        12 => of(&["HEXISTS", &k, &f]),
        13 => of(&["HLEN", &k]),
        14 => of(&["HSTRLEN", &k, &f]),
        _ => of(&[if rng.random_bool(0.5) { "HKEYS" } else { "HVALS" }, &k]),
    }
}

fn odd(rng: &mut StdRng) -> Vec<String> {
    let k = key(rng);
    match rng.random_range(0..9) {
        0 => of(&["PING"]),
        1 => of(&["PING", &value(rng)]),
        2 => of(&["ECHO", &value(rng)]),
        3 => of(&["NOSUCHCOMMAND", &k, "with some", "words"]),
        4 => of(&["HELLO", ["2", "3", "7", "x"].choose(rng).copied().unwrap_or("2")]),
        5 => of(&["SELECT", ["0", "0", "0", "x"].choose(rng).copied().unwrap_or("0")]),
        6 => of(&["CLIENT", "GETNAME"]),
        7 => of(&["SUBSTR", &k, &index(rng), &index(rng)]),
        _ => of(&["MSET", &k]),
    }
}
