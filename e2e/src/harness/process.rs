//! One child process: started, asked whether it is ready, killed, started again.

use super::{HarnessError, Result};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const READY_WAIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const TAIL_BYTES: u64 = 2000;

/// How to see that a process is ready.
#[derive(Clone, Debug)]
pub enum Ready {
    /// `GET /readyz` at HOST:PORT answers 200.
    Http(String),
    /// HOST:PORT accepts connections.
    Accepts(String),
}

/// A child process that can be started again and again.
#[derive(Debug)]
pub struct Process {
    /// For people, and the name of its log file.
    pub name: String,
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    ready: Ready,
    child: Option<Child>,
}

/// A port of the loopback interface that is free now.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(HarnessError::io("finding a free port"))?;
    Ok(listener.local_addr().map_err(HarnessError::io("finding a free port"))?.port())
}

impl Process {
    /// Not started yet. Its output is appended to `dir/NAME.log`.
    pub fn new(name: &str, program: &Path, args: Vec<String>, dir: &Path, ready: Ready) -> Process {
        let log = dir.join(format!("{name}.log"));
        Process { name: name.into(), program: program.into(), args, log, ready, child: None }
    }

    /// Starts it; does not wait.
    pub fn start(&mut self) -> Result<()> {
        let what = format!("starting {}", self.name);
        let open = OpenOptions::new().create(true).append(true).open(&self.log);
        let out = open.map_err(HarnessError::io(what.clone()))?;
        let err = out.try_clone().map_err(HarnessError::io(what.clone()))?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stdout(out).stderr(err);
        self.child = Some(command.spawn().map_err(HarnessError::io(what))?);
        Ok(())
    }

    /// Waits until it is ready.
    pub async fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_WAIT;
        loop {
            if let Some(status) = self.ended() {
                return Err(self.failed(&format!("ended with {status}")));
            }
            if self.is_ready().await {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.failed(&format!("was not ready within {READY_WAIT:?}")));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Asks once.
    pub async fn is_ready(&self) -> bool {
        let asked = async {
            match &self.ready {
                Ready::Accepts(address) => TcpStream::connect(address).await.is_ok(),
                Ready::Http(address) => readyz(address).await.unwrap_or(false),
            }
        };
        tokio::time::timeout(Duration::from_secs(2), asked).await.unwrap_or(false)
    }

    /// True while the process runs.
    pub fn is_running(&mut self) -> bool {
        self.child.is_some() && self.ended().is_none()
    }

    /// Its process id, while there is one.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// How it ended, if it did by itself.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        Some(status.to_string())
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// An error about it, with the end of its log.
    pub fn failed(&self, problem: &str) -> HarnessError {
        let tail = tail(&self.log).unwrap_or_else(|e| format!("(unreadable: {e})"));
        HarnessError::Process {
            name: self.name.clone(),
            problem: problem.into(),
            log: self.log.clone(),
            tail,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn readyz(address: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
