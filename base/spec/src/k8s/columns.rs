//! What `kubectl get` prints: how many, whether it is fine, and if not why. Also what can be scaled and
//! selected by.

use serde_json::{Value, json};

/// What a definition has besides its schema.
pub(super) struct Face {
    pub(super) columns: Vec<Value>,
    pub(super) selectable: &'static [&'static str],
    pub(super) scale: bool,
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

fn wide(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "priority": 1})
}

fn of_ready(field: &str) -> String {
    format!(".status.conditions[?(@.type==\"Ready\")].{field}")
}

pub(super) fn face(kind: &str) -> Face {
    let integer = |name, path| column(name, "integer", path);
    let (mut columns, more, selectable, scale): (Vec<Value>, Vec<Value>, &[&str], bool) = match kind {
        "ControlPlane" => (
            vec![
                integer("Members", ".spec.metadata.replicas"),
                integer("Members-Ready", ".status.readyMembers"),
                column("Version", "string", ".status.version"),
            ],
            vec![
                wide("Endpoint", "string", ".status.endpoint"),
                wide("Client-Secret", "string", ".status.clientSecret"),
                wide("Image", "string", ".status.image"),
            ],
            &[],
            false,
        ),
        "Router" => (
            vec![
                integer("Routing", ".status.routingReadyReplicas"),
                integer("Proxies", ".status.proxyReadyReplicas"),
                column("Endpoint", "string", ".status.endpoint"),
            ],
            vec![wide("Image", "string", ".status.image")],
            &[".spec.controlPlaneRef.name"],
            false,
        ),
        "StoreCluster" => (
            vec![
                integer("Stores", ".spec.replicas"),
                integer("Stores-Ready", ".status.readyReplicas"),
                integer("Updated", ".status.updatedReplicas"),
                integer("Shards", ".status.shards.total"),
                integer("Degraded", ".status.shards.degraded"),
            ],
            vec![
                wide("Blocked-By", "string", ".status.blockedBy[0].message"),
                wide("Image", "string", ".status.image"),
            ],
            &[".spec.controlPlaneRef.name"],
            true,
        ),
        "Store" => (
            vec![
                integer("Id", ".status.storeId"),
                column("Phase", "string", ".status.phase"),
                integer("Leaders", ".status.leaders"),
                integer("Shards", ".status.shards"),
                column("Node", "string", ".status.nodeName"),
            ],
            vec![
                wide("Offline", "boolean", ".spec.offline"),
                wide("Drained-%", "integer", ".status.drainProgressPercent"),
            ],
            &[".spec.storeCluster"],
            true,
        ),
        _ => (
            vec![
                integer("Shards", ".status.shards.total"),
                integer("Available", ".status.shards.available"),
                integer("Copies", ".spec.replication.factor"),
                column("Stores", "string", ".spec.storeCluster"),
            ],
            Vec::new(),
            &[".spec.storeCluster", ".spec.controlPlaneRef.name"],
            false,
        ),
    };
    columns.push(column("Ready", "string", &of_ready("status")));
    columns.push(column("Reason", "string", &of_ready("reason")));
    columns.push(column("Age", "date", ".metadata.creationTimestamp"));
    columns.extend(more);
    columns.push(wide("Message", "string", &of_ready("message")));
    Face { columns, selectable, scale }
}
