//! `${NAME}` in the values of a TOML text becomes what the environment says.
//!
//! | written | becomes |
//! |---|---|
//! | `"${NAME}"` | the variable, escaped, so that it cannot end the string |
//! | `${NAME}` without quotes | the variable, if it is one number or word |
//! | `${NAME+1}` | the variable, a whole number, and one more |
//! | `$${` | a literal `${` |
//!
//! Only values: comments and keys stay as they are. A text keeps its lines, so that later errors name
//! the right one.

/// What cannot be replaced, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// Byte in the text.
    pub offset: usize,
    /// What is wrong and what to do.
    pub message: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Quote {
    Bare,
    Basic,
    Literal,
}

/// The text with its references replaced. `lookup` knows the environment. Pure.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, Refused> {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        let end = match next {
            '#' => at + rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => {
                let (end, quote) = string_end(rest, next);
                let after = text[at + end..].trim_start_matches([' ', '\t']);
                if after.starts_with(['=', '.']) {
                    at + end
                } else {
                    replace(text, at, at + end, quote, &lookup, &mut out)?;
                    at += end;
                    continue;
                }
            }
            _ => {
                let end = rest.find(['#', '"', '\'']).unwrap_or(rest.len());
                replace(text, at, at + end, Quote::Bare, &lookup, &mut out)?;
                at += end;
                continue;
            }
        };
        out.push_str(&text[at..end]);
        at = end;
    }
    Ok(out)
}

/// Length of the string that begins `rest`, its quotes included; a string without an end goes on to
/// the end of the text, where the parser finds the fault.
fn string_end(rest: &str, quote: char) -> (usize, Quote) {
    let kind = if quote == '"' { Quote::Basic } else { Quote::Literal };
    let triple: String = std::iter::repeat_n(quote, 3).collect();
    let close = if rest.starts_with(&triple) { triple.as_str() } else { &rest[..1] };
    let mut at = close.len();
    while at < rest.len() {
        let tail = &rest[at..];
        if kind == Quote::Basic && tail.starts_with('\\') {
            at += 1 + tail[1..].chars().next().map_or(0, char::len_utf8);
        } else if tail.starts_with(close) {
            let mut end = at + close.len();
            // A multi-line string may end with quotes of its own.
            while close.len() == 3 && rest[end..].starts_with(quote) && end < at + 5 {
                end += 1;
            }
            return (end, kind);
        } else if close.len() == 1 && tail.starts_with('\n') {
            return (at, kind);
        } else {
            at += tail.chars().next().map_or(1, char::len_utf8);
        }
    }
    (rest.len(), kind)
}

fn replace(
    text: &str,
    from: usize,
    to: usize,
    quote: Quote,
    lookup: &impl Fn(&str) -> Option<String>,
    out: &mut String,
) -> Result<(), Refused> {
    let mut at = from;
    while let Some(found) = text[at..to].find("${").map(|i| at + i) {
        if text[at..found].ends_with('$') {
            out.push_str(&text[at..found - 1]);
            out.push_str("${");
            at = found + 2;
            continue;
        }
        out.push_str(&text[at..found]);
        let refuse = |message: String| Refused { offset: found, message };
        let inner = text[found + 2..to].split(['}', '\n']).next().unwrap_or_default();
        let end = found + 2 + inner.len();
        if !text[end..to].starts_with('}') {
            return Err(refuse("`${` without its `}`; write $${ for the characters themselves".into()));
        }
        let value = value_of(inner, lookup).map_err(refuse)?;
        out.push_str(&quoted(inner, &value, quote).map_err(refuse)?);
        at = end + 1;
    }
    out.push_str(&text[at..to]);
    Ok(())
}

fn value_of(inner: &str, lookup: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (name, plus) = inner.split_once('+').map_or((inner, None), |(name, plus)| (name, Some(plus)));
    let first = name.bytes().next();
    let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !fits || first.is_none_or(|b| b.is_ascii_digit()) {
        return Err(format!("`{name}` is not the name of an environment variable"));
    }
    let value = lookup(name).ok_or_else(|| {
        format!(
            "the environment variable {name} is not set; set it, or write $${{ for the characters themselves"
        )
    })?;
    let Some(plus) = plus else { return Ok(value) };
    let number = value.trim().parse::<i64>().ok().zip(plus.trim().parse::<i64>().ok());
    match number.and_then(|(value, plus)| value.checked_add(plus)) {
        Some(sum) => Ok(sum.to_string()),
        None => Err(format!("`${{{inner}}}` adds whole numbers, but {name} is `{value}`")),
    }
}

fn quoted(inner: &str, value: &str, quote: Quote) -> Result<String, String> {
    match quote {
        Quote::Basic => Ok(value.chars().map(escaped).collect()),
        Quote::Literal if !value.contains(|c: char| c == '\'' || c.is_control()) => Ok(value.into()),
        Quote::Literal => {
            Err(format!("the value of {inner} does not fit between single quotes; use double quotes"))
        }
        Quote::Bare => {
            let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'+' | b'-');
            match !value.is_empty() && value.bytes().all(fits) {
                true => Ok(value.into()),
                false => {
                    Err(format!("the value of {inner} is no number; put \"${{{inner}}}\" between quotes"))
                }
            }
        }
    }
}

fn escaped(c: char) -> String {
    match c {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<String, Refused> {
        expand(text, |name| match name {
            "POD" => Some("store-0".into()),
            "N" => Some("7".into()),
            "EVIL" => Some("x\"\nadmin = \"y\\".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn references_in_values_are_replaced() {
        let text =
            "a = \"${POD}.svc:${N}\" # ${NOT_SET}\nn = ${N}\nm = ${N+1}\nl = ['${POD}', \"$${POD}\"]\n";
        let want = "a = \"store-0.svc:7\" # ${NOT_SET}\nn = 7\nm = 8\nl = ['store-0', \"${POD}\"]\n";
        assert_eq!(with(text).expect("fits"), want);
    }

    #[test]
    fn keys_and_comments_stay() {
        for text in
            ["\"${POD}\" = 1\n", "\"${NOT_SET}\".b = 1", "# '${NOT_SET}' \" \na = 1\n", "a = '#' # ${X}"]
        {
            assert_eq!(with(text).expect("untouched"), text);
        }
    }

    #[test]
    fn a_value_cannot_leave_its_string() {
        let text = with("a = \"${EVIL}\"\nb = \"\"\"\n${EVIL}\"\"\"\n").expect("fits");
        let table: toml::Table = toml::from_str(&text).expect("toml");
        assert_eq!(table["a"].as_str(), Some("x\"\nadmin = \"y\\"));
        assert_eq!(table["b"].as_str(), Some("x\"\nadmin = \"y\\"));
        assert!(with("a = ${EVIL}").expect_err("no word").message.contains("between quotes"));
        assert!(with("a = '${EVIL}'").expect_err("no literal").message.contains("double quotes"));
        assert!(with("a = ${EMPTY}").is_err());
    }

    #[test]
    fn what_cannot_be_replaced_is_named_where_it_stands() {
        let refused = with("a = 1\nb = \"x ${NOT_SET}\"").expect_err("not set");
        assert_eq!(refused.offset, 13);
        assert!(refused.message.contains("NOT_SET is not set"), "{refused:?}");
        for bad in ["a = \"${POD\"", "a = \"${}\"", "a = \"${1A}\"", "a = ${POD+1}", "a = \"${A B}\""] {
            assert!(with(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn texts_that_are_no_toml_are_left_to_the_parser() {
        for text in ["a = \"open", "a = '''", "\"", "a = \"\\", "a = \"\"\"x\"\"\"\"\"", "ä = \"ö\\é"] {
            assert_eq!(with(text).expect("nothing to replace"), text);
        }
    }
}
