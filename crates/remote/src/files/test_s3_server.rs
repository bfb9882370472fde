//! An S3 server for tests, on a free loopback port, in threads of this process.
//!
//! A rule sees each request before the response and chooses a fault for it. Nothing depends on the clock. The
//! server checks no signatures; tests against an independent server do.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tidemill_base::hex::encode_hex;

use crate::StorageOptions;
use crate::upload::multipart_e_tag;

/// A request, without its body.
#[derive(Debug, Clone)]
pub(super) struct ServerRequest {
    pub(super) method: String,
    pub(super) key: String,
    pub(super) query: BTreeMap<String, String>,
    pub(super) headers: BTreeMap<String, String>,
}

impl ServerRequest {
    pub(super) fn is_part_upload(&self) -> bool {
        self.method == "PUT" && self.query.contains_key("partNumber")
    }

    /// Returns the start of the requested range.
    pub(super) fn range_start(&self) -> Option<u64> {
        let range = self.headers.get("range")?.strip_prefix("bytes=")?;
        range.split('-').next()?.parse().ok()
    }
}

/// A fault that a rule injects into a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerFault {
    None,
    /// A response with this status.
    Status(u16),
    /// The refusal of an archived object.
    Archived,
    /// A body that ends after this number of bytes.
    CutBody(usize),
    /// A body with a flipped bit in its first byte.
    FlipBit,
    /// The request takes effect, but has no response.
    LoseResponse,
    /// The request has no response while the server lives.
    Stall,
}

#[derive(Debug, Clone)]
pub(super) struct StoredObject {
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) e_tag: String,
    metadata: Vec<(String, String)>,
}

impl StoredObject {
    fn new(bytes: Vec<u8>) -> StoredObject {
        use md5::Digest;
        let e_tag = format!("\"{}\"", encode_hex(md5::Md5::digest(&bytes)));
        StoredObject { bytes: Arc::new(bytes), e_tag, metadata: Vec::new() }
    }
}

#[derive(Debug, Default)]
pub(super) struct ServerState {
    pub(super) objects: BTreeMap<String, StoredObject>,
    /// Key and parts of each unfinished upload, by upload id.
    pub(super) uploads: BTreeMap<String, (String, BTreeMap<usize, StoredObject>)>,
    pub(super) requests: Vec<ServerRequest>,
    uploads_begun: u64,
}

type FaultRule = Arc<dyn Fn(&ServerRequest) -> ServerFault + Send + Sync>;

pub(super) struct SharedServer {
    state: Mutex<ServerState>,
    fault_rule: Mutex<FaultRule>,
    page_names: usize,
    is_stopped: Mutex<bool>,
    stopped: Condvar,
    closed: AtomicBool,
    /// Maximum number of concurrent requests; the server refuses others.
    capacity: AtomicUsize,
    in_flight: AtomicUsize,
    refused: AtomicUsize,
}

impl SharedServer {
    pub(super) fn store(&self, key: &str, bytes: Vec<u8>) {
        self.state.lock().objects.insert(key.to_owned(), StoredObject::new(bytes));
    }
}

pub(crate) struct TestS3Server {
    pub(super) url: String,
    shared: Arc<SharedServer>,
}

impl TestS3Server {
    /// Starts a server whose listings have `page` names per page.
    pub(super) fn start(page: usize) -> TestS3Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(SharedServer {
            state: Mutex::default(),
            fault_rule: Mutex::new(Arc::new(|_| ServerFault::None)),
            page_names: page,
            is_stopped: Mutex::new(false),
            stopped: Condvar::new(),
            closed: AtomicBool::new(false),
            capacity: AtomicUsize::new(usize::MAX),
            in_flight: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        });
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if own.closed.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, own) = (stream.unwrap(), Arc::clone(&own));
                std::thread::spawn(move || {
                    // A client that disconnects is not an error of the server.
                    let _ = serve(&own, &stream);
                });
            }
        });
        TestS3Server { url, shared }
    }

    pub(crate) fn with_objects(keys: &[(&str, &[u8])]) -> TestS3Server {
        let server = TestS3Server::start(1000);
        for (key, bytes) in keys {
            server.store(key, bytes.to_vec());
        }
        server
    }

    pub(super) fn store(&self, key: &str, bytes: Vec<u8>) {
        self.shared.store(key, bytes);
    }

    /// Returns the state that rules may change.
    pub(super) fn shared_state(&self) -> Arc<SharedServer> {
        Arc::clone(&self.shared)
    }

    pub(super) fn with_state<T>(&self, look: impl FnOnce(&mut ServerState) -> T) -> T {
        look(&mut self.shared.state.lock())
    }

    /// Limits the concurrent requests, each of which then takes a moment.
    pub(super) fn set_capacity(&self, capacity: usize) {
        self.shared.capacity.store(capacity, Ordering::SeqCst);
    }

    /// Returns the number of refused requests since the last call.
    pub(super) fn take_refused_count(&self) -> usize {
        self.shared.refused.swap(0, Ordering::SeqCst)
    }

    /// Sets the rule for later requests, and clears the recorded requests.
    pub(super) fn set_fault_rule(
        &self,
        rule: impl Fn(&ServerRequest) -> ServerFault + Send + Sync + 'static,
    ) {
        *self.shared.fault_rule.lock() = Arc::new(rule);
        self.with_state(|state| state.requests.clear());
    }

    pub(super) fn clear_faults(&self) {
        self.set_fault_rule(|_| ServerFault::None);
    }

    pub(crate) fn storage_options(&self) -> StorageOptions {
        let mut options = StorageOptions::default();
        for (name, value) in [
            ("endpoint_url", self.url.as_str()),
            ("allow_http", "true"),
            ("region", "us-east-1"),
            ("access_key_id", "key-id"),
            ("secret_access_key", "hush-hush"),
            ("max_retries", "2"),
            // The server does not check payload hashes, which would slow the tests.
            ("unsigned_payload", "true"),
            ("timeout", "60s"),
        ] {
            options.set(name, value).unwrap();
        }
        options
    }
}

impl Drop for TestS3Server {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        *self.shared.is_stopped.lock() = true;
        self.shared.stopped.notify_all();
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

struct ServerResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

fn response(status: u16, body: impl Into<Vec<u8>>) -> ServerResponse {
    ServerResponse { status, headers: Vec::new(), body: body.into() }
}

fn error_response(status: u16, code: &str) -> ServerResponse {
    response(status, format!("<Error><Code>{code}</Code><Message>no</Message></Error>"))
}

fn serve(shared: &SharedServer, stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut stream = stream;
    loop {
        let Some((request, body)) = read_request(&mut reader)? else { return Ok(()) };
        let rule = Arc::clone(&shared.fault_rule.lock());
        let fault = rule(&request);
        shared.state.lock().requests.push(request.clone());
        let flying = shared.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        let capacity = shared.capacity.load(Ordering::SeqCst);
        if flying <= capacity && capacity < usize::MAX {
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut found = match fault {
            _ if flying > capacity => {
                shared.refused.fetch_add(1, Ordering::SeqCst);
                error_response(if flying.is_multiple_of(2) { 503 } else { 429 }, "SlowDown")
            }
            ServerFault::Status(status) => error_response(status, "SlowDown"),
            ServerFault::Archived => response(
                403,
                "<Error><Code>InvalidObjectState</Code><Message>The operation is not valid for the object's \
                 storage class</Message><StorageClass>DEEP_ARCHIVE</StorageClass></Error>",
            ),
            ServerFault::Stall => {
                let mut is_over = shared.is_stopped.lock();
                while !*is_over {
                    shared.stopped.wait(&mut is_over);
                }
                return Ok(());
            }
            _ => answer_request(&mut shared.state.lock(), shared.page_names, &request, body),
        };
        shared.in_flight.fetch_sub(1, Ordering::SeqCst);
        let length = found.body.len();
        match fault {
            ServerFault::LoseResponse => return Ok(()),
            ServerFault::CutBody(bytes) => found.body.truncate(bytes),
            ServerFault::FlipBit => found.body[0] ^= 1,
            _ => {}
        }
        let mut head = format!("HTTP/1.1 {} x\r\n", found.status);
        let is_head = request.method == "HEAD";
        let has_length = found.headers.iter().any(|(name, _)| name == "content-length");
        if !has_length {
            head.push_str(&format!("content-length: {length}\r\n"));
        }
        for (name, value) in &found.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        if !is_head {
            stream.write_all(&found.body)?;
        }
        if matches!(fault, ServerFault::CutBody(_)) {
            return Ok(());
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> std::io::Result<Option<(ServerRequest, Vec<u8>)>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    });
    let mut request = ServerRequest {
        method: method.to_owned(),
        key: decoded(path.strip_prefix("/b").unwrap_or(path).strip_prefix('/').unwrap_or("")),
        query: query.collect(),
        headers: BTreeMap::new(),
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        request.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = request.headers.get("content-length").and_then(|text| text.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Some((request, body)))
}

const TIME: &str = "2026-11-20T10:00:00.000Z";
const TIME_HTTP: &str = "Fri, 20 Nov 2026 10:00:00 GMT";

fn answer_request(
    state: &mut ServerState,
    page: usize,
    request: &ServerRequest,
    body: Vec<u8>,
) -> ServerResponse {
    let (key, query) = (&request.key, &request.query);
    let id = query.get("uploadId").cloned();
    match (request.method.as_str(), id) {
        ("GET", None) if query.contains_key("list-type") => list(state, page, query),
        ("GET" | "HEAD", None) => get(state, request),
        ("PUT", None) => {
            if request.headers.contains_key("if-none-match") && state.objects.contains_key(key) {
                return error_response(412, "PreconditionFailed");
            }
            let metadata =
                request.headers.iter().filter(|(name, _)| name.starts_with("x-amz-meta-"));
            let metadata = metadata.map(|(name, value)| (name.clone(), value.clone())).collect();
            let stored = StoredObject { metadata, ..StoredObject::new(body) };
            let tag = stored.e_tag.clone();
            state.objects.insert(key.clone(), stored);
            ServerResponse { headers: vec![("etag".into(), tag)], ..response(200, "") }
        }
        ("POST", None) if query.contains_key("uploads") => {
            state.uploads_begun += 1;
            let id = format!("upload-{}", state.uploads_begun);
            state.uploads.insert(id.clone(), (key.clone(), BTreeMap::new()));
            response(
                200,
                format!(
                    "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key>\
                     <UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                ),
            )
        }
        ("PUT", Some(id)) => {
            let number = query.get("partNumber").and_then(|text| text.parse().ok()).unwrap_or(0);
            let Some((_, parts)) = state.uploads.get_mut(&id) else {
                return error_response(404, "NoSuchUpload");
            };
            let stored = StoredObject::new(body);
            let tag = stored.e_tag.clone();
            parts.insert(number, stored);
            ServerResponse { headers: vec![("etag".into(), tag)], ..response(200, "") }
        }
        ("POST", Some(id)) => complete(state, request, &id, &String::from_utf8_lossy(&body)),
        ("DELETE", Some(id)) => match state.uploads.remove(&id) {
            Some(_) => response(204, ""),
            None => error_response(404, "NoSuchUpload"),
        },
        _ => error_response(405, "MethodNotAllowed"),
    }
}

fn complete(
    state: &mut ServerState,
    request: &ServerRequest,
    id: &str,
    body: &str,
) -> ServerResponse {
    let Some((key, parts)) = state.uploads.get(id) else {
        return error_response(404, "NoSuchUpload");
    };
    if request.headers.contains_key("if-none-match") && state.objects.contains_key(key) {
        return error_response(412, "PreconditionFailed");
    }
    let inner = |text: &str, tag: &str| {
        let start = text.find(&format!("<{tag}>")).unwrap() + tag.len() + 2;
        let end = text.find(&format!("</{tag}>")).unwrap();
        text[start..end].replace("&quot;", "\"")
    };
    let (mut bytes, mut tags) = (Vec::new(), Vec::new());
    for part in body.split("<Part>").skip(1) {
        let (number, tag) = (inner(part, "PartNumber"), inner(part, "ETag"));
        match parts.get(&number.parse().unwrap()) {
            Some(part) if part.e_tag == tag => bytes.extend_from_slice(&part.bytes),
            _ => return error_response(400, "InvalidPart"),
        }
        tags.push(tag);
    }
    let key = key.clone();
    state.uploads.remove(id);
    let e_tag = format!("\"{}\"", multipart_e_tag(&tags).unwrap());
    let done = format!(
        "<CompleteMultipartUploadResult><ETag>{e_tag}</ETag></CompleteMultipartUploadResult>"
    );
    state.objects.insert(key, StoredObject { e_tag, ..StoredObject::new(bytes) });
    response(200, done)
}

fn get(state: &ServerState, request: &ServerRequest) -> ServerResponse {
    let Some(stored) = state.objects.get(&request.key) else {
        return error_response(404, "NoSuchKey");
    };
    if request.headers.get("if-match").is_some_and(|tag| *tag != stored.e_tag) {
        return error_response(412, "PreconditionFailed");
    }
    let size = stored.bytes.len();
    let mut headers = vec![
        ("etag".to_owned(), stored.e_tag.clone()),
        ("last-modified".into(), TIME_HTTP.into()),
        ("content-type".into(), "text/csv".into()),
        ("x-amz-version-id".into(), "v7".into()),
        ("x-amz-request-id".into(), "r1".into()),
    ];
    headers.extend(stored.metadata.iter().cloned());
    if request.method == "HEAD" {
        headers.push(("content-length".into(), size.to_string()));
        return ServerResponse { headers, ..response(200, "") };
    }
    let range = request.headers.get("range").and_then(|text| text.strip_prefix("bytes="));
    let Some((from, to)) = range.and_then(|range| range.split_once('-')) else {
        return ServerResponse { headers, ..response(200, stored.bytes.to_vec()) };
    };
    let from: usize = from.parse().unwrap();
    let to = to.parse::<usize>().unwrap().min(size.saturating_sub(1));
    if from >= size {
        return error_response(416, "InvalidRange");
    }
    headers.push(("content-range".into(), format!("bytes {from}-{to}/{size}")));
    ServerResponse { headers, ..response(206, &stored.bytes[from..=to]) }
}

fn list(state: &ServerState, page: usize, query: &BTreeMap<String, String>) -> ServerResponse {
    let of = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
    let prefix = of("prefix");
    let after = percent_decode_str(of("continuation-token")).decode_utf8_lossy();
    let shown = |key: &str| utf8_percent_encode(key, NON_ALPHANUMERIC).to_string();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (key, stored) in &state.objects {
        let Some(below) = key.strip_prefix(prefix) else { continue };
        let folder = below.find('/').filter(|_| of("delimiter") == "/");
        match folder {
            Some(at) => {
                let folder = &key[..prefix.len() + at + 1];
                let xml =
                    format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", shown(folder));
                names.insert(folder.to_owned(), xml);
            }
            None => {
                let xml = format!(
                    "<Contents><Key>{}</Key><Size>{}</Size><LastModified>{TIME}</LastModified>\
                     <ETag>{}</ETag><StorageClass>STANDARD</StorageClass></Contents>",
                    shown(key),
                    stored.bytes.len(),
                    stored.e_tag.replace('"', "&quot;"),
                );
                names.insert(key.clone(), xml);
            }
        }
    }
    let mut rest = names.into_iter().filter(|(name, _)| name.as_str() > &*after).peekable();
    let mut xml = "<ListBucketResult><EncodingType>url</EncodingType>".to_owned();
    let mut last = String::new();
    for _ in 0..page {
        if let Some((name, text)) = rest.next() {
            last = name;
            xml.push_str(&text);
        }
    }
    let truncated = rest.peek().is_some();
    if truncated {
        let token = shown(&last);
        xml.push_str(&format!("<NextContinuationToken>{token}</NextContinuationToken>"));
    }
    xml.push_str(&format!("<IsTruncated>{truncated}</IsTruncated></ListBucketResult>"));
    response(200, xml)
}
