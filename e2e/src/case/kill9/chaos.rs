//! Kills a random process with -9 every 1-3 s and starts it again.

use super::{CASE, Shared};
use crate::case::{Failure, say};
use crate::harness::Cluster;
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Goes on for `duration`; returns how many it killed. A process that ends without being killed is a find.
pub(super) async fn run(
    cluster: &mut Cluster,
    shared: &Shared,
    duration: Duration,
    rng: &mut StdRng,
) -> Result<u64, Failure> {
    let end = Instant::now() + duration;
    let mut next_report = Instant::now() + REPORT_EVERY;
    let mut kills = 0;
    let mut by_role: BTreeMap<String, u64> = BTreeMap::new();
    while Instant::now() < end {
        let wait = Duration::from_millis(rng.random_range(1000..3000));
        tokio::time::sleep(wait.min(end.saturating_duration_since(Instant::now()))).await;
        if Instant::now() >= end {
            break;
        }
        look_for_the_dead(cluster)?;
        let processes = cluster.processes();
        let victim = rng.random_range(0..processes.len());
        let process = &mut processes[victim];
        process.kill();
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..300))).await;
        process.start()?;
        kills += 1;
        *by_role.entry(process.name.clone()).or_default() += 1;
        if Instant::now() >= next_report {
            next_report += REPORT_EVERY;
            let acknowledged = shared.acknowledged.load(Ordering::Relaxed);
            let left = end.saturating_duration_since(Instant::now()).as_secs();
            say(CASE, format_args!("{kills} kills, {acknowledged} acknowledged writes, {left} s to go"));
        }
    }
    let list: Vec<String> = by_role.iter().map(|(name, count)| format!("{name} {count}")).collect();
    say(CASE, format_args!("killed: {}", list.join(", ")));
    look_for_the_dead(cluster)?;
    Ok(kills)
}

fn look_for_the_dead(cluster: &mut Cluster) -> Result<(), Failure> {
    for process in cluster.processes() {
        if let Some(status) = process.ended() {
            return Err(process.failed(&format!("ended by itself with {status}")).into());
        }
    }
    Ok(())
}
