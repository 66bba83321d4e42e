//! Replicas where a case wants them: on given stores, or evenly over all.

use super::Connect;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use undb_sdk::Admin;

const POLL: Duration = Duration::from_millis(500);

/// What `e2e place` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct PlaceArgs {
    #[command(flatten)]
    pub connect: Connect,
    /// Whose shards
    #[arg(long)]
    pub table: String,
    /// Ids of the stores that keep every shard
    #[arg(long, value_delimiter = ',', required = true)]
    pub stores: Vec<u64>,
    /// After so many seconds it has failed
    #[arg(long, default_value_t = 180)]
    pub seconds: u64,
}

/// What `e2e spread` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct SpreadArgs {
    #[command(flatten)]
    pub connect: Connect,
    /// Whose shards
    #[arg(long)]
    pub table: String,
    /// After so many seconds it has failed
    #[arg(long, default_value_t = 180)]
    pub seconds: u64,
}

/// Where replicas are: stores by shard.
type Places = BTreeMap<u64, BTreeSet<u64>>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Move {
    shard: u64,
    from: u64,
    to: u64,
}

/// Moves replicas until every shard of a table lies on exactly these stores.
pub async fn place(args: PlaceArgs) -> Result<String, String> {
    let admin = Admin::new(&args.connect.options()?).map_err(|e| e.to_string())?;
    let wanted: BTreeSet<u64> = args.stores.iter().copied().collect();
    let zones = zones(&admin).await?;
    let moves = moves_to(&places(&admin, &args.table).await?.0, &wanted, &zones)?;
    carry_out(&admin, &args.table, moves, Duration::from_secs(args.seconds)).await
}

/// Moves replicas until all stores of the table's StoreCluster keep about as many.
pub async fn spread(args: SpreadArgs) -> Result<String, String> {
    let admin = Admin::new(&args.connect.options()?).map_err(|e| e.to_string())?;
    let places = places(&admin, &args.table).await?.0;
    let moves = spreading(places, &zones(&admin).await?);
    carry_out(&admin, &args.table, moves, Duration::from_secs(args.seconds)).await
}

async fn carry_out(admin: &Admin, table: &str, moves: Vec<Move>, wait: Duration) -> Result<String, String> {
    let until = Instant::now() + wait;
    let count = moves.len();
    // One after the other a shard, so that none has two changes at a time.
    for Move { shard, from, to } in moves {
        loop {
            let refused = match admin.move_replica(shard, from, to).await {
                Ok(_) => break,
                Err(error) => error.to_string(),
            };
            if Instant::now() >= until {
                return Err(format!("shard {shard} from store {from} to {to}: {refused}"));
            }
            tokio::time::sleep(POLL).await;
        }
        loop {
            let (now, unfinished) = places(admin, table).await?;
            let there = now.get(&shard).is_some_and(|stores| stores.contains(&to) && !stores.contains(&from));
            if there && !unfinished.contains(&shard) {
                break;
            }
            if Instant::now() >= until {
                return Err(format!(
                    "shard {shard} is still on {:?}; from store {from} to {to}",
                    now.get(&shard)
                ));
            }
            tokio::time::sleep(POLL).await;
        }
    }
    let places = places(admin, table).await?.0;
    Ok(format!("{count} replicas moved; {places:?}"))
}

/// Places of a table's replicas, and the shards in which something is being changed.
async fn places(admin: &Admin, table: &str) -> Result<(Places, BTreeSet<u64>), String> {
    let objects = admin.get("shards", "", table).await.map_err(|e| e.to_string())?;
    let (mut places, mut unfinished) = (Places::new(), BTreeSet::new());
    for text in objects {
        let object: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let shard = name.parse::<u64>().map_err(|_| format!("a shard is named {name:?}"))?;
        let replicas = object["status"]["replicas"].as_array().cloned().unwrap_or_default();
        places.insert(shard, replicas.iter().filter_map(|r| r["store"].as_u64()).collect());
        if !object["status"]["move"].is_null() || replicas.iter().any(|r| r["role"] != "Voter") {
            unfinished.insert(shard);
        }
    }
    Ok((places, unfinished))
}

/// Zones of the stores that are up, with their StoreCluster: replicas stay within one.
async fn zones(admin: &Admin) -> Result<BTreeMap<u64, (String, String)>, String> {
    let objects = admin.get("stores", "", "").await.map_err(|e| e.to_string())?;
    let mut zones = BTreeMap::new();
    for text in objects {
        let object: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let id = object["metadata"]["name"].as_str().and_then(|name| name.parse().ok());
        let word = |field: &str| object["spec"][field].as_str().unwrap_or_default().to_owned();
        if let (Some(id), true) = (id, object["status"]["state"] == "Up") {
            zones.insert(id, (word("storeCluster"), word("zone")));
        }
    }
    Ok(zones)
}

/// Moves that bring every shard onto the wanted stores, each within a zone where that is possible.
fn moves_to(
    places: &Places,
    wanted: &BTreeSet<u64>,
    zones: &BTreeMap<u64, (String, String)>,
) -> Result<Vec<Move>, String> {
    let mut moves = Vec::new();
    for (shard, stores) in places {
        if stores.len() != wanted.len() {
            return Err(format!(
                "shard {shard} has {} replicas, {} stores are wanted",
                stores.len(),
                wanted.len()
            ));
        }
        let mut to: Vec<u64> = wanted.difference(stores).copied().collect();
        for from in stores.difference(wanted) {
            let near = to.iter().position(|store| zones.get(store) == zones.get(from)).unwrap_or(0);
            moves.push(Move { shard: *shard, from: *from, to: to.remove(near) });
        }
    }
    Ok(moves)
}

/// Moves from the fullest store to the emptiest one, until they differ by at most one; never two replicas
/// of a shard in a zone.
fn spreading(mut places: Places, zones: &BTreeMap<u64, (String, String)>) -> Vec<Move> {
    let Some(cluster) =
        places.values().flatten().find_map(|store| zones.get(store)).map(|(cluster, _)| cluster.clone())
    else {
        return Vec::new();
    };
    let stores: Vec<u64> = zones.iter().filter(|(_, (of, _))| *of == cluster).map(|(id, _)| *id).collect();
    let mut moves = Vec::new();
    loop {
        let load = |store: u64| places.values().filter(|stores| stores.contains(&store)).count();
        let mut best: Option<(usize, Move)> = None;
        for (shard, of) in &places {
            for from in of.iter().copied() {
                for to in stores.iter().copied().filter(|to| !of.contains(to)) {
                    let zone = &zones[&to];
                    let crowded = of.iter().any(|other| *other != from && zones.get(other) == Some(zone));
                    let gap = load(from).saturating_sub(load(to));
                    if !crowded && gap >= 2 && best.as_ref().is_none_or(|(known, _)| gap > *known) {
                        best = Some((gap, Move { shard: *shard, from, to }));
                    }
                }
            }
        }
        let Some((_, Move { shard, from, to })) = best else { return moves };
        if let Some(of) = places.get_mut(&shard) {
            of.remove(&from);
            of.insert(to);
        }
        moves.push(Move { shard, from, to });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(all: &[(u64, &str)]) -> BTreeMap<u64, (String, String)> {
        all.iter().map(|(id, zone)| (*id, ("s".to_owned(), (*zone).to_owned()))).collect()
    }

    #[test]
    fn replicas_move_within_their_zone() {
        let places = Places::from([(10, [1, 3, 5].into()), (11, [2, 3, 5].into()), (12, [2, 4, 5].into())]);
        let zones = zones(&[(1, "x"), (2, "x"), (3, "y"), (4, "y"), (5, "z")]);
        let moves = moves_to(&places, &[1, 3, 5].into(), &zones).expect("possible");
        let expected = [Move { shard: 11, from: 2, to: 1 }, Move { shard: 12, from: 2, to: 1 }];
        assert_eq!(moves[..2], expected);
        assert_eq!(moves[2], Move { shard: 12, from: 4, to: 3 });
        assert!(moves_to(&places, &[1, 3].into(), &zones).is_err());
    }

    #[test]
    fn spreading_ends_even_and_keeps_zones_apart() {
        let places: Places = (0..8).map(|shard| (shard, [1, 2, 3].into())).collect();
        let zones = zones(&[(1, "x"), (2, "y"), (3, "z"), (4, "x"), (5, "y")]);
        let moves = spreading(places.clone(), &zones);
        let mut after = places;
        for Move { shard, from, to } in &moves {
            let of = after.get_mut(shard).expect("a shard");
            assert!(of.remove(from) && of.insert(*to));
            let distinct: BTreeSet<_> = of.iter().map(|store| &zones[store].1).collect();
            assert_eq!(distinct.len(), 3);
        }
        for store in [1, 2, 4, 5] {
            assert_eq!(after.values().filter(|of| of.contains(&store)).count(), 4, "store {store}");
        }
    }
}
