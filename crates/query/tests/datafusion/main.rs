//! Tests of the corrections of DataFusion: DataFusion still has each fault, and Tidemill answers correctly.
//!
//! When DataFusion fixes a fault, a test fails and names the files that can be removed. `docs/datafusion.md` is
//! generated from the table of corrections; run the test with `UPDATE_DOCS=1` to write it.

mod bare;
mod corrections;
mod session_parts;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bare::{run_on_bare_datafusion, run_on_tidemill};
use corrections::{ADDITIONS, CORRECTIONS, Correction, Evidence, ExpectedAnswers, FIXTURES};
use datafusion::DATAFUSION_VERSION;
use session_parts::{replaced_functions, session_parts};

fn crates_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns true if an answer is the expected one. `error: x` matches every error that contains `x`.
fn is_expected(answer: &str, expected: &str) -> bool {
    match expected.strip_prefix("error: ") {
        Some(part) => answer.starts_with("error: ") && answer.contains(part),
        None => answer == expected,
    }
}

#[test]
fn datafusion_has_each_fault_and_tidemill_has_none() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in FIXTURES {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let mut changed = String::new();
    for Correction { name, files, evidence, .. } in CORRECTIONS {
        let can_go = format!("`{name}` may be right now; then {} can go", files.join(", "));
        match evidence {
            Evidence::Queries(all) => {
                for ExpectedAnswers { sql, bare_answer: bare, tidemill_answer: ours } in *all {
                    let (found, our) = (
                        run_on_bare_datafusion(sql, folder.path()),
                        run_on_tidemill(sql, folder.path()),
                    );
                    if !is_expected(&found, bare) {
                        writeln!(
                            changed,
                            "{sql}\nDataFusion: {found}\nexpected: {bare}\n{can_go}\n"
                        )
                        .unwrap();
                    }
                    if !is_expected(&our, ours) {
                        writeln!(changed, "{sql}\nTidemill: {our}\nexpected: {ours}\n").unwrap();
                    }
                }
            }
            Evidence::Check(has_fault) => {
                if !has_fault() {
                    writeln!(changed, "{can_go}\n").unwrap();
                }
            }
            Evidence::Untested(_) => {}
        }
    }
    assert!(changed.is_empty(), "\n{changed}");
}

#[test]
fn each_correction_is_named_once_and_its_files_exist() {
    let names: Vec<&str> = CORRECTIONS.iter().map(|correction| correction.name).collect();
    assert!(names.is_sorted_by(|one, next| one < next), "the table is not in order: {names:?}");
    for Correction { name, files, .. } in CORRECTIONS {
        assert!(!files.is_empty(), "{name}");
        for file in *files {
            assert!(crates_folder().join(file).is_file(), "{name}: {file}");
        }
    }
}

#[test]
fn each_part_of_a_session_is_a_correction_or_an_addition() {
    let corrected = CORRECTIONS.iter().flat_map(|correction| correction.parts.iter().copied());
    let added = ADDITIONS.iter().map(|(part, _)| *part);
    let listed: BTreeSet<&str> = corrected.chain(added).collect();
    let parts = session_parts();
    let parts: BTreeSet<&str> = parts.iter().map(String::as_str).collect();
    let missing: Vec<_> = parts.difference(&listed).collect();
    assert!(missing.is_empty(), "neither a correction nor an addition: {missing:#?}");
    let gone: Vec<_> = listed.difference(&parts).collect();
    assert!(gone.is_empty(), "no session has {gone:#?}");
}

#[test]
fn replaced_functions_are_replaced_under_every_name() {
    for (function, names) in replaced_functions() {
        let is_ours = |(_, is_ours): &(String, bool)| *is_ours;
        assert!(names.iter().all(is_ours) || !names.iter().any(is_ours), "{function}: {names:?}");
    }
}

#[test]
fn each_issue_that_the_code_names_is_in_the_table() {
    fn read(folder: &Path, found: &mut BTreeSet<u32>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, found);
            } else if path.extension().is_some_and(|of| of == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let numbers = text.split("issue ").skip(1).filter_map(|rest| rest.get(..5));
                found.extend(numbers.filter_map(|number| number.parse::<u32>().ok()));
            }
        }
    }
    let mut found = BTreeSet::new();
    for name in ["sql", "tables", "query"] {
        read(&crates_folder().join(name).join("src"), &mut found);
    }
    let listed: BTreeSet<u32> =
        CORRECTIONS.iter().filter_map(|correction| correction.issue).collect();
    assert_eq!(found, listed);
}

/// Returns the text of `docs/datafusion.md`.
fn render_corrections_page() -> String {
    let mut page = format!(
        "# Corrections of DataFusion\n\n\
         Tidemill plans and runs SQL by DataFusion {DATAFUSION_VERSION}, and corrects it where it loses a row, a null or a \
         value, refuses its own plan, or holds memory that it does not account for. Each correction has a test that runs \
         DataFusion without it: once the test fails, the files that correct the fault can go. The table is made from \
         `crates/query/tests/datafusion/corrections.rs`.\n\n\
         | correction | what DataFusion does | issue | corrected in `crates/` | tested by |\n\
         | --- | --- | --- | --- | --- |\n"
    );
    for Correction { name, fault, issue, files, evidence, .. } in CORRECTIONS {
        let issue = issue
            .map(|issue| format!("[{issue}](https://github.com/apache/datafusion/issues/{issue})"));
        let files = files.iter().map(|file| format!("`{file}`")).collect::<Vec<_>>().join(", ");
        let tested = match evidence {
            Evidence::Queries([_]) => "a query".to_owned(),
            Evidence::Queries(all) => format!("{} queries", all.len()),
            Evidence::Check(_) => "the memory pool".to_owned(),
            Evidence::Untested(why) => format!("nothing: {why}"),
        };
        let (fault, issue) = (fault.replace('|', "\\|"), issue.unwrap_or_default());
        writeln!(page, "| `{name}` | {fault} | {issue} | {files} | {tested} |").unwrap();
    }
    page
}

#[test]
fn documentation_lists_each_correction() {
    let path = crates_folder().parent().unwrap().join("docs/datafusion.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, render_corrections_page()).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap_or_default(),
        render_corrections_page(),
        "UPDATE_DOCS=1 writes it"
    );
}
