//! A constant mixed load, as a Pod: `e2e load`, ended by `e2e load-stop` in the same Pod.
//!
//! Open loop: requests are due at a fixed rate whatever happens to those before, half of them writes, half
//! of them through the SDK and half through the proxy. Latency counts from the moment a request was due.
//! A *failed request* is an error, or Ambiguous, after the deadline with the SDK's own retries; a RESP
//! command is repeated once, on a new connection, when it got no reply. Every acknowledged write is
//! remembered ([`book`]) and read back at the end.
//!
//! Where to look: what it prints -> [`report`]; which replicas were unavailable -> [`availability`].

pub mod availability;
pub mod book;
mod clients;
pub mod histogram;
pub mod report;
pub mod sampler;
mod worker;

use crate::tool::Connect;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What `e2e load` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    #[command(flatten)]
    pub connect: Connect,
    /// The table that the SDK writes
    #[arg(long, default_value = "load")]
    pub table: String,
    /// HOST:PORT of a proxy; without it all goes through the SDK
    #[arg(long)]
    pub resp: Option<String>,
    /// HOST:PORT that names every store's admin port; without it nothing is sampled
    #[arg(long)]
    pub stores: Option<String>,
    /// Requests a second
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// Keys of each kind of client
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub keys: u32,
    /// After so many milliseconds a request has failed
    #[arg(long, default_value_t = 10_000)]
    pub deadline_ms: u64,
    /// Ends by itself after so many seconds; 0: when it is told to
    #[arg(long, default_value_t = 0)]
    pub seconds: u64,
    /// Decides keys, values and the order of reads and writes
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where it can be told to end
    #[arg(long, default_value = STOP_AT)]
    pub control: String,
}

const STOP_AT: &str = "127.0.0.1:9099";

/// What `e2e load-stop` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct StopArgs {
    /// Where the load listens
    #[arg(long, default_value = STOP_AT)]
    pub control: String,
}

impl LoadArgs {
    fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }
}

/// Runs the load until it is told to end; true: nothing failed and nothing was lost.
pub async fn run(args: LoadArgs) -> Result<bool, String> {
    let listener = TcpListener::bind(&args.control).await.map_err(|e| format!("{}: {e}", args.control))?;
    let (stop, stopped) = watch::channel(false);
    let (publish, verdict) = watch::channel(None::<String>);
    let stop = Arc::new(stop);
    tokio::spawn(control(listener, stop.clone(), verdict));
    let ended = {
        let stop = stop.clone();
        let seconds = args.seconds;
        async move {
            let timer = async {
                match seconds {
                    0 => std::future::pending().await,
                    seconds => tokio::time::sleep(Duration::from_secs(seconds)).await,
                }
            };
            tokio::select! {
                () = timer => {}
                () = terminated() => {}
            }
            stop.send_replace(true);
        }
    };
    tokio::spawn(ended);
    let verdict = worker::work(args, stopped).await?;
    let line = report::Line::Verdict(Box::new(verdict.clone()));
    line.print();
    publish.send_replace(serde_json::to_string(&line).ok());
    // Whoever asked reads the answer before the process is gone.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(verdict.is_clean())
}

async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut term) => {
            tokio::select! {
                _ = term.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(_) => std::future::pending().await,
    }
}

/// Whoever connects and says `stop` gets the verdict.
async fn control(
    listener: TcpListener,
    stop: Arc<watch::Sender<bool>>,
    verdict: watch::Receiver<Option<String>>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (stop, mut verdict) = (stop.clone(), verdict.clone());
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let mut word = String::new();
            if stream.read_line(&mut word).await.is_err() || word.trim() != "stop" {
                return;
            }
            stop.send_replace(true);
            if let Ok(text) = verdict.wait_for(Option::is_some).await.map(|text| text.clone()) {
                // The caller may have gone; then nobody wants it.
                let _ =
                    stream.get_mut().write_all(format!("{}\n", text.unwrap_or_default()).as_bytes()).await;
            }
        });
    }
}

/// Tells a load to end, and prints its verdict.
pub async fn stop(args: StopArgs) -> Result<(), String> {
    let say = |e: std::io::Error| format!("{}: {e}", args.control);
    let mut stream = BufReader::new(TcpStream::connect(&args.control).await.map_err(say)?);
    stream.get_mut().write_all(b"stop\n").await.map_err(say)?;
    let mut text = String::new();
    stream.read_line(&mut text).await.map_err(say)?;
    print!("{text}");
    if text.is_empty() { Err("the load ended without a verdict".into()) } else { Ok(()) }
}
