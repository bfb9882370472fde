//! File names and row numbers of records through every kind of input, and the detection of formats.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::TestFolder;

const SQL: &str = "SELECT filename, file_row_number AS r, n FROM";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn records_of_standard_input_and_pipes_have_file_names_and_row_numbers() {
    let place = TestFolder::new();
    let text = b"n\n1\nbad,2\n3\n";
    for (bytes, expected) in [(text.to_vec(), "-,0,1\n-,2,3\n"), (gzip(text), "-,0,1\n-,2,3\n")] {
        let mut child = place
            .tidemill(&["query", &format!("{SQL} '-'"), "--source-format", "csv", "--max-bad", "1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("filename,r,n\n{expected}"));
        // Compression is detected in a named pipe too, whatever its name says.
        for name in ["pipe.csv", "pipe.csv.xz"] {
            let path = place.path().join(name);
            assert!(place.program("mkfifo").arg(name).status().unwrap().success());
            let (to, given) = (path.clone(), bytes.clone());
            let writer = std::thread::spawn(move || fs::write(to, given));
            let found = place.run_ok(&["query", &format!("{SQL} '{name}'"), "--max-bad", "1"]);
            writer.join().unwrap().unwrap();
            assert_eq!(found, format!("filename,r,n\n{}", expected.replace('-', name)));
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn jobs_and_conversions_expose_file_names() {
    let place = TestFolder::new();
    place.write("in/a.csv", "k,n\nx,1\ny,2\n");
    place.write("in/b.csv", "k,n\nx,3\n");
    place.write(
        "by.toml",
        "source.url = 'in/*.csv'\n[tables]\nby = ['_file']\nn = 'count()'\nlast = 'max(file_row_number)'\n",
    );
    assert_eq!(place.run_ok(&["run", "by.toml"]), "_file,n,last\na.csv,2,1\nb.csv,1,0\n");
    place.write(
        "map.toml",
        "source.url = 'in/*.csv'\n[map]\nsql = 'SELECT *, filename AS f FROM source'\n[tables]\nby = ['f']\n\
         total = 'sum(n)'\n",
    );
    assert_eq!(place.run_ok(&["run", "map.toml"]), "f,total\nin/a.csv,3\nin/b.csv,3\n");
    place.run_ok(&["convert", "in/*.csv", "out.csv", "--select", "*, _file, file_row_number AS r"]);
    assert_eq!(place.read("out.csv"), "k,n,_file,r\nx,1,a.csv,0\ny,2,a.csv,1\nx,3,b.csv,0\n");
    assert_eq!(place.run_ok(&["schema", "in/a.csv"]).lines().count(), 3);
}

#[test]
fn empty_files_are_refused_alone_and_ignored_beside_others() {
    let place = TestFolder::new();
    for (name, lacking) in
        [("e.csv", "header"), ("e.tsv", "header"), ("e.json", "record"), ("e.logfmt", "record")]
    {
        place.write(name, "");
        let said = place.run_failing(2, &["query", &format!("SELECT * FROM '{name}'")]);
        let expected = format!("error: `{name}` is empty: 0 bytes, no {lacking}\nhint: --schema");
        assert!(said.starts_with(&expected), "{said}");
    }
    let typed = place.run_ok(&[
        "query",
        "SELECT count(*) AS c, sum(a) AS s FROM 'e.csv'",
        "--schema",
        "a BIGINT",
    ]);
    assert_eq!(typed, "c,s\n0,\n");
    place.write("blank.csv", "\n\n");
    let said = place.run_failing(2, &["query", "SELECT * FROM 'blank.csv'"]);
    assert!(said.contains("nothing in it but blank lines"), "{said}");
    place.write("in/a.csv", "");
    place.write("in/c.csv", "");
    let said = place.run_failing(2, &["query", "SELECT * FROM 'in/*.csv'"]);
    assert!(said.contains("all 2 files of `in/*.csv` are empty: 0 bytes, no header"), "{said}");
    place.write("in/b.csv", "k\n1\n");
    assert_eq!(
        place.run_ok(&["query", "SELECT filename, k FROM 'in/*.csv'"]),
        "filename,k\nin/b.csv,1\n"
    );
}

#[test]
fn log_formats_are_detected_from_lines() {
    let place = TestFolder::new();
    let combined =
        "1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.0\" 200 23 \"-\" \"curl/8\"";
    for (lines, format) in [
        (combined.to_owned(), "access-log"),
        (format!("www.example.com:80 {combined}"), "access-log"),
        (format!("{combined} 0.123"), "access-log"),
        ("Oct 11 22:14:15 web1 su[12]: failed".to_owned(), "syslog"),
        ("level=info msg=\"a b\" n=3".to_owned(), "logfmt"),
        ("{\"level\": \"info\"}".to_owned(), "json"),
        ("2024-01-01 10:00:00,123 INFO [main] started".to_owned(), "lines"),
        (format!("{combined}\nand more"), "lines"),
    ] {
        place.write("x.log", format!("{lines}\n"));
        place.write("x.log.gz", gzip(format!("{lines}\n").as_bytes()));
        for name in ["x.log", "x.log.gz"] {
            let shown = place.run_ok(&["schema", name]);
            assert!(shown.starts_with(&format!("{name}: {format}, ")), "{lines}: {shown}");
        }
        let plain = place.run_ok(&[
            "query",
            "SELECT count(line) AS c FROM 'x.log'",
            "--source-format",
            "lines",
        ]);
        assert_eq!(plain, format!("c\n{}\n", lines.lines().count()));
    }
    // Every inspected file must have the format.
    place.write("in/a.log", format!("{combined}\n"));
    place.write("in/b.log", "");
    assert!(place.run_ok(&["schema", "in/*.log"]).contains(": access-log, "));
    place.write("in/c.log", "plain\n");
    assert!(place.run_ok(&["schema", "in/*.log"]).contains(": lines, "));
}
