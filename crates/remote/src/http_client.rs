//! The HTTP client of all stores, with `object_store`'s settings and without automatic steps.
//!
//! `object_store`'s own client follows up to ten redirects to any host, and sends each host the `Referer`
//! URL, which may be signed. This client follows none: for web servers the `http` module decides, and a
//! redirect from a bucket means that the request went to the wrong place.
//!
//! The limit of concurrent requests to a bucket or a web server applies to the whole process
//! ([`shared_endpoint`]).

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey as Key, ClientOptions, HeaderValue};
use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::tls::Certificate;
use reqwest::{Client, NoProxy, Proxy};
use tidemill_prefetch::Endpoint;

use super::storage_options::{parse_bool, parse_duration_option};
use super::{address_guard, silent_hosts};

const USER_AGENT: &str = concat!("tidemill/", env!("CARGO_PKG_VERSION"));

/// Maximum number of remembered endpoints. Beyond it, the endpoint with the oldest request is forgotten.
const ENDPOINTS_MAX: usize = 64;

/// The endpoints by address, with the time of the last request for each.
static ENDPOINTS: Mutex<Option<HashMap<String, (Endpoint, Instant)>>> = Mutex::new(None);

/// Returns the endpoint of an address, which limits the concurrent requests to it. All callers share it.
pub(super) fn shared_endpoint(address: &str) -> Endpoint {
    let mut endpoints = ENDPOINTS.lock();
    let all = endpoints.get_or_insert_default();
    if !all.contains_key(address) && all.len() >= ENDPOINTS_MAX {
        let oldest = all.iter().min_by_key(|(_, (_, asked_at))| *asked_at);
        if let Some(oldest) = oldest.map(|(address, _)| address.clone()) {
            all.remove(&oldest);
        }
    }
    let known = all.entry(address.to_owned());
    let known = known.or_insert_with(|| (Endpoint::new(), Instant::now()));
    known.1 = Instant::now();
    known.0.clone()
}

/// Creates HTTP clients for `object_store` whose requests count against an endpoint.
#[derive(Debug, Clone)]
pub(super) struct EndpointConnector(pub(super) Endpoint);

impl HttpConnector for EndpointConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let made = build_client(options).map_err(|error| object_store::Error::Generic {
            store: "HTTP",
            source: Box::new(error),
        })?;
        let made = silent_hosts::track_requests(HttpClient::new(made));
        let made =
            if address_guard::is_guarded() { HttpClient::new(GuardedClient(made)) } else { made };
        Ok(self.0.wrap_client(made))
    }
}

/// A client that refuses requests to addresses private to the machine, except requests for the process's own
/// credentials.
#[derive(Debug)]
struct GuardedClient(HttpClient);

/// The error of a refused request.
#[derive(Debug, thiserror::Error)]
#[error("{}", address_guard::REFUSED_HOST_MESSAGE)]
struct RefusedAddressError;

#[async_trait]
impl HttpService for GuardedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let url = request.uri().to_string();
        if address_guard::has_private_address(&url) && !address_guard::is_credentials_url(&url) {
            return Err(HttpError::new(HttpErrorKind::Unknown, RefusedAddressError));
        }
        self.0.execute(request).await
    }
}

/// A connector that remembers the client it created last, which is the one that the store uses.
#[derive(Debug, Clone)]
pub(super) struct CapturingConnector {
    connector: EndpointConnector,
    last_client: Arc<Mutex<Option<HttpClient>>>,
}

impl CapturingConnector {
    pub(super) fn new(connector: EndpointConnector) -> CapturingConnector {
        CapturingConnector { connector, last_client: Arc::default() }
    }

    /// Returns the client of the store that was built with this connector.
    pub(super) fn client(&self) -> Option<HttpClient> {
        self.last_client.lock().clone()
    }
}

impl HttpConnector for CapturingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self.connector.connect(options)?;
        *self.last_client.lock() = Some(client.clone());
        Ok(client)
    }
}

/// Builds an HTTP client from `object_store`'s client options.
///
/// # Errors
/// [`Error::Usage`] for an invalid option. The message does not contain its value.
pub(super) fn build_client(options: &ClientOptions) -> Result<Client> {
    let text = |key: Key| options.get_config_value(&key);
    let is_set = |key: Key| text(key).is_some_and(|value| parse_bool(&value) == Some(true));
    let time = |key: Key| -> Result<Option<Duration>> {
        text(key).map(|value| parse_duration_option(key.as_ref(), &value)).transpose()
    };
    let refused = |key: Key| {
        Error::usage(format!("storage option `{}` has a value that cannot be used", key.as_ref()))
    };
    fn parse_number<T: FromStr>(key: Key, value: Option<String>) -> Result<Option<T>> {
        let parsed = value.map(|value| value.trim().parse()).transpose();
        parsed.map_err(|_| Error::usage(format!("storage option `{}` is a number", key.as_ref())))
    }
    let mut builder = Client::builder()
        .user_agent(text(Key::UserAgent).unwrap_or_else(|| USER_AGENT.into()))
        .redirect(Policy::none())
        .referer(false)
        .https_only(!is_set(Key::AllowHttp))
        .danger_accept_invalid_certs(is_set(Key::AllowInvalidCertificates))
        .http2_keep_alive_while_idle(is_set(Key::Http2KeepAliveWhileIdle));
    if let Some(url) = text(Key::ProxyUrl) {
        let mut proxy = Proxy::all(url).map_err(|_| refused(Key::ProxyUrl))?;
        if let Some(pem) = text(Key::ProxyCaCertificate) {
            let certificate = Certificate::from_pem(pem.as_bytes())
                .map_err(|_| refused(Key::ProxyCaCertificate))?;
            builder = builder.add_root_certificate(certificate);
        }
        if let Some(hosts) = text(Key::ProxyExcludes) {
            proxy = proxy.no_proxy(NoProxy::from_string(&hosts));
        }
        builder = builder.proxy(proxy);
    }
    if let Some(timeout) = time(Key::Timeout)? {
        builder = builder.timeout(timeout);
    }
    if let Some(timeout) = time(Key::ConnectTimeout)? {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(timeout) = time(Key::PoolIdleTimeout)? {
        builder = builder.pool_idle_timeout(timeout);
    }
    if let Some(count) = parse_number(Key::PoolMaxIdlePerHost, text(Key::PoolMaxIdlePerHost))? {
        builder = builder.pool_max_idle_per_host(count);
    }
    if let Some(interval) = time(Key::Http2KeepAliveInterval)? {
        builder = builder.http2_keep_alive_interval(interval);
    }
    if let Some(timeout) = time(Key::Http2KeepAliveTimeout)? {
        builder = builder.http2_keep_alive_timeout(timeout);
    }
    if let Some(bytes) = parse_number::<u32>(Key::Http2MaxFrameSize, text(Key::Http2MaxFrameSize))?
    {
        builder = builder.http2_max_frame_size(bytes);
    }
    // Users set `http2_only` explicitly, while `http1_only` is a default, so check the former first.
    if is_set(Key::Http2Only) {
        builder = builder.http2_prior_knowledge();
    } else if is_set(Key::Http1Only) {
        builder = builder.http1_only();
    }
    let (shuffles, guards) = (is_set(Key::RandomizeAddresses), address_guard::is_guarded());
    if shuffles || guards {
        builder = builder.dns_resolver(Arc::new(AddressResolver {
            shuffles_addresses: shuffles,
            hides_private_addresses: guards,
        }));
    }
    builder.build().map_err(|error| {
        Error::usage(format!("the storage options make no client: {}", root_cause(&error)))
    })
}

/// A DNS resolver that can shuffle the addresses of a name, and that hides private addresses in a guarded
/// process.
#[derive(Debug)]
struct AddressResolver {
    shuffles_addresses: bool,
    hides_private_addresses: bool,
}

impl Resolve for AddressResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let AddressResolver { shuffles_addresses: shuffles, hides_private_addresses: guards } =
            *self;
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(move || {
                let mut found: Vec<SocketAddr> = (name.as_str(), 0).to_socket_addrs()?.collect();
                if guards {
                    found.retain(|address| !address_guard::is_private_to_machine(address.ip()));
                    if found.is_empty() {
                        return Err(std::io::Error::other(address_guard::REFUSED_HOST_MESSAGE));
                    }
                }
                for last in (1..found.len()).rev().take_while(|_| shuffles) {
                    let random = getrandom::u32().unwrap_or_default() as usize;
                    found.swap(last, random % (last + 1));
                }
                Ok::<_, std::io::Error>(Box::new(found.into_iter()) as Addrs)
            });
            Ok(found.await??)
        })
    }
}

/// Creates clients that complete a multipart upload only if the object does not exist.
#[derive(Debug)]
pub(super) struct CreateOnlyConnector(pub(super) EndpointConnector);

impl HttpConnector for CreateOnlyConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(CreateOnlyClient(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct CreateOnlyClient(HttpClient);

#[async_trait]
impl HttpService for CreateOnlyClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // The header need not be signed: S3 signs `host` and `x-amz-*` alone.
        let completes = request.method().as_str() == "POST"
            && request.uri().query().is_some_and(|query| query.contains("uploadId="));
        if completes {
            request.headers_mut().insert("if-none-match", HeaderValue::from_static("*"));
        }
        self.0.execute(request).await
    }
}

/// Returns the message of the innermost cause of an error, without addresses.
pub(super) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    // An error without a source has the request's address in front of its cause.
    let text = text.rsplit_once(" - ").map_or(text.as_str(), |(_, cause)| cause);
    let plain: String = text.chars().filter(|c| !c.is_control()).take(300).collect();
    if plain.is_empty() { "the request failed".into() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_settings_are_accepted_and_errors_hide_invalid_values() {
        for (key, good, bad) in [
            (Key::AllowHttp, "true", None),
            (Key::AllowInvalidCertificates, "false", None),
            (Key::ConnectTimeout, "2s", Some("hush")),
            (Key::DefaultContentType, "text/plain", None),
            (Key::Http1Only, "true", None),
            (Key::Http2Only, "true", None),
            (Key::Http2KeepAliveInterval, "1m 30s", Some("hush")),
            (Key::Http2KeepAliveTimeout, "500ms", Some("hush")),
            (Key::Http2KeepAliveWhileIdle, "true", None),
            (Key::Http2MaxFrameSize, "65536", Some("hush")),
            (Key::PoolIdleTimeout, "1h", Some("hush")),
            (Key::PoolMaxIdlePerHost, "4", Some("hush")),
            (Key::ProxyUrl, "http://127.0.0.1:1", Some("hush://\0")),
            (Key::RandomizeAddresses, "false", None),
            (Key::Timeout, "30s", Some("hush")),
            (Key::UserAgent, "me/1", Some("hush\n")),
        ] {
            let of = |value: &str| build_client(&ClientOptions::new().with_config(key, value));
            of(good).unwrap();
            if let Some(bad) = bad
                && let Err(error) = of(bad)
            {
                let message = error.to_string();
                assert!(message.contains(key.as_ref()), "{message}");
                assert!(!message.contains("hush"), "{message}");
            }
        }
    }

    /// A service that fails with `reached` instead of sending a request.
    #[derive(Debug)]
    struct ReachedService;

    #[async_trait]
    impl HttpService for ReachedService {
        async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
            Err(HttpError::new(HttpErrorKind::Unknown, std::io::Error::other("reached")))
        }
    }

    #[test]
    fn a_guarded_client_sends_nothing_to_private_addresses_but_for_its_own_credentials() {
        use object_store::client::HttpRequestBody;
        let client = GuardedClient(HttpClient::new(ReachedService));
        for (url, expected) in [
            ("http://169.254.169.254/latest/meta-data/", "reached"),
            ("http://169.254.170.2/v2/credentials", "reached"),
            ("http://127.0.0.1:9000/b/k", "reached"),
            ("https://store.example/b/k", "reached"),
            ("http://169.254.169.254:9000/b/k", address_guard::REFUSED_HOST_MESSAGE),
            ("https://169.254.169.254/b/k", address_guard::REFUSED_HOST_MESSAGE),
            ("http://169.254.1.1/b/k", address_guard::REFUSED_HOST_MESSAGE),
            ("http://[::ffff:169.254.169.254]/b/k", address_guard::REFUSED_HOST_MESSAGE),
        ] {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = url.parse().unwrap();
            let error = futures::executor::block_on(client.call(request)).unwrap_err();
            assert_eq!(root_cause(&error), expected, "{url}");
        }
    }

    #[test]
    fn guarded_resolver_hides_private_addresses() {
        for (name, is_known) in [("169.254.169.254", false), ("127.0.0.1", true)] {
            let name: Name = name.parse().unwrap();
            let found = crate::block_on(&tidemill_base::CancelFlag::new(), async move {
                Ok::<_, Error>(
                    AddressResolver { shuffles_addresses: false, hides_private_addresses: true }
                        .resolve(name)
                        .await
                        .map(Iterator::count),
                )
            });
            match (found.unwrap(), is_known) {
                (Ok(count), true) => assert_eq!(count, 1),
                (Err(error), false) => {
                    assert!(error.to_string().contains(address_guard::REFUSED_HOST_MESSAGE))
                }
                (found, _) => panic!("{found:?}"),
            }
        }
    }
}
