//! The images that the suite runs: the tree's own, the same under a second tag, and one that cannot start.
//!
//! With UNDB_E2E_IMAGE_PREFIX set nothing is built: the cluster is expected to have or to pull
//! `PREFIXundb:TAG` and the others.

use super::kube::{Kube, must, run};
use super::machine::Machines;
use crate::harness::{HarnessError, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

/// What is installed.
pub const TAG: &str = "e2e";
/// The same program, for rolls.
pub const NEXT: &str = "next";
/// Its program is no program.
pub const BROKEN: &str = "broken";

const OUT: &str = "target/images";
const BUILD_WAIT: Duration = Duration::from_secs(3600);

/// Names of images.
#[derive(Clone, Debug)]
pub struct Images {
    prefix: String,
}

impl Images {
    /// As the environment says.
    pub fn new() -> Images {
        Images { prefix: std::env::var("UNDB_E2E_IMAGE_PREFIX").unwrap_or_else(|_| "localhost/".into()) }
    }

    /// An image's full name.
    pub fn name(&self, name: &str, tag: &str) -> String {
        format!("{}{name}:{tag}", self.prefix)
    }

    /// Where the images of a repository are.
    pub fn repository(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Builds what the suite needs and gives it to every node. With UNDB_E2E_KEEP_IMAGES set, archives of
    /// an earlier run are taken as they are.
    pub async fn bring(&self, kube: &Kube, machines: &Machines) -> Result<()> {
        if std::env::var_os("UNDB_E2E_IMAGE_PREFIX").is_some() {
            return Ok(());
        }
        let archive = |name: &str, tag: &str| PathBuf::from(OUT).join(format!("{name}-{tag}.tar"));
        // Without the variable everything is made anew: the tree may have changed.
        let keep = std::env::var_os("UNDB_E2E_KEEP_IMAGES").is_some();
        let is_missing = |path: &Path| !keep || !path.is_file();
        std::fs::create_dir_all(OUT).map_err(HarnessError::io(format!("making {OUT}")))?;
        let names = ["undb", "undb-operator", "undb-e2e"];
        let missing: Vec<&str> = names.into_iter().filter(|name| is_missing(&archive(name, TAG))).collect();
        if !missing.is_empty() {
            let args = ["--out", OUT, "--tag", TAG].into_iter().chain(missing);
            command("images/build", &args.collect::<Vec<_>>()).await?;
        }
        let (next, bad) = (archive("undb", NEXT), archive("undb", BROKEN));
        if is_missing(&next) {
            self.second_tag(&next).await?;
        }
        if is_missing(&bad) {
            self.broken(&bad).await?;
        }
        for archive in names.map(|name| archive(name, TAG)).into_iter().chain([next, bad]) {
            load(kube, machines, &archive).await?;
        }
        Ok(())
    }

    async fn second_tag(&self, archive: &Path) -> Result<()> {
        let (from, to) = (self.name("undb", TAG), self.name("undb", NEXT));
        command(tool()?, &["tag", &from, &to]).await?;
        save(&to, archive).await
    }

    async fn broken(&self, archive: &Path) -> Result<()> {
        let to = self.name("undb", BROKEN);
        let dir = tempfile::tempdir().map_err(HarnessError::io("making a directory"))?;
        let dockerfile = "FROM scratch\nCOPY undb /undb\nUSER 65532:65532\nENTRYPOINT [\"/undb\"]\n";
        for (name, text) in [("Dockerfile", dockerfile), ("undb", "this is no program\n")] {
            std::fs::write(dir.path().join(name), text).map_err(HarnessError::io("writing a Dockerfile"))?;
        }
        let context = dir.path().display().to_string();
        let isolation: &[&str] = if tool()? == "buildah" { &["--isolation", "chroot"] } else { &[] };
        let args =
            ["build", "--quiet"].into_iter().chain(isolation.iter().copied()).chain(["-t", &to, &context]);
        command(tool()?, &args.collect::<Vec<_>>()).await?;
        save(&to, archive).await
    }
}

async fn save(image: &str, archive: &Path) -> Result<()> {
    if archive.exists() {
        std::fs::remove_file(archive).map_err(HarnessError::io("removing an old archive"))?;
    }
    let archive = archive.display().to_string();
    if tool()? == "buildah" {
        return command("buildah", &["push", "--quiet", image, &format!("docker-archive:{archive}:{image}")])
            .await;
    }
    command("docker", &["save", "-o", &archive, image]).await
}

async fn load(kube: &Kube, machines: &Machines, archive: &Path) -> Result<()> {
    let archive = archive.display().to_string();
    match machines {
        Machines::Own if is_loaded(kube, Path::new(&archive)) => Ok(()),
        Machines::Own => command("e2e/cluster/cluster", &["load", &archive]).await,
        Machines::Kind => {
            let cluster = std::env::var("KIND_CLUSTER_NAME").unwrap_or_else(|_| "kind".into());
            let args = ["load", "image-archive", &archive, "--name", &cluster];
            let ended = kube.try_run("kind", &args, None, BUILD_WAIT).await?;
            must("kind", &args, ended).map(|_| ())
        }
        Machines::Unknown => Err(HarnessError::Other(
            "images cannot be loaded into this cluster: push them to a registry and set UNDB_E2E_IMAGE_PREFIX".into(),
        )),
    }
}

/// The own cluster keeps a copy of what its nodes have.
fn is_loaded(kube: &Kube, archive: &Path) -> bool {
    let (Some(state), Some(name)) = (kube.config.parent(), archive.file_name()) else { return false };
    let same = |known: Vec<u8>| std::fs::read(archive).is_ok_and(|now| now == known);
    std::fs::read(state.join("images").join(name)).is_ok_and(same)
}

fn tool() -> Result<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |name: &&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let missing = || HarnessError::Other("neither buildah nor docker is installed".into());
    ["buildah", "docker"].into_iter().find(|name| found(name)).ok_or_else(missing)
}

async fn command(program: &str, args: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(args);
    must(program, args, run(command, None, BUILD_WAIT).await?).map(|_| ())
}
