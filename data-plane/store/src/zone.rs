//! The zone from a file that somebody fills in once the process has a place.

use crate::error::StoreError;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

const WAIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);

/// The first word of the file, as soon as there is one. A store that begins without its zone would be
/// given copies that are in that zone already.
pub(crate) async fn wait_for(file: &Path) -> Result<String, StoreError> {
    let deadline = Instant::now() + WAIT;
    loop {
        let problem = match tokio::fs::read_to_string(file).await {
            Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
            Ok(_) => "is empty".to_owned(),
            Err(error) => error.to_string(),
        };
        if Instant::now() >= deadline {
            let message = format!(
                "zone_file: {} {problem} after {WAIT:?}; write the zone into it, or set `zone` instead",
                file.display()
            );
            return Err(StoreError::Config(message));
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_zone_is_the_text_of_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("zone");
        std::fs::write(&file, "eu-1a\n").expect("written");
        assert_eq!(wait_for(&file).await.expect("a zone"), "eu-1a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_zone_that_never_comes_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("zone");
        std::fs::write(&file, "").expect("written");
        let error = wait_for(&file).await.expect_err("no zone").to_string();
        assert!(error.contains("zone_file") && error.contains("is empty"), "{error}");
    }
}
