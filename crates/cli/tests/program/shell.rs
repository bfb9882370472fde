//! The SQL shell, which `tidemill` without arguments starts on a terminal and only there.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::TestFolder;
use crate::terminal_screens::open_pseudo_terminal;

/// Timeout of every step.
const STUCK_TIMEOUT: Duration = Duration::from_secs(300);

/// A shell on a pseudo-terminal, with the output so far.
struct TerminalSession {
    child: Child,
    keys: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl TerminalSession {
    fn start(place: &TestFolder) -> TerminalSession {
        let (master, slave) = open_pseudo_terminal(100, 50);
        let mut command = place.tidemill(&[]);
        command.env("TERM", "xterm").env_remove("PAGER");
        command.stdin(slave.try_clone().unwrap());
        command.stdout(slave.try_clone().unwrap());
        command.stderr(slave);
        // SAFETY: both calls are allowed between fork and exec. Ctrl-C signals the process that owns the
        // terminal.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop(command);
        let mut reader = master.try_clone().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                let _ = sender.send(buffer[..count].to_vec());
            }
        });
        TerminalSession { child, keys: master, screen, seen: String::new() }
    }

    fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until a text is on the screen, and returns all output up to it.
    #[track_caller]
    fn wait_for(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            match self.screen.recv_timeout(STUCK_TIMEOUT) {
                Ok(more) => self.seen.push_str(&String::from_utf8_lossy(&more)),
                Err(_) => panic!("`{text}` does not come after:\n{}", self.seen),
            }
        }
    }

    fn end_session(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

#[test]
fn shell_runs_statements_and_commands_on_a_terminal() {
    let place = TestFolder::new();
    place.write("a.csv", "day,km\n1,2\n2,5\n");
    let mut session = TerminalSession::start(&place);
    session.wait_for("tidemill> ");
    // A statement goes on until its semicolon.
    session.type_keys("SELECT day, km * 10 AS far\rFROM 'a.csv';\r");
    session.wait_for("\r\n  1   20\r\n  2   50\r\n");
    session.wait_for("complete: 2 rows");
    session.wait_for("tidemill> ");
    session.type_keys("SELECT sum(far) AS s FROM _;\r");
    session.wait_for("\r\n70\r\n");
    session.wait_for("tidemill> ");
    // An error does not end the session, and the last result stays.
    session.type_keys("SELECT nothing FROM 'a.csv';\r");
    session.wait_for("error: ");
    session.wait_for("tidemill> ");
    session.type_keys("SELECT s + 1 AS t FROM _;\r");
    session.wait_for("\r\n71\r\n");
    session.wait_for("tidemill> ");
    session.type_keys(".schema a.csv\r");
    session.wait_for("a.csv: csv, 15 B\r\n  day  BIGINT\r\n  km   BIGINT\r\n");
    session.wait_for("tidemill> ");
    session.type_keys(".tables\r");
    session.wait_for("_  the last result: 1 row of 1 column\r\n'a.csv'  15 B\r\n");
    session.wait_for("tidemill> ");
    session.type_keys(".nothing\r");
    session.wait_for("error: there is no command `.nothing`");
    session.wait_for("tidemill> ");
    // Tab completes a column of the file that is named.
    place.write("b.csv", "zz_km\n2\n5\n");
    session.type_keys("SELECT max(zz) AS longest FROM 'b.csv';");
    session.type_keys(&"\x1b[D".repeat(") AS longest FROM 'b.csv';".len()));
    session.type_keys("\t\r");
    session.wait_for("longest\r\n");
    session.wait_for("\r\n      5\r\n");
    session.wait_for("tidemill> ");
    session.type_keys("\x04");
    assert_eq!(session.end_session(), Some(0));
    let history = std::fs::read_to_string(place.folder.path().join("home/shell-history")).unwrap();
    assert!(history.contains("FROM _;") && history.contains(".tables"), "{history}");
}

#[test]
fn interrupt_ends_the_query_but_not_the_shell() {
    let place = TestFolder::new();
    place.write("a.csv", format!("n\n{}", "1\n".repeat(20_000)));
    let mut session = TerminalSession::start(&place);
    session.wait_for("tidemill> ");
    // Eight trillion pairs of pairs take longer than anybody waits.
    session.type_keys(
        "SELECT count() FROM 'a.csv' a, 'a.csv' b, 'a.csv' c WHERE a.n + b.n + c.n < 0;\r",
    );
    // The bar shows that the query runs; the terminal turns Ctrl-C into a signal.
    session.wait_for(" rows");
    session.type_keys("\x03");
    session.wait_for("interrupted");
    session.wait_for("tidemill> ");
    // Without a running query, Ctrl-C discards the input.
    session.type_keys("SELECT 1\x03");
    session.wait_for("tidemill> ");
    session.type_keys("SELECT 40 + 2 AS answer;\r");
    session.wait_for("\r\n    42\r\n");
    session.wait_for("tidemill> ");
    session.type_keys(".quit\r");
    assert_eq!(session.end_session(), Some(0));
}

#[test]
fn lines_with_secrets_stay_out_of_the_history() {
    let place = TestFolder::new();
    let mut session = TerminalSession::start(&place);
    session.wait_for("tidemill> ");
    session.type_keys("-- https://ann:hush@host/a.csv\r");
    session.wait_for("tidemill> ");
    session.type_keys("SELECT 'https://ann:hush@host/a.csv' AS x;\r");
    session.wait_for("\r\nx");
    session.wait_for("tidemill> ");
    session.type_keys(".quit\r");
    assert_eq!(session.end_session(), Some(0));
    let history = std::fs::read_to_string(place.folder.path().join("home/shell-history")).unwrap();
    assert!(!history.contains("hush") && history.contains(".quit"), "{history}");
}

#[test]
fn program_without_arguments_or_terminal_prints_help() {
    let place = TestFolder::new();
    let mut command = place.tidemill(&[]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Usage: tidemill"), "{output:?}");
}
