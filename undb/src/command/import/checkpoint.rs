//! How far an import came, in a small JSON file beside the source.

use crate::exit::{Exit, Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

const FORMAT_VERSION: u32 = 1;
/// Bytes at the beginning and before the offset that recognise the file.
const SAMPLE_BYTES: u64 = 4096;

/// What must be the same for an import to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Print {
    pub cluster: String,
    pub table: String,
    pub mapping: String,
}

/// Everything before `offset` is written or rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub format_version: u32,
    pub print: Print,
    /// Of the bytes around; recognises the file.
    pub sample: u64,
    pub offset: u64,
    /// Lines before the offset, the header included.
    pub lines: u64,
    pub rows: u64,
    pub rejected: u64,
    /// Length of the file of rejected rows; what is behind belongs to an attempt that is repeated.
    pub rejected_bytes: u64,
}

impl Checkpoint {
    /// The checkpoint at `path`, if there is one; refuses that of another file, table or mapping.
    pub fn load(path: &Path, file: &Path, print: &Print) -> Outcome<Option<Self>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Failure::file(path, &e)),
        };
        let refuse = |why: String| {
            let how = "give --restart to begin anew, or --checkpoint with another file";
            Err(Failure::new(Exit::Invalid, format!("checkpoint {}: {why}; {how}", path.display())))
        };
        let found: Self = match serde_json::from_str(&text) {
            Ok(found) => found,
            Err(e) => return refuse(format!("cannot be read: {e}")),
        };
        if found.format_version != FORMAT_VERSION {
            return refuse(format!("is of format {}, this is {FORMAT_VERSION}", found.format_version));
        }
        if found.print != *print {
            return refuse("belongs to another cluster, table or mapping of columns".into());
        }
        let now = sample(file, found.offset).map_err(|e| Failure::file(file, &e))?;
        if now != Some(found.sample) {
            return refuse(format!("{} has changed since", file.display()));
        }
        Ok(Some(found))
    }

    /// Writes it beside itself and renames, so that a crash leaves the old or the new one.
    pub fn save(&mut self, path: &Path, file: &Path, print: &Print) -> Outcome<()> {
        self.format_version = FORMAT_VERSION;
        self.print = print.clone();
        self.sample = sample(file, self.offset).map_err(|e| Failure::file(file, &e))?.unwrap_or_default();
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        let temporary = Path::new(&temporary);
        let text = serde_json::to_vec_pretty(self).map_err(Failure::internal)?;
        let written = File::create(temporary).and_then(|mut f| {
            f.write_all(&text)?;
            f.sync_data()
        });
        written.and_then(|()| std::fs::rename(temporary, path)).map_err(|e| Failure::file(path, &e))
    }
}

/// A hash of the file's beginning and of what lies before the offset; `None`: it is too short.
fn sample(file: &Path, offset: u64) -> std::io::Result<Option<u64>> {
    let mut file = File::open(file)?;
    if file.metadata()?.len() < offset {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(SAMPLE_BYTES.min(offset)).read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(offset.saturating_sub(SAMPLE_BYTES)))?;
    file.take(SAMPLE_BYTES.min(offset)).read_to_end(&mut bytes)?;
    Ok(Some(fnv1a(&bytes)))
}

/// FNV-1a: a hash that is the same in every version of everything.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_found_again_and_refused_for_anything_else() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (file, path) = (dir.path().join("a.csv"), dir.path().join("a.csv.undb-checkpoint"));
        std::fs::write(&file, "id,name\n1,a\n2,b\n").expect("write");
        let print = Print { cluster: "c".into(), table: "t".into(), mapping: "m".into() };
        assert_eq!(Checkpoint::load(&path, &file, &print).expect("none"), None);
        let mut checkpoint = Checkpoint { offset: 12, rows: 1, ..Checkpoint::default() };
        checkpoint.save(&path, &file, &print).expect("save");
        assert_eq!(Checkpoint::load(&path, &file, &print).expect("found"), Some(checkpoint));

        let other = Print { table: "u".into(), ..print.clone() };
        assert!(Checkpoint::load(&path, &file, &other).is_err());
        std::fs::write(&file, "id,name\n9,a\n2,b\n").expect("write");
        let failure = Checkpoint::load(&path, &file, &print).expect_err("changed");
        assert!(failure.message.contains("has changed since") && failure.message.contains("--restart"));
        std::fs::write(&file, "id").expect("write");
        assert!(Checkpoint::load(&path, &file, &print).is_err());
    }
}
