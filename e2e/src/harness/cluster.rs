//! A cluster whose roles are processes of their own.

use super::process::{Process, Ready};
use super::roles::{self, Addresses, Role};
use super::{HarnessError, Result, binary};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// How large a cluster is.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Metadata members.
    pub members: u64,
    /// Stores.
    pub stores: u64,
}

/// A running cluster in a directory of its own.
pub struct Cluster {
    /// Killed first when the cluster is dropped.
    processes: Vec<Process>,
    addresses: Addresses,
    dir: TempDir,
}

impl Cluster {
    /// Starts every role and waits until all are ready.
    pub async fn start(shape: Shape) -> Result<Cluster> {
        let program = binary()?;
        let dir = tempfile::Builder::new().prefix("undb-e2e-").tempdir();
        let dir = dir.map_err(HarnessError::io("making a directory"))?;
        let to = Addresses::pick(shape.members)?;
        let mut all: Vec<Role> = Vec::new();
        for id in 1..=shape.members {
            all.push(roles::meta(&to, dir.path(), id)?);
        }
        all.push(roles::control(&to, shape.stores)?);
        all.push(roles::router(&to, dir.path())?);
        all.push(roles::access(&to)?);
        for number in 1..=shape.stores {
            all.push(roles::store(&to, dir.path(), number)?);
        }
        all.push(roles::proxy(&to)?);
        let processes =
            all.iter().map(|role| process(&program, dir.path(), role)).collect::<Result<Vec<_>>>()?;
        let mut cluster = Cluster { processes, addresses: to, dir };
        for process in &mut cluster.processes {
            process.start()?;
        }
        cluster.wait_ready().await?;
        Ok(cluster)
    }

    /// Waits until every process is ready; those that were killed are started first.
    pub async fn wait_ready(&mut self) -> Result<()> {
        for process in &mut self.processes {
            if !process.is_running() {
                process.kill();
                process.start()?;
            }
        }
        for process in &mut self.processes {
            process.wait_ready().await?;
        }
        Ok(())
    }

    /// Where clients begin.
    pub fn endpoint(&self) -> &str {
        &self.addresses.access
    }

    /// Where Redis clients connect.
    pub fn resp(&self) -> &str {
        &self.addresses.resp
    }

    /// Where each store has its directory, by the name of its process.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// All its processes.
    pub fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }

    /// Ends everything and keeps the directory with the logs; says where it is.
    pub fn keep(mut self) -> PathBuf {
        self.processes.clear();
        self.dir.keep()
    }
}

fn process(program: &Path, dir: &Path, role: &Role) -> Result<Process> {
    let config = dir.join(format!("{}.toml", role.name));
    std::fs::write(&config, &role.config).map_err(HarnessError::io("writing a configuration"))?;
    let args = ["run", role.role, "--config"].map(String::from).into_iter();
    let args = args.chain([config.display().to_string()]).chain(role.flags.iter().cloned()).collect();
    Ok(Process::new(&role.name, program, args, dir, Ready::Http(role.admin.clone())))
}
