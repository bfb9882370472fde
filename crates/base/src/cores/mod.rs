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

mod locks;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use self::locks::{Locks, TOKENS_MAX, Ticket, asking};
use crate::error::{Error, Result};
use crate::home::Home;
use crate::suggest::{listed, nearest};

/// The environment variable that stands between `--priority` and a job file's `priority`.
pub const PRIORITY_VARIABLE: &str = "TIDEMILL_PRIORITY";

/// After how long a token goes to another run of the same priority.
pub const SLICE: Duration = Duration::from_millis(100);

/// How often a run with tokens looks whether others wait.
const LOOK: Duration = Duration::from_millis(10);

/// How often a run that waits asks, and how often once it has stood still behind a higher priority for a while.
const ASK: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];

/// Over how long a thread is looked at that may be waiting for something.
const IDLE: Duration = Duration::from_millis(20);

/// How long tokens that nobody wants are kept.
const KEPT: Duration = Duration::from_secs(1);

/// How long a free token is left for whoever is first in the queue.
const PATIENCE: Duration = Duration::from_millis(500);

/// For how long who did not take it is passed over.
const PASSED_OVER: Duration = Duration::from_secs(10);

/// How often a run that others wait for says that it lives …
const BEAT: Duration = Duration::from_millis(100);

/// … and after what silence it passes for stopped.
const STOPPED: Duration = Duration::from_secs(2);

/// How often a thread that waits looks whether its run has ended.
const TICK: Duration = Duration::from_millis(50);

/// How long the keeper of a run without tokens sleeps, unless it is woken.
const ASLEEP: Duration = Duration::from_secs(3600);

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
                let meant = nearest(other, known).map(|meant| format!("; did you mean `{meant}`?"));
                let meant = meant.unwrap_or_default();
                let known = listed(&known);
                Err(Error::usage(format!(
                    "`{other}` is not a priority{meant}\npriorities: {known}"
                )))
            }
        }
    }
}

/// A run's part in the sharing of cores; cloning shares it.
#[derive(Debug, Clone)]
pub struct Cores {
    opening: Arc<Opening>,
}

#[derive(Debug)]
struct Opening {
    priority: Priority,
    run: OnceLock<Option<Arc<Run>>>,
}

impl Cores {
    /// A run's part, in the state folder as it is found when the first split is begun; without one, which is not made, and where that
    /// folder is no use for it, the run has no turns.
    pub fn new(priority: Priority) -> Self {
        Cores { opening: Arc::new(Opening { priority, run: OnceLock::new() }) }
    }

    /// The same, with all that it needs opened at once: for a priority that somebody asked for.
    ///
    /// # Errors
    /// Where the state folder's files cannot be written or locked.
    pub fn open(home: &Home, priority: Priority) -> io::Result<Self> {
        Cores::open_in(&home.path().join("cores"), priority, core_count())
    }

    fn open_in(folder: &Path, priority: Priority, cores: usize) -> io::Result<Self> {
        let run = Run::open(folder, priority, cores)?;
        let opened = Cores::new(priority);
        opened.opening.run.get_or_init(|| Some(run));
        Ok(opened)
    }

    /// Its priority.
    pub fn priority(&self) -> Priority {
        self.opening.priority
    }

    fn run(&self) -> Option<&Run> {
        let open = || {
            // A look leaves nothing behind: the folder is made by whoever keeps a record of a run there.
            let home = Home::existing().ok().filter(|home| home.path().is_dir())?;
            let folder = home.path().join("cores");
            Run::open(&folder, self.opening.priority, core_count()).ok()
        };
        self.opening.run.get_or_init(open).as_deref()
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
pub struct Turn<'a> {
    run: Option<&'a Run>,
    /// Its place among the run's turns; none while it rests.
    place: Option<usize>,
}

impl<'a> Turn<'a> {
    /// A turn that has not been taken. Without cores to share it is always one's turn.
    pub fn of(cores: Option<&'a Cores>) -> Self {
        Turn { run: cores.and_then(Cores::run), place: None }
    }

    /// Takes the turn, or goes on with it: waits while others go first. False where the wait ended because
    /// `is_over` said so, which is asked some times a second; the turn rests then. It is asked under a lock, and should look at
    /// flags only.
    ///
    /// To be called between splits, and between the batches of a split where no lock is held that another thread of the run may want.
    /// About a nanosecond for a turn that one has while nobody waits.
    pub fn take(&mut self, is_over: impl Fn() -> bool) -> bool {
        let Some(run) = self.run else { return true };
        if let Some(place) = self.place {
            if !run.is_asked.load(Ordering::Relaxed) || run.goes_on(place) {
                return true;
            }
            self.place = None;
        }
        self.place = run.wait(is_over);
        self.place.is_some()
    }

    /// Lets others have it, until it is taken again: before a wait for another thread.
    pub fn rest(&mut self) {
        if let (Some(run), Some(place)) = (self.run, self.place.take()) {
            run.leave(place);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.rest();
    }
}

/// Who waits outside of the run, the most urgent of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Asked {
    #[default]
    Nobody,
    Lower,
    Equal,
    Higher,
}

#[derive(Debug)]
struct Run {
    priority: Priority,
    locks: Locks,
    /// How many tokens there are.
    cores: usize,
    /// Whether who has a turn must look closer.
    is_asked: AtomicBool,
    state: Mutex<State>,
    /// Told when there is a token for who waits.
    changed: Condvar,
    alarm: Arc<Alarm>,
}

/// Wakes the keeper.
#[derive(Debug, Default)]
struct Alarm {
    rings: Mutex<bool>,
    changed: Condvar,
}

impl Alarm {
    fn ring(&self) {
        *self.rings.lock() = true;
        self.changed.notify_one();
    }

    fn wait(&self, time: Duration) {
        let mut rings = self.rings.lock();
        if !*rings {
            self.changed.wait_for(&mut rings, time);
        }
        *rings = false;
    }
}

#[derive(Debug, Default)]
struct State {
    /// Tokens of the run that no thread of it uses, all of them locked.
    free: Vec<Free>,
    /// What its threads use.
    turns: Vec<Option<Taken>>,
    /// Tokens that the run has locked: the free ones, and those of turns.
    held: Vec<usize>,
    /// Threads of the run that wait.
    waiting: usize,
    waiting_since: Option<Instant>,
    ticket: Option<Ticket>,
    asked: Asked,
    /// Those in the queue who did not take what was free, and since when they are passed over.
    passed_over: Vec<(Ticket, Instant)>,
    /// Who is first in the queue and takes nothing.
    hesitating: Option<(Ticket, Instant)>,
    /// When others were looked at last that may have stopped.
    watched_at: Option<Instant>,
    /// What others' tokens said last, and when that was new.
    beats: Vec<(u32, Instant)>,
    /// How many of those pass for stopped.
    stopped: usize,
    beat: u32,
    beat_at: Option<Instant>,
    /// Whether the kernel refuses locks by now: nobody is waited for any more.
    is_off: bool,
    counts: Counts,
}

/// What happened, for tests.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    /// How often a thread came for a turn that it did not have.
    came: u64,
    /// How often one was given up because others waited.
    given_up: u64,
    /// How often one was taken back from a thread that did not compute.
    revoked: u64,
}

/// A token that is not used.
#[derive(Debug)]
struct Free {
    token: usize,
    /// Since when the run has it.
    since: Instant,
    idle_since: Instant,
}

/// A turn of a thread.
#[derive(Debug)]
struct Taken {
    of: Kind,
    /// Since when the run has the token.
    since: Instant,
    is_revoked: bool,
    /// The thread's processor time.
    clock: Option<libc::clockid_t>,
    /// The thread, by the system's number.
    thread: Option<libc::pid_t>,
    /// The clock's reading, and when it was read; none while nobody waits.
    seen: Option<(u64, Instant)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Token(usize),
    /// One beyond the cores of a run that has all of them.
    Beyond,
    /// One that passes for a stopped run's.
    Lent,
}

impl State {
    fn enter(&mut self, of: Kind, since: Instant) -> usize {
        let (clock, thread) = (own_clock(), own_thread());
        let taken = Taken { of, since, is_revoked: false, clock, thread, seen: None };
        let place = self.turns.iter().position(Option::is_none);
        let place = place.unwrap_or_else(|| {
            self.turns.push(None);
            self.turns.len() - 1
        });
        self.turns[place] = Some(taken);
        place
    }

    fn lent(&self) -> usize {
        self.turns.iter().flatten().filter(|turn| turn.of == Kind::Lent).count()
    }

    fn passed_over(&self) -> Vec<Ticket> {
        self.passed_over.iter().map(|(ticket, _)| *ticket).collect()
    }
}

impl Run {
    fn open(folder: &Path, priority: Priority, cores: usize) -> io::Result<Arc<Run>> {
        let alarm = Arc::<Alarm>::default();
        let run = Arc::new(Run {
            priority,
            locks: Locks::open(folder)?,
            cores: cores.clamp(1, TOKENS_MAX),
            is_asked: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            alarm: Arc::clone(&alarm),
        });
        let kept = Arc::downgrade(&run);
        // Tokens without a keeper would be kept from others to the run's end.
        std::thread::Builder::new().name("cores".to_owned()).spawn(move || keep(&kept, &alarm))?;
        Ok(run)
    }

    /// Takes a turn, waiting for it.
    fn wait(&self, is_over: impl Fn() -> bool) -> Option<usize> {
        let mut state = self.state.lock();
        state.counts.came += 1;
        if let Some(place) = self.enter(&mut state, 0) {
            return Some(place);
        }
        state.waiting += 1;
        state.waiting_since.get_or_insert_with(Instant::now);
        self.alarm.ring();
        let mut place = None;
        while place.is_none() && !is_over() {
            self.changed.wait_for(&mut state, TICK);
            place = self.enter(&mut state, 1);
        }
        state.waiting -= 1;
        if state.waiting == 0 {
            state.waiting_since = None;
        }
        place
    }

    /// Takes a turn, if there is one, for a thread that is counted so often among those that wait.
    fn enter(&self, state: &mut State, counted: usize) -> Option<usize> {
        if let Some(free) = state.free.pop() {
            return Some(state.enter(Kind::Token(free.token), free.since));
        }
        let now = Instant::now();
        if state.is_off {
            return Some(state.enter(Kind::Beyond, now));
        }
        if state.asked < Asked::Equal {
            if state.held.len() == self.cores {
                return Some(state.enter(Kind::Beyond, now));
            }
            // Without the keeper where there is nobody to wait for: that is all there is to a run alone.
            if state.waiting == counted
                && self.waits_before(asking(self.priority).end, state).is_none()
                && let Some(token) = self.lock_any(state)
            {
                self.alarm.ring();
                return Some(state.enter(Kind::Token(token), now));
            }
        }
        let is_lent = state.asked < Asked::Higher && state.lent() < state.stopped;
        is_lent.then(|| state.enter(Kind::Lent, now))
    }

    /// Whether a turn lasts, though somebody waits or it was revoked; if not, it is given up.
    fn goes_on(&self, place: usize) -> bool {
        let mut state = self.state.lock();
        let (asked, lent, stopped) = (state.asked, state.lent(), state.stopped);
        let Some(turn) = &state.turns[place] else { return false };
        let is_long = || turn.since.elapsed() >= SLICE;
        let goes_on = state.is_off
            || !turn.is_revoked
                && match (turn.of, asked) {
                    (_, Asked::Higher) => false,
                    (Kind::Token(_), Asked::Equal) => !is_long(),
                    (Kind::Beyond, Asked::Equal) => false,
                    (Kind::Lent, _) => lent <= stopped,
                    (Kind::Token(_) | Kind::Beyond, Asked::Nobody | Asked::Lower) => true,
                };
        if !goes_on && let Some(turn) = state.turns[place].take() {
            state.counts.given_up += u64::from(!turn.is_revoked);
            if let Kind::Token(token) = turn.of {
                self.unlock(token, &mut state);
            }
        }
        goes_on
    }

    /// Ends a turn: its token is the run's until others ask.
    fn leave(&self, place: usize) {
        let mut state = self.state.lock();
        let Some(turn) = state.turns[place].take() else { return };
        let Kind::Token(token) = turn.of else { return };
        let must_go = match state.asked {
            Asked::Nobody | Asked::Lower => false,
            Asked::Equal => turn.since.elapsed() >= SLICE,
            Asked::Higher => true,
        };
        if must_go {
            state.counts.given_up += 1;
            self.unlock(token, &mut state);
        } else {
            let free = Free { token, since: turn.since, idle_since: Instant::now() };
            state.free.push(free);
            if state.waiting > 0 {
                self.changed.notify_one();
            }
        }
    }

    fn unlock(&self, token: usize, state: &mut State) {
        state.held.retain(|held| *held != token);
        self.locks.give_back(token);
    }

    /// Locks a token that nobody has, the last ones first: a run that may use fewer cores knows only the others.
    fn lock_any(&self, state: &mut State) -> Option<usize> {
        let mut others = (0..self.cores).rev().filter(|token| !state.held.contains(token));
        let token = others.find(|token| self.locks.take(*token))?;
        state.held.push(token);
        Some(token)
    }

    fn waits_before(&self, ticket: Ticket, state: &State) -> Option<Ticket> {
        self.locks.waits(asking(Priority::High).start..ticket, &state.passed_over())
    }

    /// Who waits outside.
    fn who_asks(&self, state: &State) -> Asked {
        let own = asking(self.priority);
        let (first, last) = (asking(Priority::High).start, asking(Priority::Low).end);
        let passed_over = state.passed_over();
        let waits = |queue| self.locks.waits(queue, &passed_over).is_some();
        // One question alone, where nobody does.
        if !waits(first..last) {
            Asked::Nobody
        } else if waits(first..own.start) {
            Asked::Higher
        } else if waits(own) {
            Asked::Equal
        } else {
            Asked::Lower
        }
    }

    /// What the keeper does; how long it may sleep then.
    fn tend(&self) -> Duration {
        let now = Instant::now();
        let state = &mut *self.state.lock();
        state.passed_over.retain(|(_, at)| now.duration_since(*at) < PASSED_OVER);
        let is_idle = state.held.is_empty() && state.waiting == 0 && state.lent() == 0;
        state.asked = if is_idle { Asked::Nobody } else { self.who_asks(state) };
        self.give_unused(state, now);
        if state.asked > Asked::Nobody || state.waiting > 0 {
            self.revoke_idle(state, now);
        } else {
            state.turns.iter_mut().flatten().for_each(|turn| turn.seen = None);
        }
        self.ask(state, now);
        if state.asked > Asked::Nobody
            && state.beat_at.is_none_or(|at| now.duration_since(at) >= BEAT)
        {
            state.beat_at = Some(now);
            state.beat = state.beat.wrapping_add(1);
            self.locks.beat(state.held.iter().copied(), state.beat);
        }
        let is_revoked = state.turns.iter().flatten().any(|turn| turn.is_revoked);
        let is_asked = state.asked >= Asked::Equal || is_revoked || state.lent() > state.stopped;
        self.is_asked.store(is_asked, Ordering::Relaxed);
        match state.waiting_since {
            _ if is_idle => ASLEEP,
            // Behind a higher one it may be for long; an equal hands a core over every slice.
            Some(since) if state.asked == Asked::Higher && now.duration_since(since) > KEPT => {
                ASK[1]
            }
            Some(_) => ASK[0],
            None => LOOK,
        }
    }

    /// Gives back tokens that no thread uses: to whoever asks, or because nobody wants them for long.
    fn give_unused(&self, state: &mut State, now: Instant) {
        let is_asked = state.asked > Asked::Nobody;
        let given = |free: &Free| is_asked || now.duration_since(free.idle_since) >= KEPT;
        // Who waits here is about to take them, unless others go first.
        if state.waiting > 0 && state.asked < Asked::Higher {
            return;
        }
        let free = std::mem::take(&mut state.free);
        let (given, kept): (Vec<_>, Vec<_>) = free.into_iter().partition(given);
        state.free = kept;
        given.iter().for_each(|free| self.unlock(free.token, state));
    }

    /// Takes turns back from threads that do not compute.
    fn revoke_idle(&self, state: &mut State, now: Instant) {
        let is_asked = state.asked > Asked::Nobody;
        let mut tokens = Vec::new();
        for turn in state.turns.iter_mut().flatten().filter(|turn| !turn.is_revoked) {
            let cpu_ns = turn.clock.and_then(clock_ns);
            let (Some(cpu_ns), Some((before_ns, at))) = (cpu_ns, turn.seen) else {
                turn.seen = cpu_ns.map(|cpu_ns| (cpu_ns, now));
                continue;
            };
            let passed = now.duration_since(at);
            if passed < IDLE {
                continue;
            }
            turn.seen = Some((cpu_ns, now));
            let is_idle = u128::from(cpu_ns.saturating_sub(before_ns)) * 10 < passed.as_nanos();
            // On a machine with more to do than it can, one that wants to compute may not get to.
            if is_idle && !turn.thread.is_some_and(is_runnable) {
                turn.is_revoked = true;
                state.counts.revoked += 1;
                if let Kind::Token(token) = turn.of {
                    tokens.push((token, turn.since));
                }
                turn.of = Kind::Beyond;
            }
        }
        for (token, since) in tokens {
            match is_asked {
                true => self.unlock(token, state),
                false => {
                    state.free.push(Free { token, since, idle_since: now });
                    self.changed.notify_one();
                }
            }
        }
    }

    /// Gets tokens for who waits, one a place in the queue.
    fn ask(&self, state: &mut State, now: Instant) {
        loop {
            if state.waiting <= state.free.len() {
                if let Some(ticket) = state.ticket.take() {
                    self.locks.leave(ticket);
                }
                if state.lent() == 0 {
                    state.beats.clear();
                    state.watched_at = None;
                    state.stopped = 0;
                }
                return;
            }
            if state.ticket.is_none() {
                state.ticket = self.locks.queue_up(self.priority).ok();
            }
            let Some(ticket) = state.ticket else {
                state.is_off = true;
                self.changed.notify_all();
                return;
            };
            let first = self.waits_before(ticket, state);
            if first.is_none()
                && let Some(token) = self.lock_any(state)
            {
                state.free.push(Free { token, since: now, idle_since: now });
                self.changed.notify_one();
                // Behind those who came meanwhile; without a gap in which nobody seems to wait.
                state.ticket = self.locks.queue_up(self.priority).ok();
                self.locks.leave(ticket);
                continue;
            }
            if state.watched_at.is_none_or(|at| now.duration_since(at) >= BEAT) {
                state.watched_at = Some(now);
                self.watch_beats(state, now);
                self.watch_first(first, state, now);
            }
            return;
        }
    }

    /// Finds out whose holders have stopped.
    fn watch_beats(&self, state: &mut State, now: Instant) {
        let said = self.locks.beats(self.cores);
        state.beats.resize(self.cores, (0, now));
        let mut stopped = 0;
        for (token, said) in said.into_iter().enumerate() {
            let (beat, at) = &mut state.beats[token];
            if *beat != said || state.held.contains(&token) || !self.locks.is_taken(token) {
                (*beat, *at) = (said, now);
            } else {
                stopped += usize::from(now.duration_since(*at) >= STOPPED);
            }
        }
        state.stopped = stopped;
        if stopped > state.lent() {
            self.changed.notify_all();
        }
    }

    /// Passes over who is first and does not take what is there for it.
    fn watch_first(&self, first: Option<Ticket>, state: &mut State, now: Instant) {
        let mut others = (0..self.cores).filter(|token| !state.held.contains(token));
        let is_there = state.stopped > 0 || others.any(|token| !self.locks.is_taken(token));
        let Some(first) = first.filter(|_| is_there) else {
            state.hesitating = None;
            return;
        };
        match state.hesitating {
            Some((who, since)) if who == first => {
                if now.duration_since(since) >= PATIENCE {
                    state.passed_over.push((first, now));
                    state.hesitating = None;
                }
            }
            _ => state.hesitating = Some((first, now)),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Not left to the closing of the file: a child process may have it open.
        let state = self.state.get_mut();
        state.held.iter().for_each(|token| self.locks.give_back(*token));
        state.ticket.iter().for_each(|ticket| self.locks.leave(*ticket));
        self.alarm.ring();
    }
}

/// The keeper of a run's tokens.
fn keep(run: &Weak<Run>, alarm: &Alarm) {
    while let Some(kept) = run.upgrade() {
        let pause = kept.tend();
        drop(kept);
        alarm.wait(pause);
    }
}

/// What a clock says, in nanoseconds; none for that of a thread that has ended.
fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure, or leaves it and returns an error.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| status == 0)?;
    Some(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// The clock of this thread's processor time, for others to read.
#[cfg(target_os = "linux")]
fn own_clock() -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: the thread asks about itself, and the call fills in the number.
    let status = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    (status == 0).then_some(clock)
}

/// This thread's number.
#[cfg(target_os = "linux")]
fn own_thread() -> Option<libc::pid_t> {
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
fn is_runnable(thread: libc::pid_t) -> bool {
    let told = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    told.is_ok_and(|told| told.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R')))
}

#[cfg(not(target_os = "linux"))]
fn own_clock() -> Option<libc::clockid_t> {
    None
}
