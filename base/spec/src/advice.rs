//! What to do about YAML that cannot be read, behind the words of the library that read it.

/// A part of the library's words, and what to do.
const ADVICE: [(&str, &str); 12] = [
    ("tab", "indent with spaces"),
    (
        "mapping values are not allowed",
        "indent the fields of one object alike, write a blank behind every `:`, and quote text that holds `: `",
    ),
    ("did not find expected key", ALIKE),
    ("did not find expected <document start>", ALIKE),
    ("indent", ALIKE),
    ("did not find expected ','", CLOSE),
    ("mismatched bracket", CLOSE),
    ("unclosed quote", "close it, or leave the quotes away"),
    ("unexpected character", "put the text in quotes"),
    ("unknown anchor", "put text that begins with `*` in quotes"),
    ("expected mapping start", "write fields here, each as `name: value` with a blank behind the `:`"),
    ("expected string scalar", "write text here, in quotes if it begins with `{` or `[`"),
];

const ALIKE: &str = "indent the fields of one object alike";
const CLOSE: &str = "close every `{` and `[`, and put commas between what is in them";

/// The library's words, with what to do where that is known.
pub(crate) fn advised(words: &str) -> String {
    let twice = words.strip_prefix("duplicate mapping key: ").and_then(|rest| rest.rsplit_once(", set "));
    if let Some((key, _)) = twice {
        return format!("`{key}` is written twice; keep one of them");
    }
    match ADVICE.iter().find(|(part, _)| words.contains(part)) {
        Some((_, advice)) => format!("{words}; {advice}"),
        None => words.to_owned(),
    }
}
