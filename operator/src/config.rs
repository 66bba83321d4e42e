//! The configuration files of the roles, from specs. Pure.
//!
//! ```text
//! Place { namespace, control plane, members, tls } + what the role needs --> TOML --> ConfigMap NAME-config-HASH
//! ```
//! Values that differ from Pod to Pod are references to its environment, `${POD_NAME}`, which the role
//! replaces when it starts. A ConfigMap never changes: another text is another ConfigMap, and the Pods
//! that were made with the old one keep it until they are gone.

use crate::workload::names::{
    self, ADMIN_PORT, HTTP_PORT, Instance, Role, access_endpoint, meta_addresses, store_address,
};
use crate::workload::{DATA_DIR, FILES_DIR, labels};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use undb_spec::EngineSpec;

/// The key of the text in its ConfigMap.
pub const KEY: &str = "config.toml";

/// Where a role finds the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The namespace of all.
    pub namespace: &'a str,
    /// The ControlPlane.
    pub control_plane: &'a str,
    /// How many metadata members it has.
    pub members: u32,
    /// Whether roles speak TLS.
    pub has_tls: bool,
}

impl Place<'_> {
    fn meta(&self) -> Vec<String> {
        meta_addresses(self.control_plane, self.namespace, self.members)
    }
}

/// What users may set of cluster control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tuning {
    /// Seconds of silence until nothing new is placed on a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disconnected_seconds: Option<u32>,
    /// Seconds of silence until its replicas are made again elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_seconds: Option<u32>,
    /// A test setting: the gate answers yes to everything.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unsafe_gate_off: bool,
}

/// What a store is told beside where it is.
#[derive(Clone, Debug)]
pub struct StoreSettings<'a> {
    /// Its StoreCluster.
    pub store_cluster: &'a str,
    /// How it keeps data.
    pub engine: &'a EngineSpec,
    /// Its volume's size, if known.
    pub capacity_bytes: Option<u64>,
    /// What its container may use, if bounded.
    pub memory_bytes: Option<u64>,
}

/// A metadata member. `cluster_id` is the same for as long as the data lives.
pub fn meta(place: &Place<'_>, cluster_id: &str) -> String {
    let service = names::service_name(place.control_plane, Role::Meta);
    let members: Vec<Value> = (1..)
        .zip(place.meta())
        .map(|(id, address): (u32, _)| json!({"id": id, "address": address}))
        .collect();
    let text = render(
        place,
        Role::Meta,
        json!({
            "advertise": in_service(place, &service, Role::Meta),
            "dir": format!("{DATA_DIR}/meta"),
            "cluster_id": cluster_id,
            "members": members,
        }),
    );
    // A number, so it stands without quotes.
    format!("member_id = ${{POD_INDEX+1}}\n{text}")
}

/// A member of cluster control.
pub fn control(place: &Place<'_>, tuning: &Tuning) -> String {
    let service = names::service_name(place.control_plane, Role::Control);
    let mut decides = json!({ "stores_expected": 3 });
    let milliseconds = |seconds: Option<u32>| seconds.map(|s| u64::from(s) * 1000);
    set(&mut decides, "disconnected_ms", milliseconds(tuning.disconnected_seconds));
    set(&mut decides, "down_ms", milliseconds(tuning.down_seconds));
    set(&mut decides, "unsafe_gate_off", tuning.unsafe_gate_off.then_some(true));
    render(
        place,
        Role::Control,
        json!({
            "advertise": in_service(place, &service, Role::Control),
            "meta": place.meta(),
            "tuning": decides,
        }),
    )
}

/// Where clients begin.
pub fn access(place: &Place<'_>) -> String {
    let routers = [names::routing_endpoint(place.control_plane, place.namespace)];
    render(place, Role::Access, json!({ "meta": place.meta(), "routers": routers }))
}

/// A routing process of a Router.
pub fn routing(place: &Place<'_>) -> String {
    let advertise = names::routing_endpoint(place.control_plane, place.namespace);
    render(place, Role::Routing, json!({ "advertise": advertise, "meta": place.meta() }))
}

/// A proxy of a Router. With `client_tls` Redis and HTTP clients must speak TLS.
pub fn proxy(place: &Place<'_>, tables: &[String], client_tls: ClientTls) -> String {
    let tables = if tables.is_empty() { vec!["default".to_string()] } else { tables.to_vec() };
    let mut fields = json!({
        "resp": format!("0.0.0.0:{}", Role::Proxy.port()),
        "http": format!("0.0.0.0:{HTTP_PORT}"),
        "endpoints": [access_endpoint(place.control_plane, place.namespace)],
        "tables": tables,
    });
    set(&mut fields, "resp_tls", (client_tls == ClientTls::Required && place.has_tls).then_some(true));
    finish(place, fields)
}

/// How clients of a proxy connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientTls {
    /// In the clear.
    Plain,
    /// With TLS only.
    Required,
}

/// A store.
pub fn store(place: &Place<'_>, settings: &StoreSettings<'_>) -> String {
    let memory = memory(settings);
    let mut fields = json!({
        "dir": format!("{DATA_DIR}/store"),
        "listen": format!("0.0.0.0:{}", Role::Store.port()),
        "advertise": store_address("${POD_NAME}", settings.store_cluster, place.namespace),
        "control": control_addresses(place),
        // Known when the Pod has a node; the operator writes it then.
        "zone_file": "/etc/undb-pod/zone",
        "store_cluster": settings.store_cluster,
        "label": "${POD_NAME}",
        // Within the Pod's grace, with time left for the end of the process.
        "stop_deadline_ms": 30_000,
        "request_memory_bytes": memory.requests,
        "engine": { "memory_bytes": memory.engine },
        "log": { "cache_bytes": memory.log },
        // Until the role reads it from a file, the token comes from its Secret by the environment.
        "token": "${UNDB_TOKEN}",
    });
    set(&mut fields, "capacity_bytes", settings.capacity_bytes);
    set(&mut fields, "tls", tls(place));
    to_toml(&fields)
}

struct Memory {
    engine: u64,
    requests: u64,
    log: u64,
}

/// Shares of what the container may use; without a bound, those of the role's defaults. An engine
/// budget that the user set is kept, and leaves the rest for requests and log.
fn memory(settings: &StoreSettings<'_>) -> Memory {
    const MIB: u64 = 1 << 20;
    let wanted = settings.engine.memory.map(|size| size.bytes());
    let Some(total) = settings.memory_bytes else {
        return Memory { engine: wanted.unwrap_or(256 * MIB), requests: 256 * MIB, log: 64 * MIB };
    };
    let engine = wanted.unwrap_or(total * 2 / 5).min(total * 7 / 10).max(16 * MIB);
    let rest = total.saturating_sub(engine);
    Memory {
        engine,
        requests: (rest / 3).clamp(16 * MIB, 1024 * MIB),
        log: (rest / 6).clamp(8 * MIB, 256 * MIB),
    }
}

/// Cluster control as stores reach it: any of its Pods by the Service's name.
fn control_addresses(place: &Place<'_>) -> Vec<String> {
    vec![names::control_endpoint(place.control_plane, place.namespace)]
}

/// The name of the Pod below its headless Service: it is in the certificate, an IP address is not.
fn in_service(place: &Place<'_>, service: &str, role: Role) -> String {
    names::address(&format!("${{POD_NAME}}.{service}"), place.namespace, role.port())
}

/// What all roles but proxy and store have in common, and the role's own fields.
fn render(place: &Place<'_>, role: Role, mut fields: Value) -> String {
    fields["listen"] = json!(format!("0.0.0.0:{}", role.port()));
    finish(place, fields)
}

fn finish(place: &Place<'_>, mut fields: Value) -> String {
    fields["token_file"] = json!(format!("{FILES_DIR}/token"));
    set(&mut fields, "tls", tls(place));
    to_toml(&fields)
}

fn tls(place: &Place<'_>) -> Option<Value> {
    place.has_tls.then(|| {
        json!({
            "cert_file": format!("{FILES_DIR}/tls/tls.crt"),
            "key_file": format!("{FILES_DIR}/tls/tls.key"),
            "ca_file": format!("{FILES_DIR}/tls/ca.crt"),
        })
    })
}

fn set(fields: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    if let (Some(map), Some(value)) = (fields.as_object_mut(), value) {
        map.insert(name.into(), value.into());
    }
}

/// Simple values first, tables after them, as TOML wants it.
fn to_toml(fields: &Value) -> String {
    let empty = Map::new();
    let (tables, simple): (BTreeMap<_, _>, BTreeMap<_, _>) =
        fields.as_object().unwrap_or(&empty).iter().partition(|(_, value)| value.is_object());
    let text = |part: &BTreeMap<&String, &Value>| {
        toml::to_string(part).expect("texts, numbers, lists and tables are TOML")
    };
    let mut out = text(&simple);
    if !tables.is_empty() {
        out.push('\n');
        out.push_str(&text(&tables));
    }
    out
}

/// The ConfigMap of a text. Its name is of its content, and it cannot be changed.
pub fn config_map(instance: &Instance, role: Role, text: &str, owner: Option<OwnerReference>) -> ConfigMap {
    let hash = crate::apply::hash(&text);
    let prefix = names::config_prefix(&instance.name, role);
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}{}", hash.get(..8).unwrap_or(&hash))),
            namespace: Some(instance.namespace.clone()),
            labels: Some(labels(instance, role)),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some(BTreeMap::from([(KEY.to_string(), text.to_string())])),
        ..ConfigMap::default()
    }
}

/// ConfigMaps of a role that nobody uses any more: not the current one, not in a Pod, not in a
/// template from which Pods are made.
pub fn unused(found: &[ConfigMap], current: &str, pods: &[Pod], templates: &[&PodSpec]) -> Vec<String> {
    let specs = pods.iter().filter_map(|pod| pod.spec.as_ref()).chain(templates.iter().copied());
    let mut used: BTreeSet<&str> = specs.flat_map(names_in).collect();
    used.insert(current);
    let names = found.iter().filter_map(|map| map.metadata.name.as_deref());
    names.filter(|name| !used.contains(name)).map(String::from).collect()
}

fn names_in(spec: &PodSpec) -> Vec<&str> {
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    let projected = volumes.iter().filter_map(|volume| volume.projected.as_ref());
    let sources = projected.flat_map(|projected| projected.sources.as_deref().unwrap_or_default());
    let direct = volumes.iter().filter_map(|volume| Some(volume.config_map.as_ref()?.name.as_str()));
    sources.filter_map(|source| Some(source.config_map.as_ref()?.name.as_str())).chain(direct).collect()
}

/// Where a role tells its health, for who asks from outside the Pod.
pub fn admin_address(host: &str) -> String {
    format!("{host}:{ADMIN_PORT}")
}

#[cfg(test)]
mod tests;
