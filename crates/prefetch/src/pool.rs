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
use crate::buffer::{Buffer, Inlet, Writer};
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::stats::{Counters, Stats};
use crate::ticket::Ticket;

/// So many requests for what may be wanted later are on their way at once …
pub(crate) const FLYING_MAX: usize = 64;
/// … for so many bytes, if these are more than one.
pub(crate) const FLYING_BYTES_MAX: u64 = 192 << 20;
/// A block is at most this share of the memory: with fewer blocks at once nothing goes ahead.
pub(crate) const BLOCKS_MIN: u64 = 16;
/// The least that a block holds.
pub(crate) const BLOCK_BYTES_MIN: u64 = 64 << 10;
/// Of what is left to read there are at least so many blocks: whole ones would leave most connections without work
/// while the last few of them come.
const LAST_BLOCKS: u64 = 16;
/// They are no smaller for that than this: a request has to be worth the wait for its first byte.
const LAST_BLOCK_BYTES_MIN: u64 = 1 << 20;

/// What all readers of a process share: the memory for what is read ahead, and the order in which it
/// is fetched. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Pool(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    handle: Handle,
    /// How many bytes there may be.
    limit: AtomicU64,
    /// How many there are: on their way, there, or still looked at by whoever was given them.
    used: AtomicU64,
    books: Mutex<Books>,
    pub(crate) counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Books {
    next_id: u64,
    blocks: HashMap<u64, Block>,
    /// Per object the blocks by their first byte; they do not overlap.
    objects: HashMap<u64, BTreeMap<u64, u64>>,
    /// Told and not started, by rank.
    queue: BTreeSet<(u64, u64)>,
    /// Started, by rank: those that nobody reads may be taken back.
    started: BTreeSet<(u64, u64)>,
    flying: usize,
    flying_bytes: u64,
    /// Windows that are open, in the whole pool.
    windows: u64,
}

#[derive(Debug)]
struct Block {
    object: Arc<Opened>,
    counters: Arc<Counters>,
    range: Range<u64>,
    claims: usize,
    /// How many reads of it are going on, each of which has a claim, too.
    reads: usize,
    was_read: bool,
    /// When it will be wanted, in bytes that all readers will have read by then; what was claimed without a
    /// reader comes behind all that was claimed by one, in the order of being told.
    rank: u64,
    stage: Stage,
}

/// The rank of what no reader has come near to.
const FAR: u64 = 1 << 63;

#[derive(Debug)]
enum Stage {
    Queued,
    Started { buffer: Arc<Buffer>, inlet: Inlet, ticket: Arc<Ticket>, task: Option<AbortHandle> },
}

/// One version of an object, whose blocks all of its readers share.
#[derive(Debug)]
pub struct Opened {
    id: u64,
    pub(crate) origin: Arc<dyn Origin>,
    pub(crate) pool: Pool,
    pub(crate) options: Options,
    /// From how many past runs those were chosen.
    past_runs: u64,
}

/// How a range is claimed.
struct How {
    /// What there is before this is claimed already.
    known_to: u64,
    /// By blocks of the object, or by itself.
    aligned: bool,
    /// So many bytes are going to be read from its beginning on, if that is known.
    left: Option<u64>,
    /// For a reader at this place …
    from: u64,
    /// … when all readers have read so much; none where no reader has come near.
    read: Option<u64>,
}

/// What is to be done once the lock is free.
#[derive(Default)]
struct After {
    launches: Vec<Launch>,
    dropped: Vec<Stage>,
    /// What is on its way or waits for its turn, and is wanted by now.
    wanted: Option<Arc<Ticket>>,
}

struct Launch {
    id: u64,
    origin: Arc<dyn Origin>,
    range: Range<u64>,
    writer: Writer,
    ticket: Arc<Ticket>,
    /// Whether it counts among the requests of what may be wanted later.
    is_ahead: bool,
}

/// Memory that is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shared.used.fetch_sub(self.bytes, Ordering::SeqCst);
        self.shared.pump();
    }
}

/// A claim on a block: while there is one, the block stays.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    id: u64,
    pub(crate) range: Range<u64>,
}

/// Blocks that are wanted, until it is dropped.
#[derive(Debug)]
pub struct Claims {
    shared: Arc<Shared>,
    held: Vec<Held>,
}

impl Claims {
    /// How many bytes they are, as far as they reach.
    pub fn bytes(&self) -> u64 {
        self.held.iter().map(|held| held.range.end - held.range.start).sum()
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.shared.release(self.held.drain(..));
    }
}

impl Pool {
    /// One of so many bytes, whose requests run on this runtime.
    pub fn new(memory_bytes: u64, handle: Handle) -> Pool {
        Pool(Arc::new(Shared {
            handle,
            limit: AtomicU64::new(memory_bytes),
            used: AtomicU64::new(0),
            books: Mutex::default(),
            counters: Arc::default(),
        }))
    }

    /// How many bytes there may be from now on. What is beyond them goes as it is read.
    pub fn set_memory_bytes(&self, bytes: u64) {
        self.0.limit.store(bytes, Ordering::SeqCst);
        self.0.pump();
    }

    /// How many bytes there may be.
    pub fn memory_bytes(&self) -> u64 {
        self.0.limit.load(Ordering::SeqCst)
    }

    /// How many bytes there are.
    pub fn used_bytes(&self) -> u64 {
        self.0.used.load(Ordering::SeqCst)
    }

    /// What all of its readers did.
    pub fn stats(&self) -> Stats {
        self.0.counters.stats()
    }

    /// One version of an object, to be read through this pool.
    pub fn open(&self, origin: Arc<dyn Origin>, options: Options) -> Arc<Opened> {
        self.open_chosen(origin, options, 0)
    }

    /// The same; the options were [chosen](crate::tuner) from so many past runs, which its statistics say.
    pub fn open_chosen(
        &self,
        origin: Arc<dyn Origin>,
        options: Options,
        past_runs: u64,
    ) -> Arc<Opened> {
        let id = self.0.books.lock().new_id();
        let opened = Opened { id, origin, pool: self.clone(), options, past_runs };
        opened.tell(&self.0.counters);
        Arc::new(opened)
    }
}

impl Opened {
    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.origin.size()
    }

    /// How it is read.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Tells whoever counts how it is read.
    pub(crate) fn tell(&self, counters: &Counters) {
        counters.read_by(self.block_bytes(), self.window_bytes(1), self.past_runs);
    }

    /// The size of its blocks, memory being what it is.
    pub fn block_bytes(&self) -> u64 {
        let most = (self.pool.memory_bytes() / BLOCKS_MIN).max(BLOCK_BYTES_MIN);
        // The largest power of two up to that.
        self.options.block_bytes.min(1 << most.ilog2()).max(1)
    }

    /// What is left to read from a place on, where so many windows share the line: what one of them reads of it ends
    /// where another one begins, or here.
    pub(crate) fn left(&self, at: u64, windows: u64) -> u64 {
        self.size().saturating_sub(at).saturating_mul(windows.max(1))
    }

    /// The size of the blocks where so many bytes are left to read: towards the end they are halved.
    fn block_bytes_of(&self, left: u64) -> u64 {
        let mut bytes = self.block_bytes();
        while bytes / 2 >= LAST_BLOCK_BYTES_MIN && left < bytes.saturating_mul(LAST_BLOCKS) {
            bytes /= 2;
        }
        bytes
    }

    /// How far a window may reach, memory and the other windows being what they are.
    pub fn window_bytes(&self, windows: u64) -> u64 {
        self.options.window_bytes.min(self.pool.memory_bytes() / windows.max(1))
    }

    /// Tells of ranges that will be read, in this order: they are fetched as soon as there is room,
    /// each with exactly its bytes, and stay until the claim is dropped.
    pub fn claim(self: &Arc<Self>, ranges: &[Range<u64>]) -> Claims {
        self.claim_for(ranges, &self.pool.0.counters)
    }

    /// The same; what is fetched is counted there too.
    pub(crate) fn claim_for(
        self: &Arc<Self>,
        ranges: &[Range<u64>],
        counters: &Arc<Counters>,
    ) -> Claims {
        let mut held = Vec::new();
        for range in ranges {
            held.append(&mut self.claimed(range.clone(), false, false, None, counters));
        }
        Claims { shared: Arc::clone(&self.pool.0), held }
    }

    /// The same of one range, by whole blocks: up to the end of the one that it ends in. So many bytes are left
    /// to read from its beginning on, here and elsewhere: the last blocks are smaller.
    pub fn claim_blocks(self: &Arc<Self>, range: Range<u64>, left: u64) -> Claims {
        let bytes = self.block_bytes_of(left.saturating_sub(range.end - range.start));
        let range = range.start..range.end.div_ceil(bytes).saturating_mul(bytes);
        let held = self.claimed(range, true, false, Some(left), &self.pool.0.counters);
        Claims { shared: Arc::clone(&self.pool.0), held }
    }

    pub(crate) fn claimed(
        self: &Arc<Self>,
        range: Range<u64>,
        aligned: bool,
        soon: bool,
        left: Option<u64>,
        counters: &Arc<Counters>,
    ) -> Vec<Held> {
        let range = range.start..range.end.min(self.size());
        let mut held = Vec::new();
        let read = soon.then(|| self.pool.0.counters.asked_bytes.load(Ordering::Relaxed));
        let how = How { known_to: 0, aligned, left, from: range.start, read };
        self.pool.0.books.lock().cover(self, range, &how, counters, &mut held);
        self.pool.0.pump();
        held
    }
}

/// What a read found.
pub(crate) struct Found {
    pub(crate) buffer: Arc<Buffer>,
    /// Where in the buffer the byte is.
    pub(crate) skip: u64,
    /// The claim of the read itself.
    pub(crate) held: Held,
}

impl Shared {
    /// The block with the byte at `at`, on its way or there; where there is none, one of `bytes`. Blocks of
    /// the range in `ahead` are claimed first, those before `known_to` where they have been taken back.
    pub(crate) fn demand(
        self: &Arc<Self>,
        object: &Arc<Opened>,
        at: u64,
        bytes: u64,
        counters: &Arc<Counters>,
        released: &mut Vec<Held>,
        ahead: Option<(Range<u64>, u64, &mut Vec<Held>)>,
    ) -> Found {
        let mut after = After::default();
        let found = {
            let mut books = self.books.lock();
            for held in released.drain(..) {
                books.release(&held, &mut after);
            }
            if let Some((range, known_to, held)) = ahead {
                let read = Some(self.counters.asked_bytes.load(Ordering::Relaxed));
                let left = Some(object.left(range.start, books.windows));
                let how = How { known_to, aligned: true, left, from: at, read };
                books.cover(object, range, &how, counters, held);
            }
            books.find(self, object, at, bytes, counters, &mut after)
        };
        self.finish(after);
        self.pump();
        found
    }

    pub(crate) fn release(self: &Arc<Self>, held: impl Iterator<Item = Held>) {
        let mut after = After::default();
        {
            let mut books = self.books.lock();
            held.for_each(|held| books.release(&held, &mut after));
        }
        self.finish(after);
    }

    /// Ends a read, and its claim.
    pub(crate) fn was_read(self: &Arc<Self>, held: &Held) {
        let mut after = After::default();
        {
            let mut books = self.books.lock();
            if let Some(block) = books.blocks.get_mut(&held.id) {
                block.reads -= 1;
            }
            books.release(held, &mut after);
        }
        self.finish(after);
    }

    pub(crate) fn windows(&self) -> u64 {
        self.books.lock().windows
    }

    pub(crate) fn window_opened(&self) {
        self.books.lock().windows += 1;
    }

    pub(crate) fn window_closed(&self) {
        self.books.lock().windows -= 1;
    }

    /// So many bytes of the memory, if they are left and an eighth of it besides, for what cannot wait.
    fn take(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        let limit = self.limit.load(Ordering::SeqCst);
        let limit = limit - limit / 8;
        let more = |used: u64| Some(used + bytes).filter(|total| *total <= limit);
        let taken = self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.ok().map(|_| Share { shared: Arc::clone(self), bytes })
    }

    /// Starts what there is room for.
    fn pump(self: &Arc<Self>) {
        let mut after = After::default();
        {
            let mut books = self.books.lock();
            while let Some((rank, id)) = books.queue.first().copied() {
                let Some(bytes) = books.blocks.get(&id).map(Block::bytes) else {
                    books.queue.remove(&(rank, id));
                    continue;
                };
                let is_full = books.flying >= FLYING_MAX
                    || (books.flying > 0 && books.flying_bytes + bytes > FLYING_BYTES_MAX);
                if is_full {
                    break;
                }
                let Some(share) = self.take(bytes) else { break };
                books.flying += 1;
                books.flying_bytes += bytes;
                books.start(self, id, share, true, &mut after);
            }
        }
        self.finish(after);
    }

    /// What the lock must not be held for.
    fn finish(self: &Arc<Self>, after: After) {
        // Before what is launched takes the memory.
        for stage in after.dropped {
            if let Stage::Started { inlet, task, .. } = stage {
                task.inspect(AbortHandle::abort);
                inlet.close();
            }
        }
        if let Some(ticket) = after.wanted {
            ticket.wanted();
        }
        for launch in after.launches {
            let Launch { id, origin, range, mut writer, ticket, is_ahead } = launch;
            let flight =
                Flight { shared: Arc::clone(self), bytes: range.end - range.start, is_ahead };
            let task = self.handle.spawn(async move {
                let flight = flight;
                let result = ticket.spend(origin.fetch(range, &mut writer)).await;
                writer.finish(result);
                drop(writer);
                drop(flight);
            });
            let mut books = self.books.lock();
            match books.blocks.get_mut(&id) {
                Some(Block { stage: Stage::Started { task: known, .. }, .. }) => {
                    *known = Some(task.abort_handle());
                }
                // Nobody wants it any more.
                _ => task.abort(),
            }
        }
    }
}

/// A request among those that are on their way.
struct Flight {
    shared: Arc<Shared>,
    bytes: u64,
    is_ahead: bool,
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.is_ahead {
            {
                let mut books = self.shared.books.lock();
                books.flying -= 1;
                books.flying_bytes -= self.bytes;
            }
            self.shared.pump();
        }
    }
}

impl Block {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// What it is kept for; none where taking it back would give no memory.
    fn worth(&self) -> Option<Worth> {
        let Stage::Started { buffer, .. } = &self.stage else { return None };
        if self.reads > 0 || buffer.is_looked_at() {
            return None;
        }
        Some(match self.was_read {
            _ if buffer.is_read_out() => Worth::ReadOut,
            true => Worth::Begun,
            false => Worth::Ahead,
        })
    }
}

/// What a block is kept for; of the greatest the memory is taken first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// Somebody has read some of it, and goes on there.
    Begun,
    /// Nobody has come to it.
    Ahead,
    /// As many bytes were read as it has: whoever comes back to it fetches it again.
    ReadOut,
}

impl Books {
    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The block with a byte.
    fn at(&self, object: &Opened, at: u64) -> Option<u64> {
        let (_, id) = self.objects.get(&object.id)?.range(..=at).next_back()?;
        self.blocks.get(id).filter(|block| at < block.range.end).map(|_| *id)
    }

    /// Where the first block behind a byte begins.
    fn next_start(&self, object: &Opened, at: u64) -> Option<u64> {
        let (start, _) = self.objects.get(&object.id)?.range(at + 1..).next()?;
        Some(*start)
    }

    fn add(&mut self, object: &Arc<Opened>, range: Range<u64>, counters: &Arc<Counters>) -> u64 {
        let id = self.new_id();
        self.objects.entry(object.id).or_default().insert(range.start, id);
        let (object, counters) = (Arc::clone(object), Arc::clone(counters));
        let stage = Stage::Queued;
        let rank = FAR + id;
        let block =
            Block { object, counters, range, claims: 0, reads: 0, was_read: false, rank, stage };
        self.blocks.insert(id, block);
        id
    }

    /// Claims the blocks of a range; those that are missing are queued. What there is before `known_to`
    /// is claimed already.
    fn cover(
        &mut self,
        object: &Arc<Opened>,
        range: Range<u64>,
        how: &How,
        counters: &Arc<Counters>,
        held: &mut Vec<Held>,
    ) {
        let mut at = range.start;
        while at < range.end {
            if at < how.known_to
                && let Some(block) = self.at(object, at).and_then(|id| self.blocks.get(&id))
            {
                at = block.range.end;
                continue;
            }
            let id = self.at(object, at).unwrap_or_else(|| {
                let left = how.left.map(|left| left.saturating_sub(at - range.start));
                let bytes = left.map_or(object.block_bytes(), |left| object.block_bytes_of(left));
                let cut = if how.aligned { (at / bytes + 1) * bytes } else { at + bytes };
                // The last one of the smaller ones takes a sliver with it.
                let is_last =
                    bytes < object.block_bytes() && object.size().saturating_sub(cut) < bytes / 4;
                let cut = if is_last { object.size() } else { cut };
                let next = self.next_start(object, at).unwrap_or(u64::MAX);
                let id = self.add(object, at..cut.min(next).min(range.end), counters);
                self.queue.insert((FAR + id, id));
                id
            });
            if let Some(read) = how.read {
                // Readers share what is read until then.
                let distance = at.saturating_sub(how.from).saturating_mul(self.windows.max(1));
                self.nearer(id, read.saturating_add(distance).min(FAR - 1));
            }
            let Some(block) = self.blocks.get_mut(&id) else { return };
            block.claims += 1;
            held.push(Held { id, range: block.range.clone() });
            at = block.range.end;
        }
    }

    /// Gives a block a lower rank, if it is one.
    fn nearer(&mut self, id: u64, rank: u64) {
        let Some(block) = self.blocks.get_mut(&id).filter(|block| rank < block.rank) else {
            return;
        };
        let before = std::mem::replace(&mut block.rank, rank);
        if let Stage::Started { ticket, .. } = &block.stage {
            ticket.nearer(rank + 1);
        }
        for set in [&mut self.queue, &mut self.started] {
            if set.remove(&(before, id)) {
                set.insert((rank, id));
            }
        }
    }

    fn release(&mut self, held: &Held, after: &mut After) {
        let Some(block) = self.blocks.get_mut(&held.id) else { return };
        block.claims -= 1;
        if block.claims == 0 {
            self.remove(held.id, after);
        }
    }

    fn remove(&mut self, id: u64, after: &mut After) {
        let Some(block) = self.blocks.remove(&id) else { return };
        self.queue.remove(&(block.rank, id));
        self.started.remove(&(block.rank, id));
        if let Some(starts) = self.objects.get_mut(&block.object.id) {
            starts.remove(&block.range.start);
            if starts.is_empty() {
                self.objects.remove(&block.object.id);
            }
        }
        after.dropped.push(block.stage);
    }

    fn find(
        &mut self,
        shared: &Arc<Shared>,
        object: &Arc<Opened>,
        at: u64,
        bytes: u64,
        counters: &Arc<Counters>,
        after: &mut After,
    ) -> Found {
        let mut known = self.at(object, at);
        if let Some(id) = known
            && let Some(Block { stage: Stage::Started { buffer, .. }, .. }) = self.blocks.get(&id)
            && buffer.has_failed()
        {
            // Nobody waited for it: it is asked for once more, by whoever wants it now.
            self.remove(id, after);
            known = None;
        }
        let id = known.unwrap_or_else(|| {
            let next = self.next_start(object, at).unwrap_or(u64::MAX);
            let end = at.saturating_add(bytes).min(next).min(object.size());
            self.add(object, at..end, counters)
        });
        if let Some(Block { stage: Stage::Queued, range, rank, .. }) = self.blocks.get(&id) {
            let bytes = range.end - range.start;
            self.queue.remove(&(*rank, id));
            let share = self.make_room(shared, bytes, after);
            self.start(shared, id, share, false, after);
        }
        let Some(block) = self.blocks.get_mut(&id) else { unreachable!("the block of a read") };
        block.claims += 1;
        block.reads += 1;
        block.was_read = true;
        let Stage::Started { buffer, ticket, .. } = &block.stage else {
            unreachable!("the block of a read has been started")
        };
        after.wanted = (ticket.rank() > 0).then(|| Arc::clone(ticket));
        let (skip, range) = (at - block.range.start, block.range.clone());
        Found { buffer: Arc::clone(buffer), skip, held: Held { id, range } }
    }

    /// Memory for a read that cannot wait: for it are taken back blocks that were read to their end, and then
    /// what is wanted last. What is being read stays, and what whoever was given it still looks at.
    fn make_room(&mut self, shared: &Arc<Shared>, bytes: u64, after: &mut After) -> Share {
        let limit = shared.limit.load(Ordering::SeqCst);
        let used = shared.used.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let mut over = used.saturating_sub(limit);
        let mut may_go = Vec::new();
        if over > 0 {
            may_go.extend(self.started.iter().filter_map(|(rank, id)| {
                let block = self.blocks.get(id)?;
                Some((block.worth()?, *rank, *id, block.bytes()))
            }));
            // The last one goes first.
            may_go.sort_unstable();
        }
        while over > 0 {
            let Some((_, _, id, bytes)) = may_go.pop() else { break };
            over = over.saturating_sub(bytes);
            if let Some(block) = self.blocks.get(&id) {
                for counters in Counters::of(&block.counters, &shared.counters) {
                    counters.taken_back.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.remove(id, after);
        }
        Share { shared: Arc::clone(shared), bytes }
    }

    fn start(
        &mut self,
        shared: &Arc<Shared>,
        id: u64,
        share: Share,
        is_ahead: bool,
        after: &mut After,
    ) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        self.queue.remove(&(block.rank, id));
        self.started.insert((block.rank, id));
        let counters = Counters::of(&block.counters, &shared.counters);
        let length = usize::try_from(block.bytes()).unwrap_or(usize::MAX);
        // Behind what somebody waits for.
        let ticket = Ticket::new(if is_ahead { block.rank + 1 } else { 0 }, counters.clone());
        let (buffer, writer) = Buffer::new(length, share, counters);
        let inlet = writer.inlet();
        block.stage = Stage::Started { buffer, inlet, ticket: Arc::clone(&ticket), task: None };
        let (origin, range) = (Arc::clone(&block.object.origin), block.range.clone());
        after.launches.push(Launch { id, origin, range, writer, ticket, is_ahead });
    }
}

/// Refuses options that make no sense.
pub(crate) fn check(options: &Options) -> Result<()> {
    let refused = |message: String, hint: &str| Err(Error::Option { message, hint: hint.into() });
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
    if options.memory_bytes < BLOCKS_MIN * BLOCK_BYTES_MIN {
        return refused(
            format!("{} bytes are too few to read ahead", options.memory_bytes),
            "at least 1 MiB",
        );
    }
    Ok(())
}
