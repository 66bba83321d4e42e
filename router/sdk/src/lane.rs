//! Request ids that a store can still tell apart when they come again.
//!
//! A shard remembers the last 128 writes of each client id. A client with more writes than that under
//! way would push its own oldest out, and their retry could no longer be recognised. So a client uses as
//! many ids ("lanes") as it needs: within a lane, nothing newer than [`LANE_AHEAD_MAX`] behind the oldest
//! outstanding write is handed out; a slow write fills its lane and others go on in the next.
//!
//! What a shard forgets it remembers as a time: it refuses ids first sent up to then. So within a lane the
//! time of the first attempt never goes back, whatever the clock does, and at most [`LANE_AHEAD_MAX`] ids
//! share one millisecond; then nothing outstanding is as old as anything that a window let go.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use undb_proto::v1::RequestId;

/// How far the newest outstanding write of a lane may be ahead of its oldest. Half a shard's window.
pub const LANE_AHEAD_MAX: u64 = 64;

#[derive(Debug)]
struct Lane {
    client: u64,
    next: u64,
    outstanding: BTreeSet<u64>,
    stamp_ms: u64,
    in_stamp: u64,
}

impl Lane {
    fn stamp(&mut self, now_ms: u64) -> u64 {
        let full = self.in_stamp == LANE_AHEAD_MAX;
        if now_ms > self.stamp_ms || full {
            self.stamp_ms = now_ms.max(self.stamp_ms + u64::from(full));
            self.in_stamp = 0;
        }
        self.in_stamp += 1;
        self.stamp_ms
    }

    fn has_room(&self) -> bool {
        self.outstanding.first().is_none_or(|oldest| self.next - oldest < LANE_AHEAD_MAX)
    }
}

/// All lanes of a client.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Mutex<Vec<Lane>>,
    draw: fn() -> u64,
}

impl Lanes {
    pub(crate) fn new(draw: fn() -> u64) -> Arc<Self> {
        Arc::new(Self { lanes: Mutex::new(Vec::new()), draw })
    }

    /// A fresh request id, first sent now. It counts as outstanding until the ticket is dropped.
    pub(crate) fn take(self: &Arc<Self>, now_ms: u64) -> Ticket {
        let mut lanes = self.lanes.lock();
        let index = match lanes.iter().position(Lane::has_room) {
            Some(index) => index,
            None => {
                // 0 means "not deduplicated" on the wire.
                let client = (self.draw)().max(1);
                let outstanding = BTreeSet::new();
                lanes.push(Lane { client, next: 1, outstanding, stamp_ms: 0, in_stamp: 0 });
                lanes.len() - 1
            }
        };
        let lane = &mut lanes[index];
        let seq = lane.next;
        lane.next += 1;
        lane.outstanding.insert(seq);
        let id = RequestId { client: lane.client, seq, first_attempt_ms: lane.stamp(now_ms) };
        Ticket { lanes: self.clone(), index, id }
    }
}

/// One logical write's id, for all its attempts.
#[derive(Debug)]
pub(crate) struct Ticket {
    lanes: Arc<Lanes>,
    index: usize,
    pub(crate) id: RequestId,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.lanes.lanes.lock()[self.index].outstanding.remove(&self.id.seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn counting() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    #[test]
    fn no_lane_runs_further_ahead_than_a_window_holds() {
        let lanes = Lanes::new(counting);
        let held: Vec<Ticket> = (0..200).map(|_| lanes.take(1)).collect();
        let mut oldest: HashMap<u64, u64> = HashMap::new();
        for ticket in &held {
            let first = *oldest.entry(ticket.id.client).or_insert(ticket.id.seq);
            assert!(ticket.id.seq - first < LANE_AHEAD_MAX);
        }
        assert_eq!(oldest.len(), 4);
    }

    #[test]
    fn a_slow_write_does_not_stop_the_others() {
        let lanes = Lanes::new(counting);
        let slow = lanes.take(1);
        let clients: BTreeSet<u64> = (0..1000).map(|_| lanes.take(1).id.client).collect();
        assert_eq!(clients.len(), 2, "the slow write's lane, then one more");
        drop(slow);
        let again = lanes.take(1);
        assert!(clients.contains(&again.id.client), "lanes are used again");
    }

    #[test]
    fn first_attempts_never_go_back_and_few_share_a_millisecond() {
        let lanes = Lanes::new(counting);
        let stamps: Vec<u64> =
            (0..300).map(|i| lanes.take(if i < 150 { 1000 } else { 10 }).id.first_attempt_ms).collect();
        assert!(stamps.is_sorted());
        let ahead = LANE_AHEAD_MAX as usize;
        assert!(stamps.windows(ahead + 1).all(|w| w[0] < w[ahead]));
    }

    #[test]
    fn ids_are_never_given_twice() {
        let lanes = Lanes::new(counting);
        let mut seen = BTreeSet::new();
        let mut held = std::collections::VecDeque::new();
        for i in 0..1000 {
            let ticket = lanes.take(1);
            assert!(seen.insert((ticket.id.client, ticket.id.seq)));
            held.push_back(ticket);
            if i % 3 == 0 {
                held.pop_front();
            }
        }
    }
}
