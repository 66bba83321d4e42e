//! The two ways in: the SDK, and the Redis protocol with a pool of connections that is made anew.

use super::LoadArgs;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use undb_sdk::{Client, Options, Table};

const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Connections at a time; a command waits for one, and that wait counts.
const CONNECTIONS_MAX: usize = 64;

/// Why a request did not end well.
#[derive(Debug)]
pub struct Bad {
    /// A write that may have happened.
    pub ambiguous: bool,
    /// For people.
    pub text: String,
}

impl Bad {
    fn failed(text: impl std::fmt::Display) -> Bad {
        Bad { ambiguous: false, text: text.to_string() }
    }
}

/// How to reach the cluster, from flags and mounted files.
pub fn options(args: &LoadArgs) -> Result<Options, String> {
    let mut options = args.connect.options()?;
    options.timeouts.read = args.deadline();
    options.timeouts.write = args.deadline();
    Ok(options)
}

/// A table, waited for: the client may be there before the cluster.
pub async fn table(options: &Options, name: &str, wait: Duration) -> Result<Table, String> {
    let until = Instant::now() + wait;
    loop {
        let tried = async { Client::connect(options.clone()).await?.table(name).await };
        match tried.await {
            Ok(table) => return Ok(table),
            Err(error) if Instant::now() >= until => return Err(format!("table {name}: {error}")),
            Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
        }
    }
}

pub async fn sdk_put(table: &Table, key: String, value: Vec<u8>) -> Result<(), Bad> {
    let put = table.put(key, value).await;
    put.map(|_| ()).map_err(|e| Bad { ambiguous: e.is_ambiguous(), text: e.to_string() })
}

pub async fn sdk_get(table: &Table, key: String) -> Result<Option<Vec<u8>>, Bad> {
    let got = table.get(key).await.map_err(Bad::failed)?;
    Ok(got.map(|record| record.value.to_vec()))
}

/// Connections to a proxy; a command gets one of its own.
pub struct Resp {
    client: redis::Client,
    password: Option<String>,
    idle: Mutex<Vec<redis::aio::MultiplexedConnection>>,
    slots: Semaphore,
    deadline: Duration,
}

impl Resp {
    pub fn new(args: &LoadArgs, address: &str) -> Result<Resp, String> {
        let client =
            redis::Client::open(format!("redis://{address}/")).map_err(|e| format!("{address}: {e}"))?;
        let password = args.connect.token()?;
        Ok(Resp {
            client,
            password,
            idle: Mutex::default(),
            slots: Semaphore::new(CONNECTIONS_MAX),
            deadline: args.deadline(),
        })
    }

    /// Runs an idempotent command: answered, or repeated once when no reply came. True: it was repeated.
    pub async fn run<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> (Result<T, Bad>, bool) {
        let until = Instant::now() + self.deadline;
        let mut sent = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.attempt(command)).await {
                Err(_) => {
                    // Once sent and never answered, a write may have happened.
                    let text = format!("no reply within {:?}", self.deadline);
                    return (Err(Bad { ambiguous: true, text }), sent > 1);
                }
                Ok(Ok(answer)) => return (Ok(answer), sent > 0),
                Ok(Err((error, was_sent))) => {
                    sent += usize::from(was_sent);
                    let answered = was_sent && !is_broken(&error);
                    if answered || sent > 1 || Instant::now() + RECONNECT_PAUSE >= until {
                        return (
                            Err(Bad { ambiguous: !answered && sent > 0, text: error.to_string() }),
                            sent > 1,
                        );
                    }
                }
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    /// The flag of an error: the command was sent.
    async fn attempt<T: redis::FromRedisValue>(
        &self,
        command: &redis::Cmd,
    ) -> Result<T, (redis::RedisError, bool)> {
        // It is never closed.
        let _slot = self.slots.acquire().await;
        let pooled = self.idle.lock().pop();
        let mut connection = match pooled {
            Some(connection) => connection,
            None => self.connect().await.map_err(|e| (e, false))?,
        };
        let answer = command.query_async::<T>(&mut connection).await;
        match answer {
            Ok(answer) => {
                self.give_back(connection);
                Ok(answer)
            }
            Err(error) => {
                if is_broken(&error) {
                    // Its neighbours were most likely cut with it.
                    self.idle.lock().clear();
                } else {
                    self.give_back(connection);
                }
                Err((error, true))
            }
        }
    }

    async fn connect(&self) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
        // The caller's deadline is the only one; the crate's own is half a second.
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(Some(self.deadline))
            .set_connection_timeout(Some(Duration::from_secs(1)));
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        if let Some(password) = &self.password {
            let auth = redis::cmd("AUTH").arg(password).exec_async(&mut connection).await;
            // A proxy that asks for no password refuses one; every other command tells.
            auth.or_else(|e| if is_broken(&e) { Err(e) } else { Ok(()) })?;
        }
        Ok(connection)
    }

    fn give_back(&self, connection: redis::aio::MultiplexedConnection) {
        self.idle.lock().push(connection);
    }
}

fn is_broken(error: &redis::RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped() || error.is_timeout()
}
