//! The route of one table: which shard has a key, who leads it, where its stores are. Pure.
//!
//! ## Invariants
//! - Shards are in key order and cover every key: no hole, no overlap, never none.
//! - (incarnation, version) never goes back; of one shard, neither do epoch and term.
//! - Whatever does not fit is refused, and what was there stays.

use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use undb_proto::v1;
use undb_types::{Epoch, KeyRange, Partitioning};

/// (incarnation, version).
pub(crate) type Version = (u32, u64);

/// One shard as known now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShardRoute {
    pub id: u64,
    pub range: KeyRange,
    pub epoch: Epoch,
    pub replicas: Vec<v1::Replica>,
    /// 0: unknown.
    pub leader: u64,
    pub term: u64,
}

impl ShardRoute {
    fn new(shard: v1::Shard, leader: u64, term: u64) -> Self {
        Self {
            id: shard.shard_id,
            range: shard.range.unwrap_or_default().into(),
            epoch: shard.epoch.unwrap_or_default().into(),
            replicas: shard.replicas,
            leader,
            term,
        }
    }

    /// The store of the leader, if both are known.
    pub fn leader_store(&self) -> Option<u64> {
        self.replicas.iter().find(|r| r.replica_id == self.leader && self.leader != 0).map(|r| r.store_id)
    }

    /// True when `self` must not be replaced by `other`.
    fn is_newer_than(&self, other: &ShardRoute) -> bool {
        self.epoch != other.epoch && self.epoch.covers(other.epoch)
    }
}

/// One table as known now. Immutable; changes make a new one.
#[derive(Clone, Debug)]
pub(crate) struct RouteTable {
    pub table_id: u64,
    pub name: String,
    pub partitioning: Partitioning,
    pub version: Version,
    pub digest: u64,
    shards: Vec<Arc<ShardRoute>>,
    stores: HashMap<u64, String>,
}

/// Why an update was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("older than what is known")]
    Older,
    #[error("shards leave a hole or overlap")]
    Hole,
    #[error("no shards")]
    Empty,
    #[error("partitioning is unknown")]
    Partitioning,
    #[error("made for another base")]
    Base,
}

pub(crate) fn version_of(version: &Option<v1::RouteVersion>) -> Version {
    version.as_ref().map_or((0, 0), |v| (v.incarnation, v.version))
}

impl RouteTable {
    /// From a snapshot alone.
    pub fn from_snapshot(route: v1::TableRoute) -> Result<Self, Refused> {
        let partitioning = match route.partitioning() {
            v1::Partitioning::Range => Partitioning::Range,
            v1::Partitioning::Hash => Partitioning::Hash,
            v1::Partitioning::Unspecified => return Err(Refused::Partitioning),
        };
        let shards = route
            .shards
            .into_iter()
            .filter_map(|r| Some(Arc::new(ShardRoute::new(r.shard?, r.leader_replica_id, r.term))))
            .collect();
        Ok(Self {
            table_id: route.table_id,
            name: route.name,
            partitioning,
            version: version_of(&route.version),
            digest: route.digest,
            shards: ordered(shards)?,
            stores: route.stores.into_iter().map(|s| (s.store_id, s.address)).collect(),
        })
    }

    /// With a snapshot that came later. What was learnt from stores since stays where it is newer.
    pub fn with_snapshot(&self, route: v1::TableRoute) -> Result<Self, Refused> {
        let version = version_of(&route.version);
        let other_table = route.table_id != self.table_id;
        if version < self.version || (version.0 == self.version.0 && version.1 == 0 && self.version.1 > 0) {
            return Err(Refused::Older);
        }
        let mut next = Self::from_snapshot(route)?;
        if other_table || version.0 > self.version.0 {
            return Ok(next);
        }
        next.keep_newer_of(self);
        Ok(next)
    }

    /// With a delta.
    pub fn with_delta(&self, delta: v1::RouteDelta) -> Result<Self, Refused> {
        let next_version = version_of(&delta.next);
        if next_version <= self.version {
            return Err(Refused::Older);
        }
        if version_of(&delta.base) != self.version || delta.table_id != self.table_id {
            return Err(Refused::Base);
        }
        let upserts: HashMap<u64, Arc<ShardRoute>> = delta
            .upserts
            .into_iter()
            .filter_map(|r| Some(ShardRoute::new(r.shard?, r.leader_replica_id, r.term)))
            .map(|s| (s.id, Arc::new(s)))
            .collect();
        let kept = self
            .shards
            .iter()
            .filter(|s| !upserts.contains_key(&s.id) && !delta.tombstones.contains(&s.id))
            .cloned();
        let shards = ordered(kept.chain(upserts.values().cloned()).collect())?;
        let mut next = Self { version: next_version, digest: delta.digest, shards, ..self.clone() };
        next.stores.extend(delta.stores.into_iter().map(|s| (s.store_id, s.address)));
        next.keep_newer_of(self);
        Ok(next)
    }

    /// With shards that a store says it knows. `None`: they bring nothing new.
    pub fn with_shards(&self, shards: &[v1::Shard]) -> Option<Self> {
        let told = shards.iter().filter(|s| s.table_id == self.table_id || s.table_id == 0);
        let told: Vec<_> = told.map(|s| Arc::new(ShardRoute::new(s.clone(), 0, 0))).collect();
        self.overlay(told)
    }

    /// With this leader. `None`: known already, or older than what is known.
    pub fn with_leader(&self, shard: u64, replica: u64, term: u64) -> Option<Self> {
        let index = self.shards.iter().position(|s| s.id == shard)?;
        let known = &self.shards[index];
        if term < known.term || (term == known.term && (known.leader != 0 || replica == 0)) {
            return None;
        }
        let mut next = self.clone();
        let mut changed = ShardRoute::clone(known);
        (changed.leader, changed.term) = (replica, term);
        next.shards[index] = Arc::new(changed);
        Some(next)
    }

    /// With the leader that just answered. `None`: known already.
    pub fn with_proven_leader(&self, shard: u64, store: u64) -> Option<Self> {
        let index = self.shards.iter().position(|s| s.id == shard)?;
        let known = &self.shards[index];
        let replica = known.replicas.iter().find(|r| r.store_id == store)?.replica_id;
        if known.leader == replica {
            return None;
        }
        let mut next = self.clone();
        let mut changed = ShardRoute::clone(known);
        changed.leader = replica;
        next.shards[index] = Arc::new(changed);
        Some(next)
    }

    fn keep_newer_of(&mut self, old: &RouteTable) {
        let newer: Vec<_> = old
            .shards
            .iter()
            .filter(|s| self.shards.iter().any(|n| n.id == s.id && s.is_newer_than(n)))
            .cloned()
            .collect();
        if let Some(kept) = self.overlay(newer) {
            *self = kept;
        }
        for known in old.shards.iter().filter(|s| s.leader != 0) {
            if let Some(kept) = self.with_leader(known.id, known.leader, known.term) {
                *self = kept;
            }
        }
    }

    /// Replaces what `told` covers, if that is newer and leaves no hole.
    fn overlay(&self, told: Vec<Arc<ShardRoute>>) -> Option<Self> {
        let is_news = |t: &Arc<ShardRoute>| {
            let mut over = self.shards.iter().filter(|s| s.id == t.id || overlaps(&s.range, &t.range));
            over.all(|s| if s.id == t.id { t.is_newer_than(s) } else { t.epoch.version > s.epoch.version })
        };
        let news: Vec<_> = told.into_iter().filter(is_news).collect();
        if news.is_empty() {
            return None;
        }
        let displaced =
            |s: &&Arc<ShardRoute>| news.iter().any(|n| n.id == s.id || overlaps(&n.range, &s.range));
        let kept: Vec<_> = self.shards.iter().filter(|s| !displaced(s)).cloned().collect();
        let news = news.iter().map(|n| self.inherit_leader(n));
        let shards = ordered(kept.into_iter().chain(news).collect()).ok()?;
        Some(Self { shards, ..self.clone() })
    }

    /// A shard keeps its leader over a change of members.
    fn inherit_leader(&self, shard: &Arc<ShardRoute>) -> Arc<ShardRoute> {
        match self.shards.iter().find(|s| s.id == shard.id) {
            Some(known) if known.term > shard.term => {
                let mut heir = ShardRoute::clone(shard);
                (heir.leader, heir.term) = (known.leader, known.term);
                Arc::new(heir)
            }
            _ => shard.clone(),
        }
    }

    /// The shard that has `key`.
    pub fn locate(&self, key: &[u8]) -> &Arc<ShardRoute> {
        let behind = self.shards.partition_point(|s| s.range.start <= key);
        &self.shards[behind.saturating_sub(1)]
    }

    /// The shard that has the last keys before `end`; empty: the last shard.
    pub fn locate_before(&self, end: &[u8]) -> &Arc<ShardRoute> {
        let behind = if end.is_empty() {
            self.shards.len()
        } else {
            self.shards.partition_point(|s| s.range.start < end)
        };
        &self.shards[behind.saturating_sub(1)]
    }

    /// All shards in key order.
    #[cfg(test)]
    pub fn shards(&self) -> &[Arc<ShardRoute>] {
        &self.shards
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Where a store is.
    pub fn address(&self, store: u64) -> Option<&str> {
        self.stores.get(&store).map(String::as_str)
    }

    /// Back to the wire form, for the cache on disk.
    pub fn to_snapshot(&self) -> v1::TableRoute {
        let partitioning = match self.partitioning {
            Partitioning::Range => v1::Partitioning::Range,
            Partitioning::Hash => v1::Partitioning::Hash,
        };
        let shard = |s: &Arc<ShardRoute>| v1::RouteShard {
            shard: Some(v1::Shard {
                shard_id: s.id,
                table_id: self.table_id,
                range: Some(s.range.clone().into()),
                epoch: Some(s.epoch.into()),
                replicas: s.replicas.clone(),
                version_base: 0,
            }),
            leader_replica_id: s.leader,
            term: s.term,
        };
        let store = |(id, address): (&u64, &String)| v1::RouteStore {
            store_id: *id,
            address: address.clone(),
            zone: String::new(),
        };
        v1::TableRoute {
            table_id: self.table_id,
            name: self.name.clone(),
            partitioning: partitioning as i32,
            version: Some(v1::RouteVersion { incarnation: self.version.0, version: self.version.1 }),
            shards: self.shards.iter().map(shard).collect(),
            stores: self.stores.iter().map(store).collect(),
            digest: self.digest,
            stale: true,
        }
    }
}

fn overlaps(a: &KeyRange, b: &KeyRange) -> bool {
    !a.intersect(b).is_empty()
}

fn ordered(mut shards: Vec<Arc<ShardRoute>>) -> Result<Vec<Arc<ShardRoute>>, Refused> {
    shards.sort_by(|a, b| a.range.start.cmp(&b.range.start));
    let (Some(first), Some(last)) = (shards.first(), shards.last()) else { return Err(Refused::Empty) };
    // A shard without keys would hide the one that begins where it does.
    let joins =
        |w: &[Arc<ShardRoute>]| w[0].range.end == w[1].range.start && w[0].range.start < w[1].range.start;
    let joined = shards.windows(2).all(joins);
    if first.range.start != Bytes::new() || !last.range.end.is_empty() || !joined {
        return Err(Refused::Hole);
    }
    Ok(shards)
}

/// Whom to ask: the leader unless it was asked or does not answer, else a replica that was not asked.
/// `salt` spreads clients over replicas. `None`: nobody is left.
pub(crate) fn pick(shard: &ShardRoute, salt: u64, avoid: impl Fn(u64) -> bool) -> Option<u64> {
    if let Some(leader) = shard.leader_store().filter(|store| !avoid(*store)) {
        return Some(leader);
    }
    let voters: Vec<u64> =
        shard.replicas.iter().filter(|r| r.role() == v1::Role::Voter).map(|r| r.store_id).collect();
    let all: Vec<u64> =
        if voters.is_empty() { shard.replicas.iter().map(|r| r.store_id).collect() } else { voters };
    let len = all.len();
    let start = if len == 0 { 0 } else { (salt % len as u64) as usize };
    (0..len).map(|i| all[(start + i) % len]).find(|store| !avoid(*store))
}
