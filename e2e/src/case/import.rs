//! The Debian package index, imported while the importer is killed, every value compared with the source.

use super::{Failure, Run};

/// Runs the case.
pub async fn run(_run: Run) -> Result<String, Failure> {
    Err(Failure::Missing("examples/debian-packages/run is missing".into()))
}
