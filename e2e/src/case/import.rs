//! The Debian package index, imported while the importer is killed with -9 and goes on, then every value
//! compared with the source: once as it is, once after the cluster itself was killed.

use super::{Failure, Run, say};
use crate::harness::{Dev, HarnessError, binary};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::process::Command;

const CASE: &str = "import";
const LISTS: &str = "/var/lib/apt/lists";
const TABLE: &str = "packages";
/// Stanzas for each second that the case is given.
const STANZAS_PER_SECOND: u64 = 1000;
/// From so many seconds on: all of the index.
const ALL_FROM: Duration = Duration::from_secs(60);
const INTERRUPTIONS_MAX: u32 = 6;

/// Runs the case.
pub async fn run(run: Run) -> Result<String, Failure> {
    let example = example()?;
    let dev = Dev::start().await?;
    let case = Case { undb: binary()?, example, dev, part: part(run.duration) };
    match work(case, run.seed).await {
        (Ok(figure), _) => Ok(figure),
        (Err(failure), dev) => {
            say(CASE, format_args!("log and data are kept in {}", dev.keep().display()));
            Err(failure)
        }
    }
}

struct Case {
    undb: PathBuf,
    example: PathBuf,
    dev: Dev,
    /// Stanzas; 0: all.
    part: u64,
}

fn part(duration: Duration) -> u64 {
    if duration >= ALL_FROM { 0 } else { (duration.as_secs() * STANZAS_PER_SECOND).max(10_000) }
}

/// The program of examples/debian-packages, built beside this one.
fn example() -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os("EXAMPLE") {
        return Ok(path.into());
    }
    let own = std::env::current_exe().map_err(HarnessError::io("finding this program"))?;
    let path = own.with_file_name("examples").join("debian-packages");
    if path.is_file() {
        return Ok(path);
    }
    let path = path.display();
    let build = "cargo build --release -p undb --example debian-packages";
    Err(Failure::Missing(format!("{path} is missing: run `{build}`, or set EXAMPLE")))
}

async fn work(mut case: Case, seed: u64) -> (Result<String, Failure>, Dev) {
    let result = case.steps(seed).await;
    (result, case.dev)
}

impl Case {
    async fn steps(&mut self, seed: u64) -> Result<String, Failure> {
        let mut rng = StdRng::seed_from_u64(seed);
        let index = self.dev.dir().join("Packages");
        let rows = self.dev.dir().join("packages.jsonl");
        read_index(&index).await?;
        let part = self.part.to_string();
        let converted =
            output(Command::new(&self.example).args(["convert", "--part", &part]).arg(&index)).await?;
        let lines = converted.iter().filter(|b| **b == b'\n').count();
        std::fs::write(&rows, converted).map_err(HarnessError::io("writing JSON lines"))?;
        say(CASE, format_args!("{lines} stanzas of the package index"));
        output(self.undb().args(["apply", "-f", "examples/"])).await?;
        let started = Instant::now();
        let interruptions = self.import(&rows, &mut rng).await?;
        let took = started.elapsed();
        self.verify(&index).await?;
        say(CASE, "equal; killing the cluster with -9 and reading again");
        self.dev.process.kill();
        self.dev.process.start()?;
        self.dev.process.wait_ready().await?;
        self.verify(&index).await?;
        Ok(format!(
            "{lines} stanzas imported in {:.1} s with {interruptions} interruptions, every value equals its source",
            took.as_secs_f64()
        ))
    }

    fn undb(&self) -> Command {
        let mut command = Command::new(&self.undb);
        command.env("UNDB_ENDPOINT", self.dev.endpoint());
        command
    }

    /// Starts the import until it ends by itself; kills it some times before.
    async fn import(&self, rows: &Path, rng: &mut StdRng) -> Result<u32, Failure> {
        let key = "{package}/{version}/{architecture}";
        let mut interruptions = 0;
        loop {
            let mut command = self.undb();
            command
                .args(["import", "--quiet", "--table", TABLE, "--key", key, "--value", "stanza"])
                .arg(rows);
            command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
            let mut child = command.spawn().map_err(HarnessError::io("starting the import"))?;
            let patience = match interruptions {
                INTERRUPTIONS_MAX => Duration::from_secs(3600),
                n => Duration::from_millis(rng.random_range(50..200) * u64::from(n + 1)),
            };
            match tokio::time::timeout(patience, child.wait()).await {
                Ok(ended) => {
                    success("undb import", ended.map_err(HarnessError::io("waiting for the import"))?, b"")?;
                    break;
                }
                Err(_) => {
                    child.kill().await.map_err(HarnessError::io("killing the import"))?;
                    interruptions += 1;
                }
            }
        }
        if interruptions == 0 {
            return Err(Failure::Found(
                "the import ended before it could be interrupted: give more --seconds".into(),
            ));
        }
        say(CASE, format_args!("imported, after {interruptions} times kill -9 and going on"));
        Ok(interruptions)
    }

    async fn verify(&self, index: &Path) -> Result<(), Failure> {
        let part = self.part.to_string();
        let mut command = Command::new(&self.example);
        command
            .args(["verify", "--table", TABLE, "--endpoint", self.dev.endpoint(), "--part", &part])
            .arg(index);
        let said = output(&mut command).await?;
        let said = String::from_utf8_lossy(&said);
        say(CASE, said.trim().lines().last().unwrap_or("verified"));
        Ok(())
    }
}

/// All package indexes that apt keeps, one behind the other, uncompressed.
pub(crate) async fn read_index(to: &Path) -> Result<(), Failure> {
    let list = std::fs::read_dir(LISTS).map_err(HarnessError::io(format!("listing {LISTS}")))?;
    let mut files: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains("_Packages")));
    files.sort();
    if files.is_empty() {
        return Err(Failure::Missing(format!("no package index in {LISTS}: run `apt-get update` first")));
    }
    let mut all = Vec::new();
    for file in files {
        if !file.to_string_lossy().ends_with("_Packages") {
            let mut unpack = Command::new("/usr/lib/apt/apt-helper");
            all.extend(output(unpack.arg("cat-file").arg(&file)).await?);
        } else {
            all.extend(std::fs::read(&file).map_err(HarnessError::io("reading a package index"))?);
        }
        // So that the last stanza of one file does not run into the first of the next.
        all.push(b'\n');
    }
    std::fs::write(to, all).map_err(HarnessError::io("writing the index"))?;
    Ok(())
}

/// What a command prints; an exit code other than 0 is a find.
async fn output(command: &mut Command) -> Result<Vec<u8>, Failure> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.map_err(HarnessError::io(format!("running {name}")))?;
    success(&name, output.status, &output.stderr)?;
    Ok(output.stdout)
}

fn success(name: &str, status: ExitStatus, stderr: &[u8]) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    Err(Failure::Found(format!("{name} ended with {status}: {}", String::from_utf8_lossy(stderr))))
}
