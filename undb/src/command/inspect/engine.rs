//! An engine's directory: manifest, trees, data files, trash.

use super::damaged;
use crate::bytes_text::size;
use crate::exit::{Failure, Outcome};
use crate::output::aligned;
use std::path::Path;
use undb_engine::gc::data_file::{DataReader, parse_data_name};
use undb_engine::manifest::Manifest;
use undb_vfs::Fs;

/// Everything in the directory.
pub fn print(fs: &dyn Fs, dir: &Path, out: &mut String) -> Outcome<()> {
    let manifest = dir.join("MANIFEST");
    if manifest.exists() {
        print_manifest(fs, &manifest, out)?;
    } else {
        out.push_str("no MANIFEST: a new engine\n");
    }
    for (name, what) in [("trees", "tree"), ("data", "data file"), ("trash", "being deleted")] {
        let path = dir.join(name);
        let names =
            if path.exists() { fs.list(&path).map_err(|e| Failure::file(&path, &e))? } else { vec![] };
        for entry in names {
            out.push_str(&format!("{what:<14} {entry}  {}\n", size(bytes_of(&path.join(&entry)))));
        }
    }
    Ok(())
}

/// Length of a file, or of all files below a directory.
pub fn bytes_of(path: &Path) -> u64 {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries.flatten().map(|e| bytes_of(&e.path())).sum()
}

/// Trees and data files that count.
pub fn print_manifest(fs: &dyn Fs, path: &Path, out: &mut String) -> Outcome<()> {
    let bytes = undb_vfs::read_file(fs, path).map_err(|e| Failure::file(path, &e))?;
    let manifest = Manifest::decode(path, &bytes).map_err(|e| damaged(path, e))?;
    out.push_str(&format!(
        "manifest: next generation {}, next data file {}\n",
        manifest.next_generation, manifest.next_data_id
    ));
    let mut rows = vec![["GROUP", "ENGINE", "THRESHOLD", "GENERATION"].map(String::from).to_vec()];
    for (group, tree) in &manifest.trees {
        rows.push(vec![
            group.to_string(),
            format!("{:?}", tree.kind).to_lowercase(),
            size(tree.threshold.into()),
            tree.generation.to_string(),
        ]);
    }
    out.push_str(&aligned(&rows));
    if !manifest.data.is_empty() {
        let mut rows = vec![["DATA FILE", "BYTES", "CLASS"].map(String::from).to_vec()];
        rows.extend(
            manifest
                .data
                .iter()
                .map(|(id, d)| vec![format!("{id:016x}"), size(d.bytes), d.class.to_string()]),
        );
        out.push_str(&aligned(&rows));
    }
    Ok(())
}

/// One data file, verified.
pub fn print_data_file(fs: &dyn Fs, dir: &Path, name: &str, out: &mut String) -> Outcome<()> {
    let path = dir.join(name);
    let id = parse_data_name(name)
        .ok_or_else(|| Failure::invalid(format!("{name} is not the name of a data file")))?;
    let reader = DataReader::open(fs, dir, id).map_err(|e| damaged(&path, e))?;
    let sections = reader.verify().map_err(|e| damaged(&path, e))?;
    out.push_str(&format!("data file {id:016x}, {}, checksums good\n", size(bytes_of(&path))));
    let mut rows = vec![["GROUP", "OFFSET", "RECORDS", "BYTES"].map(String::from).to_vec()];
    for s in sections {
        rows.push(vec![s.group.to_string(), s.offset.to_string(), s.records.to_string(), size(s.bytes)]);
    }
    out.push_str(&aligned(&rows));
    Ok(())
}
