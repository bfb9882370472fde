//! URLs and request targets: `/a/b?x=1`, without a host.
//!
//! A URL is split at its delimiters as in RFC 3986 (appendix B). Nothing is decoded, completed or rejected,
//! because logs hold what clients sent. Two departures follow the practice of logs: `//a/b` is a path without
//! a host, and text with digits behind its first colon is a host and a port, `example.com:443`, as in a
//! CONNECT request. A missing part is null.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;

use super::WEB_SECTION;
use crate::closure_function::{
    ArgumentKind, CallBatch, ClosureFunction, excerpt_for_message, list_type, usage_error,
};
use crate::texts::percent_decode;

const TEXT_ARGUMENT: ArgumentKind = ArgumentKind::Text;

/// A URL, split into its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Url<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
    /// Path, query and fragment, not decoded.
    target: &'a str,
}

impl<'a> Url<'a> {
    fn parse(text: &'a str) -> Self {
        let (scheme, authority, target) = split_origin(text);
        let (rest, fragment) = split_at_char(target, '#');
        let (path, query) = split_at_char(rest, '?');
        Url { scheme, authority, path, query, fragment, target }
    }

    fn user_info(&self) -> Option<&'a str> {
        Some(self.authority?.rsplit_once('@')?.0)
    }

    /// Returns host and port, not decoded.
    fn host_and_port(&self) -> Option<&'a str> {
        let authority = self.authority?;
        Some(authority.rsplit_once('@').map_or(authority, |(_, place)| place))
    }

    /// Returns the host; an IPv6 address without its brackets.
    fn host(&self) -> Option<&'a str> {
        let place = self.host_and_port()?;
        let host = match place.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => place.split(':').next().unwrap_or_default(),
        };
        Some(host).filter(|host| !host.is_empty())
    }

    fn port(&self) -> Option<&'a str> {
        let place = self.host_and_port()?;
        let behind = place.rsplit_once(']').map_or(place, |(_, behind)| behind);
        Some(behind.rsplit_once(':')?.1)
    }

    /// Returns path and query, not decoded.
    fn path_and_query(&self) -> &'a str {
        split_at_char(self.target, '#').0
    }

    /// Returns the names and values of the query's parameters, not decoded.
    fn query_parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let query = self.query.unwrap_or_default();
        let each = query.split(['&', ';']).filter(|parameter| !parameter.is_empty());
        each.map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
    }
}

/// Splits a text at the first occurrence of a character. The second part is `None` if there is none.
fn split_at_char(text: &str, sign: char) -> (&str, Option<&str>) {
    match text.split_once(sign) {
        Some((before, behind)) => (before, Some(behind)),
        None => (text, None),
    }
}

/// Splits a text into scheme, authority and the rest.
fn split_origin(text: &str) -> (Option<&str>, Option<&str>, &str) {
    let end = text.find(|letter: char| {
        !(letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.' | '_'))
    });
    let Some((before, behind)) =
        end.and_then(|end| Some((text.get(..end)?, text.get(end..)?.strip_prefix(':')?)))
    else {
        return (None, None, text);
    };
    let ends = |rest: &str| rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if let Some(rest) = behind.strip_prefix("//") {
        let (authority, target) = rest.split_at(ends(rest));
        return (Some(before).filter(|scheme| !scheme.is_empty()), Some(authority), target);
    }
    let (port, _) = behind.split_at(ends(behind));
    if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) && !before.is_empty() {
        let (authority, target) = text.split_at(before.len() + 1 + port.len());
        return (None, Some(authority), target);
    }
    match before.starts_with(|first: char| first.is_ascii_alphabetic()) {
        true => (Some(before), None, behind),
        false => (None, None, text),
    }
}

/// Returns the host, also of a text without a scheme, as ClickHouse does: `example.com/a`, `//example.com/a`.
fn parse_domain(text: &str) -> Option<&str> {
    let url = Url::parse(text);
    if url.authority.is_some() {
        return url.host();
    }
    if url.scheme.is_some() {
        return None;
    }
    let (rest, is_relative) = match text.strip_prefix("//") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = rest.get(..end)?;
    let host = Url { authority: Some(authority), ..url }.host()?;
    let is_host = host
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte) || byte >= 128);
    (is_host && (is_relative || host.contains('.')) && !host.starts_with('.')).then_some(host)
}

fn strip_www(host: &str) -> &str {
    match host.get(..4) {
        Some(www) if www.eq_ignore_ascii_case("www.") => host.get(4..).unwrap_or_default(),
        _ => host,
    }
}

/// Returns the last `count` labels of a host.
fn last_labels(host: &str, count: usize) -> &str {
    let dot = host.rmatch_indices('.').nth(count.saturating_sub(1));
    dot.and_then(|(at, _)| host.get(at + 1..)).unwrap_or(host)
}

/// Returns the registered domain of a host by a heuristic: its last two labels, or the last three if the
/// second to last is one under which countries register names.
fn registered_domain(host: &str) -> Option<&str> {
    const SHARED: [&str; 12] =
        ["com", "net", "org", "co", "biz", "gov", "edu", "ac", "or", "ne", "go", "gob"];
    let host = host.trim_end_matches('.');
    // An IP address has no domain.
    if !host.contains('.') || host.parse::<std::net::IpAddr>().is_ok() || host.contains(':') {
        return None;
    }
    let second = last_labels(host, 2).split('.').next().unwrap_or_default();
    let is_shared = SHARED.iter().any(|shared| shared.eq_ignore_ascii_case(second));
    Some(last_labels(host, if is_shared { 3 } else { 2 }))
}

/// Creates a function that returns a part of a URL.
fn url_part_function(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    of: fn(&str) -> Option<&str>,
) -> ScalarUDF {
    ClosureFunction::new(WEB_SECTION, calls, what)
        .with_aliases(aliases)
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .into_udf(move |call| {
            let texts = call.text_operand(0)?;
            call.build_borrowed_texts(|row| Ok(texts.get(row).and_then(of)))
        })
}

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let mut all = part_functions();
    all.extend(parameter_functions());
    all
}

fn part_functions() -> Vec<ScalarUDF> {
    vec![
        url_part_function(
            &["url_extract_protocol(url)"],
            "The scheme of a URL: https.",
            &["protocol"],
            |text| Url::parse(text).scheme,
        ),
        url_part_function(
            &["url_extract_host(url)"],
            "The host of a URL, that of an IPv6 address without its brackets; null where there is none.",
            &[],
            |text| Url::parse(text).host(),
        ),
        ClosureFunction::new(WEB_SECTION, &["url_extract_port(url)"], "The port that a URL names, as a number.")
            .with_aliases(&["port"])
            .with_arguments(&[TEXT_ARGUMENT], 1)
            .with_return_type(DataType::Int64)
            .into_udf(|call| {
                let texts = call.text_operand(0)?;
                call.build_integers(|row| {
                    let port = texts.get(row).and_then(|text| Url::parse(text).port());
                    Ok(port.and_then(|port| port.parse::<u16>().ok()).map(i64::from))
                })
            }),
        url_part_function(
            &["url_extract_path(url)"],
            "The path of a URL or of a request's target, without its query string.",
            &["path", "url_path"],
            |text| Some(Url::parse(text).path),
        ),
        url_part_function(
            &["url_extract_query(url)"],
            "The query string of a URL or of a request's target, without its question mark.",
            &["querystring"],
            |text| Url::parse(text).query,
        ),
        url_part_function(
            &["url_extract_fragment(url)"],
            "What stands behind the number sign of a URL.",
            &["fragment"],
            |text| Url::parse(text).fragment,
        ),
        url_part_function(
            &["pathfull(url)"],
            "The path of a URL with its query string and fragment.",
            &[],
            |text| Some(Url::parse(text).target),
        ),
        url_part_function(
            &["domain(url)"],
            "The host of a URL, also of one that is written without its scheme: example.com/a.",
            &[],
            parse_domain,
        ),
        url_part_function(
            &["domainwithoutwww(url)"],
            "The host of a URL without the www. that it begins with.",
            &[],
            |text| parse_domain(text).map(strip_www),
        ),
        url_part_function(
            &["topleveldomain(url)"],
            "The last label of a URL's host: com.",
            &[],
            |text| {
                let host = parse_domain(text)?;
                registered_domain(host)?;
                Some(last_labels(host.trim_end_matches('.'), 1))
            },
        ),
        url_part_function(
            &["cuttofirstsignificantsubdomain(url)"],
            "What of a URL's host is registered, by a rule of thumb: example.com, example.co.uk.",
            &[],
            |text| registered_domain(parse_domain(text)?),
        ),
        url_part_function(
            &["firstsignificantsubdomain(url)"],
            "The first label of what of a URL's host is registered, by a rule of thumb: example.",
            &[],
            |text| registered_domain(parse_domain(text)?)?.split('.').next(),
        ),
        url_part_function(
            &["cutquerystring(url)"],
            "A URL without its query string; with its fragment, if it has no query string.",
            &[],
            |text| Some(split_at_char(text, '?').0),
        ),
        url_part_function(
            &["cutfragment(url)"],
            "A URL without its fragment.",
            &[],
            |text| Some(split_at_char(text, '#').0),
        ),
        url_part_function(
            &["cutquerystringandfragment(url)"],
            "A URL without its query string and its fragment.",
            &[],
            |text| Some(split_at_char(split_at_char(text, '#').0, '?').0),
        ),
        ClosureFunction::new(
            WEB_SECTION,
            &["parse_url(url, part)", "parse_url(url, 'QUERY', key)"],
            "A part of a URL: PROTOCOL, HOST, PATH, QUERY, REF, FILE, AUTHORITY, USERINFO or PORT; of its query \
             string, the value of a parameter as it stands.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .with_return_type_closure(|asked| {
            if let Some(name) = asked.constant_text(1) {
                let part = UrlPart::from_name(name)?;
                if asked.argument_count() > 2 && part != UrlPart::Query {
                    return Err(usage_error(
                        format!("`parse_url` takes a key for the part QUERY, and not for {name}"),
                        "parse_url(url, 'QUERY', 'q') is the value of q",
                    ));
                }
            }
            Ok(DataType::Utf8View)
        })
        .into_udf(|call| {
            let (texts, names, keys) = (call.text_operand(0)?, call.text_operand(1)?, call.text_operand(2)?);
            let has_key = call.argument_count() > 2;
            let constant = names.constant().map(UrlPart::from_name).transpose()?;
            call.build_borrowed_texts(|row| {
                let (Some(text), Some(name)) = (texts.get(row), names.get(row)) else {
                    return Ok(None);
                };
                let part = match constant {
                    Some(part) => part,
                    None => UrlPart::from_name(name)?,
                };
                let url = Url::parse(text);
                Ok(match (part, has_key) {
                    (UrlPart::Query, true) => keys.get(row).and_then(|key| {
                        url.query_parameters().find(|(name, _)| *name == key).map(|(_, value)| value)
                    }),
                    (_, true) => None,
                    (part, false) => part.extract(&url),
                })
            })
        }),
    ]
}

/// A part of a URL that Spark's `parse_url` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Protocol,
    Host,
    Path,
    Query,
    Reference,
    File,
    Authority,
    UserInfo,
    Port,
}

impl UrlPart {
    fn from_name(name: &str) -> PlanResult<Self> {
        Ok(match name.to_ascii_uppercase().as_str() {
            "PROTOCOL" | "SCHEME" => UrlPart::Protocol,
            "HOST" => UrlPart::Host,
            "PATH" => UrlPart::Path,
            "QUERY" => UrlPart::Query,
            "REF" | "FRAGMENT" => UrlPart::Reference,
            "FILE" => UrlPart::File,
            "AUTHORITY" => UrlPart::Authority,
            "USERINFO" => UrlPart::UserInfo,
            "PORT" => UrlPart::Port,
            _ => {
                return Err(usage_error(
                    format!("a URL has no part `{}`", excerpt_for_message(name)),
                    "there are PROTOCOL, HOST, PATH, QUERY, REF, FILE, AUTHORITY, USERINFO, PORT",
                ));
            }
        })
    }

    fn extract<'a>(self, url: &Url<'a>) -> Option<&'a str> {
        match self {
            UrlPart::Protocol => url.scheme,
            UrlPart::Host => url.host(),
            UrlPart::Path => Some(url.path),
            UrlPart::Query => url.query,
            UrlPart::Reference => url.fragment,
            UrlPart::File => Some(url.path_and_query()),
            UrlPart::Authority => url.authority,
            UrlPart::UserInfo => url.user_info(),
            UrlPart::Port => url.port(),
        }
    }
}

fn parameter_functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            WEB_SECTION,
            &["url_extract_parameter(url, name)"],
            "The decoded value of a parameter in the query string of a URL or of a request's target; null where \
             there is none.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .into_udf(|call| {
            let (texts, names) = (call.text_operand(0)?, call.text_operand(1)?);
            let (mut bytes, mut name_read) = (Vec::new(), String::new());
            call.build_texts(|row, made| {
                let (Some(text), Some(name)) = (texts.get(row), names.get(row)) else {
                    return Ok(false);
                };
                let mut all = Url::parse(text).query_parameters();
                let found = all.find(|(own, _)| {
                    name_read.clear();
                    percent_decode(own, true, &mut bytes, &mut name_read);
                    name_read == name
                });
                let Some((_, value)) = found else { return Ok(false) };
                percent_decode(value, true, &mut bytes, made);
                Ok(true)
            })
        }),
        ClosureFunction::new(
            WEB_SECTION,
            &["extracturlparameter(url, name)"],
            "The value of a parameter in the query string of a URL, as it stands; null where there is none.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .into_udf(|call| {
            let (texts, names) = (call.text_operand(0)?, call.text_operand(1)?);
            call.build_borrowed_texts(|row| {
                let (Some(text), Some(name)) = (texts.get(row), names.get(row)) else {
                    return Ok(None);
                };
                let mut all = Url::parse(text).query_parameters();
                Ok(all.find(|(own, _)| *own == name).map(|(_, value)| value))
            })
        }),
        ClosureFunction::new(
            WEB_SECTION,
            &["extracturlparameters(url)"],
            "The parameters in the query string of a URL, name=value as they stand, as a list.",
        )
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .with_return_type(list_type(DataType::Utf8View))
        .into_udf(|call| list_parameters(call, false)),
        ClosureFunction::new(
            WEB_SECTION,
            &["extracturlparameternames(url)"],
            "The names of the parameters in the query string of a URL, as a list.",
        )
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .with_return_type(list_type(DataType::Utf8View))
        .into_udf(|call| list_parameters(call, true)),
        ClosureFunction::new(
            WEB_SECTION,
            &["cuturlparameter(url, name)"],
            "A URL without a parameter of its query string, and without its question mark if that was the only one.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .into_udf(|call| {
            let (texts, names) = (call.text_operand(0)?, call.text_operand(1)?);
            call.build_texts(|row, made| {
                let (Some(text), Some(name)) = (texts.get(row), names.get(row)) else {
                    return Ok(false);
                };
                let (before, fragment) = split_at_char(text, '#');
                let (before, query) = split_at_char(before, '?');
                made.push_str(before);
                let rest = query.unwrap_or_default().split('&');
                let rest = rest.filter(|parameter| split_at_char(parameter, '=').0 != name && !parameter.is_empty());
                for (index, parameter) in rest.enumerate() {
                    made.push(if index == 0 { '?' } else { '&' });
                    made.push_str(parameter);
                }
                if let Some(fragment) = fragment {
                    made.push('#');
                    made.push_str(fragment);
                }
                Ok(true)
            })
        }),
    ]
}

fn list_parameters(call: &CallBatch, names_only: bool) -> PlanResult<ArrayRef> {
    let texts = call.text_operand(0)?;
    call.build_text_lists(|row, items| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let query = Url::parse(text).query.unwrap_or_default();
        for parameter in query.split(['&', ';']).filter(|parameter| !parameter.is_empty()) {
            items.append_item(Some(if names_only {
                split_at_char(parameter, '=').0
            } else {
                parameter
            }))?;
        }
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::check_text_calls;
    use proptest::prelude::*;

    #[test]
    fn url_functions_extract_parts() {
        const FULL: &str = "https://me:pw@Example.com:8443/a/b.html?x=1&y=a%20b#top";
        check_text_calls(&[
            ("url_extract_protocol", &[FULL], "https"),
            ("url_extract_host", &[FULL], "Example.com"),
            ("url_extract_port", &[FULL], "8443"),
            ("url_extract_path", &[FULL], "/a/b.html"),
            ("url_extract_query", &[FULL], "x=1&y=a%20b"),
            ("url_extract_fragment", &[FULL], "top"),
            ("pathfull", &[FULL], "/a/b.html?x=1&y=a%20b#top"),
            ("parse_url", &[FULL, "PROTOCOL"], "https"),
            ("parse_url", &[FULL, "HOST"], "Example.com"),
            ("parse_url", &[FULL, "PATH"], "/a/b.html"),
            ("parse_url", &[FULL, "QUERY"], "x=1&y=a%20b"),
            ("parse_url", &[FULL, "QUERY", "y"], "a%20b"),
            ("parse_url", &[FULL, "QUERY", "z"], "NULL"),
            ("parse_url", &[FULL, "REF"], "top"),
            ("parse_url", &[FULL, "FILE"], "/a/b.html?x=1&y=a%20b"),
            ("parse_url", &[FULL, "AUTHORITY"], "me:pw@Example.com:8443"),
            ("parse_url", &[FULL, "USERINFO"], "me:pw"),
            ("parse_url", &[FULL, "port"], "8443"),
            (
                "parse_url",
                &[FULL, "NAME"],
                "a URL has no part `NAME`\nhint: there are PROTOCOL, HOST, PATH, QUERY, REF, FILE, AUTHORITY, USERINFO, PORT",
            ),
            (
                "parse_url",
                &[FULL, "HOST", "x"],
                "`parse_url` takes a key for the part QUERY, and not for HOST\nhint: parse_url(url, 'QUERY', 'q') is the value of q",
            ),
            // Request targets.
            ("url_extract_path", &["/a/b?x=1"], "/a/b"),
            ("url_extract_query", &["/a/b?x=1"], "x=1"),
            ("url_extract_host", &["/a/b?x=1"], "NULL"),
            ("url_extract_protocol", &["/a:b?x=http://c"], "NULL"),
            ("url_extract_path", &["//phpmyadmin/"], "//phpmyadmin/"),
            ("url_extract_path", &["*"], "*"),
            ("url_extract_path", &[""], ""),
            ("url_extract_query", &["/a?"], ""),
            ("url_extract_query", &["/a?b?c"], "b?c"),
            ("url_extract_fragment", &["/a"], "NULL"),
            ("url_extract_host", &["example.com:443"], "example.com"),
            ("url_extract_port", &["example.com:443"], "443"),
            ("url_extract_port", &["http://a:99999/"], "NULL"),
            ("url_extract_port", &["http://a/"], "NULL"),
            ("url_extract_host", &["http://[::1]:80/a"], "::1"),
            ("url_extract_port", &["http://[::1]:80/a"], "80"),
            ("url_extract_port", &["http://[::1]/a"], "NULL"),
            ("url_extract_host", &["http://a@b@c/"], "c"),
            ("url_extract_host", &["mailto:me@example.com"], "NULL"),
            ("protocol", &["mailto:me@example.com"], "mailto"),
            ("path", &["mailto:me@example.com"], "me@example.com"),
            ("url_extract_host", &["http://?x"], "NULL"),
            ("url_extract_path", &["http://a?x/y"], ""),
            ("domain", &["svn+ssh://some.svn-hosting.com:80/repo/trunk"], "some.svn-hosting.com"),
            ("domain", &["some.svn-hosting.com:80/repo/trunk"], "some.svn-hosting.com"),
            ("domain", &["https://clickhouse.com/time/"], "clickhouse.com"),
            ("domain", &["clickhouse.com"], "clickhouse.com"),
            ("domain", &["//clickhouse.com/a"], "clickhouse.com"),
            ("domain", &["-"], "NULL"),
            ("domain", &["/index.html"], "NULL"),
            ("domain", &["a b.c"], "NULL"),
            ("domainwithoutwww", &["https://www.example.com/"], "example.com"),
            ("domainwithoutwww", &["https://example.com/"], "example.com"),
            ("topleveldomain", &["https://www.example.co.uk/"], "uk"),
            ("topleveldomain", &["https://10.0.0.1/"], "NULL"),
            ("cuttofirstsignificantsubdomain", &["https://news.example.com.tr/"], "example.com.tr"),
            ("cuttofirstsignificantsubdomain", &["https://a.b.example.com/"], "example.com"),
            ("cuttofirstsignificantsubdomain", &["https://example.com./"], "example.com"),
            ("cuttofirstsignificantsubdomain", &["https://localhost/"], "NULL"),
            ("cuttofirstsignificantsubdomain", &["https://10.0.0.1/"], "NULL"),
            ("firstsignificantsubdomain", &["https://news.example.co.uk/"], "example"),
            ("cutquerystring", &["http://a/b?x=1#c"], "http://a/b"),
            ("cutfragment", &["http://a/b?x=1#c"], "http://a/b?x=1"),
            ("cutquerystringandfragment", &["http://a/b#c?d"], "http://a/b"),
        ]);
    }

    #[test]
    fn query_strings_have_parameters() {
        check_text_calls(&[
            ("url_extract_parameter", &["/s?q=a+b%26c&x", "q"], "a b&c"),
            ("url_extract_parameter", &["/s?q=a&x", "x"], ""),
            ("url_extract_parameter", &["/s?q=a&x", "y"], "NULL"),
            ("url_extract_parameter", &["/s?a%5B%5D=1&a%5B%5D=2", "a[]"], "1"),
            ("url_extract_parameter", &["/s#?q=a", "q"], "NULL"),
            ("extracturlparameter", &["/s?q=a+b%26c&x=1", "q"], "a+b%26c"),
            ("extracturlparameter", &["/s?qq=1", "q"], "NULL"),
            ("extracturlparameters", &["/s?q=a&x&y="], "[q=a, x, y=]"),
            ("extracturlparameternames", &["/s?q=a&x&y=1"], "[q, x, y]"),
            ("extracturlparameternames", &["/s"], "[]"),
            ("cuturlparameter", &["/s?q=a&x=1#c", "q"], "/s?x=1#c"),
            ("cuturlparameter", &["/s?q=a#c", "q"], "/s#c"),
            ("cuturlparameter", &["/s", "q"], "/s"),
        ]);
    }

    proptest! {
        #[test]
        fn url_parts_join_to_the_whole_url(text in "[a-c:/?#@\\[\\]0-9.&=é-]{0,24}") {
            let url = Url::parse(&text);
            let mut whole = String::new();
            if let Some(scheme) = url.scheme {
                whole = format!("{scheme}:");
            }
            let begins = text.get(whole.len()..).unwrap_or_default();
            if let Some(authority) = url.authority {
                // Without a scheme the text is a host and a port, or a URL that begins with its colon.
                if begins.starts_with("//") || begins.starts_with("://") {
                    whole.push_str(if begins.starts_with("//") { "//" } else { "://" });
                }
                whole.push_str(authority);
            }
            whole.push_str(url.path);
            if let Some(query) = url.query {
                whole = format!("{whole}?{query}");
            }
            if let Some(fragment) = url.fragment {
                whole = format!("{whole}#{fragment}");
            }
            prop_assert_eq!(&whole, &text);
            let parts = [url.host(), url.port(), url.user_info(), parse_domain(&text)];
            for part in parts.into_iter().flatten() {
                prop_assert!(text.contains(part));
            }
        }
    }
}
