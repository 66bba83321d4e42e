//! Text to objects. A file may hold several documents; each is read on its own, so that one error
//! does not hide those of the next.

use crate::advice::advised;
use crate::tree::Tree;
use crate::{Manifest, Object, Parsed, Problem, SpecError, StoreCluster, Table, Violation};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Every object of a YAML text (JSON is YAML too), or everything that is wrong with it. `file` only
/// names the text in errors.
pub fn parse_yaml(text: &str, file: &str) -> Result<Vec<Parsed>, SpecError> {
    let mut parsed = Vec::new();
    let mut problems = Vec::new();
    for document in documents(text) {
        match parse_document(&document) {
            Ok(object) => {
                let line = document.first_line + blank_lines(document.text);
                parsed.push(Parsed { warnings: object.warnings(), object, line });
            }
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(parsed) } else { Err(SpecError { file: file.into(), problems }) }
}

/// One object as JSON, the form on the wire and in metadata.
pub fn parse_json(json: &str) -> Result<Parsed, SpecError> {
    let place = |e: &serde_json::Error| (e.line() > 0).then(|| (e.line(), e.column()));
    let refuse = |e: serde_json::Error| {
        let problem = Problem { at: place(&e), path: String::new(), message: e.to_string() };
        SpecError { file: String::new(), problems: vec![problem] }
    };
    let head: Head = serde_json::from_str(json).map_err(refuse)?;
    let object =
        match kind_of(&head).map_err(|problem| SpecError { file: String::new(), problems: vec![problem] })? {
            Kind::StoreCluster => serde_json::from_str(json).map(Object::StoreCluster),
            Kind::Table => serde_json::from_str(json).map(Object::Table),
        }
        .map_err(refuse)?;
    let problems: Vec<Problem> = object
        .violations()
        .into_iter()
        .map(|Violation { path, message }| Problem { at: None, path, message })
        .collect();
    if !problems.is_empty() {
        return Err(SpecError { file: String::new(), problems });
    }
    Ok(Parsed { warnings: object.warnings(), object, line: 1 })
}

enum Kind {
    StoreCluster,
    Table,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    kind: Option<String>,
}

fn kind_of(head: &Head) -> Result<Kind, Problem> {
    let refuse = |message: String| Err(Problem { at: None, path: "kind".into(), message });
    match head.kind.as_deref() {
        Some(StoreCluster::KIND) => Ok(Kind::StoreCluster),
        Some(Table::KIND) => Ok(Kind::Table),
        Some(known @ ("ControlPlane" | "Router" | "Store" | "TableMigration" | "Backup" | "Restore")) => {
            refuse(format!("{known} is not supported here; apply StoreCluster and Table objects"))
        }
        Some(other) => refuse(format!(
            "`{}` is not known; write StoreCluster or Table",
            other.chars().take(40).collect::<String>()
        )),
        None => refuse("is missing; write `kind: StoreCluster` or `kind: Table`".into()),
    }
}

struct Document<'a> {
    text: &'a str,
    // Of its first line in the file, from 1.
    first_line: usize,
}

/// Cuts at `---` and `...` in the first column: YAML allows them nowhere else.
fn documents(text: &str) -> Vec<Document<'_>> {
    let mut cuts = Vec::new();
    let (mut begin, mut first_line, mut offset) = (0, 1, 0);
    for (i, line) in text.split_inclusive('\n').enumerate() {
        let marker = ["---", "..."].iter().any(|m| {
            line.strip_prefix(m)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
        });
        if marker {
            cuts.push(Document { text: &text[begin..offset], first_line });
            // What follows a marker on its line belongs to the next document.
            let after = if line.starts_with("---") { 3 } else { line.trim_end_matches('\n').len() };
            begin = offset + after;
            first_line = i + 1;
        }
        offset += line.len();
    }
    cuts.push(Document { text: &text[begin..], first_line });
    cuts.retain(|d| !is_blank(d.text));
    cuts
}

fn is_blank(text: &str) -> bool {
    text.lines().all(|line| {
        let line = line.trim_start();
        line.is_empty() || line.starts_with('#')
    })
}

fn blank_lines(text: &str) -> usize {
    text.lines().take_while(|line| is_blank(line)).count()
}

fn parse_document(document: &Document<'_>) -> Result<Object, Vec<Problem>> {
    let tree = serde_yaml::from_str::<Tree>(document.text).map_err(|e| vec![problem(document, None, &e)])?;
    let head: Head =
        serde_yaml::from_str(document.text).map_err(|e| vec![problem(document, Some(&tree), &e)])?;
    let object = match kind_of(&head) {
        Ok(Kind::StoreCluster) => Object::StoreCluster(typed(document, &tree)?),
        Ok(Kind::Table) => Object::Table(typed(document, &tree)?),
        Err(mut refused) => {
            refused.at =
                Some(document.place(tree.find("kind").unwrap_or((1 + blank_lines(document.text), 1))));
            return Err(vec![refused]);
        }
    };
    let problems: Vec<Problem> = object
        .violations()
        .into_iter()
        .map(|Violation { path, message }| Problem {
            at: tree.find(&path).map(|at| document.place(at)),
            path,
            message,
        })
        .collect();
    if problems.is_empty() { Ok(object) } else { Err(problems) }
}

fn typed<S: DeserializeOwned>(document: &Document<'_>, tree: &Tree) -> Result<Manifest<S>, Vec<Problem>> {
    serde_yaml::from_str(document.text).map_err(|e| vec![problem(document, Some(tree), &e)])
}

impl Document<'_> {
    fn place(&self, (line, column): (usize, usize)) -> (usize, usize) {
        (line + self.first_line - 1, column)
    }
}

fn problem(document: &Document<'_>, tree: Option<&Tree>, error: &serde_yaml::Error) -> Problem {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let at = error.location().map(|l| (number(l.line()), number(l.column())));
    let words = message_of(error);
    let unknown = words.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    let path = at.zip(tree).map(|(at, tree)| tree.path_at(at, unknown)).unwrap_or_default();
    Problem { at: at.map(|at| document.place(at)), path, message: advised(&words) }
}

/// The library's first line without the place, which we print ourselves.
fn message_of(error: &serde_yaml::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    let without_place = line.split(" at line ").next().unwrap_or(line);
    without_place.trim_start_matches("error: ").to_owned()
}
