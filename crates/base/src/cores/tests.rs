use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// Says what a process of its own is to do: the folder, the priority, the cores, and what with its turn.
const ROLE: &str = "TIDEMILL_TEST_CORES";

/// Another run, in a process of its own, that says what happens to its turn.
struct Other {
    process: Child,
    stdin: Option<ChildStdin>,
    said: Receiver<String>,
    early: VecDeque<String>,
}

impl Other {
    fn start(folder: &Path, priority: Priority, cores: usize, what: &str) -> Other {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["cores::tests::a_run_in_a_process_of_its_own", "--exact", "--nocapture"])
            .env(ROLE, format!("{}\n{priority}\n{cores}\n{what}", folder.display()))
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
        Other { process, stdin, said, early: VecDeque::new() }
    }

    /// Waits until it says this.
    fn expect(&mut self, event: &str) {
        if let Some(at) = self.early.iter().position(|early| early == event) {
            self.early.drain(..=at);
            return;
        }
        loop {
            let said = self.said.recv().unwrap_or_else(|_| panic!("ended without `{event}`"));
            if said == event {
                return;
            }
        }
    }

    fn tell(&mut self) {
        self.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, signal).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn say(event: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n@{event}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn counts(cores: &Cores) -> Counts {
    cores.run().unwrap().state.lock().counts
}

/// Nothing as a test; what [`Other`] starts.
#[test]
fn a_run_in_a_process_of_its_own() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [folder, priority, count, what] = role.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let cores =
        Cores::open_in(Path::new(folder), priority.parse().unwrap(), count.parse().unwrap());
    let cores = cores.unwrap();
    let mut turn = Turn::of(Some(&cores));
    let next_line = || drop(std::io::stdin().lines().next());
    assert!(turn.take(|| false));
    say("took");
    match what {
        "compute" => {
            let is_over = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&is_over);
            // Also where whoever started it is no more.
            std::thread::spawn(move || {
                next_line();
                told.store(true, Ordering::Relaxed);
            });
            let is_over = || is_over.load(Ordering::Relaxed);
            while !is_over() {
                let before = counts(&cores).came;
                if turn.take(is_over) && counts(&cores).came > before {
                    say("took");
                }
            }
        }
        "read" => {
            next_line();
            assert!(turn.take(|| false));
            say("went on");
            next_line();
        }
        other => panic!("{other}"),
    }
}

/// Looks until somebody waits with a priority.
fn until_one_waits(folder: &Path, priority: Priority) {
    let locks = Locks::open(folder).unwrap();
    while locks.waits(asking(priority), &[]).is_none() {
        std::thread::yield_now();
    }
}

#[test]
fn a_run_of_high_priority_goes_first_and_the_others_go_on_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut lows = [(); 2].map(|()| Other::start(folder.path(), Priority::Low, 1, "compute"));
    for _ in 0..5 {
        until_one_waits(folder.path(), Priority::Low);
        let high = Cores::open_in(folder.path(), Priority::High, 1).unwrap();
        let mut turn = Turn::of(Some(&high));
        assert!(turn.take(|| false));
        // The others wait for as long as it computes.
        until_one_waits(folder.path(), Priority::Low);
        assert!(turn.take(|| false));
        drop(turn);
    }
    for low in &mut lows {
        low.expect("took");
    }
}

#[test]
fn a_high_run_takes_all_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let mut lows = [(); 3].map(|()| Other::start(folder.path(), Priority::Low, 3, "compute"));
    lows.iter_mut().for_each(|low| low.expect("took"));
    let high = Cores::open_in(folder.path(), Priority::High, 3).unwrap();
    let has_all = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut turn = Turn::of(Some(&high));
                // Who waited for the others in another way would lose the turn.
                while !has_all.load(Ordering::Relaxed) {
                    assert!(turn.take(|| false));
                    let held = high.run().unwrap().state.lock().held.len();
                    has_all.fetch_or(held == 3, Ordering::Relaxed);
                }
            });
        }
    });
    drop(high);
    lows.iter_mut().for_each(|low| low.expect("took"));
}

#[test]
fn equals_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let mut equals = [(); 3].map(|()| Other::start(folder.path(), Priority::Normal, 1, "compute"));
    for _ in 0..3 {
        equals.iter_mut().for_each(|run| run.expect("took"));
    }
}

#[test]
fn a_killed_process_gives_its_token_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = Other::start(folder.path(), Priority::High, 1, "compute");
    other.expect("took");
    let low = Cores::open_in(folder.path(), Priority::Low, 1).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| Turn::of(Some(&low)).take(|| false));
        until_one_waits(folder.path(), Priority::Low);
        other.process.kill().unwrap();
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn a_killed_process_leaves_the_queue() {
    let folder = tempfile::tempdir().unwrap();
    let one = Cores::open_in(folder.path(), Priority::High, 1).unwrap();
    let mut turn = Turn::of(Some(&one));
    assert!(turn.take(|| false));
    let mut other = Other::start(folder.path(), Priority::Normal, 1, "compute");
    until_one_waits(folder.path(), Priority::Normal);
    other.process.kill().unwrap();
    other.process.wait().unwrap();
    assert_eq!(Locks::open(folder.path()).unwrap().waits(asking(Priority::Normal), &[]), None);
}

#[test]
fn a_thread_that_waits_for_a_pipe_keeps_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = Other::start(folder.path(), Priority::High, 1, "read");
    other.expect("took");
    let low = Cores::open_in(folder.path(), Priority::Low, 1).unwrap();
    let mut turn = Turn::of(Some(&low));
    assert!(turn.take(|| false));
    // It asks anew when it goes on.
    other.tell();
    until_one_waits(folder.path(), Priority::High);
    while counts(&low).given_up == 0 {
        // It is given up, and then waited for until this says that it was enough.
        turn.take(|| true);
    }
    other.expect("went on");
}

#[test]
fn a_stopped_process_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = Other::start(folder.path(), Priority::High, 1, "compute");
    other.expect("took");
    other.signal(rustix::process::Signal::STOP);
    let low = Cores::open_in(folder.path(), Priority::Low, 1).unwrap();
    let mut turn = Turn::of(Some(&low));
    assert!(turn.take(|| false));
    other.signal(rustix::process::Signal::CONT);
}

#[test]
fn one_that_stopped_in_the_queue_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let one = Cores::open_in(folder.path(), Priority::High, 1).unwrap();
    let mut turn = Turn::of(Some(&one));
    assert!(turn.take(|| false));
    let other = Other::start(folder.path(), Priority::Normal, 1, "compute");
    until_one_waits(folder.path(), Priority::Normal);
    other.signal(rustix::process::Signal::STOP);
    drop(turn);
    drop(one);
    let low = Cores::open_in(folder.path(), Priority::Low, 1).unwrap();
    assert!(Turn::of(Some(&low)).take(|| false));
    other.signal(rustix::process::Signal::CONT);
}

#[test]
fn a_turn_alone_is_taken_once() {
    let folder = tempfile::tempdir().unwrap();
    let alone = Cores::open_in(folder.path(), Priority::Normal, 2).unwrap();
    let mut turn = Turn::of(Some(&alone));
    for _ in 0..1000 {
        assert!(turn.take(|| false));
    }
    assert_eq!(counts(&alone).came, 1);
    let run = alone.run().unwrap();
    assert_eq!(run.state.lock().held.len(), 1);
}

#[test]
fn threads_beyond_the_cores_wait_for_nobody_alone() {
    let folder = tempfile::tempdir().unwrap();
    let alone = Cores::open_in(folder.path(), Priority::Normal, 1).unwrap();
    let all = Barrier::new(3);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut turn = Turn::of(Some(&alone));
                assert!(turn.take(|| false));
                all.wait();
            });
        }
    });
}

#[test]
fn a_wait_ends_with_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = Other::start(folder.path(), Priority::High, 1, "compute");
    other.expect("took");
    let low = Cores::open_in(folder.path(), Priority::Low, 1).unwrap();
    let cancel = crate::Cancel::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut turn = Turn::of(Some(&low));
            // Should it get one now and then, it asks on.
            while turn.take(|| cancel.is_cancelled()) && !cancel.is_cancelled() {
                turn.rest();
            }
        });
        until_one_waits(folder.path(), Priority::Low);
        cancel.cancel();
        waiting.join().unwrap();
    });
    drop(low);
    assert_eq!(Locks::open(folder.path()).unwrap().waits(asking(Priority::Low), &[]), None);
}

#[test]
fn without_a_folder_there_are_no_turns() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    Cores::open_in(&file.join("cores"), Priority::High, 1).unwrap_err();
    assert!(Turn::of(None).take(|| true));
    let none = Cores::new(Priority::Low);
    none.opening.run.get_or_init(|| None);
    assert!(Turn::of(Some(&none)).take(|| true));
}

#[test]
fn those_that_are_passed_over_do_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let [own, one, other] = [(); 3].map(|()| Locks::open(folder.path()).unwrap());
    let (first, second) =
        (one.queue_up(Priority::High).unwrap(), other.queue_up(Priority::Low).unwrap());
    let all = asking(Priority::High).start..asking(Priority::Low).end;
    let check = |passed_over: &[Ticket], expected| {
        assert_eq!(own.waits(all.clone(), passed_over), expected, "{passed_over:?}");
    };
    check(&[], Some(first));
    check(&[first], Some(second));
    check(&[second, first], None);
    check(&[second], Some(first));
    one.leave(first);
    check(&[], Some(second));
}

#[test]
fn a_priority_reads_back() {
    for priority in [Priority::High, Priority::Normal, Priority::Low] {
        assert_eq!(priority.to_string().parse::<Priority>().unwrap(), priority);
    }
    let error = "hihg".parse::<Priority>().unwrap_err().to_string();
    let expected = "`hihg` is not a priority; did you mean `high`?\npriorities: high, normal, low";
    assert_eq!(error, expected);
}
