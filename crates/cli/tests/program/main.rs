//! Tests of the built binary, as its users run it.
//!
//! - `transcripts`: golden files of printed output, and the examples of README and docs
//! - `copy_statements`: `COPY (SELECT …) TO 'file'`
//! - `results`: equal rows from formats, partial tables and jobs
//! - `jobs`: the job log's records of runs
//! - `record_origins`: file names and row numbers of records, and detection of formats
//! - `filter_programs`: programs that filter the bytes of sources and outputs
//! - `secrets`: redaction of secrets in messages and records
//! - `terminal_screens`: golden screens of terminals of 80 and of 200 columns
//! - `shell`: the SQL shell on a terminal
//! - `sorting`: `sort` and `ids`: order, and errors
//! - `peak_memory`: peak memory of runs whose tables are several times the budget
//! - `cluster_forecasts`: forecasts of run times on a cluster
//! - `span_output`: spans that a run prints on request
//! - `interruption`: interrupts, kills, closed pipes, and the files that remain

mod cluster_forecasts;
mod copy_statements;
mod filter_programs;
mod interruption;
mod jobs;
mod peak_memory;
mod record_origins;
mod results;
mod secrets;
mod shell;
mod sorting;
mod span_output;
mod terminal_screens;
mod transcripts;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Returns the root folder of the repository.
fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A folder for one test, with a state folder beside it.
struct TestFolder {
    folder: TempDir,
}

impl TestFolder {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        TestFolder { folder }
    }

    /// Returns the folder in which commands run.
    fn path(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Returns every file under a folder with its content, staged files included.
    fn files(&self, folder: &str) -> Vec<(String, Vec<u8>)> {
        fn walk(folder: &Path, root: &Path, files: &mut Vec<(String, Vec<u8>)>) {
            let Ok(entries) = fs::read_dir(folder) else { return };
            for entry in entries {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().display().to_string();
                if path.is_dir() {
                    walk(&path, root, files);
                    if fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none()) {
                        files.push((format!("{name}/"), Vec::new()));
                    }
                } else {
                    files.push((name, fs::read(&path).unwrap()));
                }
            }
        }
        let root = self.path().join(folder);
        let mut files = Vec::new();
        walk(&root, &root, &mut files);
        files.sort();
        files
    }

    fn file_names(&self, folder: &str) -> Vec<String> {
        self.files(folder).into_iter().map(|(name, _)| name).collect()
    }

    /// Returns a command for a program in this folder, with a clean environment.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.current_dir(self.path());
        for (variable, _) in std::env::vars_os() {
            let variable = variable.to_string_lossy();
            if variable.starts_with("TIDEMILL_") || variable.starts_with("XDG_") {
                command.env_remove(&*variable);
            }
        }
        command.env("TIDEMILL_HOME", self.folder.path().join("home"));
        command.env("NO_COLOR", "1");
        command
    }

    /// Returns a command for `tidemill` with these arguments.
    fn tidemill(&self, words: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_tidemill"));
        command.args(words);
        command
    }

    /// Runs `tidemill` and returns its output.
    fn run(&self, words: &[&str]) -> Output {
        self.tidemill(words).output().unwrap()
    }

    /// Runs `tidemill`, which must succeed, and returns its standard output.
    fn run_ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(
            output.status.success(),
            "tidemill {words:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `tidemill`, which must exit with `status`, and returns its standard error.
    fn run_failing(&self, status: i32, words: &[&str]) -> String {
        let output = self.run(words);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "tidemill {words:?}: {stderr}");
        stderr
    }

    /// Returns true if the state folder contains this folder.
    fn has_home_folder(&self, folder: &str) -> bool {
        self.folder.path().join("home").join(folder).exists()
    }

    /// Returns the runs of the job log, newest first.
    fn job_log_runs(&self) -> Vec<serde_json::Value> {
        let shown = self.run_ok(&["jobs", "list", "--last", "100000", "--format", "json"]);
        shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
