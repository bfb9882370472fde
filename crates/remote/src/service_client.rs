//! Requests to a service that streams its response while it works.
//!
//! The client authenticates with a token. It sends the token to the named host only, and to other machines
//! through TLS only, and shows it in no message. Requests are never repeated, because a request can start
//! work. Dropping a [`ServiceResponse`] closes its connection, which tells the service that nobody waits for
//! it any more.
//!
//! The client requests the next piece of the body while the caller works on the current one.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response};
use tidemill_base::cancellation::WaitCallback;
use tidemill_base::hex::encode_hex;
use url::{Host, Url};

use crate::NetworkTask;
use crate::error::{Error, Result};
use crate::http_client::root_cause;

/// Timeout for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes that are read of a refusal.
const REFUSAL_BODY_BYTES_MAX: usize = 64 << 10;
/// Name of the header with the client id.
const CLIENT_ID_HEADER: &str = "tidemill-client-id";

/// A token, and the id by which the service recognises the client's own requests. Both are secrets.
#[derive(Clone, Copy)]
pub struct ServiceCredentials<'a> {
    /// The token that authorizes the client.
    pub token: &'a str,
    /// The client id ([`new_client_id`]). If `None`, the header is not sent.
    pub client_id: Option<&'a str>,
}

/// Returns a new client id: 256 random bits as hexadecimal digits.
///
/// # Errors
/// Returns an error if the system has no source of randomness.
pub fn new_client_id() -> std::io::Result<String> {
    let mut bits = [0; 32];
    getrandom::fill(&mut bits)?;
    Ok(encode_hex(bits))
}

/// A client for the service at one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceClient {
    url: Url,
    is_loopback: bool,
}

impl ServiceClient {
    /// Creates a client for the service at `http://host:port` of this machine, or at `https://host:port`.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid address.
    pub fn new(address: &str) -> Result<ServiceClient> {
        let refused = |why: &str| {
            Error::usage_with_hint(
                format!(
                    "`{}` names no master: {why}",
                    tidemill_base::redaction::redact_url(address)
                ),
                "http:// or https:// with a host and its port, as `tidemill cluster up` has told it",
            )
        };
        let url = Url::parse(address).map_err(|error| refused(&error.to_string()))?;
        let is_here = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => return Err(refused("it has no host")),
        };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused("it is neither http:// nor https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("a token takes the place of a name and a password"));
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(refused("something is behind its port"));
        }
        if url.scheme() == "http" && !is_here {
            return Err(Error::usage_with_hint(
                format!(
                    "`{address}` is another machine, and http:// shows the token to whoever is between"
                ),
                "https://, or a tunnel: ssh -L PORT:localhost:PORT HOST, and http://localhost:PORT",
            ));
        }
        Ok(ServiceClient { url, is_loopback: is_here })
    }

    /// Returns the address in the form for messages and comparisons.
    pub fn address(&self) -> String {
        self.url.as_str().trim_end_matches('/').to_owned()
    }

    fn build_http_client(&self) -> Result<Client> {
        let mut builder = Client::builder()
            .user_agent(concat!("tidemill/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .referer(false)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT);
        if self.is_loopback {
            builder = builder.no_proxy();
        }
        if self.url.scheme() == "http" {
            // Plain HTTP needs no root certificates, and loading them takes longer than a query.
            builder = builder.tls_built_in_root_certs(false);
        }
        builder.build().map_err(|error| {
            Error::usage(format!("no client can be made for HTTP: {}", root_cause(&error)))
        })
    }

    /// Sends a request: `POST` with a body, `GET` without one. `patience` limits the wait for the response
    /// and for each piece of its body.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid token; [`Error::Remote`] if the service does not answer; and the
    /// errors of `tick`.
    pub fn send_request(
        &self,
        path: &str,
        credentials: ServiceCredentials<'_>,
        body: Option<Vec<u8>>,
        patience: Duration,
        tick: WaitCallback<'_>,
    ) -> Result<ServiceResponse> {
        let ServiceCredentials { token, client_id } = credentials;
        let token = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut token =
            token.map_err(|_| Error::usage("the master's token has a line end in it"))?;
        token.set_sensitive(true);
        let mut url = self.url.clone();
        url.set_path(path);
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = self
            .build_http_client()?
            .request(method, url)
            .header(AUTHORIZATION, token)
            .header(ACCEPT_ENCODING, "identity");
        if let Some(mut id) = client_id.and_then(|id| HeaderValue::from_str(id).ok()) {
            id.set_sensitive(true);
            request = request.header(CLIENT_ID_HEADER, id);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let address = self.address();
        let shown = address.clone();
        let asked = NetworkTask::start(async move {
            let answer = tokio::time::timeout(patience + CONNECT_TIMEOUT, request.send()).await;
            match answer {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) => Err(unreachable_error(&shown, &error)),
                Err(_) => Err(timeout_error(&shown, patience)),
            }
        })?;
        let response = asked.wait_with_tick(tick)?;
        let status = response.status().as_u16();
        let next = Some(request_next_piece(response, &address, patience)?);
        Ok(ServiceResponse { address, status, idle_timeout: patience, pending_piece: next })
    }
}

/// A response of a service, whose body arrives piece by piece.
pub struct ServiceResponse {
    address: String,
    /// HTTP status of the response.
    pub status: u16,
    idle_timeout: Duration,
    pending_piece: Option<NetworkTask<PieceWithResponse>>,
}

type PieceWithResponse = (Response, Option<Bytes>);

impl ServiceResponse {
    /// Returns the next piece of the body, of any length; `None` at its end.
    ///
    /// # Errors
    /// [`Error::Remote`] if the connection is lost or nothing arrives for too long, and the errors of `tick`.
    pub fn next_piece(&mut self, tick: WaitCallback<'_>) -> Result<Option<Bytes>> {
        let Some(next) = self.pending_piece.take() else { return Ok(None) };
        let (response, piece) = next.wait_with_tick(tick)?;
        if piece.is_some() {
            self.pending_piece =
                Some(request_next_piece(response, &self.address, self.idle_timeout)?);
        }
        Ok(piece)
    }

    /// Returns the whole body if it has at most `bytes_max` bytes.
    ///
    /// # Errors
    /// As for [`next_piece`](Self::next_piece); [`Error::Remote`] for a larger body.
    pub fn read_whole_body(mut self, bytes_max: usize, tick: WaitCallback<'_>) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next_piece(tick)? {
            whole.extend_from_slice(&piece);
            if whole.len() > bytes_max {
                let why = format!("its answer has more than {bytes_max} bytes");
                return Err(service_error(&self.address, Some(self.status), why));
            }
        }
        Ok(whole)
    }

    /// Returns the body of a refusal.
    ///
    /// # Errors
    /// As for [`read_whole_body`](Self::read_whole_body).
    pub fn read_refusal(self, tick: WaitCallback<'_>) -> Result<Vec<u8>> {
        self.read_whole_body(REFUSAL_BODY_BYTES_MAX, tick)
    }
}

fn request_next_piece(
    mut response: Response,
    address: &str,
    patience: Duration,
) -> Result<NetworkTask<PieceWithResponse>> {
    let address = address.to_owned();
    NetworkTask::start(async move {
        match tokio::time::timeout(patience, response.chunk()).await {
            Ok(Ok(piece)) => Ok((response, piece)),
            Ok(Err(error)) => {
                let why = format!("the connection was lost: {}", root_cause(&error));
                Err(service_error(&address, None, why))
            }
            Err(_) => Err(timeout_error(&address, patience)),
        }
    })
}

fn service_error(address: &str, status: Option<u16>, reason: String) -> Error {
    Error::Remote {
        action: "ask",
        url: address.to_owned(),
        offset: None,
        status,
        reason,
        hint: Some("tidemill cluster status tells whether it is there".into()),
    }
}

fn unreachable_error(address: &str, error: &reqwest::Error) -> Error {
    service_error(address, None, format!("it is not reached: {}", root_cause(error)))
}

fn timeout_error(address: &str, patience: Duration) -> Error {
    service_error(address, None, format!("nothing came for {} s", patience.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_leave_the_machine_only_through_tls() {
        for (address, expected) in [
            ("http://127.0.0.1:8080", Some("http://127.0.0.1:8080")),
            ("http://127.7.7.7:80/", Some("http://127.7.7.7")),
            ("http://localhost:1", Some("http://localhost:1")),
            ("http://[::1]:1", Some("http://[::1]:1")),
            ("https://head.example.org:8443", Some("https://head.example.org:8443")),
            ("http://head.example.org:8080", None),
            ("http://localhost.example.org:8080", None),
            ("http://10.0.0.1:8080", None),
            ("http://user:hush@127.0.0.1:8080", None),
            ("http://127.0.0.1:8080/v1", None),
            ("http://127.0.0.1:8080/?x=1", None),
            ("ftp://127.0.0.1", None),
            ("http://", None),
            ("head:8080", None),
            ("", None),
        ] {
            let service = ServiceClient::new(address);
            match (service, expected) {
                (Ok(service), expected) => assert_eq!(Some(service.address().as_str()), expected),
                (Err(error), None) => {
                    assert!(matches!(error, Error::Usage { .. }), "{address}: {error}");
                    assert!(!error.to_string().contains("hush"), "{error}");
                }
                (Err(error), Some(_)) => panic!("{address}: {error}"),
            }
        }
    }
}
