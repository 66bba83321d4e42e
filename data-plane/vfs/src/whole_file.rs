//! Small files that are read and replaced as a whole.

use std::io;
use std::path::Path;

use crate::{Fs, OpenHow};

/// Replaces `path` with `bytes`: after a crash it holds the old contents or the new, never a mixture.
/// Durable when this returns.
pub fn write_file_atomic(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file needs a directory and a name"));
    };
    let temporary = dir.join(format!("{}.tmp", name.to_string_lossy()));
    if fs.exists(&temporary)? {
        fs.remove_file(&temporary)?;
    }
    let file = fs.open(&temporary, OpenHow::CreateNew)?;
    file.write_all_at(bytes, 0)?;
    file.sync_data()?;
    // IMPORTANT: the rename comes after the sync, or a crash leaves a new name without contents.
    fs.rename(&temporary, path)?;
    fs.sync_dir(dir)
}

/// All bytes of a file.
pub fn read_file(fs: &dyn Fs, path: &Path) -> io::Result<Vec<u8>> {
    let file = fs.open(path, OpenHow::Read)?;
    let len = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
