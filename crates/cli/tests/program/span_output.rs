//! Spans that a run prints on request.

use crate::TestFolder;

#[test]
fn spans_are_printed_only_if_requested() {
    let place = TestFolder::new();
    place.write("a.csv", "k,n\nx,1\ny,2\n");
    let args = ["query", "SELECT k, sum(n) AS n FROM 'a.csv' GROUP BY k ORDER BY k", "-o", "b.csv"];
    let quiet = place.tidemill(&args).output().unwrap();
    let asked =
        place.tidemill(&args).arg("--overwrite").env("TIDEMILL_LOG", "debug").output().unwrap();
    assert!(quiet.status.success() && asked.status.success());
    let says = String::from_utf8(asked.stderr).unwrap();
    for span in ["split{index=0", "map{index=0}", "merge", "commit{rows=2}"] {
        let line = says.lines().find(|line| line.contains(span) && line.contains("close"));
        let line = line.unwrap_or_else(|| panic!("{span} in {says}"));
        assert!(line.contains("time.busy="), "{line}");
    }
    let quiet = String::from_utf8(quiet.stderr).unwrap();
    assert!(!quiet.contains("close"), "{quiet}");
}

#[test]
fn unknown_span_level_is_refused() {
    let place = TestFolder::new();
    let output =
        place.tidemill(&["query", "SELECT 1"]).env("TIDEMILL_LOG", "debgu").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(says.contains("did you mean `debug`?"), "{says}");
}
