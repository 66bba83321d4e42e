//! What the operator writes for each role is what that role reads: parsed by its own types, and valid.

use serde::de::DeserializeOwned;
use undb_operator::config::{self, ClientTls, Place, StoreSettings, Tuning};
use undb_spec::EngineSpec;

/// What the Pod's environment would put there.
const ENVIRONMENT: [(&str, &str); 3] =
    [("${POD_NAME}", "undb-meta-0"), ("${POD_INDEX+1}", "1"), ("${UNDB_TOKEN}", "0123456789abcdef")];

fn places() -> [Place<'static>; 2] {
    [true, false].map(|has_tls| Place { namespace: "ns", control_plane: "undb", members: 3, has_tls })
}

fn read<T: DeserializeOwned>(role: &str, text: &str) -> T {
    let full = ENVIRONMENT.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
    assert!(!full.contains("${"), "{role}: the environment has no such variable:\n{full}");
    undb_runtime::config::parse(&full, role).unwrap_or_else(|error| panic!("{role}: {error}\n{full}"))
}

#[test]
fn metadata_reads_what_the_operator_writes() {
    for place in places() {
        let found: undb_server::meta::Config = read("meta", &config::meta(&place, "cluster"));
        found.validate().expect("valid");
    }
}

#[test]
fn cluster_control_reads_what_the_operator_writes() {
    let tuned = Tuning { disconnected_seconds: Some(5), down_seconds: Some(60), unsafe_gate_off: true };
    for place in places() {
        for tuning in [Tuning::default(), tuned] {
            let found: undb_server::control::Config = read("control", &config::control(&place, &tuning));
            found.validate().expect("valid");
        }
    }
}

#[test]
fn access_and_routing_read_what_the_operator_writes() {
    for place in places() {
        let found: undb_server::access::Config = read("access", &config::access(&place));
        found.validate().expect("valid");
        let found: undb_server::router::Config = read("router", &config::routing(&place));
        found.validate().expect("valid");
    }
}

#[test]
fn a_store_reads_what_the_operator_writes() {
    let engine = EngineSpec::default();
    for place in places() {
        for (capacity_bytes, memory_bytes) in [(None, None), (Some(10 << 30), Some(1 << 30))] {
            let settings =
                StoreSettings { store_cluster: "main", engine: &engine, capacity_bytes, memory_bytes };
            let found: undb_store::Config = read("store", &config::store(&place, &settings));
            found.validate().expect("valid");
        }
    }
}

#[test]
fn a_proxy_reads_what_the_operator_writes() {
    for place in places() {
        for client_tls in [ClientTls::Plain, ClientTls::Required] {
            let text = config::proxy(&place, &["a".into(), "b".into()], client_tls);
            let _found: undb_proxy::Config = read("proxy", &text);
        }
    }
}
