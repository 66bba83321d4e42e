//! The committed definitions are those of the code. `UPDATE=1 cargo test -p undb-operator --test crds`
//! writes them again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A chart's copy: the same with the annotation that lets it outlive the release.
fn in_chart(yaml: &str) -> String {
    yaml.replacen("metadata:\n", "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n", 1)
}

fn same(folder: &Path, files: &[(String, String)]) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(folder).expect("folder");
        for (name, yaml) in files {
            std::fs::write(folder.join(name), yaml).expect("written");
        }
    }
    let there: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("committed")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    let expected: BTreeSet<String> = files.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(there, expected, "{}", folder.display());
    for (name, yaml) in files {
        let committed = std::fs::read_to_string(folder.join(name)).expect("read");
        assert!(
            committed == *yaml,
            "{name} in {} differs from base/spec; run this test with UPDATE=1",
            folder.display()
        );
    }
}

#[test]
fn the_committed_definitions_are_those_of_the_code() {
    same(&root().join("crds"), &undb_operator::crds::render());
}

#[test]
fn the_chart_has_the_same_definitions_and_keeps_them() {
    let files: Vec<_> =
        undb_operator::crds::render().into_iter().map(|(name, yaml)| (name, in_chart(&yaml))).collect();
    assert!(files.iter().all(|(_, yaml)| yaml.contains("helm.sh/resource-policy: keep")));
    assert!(files.iter().all(|(_, yaml)| !yaml.contains("{{")), "a template must not read them as its own");
    same(&root().join("charts/undb-crds/templates"), &files);
}
