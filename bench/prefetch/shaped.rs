//! A server shaped like an object store: so long to the first byte, so many bytes a second for each
//! connection and for all of them. `shaped FOLDER FIRST_BYTE_MS CONNECTION_MBS TOTAL_MBS`
//!
//! It serves the files of a folder by ranges, over HTTP/1.1 on a free port of loopback, which it prints as
//! the first line; folders in it are buckets, which are listed as S3 does (`list-type=2`, prefixes and delimiters, pages
//! of 1,000). Nobody is asked who they are. `GET /?stats` answers with the requests and bytes since the last time that was asked.
//! Megabytes are 10^6 bytes. A rate is kept by pieces of 64 KiB: each has a time at which it may be sent, on
//! its connection and in all, and whoever is early sleeps until then.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PIECE: usize = 64 << 10;
/// What may be sent at once after a pause: sleeping is not exact to the millisecond.
const SLACK: Duration = Duration::from_millis(5);

struct Shape {
    folder: PathBuf,
    first_byte: Duration,
    connection: f64,
    total: f64,
    /// When the next piece of any connection may be sent.
    next: Mutex<Instant>,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// When a piece may be sent, each taking so long; the next one may then be sent that much later.
fn due(next: &mut Instant, takes: Duration) -> Instant {
    let now = Instant::now();
    let at = (*next).max(now.checked_sub(SLACK).unwrap_or(now));
    *next = at + takes;
    at
}

fn sleep_until(at: Instant) {
    let now = Instant::now();
    if at > now {
        std::thread::sleep(at - now);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize| -> f64 {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            eprintln!("shaped FOLDER FIRST_BYTE_MS CONNECTION_MBS TOTAL_MBS");
            std::process::exit(2)
        })
    };
    let shape = Arc::new(Shape {
        first_byte: Duration::from_secs_f64(number(2) / 1e3),
        connection: number(3) * 1e6,
        total: number(4) * 1e6,
        folder: PathBuf::from(&arguments[1]),
        next: Mutex::new(Instant::now()),
        requests: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("{}", listener.local_addr().expect("an address").port());
    for stream in listener.incoming().flatten() {
        let shape = Arc::clone(&shape);
        std::thread::spawn(move || drop(serve(&stream, &shape)));
    }
}

/// The words of a query string, with `%2F` and the like as they are meant.
fn words_of(query: &str) -> HashMap<String, String> {
    let plain = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, after @ ..] = rest {
            let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                Some(byte) if *first == b'%' => {
                    bytes.push(byte);
                    rest = &after[2..];
                }
                _ => {
                    bytes.push(if *first == b'+' { b' ' } else { *first });
                    rest = after;
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let words = query.split('&').filter_map(|word| word.split_once('='));
    words.map(|(name, value)| (name.to_owned(), plain(value))).collect()
}

/// All keys of a folder, as they are called below it.
fn keys(folder: &Path, below: &str, found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            keys(&entry.path(), &format!("{name}/"), found)?;
        } else {
            found.push(name);
        }
    }
    Ok(())
}

fn listing(bucket: &Path, query: &str) -> io::Result<String> {
    const PAGE: usize = 1000;
    let words = words_of(query);
    let word = |name: &str| words.get(name).map(String::as_str).unwrap_or_default();
    let (prefix, delimiter) = (word("prefix"), word("delimiter"));
    let mut all = Vec::new();
    keys(bucket, "", &mut all)?;
    all.sort();
    let after = word("continuation-token").max(word("start-after"));
    let (mut rows, mut folders, mut count, mut next) = (String::new(), Vec::new(), 0, None);
    for key in all.iter().filter(|key| key.starts_with(prefix) && key.as_str() > after) {
        let rest = &key[prefix.len()..];
        let folder = (!delimiter.is_empty()).then(|| rest.split_once(delimiter)).flatten();
        let folder = folder.map(|(first, _)| format!("{prefix}{first}{delimiter}"));
        if folder.as_ref().is_some_and(|folder| folders.last() == Some(folder)) {
            continue;
        }
        if count == PAGE {
            break;
        }
        count += 1;
        // Behind all that is in a folder which is listed as one.
        next = Some(
            folder.as_ref().map_or_else(|| key.clone(), |folder| format!("{folder}\u{10ffff}")),
        );
        match folder {
            Some(folder) => folders.push(folder),
            None => {
                let metadata = fs::metadata(bucket.join(key))?;
                rows += &format!(
                    "<Contents><Key>{key}</Key><LastModified>2025-01-01T00:00:00.000Z</LastModified>\
                     <ETag>&quot;{}-{1}&quot;</ETag><Size>{1}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                    metadata.mtime(),
                    metadata.len()
                );
            }
        }
    }
    let next = next.filter(|_| count == PAGE);
    for folder in folders {
        rows += &format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
    }
    let more =
        next.as_ref().map(|key| format!("<NextContinuationToken>{key}</NextContinuationToken>"));
    Ok(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>bench</Name><Prefix>{prefix}</Prefix>\
         <KeyCount>{count}</KeyCount><MaxKeys>{PAGE}</MaxKeys><IsTruncated>{}</IsTruncated>{}{rows}</ListBucketResult>",
        next.is_some(),
        more.unwrap_or_default()
    ))
}

fn serve(stream: &TcpStream, shape: &Shape) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream);
    let mut open: HashMap<String, File> = HashMap::new();
    let mut buffer = vec![0; PIECE];
    let mut output = stream;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let target = line.split(' ').nth(1).unwrap_or("/").to_owned();
        let is_head = line.starts_with("HEAD");
        let mut range = None;
        loop {
            line.clear();
            input.read_line(&mut line)?;
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("range: bytes=") {
                let (start, end) = value.split_once('-').unwrap_or(("0", ""));
                range = Some((start.parse::<u64>().ok(), end.parse::<u64>().ok()));
            }
        }
        if target == "/?stats" {
            let (requests, bytes) =
                (shape.requests.swap(0, Ordering::SeqCst), shape.bytes.swap(0, Ordering::SeqCst));
            let body = format!("{requests} {bytes}\n");
            write!(output, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
            continue;
        }
        shape.requests.fetch_add(1, Ordering::SeqCst);
        sleep_until(Instant::now() + shape.first_byte);
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let name = path.trim_start_matches('/').to_owned();
        let bucket = name.trim_end_matches('/');
        let is_first = !bucket.is_empty() && !bucket.contains(['/', '.']);
        let bucket = shape.folder.join(bucket);
        if is_first && bucket.is_dir() {
            let body = if is_head { String::new() } else { listing(&bucket, query)? };
            let head = format!("content-type: application/xml\r\ncontent-length: {}", body.len());
            write!(output, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}")?;
            continue;
        }
        if !open.contains_key(&name) {
            let known = !name.contains("..") && shape.folder.join(&name).is_file();
            if !known {
                write!(output, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
                continue;
            }
            open.insert(name.clone(), File::open(shape.folder.join(&name))?);
        }
        let file = &open[&name];
        let metadata = file.metadata()?;
        let size = metadata.len();
        let (start, end) = match range {
            Some((Some(start), end)) => (start, end.map_or(size, |end| (end + 1).min(size))),
            Some((None, Some(last))) => (size.saturating_sub(last), size),
            _ => (0, size),
        };
        if start >= end && size > 0 {
            write!(output, "HTTP/1.1 416 No\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        }
        let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
        let length = end - start;
        let mut head = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\naccept-ranges: bytes\r\netag: \"{}-{}\"\r\n\
             last-modified: Wed, 01 Jan 2025 00:00:00 GMT\r\n",
            metadata.mtime(),
            size
        );
        if range.is_some() {
            head += &format!("content-range: bytes {start}-{}/{size}\r\n", end - 1);
        }
        output.write_all((head + "\r\n").as_bytes())?;
        if is_head {
            continue;
        }
        let mut next = Instant::now();
        let mut at = start;
        while at < end {
            let count = (end - at).min(PIECE as u64) as usize;
            file.read_exact_at(&mut buffer[..count], at)?;
            sleep_until(due(&mut next, Duration::from_secs_f64(count as f64 / shape.connection)));
            let takes = Duration::from_secs_f64(count as f64 / shape.total);
            let at_all = due(&mut shape.next.lock().expect("the clock"), takes);
            sleep_until(at_all);
            output.write_all(&buffer[..count])?;
            shape.bytes.fetch_add(count as u64, Ordering::SeqCst);
            at += count as u64;
        }
    }
}
