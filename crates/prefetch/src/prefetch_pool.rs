//! What is fetched, in which order, and what memory it may take.
//!
//! ```text
//!              ┌ queue, in the order of being wanted┐
//!  claims ───► [ block ][ block ][ block ] ·········     a block starts when there is memory for it
//!                 │                                      and a free place among the requests
//!                 ▼                        ┌───────────► taken back, what has been read first, when a read
//!  reads ──► [ on its way ]··[ there ]──── ┴ dropped      that cannot wait needs the memory
//!            at once, whatever               with its last claim
//!            is in the queue
//! ```
//!
//! One lock guards the books of a pool: which blocks there are of which object, who claims them, what
//! waits. It is held for the length of some map operations, never while bytes are copied, awaited or
//! freed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::Options;
use crate::block_buffer::{BlockBuffer, BufferInlet, BufferWriter};
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::request_context::RequestContext;
use crate::stats::{ReadCounters, ReadStats};

/// So many requests for what may be wanted later are on their way at once …
pub(crate) const AHEAD_REQUESTS_MAX: usize = 64;
/// … for so many bytes, if these are more than one.
pub(crate) const AHEAD_BYTES_MAX: u64 = 192 << 20;
/// A block is at most this share of the memory: with fewer blocks at once nothing goes ahead.
pub(crate) const MEMORY_BLOCKS_MIN: u64 = 16;
/// The least that a block holds.
pub(crate) const BLOCK_BYTES_MIN: u64 = 64 << 10;
/// Of what is left to read there are at least so many blocks: whole ones would leave most connections without work
/// while the last few of them come.
const TAIL_BLOCKS_MIN: u64 = 16;
/// They are no smaller for that than this: a request has to be worth the wait for its first byte.
const TAIL_BLOCK_BYTES_MIN: u64 = 1 << 20;

/// What all readers of a process share: the memory for what is read ahead, and the order in which it
/// is fetched. Cloning shares it.
#[derive(Debug, Clone)]
pub struct PrefetchPool(pub(crate) Arc<PrefetchPoolState>);

#[derive(Debug)]
pub(crate) struct PrefetchPoolState {
    runtime: Handle,
    /// How many bytes there may be.
    limit_bytes: AtomicU64,
    /// How many there are: on their way, there, or still looked at by whoever was given them.
    used_bytes: AtomicU64,
    block_table: Mutex<BlockTable>,
    pub(crate) counters: Arc<ReadCounters>,
}

#[derive(Debug, Default)]
struct BlockTable {
    next_id: u64,
    blocks: HashMap<u64, PoolBlock>,
    /// Per object the blocks by their first byte; they do not overlap.
    block_ids_by_start: HashMap<u64, BTreeMap<u64, u64>>,
    /// Told and not started, by rank.
    queue: BTreeSet<(u64, u64)>,
    /// Started, by rank: those that nobody reads may be taken back.
    started: BTreeSet<(u64, u64)>,
    ahead_requests: usize,
    ahead_bytes: u64,
    /// Windows that are open, in the whole pool.
    open_windows: u64,
}

#[derive(Debug)]
struct PoolBlock {
    object: Arc<OpenedObject>,
    counters: Arc<ReadCounters>,
    range: Range<u64>,
    claim_count: usize,
    /// How many reads of it are going on, each of which has a claim, too.
    active_reads: usize,
    was_read: bool,
    /// When it will be wanted, in bytes that all readers will have read by then; what was claimed without a
    /// reader comes behind all that was claimed by one, in the order of being told.
    rank: u64,
    stage: BlockStage,
}

/// The rank of what no reader has come near to.
const UNREAD_RANK_BASE: u64 = 1 << 63;

#[derive(Debug)]
enum BlockStage {
    Queued,
    Started {
        buffer: Arc<BlockBuffer>,
        inlet: BufferInlet,
        ticket: Arc<RequestContext>,
        task: Option<AbortHandle>,
    },
}

/// One version of an object, whose blocks all of its readers share.
#[derive(Debug)]
pub struct OpenedObject {
    id: u64,
    pub(crate) origin: Arc<dyn Origin>,
    pub(crate) pool: PrefetchPool,
    pub(crate) options: Options,
    /// From how many past runs those were chosen.
    tuned_from_runs: u64,
}

/// How a range is claimed.
struct ClaimMode {
    /// What there is before this is claimed already.
    already_claimed_to: u64,
    /// By blocks of the object, or by itself.
    is_aligned: bool,
    /// So many bytes are going to be read from its beginning on, if that is known.
    remaining_bytes: Option<u64>,
    /// For a reader at this place …
    reader_offset: u64,
    /// … when all readers have read so much; none where no reader has come near.
    served_before: Option<u64>,
}

/// What is to be done once the lock is free.
#[derive(Default)]
struct DeferredActions {
    fetches: Vec<PendingFetch>,
    dropped_stages: Vec<BlockStage>,
    /// What is on its way or waits for its turn, and is wanted by now.
    awaited_request: Option<Arc<RequestContext>>,
}

struct PendingFetch {
    block_id: u64,
    origin: Arc<dyn Origin>,
    range: Range<u64>,
    writer: BufferWriter,
    context: Arc<RequestContext>,
    /// Whether it counts among the requests of what may be wanted later.
    is_ahead: bool,
}

/// Memory that is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    pool: Arc<PrefetchPoolState>,
    bytes: u64,
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.pool.used_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        self.pool.start_queued_blocks();
    }
}

/// A claim on a block: while there is one, the block stays.
#[derive(Debug, Clone)]
pub(crate) struct BlockClaim {
    block_id: u64,
    pub(crate) range: Range<u64>,
}

/// Blocks that are wanted, until it is dropped.
#[derive(Debug)]
pub struct BlockClaims {
    pool: Arc<PrefetchPoolState>,
    claims: Vec<BlockClaim>,
}

impl BlockClaims {
    /// How many bytes they are, as far as they reach.
    pub fn total_bytes(&self) -> u64 {
        self.claims.iter().map(|held| held.range.end - held.range.start).sum()
    }
}

impl Drop for BlockClaims {
    fn drop(&mut self) {
        self.pool.release_claims(self.claims.drain(..));
    }
}

impl PrefetchPool {
    /// One of so many bytes, whose requests run on this runtime.
    pub fn new(memory_bytes: u64, handle: Handle) -> PrefetchPool {
        PrefetchPool(Arc::new(PrefetchPoolState {
            runtime: handle,
            limit_bytes: AtomicU64::new(memory_bytes),
            used_bytes: AtomicU64::new(0),
            block_table: Mutex::default(),
            counters: Arc::default(),
        }))
    }

    /// How many bytes there may be from now on. What is beyond them goes as it is read.
    pub fn set_memory_bytes(&self, bytes: u64) {
        self.0.limit_bytes.store(bytes, Ordering::SeqCst);
        self.0.start_queued_blocks();
    }

    /// How many bytes there may be.
    pub fn memory_bytes(&self) -> u64 {
        self.0.limit_bytes.load(Ordering::SeqCst)
    }

    /// How many bytes there are.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::SeqCst)
    }

    /// What all of its readers did.
    pub fn stats(&self) -> ReadStats {
        self.0.counters.snapshot()
    }

    /// One version of an object, to be read through this pool.
    pub fn open_object(&self, origin: Arc<dyn Origin>, options: Options) -> Arc<OpenedObject> {
        self.open_tuned_object(origin, options, 0)
    }

    /// The same; the options were [chosen](crate::tuner) from so many past runs, which its statistics say.
    pub fn open_tuned_object(
        &self,
        origin: Arc<dyn Origin>,
        options: Options,
        past_runs: u64,
    ) -> Arc<OpenedObject> {
        let id = self.0.block_table.lock().next_block_id();
        let opened =
            OpenedObject { id, origin, pool: self.clone(), options, tuned_from_runs: past_runs };
        opened.record_settings(&self.0.counters);
        Arc::new(opened)
    }
}

impl OpenedObject {
    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.origin.size()
    }

    /// How it is read.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Tells whoever counts how it is read.
    pub(crate) fn record_settings(&self, counters: &ReadCounters) {
        counters.record_settings(
            self.block_bytes(),
            self.window_bytes_max(1),
            self.tuned_from_runs,
        );
    }

    /// The size of its blocks, memory being what it is.
    pub fn block_bytes(&self) -> u64 {
        let most = (self.pool.memory_bytes() / MEMORY_BLOCKS_MIN).max(BLOCK_BYTES_MIN);
        // The largest power of two up to that.
        self.options.block_bytes.min(1 << most.ilog2()).max(1)
    }

    /// What is left to read from a place on, where so many windows share the line: what one of them reads of it ends
    /// where another one begins, or here.
    pub(crate) fn remaining_bytes(&self, at: u64, windows: u64) -> u64 {
        self.size().saturating_sub(at).saturating_mul(windows.max(1))
    }

    /// The size of the blocks where so many bytes are left to read: towards the end they are halved.
    fn tail_block_bytes(&self, left: u64) -> u64 {
        let mut bytes = self.block_bytes();
        while bytes / 2 >= TAIL_BLOCK_BYTES_MIN && left < bytes.saturating_mul(TAIL_BLOCKS_MIN) {
            bytes /= 2;
        }
        bytes
    }

    /// How far a window may reach, memory and the other windows being what they are.
    pub fn window_bytes_max(&self, windows: u64) -> u64 {
        self.options.window_bytes.min(self.pool.memory_bytes() / windows.max(1))
    }

    /// Tells of ranges that will be read, in this order: they are fetched as soon as there is room,
    /// each with exactly its bytes, and stay until the claim is dropped.
    pub fn prefetch_ranges(self: &Arc<Self>, ranges: &[Range<u64>]) -> BlockClaims {
        self.prefetch_ranges_counted(ranges, &self.pool.0.counters)
    }

    /// The same; what is fetched is counted there too.
    pub(crate) fn prefetch_ranges_counted(
        self: &Arc<Self>,
        ranges: &[Range<u64>],
        counters: &Arc<ReadCounters>,
    ) -> BlockClaims {
        let mut held = Vec::new();
        for range in ranges {
            held.append(&mut self.claim_range(range.clone(), false, false, None, counters));
        }
        BlockClaims { pool: Arc::clone(&self.pool.0), claims: held }
    }

    /// The same of one range, by whole blocks: up to the end of the one that it ends in. So many bytes are left
    /// to read from its beginning on, here and elsewhere: the last blocks are smaller.
    pub fn prefetch_blocks(self: &Arc<Self>, range: Range<u64>, left: u64) -> BlockClaims {
        let bytes = self.tail_block_bytes(left.saturating_sub(range.end - range.start));
        let range = range.start..range.end.div_ceil(bytes).saturating_mul(bytes);
        let held = self.claim_range(range, true, false, Some(left), &self.pool.0.counters);
        BlockClaims { pool: Arc::clone(&self.pool.0), claims: held }
    }

    pub(crate) fn claim_range(
        self: &Arc<Self>,
        range: Range<u64>,
        aligned: bool,
        soon: bool,
        left: Option<u64>,
        counters: &Arc<ReadCounters>,
    ) -> Vec<BlockClaim> {
        let range = range.start..range.end.min(self.size());
        let mut held = Vec::new();
        let read = soon.then(|| self.pool.0.counters.served_bytes.load(Ordering::Relaxed));
        let how = ClaimMode {
            already_claimed_to: 0,
            is_aligned: aligned,
            remaining_bytes: left,
            reader_offset: range.start,
            served_before: read,
        };
        self.pool.0.block_table.lock().claim_blocks(self, range, &how, counters, &mut held);
        self.pool.0.start_queued_blocks();
        held
    }
}

/// What a read found.
pub(crate) struct DemandedBlock {
    pub(crate) buffer: Arc<BlockBuffer>,
    /// Where in the buffer the byte is.
    pub(crate) buffer_offset: u64,
    /// The claim of the read itself.
    pub(crate) claim: BlockClaim,
}

impl PrefetchPoolState {
    /// The block with the byte at `at`, on its way or there; where there is none, one of `bytes`. Blocks of
    /// the range in `ahead` are claimed first, those before `known_to` where they have been taken back.
    pub(crate) fn demand_block(
        self: &Arc<Self>,
        object: &Arc<OpenedObject>,
        at: u64,
        bytes: u64,
        counters: &Arc<ReadCounters>,
        released: &mut Vec<BlockClaim>,
        ahead: Option<(Range<u64>, u64, &mut Vec<BlockClaim>)>,
    ) -> DemandedBlock {
        let mut after = DeferredActions::default();
        let found = {
            let mut books = self.block_table.lock();
            for held in released.drain(..) {
                books.release_claim(&held, &mut after);
            }
            if let Some((range, known_to, held)) = ahead {
                let read = Some(self.counters.served_bytes.load(Ordering::Relaxed));
                let left = Some(object.remaining_bytes(range.start, books.open_windows));
                let how = ClaimMode {
                    already_claimed_to: known_to,
                    is_aligned: true,
                    remaining_bytes: left,
                    reader_offset: at,
                    served_before: read,
                };
                books.claim_blocks(object, range, &how, counters, held);
            }
            books.find_or_start_block(self, object, at, bytes, counters, &mut after)
        };
        self.run_deferred(after);
        self.start_queued_blocks();
        found
    }

    pub(crate) fn release_claims(self: &Arc<Self>, held: impl Iterator<Item = BlockClaim>) {
        let mut after = DeferredActions::default();
        {
            let mut books = self.block_table.lock();
            held.for_each(|held| books.release_claim(&held, &mut after));
        }
        self.run_deferred(after);
    }

    /// Ends a read, and its claim.
    pub(crate) fn finish_read(self: &Arc<Self>, held: &BlockClaim) {
        let mut after = DeferredActions::default();
        {
            let mut books = self.block_table.lock();
            if let Some(block) = books.blocks.get_mut(&held.block_id) {
                block.active_reads -= 1;
            }
            books.release_claim(held, &mut after);
        }
        self.run_deferred(after);
    }

    pub(crate) fn open_windows(&self) -> u64 {
        self.block_table.lock().open_windows
    }

    pub(crate) fn count_opened_window(&self) {
        self.block_table.lock().open_windows += 1;
    }

    pub(crate) fn count_closed_window(&self) {
        self.block_table.lock().open_windows -= 1;
    }

    /// So many bytes of the memory, if they are left and an eighth of it besides, for what cannot wait.
    fn reserve_ahead_memory(self: &Arc<Self>, bytes: u64) -> Option<MemoryReservation> {
        let limit = self.limit_bytes.load(Ordering::SeqCst);
        let limit = limit - limit / 8;
        let more = |used: u64| Some(used + bytes).filter(|total| *total <= limit);
        let taken = self.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.ok().map(|_| MemoryReservation { pool: Arc::clone(self), bytes })
    }

    /// Starts what there is room for.
    fn start_queued_blocks(self: &Arc<Self>) {
        let mut after = DeferredActions::default();
        {
            let mut books = self.block_table.lock();
            while let Some((rank, id)) = books.queue.first().copied() {
                let Some(bytes) = books.blocks.get(&id).map(PoolBlock::bytes) else {
                    books.queue.remove(&(rank, id));
                    continue;
                };
                let is_full = books.ahead_requests >= AHEAD_REQUESTS_MAX
                    || (books.ahead_requests > 0 && books.ahead_bytes + bytes > AHEAD_BYTES_MAX);
                if is_full {
                    break;
                }
                let Some(share) = self.reserve_ahead_memory(bytes) else { break };
                books.ahead_requests += 1;
                books.ahead_bytes += bytes;
                books.start_block(self, id, share, true, &mut after);
            }
        }
        self.run_deferred(after);
    }

    /// What the lock must not be held for.
    fn run_deferred(self: &Arc<Self>, after: DeferredActions) {
        // Before what is launched takes the memory.
        for stage in after.dropped_stages {
            if let BlockStage::Started { inlet, task, .. } = stage {
                task.inspect(AbortHandle::abort);
                inlet.close();
            }
        }
        if let Some(ticket) = after.awaited_request {
            ticket.mark_awaited();
        }
        for launch in after.fetches {
            let PendingFetch { block_id: id, origin, range, mut writer, context: ticket, is_ahead } =
                launch;
            let flight =
                AheadSlot { pool: Arc::clone(self), bytes: range.end - range.start, is_ahead };
            let task = self.runtime.spawn(async move {
                let flight = flight;
                let result = ticket.run_within(origin.fetch(range, &mut writer)).await;
                writer.finish(result);
                drop(writer);
                drop(flight);
            });
            let mut books = self.block_table.lock();
            match books.blocks.get_mut(&id) {
                Some(PoolBlock { stage: BlockStage::Started { task: known, .. }, .. }) => {
                    *known = Some(task.abort_handle());
                }
                // Nobody wants it any more.
                _ => task.abort(),
            }
        }
    }
}

/// A request among those that are on their way.
struct AheadSlot {
    pool: Arc<PrefetchPoolState>,
    bytes: u64,
    is_ahead: bool,
}

impl Drop for AheadSlot {
    fn drop(&mut self) {
        if self.is_ahead {
            {
                let mut books = self.pool.block_table.lock();
                books.ahead_requests -= 1;
                books.ahead_bytes -= self.bytes;
            }
            self.pool.start_queued_blocks();
        }
    }
}

impl PoolBlock {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// What it is kept for; none where taking it back would give no memory.
    fn eviction_class(&self) -> Option<EvictionClass> {
        let BlockStage::Started { buffer, .. } = &self.stage else { return None };
        if self.active_reads > 0 || buffer.is_referenced() {
            return None;
        }
        Some(match self.was_read {
            _ if buffer.is_fully_served() => EvictionClass::FullyRead,
            true => EvictionClass::PartlyRead,
            false => EvictionClass::Unread,
        })
    }
}

/// What a block is kept for; of the greatest the memory is taken first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionClass {
    /// Somebody has read some of it, and goes on there.
    PartlyRead,
    /// Nobody has come to it.
    Unread,
    /// As many bytes were read as it has: whoever comes back to it fetches it again.
    FullyRead,
}

impl BlockTable {
    fn next_block_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The block with a byte.
    fn block_at(&self, object: &OpenedObject, at: u64) -> Option<u64> {
        let (_, id) = self.block_ids_by_start.get(&object.id)?.range(..=at).next_back()?;
        self.blocks.get(id).filter(|block| at < block.range.end).map(|_| *id)
    }

    /// Where the first block behind a byte begins.
    fn next_block_start(&self, object: &OpenedObject, at: u64) -> Option<u64> {
        let (start, _) = self.block_ids_by_start.get(&object.id)?.range(at + 1..).next()?;
        Some(*start)
    }

    fn add_block(
        &mut self,
        object: &Arc<OpenedObject>,
        range: Range<u64>,
        counters: &Arc<ReadCounters>,
    ) -> u64 {
        let id = self.next_block_id();
        self.block_ids_by_start.entry(object.id).or_default().insert(range.start, id);
        let (object, counters) = (Arc::clone(object), Arc::clone(counters));
        let stage = BlockStage::Queued;
        let rank = UNREAD_RANK_BASE + id;
        let block = PoolBlock {
            object,
            counters,
            range,
            claim_count: 0,
            active_reads: 0,
            was_read: false,
            rank,
            stage,
        };
        self.blocks.insert(id, block);
        id
    }

    /// Claims the blocks of a range; those that are missing are queued. What there is before `known_to`
    /// is claimed already.
    fn claim_blocks(
        &mut self,
        object: &Arc<OpenedObject>,
        range: Range<u64>,
        how: &ClaimMode,
        counters: &Arc<ReadCounters>,
        held: &mut Vec<BlockClaim>,
    ) {
        let mut at = range.start;
        while at < range.end {
            if at < how.already_claimed_to
                && let Some(block) = self.block_at(object, at).and_then(|id| self.blocks.get(&id))
            {
                at = block.range.end;
                continue;
            }
            let id = self.block_at(object, at).unwrap_or_else(|| {
                let left = how.remaining_bytes.map(|left| left.saturating_sub(at - range.start));
                let bytes = left.map_or(object.block_bytes(), |left| object.tail_block_bytes(left));
                let cut = if how.is_aligned { (at / bytes + 1) * bytes } else { at + bytes };
                // The last one of the smaller ones takes a sliver with it.
                let is_last =
                    bytes < object.block_bytes() && object.size().saturating_sub(cut) < bytes / 4;
                let cut = if is_last { object.size() } else { cut };
                let next = self.next_block_start(object, at).unwrap_or(u64::MAX);
                let id = self.add_block(object, at..cut.min(next).min(range.end), counters);
                self.queue.insert((UNREAD_RANK_BASE + id, id));
                id
            });
            if let Some(read) = how.served_before {
                // Readers share what is read until then.
                let distance =
                    at.saturating_sub(how.reader_offset).saturating_mul(self.open_windows.max(1));
                self.lower_rank(id, read.saturating_add(distance).min(UNREAD_RANK_BASE - 1));
            }
            let Some(block) = self.blocks.get_mut(&id) else { return };
            block.claim_count += 1;
            held.push(BlockClaim { block_id: id, range: block.range.clone() });
            at = block.range.end;
        }
    }

    /// Gives a block a lower rank, if it is one.
    fn lower_rank(&mut self, id: u64, rank: u64) {
        let Some(block) = self.blocks.get_mut(&id).filter(|block| rank < block.rank) else {
            return;
        };
        let before = std::mem::replace(&mut block.rank, rank);
        if let BlockStage::Started { ticket, .. } = &block.stage {
            ticket.lower_rank(rank + 1);
        }
        for set in [&mut self.queue, &mut self.started] {
            if set.remove(&(before, id)) {
                set.insert((rank, id));
            }
        }
    }

    fn release_claim(&mut self, held: &BlockClaim, after: &mut DeferredActions) {
        let Some(block) = self.blocks.get_mut(&held.block_id) else { return };
        block.claim_count -= 1;
        if block.claim_count == 0 {
            self.remove_block(held.block_id, after);
        }
    }

    fn remove_block(&mut self, id: u64, after: &mut DeferredActions) {
        let Some(block) = self.blocks.remove(&id) else { return };
        self.queue.remove(&(block.rank, id));
        self.started.remove(&(block.rank, id));
        if let Some(starts) = self.block_ids_by_start.get_mut(&block.object.id) {
            starts.remove(&block.range.start);
            if starts.is_empty() {
                self.block_ids_by_start.remove(&block.object.id);
            }
        }
        after.dropped_stages.push(block.stage);
    }

    fn find_or_start_block(
        &mut self,
        shared: &Arc<PrefetchPoolState>,
        object: &Arc<OpenedObject>,
        at: u64,
        bytes: u64,
        counters: &Arc<ReadCounters>,
        after: &mut DeferredActions,
    ) -> DemandedBlock {
        let mut known = self.block_at(object, at);
        if let Some(id) = known
            && let Some(PoolBlock { stage: BlockStage::Started { buffer, .. }, .. }) =
                self.blocks.get(&id)
            && buffer.has_failed()
        {
            // Nobody waited for it: it is asked for once more, by whoever wants it now.
            self.remove_block(id, after);
            known = None;
        }
        let id = known.unwrap_or_else(|| {
            let next = self.next_block_start(object, at).unwrap_or(u64::MAX);
            let end = at.saturating_add(bytes).min(next).min(object.size());
            self.add_block(object, at..end, counters)
        });
        if let Some(PoolBlock { stage: BlockStage::Queued, range, rank, .. }) = self.blocks.get(&id)
        {
            let bytes = range.end - range.start;
            self.queue.remove(&(*rank, id));
            let share = self.reserve_demand_memory(shared, bytes, after);
            self.start_block(shared, id, share, false, after);
        }
        let Some(block) = self.blocks.get_mut(&id) else { unreachable!("the block of a read") };
        block.claim_count += 1;
        block.active_reads += 1;
        block.was_read = true;
        let BlockStage::Started { buffer, ticket, .. } = &block.stage else {
            unreachable!("the block of a read has been started")
        };
        after.awaited_request = (ticket.rank() > 0).then(|| Arc::clone(ticket));
        let (skip, range) = (at - block.range.start, block.range.clone());
        DemandedBlock {
            buffer: Arc::clone(buffer),
            buffer_offset: skip,
            claim: BlockClaim { block_id: id, range },
        }
    }

    /// Memory for a read that cannot wait: for it are taken back blocks that were read to their end, and then
    /// what is wanted last. What is being read stays, and what whoever was given it still looks at.
    fn reserve_demand_memory(
        &mut self,
        shared: &Arc<PrefetchPoolState>,
        bytes: u64,
        after: &mut DeferredActions,
    ) -> MemoryReservation {
        let limit = shared.limit_bytes.load(Ordering::SeqCst);
        let used = shared.used_bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let mut over = used.saturating_sub(limit);
        let mut may_go = Vec::new();
        if over > 0 {
            may_go.extend(self.started.iter().filter_map(|(rank, id)| {
                let block = self.blocks.get(id)?;
                Some((block.eviction_class()?, *rank, *id, block.bytes()))
            }));
            // The last one goes first.
            may_go.sort_unstable();
        }
        while over > 0 {
            let Some((_, _, id, bytes)) = may_go.pop() else { break };
            over = over.saturating_sub(bytes);
            if let Some(block) = self.blocks.get(&id) {
                for counters in ReadCounters::reader_and_pool(&block.counters, &shared.counters) {
                    counters.evicted_blocks.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.remove_block(id, after);
        }
        MemoryReservation { pool: Arc::clone(shared), bytes }
    }

    fn start_block(
        &mut self,
        shared: &Arc<PrefetchPoolState>,
        id: u64,
        share: MemoryReservation,
        is_ahead: bool,
        after: &mut DeferredActions,
    ) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        self.queue.remove(&(block.rank, id));
        self.started.insert((block.rank, id));
        let counters = ReadCounters::reader_and_pool(&block.counters, &shared.counters);
        let length = usize::try_from(block.bytes()).unwrap_or(usize::MAX);
        // Behind what somebody waits for.
        let ticket =
            RequestContext::new(if is_ahead { block.rank + 1 } else { 0 }, counters.clone());
        let (buffer, writer) = BlockBuffer::new(length, share, counters);
        let inlet = writer.inlet();
        block.stage =
            BlockStage::Started { buffer, inlet, ticket: Arc::clone(&ticket), task: None };
        let (origin, range) = (Arc::clone(&block.object.origin), block.range.clone());
        after.fetches.push(PendingFetch {
            block_id: id,
            origin,
            range,
            writer,
            context: ticket,
            is_ahead,
        });
    }
}

/// Refuses options that make no sense.
pub(crate) fn check_options(options: &Options) -> Result<()> {
    let refused =
        |message: String, hint: &str| Err(Error::InvalidOption { message, hint: hint.into() });
    if options.block_bytes < BLOCK_BYTES_MIN {
        return refused(
            format!("a block of {} bytes is too small", options.block_bytes),
            "each is a request: at least 64 KiB, and 8 MiB by default",
        );
    }
    if options.window_bytes < options.block_bytes {
        return refused(
            format!(
                "a window of {} bytes holds no block of {}",
                options.window_bytes, options.block_bytes
            ),
            "a window is some blocks, 256 MiB by default",
        );
    }
    if options.memory_bytes < MEMORY_BLOCKS_MIN * BLOCK_BYTES_MIN {
        return refused(
            format!("{} bytes are too few to read ahead", options.memory_bytes),
            "at least 1 MiB",
        );
    }
    Ok(())
}
