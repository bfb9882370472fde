//! Posted queries and answers over local connections: complete, truncated, delayed and malformed answers.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use parking_lot::Mutex;
use tidemill_base::cores::RunPriority;
use tidemill_base::error::{Error, Result};
use tidemill_base::{CancelFlag, RunSettings};
use tidemill_query::{
    Query, SubmittedJob, SubmittedTask, TaskExecutor, TaskOutcome, TurboSettings, WorkerCounts,
    WorkerPool,
};
use tidemill_remote::StorageOptions;

use super::master_client::MasterClient;
use super::query_execution::{PostedRun, validate_posted_query};
use super::{FrameHead, PostedQuery, append_frame};
use crate::run_handle::{RunEvent, RunHandle};

const EXAMPLE_SQL: &str = "SELECT k, count(*) AS n, sum(x) AS x FROM source GROUP BY k ORDER BY k";

/// A worker in this process, which executes a task when it is submitted.
#[derive(Default)]
struct InProcessWorkerPool {
    executor: Mutex<Option<TaskExecutor>>,
    outcomes: Mutex<VecDeque<TaskOutcome>>,
}

impl std::fmt::Debug for InProcessWorkerPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Here")
    }
}

impl WorkerPool for InProcessWorkerPool {
    fn worker_counts(&self) -> Result<WorkerCounts> {
        Ok(WorkerCounts { machines: 1, workers: 1, threads: 1, is_here: true })
    }

    fn start_job(&self, job: SubmittedJob) -> Result<()> {
        let worker =
            TaskExecutor::new(&job.encoded_job, &settings(), &StorageOptions::default(), &[])?;
        *self.executor.lock() = Some(worker);
        Ok(())
    }

    fn submit_task(&self, task: SubmittedTask) -> Result<()> {
        let part =
            self.executor.lock().as_ref().map(|worker| worker.run_task(&task.encoded_task, 0));
        self.outcomes.lock().push_back(TaskOutcome {
            number: task.number,
            attempt: task.attempt,
            worker_name: Some("here:1".into()),
            result: part.ok_or_else(|| "no job".to_owned()),
        });
        Ok(())
    }

    fn next_outcome(&self, _: Duration) -> Result<Option<TaskOutcome>> {
        Ok(self.outcomes.lock().pop_front())
    }

    fn end_job(&self) {}
}

fn settings() -> RunSettings {
    RunSettings { threads: 1, ..RunSettings::new(64 << 20) }
}

fn example_query(folder: &Path) -> Query {
    let path = folder.join("a.csv");
    let rows: String = (0..5000).map(|row| format!("{},{row}\n", row % 7)).collect();
    std::fs::write(&path, format!("k,x\n{rows}")).unwrap();
    let spec = tidemill_source::SourceSpec {
        url: path.to_str().unwrap().to_owned(),
        ..Default::default()
    };
    let sources = vec![tidemill_query::NamedSource { name: "source".into(), spec }];
    Query { sql: EXAMPLE_SQL.into(), sources, ..Query::default() }
}

fn new_posted_query(query: &Query) -> PostedQuery {
    PostedQuery::new("query", EXAMPLE_SQL, query, &settings(), RunPriority::Normal).unwrap()
}

/// Returns a master's answer to a posted query.
fn master_answer(question: &[u8]) -> Vec<u8> {
    let judged = validate_posted_query(question, false).unwrap();
    let workers: Arc<dyn WorkerPool> = Arc::new(InProcessWorkerPool::default());
    let mut answering = PostedRun::start(judged, workers, settings()).unwrap();
    let mut frames = Vec::new();
    while !answering.has_ended() {
        frames.extend(answering.next_frames(Duration::from_millis(50)).unwrap());
    }
    frames
}

/// Reads a request; returns its head and its body.
fn read_request(client: &mut TcpStream) -> (String, Vec<u8>) {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
            });
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return (head.to_owned(), body.as_bytes().to_vec());
            }
        }
        let count = client.read(&mut piece).unwrap();
        assert!(count > 0, "the request ends in the middle");
        all.extend_from_slice(&piece[..count]);
    }
}

/// Starts a server that answers one connection by `answer`. The receiver gets the value that `answer`
/// returns.
fn serve_one_connection<T: Send + 'static>(
    answer: impl FnOnce(&mut TcpStream, (String, Vec<u8>)) -> T + Send + 'static,
) -> (MasterClient, Receiver<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (send, came) = channel();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let asked = read_request(&mut client);
        let _ = send.send(answer(&mut client, asked));
    });
    (MasterClient::new(&address, "a-token").unwrap(), came)
}

/// The head of an answer in chunks.
const CHUNKED_OK_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";

fn write_chunk(client: &mut TcpStream, bytes: &[u8]) {
    // An empty chunk would end the body.
    if bytes.is_empty() {
        return;
    }
    // The client may have closed the connection.
    let _ = write!(client, "{:x}\r\n", bytes.len());
    let _ = client.write_all(bytes);
    let _ = client.write_all(b"\r\n");
}

/// Runs a posted query; returns its rows as text, or the error.
fn run_posted_query(
    master: MasterClient,
    question: PostedQuery,
    settings: RunSettings,
) -> Result<Vec<String>> {
    let mut running = RunHandle::start_posted_query(master, question, settings)?;
    rows_as_text(&mut running)
}

fn rows_as_text(running: &mut RunHandle) -> Result<Vec<String>> {
    let mut rows = Vec::new();
    running.wait_for_schema(|| Ok(()))?;
    running.for_each_batch(
        |batch| {
            for row in 0..batch.num_rows() {
                let cells = batch.columns().iter().map(|column| {
                    arrow::util::display::array_value_to_string(column, row).unwrap()
                });
                rows.push(cells.collect::<Vec<_>>().join(","));
            }
            Ok(())
        },
        || Ok(()),
    )?;
    Ok(rows)
}

#[test]
fn posted_query_answers_like_a_local_run() {
    let folder = tempfile::tempdir().unwrap();
    let query = example_query(folder.path());
    let mut here = RunHandle::start_query(query.clone(), settings()).unwrap();
    let expected = rows_as_text(&mut here).unwrap();
    assert_eq!(expected.len(), 7);
    let (master, asked) = serve_one_connection(|client, (head, body)| {
        client.write_all(CHUNKED_OK_HEAD).unwrap();
        // The pieces do not match the frames.
        master_answer(&body).chunks(7).for_each(|bytes| write_chunk(client, bytes));
        client.write_all(b"0\r\n\r\n").unwrap();
        head
    });
    let settings = settings();
    let progress = settings.progress.clone();
    let mut there =
        RunHandle::start_posted_query(master, new_posted_query(&query), settings).unwrap();
    assert_eq!(rows_as_text(&mut there).unwrap(), expected);
    let (there, here) = (there.coverage().unwrap(), here.coverage().unwrap());
    assert_eq!((there.rows, there.bytes, there.complete), (here.rows, here.bytes, true));
    assert_eq!((progress.rows_done(), progress.map_counters().rows()), (5000, 5000));
    assert_eq!(progress.bytes_done(), progress.bytes_total());
    assert_eq!(progress.plan_outline().execution_path, Some("partial tables"));
    let workers = progress.workers();
    assert_eq!(workers["here:1"].bytes_done, progress.bytes_total());
    let head = asked.recv().unwrap();
    assert!(head.starts_with("POST /v1/jobs HTTP/1.1\r\n"), "{head}");
    assert!(head.to_ascii_lowercase().contains("authorization: bearer a-token"), "{head}");
}

#[test]
fn truncated_answer_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let query = example_query(folder.path());
    let frames = master_answer(&super::to_json_bytes(&new_posted_query(&query)).unwrap());
    for end in (0..frames.len()).step_by(97).chain([frames.len() - 1]) {
        for says_so in [true, false] {
            let part = frames[..end].to_vec();
            let (master, _) = serve_one_connection(move |client, _| {
                let _ = client.write_all(CHUNKED_OK_HEAD);
                write_chunk(client, &part);
                if says_so {
                    let _ = client.write_all(b"0\r\n\r\n");
                }
            });
            let error = run_posted_query(master, new_posted_query(&query), settings()).unwrap_err();
            assert!(matches!(error, Error::Remote { .. }), "{end}: {error}");
        }
    }
}

#[test]
fn malformed_frames_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let query = example_query(folder.path());
    let of = |heads: &[(FrameHead, &[u8])]| {
        let mut frames = Vec::new();
        heads.iter().for_each(|(head, content)| append_frame(&mut frames, head, content).unwrap());
        frames
    };
    let schema = || FrameHead::Schema { planned: super::SerializedPlanOutline::default() };
    let frames = master_answer(&super::to_json_bytes(&new_posted_query(&query)).unwrap());
    let mut flipped = frames.clone();
    let middle = frames.len() / 4;
    flipped[middle] ^= 0xff;
    for (name, sent) in [
        ("a web page", b"<html>no such page</html>".to_vec()),
        ("a long head", [&u32::MAX.to_le_bytes()[..], &[b' '; 100]].concat()),
        ("a long content", {
            let mut frame = of(&[(FrameHead::Rows, &[])]);
            let size = frame.len() - 8;
            frame[size..].copy_from_slice(&u64::MAX.to_le_bytes());
            frame
        }),
        ("rows before columns", of(&[(FrameHead::Rows, b"ARROW1")])),
        ("no columns", of(&[(schema(), b"")])),
        ("no Arrow", of(&[(schema(), &[0xff; 64])])),
        ("an unknown frame", {
            let head = b"{\"is\":\"tide\"}";
            [&13u32.to_le_bytes()[..], head, &0u64.to_le_bytes()].concat()
        }),
    ] {
        let (master, _) = serve_one_connection(move |client, _| {
            let _ = client.write_all(CHUNKED_OK_HEAD);
            write_chunk(client, &sent);
            let _ = client.write_all(b"0\r\n\r\n");
        });
        let error = run_posted_query(master, new_posted_query(&query), settings()).unwrap_err();
        assert!(matches!(error, Error::Remote { .. }), "{name}: {error}");
        assert!(!error.to_string().contains("a-token"), "{error}");
    }
}

#[test]
fn silent_master_times_out() {
    let folder = tempfile::tempdir().unwrap();
    let query = example_query(folder.path());
    let frames = master_answer(&super::to_json_bytes(&new_posted_query(&query)).unwrap());
    for (says, sent) in [(false, 0), (true, 0), (true, 10), (true, frames.len() - 1)] {
        let part = frames[..sent].to_vec();
        let (master, closed) = serve_one_connection(move |client, _| {
            if says {
                client.write_all(CHUNKED_OK_HEAD).unwrap();
                write_chunk(client, &part);
            }
            client.read(&mut [0]).unwrap_or(0)
        });
        let master = master.with_idle_timeout(Duration::from_millis(20));
        // Waiting for a connection has a longer limit.
        if !says {
            let settings = settings();
            settings.cancel.cancel();
            let error = run_posted_query(master, new_posted_query(&query), settings).unwrap_err();
            assert!(matches!(error, Error::Interrupted), "{error}");
            continue;
        }
        let error = run_posted_query(master, new_posted_query(&query), settings()).unwrap_err();
        assert!(matches!(error, Error::Remote { .. }), "{error}");
        assert!(error.to_string().contains("nothing came"), "{error}");
        assert_eq!(closed.recv().unwrap(), 0);
    }
}

#[test]
fn cancelling_closes_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let query = example_query(folder.path());
    let (begun, has_begun) = channel();
    let (master, closed) = serve_one_connection(move |client, _| {
        client.write_all(CHUNKED_OK_HEAD).unwrap();
        begun.send(()).unwrap();
        client.read(&mut [0]).unwrap_or(0)
    });
    let settings = settings();
    let cancel = settings.cancel.clone();
    let mut running =
        RunHandle::start_posted_query(master, new_posted_query(&query), settings).unwrap();
    has_begun.recv().unwrap();
    cancel.cancel();
    assert!(matches!(rows_as_text(&mut running), Err(Error::Interrupted)));
    assert_eq!(closed.recv().unwrap(), 0);
}

#[test]
fn refused_requests_become_usage_or_remote_errors() {
    let folder = tempfile::tempdir().unwrap();
    let query = example_query(folder.path());
    for (status, body, is_usage, expected) in [
        (401, "{\"message\":\"no\",\"hint\":null}", true, "does not take this token"),
        (400, "{\"message\":\"bad `x`\",\"hint\":\"do y\"}", true, "bad `x`\nhint: do y"),
        (403, "{\"message\":\"not so\",\"hint\":\"the other\"}", true, "not so\nhint: the other"),
        (413, "{\"message\":\"large\",\"hint\":null}", true, "large"),
        (429, "{\"message\":\"32 jobs\",\"hint\":\"wait\"}", false, "32 jobs"),
        (503, "{\"message\":\"many wait\",\"hint\":null}", false, "many wait"),
        (404, "<html>", false, "status 404, as no master does"),
        (302, "", false, "status 302"),
    ] {
        let (master, _) = serve_one_connection(move |client, _| {
            let length = body.len();
            let head = format!("HTTP/1.1 {status} No\r\nLocation: http://127.0.0.1:1/\r\n");
            let _ = client.write_all(head.as_bytes());
            let _ = write!(client, "Connection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        });
        let error = run_posted_query(master, new_posted_query(&query), settings()).unwrap_err();
        assert_eq!(matches!(error, Error::Usage { .. }), is_usage, "{status}: {error}");
        assert!(error.to_string().contains(expected), "{status}: {error}");
    }
    let (master, _) = serve_one_connection(|client, _| {
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    });
    assert_eq!(master.fetch_status("status", &CancelFlag::new()).unwrap(), serde_json::json!({}));
    // Nobody listens at this address.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let master = MasterClient::new(&address, "a-token").unwrap();
    let error = master.fetch_status("status", &CancelFlag::new()).unwrap_err();
    assert!(error.to_string().contains("it is not reached"), "{error}");
}

#[test]
fn error_on_the_master_equals_the_local_error() {
    let folder = tempfile::tempdir().unwrap();
    let query = Query { sql: "SELECT nothing FROM source".into(), ..example_query(folder.path()) };
    let here =
        rows_as_text(&mut RunHandle::start_query(query.clone(), settings()).unwrap()).unwrap_err();
    let (master, _) = serve_one_connection(|client, (_, body)| {
        client.write_all(CHUNKED_OK_HEAD).unwrap();
        write_chunk(client, &master_answer(&body));
        client.write_all(b"0\r\n\r\n").unwrap();
    });
    let there = run_posted_query(master, new_posted_query(&query), settings()).unwrap_err();
    assert_eq!((there.to_string(), there.class()), (here.to_string(), here.class()));
}

#[test]
fn forbidden_fields_are_refused_by_name() {
    let check = |source: &str, more: &str, expected: Option<&str>| {
        let text = format!(
            "{{\"format\":1,\"verb\":\"query\",\"sql\":\"SELECT 1\",\"defaults\":{{{source}}}{more}}}"
        );
        match (validate_posted_query(text.as_bytes(), false), expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => {
                assert!(matches!(error, Error::Usage { .. }), "{text}: {error}");
                assert!(error.to_string().contains(expected), "{text}: {error}");
                assert!(!error.to_string().contains("hush"), "{text}: {error}");
            }
            (Ok(_), Some(_)) => panic!("{text} is taken"),
            (Err(error), None) => panic!("{text}: {error}"),
        }
    };
    let option = |name: &str| format!("\"storage_options\":{{\"{name}\":\"hush\"}}");
    check("", "", None);
    check("\"url\":\"s3://b/k.csv\"", ",\"priority\":\"high\",\"max_bad\":\"any\"", None);
    check(&option("region"), "", None);
    check(&option("AWS_REGION"), "", None);
    check(
        "\"storage_options\":{\"endpoint\":\"http://127.0.0.1:1\",\"skip_signature\":\"true\"}",
        "",
        None,
    );
    for name in [
        "web_identity_token_file",
        "aws_web_identity_token_file",
        "Container_Authorization_Token_File",
        "metadata_endpoint",
        "proxy_url",
        "proxy_ca_certificate",
        "allow_invalid_certificates",
        "read_cache",
        "read_cache_dir",
        "read_memory",
        "role_arn",
        "endpoint_url_sts",
        "no_such_option",
    ] {
        check(&option(name), "", Some("is not taken from those who ask"));
    }
    check(&option("endpoint_url"), "", Some("credentials of your own"));
    check(
        "\"storage_options\":{\"aws_endpoint_url_s3\":\"x\",\"access_key_id\":\"a\"}",
        "",
        Some("credentials of your own"),
    );
    check(
        "\"storage_options\":{\"endpoint\":\"http://169.254.169.254\",\"skip_signature\":\"true\"}",
        "",
        Some("for the machine alone"),
    );
    // With `skip_signature=false` the cluster would sign the requests.
    check(
        "\"storage_options\":{\"endpoint\":\"http://127.0.0.1:1\",\"skip_signature\":\"false\"}",
        "",
        Some("credentials of your own"),
    );
    for region in ["hush@127.0.0.1:1/", "hush.example.org", "hush?", "hush#", "hush\\n"] {
        for name in ["region", "default_region", "AWS_REGION"] {
            let option = format!("\"storage_options\":{{\"{name}\":\"{region}\"}}");
            check(&option, "", Some("is no region"));
        }
    }
    check("\"exec\":[\"sh\"]", "", Some("runs no programs"));
    check("\"format\":\"no-such\"", "", Some("no-such"));
    check("\"path\":\"x\"", "", Some("is no question"));
    check("", ",\"sink\":\"x\"", Some("is no question"));
    check("", ",\"priority\":\"urgent\"", Some("`urgent` is not a priority"));
    check("", ",\"max_bad\":\"some\"", Some("`some`"));
    let sourced = ",\"sources\":[[\"a\",{\"exec\":[\"sh\"]}]]";
    check("", sourced, Some("runs no programs"));
    for text in ["", "{", "[]", "null", &"[".repeat(100_000), &" ".repeat(2 << 20)] {
        assert!(matches!(validate_posted_query(text.as_bytes(), true), Err(Error::Usage { .. })));
    }
    let programs = b"{\"format\":1,\"verb\":\"q\",\"sql\":\"\",\"defaults\":{\"exec\":[\"sh\"]}}";
    assert!(validate_posted_query(programs, true).is_ok());
}

#[test]
fn options_for_unbounded_work_are_refused() {
    let check = |more: &str, expected: Option<&str>| {
        let text = format!("{{\"format\":1,\"verb\":\"query\",\"sql\":\"SELECT 1\"{more}}}");
        match (validate_posted_query(text.as_bytes(), false), expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => {
                assert!(matches!(error, Error::Usage { .. }), "{text}: {error}");
                assert!(error.to_string().contains(expected), "{text}: {error}");
            }
            (Ok(_), Some(_)) => panic!("{text} is taken"),
            (Err(error), None) => panic!("{text}: {error}"),
        }
    };
    let option = |name: &str, value: &str| {
        format!(",\"defaults\":{{\"storage_options\":{{\"{name}\":\"{value}\"}}}}")
    };
    check(",\"max_attempts\":20", None);
    check(",\"max_attempts\":0", None);
    check(",\"max_attempts\":21", Some("`max_attempts` is 21"));
    check(",\"max_attempts\":18446744073709551615", Some("at most 20"));
    check(",\"max_attempts\":-1", Some("is no question"));
    check(",\"max_attempts\":1e3", Some("is no question"));
    for (name, most, more, limit) in [
        ("max_retries", "20", "21", "at most 20"),
        ("timeout", "10m", "601s", "at most 600 s"),
        ("connect_timeout", "600", "1h", "at most 600 s"),
        ("retry_timeout", "600s", "900000s", "at most 600 s"),
        ("read_block", "64M", "1G", "at most 64 MiB"),
        ("read_window", "1G", "1025M", "at most 1 GiB"),
    ] {
        check(&option(name, most), None);
        check(&option(name, more), Some(limit));
    }
}

#[test]
fn shown_statement_has_no_control_characters() {
    let shown = "SELECT 1\u{1b}]0;title\u{7}\u{202e} FROM 'https://u:hush@h/a'";
    let question = serde_json::json!({
        "format": 1, "verb": "query; \u{1b}[2J", "sql": "SELECT 1", "shown": shown,
    });
    let judged = validate_posted_query(question.to_string().as_bytes(), false).unwrap();
    assert!(
        !judged.displayed_statement.chars().any(char::is_control),
        "{:?}",
        judged.displayed_statement
    );
    assert!(
        judged.displayed_statement.starts_with("SELECT 1\\x1b]0;title\\x07\\u{202e} FROM"),
        "{}",
        judged.displayed_statement
    );
    assert!(!judged.displayed_statement.contains("hush"), "{}", judged.displayed_statement);
    assert_eq!(judged.verb, "query");
}

fn turbo_settings(options: &[(&str, &str)]) -> Option<TurboSettings> {
    let mut turbo = TurboSettings::default();
    options.iter().for_each(|(option, text)| turbo.set_option(option, text).unwrap());
    turbo.validate().unwrap()
}

#[test]
fn sampled_posted_query_answers_like_a_local_run() {
    let folder = tempfile::tempdir().unwrap();
    let options = [("sample", "40%"), ("seed", "3"), ("split_bytes", "1k"), ("confidence", "0.9")];
    let query = Query { turbo: turbo_settings(&options), ..example_query(folder.path()) };
    // The bounds differ, because they are sums of floats in another order.
    let own = |rows: Vec<String>| -> Vec<String> {
        let first = |row: String| row.split(',').take(2).collect::<Vec<_>>().join(",");
        rows.into_iter().map(first).collect()
    };
    let mut here = RunHandle::start_query(query.clone(), settings()).unwrap();
    let expected = own(rows_as_text(&mut here).unwrap());
    let question = new_posted_query(&query).with_interim_results(true);
    let (master, _) = serve_one_connection(|client, (_, body)| {
        client.write_all(CHUNKED_OK_HEAD).unwrap();
        master_answer(&body).chunks(700).for_each(|bytes| write_chunk(client, bytes));
        client.write_all(b"0\r\n\r\n").unwrap();
    });
    let mut there = RunHandle::start_posted_query(master, question, settings()).unwrap();
    assert_eq!(own(rows_as_text(&mut there).unwrap()), expected);
    let (there, here) = (there.coverage().unwrap(), here.coverage().unwrap());
    assert!(!there.complete);
    assert_eq!((there.rows, there.bytes, there.splits), (here.rows, here.bytes, here.splits));
    let (there, here) = (there.sampled.as_ref().unwrap(), here.sampled.as_ref().unwrap());
    assert_eq!((there.share, there.seed, there.confidence), (here.share, 3, 0.9));
}

#[test]
fn interim_result_becomes_the_result_when_client_stops_reading() {
    let folder = tempfile::tempdir().unwrap();
    let query =
        Query { turbo: turbo_settings(&[("deadline", "1h")]), ..example_query(folder.path()) };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (send, told) = channel();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let (_, body) = read_request(&mut client);
        let deadline = String::from_utf8_lossy(&body).contains("\"deadline\":\"35");
        client.write_all(CHUNKED_OK_HEAD).unwrap();
        let rows = tidemill_tables::merging::sections::decode_batches;
        let frames = master_answer(&body);
        let mut parts = super::master_client::decode_frames(&frames);
        // A run on a busy machine sends progress and interim results of its own.
        parts.retain(|(head, _)| {
            !matches!(head, FrameHead::Glimpse { .. } | FrameHead::Progress(_))
        });
        let (schema, content) = parts.remove(0);
        assert!(matches!(schema, FrameHead::Schema { .. }) && rows(&content).is_ok());
        let mut first = super::query_execution::encode_began_frame(7).unwrap();
        append_frame(&mut first, &schema, &content).unwrap();
        let glimpse = FrameHead::Glimpse { share: 0.25, coverage: Box::default() };
        append_frame(&mut first, &glimpse, &content).unwrap();
        write_chunk(&mut client, &first);
        // The client asks on another connection to stop reading; then the result follows.
        let (mut other, _) = listener.accept().unwrap();
        let (head, _) = read_request(&mut other);
        other.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        let mut rest = Vec::new();
        parts.iter().for_each(|(head, content)| append_frame(&mut rest, head, content).unwrap());
        write_chunk(&mut client, &rest);
        client.write_all(b"0\r\n\r\n").unwrap();
        send.send((deadline, head)).unwrap();
    });
    let master = MasterClient::new(&address, "a-token").unwrap();
    let settings = settings();
    let enough = settings.stop_reading.clone();
    let question = new_posted_query(&query).with_interim_results(true);
    let mut running = RunHandle::start_posted_query(master, question, settings).unwrap();
    running.wait_for_schema(|| Ok(())).unwrap();
    let (mut shares, mut count) = (Vec::new(), 0);
    loop {
        match running.next_event(Duration::from_secs(10)).unwrap() {
            RunEvent::InterimResult(glimpse) => {
                assert_eq!(glimpse.schema.field(1).name(), "n");
                shares.push(glimpse.bytes_read_share);
                enough.cancel();
            }
            RunEvent::Batch(batch) => count += batch.num_rows(),
            RunEvent::NothingYet => {}
            RunEvent::End => break,
        }
    }
    assert_eq!((shares, count), (vec![0.25], 7));
    let (has_deadline, head) = told.recv().unwrap();
    assert!(has_deadline);
    assert!(head.starts_with("POST /v1/jobs/7/enough HTTP/1.1\r\n"), "{head}");
}

#[test]
fn turbo_options_of_a_posted_query_are_validated() {
    let folder = tempfile::tempdir().unwrap();
    let query = example_query(folder.path());
    let asked = |turbo: &str| {
        let text = String::from_utf8(new_posted_query(&query).encode().unwrap()).unwrap();
        let text = text.replacen('{', &format!("{{\"turbo\":{turbo},"), 1);
        validate_posted_query(text.as_bytes(), false).err().map(|error| error.to_string())
    };
    assert_eq!(asked("{\"sample\":\"1%\"}"), None);
    for (turbo, why) in [
        ("{\"sample\":\"500%\"}", "500%"),
        ("{\"deadline\":\"0s\"}", "0s"),
        ("{\"dead_line\":\"7s\"}", "dead_line"),
        ("{\"seed\":\"7\"}", "exact"),
        ("{\"sample\":1}", "no question"),
        ("[]", "no question"),
    ] {
        let error = asked(turbo).expect(turbo);
        assert!(error.contains(why), "{turbo}: {error}");
    }
}
