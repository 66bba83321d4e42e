//! Measures the append path on the real disk: `append DIR VALUE_BYTES THREADS DEPTH SECONDS [plain]`.
//!
//! Each thread keeps DEPTH appends in flight on its own group. `plain` switches preallocation off.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use undb_log::{Entry, Log, LogOptions};
use undb_types::{GroupId, LogId, ReplicaId, ShardId};
use undb_vfs::OsFs;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: usize| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let dir = PathBuf::from(arguments.first().ok_or("which directory?")?);
    let (value_bytes, threads, depth) = (number(1, 4096), number(2, 4), number(3, 16));
    let duration = Duration::from_secs(number(4, 5) as u64);
    let options =
        LogOptions { preallocate: arguments.get(5).is_none_or(|a| a != "plain"), ..LogOptions::default() };
    let log = Log::open(Arc::new(OsFs::new(&dir)), &dir, options)?;
    let began = Instant::now();
    let workers: Vec<_> = (0..threads as u64)
        .map(|n| {
            let log = log.clone();
            std::thread::spawn(move || drive(&log, n, value_bytes, depth, duration))
        })
        .collect();
    let mut latencies = Vec::new();
    for worker in workers {
        latencies.extend(worker.join().map_err(|_| "a worker panicked")?);
    }
    let seconds = began.elapsed().as_secs_f64();
    latencies.sort();
    let at = |q: f64| latencies[((latencies.len() - 1) as f64 * q) as usize].as_micros();
    let c = log.counters();
    println!(
        "{value_bytes} B x{threads}x{depth}: {:.0} appends/s, {:.1} MB/s, p50 {} us, p99 {} us, p99.9 {} us, \
         {:.0} syncs/s, {:.1} entries/sync, written/payload {:.4}",
        latencies.len() as f64 / seconds,
        c.payload_bytes as f64 / seconds / 1e6,
        at(0.5),
        at(0.99),
        at(0.999),
        c.syncs as f64 / seconds,
        c.entries as f64 / c.syncs as f64,
        c.written_bytes as f64 / c.payload_bytes as f64
    );
    log.close();
    Ok(())
}

fn drive(log: &Log, n: u64, value_bytes: usize, depth: usize, duration: Duration) -> Vec<Duration> {
    let group = GroupId { shard: ShardId(n), replica: ReplicaId(std::process::id() as u64 * 100 + n) };
    let payload = Bytes::from(vec![n as u8; value_bytes]);
    let (sender, receiver) = sync_channel(depth);
    let began = Instant::now();
    let mut latencies = Vec::new();
    let mut in_flight = 0;
    let mut index = 0;
    while began.elapsed() < duration || in_flight > 0 {
        while in_flight < depth && began.elapsed() < duration {
            let (sender, started) = (sender.clone(), Instant::now());
            let entry = Entry { id: LogId { term: 1, leader: 1, index }, kind: 0, payload: payload.clone() };
            log.append(
                group,
                vec![entry],
                Box::new(move |result| {
                    if result.is_ok() {
                        let _ = sender.send(started.elapsed());
                    }
                }),
            );
            in_flight += 1;
            index += 1;
        }
        if in_flight > 0 {
            let Ok(latency) = receiver.recv() else { break };
            latencies.push(latency);
            in_flight -= 1;
        }
    }
    latencies
}
