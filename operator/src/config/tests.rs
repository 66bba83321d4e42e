//! Each role's text: what is in it, and that only what is unused goes.

use super::*;

fn place() -> Place<'static> {
    Place { namespace: "ns", control_plane: "undb", members: 3, has_tls: true }
}

fn parsed(text: &str) -> toml::Table {
    // The one value that is a number only after the environment is known.
    toml::from_str(&text.replace("${POD_INDEX+1}", "1")).expect("TOML")
}

#[test]
fn a_member_is_told_all_members_and_finds_itself_by_its_pod() {
    let config = parsed(&meta(&place(), "the-id"));
    assert_eq!(config["cluster_id"].as_str(), Some("the-id"));
    assert_eq!(config["advertise"].as_str(), Some("${POD_NAME}.undb-meta.ns.svc:7390"));
    let members = config["members"].as_array().expect("a list");
    assert_eq!(members.len(), 3);
    assert_eq!(members[2]["address"].as_str(), Some("undb-meta-2.undb-meta.ns.svc:7390"));
    assert_eq!(members[2]["id"].as_integer(), Some(3));
    assert_eq!(config["tls"]["ca_file"].as_str(), Some("/etc/undb/tls/ca.crt"));
}

#[test]
fn without_tls_there_is_no_table_of_it() {
    let place = Place { has_tls: false, ..place() };
    assert!(!parsed(&access(&place)).contains_key("tls"));
    assert!(!parsed(&proxy(&place, &[], ClientTls::Required)).contains_key("resp_tls"));
}

#[test]
fn control_gets_what_the_user_tuned_and_no_more() {
    let plain = parsed(&control(&place(), &Tuning::default()));
    assert!(plain["tuning"].get("down_ms").is_none() && plain["tuning"].get("unsafe_gate_off").is_none());
    let tuning = Tuning { down_seconds: Some(60), unsafe_gate_off: true, ..Tuning::default() };
    let tuned = parsed(&control(&place(), &tuning));
    assert_eq!(tuned["tuning"]["down_ms"].as_integer(), Some(60_000));
    assert_eq!(tuned["tuning"]["unsafe_gate_off"].as_bool(), Some(true));
}

#[test]
fn a_stores_memory_fits_its_container() {
    let engine = EngineSpec::default();
    for total in [256 << 20, 1 << 30, 64 << 30_u64] {
        let settings = StoreSettings {
            store_cluster: "a",
            engine: &engine,
            capacity_bytes: None,
            memory_bytes: Some(total),
        };
        let shares = memory(&settings);
        assert!(shares.engine + shares.requests + shares.log < total * 9 / 10, "{total}");
        let config = parsed(&store(&place(), &settings));
        assert_eq!(config["advertise"].as_str(), Some("${POD_NAME}.a-stores.ns.svc:7400"));
    }
}

#[test]
fn a_text_has_one_name_and_another_text_another() {
    let instance = Instance { namespace: "ns".into(), name: "undb".into(), control_plane: "undb".into() };
    let name = |text: &str| config_map(&instance, Role::Access, text, None).metadata.name.expect("a name");
    assert_eq!(name("a"), name("a"));
    assert_ne!(name("a"), name("b"));
    assert!(name("a").starts_with("undb-access-config-"), "{}", name("a"));
}

#[test]
fn only_config_maps_that_nobody_uses_go() {
    let map = |name: &str| ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let spec: PodSpec = serde_json::from_value(json!({
        "containers": [],
        "volumes": [{"name": "files", "projected": {"sources": [{"configMap": {"name": "in-pod"}}]}}],
    }))
    .expect("a spec");
    let pod = Pod { spec: Some(spec), ..Pod::default() };
    let found = [map("current"), map("in-pod"), map("old")];
    assert_eq!(unused(&found, "current", &[pod], &[]), ["old"]);
}
