//! A server as requests see it: its concurrency limit, its latency and its failures.
//!
//! ```text
//!   StoreObject, Web ─► object_store's retries ─► Endpoint ─► the HTTP client
//!                                                    │ a slot for each attempt,
//!                                                    └ until its body has arrived
//! ```
//!
//! The endpoint is below the retries, so it sees every refusal, and it sees requests of every kind: awaited
//! reads, prefetches, listings, parts of uploads. Each attempt takes a slot of the endpoint's
//! [`request_gate`](crate::request_gate) and keeps it until it has been answered. A read of the pool, which
//! takes bytes as fast as they arrive, keeps it until the last byte. A caller that reads a body at its own
//! pace frees the slot with the first byte: two such callers would otherwise wait for each other for ever. A
//! deletion, such as that of an abandoned upload, waits for no slot.
//!
//! A read of a range of a known version is hedged when it is slow ([`hedge_policy`](crate::hedge_policy)) and
//! a slot is free, again after twice as long, and so on. The first good answer counts, and the other requests
//! are cancelled. All carry the same conditions, and the caller checks the version of the one answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};

use parking_lot::Mutex;

use crate::endpoint_meter::{EndpointMeasurements, EndpointMeter, MeteredRequest};
use crate::hedge_policy::HedgePolicy;
use crate::last_failure::{self, LastFailure};
use crate::request_context::RequestContext;
use crate::request_gate::{RequestGate, RequestPermit};

/// State that all requests to one server, or to one bucket, share. Clones share it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    gate: Arc<RequestGate>,
    hedge_policy: Arc<Mutex<HedgePolicy>>,
    meter: Arc<EndpointMeter>,
    last_failure: LastFailure,
}

impl Default for Endpoint {
    fn default() -> Self {
        let (patience, meter, met) = (Arc::default(), Arc::default(), LastFailure::default());
        Endpoint { gate: RequestGate::new(), hedge_policy: patience, meter, last_failure: met }
    }
}

impl Endpoint {
    /// Creates an endpoint without measurements: 16 concurrent requests, and more as they are answered.
    pub fn new() -> Endpoint {
        Endpoint::default()
    }

    /// Returns the current concurrency limit.
    pub fn concurrent_requests_max(&self) -> usize {
        self.gate.concurrency_limit()
    }

    /// Sets the initial concurrency, from 1 to 256 instead of 16, unless it has changed already: measurements
    /// of this process are better than old ones.
    pub fn set_initial_concurrency(&self, requests: usize) {
        self.gate.set_initial_limit(requests);
    }

    /// Returns the measurements so far, from answers to reads whose bytes are taken as fast as they arrive.
    pub fn measurements(&self) -> EndpointMeasurements {
        self.meter.measurements()
    }

    /// Switches to early hedging for a caller with a deadline: from now on a read is hedged after a quarter
    /// of a second without an answer, before typical latencies are known. Forgets the last failure.
    pub fn hedge_early(&self) {
        self.hedge_policy.lock().hedge_early();
        self.last_failure.clear();
    }

    /// Returns the last failure of its requests, whether they are retried or not.
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.message()
    }

    /// Wraps an HTTP client so that its requests go through this endpoint.
    pub fn wrap_client(&self, inner: HttpClient) -> HttpClient {
        HttpClient::new(GatedClient { endpoint: self.clone(), inner })
    }

    /// Sends a request as soon as there is a slot for it. Hedges a slow read of a version's range, and again
    /// after twice as long each time. An answer must arrive within `timeout`.
    ///
    /// # Errors
    /// Errors of the client, and one of kind [`HttpErrorKind::Timeout`].
    pub async fn send_request(
        &self,
        client: &HttpClient,
        request: HttpRequest,
        timeout: Option<Duration>,
    ) -> Result<HttpResponse, HttpError> {
        let ticket = RequestContext::current();
        let permit = match request.method().as_str() {
            "DELETE" => self.gate.acquire_unconditionally(),
            _ => self.gate.acquire(ticket.as_ref()).await,
        };
        if let Some(ticket) = &ticket {
            ticket.record_sent();
        }
        let is_pinned = is_version_pinned_read(&request);
        let patience = if is_pinned { self.hedge_policy.lock().begin_request() } else { None };
        let attempt = |request, permit| {
            self.send_attempt(client, request, timeout, permit, ticket.as_deref(), is_pinned)
        };
        let Some(patience) = patience else { return attempt(request, permit).await };
        let since = Instant::now();
        let mut flying = FuturesUnordered::new();
        flying.push(with_copy_number(0, attempt(request.clone(), permit)));
        let (mut wait, mut copies) = (patience, 0);
        loop {
            match tokio::time::timeout(wait, flying.next()).await {
                Ok(Some((copy, answer))) if is_final_response(&answer) => {
                    if copy > 0 {
                        // The first one would have taken at least as long.
                        self.hedge_policy.lock().record_latency(since.elapsed());
                        if let Some(ticket) = &ticket {
                            ticket.increment(|counters| &counters.hedges_won);
                        }
                    }
                    return answer;
                }
                // Another copy may do better.
                Ok(Some(_)) if !flying.is_empty() => {}
                Ok(Some((_, answer))) => return answer,
                Ok(None) => unreachable!("one is on its way"),
                Err(_) => {
                    // Without a free slot now there may be one later.
                    let Some(permit) = self.try_hedge_permit() else { continue };
                    if let Some(ticket) = &ticket {
                        ticket.increment(|counters| &counters.hedges);
                    }
                    copies += 1;
                    // With several dead connections, each copy may have got one.
                    wait *= 2;
                    flying.push(with_copy_number(copies, attempt(request.clone(), permit)));
                }
            }
        }
    }

    fn record_failure(&self, failure: &str) {
        self.last_failure.record(failure);
        last_failure::record_failure(failure);
    }

    /// Returns a slot for a hedge, if budget and concurrency allow one.
    fn try_hedge_permit(&self) -> Option<RequestPermit> {
        let mut patience = self.hedge_policy.lock();
        if !patience.take_hedge() {
            return None;
        }
        let permit = self.gate.try_acquire();
        if permit.is_none() {
            patience.return_hedge();
        }
        permit
    }

    async fn send_attempt(
        &self,
        client: &HttpClient,
        request: HttpRequest,
        timeout: Option<Duration>,
        permit: RequestPermit,
        ticket: Option<&RequestContext>,
        is_pinned: bool,
    ) -> Result<HttpResponse, HttpError> {
        let is_read = request.method().as_str() == "GET";
        let mut flight = (is_read && ticket.is_some()).then(|| self.meter.begin_request());
        let since = Instant::now();
        let sent = client.execute(request);
        let answer = match timeout {
            None => sent.await,
            Some(timeout) => {
                tokio::time::timeout(timeout, sent).await.unwrap_or_else(|_| Err(timeout_error()))
            }
        };
        let answer = answer.inspect_err(|error| self.record_failure(&root_cause_message(error)))?;
        let status = answer.status().as_u16();
        if matches!(status, 429 | 500..=599) {
            self.record_failure(&format!("the server answered with status {status}"));
        }
        match status {
            429 | 503 => {
                self.meter.record_throttled();
                if let Some(ticket) = ticket {
                    ticket.increment(|counters| &counters.throttled_responses);
                }
                permit.record_refused(parse_retry_after(&answer));
                return Ok(answer);
            }
            500..=599 => return Ok(answer),
            _ => permit.record_accepted(),
        }
        if !is_read || !answer.status().is_success() {
            return Ok(answer);
        }
        if is_pinned {
            self.hedge_policy.lock().record_latency(since.elapsed());
        }
        if let Some(flight) = &mut flight {
            flight.record_first_byte();
        }
        let permit = ticket.map(|_| permit);
        Ok(answer.map(|inner| {
            HttpResponseBody::new(GatedBody {
                inner,
                permit,
                metered_request: flight,
                received_bytes: 0,
            })
        }))
    }
}

/// Runs work that reads every answer's body as fast as it arrives, so that each request keeps its slot until
/// its last byte.
pub async fn keep_slots_until_last_byte<T>(work: impl Future<Output = T>) -> T {
    RequestContext::new(0, Vec::new()).run_within(work).await
}

/// Returns whether a request reads a range of a named version: every answer then has the same bytes.
fn is_version_pinned_read(request: &HttpRequest) -> bool {
    let has = |name| request.headers().contains_key(name);
    let names_version = has("if-match") || has("if-unmodified-since");
    request.method().as_str() == "GET" && has("range") && names_version
}

/// Returns whether an answer is a success or a permanent refusal.
fn is_final_response(answer: &Result<HttpResponse, HttpError>) -> bool {
    let status = answer.as_ref().map(|answer| answer.status().as_u16());
    status.is_ok_and(|status| !matches!(status, 408 | 429 | 500..))
}

/// Returns the innermost cause of an error on one line.
fn root_cause_message(error: &HttpError) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text: String = last.to_string().chars().filter(|c| !c.is_control()).take(300).collect();
    // A URL may contain a secret.
    if text.contains("://") { "the request failed".to_owned() } else { text }
}

async fn with_copy_number<T>(copy: usize, work: impl Future<Output = T>) -> (usize, T) {
    (copy, work.await)
}

fn timeout_error() -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, io::Error::from(io::ErrorKind::TimedOut))
}

/// Returns the delay that a server asks for: `Retry-After`, in seconds or as a date.
fn parse_retry_after(answer: &HttpResponse) -> Option<Duration> {
    let text = answer.headers().get("retry-after")?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = SystemTime::from(DateTime::parse_from_rfc2822(text).ok()?);
    until.duration_since(SystemTime::now()).ok()
}

#[derive(Debug)]
struct GatedClient {
    endpoint: Endpoint,
    inner: HttpClient,
}

#[async_trait]
impl HttpService for GatedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.endpoint.send_request(&self.inner, request, None).await
    }
}

/// A response body whose request keeps its slot until the end of the body.
#[derive(Debug)]
struct GatedBody {
    inner: HttpResponseBody,
    permit: Option<RequestPermit>,
    metered_request: Option<MeteredRequest>,
    /// Number of bytes that have arrived.
    received_bytes: u64,
}

impl Body for GatedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.received_bytes += frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
                if let (Some(flight), Some(bytes)) = (&mut self.metered_request, frame.data_ref()) {
                    flight.add_bytes(bytes.len());
                }
                if self.inner.is_end_stream() {
                    // Recorded before the caller gets the last byte.
                    self.metered_request = None;
                }
            }
            // Not on drop: the code that retries may keep the body meanwhile.
            Poll::Ready(ended @ (None | Some(Err(_)))) => {
                if ended.is_some() {
                    // The store retries by itself and reports a failure only when it gives up.
                    last_failure::record_failure(&format!(
                        "the answer was cut off after {} bytes",
                        self.received_bytes
                    ));
                }
                (self.permit, self.metered_request) = (None, None);
            }
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::HeaderValue;

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        let of = |value: &'static str| {
            let mut answer = HttpResponse::new(Bytes::new().into());
            answer.headers_mut().insert("retry-after", HeaderValue::from_static(value));
            parse_retry_after(&answer)
        };
        assert_eq!(of(" 7 "), Some(Duration::from_secs(7)));
        assert!(of("Wed, 20 Nov 2126 10:00:00 GMT").is_some());
        for (value, expected) in [("0", Some(Duration::ZERO)), ("-1", None), ("soon", None)] {
            assert_eq!(of(value), expected, "{value}");
        }
        assert_eq!(of("Fri, 20 Nov 2020 10:00:00 GMT"), None);
    }
}
