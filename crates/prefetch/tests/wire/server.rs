//! An object store below `object_store`'s client: HTTP without a network. It misbehaves on demand,
//! and the requests alone decide how.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use http_body::{Body, Frame};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{BackoffConfig, ClientOptions, HeaderValue, RetryConfig};
use parking_lot::Mutex;
use tidemill_prefetch::Endpoint;
use tokio::sync::Semaphore;

/// A fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request is refused with this status.
    Status(u16),
    /// The connection is lost before an answer.
    Lost,
    /// There is no answer until the client times out.
    Stall,
    /// There is never an answer.
    Never,
    /// The answer arrives after others.
    Late(u8),
    /// The body ends early without an error, after this many 256ths.
    Short(u8),
    /// The body fails after this many 256ths.
    Reset(u8),
    /// The body fails after this many 256ths and a long time.
    Hang(u8),
    /// The body has extra bytes.
    Longer,
    /// `Content-Range` names another range.
    Elsewhere,
    /// The object is replaced before the request.
    Replaced,
}

/// Timeout of a request without an answer.
const PATIENCE: Duration = Duration::from_millis(2);
/// Length of the pieces of a body.
const PIECE: usize = 20_000;

/// A bucket `b` with an object `a`, whose bytes depend on their offset and version.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) size: u64,
    versions: Vec<Bytes>,
    version: AtomicUsize,
    /// Faults of the next reads; none once they are used up.
    pub(crate) faults: Mutex<VecDeque<Option<Fault>>>,
    /// The requested ranges.
    pub(crate) asked: Mutex<Vec<Range<u64>>>,
    /// Maximum number of concurrent requests.
    pub(crate) capacity: AtomicUsize,
    flying: AtomicUsize,
    /// Maximum number of concurrent requests that were answered.
    pub(crate) flying_max: AtomicUsize,
    pub(crate) refused: AtomicUsize,
    /// Semaphore with a permit for each answered read; `None`: every read is answered.
    pub(crate) permits: Option<Semaphore>,
}

/// Returns the byte of a version at an offset.
pub(crate) fn byte(version: usize, at: u64) -> u8 {
    let mixed = (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) ^ version as u64;
    mixed.to_le_bytes()[0]
}

impl Server {
    pub(crate) fn new(size: u64, faults: Vec<Option<Fault>>) -> Server {
        let replaced = faults.iter().filter(|fault| **fault == Some(Fault::Replaced)).count();
        let version = |version| (0..size).map(|at| byte(version, at)).collect::<Vec<u8>>().into();
        Server {
            size,
            versions: (0..=replaced).map(version).collect(),
            version: AtomicUsize::new(0),
            faults: Mutex::new(faults.into()),
            asked: Mutex::default(),
            capacity: AtomicUsize::new(usize::MAX),
            flying: AtomicUsize::new(0),
            flying_max: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            permits: None,
        }
    }

    /// Returns the bucket, accessed through an endpoint.
    pub(crate) fn store(self: &Arc<Self>, endpoint: &Endpoint) -> AmazonS3 {
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(1),
            max_backoff: Duration::from_millis(8),
            base: 2.0,
        };
        let retry =
            RetryConfig { backoff, max_retries: 8, retry_timeout: Duration::from_secs(600) };
        AmazonS3Builder::new()
            .with_bucket_name("b")
            .with_region("r")
            .with_endpoint("http://s3")
            .with_allow_http(true)
            .with_skip_signature(true)
            .with_retry(retry)
            .with_http_connector(Wire(Arc::clone(self), endpoint.clone()))
            .build()
            .unwrap()
    }

    /// Returns the version that the bytes belong to.
    pub(crate) fn version_of(&self, bytes: &[u8], at: u64) -> Option<usize> {
        (0..self.versions.len()).find(|version| self.is_of(*version, bytes, at))
    }

    /// Returns whether bytes are of a version.
    pub(crate) fn is_of(&self, version: usize, bytes: &[u8], at: u64) -> bool {
        let start = usize::try_from(at).unwrap();
        self.versions[version].get(start..start + bytes.len()) == Some(bytes)
    }

    async fn get(self: &Arc<Self>, range: Range<u64>) -> Result<HttpResponse, HttpError> {
        let fault = self.faults.lock().pop_front().flatten();
        self.asked.lock().push(range.clone());
        let flight = Flight::new(self);
        if flight.count > self.capacity.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Ok(answer(503, Bytes::new(), &[]));
        }
        self.flying_max.fetch_max(flight.count, Ordering::SeqCst);
        if let Some(permits) = &self.permits {
            permits.acquire().await.unwrap().forget();
        }
        // Others arrive meanwhile.
        let turns = if let Some(Fault::Late(turns)) = fault { turns } else { 4 };
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        match fault {
            Some(Fault::Status(status)) => return Ok(answer(status, Bytes::new(), &[])),
            Some(Fault::Lost) => return Err(broken(HttpErrorKind::Request)),
            Some(Fault::Stall) => {
                tokio::time::sleep(PATIENCE).await;
                return Err(broken(HttpErrorKind::Timeout));
            }
            Some(Fault::Never) => std::future::pending().await,
            Some(Fault::Replaced) => {
                self.version.fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
        let (start, end) = (range.start as usize, range.end as usize);
        let mut body = self.versions[self.version.load(Ordering::SeqCst)].slice(start..end);
        let shift = u64::from(fault == Some(Fault::Elsewhere));
        let (first, last) = (range.start + shift, range.end - 1 + shift);
        let told = format!("bytes {first}-{last}/{}", self.size);
        let (mut more, mut end) = (Bytes::new(), None);
        match fault {
            Some(Fault::Short(part)) => body.truncate(body.len() * usize::from(part) / 256),
            Some(Fault::Reset(part)) => {
                body.truncate(body.len() * usize::from(part) / 256);
                end = Some((Duration::ZERO, HttpErrorKind::Interrupted));
            }
            Some(Fault::Hang(part)) => {
                body.truncate(body.len() * usize::from(part) / 256);
                end = Some((PATIENCE, HttpErrorKind::Timeout));
            }
            Some(Fault::Longer) => more = Bytes::from_static(b"more"),
            _ => {}
        }
        let start = (body, more, end, flight);
        let pieces = futures::stream::unfold(start, |state| async move {
            let (mut body, mut more, end, flight) = state;
            tokio::task::yield_now().await;
            let from = if body.is_empty() { &mut more } else { &mut body };
            if !from.is_empty() {
                let piece = from.split_to(from.len().min(PIECE));
                return Some((Ok(piece), (body, more, end, flight)));
            }
            let (wait, kind) = end?;
            tokio::time::sleep(wait).await;
            Some((Err(broken(kind)), (body, more, None, flight)))
        });
        let body = HttpResponseBody::new(Pieces(Mutex::new(pieces.boxed())));
        Ok(answer(206, body, &[("content-range", told)]))
    }

    fn e_tag(&self) -> String {
        format!("\"{}\"", self.version.load(Ordering::SeqCst))
    }
}

fn broken(kind: HttpErrorKind) -> HttpError {
    HttpError::new(kind, io::Error::other("broken"))
}

fn answer(
    status: u16,
    body: impl Into<HttpResponseBody>,
    headers: &[(&'static str, String)],
) -> HttpResponse {
    let mut answer = HttpResponse::new(body.into());
    *answer.status_mut() = status.try_into().unwrap();
    for (name, value) in headers {
        answer.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
    }
    answer
}

/// A request in flight.
struct Flight {
    server: Arc<Server>,
    count: usize,
}

impl Flight {
    fn new(server: &Arc<Server>) -> Flight {
        let count = server.flying.fetch_add(1, Ordering::SeqCst) + 1;
        Flight { server: Arc::clone(server), count }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.server.flying.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Pieces(Mutex<BoxStream<'static, Result<Bytes, HttpError>>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let polled = self.0.get_mut().poll_next_unpin(context);
        polled.map(|next| next.map(|piece| piece.map(Frame::data)))
    }
}

/// The connection to the server.
#[derive(Debug, Clone)]
struct Wire(Arc<Server>, Endpoint);

impl HttpConnector for Wire {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(self.1.wrap_client(HttpClient::new(self.clone())))
    }
}

#[async_trait]
impl HttpService for Wire {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let server = &self.0;
        let header = |name: &str| Some(request.headers().get(name)?.to_str().ok()?.to_owned());
        let size = server.size;
        let mut found = match (request.method().as_str(), header("range")) {
            ("HEAD", _) => answer(200, Bytes::new(), &[("content-length", size.to_string())]),
            (_, None) => {
                let mut whole = server.get(0..size).await?;
                if whole.status() == 206 {
                    *whole.status_mut() = 200.try_into().unwrap();
                    whole.headers_mut().remove("content-range");
                    let length = HeaderValue::from_str(&size.to_string()).unwrap();
                    whole.headers_mut().insert("content-length", length);
                }
                whole
            }
            (_, Some(range)) => {
                let (first, last) = range["bytes=".len()..].split_once('-').unwrap();
                let range = first.parse().unwrap()..last.parse::<u64>().unwrap() + 1;
                if range.start >= size {
                    return Ok(answer(416, Bytes::new(), &[]));
                }
                server.get(range.start..range.end.min(size)).await?
            }
        };
        let e_tag = server.e_tag();
        if header("if-match").is_some_and(|expected| expected != e_tag) {
            return Ok(answer(412, Bytes::new(), &[]));
        }
        let headers = found.headers_mut();
        headers.insert("etag", HeaderValue::from_str(&e_tag).unwrap());
        let time = "Fri, 20 Nov 2026 10:00:00 GMT";
        headers.insert("last-modified", HeaderValue::from_static(time));
        if !headers.contains_key("content-length") {
            headers.insert("content-length", HeaderValue::from_static("0"));
        }
        Ok(found)
    }
}
