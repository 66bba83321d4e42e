//! `undb resp`: one Redis command to a proxy, where there is no other Redis client.

use crate::connect::Credentials;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, RedisConnectionInfo, RedisError, Value};
use std::ffi::OsString;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use undb_runtime::Tls;
use undb_runtime::tls::{self, DialError};

/// For a proxy that starts; less than the whole, so that the answer has some of it.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  undb resp SET greeting hello               through the proxy of `undb dev`
  undb resp GET greeting
  undb resp --table packages HGETALL curl    of another table than the proxy's first
  undb resp --proxy undb-proxy:6379 --ca-file ca.crt --token-file token PING
  undb resp --proxy undb-proxy:6379 --plain PING     although UNDB_CA_FILE is set
For images and Pods where there is no redis-cli; any Redis client does the same.
Exit codes: 0 answered, 1 the answer is nil, 3 no proxy, 4 the token is wrong, 6 the proxy refused it.";

/// Send one Redis command to a proxy and print the answer
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The command and what it takes
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Where the proxy takes Redis clients, HOST:PORT
    #[arg(long, env = "UNDB_PROXY", default_value = "127.0.0.1:7379", value_name = "HOST:PORT")]
    proxy: String,
    /// Speak plain, whatever CA is named for the cluster
    #[arg(long)]
    plain: bool,
    /// The table; without it the proxy's first
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Give up after this many seconds
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    timeout: f64,
    #[command(flatten)]
    credentials: Credentials,
}

/// Sends it and prints what comes back.
pub async fn run(args: Args) -> Outcome {
    let within = crate::connect::seconds(args.timeout)?;
    let answer = tokio::time::timeout(within, ask(&args, within)).await;
    let answer =
        answer.map_err(|_late| unreachable(format!("{}: no answer within --timeout", args.proxy)))??;
    if answer == Value::Nil {
        return Err(Failure::new(Exit::Absent, "nil"));
    }
    let mut text = Vec::new();
    print(&answer, 0, &mut text);
    output::bytes(&text)?;
    Ok(Exit::Ok)
}

async fn ask(args: &Args, within: Duration) -> Outcome<Value> {
    match args.credentials.tls()?.filter(|_| !args.plain) {
        Some(options) => {
            let tls = Tls::open(options)?;
            let connect = async || tls::connect(&args.proxy, &tls).await;
            ask_over(patiently(within, connect).await?, args, within).await
        }
        None => {
            let failed = |source| DialError::Tcp { address: args.proxy.clone(), source };
            let connect = async || TcpStream::connect(&args.proxy).await.map_err(failed);
            ask_over(patiently(within, connect).await?, args, within).await
        }
    }
}

/// A proxy that starts takes no connections yet: as `undb kv` does, this waits for it.
async fn patiently<S>(within: Duration, connect: impl AsyncFn() -> Result<S, DialError>) -> Outcome<S> {
    let until = Instant::now() + within.min(CONNECT_WITHIN);
    loop {
        match connect().await {
            Ok(stream) => return Ok(stream),
            Err(DialError::Tcp { .. }) if Instant::now() + PAUSE < until => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(unreachable(error)),
        }
    }
}

async fn ask_over<S>(stream: S, args: &Args, within: Duration) -> Outcome<Value>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let refused = |error: RedisError| refused(&args.proxy, &error);
    let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(token) = args.credentials.token()? {
        info = info.set_password(token);
    }
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(within));
    // The connection does nothing until its driver is polled, in this command also for the handshake.
    let made = MultiplexedConnection::new_with_config(&info, stream, config).await;
    let (mut connection, driver) = made.map_err(refused)?;
    tokio::spawn(driver);
    // An error is an answer like others to this crate, and none to us.
    let mut send = async |command: &Cmd| {
        connection.send_packed_command(command).await.and_then(Value::extract_error).map_err(refused)
    };
    if let Some(table) = &args.table {
        send(redis::cmd("SELECT").arg(table)).await?;
    }
    let mut command = Cmd::new();
    for word in &args.command {
        command.arg(word.as_bytes());
    }
    send(&command).await
}

fn unreachable(problem: impl Display) -> Failure {
    let next = "is a proxy running there? `undb dev` starts one, --proxy or UNDB_PROXY names another";
    Failure::new(Exit::Unavailable, format!("{problem}; {next}"))
}

fn refused(proxy: &str, error: &RedisError) -> Failure {
    let words = error.detail().map_or_else(|| error.to_string(), str::to_owned);
    let is_denied = error.kind() == ErrorKind::AuthenticationFailed;
    match error.code() {
        code if is_denied || matches!(code, Some("NOAUTH" | "WRONGPASS")) => {
            Failure::new(Exit::Denied, format!("{words}; give --token-file FILE or set UNDB_TOKEN"))
        }
        Some(code) => Failure::invalid(format!("{code} {words}")),
        None => unreachable(format!("{proxy}: {words}")),
    }
}

/// One line a value, what is nested further to the right. Bytes stay as they are.
fn print(value: &Value, depth: usize, text: &mut Vec<u8>) {
    let mut line = |bytes: &[u8]| {
        text.extend(std::iter::repeat_n(b' ', 2 * depth));
        text.extend_from_slice(bytes);
        text.push(b'\n');
    };
    match value {
        Value::Nil => line(b"(nil)"),
        Value::Int(number) => line(number.to_string().as_bytes()),
        Value::BulkString(bytes) | Value::BigNumber(bytes) => line(bytes),
        Value::SimpleString(words) | Value::VerbatimString { text: words, .. } => line(words.as_bytes()),
        Value::Okay => line(b"OK"),
        Value::Double(number) => line(number.to_string().as_bytes()),
        Value::Boolean(is_so) => line(is_so.to_string().as_bytes()),
        Value::Array(values) | Value::Set(values) | Value::Push { data: values, .. } => {
            for value in values {
                print(value, depth + usize::from(is_nested(value)), text);
            }
        }
        Value::Map(pairs) => {
            for (key, value) in pairs {
                print(key, depth, text);
                print(value, depth, text);
            }
        }
        Value::Attribute { data, .. } => print(data, depth, text),
        Value::ServerError(error) => line(error.to_string().as_bytes()),
        other => line(format!("{other:?}").as_bytes()),
    }
}

fn is_nested(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Set(_) | Value::Map(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_printed_a_line_a_value() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let answer = Value::Array(vec![bulk("0"), Value::Array(vec![bulk("a"), Value::Nil]), Value::Int(7)]);
        let mut text = Vec::new();
        print(&answer, 0, &mut text);
        assert_eq!(String::from_utf8_lossy(&text), "0\n  a\n  (nil)\n7\n");
    }
}
