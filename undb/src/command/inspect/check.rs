//! `--check`: a stopped store is opened, every index entry and every value is read, and the counts
//! are made anew.

use super::{Kind, Part, damaged};
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use std::path::Path;
use std::sync::Arc;
use undb_engine::{CheckReport, Engine, EngineOptions};
use undb_log::{Log, LogOptions};
use undb_vfs::{Fs, OsFs};

/// Checks each store among the parts.
pub fn run(parts: &[Part], path: &Path) -> Outcome {
    let stores: Vec<&Part> = parts.iter().filter(|p| p.kind == Kind::Store).collect();
    if stores.is_empty() {
        return Err(Failure::invalid(format!(
            "{} is no store's directory; --check takes that of a store, or of `undb dev`",
            path.display()
        )));
    }
    let mut problems = 0;
    for part in stores {
        let report = check(&part.path)?;
        let verdict = if report.problems.is_empty() { "good" } else { "does not fit together" };
        output::line(format!(
            "{}: {} keys, {} of them in the log or data files: {verdict}",
            part.path.display(),
            report.keys,
            report.pointers
        ))?;
        for problem in &report.problems {
            output::line(format!("  {problem}"))?;
        }
        problems += report.problems.len();
    }
    match problems {
        0 => Ok(Exit::Ok),
        n => Err(Failure::new(
            Exit::Corrupt,
            format!(
                "{n} problems; keep the directory, and let the store come back empty: the others repair it"
            ),
        )),
    }
}

fn check(dir: &Path) -> Outcome<CheckReport> {
    let fs: Arc<dyn Fs> = Arc::new(OsFs::new(dir));
    let identity = undb_store::identity_of(fs.clone(), dir).map_err(Failure::local)?;
    if identity.is_none() {
        return Err(Failure::invalid(format!("{} has no identity.json", dir.display())));
    }
    let _lock = fs
        .lock(&dir.join("LOCK"))
        .map_err(|e| Failure::local(format!("{} is in use ({e}); stop the store first", dir.display())))?;
    let log = Log::open(fs.clone(), &dir.join("log"), LogOptions::default()).map_err(|e| damaged(dir, e))?;
    let engine = Engine::open(fs, &dir.join("engine"), log.clone(), EngineOptions::default())
        .map_err(|e| damaged(dir, e))?;
    let report = engine.scrub().map_err(|e| damaged(dir, e));
    drop(engine);
    log.close();
    report
}
