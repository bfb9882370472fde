//! Files on web servers, read by ranges where the server supports them, and whole otherwise.
//!
//! The first request asks for the range of the first [`PROBE_BYTES`], and its response tells everything.
//! Status `206` comes with size and version, and its bytes are the sample for schema inference. Status `200`
//! means that the server has no ranges; a short body then is the whole file. A `HEAD` request would tell
//! less, and signed URLs refuse it.
//!
//! **Redirects** are followed as `curl -L` does: up to [`REDIRECTS_MAX`], never from `https://` to `http://`.
//! The URL's name and password are sent to the same scheme, host and port only. No `Referer` is sent, which
//! would show a signed URL to the next host. [`WebResource::redirected_host`] names a host that differs from
//! the URL's, and errors say which host answered.
//!
//! **Encodings.** Requests ask for the identity encoding (`Accept-Encoding: identity`). A server sends files
//! that it stores compressed as they are. Readers of text detect compression by the first bytes, whatever the
//! header says.
//!
//! A file without a version (neither `ETag` nor `Last-Modified`) is read whole, too: two ranges could be of
//! two versions, while one response cannot.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::disk_cache::DiskTierSettings;
use crate::error::{Error, Result};
use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use chrono::DateTime;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
};
use object_store::{ClientConfigKey, ClientOptions, HeaderValue, RetryConfig};
use tidemill_base::cancellation::{CancelFlag, WaitCallback};
use tidemill_base::redaction::redact_url;
use tidemill_prefetch::ByteSink;
use tidemill_prefetch::origin::is_lasting_timestamp;

use super::NetworkTask;
use tidemill_prefetch::Endpoint;
use tidemill_prefetch::last_failure::record_failure;

use super::address_guard;
use super::direct_request_stats;
use super::http_client::{build_client, root_cause, shared_endpoint};
use super::s3::network_hint;
use super::silent_hosts;
use super::storage_options::{StorageOptions, parse_duration_option};
use super::tuning::{AutoReadOptions, EndpointTuning};

/// Number of bytes that the first request asks for.
const PROBE_BYTES: u64 = 1 << 20;
/// Maximum number of redirects.
const REDIRECTS_MAX: usize = 10;
/// Approximate size of the pieces in which a body without ranges is passed on.
const STREAM_PIECE_BYTES: usize = 1 << 20;
/// Default timeout for a response, and for the next piece of a body.
const RESPONSE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// An HTTP client with the settings that all URLs of a source share.
#[derive(Debug, Clone)]
pub struct WebClient {
    client: HttpClient,
    /// The client for whole bodies, which has no limit on the total time.
    client_without_timeout: HttpClient,
    timeout: Duration,
    retry: RetryConfig,
    /// Block, window and memory of prefetching.
    read_options: tidemill_prefetch::Options,
    /// The read options that are chosen automatically, if any are.
    auto_read_options: Option<AutoReadOptions>,
    /// The disk tier of the source, if it has one.
    disk_tier_settings: Option<DiskTierSettings>,
}

impl WebClient {
    /// Creates a client, which allows `http://` if `plain`.
    ///
    /// # Errors
    /// [`Error::Usage`] for invalid options.
    pub fn open(options: &StorageOptions, plain: bool) -> Result<WebClient> {
        let own = options.client_options(plain)?;
        let timeout = match own.get_config_value(&ClientConfigKey::Timeout) {
            Some(text) => parse_duration_option("timeout", &text)?,
            None => RESPONSE_TIMEOUT_DEFAULT,
        };
        let connect = |options: ClientOptions| {
            build_client(&options)
                .map(|client| silent_hosts::track_requests(HttpClient::new(client)))
        };
        let (reading, auto) = options.read_options()?;
        Ok(WebClient {
            client_without_timeout: connect(own.clone().with_timeout_disabled())?,
            client: connect(own.with_timeout(timeout))?,
            timeout,
            retry: options.retry_config()?,
            read_options: reading,
            auto_read_options: auto,
            disk_tier_settings: options.disk_tier_settings()?,
        })
    }

    /// Requests size, version and first bytes of a URL.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Usage`] for an invalid URL, [`Error::Remote`].
    pub(crate) async fn probe(self, url: String) -> Result<(WebResource, Option<Bytes>)> {
        let address = WebAddress::parse(&url)?;
        let mut retries = RequestRetries::new(&self.retry);
        let resource = |size, ranges: bool, answer: Option<&HttpResponse>| WebResource {
            web: self.clone(),
            address: address.clone(),
            size,
            has_ranges: ranges,
            e_tag: answer.and_then(|answer| header_value(answer, "etag")),
            modified: answer.and_then(|answer| header_value(answer, "last-modified")),
            redirected_host: answer.and_then(redirected_host),
            encoding: answer.and_then(|answer| header_value(answer, "content-encoding")),
            content_type: answer.and_then(|answer| header_value(answer, "content-type")),
        };
        loop {
            let asked = self.send(&address, Some(0..PROBE_BYTES), &[]).await;
            let answer = match asked {
                Ok(answer) => answer,
                Err(failure) => {
                    retries.wait_before_retry(failure, "read", &url, None).await?;
                    continue;
                }
            };
            let status = answer.status().as_u16();
            let length = header_value(&answer, "content-length").and_then(|text| text.parse().ok());
            let found = match status {
                206 => match header_value(&answer, "content-range")
                    .as_deref()
                    .and_then(parse_content_range)
                {
                    Some((0, total)) => resource(Some(total), true, Some(&answer)),
                    _ => resource(None, false, Some(&answer)),
                },
                200 => resource(length, false, Some(&answer)),
                // The first byte of an empty file is out of range.
                416 => return Ok((resource(Some(0), true, None), Some(Bytes::new()))),
                _ => return Err(refused_response_error("read", &url, None, &answer)),
            };
            let keeps = found.has_ranges || length.is_some_and(|length| length <= PROBE_BYTES);
            if !keeps {
                return Ok((found, None));
            }
            let wanted = found.size.map_or(PROBE_BYTES, |size| size.min(PROBE_BYTES));
            let mut head = BytesMut::new();
            let drained = read_body_into(answer, &mut head).await;
            direct_request_stats::count_answered_request(head.len() as u64);
            match drained {
                Ok(()) if head.len() as u64 == wanted => {
                    let (whole, named) = (found.size == Some(wanted), found.has_version());
                    // A file that has arrived whole needs no further request.
                    let ranges = whole || (found.has_ranges && named);
                    let head = ranges.then(|| head.freeze());
                    return Ok((WebResource { has_ranges: ranges, ..found }, head));
                }
                Ok(()) => {
                    retries
                        .wait_before_retry(
                            RequestFailure::truncated_body(head.len() as u64),
                            "read",
                            &url,
                            None,
                        )
                        .await?
                }
                Err(failure) => retries.wait_before_retry(failure, "read", &url, None).await?,
            }
        }
    }

    async fn send(
        &self,
        address: &WebAddress,
        range: Option<Range<u64>>,
        headers: &[(&'static str, &str)],
    ) -> Result<HttpResponse, RequestFailure> {
        let client = if range.is_some() { &self.client } else { &self.client_without_timeout };
        let range = range.map(|range| format!("bytes={}-{}", range.start, range.end - 1));
        let range = range.as_deref().map(|range| ("range", range));
        let headers: Vec<(&'static str, &str)> =
            range.into_iter().chain(headers.iter().copied()).collect();
        let first = url_host(&address.request_url);
        let mut address = address.clone();
        for _ in 0..=REDIRECTS_MAX {
            let mut answer = self.send_once(client, &address, &headers).await?;
            let host = url_host(&address.request_url);
            let is_elsewhere = host != first;
            let status = answer.status().as_u16();
            if let (301 | 302 | 303 | 307 | 308, Some(target)) =
                (status, header_value(&answer, "location"))
            {
                address = address.redirect_to(&target).map_err(RequestFailure::permanent)?;
                continue;
            }
            if matches!(status, 408 | 429 | 500..=599) {
                let who = if is_elsewhere { host.as_str() } else { "the server" };
                return Err(RequestFailure {
                    cause: answered_reason(who, status),
                    is_retryable: true,
                    status: Some(status),
                });
            }
            if is_elsewhere {
                answer.extensions_mut().insert(RedirectedHost(host));
            }
            return Ok(answer);
        }
        Err(RequestFailure::permanent(format!(
            "it points elsewhere more than {REDIRECTS_MAX} times"
        )))
    }

    async fn send_once(
        &self,
        client: &HttpClient,
        address: &WebAddress,
        headers: &[(&'static str, &str)],
    ) -> Result<HttpResponse, RequestFailure> {
        if address_guard::is_refused_url(&address.request_url) {
            return Err(RequestFailure::permanent(address_guard::REFUSED_HOST_MESSAGE.into()));
        }
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        let url = address.request_url.parse();
        *request.uri_mut() =
            url.map_err(|_| RequestFailure::permanent("not a valid URL".into()))?;
        if let Some(authorization) = &address.authorization {
            request.headers_mut().insert("authorization", authorization.clone());
        }
        let identity = [("accept-encoding", "identity")];
        for (name, value) in headers.iter().chain(&identity) {
            if let Ok(value) = HeaderValue::from_str(value) {
                request.headers_mut().insert(*name, value);
            }
        }
        let asked = shared_endpoint(&url_origin(&address.request_url));
        let sent = asked.send_request(client, request, Some(self.timeout)).await;
        sent.map_err(|error| RequestFailure::from_http_error(&error))
    }
}

/// The host of a response, if it is not the host of the request's URL.
#[derive(Debug, Clone)]
struct RedirectedHost(String);

fn redirected_host(answer: &HttpResponse) -> Option<String> {
    answer.extensions().get().map(|RedirectedHost(host)| host.clone())
}

/// Returns the endpoint of a URL's server, which all requests to it share.
pub fn server_endpoint(url: &str) -> Endpoint {
    shared_endpoint(&url_origin(url))
}

/// Returns a URL's scheme, host and port.
fn url_origin(url: &str) -> String {
    url::Url::parse(url).map_or_else(|_| String::new(), |url| url.origin().ascii_serialization())
}

/// Returns a URL's host, with its port unless that is the default of the scheme.
fn url_host(url: &str) -> String {
    let Ok(url) = url::Url::parse(url) else { return String::new() };
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// A URL whose name and password are separated into a header.
#[derive(Clone)]
struct WebAddress {
    /// The URL as given, for messages.
    given_url: String,
    request_url: String,
    authorization: Option<HeaderValue>,
}

impl fmt::Debug for WebAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact_url(&self.given_url))
    }
}

impl WebAddress {
    fn parse(given: &str) -> Result<WebAddress> {
        let invalid = |reason: String| {
            Error::usage(format!("`{}` is not a valid URL: {reason}", redact_url(given)))
        };
        let mut url = url::Url::parse(given).map_err(|error| invalid(error.to_string()))?;
        url.set_fragment(None);
        let mut authorization = None;
        if !url.username().is_empty() || url.password().is_some() {
            let decoded = |text: &str| {
                percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
            };
            let pair = format!(
                "{}:{}",
                decoded(url.username()),
                decoded(url.password().unwrap_or_default())
            );
            let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
            let mut value = HeaderValue::from_str(&format!("Basic {encoded}"))
                .map_err(|error| invalid(error.to_string()))?;
            value.set_sensitive(true);
            authorization = Some(value);
            let cleared = url.set_username("").and_then(|()| url.set_password(None));
            cleared.map_err(|()| invalid("it has a name and no host".into()))?;
        }
        Ok(WebAddress { given_url: given.to_owned(), request_url: url.into(), authorization })
    }

    /// Returns the address that a redirect points to. Credentials are kept only for the same scheme, host and
    /// port.
    fn redirect_to(&self, target: &str) -> Result<WebAddress, String> {
        let invalid = || "it points to what is no URL of a web server".to_owned();
        let own = url::Url::parse(&self.request_url).map_err(|_| invalid())?;
        let mut next = own.join(target).map_err(|_| invalid())?;
        if !matches!(next.scheme(), "http" | "https") {
            return Err(invalid());
        }
        if (own.scheme(), next.scheme()) == ("https", "http") {
            let host = url_host(next.as_str());
            return Err(format!("it points to `http://{host}`, without encryption"));
        }
        next.set_fragment(None);
        next.set_username("").and_then(|()| next.set_password(None)).map_err(|()| invalid())?;
        let authorization = self.authorization.clone().filter(|_| own.origin() == next.origin());
        Ok(WebAddress {
            given_url: self.given_url.clone(),
            request_url: next.into(),
            authorization,
        })
    }
}

/// One version of a file on a web server.
#[derive(Debug, Clone)]
pub(crate) struct WebResource {
    web: WebClient,
    address: WebAddress,
    size: Option<u64>,
    has_ranges: bool,
    e_tag: Option<String>,
    modified: Option<String>,
    /// The host that sent the file, if it is not the URL's.
    redirected_host: Option<String>,
    /// The `Content-Encoding` header.
    encoding: Option<String>,
    /// The `Content-Type` header.
    content_type: Option<String>,
}

impl WebResource {
    /// Returns the URL as given.
    pub(super) fn given_url(&self) -> &str {
        &self.address.given_url
    }

    pub(super) fn read_options(&self) -> tidemill_prefetch::Options {
        self.web.read_options
    }

    /// Returns the tuning of the server, if block or window are chosen automatically.
    pub(super) fn tuning(&self) -> Option<Arc<EndpointTuning>> {
        let server = url_origin(&self.address.request_url);
        let auto = self.web.auto_read_options.as_ref()?;
        Some(EndpointTuning::for_endpoint(&server, server.clone(), &shared_endpoint(&server), auto))
    }

    pub(super) fn disk_tier_settings(&self) -> Option<&DiskTierSettings> {
        self.web.disk_tier_settings.as_ref()
    }

    /// Returns an identifier of this version that stays unique over time: a strong ETag, or a modification
    /// time that is old enough; `None` if the server sends neither.
    pub(super) fn lasting_version(&self) -> Option<&str> {
        let seconds = i64::try_from(self.modified_ns() / 1_000_000_000).unwrap_or(0);
        let is_lasting = self.e_tag.is_none() && is_lasting_timestamp(seconds, SystemTime::now());
        self.strong_e_tag().or_else(|| self.modified.as_deref().filter(|_| is_lasting))
    }

    pub(super) fn size(&self) -> Option<u64> {
        self.size
    }

    pub(super) fn redirected_host(&self) -> Option<&str> {
        self.redirected_host.as_deref()
    }

    pub(super) fn encoding(&self) -> Option<&str> {
        self.encoding.as_deref().filter(|encoding| !encoding.eq_ignore_ascii_case("identity"))
    }

    pub(super) fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    pub(super) fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    pub(super) fn modified_ns(&self) -> i128 {
        let parsed =
            self.modified.as_deref().and_then(|text| DateTime::parse_from_rfc2822(text).ok());
        parsed.and_then(|time| time.timestamp_nanos_opt()).map_or(0, i128::from)
    }

    /// Returns true if the server sends a version, so that two versions can be distinguished.
    fn has_version(&self) -> bool {
        self.e_tag.is_some() || self.modified.is_some()
    }

    /// Returns the `ETag` if it is strong, which means that it identifies the exact bytes.
    pub(super) fn strong_e_tag(&self) -> Option<&str> {
        self.e_tag.as_deref().filter(|tag| !tag.starts_with("W/"))
    }

    fn changed_error(&self, reason: impl Into<String>) -> Error {
        Error::Changed { path: redact_url(&self.address.given_url), reason: reason.into() }
    }

    /// Reads a range of this version into a sink.
    pub(super) async fn read_range(
        &self,
        range: Range<u64>,
        bytes: &mut dyn ByteSink,
    ) -> Result<()> {
        let url = &self.address.given_url;
        let condition = match (self.strong_e_tag(), &self.modified) {
            (Some(tag), _) => vec![("if-match", tag)],
            (None, Some(modified)) => vec![("if-unmodified-since", modified.as_str())],
            (None, None) => vec![],
        };
        let mut retries = RequestRetries::new(&self.web.retry);
        let first = bytes.byte_count();
        loop {
            let from = range.start + (bytes.byte_count() - first);
            if from >= range.end {
                return Ok(());
            }
            let before = bytes.byte_count();
            let failure =
                match self.web.send(&self.address, Some(from..range.end), &condition).await {
                    Ok(answer) => {
                        self.check_response(&answer, from)?;
                        let drained = read_body_into(answer, bytes).await;
                        if range.start + (bytes.byte_count() - first) > range.end {
                            return Err(invalid_response_error(
                                url,
                                Some(from),
                                "the answer is longer than was asked for",
                            ));
                        }
                        match drained {
                            Ok(()) if range.start + (bytes.byte_count() - first) == range.end => {
                                return Ok(());
                            }
                            Ok(()) => RequestFailure::truncated_body(bytes.byte_count() - before),
                            Err(failure) => failure,
                        }
                    }
                    Err(failure) => failure,
                };
            if bytes.byte_count() > before {
                // The download makes progress, so count retries from the start.
                retries = RequestRetries::new(&self.web.retry);
            }
            let at = range.start + (bytes.byte_count() - first);
            bytes.record_retry();
            retries.wait_before_retry(failure, "read", url, Some(at)).await?;
        }
    }

    /// Checks that a response is of this version and this range.
    fn check_response(&self, answer: &HttpResponse, from: u64) -> Result<()> {
        let url = &self.address.given_url;
        match answer.status().as_u16() {
            206 => {}
            200 => {
                return Err(self.changed_error(
                    "the server answered with the whole file where it had ranges before",
                ));
            }
            412 => return Err(self.changed_error("it has been replaced since it was listed")),
            416 => return Err(self.changed_error("it has become shorter since it was listed")),
            404 | 410 => return Err(self.changed_error("it has been removed since it was listed")),
            _ => return Err(refused_response_error("read", url, Some(from), answer)),
        }
        self.check_same_version(answer)?;
        match header_value(answer, "content-range").as_deref().and_then(parse_content_range) {
            Some((start, total)) if start == from && Some(total) == self.size => Ok(()),
            Some((start, total)) if start == from => Err(self.changed_error(format!(
                "it had {} bytes when it was listed, and has {total}",
                self.size.unwrap_or(0)
            ))),
            _ => Err(invalid_response_error(
                url,
                Some(from),
                "the answer is not the range that was asked for",
            )),
        }
    }

    fn check_same_version(&self, answer: &HttpResponse) -> Result<()> {
        for (name, expected) in [("etag", &self.e_tag), ("last-modified", &self.modified)] {
            if let (Some(expected), Some(found)) = (expected, header_value(answer, name))
                && *expected != found
            {
                return Err(self.changed_error("it has been replaced since it was listed"));
            }
        }
        Ok(())
    }

    /// Starts to read the whole file.
    pub(super) fn open_stream(&self) -> Result<StreamedBody> {
        let resource = self.clone();
        let first = NetworkTask::start(async move {
            let url = &resource.address.given_url;
            let mut retries = RequestRetries::new(&resource.web.retry);
            let answer = loop {
                match resource.web.send(&resource.address, None, &[]).await {
                    Ok(answer) => break answer,
                    Err(failure) => {
                        retries.wait_before_retry(failure, "read", url, Some(0)).await?
                    }
                }
            };
            if answer.status().as_u16() != 200 {
                return Err(refused_response_error("read", url, Some(0), &answer));
            }
            resource.check_same_version(&answer)?;
            let pieces = answer.into_body().bytes_stream();
            let flow = BodyStream {
                url: url.clone(),
                timeout: resource.web.timeout,
                offset: 0,
                size: resource.size,
                pieces,
            };
            flow.read_piece().await
        })?;
        Ok(StreamedBody { pending_piece: Some(first) })
    }
}

/// A response body that is read front to back, with one piece fetched ahead.
pub(super) struct StreamedBody {
    pending_piece: Option<NetworkTask<(Bytes, Option<BodyStream>)>>,
}

impl fmt::Debug for StreamedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

impl StreamedBody {
    /// Returns the next piece; `None` after the last.
    pub(super) fn next(&mut self, cancel: &CancelFlag) -> Result<Option<Bytes>> {
        self.next_with_tick(&mut || cancel.check())
    }

    /// Returns the next piece, and calls `tick` during the wait. After an error, there are no more pieces.
    pub(super) fn next_with_tick(&mut self, tick: WaitCallback<'_>) -> Result<Option<Bytes>> {
        let Some(coming) = self.pending_piece.take() else { return Ok(None) };
        let (bytes, rest) = coming.wait_with_tick(tick)?;
        self.pending_piece = rest.map(|flow| NetworkTask::start(flow.read_piece())).transpose()?;
        Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

struct BodyStream {
    url: String,
    timeout: Duration,
    offset: u64,
    size: Option<u64>,
    pieces: BoxStream<'static, Result<Bytes, HttpError>>,
}

impl BodyStream {
    /// Returns a piece, and the rest of the stream if there is more.
    async fn read_piece(mut self) -> Result<(Bytes, Option<BodyStream>)> {
        let mut bytes = BytesMut::new();
        let broken = |flow: &BodyStream, got: usize, cause: &str| Error::Remote {
            action: "read",
            url: redact_url(&flow.url),
            offset: Some(flow.offset + got as u64),
            status: None,
            reason: format!("{cause}, and the server has no ranges to go on with"),
            hint: Some("run again, or fetch the file first and read it from disk".into()),
        };
        while bytes.len() < STREAM_PIECE_BYTES {
            match tokio::time::timeout(self.timeout, self.pieces.next()).await {
                Ok(Some(Ok(piece))) => bytes.extend_from_slice(&piece),
                Ok(Some(Err(error))) => {
                    return Err(broken(
                        &self,
                        bytes.len(),
                        &RequestFailure::from_http_error(&error).cause,
                    ));
                }
                Ok(None) => {
                    let end = self.offset + bytes.len() as u64;
                    if self.size.is_some_and(|size| size != end) {
                        return Err(broken(&self, bytes.len(), "the answer was cut off"));
                    }
                    return Ok((bytes.freeze(), None));
                }
                Err(_) => {
                    return Err(broken(&self, bytes.len(), &RequestFailure::timed_out().cause));
                }
            }
        }
        self.offset += bytes.len() as u64;
        Ok((bytes.freeze(), Some(self)))
    }
}

/// Reads a response's body into a sink.
async fn read_body_into(
    answer: HttpResponse,
    bytes: &mut dyn ByteSink,
) -> Result<(), RequestFailure> {
    let mut pieces = answer.into_body().bytes_stream();
    while let Some(piece) = pieces.next().await {
        bytes.put(&piece.map_err(|error| RequestFailure::from_http_error(&error))?);
    }
    Ok(())
}

fn header_value(answer: &HttpResponse, name: &str) -> Option<String> {
    Some(answer.headers().get(name)?.to_str().ok()?.to_owned())
}

/// Parses the first byte and the total size in a header such as `bytes 0-99/1000`.
fn parse_content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.trim().parse().ok()?, total.trim().parse().ok()?))
}

/// The failure of one attempt.
struct RequestFailure {
    cause: String,
    /// True if another attempt may succeed.
    is_retryable: bool,
    status: Option<u16>,
}

impl RequestFailure {
    fn from_http_error(error: &HttpError) -> RequestFailure {
        let cause = match error.kind() {
            HttpErrorKind::Timeout => "no answer in time: operation timed out".to_owned(),
            _ => root_cause(error),
        };
        // Retries help neither for a forbidden scheme nor for a refused address.
        let is_final =
            cause.contains("not allowed") || cause.contains(address_guard::REFUSED_HOST_MESSAGE);
        RequestFailure { is_retryable: !is_final, cause, status: None }
    }

    fn permanent(cause: String) -> RequestFailure {
        RequestFailure { cause, is_retryable: false, status: None }
    }

    fn truncated_body(bytes: u64) -> RequestFailure {
        let cause = format!("the answer was cut off after {bytes} bytes");
        RequestFailure { cause, is_retryable: true, status: None }
    }

    fn timed_out() -> RequestFailure {
        RequestFailure {
            cause: "no answer in time: operation timed out".into(),
            is_retryable: true,
            status: None,
        }
    }
}

/// Number and time of retries, with the limits that `object_store` applies to S3.
struct RequestRetries<'a> {
    config: &'a RetryConfig,
    count: usize,
    started: Instant,
}

impl<'a> RequestRetries<'a> {
    fn new(config: &'a RetryConfig) -> Self {
        RequestRetries { config, count: 0, started: Instant::now() }
    }

    /// Waits before the next attempt, or returns the error if there is none.
    async fn wait_before_retry(
        &mut self,
        failure: RequestFailure,
        action: &'static str,
        url: &str,
        offset: Option<u64>,
    ) -> Result<()> {
        record_failure(&failure.cause);
        let config = self.config;
        let spent =
            self.count >= config.max_retries || self.started.elapsed() > config.retry_timeout;
        if spent || !failure.is_retryable {
            if let Some(status) = failure.status {
                return Err(refused_status_error(
                    action,
                    url,
                    offset,
                    status,
                    failure.cause,
                    self.count,
                ));
            }
            return Err(Error::Remote {
                action,
                url: redact_url(url),
                offset,
                status: None,
                hint: cause_hint(&failure.cause),
                reason: append_retry_count(failure.cause, self.count),
            });
        }
        tokio::time::sleep(backoff_delay(config, self.count)).await;
        self.count += 1;
        Ok(())
    }
}

/// Returns the wait before the next attempt, after `count` failed attempts.
pub(super) fn backoff_delay(config: &RetryConfig, count: usize) -> Duration {
    let first = config.backoff.init_backoff.as_secs_f64();
    let exponent = i32::try_from(count).unwrap_or(i32::MAX);
    let most =
        (first * config.backoff.base.powi(exponent)).min(config.backoff.max_backoff.as_secs_f64());
    // Random, so that clients do not retry at the same moment: between half and all of the maximum.
    let random = f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX);
    Duration::from_secs_f64(most * (0.5 + random / 2.0))
}

fn append_retry_count(reason: String, retries: usize) -> String {
    match retries {
        0 => reason,
        1 => format!("{reason}, after 1 retry"),
        _ => format!("{reason}, after {retries} retries"),
    }
}

fn answered_reason(who: &str, status: u16) -> String {
    match who {
        "the server" => format!("the server answered {status}"),
        host => format!("`{host}`, where its server points to, answered {status}"),
    }
}

/// Returns advice for a request without a response.
fn cause_hint(cause: &str) -> Option<String> {
    if cause.contains("points") {
        return Some("name the URL of the file itself".into());
    }
    network_hint(cause).or_else(|| Some("is the network there, and the URL right?".into()))
}

/// Returns the error for a response with an unexpected status.
fn refused_response_error(
    action: &'static str,
    url: &str,
    offset: Option<u64>,
    answer: &HttpResponse,
) -> Error {
    let (status, host) = (answer.status().as_u16(), redirected_host(answer));
    let reason = answered_reason(host.as_deref().unwrap_or("the server"), status);
    refused_status_error(action, url, offset, status, reason, 0)
}

/// Returns the error for an unexpected status of a server.
fn refused_status_error(
    action: &'static str,
    url: &str,
    offset: Option<u64>,
    status: u16,
    reason: String,
    retries: usize,
) -> Error {
    let hint = match status {
        404 | 410 => {
            return Error::NotFound { path: redact_url(url), hint: Some(reason) };
        }
        401 | 403 => {
            "the server wants credentials or does not take these: NAME:PASSWORD@ before the host, \
             or a signed URL that has not expired"
        }
        429 | 500..=599 => {
            "the server is overloaded or broken; try again later, or with more patience: storage \
             options max_retries, retry_timeout"
        }
        300..=399 => "it points elsewhere and does not say where; name that URL",
        _ => "is it the right URL?",
    };
    Error::Remote {
        action,
        url: redact_url(url),
        offset,
        status: Some(status),
        reason: append_retry_count(reason, retries),
        hint: Some(hint.to_owned()),
    }
}

fn invalid_response_error(url: &str, offset: Option<u64>, reason: &str) -> Error {
    Error::Remote {
        action: "read",
        url: redact_url(url),
        offset,
        status: None,
        reason: reason.to_owned(),
        hint: Some("fetch the file first and read it from disk".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_range_header_is_parsed() {
        for (text, expected) in [
            ("bytes 0-99/1000", Some((0, 1000))),
            ("bytes 5-9/10", Some((5, 10))),
            ("bytes 0-9/*", None),
            ("bytes */10", None),
            ("items 0-9/10", None),
        ] {
            assert_eq!(parse_content_range(text), expected, "{text}");
        }
    }

    #[test]
    fn a_redirect_takes_credentials_to_their_own_host_alone() {
        let from = WebAddress::parse("https://me:pass@h:8443/a/b.csv?sig=s").unwrap();
        for (target, url, keeps) in [
            ("/c.csv", "https://h:8443/c.csv", true),
            ("c.csv?x=1#f", "https://h:8443/a/c.csv?x=1", true),
            ("https://h:8443/c", "https://h:8443/c", true),
            ("https://h/c", "https://h/c", false),
            ("//other/c", "https://other/c", false),
            ("https://me:pass@other/c", "https://other/c", false),
        ] {
            let next = from.redirect_to(target).unwrap();
            assert_eq!(
                (next.request_url.as_str(), next.authorization.is_some()),
                (url, keeps),
                "{target}"
            );
        }
        for target in ["http://h:8443/c", "ftp://h/c", "file:///etc/passwd", "https://"] {
            let reason = from.redirect_to(target).unwrap_err();
            assert!(!reason.contains("pass") && reason.contains("points"), "{reason}");
        }
        let plain = WebAddress::parse("http://h/a").unwrap();
        assert_eq!(plain.redirect_to("https://h/a").unwrap().request_url, "https://h/a");
    }

    #[test]
    fn url_credentials_become_an_authorization_header() {
        let address = WebAddress::parse("https://me:p%40ss@h/a b.csv?x=1#f").unwrap();
        assert_eq!(address.request_url, "https://h/a%20b.csv?x=1");
        assert_eq!(format!("{address:?}"), "https://h/a b.csv?…");
        let value = address.authorization.unwrap();
        assert_eq!(value.to_str().unwrap(), "Basic bWU6cEBzcw==");
        for url in ["http://h:99999/x", "http://[::1/x", "http://a b/x"] {
            let message = WebAddress::parse(url).unwrap_err().to_string();
            assert!(message.contains("is not a valid URL"), "{message}");
        }
    }
}
