//! A server as requests see it: how many at once it takes, and how long it takes.
//!
//! ```text
//!   StoreObject, Web ─► object_store's retries ─► Endpoint ─► the HTTP client
//!                                                    │ a slot for each attempt,
//!                                                    └ until its body has come
//! ```
//!
//! What a server refuses is seen below whoever repeats it, and so are requests of every kind: those that
//! somebody waits for, those ahead, listings, parts of uploads. Each attempt takes a slot of the endpoint's
//! ([`gate`](crate::gate)) and keeps it until it has been answered; a read of the pool, which takes bytes as fast
//! as they come, until the last byte. Whoever reads a body at a pace of its own gives the slot back
//! with the first byte: two of them would wait for each other for ever. What is deleted, as an upload that is
//! given up, waits for nobody.
//!
//! A read of a range that is bound to a version is sent a second time when it is slow
//! ([`patience`](crate::patience)) and a slot is free, a third time after twice as long, and so on. The first
//! good answer is handed on, and the other requests are given up. All carry the same conditions, and whoever
//! asked looks at the version of the one answer there is.

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

/// What all requests to one server, or to one bucket, share. Cloning shares it.
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
    /// One of which nothing is known yet: 16 requests go at once, and more as they are answered.
    pub fn new() -> Endpoint {
        Endpoint::default()
    }

    /// How many requests may be on their way by now.
    pub fn concurrent_requests_max(&self) -> usize {
        self.gate.concurrency_limit()
    }

    /// Has so many go at once to begin with, from 1 to 256 instead of 16, where that has not changed yet: what
    /// this process has seen is better than what was once.
    pub fn set_initial_concurrency(&self, requests: usize) {
        self.gate.set_initial_limit(requests);
    }

    /// What its answers say of the line to it so far: of those to reads whose bytes are taken as fast as they come.
    pub fn measurements(&self) -> EndpointMeasurements {
        self.meter.measurements()
    }

    /// Says that somebody who asks has a deadline: from now on reads are sent a second time when nothing comes of them
    /// for a quarter of a second, before it is known how fast answers are. What was met before is forgotten.
    pub fn hedge_early(&self) {
        self.hedge_policy.lock().hedge_early();
        self.last_failure.clear();
    }

    /// The last failure of its requests, whether they are repeated or not.
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.message()
    }

    /// A client whose requests are among those that this counts.
    pub fn wrap_client(&self, inner: HttpClient) -> HttpClient {
        HttpClient::new(GatedClient { endpoint: self.clone(), inner })
    }

    /// Sends a request as soon as there is a slot for it, and once more if it is slow and a read of a version's range,
    /// and again after twice as long each time; an answer is waited for no longer than `timeout`.
    ///
    /// # Errors
    /// The client's, and one of the kind [`HttpErrorKind::Timeout`].
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
                        // So long the first would have taken at least.
                        self.hedge_policy.lock().record_latency(since.elapsed());
                        if let Some(ticket) = &ticket {
                            ticket.increment(|counters| &counters.hedges_won);
                        }
                    }
                    return answer;
                }
                // Another one may do better.
                Ok(Some(_)) if !flying.is_empty() => {}
                Ok(Some((_, answer))) => return answer,
                Ok(None) => unreachable!("one is on its way"),
                Err(_) => {
                    // Where there is no slot now there may be one later.
                    let Some(permit) = self.try_hedge_permit() else { continue };
                    if let Some(ticket) = &ticket {
                        ticket.increment(|counters| &counters.hedges);
                    }
                    copies += 1;
                    // Of several connections that nobody hears on each copy may have got one.
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

    /// A slot for a request that is sent a second time, if that is to be.
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

/// Does work of which every answer's body is taken as fast as it comes, so that each is among those that
/// are on their way until its last byte is here.
pub async fn read_bodies_at_full_speed<T>(work: impl Future<Output = T>) -> T {
    RequestContext::new(0, Vec::new()).run_within(work).await
}

/// Whether it reads a range of a version that it names: whatever answers it answers with the same bytes.
fn is_version_pinned_read(request: &HttpRequest) -> bool {
    let has = |name| request.headers().contains_key(name);
    let names_version = has("if-match") || has("if-unmodified-since");
    request.method().as_str() == "GET" && has("range") && names_version
}

/// Whether it is what was asked for, or says for good why not.
fn is_final_response(answer: &Result<HttpResponse, HttpError>) -> bool {
    let status = answer.as_ref().map(|answer| answer.status().as_u16());
    status.is_ok_and(|status| !matches!(status, 408 | 429 | 500..))
}

/// What is behind an error, on one line.
fn root_cause_message(error: &HttpError) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text: String = last.to_string().chars().filter(|c| !c.is_control()).take(300).collect();
    // An address may have something secret in it.
    if text.contains("://") { "the request failed".to_owned() } else { text }
}

async fn with_copy_number<T>(copy: usize, work: impl Future<Output = T>) -> (usize, T) {
    (copy, work.await)
}

fn timeout_error() -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, io::Error::from(io::ErrorKind::TimedOut))
}

/// When a server wants to be asked again: `Retry-After`, in seconds or as a date.
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

/// A body, whose request is on its way until its end.
#[derive(Debug)]
struct GatedBody {
    inner: HttpResponseBody,
    permit: Option<RequestPermit>,
    metered_request: Option<MeteredRequest>,
    /// Bytes that came.
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
                    // Counted before anybody has its last byte.
                    self.metered_request = None;
                }
            }
            // Not when it is dropped: who repeats it may keep it meanwhile.
            Poll::Ready(ended @ (None | Some(Err(_)))) => {
                if ended.is_some() {
                    // The store asks again by itself, and says so only when it gives up.
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
