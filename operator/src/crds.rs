//! The command `undb-operator crds`: the resource definitions as files, made from the types of
//! `undb_spec`. `crds/` and the chart hold copies, and a test says when they differ.

/// Every definition: file name and YAML.
pub fn render() -> Vec<(String, String)> {
    undb_spec::k8s::crds::files()
}
