//! A store's directory: who it is, its replicas, its log and its engine.

use super::{damaged, engine, log};
use crate::exit::{Failure, Outcome};
use crate::output::aligned;
use std::path::Path;
use undb_store::directory::Descriptor;
use undb_vfs::Fs;

/// All of it.
pub fn print(fs: &dyn Fs, dir: &Path, out: &mut String) -> Outcome<()> {
    super::print_json(&dir.join("identity.json"), out)?;
    print_replicas(fs, &dir.join("replicas"), out)?;
    for (name, print) in
        [("log", log::print as fn(&dyn Fs, &Path, &mut String) -> Outcome<()>), ("engine", engine::print)]
    {
        let path = dir.join(name);
        if path.exists() {
            out.push_str(&format!("-- {name}\n"));
            print(fs, &path, out)?;
        }
    }
    Ok(())
}

fn print_replicas(fs: &dyn Fs, dir: &Path, out: &mut String) -> Outcome<()> {
    if !dir.exists() {
        return Ok(());
    }
    let mut rows = vec![["REPLICA", "TABLE", "STATE", "ENGINE", "START", "END"].map(String::from).to_vec()];
    let mut names = fs.list(dir).map_err(|e| Failure::file(dir, &e))?;
    names.sort();
    for name in names.iter().filter(|n| n.ends_with(".json")) {
        let path = dir.join(name);
        let text = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, &e))?;
        let replica: Descriptor = serde_json::from_str(&text).map_err(|e| damaged(&path, e))?;
        rows.push(vec![
            replica.group().to_string(),
            replica.table_name.clone(),
            format!("{:?}", replica.state).to_lowercase(),
            replica.engine.clone(),
            replica.start.clone(),
            replica.end.clone(),
        ]);
    }
    out.push_str(&aligned(&rows));
    Ok(())
}
