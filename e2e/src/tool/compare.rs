//! Rows of an import, compared with what a proxy answers.

use serde::Deserialize;
use std::io::BufRead;

const AT_ONCE: usize = 200;

/// What `e2e resp-compare` is told; rows come through stdin.
#[derive(Clone, Debug, clap::Args)]
pub struct CompareArgs {
    /// The token is the proxy's password
    #[arg(long, env = "UNDB_TOKEN_FILE")]
    pub token_file: Option<std::path::PathBuf>,
    /// HOST:PORT of a proxy
    #[arg(long)]
    pub resp: String,
    /// The number of the table
    #[arg(long, default_value_t = 0)]
    pub db: u32,
}

#[derive(Deserialize)]
struct Row {
    package: String,
    version: String,
    architecture: String,
    stanza: String,
}

/// Asks for every row and compares; says how many were equal.
pub async fn compare(args: CompareArgs) -> Result<String, String> {
    let address = &args.resp;
    let say = |e: redis::RedisError| format!("{address}: {e}");
    let client = redis::Client::open(format!("redis://{address}/")).map_err(say)?;
    let config =
        redis::AsyncConnectionConfig::new().set_response_timeout(Some(std::time::Duration::from_secs(10)));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(say)?;
    if let Some(path) = &args.token_file {
        let token = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        // A proxy that asks for no password refuses one; the next command tells.
        let _ = redis::cmd("AUTH").arg(token.trim()).exec_async(&mut connection).await;
    }
    redis::cmd("SELECT").arg(args.db).exec_async(&mut connection).await.map_err(say)?;
    let mut rows = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| format!("stdin: {e}"))?;
        rows.push(serde_json::from_str::<Row>(&line).map_err(|e| format!("stdin: {e}"))?);
    }
    let mut bytes = 0;
    for part in rows.chunks(AT_ONCE) {
        let mut pipe = redis::pipe();
        for row in part {
            pipe.cmd("GET").arg(format!("{}/{}/{}", row.package, row.version, row.architecture));
        }
        let values: Vec<Option<Vec<u8>>> = pipe.query_async(&mut connection).await.map_err(say)?;
        for (row, value) in part.iter().zip(values) {
            if value.as_deref() != Some(row.stanza.as_bytes()) {
                let how = if value.is_some() { "differs from its source" } else { "is not there" };
                return Err(format!("{}/{}/{} {how}", row.package, row.version, row.architecture));
            }
            bytes += row.stanza.len();
        }
    }
    Ok(format!("ok: {} rows ({bytes} bytes) read through {address} and equal to the source", rows.len()))
}
