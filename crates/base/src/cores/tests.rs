use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// Variable that tells a child process its folder, priority, number of cores and activity.
const CHILD_ROLE_VARIABLE: &str = "TIDEMILL_TEST_CORES";

/// Another run in a child process, which prints the events of its turn.
struct ChildRun {
    process: Child,
    stdin: Option<ChildStdin>,
    events: Receiver<String>,
    skipped_events: VecDeque<String>,
}

impl ChildRun {
    fn start(folder: &Path, priority: RunPriority, cores: usize, what: &str) -> ChildRun {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["cores::tests::a_run_in_a_process_of_its_own", "--exact", "--nocapture"])
            .env(CHILD_ROLE_VARIABLE, format!("{}\n{priority}\n{cores}\n{what}", folder.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(std::result::Result::ok) {
                if let Some(event) = line.strip_prefix('@') {
                    let _ = sender.send(event.to_owned());
                }
            }
        });
        let stdin = process.stdin.take();
        ChildRun { process, stdin, events: said, skipped_events: VecDeque::new() }
    }

    /// Waits for an event of the child.
    fn wait_for_event(&mut self, event: &str) {
        if let Some(at) = self.skipped_events.iter().position(|early| early == event) {
            self.skipped_events.drain(..=at);
            return;
        }
        loop {
            let said = self.events.recv().unwrap_or_else(|_| panic!("ended without `{event}`"));
            if said == event {
                return;
            }
        }
    }

    fn send_line(&mut self) {
        self.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, signal).unwrap();
    }
}

impl Drop for ChildRun {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn print_event(event: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n@{event}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn turn_counts(cores: &CoreSharing) -> TurnCounts {
    cores.token_pool().unwrap().state.lock().turn_counts
}

/// Does nothing as a test; [`ChildRun`] starts it as a child process.
#[test]
fn a_run_in_a_process_of_its_own() {
    let Ok(role) = std::env::var(CHILD_ROLE_VARIABLE) else { return };
    let [folder, priority, count, what] = role.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let cores =
        CoreSharing::open_in(Path::new(folder), priority.parse().unwrap(), count.parse().unwrap());
    let cores = cores.unwrap();
    let mut turn = ComputeTurn::new(Some(&cores));
    let next_line = || drop(std::io::stdin().lines().next());
    assert!(turn.acquire(|| false));
    print_event("took");
    match what {
        "compute" => {
            let is_over = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&is_over);
            // Also ends if the parent process is gone.
            std::thread::spawn(move || {
                next_line();
                told.store(true, Ordering::Relaxed);
            });
            let is_over = || is_over.load(Ordering::Relaxed);
            while !is_over() {
                let before = turn_counts(&cores).requested;
                if turn.acquire(is_over) && turn_counts(&cores).requested > before {
                    print_event("took");
                }
            }
        }
        "read" => {
            next_line();
            assert!(turn.acquire(|| false));
            print_event("went on");
            next_line();
        }
        other => panic!("{other}"),
    }
}

/// Waits until a run of a priority is in the queue.
fn wait_for_waiter(folder: &Path, priority: RunPriority) {
    let locks = TokenLocks::open(folder).unwrap();
    while locks.first_waiter(queue_range(priority), &[]).is_none() {
        std::thread::yield_now();
    }
}

#[test]
fn high_priority_run_goes_first_and_others_resume_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut lows = [(); 2].map(|()| ChildRun::start(folder.path(), RunPriority::Low, 1, "compute"));
    for _ in 0..5 {
        wait_for_waiter(folder.path(), RunPriority::Low);
        let high = CoreSharing::open_in(folder.path(), RunPriority::High, 1).unwrap();
        let mut turn = ComputeTurn::new(Some(&high));
        assert!(turn.acquire(|| false));
        // The others wait while this run computes.
        wait_for_waiter(folder.path(), RunPriority::Low);
        assert!(turn.acquire(|| false));
        drop(turn);
    }
    for low in &mut lows {
        low.wait_for_event("took");
    }
}

#[test]
fn a_high_run_takes_all_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let mut lows = [(); 3].map(|()| ChildRun::start(folder.path(), RunPriority::Low, 3, "compute"));
    lows.iter_mut().for_each(|low| low.wait_for_event("took"));
    let high = CoreSharing::open_in(folder.path(), RunPriority::High, 3).unwrap();
    let has_all = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut turn = ComputeTurn::new(Some(&high));
                // A thread that waited for the others in another way would lose its turn.
                while !has_all.load(Ordering::Relaxed) {
                    assert!(turn.acquire(|| false));
                    let held = high.token_pool().unwrap().state.lock().held_tokens.len();
                    has_all.fetch_or(held == 3, Ordering::Relaxed);
                }
            });
        }
    });
    drop(high);
    lows.iter_mut().for_each(|low| low.wait_for_event("took"));
}

#[test]
fn runs_of_equal_priority_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let mut equals =
        [(); 3].map(|()| ChildRun::start(folder.path(), RunPriority::Normal, 1, "compute"));
    for _ in 0..3 {
        equals.iter_mut().for_each(|run| run.wait_for_event("took"));
    }
}

#[test]
fn a_killed_process_gives_its_token_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = ChildRun::start(folder.path(), RunPriority::High, 1, "compute");
    other.wait_for_event("took");
    let low = CoreSharing::open_in(folder.path(), RunPriority::Low, 1).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ComputeTurn::new(Some(&low)).acquire(|| false));
        wait_for_waiter(folder.path(), RunPriority::Low);
        other.process.kill().unwrap();
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn a_killed_process_leaves_the_queue() {
    let folder = tempfile::tempdir().unwrap();
    let one = CoreSharing::open_in(folder.path(), RunPriority::High, 1).unwrap();
    let mut turn = ComputeTurn::new(Some(&one));
    assert!(turn.acquire(|| false));
    let mut other = ChildRun::start(folder.path(), RunPriority::Normal, 1, "compute");
    wait_for_waiter(folder.path(), RunPriority::Normal);
    other.process.kill().unwrap();
    other.process.wait().unwrap();
    assert_eq!(
        TokenLocks::open(folder.path())
            .unwrap()
            .first_waiter(queue_range(RunPriority::Normal), &[]),
        None
    );
}

#[test]
fn a_thread_that_waits_for_a_pipe_keeps_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = ChildRun::start(folder.path(), RunPriority::High, 1, "read");
    other.wait_for_event("took");
    let low = CoreSharing::open_in(folder.path(), RunPriority::Low, 1).unwrap();
    let mut turn = ComputeTurn::new(Some(&low));
    assert!(turn.acquire(|| false));
    // The child acquires a new turn when it goes on.
    other.send_line();
    wait_for_waiter(folder.path(), RunPriority::High);
    while turn_counts(&low).given_up == 0 {
        // Gives the turn up, and stops waiting for the next one at once.
        turn.acquire(|| true);
    }
    other.wait_for_event("went on");
}

#[test]
fn token_of_stopped_process_can_be_borrowed() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = ChildRun::start(folder.path(), RunPriority::High, 1, "compute");
    other.wait_for_event("took");
    other.signal(rustix::process::Signal::STOP);
    let low = CoreSharing::open_in(folder.path(), RunPriority::Low, 1).unwrap();
    let mut turn = ComputeTurn::new(Some(&low));
    assert!(turn.acquire(|| false));
    other.signal(rustix::process::Signal::CONT);
}

#[test]
fn process_that_stopped_in_queue_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let one = CoreSharing::open_in(folder.path(), RunPriority::High, 1).unwrap();
    let mut turn = ComputeTurn::new(Some(&one));
    assert!(turn.acquire(|| false));
    let other = ChildRun::start(folder.path(), RunPriority::Normal, 1, "compute");
    wait_for_waiter(folder.path(), RunPriority::Normal);
    other.signal(rustix::process::Signal::STOP);
    drop(turn);
    drop(one);
    let low = CoreSharing::open_in(folder.path(), RunPriority::Low, 1).unwrap();
    assert!(ComputeTurn::new(Some(&low)).acquire(|| false));
    other.signal(rustix::process::Signal::CONT);
}

#[test]
fn lone_run_requests_turn_once() {
    let folder = tempfile::tempdir().unwrap();
    let alone = CoreSharing::open_in(folder.path(), RunPriority::Normal, 2).unwrap();
    let mut turn = ComputeTurn::new(Some(&alone));
    for _ in 0..1000 {
        assert!(turn.acquire(|| false));
    }
    assert_eq!(turn_counts(&alone).requested, 1);
    let run = alone.token_pool().unwrap();
    assert_eq!(run.state.lock().held_tokens.len(), 1);
}

#[test]
fn lone_run_computes_with_more_threads_than_cores() {
    let folder = tempfile::tempdir().unwrap();
    let alone = CoreSharing::open_in(folder.path(), RunPriority::Normal, 1).unwrap();
    let all = Barrier::new(3);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut turn = ComputeTurn::new(Some(&alone));
                assert!(turn.acquire(|| false));
                all.wait();
            });
        }
    });
}

#[test]
fn cancelled_run_stops_waiting_and_leaves_queue() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = ChildRun::start(folder.path(), RunPriority::High, 1, "compute");
    other.wait_for_event("took");
    let low = CoreSharing::open_in(folder.path(), RunPriority::Low, 1).unwrap();
    let cancel = crate::CancelFlag::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut turn = ComputeTurn::new(Some(&low));
            // Continues to request turns if it gets one now and then.
            while turn.acquire(|| cancel.is_cancelled()) && !cancel.is_cancelled() {
                turn.release();
            }
        });
        wait_for_waiter(folder.path(), RunPriority::Low);
        cancel.cancel();
        waiting.join().unwrap();
    });
    drop(low);
    assert_eq!(
        TokenLocks::open(folder.path()).unwrap().first_waiter(queue_range(RunPriority::Low), &[]),
        None
    );
}

#[test]
fn without_state_folder_turns_are_granted_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    CoreSharing::open_in(&file.join("cores"), RunPriority::High, 1).unwrap_err();
    assert!(ComputeTurn::new(None).acquire(|| true));
    let none = CoreSharing::new(RunPriority::Low);
    none.lazy_pool.pool.get_or_init(|| None);
    assert!(ComputeTurn::new(Some(&none)).acquire(|| true));
}

#[test]
fn passed_over_waiters_do_not_hide_others() {
    let folder = tempfile::tempdir().unwrap();
    let [own, one, other] = [(); 3].map(|()| TokenLocks::open(folder.path()).unwrap());
    let (first, second) =
        (one.join_queue(RunPriority::High).unwrap(), other.join_queue(RunPriority::Low).unwrap());
    let all = queue_range(RunPriority::High).start..queue_range(RunPriority::Low).end;
    let check = |passed_over: &[QueueTicket], expected| {
        assert_eq!(own.first_waiter(all.clone(), passed_over), expected, "{passed_over:?}");
    };
    check(&[], Some(first));
    check(&[first], Some(second));
    check(&[second, first], None);
    check(&[second], Some(first));
    one.leave_queue(first);
    check(&[], Some(second));
}

#[test]
fn priority_parses_its_own_text() {
    for priority in [RunPriority::High, RunPriority::Normal, RunPriority::Low] {
        assert_eq!(priority.to_string().parse::<RunPriority>().unwrap(), priority);
    }
    let error = "hihg".parse::<RunPriority>().unwrap_err().to_string();
    let expected = "`hihg` is not a priority; did you mean `high`?\npriorities: high, normal, low";
    assert_eq!(error, expected);
}
