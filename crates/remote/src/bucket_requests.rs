//! Requests to a bucket that `object_store` does not offer: page-by-page listings with folders that accept
//! any key, and all headers of a `HEAD` response.
//!
//! `object_store` fails a whole page of a listing if it cannot represent one key (`a//b`). Here keys are
//! percent-encoded if the server supports that (`encoding-type=url`), because XML has no control characters.
//! `object_store` signs the requests, its client sends them, and retries follow its rules.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use object_store::aws::{AmazonS3ConfigKey as K, AwsAuthorizer};
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use object_store::{ObjectMeta, RetryConfig};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use quick_xml::Reader;
use quick_xml::events::Event;
use tracing::{Instrument, debug_span};

use crate::address_guard;
use crate::error::{Error, Result};
use crate::http::backoff_delay;
use crate::http_client::root_cause;
use crate::s3::Bucket;
use crate::storage_options::S3Settings;

/// Characters that a signature encodes.
const QUERY_ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Characters that a signature encodes in a path, where `/` stays.
const PATH_ENCODED: &AsciiSet = &QUERY_ENCODED.remove(b'/');
/// Maximum size of a response. A page of 1,000 keys of 1,024 bytes each, all encoded, is smaller.
const RESPONSE_BYTES_MAX: u64 = 16 << 20;

/// Client, address and signing settings for requests to a bucket.
#[derive(Debug)]
pub(crate) struct BucketConnection {
    client: HttpClient,
    /// `https://host/bucket`, without a `/` at its end.
    address: String,
    region: String,
    signs_requests: bool,
    signs_payload: bool,
    requester_pays: bool,
    /// True for a directory bucket, whose requests need a session that only `object_store` can create.
    pub(crate) is_express: bool,
    retry: RetryConfig,
}

fn config_value(settings: &S3Settings, key: K) -> Option<String> {
    settings.builder.get_config_value(&key).filter(|text| !text.is_empty())
}

fn configured_region(settings: &S3Settings) -> String {
    let region =
        config_value(settings, K::Region).or_else(|| config_value(settings, K::DefaultRegion));
    region.unwrap_or_else(|| "us-east-1".to_owned())
}

/// Returns the address of a bucket: `https://host/bucket`, without a `/` at its end.
pub(crate) fn bucket_address(name: &str, settings: &S3Settings) -> String {
    let in_host = settings.is_enabled(K::VirtualHostedStyleRequest);
    let region = configured_region(settings);
    let address = match (settings.endpoint(), in_host) {
        (Some(endpoint), true) => endpoint,
        (Some(endpoint), false) => format!("{}/{name}", endpoint.trim_end_matches('/')),
        (None, true) => format!("https://{name}.s3.{region}.amazonaws.com"),
        (None, false) => format!("https://s3.{region}.amazonaws.com/{name}"),
    };
    address.trim_end_matches('/').to_owned()
}

impl BucketConnection {
    /// Creates the connection to the bucket at an address, over a client.
    pub(crate) fn new(
        address: String,
        settings: &S3Settings,
        retry: RetryConfig,
        client: HttpClient,
    ) -> BucketConnection {
        let is = |key: K| settings.is_enabled(key);
        BucketConnection {
            client,
            address,
            region: configured_region(settings),
            signs_requests: !is(K::SkipSignature),
            signs_payload: !is(K::UnsignedPayload),
            requester_pays: is(K::RequestPayer),
            is_express: is(K::S3Express),
            retry,
        }
    }
}

/// A response of a bucket.
struct BucketResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
}

/// An object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key, whatever characters it contains.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification.
    pub modified: DateTime<Utc>,
    /// ETag, in quotes.
    pub e_tag: Option<String>,
    /// Storage class such as `STANDARD`, if the server reports it.
    pub storage_class: Option<String>,
}

impl ListedObject {
    /// Returns the metadata as an `object_store` type.
    ///
    /// # Errors
    /// [`Error::Usage`] for a key that `object_store` cannot represent.
    pub(crate) fn to_object_meta(&self, bucket: &Bucket) -> Result<ObjectMeta> {
        Ok(self.clone().into_object_meta(bucket.parse_key(&self.key)?))
    }

    /// Converts the metadata to an `object_store` type, with the parsed key.
    pub(crate) fn into_object_meta(self, location: Path) -> ObjectMeta {
        ObjectMeta {
            location,
            last_modified: self.modified,
            size: self.size,
            e_tag: self.e_tag,
            version: None,
        }
    }
}

/// A page of a listing: up to 1,000 names in byte order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListingPage {
    /// The objects.
    pub objects: Vec<ListedObject>,
    /// Common prefixes of keys up to the next `/`, including it.
    pub folders: Vec<String>,
    /// Token of the next page; `None` on the last page.
    pub next_token: Option<String>,
}

/// Tokens of the pages of one listing, which end a listing that runs in circles.
#[derive(Debug, Default)]
pub(crate) struct ListingTokens(HashSet<String>);

impl ListingTokens {
    /// Takes the token of the page after this one; `None` on the last page.
    ///
    /// # Errors
    /// [`Error::Remote`] if the token was used before.
    pub(crate) fn take_next_token(
        &mut self,
        bucket: &Bucket,
        prefix: &str,
        page: &mut ListingPage,
    ) -> Result<Option<String>> {
        let Some(token) = page.next_token.take() else { return Ok(None) };
        if self.0.insert(token.clone()) {
            return Ok(Some(token));
        }
        Err(Error::Remote {
            action: "list",
            url: bucket.url(prefix),
            offset: None,
            status: None,
            reason: "the listing has come back to a page that it gave before".into(),
            hint: Some("is it an S3 server? (AWS_ENDPOINT_URL)".into()),
        })
    }
}

/// Metadata of one object, from a `HEAD` response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectHead {
    /// Metadata as in a listing.
    pub listed: ListedObject,
    /// All headers of the response, by name.
    pub headers: Vec<(String, String)>,
}

impl ObjectHead {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns true if the ETag may be the MD5 sum of the content. It is not if a key management service or
    /// the customer's key encrypts the object.
    pub fn e_tag_may_be_md5(&self) -> bool {
        let kms = self.header("x-amz-server-side-encryption").is_some_and(|by| by != "AES256");
        !kms && self.header("x-amz-server-side-encryption-customer-algorithm").is_none()
    }
}

impl Bucket {
    /// Returns a page of the keys that begin with `prefix`. With `folders`, keys with a further `/` are
    /// grouped by their common prefix. The first page has no `token`.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub async fn list_page(
        self: Arc<Self>,
        prefix: String,
        folders: bool,
        token: Option<String>,
    ) -> Result<ListingPage> {
        let mut query =
            vec![("list-type", "2"), ("encoding-type", "url"), ("prefix", prefix.as_str())];
        if folders {
            query.push(("delimiter", "/"));
        }
        if let Some(token) = &token {
            query.push(("continuation-token", token));
        }
        let answer = self.send_request("GET", "list", "", &prefix, &query).await?;
        if answer.status != 200 {
            return Err(self.refused_response_error("list", &prefix, &answer, 0));
        }
        parse_listing_page(&answer.body).map_err(|reason| Error::Remote {
            action: "list",
            url: self.url(&prefix),
            offset: None,
            status: Some(answer.status),
            reason,
            hint: Some("is it an S3 server? (AWS_ENDPOINT_URL)".into()),
        })
    }

    /// Returns all metadata of a key; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Remote`], and [`Error::Usage`] for a key with a component `.` or `..`, which no URL can
    /// contain.
    pub async fn head_with_headers(self: Arc<Self>, key: String) -> Result<Option<ObjectHead>> {
        if key.split('/').any(|part| part == "." || part == "..") {
            // This returns the error.
            self.parse_key(&key)?;
        }
        let answer = self.send_request("HEAD", "read", &key, &key, &[]).await?;
        match answer.status {
            200 => {}
            404 => return Ok(None),
            _ => return Err(self.refused_response_error("read", &key, &answer, 0)),
        }
        let header = |name: &str| {
            answer.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
        };
        let modified = header("last-modified");
        let modified = modified.and_then(|text| DateTime::parse_from_rfc2822(&text).ok());
        let listed = ListedObject {
            size: header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0),
            modified: modified.map(|time| time.to_utc()).unwrap_or_default(),
            e_tag: header("etag"),
            storage_class: header("x-amz-storage-class"),
            key,
        };
        Ok(Some(ObjectHead { listed, headers: answer.headers }))
    }

    /// Sends a request, with the same retries as `object_store`'s.
    async fn send_request(
        &self,
        method: &str,
        action: &'static str,
        path: &str,
        shown: &str,
        query: &[(&str, &str)],
    ) -> Result<BucketResponse> {
        let wire = &self.connection;
        if wire.is_express {
            return Err(Error::usage_with_hint(
                format!("`{}` is a directory bucket, which is not listed", self.url("")),
                "name the objects one by one",
            ));
        }
        let mut address = format!("{}/{}", wire.address, utf8_percent_encode(path, PATH_ENCODED));
        for (at, (name, value)) in query.iter().enumerate() {
            address.push(if at == 0 { '?' } else { '&' });
            address.push_str(&format!("{name}={}", utf8_percent_encode(value, QUERY_ENCODED)));
        }
        let since = Instant::now();
        let mut tried = 0;
        loop {
            let request = debug_span!("request", %method, url = %self.url(shown));
            let cause = match self.send_once(method, &address).instrument(request).await {
                Ok(answer) if !matches!(answer.status, 408 | 429 | 500..=599) => return Ok(answer),
                Ok(answer) => Ok(answer),
                Err(cause) => Err(cause),
            };
            let spent =
                tried >= wire.retry.max_retries || since.elapsed() > wire.retry.retry_timeout;
            match cause {
                Ok(answer) if spent => {
                    return Err(self.refused_response_error(action, shown, &answer, tried));
                }
                Err(cause)
                    if spent
                        || cause.contains("not allowed")
                        || cause.contains(address_guard::REFUSED_HOST_MESSAGE) =>
                {
                    return Err(self.request_error(action, shown, tried, &cause));
                }
                _ => {}
            }
            tokio::time::sleep(backoff_delay(&wire.retry, tried)).await;
            tried += 1;
        }
    }

    async fn send_once(&self, method: &str, address: &str) -> Result<BucketResponse, String> {
        let wire = &self.connection;
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method.parse().map_err(|_| "not a method".to_owned())?;
        *request.uri_mut() = address.parse().map_err(|_| "not a valid URL".to_owned())?;
        if wire.signs_requests {
            let credential = self.store.credentials().get_credential().await;
            let credential = credential.map_err(|error| root_cause(&error))?;
            AwsAuthorizer::new(&credential, "s3", &wire.region)
                .with_sign_payload(wire.signs_payload)
                .with_request_payer(wire.requester_pays)
                .authorize(&mut request, None);
        }
        let answer = wire.client.execute(request).await.map_err(|error| root_cause(&error))?;
        let status = answer.status().as_u16();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let headers: Vec<(String, String)> = answer
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.and_then(|(_, value)| value.parse::<u64>().ok()).unwrap_or(0);
        if method == "HEAD" {
            return Ok(BucketResponse { status, headers, body: Bytes::new() });
        }
        let too_long = |bytes: u64| format!("an answer of {bytes} bytes and more is not allowed");
        if length > RESPONSE_BYTES_MAX {
            return Err(too_long(length));
        }
        let mut coming = answer.into_body().bytes_stream();
        let mut body = Vec::new();
        // Not every response announces the length of its body.
        while let Some(bytes) = coming.try_next().await.map_err(|error| root_cause(&error))? {
            body.extend_from_slice(&bytes);
            if body.len() as u64 > RESPONSE_BYTES_MAX {
                return Err(too_long(RESPONSE_BYTES_MAX));
            }
        }
        Ok(BucketResponse { status, headers, body: body.into() })
    }

    fn refused_response_error(
        &self,
        action: &'static str,
        key: &str,
        answer: &BucketResponse,
        tried: usize,
    ) -> Error {
        let body = String::from_utf8_lossy(&answer.body);
        let cause = format!("status code: {}: {body}", answer.status);
        self.request_error(action, key, tried, &cause)
    }

    /// Returns the error for a failed request, parsed from the text that `object_store` would produce.
    fn request_error(&self, action: &'static str, key: &str, tried: usize, cause: &str) -> Error {
        let retried = if tried > 0 { format!(", after {tried} retries") } else { String::new() };
        let text = format!("request failed{retried} - {cause}");
        let error = object_store::Error::Generic { store: "S3", source: text.into() };
        self.refusal_error(action, key, None, &error)
    }
}

/// Parses a page of a listing from XML.
fn parse_listing_page(xml: &[u8]) -> Result<ListingPage, String> {
    let invalid = |what: &str| format!("the answer is no listing: {what}");
    let text = std::str::from_utf8(xml).map_err(|_| invalid("it is not UTF-8"))?;
    let mut reader = Reader::from_str(text);
    let mut path: Vec<String> = Vec::new();
    let mut value = String::new();
    let (mut page, mut is_encoded, mut is_truncated, mut is_listing) =
        (ListingPage::default(), false, false, false);
    let mut object: Option<ListedObject> = None;
    loop {
        let event = reader.read_event().map_err(|error| invalid(&error.to_string()))?;
        match event {
            Event::Start(tag) => {
                let name = String::from_utf8_lossy(tag.local_name().as_ref()).into_owned();
                value.clear();
                is_listing |= path.is_empty() && name == "ListBucketResult";
                if path.len() == 1 && name == "Contents" {
                    object = Some(ListedObject {
                        key: String::new(),
                        size: 0,
                        modified: DateTime::default(),
                        e_tag: None,
                        storage_class: None,
                    });
                }
                path.push(name);
            }
            Event::Text(text) => {
                let text = text.decode().map_err(|error| invalid(&error.to_string()))?;
                value.push_str(&text);
            }
            Event::CData(text) => {
                let text = text.decode().map_err(|error| invalid(&error.to_string()))?;
                value.push_str(&text);
            }
            Event::GeneralRef(reference) => {
                let name = reference.decode().map_err(|error| invalid(&error.to_string()))?;
                let known = match name.as_ref() {
                    "amp" => Some('&'),
                    "lt" => Some('<'),
                    "gt" => Some('>'),
                    "quot" => Some('"'),
                    "apos" => Some('\''),
                    _ => reference.resolve_char_ref().ok().flatten(),
                };
                value.push(known.ok_or_else(|| invalid("an unknown entity"))?);
            }
            Event::End(_) => {
                let names: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
                match (names.as_slice(), &mut object) {
                    (["EncodingType"], _) => is_encoded = value == "url",
                    (["IsTruncated"], _) => is_truncated = value == "true",
                    (["NextContinuationToken"], _) => {
                        page.next_token = Some(std::mem::take(&mut value))
                    }
                    (["CommonPrefixes", "Prefix"], _) => {
                        page.folders.push(std::mem::take(&mut value));
                    }
                    (["Contents", "Key"], Some(object)) => object.key = std::mem::take(&mut value),
                    (["Contents", "Size"], Some(object)) => {
                        object.size = value.parse().map_err(|_| invalid("a size is no number"))?;
                    }
                    (["Contents", "LastModified"], Some(object)) => {
                        let time = DateTime::parse_from_rfc3339(&value);
                        object.modified = time.map_err(|_| invalid("a time is none"))?.to_utc();
                    }
                    (["Contents", "ETag"], Some(object)) => {
                        object.e_tag = Some(std::mem::take(&mut value));
                    }
                    (["Contents", "StorageClass"], Some(object)) => {
                        object.storage_class = Some(std::mem::take(&mut value));
                    }
                    (["Contents"], _) => page.objects.extend(object.take()),
                    _ => {}
                }
                path.pop();
            }
            Event::Eof => break,
            _ => {}
        }
    }
    if !is_listing || !path.is_empty() {
        return Err(invalid("it has no ListBucketResult"));
    }
    page.next_token = page.next_token.filter(|token| is_truncated && !token.is_empty());
    if is_truncated && page.next_token.is_none() {
        return Err(invalid("it ends before its end, and does not say how it goes on"));
    }
    if is_encoded {
        for object in &mut page.objects {
            object.key = decode_listed_key(&object.key);
        }
        for folder in &mut page.folders {
            *folder = decode_listed_key(folder);
        }
    }
    Ok(page)
}

/// Decodes a key in S3's encoding, where `+` is a blank.
fn decode_listed_key(key: &str) -> String {
    percent_decode_str(&key.replace('+', " ")).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_page_decodes_escaped_keys() {
        let xml = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3\"><Name>b</Name>\
                   <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
                   <NextContinuationToken>a&amp;b</NextContinuationToken>\
                   <Contents><Key>a+b%2Bc%0A&#x41;//x</Key><Size>7</Size>\
                   <LastModified>2026-11-20T10:00:00.000Z</LastModified>\
                   <ETag>&quot;0af&quot;</ETag><Owner><ID>k</ID></Owner></Contents>\
                   <CommonPrefixes><Prefix>logs/</Prefix></CommonPrefixes></ListBucketResult>";
        let page = parse_listing_page(xml.as_bytes()).unwrap();
        assert_eq!(page.next_token.as_deref(), Some("a&b"));
        assert_eq!(page.folders, ["logs/"]);
        let [object] = page.objects.as_slice() else { panic!("one object: {page:?}") };
        assert_eq!((object.key.as_str(), object.size), ("a b+c\nA//x", 7));
        assert_eq!(object.e_tag.as_deref(), Some("\"0af\""));
        assert_eq!(object.modified.to_rfc3339(), "2026-11-20T10:00:00+00:00");
    }

    #[test]
    fn invalid_listing_is_an_error_and_never_a_panic() {
        for xml in [
            "",
            "hello",
            "<html></html>",
            "<ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "<ListBucketResult><Contents><Size>x</Size></Contents></ListBucketResult>",
            "<ListBucketResult>&nothing;</ListBucketResult>",
            "<ListBucketResult><Contents></Key></Contents></ListBucketResult>",
        ] {
            assert!(parse_listing_page(xml.as_bytes()).is_err(), "{xml}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_a_page_or_an_error(xml in "[<>/&;a-zA-Z \"]{0,60}") {
            let _ = parse_listing_page(xml.as_bytes());
            let _ = parse_listing_page(format!("<ListBucketResult>{xml}</ListBucketResult>").as_bytes());
        }
    }
}
