//! A server that stores objects with the part of S3's interface that outputs use: objects, multipart uploads
//! and conditional writes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use tidemill_engine::remote::StorageOptions;

/// The bucket `out` of a server on a free loopback port, which runs until the process ends.
pub(crate) struct FakeS3Bucket {
    contents: Arc<Mutex<BucketContents>>,
    port: u16,
}

#[derive(Default)]
pub(crate) struct BucketContents {
    /// Objects by key, each with its ETag and the run that its metadata names.
    pub(crate) objects: BTreeMap<String, (Vec<u8>, String, Option<String>)>,
    /// Uploads by their ids, each with its key and its parts.
    pub(crate) uploads: BTreeMap<String, (String, BTreeMap<usize, Vec<u8>>)>,
    /// Number of uploads that were begun.
    pub(crate) uploads_begun: usize,
    /// Largest number of parts of one object.
    pub(crate) object_parts_max: usize,
}

impl std::fmt::Debug for FakeS3Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("port", &self.port).finish_non_exhaustive()
    }
}

impl FakeS3Bucket {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let kept = Arc::<Mutex<BucketContents>>::default();
        let shared = Arc::clone(&kept);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&shared);
                std::thread::spawn(move || serve_connection(&stream, &kept));
            }
        });
        FakeS3Bucket { contents: kept, port }
    }

    pub(crate) fn storage_options(&self) -> StorageOptions {
        let mut options = StorageOptions::default();
        for (name, value) in [
            ("endpoint_url", format!("http://127.0.0.1:{}", self.port).as_str()),
            ("allow_http", "true"),
            ("access_key_id", "key-id"),
            ("secret_access_key", "hush-hush"),
            ("region", "us-east-1"),
        ] {
            options.set(name, value.to_owned()).unwrap();
        }
        options
    }

    pub(crate) fn lock_contents(&self) -> std::sync::MutexGuard<'_, BucketContents> {
        self.contents.lock().unwrap()
    }

    /// Stores an object.
    pub(crate) fn put_object(&self, key: &str, content: &[u8]) {
        let object = (content.to_vec(), entity_tag(content), None);
        self.lock_contents().objects.insert(key.to_owned(), object);
    }

    /// Returns the objects below a folder, by the rest of their keys.
    pub(crate) fn objects_below(&self, folder: &str) -> BTreeMap<String, Vec<u8>> {
        let kept = self.lock_contents();
        let below = |(key, (content, ..)): (&String, &(Vec<u8>, String, Option<String>))| {
            Some((key.strip_prefix(folder)?.to_owned(), content.clone()))
        };
        kept.objects.iter().filter_map(below).collect()
    }
}

/// Returns an ETag; any value that tells contents apart will do.
fn entity_tag(content: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("\"{:016x}{:016x}\"", hasher.finish(), content.len())
}

struct FakeBucketRequest {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

fn read_request(from: &mut BufReader<&TcpStream>) -> Option<FakeBucketRequest> {
    let mut line = String::new();
    from.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name.to_owned(), percent_decode(value))
    };
    let query = query.split('&').map(pair).collect();
    let key = percent_decode(path.strip_prefix("/out/").expect("the bucket is `out`"));
    Some(FakeBucketRequest { method, key, query, headers, body })
}

fn percent_decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [one, two, tail @ ..]) => {
                let digits = [*one, *two].map(char::from).map(|digit| digit.to_digit(16).unwrap());
                bytes.push((digits[0] * 16 + digits[1]) as u8);
                rest = tail;
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn serve_connection(stream: &TcpStream, kept: &Mutex<BucketContents>) {
    let mut from = BufReader::new(stream);
    while let Some(request) = read_request(&mut from) {
        let is_head = request.method == "HEAD";
        let (status, headers, body) = handle_request(&mut kept.lock().unwrap(), request);
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let own = format!("content-length: {}\r\n", body.len());
        let mut head = format!("HTTP/1.1 {status} .\r\n");
        for (name, value) in &headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(if length.is_some() { "" } else { &own });
        head.push_str("\r\n");
        let mut out = head.into_bytes();
        if !is_head {
            out.extend(body.as_bytes());
        }
        let mut to = stream;
        if to.write_all(&out).is_err() {
            return;
        }
    }
}

type FakeBucketResponse = (u16, Vec<(String, String)>, String);

fn error_response(status: u16, code: &str) -> FakeBucketResponse {
    (status, Vec::new(), format!("<Error><Code>{code}</Code><Message>no</Message></Error>"))
}

fn handle_request(kept: &mut BucketContents, request: FakeBucketRequest) -> FakeBucketResponse {
    let FakeBucketRequest { method, key, query, headers, body } = request;
    let tagged = |e_tag: &str| vec![("etag".to_owned(), e_tag.to_owned())];
    let upload = query.get("uploadId");
    let is_taken = headers.contains_key("if-none-match") && kept.objects.contains_key(&key);
    match (method.as_str(), upload) {
        ("POST", None) if query.contains_key("uploads") => {
            kept.uploads_begun += 1;
            let id = format!("upload-{}", kept.uploads_begun);
            kept.uploads.insert(id.clone(), (key.clone(), BTreeMap::new()));
            let told = format!(
                "<InitiateMultipartUploadResult><Bucket>out</Bucket><Key>{key}</Key>\
                 <UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
            );
            (200, Vec::new(), told)
        }
        ("PUT", Some(id)) => match kept.uploads.get_mut(id) {
            Some((of, parts)) if *of == key => {
                let told = entity_tag(&body);
                parts.insert(query["partNumber"].parse().unwrap(), body);
                (200, tagged(&told), String::new())
            }
            _ => error_response(404, "NoSuchUpload"),
        },
        ("POST", Some(id)) => {
            let Some((of, parts)) = kept.uploads.get(id) else {
                return error_response(404, "NoSuchUpload");
            };
            assert_eq!(*of, key);
            if is_taken {
                return error_response(412, "PreconditionFailed");
            }
            let text = String::from_utf8(body).unwrap().replace("&quot;", "\"");
            let named: Vec<String> = text
                .split("<ETag>")
                .skip(1)
                .map(|rest| rest.split("</ETag>").next().unwrap().trim_matches('"').to_owned())
                .collect();
            let there: Vec<String> =
                parts.values().map(|part| entity_tag(part).trim_matches('"').to_owned()).collect();
            if named != there || parts.keys().copied().ne(1..=named.len()) {
                return error_response(400, "InvalidPart");
            }
            let count = parts.len();
            let small = parts.values().rev().skip(1).any(|part| part.len() < 5 << 20);
            if small || count == 0 {
                return error_response(400, "EntityTooSmall");
            }
            let content: Vec<u8> = parts.values().flatten().copied().collect();
            kept.uploads.remove(id);
            kept.object_parts_max = kept.object_parts_max.max(count);
            let told = format!("\"{}-{count}\"", entity_tag(&content).trim_matches('"'));
            let answer = format!(
                "<CompleteMultipartUploadResult><Bucket>out</Bucket><Key>{key}</Key>\
                 <ETag>{told}</ETag></CompleteMultipartUploadResult>"
            );
            kept.objects.insert(key, (content, told, None));
            (200, Vec::new(), answer)
        }
        ("PUT", None) if is_taken => error_response(412, "PreconditionFailed"),
        ("PUT", None) => {
            let told = entity_tag(&body);
            let run = headers.get("x-amz-meta-tidemill-run").cloned();
            kept.objects.insert(key, (body, told.clone(), run));
            (200, tagged(&told), String::new())
        }
        ("HEAD", _) => match kept.objects.get(&key) {
            None => (404, Vec::new(), String::new()),
            Some((content, e_tag, run)) => {
                let mut told = tagged(e_tag);
                told.push(("content-length".into(), content.len().to_string()));
                told.push(("last-modified".into(), "Sat, 28 Nov 2026 10:00:00 GMT".into()));
                let run = run.clone().map(|run| ("x-amz-meta-tidemill-run".into(), run));
                told.extend(run);
                (200, told, String::new())
            }
        },
        ("DELETE", Some(id)) => match kept.uploads.remove(id) {
            Some(_) => (204, Vec::new(), String::new()),
            None => error_response(404, "NoSuchUpload"),
        },
        ("DELETE", None) => {
            kept.objects.remove(&key);
            (204, Vec::new(), String::new())
        }
        _ => error_response(501, "NotImplemented"),
    }
}
