//! The package index of a Debian mirror as an example of real data: turns stanzas into JSON lines, and
//! compares a table with the index it was imported from. `run` beside this file does all of it.

use clap::{Parser, Subcommand};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use undb_sdk::{Client, Options, ScanOptions, Table, TlsFiles};

/// Stanzas of a Packages file as JSON lines, and a table compared with them.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prints {"package", "version", "architecture", "stanza"} a line.
    Convert {
        /// An index, uncompressed.
        file: PathBuf,
        /// Only so many stanzas; 0: all.
        #[arg(long, default_value_t = 0)]
        part: usize,
    },
    /// Reads every stanza back and compares it, then scans by random prefixes.
    Verify {
        /// The index that was imported.
        file: PathBuf,
        /// Only so many stanzas; 0: all.
        #[arg(long, default_value_t = 0)]
        part: usize,
        /// The table.
        #[arg(long, default_value = "packages")]
        table: String,
        /// Where the cluster is.
        #[arg(long, env = "UNDB_ENDPOINT", default_value = "127.0.0.1:7380", value_delimiter = ',')]
        endpoint: Vec<String>,
        /// The token, if the cluster asks for one.
        #[arg(long, env = "UNDB_TOKEN", hide_env_values = true)]
        token: Option<String>,
        /// File that holds the token.
        #[arg(long, env = "UNDB_TOKEN_FILE")]
        token_file: Option<PathBuf>,
        /// Certificates that the cluster's are signed by: the connection is TLS.
        #[arg(long, env = "UNDB_CA_FILE")]
        ca_file: Option<PathBuf>,
        /// Prefix scans.
        #[arg(long, default_value_t = 200)]
        scans: usize,
        /// Everything random comes from it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

type Failed = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Convert { file, part } => convert(&file, part),
        Command::Verify { file, part, table, endpoint, token, token_file, ca_file, scans, seed } => {
            let tls = ca_file.map(|ca_file| TlsFiles { ca_file, cert_file: None, key_file: None }.into());
            let options = Options::new(endpoint).tls(tls);
            match token_file.map(undb_runtime::read_token_file).transpose() {
                Ok(of_file) => {
                    verify(&file, part, &table, options.token(token.or(of_file)), scans, seed).await
                }
                Err(error) => Err(error.into()),
            }
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("debian-packages: {error}");
            ExitCode::from(3)
        }
    }
}

/// One package of the index.
struct Stanza {
    package: String,
    version: String,
    architecture: String,
    text: String,
}

impl Stanza {
    fn parse(text: String) -> Option<Self> {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(value.trim().to_owned())
        };
        let (package, version, architecture) = (field("Package")?, field("Version")?, field("Architecture")?);
        Some(Self { package, version, architecture, text })
    }

    fn key(&self) -> String {
        format!("{}/{}/{}", self.package, self.version, self.architecture)
    }
}

/// Calls `each` with every stanza that has a key of its own; the first of several counts.
fn stanzas(
    file: &PathBuf,
    part: usize,
    mut each: impl FnMut(Stanza) -> std::io::Result<()>,
) -> Result<usize, Failed> {
    let mut seen = std::collections::HashSet::new();
    let mut text = String::new();
    let mut finish = |text: &mut String| -> Result<bool, Failed> {
        if text.is_empty() {
            return Ok(true);
        }
        let stanza =
            Stanza::parse(std::mem::take(text)).ok_or("a stanza without Package, Version or Architecture")?;
        if seen.insert(stanza.key()) {
            each(stanza)?;
        }
        Ok(part == 0 || seen.len() < part)
    };
    for line in BufReader::new(std::fs::File::open(file)?).lines() {
        let line = line?;
        if !line.is_empty() {
            text.push_str(&line);
            text.push('\n');
        } else if !finish(&mut text)? {
            return Ok(seen.len());
        }
    }
    finish(&mut text)?;
    Ok(seen.len())
}

fn convert(file: &PathBuf, part: usize) -> Result<(), Failed> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let count = stanzas(file, part, |s| {
        let line = json!({
            "package": s.package, "version": s.version, "architecture": s.architecture, "stanza": s.text,
        });
        writeln!(out, "{line}")
    })?;
    out.flush()?;
    eprintln!("{count} stanzas");
    Ok(())
}

const GETS_AT_ONCE: usize = 256;

async fn verify(
    file: &PathBuf,
    part: usize,
    table: &str,
    options: Options,
    scans: usize,
    seed: u64,
) -> Result<(), Failed> {
    let mut source = BTreeMap::new();
    stanzas(file, part, |s| {
        source.insert(s.key(), s.text);
        Ok(())
    })?;
    let table = Client::connect(options).await?.table(table).await?;
    let mut rng = SmallRng::seed_from_u64(seed);
    let started = Instant::now();
    let bytes = compare_every_key(&table, &source, &mut rng).await?;
    let read = started.elapsed();
    let started = Instant::now();
    let scanned = compare_scans(&table, &source, scans, &mut rng).await?;
    println!(
        "ok: {} stanzas ({bytes} bytes) read in random order in {:.1}s and equal to the source; {scans} prefix scans ({scanned} records) in {:.1}s likewise",
        source.len(),
        read.as_secs_f64(),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

async fn compare_every_key(
    table: &Table,
    source: &BTreeMap<String, String>,
    rng: &mut SmallRng,
) -> Result<usize, Failed> {
    let mut keys: Vec<&String> = source.keys().collect();
    keys.shuffle(rng);
    let mut bytes = 0;
    for group in keys.chunks(GETS_AT_ONCE) {
        let records = table.get_many(group.iter().copied()).await?;
        for (key, record) in group.iter().zip(records) {
            let record = record.ok_or_else(|| format!("{key} is not in the table"))?;
            if record.value != source[*key].as_bytes() {
                return Err(format!("{key} differs from the source").into());
            }
            bytes += record.value.len();
        }
    }
    Ok(bytes)
}

/// What a scan finds beside the source (of an earlier import, say) does not count against it.
async fn compare_scans(
    table: &Table,
    source: &BTreeMap<String, String>,
    scans: usize,
    rng: &mut SmallRng,
) -> Result<usize, Failed> {
    let keys: Vec<&String> = source.keys().collect();
    let mut count = 0;
    for _ in 0..scans {
        let key = keys[rng.random_range(0..keys.len())];
        let len = rng.random_range(2..=8).min(key.len());
        let prefix = key.get(..len).unwrap_or(key);
        let mut expected =
            source.range(prefix.to_owned()..).take_while(|(k, _)| k.starts_with(prefix)).peekable();
        let mut scan = table.scan(ScanOptions::prefix(prefix))?;
        let mut last = Vec::new();
        while let Some((key, record)) = scan.next().await? {
            if key.hash[..] <= last[..] {
                return Err(format!("scan of {prefix}: keys are not in order").into());
            }
            if expected.peek().is_some_and(|(k, _)| k.as_bytes() == key.hash) {
                let (key, text) = expected.next().ok_or("peeked")?;
                if record.value != text.as_bytes() {
                    return Err(format!("scan of {prefix}: {key} differs from the source").into());
                }
                count += 1;
            }
            last = key.hash.to_vec();
        }
        if let Some((key, _)) = expected.next() {
            return Err(format!("scan of {prefix}: {key} is missing").into());
        }
    }
    Ok(count)
}
