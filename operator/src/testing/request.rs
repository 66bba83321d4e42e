//! What a request asks for, from its method and path.

use std::collections::BTreeMap;

/// Which object: resources are named by group and plural, as in a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub group: String,
    pub plural: String,
    /// Empty: of the cluster.
    pub namespace: String,
    /// Empty: all of them.
    pub name: String,
}

impl Key {
    /// `pods`, `leases.coordination.k8s.io`, ...
    pub fn new(resource: &str, namespace: &str, name: &str) -> Self {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        Self { group: group.into(), plural: plural.into(), namespace: namespace.into(), name: name.into() }
    }

    /// All objects of the resource, in the namespace unless it is empty.
    pub fn covers(&self, other: &Key) -> bool {
        self.group == other.group
            && self.plural == other.plural
            && (self.namespace.is_empty() || self.namespace == other.namespace)
            && (self.name.is_empty() || self.name == other.name)
    }

    /// `pods` or `leases.coordination.k8s.io`.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteAll,
}

impl Verb {
    /// Whether it may change objects.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub key: Key,
    /// `status`, `eviction`, `scale` or empty.
    pub subresource: String,
    pub version: String,
}

/// One call, as tests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub verb: Verb,
    pub target: Target,
    pub query: BTreeMap<String, String>,
    pub content_type: String,
    pub body: serde_json::Value,
}

impl Call {
    /// `Patch storeclusters.undb.io/ns/name/status`: for messages and scripts.
    pub fn line(&self) -> String {
        let key = &self.target.key;
        let parts =
            [key.resource(), key.namespace.clone(), key.name.clone(), self.target.subresource.clone()];
        let path: Vec<String> = parts.into_iter().filter(|p| !p.is_empty()).collect();
        format!("{:?} {}", self.verb, path.join("/"))
    }

    /// Whether it is this verb on this resource (`pods/eviction` names a subresource).
    pub fn is(&self, verb: Verb, resource: &str) -> bool {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        self.verb == verb && self.target.key.resource() == resource && self.target.subresource == subresource
    }
}

/// Reads `/api/v1/...` and `/apis/GROUP/VERSION/...`; `None` for anything else.
pub fn target(path: &str) -> Option<Target> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, plural, name, subresource) = match rest {
        [plural] => ("", *plural, "", ""),
        ["namespaces", name] => ("", "namespaces", *name, ""),
        ["namespaces", name, "status"] => ("", "namespaces", *name, "status"),
        ["namespaces", ns, plural] => (*ns, *plural, "", ""),
        ["namespaces", ns, plural, name] => (*ns, *plural, *name, ""),
        ["namespaces", ns, plural, name, sub] => (*ns, *plural, *name, *sub),
        [plural, name] => ("", *plural, *name, ""),
        [plural, name, sub] => ("", *plural, *name, *sub),
        _ => return None,
    };
    let key =
        Key { group: group.into(), plural: plural.into(), namespace: namespace.into(), name: name.into() };
    Some(Target { key, subresource: subresource.into(), version: version.into() })
}

/// The pairs of a query string, decoded.
pub fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|p| !p.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

fn decode(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let hex: String = bytes.by_ref().take(2).map(char::from).collect();
                out.push(u8::from_str_radix(&hex, 16).unwrap_or(b'?'));
            }
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// `a=b,c!=d,e,!f,g in (h,i)` against labels.
pub fn labels_match(selector: &str, labels: &BTreeMap<String, String>) -> bool {
    let mut rest = selector;
    let mut all = true;
    while !rest.is_empty() {
        let in_set = rest.find('(').filter(|open| rest.find(',').is_none_or(|comma| *open < comma));
        let end = match in_set {
            Some(open) => rest[open..].find(')').map_or(rest.len(), |close| open + close + 1),
            None => rest.find(',').unwrap_or(rest.len()),
        };
        all &= term_matches(rest[..end].trim(), labels);
        rest = rest[end..].trim_start_matches(',');
    }
    all
}

fn term_matches(term: &str, labels: &BTreeMap<String, String>) -> bool {
    let value = |name: &str| labels.get(name.trim()).map(String::as_str);
    if let Some((head, set)) = term.split_once('(') {
        let words: Vec<&str> = head.split_whitespace().collect();
        let held = words.first().and_then(|name| value(name));
        let found = set.trim_end_matches(')').split(',').any(|v| Some(v.trim()) == held);
        return found != words.contains(&"notin");
    }
    if let Some((name, wanted)) = term.split_once("!=") {
        return value(name) != Some(wanted.trim());
    }
    if let Some((name, wanted)) = term.split_once('=') {
        return value(name) == Some(wanted.trim_start_matches('=').trim());
    }
    match term.strip_prefix('!') {
        Some(name) => value(name).is_none(),
        None => value(term).is_some(),
    }
}
