//! Lines, compared with the machine's GNU sort if there is one, and the additions of this crate.

use std::collections::HashSet;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use tidemill_sort::SortCancelFlag;
use tidemill_sort::gnu::{
    GnuSortCommand, GnuSortError, GnuSortOptions, GnuSortOutcome, GnuSortStreams, run_gnu_sort,
};

/// A generator with the same sequence on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

struct SortRun {
    stdout: Vec<u8>,
    stderr: String,
    result: Result<GnuSortOutcome, GnuSortError>,
}

fn run_ours<S: AsRef<str>>(args: &[S], stdin: &[u8], memory_bytes: Option<u64>) -> SortRun {
    let mut command =
        GnuSortOptions::parse(args.iter().map(|arg| arg.as_ref().to_owned())).unwrap();
    if let (GnuSortCommand::Run(options), Some(bytes)) = (&mut command, memory_bytes) {
        options.memory_bytes = Some(bytes);
    }
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let result = run_gnu_sort(
        &command,
        &mut GnuSortStreams {
            stdin: Box::new(Cursor::new(stdin)),
            stdout: Box::new(&mut stdout),
            stderr: Box::new(&mut stderr),
            cancel: SortCancelFlag::new(),
        },
    );
    SortRun { stdout, stderr: String::from_utf8_lossy(&stderr).into_owned(), result }
}

/// Returns the major and minor version of the machine's GNU sort.
fn gnu_version() -> Option<(u32, u32)> {
    let output = Process::new("sort").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().next()?.strip_prefix("sort (GNU coreutils) ")?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn run_gnu(args: &[String], folder: &Path) -> (Vec<u8>, Option<i32>, String) {
    let output = Process::new("sort")
        .args(args)
        .current_dir(folder)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.stdout, output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn random_field(random: &mut Random) -> Vec<u8> {
    match random.below(14) {
        0 => Vec::new(),
        1 => random
            .one(&["-", "+", ".", "-.", "0", "-0", "+1", "1.", ".5", "-.5", "00", "0.0"])
            .as_bytes()
            .to_vec(),
        2 => format!("{}", random.below(30)).into_bytes(),
        3 => format!("-{}.{}", random.below(4), random.below(30)).into_bytes(),
        4 => format!(
            "{}{}",
            random.below(2000),
            random.one(&["K", "k", "M", "G", "T", "m", "Ki", "x"])
        )
        .into_bytes(),
        5 => random.one(&["Jan", "FEB", "mar", "apri", "december", "Ju", "no"]).as_bytes().to_vec(),
        6 => format!("f{}.{}", random.below(12), random.one(&["c", "tar.gz", "~", "9", ""]))
            .into_bytes(),
        7 => format!("{}~{}", random.below(3), random.below(3)).into_bytes(),
        8 => format!("{}e{}", random.below(50), random.below(5) as i32 - 2).into_bytes(),
        9 => random
            .one(&[
                "nan",
                "-nan",
                "nan(1)",
                "-nan(0x100)",
                "nan(7",
                "inf",
                "-inf",
                "0x1F",
                "1e400",
                "-1e400",
                "1e-400",
                "infinity",
                "e5",
                "0",
                "-0",
                "-0.0",
                "0x0",
                "-0x0",
                "0e9",
                "-00",
            ])
            .as_bytes()
            .to_vec(),
        10 => (0..random.below(5))
            .map(|_| {
                random.one(&[&b'a', &b'A', &b'b', &b'B', &b'.', &b'~', &b'9', &b'0'][..]).to_owned()
            })
            .collect(),
        11 => (0..random.below(4))
            .map(|_| random.next() as u8)
            .filter(|byte| !b"\0\nQR".contains(byte))
            .collect(),
        12 => format!("{}{}", "9".repeat(random.below(25)), random.below(3)).into_bytes(),
        _ => random
            .one(&["the same", "a", "aa", "aaaaaaaab", "aaaaaaaac", "aaaaaaaa"])
            .as_bytes()
            .to_vec(),
    }
}

fn random_lines(random: &mut Random, terminator: u8) -> Vec<u8> {
    let count = [0, 1, 2, 12, 30][random.below(5)];
    let mut bytes = Vec::new();
    for _ in 0..count {
        for index in 0..random.below(4) {
            if index > 0 {
                let between: &str = random.one(&[" ", ",", "  ", "\t", ",,", " ,"]);
                bytes.extend_from_slice(between.as_bytes());
            }
            let field = random_field(random);
            bytes.extend(field);
        }
        if terminator == 0 && random.below(9) == 0 {
            bytes.push(b'\n');
        }
        bytes.push(terminator);
    }
    if random.below(3) == 0 {
        bytes.pop();
    }
    bytes
}

fn random_position(random: &mut Random, end: bool) -> String {
    let field = 1 + random.below(3);
    match random.below(3) {
        0 => format!("{field}.{}", random.below(4) + usize::from(!end)),
        _ => field.to_string(),
    }
}

fn random_ordering(random: &mut Random) -> String {
    let mut options = String::new();
    for _ in 0..random.below(3) {
        options.push_str(random.one(&["b", "d", "f", "i", "r"]));
    }
    if random.below(2) == 0 {
        options.push_str(random.one(&["n", "h", "g", "M", "V"]));
    }
    options
}

/// Generates options that GNU sort mostly accepts together.
fn random_options(random: &mut Random) -> Vec<String> {
    let mut args = Vec::new();
    for _ in 0..[0, 1, 1, 2, 3][random.below(5)] {
        let mut key = random_position(random, false);
        if random.below(2) == 0 {
            key.push_str(&random_ordering(random));
        }
        if random.below(2) == 0 {
            key.push(',');
            key.push_str(&random_position(random, true));
            if random.below(3) == 0 {
                key.push_str(&random_ordering(random));
            }
        }
        args.push(format!("-k{key}"));
    }
    let global = random_ordering(random);
    if !global.is_empty() {
        args.push(format!("-{global}"));
    }
    for (option, rarity) in [("-s", 3), ("-u", 3), ("-r", 5), ("-t,", 3), ("-z", 12)] {
        if random.below(rarity) == 0 {
            args.push(option.to_owned());
        }
    }
    args
}

/// Returns whether the answers differ on purpose for an input. This concerns `-g` beyond the digits of a long
/// double; several NaNs, which GNU sort up to 9.1 compares by their bits, padding included, and as texts
/// later; and `-V` of a key that is an extension as a whole, which is a name of its own since some version
/// after 9.1. (The units R and Q, which GNU sort knows from 9.2 on, are not among the fields.)
fn differs_on_purpose(args: &[String], input: &[u8]) -> bool {
    let has = |letter| args.iter().any(|arg| arg.starts_with('-') && arg.contains(letter));
    let digits = input.windows(19).any(|window| window.iter().all(u8::is_ascii_digit));
    let within = has('i')
        || args.iter().any(|arg| {
            arg.starts_with("-k") && arg.split(',').next().unwrap_or_default().contains('.')
        });
    let extension =
        |pair: &[u8]| pair[0] == b'.' && (pair[1].is_ascii_alphabetic() || pair[1] == b'~');
    let extension = if within {
        input.windows(2).any(extension)
    } else {
        input.get(..2).is_some_and(extension)
            || input
                .windows(3)
                .any(|window| b"\n\0 \t,".contains(&window[0]) && extension(&window[1..]))
    };
    let nans = input.windows(3).filter(|window| window.eq_ignore_ascii_case(b"nan")).count() > 1;
    has('g') && (digits || nans) || has('V') && extension
}

#[test]
fn gnu_sort_agrees_on_random_inputs_and_options() {
    if gnu_version().is_none() {
        eprintln!("skipped: this machine has no GNU sort");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // `TIDEMILL_ROUNDS=100000` for a soak, with other inputs each time.
    let asked = std::env::var("TIDEMILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let seed = if asked.is_some() { u64::from(std::process::id()) } else { 0 };
    let mut random = Random(20_260_101 + seed);
    let (mut compared, mut refused) = (0, 0);
    let mut kinds = HashSet::new();
    // On a busy machine fewer rounds must be enough.
    let began = Instant::now();
    let rounds = asked.unwrap_or(4000);
    for round in 0..rounds {
        if asked.is_none() && round >= 150 && began.elapsed() > Duration::from_secs(12) {
            break;
        }
        let args = random_options(&mut random);
        let terminator = if args.iter().any(|arg| arg == "-z") { 0 } else { b'\n' };
        let inputs: Vec<Vec<u8>> =
            (0..=random.below(3)).map(|_| random_lines(&mut random, terminator)).collect();
        let action = random.one(&["", "", "", "-m", "-c", "-C"]);
        let mut args = args;
        let mut files = Vec::new();
        for (index, input) in inputs.iter().enumerate() {
            let name = path(&format!("in{index}"));
            fs::write(&name, input).unwrap();
            files.push(name);
        }
        if !action.is_empty() {
            args.push(action.to_owned());
        }
        if action.starts_with('-') && action != "-m" {
            files.truncate(1);
        }
        if differs_on_purpose(&args, &inputs.concat()) {
            continue;
        }
        args.extend(files);
        let (stdout, status, stderr) = run_gnu(&args, folder.path());
        if status == Some(2) {
            // Options that exclude each other are refused here as well.
            assert!(
                GnuSortOptions::parse(args.clone()).is_err(),
                "round {round}: {args:?}: {stderr}"
            );
            refused += 1;
            continue;
        }
        let ran = run_ours(&args, b"", None);
        let shown = || {
            let inputs: Vec<_> =
                inputs.iter().map(|input| String::from_utf8_lossy(input)).collect();
            format!(
                "round {round}: sort {args:?}\n{inputs:?}\nours   {:?}\ntheirs {:?}",
                String::from_utf8_lossy(&ran.stdout),
                String::from_utf8_lossy(&stdout)
            )
        };
        let outcome = ran.result.as_ref().unwrap_or_else(|error| panic!("{}: {error}", shown()));
        assert!(ran.stdout == stdout, "{}", shown());
        assert_eq!(Some(outcome.exit_status()), status, "{}", shown());
        if action == "-c" {
            assert_eq!(ran.stderr, stderr, "{}", shown());
        }
        compared += 1;
        kinds.insert(args.iter().filter(|arg| arg.starts_with('-')).cloned().collect::<Vec<_>>());
    }
    assert!(
        compared > 100 && refused > 0 && kinds.len() > 75,
        "{compared} {refused} {}",
        kinds.len()
    );
}

/// NaNs of the same bits tie here. In GNU sort up to 9.1 they may differ in the padding of a long double,
/// which nobody sets, so only the order of different bits is compared.
#[test]
fn gnu_sort_agrees_on_the_order_of_different_nans() {
    if !cfg!(target_arch = "x86_64") || gnu_version().is_none_or(|version| version >= (9, 2)) {
        eprintln!("skipped: this machine's GNU sort does not compare NaNs by their bits");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in").to_str().unwrap().to_owned();
    let mut random = Random(9);
    let payloads = [
        ("", 0),
        ("()", 0),
        ("(0)", 0),
        ("(7", 0),
        ("(08)", 0),
        ("(x)", 0),
        ("(1)", 1),
        ("(0x1)", 1),
        ("(017)", 15),
        ("(256)", 256),
        ("(0x101)", 257),
    ];
    let kinds = |lines: &[u8]| -> Vec<String> {
        let lines = String::from_utf8_lossy(lines).to_lowercase();
        let kind = |line: &str| {
            let (sign, rest) = match line.strip_prefix('-') {
                Some(rest) => ("-", rest),
                None => ("", line.trim_start_matches('+')),
            };
            let payload = rest.strip_prefix("nan").map(|rest| {
                payloads.iter().find(|(text, _)| *text == rest).expect("one of them").1
            });
            payload.map_or(line.to_owned(), |payload| format!("{sign}nan {payload}"))
        };
        lines.lines().map(kind).collect()
    };
    let texts = payloads.map(|(text, _)| text);
    for _ in 0..40 {
        let line = |random: &mut Random| {
            let sign = random.one(&["", "-", "+"]);
            format!("{sign}{}{}\n", random.one(&["nan", "NaN"]), random.one(&texts))
        };
        let text: String = (0..12).map(|_| line(&mut random)).collect();
        fs::write(&file, format!("{text}1\n\n-inf\n")).unwrap();
        for options in ["-g", "-gs", "-gr"] {
            let args = [options.to_owned(), file.clone()];
            let ran = run_ours(&args, b"", None);
            let (stdout, ..) = run_gnu(&args, folder.path());
            assert_eq!(kinds(&ran.stdout), kinds(&stdout), "{options} of {text}");
        }
    }
}

#[test]
fn input_ending_in_nul_bytes_is_sorted_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, cut) = (path("whole"), path("cut"));
    fs::write(&whole, b"b\na\n").unwrap();
    let warning = |nuls: &str, more: &str| {
        format!(
            "warning: `{cut}` ends in {nuls} without a line end, as a power failure leaves files{more}; they are \
             sorted as a line, or as the end of one\n"
        )
    };
    let large = [&b"b\na\n"[..], &[0; 3 << 20]].concat();
    for (text, sorted, said) in [
        (&b"b\na\n\0"[..], &b"\0\na\nb\n"[..], warning("1 NUL byte", "")),
        (b"b\na\0\0", b"a\0\0\nb\n", warning("2 NUL bytes", "")),
        (&large, &[&large[4..], b"\na\nb\n"].concat(), warning("3145728 NUL bytes", "")),
        (b"b\n\0a\n", b"\0a\nb\n", String::new()),
        (b"b\0a\0", b"b\0a\0\n", String::new()),
    ] {
        fs::write(&cut, text).unwrap();
        for args in [vec![cut.as_str()], vec!["--map-tasks", "3", cut.as_str()]] {
            let ran = run_ours(&args, b"", None);
            ran.result.unwrap();
            assert!(ran.stdout == sorted, "{args:?}");
            assert_eq!(ran.stderr, said, "{args:?}");
        }
    }
    fs::write(&cut, b"c\0").unwrap();
    let ran = run_ours(&[&cut, "-", &whole, &cut, &cut], b"d\0\0", None);
    assert_eq!(ran.stderr, warning("1 NUL byte", ", and 3 more inputs do as well"));
    // With NULs as terminators nothing is unusual.
    let ran = run_ours(&["-z", &cut], b"", None);
    assert_eq!((ran.stdout.as_slice(), ran.stderr.as_str()), (&b"c\0"[..], ""));
}

#[test]
fn gnu_sort_agrees_beyond_memory() {
    if gnu_version().is_none() {
        eprintln!("skipped: this machine has no GNU sort");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in").to_str().unwrap().to_owned();
    let mut random = Random(7);
    let mut bytes = Vec::new();
    while bytes.len() < 3 << 20 {
        for _ in 0..random.below(3) {
            let field = random_field(&mut random);
            bytes.extend(field);
            bytes.push(b' ');
        }
        bytes.extend(format!("{}", random.below(100_000)).into_bytes());
        bytes.push(b'\n');
    }
    fs::write(&file, &bytes).unwrap();
    for line in [
        "",
        "-r",
        "-u",
        "-n",
        "-k2,2n -s",
        "-k2n -u",
        "-V",
        "-h -r",
        "-k1,1 -k2,2nr",
        "-f",
        "-s -k1,1M",
        "-z",
        "-d -u",
    ] {
        let mut args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        args.extend([
            "--spill-dir".to_owned(),
            folder.path().to_str().unwrap().to_owned(),
            "--parallel=2".to_owned(),
            file.clone(),
        ]);
        let memory = if line == "-z" { 64 << 20 } else { 1 << 20 };
        let ran = run_ours(&args, b"", Some(memory));
        args.drain(args.len() - 4..args.len() - 1);
        let (stdout, ..) = run_gnu(&args, folder.path());
        let different = ran
            .stdout
            .split(|byte| *byte == b'\n')
            .zip(stdout.split(|byte| *byte == b'\n'))
            .find(|(a, b)| a != b);
        let text = |(a, b): (&[u8], &[u8])| {
            (String::from_utf8_lossy(a).into_owned(), String::from_utf8_lossy(b).into_owned())
        };
        assert_eq!(different.map(text), None, "sort {line}");
        assert!(ran.stdout == stdout, "sort {line}");
        let Ok(GnuSortOutcome::Sorted(report)) = ran.result else { panic!("sort {line}") };
        assert_eq!(report.disk.writes > 0, line != "-z", "sort {line}");
    }
}

/// GNU sort rounds to a long double, so it depends on the machine which of these lines tie there.
#[test]
fn general_numbers_tie_only_where_their_values_are_the_same() {
    for (input, expected) in [
        ("1e500 inf 1e400 -1e500 -inf", "-inf -1e500 1e400 1e500 inf"),
        ("0x0 1e-400 -1e-400 0", "-1e-400 0x0 1e-400"),
        (
            "9007199254740993 0x20000000000000 9007199254740992 0x20000000000001 0x1p53",
            "0x20000000000000 9007199254740993",
        ),
        ("12.5 0x1.8p3 0xC 12", "0x1.8p3 12.5"),
        ("1e999999999 0x1p999999999 1e-999999999", "1e-999999999 0x1p999999999 1e999999999"),
    ] {
        let lines = |text: &str| text.replace(' ', "\n") + "\n";
        let ran = run_ours(&["-g", "-u", "-s"], lines(input).as_bytes(), None);
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), lines(expected));
    }
}

fn make_pipe(path: &str) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Returns the result of a command, or panics after a timeout: a command that waits for a pipe in vain waits
/// forever.
fn run_ours_with_timeout(args: &[String]) -> SortRun {
    let (send, receive) = std::sync::mpsc::channel();
    let args = args.to_vec();
    std::thread::spawn(move || send.send(run_ours(&args, b"", None)));
    receive.recv_timeout(Duration::from_secs(60)).expect("it hangs")
}

#[test]
fn named_pipe_is_opened_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("file"), "b\n").unwrap();
    fs::write(path("list"), format!("{}\0{}\0", path("p"), path("q"))).unwrap();
    let names = ["p", "q", "r"];
    names.iter().for_each(|name| make_pipe(&path(name)));
    // More than a pipe holds.
    let big: String = (0..30_000).map(|number| format!("c{number:05}\n")).collect();
    let many = |text: &str| text.to_owned();
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, String)], String);
    let cases: [Case<'_>; 7] = [
        (&["p"], &[("p", many("3\n1\n2\n"))], many("1\n2\n3\n")),
        (&["-n", "file", "p", "file"], &[("p", many("1\n"))], many("b\nb\n1\n")),
        (&["-c", "p"], &[("p", many("1\n2\n"))], many("")),
        (&["-m", "p", "q", "file"], &[("p", many("a\n")), ("q", many("c\n"))], many("a\nb\nc\n")),
        (
            &["-m", "--batch-size=2", "p", "q", "r"],
            &[("p", many("a\n")), ("q", many("c\n")), ("r", many("b\n"))],
            many("a\nb\nc\n"),
        ),
        (&["--files0-from=list"], &[("p", many("b\n")), ("q", many("a\n"))], many("a\nb\n")),
        (
            &["--files0-from=r"],
            &[("r", format!("{}\0", path("p"))), ("p", many("b\na\n"))],
            many("a\nb\n"),
        ),
    ];
    let run_case = |args: &[&str], expected: &str| {
        let args: Vec<String> = args
            .iter()
            .map(|arg| match arg.strip_prefix("--files0-from=") {
                Some(name) => format!("--files0-from={}", path(name)),
                None if arg.starts_with('-') => (*arg).to_owned(),
                None => path(arg),
            })
            .collect();
        let ran = run_ours_with_timeout(&args);
        ran.result.unwrap();
        assert!(ran.stdout == expected.as_bytes(), "{args:?}");
    };
    for (args, contents, expected) in &cases {
        let writers: Vec<_> = contents
            .iter()
            .map(|(name, text)| {
                let (path, text) = (path(name), text.clone());
                std::thread::spawn(move || fs::write(path, text).unwrap())
            })
            .collect();
        run_case(args, expected);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    }
    // One writer that opens a pipe when it has filled the one before.
    let pipes = [path("p"), path("q")];
    let (one, text) = (pipes.clone(), big.clone());
    let writer =
        std::thread::spawn(move || one.iter().for_each(|pipe| fs::write(pipe, &text).unwrap()));
    let twice: String = big.lines().flat_map(|line| [line, "\n", line, "\n"]).collect();
    run_case(&["p", "q"], &twice);
    writer.join().unwrap();
    // One that opens all before it writes to any, which a merge must support.
    let text = big.clone();
    let writer = std::thread::spawn(move || {
        let files = pipes.map(|pipe| fs::File::options().write(true).open(pipe).unwrap());
        for mut file in files {
            std::io::Write::write_all(&mut file, &text.as_bytes()[..7000]).unwrap();
        }
    });
    let twice: String = big[..7000].lines().flat_map(|line| [line, "\n", line, "\n"]).collect();
    run_case(&["-m", "p", "q"], &twice);
    writer.join().unwrap();
}

#[test]
fn limit_is_the_head_of_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(11);
    let mut files = Vec::new();
    for (name, action) in [("a", ""), ("b", "-s"), ("c", "-u")] {
        let mut bytes = Vec::new();
        while bytes.len() < 200 << 10 {
            let line = format!("{} {}\n", random.below(30_000), random.below(100));
            bytes.extend(line.into_bytes());
        }
        let name = folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(&name, run_ours(&["-n", action, "-k1,1", "-"][..], &bytes, None).stdout).unwrap();
        files.push(name);
    }
    for line in ["-r", "-n", "-k2,2n -s", "-k2n -u", "-k1,1n -u", "-m -k1,1n -s", "-m -u -n", "-R"]
    {
        // The first one in memory, too.
        let memories: &[u64] = if line == "-r" { &[1 << 20, 16 << 20] } else { &[1 << 20] };
        for memory in memories {
            let mut args: Vec<&str> = line.split(' ').chain(["--batch-size=2"]).collect();
            args.extend(files.iter().map(String::as_str));
            let mut parsed = GnuSortOptions::parse(args.clone()).unwrap();
            let GnuSortCommand::Run(options) = &mut parsed else { panic!() };
            options.seed = Some(1);
            options.memory_bytes = Some(*memory);
            let run_with = |limit: Option<u64>| {
                let mut options = options.clone();
                options.limit = limit;
                options.spill_dirs = vec![folder.path().to_path_buf()];
                let mut stdout = Vec::new();
                let mut io = GnuSortStreams {
                    stdout: Box::new(&mut stdout),
                    ..GnuSortStreams::from_process()
                };
                run_gnu_sort(&GnuSortCommand::Run(options), &mut io).unwrap();
                drop(io);
                stdout
            };
            let whole = run_with(None);
            for limit in [0, 10, 40_000] {
                let head: Vec<_> =
                    whole.split_inclusive(|byte| *byte == b'\n').take(limit as usize).collect();
                assert!(run_with(Some(limit)) == head.concat(), "{line} --limit={limit}");
            }
        }
    }
    let ran = run_ours(&["--records=2", "--limit=2"], b"dacabaaa", None);
    assert_eq!(ran.stdout, b"aaba");
    let explain: Vec<&str> = ["-n", "--explain", "--limit=9"]
        .into_iter()
        .chain(files.iter().map(String::as_str))
        .collect();
    let explained = run_ours(&explain, b"", Some(1 << 20)).stderr;
    assert!(explained.contains("no file will be touched"), "{explained}");
    assert!(explained.contains("dropped by the limit"), "{explained}");
}

/// All tasks share the partitions, so writes do not depend on tasks. 2,500 tasks of 16 MB have the size of
/// 10,000 of 64 MB; with records of one line each the headers would matter.
#[test]
fn the_number_of_map_tasks_changes_neither_order_nor_operations() {
    let folder = tempfile::tempdir().unwrap();
    let spill = folder.path().to_str().unwrap().to_owned();
    let file = folder.path().join("in").to_str().unwrap().to_owned();
    let mut random = Random(17);
    let mut bytes = Vec::new();
    for number in 0..160_000 {
        bytes.extend(format!("{:05} {number:06} {:86}\n", random.below(50_000), "").into_bytes());
    }
    fs::write(&file, &bytes).unwrap();
    let mut expected: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    expected.sort_by_key(|line| &line[..5]);
    let expected = expected.concat();
    let of = |tasks: &str, input: &str| {
        let tasks = format!("--map-tasks={tasks}");
        let args = ["-s", "-k1,1", "--explain", "-T", &spill, "--parallel=2", &tasks, input];
        let ran = run_ours(&args, &bytes, Some(1 << 20));
        assert!(ran.stdout == expected, "{tasks} of {input}");
        let Ok(GnuSortOutcome::Sorted(report)) = ran.result else { panic!() };
        let shown = report.disk.writes.to_string();
        assert!(
            ran.stderr.lines().any(|line| line.starts_with("writes") && line.ends_with(&shown))
        );
        report.disk.operations()
    };
    let ten = of("10", &file);
    for tasks in ["1", "2500"] {
        let others = of(tasks, &file);
        assert!(ten.abs_diff(others) * 10 <= ten, "{ten} and {others} with {tasks}");
    }
    of("10000000", &file);
    of("7", "-");
}

#[test]
fn an_output_appears_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    fs::write(path("in"), "b\na\n").unwrap();
    run_ours(&["-o", &path("out"), &path("in")], b"", None).result.unwrap();
    assert_eq!(fs::read_to_string(path("out")).unwrap(), "a\nb\n");
    let error = run_ours(&["-r", "-o", &path("out"), &path("in")], b"", None).result.unwrap_err();
    assert!(error.to_string().contains("`--overwrite`"), "{error}");
    // The input itself, with its mode kept.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path("in"), fs::Permissions::from_mode(0o640)).unwrap();
    run_ours(&["-o", &path("in"), &path("in"), "--overwrite", "--sync"], b"", None).result.unwrap();
    assert_eq!(fs::read_to_string(path("in")).unwrap(), "a\nb\n");
    assert_eq!(fs::metadata(path("in")).unwrap().permissions().mode() & 0o777, 0o640);
    // A link stays one.
    std::os::unix::fs::symlink(path("out"), path("link")).unwrap();
    run_ours(&["-r", "-o", &path("link"), &path("in"), "--overwrite"], b"", None).result.unwrap();
    assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(path("out")).unwrap(), "b\na\n");
    // A failure leaves the old contents, and nothing beside them.
    let error = run_ours(&["-o", &path("new"), &path("in"), "/"], b"", None).result.unwrap_err();
    assert!(error.to_string().contains("`/`"), "{error}");
    fs::write(path("long"), "x".repeat(3 << 20)).unwrap();
    let error = run_ours(&["-o", &path("out"), &path("long"), "--overwrite"], b"", Some(16 << 20))
        .result
        .unwrap_err();
    assert!(matches!(error, GnuSortError::LineTooLong { .. }), "{error}");
    assert_eq!(fs::read_to_string(path("out")).unwrap(), "b\na\n");
    assert_eq!(names(), ["in", "link", "long", "out"]);
    run_ours(&["-o", "/dev/null", &path("in")], b"", None).result.unwrap();
    for bad in ["missing/out", "in/out"] {
        let error = run_ours(&["-o", &path(bad), &path("in")], b"", None).result.unwrap_err();
        assert!(error.to_string().contains(bad), "{error}");
    }
}

#[test]
fn irregular_output_file_is_written_in_place() {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileTypeExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("in"), "b\na\n").unwrap();
    make_pipe(&path("pipe"));
    symlink(path("pipe"), path("link")).unwrap();
    symlink(path("link"), path("link of link")).unwrap();
    symlink("/dev/null", path("null")).unwrap();
    for overwrite in [false, true] {
        let args = |name: &str| {
            let mut args = vec!["-o".to_owned(), name.to_owned(), path("in")];
            args.extend(overwrite.then(|| "--overwrite".to_owned()));
            args
        };
        for name in ["pipe", "link", "link of link"] {
            let pipe = path("pipe");
            let (send, receive) = std::sync::mpsc::channel();
            std::thread::spawn(move || send.send(fs::read(pipe)));
            run_ours_with_timeout(&args(&path(name))).result.unwrap();
            let read = receive.recv_timeout(Duration::from_secs(60)).expect("nothing was written");
            assert_eq!(read.unwrap(), b"a\nb\n", "{name}");
        }
        run_ours(&args(&path("null")), b"", None).result.unwrap();
        for link in ["link", "link of link", "null"] {
            assert!(fs::symlink_metadata(path(link)).unwrap().is_symlink(), "{link}");
        }
        assert!(fs::metadata(path("pipe")).unwrap().file_type().is_fifo());
        // As `/dev/stdout` leads to a pipe that has no name.
        if Path::new("/proc/self/fd").exists() {
            let (mut reader, writer) = std::io::pipe().unwrap();
            let number = format!("/proc/self/fd/{}", writer.as_raw_fd());
            let link = path(if overwrite { "own link 1" } else { "own link 2" });
            symlink(&number, &link).unwrap();
            for name in [&number, &link] {
                run_ours_with_timeout(&args(name)).result.unwrap();
            }
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            drop(writer);
            let mut written = String::new();
            reader.read_to_string(&mut written).unwrap();
            assert_eq!(written, "a\nb\na\nb\n");
        }
    }
}

#[test]
fn failing_inputs_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for action in ["-s", "-m", "-c"] {
        let error = run_ours(&[action, &path("missing")], b"", None).result.unwrap_err();
        assert!(error.to_string().contains(&path("missing")), "{error}");
    }
    assert_eq!(run_ours(&["-", &path("in")][..1], b"b\na", None).stdout, b"a\nb\n");
    fs::write(path("in"), "c").unwrap();
    assert_eq!(run_ours(&["-", &path("in")], b"b\na", None).stdout, b"a\nb\nc\n");
    fs::write(path("list"), format!("{}\0-", path("in"))).unwrap();
    assert_eq!(run_ours(&["--files0-from", &path("list")], b"b\na", None).stdout, b"a\nb\nc\n");
    for (list, part) in [("", "no input"), ("a\0\0b", "empty name")] {
        fs::write(path("list"), list).unwrap();
        let error = run_ours(&["--files0-from", &path("list")], b"", None).result.unwrap_err();
        assert!(error.to_string().contains(part) && error.to_string().contains("list"), "{error}");
    }
    let help = run_ours(&["--help"], b"", None);
    assert!(String::from_utf8(help.stdout).unwrap().contains("--overwrite"));
}

#[test]
fn more_inputs_than_a_merge_takes_are_merged_in_steps() {
    let folder = tempfile::tempdir().unwrap();
    let mut args: Vec<String> =
        ["-m", "-k1,1n", "-s", "--batch-size=3", "-T"].map(str::to_owned).to_vec();
    args.push(folder.path().to_str().unwrap().to_owned());
    let mut expected = Vec::new();
    for file in 0..20 {
        let path = folder.path().join(format!("in{file}"));
        let lines: Vec<(usize, String)> =
            (0..50).map(|n| (n * 3 / 2, format!("{} of {file}\n", n * 3 / 2))).collect();
        fs::write(&path, lines.iter().map(|(_, line)| line.as_str()).collect::<String>()).unwrap();
        expected.extend(lines);
        args.push(path.to_str().unwrap().to_owned());
    }
    expected.sort_by_key(|(n, _)| *n);
    let ran = run_ours(&args, b"", None);
    ran.result.unwrap();
    let expected: String = expected.into_iter().map(|(_, line)| line).collect();
    assert!(ran.stdout == expected.as_bytes());
}

#[test]
fn as_many_inputs_are_open_at_once_as_the_process_may_have() {
    const FILES: usize = 300;
    const FOLDER: &str = "TIDEMILL_TEST_FEW_FILES";
    // The process with few open files is a child: this test once more.
    let Some(folder) = std::env::var_os(FOLDER) else {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..FILES {
            let text = format!("{number}\n{}\n", number + FILES);
            fs::write(folder.path().join(format!("in{number}")), text).unwrap();
        }
        let test = "gnu::as_many_inputs_are_open_at_once_as_the_process_may_have";
        for limit in [100, 24] {
            let child = Process::new("sh")
                .args(["-c", &format!("ulimit -n {limit} && exec \"$0\" \"$@\"")])
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", test, "--nocapture"])
                .env(FOLDER, folder.path())
                .output()
                .unwrap();
            let told = [child.stdout, child.stderr].concat();
            let told = String::from_utf8_lossy(&told);
            assert!(child.status.success() && told.contains("1 passed"), "{limit}: {told}");
        }
        return;
    };
    let folder = folder.to_str().unwrap();
    let expected: String = (0..2 * FILES).map(|number| format!("{number}\n")).collect();
    for action in ["-mn", "-mn --batch-size=16", "-n --explain"] {
        let files = (0..FILES).map(|number| format!("{folder}/in{number}"));
        let output = format!("{folder}/out");
        let words = action.split(' ').chain(["-T", folder, "--overwrite", "-o", &output]);
        let args: Vec<String> = words.map(str::to_owned).chain(files).collect();
        let ran = run_ours(&args, b"", Some(16 << 20));
        ran.result.unwrap_or_else(|error| panic!("{action}: {error}"));
        assert!(fs::read_to_string(output).unwrap() == expected, "{action}");
    }
}

#[test]
fn random_order_keeps_equal_lines_together_and_every_line() {
    let input: String = (0..300).map(|n| format!("{}\n", n % 100)).collect();
    let once = run_ours(&["-R"], input.as_bytes(), None).stdout;
    let lines: Vec<_> = once.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 300);
    let mut groups: Vec<_> = lines
        .chunks(3)
        .map(|group| {
            assert!(group.iter().all(|line| *line == group[0]));
            group[0]
        })
        .collect();
    groups.sort();
    groups.dedup();
    assert_eq!(groups.len(), 100);
}

#[test]
fn records_of_one_size_are_sorted_by_their_key() {
    let mut random = Random(3);
    let mut input = Vec::new();
    for _ in 0..30_000 {
        let key = random.next().to_be_bytes();
        input.extend_from_slice(&key);
        input.extend_from_slice(&[b'.'; 92]);
    }
    let ran = run_ours(&["--records", "100", "--key", "0..10"], &input, Some(1 << 20));
    let mut expected: Vec<_> = input.chunks(100).collect();
    expected.sort();
    assert!(ran.stdout == expected.concat());
    let Ok(GnuSortOutcome::Sorted(report)) = ran.result else { panic!() };
    assert!(report.disk.writes > 0);
    let reversed = run_ours(&["--records=100", "--key=0..10", "-r"], &input, None).stdout;
    assert!(reversed == expected.into_iter().rev().collect::<Vec<_>>().concat());
    let error = run_ours(&["--records", "99"], &input, None).result.unwrap_err();
    assert!(matches!(error, GnuSortError::TruncatedRecord { .. }), "{error}");
}
