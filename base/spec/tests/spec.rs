//! What users write, what they get wrong, and what they are told.

use undb_spec::{Object, changes, parse_json, parse_yaml};

const ISSUE: &str = r#"apiVersion: undb.io/v1alpha1
kind: StoreCluster
metadata: {name: small-values}
spec:
  replicas: 3
  engine: {type: separated, separation: {threshold: 1Ki}, memory: 512Mi}   # type: separated | lsm | sled
  storage: {size: 20Gi, class: standard}
---
apiVersion: undb.io/v1alpha1
kind: Table
metadata: {name: packages}
spec:
  storeCluster: small-values
  replication: {factor: 3, minAvailable: 2}
  partitioning: {type: range, splitKeys: ["g", "n"]}                      # or {type: hash, shards: 8}
  ttlSeconds: 0
  quota: {bytes: 10Gi, requestsPerSecond: 20000}
  deletionPolicy: Retain
"#;

fn table(spec: &str) -> String {
    format!("apiVersion: undb.io/v1alpha1\nkind: Table\nmetadata: {{name: t}}\nspec:\n{spec}")
}

fn refused(text: &str) -> String {
    parse_yaml(text, "t.yaml").expect_err("refused").to_string()
}

fn object(text: &str) -> Object {
    parse_yaml(text, "t.yaml").expect("fits").remove(0).object
}

#[test]
fn the_documented_yaml_is_read() {
    let parsed = parse_yaml(ISSUE, "issue.yaml").expect("fits");
    let names: Vec<_> = parsed.iter().map(|p| (p.object.kind(), p.object.name(), p.line)).collect();
    assert_eq!(names, [("StoreCluster", "small-values", 1), ("Table", "packages", 9)]);
    let Object::StoreCluster(stores) = &parsed[0].object else { panic!("kind") };
    assert_eq!(stores.spec.engine.separation.threshold.0, 1024);
    assert_eq!(stores.spec.engine.memory.map(|m| m.0), Some(512 << 20));
    let Object::Table(table) = &parsed[1].object else { panic!("kind") };
    assert_eq!(table.spec.partitioning.split_keys, ["g", "n"]);
    assert_eq!(table.spec.replication.min_available(), 2);
}

#[test]
fn fields_of_kubernetes_and_features_to_come_are_warned_about() {
    let parsed = parse_yaml(ISSUE, "issue.yaml").expect("fits");
    assert_eq!(
        parsed[0].warnings,
        ["spec.storage.class means something only on Kubernetes and has no effect here"]
    );
    assert_eq!(parsed[1].warnings, ["spec.quota is kept but not enforced yet"]);
}

#[test]
fn json_and_yaml_carry_the_same_object() {
    for parsed in parse_yaml(ISSUE, "issue.yaml").expect("fits") {
        let json = parsed.object.to_json();
        assert_eq!(parse_json(&json).expect("our own json").object, parsed.object);
        let yaml = parsed.object.to_yaml().expect("yaml");
        assert_eq!(object(&yaml), parsed.object);
    }
}

#[test]
fn defaults_fill_a_table_of_a_name_only() {
    let Object::Table(table) =
        object("apiVersion: undb.io/v1alpha1\nkind: Table\nmetadata: {name: t}\nspec: {}\n")
    else {
        panic!("kind")
    };
    assert_eq!(table.spec, undb_spec::TableSpec::default());
    assert_eq!(table.spec.replication.min_available(), 2);
    assert_eq!(table.spec.partitioning.shard_count(), 1);
}

#[test]
fn an_unknown_field_is_named_with_its_place() {
    let text = refused(&table("  ttlSeconds: 0\n  replcation: {factor: 3}\n"));
    assert!(text.starts_with("t.yaml:6:3: spec.replcation: unknown field `replcation`"), "{text}");
    let text = refused(&table("  replicas: 3\n"));
    assert!(text.starts_with("t.yaml:5:3: spec.replicas: unknown field `replicas`"), "{text}");
}

#[test]
fn a_wrong_type_is_named_with_its_place() {
    let text = refused(&table("  ttlSeconds: soon\n"));
    assert!(text.starts_with("t.yaml:5:15: spec.ttlSeconds: "), "{text}");
    let text = refused(&table("  quota: {bytes: 10Q}\n"));
    assert!(text.starts_with("t.yaml:5:"), "{text}");
    assert!(text.contains("`10Q` is not a size"), "{text}");
}

#[test]
fn broken_yaml_is_named_with_its_place() {
    let text = refused("apiVersion: undb.io/v1alpha1\nkind: Table\nmetadata: {name: t\nspec:\n");
    assert!(text.starts_with("t.yaml:"), "{text}");
    let text = refused("a: 1\n---\nb: [\n");
    assert!(text.contains("t.yaml:1:1: kind: is missing"), "{text}");
    assert!(text.lines().count() >= 2, "{text}");
}

#[test]
fn broken_yaml_is_told_what_to_do_about_it() {
    let told = |spec: &str, place: &str, advice: &str| {
        let text = refused(&table(spec));
        assert!(text.starts_with(&format!("t.yaml:{place}: ")) && text.contains(advice), "{spec:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    };
    told("  partitioning: {}\n  partitioning: {}\n", "6:3", "`partitioning` is written twice; keep one");
    told("\tpartitioning: {}\n", "5:2", "; indent with spaces");
    told("  partitioning:\n    type: hash\n   shards: 4\n", "7:4", "; indent the fields of one object alike");
    told("  partitioning:\n    type: hash\n      shards: 4\n", "7:13", "; indent the fields of one object");
    told("  partitioning:\n    type:hash\n    shards: 4\n", "7:11", "write a blank behind every `:`");
    told("  partitioning: {splitKeys: [a, b}\n", "5:29", "; close every `{` and `[`");
    told("  partitioning:\n    type: \"hash\n", "6:11", "unclosed quote; close it");
    told("  partitioning: @hash\n", "5:17", "; put the text in quotes");
    told("  partitioning: *x\n", "5:17", "; put text that begins with `*` in quotes");
    told("  partitioning:\n    type hash\n", "6:5", "; write fields here, each as `name: value`");
}

#[test]
fn every_rule_that_is_broken_is_listed_with_its_place() {
    let text = refused(&table(
        "  replication: {factor: 2, minAvailable: 3}\n  partitioning:\n    splitKeys: [b, a]\n  ttlSeconds: 0\n",
    ));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("t.yaml:5:17: spec.replication.factor: 2 is not possible"), "{text}");
    assert!(lines[0].ends_with("write 1, 3, 5 or 7"), "{text}");
    assert!(lines[1].contains("spec.replication.minAvailable: 3 is not possible with factor 2"), "{text}");
    assert!(
        lines[2].starts_with("t.yaml:7:20: spec.partitioning.splitKeys[1]: `a` does not come after `b`"),
        "{text}"
    );
}

#[test]
fn only_a_table_of_one_copy_may_be_without_any_for_a_while() {
    let single = object(&table("  replication: {factor: 1, minAvailable: 0}\n"));
    let Object::Table(single) = single else { panic!("kind") };
    assert_eq!(single.spec.replication.min_available(), 0);
    let text = refused(&table("  replication: {factor: 3, minAvailable: 0}\n"));
    assert!(text.contains("0 is not possible with factor 3; write 1 to 3"), "{text}");
}

#[test]
fn the_line_of_a_later_document_counts_from_the_file() {
    let text = refused(&format!("# comment\n{ISSUE}---\n\nkind: Tabel\n"));
    assert_eq!(text, "t.yaml:22:1: kind: `Tabel` is not known; write StoreCluster or Table");
}

#[test]
fn layouts_that_do_not_fit_their_type_are_refused() {
    for (spec, want) in [
        ("  partitioning: {type: hash, splitKeys: [a]}\n", "a hash table has no split keys"),
        ("  partitioning: {type: range, shards: 8}\n", "a range table has no number of shards"),
        ("  partitioning: {type: hash, shards: 0}\n", "0 is not possible; write 1 to 1024"),
        ("  partitioning: {splitKeys: [\"\"]}\n", "remove it"),
        ("  storeCluster: Small\n", "`Small` is not a name"),
        ("  quota: {requestsPerSecond: 0}\n", "leave it out for no bound"),
    ] {
        let text = refused(&table(spec));
        assert!(text.contains(want), "{spec} -> {text}");
    }
}

#[test]
fn a_wrong_version_and_a_wrong_name_are_refused() {
    let text = refused("apiVersion: undb.io/v9\nkind: Table\nmetadata: {name: -a}\nspec: {}\n");
    assert!(text.contains("apiVersion: `undb.io/v9` is not known to this version"), "{text}");
    assert!(text.contains("metadata.name: `-a` is not a name"), "{text}");
}

#[test]
fn aliases_that_would_explode_are_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..10 {
        let refs = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
    }
    assert!(refused(&bomb).starts_with("t.yaml"));
}

#[test]
fn no_bytes_panic() {
    for text in
        ["", "---\n---\n", "\u{0}", "[1,2", "- a\n- b\n", "&a *a", "42", "kind: [Table]\n", "...\n---"]
    {
        let _either_way = parse_yaml(text, "t.yaml");
        let _either_way = parse_json(text);
    }
    assert_eq!(parse_yaml("# nothing\n---\n", "t.yaml"), Ok(vec![]));
}

#[test]
fn what_may_change_is_listed_and_what_may_not_is_refused() {
    let old = object(&table("  ttlSeconds: 0\n"));
    let new = object(&table("  ttlSeconds: 60\n  deletionPolicy: Delete\n"));
    let found = changes(&old, &new).expect("allowed");
    let paths: Vec<&str> = found.iter().map(|c| c.path.as_str()).collect();
    assert_eq!(paths, ["spec.ttlSeconds", "spec.deletionPolicy"]);
    assert_eq!(changes(&old, &old), Ok(vec![]));

    let hash = object(&table("  partitioning: {type: hash}\n"));
    let same = object(&table("  partitioning: {type: hash, shards: 8}\n"));
    assert_eq!(changes(&hash, &same), Ok(vec![]));
    let refusals = changes(&old, &hash).expect_err("layout is fixed");
    assert!(refusals[0].to_string().starts_with("spec.partitioning: cannot be changed"), "{refusals:?}");
}

#[test]
fn a_store_cluster_keeps_its_engine_and_never_shrinks() {
    let spec = |spec: &str| {
        object(&format!(
            "apiVersion: undb.io/v1alpha1\nkind: StoreCluster\nmetadata: {{name: s}}\nspec: {spec}\n"
        ))
    };
    let old = spec("{engine: {type: lsm}, storage: {size: 20Gi}}");
    let refusals = changes(&old, &spec("{engine: {type: sled}, storage: {size: 10Gi}}")).expect_err("both");
    assert_eq!(refusals.len(), 2, "{refusals:?}");
    assert_eq!(changes(&old, &spec("{engine: {type: lsm}, storage: {size: 30Gi}}")).expect("grows").len(), 1);
}

#[test]
fn the_schema_can_be_generated() {
    let schema = serde_json::to_string(&schemars::schema_for!(undb_spec::TableSpec)).expect("json");
    assert!(schema.contains("splitKeys") && schema.contains("deletionPolicy"), "{schema}");
}

#[test]
fn what_only_kubernetes_has_is_typed_and_warned_about() {
    let of = |spec: &str| {
        format!("kind: StoreCluster\napiVersion: undb.io/v1alpha1\nmetadata: {{name: s}}\nspec:\n{spec}")
    };
    let text = of(
        "  image: undb:1\n  updateStrategy: {type: OnDelete}\n  replacementPolicy: {mode: Automatic}\n  paused: true\n",
    );
    let parsed = parse_yaml(&text, "t.yaml").expect("fits").remove(0);
    let named: Vec<&str> = parsed.warnings.iter().filter_map(|w| w.split(' ').next()).collect();
    // Automatic is the default: nobody is misled by it.
    assert_eq!(named, ["spec.image", "spec.updateStrategy", "spec.paused"]);
    assert_eq!(parse_json(&parsed.object.to_json()).expect("our own").object, parsed.object);
    for (spec, want) in [
        ("  updateStrategy: {type: Soon}\n", "t.yaml:5:"),
        ("  updateStrategy: {typ: OnDelete}\n", "unknown field `typ`"),
        ("  controlPlaneRef: undb\n", "t.yaml:5:"),
        ("  resources: {limits: {memory: lots}}\n", "`lots` is not an amount"),
        ("  scaleInPolicy: {}\n", "unknown field `scaleInPolicy`"),
    ] {
        let text = refused(&of(spec));
        assert!(text.contains(want), "{spec} -> {text}");
    }
}
