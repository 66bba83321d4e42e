//! A metadata member's directory: who it is, its image, its log.

use super::{damaged, log};
use crate::exit::{Failure, Outcome};
use std::path::Path;
use undb_vfs::Fs;

/// All of it.
pub fn print(fs: &dyn Fs, dir: &Path, out: &mut String) -> Outcome<()> {
    super::print_json(&dir.join("identity.json"), out)?;
    let image = dir.join("image");
    match image.exists() {
        true => print_image(fs, &image, out)?,
        false => out.push_str("no image yet: the state is in the log\n"),
    }
    out.push_str("-- log\n");
    log::print(fs, &dir.join("log"), out)
}

/// What the image holds.
pub fn print_image(fs: &dyn Fs, path: &Path, out: &mut String) -> Outcome<()> {
    let bytes = undb_vfs::read_file(fs, path).map_err(|e| Failure::file(path, &e))?;
    let file = undb_server::meta::read_image(&bytes, path).map_err(|e| damaged(path, e))?;
    let image = file.image.unwrap_or_default();
    let cluster = image.cluster.unwrap_or_default();
    out.push_str(&format!(
        "image: format {}, revision {}, cluster {}, incarnation {}\n",
        image.format_version, image.revision, cluster.cluster_id, cluster.incarnation
    ));
    for store in &image.stores {
        out.push_str(&format!(
            "  store {} {} {:?} {}\n",
            store.store_id,
            store.address,
            store.state(),
            store.uuid
        ));
    }
    for class in &image.store_clusters {
        out.push_str(&format!("  storecluster {}\n", class.name));
    }
    for table in &image.tables {
        out.push_str(&format!("  table {} {} {:?}\n", table.table_id, table.name, table.state()));
    }
    for shard in image.shards.iter().filter_map(|s| s.shard.as_ref()) {
        let stores: Vec<u64> = shard.replicas.iter().map(|r| r.store_id).collect();
        out.push_str(&format!(
            "  shard {} of table {} on stores {stores:?}\n",
            shard.shard_id, shard.table_id
        ));
    }
    Ok(())
}
