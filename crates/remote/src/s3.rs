//! A bucket: listing, versions, ranges, and error messages for refused requests.
//!
//! `object_store` repeats requests with exponential backoff after 5xx responses, 429, lost connections,
//! timeouts and truncated bodies. An error from it is final.

use std::sync::Arc;
use std::time::Duration;

use crate::disk_cache::DiskTierSettings;
use crate::error::{Error, Result};
use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use tidemill_base::cancellation::{CancelFlag, WaitCallback};
use tidemill_base::redaction::escape_control_chars;
use tidemill_prefetch::Endpoint;
use tidemill_prefetch::endpoint::keep_slots_until_last_byte;
use tracing::{Instrument, debug_span};

use super::address_guard;
use super::bucket_requests::{BucketConnection, ListingTokens, bucket_address};
use super::direct_request_stats;
use super::http_client::{CapturingConnector, CreateOnlyConnector, EndpointConnector, root_cause};
use super::location::check_bucket_name;
use super::object::Object;
use super::tuning::EndpointTuning;
use super::{NetworkTask, StorageOptions};

/// Timeout for credentials from the machine's metadata service.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(5);

/// A bucket with its clients and settings.
#[derive(Debug)]
pub struct Bucket {
    pub(super) name: String,
    pub(super) store: Arc<AmazonS3>,
    /// A store whose uploads are completed only if the object does not exist.
    pub(super) create_only_store: AmazonS3,
    endpoint_url: Option<String>,
    documents_md5: bool,
    /// Concurrency limit and measurements, shared by all requests to the bucket.
    shared_endpoint: Endpoint,
    /// Connection for requests that `object_store` does not offer.
    pub(super) connection: BucketConnection,
    /// Block, window and memory of prefetching.
    pub(super) read_options: tidemill_prefetch::Options,
    /// Tuning of block or window, if `auto` is set.
    pub(super) tuning: Option<Arc<EndpointTuning>>,
    /// The disk tier, if there is one.
    pub(super) disk_tier_settings: Option<DiskTierSettings>,
}

/// Returns true if an address is one of AWS's object store, whose ETags are documented.
fn is_aws_address(address: &str) -> bool {
    let url = url::Url::parse(address).ok();
    url.as_ref().and_then(url::Url::host_str).is_some_and(|host| {
        let own = [".amazonaws.com", ".amazonaws.com.cn"].iter().any(|end| host.ends_with(end));
        // Object Lambda functions of the customer create the responses.
        own && !host.contains("s3-object-lambda")
    })
}

/// The end of an object that is read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectEnd {
    /// This number of bytes from its beginning.
    First(u64),
    /// This number of bytes before its end.
    Last(u64),
}

impl Bucket {
    /// Opens the bucket that options and environment describe, and checks its name. Sends no request, unless
    /// the machine's metadata service supplies the credentials. These are fetched at once, so that a machine
    /// without the service fails early instead of waiting.
    ///
    /// # Errors
    /// [`Error::Usage`] for invalid options, [`Error::Remote`] if there are no credentials.
    pub fn open(name: &str, options: &StorageOptions, cancel: &CancelFlag) -> Result<Arc<Bucket>> {
        Self::open_with_tick(name, options, &mut || cancel.check())
    }

    /// As [`open`](Self::open), and calls `tick` every 50 ms during the wait for credentials.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and [`Error::Interrupted`].
    pub fn open_with_tick(
        name: &str,
        options: &StorageOptions,
        tick: WaitCallback<'_>,
    ) -> Result<Arc<Bucket>> {
        check_bucket_name(name)?;
        let settings = options.s3_settings()?.for_bucket(name)?;
        settings.check_directory_bucket_zone(name)?;
        let (endpoint, asks) = (settings.endpoint(), settings.needs_machine_credentials());
        let build = |builder: AmazonS3Builder| {
            builder.build().map_err(|error| {
                let cause = options.redact_values(&root_cause(&error));
                Error::usage_with_hint(
                    format!("`s3://{name}` cannot be reached so: {cause}"),
                    "check --storage-option, storage_options and the AWS_* environment",
                )
            })
        };
        let builder = settings.builder.clone().with_bucket_name(name);
        let address = bucket_address(name, &settings);
        if address_guard::is_refused_url(&address) {
            return Err(Error::usage_with_hint(
                format!(
                    "`s3://{name}` cannot be reached so: {}",
                    address_guard::REFUSED_HOST_MESSAGE
                ),
                "name a store's",
            ));
        }
        let (reading, auto) = options.read_options()?;
        let asked = super::http_client::shared_endpoint(&address);
        let place = format!("s3://{name}");
        let tuning = auto.map(|auto| EndpointTuning::for_endpoint(&address, place, &asked, &auto));
        let is_express = settings.is_enabled(object_store::aws::AmazonS3ConfigKey::S3Express);
        let documents_md5 = !is_express && is_aws_address(&address);
        let connector = EndpointConnector(asked.clone());
        let only_new =
            build(builder.clone().with_http_connector(CreateOnlyConnector(connector.clone())))?;
        let kept = CapturingConnector::new(connector);
        let store = Arc::new(build(builder.with_http_connector(kept.clone()))?);
        let client =
            kept.client().ok_or_else(|| Error::Internal("a bucket without a client".into()))?;
        let wire = BucketConnection::new(address, &settings, options.retry_config()?, client);
        let keeping = options.disk_tier_settings()?;
        let name = name.to_owned();
        let bucket = Arc::new(Bucket {
            name,
            store,
            create_only_store: only_new,
            endpoint_url: endpoint,
            documents_md5,
            shared_endpoint: asked,
            connection: wire,
            read_options: reading,
            tuning,
            disk_tier_settings: keeping,
        });
        if asks {
            let asked = Arc::clone(&bucket);
            NetworkTask::start(async move {
                let credentials = asked.store.credentials().get_credential();
                match tokio::time::timeout(CREDENTIALS_TIMEOUT, credentials).await {
                    Ok(Ok(_)) => Ok(()),
                    _ => Err(Error::Remote {
                        action: "reach",
                        url: format!("s3://{}", asked.name),
                        offset: None,
                        status: None,
                        reason: "there are no credentials".into(),
                        hint: Some(
                            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
                             AWS_SKIP_SIGNATURE=true for a public bucket (storage options: \
                             access_key_id, secret_access_key, skip_signature)"
                                .into(),
                        ),
                    }),
                }
            })?
            .wait_with_tick(tick)?;
        }
        Ok(bucket)
    }

    /// Returns concurrency limit and measurements, which all requests to the bucket share.
    pub fn shared_endpoint(&self) -> &Endpoint {
        &self.shared_endpoint
    }

    /// Returns the bucket's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the endpoint, if requests do not go to AWS.
    pub fn endpoint_url(&self) -> Option<&str> {
        self.endpoint_url.as_deref()
    }

    /// Returns true if the server documents that the ETag of an object in one part is the MD5 sum of its
    /// bytes, unless a key management service or the customer's key encrypts them. AWS does, except for
    /// directory buckets and Object Lambda.
    pub fn documents_md5(&self) -> bool {
        self.documents_md5
    }

    /// Returns the URL of a key.
    pub fn url(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.name)
    }

    /// Parses a key as an `object_store` path.
    ///
    /// # Errors
    /// [`Error::Usage`] for keys that `object_store` cannot represent.
    pub(crate) fn parse_key(&self, key: &str) -> Result<Path> {
        match Path::parse(key) {
            Ok(path) if path.as_ref() == key => Ok(path),
            _ => Err(Error::usage_with_hint(
                format!(
                    "`{}` cannot be read or written",
                    escape_control_chars(&self.url(key), &[])
                ),
                "keys with empty parts (`a//b`), parts `.` and `..`, control characters or a `/` \
                 at an end are not supported",
            )),
        }
    }

    /// Returns the metadata of a key; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub async fn head_object(self: Arc<Self>, key: String) -> Result<Option<ObjectMeta>> {
        let Ok(path) = self.parse_key(&key) else { return Ok(None) };
        match self.store.head(&path).await {
            Ok(meta) => Ok(Some(meta)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => {
                let refusal = StoreRefusal::from_store_error(&error);
                // A HEAD response has no body with the reason, so request a byte to get one.
                if refusal.code.is_none()
                    && matches!(refusal.status, Some(400 | 403))
                    && let Err(told) = self.read_end(&path, ObjectEnd::First(1)).await
                {
                    let StoreRefusal { status, code, .. } = StoreRefusal::from_store_error(&told);
                    if code.is_some() && status == refusal.status {
                        return Err(self.refusal_error("read", &key, None, &told));
                    }
                }
                Err(self.refusal_error("read", &key, None, &error))
            }
        }
    }

    /// Returns the object of a key; `None` if it does not exist. If the server allows it, the same request
    /// fetches bytes at one end. If there is a disk tier, no bytes are fetched.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub async fn find_object(
        self: Arc<Self>,
        key: String,
        end: ObjectEnd,
    ) -> Result<Option<Object>> {
        if self.disk_tier_settings.is_none()
            && let Ok(path) = self.parse_key(&key)
        {
            match keep_slots_until_last_byte(self.read_end(&path, end)).await {
                Ok(found) => {
                    let (meta, start, bytes) = found;
                    direct_request_stats::count_answered_request(bytes.len() as u64);
                    let object = Object::from_listing(&self, meta);
                    object.keep_end_bytes(start, bytes);
                    return Ok(Some(object));
                }
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                // An empty object has no such bytes, some servers do not support suffix ranges, and a body
                // may be truncated. In these cases request the metadata alone.
                Err(error) => {
                    const NOT_KNOWN: [&str; 5] = [
                        "InvalidArgument",
                        "InvalidRange",
                        "InvalidRequest",
                        "MethodNotAllowed",
                        "NotImplemented",
                    ];
                    let StoreRefusal { status, retries, code, .. } =
                        StoreRefusal::from_store_error(&error);
                    let is_asked = match status {
                        Some(416) => true,
                        // Another request would fail in the same way, after the same retries.
                        _ if retries.is_some() => false,
                        None => true,
                        Some(400 | 405 | 501) => {
                            code.is_none_or(|code| NOT_KNOWN.contains(&code.as_str()))
                        }
                        Some(_) => false,
                    };
                    if !is_asked {
                        return Err(self.refusal_error("read", &key, None, &error));
                    }
                }
            }
        }
        let meta = Arc::clone(&self).head_object(key).await?;
        Ok(meta.map(|meta| Object::from_listing(&self, meta)))
    }

    /// Returns the metadata of an object, and the offset and bytes at one of its ends.
    async fn read_end(
        &self,
        path: &Path,
        end: ObjectEnd,
    ) -> object_store::Result<(ObjectMeta, u64, Bytes)> {
        let range = match end {
            ObjectEnd::First(bytes) => GetRange::Bounded(0..bytes),
            ObjectEnd::Last(bytes) => GetRange::Suffix(bytes),
        };
        let options = GetOptions { range: Some(range), ..GetOptions::default() };
        let request = debug_span!("request", key = %path, end = ?end);
        let answer = self.store.get_opts(path, options).instrument(request.clone()).await?;
        let (meta, range) = (answer.meta.clone(), answer.range.clone());
        let bytes = answer.bytes().instrument(request).await?;
        if bytes.len() as u64 == range.end.saturating_sub(range.start) && range.end <= meta.size {
            return Ok((meta, range.start, bytes));
        }
        Err(object_store::Error::Generic { store: "S3", source: "the body broke off".into() })
    }

    /// Lists all objects whose keys begin with `prefix`, page by page. The prefix need not end with `/`.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub async fn list_objects(self: Arc<Self>, prefix: String) -> Result<Vec<ObjectMeta>> {
        if self.connection.is_express {
            return self.list_directory_bucket(&prefix).await;
        }
        let mut found = Vec::new();
        let mut token = None;
        let mut asked = ListingTokens::default();
        loop {
            let mut page = Arc::clone(&self).list_page(prefix.clone(), false, token).await?;
            for listed in page.objects.drain(..) {
                let location = Path::parse(&listed.key).map_err(|source| {
                    self.refusal_error("list", &prefix, None, &object_store::Error::from(source))
                })?;
                found.push(listed.into_object_meta(location));
            }
            token = asked.take_next_token(&self, &prefix, &mut page)?;
            if token.is_none() {
                return Ok(found);
            }
        }
    }

    /// Lists the objects of a directory bucket, whose requests need sessions.
    async fn list_directory_bucket(&self, prefix: &str) -> Result<Vec<ObjectMeta>> {
        let mut found = Vec::new();
        let mut page_token = None;
        loop {
            let options = PaginatedListOptions { page_token, ..PaginatedListOptions::default() };
            let page = self.store.list_paginated(Some(prefix), options).await;
            let page = page.map_err(|error| self.refusal_error("list", prefix, None, &error))?;
            found.extend(page.result.objects);
            page_token = page.page_token;
            if page_token.is_none() {
                return Ok(found);
            }
        }
    }

    /// Returns the names of objects and folders in a folder, from one page of a listing, for suggestions.
    pub async fn folder_names(self: Arc<Self>, folder: String) -> Result<Vec<String>> {
        let page = self.list_page(folder.clone(), true, None).await?;
        let keys = page.objects.into_iter().map(|object| object.key).chain(page.folders);
        let name = |key: String| {
            let below = key.strip_prefix(&folder)?;
            Some(below.trim_end_matches('/').to_owned()).filter(|name| !name.is_empty())
        };
        Ok(keys.filter_map(name).collect())
    }

    /// Returns the error for a failed request.
    pub(crate) fn refusal_error(
        &self,
        action: &'static str,
        key: &str,
        offset: Option<u64>,
        error: &object_store::Error,
    ) -> Error {
        let url = self.url(key);
        let refusal = StoreRefusal::from_store_error(error);
        if let object_store::Error::InvalidPath { .. } = error {
            return Error::Remote {
                action,
                url,
                offset,
                status: None,
                reason: root_cause(error),
                hint: Some(
                    "keys with empty parts (`a//b`), parts `.` and `..` or control characters are \
                     not supported; name the others by a narrower pattern"
                        .into(),
                ),
            };
        }
        if refusal.code.as_deref() == Some("NoSuchBucket") {
            let hint = match self.endpoint_url() {
                Some(endpoint) => format!(
                    "there is no bucket `{}` at {}",
                    self.name,
                    tidemill_base::redaction::redact_url(endpoint)
                ),
                None => format!("there is no bucket `{}`", self.name),
            };
            return Error::NotFound { path: url, hint: Some(hint) };
        }
        let (reason, hint) = match refusal.is_archived() {
            true => (refusal.archive_reason(), Some(self.restore_hint(key))),
            false => (refusal.reason(), refusal.hint()),
        };
        Error::Remote { action, url, offset, status: refusal.status, reason, hint }
    }

    /// Returns the command that restores an archived object.
    fn restore_hint(&self, key: &str) -> String {
        format!(
            "aws s3api restore-object --bucket {} --key '{}' --restore-request Days=7 asks for a copy, which is there \
             after minutes to two days; run again then, or leave the object out by a narrower pattern",
            self.name,
            escape_control_chars(key, &[])
        )
    }
}

/// Status, code and message of an `object_store` error, which has them only in its text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreRefusal {
    /// HTTP status, if there was a response.
    pub(crate) status: Option<u16>,
    /// S3's error code, such as `SlowDown`.
    pub(crate) code: Option<String>,
    message: Option<String>,
    /// Number of retries.
    retries: Option<String>,
    /// The storage class and the access tier of an archived object.
    storage_class: Option<String>,
    access_tier: Option<String>,
    cause: String,
}

impl StoreRefusal {
    pub(crate) fn from_store_error(error: &object_store::Error) -> Self {
        let text = error.to_string();
        let after = |mark: &str| text.find(mark).map(|at| &text[at + mark.len()..]);
        let digits = |text: &str| {
            text.bytes().take_while(u8::is_ascii_digit).map(char::from).collect::<String>()
        };
        // Show only these tags of the body: others hold keys and signatures.
        let tag = |name: &str| {
            let rest = after(&format!("<{name}>"))?;
            let inner = &rest[..rest.find("</")?];
            let plain: String = inner.chars().filter(|c| !c.is_control()).take(200).collect();
            Some(plain)
        };
        StoreRefusal {
            status: after("status code: ").and_then(|rest| digits(rest).parse().ok()),
            code: tag("Code"),
            message: tag("Message"),
            storage_class: tag("StorageClass"),
            access_tier: tag("AccessTier"),
            retries: after(", after ").map(digits).filter(|count| !count.is_empty()),
            cause: root_cause(error),
        }
    }

    /// Returns true if the object is in an archive (storage class `GLACIER`, `DEEP_ARCHIVE`, or an archive
    /// tier of `INTELLIGENT_TIERING`), and no copy of it is restored. A listing does not show this: an object
    /// keeps its class while a restored copy can be read.
    fn is_archived(&self) -> bool {
        self.code.as_deref() == Some("InvalidObjectState")
    }

    fn archive_reason(&self) -> String {
        let class = match (&self.storage_class, &self.access_tier) {
            (Some(class), Some(tier)) => format!(" (storage class {class}, {tier})"),
            (Some(class), None) => format!(" (storage class {class})"),
            (None, _) => String::new(),
        };
        format!("it is archived{class} and has to be restored before it is read")
    }

    fn reason(&self) -> String {
        let mut reason = match (self.status, &self.code) {
            (Some(status), Some(code)) => format!("the server answered {status} {code}"),
            (Some(status), None) => format!("the server answered {status}"),
            (None, Some(code)) => format!("the server answered {code}"),
            (None, None) => self.cause.clone(),
        };
        if let Some(message) = &self.message {
            reason.push_str(&format!(" ({})", message.trim_end_matches('.')));
        }
        if let Some(retries) = &self.retries {
            let s = if retries == "1" { "y" } else { "ies" };
            reason.push_str(&format!(", after {retries} retr{s}"));
        }
        reason
    }

    fn hint(&self) -> Option<String> {
        let hint = match (self.status, self.code.as_deref()) {
            (_, Some("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken")) => {
                "the credentials are not valid there: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, \
                 if they are temporary, AWS_SESSION_TOKEN"
            }
            (_, Some("ExpiredToken" | "TokenRefreshRequired")) => {
                "the credentials have expired; get new ones"
            }
            (_, Some("RequestTimeTooSkewed")) => "set this machine's clock",
            (_, Some("PermanentRedirect" | "AuthorizationHeaderMalformed"))
            | (Some(301 | 307), _) => {
                "the bucket is in another region: AWS_REGION (storage option: region)"
            }
            (Some(401 | 403), _) => {
                "the credentials need s3:GetObject and s3:ListBucket to read, s3:PutObject and \
                 s3:AbortMultipartUpload to write"
            }
            (Some(429 | 500..=599), _) => {
                "the server is overloaded or broken; try again later, or with more patience: \
                 storage options max_retries, retry_timeout"
            }
            (Some(_), _) => return None,
            (None, _) => return unanswered_request_hint(&self.cause),
        };
        Some(hint.to_owned())
    }
}

/// Returns advice for a request to a bucket without a response.
fn unanswered_request_hint(cause: &str) -> Option<String> {
    let hint = if cause.contains("redirect") {
        "the bucket is in another region: AWS_REGION (storage option: region)"
    } else if cause.contains("scheme is not allowed") {
        "http:// without TLS has to be allowed: AWS_ALLOW_HTTP=true (storage option: allow_http)"
    } else {
        return network_hint(cause).or_else(|| {
            Some(
                "is the network there, and the endpoint right? (AWS_ENDPOINT_URL, storage option \
                 endpoint_url)"
                    .into(),
            )
        });
    };
    Some(hint.to_owned())
}

/// Returns advice for a request to any server without a response, if its cause is known.
pub(super) fn network_hint(cause: &str) -> Option<String> {
    if cause.contains("timed out") {
        Some(
            "the server is too slow or not there; storage options timeout and connect_timeout say \
             how long it is waited for"
                .into(),
        )
    } else if cause.contains("certificate") {
        Some(
            "the server's certificate is not trusted by this machine (storage option \
             allow_invalid_certificates=true trusts any)"
                .into(),
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_of_aws_are_documented_and_those_of_others_are_not() {
        for (address, expected) in [
            ("https://s3.eu-west-1.amazonaws.com/bucket", true),
            ("https://bucket.s3.us-east-1.amazonaws.com", true),
            ("https://bucket.s3.cn-north-1.amazonaws.com.cn", true),
            ("https://bucket.vpce-1a2b-x.s3.eu-west-1.vpce.amazonaws.com/b", true),
            ("https://ap-1-123.s3-object-lambda.eu-west-1.amazonaws.com", false),
            ("https://storage.googleapis.com/bucket", false),
            ("https://amazonaws.com.example.org/bucket", false),
            ("https://notamazonaws.com/bucket", false),
            ("http://127.0.0.1:9000/bucket", false),
            ("no address", false),
        ] {
            assert_eq!(is_aws_address(address), expected, "{address}");
        }
    }

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn refusal_is_parsed_from_text_without_secrets() {
        let refusal = StoreRefusal::from_store_error(&generic(
            "Error performing GET http://h/b/k in 1.2s, after 8 retries, max_retries: 8, \
             retry_timeout: 120s  - Server returned non-2xx status code: 503 Service Unavailable: \
             <Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message>\
             <AWSAccessKeyId>AKIA</AWSAccessKeyId></Error>",
        ));
        assert_eq!(refusal.status, Some(503));
        assert_eq!(
            refusal.reason(),
            "the server answered 503 SlowDown (Please reduce your request rate), after 8 retries"
        );
        assert!(refusal.hint().unwrap().contains("max_retries"));
    }

    #[test]
    fn an_archived_object_is_named_with_its_storage_class() {
        for (body, expected) in [
            ("<StorageClass>GLACIER</StorageClass>", Some(" (storage class GLACIER)")),
            ("<StorageClass>DEEP_ARCHIVE</StorageClass>", Some(" (storage class DEEP_ARCHIVE)")),
            (
                "<StorageClass>INTELLIGENT_TIERING</StorageClass><AccessTier>ARCHIVE_ACCESS</AccessTier>",
                Some(" (storage class INTELLIGENT_TIERING, ARCHIVE_ACCESS)"),
            ),
            ("", Some("")),
        ] {
            let refusal = StoreRefusal::from_store_error(&generic(&format!(
                "Server returned non-2xx status code: 403 Forbidden: <Error><Code>InvalidObjectState</Code>\
                 <Message>The operation is not valid for the object's storage class</Message>{body}</Error>"
            )));
            let told = refusal.is_archived().then(|| refusal.archive_reason());
            let expected = expected.map(|class| {
                format!("it is archived{class} and has to be restored before it is read")
            });
            assert_eq!(told, expected, "{body}");
        }
        let denied = "status code: 403 Forbidden: <Code>AccessDenied</Code>";
        assert!(!StoreRefusal::from_store_error(&generic(denied)).is_archived());
    }

    #[test]
    fn every_refusal_that_has_a_remedy_names_it() {
        for (text, expected) in [
            ("status code: 403 Forbidden: <Code>AccessDenied</Code>", "s3:GetObject"),
            ("status code: 403 x: <Code>ExpiredToken</Code>", "expired"),
            ("status code: 301 Moved: <Code>PermanentRedirect</Code>", "region"),
            ("builder error: URL scheme is not allowed", "allow_http"),
            ("operation timed out", "timeout"),
            ("Connection refused (os error 111)", "endpoint"),
        ] {
            let hint = StoreRefusal::from_store_error(&generic(text)).hint().unwrap_or_default();
            assert!(hint.contains(expected), "{text}: {hint}");
        }
    }
}
