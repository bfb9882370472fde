//! No query text panics: the statements are those of `tests/sql`, split into words and recombined. A grammar
//! knows only what its author thought of; these statements have every function and every clause that exists,
//! in places where they were never meant to stand.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tidemill_base::cancellation::CancelFlag;
use tidemill_engine::error::ErrorClass;
use tidemill_engine::{QueryPlan, RunSettings};

use crate::common::{Random, query, settings};

/// Number of statements, unless `SOAK_SECONDS` gives a duration.
const STATEMENT_COUNT: u64 = 4_000;

/// Longest time of a statement: its sources have at most fifteen rows.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

fn sql_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sql")
}

/// Returns the statements of all dialects, as words.
fn load_statements() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for dialect in ["duckdb", "postgresql", "spark", "clickhouse"] {
        let mut files: Vec<PathBuf> = sql_folder()
            .join(dialect)
            .read_dir()
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(file).unwrap();
            for block in text.split("\n\n") {
                let lines = block.lines().filter(|line| !line.starts_with("# "));
                let own: Vec<&str> = lines.take_while(|line| !line.starts_with("-->")).collect();
                let words = split_words(&own.join("\n"));
                if !words.is_empty() {
                    found.push(words);
                }
            }
        }
    }
    assert!(found.len() > 400, "{} statements", found.len());
    found
}

/// Returns a statement's words, numbers, texts and signs, without comments.
fn split_words(sql: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let length = |is_of: &dyn Fn(char) -> bool| {
            rest.char_indices().find(|(_, c)| !is_of(*c)).map_or(rest.len(), |(at, _)| at)
        };
        let end = if first.is_whitespace() {
            first.len_utf8()
        } else if rest.starts_with("--") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '\'' || first == '"' {
            rest[1..].find(first).map_or(rest.len(), |at| at + 2)
        } else if first.is_alphanumeric() || first == '_' {
            length(&|c| c.is_alphanumeric() || c == '_')
        } else {
            let signs = ["->>", "->", "::", "<=", ">=", "<>", "||", ":=", "!="];
            signs.iter().find(|sign| rest.starts_with(**sign)).map_or(first.len_utf8(), |s| s.len())
        };
        if !first.is_whitespace() && !rest.starts_with("--") {
            found.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
    }
    found
}

/// Returns the position behind the bracket that closes the one at `open`.
fn end_of_bracketed(words: &[String], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate().skip(open) {
        match word.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    words.len()
}

/// Returns a statement that is changed in one to four places.
fn mutate_statement(all: &[Vec<String>], random: &mut Random) -> String {
    let mut below = |limit: usize| random.next_below(limit as u64) as usize;
    let mut made = all[below(all.len())].clone();
    for _ in 0..=below(4) {
        let other = &all[below(all.len())];
        let (at, there) = (below(made.len()), below(other.len()));
        match below(10) {
            0 => {
                made.remove(at);
            }
            1 => made.insert(at, other[there].clone()),
            2 => made[at].clone_from(&other[there]),
            3 => {
                let with = below(made.len());
                made.swap(at, with);
            }
            4 => {
                let end = (at + 1 + below(6)).min(made.len());
                made.drain(at..end);
            }
            // The end of another statement.
            5 => {
                made.truncate(at);
                made.extend(other[there..].iter().cloned());
            }
            // Some words of another statement.
            6 => {
                let end = (there + 1 + below(8)).min(other.len());
                made.splice(at..at, other[there..end].iter().cloned());
            }
            // The content of brackets, replaced by that of other brackets.
            7 | 8 => {
                let open = |words: &[String], from: usize| {
                    (from..words.len()).find(|at| ["(", "["].contains(&words[*at].as_str()))
                };
                if let (Some(own), Some(theirs)) = (open(&made, at), open(other, there)) {
                    let end = end_of_bracketed(&made, own);
                    let theirs = other[theirs..end_of_bracketed(other, theirs)].to_vec();
                    made.splice(own..end, theirs);
                }
            }
            _ => {
                let values = ["0", "-1", "NULL", "''", "1e308", "[]", "'{'", "DATE '9999-12-31'"];
                made[at] = values[below(values.len())].to_owned();
            }
        }
        if made.is_empty() {
            made.push("SELECT".to_owned());
        }
    }
    made.join(" ")
}

/// Returns true if a number in a statement may ask for more than a machine holds, which is no fault of a
/// parser.
fn has_large_number(sql: &str) -> bool {
    sql.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 5)
}

/// Cancels a statement that takes too long.
struct StatementWatchdog {
    deadlines: mpsc::Sender<(CancelFlag, Instant)>,
}

impl StatementWatchdog {
    fn new() -> Self {
        let (next, told) = mpsc::channel::<(CancelFlag, Instant)>();
        std::thread::spawn(move || {
            let mut now: Option<(CancelFlag, Instant)> = None;
            loop {
                match told.recv_timeout(Duration::from_millis(500)) {
                    Ok(own) => now = Some(own),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                }
                if let Some((cancel, end)) = &now
                    && Instant::now() > *end
                {
                    cancel.cancel();
                }
            }
        });
        StatementWatchdog { deadlines: next }
    }
}

fn run_statement(sql: &str, own: &RunSettings) -> tidemill_engine::error::Result<()> {
    let data = sql_folder().join("data");
    let mut sql = sql.to_owned();
    for file in data.read_dir().unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        sql = sql.replace(&format!("'{name}'"), &format!("'{}'", data.join(&name).display()));
    }
    QueryPlan::new(&query(sql), own)?.run()?.take(1000).try_for_each(|batch| batch.map(drop))
}

/// Returns the fault in the way a statement ends, if there is one.
fn find_fault(sql: &str, watch: &StatementWatchdog) -> Option<String> {
    let own = RunSettings { threads: 1, ..settings() };
    let started = Instant::now();
    watch.deadlines.send((own.cancel.clone(), started + STATEMENT_TIMEOUT)).unwrap();
    let ended = catch_unwind(AssertUnwindSafe(|| run_statement(sql, &own)));
    let fault = match ended {
        Err(_) => "it panicked".to_owned(),
        // An endless recursion was cancelled by the watchdog.
        Ok(_) if own.cancel.is_cancelled() && sql.to_uppercase().contains("RECURSIVE") => {
            return None;
        }
        Ok(_) if own.cancel.is_cancelled() => format!("it took {:?}", started.elapsed()),
        Ok(Ok(())) => return None,
        Ok(Err(error)) => {
            let text = error.to_string();
            let plan = ["Expr {", "Column {", "Literal(", "LogicalPlan", "DFSchema", "Utf8View"];
            let is_of_ours = error.class() == ErrorClass::Internal;
            if !is_of_ours && !plan.iter().any(|word| text.contains(word) && !sql.contains(word)) {
                return None;
            }
            text
        }
    };
    Some(format!("{sql}\n{fault}"))
}

fn find_faults(seed: u64, goes_on: impl Fn(u64) -> bool) -> (u64, Vec<String>) {
    let (all, watch) = (load_statements(), StatementWatchdog::new());
    let last = std::env::var_os("SOAK_LAST");
    let (mut faults, mut number) = (Vec::new(), 0);
    while goes_on(number) {
        let sql = mutate_statement(&all, &mut Random(seed.wrapping_add(number)));
        // Only this file tells which statement ended the process, as a stack overflow does.
        if let Some(last) = &last {
            std::fs::write(last, &sql).unwrap();
        }
        if !has_large_number(&sql)
            && let Some(fault) = find_fault(&sql, &watch)
        {
            eprintln!("seed {}: {fault}\n", seed.wrapping_add(number));
            faults.push(format!("seed {}: {fault}", seed.wrapping_add(number)));
        }
        number += 1;
    }
    (number, faults)
}

fn random_seed() -> u64 {
    std::env::var("TIDEMILL_SEED")
        .or(std::env::var("SEED"))
        .map_or(20261125, |seed| seed.parse().unwrap())
}

#[test]
fn mutated_statements_do_not_panic() {
    let (_, faults) = find_faults(random_seed(), |number| number < STATEMENT_COUNT);
    assert!(faults.is_empty(), "{} faults\n\n{}", faults.len(), faults.join("\n\n"));
}

#[test]
#[ignore = "make soak cuts up statements for a given time"]
fn soak_mutated_statements() {
    let seconds = std::env::var("SOAK_SECONDS").map_or(10, |text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds);
    let (number, faults) = find_faults(random_seed(), |_| Instant::now() < end);
    println!("{number} statements in {seconds} seconds");
    assert!(faults.is_empty(), "{} faults\n\n{}", faults.len(), faults.join("\n\n"));
}
