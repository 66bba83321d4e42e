//! `undb get`: what is there, as columns, JSON or YAML.

use crate::bytes_text;
use crate::connect::Connect;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Column, Format, field};
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  undb get tables
  undb get stores -o wide
  undb get shards --table packages
  undb get table packages -o yaml > packages.yaml     `undb apply -f packages.yaml` takes it back
  undb get storeclusters,tables
  undb get leases                                     who may have which stores down";

/// List tables, stores, shards, storeclusters or leases
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// tables, stores, shards, storeclusters or leases; several separated by commas
    #[arg(value_name = "KIND")]
    kinds: String,
    /// Only the one of this name or number
    name: Option<String>,
    /// How to print
    #[arg(short, long, default_value = "table", value_enum)]
    output: Format,
    /// Only shards of this table
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    #[command(flatten)]
    connect: Connect,
}

/// The kinds that can be listed, as they are on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tables,
    Stores,
    Shards,
    StoreClusters,
    Leases,
}

impl Kind {
    /// From singular, plural, or the short name that kubectl will know.
    pub fn parse(text: &str) -> Outcome<Self> {
        match text.to_ascii_lowercase().as_str() {
            "table" | "tables" | "utb" => Ok(Self::Tables),
            "store" | "stores" | "ust" => Ok(Self::Stores),
            "shard" | "shards" => Ok(Self::Shards),
            "storecluster" | "storeclusters" | "usc" => Ok(Self::StoreClusters),
            "lease" | "leases" => Ok(Self::Leases),
            _ => Err(Failure::usage(format!(
                "`{text}` is not a kind; write tables, stores, shards, storeclusters or leases"
            ))),
        }
    }

    /// As it is on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tables => "tables",
            Self::Stores => "stores",
            Self::Shards => "shards",
            Self::StoreClusters => "storeclusters",
            Self::Leases => "leases",
        }
    }

    fn columns(self) -> &'static [Column] {
        match self {
            Self::Tables => TABLES,
            Self::Stores => STORES,
            Self::Shards => SHARDS,
            Self::StoreClusters => STORE_CLUSTERS,
            Self::Leases => LEASES,
        }
    }
}

/// Fetches and prints.
pub async fn run(args: Args) -> Outcome {
    let kinds: Vec<Kind> = args.kinds.split(',').map(Kind::parse).collect::<Outcome<_>>()?;
    if args.name.is_some() && kinds.len() > 1 {
        return Err(Failure::usage("a name goes with one kind only"));
    }
    let admin = args.connect.admin()?;
    let name = args.name.as_deref().unwrap_or_default();
    let columns = matches!(args.output, Format::Table | Format::Wide);
    let mut all = Vec::new();
    for (i, kind) in kinds.iter().enumerate() {
        let found = fetch(&admin, *kind, name, args.table.as_deref().unwrap_or_default()).await?;
        if !columns {
            all.extend(found);
            continue;
        }
        if i > 0 {
            output::line("")?;
        }
        if found.is_empty() {
            eprintln!("no {}", kind.as_str());
            continue;
        }
        output::objects(&found, args.output, kind.columns())?;
    }
    if !columns {
        output::objects(&all, args.output, &[])?;
    }
    Ok(Exit::Ok)
}

/// Objects of a kind; one that was named and is not there is a failure.
pub async fn fetch(admin: &undb_sdk::Admin, kind: Kind, name: &str, table: &str) -> Outcome<Vec<Value>> {
    let objects = admin.get(kind.as_str(), name, table).await?;
    if objects.is_empty() && !name.is_empty() {
        return Err(not_found(kind, name));
    }
    let parse =
        |json: &String| serde_json::from_str(json).map_err(|e| Failure::internal(format!("bad object: {e}")));
    objects.iter().map(parse).collect()
}

/// The failure for a name that does not exist.
pub fn not_found(kind: Kind, name: &str) -> Failure {
    let plural = kind.as_str();
    Failure::new(
        Exit::NotFound,
        format!("there is no {} `{name}`; `undb get {plural}` lists them", plural.trim_end_matches('s')),
    )
}

const fn column(title: &'static str, cell: fn(&Value) -> String) -> Column {
    Column { title, wide_only: false, cell }
}

const fn wide(title: &'static str, cell: fn(&Value) -> String) -> Column {
    Column { title, wide_only: true, cell }
}

const NAME: Column = column("NAME", |o| field(o, "/metadata/name"));
const READY: Column = column("READY", |o| match o.pointer("/status/ready").and_then(Value::as_bool) {
    Some(true) => "yes".into(),
    Some(false) => "no".into(),
    None => "?".into(),
});
const REASON: Column = column("REASON", |o| field(o, "/status/reason"));

fn bytes_field(o: &Value, pointer: &str) -> String {
    o.pointer(pointer).and_then(Value::as_u64).map_or("-".into(), bytes_text::size)
}

/// `3/3`: what is there of what should be.
fn of(o: &Value, have: &str, want: &str) -> String {
    format!("{}/{}", field(o, have), field(o, want))
}

/// The stores that have a copy, `1,2,3`.
pub fn replica_stores(shard: &Value) -> String {
    let replicas = shard.pointer("/status/replicas").and_then(Value::as_array);
    let stores = replicas.map(|all| all.iter().map(|r| field(r, "/store")).collect::<Vec<_>>().join(","));
    stores.filter(|s| !s.is_empty()).unwrap_or("-".into())
}

const TABLES: &[Column] = &[
    NAME,
    READY,
    column("SHARDS", |o| of(o, "/status/shardsAvailable", "/status/shards")),
    column("REPLICAS", |o| field(o, "/spec/replication/factor")),
    column("KEYS", |o| field(o, "/status/liveKeys")),
    column("SIZE", |o| bytes_field(o, "/status/liveBytes")),
    column("STORECLUSTER", |o| field(o, "/spec/storeCluster")),
    wide("PARTITIONING", |o| field(o, "/spec/partitioning/type")),
    wide("TTL", |o| field(o, "/spec/ttlSeconds")),
    wide("ID", |o| field(o, "/status/tableId")),
    REASON,
];

const STORES: &[Column] = &[
    NAME,
    READY,
    column("STATE", |o| field(o, "/status/state")),
    column("REPLICAS", |o| field(o, "/status/replicas")),
    column("LEADERS", |o| field(o, "/status/leaders")),
    column("LIVE", |o| bytes_field(o, "/status/liveBytes")),
    column("DISK", |o| bytes_field(o, "/status/diskBytes")),
    column("FREE", |o| bytes_field(o, "/status/freeBytes")),
    column("ZONE", |o| field(o, "/spec/zone")),
    wide("STORECLUSTER", |o| field(o, "/spec/storeCluster")),
    wide("ADDRESS", |o| field(o, "/spec/address")),
    wide("MEMORY", |o| bytes_field(o, "/status/memoryBytes")),
    wide("UUID", |o| field(o, "/spec/uuid")),
    wide("LEASE", |o| field(o, "/status/lease")),
    REASON,
];

const SHARDS: &[Column] = &[
    NAME,
    READY,
    column("TABLE", |o| field(o, "/spec/table")),
    column("RANGE", |o| format!("{}..{}", field(o, "/spec/start"), field(o, "/spec/end"))),
    column("LEADER", |o| field(o, "/status/leader/store")),
    column("STORES", replica_stores),
    column("KEYS", |o| field(o, "/status/liveKeys")),
    column("SIZE", |o| bytes_field(o, "/status/liveBytes")),
    wide("TERM", |o| field(o, "/status/term")),
    wide("MOVE", |o| match o.pointer("/status/move/step") {
        Some(_) => {
            format!(
                "{}->{}: {}",
                field(o, "/status/move/from"),
                field(o, "/status/move/to"),
                field(o, "/status/move/step")
            )
        }
        None => "-".into(),
    }),
    wide("EPOCH", |o| format!("{}.{}", field(o, "/status/epoch/version"), field(o, "/status/epoch/conf"))),
    REASON,
];

const STORE_CLUSTERS: &[Column] = &[
    NAME,
    READY,
    column("STORES", |o| of(o, "/status/stores", "/spec/replicas")),
    column("ENGINE", |o| field(o, "/spec/engine/type")),
    column("THRESHOLD", |o| field(o, "/spec/engine/separation/threshold")),
    wide("SIZE", |o| field(o, "/spec/storage/size")),
    REASON,
];

const LEASES: &[Column] = &[
    NAME,
    column("KIND", |o| field(o, "/spec/kind")),
    column("PHASE", |o| field(o, "/status/phase")),
    column("STORES", |o| {
        let stores = o.pointer("/spec/stores").and_then(Value::as_array);
        stores.map_or("-".into(), |all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }),
    column("HOLDER", |o| field(o, "/spec/holder")),
    column("LEFT", |o| {
        let left_ms = o.pointer("/status/leftMs").and_then(Value::as_u64);
        left_ms.map_or("-".into(), |ms| format!("{} s", ms.div_ceil(1000)))
    }),
    REASON,
];
