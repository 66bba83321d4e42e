//! The directory of `undb dev`: one process at a time, and as many stores as before or more.

use crate::exit::{Exit, Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use undb_vfs::{Fs, Locked, OsFs};

const FORMAT_VERSION: u32 = 1;
const STORES_DEFAULT: u32 = 3;

#[derive(Debug, Serialize, Deserialize)]
struct Layout {
    format_version: u32,
    stores: u32,
}

/// A locked directory.
pub struct Directory {
    pub path: PathBuf,
    pub stores: u32,
    _lock: Box<dyn Send + Sync>,
}

impl Directory {
    /// Makes or opens it.
    pub fn open(path: &Path, stores: Option<u32>) -> Outcome<Self> {
        let fs = OsFs::new(path);
        let failed = |e: std::io::Error| Failure::file(path, &e);
        refuse_foreign(path)?;
        fs.create_dir_all(path).map_err(failed)?;
        let path = std::fs::canonicalize(path).map_err(failed)?;
        let lock = fs.lock(&path.join("LOCK")).map_err(|e| in_use(&path, &e))?;
        let file = path.join("dev.json");
        let known = read(&file)?;
        let stores = count(&path, known.as_ref().map(|l| l.stores), stores)?;
        if known.is_none_or(|l| l.stores != stores) {
            let layout = Layout { format_version: FORMAT_VERSION, stores };
            let text = serde_json::to_vec_pretty(&layout).map_err(Failure::internal)?;
            undb_vfs::write_file_atomic(&fs, &file, &text).map_err(|e| Failure::file(&file, &e))?;
        }
        Ok(Self { path, stores, _lock: lock })
    }
}

/// A directory with somebody else's files is not ours to fill.
fn refuse_foreign(path: &Path) -> Outcome<()> {
    let Ok(mut entries) = std::fs::read_dir(path) else { return Ok(()) };
    if path.join("dev.json").exists() || path.join("LOCK").exists() || entries.next().is_none() {
        return Ok(());
    }
    let what =
        if path.join("identity.json").exists() { "is that of a single role" } else { "holds other files" };
    Err(Failure::local(format!(
        "{} {what}; give --dir a directory that is empty or was made by `undb dev`",
        path.display()
    )))
}

fn in_use(path: &Path, error: &std::io::Error) -> Failure {
    let held = error.get_ref().and_then(|inner| inner.downcast_ref::<Locked>());
    match held {
        Some(locked) => {
            let holder = locked.pid.map_or("another process".into(), |pid| format!("process {pid}"));
            Failure::local(format!(
                "{} is in use by {holder}; stop it, or give --dir another directory",
                path.display()
            ))
        }
        None => Failure::file(path, error),
    }
}

fn read(file: &Path) -> Outcome<Option<Layout>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::file(file, &e)),
    };
    let layout: Layout = serde_json::from_str(&text)
        .map_err(|e| Failure::new(Exit::Corrupt, format!("{} is damaged: {e}", file.display())))?;
    if layout.format_version > FORMAT_VERSION {
        return Err(Failure::local(format!(
            "{} has format version {}, this build knows up to {FORMAT_VERSION}; start the build that wrote it, or a newer one",
            file.display(),
            layout.format_version
        )));
    }
    Ok(Some(layout))
}

fn count(path: &Path, known: Option<u32>, wanted: Option<u32>) -> Outcome<u32> {
    match (known, wanted) {
        (Some(known), Some(wanted)) if wanted < known => Err(Failure::usage(format!(
            "--stores {wanted}: {} has {known} stores with data; give {known} or more, or another --dir",
            path.display()
        ))),
        (known, wanted) => Ok(wanted.or(known).unwrap_or(STORES_DEFAULT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_stores_is_remembered_and_does_not_shrink() {
        let dir = tempfile::tempdir().expect("temp dir");
        let open = |stores| Directory::open(dir.path(), stores).map(|d| d.stores);
        assert_eq!(open(Some(2)).expect("new"), 2);
        assert_eq!(open(None).expect("as before"), 2);
        assert_eq!(open(Some(4)).expect("grows"), 4);
        let failure = open(Some(3)).expect_err("would lose data");
        assert_eq!(failure.exit, Exit::Usage);
    }

    #[test]
    fn a_directory_in_use_or_of_somebody_else_is_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        let held = Directory::open(dir.path(), None).expect("new");
        let failure = Directory::open(dir.path(), None).err().expect("in use");
        assert!(failure.message.contains("in use") && failure.exit == Exit::Local, "{failure:?}");
        drop(held);
        let other = tempfile::tempdir().expect("temp dir");
        std::fs::write(other.path().join("photo.jpg"), "x").expect("write");
        let failure = Directory::open(other.path(), None).err().expect("foreign");
        assert!(failure.message.contains("holds other files"), "{failure:?}");
    }
}
