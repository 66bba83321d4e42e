//! The objects that the suite applies.

use serde_json::{Value, json};

/// Names that the whole suite uses.
pub const CONTROL_PLANE: &str = "undb";
/// The StoreCluster of the installation.
pub const STORES: &str = "default";
/// The Router of the installation.
pub const ROUTER: &str = "undb";
/// Label of everything of the suite's own, so that a drain leaves it alone.
pub const OWN_LABEL: &str = "undb-e2e";

fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// A Pod of the image undb-e2e with the Secrets of a client, which tolerates whatever happens to nodes.
pub fn client_pod(name: &str, image: &str, node: &str, args: &[String]) -> Value {
    let secret = |name: String| json!({"secret": {"secretName": name, "defaultMode": 0o444}});
    let mut client = secret(format!("{CONTROL_PLANE}-client"));
    client["name"] = json!("client");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {OWN_LABEL: name}},
        "spec": {
            "nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"}},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "client", "image": image, "args": args, "securityContext": restricted(),
                "env": [
                    {"name": "UNDB_ENDPOINT", "valueFrom": {"secretKeyRef":
                        {"name": format!("{CONTROL_PLANE}-client"), "key": "endpoint"}}},
                    {"name": "UNDB_TOKEN_FILE", "value": "/etc/undb/client/token"},
                    {"name": "UNDB_CA_FILE", "value": "/etc/undb/client/ca.crt"},
                ],
                "volumeMounts": [
                    {"name": "client", "mountPath": "/etc/undb/client", "readOnly": true},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            }],
            "volumes": [client, {"name": "tmp", "emptyDir": {}}],
        },
    })
}

/// A table spread by a hash.
pub fn table(name: &str, stores: &str, shards: u32) -> Value {
    json!({
        "apiVersion": "undb.io/v1alpha1", "kind": "Table", "metadata": {"name": name},
        "spec": {
            "storeCluster": stores,
            "replication": {"factor": 3, "minAvailable": 2},
            "partitioning": {"type": "hash", "shards": shards},
            "deletionPolicy": "Delete",
        },
    })
}

/// A StoreCluster on some nodes.
pub fn store_cluster(name: &str, replicas: u32, node_label: &str, image: &str) -> Value {
    json!({
        "apiVersion": "undb.io/v1alpha1", "kind": "StoreCluster", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "image": image,
            "storage": {"size": "1Gi"},
            "engine": {"memory": "64Mi"},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
            "podTemplate": {"spec": {"nodeSelector": {node_label: "yes"}}},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
        },
    })
}
