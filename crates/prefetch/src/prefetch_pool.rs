//! The pool of prefetched blocks: fetch order, memory budget and eviction.
//!
//! ```text
//!              ┌ queue, in the order of need ───────┐
//!  claims ───► [ block ][ block ][ block ] ·········     a block starts when there is memory for it
//!                 │                                      and a free slot among the requests
//!                 ▼                        ┌───────────► evicted, fully read blocks first, when a read
//!  reads ──► [ in flight ]··[ fetched ]─── ┴ dropped      that cannot wait needs the memory
//!            at once, regardless             with the last claim
//!            of the queue
//! ```
//!
//! One lock guards the block table of a pool: the blocks of each object, their claims and the queue. The lock
//! is held for some map operations, never while bytes are copied, awaited or freed.

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

/// Maximum number of concurrent requests for blocks that no reader waits for yet.
pub(crate) const AHEAD_REQUESTS_MAX: usize = 64;
/// Maximum bytes in flight for such blocks, unless a single block has more.
pub(crate) const AHEAD_BYTES_MAX: u64 = 192 << 20;
/// Minimum number of blocks that fit the memory: with fewer concurrent blocks nothing is fetched ahead.
pub(crate) const MEMORY_BLOCKS_MIN: u64 = 16;
/// Minimum size of a block.
pub(crate) const BLOCK_BYTES_MIN: u64 = 64 << 10;
/// Minimum number of blocks for the rest of a read: whole blocks would leave most connections idle while
/// the last few arrive.
const TAIL_BLOCKS_MIN: u64 = 16;
/// Minimum size of these smaller blocks: a request must be worth the latency of its first byte.
const TAIL_BLOCK_BYTES_MIN: u64 = 1 << 20;

/// The memory and the fetch order that all readers of a process share. Clones share the pool.
#[derive(Debug, Clone)]
pub struct PrefetchPool(pub(crate) Arc<PrefetchPoolState>);

#[derive(Debug)]
pub(crate) struct PrefetchPoolState {
    runtime: Handle,
    /// Memory limit in bytes.
    limit_bytes: AtomicU64,
    /// Bytes of blocks in flight, of fetched blocks and of blocks that callers still hold.
    used_bytes: AtomicU64,
    block_table: Mutex<BlockTable>,
    pub(crate) counters: Arc<ReadCounters>,
}

#[derive(Debug, Default)]
struct BlockTable {
    next_id: u64,
    blocks: HashMap<u64, PoolBlock>,
    /// Block ids by first byte, for each object. Blocks do not overlap.
    block_ids_by_start: HashMap<u64, BTreeMap<u64, u64>>,
    /// Claimed blocks that have not started, by rank.
    queue: BTreeSet<(u64, u64)>,
    /// Started blocks, by rank. Those that nobody reads may be evicted.
    started: BTreeSet<(u64, u64)>,
    ahead_requests: usize,
    ahead_bytes: u64,
    /// Open windows of all readers of the pool.
    open_windows: u64,
}

#[derive(Debug)]
struct PoolBlock {
    object: Arc<OpenedObject>,
    counters: Arc<ReadCounters>,
    range: Range<u64>,
    claim_count: usize,
    /// Active reads of the block; each of them has a claim, too.
    active_reads: usize,
    was_read: bool,
    /// Order of need, as the number of bytes that all readers will have read by then. Blocks claimed without
    /// a reader rank behind all those claimed by one, in the order of the claims.
    rank: u64,
    stage: BlockStage,
}

/// Rank of the first block that no reader is near.
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
    /// Number of past runs that the options were tuned from.
    tuned_from_runs: u64,
}

/// The way in which a range is claimed.
struct ClaimMode {
    /// Existing blocks before this offset are claimed already.
    already_claimed_to: u64,
    /// True if blocks are aligned to the object, false if they start with the range.
    is_aligned: bool,
    /// Bytes that will be read from the start of the range on, if known.
    remaining_bytes: Option<u64>,
    /// Offset of the reader that claims the range.
    reader_offset: u64,
    /// Bytes that all readers have read so far; `None` if no reader is near the range.
    served_before: Option<u64>,
}

/// Actions that run after the lock is released.
#[derive(Default)]
struct DeferredActions {
    fetches: Vec<PendingFetch>,
    dropped_stages: Vec<BlockStage>,
    /// Request in flight, or waiting for a slot, that a reader waits for now.
    awaited_request: Option<Arc<RequestContext>>,
}

struct PendingFetch {
    block_id: u64,
    origin: Arc<dyn Origin>,
    range: Range<u64>,
    writer: BufferWriter,
    context: Arc<RequestContext>,
    /// True if it counts among the requests that no reader waits for yet.
    is_ahead: bool,
}

/// A reservation of pool memory, released when dropped.
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

/// A claim on one block. The block stays as long as it has a claim.
#[derive(Debug, Clone)]
pub(crate) struct BlockClaim {
    block_id: u64,
    pub(crate) range: Range<u64>,
}

/// Claims on blocks, released when dropped.
#[derive(Debug)]
pub struct BlockClaims {
    pool: Arc<PrefetchPoolState>,
    claims: Vec<BlockClaim>,
}

impl BlockClaims {
    /// Returns the total size of the claimed blocks.
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
    /// Creates a pool with this memory limit, whose requests run on this runtime.
    pub fn new(memory_bytes: u64, handle: Handle) -> PrefetchPool {
        PrefetchPool(Arc::new(PrefetchPoolState {
            runtime: handle,
            limit_bytes: AtomicU64::new(memory_bytes),
            used_bytes: AtomicU64::new(0),
            block_table: Mutex::default(),
            counters: Arc::default(),
        }))
    }

    /// Sets the memory limit. Blocks beyond it are freed as they are read.
    pub fn set_memory_bytes(&self, bytes: u64) {
        self.0.limit_bytes.store(bytes, Ordering::SeqCst);
        self.0.start_queued_blocks();
    }

    /// Returns the memory limit.
    pub fn memory_bytes(&self) -> u64 {
        self.0.limit_bytes.load(Ordering::SeqCst)
    }

    /// Returns the bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::SeqCst)
    }

    /// Returns the totals of all readers of the pool.
    pub fn stats(&self) -> ReadStats {
        self.0.counters.snapshot()
    }

    /// Opens one version of an object for reading through this pool.
    pub fn open_object(&self, origin: Arc<dyn Origin>, options: Options) -> Arc<OpenedObject> {
        self.open_tuned_object(origin, options, 0)
    }

    /// As [`open_object`](Self::open_object), with options [tuned](crate::tuner) from `past_runs` runs, which
    /// the statistics report.
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
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.origin.size()
    }

    /// Returns the options that it is read with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Records the current block and window sizes in counters.
    pub(crate) fn record_settings(&self, counters: &ReadCounters) {
        counters.record_settings(
            self.block_bytes(),
            self.window_bytes_max(1),
            self.tuned_from_runs,
        );
    }

    /// Returns the block size that the memory allows.
    pub fn block_bytes(&self) -> u64 {
        let most = (self.pool.memory_bytes() / MEMORY_BLOCKS_MIN).max(BLOCK_BYTES_MIN);
        // The largest power of two up to this.
        self.options.block_bytes.min(1 << most.ilog2()).max(1)
    }

    /// Returns the bytes left to read from an offset on if `windows` windows share the line. A window ends
    /// where another one begins, or at the end of the object.
    pub(crate) fn remaining_bytes(&self, at: u64, windows: u64) -> u64 {
        self.size().saturating_sub(at).saturating_mul(windows.max(1))
    }

    /// Returns the block size for `left` remaining bytes: halved towards the end.
    fn tail_block_bytes(&self, left: u64) -> u64 {
        let mut bytes = self.block_bytes();
        while bytes / 2 >= TAIL_BLOCK_BYTES_MIN && left < bytes.saturating_mul(TAIL_BLOCKS_MIN) {
            bytes /= 2;
        }
        bytes
    }

    /// Returns the maximum size of a window, as memory and the other windows allow.
    pub fn window_bytes_max(&self, windows: u64) -> u64 {
        self.options.window_bytes.min(self.pool.memory_bytes() / windows.max(1))
    }

    /// Announces ranges that will be read, in this order. The pool fetches them as soon as there is memory,
    /// each with exactly its bytes, and keeps them until the claims are dropped.
    pub fn prefetch_ranges(self: &Arc<Self>, ranges: &[Range<u64>]) -> BlockClaims {
        self.prefetch_ranges_counted(ranges, &self.pool.0.counters)
    }

    /// As [`prefetch_ranges`](Self::prefetch_ranges); the fetched bytes count in `counters`, too.
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

    /// Announces one range, fetched by whole blocks up to the end of its last block. `left` are the bytes to
    /// read from its start on, here and in other objects: the last blocks of them are smaller.
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

/// The block of a demanded read.
pub(crate) struct DemandedBlock {
    pub(crate) buffer: Arc<BlockBuffer>,
    /// Offset of the read's first byte in the buffer.
    pub(crate) buffer_offset: u64,
    /// Claim of the read itself.
    pub(crate) claim: BlockClaim,
}

impl PrefetchPoolState {
    /// Returns the block with the byte at `at`, in flight or fetched. If there is none, starts one of
    /// `bytes`. First claims the blocks of the range in `ahead`; those before `known_to` only if they have
    /// been evicted.
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

    /// Ends a read and releases its claim.
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

    /// Reserves memory if an eighth of the limit stays free, which is for reads that cannot wait.
    fn reserve_ahead_memory(self: &Arc<Self>, bytes: u64) -> Option<MemoryReservation> {
        let limit = self.limit_bytes.load(Ordering::SeqCst);
        let limit = limit - limit / 8;
        let more = |used: u64| Some(used + bytes).filter(|total| *total <= limit);
        let taken = self.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.ok().map(|_| MemoryReservation { pool: Arc::clone(self), bytes })
    }

    /// Starts queued blocks as long as memory and slots last.
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

    /// Runs actions that must not hold the lock.
    fn run_deferred(self: &Arc<Self>, after: DeferredActions) {
        // Before the new fetches take the memory.
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
                // Nobody needs the block any more.
                _ => task.abort(),
            }
        }
    }
}

/// A slot among the requests that no reader waits for yet; freed when dropped.
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

    /// Returns the eviction class; `None` if eviction would free no memory.
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

/// Classes of blocks in ascending order of eviction: the greatest is evicted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionClass {
    /// A reader has read some of it and continues there.
    PartlyRead,
    /// No reader has reached it.
    Unread,
    /// Readers have read as many bytes as it has; a reader that returns to it fetches it again.
    FullyRead,
}

impl BlockTable {
    fn next_block_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns the block with a byte.
    fn block_at(&self, object: &OpenedObject, at: u64) -> Option<u64> {
        let (_, id) = self.block_ids_by_start.get(&object.id)?.range(..=at).next_back()?;
        self.blocks.get(id).filter(|block| at < block.range.end).map(|_| *id)
    }

    /// Returns the start of the first block behind a byte.
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

    /// Claims the blocks of a range and queues the missing ones. Existing blocks before
    /// `already_claimed_to` have their claim already.
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
                // The last of the smaller blocks includes a sliver at the end.
                let is_last =
                    bytes < object.block_bytes() && object.size().saturating_sub(cut) < bytes / 4;
                let cut = if is_last { object.size() } else { cut };
                let next = self.next_block_start(object, at).unwrap_or(u64::MAX);
                let id = self.add_block(object, at..cut.min(next).min(range.end), counters);
                self.queue.insert((UNREAD_RANK_BASE + id, id));
                id
            });
            if let Some(read) = how.served_before {
                // All readers share the line until then.
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

    /// Gives a block a lower rank, if `rank` is lower.
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
            // Nobody waited for the failed block: the reader that needs it now requests it again.
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

    /// Reserves memory for a read that cannot wait. Evicts fully read blocks first, then those with the
    /// latest need. Blocks that are being read, or that callers still hold, stay.
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
            // The last one is evicted first.
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
        // Behind the blocks that readers wait for.
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

/// Checks the limits of the options.
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
