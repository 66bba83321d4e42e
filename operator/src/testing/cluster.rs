//! The objects, their history, and what each verb does to them. No I/O, no waiting.

use super::patch;
use super::pdb;
use super::request::{Call, Key, Verb, labels_match};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An error answer of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: u16,
    pub reason: String,
    pub message: String,
}

impl Refusal {
    pub fn new(code: u16, reason: &str, message: &str) -> Self {
        Self { code, reason: reason.into(), message: message.into() }
    }

    pub fn body(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure",
            "code": self.code, "reason": self.reason, "message": self.message,
        })
    }
}

/// A change, as a watch tells it.
#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    pub key: Key,
    pub kind: &'static str,
    pub object: Arc<Value>,
    /// What it was, if it was.
    pub before: Option<Arc<Value>>,
}

/// Everything that is stored.
#[derive(Debug, Default)]
pub struct Cluster {
    objects: BTreeMap<Key, Arc<Value>>,
    applied: BTreeMap<(Key, String, String), Value>,
    pub history: Vec<Change>,
    pub version: u64,
    /// Versions up to here are forgotten: a watch from there gets 410.
    pub compacted: u64,
    uids: u64,
    /// The disruption controller stands still: statuses of PDBs lag.
    pub disruption_controller_stopped: bool,
    /// Deleted Pods stay, with a deletionTimestamp, until `finish_pod`.
    pub pods_linger: bool,
}

pub fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = object["metadata"]["labels"].as_object();
    let pairs = labels.into_iter().flatten();
    pairs.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}

fn not_found(key: &Key) -> Refusal {
    Refusal::new(404, "NotFound", &format!("{} \"{}\" not found", key.resource(), key.name))
}

fn conflict(key: &Key, why: &str) -> Refusal {
    let message = format!("Operation cannot be fulfilled on {} \"{}\": {why}", key.resource(), key.name);
    Refusal::new(409, "Conflict", &message)
}

impl Cluster {
    pub fn get(&self, key: &Key) -> Option<Value> {
        self.objects.get(key).map(|object| object.as_ref().clone())
    }

    /// All that `key` covers, by name.
    pub fn all(&self, key: &Key) -> Vec<(Key, Value)> {
        let covered = self.objects.iter().filter(|(k, _)| key.covers(k));
        covered.map(|(k, v)| (k.clone(), v.as_ref().clone())).collect()
    }

    /// Every object as it was at a version.
    pub fn all_at(&self, key: &Key, version: u64) -> Vec<(Key, Value)> {
        let mut then: BTreeMap<Key, Value> = BTreeMap::new();
        for change in self.history.iter().filter(|c| c.version <= version && key.covers(&c.key)) {
            if change.kind == "DELETED" {
                then.remove(&change.key);
            } else {
                then.insert(change.key.clone(), change.object.as_ref().clone());
            }
        }
        then.into_iter().collect()
    }

    /// Writes an object as a controller of the cluster would: any part, no preconditions.
    pub fn store(&mut self, key: &Key, mut object: Value) {
        self.version += 1;
        let before = self.objects.get(key);
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        let generation = before.and_then(|b| b["metadata"]["generation"].as_i64()).unwrap_or(0);
        let changed = before.is_none_or(|b| b["spec"] != object["spec"]);
        let meta = &mut object["metadata"];
        meta["resourceVersion"] = json!(self.version.to_string());
        meta["generation"] = json!(generation + i64::from(changed));
        meta["name"] = json!(key.name);
        if !key.namespace.is_empty() {
            meta["namespace"] = json!(key.namespace);
        }
        if meta["uid"].is_null() {
            self.uids += 1;
            meta["uid"] = json!(format!("uid-{}", self.uids));
            meta["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), object.clone());
        self.history.push(Change { version: self.version, key: key.clone(), kind, object, before });
    }

    fn forget(&mut self, key: &Key) {
        let Some(before) = self.objects.remove(key) else { return };
        let mut object = before.as_ref().clone();
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.applied.retain(|(k, _, _), _| k != key);
        let uid = object["metadata"]["uid"].clone();
        let (object, before) = (Arc::new(object), Some(before));
        let change = Change { version: self.version, key: key.clone(), kind: "DELETED", object, before };
        self.history.push(change);
        self.collect_garbage(&uid);
    }

    /// Objects whose last owner is gone go too.
    fn collect_garbage(&mut self, uid: &Value) {
        let mut orphans = Vec::new();
        for (key, object) in &mut self.objects {
            if !object["metadata"]["ownerReferences"].is_array() {
                continue;
            }
            let object = Arc::make_mut(object);
            let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() else { continue };
            let count = owners.len();
            owners.retain(|owner| owner["uid"] != *uid);
            if owners.is_empty() && count > 0 {
                orphans.push(key.clone());
            }
        }
        orphans.iter().for_each(|key| self.delete_now(key));
    }

    fn delete_now(&mut self, key: &Key) {
        let Some(mut object) = self.get(key) else { return };
        let finalizers = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
        if finalizers || (self.pods_linger && key.plural == "pods") {
            if object["metadata"]["deletionTimestamp"].is_null() {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
                self.store(key, object);
            }
            return;
        }
        self.forget(key);
    }

    /// The kubelet is done with a deleted Pod.
    pub fn finish_pod(&mut self, namespace: &str, name: &str) {
        let key = Key::new("pods", namespace, name);
        let deleted = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
        assert!(self.get(&key).as_ref().is_some_and(deleted), "{name} is not being deleted");
        self.forget(&key);
    }

    /// One call, decided and done.
    pub fn answer(&mut self, call: &Call) -> Result<Value, Refusal> {
        let key = &call.target.key;
        let result = match call.verb {
            Verb::Get => self.get(key).ok_or_else(|| not_found(key)),
            Verb::List | Verb::Watch => Ok(self.list(call, self.all(key), self.version)),
            Verb::Create if call.target.subresource == "eviction" => self.evict(call),
            Verb::Create => self.create(call),
            Verb::Update => self.update(call, &call.body),
            Verb::Patch => self.patch(call),
            Verb::Delete => self.delete(call),
            Verb::DeleteAll => {
                let chosen = self.all(key).into_iter().filter(|(_, object)| chosen(call, object));
                let keys: Vec<Key> = chosen.map(|(key, _)| key).collect();
                keys.iter().for_each(|key| self.delete_now(key));
                Ok(json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}))
            }
        };
        if call.verb.writes() && !self.disruption_controller_stopped {
            pdb::settle(self);
        }
        result
    }

    /// A list of those objects that the call selects.
    pub fn list(&self, call: &Call, objects: Vec<(Key, Value)>, version: u64) -> Value {
        let items: Vec<Value> =
            objects.into_iter().map(|(_, o)| o).filter(|object| chosen(call, object)).collect();
        let api_version = match call.target.key.group.as_str() {
            "" => call.target.version.clone(),
            group => format!("{group}/{}", call.target.version),
        };
        json!({
            "apiVersion": api_version, "kind": "List",
            "metadata": {"resourceVersion": version.to_string()}, "items": items,
        })
    }

    fn create(&mut self, call: &Call) -> Result<Value, Refusal> {
        let mut key = call.target.key.clone();
        let mut object = call.body.clone();
        key.name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if key.name.is_empty() {
            let prefix = object["metadata"]["generateName"].as_str().unwrap_or_default();
            key.name = format!("{prefix}{}", self.version + 1);
        }
        if self.objects.contains_key(&key) {
            let message = format!("{} \"{}\" already exists", key.resource(), key.name);
            return Err(Refusal::new(409, "AlreadyExists", &message));
        }
        new_object(&key, &mut object);
        if dry_run(call) {
            return Ok(object);
        }
        self.store(&key, object);
        self.get(&key).ok_or_else(|| not_found(&key))
    }

    fn update(&mut self, call: &Call, body: &Value) -> Result<Value, Refusal> {
        let key = &call.target.key;
        let before = self.get(key).ok_or_else(|| not_found(key))?;
        preconditions(key, &before, &body["metadata"])?;
        let mut after = body.clone();
        if call.target.subresource == "status" {
            after = before.clone();
            after["status"] = body["status"].clone();
        } else if key.plural != "leases" {
            after["status"] = before["status"].clone();
        }
        for field in ["uid", "creationTimestamp", "deletionTimestamp", "resourceVersion", "generation"] {
            after["metadata"][field] = before["metadata"][field].clone();
        }
        tidy(&mut after);
        let mut same = before.clone();
        tidy(&mut same);
        if dry_run(call) || after == same {
            return Ok(after);
        }
        self.store(key, after);
        let stored = self.get(key).ok_or_else(|| not_found(key))?;
        let ending = !stored["metadata"]["deletionTimestamp"].is_null();
        let held = stored["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
        if ending && !held && key.plural != "pods" {
            self.forget(key);
        }
        Ok(stored)
    }

    fn patch(&mut self, call: &Call) -> Result<Value, Refusal> {
        let key = call.target.key.clone();
        let apply = call.content_type.contains("apply-patch");
        let Some(before) = self.get(&key) else {
            if apply && call.target.subresource.is_empty() {
                let manager = call.query.get("fieldManager").cloned().unwrap_or_default();
                let created = self.create(call)?;
                if !dry_run(call) {
                    self.applied.insert((key, manager, String::new()), call.body.clone());
                }
                return Ok(created);
            }
            return Err(not_found(&key));
        };
        preconditions(&key, &before, &call.body["metadata"])?;
        let mut after = before.clone();
        if call.content_type.contains("json-patch+json") {
            patch::json_patch(&mut after, &call.body).map_err(|why| Refusal::new(422, "Invalid", &why))?;
        } else if apply {
            let manager = call.query.get("fieldManager").cloned().unwrap_or_default();
            let slot = (key.clone(), manager, call.target.subresource.clone());
            patch::apply(&mut after, self.applied.get(&slot), &call.body);
            if !dry_run(call) {
                self.applied.insert(slot, call.body.clone());
            }
        } else {
            patch::merge(&mut after, &call.body);
        }
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        after["metadata"]["uid"] = before["metadata"]["uid"].clone();
        self.update(call, &after)
    }

    fn delete(&mut self, call: &Call) -> Result<Value, Refusal> {
        let key = &call.target.key;
        let before = self.get(key).ok_or_else(|| not_found(key))?;
        preconditions(key, &before, &call.body["preconditions"])?;
        if !dry_run(call) {
            self.delete_now(key);
        }
        Ok(self
            .get(key)
            .unwrap_or_else(|| json!({"apiVersion": "v1", "kind": "Status", "status": "Success"})))
    }

    fn evict(&mut self, call: &Call) -> Result<Value, Refusal> {
        let key = &call.target.key;
        let pod = self.get(key).ok_or_else(|| not_found(key))?;
        let options = &call.body["deleteOptions"];
        preconditions(key, &pod, &options["preconditions"])?;
        let dry = options["dryRun"].as_array().is_some_and(|d| !d.is_empty()) || dry_run(call);
        pdb::evict(self, key, &pod)?;
        if !dry {
            self.delete_now(key);
        }
        Ok(json!({"apiVersion": "v1", "kind": "Status", "status": "Success", "code": 201}))
    }
}

fn dry_run(call: &Call) -> bool {
    call.query.get("dryRun").is_some_and(|value| value == "All")
        || call.body["dryRun"].as_array().is_some_and(|d| !d.is_empty())
}

fn new_object(key: &Key, object: &mut Value) {
    if !object.is_object() {
        *object = json!({});
    }
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    if key.plural == "pods" {
        object["status"] = json!({"phase": "Pending"});
    }
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove(field);
        }
    }
}

/// uid and resourceVersion, where they are given.
fn preconditions(key: &Key, object: &Value, given: &Value) -> Result<(), Refusal> {
    let differs =
        |field: &str| given[field].as_str().is_some_and(|v| !v.is_empty() && object["metadata"][field] != *v);
    if differs("uid") {
        return Err(conflict(key, "the UID in the precondition is another"));
    }
    if differs("resourceVersion") {
        return Err(conflict(key, "the object has been modified"));
    }
    Ok(())
}

fn tidy(object: &mut Value) {
    if object["status"].is_null()
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.retain(|_, value| !value.is_null());
    }
}

/// Label and field selectors of a call.
pub fn chosen(call: &Call, object: &Value) -> bool {
    let labels = call.query.get("labelSelector").is_none_or(|s| labels_match(s, &labels_of(object)));
    let fields = call.query.get("fieldSelector").is_none_or(|selector| {
        selector.split(',').filter(|term| !term.is_empty()).all(|term| {
            let (path, wanted) = term.split_once('=').unwrap_or((term, ""));
            let found = object.pointer(&format!("/{}", path.trim_end_matches('!').replace('.', "/")));
            let equal = found.and_then(Value::as_str).unwrap_or_default() == wanted.trim_start_matches('=');
            equal != path.ends_with('!')
        })
    });
    labels && fields
}
