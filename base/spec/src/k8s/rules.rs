//! What the API server checks besides types: bounds, and rules in CEL with a sentence each. The same
//! rules as `check` and `change`, for those who never run `undb apply`, and those of Kubernetes.
//!
//! Lists and texts have bounds everywhere: the API server multiplies them with the cost of a rule, and
//! refuses the whole definition when the product is too large.

use serde_json::{Value, json};

/// A rule at a place of a definition's schema.
pub(super) struct Rule {
    pub(super) kind: &'static str,
    /// Fields from the root, `.` between them; `[]` is the items of a list; empty: the object.
    pub(super) at: &'static str,
    pub(super) rule: &'static str,
    pub(super) message: &'static str,
    /// The field that the answer names, if it is not the place itself.
    pub(super) field: &'static str,
}

const fn rule(kind: &'static str, at: &'static str, rule: &'static str, message: &'static str) -> Rule {
    Rule { kind, at, rule, message, field: "" }
}

impl Rule {
    const fn field(mut self, field: &'static str) -> Self {
        self.field = field;
        self
    }
}

const CP: &str = "ControlPlane";
const RT: &str = "Router";
const SC: &str = "StoreCluster";
const ST: &str = "Store";
const TB: &str = "Table";

// Pods, Services and claims add to the name, and a host name has 63 characters.
const SHORT_NAME: &str =
    "self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')";
const SHORT_NAME_MESSAGE: &str = "metadata.name must have 1 to 40 of a-z, 0-9 and -, begin with a letter and end with a letter or digit; names of Pods and Services are made from it";
const RESOURCES: &str = "!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)";
const RESOURCES_MESSAGE: &str =
    "a request must not be greater than its limit; raise the limit or lower the request";
const OUR_LABELS: &str = "self.all(k, !k.startsWith('undb.io/'))";
const OUR_LABELS_MESSAGE: &str = "labels that begin with undb.io/ belong to the operator; use another prefix";
const KEPT_REF: &str = "!has(oldSelf.controlPlaneRef) || (has(self.controlPlaneRef) && self.controlPlaneRef.name == oldSelf.controlPlaneRef.name)";
const KEPT_CLASS: &str =
    "has(self.class) == has(oldSelf.class) && (!has(self.class) || self.class == oldSelf.class)";
const NOT_GROWN: &str = "quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) <= 0";
const NOT_SHRUNK: &str = "quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0";

pub(super) const RULES: &[Rule] = &[
    rule(CP, "", SHORT_NAME, SHORT_NAME_MESSAGE),
    rule(CP, "spec.metadata.replicas", "self in [1, 3, 5]", "metadata needs an odd number of members: write 1, 3 or 5 (an even number survives no more failures than the odd one below)"),
    rule(CP, "spec.metadata.replicas", "self == oldSelf", "changing the number of metadata members is not supported yet; it stays as it was created"),
    rule(CP, "spec.metadata.storage", "quantity(string(self.size)).compareTo(quantity('64Mi')) >= 0", "the volume is too small for metadata; write 64Mi or more").field(".size"),
    rule(CP, "spec.metadata.storage", NOT_GROWN, "volume growth is not supported yet; leave the size as it was created").field(".size"),
    rule(CP, "spec.metadata.storage", NOT_SHRUNK, "a volume cannot shrink; leave the size as it was created").field(".size"),
    rule(CP, "spec.metadata.storage", KEPT_CLASS, "the StorageClass cannot be changed; members keep their volumes").field(".class"),
    rule(CP, "spec.tls.enabled", "self == oldSelf", "TLS cannot be switched on or off later: processes of both kinds would not understand each other; create another ControlPlane"),
    rule(CP, "spec.tuning", "(has(self.disconnectedSeconds) ? self.disconnectedSeconds : 20) < (has(self.downSeconds) ? self.downSeconds : 1800)", "a store is disconnected before it is down; write downSeconds (1800 if unset) greater than disconnectedSeconds (20 if unset)").field(".downSeconds"),
    rule(CP, "spec.metadata.resources", RESOURCES, RESOURCES_MESSAGE),
    rule(CP, "spec.control.resources", RESOURCES, RESOURCES_MESSAGE),
    rule(CP, "spec.access.resources", RESOURCES, RESOURCES_MESSAGE),
    rule(CP, "spec.podTemplate.metadata.labels", OUR_LABELS, OUR_LABELS_MESSAGE),
    //
    rule(RT, "", SHORT_NAME, SHORT_NAME_MESSAGE),
    rule(RT, "spec", KEPT_REF, "a Router cannot go over to another ControlPlane; create another Router").field(".controlPlaneRef"),
    rule(RT, "spec.proxy.tables", "self.all(t, t.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))", "these are names of Tables: a-z, 0-9 and -, with a letter or digit at both ends"),
    rule(RT, "spec.routing.resources", RESOURCES, RESOURCES_MESSAGE),
    rule(RT, "spec.proxy.resources", RESOURCES, RESOURCES_MESSAGE),
    rule(RT, "spec.podTemplate.metadata.labels", OUR_LABELS, OUR_LABELS_MESSAGE),
    //
    rule(SC, "", SHORT_NAME, SHORT_NAME_MESSAGE),
    rule(SC, "spec", KEPT_REF, "stores cannot go over to another ControlPlane: their data belongs to this one; create another StoreCluster").field(".controlPlaneRef"),
    rule(SC, "spec.engine.type", "self == oldSelf", "the engine cannot be changed; create another StoreCluster and tables there"),
    rule(SC, "spec.engine", "!has(self.memory) || quantity(string(self.memory)).compareTo(quantity('16Mi')) >= 0", "this is too little for a store to run; write 16Mi or more").field(".memory"),
    rule(SC, "spec.engine.separation", "quantity(string(self.threshold)).compareTo(quantity('1Mi')) <= 0", "this is too large; write at most 1Mi, or engine type lsm to keep every value in the index").field(".threshold"),
    rule(SC, "spec.storage", "quantity(string(self.size)).compareTo(quantity('256Mi')) >= 0", "this is too little for a log of several segments; write 256Mi or more").field(".size"),
    rule(SC, "spec.storage", NOT_GROWN, "volume growth is not supported yet; create another StoreCluster with larger volumes, or more stores").field(".size"),
    rule(SC, "spec.storage", NOT_SHRUNK, "a volume cannot shrink; create another StoreCluster with smaller volumes").field(".size"),
    rule(SC, "spec.storage", KEPT_CLASS, "the StorageClass cannot be changed: stores keep their volumes; create another StoreCluster").field(".class"),
    rule(SC, "spec", "!has(self.engine.memory) || !has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || quantity(string(self.engine.memory)).isLessThan(quantity(string(self.resources.limits['memory'])))", "the engine's memory must be less than the container's limit, or the store is killed; leave about half of it to connections and the log").field(".engine.memory"),
    rule(SC, "spec.resources", RESOURCES, RESOURCES_MESSAGE),
    rule(SC, "spec.topology.spread", "self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')", "this is the key of a node label, for example topology.kubernetes.io/zone or kubernetes.io/hostname"),
    rule(SC, "spec.podTemplate.metadata.labels", OUR_LABELS, OUR_LABELS_MESSAGE),
    //
    rule(ST, "", "self.metadata.name.startsWith(self.spec.storeCluster + '-') && self.metadata.name.matches('-(0|[1-9][0-9]*)$')", "Stores are made by the operator, with metadata.name <storeCluster>-<ordinal>; raise replicas of the StoreCluster to get another one"),
    rule(ST, "spec.storeCluster", "self == oldSelf", "a Store stays in its StoreCluster; only offline may be changed"),
    rule(ST, "spec.ordinal", "self == oldSelf", "a Store keeps its number; only offline may be changed"),
    rule(ST, "spec.replicas", "self == 1", "a Store is one Pod; change replicas of its StoreCluster"),
    //
    rule(TB, "", "self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')", "metadata.name must have 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends"),
    rule(TB, "spec", KEPT_REF, "a Table cannot go over to another ControlPlane; create another Table and import into it").field(".controlPlaneRef"),
    rule(TB, "spec.storeCluster", "self == oldSelf", "moving a Table between StoreClusters is not supported yet; create another Table and import into it"),
    rule(TB, "spec.storeCluster", "self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", "this is the name of a StoreCluster: 1 to 40 of a-z, 0-9 and -"),
    rule(TB, "spec.replication.factor", "self in [1, 3, 5, 7]", "write 1, 3, 5 or 7 (an even number survives no more failures than the odd one below)"),
    rule(TB, "spec.replication", "!has(self.minAvailable) || ((self.minAvailable >= 1 || self.factor == 1) && self.minAvailable <= self.factor)", "write 1 to the factor, or leave it out for the majority").field(".minAvailable"),
    rule(TB, "spec.partitioning", "self.type == oldSelf.type && (has(self.splitKeys) ? self.splitKeys : []) == (has(oldSelf.splitKeys) ? oldSelf.splitKeys : []) && (has(self.shards) ? self.shards : 8) == (has(oldSelf.shards) ? oldSelf.shards : 8)", "the layout of a Table cannot be changed; create another Table and import into it"),
    rule(TB, "spec.partitioning", "self.type != 'hash' || !has(self.splitKeys) || self.splitKeys.size() == 0", "a hash Table has no split keys; write shards: 8, or type: range").field(".splitKeys"),
    rule(TB, "spec.partitioning", "self.type != 'range' || !has(self.shards)", "a range Table has no number of shards; write splitKeys, or type: hash").field(".shards"),
    rule(TB, "spec.partitioning.splitKeys", "self.isSorted()", "the keys are not in byte order; sort them"),
    rule(TB, "spec.quota", "!has(self.bytes) || quantity(string(self.bytes)).compareTo(quantity('1')) >= 0", "0 would refuse every write; leave it out for no bound").field(".bytes"),
];

/// Bounds, and defaults that hold on Kubernetes only: kind (empty: all that have the place), place, what
/// to put there.
pub(super) fn bounds() -> Vec<(&'static str, &'static str, Value)> {
    let image = json!({"minLength": 1, "maxLength": 512, "pattern": r"^[^\s]+$"});
    let name = json!({"minLength": 1, "maxLength": 40});
    let class = json!({"minLength": 1, "maxLength": 253});
    let labels = json!({"maxProperties": 64});
    let texts = json!({"maxLength": 63});
    let mut all = vec![
        ("", "spec.image", image),
        ("", "spec.controlPlaneRef.name", name.clone()),
        ("", "spec.podTemplate.metadata.labels", labels.clone()),
        ("", "spec.podTemplate.metadata.annotations", labels.clone()),
        (CP, "spec.metadata.replicas", json!({"minimum": 1, "maximum": 5})),
        (CP, "spec.control.replicas", json!({"minimum": 1, "maximum": 9})),
        (CP, "spec.access.replicas", json!({"minimum": 1, "maximum": 100})),
        (CP, "spec.metadata.storage.class", class.clone()),
        (CP, "spec.tuning.disconnectedSeconds", json!({"minimum": 2, "maximum": 3600})),
        (CP, "spec.tuning.downSeconds", json!({"minimum": 10, "maximum": 604_800})),
        (CP, "status.members", json!({"maxItems": 9})),
        (RT, "spec.routing.replicas", json!({"minimum": 1, "maximum": 100})),
        (RT, "spec.proxy.replicas", json!({"minimum": 0, "maximum": 1000})),
        (RT, "spec.proxy.tables", json!({"maxItems": 64, "x-kubernetes-list-type": "atomic"})),
        (RT, "spec.proxy.tables[]", json!({"minLength": 1, "maxLength": 63})),
        (RT, "spec.proxy.serviceAnnotations", labels),
        (SC, "spec.storage.size", json!({"default": "10Gi"})),
        (SC, "spec.storage", json!({"default": {"size": "10Gi"}})),
        (SC, "spec.storage.class", class),
        (SC, "spec.topology.spread", json!({"minLength": 1, "maxLength": 316})),
        (SC, "status.blockedBy", json!({"maxItems": 10})),
        (SC, "status.activeLeases", json!({"maxItems": 16})),
        (ST, "spec.storeCluster", name.clone()),
        (ST, "spec.templateHash", texts),
        (TB, "spec.storeCluster", name),
        (TB, "spec.partitioning.splitKeys", json!({"maxItems": 1023, "x-kubernetes-list-type": "set"})),
        (TB, "spec.partitioning.splitKeys[]", json!({"minLength": 1, "maxLength": 1024})),
        (TB, "spec.partitioning.shards", json!({"minimum": 1, "maximum": 1024})),
        (TB, "spec.ttlSeconds", json!({"maximum": 3_155_760_000_u64})),
        (TB, "spec.quota.requestsPerSecond", json!({"minimum": 1})),
    ];
    for place in ["spec.resources", "spec.metadata.resources", "spec.control.resources"].into_iter().chain([
        "spec.access.resources",
        "spec.routing.resources",
        "spec.proxy.resources",
    ]) {
        all.push(("", place, json!({"maxProperties": 8})));
    }
    all
}
