//! Merge patches and server-side apply, to the extent that the operator uses them.

use serde_json::{Map, Value};

/// RFC 7386: null removes, objects merge, everything else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (name, value) in fields {
        if value.is_null() {
            map.remove(name);
        } else {
            merge(map.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Server-side apply of one manager: what it named before and no longer names goes, what it names is set.
/// Lists are atomic.
pub fn apply(target: &mut Value, before: Option<&Value>, now: &Value) {
    if let Some(before) = before {
        prune(target, before, now);
    }
    merge(target, now);
}

fn prune(target: &mut Value, before: &Value, now: &Value) {
    let (Some(target), Some(before)) = (target.as_object_mut(), before.as_object()) else { return };
    for (name, old) in before {
        match now.get(name) {
            Some(new) => {
                if let Some(inner) = target.get_mut(name) {
                    prune(inner, old, new);
                }
            }
            None if old.is_object() => {
                // Only what this manager named; others' fields stay.
                if let Some(inner) = target.get_mut(name) {
                    prune(inner, old, &Value::Object(Map::new()));
                    if inner.as_object().is_some_and(Map::is_empty) {
                        target.remove(name);
                    }
                }
            }
            None => {
                target.remove(name);
            }
        }
    }
}

/// JSON patch, RFC 6902: add, replace, remove and test; an error is the reason.
pub fn json_patch(target: &mut Value, operations: &Value) -> Result<(), String> {
    for operation in operations.as_array().ok_or("a JSON patch is a list")? {
        let path = operation["path"].as_str().ok_or("an operation without a path")?;
        let value = operation["value"].clone();
        match operation["op"].as_str() {
            Some("test") if target.pointer(path) == Some(&value) => {}
            Some("test") => return Err(format!("test of {path} failed")),
            Some("add" | "replace") => set(target, path, value)?,
            Some("remove") => remove(target, path)?,
            other => return Err(format!("operation {other:?} is not supported here")),
        }
    }
    Ok(())
}

fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (above, last) = path.rsplit_once('/').ok_or("a path begins with /")?;
    let last = last.replace("~1", "/").replace("~0", "~");
    let above = target.pointer_mut(above).ok_or_else(|| format!("nothing at {above}"))?;
    Ok((above, last))
}

fn set(target: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let (above, last) = parent(target, path)?;
    match above {
        Value::Object(map) => {
            map.insert(last, value);
        }
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) => {
            let slot = last.parse().ok().and_then(|n: usize| list.get_mut(n));
            *slot.ok_or_else(|| format!("nothing at {path}"))? = value;
        }
        _ => return Err(format!("nothing can be set at {path}")),
    }
    Ok(())
}

fn remove(target: &mut Value, path: &str) -> Result<(), String> {
    let (above, last) = parent(target, path)?;
    let gone = match above {
        Value::Object(map) => map.remove(&last).is_some(),
        Value::Array(list) => match last.parse::<usize>() {
            Ok(n) if n < list.len() => {
                list.remove(n);
                true
            }
            _ => false,
        },
        _ => false,
    };
    if gone { Ok(()) } else { Err(format!("nothing at {path}")) }
}
