//! Hosts that have not answered for a while, for display to users who wait for a run.
//!
//! This module tracks every request of the process from its start to the head of its response. Callers repeat
//! requests to a failed host for up to two minutes, and nothing below the command line prints. A host counts
//! as silent:
//!
//! - one second after the first unanswered request started, if a request has failed;
//! - three seconds after it started, if none has failed: a store that is only slow is not worth a message.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use parking_lot::Mutex;

use crate::http_client::root_cause;

/// Time from the first unanswered request until a failed host counts as silent.
const SILENCE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Time from the first unanswered request until a host without a failure counts as silent.
const SILENCE_BEFORE_ANSWER: Duration = Duration::from_secs(3);
/// Time after a failure within which a retry is expected. The longest wait between attempts is 15 s.
const RETRY_EXPECTED_WITHIN: Duration = Duration::from_secs(16);
/// Maximum number of remembered hosts. Beyond it, hosts without a pending request or recent failure are
/// forgotten.
const HOSTS_MAX: usize = 1_000;

static HOSTS: Mutex<TrackedHosts> = Mutex::new(TrackedHosts(BTreeMap::new()));
static FIRST_REQUEST_HOOK: OnceLock<fn()> = OnceLock::new();

/// A host that has not answered for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentHost {
    /// Host name, with the port unless that is the default of the scheme.
    pub host: String,
    /// Error of the last request; `None` if no request has failed yet.
    pub cause: Option<String>,
    /// Time since the first request without a response.
    pub since: Duration,
}

impl fmt::Display for SilentHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SilentHost { host, cause, .. } = self;
        match cause {
            Some(cause) => write!(f, "waiting for `{host}`: {cause}; it is asked again"),
            None => write!(f, "waiting for `{host}`, which has not answered yet"),
        }
    }
}

/// Returns the host that has been silent for the longest time, if there is one.
pub fn longest_silent_host() -> Option<SilentHost> {
    HOSTS.lock().longest_silent_host(Instant::now())
}

/// Sets a function to call when the process sends its first request. It runs on the requesting thread, so it
/// must not wait. Only the first function that is set counts.
pub fn set_first_request_hook(call: fn()) {
    // An earlier function stays.
    let _ = FIRST_REQUEST_HOOK.set(call);
}

/// Returns a client whose requests are tracked.
pub(crate) fn track_requests(client: HttpClient) -> HttpClient {
    HttpClient::new(TrackingClient(client))
}

#[derive(Debug)]
struct TrackingClient(HttpClient);

#[async_trait]
impl HttpService for TrackingClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let uri = request.uri();
        let host = uri.host().unwrap_or_default();
        let host = uri.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let asked = PendingRequest::new(host);
        let answered = self.0.execute(request).await;
        match &answered {
            Ok(answer) => match answer.status().as_u16() {
                status @ (408 | 429 | 500..=599) => {
                    asked.record_failure(format!("it answered {status}"));
                }
                _ => asked.record_answer(),
            },
            Err(error) => asked.record_failure(match error.kind() {
                HttpErrorKind::Timeout => "no answer in time".to_owned(),
                _ => root_cause(error),
            }),
        }
        answered
    }
}

/// A pending request. Dropping it records that the caller abandoned the request.
struct PendingRequest(Option<String>);

impl PendingRequest {
    fn new(host: String) -> PendingRequest {
        static FIRST: std::sync::Once = std::sync::Once::new();
        FIRST.call_once(|| {
            if let Some(call) = FIRST_REQUEST_HOOK.get() {
                call();
            }
        });
        HOSTS.lock().record_request(&host, Instant::now());
        PendingRequest(Some(host))
    }

    fn record_answer(mut self) {
        if let Some(host) = self.0.take() {
            HOSTS.lock().record_answer(&host, Instant::now());
        }
    }

    fn record_failure(mut self, cause: String) {
        if let Some(host) = self.0.take() {
            HOSTS.lock().record_failure(&host, cause, Instant::now());
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if let Some(host) = self.0.take() {
            HOSTS.lock().record_abandoned_request(&host);
        }
    }
}

struct TrackedHosts(BTreeMap<String, TrackedHost>);

struct TrackedHost {
    /// Start of the first request without a response.
    since: Instant,
    /// Number of pending requests.
    in_flight: usize,
    /// Time and cause of the last failure; `None` once a request was answered.
    last_failure: Option<(Instant, String)>,
}

impl TrackedHost {
    /// Returns true if a request to the host is pending, or a retry is expected soon.
    fn is_awaited(&self, now: Instant) -> bool {
        let failed_lately = |(at, _): &(Instant, String)| now - *at < RETRY_EXPECTED_WITHIN;
        self.in_flight > 0 || self.last_failure.as_ref().is_some_and(failed_lately)
    }
}

impl TrackedHosts {
    fn record_request(&mut self, host: &str, now: Instant) {
        if self.0.len() >= HOSTS_MAX {
            self.0.retain(|_, host| host.is_awaited(now));
        }
        let fresh = || TrackedHost { since: now, in_flight: 0, last_failure: None };
        let known = self.0.entry(host.to_owned()).or_insert_with(fresh);
        if !known.is_awaited(now) {
            *known = fresh();
        }
        known.in_flight += 1;
    }

    fn record_answer(&mut self, host: &str, now: Instant) {
        let Some(known) = self.0.get_mut(host) else { return };
        known.in_flight = known.in_flight.saturating_sub(1);
        // Other pending requests count from now on.
        (known.since, known.last_failure) = (now, None);
        self.forget_idle(host);
    }

    fn record_failure(&mut self, host: &str, cause: String, now: Instant) {
        let Some(known) = self.0.get_mut(host) else { return };
        known.in_flight = known.in_flight.saturating_sub(1);
        known.last_failure = Some((now, cause));
    }

    fn record_abandoned_request(&mut self, host: &str) {
        let Some(known) = self.0.get_mut(host) else { return };
        known.in_flight = known.in_flight.saturating_sub(1);
        self.forget_idle(host);
    }

    fn forget_idle(&mut self, host: &str) {
        if self
            .0
            .get(host)
            .is_some_and(|known| known.in_flight == 0 && known.last_failure.is_none())
        {
            self.0.remove(host);
        }
    }

    fn longest_silent_host(&self, now: Instant) -> Option<SilentHost> {
        let waited_for = self.0.iter().filter(|(_, host)| host.is_awaited(now));
        let silent = waited_for.filter_map(|(name, host)| {
            let since = now.saturating_duration_since(host.since);
            let cause = host.last_failure.as_ref().map(|(_, cause)| cause.clone());
            let limit = if cause.is_some() { SILENCE_AFTER_FAILURE } else { SILENCE_BEFORE_ANSWER };
            (since >= limit).then(|| SilentHost { host: name.clone(), cause, since })
        });
        silent.max_by_key(|silent| silent.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event of host `h`, and its time in milliseconds from the start of the test.
    enum HostEvent {
        Asks(u64),
        Answers(u64),
        Fails(u64),
        GivesUp,
    }

    #[test]
    fn a_host_is_silent_once_it_has_not_answered_for_a_while() {
        use HostEvent::{Answers, Asks, Fails, GivesUp};
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        /// Milliseconds for which the host has been silent, and whether it has failed.
        type Silence = Option<(u64, bool)>;
        // Events, a moment, and the silence then.
        let rows: &[(&[HostEvent], u64, Silence)] = &[
            (&[], 9_000, None),
            (&[Asks(0)], 2_999, None),
            (&[Asks(0)], 3_000, Some((3_000, false))),
            (&[Asks(0), Answers(2_900)], 9_000, None),
            (&[Asks(0), Fails(10)], 999, None),
            (&[Asks(0), Fails(10)], 1_000, Some((1_000, true))),
            // Between attempts, and during the next attempts.
            (&[Asks(0), Fails(10), Asks(700), Fails(710)], 1_500, Some((1_500, true))),
            (&[Asks(0), Fails(10), Asks(700)], 9_000, Some((9_000, true))),
            (&[Asks(0), Fails(10), Asks(700), Answers(710)], 9_000, None),
            // No further requests.
            (&[Asks(0), Fails(10)], 16_011, None),
            (&[Asks(0), Fails(10), Asks(20_000)], 20_500, None),
            (&[Asks(0), GivesUp], 5_000, None),
            // One of two requests is answered: the other one counts from then on.
            (&[Asks(0), Asks(0), Answers(5_000)], 7_999, None),
            (&[Asks(0), Asks(0), Answers(5_000)], 8_000, Some((3_000, false))),
        ];
        for (row, (events, moment, expected)) in rows.iter().enumerate() {
            let mut hosts = TrackedHosts(BTreeMap::new());
            for event in *events {
                match event {
                    Asks(ms) => hosts.record_request("h", at(*ms)),
                    Answers(ms) => hosts.record_answer("h", at(*ms)),
                    Fails(ms) => hosts.record_failure("h", "refused".into(), at(*ms)),
                    GivesUp => hosts.record_abandoned_request("h"),
                }
            }
            let found = hosts.longest_silent_host(at(*moment));
            let found =
                found.map(|it| (u64::try_from(it.since.as_millis()).unwrap(), it.cause.is_some()));
            assert_eq!(found, *expected, "row {row}");
        }
    }

    #[test]
    fn idle_hosts_are_forgotten() {
        let began = Instant::now();
        let mut hosts = TrackedHosts(BTreeMap::new());
        for number in 0..5 * HOSTS_MAX {
            let now = began + Duration::from_secs(number as u64);
            hosts.record_request(&format!("h{number}"), now);
            hosts.record_failure(&format!("h{number}"), "refused".into(), now);
        }
        assert!(hosts.0.len() <= HOSTS_MAX);
        let silent = hosts.longest_silent_host(began + Duration::from_secs(5 * HOSTS_MAX as u64));
        assert!(silent.unwrap().since <= RETRY_EXPECTED_WITHIN);
    }

    #[test]
    fn silent_host_message_names_host_and_cause() {
        let silent = |cause: Option<&str>| SilentHost {
            host: "example.org:8443".into(),
            cause: cause.map(str::to_owned),
            since: Duration::from_secs(2),
        };
        for (cause, expected) in [
            (None, "waiting for `example.org:8443`, which has not answered yet"),
            (
                Some("Connection refused"),
                "waiting for `example.org:8443`: Connection refused; it is asked again",
            ),
        ] {
            assert_eq!(silent(cause).to_string(), expected);
        }
    }
}
