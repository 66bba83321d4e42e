//! `undb inspect`: what lies on disk, read offline. Never needs a running cluster.
//!
//! ```text
//! DIR   undb dev's directory -> control/meta/, store-N/ | a store's | a metadata member's | a log's | an engine's
//! FILE  log segment | D-segment | MANIFEST | metadata image | identity.json | replicas/*.json
//! --check   a stopped store: index references = segments = live bytes, every value read
//! ```

mod check;
mod engine;
mod log;
mod meta;
mod store;

use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use std::path::{Path, PathBuf};
use undb_vfs::{Fs, OsFs};

const EXAMPLES: &str = "\
Examples:
  undb inspect ./undb-data                          everything of `undb dev`, one section a part
  undb inspect ./undb-data/store-1/log              segments, groups, where a torn tail would be cut
  undb inspect ./undb-data/store-1/log/SEGMENT --entries
  undb inspect ./undb-data/store-1/engine
  undb inspect --check ./undb-data/store-1          exit 12 if something does not fit together

Inspecting changes nothing. --check opens a stopped store as a start would, so it also repairs what
a start would repair (a torn tail is cut), and refuses a store that is running.";

/// Read files of a store or a metadata member offline
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A directory or a file of one
    path: PathBuf,
    /// Check a stopped store: references, segments, live bytes, checksums
    #[arg(long)]
    check: bool,
    /// Of a log segment: every entry, not only frames
    #[arg(long)]
    entries: bool,
}

/// Finds out what it is and prints it.
pub fn run(args: Args) -> Outcome {
    let path = &args.path;
    let meta = std::fs::metadata(path).map_err(|e| Failure::file(path, &e))?;
    let parts = if meta.is_dir() { parts_of(path) } else { Vec::new() };
    if args.check {
        return check::run(&parts, path);
    }
    let fs = OsFs::new(path);
    let mut out = String::new();
    if !meta.is_dir() {
        file(&fs, path, &args, &mut out)?;
        output::bytes(out.as_bytes())?;
        return Ok(Exit::Ok);
    }
    if parts.is_empty() {
        return Err(Failure::invalid(format!(
            "{} is no directory of UNDB; name that of `undb dev`, a store, a metadata member, a log or an engine",
            path.display()
        )));
    }
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        out.push_str(&format!("== {} ({})\n", part.path.display(), part.kind.name()));
        match part.kind {
            Kind::Store => store::print(&fs, &part.path, &mut out)?,
            Kind::Meta => meta::print(&fs, &part.path, &mut out)?,
            Kind::Log => log::print(&fs, &part.path, &mut out)?,
            Kind::Engine => engine::print(&fs, &part.path, &mut out)?,
        }
    }
    output::bytes(out.as_bytes())?;
    Ok(Exit::Ok)
}

/// What a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Store,
    Meta,
    Log,
    Engine,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Meta => "metadata member",
            Self::Log => "log",
            Self::Engine => "engine",
        }
    }
}

/// A directory that was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub path: PathBuf,
    pub kind: Kind,
}

/// The directory itself, or those in it, at most two levels down, that are known.
fn parts_of(path: &Path) -> Vec<Part> {
    parts_within(path, LEVELS)
}

const LEVELS: usize = 2;

fn parts_within(path: &Path, levels: usize) -> Vec<Part> {
    if let Some(kind) = kind_of(path) {
        return vec![Part { path: path.into(), kind }];
    }
    let Some(below) = levels.checked_sub(1) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut children: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    children.sort();
    children.iter().filter(|child| child.is_dir()).flat_map(|child| parts_within(child, below)).collect()
}

fn kind_of(path: &Path) -> Option<Kind> {
    let has = |name: &str| path.join(name).exists();
    if has("identity.json") {
        let store = has("engine") || has("replicas");
        return Some(if store { Kind::Store } else { Kind::Meta });
    }
    if has("MANIFEST") || has("trees") {
        return Some(Kind::Engine);
    }
    log::is_log(path).then_some(Kind::Log)
}

fn file(fs: &dyn Fs, path: &Path, args: &Args, out: &mut String) -> Outcome<()> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match name {
        "MANIFEST" => engine::print_manifest(fs, path, out),
        "image" => meta::print_image(fs, path, out),
        _ if name.ends_with(".data") => engine::print_data_file(fs, parent, name, out),
        _ if name.ends_with(".json") => print_json(path, out),
        _ => log::print_segment(fs, parent, path, args.entries, out),
    }
}

fn print_json(path: &Path, out: &mut String) -> Outcome<()> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, &e))?;
    let value: serde_json::Value = serde_json::from_str(&text)
        .map_err(|e| Failure::new(Exit::Corrupt, format!("{} is damaged: {e}", path.display())))?;
    out.push_str(&serde_json::to_string_pretty(&value).map_err(Failure::internal)?);
    out.push('\n');
    Ok(())
}

/// The failure for a file that does not read.
fn damaged(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Corrupt, format!("{}: {error}", path.display()))
}
