//! Tests that credentials of the environment reach the environment's own store, and no other host.
//!
//! A process has one environment, so each case runs in its own process: the test binary again, as [`child`].
//! The child opens an object with the given options, and servers on loopback record the requests that reach
//! them.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use tidemill_remote::files::{FileAccessSettings, open_file};
use tidemill_remote::{StorageOptions, address_guard};

/// Variable with the child's instructions. The first line has the words `posted` (options of a posted query),
/// `confined` (a guarded process) and `worker` (options passed on to a worker). The second is the URL;
/// options follow as `NAME=VALUE` lines.
const INSTRUCTIONS_VARIABLE: &str = "TIDEMILL_TEST_ASKED";
/// Prefix of the line on which the child prints the outcome.
const OUTCOME_PREFIX: &str = "came of it: ";

const ENVIRONMENT: [(&str, &str); 6] = [
    ("AWS_ACCESS_KEY_ID", "environment-id"),
    ("AWS_SECRET_ACCESS_KEY", "environment-secret"),
    ("AWS_SESSION_TOKEN", "environment-token"),
    ("AWS_SERVER_SIDE_ENCRYPTION", "sse-c"),
    ("AWS_SSE_CUSTOMER_KEY_BASE64", "ZW52aXJvbm1lbnQtY3VzdG9tZXItMzItYnl0ZXMhISE="),
    ("AWS_REGION", "eu-west-1"),
];

/// A server that gives the same response to every request, and records the heads of all requests.
struct Recorder {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn start() -> Recorder {
        Self::start_with_response(
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )
    }

    fn start_with_response(answer: &'static str) -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let shared = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // A thread for each connection; `record` stores the head before it responds.
                std::thread::spawn(move || record(&stream, &shared, answer));
            }
        });
        Recorder { url, heads }
    }

    fn authority(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    fn recorded_heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn record(mut stream: &TcpStream, heads: &Mutex<Vec<String>>, answer: &str) {
    let mut head = String::new();
    let mut reader = BufReader::new(stream);
    // Record a connection even if it sends no text, such as a TLS handshake.
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|count| count > 0) {}
    heads.lock().unwrap().push(head);
    let _ = stream.write_all(answer.as_bytes());
}

/// Opens a URL in a child process and returns the outcome. The child's environment has [`ENVIRONMENT`] and
/// `more`.
fn open_in_child(how: &str, url: &str, options: &[(&str, &str)], more: &[(&str, &str)]) -> String {
    let options: String = options.iter().map(|(name, value)| format!("\n{name}={value}")).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]);
    for (name, _) in std::env::vars().filter(|(name, _)| {
        let name = name.to_ascii_uppercase();
        name.starts_with("AWS_") || name.ends_with("_PROXY")
    }) {
        command.env_remove(name);
    }
    command.envs(ENVIRONMENT).envs(more.iter().copied());
    let output =
        command.env(INSTRUCTIONS_VARIABLE, format!("{how}\n{url}{options}")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let came = text.lines().find_map(|line| Some(line.split_once(OUTCOME_PREFIX)?.1.to_owned()));
    came.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn child() {
    let Ok(asked) = std::env::var(INSTRUCTIONS_VARIABLE) else { return };
    let mut lines = asked.lines();
    let (how, url) = (lines.next().unwrap(), lines.next().unwrap());
    let pairs = lines.map(|line| {
        let (name, value) = line.split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    });
    if how.starts_with("confined") {
        address_guard::guard_process();
    }
    let options = match how.contains("posted") {
        true => StorageOptions::from_posted_query(pairs),
        false => {
            let mut options = StorageOptions::default();
            let mut pairs = pairs;
            pairs.try_for_each(|(name, value)| options.set(&name, value)).map(|()| options)
        }
    };
    let came = options.and_then(|mut options| {
        // Do not retry hosts that do not exist.
        options.set("max_retries", "0")?;
        if how.ends_with("worker") {
            let told = options.worker_options();
            options = StorageOptions::default();
            told.into_iter().try_for_each(|(name, value)| options.set(&name, value))?;
        }
        open_file(
            url,
            &FileAccessSettings { storage_options: options, ..FileAccessSettings::default() },
        )
    });
    match came {
        Ok(_) => println!("{OUTCOME_PREFIX}an object"),
        Err(error) => println!("{OUTCOME_PREFIX}{error}"),
    }
}

/// Asserts that no recorded request contains credentials of the environment.
fn assert_no_environment_credentials(heads: &[String], case: &str) {
    for head in heads {
        assert!(!head.contains("environment"), "{case}: {head}");
        let lower = head.to_ascii_lowercase();
        assert!(!lower.contains("x-amz-security-token: environment"), "{case}: {head}");
        assert!(!lower.contains("customer"), "{case}: {head}");
    }
}

#[test]
fn environment_store_receives_environment_credentials() {
    let own = Recorder::start();
    let more = [("AWS_ENDPOINT_URL", own.url.as_str()), ("AWS_ALLOW_HTTP", "true")];
    for how in ["own", "posted", "confined, posted", "worker", "confined, posted, worker"] {
        let came = open_in_child(how, "s3://b/k.csv", &[], &more);
        assert!(came.contains("the server answered 404"), "{how}: {came}");
    }
    let heads = own.recorded_heads();
    assert!(heads.len() >= 5, "{heads:?}");
    for head in &heads {
        assert!(head.contains("Credential=environment-id/"), "{head}");
        assert!(head.contains("x-amz-security-token: environment-token"), "{head}");
    }
    let with_key = |head: &&String| head.contains("x-amz-server-side-encryption-customer-key: ");
    assert!(heads.iter().filter(with_key).count() >= 5, "{heads:?}");
}

#[test]
fn own_keys_exclude_the_environments_token() {
    for how in ["own", "posted", "confined, posted", "worker", "confined, posted, worker"] {
        let foreign = Recorder::start();
        let options = [
            ("endpoint_url", foreign.url.as_str()),
            ("allow_http", "true"),
            ("access_key_id", "own-id"),
            ("secret_access_key", "own-secret"),
        ];
        // Options that are not posted keep the environment's customer key, so override it with plain
        // encryption.
        let more = [("AWS_SERVER_SIDE_ENCRYPTION", "AES256")];
        let more = if how.contains("posted") { &more[..0] } else { &more };
        let came = open_in_child(how, "s3://b/k.csv", &options, more);
        assert!(came.contains("the server answered 404"), "{how}: {came}");
        let heads = foreign.recorded_heads();
        assert!(!heads.is_empty(), "{how}");
        for head in &heads {
            assert!(head.contains("Credential=own-id/"), "{how}: {head}");
            assert!(!head.contains("x-amz-security-token"), "{how}: {head}");
        }
        assert_no_environment_credentials(&heads, how);
    }
}

#[test]
fn own_session_token_is_sent() {
    let foreign = Recorder::start();
    let options = [
        ("endpoint", foreign.url.as_str()),
        ("allow_http", "true"),
        ("aws_access_key_id", "own-id"),
        ("secret_access_key", "own-secret"),
        ("token", "own-token"),
    ];
    open_in_child("confined, posted", "s3://b/k.csv", &options, &[]);
    let heads = foreign.recorded_heads();
    assert!(!heads.is_empty());
    for head in &heads {
        assert!(head.contains("x-amz-security-token: own-token"), "{head}");
    }
    assert_no_environment_credentials(&heads, "own token");
}

#[test]
fn unsigned_requests_carry_no_environment_credentials() {
    for how in ["own", "posted", "confined, posted"] {
        let foreign = Recorder::start();
        let options = [
            ("endpoint_url", foreign.url.as_str()),
            ("allow_http", "true"),
            ("skip_signature", "true"),
        ];
        let more = [("AWS_SERVER_SIDE_ENCRYPTION", "AES256")];
        let more = if how == "own" { &more[..] } else { &[] };
        let came = open_in_child(how, "s3://b/k.csv", &options, more);
        assert!(came.contains("the server answered 404"), "{how}: {came}");
        let heads = foreign.recorded_heads();
        assert!(!heads.is_empty(), "{how}");
        for head in &heads {
            assert!(!head.to_ascii_lowercase().contains("authorization"), "{how}: {head}");
        }
        assert_no_environment_credentials(&heads, how);
    }
}

#[test]
fn posted_query_cannot_redirect_signed_requests() {
    let foreign = Recorder::start();
    let place = foreign.authority();
    let (url, to_host) = (foreign.url.as_str(), format!("x@{place}/"));
    let to_dot = format!("x.{place}/");
    let region = "storage option `region` is no region";
    let own = "an endpoint of your own goes with credentials of your own";
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("region", &to_host)], region),
        (&[("default_region", &to_host)], "storage option `default_region` is no region"),
        (
            &[("aws_region", &to_host), ("virtual_hosted_style_request", "true")],
            "storage option `aws_region` is no region",
        ),
        (&[("region", &to_host), ("s3_express", "true")], region),
        (&[("region", &to_dot)], region),
        (&[("region", "x/../..")], region),
        (&[("region", "x?")], region),
        (&[("region", "x#")], region),
        (&[("region", "x\\")], region),
        (&[("region", "eu-west-1.example.org")], region),
        // These make Amazon hosts that may be somebody's bucket.
        (&[("region", "s3")], "storage option `region` is no region of AWS"),
        (&[("region", "x")], "storage option `region` is no region of AWS"),
        (&[("endpoint_url", url)], own),
        (&[("endpoint_url", url), ("allow_http", "true"), ("skip_signature", "false")], own),
        (&[("aws_endpoint_url_s3", url), ("access_key_id", "own-id")], own),
        (&[("endpoint_url", url), ("access_key_id", ""), ("secret_access_key", "")], own),
        (&[("endpoint_url", url), ("session_token", "own-token")], own),
        (
            &[("endpoint_url", url), ("skip_signature", "true"), ("SKIP_SIGNATURE", "false")],
            "are one option, which is given twice",
        ),
        (&[("proxy_url", url)], "storage option `proxy_url` is not taken"),
        (&[("metadata_endpoint", url)], "storage option `metadata_endpoint` is not taken"),
        (&[("endpoint_url_sts", url)], "storage option `endpoint_url_sts` is not taken"),
        (
            &[("container_credentials_full_uri", url)],
            "storage option `container_credentials_full_uri` is not taken",
        ),
    ];
    for (options, expected) in cases {
        for how in ["posted", "confined, posted"] {
            let bucket = "s3://b--x--x-s3/k.csv";
            let came = open_in_child(how, bucket, options, &[("AWS_DEFAULT_REGION", "eu-west-1")]);
            assert!(came.contains(expected), "{options:?}: {came}");
            assert!(!came.contains("environment-"), "{came}");
            assert_eq!(foreign.recorded_heads(), Vec::<String>::new(), "{options:?}: {came}");
        }
    }
}

#[test]
fn s3_express_does_not_lead_credentials_of_another_store_to_aws() {
    let own = Recorder::start();
    let more = [("AWS_ENDPOINT_URL", own.url.as_str()), ("AWS_ALLOW_HTTP", "true")];
    let express = [("s3_express", "true")];
    for how in ["posted", "confined, posted"] {
        let came = open_in_child(how, "s3://a--z--x-s3/k.csv", &express, &more);
        let expected = "storage option `s3_express` leads to AWS, and the cluster's credentials";
        assert!(came.contains(expected), "{how}: {came}");
        assert!(!came.contains("environment-"), "{how}: {came}");
    }
    // The zone is part of the name of a host.
    for how in ["own", "posted"] {
        let came = open_in_child(how, "s3://a--z.s3--x-s3/k.csv", &express, &[]);
        assert!(came.contains("`a--z.s3--x-s3` is no directory bucket"), "{how}: {came}");
    }
    assert_eq!(own.recorded_heads(), Vec::<String>::new());
}

#[test]
fn own_credentials_exclude_the_environments_customer_key() {
    for (signed, options) in [
        (true, &[("access_key_id", "own-id"), ("secret_access_key", "own-secret")][..]),
        (false, &[("skip_signature", "true")]),
    ] {
        let own = Recorder::start();
        let more = [("AWS_ENDPOINT_URL", own.url.as_str()), ("AWS_ALLOW_HTTP", "true")];
        for how in ["posted", "confined, posted", "confined, posted, worker"] {
            let came = open_in_child(how, "s3://b/k.csv", options, &more);
            assert!(came.contains("the server answered 404"), "{how}: {came}");
        }
        let heads = own.recorded_heads();
        assert!(heads.len() >= 3, "{heads:?}");
        for head in &heads {
            assert_eq!(head.contains("Credential=own-id/"), signed, "{head}");
        }
        assert_no_environment_credentials(&heads, "own credentials");
    }
}

#[test]
fn region_cannot_change_the_host() {
    let foreign = Recorder::start();
    let region = format!("x@{}/", foreign.authority());
    let came = open_in_child("own", "s3://b/k.csv", &[("region", &region)], &[]);
    assert!(came.contains("storage option `region` is no region"), "{came}");
    let more = [("AWS_REGION", region.as_str())];
    let came = open_in_child("own", "s3://b/k.csv", &[], &more);
    assert!(came.contains("AWS_REGION"), "{came}");
    for name in ["AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"] {
        let more = [(name, "hush\n"), ("AWS_ENDPOINT_URL", foreign.url.as_str())];
        let came = open_in_child("own", "s3://b/k.csv", &[], &more);
        assert!(came.contains(name) && !came.contains("hush"), "{came}");
    }
    assert_eq!(foreign.recorded_heads(), Vec::<String>::new());
}

#[test]
fn allow_http_and_request_payer_need_own_credentials() {
    let own = Recorder::start();
    let more = [("AWS_ENDPOINT_URL", own.url.as_str())];
    let came = open_in_child("posted", "s3://b/k.csv", &[("allow_http", "true")], &more);
    assert!(came.contains("`allow_http` goes with credentials of your own"), "{came}");
    let came = open_in_child("posted", "s3://b/k.csv", &[("request_payer", "true")], &more);
    assert!(came.contains("`request_payer` goes with credentials of your own"), "{came}");
    assert_eq!(own.recorded_heads(), Vec::<String>::new());
}

#[test]
fn web_identity_is_sent_to_no_other_host() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "environment-identity").unwrap();
    let foreign = Recorder::start();
    let more = [
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/environment"),
        ("AWS_ENDPOINT_URL", foreign.url.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    // The environment's endpoint stays in use, but the request for its role goes to a host that the region
    // names.
    let region = format!("x@{}/", foreign.authority());
    for region in [region.as_str(), "s3"] {
        let came = open_in_child("posted", "s3://b/k.csv", &[("region", region)], &more);
        assert!(came.contains("`region` is no region"), "{came}");
    }
    assert_eq!(foreign.recorded_heads(), Vec::<String>::new());
}

#[test]
fn guarded_clients_refuse_private_addresses() {
    let pointing = Recorder::start_with_response(
        "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data/\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n",
    );
    let keys =
        [("access_key_id", "own-id"), ("secret_access_key", "own-secret"), ("allow_http", "true")];
    let refused = "for the machine alone";
    for (url, endpoint) in [
        ("http://169.254.169.254/latest/meta-data/", None),
        ("http://[::ffff:169.254.169.254]/", None),
        (&*format!("{}/a.csv", pointing.url), None),
        ("s3://b/k.csv", Some("http://169.254.169.254")),
        ("s3://b/k.csv", Some("http://[fd00:ec2::254]:80/x")),
    ] {
        let own = endpoint.map(|endpoint| ("endpoint_url", endpoint));
        let options: Vec<_> =
            own.into_iter().chain(keys.iter().copied().filter(|_| own.is_some())).collect();
        for how in ["confined", "confined, posted"] {
            let came =
                open_in_child(how, url, &options, &[("AWS_SERVER_SIDE_ENCRYPTION", "AES256")]);
            assert!(came.contains(refused), "{how}, {url}: {came}");
        }
    }
    // An endpoint of the environment at such an address is refused too.
    let more = [("AWS_ENDPOINT_URL", "http://169.254.169.254"), ("AWS_ALLOW_HTTP", "true")];
    let came = open_in_child("confined, posted", "s3://b/k.csv", &[], &more);
    assert!(came.contains(refused), "{came}");
}
