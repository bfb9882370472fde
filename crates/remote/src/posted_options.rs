//! Rules for the storage options of a posted query.
//!
//! A confined master opens stores for every client. A posted query must not send the environment's
//! credentials to a host that the environment does not name. It must not read a file or a service of the
//! machine, or make the machine work without bound. So the options are a closed list ([`option_rule`]):
//!
//! - An endpoint needs complete credentials in the query: a key and its secret, or `skip_signature=true`. So
//!   do `allow_http`, which allows signed requests without encryption, and `request_payer`, which makes the
//!   signer pay.
//! - Options that name files, proxies, certificates, roles or sources of credentials are refused, and so are
//!   options that use the machine's disk and memory.
//! - Times, counts and sizes have a limit.
//!
//! The environment supplies options that a posted query does not set, except those that the query's own
//! credentials replace ([`StorageOptions::s3_settings`](crate::StorageOptions)).

use std::time::Duration;

use object_store::ClientConfigKey as C;
use object_store::aws::AmazonS3ConfigKey as S3;
use tidemill_base::memory_budget::format_binary_bytes;

use crate::address_guard::has_private_address;
use crate::error::{Error, Result};
use crate::storage_options::{
    OptionKey, is_auto_value, is_plausible_option_name, parse_bool, parse_duration_option,
    parse_retries, parse_size_option,
};

/// Maximum of `max_retries`.
const RETRIES_MAX: usize = 20;
/// Maximum of `timeout`, `connect_timeout` and `retry_timeout`.
const DURATION_MAX: Duration = Duration::from_secs(600);
/// Maximum of `read_block`. A reader holds several blocks.
const READ_BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Maximum of `read_window`.
const READ_WINDOW_BYTES_MAX: u64 = 1 << 30;

/// Allowed options, listed in the hint of a refusal.
const ALLOWED_OPTIONS: &str = "access_key_id, secret_access_key, session_token, region, default_region, endpoint, endpoint_url, \
     aws_endpoint_url_s3, virtual_hosted_style_request, skip_signature, unsigned_payload, request_payer, s3_express, \
     allow_http, connect_timeout, timeout, http1_only, http2_only, max_retries, retry_timeout, read_block, read_window";

/// The values that a posted query may set an option to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PostedOptionRule {
    /// Any valid value.
    Allowed,
    /// Any valid value, if the query has credentials of its own.
    WithCredentials,
    /// No value.
    Refused,
    /// A time up to [`DURATION_MAX`].
    Time,
    /// A number up to [`RETRIES_MAX`].
    Retries,
    /// A size up to this many bytes, or `auto`.
    Size(u64),
}

/// Returns the rule of an option. Options that a later release of `object_store` adds are refused by default.
fn option_rule(key: &OptionKey) -> PostedOptionRule {
    match key {
        OptionKey::S3(
            S3::AccessKeyId
            | S3::SecretAccessKey
            | S3::Token
            | S3::Region
            | S3::DefaultRegion
            | S3::VirtualHostedStyleRequest
            | S3::SkipSignature
            | S3::UnsignedPayload
            | S3::S3Express,
        )
        | OptionKey::Client(C::Http1Only | C::Http2Only) => PostedOptionRule::Allowed,
        OptionKey::S3(S3::Endpoint | S3::S3Endpoint | S3::RequestPayer)
        | OptionKey::Client(C::AllowHttp) => PostedOptionRule::WithCredentials,
        OptionKey::Client(C::ConnectTimeout | C::Timeout) | OptionKey::RetryTimeout => {
            PostedOptionRule::Time
        }
        OptionKey::MaxRetries => PostedOptionRule::Retries,
        OptionKey::ReadBlock => PostedOptionRule::Size(READ_BLOCK_BYTES_MAX),
        OptionKey::ReadWindow => PostedOptionRule::Size(READ_WINDOW_BYTES_MAX),
        OptionKey::S3(_)
        | OptionKey::Client(_)
        | OptionKey::ReadMemory
        | OptionKey::ReadCache
        | OptionKey::ReadCacheDir => PostedOptionRule::Refused,
    }
}

/// Checks the names and values of a posted query's options, as written in the query.
///
/// # Errors
/// [`Error::Usage`] that names the option. It contains the value only if that is a time, count or size beyond
/// its limit.
pub(crate) fn check_posted_options<'a>(
    pairs: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<()> {
    let mut found: Vec<(String, OptionKey, &str)> = Vec::new();
    for (name, value) in pairs {
        let name = name.trim().to_ascii_lowercase();
        let key = name
            .parse::<OptionKey>()
            .ok()
            .filter(|key| option_rule(key) != PostedOptionRule::Refused);
        let Some(key) = key else { return Err(refused_option_error(&name)) };
        if let Some((other, ..)) = found.iter().find(|(_, other, _)| *other == key) {
            // With two spellings of an option, the check could see one and the store use the other.
            return Err(Error::usage(format!(
                "storage options `{other}` and `{name}` are one option, which is given twice"
            )));
        }
        found.push((name, key, value));
    }
    let value_of = |wanted: S3| {
        let found = found.iter().find(|(_, key, _)| *key == OptionKey::S3(wanted));
        found.map(|(_, _, value)| *value).filter(|value| !value.is_empty())
    };
    let skips = value_of(S3::SkipSignature).and_then(parse_bool) == Some(true);
    let (id, secret) = (value_of(S3::AccessKeyId), value_of(S3::SecretAccessKey));
    let has_credentials = skips || (id.is_some() && secret.is_some());
    for (name, key, value) in &found {
        match option_rule(key) {
            PostedOptionRule::WithCredentials if !has_credentials => {
                return Err(missing_credentials_error(name, *key));
            }
            PostedOptionRule::Time if parse_duration_option(name, value)? > DURATION_MAX => {
                return Err(beyond_limit_error(
                    name,
                    value,
                    &format!("{} s", DURATION_MAX.as_secs()),
                ));
            }
            PostedOptionRule::Retries if parse_retries(value)? > RETRIES_MAX => {
                return Err(beyond_limit_error(name, value, &RETRIES_MAX.to_string()));
            }
            PostedOptionRule::Size(most)
                if !is_auto_value(value) && parse_size_option(name, value)? > most =>
            {
                return Err(beyond_limit_error(name, value, &format_binary_bytes(most)));
            }
            _ => {}
        }
        let is_endpoint = matches!(key, OptionKey::S3(S3::Endpoint | S3::S3Endpoint));
        if is_endpoint && has_private_address(value) {
            return Err(Error::usage_with_hint(
                "an endpoint is for the machine alone that asks it",
                "name a store's",
            ));
        }
    }
    let is_partly = |key: S3| found.iter().any(|(_, other, _)| *other == OptionKey::S3(key));
    if !has_credentials
        && [S3::AccessKeyId, S3::SecretAccessKey, S3::Token].into_iter().any(is_partly)
    {
        return Err(Error::usage_with_hint(
            "credentials of your own are given in part, and are not mixed with the cluster's",
            "access_key_id and secret_access_key, and session_token where they are temporary",
        ));
    }
    Ok(())
}

fn refused_option_error(name: &str) -> Error {
    let name = name.strip_prefix("aws_").unwrap_or(name);
    let what = match is_plausible_option_name(name) {
        true => format!("storage option `{name}`"),
        // The name may be a secret value that was written in the wrong place.
        false => "a storage option of an unknown name".to_owned(),
    };
    Error::usage_with_hint(
        format!("{what} is not taken from those who ask a cluster"),
        format!("whoever started it sets it in its environment; taken are {ALLOWED_OPTIONS}"),
    )
}

fn missing_credentials_error(name: &str, key: OptionKey) -> Error {
    let hint = "access_key_id and secret_access_key, or skip_signature=true";
    let message = match key {
        OptionKey::S3(S3::Endpoint | S3::S3Endpoint) => {
            "an endpoint of your own goes with credentials of your own: the cluster's are for its own store"
                .to_owned()
        }
        _ => format!(
            "storage option `{name}` goes with credentials of your own: with the cluster's, its environment says so"
        ),
    };
    Error::usage_with_hint(message, hint)
}

fn beyond_limit_error(name: &str, value: &str, most: &str) -> Error {
    let shown: String = value.trim().chars().take(24).collect();
    Error::usage_with_hint(
        format!(
            "storage option `{name}` is {shown}, more than a cluster takes from those who ask it"
        ),
        format!("at most {most}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_pairs(pairs: &[(&str, &str)]) -> std::result::Result<(), String> {
        let told = |error| tidemill_base::Error::from(error).to_string();
        check_posted_options(pairs.iter().copied()).map_err(told)
    }

    /// Checks every spelling of every option of `object_store`, and of our own, each with a valid value.
    #[test]
    fn every_option_has_a_rule_in_every_spelling() {
        let keys = [("access_key_id", "own-id"), ("secret_access_key", "own-secret")];
        let check = |names: &[&str], value: &str, alone: bool, beside: bool| {
            for name in names {
                for name in [(*name).to_owned(), name.to_ascii_uppercase()] {
                    let own = (name.as_str(), value);
                    assert_eq!(
                        check_pairs(&[own]).is_ok(),
                        alone,
                        "{name}: {:?}",
                        check_pairs(&[own])
                    );
                    let with_keys = [own, keys[0], keys[1]];
                    let found = check_pairs(&with_keys);
                    assert_eq!(found.is_ok(), beside, "{name} beside keys: {found:?}");
                    assert!(!format!("{found:?}").contains("own-secret"), "{found:?}");
                }
            }
        };
        let refused = |names: &[&str]| check(names, "hush-hush", false, false);
        // A test below checks credentials, which belong together.
        check(
            &["aws_region", "region", "aws_default_region", "default_region"],
            "eu-west-1",
            true,
            true,
        );
        check(&["aws_skip_signature", "skip_signature"], "false", true, true);
        check(&["aws_unsigned_payload", "unsigned_payload"], "true", true, true);
        check(&["aws_s3_express", "s3_express"], "true", true, true);
        check(
            &["aws_virtual_hosted_style_request", "virtual_hosted_style_request"],
            "true",
            true,
            true,
        );
        check(
            &[
                "aws_endpoint_url",
                "aws_endpoint",
                "endpoint_url",
                "endpoint",
                "aws_endpoint_url_s3",
            ],
            "https://store.example",
            false,
            true,
        );
        check(&["aws_request_payer", "request_payer"], "true", false, true);
        check(&["aws_allow_http", "allow_http"], "true", false, true);
        for name in ["http1_only", "http2_only"] {
            check(&[name, &format!("aws_{name}")], "true", true, true);
        }
        for name in ["timeout", "connect_timeout"] {
            check(&[name, &format!("aws_{name}")], "10s", true, true);
            check(&[name], "601s", false, false);
        }
        check(&["retry_timeout"], "10m", true, true);
        check(&["retry_timeout"], "11m", false, false);
        check(&["max_retries"], "20", true, true);
        check(&["max_retries"], "21", false, false);
        check(&["max_retries"], "18446744073709551615", false, false);
        check(&["read_block"], "64MiB", true, true);
        check(&["read_block", "read_window"], "auto", true, true);
        check(&["read_block"], "65MiB", false, false);
        check(&["read_window"], "1GiB", true, true);
        check(&["read_window"], "2GiB", false, false);
        refused(&["endpoint_url_s3"]);
        refused(&["read_memory", "read_cache", "read_cache_dir", "aws_read_cache"]);
        refused(&["aws_bucket", "aws_bucket_name", "bucket", "bucket_name"]);
        for name in [
            "imdsv1_fallback",
            "metadata_endpoint",
            "checksum_algorithm",
            "container_credentials_relative_uri",
            "container_credentials_full_uri",
            "container_authorization_token_file",
            "web_identity_token_file",
            "role_arn",
            "role_session_name",
            "endpoint_url_sts",
            "copy_if_not_exists",
            "conditional_put",
            "disable_tagging",
            "server_side_encryption",
            "sse_kms_key_id",
            "sse_bucket_key_enabled",
            "sse_customer_key_base64",
            "allow_invalid_certificates",
            "default_content_type",
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
            "user_agent",
            // Unknown options.
            "aws_aws_region",
            "no_such_option",
            "",
        ] {
            refused(&[name, &format!("aws_{name}")]);
        }
    }

    #[test]
    fn endpoint_needs_complete_credentials_of_the_query() {
        let endpoint = ("endpoint", "https://store.example");
        let check = |more: &[(&str, &str)], expected: Option<&str>| {
            let pairs: Vec<_> = [endpoint].into_iter().chain(more.iter().copied()).collect();
            match (check_pairs(&pairs), expected) {
                (Ok(()), None) => {}
                (Err(message), Some(expected)) => {
                    assert!(message.contains(expected), "{more:?}: {message}");
                    assert!(!message.contains("hush"), "{more:?}: {message}");
                }
                (found, _) => panic!("{more:?}: {found:?}"),
            }
        };
        let (id, secret) = (("access_key_id", "hush-id"), ("secret_access_key", "hush"));
        let own = Some("credentials of your own");
        check(&[id, secret], None);
        check(&[id, secret, ("session_token", "hush")], None);
        check(&[id, secret, ("token", "hush")], None);
        check(&[("skip_signature", "true")], None);
        check(&[("AWS_SKIP_SIGNATURE", " True ")], None);
        check(&[], own);
        check(&[id], own);
        check(&[secret], own);
        check(&[id, ("secret_access_key", "")], own);
        check(&[("access_key_id", ""), secret], own);
        check(&[("session_token", "hush")], own);
        // Without `skip_signature=true`, the cluster would sign the requests.
        check(&[("skip_signature", "false")], own);
        check(&[("skip_signature", "hush")], own);
        check(&[("skip_signature", "true"), ("aws_skip_signature", "false")], Some("given twice"));
        check(&[("ENDPOINT_URL", "https://other.example"), id, secret], Some("given twice"));
        assert!(check_pairs(&[id]).unwrap_err().contains("in part"));
        assert!(check_pairs(&[("token", "hush")]).unwrap_err().contains("in part"));
        assert!(check_pairs(&[id, secret]).is_ok());
        for address in ["http://169.254.169.254", "http://[fd00:ec2::254]/x", "http://0xa9fea9fe/"]
        {
            let pairs = [("aws_endpoint_url_s3", address), ("skip_signature", "1")];
            assert!(
                check_pairs(&pairs).unwrap_err().contains("for the machine alone"),
                "{address}"
            );
        }
    }
}
