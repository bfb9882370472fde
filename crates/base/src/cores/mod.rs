//! Which of the runs on this machine computes: priorities, and turns among equals.
//!
//! There is a token per core of the machine, shared by all runs with the same state folder. A worker takes its
//! [`Turn`] before it begins a split, and looks again between splits, and between the batches of one, whether it may
//! go on. A run of a higher priority that waits gets every token at the next look; one of the same priority gets those
//! that were held for a [slice](SLICE), first come, first served, which ends in equal shares; one of a lower priority gets
//! what is not used. A run that waits stands still with its memory; so does one of priority low as long as higher ones have
//! use for all cores.
//!
//! **Alone, a turn is nearly free.** A run that was given a token keeps it from split to split: a look reads one word
//! of the run's own memory, and asks the kernel nothing. A thread per run, the keeper, asks every ten milliseconds whether
//! others wait, and sets that word. Measured on two cores of 2.6 GHz in a virtual machine that other work kept busy:
//!
//! | | |
//! | --- | --- |
//! | the first turn of a run whose file is open | 6 to 16 µs of processor time |
//! | a look while nobody waits, or somebody of a lower priority | 1.3 to 1.8 ns |
//! | a look while another run of the same priority waits | 31 to 36 ns |
//! | a rest and the next turn, alone | 49 ns |
//! | the keeper of a run alone | 0.3 % of a core |
//! | a run of two threads that stands still behind a higher priority | 0.3 to 0.4 % of a core |
//! | a run of high priority until its first token, others of splits of 20 µs: median, 90th and 100th of a hundred | 4, 10, 24 ms; 4, 10, 18 ms |
//! | two runs of two threads at once: what each got of the cores | 0.57 and 0.58; 0.48 and 0.51 |
//!
//! Other ways to wait were worse. A page of shared memory with counters and a futex would spare the keeper its looks, but
//! counts of killed processes stay, and a full disk under a mapped file ends a run by SIGBUS. A
//! file's time of change says that somebody came, never that he was killed. Locks vanish with who held them.
//!
//! **Nothing waits for ever.** A thread that does not compute (it waits for a pipe, a network, another split, its
//! consumer) keeps no token: the keeper looks at the processor time of each thread with a turn once somebody waits, and takes back the
//! turns of those that used hardly any and sleep; they ask anew when they go on. So a run never keeps others from what it
//! waits for itself. Of a stopped process (Ctrl-Z) nobody can take tokens away: its keeper does not
//! write its beat any more, and who waits goes on without those tokens. Neither is anybody waited for who
//! does not take a token that is free.
//!
//! A run that holds the tokens of all cores is alone, so that its threads beyond the cores (`--threads`) are not
//! held back until others come. Where there is no state folder, or its locks are no use (network file systems are shared by
//! machines), there are no turns. Users have state folders of their own, and do not share cores this way.

#[cfg(test)]
mod tests;
mod token_locks;

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use self::token_locks::{QueueTicket, TOKENS_MAX, TokenLocks, queue_range};
use crate::error::{Error, Result};
use crate::state_folder::StateFolder;
use crate::suggestions::{format_name_list, nearest_candidate};

/// The environment variable that stands between `--priority` and a job file's `priority`.
pub const PRIORITY_ENV_VAR: &str = "TIDEMILL_PRIORITY";

/// After how long a token goes to another run of the same priority.
pub const TURN_SLICE: Duration = Duration::from_millis(100);

/// How often a run with tokens looks whether others wait.
const HOLDER_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How often a run that waits asks, and how often once it has stood still behind a higher priority for a while.
const WAITER_POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];

/// Over how long a thread is looked at that may be waiting for something.
const IDLE_MEASUREMENT_WINDOW: Duration = Duration::from_millis(20);

/// How long tokens that nobody wants are kept.
const UNUSED_TOKEN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a free token is left for whoever is first in the queue.
const FREE_TOKEN_CLAIM_TIMEOUT: Duration = Duration::from_millis(500);

/// For how long who did not take it is passed over.
const PASS_OVER_DURATION: Duration = Duration::from_secs(10);

/// How often a run that others wait for says that it lives …
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// … and after what silence it passes for stopped.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a thread that waits looks whether its run has ended.
const WAIT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long the keeper of a run without tokens sleeps, unless it is woken.
const KEEPER_IDLE_SLEEP: Duration = Duration::from_secs(3600);

/// Which runs go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Only what others leave.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Before all others.
    High,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
        })
    }
}

impl FromStr for Priority {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim() {
            "high" => Ok(Priority::High),
            "normal" => Ok(Priority::Normal),
            "low" => Ok(Priority::Low),
            other => {
                let known = ["high", "normal", "low"];
                let meant = nearest_candidate(other, known)
                    .map(|meant| format!("; did you mean `{meant}`?"));
                let meant = meant.unwrap_or_default();
                let known = format_name_list(&known);
                Err(Error::usage(format!(
                    "`{other}` is not a priority{meant}\npriorities: {known}"
                )))
            }
        }
    }
}

/// A run's part in the sharing of cores; cloning shares it.
#[derive(Debug, Clone)]
pub struct CoreSharing {
    lazy_pool: Arc<LazyTokenPool>,
}

#[derive(Debug)]
struct LazyTokenPool {
    priority: Priority,
    pool: OnceLock<Option<Arc<TokenPool>>>,
}

impl CoreSharing {
    /// A run's part, in the state folder as it is found when the first split is begun; without one, which is not made, and where that
    /// folder is no use for it, the run has no turns.
    pub fn new(priority: Priority) -> Self {
        CoreSharing { lazy_pool: Arc::new(LazyTokenPool { priority, pool: OnceLock::new() }) }
    }

    /// The same, with all that it needs opened at once: for a priority that somebody asked for.
    ///
    /// # Errors
    /// Where the state folder's files cannot be written or locked.
    pub fn open(home: &StateFolder, priority: Priority) -> io::Result<Self> {
        CoreSharing::open_in(&home.path().join("cores"), priority, core_count())
    }

    fn open_in(folder: &Path, priority: Priority, cores: usize) -> io::Result<Self> {
        let run = TokenPool::open(folder, priority, cores)?;
        let opened = CoreSharing::new(priority);
        opened.lazy_pool.pool.get_or_init(|| Some(run));
        Ok(opened)
    }

    /// Its priority.
    pub fn priority(&self) -> Priority {
        self.lazy_pool.priority
    }

    fn token_pool(&self) -> Option<&TokenPool> {
        let open = || {
            // A look leaves nothing behind: the folder is made by whoever keeps a record of a run there.
            let home = StateFolder::locate().ok().filter(|home| home.path().is_dir())?;
            let folder = home.path().join("cores");
            TokenPool::open(&folder, self.lazy_pool.priority, core_count()).ok()
        };
        self.lazy_pool.pool.get_or_init(open).as_deref()
    }
}

/// As many as this process may use, so that two runs of one container share what it has.
fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A thread's leave to compute, which it has or waits for; dropped, it is somebody else's.
///
/// It is used by the thread that computes: what that one uses of the processor shows whether the turn is used.
#[derive(Debug)]
pub struct ComputeTurn<'a> {
    pool: Option<&'a TokenPool>,
    /// Its place among the run's turns; none while it rests.
    slot: Option<usize>,
}

impl<'a> ComputeTurn<'a> {
    /// A turn that has not been taken. Without cores to share it is always one's turn.
    pub fn new(cores: Option<&'a CoreSharing>) -> Self {
        ComputeTurn { pool: cores.and_then(CoreSharing::token_pool), slot: None }
    }

    /// Takes the turn, or goes on with it: waits while others go first. False where the wait ended because
    /// `is_over` said so, which is asked some times a second; the turn rests then. It is asked under a lock, and should look at
    /// flags only.
    ///
    /// To be called between splits, and between the batches of a split where no lock is held that another thread of the run may want.
    /// About a nanosecond for a turn that one has while nobody waits.
    pub fn acquire(&mut self, is_over: impl Fn() -> bool) -> bool {
        let Some(run) = self.pool else { return true };
        if let Some(place) = self.slot {
            if !run.must_recheck.load(Ordering::Relaxed) || run.keep_turn_or_yield(place) {
                return true;
            }
            self.slot = None;
        }
        self.slot = run.wait_for_turn(is_over);
        self.slot.is_some()
    }

    /// Lets others have it, until it is taken again: before a wait for another thread.
    pub fn release(&mut self) {
        if let (Some(run), Some(place)) = (self.pool, self.slot.take()) {
            run.end_turn(place);
        }
    }
}

impl Drop for ComputeTurn<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

/// Who waits outside of the run, the most urgent of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum OutsideWaiter {
    #[default]
    Nobody,
    Lower,
    Equal,
    Higher,
}

#[derive(Debug)]
struct TokenPool {
    priority: Priority,
    locks: TokenLocks,
    /// How many tokens there are.
    token_count: usize,
    /// Whether who has a turn must look closer.
    must_recheck: AtomicBool,
    state: Mutex<TokenPoolState>,
    /// Told when there is a token for who waits.
    token_available: Condvar,
    keeper_alarm: Arc<KeeperAlarm>,
}

/// Wakes the keeper.
#[derive(Debug, Default)]
struct KeeperAlarm {
    is_ringing: Mutex<bool>,
    ringing: Condvar,
}

impl KeeperAlarm {
    fn ring(&self) {
        *self.is_ringing.lock() = true;
        self.ringing.notify_one();
    }

    fn wait(&self, time: Duration) {
        let mut rings = self.is_ringing.lock();
        if !*rings {
            self.ringing.wait_for(&mut rings, time);
        }
        *rings = false;
    }
}

#[derive(Debug, Default)]
struct TokenPoolState {
    /// Tokens of the run that no thread of it uses, all of them locked.
    unused_tokens: Vec<UnusedToken>,
    /// What its threads use.
    turns: Vec<Option<ActiveTurn>>,
    /// Tokens that the run has locked: the free ones, and those of turns.
    held_tokens: Vec<usize>,
    /// Threads of the run that wait.
    waiting_threads: usize,
    waiting_since: Option<Instant>,
    ticket: Option<QueueTicket>,
    outside_waiter: OutsideWaiter,
    /// Those in the queue who did not take what was free, and since when they are passed over.
    passed_over: Vec<(QueueTicket, Instant)>,
    /// Who is first in the queue and takes nothing.
    hesitating_first: Option<(QueueTicket, Instant)>,
    /// When others were looked at last that may have stopped.
    others_watched_at: Option<Instant>,
    /// What others' tokens said last, and when that was new.
    heartbeats: Vec<(u32, Instant)>,
    /// How many of those pass for stopped.
    stopped_tokens: usize,
    own_heartbeat: u32,
    own_heartbeat_at: Option<Instant>,
    /// Whether the kernel refuses locks by now: nobody is waited for any more.
    is_locking_disabled: bool,
    turn_counts: TurnCounts,
}

/// What happened, for tests.
#[derive(Debug, Default, Clone, Copy)]
struct TurnCounts {
    /// How often a thread came for a turn that it did not have.
    requested: u64,
    /// How often one was given up because others waited.
    given_up: u64,
    /// How often one was taken back from a thread that did not compute.
    revoked: u64,
}

/// A token that is not used.
#[derive(Debug)]
struct UnusedToken {
    token: usize,
    /// Since when the run has it.
    since: Instant,
    idle_since: Instant,
}

/// A turn of a thread.
#[derive(Debug)]
struct ActiveTurn {
    kind: TurnKind,
    /// Since when the run has the token.
    since: Instant,
    is_revoked: bool,
    /// The thread's processor time.
    clock: Option<libc::clockid_t>,
    /// The thread, by the system's number.
    thread: Option<libc::pid_t>,
    /// The clock's reading, and when it was read; none while nobody waits.
    clock_reading: Option<(u64, Instant)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnKind {
    Token(usize),
    /// One beyond the cores of a run that has all of them.
    BeyondCores,
    /// One that passes for a stopped run's.
    BorrowedFromStopped,
}

impl TokenPoolState {
    fn add_turn(&mut self, of: TurnKind, since: Instant) -> usize {
        let (clock, thread) = (own_cpu_clock(), own_thread_id());
        let taken =
            ActiveTurn { kind: of, since, is_revoked: false, clock, thread, clock_reading: None };
        let place = self.turns.iter().position(Option::is_none);
        let place = place.unwrap_or_else(|| {
            self.turns.push(None);
            self.turns.len() - 1
        });
        self.turns[place] = Some(taken);
        place
    }

    fn borrowed_count(&self) -> usize {
        self.turns
            .iter()
            .flatten()
            .filter(|turn| turn.kind == TurnKind::BorrowedFromStopped)
            .count()
    }

    fn passed_over_tickets(&self) -> Vec<QueueTicket> {
        self.passed_over.iter().map(|(ticket, _)| *ticket).collect()
    }
}

impl TokenPool {
    fn open(folder: &Path, priority: Priority, cores: usize) -> io::Result<Arc<TokenPool>> {
        let alarm = Arc::<KeeperAlarm>::default();
        let run = Arc::new(TokenPool {
            priority,
            locks: TokenLocks::open(folder)?,
            token_count: cores.clamp(1, TOKENS_MAX),
            must_recheck: AtomicBool::new(false),
            state: Mutex::default(),
            token_available: Condvar::new(),
            keeper_alarm: Arc::clone(&alarm),
        });
        let kept = Arc::downgrade(&run);
        // Tokens without a keeper would be kept from others to the run's end.
        std::thread::Builder::new()
            .name("cores".to_owned())
            .spawn(move || run_keeper(&kept, &alarm))?;
        Ok(run)
    }

    /// Takes a turn, waiting for it.
    fn wait_for_turn(&self, is_over: impl Fn() -> bool) -> Option<usize> {
        let mut state = self.state.lock();
        state.turn_counts.requested += 1;
        if let Some(place) = self.try_take_turn(&mut state, 0) {
            return Some(place);
        }
        state.waiting_threads += 1;
        state.waiting_since.get_or_insert_with(Instant::now);
        self.keeper_alarm.ring();
        let mut place = None;
        while place.is_none() && !is_over() {
            self.token_available.wait_for(&mut state, WAIT_POLL_INTERVAL);
            place = self.try_take_turn(&mut state, 1);
        }
        state.waiting_threads -= 1;
        if state.waiting_threads == 0 {
            state.waiting_since = None;
        }
        place
    }

    /// Takes a turn, if there is one, for a thread that is counted so often among those that wait.
    fn try_take_turn(&self, state: &mut TokenPoolState, counted: usize) -> Option<usize> {
        if let Some(free) = state.unused_tokens.pop() {
            return Some(state.add_turn(TurnKind::Token(free.token), free.since));
        }
        let now = Instant::now();
        if state.is_locking_disabled {
            return Some(state.add_turn(TurnKind::BeyondCores, now));
        }
        if state.outside_waiter < OutsideWaiter::Equal {
            if state.held_tokens.len() == self.token_count {
                return Some(state.add_turn(TurnKind::BeyondCores, now));
            }
            // Without the keeper where there is nobody to wait for: that is all there is to a run alone.
            if state.waiting_threads == counted
                && self.first_waiter_before(queue_range(self.priority).end, state).is_none()
                && let Some(token) = self.lock_free_token(state)
            {
                self.keeper_alarm.ring();
                return Some(state.add_turn(TurnKind::Token(token), now));
            }
        }
        let is_lent = state.outside_waiter < OutsideWaiter::Higher
            && state.borrowed_count() < state.stopped_tokens;
        is_lent.then(|| state.add_turn(TurnKind::BorrowedFromStopped, now))
    }

    /// Whether a turn lasts, though somebody waits or it was revoked; if not, it is given up.
    fn keep_turn_or_yield(&self, place: usize) -> bool {
        let mut state = self.state.lock();
        let (asked, lent, stopped) =
            (state.outside_waiter, state.borrowed_count(), state.stopped_tokens);
        let Some(turn) = &state.turns[place] else { return false };
        let is_long = || turn.since.elapsed() >= TURN_SLICE;
        let goes_on = state.is_locking_disabled
            || !turn.is_revoked
                && match (turn.kind, asked) {
                    (_, OutsideWaiter::Higher) => false,
                    (TurnKind::Token(_), OutsideWaiter::Equal) => !is_long(),
                    (TurnKind::BeyondCores, OutsideWaiter::Equal) => false,
                    (TurnKind::BorrowedFromStopped, _) => lent <= stopped,
                    (
                        TurnKind::Token(_) | TurnKind::BeyondCores,
                        OutsideWaiter::Nobody | OutsideWaiter::Lower,
                    ) => true,
                };
        if !goes_on && let Some(turn) = state.turns[place].take() {
            state.turn_counts.given_up += u64::from(!turn.is_revoked);
            if let TurnKind::Token(token) = turn.kind {
                self.release_token(token, &mut state);
            }
        }
        goes_on
    }

    /// Ends a turn: its token is the run's until others ask.
    fn end_turn(&self, place: usize) {
        let mut state = self.state.lock();
        let Some(turn) = state.turns[place].take() else { return };
        let TurnKind::Token(token) = turn.kind else { return };
        let must_go = match state.outside_waiter {
            OutsideWaiter::Nobody | OutsideWaiter::Lower => false,
            OutsideWaiter::Equal => turn.since.elapsed() >= TURN_SLICE,
            OutsideWaiter::Higher => true,
        };
        if must_go {
            state.turn_counts.given_up += 1;
            self.release_token(token, &mut state);
        } else {
            let free = UnusedToken { token, since: turn.since, idle_since: Instant::now() };
            state.unused_tokens.push(free);
            if state.waiting_threads > 0 {
                self.token_available.notify_one();
            }
        }
    }

    fn release_token(&self, token: usize, state: &mut TokenPoolState) {
        state.held_tokens.retain(|held| *held != token);
        self.locks.unlock_token(token);
    }

    /// Locks a token that nobody has, the last ones first: a run that may use fewer cores knows only the others.
    fn lock_free_token(&self, state: &mut TokenPoolState) -> Option<usize> {
        let mut others =
            (0..self.token_count).rev().filter(|token| !state.held_tokens.contains(token));
        let token = others.find(|token| self.locks.try_lock_token(*token))?;
        state.held_tokens.push(token);
        Some(token)
    }

    fn first_waiter_before(
        &self,
        ticket: QueueTicket,
        state: &TokenPoolState,
    ) -> Option<QueueTicket> {
        self.locks
            .first_waiter(queue_range(Priority::High).start..ticket, &state.passed_over_tickets())
    }

    /// Who waits outside.
    fn most_urgent_waiter(&self, state: &TokenPoolState) -> OutsideWaiter {
        let own = queue_range(self.priority);
        let (first, last) = (queue_range(Priority::High).start, queue_range(Priority::Low).end);
        let passed_over = state.passed_over_tickets();
        let waits = |queue| self.locks.first_waiter(queue, &passed_over).is_some();
        // One question alone, where nobody does.
        if !waits(first..last) {
            OutsideWaiter::Nobody
        } else if waits(first..own.start) {
            OutsideWaiter::Higher
        } else if waits(own) {
            OutsideWaiter::Equal
        } else {
            OutsideWaiter::Lower
        }
    }

    /// What the keeper does; how long it may sleep then.
    fn run_keeper_round(&self) -> Duration {
        let now = Instant::now();
        let state = &mut *self.state.lock();
        state.passed_over.retain(|(_, at)| now.duration_since(*at) < PASS_OVER_DURATION);
        let is_idle = state.held_tokens.is_empty()
            && state.waiting_threads == 0
            && state.borrowed_count() == 0;
        state.outside_waiter =
            if is_idle { OutsideWaiter::Nobody } else { self.most_urgent_waiter(state) };
        self.release_unused_tokens(state, now);
        if state.outside_waiter > OutsideWaiter::Nobody || state.waiting_threads > 0 {
            self.revoke_idle_turns(state, now);
        } else {
            state.turns.iter_mut().flatten().for_each(|turn| turn.clock_reading = None);
        }
        self.acquire_tokens_for_waiters(state, now);
        if state.outside_waiter > OutsideWaiter::Nobody
            && state.own_heartbeat_at.is_none_or(|at| now.duration_since(at) >= HEARTBEAT_INTERVAL)
        {
            state.own_heartbeat_at = Some(now);
            state.own_heartbeat = state.own_heartbeat.wrapping_add(1);
            self.locks.write_heartbeats(state.held_tokens.iter().copied(), state.own_heartbeat);
        }
        let is_revoked = state.turns.iter().flatten().any(|turn| turn.is_revoked);
        let is_asked = state.outside_waiter >= OutsideWaiter::Equal
            || is_revoked
            || state.borrowed_count() > state.stopped_tokens;
        self.must_recheck.store(is_asked, Ordering::Relaxed);
        match state.waiting_since {
            _ if is_idle => KEEPER_IDLE_SLEEP,
            // Behind a higher one it may be for long; an equal hands a core over every slice.
            Some(since)
                if state.outside_waiter == OutsideWaiter::Higher
                    && now.duration_since(since) > UNUSED_TOKEN_TIMEOUT =>
            {
                WAITER_POLL_INTERVALS[1]
            }
            Some(_) => WAITER_POLL_INTERVALS[0],
            None => HOLDER_POLL_INTERVAL,
        }
    }

    /// Gives back tokens that no thread uses: to whoever asks, or because nobody wants them for long.
    fn release_unused_tokens(&self, state: &mut TokenPoolState, now: Instant) {
        let is_asked = state.outside_waiter > OutsideWaiter::Nobody;
        let given = |free: &UnusedToken| {
            is_asked || now.duration_since(free.idle_since) >= UNUSED_TOKEN_TIMEOUT
        };
        // Who waits here is about to take them, unless others go first.
        if state.waiting_threads > 0 && state.outside_waiter < OutsideWaiter::Higher {
            return;
        }
        let free = std::mem::take(&mut state.unused_tokens);
        let (given, kept): (Vec<_>, Vec<_>) = free.into_iter().partition(given);
        state.unused_tokens = kept;
        given.iter().for_each(|free| self.release_token(free.token, state));
    }

    /// Takes turns back from threads that do not compute.
    fn revoke_idle_turns(&self, state: &mut TokenPoolState, now: Instant) {
        let is_asked = state.outside_waiter > OutsideWaiter::Nobody;
        let mut tokens = Vec::new();
        for turn in state.turns.iter_mut().flatten().filter(|turn| !turn.is_revoked) {
            let cpu_ns = turn.clock.and_then(read_clock_ns);
            let (Some(cpu_ns), Some((before_ns, at))) = (cpu_ns, turn.clock_reading) else {
                turn.clock_reading = cpu_ns.map(|cpu_ns| (cpu_ns, now));
                continue;
            };
            let passed = now.duration_since(at);
            if passed < IDLE_MEASUREMENT_WINDOW {
                continue;
            }
            turn.clock_reading = Some((cpu_ns, now));
            let is_idle = u128::from(cpu_ns.saturating_sub(before_ns)) * 10 < passed.as_nanos();
            // On a machine with more to do than it can, one that wants to compute may not get to.
            if is_idle && !turn.thread.is_some_and(is_thread_runnable) {
                turn.is_revoked = true;
                state.turn_counts.revoked += 1;
                if let TurnKind::Token(token) = turn.kind {
                    tokens.push((token, turn.since));
                }
                turn.kind = TurnKind::BeyondCores;
            }
        }
        for (token, since) in tokens {
            match is_asked {
                true => self.release_token(token, state),
                false => {
                    state.unused_tokens.push(UnusedToken { token, since, idle_since: now });
                    self.token_available.notify_one();
                }
            }
        }
    }

    /// Gets tokens for who waits, one a place in the queue.
    fn acquire_tokens_for_waiters(&self, state: &mut TokenPoolState, now: Instant) {
        loop {
            if state.waiting_threads <= state.unused_tokens.len() {
                if let Some(ticket) = state.ticket.take() {
                    self.locks.leave_queue(ticket);
                }
                if state.borrowed_count() == 0 {
                    state.heartbeats.clear();
                    state.others_watched_at = None;
                    state.stopped_tokens = 0;
                }
                return;
            }
            if state.ticket.is_none() {
                state.ticket = self.locks.join_queue(self.priority).ok();
            }
            let Some(ticket) = state.ticket else {
                state.is_locking_disabled = true;
                self.token_available.notify_all();
                return;
            };
            let first = self.first_waiter_before(ticket, state);
            if first.is_none()
                && let Some(token) = self.lock_free_token(state)
            {
                state.unused_tokens.push(UnusedToken { token, since: now, idle_since: now });
                self.token_available.notify_one();
                // Behind those who came meanwhile; without a gap in which nobody seems to wait.
                state.ticket = self.locks.join_queue(self.priority).ok();
                self.locks.leave_queue(ticket);
                continue;
            }
            if state.others_watched_at.is_none_or(|at| now.duration_since(at) >= HEARTBEAT_INTERVAL)
            {
                state.others_watched_at = Some(now);
                self.detect_stopped_holders(state, now);
                self.pass_over_hesitating_waiter(first, state, now);
            }
            return;
        }
    }

    /// Finds out whose holders have stopped.
    fn detect_stopped_holders(&self, state: &mut TokenPoolState, now: Instant) {
        let said = self.locks.read_heartbeats(self.token_count);
        state.heartbeats.resize(self.token_count, (0, now));
        let mut stopped = 0;
        for (token, said) in said.into_iter().enumerate() {
            let (beat, at) = &mut state.heartbeats[token];
            if *beat != said
                || state.held_tokens.contains(&token)
                || !self.locks.is_token_locked(token)
            {
                (*beat, *at) = (said, now);
            } else {
                stopped += usize::from(now.duration_since(*at) >= HEARTBEAT_TIMEOUT);
            }
        }
        state.stopped_tokens = stopped;
        if stopped > state.borrowed_count() {
            self.token_available.notify_all();
        }
    }

    /// Passes over who is first and does not take what is there for it.
    fn pass_over_hesitating_waiter(
        &self,
        first: Option<QueueTicket>,
        state: &mut TokenPoolState,
        now: Instant,
    ) {
        let mut others = (0..self.token_count).filter(|token| !state.held_tokens.contains(token));
        let is_there =
            state.stopped_tokens > 0 || others.any(|token| !self.locks.is_token_locked(token));
        let Some(first) = first.filter(|_| is_there) else {
            state.hesitating_first = None;
            return;
        };
        match state.hesitating_first {
            Some((who, since)) if who == first => {
                if now.duration_since(since) >= FREE_TOKEN_CLAIM_TIMEOUT {
                    state.passed_over.push((first, now));
                    state.hesitating_first = None;
                }
            }
            _ => state.hesitating_first = Some((first, now)),
        }
    }
}

impl Drop for TokenPool {
    fn drop(&mut self) {
        // Not left to the closing of the file: a child process may have it open.
        let state = self.state.get_mut();
        state.held_tokens.iter().for_each(|token| self.locks.unlock_token(*token));
        state.ticket.iter().for_each(|ticket| self.locks.leave_queue(*ticket));
        self.keeper_alarm.ring();
    }
}

/// The keeper of a run's tokens.
fn run_keeper(run: &Weak<TokenPool>, alarm: &KeeperAlarm) {
    while let Some(kept) = run.upgrade() {
        let pause = kept.run_keeper_round();
        drop(kept);
        alarm.wait(pause);
    }
}

/// What a clock says, in nanoseconds; none for that of a thread that has ended.
fn read_clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure, or leaves it and returns an error.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| status == 0)?;
    Some(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// The clock of this thread's processor time, for others to read.
#[cfg(target_os = "linux")]
fn own_cpu_clock() -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: the thread asks about itself, and the call fills in the number.
    let status = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    (status == 0).then_some(clock)
}

/// This thread's number.
#[cfg(target_os = "linux")]
fn own_thread_id() -> Option<libc::pid_t> {
    thread_local! {
        // SAFETY: it takes nothing, and always succeeds.
        static NUMBER: libc::pid_t = unsafe { libc::gettid() };
    }
    Some(NUMBER.with(|number| *number))
}

#[cfg(not(target_os = "linux"))]
fn own_thread() -> Option<libc::pid_t> {
    None
}

/// Whether a thread of this process computes or waits for nothing but a core: the letter behind its name in
/// `/proc/self/task/…/stat`, as proc_pid_stat(5) has it.
fn is_thread_runnable(thread: libc::pid_t) -> bool {
    let told = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    told.is_ok_and(|told| told.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R')))
}

#[cfg(not(target_os = "linux"))]
fn own_clock() -> Option<libc::clockid_t> {
    None
}
