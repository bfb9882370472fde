//! Golden transcripts of printed output, in golden files and in the documents.
//!
//! A transcript is a `$ command` line followed by its output, standard error
//! after standard output, and `[exit N]` if the status is not 0. `TIDEMILL_GOLDEN=write`
//! rewrites the golden files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{TestFolder, repository_root};

/// Runs a transcript's commands and returns a transcript of their current output.
fn replay(place: &TestFolder, transcript: &str) -> String {
    let mut now = String::new();
    for command in transcript_commands(transcript) {
        now.push_str(&format!("$ {command}\n"));
        let binary = Path::new(env!("CARGO_BIN_EXE_tidemill")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        let mut shell = place.program("sh");
        let output = shell.arg("-c").arg(command).env("PATH", path).output().unwrap();
        now.push_str(&normalize_output(place, &String::from_utf8_lossy(&output.stdout)));
        now.push_str(&normalize_output(place, &String::from_utf8_lossy(&output.stderr)));
        if let Some(status @ 1..) = output.status.code() {
            now.push_str(&format!("[exit {status}]\n"));
        }
    }
    now
}

/// Replaces the state folder and run ids in printed output by fixed ones.
pub(crate) fn normalize_output(place: &TestFolder, printed: &str) -> String {
    const RUN: &str = "20261120T212055-1a2b3c4d";
    let home = place.folder.path().join("home").display().to_string();
    let printed = printed.replace(&home, "~/.local/state/tidemill");
    let mut pieces = printed.split("tidemill/runs/");
    let mut steady = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        steady.push_str("tidemill/runs/");
        steady.push_str(RUN);
        steady.push_str(piece.get(RUN.len()..).unwrap_or_default());
    }
    steady
}

/// Returns the commands of a transcript. A line that ends with a backslash continues in the next, and one
/// that ends with `<<'END'` continues up to the line `END`.
pub(crate) fn transcript_commands(transcript: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut lines = transcript.lines();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else { continue };
        let mut command = command.to_owned();
        while command.ends_with('\\') {
            command.push('\n');
            command.push_str(lines.next().unwrap_or_default());
        }
        if command.ends_with("<<'END'") {
            for line in lines.by_ref() {
                command.push('\n');
                command.push_str(line);
                if line == "END" {
                    break;
                }
            }
        }
        commands.push(command);
    }
    commands
}

/// Returns every page: the README and the pages in docs, at any depth.
fn documentation_pages() -> Vec<PathBuf> {
    let mut paths = vec![repository_root().join("README.md")];
    let mut folders = vec![repository_root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths
}

/// Returns a folder with the files that the golden files and the documents read.
pub(crate) fn folder_with_examples() -> TestFolder {
    let place = TestFolder::new();
    let examples = repository_root().join("examples");
    for folder in ["", "logs", "web"] {
        for entry in fs::read_dir(examples.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap().to_str().unwrap();
                place.write(&format!("examples/{folder}/{name}"), fs::read(&path).unwrap());
            }
        }
    }
    // Made by release 0.1 in November 2026.
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v0.1/jobs/00000001.log");
    place.write("kept/jobs/00000001.log", fs::read(log).unwrap());
    place.write("trips.csv", "day,who,km\n1,ann,2.5\n1,bob,NA\n2,ann,4\n2,,7\n");
    place.write("bad.csv", "day,km\n1,2\n2,x\n3,4\n4,y\n");
    place.write("empty.csv", "");
    place.write("header.csv", "day,km\n");
    place.write("people.csv", "\u{feff}name,city\r\n\"O'Neil, Ann\",\"New\nYork\"\r\nBob,Oslo");
    place
}

/// Compares two transcripts, and panics with the lines from the first to the last difference.
pub(crate) fn check_transcript(name: &str, expected: &str, found: &str) {
    if expected == found {
        return;
    }
    let (expected, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| {
        pairs.take_while(|(expected, found)| expected == found).count()
    };
    let head = same(&mut expected.iter().zip(&found));
    let shorter = expected.len().min(found.len());
    let tail = same(&mut expected.iter().rev().zip(found.iter().rev())).min(shorter - head);
    panic!(
        "{name}: the transcript has changed at line {}.\n--- expected\n{}\n--- found\n{}",
        head + 1,
        expected[head..expected.len() - tail].join("\n"),
        found[head..found.len() - tail].join("\n"),
    );
}

#[test]
fn output_matches_golden_transcripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let expected = fs::read_to_string(&path).unwrap();
        let found = replay(&folder_with_examples(), &expected);
        if std::env::var_os("TIDEMILL_GOLDEN").is_some() {
            fs::write(&path, found).unwrap();
        } else {
            check_transcript(&path.display().to_string(), &expected, &found);
        }
    }
}

#[test]
fn documentation_examples_print_what_they_show() {
    for path in documentation_pages() {
        let document = fs::read_to_string(&path).unwrap();
        // The blocks of one document are one session.
        let place = folder_with_examples();
        let mut rewritten = String::new();
        let mut rest = document.as_str();
        while let Some(start) = rest.find("```console\n") {
            let (before, block) = rest.split_at(start + "```console\n".len());
            let end = block.find("```").expect("a block that ends");
            rewritten.push_str(before);
            rewritten.push_str(&replay(&place, &block[..end]));
            rest = &block[end..];
        }
        rewritten.push_str(rest);
        if std::env::var_os("TIDEMILL_GOLDEN").is_some() {
            fs::write(&path, rewritten).unwrap();
        } else {
            check_transcript(&path.display().to_string(), &document, &rewritten);
        }
    }
}
