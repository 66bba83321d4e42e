//! Many keys in one call: split by shard, run side by side, each with its own result.

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::{BTreeMap, HashSet};
use undb_proto::v1::{self, kv_response};
use undb_types::BATCH_LEN_MAX;

use crate::invoke::{Anchor, Unanswered};
use crate::op::{Change, mutation_bytes};
use crate::table::{ValueWanted, get_op, unfit};
use crate::{Batch, Error, Key, Mutation, PutOptions, Record, Result, Table, WriteOutcome};

const GET_KEYS_MAX: usize = 128;
/// Of one request that carries several independent puts; far below the limit, so that log entries stay small.
const PUT_BYTES_MAX: usize = 1 << 20;
const SPLIT_ROUNDS_MAX: usize = 16;

impl Table {
    /// The records at `keys`, in their order.
    pub async fn get_many<K: Into<Key>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Record>>> {
        self.read_many(keys, ValueWanted::Yes).await
    }

    /// The same without values.
    pub async fn meta_many<K: Into<Key>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Record>>> {
        self.read_many(keys, ValueWanted::No).await
    }

    async fn read_many<K: Into<Key>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        wanted: ValueWanted,
    ) -> Result<Vec<Option<Record>>> {
        let partitioning = self.partitioning();
        let keys: Vec<Bytes> =
            keys.into_iter().map(|k| k.into().encode(partitioning)).collect::<Result<_>>()?;
        let mut found: Vec<Option<Record>> = vec![None; keys.len()];
        let mut left: Vec<usize> = (0..keys.len()).collect();
        for _ in 0..SPLIT_ROUNDS_MAX {
            let groups = self.by_shard(&keys, &left, GET_KEYS_MAX);
            let mut calls: FuturesUnordered<_> =
                groups.into_iter().map(|group| self.get_group(&keys, group, wanted)).collect();
            left = Vec::new();
            while let Some((group, result)) = calls.next().await {
                match result {
                    Ok(records) => {
                        for (index, record) in group.into_iter().zip(records) {
                            found[index] = record;
                        }
                    }
                    Err(Unanswered::Regroup) => left.extend(group),
                    Err(other) => return Err(other.into_error()),
                }
            }
            if left.is_empty() {
                return Ok(found);
            }
        }
        Err(splitting())
    }

    async fn get_group(
        &self,
        keys: &[Bytes],
        group: Vec<usize>,
        wanted: ValueWanted,
    ) -> (Vec<usize>, Result<Vec<Option<Record>>, Unanswered>) {
        let ours: Vec<Bytes> = group.iter().map(|i| keys[*i].clone()).collect();
        let anchor = Anchor::At(ours[0].clone());
        let result = self
            .read("get")
            .run(&anchor, |shard| {
                ours.iter().all(|k| shard.range.contains(k)).then(|| get_op(ours.clone(), wanted))
            })
            .await;
        let result = match result {
            Ok((kv_response::Result::Get(get), _)) if get.records.len() == ours.len() => {
                Ok(get.records.into_iter().map(|r| r.record.map(Into::into)).collect())
            }
            Ok(_) => Err(unfit().into()),
            Err(unanswered) => Err(unanswered),
        };
        (group, result)
    }

    /// Indexes of `left`, grouped by the shard of their key, at most `len_max` in a group.
    fn by_shard(&self, keys: &[Bytes], left: &[usize], len_max: usize) -> Vec<Vec<usize>> {
        let routes = self.route.current();
        let mut shards: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for &index in left {
            shards.entry(routes.locate(&keys[index]).id).or_default().push(index);
        }
        shards
            .into_values()
            .flat_map(|all| all.chunks(len_max).map(<[_]>::to_vec).collect::<Vec<_>>())
            .collect()
    }

    /// Many puts, each with its own result and in no particular order: the fast way in for bulk data. Puts
    /// of one shard share requests. Of two puts of one key in one call the later one stays.
    pub async fn put_many(
        &self,
        puts: impl IntoIterator<Item = (Key, Bytes, PutOptions)>,
    ) -> Vec<Result<WriteOutcome>> {
        let mutations = puts.into_iter().map(|(key, value, options)| Mutation::put_with(key, value, options));
        self.mutate_many(mutations).await
    }

    /// Many independent mutations, each with its own result; not atomic, those of one key in order.
    pub async fn mutate_many(
        &self,
        mutations: impl IntoIterator<Item = Mutation>,
    ) -> Vec<Result<WriteOutcome>> {
        let partitioning = self.partitioning();
        let mut results: Vec<Option<Result<WriteOutcome>>> = Vec::new();
        let mut waiting: Vec<(usize, v1::Mutation)> = Vec::new();
        for (index, mutation) in mutations.into_iter().enumerate() {
            match mutation.encode(partitioning) {
                Ok(mutation) => {
                    results.push(None);
                    waiting.push((index, mutation));
                }
                Err(error) => results.push(Some(Err(error))),
            }
        }
        let mut regroups = 0;
        while !waiting.is_empty() {
            let (wave, later) = first_of_each_key(waiting);
            waiting = later;
            let groups = self.write_groups(wave);
            let mut calls: FuturesUnordered<_> =
                groups.into_iter().map(|group| self.write_group(group)).collect();
            while let Some((group, result)) = calls.next().await {
                match result {
                    Err(Unanswered::Regroup) if regroups < SPLIT_ROUNDS_MAX => waiting.extend(group),
                    result => {
                        let result = result.map_err(|u| match u {
                            Unanswered::Regroup => splitting(),
                            other => other.into_error(),
                        });
                        spread(&mut results, group, result);
                    }
                }
            }
            regroups += 1;
        }
        results.into_iter().map(|r| r.unwrap_or_else(|| Err(splitting()))).collect()
    }

    async fn write_group(
        &self,
        group: Vec<(usize, v1::Mutation)>,
    ) -> (Vec<(usize, v1::Mutation)>, Result<WriteOutcome, Unanswered>) {
        let result = self.write_encoded(group.iter().map(|(_, m)| m.clone()).collect()).await;
        (group, result)
    }

    /// Groups for one request each: by shard and size; what has a condition goes alone, lest it stop others.
    fn write_groups(&self, wave: Vec<(usize, v1::Mutation)>) -> Vec<Vec<(usize, v1::Mutation)>> {
        let routes = self.route.current();
        let mut done = Vec::new();
        let mut open: BTreeMap<u64, (usize, Vec<(usize, v1::Mutation)>)> = BTreeMap::new();
        for (index, mutation) in wave {
            if mutation.condition.is_some() || !matches!(mutation.op, Some(v1::mutation::Op::Put(_))) {
                done.push(vec![(index, mutation)]);
                continue;
            }
            let size = mutation_bytes(&mutation);
            let (bytes, group) = open.entry(routes.locate(&mutation.key).id).or_default();
            if !group.is_empty() && (*bytes + size > PUT_BYTES_MAX || group.len() == BATCH_LEN_MAX) {
                done.push(std::mem::take(group));
                *bytes = 0;
            }
            *bytes += size;
            group.push((index, mutation));
        }
        done.extend(open.into_values().map(|(_, group)| group));
        done
    }

    /// Many batches side by side, each atomic and with its own result.
    pub async fn write_many(&self, batches: impl IntoIterator<Item = Batch>) -> Vec<Result<WriteOutcome>> {
        futures::future::join_all(batches.into_iter().map(|batch| self.write(batch))).await
    }
}

/// Splits off what must wait for an earlier write of the same key.
type Indexed = Vec<(usize, v1::Mutation)>;
fn first_of_each_key(mut waiting: Indexed) -> (Indexed, Indexed) {
    waiting.sort_by_key(|(index, _)| *index);
    let mut seen: HashSet<Bytes> = HashSet::with_capacity(waiting.len());
    waiting.into_iter().partition(|(_, m)| seen.insert(m.key.clone()))
}

/// One answer for a group becomes one for each of its members.
fn spread(
    results: &mut [Option<Result<WriteOutcome>>],
    group: Vec<(usize, v1::Mutation)>,
    result: Result<WriteOutcome>,
) {
    match result {
        Ok(WriteOutcome::Applied(changes)) => {
            for ((index, _), change) in group.into_iter().zip::<Vec<Change>>(changes) {
                results[index] = Some(Ok(WriteOutcome::Applied(vec![change])));
            }
        }
        other => {
            for (index, _) in group {
                results[index] = Some(other.clone());
            }
        }
    }
}

fn splitting() -> Error {
    Error::Unavailable {
        code: crate::ErrorCode::Splitting,
        message: "the table's shards keep changing; try again".into(),
    }
}
