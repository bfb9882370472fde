//! URLs, and the targets of requests: `/a/b?x=1`, without a host.
//!
//! A URL is cut at its signs, as RFC 3986 (appendix B) cuts it, and nothing is decoded, completed or refused:
//! logs hold what clients sent. Two things are read as logs have them. `//a/b` is a path, and `//a` no host;
//! what has digits behind its first colon is a host and a port, `example.com:443`, as CONNECT asks for it.
//! A part that is not there is null.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;

use super::SECTION;
use crate::call::{Call, Function, Kind, list_of, refused, shown};
use crate::texts::decoded;

const TEXT: Kind = Kind::Text;

/// A URL, cut into its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Url<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
    /// Path, query and fragment as they stand.
    target: &'a str,
}

impl<'a> Url<'a> {
    fn of(text: &'a str) -> Self {
        let (scheme, authority, target) = origin(text);
        let (rest, fragment) = cut(target, '#');
        let (path, query) = cut(rest, '?');
        Url { scheme, authority, path, query, fragment, target }
    }

    fn user_info(&self) -> Option<&'a str> {
        Some(self.authority?.rsplit_once('@')?.0)
    }

    /// Host and port as they stand.
    fn place(&self) -> Option<&'a str> {
        let authority = self.authority?;
        Some(authority.rsplit_once('@').map_or(authority, |(_, place)| place))
    }

    /// An IPv6 address without its brackets.
    fn host(&self) -> Option<&'a str> {
        let place = self.place()?;
        let host = match place.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => place.split(':').next().unwrap_or_default(),
        };
        Some(host).filter(|host| !host.is_empty())
    }

    fn port(&self) -> Option<&'a str> {
        let place = self.place()?;
        let behind = place.rsplit_once(']').map_or(place, |(_, behind)| behind);
        Some(behind.rsplit_once(':')?.1)
    }

    /// Path and query as they stand.
    fn file(&self) -> &'a str {
        cut(self.target, '#').0
    }

    /// The names and values of the query's parameters, as they stand.
    fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let query = self.query.unwrap_or_default();
        let each = query.split(['&', ';']).filter(|parameter| !parameter.is_empty());
        each.map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
    }
}

/// What is before the first such sign, and what is behind it.
fn cut(text: &str, sign: char) -> (&str, Option<&str>) {
    match text.split_once(sign) {
        Some((before, behind)) => (before, Some(behind)),
        None => (text, None),
    }
}

/// Scheme, authority and the rest.
fn origin(text: &str) -> (Option<&str>, Option<&str>, &str) {
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

/// A host, also of what is written without a scheme, as ClickHouse has it: `example.com/a`, `//example.com/a`.
fn domain(text: &str) -> Option<&str> {
    let url = Url::of(text);
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

fn without_www(host: &str) -> &str {
    match host.get(..4) {
        Some(www) if www.eq_ignore_ascii_case("www.") => host.get(4..).unwrap_or_default(),
        _ => host,
    }
}

/// Where a host's last so many labels begin.
fn last_labels(host: &str, count: usize) -> &str {
    let dot = host.rmatch_indices('.').nth(count.saturating_sub(1));
    dot.and_then(|(at, _)| host.get(at + 1..)).unwrap_or(host)
}

/// What of a host is registered, by a rule of thumb: the last two labels, and the last three where the second of
/// them from behind is one of those that countries register under.
fn registered(host: &str) -> Option<&str> {
    const SHARED: [&str; 12] =
        ["com", "net", "org", "co", "biz", "gov", "edu", "ac", "or", "ne", "go", "gob"];
    let host = host.trim_end_matches('.');
    // An address has no name.
    if !host.contains('.') || host.parse::<std::net::IpAddr>().is_ok() || host.contains(':') {
        return None;
    }
    let second = last_labels(host, 2).split('.').next().unwrap_or_default();
    let is_shared = SHARED.iter().any(|shared| shared.eq_ignore_ascii_case(second));
    Some(last_labels(host, if is_shared { 3 } else { 2 }))
}

/// A function whose answer is a part of a URL.
fn part(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    of: fn(&str) -> Option<&str>,
) -> ScalarUDF {
    Function::new(SECTION, calls, what).also(aliases).takes(&[TEXT], 1).runs(move |call| {
        let texts = call.texts(0)?;
        call.parts(|row| Ok(texts.get(row).and_then(of)))
    })
}

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let mut all = parts();
    all.extend(of_parameters());
    all
}

fn parts() -> Vec<ScalarUDF> {
    vec![
        part(
            &["url_extract_protocol(url)"],
            "The scheme of a URL: https.",
            &["protocol"],
            |text| Url::of(text).scheme,
        ),
        part(
            &["url_extract_host(url)"],
            "The host of a URL, that of an IPv6 address without its brackets; null where there is none.",
            &[],
            |text| Url::of(text).host(),
        ),
        Function::new(SECTION, &["url_extract_port(url)"], "The port that a URL names, as a number.")
            .also(&["port"])
            .takes(&[TEXT], 1)
            .gives(DataType::Int64)
            .runs(|call| {
                let texts = call.texts(0)?;
                call.numbers(|row| {
                    let port = texts.get(row).and_then(|text| Url::of(text).port());
                    Ok(port.and_then(|port| port.parse::<u16>().ok()).map(i64::from))
                })
            }),
        part(
            &["url_extract_path(url)"],
            "The path of a URL or of a request's target, without its query string.",
            &["path", "url_path"],
            |text| Some(Url::of(text).path),
        ),
        part(
            &["url_extract_query(url)"],
            "The query string of a URL or of a request's target, without its question mark.",
            &["querystring"],
            |text| Url::of(text).query,
        ),
        part(
            &["url_extract_fragment(url)"],
            "What stands behind the number sign of a URL.",
            &["fragment"],
            |text| Url::of(text).fragment,
        ),
        part(
            &["pathfull(url)"],
            "The path of a URL with its query string and fragment.",
            &[],
            |text| Some(Url::of(text).target),
        ),
        part(
            &["domain(url)"],
            "The host of a URL, also of one that is written without its scheme: example.com/a.",
            &[],
            domain,
        ),
        part(
            &["domainwithoutwww(url)"],
            "The host of a URL without the www. that it begins with.",
            &[],
            |text| domain(text).map(without_www),
        ),
        part(
            &["topleveldomain(url)"],
            "The last label of a URL's host: com.",
            &[],
            |text| {
                let host = domain(text)?;
                registered(host)?;
                Some(last_labels(host.trim_end_matches('.'), 1))
            },
        ),
        part(
            &["cuttofirstsignificantsubdomain(url)"],
            "What of a URL's host is registered, by a rule of thumb: example.com, example.co.uk.",
            &[],
            |text| registered(domain(text)?),
        ),
        part(
            &["firstsignificantsubdomain(url)"],
            "The first label of what of a URL's host is registered, by a rule of thumb: example.",
            &[],
            |text| registered(domain(text)?)?.split('.').next(),
        ),
        part(
            &["cutquerystring(url)"],
            "A URL without its query string; with its fragment, if it has no query string.",
            &[],
            |text| Some(cut(text, '?').0),
        ),
        part(
            &["cutfragment(url)"],
            "A URL without its fragment.",
            &[],
            |text| Some(cut(text, '#').0),
        ),
        part(
            &["cutquerystringandfragment(url)"],
            "A URL without its query string and its fragment.",
            &[],
            |text| Some(cut(cut(text, '#').0, '?').0),
        ),
        Function::new(
            SECTION,
            &["parse_url(url, part)", "parse_url(url, 'QUERY', key)"],
            "A part of a URL: PROTOCOL, HOST, PATH, QUERY, REF, FILE, AUTHORITY, USERINFO or PORT; of its query \
             string, the value of a parameter as it stands.",
        )
        .takes(&[TEXT, TEXT, TEXT], 2)
        .settles(|asked| {
            if let Some(name) = asked.text(1) {
                let part = Part::named(name)?;
                if asked.count() > 2 && part != Part::Query {
                    return Err(refused(
                        format!("`parse_url` takes a key for the part QUERY, and not for {name}"),
                        "parse_url(url, 'QUERY', 'q') is the value of q",
                    ));
                }
            }
            Ok(DataType::Utf8View)
        })
        .runs(|call| {
            let (texts, names, keys) = (call.texts(0)?, call.texts(1)?, call.texts(2)?);
            let has_key = call.count() > 2;
            let constant = names.constant().map(Part::named).transpose()?;
            call.parts(|row| {
                let (Some(text), Some(name)) = (texts.get(row), names.get(row)) else {
                    return Ok(None);
                };
                let part = match constant {
                    Some(part) => part,
                    None => Part::named(name)?,
                };
                let url = Url::of(text);
                Ok(match (part, has_key) {
                    (Part::Query, true) => keys.get(row).and_then(|key| {
                        url.parameters().find(|(name, _)| *name == key).map(|(_, value)| value)
                    }),
                    (_, true) => None,
                    (part, false) => part.of(&url),
                })
            })
        }),
    ]
}

/// The parts that Spark names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
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

impl Part {
    fn named(name: &str) -> PlanResult<Self> {
        Ok(match name.to_ascii_uppercase().as_str() {
            "PROTOCOL" | "SCHEME" => Part::Protocol,
            "HOST" => Part::Host,
            "PATH" => Part::Path,
            "QUERY" => Part::Query,
            "REF" | "FRAGMENT" => Part::Reference,
            "FILE" => Part::File,
            "AUTHORITY" => Part::Authority,
            "USERINFO" => Part::UserInfo,
            "PORT" => Part::Port,
            _ => {
                return Err(refused(
                    format!("a URL has no part `{}`", shown(name)),
                    "there are PROTOCOL, HOST, PATH, QUERY, REF, FILE, AUTHORITY, USERINFO, PORT",
                ));
            }
        })
    }

    fn of<'a>(self, url: &Url<'a>) -> Option<&'a str> {
        match self {
            Part::Protocol => url.scheme,
            Part::Host => url.host(),
            Part::Path => Some(url.path),
            Part::Query => url.query,
            Part::Reference => url.fragment,
            Part::File => Some(url.file()),
            Part::Authority => url.authority,
            Part::UserInfo => url.user_info(),
            Part::Port => url.port(),
        }
    }
}

fn of_parameters() -> Vec<ScalarUDF> {
    vec![
        Function::new(
            SECTION,
            &["url_extract_parameter(url, name)"],
            "The decoded value of a parameter in the query string of a URL or of a request's target; null where \
             there is none.",
        )
        .takes(&[TEXT, TEXT], 2)
        .runs(|call| {
            let (texts, names) = (call.texts(0)?, call.texts(1)?);
            let (mut bytes, mut name_read) = (Vec::new(), String::new());
            call.written(|row, made| {
                let (Some(text), Some(name)) = (texts.get(row), names.get(row)) else {
                    return Ok(false);
                };
                let mut all = Url::of(text).parameters();
                let found = all.find(|(own, _)| {
                    name_read.clear();
                    decoded(own, true, &mut bytes, &mut name_read);
                    name_read == name
                });
                let Some((_, value)) = found else { return Ok(false) };
                decoded(value, true, &mut bytes, made);
                Ok(true)
            })
        }),
        Function::new(
            SECTION,
            &["extracturlparameter(url, name)"],
            "The value of a parameter in the query string of a URL, as it stands; null where there is none.",
        )
        .takes(&[TEXT, TEXT], 2)
        .runs(|call| {
            let (texts, names) = (call.texts(0)?, call.texts(1)?);
            call.parts(|row| {
                let (Some(text), Some(name)) = (texts.get(row), names.get(row)) else {
                    return Ok(None);
                };
                let mut all = Url::of(text).parameters();
                Ok(all.find(|(own, _)| *own == name).map(|(_, value)| value))
            })
        }),
        Function::new(
            SECTION,
            &["extracturlparameters(url)"],
            "The parameters in the query string of a URL, name=value as they stand, as a list.",
        )
        .takes(&[TEXT], 1)
        .gives(list_of(DataType::Utf8View))
        .runs(|call| listed(call, false)),
        Function::new(
            SECTION,
            &["extracturlparameternames(url)"],
            "The names of the parameters in the query string of a URL, as a list.",
        )
        .takes(&[TEXT], 1)
        .gives(list_of(DataType::Utf8View))
        .runs(|call| listed(call, true)),
        Function::new(
            SECTION,
            &["cuturlparameter(url, name)"],
            "A URL without a parameter of its query string, and without its question mark if that was the only one.",
        )
        .takes(&[TEXT, TEXT], 2)
        .runs(|call| {
            let (texts, names) = (call.texts(0)?, call.texts(1)?);
            call.written(|row, made| {
                let (Some(text), Some(name)) = (texts.get(row), names.get(row)) else {
                    return Ok(false);
                };
                let (before, fragment) = cut(text, '#');
                let (before, query) = cut(before, '?');
                made.push_str(before);
                let rest = query.unwrap_or_default().split('&');
                let rest = rest.filter(|parameter| cut(parameter, '=').0 != name && !parameter.is_empty());
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

fn listed(call: &Call, names_only: bool) -> PlanResult<ArrayRef> {
    let texts = call.texts(0)?;
    call.lists(|row, items| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let query = Url::of(text).query.unwrap_or_default();
        for parameter in query.split(['&', ';']).filter(|parameter| !parameter.is_empty()) {
            items.add(Some(if names_only { cut(parameter, '=').0 } else { parameter }))?;
        }
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::tests::check;
    use proptest::prelude::*;

    #[test]
    fn urls_have_parts() {
        const FULL: &str = "https://me:pw@Example.com:8443/a/b.html?x=1&y=a%20b#top";
        check(&[
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
            // Targets of requests.
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
        check(&[
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
        fn the_parts_of_a_url_are_all_of_it(text in "[a-c:/?#@\\[\\]0-9.&=é-]{0,24}") {
            let url = Url::of(&text);
            let mut whole = String::new();
            if let Some(scheme) = url.scheme {
                whole = format!("{scheme}:");
            }
            let begins = text.get(whole.len()..).unwrap_or_default();
            if let Some(authority) = url.authority {
                // Without a scheme it may be a host and a port, or a URL that begins with its colon.
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
            let parts = [url.host(), url.port(), url.user_info(), domain(&text)];
            for part in parts.into_iter().flatten() {
                prop_assert!(text.contains(part));
            }
        }
    }
}
