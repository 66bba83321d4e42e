//! Generates the wire types from `proto/`, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names = ["common", "kv", "raft", "store", "meta", "control", "router", "access"];
    let files: Vec<String> = names.iter().map(|n| format!("proto/undb/v1/{n}.proto")).collect();
    for file in &files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(&files, ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
