//! Shares the cores of a machine among its runs: by priority, and in turns among runs of equal priority.
//!
//! There is one token per core of the machine, shared by all runs with the same state folder. A worker
//! acquires its [`ComputeTurn`] before it begins a split, and checks between splits, and between the batches
//! of one, whether it may go on. A waiting run of a higher priority gets every token at the next check. One
//! of the same priority gets the tokens that were held for a [slice](TURN_SLICE), first come, first served,
//! which ends in equal shares. One of a lower priority gets the unused tokens. A waiting run stands still and
//! keeps its memory. A run of priority low stands still for as long as higher ones use all cores.
//!
//! **For a run alone, a turn is nearly free.** A run keeps its tokens from split to split: a check reads one
//! word of the run's own memory and makes no system call. One thread per run, the keeper, asks the kernel
//! every ten milliseconds whether others wait, and sets that word. Measured on two cores of 2.6 GHz in a
//! virtual machine that other work kept busy:
//!
//! | | |
//! | --- | --- |
//! | the first turn of a run whose file is open | 6 to 16 µs of processor time |
//! | a check while nobody waits, or a run of a lower priority | 1.3 to 1.8 ns |
//! | a check while another run of the same priority waits | 31 to 36 ns |
//! | a release and the next turn, alone | 49 ns |
//! | the keeper of a run alone | 0.3 % of a core |
//! | a run of two threads that stands still behind a higher priority | 0.3 to 0.4 % of a core |
//! | a run of high priority until its first token, others of splits of 20 µs: median, 90th and 100th of a hundred | 4, 10, 24 ms; 4, 10, 18 ms |
//! | two runs of two threads at once: share of the cores for each | 0.57 and 0.58; 0.48 and 0.51 |
//!
//! Other ways to wait were worse. A page of shared memory with counters and a futex would spare the keeper
//! its polling, but the counts of killed processes remain, and a full disk under a mapped file ends a run by
//! SIGBUS. A file's modification time shows that a run came, never that it was killed. Locks vanish with
//! their holder.
//!
//! **Nothing waits forever.** A thread that does not compute (it waits for a pipe, a network, another split
//! or its consumer) keeps no token. Once other runs wait, the keeper reads the processor time of each thread
//! with a turn. It revokes the turns of sleeping threads that used hardly any; they acquire a new turn when
//! they go on. So a run never keeps others from producing what it waits for itself. The tokens of a stopped
//! process (Ctrl-Z) cannot be taken away: its keeper no longer writes its heartbeat, and waiting runs go on
//! without those tokens. Nor does anyone wait for a run that does not claim a free token.
//!
//! A run that holds the tokens of all cores is alone, so its threads beyond the cores (`--threads`) are not
//! held back until others come. Without a state folder, or without usable locks (machines share network file
//! systems), there are no turns. Each user has an own state folder; users do not share cores this way.

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

/// The environment variable that overrides a job file's `priority` and that `--priority` overrides.
pub const PRIORITY_ENV_VAR: &str = "TIDEMILL_PRIORITY";

/// Time after which a held token goes to another run of the same priority.
pub const TURN_SLICE: Duration = Duration::from_millis(100);

/// Interval at which a run with tokens checks whether others wait.
const HOLDER_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Poll intervals of a waiting run: the usual one, and the one after a while behind a higher priority.
const WAITER_POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];

/// Measurement window for the processor time of a thread that may be idle.
const IDLE_MEASUREMENT_WINDOW: Duration = Duration::from_millis(20);

/// Time for which a run keeps tokens that nobody wants.
const UNUSED_TOKEN_TIMEOUT: Duration = Duration::from_secs(1);

/// Time within which the first waiter in the queue has to claim a free token.
const FREE_TOKEN_CLAIM_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for which a waiter that did not claim it is passed over.
const PASS_OVER_DURATION: Duration = Duration::from_secs(10);

/// Heartbeat interval of a run that others wait for …
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// … and the silence after which it counts as stopped.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which a waiting thread checks whether its run has ended.
const WAIT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Sleep of the keeper of a run without tokens, unless it is woken.
const KEEPER_IDLE_SLEEP: Duration = Duration::from_secs(3600);

/// The priority of a run in the sharing of cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum RunPriority {
    /// Runs only on cores that others leave unused.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Runs before all others.
    High,
}

impl fmt::Display for RunPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RunPriority::Low => "low",
            RunPriority::Normal => "normal",
            RunPriority::High => "high",
        })
    }
}

impl FromStr for RunPriority {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim() {
            "high" => Ok(RunPriority::High),
            "normal" => Ok(RunPriority::Normal),
            "low" => Ok(RunPriority::Low),
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

/// A run's participation in the sharing of cores; clones share it.
#[derive(Debug, Clone)]
pub struct CoreSharing {
    lazy_pool: Arc<LazyTokenPool>,
}

#[derive(Debug)]
struct LazyTokenPool {
    priority: RunPriority,
    pool: OnceLock<Option<Arc<TokenPool>>>,
}

impl CoreSharing {
    /// Creates the participation of a run. The state folder is looked up when the first split begins. Without
    /// the folder, which is not created here, and with an unusable one, the run has no turns.
    pub fn new(priority: RunPriority) -> Self {
        CoreSharing { lazy_pool: Arc::new(LazyTokenPool { priority, pool: OnceLock::new() }) }
    }

    /// Creates the participation and opens its files at once: for a priority that the user requested.
    ///
    /// # Errors
    /// Returns an error if the state folder's files cannot be written or locked.
    pub fn open(home: &StateFolder, priority: RunPriority) -> io::Result<Self> {
        CoreSharing::open_in(&home.path().join("cores"), priority, core_count())
    }

    fn open_in(folder: &Path, priority: RunPriority, cores: usize) -> io::Result<Self> {
        let run = TokenPool::open(folder, priority, cores)?;
        let opened = CoreSharing::new(priority);
        opened.lazy_pool.pool.get_or_init(|| Some(run));
        Ok(opened)
    }

    /// Returns the run's priority.
    pub fn priority(&self) -> RunPriority {
        self.lazy_pool.priority
    }

    fn token_pool(&self) -> Option<&TokenPool> {
        let open = || {
            // Lookup creates nothing: the code that stores a run's records creates the folder.
            let home = StateFolder::locate().ok().filter(|home| home.path().is_dir())?;
            let folder = home.path().join("cores");
            TokenPool::open(&folder, self.lazy_pool.priority, core_count()).ok()
        };
        self.lazy_pool.pool.get_or_init(open).as_deref()
    }
}

/// Returns the number of cores that this process may use, so that two runs of one container share its cores.
fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A thread's right to compute, held or awaited; dropping it passes it on.
///
/// The computing thread itself must use it: that thread's processor time shows whether the turn is in use.
#[derive(Debug)]
pub struct ComputeTurn<'a> {
    pool: Option<&'a TokenPool>,
    /// Its slot among the run's turns; `None` while it is released.
    slot: Option<usize>,
}

impl<'a> ComputeTurn<'a> {
    /// Creates a turn that is not yet acquired. Without shared cores, a turn is always granted.
    pub fn new(cores: Option<&'a CoreSharing>) -> Self {
        ComputeTurn { pool: cores.and_then(CoreSharing::token_pool), slot: None }
    }

    /// Acquires the turn, or keeps it: waits while others go first. Returns false if `is_over` ended the
    /// wait, which is called some times a second; the turn is then released. `is_over` is called under a
    /// lock, and should read flags only.
    ///
    /// Call it between splits, and between the batches of a split while holding no lock that another thread
    /// of the run may want. Cost: about a nanosecond for a held turn while nobody waits.
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

    /// Releases the turn until it is acquired again: call it before waiting for another thread.
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

/// The most urgent waiter of other runs, relative to the own priority.
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
    priority: RunPriority,
    locks: TokenLocks,
    /// Number of tokens on the machine.
    token_count: usize,
    /// True if holders of turns must check whether to go on.
    must_recheck: AtomicBool,
    state: Mutex<TokenPoolState>,
    /// Notified when a token is available for a waiting thread.
    token_available: Condvar,
    keeper_alarm: Arc<KeeperAlarm>,
}

/// A signal that wakes the keeper.
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
    /// Tokens of the run that none of its threads uses, all of them locked.
    unused_tokens: Vec<UnusedToken>,
    /// The turns of its threads.
    turns: Vec<Option<ActiveTurn>>,
    /// Tokens that the run has locked: the unused ones, and those of turns.
    held_tokens: Vec<usize>,
    /// Number of threads of the run that wait.
    waiting_threads: usize,
    waiting_since: Option<Instant>,
    ticket: Option<QueueTicket>,
    outside_waiter: OutsideWaiter,
    /// Waiters in the queue that did not claim a free token, and the time since when they are passed over.
    passed_over: Vec<(QueueTicket, Instant)>,
    /// The first waiter in the queue that has not claimed a free token, and since when.
    hesitating_first: Option<(QueueTicket, Instant)>,
    /// Time of the last check for stopped holders.
    others_watched_at: Option<Instant>,
    /// The last heartbeat of each token of other runs, and the time of its last change.
    heartbeats: Vec<(u32, Instant)>,
    /// Number of those tokens whose holders count as stopped.
    stopped_tokens: usize,
    own_heartbeat: u32,
    own_heartbeat_at: Option<Instant>,
    /// True once the kernel refuses locks: from then on the run waits for nobody.
    is_locking_disabled: bool,
    turn_counts: TurnCounts,
}

/// Event counts for tests.
#[derive(Debug, Default, Clone, Copy)]
struct TurnCounts {
    /// Number of requests of threads for a turn that they did not hold.
    requested: u64,
    /// Number of turns given up because others waited.
    given_up: u64,
    /// Number of turns revoked from threads that did not compute.
    revoked: u64,
}

/// A token of the run that no thread uses.
#[derive(Debug)]
struct UnusedToken {
    token: usize,
    /// Time since which the run has held the token.
    since: Instant,
    idle_since: Instant,
}

/// A turn that a thread holds.
#[derive(Debug)]
struct ActiveTurn {
    kind: TurnKind,
    /// Time since which the run has held the token.
    since: Instant,
    is_revoked: bool,
    /// The clock of the thread's processor time.
    clock: Option<libc::clockid_t>,
    /// The thread's system number.
    thread: Option<libc::pid_t>,
    /// The last reading of the clock and its time; `None` while nobody waits.
    clock_reading: Option<(u64, Instant)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnKind {
    Token(usize),
    /// A turn without a token, beyond the cores of a run that has all tokens.
    BeyondCores,
    /// A turn on a core whose token belongs to a stopped run.
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
    fn open(folder: &Path, priority: RunPriority, cores: usize) -> io::Result<Arc<TokenPool>> {
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
        // Without a keeper, tokens would stay locked to the run's end.
        std::thread::Builder::new()
            .name("cores".to_owned())
            .spawn(move || run_keeper(&kept, &alarm))?;
        Ok(run)
    }

    /// Acquires a turn and waits for it. Returns `None` if `is_over` ended the wait.
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

    /// Acquires a turn if one is available. `counted` is 1 if the calling thread is counted among the
    /// waiting, else 0.
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
            // No keeper is needed if there is nobody to wait for: a run alone takes only this path.
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

    /// Decides whether a turn continues although others wait or it was revoked; otherwise gives it up.
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

    /// Ends a turn: the run keeps its token until others want it.
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

    /// Locks a free token, the last ones first: a run that may use fewer cores only knows the first ones.
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
        self.locks.first_waiter(
            queue_range(RunPriority::High).start..ticket,
            &state.passed_over_tickets(),
        )
    }

    /// Returns the most urgent waiter of other runs.
    fn most_urgent_waiter(&self, state: &TokenPoolState) -> OutsideWaiter {
        let own = queue_range(self.priority);
        let (first, last) =
            (queue_range(RunPriority::High).start, queue_range(RunPriority::Low).end);
        let passed_over = state.passed_over_tickets();
        let waits = |queue| self.locks.first_waiter(queue, &passed_over).is_some();
        // A single system call if nobody waits.
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

    /// Runs one round of the keeper; returns how long it may sleep afterwards.
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
            // The wait behind a higher priority may be long; an equal hands over a core every slice.
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

    /// Releases tokens that no thread uses: if other runs wait, or if nobody has wanted them for a while.
    fn release_unused_tokens(&self, state: &mut TokenPoolState, now: Instant) {
        let is_asked = state.outside_waiter > OutsideWaiter::Nobody;
        let given = |free: &UnusedToken| {
            is_asked || now.duration_since(free.idle_since) >= UNUSED_TOKEN_TIMEOUT
        };
        // Waiting threads of this run are about to take them, unless others go first.
        if state.waiting_threads > 0 && state.outside_waiter < OutsideWaiter::Higher {
            return;
        }
        let free = std::mem::take(&mut state.unused_tokens);
        let (given, kept): (Vec<_>, Vec<_>) = free.into_iter().partition(given);
        state.unused_tokens = kept;
        given.iter().for_each(|free| self.release_token(free.token, state));
    }

    /// Revokes the turns of threads that do not compute.
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
            // On an overloaded machine, a thread that wants to compute may get no processor time.
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

    /// Acquires tokens for waiting threads, one for each place in the queue.
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
                // Queues up again behind later runs, without a gap in which nobody seems to wait.
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

    /// Counts the tokens whose holders have stopped.
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

    /// Passes over the first waiter if it does not claim an available token.
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
        // Does not rely on closing the file: a child process may have it open.
        let state = self.state.get_mut();
        state.held_tokens.iter().for_each(|token| self.locks.unlock_token(*token));
        state.ticket.iter().for_each(|ticket| self.locks.leave_queue(*ticket));
        self.keeper_alarm.ring();
    }
}

/// The thread that keeps a run's tokens.
fn run_keeper(run: &Weak<TokenPool>, alarm: &KeeperAlarm) {
    while let Some(kept) = run.upgrade() {
        let pause = kept.run_keeper_round();
        drop(kept);
        alarm.wait(pause);
    }
}

/// Reads a clock in nanoseconds; returns `None` for the clock of a thread that has ended.
fn read_clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure, or leaves it and returns an error.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| status == 0)?;
    Some(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the clock of this thread's processor time, which other threads can read.
#[cfg(target_os = "linux")]
fn own_cpu_clock() -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: the thread asks about itself, and the call fills in the number.
    let status = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    (status == 0).then_some(clock)
}

/// Returns this thread's system number.
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

/// Returns true if a thread of this process computes or only waits for a core: the state letter after its
/// name in `/proc/self/task/…/stat`, as in proc_pid_stat(5).
fn is_thread_runnable(thread: libc::pid_t) -> bool {
    let told = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    told.is_ok_and(|told| told.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R')))
}

#[cfg(not(target_os = "linux"))]
fn own_clock() -> Option<libc::clockid_t> {
    None
}
