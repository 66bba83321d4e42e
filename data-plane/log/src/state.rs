//! All that is in memory, changed under one lock. No I/O happens here.
//!
//! ```text
//!   append, vote, purge ... ──> open frame ──> queue ──> (writer) in flight ──> file
//!                                                              │ fdatasync
//!                                                              └──> durable_seq, callbacks
//! ```
//! ## Invariants
//! - Records are added to frames in the order in which they change the groups: a checkpoint taken when a new
//!   frame is begun is the sum of all frames before it.
//! - `queue` and `open` hold frames of consecutive numbers and places.
//! - A segment's `live` is the number of locations in `groups` that point into it.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use undb_types::GroupId;

use crate::LogError;
use crate::format::{
    CLASS_HOT, FRAME_HEADER_LEN, Footer, FooterGroup, ORIGIN_LOG, Record, RunStart, SEGMENT_HEADER_LEN,
    SegmentHeader,
};
use crate::frame::{Answer, Frame, FrameBuilder, Place};
use crate::group::{Group, Location};
use crate::log::{Done, Entry};
use crate::recover::count_run;

/// Directory bytes that an entry takes at most, beyond its payload, with its share of a run's head.
const ENTRY_OVERHEAD_MAX: usize = 80;
/// What a cached payload takes beside its bytes.
const CACHE_OVERHEAD: usize = 64;
/// Buffers kept for the next frames.
const SPARE_BUFFERS_MAX: usize = 4;

pub(crate) struct State {
    pub log_id: u64,
    pub incarnation: u64,
    pub segment_bytes: u64,
    pub frame_bytes_max: usize,
    pub cache_bytes_max: usize,
    pub now_ms: fn() -> u64,

    pub groups: BTreeMap<GroupId, Group>,
    /// Since the log was opened: late calls must not bring a group back.
    pub dropped: HashSet<GroupId>,
    pub segments: BTreeMap<u64, Segment>,
    pub active: Active,
    pub next_seq: u64,
    pub durable_seq: u64,

    open: Option<FrameBuilder>,
    queue: VecDeque<Job>,
    /// Frames that the writer took and has not synced.
    pub in_flight: Vec<Arc<Frame>>,
    /// Payload bytes in `open`, `queue` and `in_flight`.
    pub queued_bytes: usize,
    /// Groups whose `committed` changed since it was last put into a frame.
    committed_dirty: BTreeSet<GroupId>,
    spare: Vec<Vec<u8>>,

    /// Cached payloads, oldest first: group, index, length.
    cache_order: VecDeque<(GroupId, u64, usize)>,
    pub cache_bytes: usize,

    /// The disk is full and the reserve is used.
    pub full: bool,
    pub closing: bool,
    /// The writer thread is gone: nobody calls back any more.
    pub ended: bool,
    pub poisoned: Option<String>,
}

pub(crate) struct Segment {
    pub bytes: u64,
    pub sealed: bool,
    pub deleting: bool,
    pub live: u64,
    /// The frame with the record that took the last live entry away.
    pub dead_seq: u64,
    pub pins: u32,
    pub class: u8,
    pub created_ms: u64,
}

/// The segment that frames are placed in.
pub(crate) struct Active {
    pub id: u64,
    pub next_offset: u64,
    pub first_seq: u64,
    /// Frames behind checkpoint and mark.
    pub frames: u64,
    pub groups: BTreeMap<GroupId, FooterGroup>,
}

enum Job {
    Frame(FrameBuilder),
    Roll(Box<Roll>),
    Call(Answer),
}

/// What the writer does next.
pub(crate) enum Work {
    /// A complete frame to write, and who waits for it.
    Frame(Arc<Frame>, Vec<Answer>),
    Roll(Box<Roll>),
    /// Somebody waits for what came before.
    Call(Answer),
}

/// The end of one segment and the beginning of the next.
pub(crate) struct Roll {
    pub seal: Footer,
    pub begin: Begin,
}

/// A segment to begin: header and checkpoint, a sync, then the mark that proves it.
pub(crate) struct Begin {
    pub header: SegmentHeader,
    pub checkpoint: FrameBuilder,
    pub mark: FrameBuilder,
}

pub(crate) struct Limits {
    pub segment_bytes: u64,
    pub frame_bytes_max: usize,
    pub cache_bytes_max: usize,
    pub now_ms: fn() -> u64,
}

impl Segment {
    pub fn new(bytes: u64, sealed: bool, header: &SegmentHeader) -> Self {
        Segment {
            bytes,
            sealed,
            deleting: false,
            live: 0,
            dead_seq: 0,
            pins: 0,
            class: header.class,
            created_ms: header.created_ms,
        }
    }

    pub fn purgeable(&self, durable_seq: u64) -> bool {
        self.sealed && self.live == 0 && self.dead_seq <= durable_seq
    }
}

impl State {
    /// A log whose next frame begins a new segment; `begin` must be called before anything else.
    pub fn new(log_id: u64, incarnation: u64, next_seq: u64, limits: Limits) -> Self {
        State {
            log_id,
            incarnation,
            segment_bytes: limits.segment_bytes,
            frame_bytes_max: limits.frame_bytes_max,
            cache_bytes_max: limits.cache_bytes_max,
            now_ms: limits.now_ms,
            groups: BTreeMap::new(),
            dropped: HashSet::new(),
            segments: BTreeMap::new(),
            active: Active { id: 0, next_offset: 0, first_seq: 0, frames: 0, groups: BTreeMap::new() },
            next_seq,
            durable_seq: next_seq - 1,
            open: None,
            queue: VecDeque::new(),
            in_flight: Vec::new(),
            queued_bytes: 0,
            committed_dirty: BTreeSet::new(),
            spare: Vec::new(),
            cache_order: VecDeque::new(),
            cache_bytes: 0,
            full: false,
            closing: false,
            ended: false,
            poisoned: None,
        }
    }

    /// Why nothing can be written any more, if so.
    pub fn refusal(&self) -> Option<LogError> {
        match &self.poisoned {
            Some(why) => Some(LogError::Poisoned(why.clone())),
            None => (self.closing || self.ended).then_some(LogError::Closed),
        }
    }

    pub fn has_work(&self) -> bool {
        self.open.is_some() || !self.queue.is_empty()
    }

    /// Every location must have been counted: for groups found at open.
    pub fn adopt(&mut self, groups: BTreeMap<GroupId, Group>) {
        for entry in groups.values().flat_map(|group| &group.entries) {
            if let Some(segment) = self.segments.get_mut(&entry.segment) {
                segment.live += 1;
            }
        }
        self.groups = groups;
    }

    fn place(&mut self) -> Place {
        let seq = self.next_seq;
        self.next_seq += 1;
        Place {
            log_id: self.log_id,
            segment: self.active.id,
            offset: self.active.next_offset,
            seq,
            incarnation: self.incarnation,
        }
    }

    /// Begins segment `id`: the next frames are placed in it.
    pub fn begin(&mut self, id: u64) -> Begin {
        let header = SegmentHeader {
            log_id: self.log_id,
            segment: id,
            incarnation: self.incarnation,
            first_seq: self.next_seq,
            created_ms: (self.now_ms)(),
            origin: ORIGIN_LOG,
            class: CLASS_HOT,
        };
        self.active = Active {
            id,
            next_offset: SEGMENT_HEADER_LEN as u64,
            first_seq: self.next_seq,
            frames: 0,
            groups: BTreeMap::new(),
        };
        let mut checkpoint = FrameBuilder::new(self.place(), Vec::new());
        for (group, state) in &self.groups {
            checkpoint.record(&Record::Checkpoint(*group, state.checkpoint()));
        }
        self.committed_dirty.clear();
        self.active.next_offset += checkpoint.len() as u64;
        let mark = FrameBuilder::new(self.place(), Vec::new());
        self.active.next_offset += mark.len() as u64;
        self.segments.insert(id, Segment::new(self.active.next_offset, false, &header));
        Begin { header, checkpoint, mark }
    }

    /// The footer of the active segment if it ended here.
    pub fn footer(&self) -> Footer {
        Footer {
            segment: self.active.id,
            frames_end: self.active.next_offset,
            first_seq: self.active.first_seq,
            last_seq: self.next_seq - 1,
            incarnation: self.incarnation,
            groups: self.active.groups.iter().map(|(group, range)| (*group, *range)).collect(),
        }
    }

    /// How long a frame that begins now may get.
    fn frame_len_max(&self) -> usize {
        let room = self.segment_bytes.saturating_sub(self.active.next_offset);
        usize::try_from(room).map_or(self.frame_bytes_max, |room| room.min(self.frame_bytes_max))
    }

    /// The frame that takes `bytes` more, if it can; else a new one, in a new segment if need be.
    fn frame(&mut self, bytes: usize) -> &mut FrameBuilder {
        let len_max = self.frame_len_max();
        if self.open.as_ref().is_some_and(|frame| frame.has_records() && frame.len() + bytes > len_max) {
            self.close_frame();
        }
        if self.open.is_none() {
            let needed = bytes + FRAME_HEADER_LEN;
            if self.active.frames > 0 && self.active.next_offset + needed as u64 > self.segment_bytes {
                let seal = self.footer();
                let begin = self.begin(self.active.id + 1);
                self.queue.push_back(Job::Roll(Box::new(Roll { seal, begin })));
            }
            self.active.frames += 1;
            let buffer = self.spare.pop().unwrap_or_default();
            let frame = FrameBuilder::new(self.place(), buffer);
            return self.open.insert(frame);
        }
        self.open.as_mut().expect("it is some")
    }

    fn close_frame(&mut self) {
        let Some(mut frame) = self.open.take() else { return };
        for group in std::mem::take(&mut self.committed_dirty) {
            if let Some(state) = self.groups.get(&group) {
                frame.record(&Record::Committed(group, state.committed));
            }
        }
        self.active.next_offset += frame.len() as u64;
        if let Some(segment) = self.segments.get_mut(&self.active.id) {
            segment.bytes = self.active.next_offset;
        }
        self.queue.push_back(Job::Frame(frame));
    }

    /// Everything that is to be written, in order. The frames stay readable in `in_flight`.
    pub fn take(&mut self) -> Vec<Work> {
        self.close_frame();
        let mut works = Vec::with_capacity(self.queue.len());
        for job in self.queue.drain(..) {
            works.push(match job {
                Job::Roll(roll) => Work::Roll(roll),
                Job::Call(answer) => Work::Call(answer),
                Job::Frame(frame) => {
                    let (frame, answers) = frame.finish(self.durable_seq);
                    let frame = Arc::new(frame);
                    self.in_flight.push(frame.clone());
                    Work::Frame(frame, answers)
                }
            });
        }
        works
    }

    /// Adds a record and gives the number of its frame.
    pub fn record(&mut self, record: &Record, bytes: usize) -> u64 {
        let frame = self.frame(bytes + ENTRY_OVERHEAD_MAX);
        frame.record(record);
        frame.frame.place.seq
    }

    /// `done` is called when everything so far is durable.
    pub fn on_durable(&mut self, done: Done) {
        self.answer(Answer { done, error: None });
    }

    /// `done` is called with an error, in its turn.
    pub fn refuse(&mut self, done: Done, error: LogError) {
        self.answer(Answer { done, error: Some(error) });
    }

    fn answer(&mut self, answer: Answer) {
        match &mut self.open {
            Some(frame) => frame.dones.push(answer),
            None => self.queue.push_back(Job::Call(answer)),
        }
    }

    /// Puts entries into frames; `crcs` are of their payloads. The caller has checked that they fit on.
    pub fn append(&mut self, id: GroupId, entries: Vec<Entry>, crcs: &[u32]) {
        let mut entries = entries.into_iter().zip(crcs.iter().copied()).peekable();
        if let Some((first, _)) = entries.peek() {
            let index = first.id.index;
            let seq = self.frame(first.payload.len() + ENTRY_OVERHEAD_MAX).frame.place.seq;
            self.cut(id, seq, |group, gone| group.truncate_from(index, gone));
        }
        let mut run: Vec<(Entry, u32)> = Vec::new();
        while let Some((first, crc)) = entries.next() {
            let mut bytes = self.frame(first.payload.len() + ENTRY_OVERHEAD_MAX).len();
            let len_max = self.frame_len_max();
            bytes += first.payload.len() + ENTRY_OVERHEAD_MAX;
            let (term, leader) = (first.id.term, first.id.leader);
            run.push((first, crc));
            while let Some((next, _)) = entries.peek() {
                bytes += next.payload.len() + ENTRY_OVERHEAD_MAX;
                if (next.id.term, next.id.leader) != (term, leader) || bytes > len_max {
                    break;
                }
                run.extend(entries.next());
            }
            self.append_run(id, &mut run);
        }
        self.evict();
    }

    /// Puts entries of one term into the open frame.
    fn append_run(&mut self, id: GroupId, run: &mut Vec<(Entry, u32)>) {
        let Some(frame) = &mut self.open else { unreachable!("append begins a frame first") };
        let Some((first, _)) = run.first() else { return };
        let (term, leader, index) = (first.id.term, first.id.leader, first.id.index);
        frame.begin_run(&RunStart { group: id, term, leader, index }, run.len());
        let (seq, segment) = (frame.frame.place.seq, frame.frame.place.segment);
        let group = self.groups.entry(id).or_default();
        let run_len = run.len();
        let (mut last, mut total, count) = (index, 0, run_len as u64);
        for (entry, crc) in run.drain(..) {
            let offset = frame.entry(entry.kind, &entry.payload, crc);
            let len = entry.payload.len();
            last = entry.id.index;
            total += len;
            self.cache_order.push_back((id, last, len));
            let at = Location { segment, offset, len: len as u32, crc, term, leader, kind: entry.kind };
            group.push(last, at, entry.payload);
        }
        group.pending.push_back((seq, last));
        self.cache_bytes += total + run_len * CACHE_OVERHEAD;
        self.queued_bytes += total;
        count_run(&mut self.active.groups, id, index, count, total as u64);
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.live += count;
        }
    }

    /// Changes a group by `change`, which reports each entry that it removes; `seq` is the frame that says so.
    pub fn cut<T>(
        &mut self,
        id: GroupId,
        seq: u64,
        change: impl FnOnce(&mut Group, &mut dyn FnMut(&Location)) -> T,
    ) -> T {
        let segments = &mut self.segments;
        let mut gone = |at: &Location| {
            if let Some(segment) = segments.get_mut(&at.segment) {
                segment.live -= 1;
                segment.dead_seq = seq;
            }
        };
        change(self.groups.entry(id).or_default(), &mut gone)
    }

    /// Forgets a group and its entries.
    pub fn remove_group(&mut self, id: GroupId, seq: u64) {
        self.cut(id, seq, |group, gone| group.truncate_from(0, gone));
        self.groups.remove(&id);
        self.committed_dirty.remove(&id);
        self.dropped.insert(id);
    }

    pub fn set_committed(&mut self, id: GroupId, committed: Option<undb_types::LogId>) {
        let group = self.groups.entry(id).or_default();
        if group.committed != committed {
            group.committed = committed;
            self.committed_dirty.insert(id);
        }
    }

    /// Puts what is saved lazily into a frame; true if there was something.
    pub fn write_lazy(&mut self) -> bool {
        if !self.committed_dirty.is_empty() {
            self.frame(ENTRY_OVERHEAD_MAX);
        }
        self.open.is_some()
    }

    /// Drops cached payloads over the budget, oldest first. Those that are not in a file yet can still be
    /// read from their frame.
    pub fn evict(&mut self) {
        while let Some((id, index, len)) = self.cache_order.front().copied() {
            let group = self.groups.get_mut(&id);
            // Replaced and purged entries have left their group's cache before.
            let cached = group.filter(|group| group.cached_from() == index && !group.cache.is_empty());
            if cached.is_some() && self.cache_bytes <= self.cache_bytes_max {
                break;
            }
            if let Some(group) = cached {
                group.cache.pop_front();
            }
            self.cache_order.pop_front();
            self.cache_bytes -= len + CACHE_OVERHEAD;
        }
    }

    /// Everything up to frame `seq` is synced; `frames` were in flight.
    pub fn synced(&mut self, seq: u64, frames: Vec<Arc<Frame>>) {
        self.durable_seq = self.durable_seq.max(seq);
        self.in_flight.retain(|frame| frame.place.seq > seq);
        for frame in frames {
            self.queued_bytes -= frame.payload_bytes;
            for id in &frame.groups {
                if let Some(group) = self.groups.get_mut(id) {
                    group.durable_through(seq);
                }
            }
            if let Ok(frame) = Arc::try_unwrap(frame)
                && self.spare.len() < SPARE_BUFFERS_MAX
                && frame.bytes.capacity() <= 2 * self.frame_bytes_max
            {
                self.spare.push(frame.bytes);
            }
        }
        self.evict();
    }

    /// Bytes that are not in a file yet.
    pub fn unwritten(&self, segment: u64, offset: u64, len: usize) -> Option<Bytes> {
        let queued = self.queue.iter().filter_map(|job| match job {
            Job::Frame(builder) => Some(&builder.frame),
            _ => None,
        });
        let in_flight = self.in_flight.iter().map(|frame| &**frame);
        let open = self.open.iter().map(|builder| &builder.frame);
        in_flight.chain(queued).chain(open).find_map(|frame| frame.slice(segment, offset, len))
    }
}
