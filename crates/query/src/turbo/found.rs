//! Rows as they are found: the splits in a drawn order, each row as soon as a thread has it.
//!
//! For a look at rows that may end before all of the input was read, and for finding the first few that there are
//! anywhere ([`Turbo::find`](super::Turbo)). The order of the rows is that in which threads happen to come upon them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::cores::ComputeTurn;
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_base::large_stack::RUN_STACK_BYTES;
use tidemill_base::progress::{RunProgress, ThreadCpuClock};
use tidemill_sql::IntoTidemillError;

use super::drawing::{Drawing, TICK};
use super::reading::{Reading, to_replace};
use super::runner::{GivenUp, ReadPart, Until, Why};
use super::shown::PartRead;
use super::tally::Tally;
use super::{Turbo, account_of};
use crate::map::Map;
use crate::rows::Limits;
use crate::scan::{Outcome, Scan, SoFar};

/// Rows of a map in the order in which they are found; an iterator of batches.
pub(crate) struct FoundRows {
    shared: Arc<Shared>,
    batches: Receiver<Message>,
    sender: SyncSender<Message>,
    turbo: Turbo,
    until: Until,
    /// Which of the rows are wanted.
    limits: Limits,
    /// What had been read of splits when the last of their rows that were taken was made; of those that have not landed.
    open: HashMap<usize, SoFar>,
    /// The split of the last rows, and what had been read of it.
    place: (usize, SoFar),
    why: Option<Why>,
}

enum Message {
    /// Rows of a split, with what has been read of it by then.
    Rows(RecordBatch, usize, SoFar),
    /// All rows of a split have been sent.
    Landed(usize, Option<Outcome>),
    /// A thread has ended.
    End(Result<()>),
}

struct Shared {
    map: Map,
    scan: Arc<Scan>,
    cancel: CancelFlag,
    enough: CancelFlag,
    progress: RunProgress,
    drawing: Drawing,
    /// Whether a number of rows is wanted: then what was looked at is counted, and otherwise whose rows were taken.
    is_find: bool,
    /// As in [`Finding`].
    patience: Option<Duration>,
    is_over: AtomicBool,
    state: Mutex<State>,
    began: Instant,
}

struct State {
    hands: Vec<Arc<Reading>>,
    /// Threads that have not ended.
    threads: usize,
    tally: Tally,
    /// What cannot be read, where somebody else judges that.
    failed: Vec<(usize, Error)>,
    /// Where rows are to be found: how far splits have been looked at that have not landed.
    looked: HashMap<usize, SoFar>,
}

/// How many batches wait to be taken.
const BATCHES_READY: usize = 4;

/// What a query's rows are found by.
pub(crate) struct Finding {
    pub map: Map,
    pub scan: Arc<Scan>,
    pub cancel: CancelFlag,
    pub enough: CancelFlag,
    pub progress: RunProgress,
    pub threads: usize,
    /// Of splits that somebody else has drawn: after so long with nothing new it ends without those that stall. What
    /// cannot be read is told, and judged elsewhere.
    pub patience: Option<Duration>,
}

impl FoundRows {
    /// Starts to read. `skip` rows are left out, then at most `fetch` are given.
    ///
    /// # Errors
    /// [`Error::Io`] where no thread can be started.
    pub(crate) fn start(
        finding: Finding,
        turbo: Turbo,
        (skip, fetch): (usize, Option<usize>),
    ) -> Result<Self> {
        let until = turbo.until();
        let drawing = match finding.patience {
            Some(_) => Drawing::given(&finding.scan),
            None => Drawing::new(&finding.scan, &until)?,
        };
        if drawing.in_order {
            // Whoever waits for the first rows has them as they come.
            finding.scan.set_eager();
        }
        let threads = finding.threads.clamp(1, drawing.count().max(1));
        let state = Mutex::new(State {
            hands: Vec::new(),
            threads: 0,
            tally: Tally::new(drawing.sizes.len()),
            failed: Vec::new(),
            looked: HashMap::new(),
        });
        let shared = Arc::new(Shared {
            map: finding.map,
            scan: finding.scan,
            cancel: finding.cancel,
            enough: finding.enough,
            progress: finding.progress,
            drawing,
            is_find: fetch.is_some() && finding.patience.is_none(),
            patience: finding.patience,
            is_over: AtomicBool::new(false),
            state,
            began: Instant::now(),
        });
        let (sender, batches) = sync_channel(BATCHES_READY);
        for _ in 0..threads {
            Shared::start_thread(&shared, &sender)?;
        }
        let open = HashMap::new();
        Ok(FoundRows {
            shared,
            batches,
            sender,
            turbo,
            until,
            limits: Limits { skip, left: fetch },
            open,
            place: (0, SoFar::default()),
            why: None,
        })
    }

    /// What was read, once it has ended.
    pub(crate) fn account(&self) -> Option<PartRead> {
        let why = self.why?;
        let state = self.shared.state.lock();
        let (mut given_up, mut in_flight) = (state.tally.given_up.clone(), Vec::new());
        for hand in &state.hands {
            let Some(split) = hand.split() else { continue };
            match hand.has_stalled() {
                true => given_up.push(GivenUp { split, error: None }),
                false => in_flight.push(split),
            }
        }
        // What is read in order counts as far as it was read; where rows were found, how much that is is known in rows.
        let is_read_on = self.shared.drawing.in_order && why != Why::Found;
        let bytes = match is_read_on {
            true => state.tally.bytes.max(self.shared.progress.bytes_done()),
            false => state.tally.bytes,
        };
        let sample = None;
        let left_out = self.shared.scan.source().skipped_files();
        let wrong_starts = 0;
        let read = ReadPart { why, sample, given_up, left_out, in_flight, wrong_starts, bytes };
        Some(account_of(&self.shared.scan, &self.turbo, &read))
    }

    /// The split of the last rows, and what had been read of it then.
    pub(crate) fn place(&self) -> (usize, SoFar) {
        self.place
    }

    /// Returns true if the run stopped because all wanted rows were found. Splits that were not read are not missing
    /// then.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.why == Some(Why::Found)
    }

    /// Returns the splits that were drawn and do not count, once the run has ended.
    pub(crate) fn unread(&self) -> Vec<usize> {
        let state = self.shared.state.lock();
        state.tally.open().map(|(split, _)| split).collect()
    }

    /// The splits that could not be read, where somebody else judges that.
    pub(crate) fn take_failed(&self) -> Vec<(usize, Error)> {
        std::mem::take(&mut self.shared.state.lock().failed)
    }

    fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.limits.are_reached() {
                return Ok(self.end(Why::Found));
            }
            self.shared.cancel.check()?;
            let mut patience = TICK;
            if let Some(ends_at) = self.until.ends_at {
                let left = ends_at.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(self.end(Why::Deadline));
                }
                patience = patience.min(left);
            }
            if self.shared.enough.is_cancelled() {
                return Ok(self.end(Why::Asked));
            }
            // A split counts once its rows are on their way.
            let enough = self.shared.is_enough(&self.until);
            let message = match enough {
                Some(why) => match self.batches.try_recv() {
                    Ok(message) => message,
                    Err(_) => return Ok(self.end(why)),
                },
                None => match self.batches.recv_timeout(patience) {
                    Ok(message) => message,
                    Err(_) => {
                        self.replace_stalled()?;
                        continue;
                    }
                },
            };
            match message {
                Message::End(ended) => ended?,
                Message::Landed(split, outcome) => {
                    self.open.remove(&split);
                    self.shared.land(split, outcome)?;
                }
                Message::Rows(batch, split, so_far) => {
                    self.place = (split, so_far);
                    if !self.shared.is_find {
                        self.open.insert(split, so_far);
                    }
                    if let Some(batch) = self.limits.take(&batch) {
                        return Ok(Some(batch));
                    }
                }
            }
        }
    }

    fn end(&mut self, why: Why) -> Option<RecordBatch> {
        self.why.get_or_insert(why);
        // From here on no thread counts what it looks at.
        let looked = {
            let shared = Arc::clone(&self.shared);
            let mut state = shared.state.lock();
            self.stop();
            std::mem::take(&mut state.looked)
        };
        let open = self.open.drain().chain(looked);
        open.for_each(|(_, so_far)| self.shared.scan.count_part(so_far));
        None
    }

    fn stop(&mut self) {
        if !self.shared.is_over.swap(true, Ordering::SeqCst) {
            self.shared.scan.stop();
        }
    }

    fn replace_stalled(&mut self) -> Result<()> {
        let sender = &self.sender;
        if self.shared.drawing.has_ended() {
            return Ok(());
        }
        let stalled = to_replace(self.shared.state.lock().hands.iter().map(AsRef::as_ref));
        (0..stalled).try_for_each(|_| Shared::start_thread(&self.shared, sender))
    }
}

impl Iterator for FoundRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.why.is_some() {
            return None;
        }
        let next = self.next_rows();
        if next.is_err() {
            self.stop();
        }
        next.transpose()
    }
}

impl Drop for FoundRows {
    fn drop(&mut self) {
        // Its threads are not waited for: one of them may never end.
        self.stop();
    }
}

/// Sends something; false where nobody takes it any more. One that has to wait for that lets others compute.
fn give(sender: &SyncSender<Message>, message: Message, turn: &mut ComputeTurn<'_>) -> bool {
    match sender.try_send(message) {
        Err(TrySendError::Full(message)) => {
            turn.release();
            sender.send(message).is_ok()
        }
        sent => sent.is_ok(),
    }
}

impl Shared {
    fn start_thread(shared: &Arc<Self>, sender: &SyncSender<Message>) -> Result<()> {
        let hand = Arc::new(Reading::new(shared.began));
        let worker = {
            let mut state = shared.state.lock();
            state.hands.push(Arc::clone(&hand));
            state.threads += 1;
            state.hands.len() - 1
        };
        let (own, sender) = (Arc::clone(shared), sender.clone());
        let started = std::thread::Builder::new()
            .name(format!("split-{worker}"))
            .stack_size(RUN_STACK_BYTES)
            .spawn(move || {
                let ended = catch_panic(|| own.take_splits(worker, &hand, &sender));
                hand.ends();
                own.state.lock().threads -= 1;
                if !own.is_over() {
                    // Whoever does not take it wants nothing any more.
                    let _ = sender.send(Message::End(ended));
                }
            });
        started.map(drop).map_err(|e| Error::Io {
            action: "start",
            path: "a thread".into(),
            source: e,
        })
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn is_stopped(&self) -> bool {
        self.is_over() || self.cancel.is_cancelled()
    }

    /// Whether enough was read, and why.
    fn is_enough(&self, until: &Until) -> Option<Why> {
        let state = self.state.lock();
        let enough = state.tally.enough(&self.drawing, until);
        enough.or_else(|| {
            let patience = self.patience?;
            // An open split that no thread is reading is about to count, or to be given up.
            let is_idle = |(split, worker): (usize, usize)| {
                let hand = state.hands.get(worker);
                hand.is_some_and(|hand| hand.split() == Some(split) && hand.idle() > patience)
            };
            let has_stalled = self.drawing.has_ended() && state.tally.open().all(is_idle);
            has_stalled.then_some(Why::Asked)
        })
    }

    /// Draws the next split for a thread, or returns `None` if none is left or the run is over. Drawing opens the split
    /// under the same lock, so that a thread that finds none left to draw finds this one open.
    fn draw(&self, worker: usize, hand: &Reading) -> Option<usize> {
        let mut state = self.state.lock();
        if self.is_over() {
            return None;
        }
        let index = self.drawing.next()?;
        hand.begins(index);
        state.tally.begin(index, worker);
        Some(index)
    }

    fn take_splits(
        &self,
        worker: usize,
        hand: &Reading,
        sender: &SyncSender<Message>,
    ) -> Result<()> {
        let mut turn = self.scan.turn();
        while !self.is_over() {
            if !turn.acquire(|| self.is_stopped() || self.drawing.has_ended()) {
                return Ok(());
            }
            let Some(index) = self.draw(worker, hand) else { return Ok(()) };
            let read = catch_panic(|| self.read(index, hand, sender, &mut turn));
            hand.ends();
            if let Err(error) = read {
                // Hold the lock: a split that is not recorded as failed before the run is over stays open.
                let state = &mut *self.state.lock();
                if self.is_over() {
                    return Ok(());
                }
                if self.patience.is_some() {
                    state.tally.give_up(GivenUp { split: index, error: None });
                    state.failed.push((index, error));
                } else {
                    self.drawing.give_up(index, error, &mut state.tally)?;
                }
            }
            if hand.is_replaced() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read(
        &self,
        index: usize,
        hand: &Reading,
        sender: &SyncSender<Message>,
        turn: &mut ComputeTurn<'_>,
    ) -> Result<()> {
        let mut clock = ThreadCpuClock::start();
        let map = self.progress.map_counters();
        // What is found is not looked at again: it begins where what stands before it says.
        let split = &self.scan.splits()[index];
        let source = self.scan.source();
        if let Some(start) = source.guess_start_from_before(split, &self.cancel)? {
            self.scan.set_exact_start(index, start);
        }
        let mut batches = self.map.rows(index)?;
        for batch in batches.by_ref() {
            map.add_thread_cpu(&mut clock);
            let batch = batch.into_tidemill_error()?;
            let so_far = self.scan.so_far(index);
            if !self.looks(index, so_far) {
                return Ok(());
            }
            hand.waits_for_others();
            // A row is waited for until it is taken, or nobody takes any more.
            let has_rows = batch.num_rows() > 0;
            if has_rows && !give(sender, Message::Rows(batch, index, so_far), turn) {
                return Ok(());
            }
            turn.acquire(|| self.is_stopped());
            hand.moves();
            self.cancel.check()?;
        }
        if self.is_over() {
            return Ok(());
        }
        drop(batches);
        self.scan.read_unasked(index)?;
        map.add_thread_cpu(&mut clock);
        let outcome = self.scan.outcome(index);
        hand.waits_for_others();
        if self.is_find {
            return self.land(index, outcome);
        }
        give(sender, Message::Landed(index, outcome), turn);
        Ok(())
    }

    /// Notes how far a split has been looked at, where that is what is counted; false once it is over.
    fn looks(&self, index: usize, so_far: SoFar) -> bool {
        if !self.is_find {
            return true;
        }
        let mut state = self.state.lock();
        // What is found after it is over is in nobody's account.
        if self.is_over() {
            return false;
        }
        state.looked.insert(index, so_far);
        true
    }

    /// Has a split count.
    fn land(&self, index: usize, outcome: Option<Outcome>) -> Result<()> {
        let mut state = self.state.lock();
        if self.is_find && self.is_over() {
            return Ok(());
        }
        // From here on all of it counts.
        state.looked.remove(&index);
        state.tally.land(&self.scan, index, self.drawing.sizes[index], outcome.as_ref());
        if let Some(outcome) = outcome {
            self.scan.take(index, 0, outcome)?;
        }
        Ok(())
    }
}
