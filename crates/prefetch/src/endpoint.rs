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

use crate::gate::{Gate, Permit};
use crate::measure::{Flight, Measured, Meter};
use crate::met::{self, Met};
use crate::patience::Patience;
use crate::ticket::Ticket;

/// What all requests to one server, or to one bucket, share. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    gate: Arc<Gate>,
    patience: Arc<Mutex<Patience>>,
    meter: Arc<Meter>,
    met: Met,
}

impl Default for Endpoint {
    fn default() -> Self {
        let (patience, meter, met) = (Arc::default(), Arc::default(), Met::default());
        Endpoint { gate: Gate::new(), patience, meter, met }
    }
}

impl Endpoint {
    /// One of which nothing is known yet: 16 requests go at once, and more as they are answered.
    pub fn new() -> Endpoint {
        Endpoint::default()
    }

    /// How many requests may be on their way by now.
    pub fn requests_max(&self) -> usize {
        self.gate.limit()
    }

    /// Has so many go at once to begin with, from 1 to 256 instead of 16, where that has not changed yet: what
    /// this process has seen is better than what was once.
    pub fn start_with(&self, requests: usize) {
        self.gate.start_with(requests);
    }

    /// What its answers say of the line to it so far: of those to reads whose bytes are taken as fast as they come.
    pub fn measured(&self) -> Measured {
        self.meter.measured()
    }

    /// Says that somebody who asks has a deadline: from now on reads are sent a second time when nothing comes of them
    /// for a quarter of a second, before it is known how fast answers are. What was met before is forgotten.
    pub fn hurry(&self) {
        self.patience.lock().hurry();
        self.met.forget();
    }

    /// The last failure of its requests, whether they are repeated or not.
    pub fn met(&self) -> Option<String> {
        self.met.last()
    }

    /// A client whose requests are among those that this counts.
    pub fn client(&self, inner: HttpClient) -> HttpClient {
        HttpClient::new(Gated { endpoint: self.clone(), inner })
    }

    /// Sends a request as soon as there is a slot for it, and once more if it is slow and a read of a version's range,
    /// and again after twice as long each time; an answer is waited for no longer than `timeout`.
    ///
    /// # Errors
    /// The client's, and one of the kind [`HttpErrorKind::Timeout`].
    pub async fn send(
        &self,
        client: &HttpClient,
        request: HttpRequest,
        timeout: Option<Duration>,
    ) -> Result<HttpResponse, HttpError> {
        let ticket = Ticket::current();
        let permit = match request.method().as_str() {
            "DELETE" => self.gate.enter_now(),
            _ => self.gate.enter(ticket.as_ref()).await,
        };
        if let Some(ticket) = &ticket {
            ticket.sent();
        }
        let is_pinned = is_pinned(&request);
        let patience = if is_pinned { self.patience.lock().begin() } else { None };
        let attempt = |request, permit| {
            self.attempt(client, request, timeout, permit, ticket.as_deref(), is_pinned)
        };
        let Some(patience) = patience else { return attempt(request, permit).await };
        let since = Instant::now();
        let mut flying = FuturesUnordered::new();
        flying.push(numbered(0, attempt(request.clone(), permit)));
        let (mut wait, mut copies) = (patience, 0);
        loop {
            match tokio::time::timeout(wait, flying.next()).await {
                Ok(Some((copy, answer))) if is_good(&answer) => {
                    if copy > 0 {
                        // So long the first would have taken at least.
                        self.patience.lock().answered(since.elapsed());
                        if let Some(ticket) = &ticket {
                            ticket.count(|counters| &counters.hedges_won);
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
                    let Some(permit) = self.spare() else { continue };
                    if let Some(ticket) = &ticket {
                        ticket.count(|counters| &counters.hedges);
                    }
                    copies += 1;
                    // Of several connections that nobody hears on each copy may have got one.
                    wait *= 2;
                    flying.push(numbered(copies, attempt(request.clone(), permit)));
                }
            }
        }
    }

    fn note(&self, failure: &str) {
        self.met.note(failure);
        met::note(failure);
    }

    /// A slot for a request that is sent a second time, if that is to be.
    fn spare(&self) -> Option<Permit> {
        let mut patience = self.patience.lock();
        if !patience.spend() {
            return None;
        }
        let permit = self.gate.try_enter();
        if permit.is_none() {
            patience.give_back();
        }
        permit
    }

    async fn attempt(
        &self,
        client: &HttpClient,
        request: HttpRequest,
        timeout: Option<Duration>,
        permit: Permit,
        ticket: Option<&Ticket>,
        is_pinned: bool,
    ) -> Result<HttpResponse, HttpError> {
        let is_read = request.method().as_str() == "GET";
        let mut flight = (is_read && ticket.is_some()).then(|| self.meter.begin());
        let since = Instant::now();
        let sent = client.execute(request);
        let answer = match timeout {
            None => sent.await,
            Some(timeout) => {
                tokio::time::timeout(timeout, sent).await.unwrap_or_else(|_| Err(late()))
            }
        };
        let answer = answer.inspect_err(|error| self.note(&root_cause(error)))?;
        let status = answer.status().as_u16();
        if matches!(status, 429 | 500..=599) {
            self.note(&format!("the server answered with status {status}"));
        }
        match status {
            429 | 503 => {
                self.meter.throttled();
                if let Some(ticket) = ticket {
                    ticket.count(|counters| &counters.throttled);
                }
                permit.refused(pause(&answer));
                return Ok(answer);
            }
            500..=599 => return Ok(answer),
            _ => permit.accepted(),
        }
        if !is_read || !answer.status().is_success() {
            return Ok(answer);
        }
        if is_pinned {
            self.patience.lock().answered(since.elapsed());
        }
        if let Some(flight) = &mut flight {
            flight.answered();
        }
        let permit = ticket.map(|_| permit);
        Ok(answer.map(|inner| HttpResponseBody::new(Coming { inner, permit, flight, came: 0 })))
    }
}

/// Does work of which every answer's body is taken as fast as it comes, so that each is among those that
/// are on their way until its last byte is here.
pub async fn at_full_speed<T>(work: impl Future<Output = T>) -> T {
    Ticket::new(0, Vec::new()).spend(work).await
}

/// Whether it reads a range of a version that it names: whatever answers it answers with the same bytes.
fn is_pinned(request: &HttpRequest) -> bool {
    let has = |name| request.headers().contains_key(name);
    let names_version = has("if-match") || has("if-unmodified-since");
    request.method().as_str() == "GET" && has("range") && names_version
}

/// Whether it is what was asked for, or says for good why not.
fn is_good(answer: &Result<HttpResponse, HttpError>) -> bool {
    let status = answer.as_ref().map(|answer| answer.status().as_u16());
    status.is_ok_and(|status| !matches!(status, 408 | 429 | 500..))
}

/// What is behind an error, on one line.
fn root_cause(error: &HttpError) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text: String = last.to_string().chars().filter(|c| !c.is_control()).take(300).collect();
    // An address may have something secret in it.
    if text.contains("://") { "the request failed".to_owned() } else { text }
}

async fn numbered<T>(copy: usize, work: impl Future<Output = T>) -> (usize, T) {
    (copy, work.await)
}

fn late() -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, io::Error::from(io::ErrorKind::TimedOut))
}

/// When a server wants to be asked again: `Retry-After`, in seconds or as a date.
fn pause(answer: &HttpResponse) -> Option<Duration> {
    let text = answer.headers().get("retry-after")?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = SystemTime::from(DateTime::parse_from_rfc2822(text).ok()?);
    until.duration_since(SystemTime::now()).ok()
}

#[derive(Debug)]
struct Gated {
    endpoint: Endpoint,
    inner: HttpClient,
}

#[async_trait]
impl HttpService for Gated {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.endpoint.send(&self.inner, request, None).await
    }
}

/// A body, whose request is on its way until its end.
#[derive(Debug)]
struct Coming {
    inner: HttpResponseBody,
    permit: Option<Permit>,
    flight: Option<Flight>,
    /// Bytes that came.
    came: u64,
}

impl Body for Coming {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.came += frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
                if let (Some(flight), Some(bytes)) = (&mut self.flight, frame.data_ref()) {
                    flight.add(bytes.len());
                }
                if self.inner.is_end_stream() {
                    // Counted before anybody has its last byte.
                    self.flight = None;
                }
            }
            // Not when it is dropped: who repeats it may keep it meanwhile.
            Poll::Ready(ended @ (None | Some(Err(_)))) => {
                if ended.is_some() {
                    // The store asks again by itself, and says so only when it gives up.
                    met::note(&format!("the answer was cut off after {} bytes", self.came));
                }
                (self.permit, self.flight) = (None, None);
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
    fn a_server_says_in_seconds_or_by_a_date_when_it_wants_to_be_asked_again() {
        let of = |value: &'static str| {
            let mut answer = HttpResponse::new(Bytes::new().into());
            answer.headers_mut().insert("retry-after", HeaderValue::from_static(value));
            pause(&answer)
        };
        assert_eq!(of(" 7 "), Some(Duration::from_secs(7)));
        assert!(of("Wed, 20 Nov 2126 10:00:00 GMT").is_some());
        for (value, expected) in [("0", Some(Duration::ZERO)), ("-1", None), ("soon", None)] {
            assert_eq!(of(value), expected, "{value}");
        }
        assert_eq!(of("Fri, 20 Nov 2020 10:00:00 GMT"), None);
    }
}
