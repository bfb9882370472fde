//! Golden screens: transcripts of a shell on pseudo-terminals of 80 and of 200 columns.
//!
//! Standard output is the terminal. Standard error is a pipe, because on a slow machine it may have a
//! progress bar; it follows standard output. `TIDEMILL_GOLDEN=write` rewrites the files.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::fd::FromRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use crate::TestFolder;
use crate::transcripts::{
    check_transcript, folder_with_examples, normalize_output, transcript_commands,
};

/// Opens a terminal of a size; returns our end and the program's.
pub(crate) fn open_pseudo_terminal(columns: u16, lines: u16) -> (fs::File, fs::File) {
    let (mut master, mut slave) = (0, 0);
    let size = libc::winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes both descriptors, reads the size, and accesses nothing else.
    let opened = unsafe {
        libc::openpty(&mut master, &mut slave, null_mut(), null_mut(), &raw const size as *mut _)
    };
    assert_eq!(opened, 0);
    // SAFETY: openpty has just returned these descriptors.
    unsafe { (fs::File::from_raw_fd(master), fs::File::from_raw_fd(slave)) }
}

/// Reads the output to a terminal, up to its end.
fn read_screen(mut master: fs::File) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match master.read(&mut buffer) {
            // A closed terminal is an error on Linux and an end elsewhere.
            Ok(0) => break,
            Ok(count) => seen.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    String::from_utf8(seen).unwrap().replace("\r\n", "\n")
}

/// Runs a shell command on a terminal, and returns its output, standard error and status.
fn run_on_terminal(mut shell: Command, columns: u16) -> (String, String, Option<i32>) {
    let (master, slave) = open_pseudo_terminal(columns, 24);
    shell.stdin(Stdio::null()).stdout(slave).stderr(Stdio::piped());
    let child = shell.spawn().unwrap();
    // This closes our copy of the program's end.
    drop(shell);
    let screen = std::thread::spawn(move || read_screen(master));
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    (screen.join().unwrap(), stderr, output.status.code())
}

fn replay_on_terminal(place: &TestFolder, transcript: &str, columns: u16) -> String {
    let mut now = String::new();
    for command in transcript_commands(transcript) {
        now.push_str(&format!("$ {command}\n"));
        let binary = Path::new(env!("CARGO_BIN_EXE_tidemill")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        let mut shell = place.program("sh");
        shell.arg("-c").arg(&command).env("PATH", path);
        shell.env_remove("PAGER").env_remove("LESS").env("TERM", "xterm");
        let (stdout, stderr, status) = run_on_terminal(shell, columns);
        now.push_str(&normalize_output(place, &stdout));
        now.push_str(&normalize_output(place, &stderr));
        if let Some(status @ 1..) = status {
            now.push_str(&format!("[exit {status}]\n"));
        }
    }
    now
}

/// Returns a folder with rows that are difficult to display.
fn folder_with_difficult_rows() -> TestFolder {
    let place = folder_with_examples();
    let mut wide = String::new();
    for column in 0..30 {
        wide.push_str(&format!("{}column_{column}", if column == 0 { "" } else { "," }));
    }
    wide.push('\n');
    for row in 0..3 {
        for column in 0..30 {
            wide.push_str(&format!(
                "{}{}",
                if column == 0 { "" } else { "," },
                row * 1000 + column
            ));
        }
        wide.push('\n');
    }
    place.write("wide.csv", wide);
    let rows: String = (1..=100).map(|n| format!("{n},{}\n", n * n * 12_345)).collect();
    place.write("many.csv", format!("n,square\n{rows}"));
    place.write(
        "words.json",
        concat!(
            r#"{"word":"日本語","is":"NULL","nested":{"os":"android","tags":["a","b"]},"share":0.1}"#,
            "\n",
            r#"{"word":"👩‍👩‍👧 fam","is":null,"nested":{"os":"ios","tags":[]},"share":0.30000000000000004}"#,
            "\n",
            r#"{"word":"tab\there\u001b[2J","is":"","nested":null,"share":1234.5}"#,
            "\n",
        ),
    );
    place
}

#[test]
fn interim_results_and_bar_are_erased_at_the_end() {
    let place = TestFolder::new();
    let rows: String = (0..300_000).map(|n| format!("{},{n}\n", n % 3)).collect();
    for file in 0..30 {
        place.write(&format!("part-{file}.csv"), format!("k,n\n{rows}"));
    }
    let (master, slave) = open_pseudo_terminal(80, 24);
    let mut query = place.program(env!("CARGO_BIN_EXE_tidemill"));
    query.args([
        "query",
        "SELECT k, count() AS n, max(n) AS most FROM 'part-*.csv' GROUP BY k ORDER BY k",
    ]);
    query.env("TERM", "xterm").env_remove("PAGER").env("NO_COLOR", "1");
    query.stdin(Stdio::null()).stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = query.spawn().unwrap();
    drop(query);
    let screen = std::thread::spawn(move || read_screen(master));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let screen = screen.join().unwrap();
    // On a slow machine, interim tables and the bar were drawn and erased before.
    let last = screen.rsplit("\x1b[J").next().unwrap();
    let table: Vec<&str> = last.rsplit('\r').next().unwrap().lines().collect();
    let expected = [
        "k        n    most",
        "-  -------  ------",
        "0  3000000  299997",
        "1  3000000  299998",
        "2  3000000  299999",
    ];
    assert!(table.starts_with(&expected) || screen.contains(&expected.join("\n")), "{screen:?}");
    assert!(screen.contains("complete: 9,000,000 rows from 30 files"), "{screen:?}");
}

#[test]
fn terminal_output_matches_golden_screens() {
    for columns in [80, 200] {
        let name = format!("tests/screens/{columns}.txt");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
        let expected = fs::read_to_string(&path).unwrap();
        let found = replay_on_terminal(&folder_with_difficult_rows(), &expected, columns);
        if std::env::var_os("TIDEMILL_GOLDEN").is_some() {
            fs::write(&path, found).unwrap();
        } else {
            check_transcript(&name, &expected, &found);
        }
    }
}
