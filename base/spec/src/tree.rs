//! Where each field of a YAML document stands, for errors about its meaning.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_yaml::Spanned;
use std::fmt;

/// A document as places only.
pub(crate) enum Tree {
    Map(Vec<(Spanned<String>, Spanned<Tree>)>),
    Seq(Vec<Spanned<Tree>>),
    Leaf,
}

/// Line and column, from 1.
pub(crate) type Place = (usize, usize);

fn place<T>(spanned: &Spanned<T>) -> Place {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    (number(spanned.referenced.line()), number(spanned.referenced.column()))
}

impl Tree {
    /// Where the field of a path like `spec.partitioning.splitKeys[1]` stands, or the nearest field
    /// around it that was written.
    pub(crate) fn find(&self, path: &str) -> Option<Place> {
        let mut node = self;
        let mut found = None;
        for part in path.split(['.', '[']) {
            let next = match node {
                Tree::Map(entries) => entries
                    .iter()
                    .find(|(key, _)| key.value == part)
                    .map(|(key, value)| (place(key), &value.value)),
                Tree::Seq(items) => part
                    .strip_suffix(']')
                    .and_then(|n| items.get(n.parse::<usize>().ok()?))
                    .map(|item| (place(item), &item.value)),
                Tree::Leaf => None,
            };
            let Some((at, below)) = next else { break };
            found = Some(at);
            node = below;
        }
        found
    }

    /// The path of the field whose key or value stands at a place; empty: none does. `named`: the field
    /// that is meant, where several begin there.
    pub(crate) fn path_at(&self, at: Place, named: Option<&str>) -> String {
        let mut paths = Vec::new();
        self.paths_at(at, String::new(), 0, &mut paths);
        // A container begins where its first field does: the shallowest is the one that is meant.
        let is_meant = |path: &&String| path.rsplit('.').next() == named;
        paths.iter().find(is_meant).or(paths.first()).cloned().unwrap_or_default()
    }

    fn paths_at(&self, at: Place, prefix: String, depth: usize, out: &mut Vec<String>) {
        if depth > DEPTH_MAX {
            return;
        }
        match self {
            Tree::Map(entries) => {
                for (key, value) in entries {
                    let dot = if prefix.is_empty() { "" } else { "." };
                    let path = format!("{prefix}{dot}{}", key.value);
                    if place(key) == at || place(value) == at {
                        out.push(path.clone());
                    }
                    value.value.paths_at(at, path, depth + 1, out);
                }
            }
            Tree::Seq(items) => {
                for (i, item) in items.iter().enumerate() {
                    let path = format!("{prefix}[{i}]");
                    if place(item) == at {
                        out.push(path.clone());
                    }
                    item.value.paths_at(at, path, depth + 1, out);
                }
            }
            Tree::Leaf => {}
        }
    }
}

const DEPTH_MAX: usize = 64;

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Map(entries))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Tree::Seq(items))
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Tree::Leaf)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_i128<E>(self, _: i128) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_u128<E>(self, _: u128) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_bytes<E>(self, _: &[u8]) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
}
