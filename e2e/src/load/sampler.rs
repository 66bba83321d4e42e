//! Asks every store, twice a second, how its replicas are: `GET /replicas` on its admin port.
//!
//! Stores are found by the name of their headless Service, which also names those that are not ready.

use super::availability::{Availability, Report, Unavailable};
use super::report::wall_ms;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

const INTERVAL: Duration = Duration::from_millis(500);
const ANSWER_WAIT: Duration = Duration::from_millis(1500);
/// The sampler's own standstill beyond this is not held against the replicas.
const STANDSTILL: Duration = Duration::from_millis(1000);
const FORGET_AFTER: Duration = Duration::from_secs(120);
const MOMENTS_MAX: usize = 200;

/// A moment at which a shard had more than one unavailable replica.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Moment {
    /// Milliseconds since 1970.
    pub t: u64,
    /// The shard.
    pub shard: u64,
    /// Which replicas, and why.
    pub unavailable: Vec<Unavailable>,
}

/// What the sampler has found so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sampled {
    /// Samples taken.
    pub samples: u64,
    /// Shards known in the last one.
    pub shards: usize,
    /// Stores that answered the last time they were asked.
    pub stores: usize,
    /// The largest number of unavailable replicas that any shard had at any moment.
    pub unavailable_max: usize,
    /// Moments with more than one, the first 200.
    pub moments: Vec<Moment>,
    /// How many there were.
    pub moments_count: u64,
    /// Shards without a majority of available voters, at any moment.
    pub lost_quorum: BTreeSet<u64>,
    /// Now: unavailable replicas of the worst shard.
    pub unavailable_now: usize,
}

/// Shared with whoever reports.
pub type Shared = Arc<Mutex<Sampled>>;

/// Samples for ever.
pub async fn run(stores: String, shared: Shared) {
    let (send, mut receive) = mpsc::unbounded_channel::<(SocketAddr, Option<Vec<Report>>)>();
    let mut availability = Availability::default();
    let mut addresses: Vec<SocketAddr> = Vec::new();
    let mut asked: BTreeSet<SocketAddr> = BTreeSet::new();
    let mut answered: BTreeMap<SocketAddr, bool> = BTreeMap::new();
    let (mut now, mut last) = (Duration::ZERO, Instant::now());
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some((address, reports)) = receive.recv() => {
                asked.remove(&address);
                answered.insert(address, reports.is_some());
                if let Some(reports) = reports {
                    availability.observe(now + last.elapsed().min(STANDSTILL), reports);
                }
            }
            _ = ticks.tick() => {
                now += last.elapsed().min(STANDSTILL);
                last = Instant::now();
                // A name without an answer is asked again at the next tick; those known stay asked.
                if let Ok(Ok(found)) = tokio::time::timeout(INTERVAL, tokio::net::lookup_host(&stores)).await {
                    addresses = found.collect();
                }
                answered.retain(|address, _| addresses.contains(address));
                for address in addresses.iter().filter(|address| !asked.contains(address)).copied().collect::<Vec<_>>() {
                    asked.insert(address);
                    let send = send.clone();
                    tokio::spawn(async move {
                        let reports = tokio::time::timeout(ANSWER_WAIT, fetch(address)).await;
                        // Only the end of the sampler closes the channel.
                        let _ = send.send((address, reports.ok().and_then(|r| r.ok())));
                    });
                }
                availability.forget(now, FORGET_AFTER);
                let stores = answered.values().filter(|ok| **ok).count();
                note(&mut shared.lock(), &availability, now, stores);
            }
        }
    }
}

fn note(sampled: &mut Sampled, availability: &Availability, now: Duration, stores: usize) {
    let unavailable = availability.unavailable(now);
    sampled.samples += 1;
    sampled.shards = availability.shards();
    sampled.stores = stores;
    sampled.unavailable_now = unavailable.values().map(Vec::len).max().unwrap_or(0);
    sampled.unavailable_max = sampled.unavailable_max.max(sampled.unavailable_now);
    sampled.lost_quorum.extend(availability.without_quorum(now));
    for (shard, unavailable) in unavailable {
        if unavailable.len() > 1 {
            sampled.moments_count += 1;
            if sampled.moments.len() < MOMENTS_MAX {
                sampled.moments.push(Moment { t: wall_ms(), shard, unavailable });
            }
        }
    }
}

async fn fetch(address: SocketAddr) -> std::io::Result<Vec<Report>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /replicas HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> std::io::Result<Vec<Report>> {
    let bad = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(|| bad("no header".into()))?;
    if !answer.starts_with(b"HTTP/1.1 200") && !answer.starts_with(b"HTTP/1.0 200") {
        return Err(bad(String::from_utf8_lossy(&answer[..end]).into_owned()));
    }
    let body = &answer[end + 4..];
    // A chunked body begins with its length, not with the array.
    let (start, stop) = (body.iter().position(|b| *b == b'['), body.iter().rposition(|b| *b == b']'));
    let array = start.zip(stop).and_then(|(start, stop)| body.get(start..=stop));
    let array = array.ok_or_else(|| bad("no array in the answer".into()))?;
    serde_json::from_slice(array).map_err(|e| bad(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_an_error_is_not() {
        let answer =
            b"HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n[{\"shard\": 5, \"replica\": 7, \"new\": true}]";
        let reports = parse(answer).expect("reports");
        assert!(reports.len() == 1 && reports[0].shard == 5 && reports[0].replica == 7);
        assert!(parse(b"HTTP/1.1 404 Not Found\r\n\r\n[]").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_err());
    }

    #[test]
    fn only_more_than_one_unavailable_replica_is_a_moment() {
        let report = |replica| Report { shard: 1, replica, voters: vec![1, 2, 3], ..Report::default() };
        let mut availability = Availability::default();
        availability.observe(Duration::ZERO, (1..=3).map(report).collect());
        availability.observe(Duration::from_secs(3), vec![report(1), report(2)]);
        let mut sampled = Sampled::default();
        note(&mut sampled, &availability, Duration::from_secs(3), 2);
        assert!(sampled.unavailable_max == 1 && sampled.moments.is_empty());
        note(&mut sampled, &availability, Duration::from_secs(5), 0);
        assert!(sampled.unavailable_max == 3 && sampled.moments.len() == 1);
        assert_eq!(sampled.lost_quorum.len(), 1);
    }
}
