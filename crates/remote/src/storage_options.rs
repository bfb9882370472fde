//! Storage options, under the names that the crate `object_store` defines.
//!
//! - Options of S3, such as `region`, `endpoint_url` and `access_key_id`, with or without the prefix `aws_`.
//! - Options of the HTTP client, such as `timeout`, `proxy_url` and `allow_http`.
//! - Options of this crate: `max_retries`, `retry_timeout`, `read_block`, `read_window`, `read_memory`,
//!   `read_cache` and `read_cache_dir`.
//!
//! The `AWS_*` variables of the environment supply options that are not set.
//!
//! Credentials are one set: if the options give keys, or disable signing,
//! [`StorageOptions::environment_settings`] ignores the environment's credentials (session token, role, web
//! identity). [`posted_options`](crate::posted_options) defines the options that a posted query may set.
//!
//! Values may be secret, so they appear in no `Debug` output and in no message.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::disk_cache::DiskTierSettings;
use crate::error::{Error, Result};
use crate::tuning::AutoReadOptions;
use crate::{address_guard, posted_options};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{ClientConfigKey, ClientOptions, RetryConfig};
use tidemill_base::memory_budget::{MemorySize, format_binary_bytes, parse_size};
use tidemill_base::state_folder::cache_folder;
use tidemill_base::suggestions;

/// Storage options by name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StorageOptions {
    values_by_name: BTreeMap<String, String>,
    /// Job name. The read history of the job itself takes precedence in automatic tuning.
    job_name: String,
    /// True if the options come from a posted query.
    is_posted: bool,
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values_by_name.keys()).finish()
    }
}

/// Names of the options for S3 only, without `aws_`.
const S3_OPTION_NAMES: [&str; 30] = [
    "access_key_id",
    "secret_access_key",
    "session_token",
    "region",
    "default_region",
    "endpoint_url",
    "endpoint",
    "endpoint_url_s3",
    "endpoint_url_sts",
    "virtual_hosted_style_request",
    "skip_signature",
    "unsigned_payload",
    "checksum_algorithm",
    "conditional_put",
    "copy_if_not_exists",
    "disable_tagging",
    "request_payer",
    "s3_express",
    "imdsv1_fallback",
    "metadata_endpoint",
    "container_credentials_relative_uri",
    "container_credentials_full_uri",
    "container_authorization_token_file",
    "web_identity_token_file",
    "role_arn",
    "role_session_name",
    "server_side_encryption",
    "sse_kms_key_id",
    "sse_bucket_key_enabled",
    "sse_customer_key_base64",
];

/// Names of the HTTP client's options, which apply to every store.
const CLIENT_OPTION_NAMES: [&str; 18] = [
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_content_type",
    "http1_only",
    "http2_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_max_frame_size",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_url",
    "proxy_ca_certificate",
    "proxy_excludes",
    "randomize_addresses",
    "timeout",
    "user_agent",
];

/// Maximum number of retries of a request.
const MAX_RETRIES: &str = "max_retries";
/// Maximum time for retries of a request.
const RETRY_TIMEOUT: &str = "retry_timeout";

/// Number of bytes that one prefetch request fetches.
const READ_BLOCK: &str = "read_block";
/// Maximum distance between a reader and the blocks that are fetched for it.
const READ_WINDOW: &str = "read_window";
/// Memory for all prefetched bytes.
const READ_MEMORY: &str = "read_memory";
/// Size of the disk tier.
const READ_CACHE: &str = "read_cache";
/// Folder of the disk tier.
const READ_CACHE_DIR: &str = "read_cache_dir";
/// Minimum size of a disk tier: two blocks.
const READ_CACHE_BYTES_MIN: u64 = 16 << 20;
/// Minimum of a block, and of a window, which holds at least one block. The minimum of the memory is 16
/// blocks.
const READ_BLOCK_BYTES_MIN: u64 = 64 << 10;
const READ_MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Default of `max_retries`. With waits of 0.1, 0.2, 0.4 … seconds, the retries take some 25 seconds in all.
const MAX_RETRIES_DEFAULT: usize = 8;
/// Default of `retry_timeout`.
const RETRY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);

/// The setting that an option name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionKey {
    S3(AmazonS3ConfigKey),
    Client(ClientConfigKey),
    MaxRetries,
    RetryTimeout,
    ReadBlock,
    ReadWindow,
    ReadMemory,
    ReadCache,
    ReadCacheDir,
}

impl FromStr for OptionKey {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            MAX_RETRIES => return Ok(OptionKey::MaxRetries),
            RETRY_TIMEOUT => return Ok(OptionKey::RetryTimeout),
            READ_BLOCK => return Ok(OptionKey::ReadBlock),
            READ_WINDOW => return Ok(OptionKey::ReadWindow),
            READ_MEMORY => return Ok(OptionKey::ReadMemory),
            READ_CACHE => return Ok(OptionKey::ReadCache),
            READ_CACHE_DIR => return Ok(OptionKey::ReadCacheDir),
            _ => {}
        }
        match name.parse() {
            Ok(AmazonS3ConfigKey::Client(key)) => Ok(OptionKey::Client(key)),
            // The URL names the bucket, so the option is refused.
            Ok(AmazonS3ConfigKey::Bucket) => Err(Error::usage_with_hint(
                format!("storage option `{name}` is not taken"),
                "the URL names the bucket: s3://bucket/key",
            )),
            Ok(key) => Ok(OptionKey::S3(key)),
            Err(_) => {
                let names: Vec<&str> = S3_OPTION_NAMES
                    .into_iter()
                    .chain(CLIENT_OPTION_NAMES)
                    .chain([MAX_RETRIES, RETRY_TIMEOUT, READ_BLOCK, READ_WINDOW, READ_MEMORY])
                    .chain([READ_CACHE, READ_CACHE_DIR])
                    .collect();
                let plain = name.strip_prefix("aws_").unwrap_or(name);
                Err(Error::usage(
                    match suggestions::nearest_candidate(plain, names.iter().copied()) {
                        Some(nearest) => {
                            format!("unknown storage option `{name}`; did you mean `{nearest}`?")
                        }
                        None => suggestions::unknown_name_message("storage option", name, &names),
                    },
                ))
            }
        }
    }
}

impl StorageOptions {
    /// Creates the options of a posted query. The rules for posted options are checked here, and again at
    /// each use.
    ///
    /// # Errors
    /// [`Error::Usage`] for an option that a posted query may not set, for a value beyond the limit of its
    /// option, and for an endpoint without credentials of its own. Also the errors of [`set`](Self::set).
    pub fn from_posted_query(
        pairs: impl IntoIterator<Item = (String, String)>,
    ) -> Result<StorageOptions> {
        let pairs: Vec<(String, String)> = pairs.into_iter().collect();
        posted_options::check_posted_options(
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())),
        )?;
        let mut options = StorageOptions { is_posted: true, ..StorageOptions::default() };
        pairs.into_iter().try_for_each(|(name, value)| options.set(&name, value))?;
        Ok(options)
    }

    /// Sets an option. A later value replaces an earlier one of the same option.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown name, with the nearest known one, and for an invalid value. The
    /// message does not show the value, which may be a secret in the wrong place.
    pub fn set(&mut self, name: &str, value: impl Into<String>) -> Result<()> {
        if name.trim().is_empty() || !is_plausible_option_name(name.trim()) {
            return Err(Error::usage_with_hint(
                "a storage option is written as NAME=VALUE, and what was given has no name in it",
                "such as region=eu-west-1 or timeout=10s",
            ));
        }
        let name = name.trim().to_ascii_lowercase();
        let key: OptionKey = name.parse()?;
        let value = value.into();
        check_option_value(&name, &key, &value)?;
        // `aws_region` and `region` are one option.
        self.values_by_name
            .retain(|other, _| other.parse::<OptionKey>().is_ok_and(|other| other != key));
        self.values_by_name.insert(name, value);
        Ok(())
    }

    /// Returns a text in which the values of these options and of the environment's are hidden.
    pub(super) fn redact_values(&self, text: &str) -> String {
        let own = self.values_by_name.values().cloned();
        let environment = std::env::vars_os()
            .filter(|(name, _)| name.to_string_lossy().to_ascii_uppercase().starts_with("AWS_"))
            .filter_map(|(_, value)| value.into_string().ok());
        // Keep short values such as `1` and `true`: they are not secret, and occur in many words.
        let mut values: Vec<String> =
            own.chain(environment).filter(|value| value.len() > 4).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.iter().fold(text.to_owned(), |text, value| text.replace(value.as_str(), "…"))
    }

    /// Sets the job name, whose own read history takes precedence in automatic tuning.
    pub fn set_job_name(&mut self, name: &str) {
        name.clone_into(&mut self.job_name);
    }

    /// Returns these options merged with the environment's, for processes with another environment. The
    /// values may be secrets.
    pub fn worker_options(&self) -> BTreeMap<String, String> {
        let of_environment = self.environment_settings(environment_variables());
        let mut all: BTreeMap<String, String> = of_environment
            .into_iter()
            .filter(|(_, key, _)| *key != AmazonS3ConfigKey::Bucket)
            .map(|(name, _, value)| (name, value))
            .collect();
        // `aws_region` and `region` are one option; the own value replaces the environment's.
        for (name, value) in &self.values_by_name {
            let key = name.parse::<OptionKey>();
            all.retain(|other, _| match (other.parse::<OptionKey>(), &key) {
                (Ok(other), Ok(key)) => other != *key,
                _ => true,
            });
            all.insert(name.clone(), value.clone());
        }
        all
    }

    /// Returns the `AWS_*` settings among environment variables, except those that these options replace.
    fn environment_settings(
        &self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Vec<(String, AmazonS3ConfigKey, String)> {
        let of_stores = variables.filter_map(|(name, value)| {
            // An empty variable counts as unset.
            let is_set = name.starts_with("AWS_") && !value.is_empty();
            let name = Some(name).filter(|_| is_set)?.to_ascii_lowercase();
            let key = name.parse().ok()?;
            Some((name, key, value))
        });
        of_stores.filter(|(_, key, _)| !self.replaces_environment(*key)).collect()
    }

    /// Returns true if these options replace a setting of the environment: credentials are one set, and so
    /// are the settings of an endpoint.
    fn replaces_environment(&self, key: AmazonS3ConfigKey) -> bool {
        use AmazonS3ConfigKey as K;
        match key {
            K::Token
            | K::WebIdentityTokenFile
            | K::RoleArn
            | K::RoleSessionName
            | K::StsEndpoint
            | K::ContainerCredentialsRelativeUri
            | K::ContainerCredentialsFullUri
            | K::ContainerAuthorizationTokenFile
            | K::MetadataEndpoint
            | K::ImdsV1Fallback
            | K::SkipSignature => self.has_keys() || self.skips_signature(),
            K::AccessKeyId | K::SecretAccessKey => self.has_keys() || self.skips_signature(),
            // Two names of one setting.
            K::Region | K::DefaultRegion => {
                self.has_s3_option(|key| matches!(key, K::Region | K::DefaultRegion))
            }
            K::Endpoint | K::S3Endpoint => self.has_endpoint(),
            // The environment's customer key is part of its credentials. Clients that run as their own user
            // may use it with other keys, clients of a cluster may not.
            K::Encryption(_) => {
                (self.is_posted || address_guard::is_guarded())
                    && (self.has_endpoint() || self.has_keys() || self.skips_signature())
            }
            _ => false,
        }
    }

    fn has_s3_option(&self, is_wanted: impl Fn(AmazonS3ConfigKey) -> bool) -> bool {
        self.parsed_options().any(|(_, key, _)| matches!(key, OptionKey::S3(key) if is_wanted(key)))
    }

    fn has_keys(&self) -> bool {
        use AmazonS3ConfigKey::{AccessKeyId, SecretAccessKey};
        self.has_s3_option(|key| matches!(key, AccessKeyId | SecretAccessKey))
    }

    fn has_endpoint(&self) -> bool {
        self.has_s3_option(|key| {
            matches!(key, AmazonS3ConfigKey::Endpoint | AmazonS3ConfigKey::S3Endpoint)
        })
    }

    fn skips_signature(&self) -> bool {
        self.parsed_options().any(|(_, key, value)| {
            key == OptionKey::S3(AmazonS3ConfigKey::SkipSignature)
                && parse_bool(value) == Some(true)
        })
    }

    /// Returns names and values of all options. The values may be secrets.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values_by_name.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns true if no option is set.
    pub fn is_empty(&self) -> bool {
        self.values_by_name.is_empty()
    }

    /// Returns these options, overridden by others.
    #[must_use]
    pub fn with_overrides(&self, over: &StorageOptions) -> StorageOptions {
        let mut all = self.clone();
        all.is_posted |= over.is_posted;
        if !over.job_name.is_empty() {
            all.job_name.clone_from(&over.job_name);
        }
        for (name, value) in &over.values_by_name {
            // Both were checked when they were set.
            let _ = all.set(name, value.clone());
        }
        all
    }

    fn parsed_options(&self) -> impl Iterator<Item = (&str, OptionKey, &str)> {
        self.values_by_name
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), name.parse().ok()?, value.as_str())))
    }

    /// Returns the S3 settings: the environment's, overridden by these options.
    ///
    /// # Errors
    /// [`Error::Usage`] for a region, an endpoint or credentials that cannot be part of a request, and for
    /// options that a posted query may not set.
    pub(super) fn s3_settings(&self) -> Result<S3Settings> {
        self.s3_settings_with_environment(environment_variables())
    }

    fn s3_settings_with_environment(
        &self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<S3Settings> {
        if self.is_posted {
            posted_options::check_posted_options(self.pairs())?;
        }
        let mut builder = AmazonS3Builder::new();
        for (_, key, value) in self.environment_settings(variables) {
            builder = builder.with_config(key, value);
        }
        for (_, key, value) in self.parsed_options() {
            match key {
                OptionKey::S3(key) => builder = builder.with_config(key, value),
                OptionKey::Client(key) => {
                    builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
                }
                _ => {}
            }
        }
        let retry = self.retry_config()?;
        let mut settings = S3Settings { builder: builder.with_retry(retry) };
        settings.check_environment()?;
        if self.is_posted {
            self.check_region(&settings)?;
            self.check_s3_express(&settings)?;
        }
        if settings.non_empty_value(AmazonS3ConfigKey::Region).is_none() {
            // An empty variable counts as unset.
            settings.builder = settings.builder.with_region(REGION_DEFAULT);
        }
        Ok(settings)
    }

    /// Refuses a region of a posted query that would send the environment's credentials to a host that is not
    /// a region's. The region is part of the host's name, and `sts.s3.amazonaws.com` is somebody's bucket.
    fn check_region(&self, settings: &S3Settings) -> Result<()> {
        use AmazonS3ConfigKey::{
            DefaultRegion, Region, RoleArn, S3Express, StsEndpoint, WebIdentityTokenFile,
        };
        let is_given = self.has_s3_option(|key| matches!(key, Region | DefaultRegion));
        if !is_given || self.has_keys() || self.skips_signature() {
            return Ok(());
        }
        let asks_sts = [WebIdentityTokenFile, RoleArn].iter().all(|key| settings.is_set(*key))
            && !settings.is_set(StsEndpoint);
        let is_in_host =
            settings.endpoint().is_none() || settings.is_enabled(S3Express) || asks_sts;
        match settings
            .non_empty_value(Region)
            .is_some_and(|region| is_in_host && !is_aws_region(&region))
        {
            false => Ok(()),
            true => Err(Error::usage_with_hint(
                "storage option `region` is no region of AWS, and the cluster's credentials go nowhere else",
                "such as eu-west-1; or give credentials of your own",
            )),
        }
    }

    /// Refuses `s3_express` of a posted query if it would send the environment's credentials to AWS although
    /// the environment has a store of its own: sessions begin at a host of AWS, whatever the endpoint is.
    fn check_s3_express(&self, settings: &S3Settings) -> Result<()> {
        let is_given = self.has_s3_option(|key| key == AmazonS3ConfigKey::S3Express)
            && settings.is_enabled(AmazonS3ConfigKey::S3Express);
        let has_credentials = self.has_keys() || self.skips_signature();
        match is_given && !has_credentials && settings.endpoint().is_some() {
            false => Ok(()),
            true => Err(Error::usage_with_hint(
                "storage option `s3_express` leads to AWS, and the cluster's credentials are for another store",
                "leave it out, or give credentials of your own: access_key_id and secret_access_key",
            )),
        }
    }

    /// Returns the HTTP client's options. `plain` allows `http://`.
    pub(super) fn client_options(&self, plain: bool) -> Result<ClientOptions> {
        let mut options = ClientOptions::new().with_allow_http(plain);
        for (name, key, value) in self.parsed_options() {
            match key {
                OptionKey::Client(key) => options = options.with_config(key, value),
                OptionKey::S3(_) => {
                    return Err(Error::usage_with_hint(
                        format!("storage option `{name}` has no meaning for http:// and https://"),
                        "it belongs to s3://; remove it",
                    ));
                }
                _ => {}
            }
        }
        Ok(options)
    }

    /// Returns the limits of retries.
    pub(super) fn retry_config(&self) -> Result<RetryConfig> {
        let mut retry = RetryConfig {
            max_retries: MAX_RETRIES_DEFAULT,
            retry_timeout: RETRY_TIMEOUT_DEFAULT,
            ..RetryConfig::default()
        };
        for (_, key, value) in self.parsed_options() {
            match key {
                OptionKey::MaxRetries => retry.max_retries = parse_retries(value)?,
                OptionKey::RetryTimeout => {
                    retry.retry_timeout = parse_duration_option(RETRY_TIMEOUT, value)?
                }
                _ => {}
            }
        }
        Ok(retry)
    }

    /// Returns block and window of prefetching, and the part of them that is chosen automatically, if any is.
    /// The memory is not among them: it comes from the run's budget.
    pub(super) fn read_options(
        &self,
    ) -> Result<(tidemill_prefetch::Options, Option<AutoReadOptions>)> {
        let mut reading = tidemill_prefetch::Options::default();
        let (mut block, mut window, mut is_auto) = (None, None, false);
        for (_, key, value) in self.parsed_options() {
            match key {
                OptionKey::ReadBlock | OptionKey::ReadWindow if is_auto_value(value) => {
                    is_auto = true
                }
                OptionKey::ReadBlock => block = Some(parse_size_option(READ_BLOCK, value)?),
                OptionKey::ReadWindow => window = Some(parse_size_option(READ_WINDOW, value)?),
                _ => {}
            }
        }
        let auto = is_auto.then(|| {
            // An option that is neither set nor `auto` has its default.
            let is_chosen = |wanted| {
                self.parsed_options().any(|(_, key, value)| key == wanted && is_auto_value(value))
            };
            let given = |value: Option<u64>, wanted, default| match value {
                None if !is_chosen(wanted) => Some(default),
                value => value,
            };
            AutoReadOptions {
                block_bytes: given(block, OptionKey::ReadBlock, reading.block_bytes),
                window_bytes: given(window, OptionKey::ReadWindow, reading.window_bytes),
                job_name: self.job_name.clone(),
            }
        });
        reading.block_bytes = block.unwrap_or(reading.block_bytes);
        // A default window is enlarged to hold a block.
        reading.window_bytes = window.unwrap_or(reading.window_bytes.max(reading.block_bytes));
        if let Some(auto) = auto.as_ref().filter(|auto| auto.block_bytes.is_none()) {
            reading = auto.default_read_options();
        }
        if reading.window_bytes < reading.block_bytes {
            return Err(Error::usage_with_hint(
                format!(
                    "`{READ_WINDOW}` is {}, less than a `{READ_BLOCK}` of {}",
                    format_binary_bytes(reading.window_bytes),
                    format_binary_bytes(reading.block_bytes)
                ),
                "a window is some blocks: give a larger window or smaller blocks",
            ));
        }
        Ok((reading, auto))
    }

    /// Returns the name of one option about reading, if any is set.
    pub fn first_read_option(&self) -> Option<&str> {
        let is_read = |key| {
            use OptionKey::{ReadBlock, ReadCache, ReadCacheDir, ReadMemory, ReadWindow};
            matches!(key, ReadBlock | ReadWindow | ReadMemory | ReadCache | ReadCacheDir)
        };
        self.parsed_options().find(|(_, key, _)| is_read(*key)).map(|(name, _, _)| name)
    }

    /// Returns the disk tier that `read_cache` and `read_cache_dir` describe, if there is one.
    pub(super) fn disk_tier_settings(&self) -> Result<Option<DiskTierSettings>> {
        let (mut limit_bytes, mut folder) = (0, None);
        for (_, key, value) in self.parsed_options() {
            match key {
                OptionKey::ReadCache => limit_bytes = parse_size_option(READ_CACHE, value)?,
                OptionKey::ReadCacheDir => folder = Some(PathBuf::from(value)),
                _ => {}
            }
        }
        if limit_bytes == 0 {
            return Ok(None);
        }
        let Some(folder) = folder.or_else(|| cache_folder().map(|folder| folder.join("objects")))
        else {
            return Err(Error::usage_with_hint(
                format!("`{READ_CACHE}` has no folder: neither XDG_CACHE_HOME nor HOME is set"),
                format!("name one: `{READ_CACHE_DIR}`"),
            ));
        };
        Ok(Some(DiskTierSettings { folder, limit_bytes }))
    }

    /// Returns the memory for prefetched bytes, if `read_memory` is set.
    pub fn read_memory_bytes(&self) -> Option<u64> {
        let set = self.parsed_options().find(|(_, key, _)| *key == OptionKey::ReadMemory);
        // The value was checked when it was set.
        set.and_then(|(_, _, value)| parse_size_option(READ_MEMORY, value).ok())
    }
}

/// The `object_store` settings of a bucket.
pub(super) struct S3Settings {
    pub(super) builder: AmazonS3Builder,
}

impl S3Settings {
    /// Returns a setting, unless it is empty.
    fn non_empty_value(&self, key: AmazonS3ConfigKey) -> Option<String> {
        self.builder.get_config_value(&key).filter(|value| !value.is_empty())
    }

    /// Refuses settings of the environment that would lead to another host, or that cannot be in a header:
    /// the client would panic on the latter.
    fn check_environment(&self) -> Result<()> {
        use AmazonS3ConfigKey::{AccessKeyId, Region, Token};
        let of_environment = "the environment's ";
        if self.endpoint().is_some_and(|endpoint| !is_valid_endpoint(&endpoint)) {
            return Err(Error::usage_with_hint(
                format!("{of_environment}AWS_ENDPOINT_URL or AWS_ENDPOINT_URL_S3 is no URL"),
                ENDPOINT_HINT,
            ));
        }
        if self.non_empty_value(Region).is_some_and(|region| !is_valid_region(&region)) {
            return Err(Error::usage_with_hint(
                format!("{of_environment}AWS_REGION or AWS_DEFAULT_REGION is no region"),
                REGION_HINT,
            ));
        }
        for (key, name) in [(AccessKeyId, "AWS_ACCESS_KEY_ID"), (Token, "AWS_SESSION_TOKEN")] {
            if self.non_empty_value(key).is_some_and(|value| !is_valid_header_value(&value)) {
                return Err(Error::usage_with_hint(
                    format!("{of_environment}{name} has a blank or a line end in it"),
                    HEADER_HINT,
                ));
            }
        }
        Ok(())
    }

    /// Returns the settings for a bucket. Where its name is part of the host, it is added to an endpoint that
    /// does not begin with it: `object_store` takes such an endpoint for the bucket's own, and would ask
    /// another bucket.
    ///
    /// # Errors
    /// [`Error::Usage`] if the endpoint is an address, of which no name can be a part.
    pub(super) fn for_bucket(self, name: &str) -> Result<S3Settings> {
        let Some(endpoint) = self.endpoint() else { return Ok(self) };
        if !self.is_enabled(AmazonS3ConfigKey::VirtualHostedStyleRequest) {
            return Ok(self);
        }
        let Ok(mut url) = url::Url::parse(&endpoint) else { return Ok(self) };
        match url.host() {
            Some(url::Host::Domain(host)) if host != name && !is_bucket_subdomain(host, name) => {
                let host = format!("{name}.{host}");
                url.set_host(Some(&host)).map_err(|error| {
                    Error::usage(format!("`{name}` cannot be part of the host `{host}`: {error}"))
                })?;
                let endpoint = url.as_str().trim_end_matches('/');
                let builder = self.builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
                Ok(S3Settings { builder })
            }
            Some(url::Host::Ipv4(_) | url::Host::Ipv6(_)) => Err(Error::usage_with_hint(
                format!(
                    "`virtual_hosted_style_request` of `s3://{name}`: the endpoint is an address, not a name"
                ),
                "the bucket's name is part of the host then; leave the option out, or name the host",
            )),
            _ => Ok(self),
        }
    }

    fn is_set(&self, key: AmazonS3ConfigKey) -> bool {
        self.non_empty_value(key).is_some()
    }

    /// Returns true if a setting is a truth value that is true.
    pub(super) fn is_enabled(&self, key: AmazonS3ConfigKey) -> bool {
        self.non_empty_value(key).is_some_and(|value| parse_bool(&value) == Some(true))
    }

    /// Checks the zone in the name of a directory bucket, which is part of the host where its sessions begin
    /// (`BUCKET.s3express-ZONE.REGION.amazonaws.com`). A `.` in it could make that another host of AWS.
    ///
    /// # Errors
    /// [`Error::Usage`] if `s3_express` is set and the zone is not a part of a label.
    pub(super) fn check_directory_bucket_zone(&self, bucket: &str) -> Result<()> {
        let zone = directory_bucket_zone(bucket).filter(|zone| !is_valid_zone(zone));
        match zone.filter(|_| self.is_enabled(AmazonS3ConfigKey::S3Express)) {
            None => Ok(()),
            Some(_) => Err(Error::usage_with_hint(
                format!("`{bucket}` is no directory bucket: its zone is no label of a host"),
                "lowercase letters, digits and hyphens, such as NAME--usw2-az1--x-s3",
            )),
        }
    }

    /// Returns the endpoint, if requests do not go to AWS. It is part of a bucket's identity.
    pub(super) fn endpoint(&self) -> Option<String> {
        self.non_empty_value(AmazonS3ConfigKey::S3Endpoint)
            .or_else(|| self.non_empty_value(AmazonS3ConfigKey::Endpoint))
    }

    /// Returns true if no setting supplies credentials, so that only the machine's metadata service might.
    pub(super) fn needs_machine_credentials(&self) -> bool {
        use AmazonS3ConfigKey as K;
        !(self.is_set(K::AccessKeyId)
            || self.is_set(K::SecretAccessKey)
            || self.is_enabled(K::SkipSignature)
            || (self.is_set(K::WebIdentityTokenFile) && self.is_set(K::RoleArn))
            || self.is_set(K::ContainerCredentialsRelativeUri)
            || self.is_set(K::ContainerCredentialsFullUri))
    }
}

const ENDPOINT_HINT: &str = "such as https://storage.example.com:9000";
const REGION_HINT: &str = "letters, digits and hyphens, such as eu-west-1";
const HEADER_HINT: &str = "a variable that was read from a file may end with that file's line end";
const REGION_DEFAULT: &str = "us-east-1";
/// Maximum length of a label in a host's name, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// Returns the environment variables whose name and value are UTF-8.
fn environment_variables() -> impl Iterator<Item = (String, String)> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text)
}

/// Returns true if a value is a valid endpoint. The client panics on a value that is not the URL of a host.
/// Keys are appended to the endpoint, so it must not contain `?` or `#`.
fn is_valid_endpoint(value: &str) -> bool {
    value.bytes().all(|b| b.is_ascii_graphic())
        && url::Url::parse(value).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.query().is_none()
                && url.fragment().is_none()
        })
}

/// Returns true if a region is valid as a label of a host's name. It becomes part of the host
/// (`s3.REGION.amazonaws.com`), and a `/`, `@` or `.` in it could make that any host.
fn is_valid_region(value: &str) -> bool {
    (1..=LABEL_BYTES_MAX).contains(&value.len())
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !value.starts_with('-')
        && !value.ends_with('-')
}

/// Returns true if a region has the form of an AWS region, such as `us-gov-west-1`.
fn is_aws_region(value: &str) -> bool {
    let mut parts = value.rsplit('-');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_word = |part: &str| part.len() >= 2 && part.bytes().all(|b| b.is_ascii_lowercase());
    parts.next().is_some_and(is_number) && parts.clone().count() >= 2 && parts.all(is_word)
}

/// Returns the zone in the name of a directory bucket (`NAME--ZONE--x-s3`), as `object_store` finds it.
fn directory_bucket_zone(bucket: &str) -> Option<&str> {
    let name = bucket.strip_suffix("--x-s3").or_else(|| bucket.strip_suffix("--xa-s3"))?;
    name.rsplit_once("--").map(|(_, zone)| zone)
}

/// Returns true if a zone is valid in the label `s3express-ZONE`.
fn is_valid_zone(value: &str) -> bool {
    const PREFIX: &str = "s3express-";
    (1..=LABEL_BYTES_MAX - PREFIX.len()).contains(&value.len())
        && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !value.ends_with('-')
}

/// Returns true if a value is valid in a header. The client panics on other values.
fn is_valid_header_value(value: &str) -> bool {
    value.bytes().all(|b| b.is_ascii_graphic())
}

/// Returns true if a word looks like an option name and not, for example, like a secret key without a name.
pub(super) fn is_plausible_option_name(name: &str) -> bool {
    let is_one_case = !name.bytes().any(|b| b.is_ascii_lowercase())
        || !name.bytes().any(|b| b.is_ascii_uppercase());
    name.len() <= 48
        && is_one_case
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Returns true if the first labels of a host are a bucket's name.
fn is_bucket_subdomain(host: &str, bucket: &str) -> bool {
    host.strip_prefix(bucket).is_some_and(|rest| rest.starts_with('.'))
}

/// Refuses a value that is invalid for its option.
fn check_option_value(name: &str, key: &OptionKey, value: &str) -> Result<()> {
    use AmazonS3ConfigKey as S3;
    use ClientConfigKey as C;
    match key {
        OptionKey::MaxRetries => drop(parse_retries(value)?),
        OptionKey::RetryTimeout => drop(parse_duration_option(RETRY_TIMEOUT, value)?),
        OptionKey::ReadBlock | OptionKey::ReadWindow if is_auto_value(value) => {}
        OptionKey::ReadBlock => check_size_at_least(READ_BLOCK, value, READ_BLOCK_BYTES_MIN)?,
        OptionKey::ReadWindow => check_size_at_least(READ_WINDOW, value, READ_BLOCK_BYTES_MIN)?,
        OptionKey::ReadMemory => check_size_at_least(READ_MEMORY, value, READ_MEMORY_BYTES_MIN)?,
        // A size of 0 is valid: it means no disk tier.
        OptionKey::ReadCache
            if (1..READ_CACHE_BYTES_MIN).contains(&parse_size_option(READ_CACHE, value)?) =>
        {
            return Err(Error::usage_with_hint(
                format!("storage option `{name}` is {value}, too little to keep blocks in"),
                format!(
                    "the least is {}, and 0 is none",
                    format_binary_bytes(READ_CACHE_BYTES_MIN)
                ),
            ));
        }
        OptionKey::ReadCacheDir if value.is_empty() || value.contains("://") => {
            return Err(Error::usage_with_hint(
                format!("storage option `{name}` is a folder of this machine"),
                "such as /var/tmp/objects",
            ));
        }
        OptionKey::Client(
            C::Timeout
            | C::ConnectTimeout
            | C::PoolIdleTimeout
            | C::Http2KeepAliveInterval
            | C::Http2KeepAliveTimeout,
        ) => drop(parse_duration_option(name, value)?),
        OptionKey::Client(C::PoolMaxIdlePerHost | C::Http2MaxFrameSize)
            if value.trim().parse::<u32>().is_err() =>
        {
            return Err(Error::usage(format!("storage option `{name}` is a number")));
        }
        OptionKey::Client(
            C::AllowHttp
            | C::AllowInvalidCertificates
            | C::Http1Only
            | C::Http2Only
            | C::Http2KeepAliveWhileIdle
            | C::RandomizeAddresses,
        )
        | OptionKey::S3(
            S3::VirtualHostedStyleRequest
            | S3::SkipSignature
            | S3::UnsignedPayload
            | S3::ImdsV1Fallback
            | S3::DisableTagging
            | S3::RequestPayer
            | S3::S3Express,
        ) if parse_bool(value).is_none() => {
            return Err(Error::usage(format!("storage option `{name}` is `true` or `false`")));
        }
        OptionKey::S3(S3::Region | S3::DefaultRegion) if !is_valid_region(value) => {
            return Err(Error::usage_with_hint(
                format!("storage option `{name}` is no region"),
                REGION_HINT,
            ));
        }
        OptionKey::S3(S3::AccessKeyId | S3::Token) if !is_valid_header_value(value) => {
            return Err(Error::usage_with_hint(
                format!("storage option `{name}` has a blank or a line end in it"),
                HEADER_HINT,
            ));
        }
        OptionKey::S3(S3::Endpoint | S3::S3Endpoint) if !is_valid_endpoint(value) => {
            return Err(Error::usage_with_hint(
                format!("storage option `{name}` is a URL, and what was given is none"),
                ENDPOINT_HINT,
            ));
        }
        OptionKey::Client(C::ProxyUrl) if url::Url::parse(value).is_err() => {
            return Err(Error::usage_with_hint(
                format!("storage option `{name}` is a URL, and what was given is none"),
                ENDPOINT_HINT,
            ));
        }
        _ => {}
    }
    Ok(())
}

/// Parses a truth value in the spellings of `object_store`.
pub(super) fn parse_bool(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" | "y" => Some(true),
        "0" | "false" | "off" | "no" | "n" => Some(false),
        _ => None,
    }
}

pub(super) fn parse_retries(value: &str) -> Result<usize> {
    let count = value.trim().parse();
    count.map_err(|_| Error::usage(format!("storage option `{MAX_RETRIES}` is a number")))
}

/// Returns true if a value requests a choice from the read history.
pub(super) fn is_auto_value(value: &str) -> bool {
    value.trim().eq_ignore_ascii_case("auto")
}

/// Parses a size such as `8388608`, `8M` or `8MiB`.
pub(super) fn parse_size_option(name: &str, value: &str) -> Result<u64> {
    match parse_size(value) {
        Some(MemorySize::Bytes(bytes)) => Ok(bytes),
        _ => Err(Error::usage_with_hint(
            format!("storage option `{name}` is a size, and what was given is none"),
            match name {
                READ_BLOCK | READ_WINDOW => {
                    "such as 8M, 512KiB or 1GB; auto chooses one from what past runs saw"
                }
                _ => "such as 8M, 512KiB or 1GB",
            },
        )),
    }
}

fn check_size_at_least(name: &str, value: &str, least: u64) -> Result<()> {
    let bytes = parse_size_option(name, value)?;
    if bytes >= least {
        return Ok(());
    }
    Err(Error::usage_with_hint(
        format!(
            "storage option `{name}` is {}, too little to read ahead with",
            format_binary_bytes(bytes)
        ),
        format!("the least is {}", format_binary_bytes(least)),
    ))
}

/// Parses a duration such as `30`, `30s`, `500ms`, `1m 30s` or `1h`.
pub(super) fn parse_duration_option(name: &str, value: &str) -> Result<Duration> {
    let parsed = || {
        let (mut rest, mut total) = (value.trim(), 0.0);
        loop {
            let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let (number, tail) = rest.split_at(end);
            let end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            let factor = match unit {
                "" | "s" | "sec" | "second" | "seconds" => 1.0,
                "ms" => 1e-3,
                "us" => 1e-6,
                "ns" => 1e-9,
                "m" | "min" | "minute" | "minutes" => 60.0,
                "h" | "hour" | "hours" => 3600.0,
                "d" | "day" | "days" => 86_400.0,
                _ => return None,
            };
            total += number.trim().parse::<f64>().ok()? * factor;
            rest = tail.trim_start();
            if rest.is_empty() {
                return (0.0..1e6).contains(&total).then_some(Duration::from_secs_f64(total));
            }
        }
    };
    parsed().ok_or_else(|| Error::usage(format!("storage option `{name}` is a time such as `30s`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suggested_option_name_is_accepted() {
        for name in S3_OPTION_NAMES.into_iter().chain(CLIENT_OPTION_NAMES) {
            let known = name.parse::<OptionKey>().is_ok()
                || format!("aws_{name}").parse::<OptionKey>().is_ok();
            assert!(known, "{name}");
        }
    }

    #[test]
    fn unknown_option_error_suggests_the_nearest_name() {
        let message = |name: &str| {
            let error = StorageOptions::default().set(name, "hush").unwrap_err();
            tidemill_base::Error::from(error).to_string()
        };
        assert_eq!(
            message("aws_regoin"),
            "unknown storage option `aws_regoin`; did you mean `region`?"
        );
        assert!(message("acces_key").contains("did you mean `access_key_id`?"));
        assert!(message("bucket").contains("the URL names the bucket"));
        assert!(message("xyzzy").contains("endpoint_url"), "{}", message("xyzzy"));
        assert!(!message("xyzzy").contains("hush"));
    }

    #[test]
    fn aliases_set_one_option_and_debug_hides_values() {
        let mut options = StorageOptions::default();
        options.set("aws_region", "a").unwrap();
        options.set("REGION", "b").unwrap();
        assert_eq!(options.values_by_name.len(), 1);
        options.set("secret_access_key", "hush").unwrap();
        assert_eq!(format!("{options:?}"), r#"{"region", "secret_access_key"}"#);
        let mut over = StorageOptions::default();
        over.set("aws_secret_access_key", "other").unwrap();
        assert_eq!(options.with_overrides(&over).values_by_name.len(), 2);
        assert_eq!(options.with_overrides(&over).values_by_name["aws_secret_access_key"], "other");
    }

    #[test]
    fn read_options_are_parsed_and_checked_together() {
        let with = |pairs: &[(&str, &str)]| {
            let mut options = StorageOptions::default();
            pairs.iter().try_for_each(|(name, value)| options.set(name, *value))?;
            Ok((options.read_options()?.0, options.read_memory_bytes()))
        };
        let (reading, memory) = with(&[]).unwrap();
        assert_eq!((reading, memory), (tidemill_prefetch::Options::default(), None));
        let set = [("read_block", "1M"), ("read_window", "4MiB"), ("read_memory", "67108864")];
        let (reading, memory) = with(&set).unwrap();
        assert_eq!((reading.block_bytes, reading.window_bytes), (1 << 20, 4 << 20));
        assert_eq!(memory, Some(64 << 20));
        // The default window grows to hold a larger block.
        assert_eq!(with(&[("read_block", "1G")]).unwrap().0.window_bytes, 1 << 30);
        let auto = |pairs: &[(&str, &str)]| {
            let mut options = StorageOptions::default();
            pairs.iter().for_each(|(name, value)| options.set(name, *value).unwrap());
            let (reading, auto) = options.read_options().unwrap();
            let auto = auto.map(|auto| (auto.block_bytes, auto.window_bytes));
            (reading.block_bytes >> 20, reading.window_bytes >> 20, auto)
        };
        for (pairs, expected) in [
            (&[("read_block", "4M")][..], (4, 256, None)),
            (&[("read_block", "auto")], (8, 256, Some((None, Some(256 << 20))))),
            (&[("read_window", " Auto ")], (8, 256, Some((Some(8 << 20), None)))),
            (&[("read_block", "auto"), ("read_window", "auto")], (8, 256, Some((None, None)))),
            (&[("read_block", "auto"), ("read_window", "4M")], (4, 4, Some((None, Some(4 << 20))))),
        ] {
            assert_eq!(auto(pairs), expected, "{pairs:?}");
        }
        for (pairs, expected) in [
            (&[("read_block", "1")][..], "the least is 64 KiB"),
            (&[("read_memory", "1K")], "the least is 1 MiB"),
            (&[("read_window", "much")], "auto chooses one"),
            (&[("read_memory", "auto")], "such as 8M"),
            (&[("read_window", "50%")], "such as 8M"),
            (&[("read_window", "1M")], "less than a `read_block` of 8 MiB"),
            (&[("read_cache", "1M")], "the least is 16 MiB, and 0 is none"),
            (&[("read_cache", "much")], "such as 8M"),
            (&[("read_cache_dir", "s3://b/x")], "a folder of this machine"),
        ] {
            let error: Result<(tidemill_prefetch::Options, Option<u64>)> = with(pairs);
            let message = tidemill_base::Error::from(error.unwrap_err()).to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn disk_tier_is_off_by_default() {
        let with = |pairs: &[(&str, &str)]| {
            let mut options = StorageOptions::default();
            pairs.iter().for_each(|(name, value)| options.set(name, *value).unwrap());
            options.disk_tier_settings().unwrap()
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("read_cache_dir", "/x")]), None);
        assert_eq!(with(&[("read_cache", "0"), ("read_cache_dir", "/x")]), None);
        let kept = with(&[("read_cache", "1G"), ("read_cache_dir", "/x")]).unwrap();
        assert_eq!((kept.folder, kept.limit_bytes), (PathBuf::from("/x"), 1 << 30));
    }

    #[test]
    fn credentials_of_the_environment_and_of_options_are_not_mixed() {
        let environment = [
            ("AWS_ACCESS_KEY_ID", "hush-id"),
            ("AWS_SECRET_ACCESS_KEY", "hush-secret"),
            ("AWS_SESSION_TOKEN", "hush-token"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/hush"),
            ("AWS_ROLE_ARN", "hush-role"),
            ("AWS_ROLE_SESSION_NAME", "hush"),
            ("AWS_ENDPOINT_URL_STS", "http://sts"),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/hush"),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://hush"),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/hush"),
            ("AWS_METADATA_ENDPOINT", "http://hush"),
            ("AWS_IMDSV1_FALLBACK", "true"),
            ("AWS_SKIP_SIGNATURE", "true"),
            ("AWS_SSE_CUSTOMER_KEY_BASE64", "hush"),
            ("AWS_SERVER_SIDE_ENCRYPTION", "sse-c"),
            ("AWS_ENDPOINT_URL", "http://own"),
            ("AWS_ENDPOINT_URL_S3", "http://own"),
            ("AWS_REGION", "eu-west-1"),
            ("AWS_ALLOW_HTTP", "true"),
            // Not options of a store.
            ("AWS_PROFILE", "x"),
            ("HOME", "/"),
        ];
        let variables =
            || environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let left = |options: &StorageOptions| -> Vec<String> {
            options.environment_settings(variables()).into_iter().map(|(name, ..)| name).collect()
        };
        let options = |is_posted: bool, pairs: &[(&str, &str)]| {
            let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            if is_posted {
                return StorageOptions::from_posted_query(owned).unwrap();
            }
            let mut options = StorageOptions::default();
            pairs.iter().for_each(|(name, value)| options.set(name, *value).unwrap());
            options
        };
        let all = left(&StorageOptions::default());
        assert_eq!(all.len(), 19, "{all:?}");
        // Both names are of one setting.
        for region in ["region", "default_region"] {
            let others = all.iter().filter(|name| *name != "aws_region").cloned();
            let others: Vec<String> = others.collect();
            assert_eq!(left(&options(true, &[(region, "eu-west-1"), ("timeout", "9s")])), others);
        }
        let keys = [("access_key_id", "a"), ("secret_access_key", "b")];
        let customers = ["aws_sse_customer_key_base64", "aws_server_side_encryption"];
        let endpoints = ["aws_endpoint_url", "aws_endpoint_url_s3"];
        let others = ["aws_region", "aws_allow_http"];
        for is_posted in [false, true] {
            // A posted query with its own credentials gets no customer key of the environment.
            let customers = if is_posted { &[][..] } else { &customers[..] };
            let with_keys = left(&options(is_posted, &keys));
            assert_eq!(with_keys, [customers, &endpoints, &others].concat());
            // The environment does not complete half a pair of keys. A posted query with half a pair is
            // refused.
            if !is_posted {
                assert_eq!(left(&options(false, &keys[..1])), with_keys);
                assert_eq!(left(&options(false, &keys[1..])), with_keys);
            }
            let unsigned = left(&options(is_posted, &[("skip_signature", "true")]));
            assert_eq!(unsigned, [customers, &endpoints, &others].concat());
            let elsewhere = [("endpoint", "http://other"), ("skip_signature", "yes")];
            let elsewhere = left(&options(is_posted, &elsewhere));
            assert_eq!(elsewhere, [customers, &others[..]].concat());
        }
        // An empty variable counts as unset.
        let empty = [("AWS_SESSION_TOKEN".to_owned(), String::new())].into_iter();
        assert!(StorageOptions::default().environment_settings(empty).is_empty());
        let settings = options(true, &keys).s3_settings_with_environment(variables()).unwrap();
        let value = |key| settings.builder.get_config_value(&key);
        assert_eq!(value(AmazonS3ConfigKey::AccessKeyId).as_deref(), Some("a"));
        assert_eq!(value(AmazonS3ConfigKey::Token), None);
        assert!(!settings.needs_machine_credentials());
    }

    #[test]
    fn bucket_in_the_host_is_added_to_an_endpoint_without_it() {
        for (endpoint, expected) in [
            ("http://store:9000", Some("http://b.store:9000")),
            ("http://b.store:9000/", Some("http://b.store:9000/")),
            ("https://bb.store", Some("https://b.bb.store")),
            ("https://b", Some("https://b")),
            ("http://127.0.0.1:9000", None),
            ("http://[::1]:9000", None),
        ] {
            for name in ["endpoint", "aws_endpoint_url_s3"] {
                let mut options = StorageOptions::default();
                options.set(name, endpoint).unwrap();
                assert_eq!(
                    options.s3_settings().unwrap().for_bucket("b").unwrap().endpoint().as_deref(),
                    Some(endpoint)
                );
                options.set("virtual_hosted_style_request", "true").unwrap();
                let settings = options.s3_settings().unwrap().for_bucket("b");
                match (settings, expected) {
                    (Ok(settings), Some(expected)) => {
                        assert_eq!(settings.endpoint().as_deref(), Some(expected), "{name}");
                    }
                    (Err(Error::Usage { message, .. }), None) => {
                        assert!(message.contains("the endpoint is an address"), "{message}");
                    }
                    (settings, _) => panic!("{endpoint}: {:?}", settings.map(|it| it.endpoint())),
                }
            }
        }
    }

    #[test]
    fn region_is_a_host_label_and_an_aws_region_with_environment_credentials() {
        for (region, is_one, is_of_aws) in [
            ("eu-west-1", true, true),
            ("us-gov-west-1", true, true),
            ("us-isob-east-1", true, true),
            ("ap-southeast-12", true, true),
            ("auto", true, false),
            ("garage", true, false),
            ("s3", true, false),
            ("elb", true, false),
            ("compute-1", true, false),
            ("US-EAST-1", true, false),
            ("us--1", true, false),
            ("eu-west-1a", true, false),
            ("", false, false),
            ("-x", false, false),
            ("x-", false, false),
            ("a.b", false, false),
            ("a/b", false, false),
            ("a@b", false, false),
            ("a:1", false, false),
            ("a b", false, false),
            ("a\n", false, false),
            ("é", false, false),
        ] {
            assert_eq!(
                (is_valid_region(region), is_aws_region(region)),
                (is_one, is_of_aws),
                "{region}"
            );
        }
        assert!(!is_valid_region(&"x".repeat(64)));
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        let role = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/x"), ("AWS_ROLE_ARN", "x")];
        let endpoint = [("AWS_ENDPOINT_URL", "http://minio:9000")];
        let sts = [("AWS_ENDPOINT_URL_STS", "https://sts.example")];
        let opened = |environment: &[&[(&str, &str)]], options: &StorageOptions| {
            let environment = environment.concat().into_iter();
            options
                .s3_settings_with_environment(
                    environment.map(|(name, value)| (name.to_owned(), value.to_owned())),
                )
                .is_ok()
        };
        let posted = |region: &str| {
            StorageOptions::from_posted_query([("region".to_owned(), region.to_owned())]).unwrap()
        };
        for (environment, is_opened) in [
            (&[&keys[..]][..], false),
            (&[&role], false),
            (&[], false),
            (&[&keys, &endpoint], true),
            (&[&role, &endpoint], false),
            (&[&role, &endpoint, &sts], true),
        ] {
            assert_eq!(opened(environment, &posted("garage")), is_opened, "{environment:?}");
            assert!(opened(environment, &posted("eu-west-1")), "{environment:?}");
        }
        let mut own = StorageOptions::default();
        own.set("region", "garage").unwrap();
        assert!(opened(&[&keys], &own));
        // An empty variable counts as unset.
        assert!(opened(&[&keys, &[("AWS_REGION", "")]], &StorageOptions::default()));
        for (name, value) in [("AWS_REGION", "a/b"), ("AWS_SESSION_TOKEN", "a\nb")] {
            assert!(!opened(&[&keys, &[(name, value)]], &StorageOptions::default()), "{name}");
        }
    }

    #[test]
    fn posted_s3_express_keeps_environment_credentials_at_the_environments_store() {
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        let endpoint = [("AWS_ENDPOINT_URL", "http://minio:9000")];
        let own = [("access_key_id", "c"), ("secret_access_key", "d")];
        let unsigned = [("skip_signature", "true")];
        let expresses = [("s3_express", "true")];
        let check = |environment: &[&[(&str, &str)]],
                     options: &[&[(&str, &str)]],
                     expected: Option<&str>| {
            let owned = |pairs: &[&[(&str, &str)]]| {
                let pairs = pairs.concat().into_iter();
                pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>()
            };
            let options = StorageOptions::from_posted_query(owned(options)).unwrap();
            match (options.s3_settings_with_environment(owned(environment).into_iter()), expected) {
                (Ok(_), None) => {}
                (Err(Error::Usage { message, .. }), Some(expected)) => {
                    assert!(message.contains(expected), "{options:?}: {message}");
                }
                (found, _) => panic!("{options:?}: {:?}", found.err()),
            }
        };
        let refused = Some("`s3_express` leads to AWS");
        check(&[&keys, &endpoint], &[&expresses], refused);
        check(&[&keys, &[("AWS_ENDPOINT_URL_S3", "https://store")]], &[&expresses], refused);
        // Credentials of an instance or a role.
        check(&[&endpoint], &[&[("aws_s3_express", " ON ")]], refused);
        let region = Some("`region` is no region of AWS");
        check(&[&keys, &endpoint], &[&expresses, &[("region", "garage")]], region);
        check(&[&keys, &endpoint], &[&[("s3_express", "false"), ("region", "garage")]], None);
        check(&[&keys, &endpoint], &[&expresses, &own], None);
        check(&[&keys, &endpoint], &[&expresses, &unsigned], None);
        check(&[&keys], &[&expresses], None);
        // The environment itself may name both.
        check(&[&keys, &endpoint, &[("AWS_S3_EXPRESS", "true")]], &[], None);
    }

    #[test]
    fn zone_of_a_directory_bucket_is_part_of_a_label() {
        let check = |bucket: &str, is_valid: bool| {
            for (express, expected) in [("true", is_valid), ("false", true)] {
                let mut options = StorageOptions::default();
                options.set("s3_express", express).unwrap();
                let settings = options.s3_settings_with_environment(std::iter::empty()).unwrap();
                assert_eq!(
                    settings.check_directory_bucket_zone(bucket).is_ok(),
                    expected,
                    "{bucket}"
                );
            }
        };
        for (bucket, is_valid) in [
            ("a--usw2-az1--x-s3", true),
            ("a--b--use1-az4--xa-s3", true),
            ("a--z--x-s3", true),
            // `object_store` refuses names without a zone.
            ("a", true),
            ("a--x-s3", true),
            ("a--z.s3--x-s3", false),
            ("a--z_1--x-s3", false),
            ("a--Z--xa-s3", false),
            ("a----x-s3", false),
            ("a--z---x-s3", false),
        ] {
            check(bucket, is_valid);
        }
        check(&format!("a--{}--x-s3", "z".repeat(53)), true);
        check(&format!("a--{}--x-s3", "z".repeat(54)), false);
    }

    #[test]
    fn options_of_other_stores_and_invalid_values_are_refused() {
        let mut options = StorageOptions::default();
        options.set("region", "x").unwrap();
        assert!(options.client_options(true).unwrap_err().to_string().contains("`region`"));
        for (name, value) in [
            ("max_retries", "hush-hush"),
            ("retry_timeout", "hush-hush"),
            ("timeout", "hush-hush"),
            ("pool_idle_timeout", "-1s hush-hush"),
            ("pool_max_idle_per_host", "hush-hush"),
            ("allow_http", "hush-hush"),
            ("skip_signature", "hush-hush"),
            ("endpoint_url", "hush-hush"),
            ("endpoint_url", "localhost:9000"),
            ("endpoint_url", "http://local host"),
            ("endpoint_url", "http://hush-hush?x="),
            ("endpoint_url", "http://hush-hush#x"),
            ("region", "hush-hush/"),
            ("default_region", "hush-hush.example.org"),
            ("access_key_id", "hush-hush\n"),
            ("session_token", "hush-hush hush"),
            ("proxy_url", "hush-hush"),
            // The text before a `=` may be the secret itself.
            ("wJalrXUtnFEMI/hush-hush", ""),
            ("wJalrXUtnFEMIhush-hush", ""),
            ("hush-hush hush-hush", "x"),
            ("", "hush-hush"),
        ] {
            let message = options.set(name, value).unwrap_err().to_string();
            assert!(!message.contains("hush-hush"), "{message}");
        }
        for (value, expected) in
            [("30", 30_000), ("1m 30s", 90_000), ("1h", 3_600_000), ("2min", 120_000), ("5ms", 5)]
        {
            let found = parse_duration_option("timeout", value).unwrap();
            assert_eq!(found, Duration::from_millis(expected), "{value}");
        }
        assert_eq!(options.redact_values("a hush"), "a hush");
        options.set("retry_timeout", "1500ms").unwrap();
        assert_eq!(options.retry_config().unwrap().retry_timeout, Duration::from_millis(1500));
    }
}
