//! Whose directory it is: the lock, and the identity that never changes.

use super::Config;
use crate::ServerError;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::Arc;
use undb_vfs::{Fs, read_file, write_file_atomic};

const IDENTITY_FORMAT_VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Identity {
    format_version: u32,
    cluster_id: String,
    member_id: u64,
}

/// A directory that is ours until this is dropped.
pub(super) struct Directory {
    pub cluster_id: String,
    _lock: Box<dyn Send + Sync>,
}

impl Directory {
    /// Locks the directory, and makes or checks its identity.
    pub fn open(fs: Arc<dyn Fs>, config: &Config) -> Result<Self, ServerError> {
        let dir = &config.dir;
        let failed = |what| {
            let path = dir.clone();
            move |source: io::Error| ServerError::Io { what, path, source }
        };
        fs.create_dir_all(dir).map_err(failed("making the directory"))?;
        let lock = fs.lock(&dir.join("LOCK")).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => {
                ServerError::DirectoryInUse { dir: dir.clone(), holder: source.to_string() }
            }
            _ => failed("locking")(source),
        })?;
        let path = dir.join("identity.json");
        let found = match fs.exists(&path).map_err(failed("looking for identity.json"))? {
            true => Some(read_identity(&*fs, &path)?),
            false => None,
        };
        let identity = match found {
            Some(identity) => identity,
            None => make_identity(&*fs, config, &path)?,
        };
        check(config, &identity)?;
        Ok(Self { cluster_id: identity.cluster_id, _lock: lock })
    }
}

fn read_identity(fs: &dyn Fs, path: &Path) -> Result<Identity, ServerError> {
    let bytes = read_file(fs, path).map_err(|source| ServerError::Io {
        what: "reading",
        path: path.into(),
        source,
    })?;
    let damaged = |e: serde_json::Error| ServerError::Damaged { path: path.into(), problem: e.to_string() };
    // The version first: a newer identity may have another shape.
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(damaged)?;
    let version = value["format_version"].as_u64().unwrap_or(0);
    if version > u64::from(IDENTITY_FORMAT_VERSION) {
        return Err(ServerError::NewerFormat {
            path: path.into(),
            found: u32::try_from(version).unwrap_or(u32::MAX),
            supported: IDENTITY_FORMAT_VERSION,
        });
    }
    serde_json::from_value(value).map_err(damaged)
}

fn make_identity(fs: &dyn Fs, config: &Config, path: &Path) -> Result<Identity, ServerError> {
    let cluster_id = match config.cluster_id.as_deref() {
        Some(id) if !id.is_empty() => id.to_owned(),
        _ => crate::running::unique_id(),
    };
    let identity =
        Identity { format_version: IDENTITY_FORMAT_VERSION, cluster_id, member_id: config.member_id };
    let bytes = serde_json::to_vec_pretty(&identity)
        .map_err(|e| ServerError::Damaged { path: path.into(), problem: e.to_string() })?;
    write_file_atomic(fs, path, &bytes).map_err(|source| ServerError::Io {
        what: "writing",
        path: path.into(),
        source,
    })?;
    Ok(identity)
}

fn check(config: &Config, found: &Identity) -> Result<(), ServerError> {
    let wanted = config.cluster_id.as_deref().filter(|id| !id.is_empty());
    if wanted.is_some_and(|wanted| wanted != found.cluster_id) {
        return Err(ServerError::OtherDirectory {
            dir: config.dir.clone(),
            found: format!("cluster {}", found.cluster_id),
            wanted: format!("cluster {}", wanted.unwrap_or_default()),
        });
    }
    if found.member_id != config.member_id {
        return Err(ServerError::OtherDirectory {
            dir: config.dir.clone(),
            found: format!("member {}", found.member_id),
            wanted: format!("member {}", config.member_id),
        });
    }
    Ok(())
}
