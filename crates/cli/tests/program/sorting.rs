//! Sorting of lines and rows, and set operations on ids.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, Stdio};

use crate::TestFolder;
use crate::interruption::{handles_sigint, send_signal, wait_for_exit, wait_until};

#[test]
fn lines_are_sorted_by_the_options_of_gnu_sort() {
    let place = TestFolder::new();
    let lines: Vec<String> =
        (0..5000_u64).map(|n| format!("{}\t{}\n", n * 7919 % 5003, n * 31 % 17)).collect();
    place.write("in.tsv", lines.concat());
    let sorted = |args: &[&str]| {
        let output = place.tidemill(&[&["sort"], args].concat()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let key = |line: &String| line.split('\t').next().unwrap().parse::<u64>().unwrap();
    let mut by_number = lines.clone();
    by_number.sort_by_key(key);
    assert_eq!(sorted(&["-n", "in.tsv"]), by_number.concat());
    let mut by_bytes = lines.clone();
    by_bytes.sort();
    assert_eq!(sorted(&["in.tsv"]), by_bytes.concat());
    assert_eq!(sorted(&["-S", "16M", "-k1,1", "-s", "--", "in.tsv"]).len(), lines.concat().len());

    assert_eq!(sorted(&["-rn", "-o", "out.tsv", "in.tsv"]), "");
    by_number.reverse();
    assert_eq!(place.read("out.tsv"), by_number.concat());

    let mut piped = place.tidemill(&["sort", "-u"]);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"b\na\nb\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"a\nb\n");
}

#[test]
fn rows_are_sorted_by_their_columns_from_any_format_to_any() {
    let place = TestFolder::new();
    let rows: Vec<(u64, Option<u64>, String)> = (0..30_000_u64)
        .map(|n| (n * 7919 % 10, (n % 11 > 0).then_some(n * 31 % 17), format!("row {n}")))
        .collect();
    let line = |(a, b, c): &(u64, Option<u64>, String)| {
        format!("{a},{},{c}\n", b.map(|b| b.to_string()).unwrap_or_default())
    };
    let file = |rows: &[(u64, Option<u64>, String)]| {
        format!("a,b,c\n{}", rows.iter().map(line).collect::<String>())
    };
    place.write("in.csv", file(&rows));
    let done = |args: &[&str]| {
        let output = place.tidemill(&[&["sort"], args].concat()).output().unwrap();
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {says}");
        String::from_utf8(output.stdout).unwrap()
    };
    let mut expected = rows.clone();
    expected.sort_by_key(|(a, b, _)| (*a, b.is_none(), std::cmp::Reverse(*b)));
    // Rows with equal keys keep their order.
    assert!(done(&["--by", "a,b:desc", "in.csv", "--threads", "1"]) == file(&expected));
    assert!(done(&["--by", "a,b:desc", "in.csv", "--threads", "4"]) == file(&expected));
    for format in ["parquet", "rowfile", "json", "arrow", "avro"] {
        let to = format!("out.{format}");
        assert_eq!(done(&["--by=a,b:desc,c", "in.csv", "-o", &to, "--memory", "64M"]), "");
        let mut expected = rows.clone();
        expected.sort_by_key(|(a, b, c)| (*a, b.is_none(), std::cmp::Reverse(*b), c.clone()));
        assert!(done(&["--by", "a,b:desc,c", &to]) == file(&expected), "{format}");
    }
    expected.sort_by_key(|(_, b, c)| (b.map_or(0, |b| b + 1), c.clone()));
    assert!(
        done(&["--by", "b:nulls-first,c", "out.parquet", "--format", "csv"]) == file(&expected)
    );
    done(&["--by", "c", "in.csv", "-o", "parts/{a}.csv"]);
    let third = place.read("parts/3.csv");
    let last = third.lines().skip(1).map(|line| line.rsplit(',').next().unwrap());
    assert!(last.clone().is_sorted() && last.count() > 2_000, "{third}");
}

#[test]
fn invalid_sort_by_arguments_are_refused() {
    let place = TestFolder::new();
    place.write("a.csv", "k,name\n1,x\n");
    place.write("dots.csv", "k,c.x\n1,3\n2,1\n");
    assert_eq!(place.run_ok(&["sort", "--by", "\"c.x\"", "dots.csv"]), "k,c.x\n2,1\n1,3\n");
    place.write("deep.json", "{\"a b\": {\"y.z\": 2}}\n{\"a b\": {\"y.z\": 1}}\n");
    let sorted =
        place.run_ok(&["sort", "--by", "\"a b\".\"y.z\"", "deep.json", "--format", "json"]);
    assert!(sorted.find('1').unwrap() < sorted.find('2').unwrap(), "{sorted}");
    for (args, status, expected) in [
        (&["sort", "--by", "nam", "a.csv"][..], 2, "unknown column `nam`"),
        (
            &["sort", "--by", "c.x", "dots.csv"],
            2,
            "unknown column `c` in `c.x`\nhint: a name with a dot stands in double quotes: --by '\"c.x\"'\n",
        ),
        (&["sort", "--by", "detail.x", "dots.csv"], 2, "unknown column `detail`"),
        (&["sort", "--by", "k:down", "a.csv"], 2, "`down` behind \"k\" is no way to sort"),
        (&["sort", "--by", "", "a.csv"], 2, "no column to sort by"),
        (&["sort", "--by", "k"], 2, "<IN>"),
        (&["sort", "a.csv", "--by"], 2, "--by"),
        (&["sort", "--by", "k", "a.csv", "-r"], 2, "-r"),
        (
            &["sort", "--by", "k:desc,name", "a.csv", "--explain"],
            2,
            "hint: `tidemill query --explain 'SELECT * FROM … ORDER BY k DESC, name'`\n",
        ),
        (&["sort", "--explain", "--by=k", "a.csv"], 2, "FROM … ORDER BY k'`\n"),
        (&["sort", "--by", "k", "a.csv", "-o", "a.csv"], 1, "a.csv"),
        (&["sort", "--by", "k", "none.csv"], 1, "none.csv"),
    ] {
        let output = place.tidemill(args).output().unwrap();
        let says = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {says}");
        assert!(says.contains(expected), "{args:?}: {says}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(place.read("a.csv"), "k,name\n1,x\n");
    let mut piped = place.tidemill(&["sort", "--by", "c.x", "-", "--source-format", "csv"]);
    let piped = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"k,c.x\n1,3\n").unwrap();
    let says = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(says.ends_with("stands in double quotes: --by '\"c.x\"'\n"), "{says}");
    let help = place.tidemill(&["sort", "--by", "k", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("tidemill sort --by COLUMNS"), "{help}");
    let words: Vec<&str> = help.split_whitespace().collect();
    assert!(words.join(" ").contains("keep the order in which the files have them"), "{help}");
}

#[test]
fn failed_line_sorts_report_errors_and_change_no_files() {
    let place = TestFolder::new();
    place.write("a.txt", "b\na\n");
    for (args, status, expected) in [
        (&["sort", "-c", "a.txt"][..], 1, "a.txt:2: disorder: a"),
        (&["sort", "-o", "a.txt", "a.txt"], 2, "`a.txt` exists"),
        (&["sort", "nosuch.txt"], 2, "cannot open `nosuch.txt`"),
        (&["sort", "--nosuch"], 2, "unknown option `--nosuch`"),
        (&["sort", "-k0", "a.txt"], 2, "error: "),
        (&["sort", "--model", "records=x"], 2, "error: "),
        (&["sort", "-r", "--model", "records=1e9"], 2, "`--model` stands alone"),
    ] {
        let output = place.tidemill(args).output().unwrap();
        let says = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {says}");
        assert!(says.contains(expected), "{args:?}: {says}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(place.read("a.txt"), "b\na\n");
    let model = place.tidemill(&["sort", "--model", "records=1e11"]).output().unwrap();
    let model = String::from_utf8(model.stdout).unwrap();
    assert!(model.contains("800 s") && model.ends_with('\n'), "{model}");
    let help = place.tidemill(&["sort", "--help"]).output().unwrap();
    assert!(String::from_utf8(help.stdout).unwrap().starts_with("Sorts lines"));
}

#[test]
fn sets_of_ids_are_combined() {
    let place = TestFolder::new();
    place.write("a.txt", "7\n3\n3\n");
    place.write("b.csv", "day,user\n1,5\n1,7\n2,\n");
    let told = |args: &[&str]| {
        let output = place.tidemill(&[&["ids"], args].concat()).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), told, String::from_utf8(output.stderr).unwrap())
    };
    let of = |text: &str| (Some(0), text.to_owned(), String::new());
    assert_eq!(told(&["union", "a.txt", "b.csv", "--column", "user"]), of("3\n5\n7\n"));
    assert_eq!(told(&["diff", "a.txt", "b.csv", "--column", "user"]), of("3\n"));
    assert_eq!(told(&["count", "a.txt", "b.csv", "--column", "user"]), of("3\n"));
    let (code, _, says) = told(&["xor", "a.txt", "b.csv", "--column", "user", "-o", "x.raw"]);
    assert_eq!(code, Some(0), "{says}");
    assert!(says.contains("wrote `x.raw`: 2 ids; 2 in `a.txt`, 2 in `b.csv`"), "{says}");
    assert_eq!(told(&["union", "x.raw", "--sorted"]), of("3\n5\n"));
    assert_eq!(told(&["union", "x.raw", "-o", "-"]), of("3\n5\n"));
    for (args, status, expected) in [
        (&["union", "a.txt", "-o", "x.raw"][..], 1, "`x.raw` exists"),
        (&["unoin", "a.txt"], 2, "did you mean `union`?"),
        (&["union", "b.csv"], 2, "has 2 columns: `day`, `user`"),
        (
            &["union", "b.csv", "--column", "usr"],
            2,
            "`b.csv` has no column `usr`; did you mean `user`?\nhint: its columns are `day`, `user`\n",
        ),
        (&["union", "b.csv", "--column", "usr.id"], 2, "`b.csv` has no column `usr.id`"),
        (&["union", "a.txt", "--sorted"], 1, "`a.txt` is not in order"),
        (&["union", "nosuch.txt"], 1, "`nosuch.txt`"),
        (&["union", "a.txt", "-o", "out/"], 2, "`out/` is a folder"),
        (&["union", "-", "-"], 2, "standard input is read once"),
        (
            &["union", "a.txt", "--column", "user"],
            2,
            "--column `user` means nothing: no set is a table",
        ),
        (&["count", "-", "x.raw", "--column", "user"], 2, "--column `user` means nothing"),
        (&["union", "s3://b/a.raw"], 2, "tidemill cat 's3://b/a.raw' | tidemill ids"),
        (&["union", "http://h/a?x=b.csv"], 2, "if it is a table, --input-format table"),
    ] {
        let (code, out, says) = told(args);
        assert_eq!(code, Some(status), "{args:?}: {says}");
        assert!(says.contains(expected) && out.is_empty(), "{args:?}: {says}");
    }
    // A column without values has no type, and an empty file has no columns.
    place.write("header.csv", "day,user\n");
    place.write("nulls.csv", "user\n\n\n");
    place.write("nothing.csv", "");
    place.write("nothing.json", "");
    place.write("mark.txt", "\u{feff}7\n8\n");
    place.write("words.csv", "user\n\nann\n");
    place.write("halves.csv", "user\n0.5\n");
    let column = ["--column", "user"];
    for empty in ["header.csv", "nulls.csv", "nothing.csv", "nothing.json"] {
        for args in [["union", "b.csv", empty], ["diff", "b.csv", empty], ["xor", empty, "b.csv"]] {
            assert_eq!(told(&[&args[..], &column].concat()), of("5\n7\n"), "{args:?}");
        }
        let both = ["intersect", "b.csv", empty];
        assert_eq!(told(&[&both[..], &column].concat()), of(""), "{empty}");
    }
    assert_eq!(told(&["union", "nulls.csv"]), of(""));
    assert_eq!(told(&["intersect", "mark.txt", "a.txt"]), of("7\n"));
    for (args, expected) in [
        (["union", "nothing.csv", "nothing.json"], "`nothing.csv` is empty: 0 bytes"),
        (["union", "a.txt", "header.csv"], "has 2 columns"),
        (["union", "a.txt", "words.csv"], "is TEXT, and ids are whole numbers\nhint: hash(x)"),
        (["union", "a.txt", "halves.csv"], "is DOUBLE, and ids are whole numbers\nhint: CAST(x"),
    ] {
        let (code, out, says) = told(&args);
        assert_eq!(code, Some(2), "{args:?}: {says}");
        assert!(says.contains(expected) && out.is_empty(), "{args:?}: {says}");
        assert!(!says.contains("--schema"), "it has no such option: {says}");
    }
    let mut piped = place.tidemill(&["ids", "intersect", "-", "a.txt"]);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"9\n7\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"7\n");
}

/// Types of text files are inferred from the first records, but ids always have the same type.
#[test]
fn ids_in_text_are_read_as_64_bit_integers_of_any_size() {
    let place = TestFolder::new();
    let told = |args: &[&str]| {
        let output = place.tidemill(&[&["ids"], args].concat()).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), told, String::from_utf8(output.stderr).unwrap())
    };
    const RECORDS: u64 = 60_000;
    let ids = |last: &str| (0..RECORDS).map(|id| id.to_string()).chain([last.to_owned()]);
    let csv = |last: &str| {
        let lines: String =
            ids(last).map(|id| format!("{id},{},{}\n", "x".repeat(60), "0.5")).collect();
        format!("id,text,half\n{lines}")
    };
    let tsv = |last: &str| csv(last).replace(',', "\t");
    let of_each =
        |line: fn(String) -> String| move |last: &str| ids(last).map(line).collect::<String>();
    let json = of_each(|id| format!("{{\"id\": {id}, \"text\": \"{}\"}}\n", "x".repeat(60)));
    let logfmt = of_each(|id| format!("id={id} text={}\n", "x".repeat(60)));
    type TextOf<'a> = &'a dyn Fn(&str) -> String;
    let kinds: [(&str, TextOf<'_>); 4] =
        [("a.csv", &csv), ("a.tsv", &tsv), ("a.json", &json), ("a.logfmt", &logfmt)];
    for (name, text) in kinds {
        // The suffix of the last file does not say that it is a table.
        let is_table: &[&str] =
            if name.ends_with("logfmt") { &["--input-format", "table"] } else { &[] };
        let column = [&[name, "--column", "id"], is_table].concat();
        for last in ["9223372036854775808", "18446744073709551615"] {
            place.write(name, text(last));
            let (code, count, says) = told(&[&["count"], &column[..]].concat());
            assert_eq!((code, count, says), (Some(0), format!("{}\n", RECORDS + 1), String::new()));
            let (code, out, says) = told(&[&["union"], &column[..], &["--signed"]].concat());
            assert_eq!((code, out.as_str()), (Some(1), ""), "{name}: {says}");
            assert!(says.contains(&format!("{name}: line ")), "{name}: {says}");
            assert!(
                says.contains(&format!("column `id`: expected a BIGINT, found `{last}`")),
                "{says}"
            );
            assert!(says.contains("hint: signed ids go up to"), "{says}");
            assert!(!says.contains("--schema") && !says.contains("--max-bad"), "{says}");
        }
        place.write(name, text("-1"));
        let (code, count, says) = told(&[&["count"], &column[..], &["--signed"]].concat());
        assert_eq!((code, count, says), (Some(0), format!("{}\n", RECORDS + 1), String::new()));
        let (code, out, says) = told(&[&["count"], &column[..]].concat());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{name}: {says}");
        assert!(
            says.contains(
                "expected a BIGINT UNSIGNED, found `-1`\nhint: ids are from 0 on: --signed"
            ),
            "{says}"
        );
    }
    // The output can be read again.
    place.write(
        "great.txt",
        format!("{}\n", ids("18446744073709551615").collect::<Vec<_>>().join("\n")),
    );
    assert_eq!(told(&["union", "great.txt", "-o", "great.csv"]).0, Some(0));
    assert_eq!(told(&["count", "great.csv"]).1, format!("{}\n", RECORDS + 1));
    // Only the last record determines the type.
    place.write("late.csv", format!("id,text\n{}18446744073709551615,\n", ",x\n".repeat(200_000)));
    assert_eq!(told(&["union", "late.csv", "--column", "id"]).1, "18446744073709551615\n");
    place.write("quoted.json", "{\"id\": \"ann\"}\n");
    let (code, _, says) = told(&["union", "quoted.json"]);
    assert!(code == Some(2) && says.contains("column `id` of `quoted.json` is TEXT"), "{says}");
    place.write("beyond.csv", "id\n18446744073709551616\n");
    place.write("both.csv", "id\n-1\n9223372036854775808\n");
    for (args, expected) in [
        (
            &["union", "beyond.csv"][..],
            "beyond.csv: line 2 (byte 3), column `id`: expected a BIGINT UNSIGNED, found `18446744073709551616`\n\
             hint: ids go up to 18446744073709551615\n",
        ),
        (&["union", "both.csv"], "found `-1`\nhint: ids are from 0 on: --signed"),
        (
            &["union", "both.csv", "--signed"],
            "found `9223372036854775808`\nhint: signed ids go up to",
        ),
    ] {
        let (code, out, says) = told(args);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{args:?}: {says}");
        assert!(says.contains(expected), "{args:?}: {says}");
    }
}

#[test]
fn ids_files_are_compressed_by_suffix_and_decompressed_by_content() {
    let place = TestFolder::new();
    place.write("a.txt", "7\n3\n30\n");
    let union = |args: &[&str]| {
        let output = place.tidemill(&[&["ids", "union"], args].concat()).output().unwrap();
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {says}");
        String::from_utf8(output.stdout).unwrap()
    };
    for name in
        ["u.txt.gz", "u.txt.zst", "u.txt.bz2", "u.txt.xz", "u.raw.gz", "u.u64.zst", "u.csv.gz"]
    {
        union(&["a.txt", "-o", name]);
        let stored = std::fs::read(place.path().join(name)).unwrap();
        assert!(!stored.starts_with(b"3\n") && !stored.starts_with(&[3, 0]), "{name}: {stored:?}");
        assert_eq!(union(&[name]), "3\n7\n30\n", "{name}");
    }
    assert_eq!(union(&["u.txt.gz", "--sorted"]), "3\n7\n30\n");
    // The first bytes determine the compression where the suffix does not.
    let gzip = std::fs::read(place.path().join("u.txt.gz")).unwrap();
    place.write("packed.txt", &gzip);
    place.write("plain.txt.gz", "9\n");
    assert_eq!(union(&["packed.txt", "plain.txt.gz"]), "3\n7\n9\n30\n");
    let mut piped = place.tidemill(&["ids", "union", "-", "plain.txt.gz"]);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&gzip).unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"3\n7\n9\n30\n");
    place.write("cut.txt.gz", &gzip[..gzip.len() - 4]);
    let output = place.tidemill(&["ids", "count", "cut.txt.gz"]).output().unwrap();
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && says.contains("cut.txt.gz"), "{says}");
    assert!(output.stdout.is_empty());
}

/// A sort that is killed or interrupted after it has spilled leaves no file.
#[test]
#[cfg(target_os = "linux")]
fn killed_or_interrupted_sort_leaves_no_files() {
    let lines: String = (0..3_000_000_u64).map(|n| format!("{}\n", n * 7919 % 999_983)).collect();
    let of_lines = ["sort", "-S", "16M", "-T", "spill", "-o", "out.csv", "-"];
    let by =
        ["sort", "--by", "k", "--source-format", "csv", "--memory", "64M", "-o", "out.csv", "-"];
    for (words, number) in [
        (&of_lines[..], libc::SIGKILL),
        (&of_lines, libc::SIGINT),
        (&by, libc::SIGKILL),
        (&by, libc::SIGINT),
    ] {
        let place = TestFolder::new();
        std::fs::create_dir(place.path().join("spill")).unwrap();
        let mut command = place.tidemill(words);
        command.env("TMPDIR", place.path().join("spill"));
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"k\n").unwrap();
        stdin.write_all(lines.as_bytes()).unwrap();
        stdin.flush().unwrap();
        // Standard input stays open: the sort has spilled by then, and blocks in a read.
        let spill = place.path().join("spill").canonicalize().unwrap();
        let files = format!("/proc/{}/fd", child.id());
        wait_until("it has spilled", || {
            std::fs::read_dir(&files).is_ok_and(|mut files| {
                files.any(|file| {
                    let open = file.ok().map(|file| file.path());
                    let target = open.as_ref().and_then(|open| std::fs::read_link(open).ok());
                    let bytes = open.and_then(|open| std::fs::metadata(open).ok());
                    target.is_some_and(|target| target.starts_with(&spill))
                        && bytes.is_some_and(|bytes| bytes.len() > 0)
                })
            })
        });
        wait_until("all has been taken", || is_pipe_empty(&stdin));
        send_signal(&child, number);
        let (status, stderr) = wait_for_exit(child);
        if number == libc::SIGINT {
            assert_eq!((status.code(), stderr.as_str()), (Some(130), "error: interrupted\n"));
        } else {
            assert_eq!(status.signal(), Some(number));
        }
        assert!(place.file_names("spill").is_empty(), "{words:?}: {:?}", place.file_names("spill"));
        let left = place.file_names(".");
        assert!(
            left.iter().all(|name| name == "spill/" || name.starts_with(".tidemill-")),
            "{words:?}: {left:?}"
        );
        drop(stdin);
        place.write("small.csv", "k\n2\n1\n");
        place.run_ok(&["sort", "--by", "k", "small.csv", "-o", "out.csv"]);
        assert_eq!(place.read("out.csv"), "k\n1\n2\n");
    }
}

/// Returns true if all bytes written to a pipe have been read.
#[cfg(target_os = "linux")]
fn is_pipe_empty(pipe: &ChildStdin) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes the number of bytes in an open pipe to `bytes`.
    assert_eq!(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut bytes) }, 0);
    bytes == 0
}

/// A verb that blocks in a read or write checks no cancel flag.
#[test]
#[cfg(target_os = "linux")]
fn interrupt_ends_verbs_blocked_in_a_pipe() {
    let place = TestFolder::new();
    let pipe = std::ffi::CString::new(place.path().join("pipe").to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a NUL.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    place.write("lines", "line\n".repeat(1 << 20));
    place.write("lines.csv", "line\n".repeat(1 << 20));
    for words in [
        &["sort", "pipe"][..],
        &["sort", "-c", "pipe"],
        &["sort", "lines"],
        &["ids", "union", "pipe", "--input-format", "text"],
        &["cat", "lines"],
        &["query", "SELECT * FROM 'lines.csv'"],
        &["sort", "--by", "line", "lines.csv"],
        &["convert", "lines.csv", "-", "--format", "json"],
        &["head", "--rows", "1000000", "lines.csv"],
    ] {
        let mut command = place.tidemill(words);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        wait_until("it handles signals", || handles_sigint(&child));
        send_signal(&child, libc::SIGINT);
        let (status, stderr) = wait_for_exit(child);
        assert_eq!(status.code(), Some(130), "{words:?}: {stderr}");
        assert_eq!(stderr, "error: interrupted\n", "{words:?}");
        drop(stdout);
    }
}

/// Every verb that may spill refuses a missing spill folder before it reads anything, and accepts several
/// folders.
#[test]
fn missing_spill_folder_is_refused_by_name() {
    let place = TestFolder::new();
    place.write("in.csv", "k\n2\n1\n");
    place.write("ids.txt", "2\n1\n");
    place.write("job.toml", "[source]\nurl = 'in.csv'\n[tables]\nby = ['k']\nn = 'count()'\n");
    place.write("file", "");
    std::fs::create_dir(place.path().join("spill")).unwrap();
    place.run_ok(&["run", "job.toml", "--partial", "in.part", "--spill-dir", "spill"]);
    let sql = "SELECT k FROM 'in.csv' ORDER BY k";
    for words in [
        &["query", sql][..],
        &["run", "job.toml"],
        &["run", "job.toml", "--partial", "other.part"],
        &["merge", "in.part"],
        &["convert", "in.csv", "out.parquet"],
        &["sort", "--by", "k", "in.csv", "-o", "sorted.csv"],
        &["ids", "count", "ids.txt"],
    ] {
        let with = |folders: &[&str]| {
            let flags = folders.iter().flat_map(|folder| ["--spill-dir", folder]);
            let words: Vec<&str> = words.iter().copied().chain(flags).collect();
            place.tidemill(&words).output().unwrap()
        };
        for (folder, why) in [("missing", "there is no such folder"), ("file", "it is a file")] {
            let output = with(&["spill", folder]);
            let says = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{words:?}: {says}");
            let expected = format!("error: cannot spill to `{folder}`: {why}\nhint: ");
            assert!(says.starts_with(&expected), "{words:?}: {says}");
            assert!(output.stdout.is_empty(), "{words:?}");
        }
        let output = with(&["spill", "."]);
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {says}");
    }
    place.write("there.toml", "[source]\nurl = 'in.csv'\n[run]\nspill_dir = ['spill', 'gone']\n");
    let output = place.tidemill(&["run", "there.toml"]).output().unwrap();
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{says}");
    assert!(says.starts_with("error: cannot spill to `gone`: there is no such folder\n"), "{says}");
    let output = place.tidemill(&["run", "there.toml", "--spill-dir", "spill"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(place.file_names("spill").is_empty(), "{:?}", place.file_names("spill"));
}
