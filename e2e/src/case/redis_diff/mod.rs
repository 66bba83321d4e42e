//! Random commands, to redis-server and to the proxy of `undb dev`, the answers compared.

mod compare;
mod resp;
mod script;

use super::{Failure, Run, say};
use crate::harness::{Dev, HarnessError, Process, Ready, free_port, wait_for_table};
use compare::{Comparison, compare, known};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use resp::{Connection, Reply};
use script::{Command, KEYS, shown};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const CASE: &str = "redis-diff";
const SHOWN_MAX: usize = 20;
const STATE_EVERY: usize = 400;
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    let Some(program) = find("redis-server") else {
        return Err(Failure::Missing(
            "redis-server is not in PATH: install it (Debian: apt-get install redis-server), then run this again"
                .into(),
        ));
    };
    let dev = Dev::start().await?;
    wait_for_table(&undb_sdk::Options::new([dev.endpoint()]), "default").await?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let port = address.rsplit(':').next().unwrap_or_default().to_string();
    let data = dev.dir().display().to_string();
    let args = ["--port", &port, "--save", "", "--appendonly", "no", "--dir", &data, "--bind", "127.0.0.1"];
    let args = args.into_iter().map(String::from).collect();
    let mut redis = Process::new("redis", &program, args, dev.dir(), Ready::Accepts(address.clone()));
    redis.start()?;
    redis.wait_ready().await?;
    crate_smoke(dev.resp()).await?;
    let mut pair =
        Pair { redis: Connection::open(&address).await?, undb: Connection::open(dev.resp()).await? };
    let found = work(&mut pair, run).await;
    if found.is_err() {
        drop(redis);
        say(CASE, format_args!("the log is kept in {}", dev.keep().display()));
    }
    found
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// The most used Rust client, as its users would use it.
async fn crate_smoke(address: &str) -> Result<(), Failure> {
    let wrong = |e: redis::RedisError| Failure::Found(format!("the redis crate failed: {e}"));
    let client = redis::Client::open(format!("redis://{address}/")).map_err(wrong)?;
    let mut connection = client.get_multiplexed_async_connection().await.map_err(wrong)?;
    let mut pipe = redis::pipe();
    pipe.cmd("SET").arg("crate").arg(b"\x00\xff".as_slice()).ignore();
    pipe.cmd("HSET").arg("crate:h").arg("f").arg(1).ignore();
    pipe.cmd("GET").arg("crate").cmd("HGET").arg("crate:h").arg("f");
    let (value, field): (Vec<u8>, i64) = pipe.query_async(&mut connection).await.map_err(wrong)?;
    if (value.as_slice(), field) != (b"\x00\xff".as_slice(), 1) {
        return Err(Failure::Found(format!("the redis crate read {value:?} and {field}")));
    }
    let mut delete = redis::cmd("DEL");
    let removed: i64 =
        delete.arg("crate").arg("crate:h").query_async(&mut connection).await.map_err(wrong)?;
    if removed != 2 {
        return Err(Failure::Found(format!("the redis crate removed {removed} of 2 keys")));
    }
    say(CASE, "the redis crate talks to the proxy");
    Ok(())
}

/// Both servers.
struct Pair {
    redis: Connection,
    undb: Connection,
}

impl Pair {
    async fn send(&mut self, commands: &[Command]) -> Result<Vec<(Reply, Reply)>, Failure> {
        let redis = self.redis.pipeline(commands).await.map_err(HarnessError::io("asking redis-server"))?;
        let undb = self.undb.pipeline(commands).await.map_err(HarnessError::io("asking the proxy"))?;
        Ok(redis.into_iter().zip(undb).collect())
    }
}

/// What was found so far.
#[derive(Default)]
struct Tally {
    commands: usize,
    known: BTreeMap<&'static str, usize>,
    unknown: Vec<String>,
}

impl Tally {
    /// Returns true when the answers differ, so that what is stored may differ too.
    fn judge(&mut self, command: &Command, redis: &Reply, undb: &Reply) -> bool {
        self.commands += 1;
        if compare(command, redis, undb) == Comparison::Same {
            return false;
        }
        if let Some(reason) = known(command, redis, undb) {
            *self.known.entry(reason).or_default() += 1;
            return true;
        }
        self.unknown.push(format!("{}\n    redis {redis}\n    undb  {undb}", shown(command)));
        true
    }
}

async fn work(pair: &mut Pair, run: Run) -> Result<String, Failure> {
    let mut rng = StdRng::seed_from_u64(run.seed);
    let mut tally = Tally::default();
    let end = Instant::now() + run.duration;
    let mut next_report = Instant::now() + REPORT_EVERY;
    let mut next_state = STATE_EVERY;
    while Instant::now() < end && tally.unknown.len() < SHOWN_MAX {
        let count = if rng.random_bool(0.2) { rng.random_range(2..30) } else { 1 };
        let mut commands: Vec<Command> = (0..count).map(|_| script::command(&mut rng)).collect();
        if count > 1 {
            // A key that expires soon does so between the commands of a pipeline, for one server sooner; and
            // what a known difference leaves behind is only removed after the pipeline.
            commands.retain(|command| !script::expires_soon(command) && !script::adds_floats(command));
        }
        let mut differ = false;
        for (command, (redis, undb)) in commands.iter().zip(pair.send(&commands).await?) {
            differ |= tally.judge(command, &redis, &undb);
        }
        if commands.iter().any(script::expires_soon) {
            tokio::time::sleep(script::SOON * 4).await;
        }
        if tally.commands >= next_state {
            next_state += STATE_EVERY;
            differ |= compare_state(pair, &mut tally).await?;
        }
        if differ {
            // From different states, everything behind would differ too.
            pair.send(&[script::words(["DEL"].into_iter().chain(KEYS))]).await?;
        }
        if Instant::now() >= next_report {
            next_report += REPORT_EVERY;
            say(CASE, format_args!("{} commands, {} differences", tally.commands, tally.unknown.len()));
        }
    }
    compare_state(pair, &mut tally).await?;
    report(tally)
}

async fn compare_state(pair: &mut Pair, tally: &mut Tally) -> Result<bool, Failure> {
    let mut commands: Vec<Command> = Vec::new();
    for key in KEYS {
        // Each lets Redis drop what has expired, which DBSIZE behind it then does not count.
        commands.extend(["TYPE", "GET", "HGETALL", "PTTL"].map(|name| script::words([name, key])));
    }
    commands.push(script::words(["DBSIZE"]));
    let mut differ = false;
    for (command, (redis, undb)) in commands.iter().zip(pair.send(&commands).await?) {
        differ |= tally.judge(command, &redis, &undb);
    }
    let (redis, undb) = (pair.redis.scan().await, pair.undb.scan().await);
    let (redis, undb) =
        (redis.map_err(HarnessError::io("scanning"))?, undb.map_err(HarnessError::io("scanning"))?);
    if redis != undb {
        tally.unknown.push(format!("SCAN to its end\n    redis {redis:?}\n    undb  {undb:?}"));
        differ = true;
    }
    Ok(differ)
}

fn report(tally: Tally) -> Result<String, Failure> {
    for (reason, count) in &tally.known {
        say(CASE, format_args!("known difference, {count} times: {reason}"));
    }
    let commands = tally.commands;
    if tally.unknown.is_empty() {
        let known = tally.known.len();
        return Ok(format!("{commands} answers compared, 0 unexplained differences, {known} known kinds"));
    }
    for difference in &tally.unknown {
        say(CASE, difference);
    }
    Err(Failure::Found(format!("{} unexplained differences in {commands} answers", tally.unknown.len())))
}
