//! What is wrong with what a user wrote: where, which field, and what to do.

use std::fmt;

/// A rule that a field does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, for example `spec.replication.factor`.
    pub path: String,
    /// Its value and what to do, for example `2 is not possible; write 1, 3, 5 or 7`.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// One thing that is wrong, with its place in the text if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line and column, from 1.
    pub at: Option<(usize, usize)>,
    /// The field, if it is about one.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// Everything that is wrong with one text. Displays as `FILE:LINE:COLUMN: FIELD: MESSAGE`, one a
/// line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// Names the text.
    pub file: String,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl SpecError {
    pub(crate) fn plain(message: &str) -> Self {
        let problem = Problem { at: None, path: String::new(), message: message.into() };
        Self { file: String::new(), problems: vec![problem] }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            match (self.file.is_empty(), problem.at) {
                (false, Some((line, column))) => write!(f, "{}:{line}:{column}: ", self.file)?,
                (false, None) => write!(f, "{}: ", self.file)?,
                (true, Some((line, column))) => write!(f, "line {line} column {column}: ")?,
                (true, None) => {}
            }
            if !problem.path.is_empty() {
                write!(f, "{}: ", problem.path)?;
            }
            f.write_str(&problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for SpecError {}
