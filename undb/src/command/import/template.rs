//! A column, or text with columns in braces.

use std::fmt;
use std::str::FromStr;

/// Pieces in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    pub pieces: Vec<Piece>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Column(String),
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Template {
    type Err = String;

    /// `{{` and `}}` are literal braces.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("name a column".into());
        }
        if !text.contains(['{', '}']) {
            return Ok(Self { text: text.into(), pieces: vec![Piece::Column(text.into())] });
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if rest.starts_with("{{") || rest.starts_with("}}") {
                literal.push(c);
                rest = &rest[2..];
            } else if let Some(after) = rest.strip_prefix('{') {
                let (column, behind) =
                    after.split_once('}').ok_or_else(|| format!("a {{ is not closed in `{text}`"))?;
                if column.is_empty() {
                    return Err("{} names no column".into());
                }
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Column(column.into()));
                rest = behind;
            } else if c == '}' {
                return Err(format!("a }} without {{ in `{text}`; write }}}} for the character"));
            } else {
                literal.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        if !pieces.iter().any(|p| matches!(p, Piece::Column(_))) {
            return Err(format!("`{text}` names no column; every row would have the same key"));
        }
        Ok(Self { text: text.into(), pieces })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_text_and_columns() {
        let column = |s: &str| Piece::Column(s.into());
        let text = |s: &str| Piece::Text(s.into());
        let pieces = |s: &str| s.parse::<Template>().map(|t| t.pieces);
        assert_eq!(pieces("package"), Ok(vec![column("package")]));
        assert_eq!(pieces("{a}/{b}!"), Ok(vec![column("a"), text("/"), column("b"), text("!")]));
        assert_eq!(pieces("{{ü}}{a}"), Ok(vec![text("{ü}"), column("a")]));
        for wrong in ["", "{a", "a}", "{}", "{{a}}"] {
            assert!(pieces(wrong).is_err(), "{wrong}");
        }
    }
}
