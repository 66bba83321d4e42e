//! `undb dev` as a child process.

use super::process::{Process, Ready, free_port};
use super::{HarnessError, Result, binary};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A running `undb dev` in a directory of its own.
pub struct Dev {
    /// Killed first when this is dropped.
    pub process: Process,
    endpoint: String,
    resp: String,
    dir: TempDir,
}

impl Dev {
    /// Starts it and waits until it is ready.
    pub async fn start() -> Result<Dev> {
        let dir = tempfile::Builder::new().prefix("undb-e2e-dev-").tempdir();
        let dir = dir.map_err(HarnessError::io("making a directory"))?;
        let address = || Ok::<_, HarnessError>(format!("127.0.0.1:{}", free_port()?));
        let (endpoint, resp, http) = (address()?, address()?, address()?);
        let data = dir.path().join("data").display().to_string();
        let args = ["dev", "--dir", &data, "--api", &endpoint, "--resp", &resp, "--http", &http];
        let args = args.into_iter().map(String::from).collect();
        let mut process = Process::new("dev", &binary()?, args, dir.path(), Ready::Http(http));
        process.start()?;
        process.wait_ready().await?;
        Ok(Dev { process, endpoint, resp, dir })
    }

    /// Where clients begin.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Where Redis clients connect.
    pub fn resp(&self) -> &str {
        &self.resp
    }

    /// Room for a case's own files; goes with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends it and keeps the directory with the log; says where it is.
    pub fn keep(mut self) -> PathBuf {
        self.process.kill();
        self.dir.keep()
    }
}
