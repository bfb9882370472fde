//! User agents: browser, program or robot, operating system and kind of device.
//!
//! Clients write `User-Agent` as they like and copy each other's. A few words identify them. The lists below
//! have the most common words, in order of precedence: Edge also calls itself Chrome and Safari. All words
//! are searched at once (Aho–Corasick), so that more words cost nothing. The results are families, which suit
//! counting; lists that identify each telephone model have thousands of expressions and become outdated
//! within months. Robots that are not listed are recognized by common suffixes: `…bot`, `…crawler`,
//! `…spider`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use aho_corasick::AhoCorasick;
use arrow::array::{ArrayRef, StringViewBuilder, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;

use super::WEB_SECTION;
use crate::closure_function::{ArgumentKind, CallBatch, ClosureFunction};

/// The meaning of a word in a user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordMeaning {
    /// A robot of this name.
    Robot,
    /// A robot whose name contains the word, such as `…bot`.
    GenericRobot,
    /// An HTTP client program or library of this name.
    Program,
    Browser,
    System,
    Device,
}

/// Words, their meanings and the resulting names. For each meaning the first word in this list that occurs
/// counts.
const USER_AGENT_WORDS: &[(&str, WordMeaning, &str)] = &[
    // Search engines.
    ("AdsBot-Google", WordMeaning::Robot, "AdsBot-Google"),
    ("Mediapartners-Google", WordMeaning::Robot, "Mediapartners-Google"),
    ("Google-InspectionTool", WordMeaning::Robot, "Google-InspectionTool"),
    ("GoogleOther", WordMeaning::Robot, "GoogleOther"),
    ("Storebot-Google", WordMeaning::Robot, "Storebot-Google"),
    ("FeedFetcher-Google", WordMeaning::Robot, "FeedFetcher-Google"),
    ("APIs-Google", WordMeaning::Robot, "APIs-Google"),
    ("Googlebot", WordMeaning::Robot, "Googlebot"),
    ("bingbot", WordMeaning::Robot, "bingbot"),
    ("BingPreview", WordMeaning::Robot, "BingPreview"),
    ("msnbot", WordMeaning::Robot, "msnbot"),
    ("YandexBot", WordMeaning::Robot, "YandexBot"),
    ("Baiduspider", WordMeaning::Robot, "Baiduspider"),
    ("DuckDuckBot", WordMeaning::Robot, "DuckDuckBot"),
    ("DuckAssistBot", WordMeaning::Robot, "DuckAssistBot"),
    ("Applebot", WordMeaning::Robot, "Applebot"),
    ("PetalBot", WordMeaning::Robot, "PetalBot"),
    ("SeznamBot", WordMeaning::Robot, "SeznamBot"),
    ("Sogou web spider", WordMeaning::Robot, "Sogou"),
    ("YisouSpider", WordMeaning::Robot, "YisouSpider"),
    ("Yahoo! Slurp", WordMeaning::Robot, "Yahoo! Slurp"),
    ("Qwantify", WordMeaning::Robot, "Qwantify"),
    ("Amazonbot", WordMeaning::Robot, "Amazonbot"),
    // Language models.
    ("GPTBot", WordMeaning::Robot, "GPTBot"),
    ("OAI-SearchBot", WordMeaning::Robot, "OAI-SearchBot"),
    ("ChatGPT-User", WordMeaning::Robot, "ChatGPT-User"),
    ("ClaudeBot", WordMeaning::Robot, "ClaudeBot"),
    ("Claude-User", WordMeaning::Robot, "Claude-User"),
    ("Claude-SearchBot", WordMeaning::Robot, "Claude-SearchBot"),
    ("anthropic-ai", WordMeaning::Robot, "anthropic-ai"),
    ("PerplexityBot", WordMeaning::Robot, "PerplexityBot"),
    ("Perplexity-User", WordMeaning::Robot, "Perplexity-User"),
    ("Bytespider", WordMeaning::Robot, "Bytespider"),
    ("meta-externalagent", WordMeaning::Robot, "meta-externalagent"),
    ("MistralAI-User", WordMeaning::Robot, "MistralAI-User"),
    ("cohere-ai", WordMeaning::Robot, "cohere-ai"),
    ("CCBot", WordMeaning::Robot, "CCBot"),
    // Link previews.
    ("facebookexternalhit", WordMeaning::Robot, "facebookexternalhit"),
    ("Twitterbot", WordMeaning::Robot, "Twitterbot"),
    ("LinkedInBot", WordMeaning::Robot, "LinkedInBot"),
    ("Slackbot", WordMeaning::Robot, "Slackbot"),
    ("Slack-ImgProxy", WordMeaning::Robot, "Slack-ImgProxy"),
    ("TelegramBot", WordMeaning::Robot, "TelegramBot"),
    ("Discordbot", WordMeaning::Robot, "Discordbot"),
    ("WhatsApp/", WordMeaning::Robot, "WhatsApp"),
    ("Pinterestbot", WordMeaning::Robot, "Pinterestbot"),
    ("SkypeUriPreview", WordMeaning::Robot, "SkypeUriPreview"),
    ("Mastodon/", WordMeaning::Robot, "Mastodon"),
    // Market research.
    ("AhrefsBot", WordMeaning::Robot, "AhrefsBot"),
    ("AhrefsSiteAudit", WordMeaning::Robot, "AhrefsSiteAudit"),
    ("SemrushBot", WordMeaning::Robot, "SemrushBot"),
    ("MJ12bot", WordMeaning::Robot, "MJ12bot"),
    ("DotBot", WordMeaning::Robot, "DotBot"),
    ("DataForSeoBot", WordMeaning::Robot, "DataForSeoBot"),
    ("BLEXBot", WordMeaning::Robot, "BLEXBot"),
    ("Screaming Frog", WordMeaning::Robot, "Screaming Frog"),
    // Archives.
    ("ia_archiver", WordMeaning::Robot, "ia_archiver"),
    ("archive.org_bot", WordMeaning::Robot, "archive.org_bot"),
    ("heritrix", WordMeaning::Robot, "Heritrix"),
    // Uptime monitors.
    ("UptimeRobot", WordMeaning::Robot, "UptimeRobot"),
    ("Pingdom", WordMeaning::Robot, "Pingdom"),
    ("StatusCake", WordMeaning::Robot, "StatusCake"),
    ("Site24x7", WordMeaning::Robot, "Site24x7"),
    ("Better Uptime", WordMeaning::Robot, "Better Uptime"),
    ("check_http", WordMeaning::Robot, "check_http"),
    ("ELB-HealthChecker", WordMeaning::Robot, "ELB-HealthChecker"),
    ("Amazon-Route53-Health-Check", WordMeaning::Robot, "Amazon-Route53-Health-Check"),
    ("GoogleHC", WordMeaning::Robot, "GoogleHC"),
    ("GoogleStackdriverMonitoring", WordMeaning::Robot, "GoogleStackdriverMonitoring"),
    ("kube-probe", WordMeaning::Robot, "kube-probe"),
    ("Blackbox Exporter", WordMeaning::Robot, "Blackbox Exporter"),
    ("Prometheus/", WordMeaning::Robot, "Prometheus"),
    ("Zabbix", WordMeaning::Robot, "Zabbix"),
    ("Datadog", WordMeaning::Robot, "Datadog"),
    // Security scanners.
    ("zgrab", WordMeaning::Robot, "zgrab"),
    ("masscan", WordMeaning::Robot, "masscan"),
    ("Nmap Scripting Engine", WordMeaning::Robot, "Nmap"),
    ("Nuclei", WordMeaning::Robot, "Nuclei"),
    ("CensysInspect", WordMeaning::Robot, "CensysInspect"),
    ("Expanse", WordMeaning::Robot, "Expanse"),
    ("InternetMeasurement", WordMeaning::Robot, "InternetMeasurement"),
    ("sqlmap", WordMeaning::Robot, "sqlmap"),
    ("Nikto", WordMeaning::Robot, "Nikto"),
    ("WPScan", WordMeaning::Robot, "WPScan"),
    // Headless browsers and scrapers.
    ("HeadlessChrome", WordMeaning::Robot, "HeadlessChrome"),
    ("PhantomJS", WordMeaning::Robot, "PhantomJS"),
    ("Chrome-Lighthouse", WordMeaning::Robot, "Chrome-Lighthouse"),
    ("Scrapy/", WordMeaning::Robot, "Scrapy"),
    ("bot", WordMeaning::GenericRobot, ""),
    ("crawler", WordMeaning::GenericRobot, ""),
    ("spider", WordMeaning::GenericRobot, ""),
    // Programs.
    ("curl/", WordMeaning::Program, "curl"),
    ("Wget/", WordMeaning::Program, "Wget"),
    ("python-requests/", WordMeaning::Program, "python-requests"),
    ("Python-urllib/", WordMeaning::Program, "Python-urllib"),
    ("python-httpx/", WordMeaning::Program, "python-httpx"),
    ("aiohttp/", WordMeaning::Program, "aiohttp"),
    ("Boto3/", WordMeaning::Program, "Boto3"),
    ("aws-cli/", WordMeaning::Program, "aws-cli"),
    ("aws-sdk-", WordMeaning::Program, "aws-sdk"),
    ("Go-http-client/", WordMeaning::Program, "Go-http-client"),
    ("okhttp/", WordMeaning::Program, "okhttp"),
    ("Apache-HttpClient/", WordMeaning::Program, "Apache-HttpClient"),
    ("Java-http-client/", WordMeaning::Program, "Java-http-client"),
    ("Java/", WordMeaning::Program, "Java"),
    ("axios/", WordMeaning::Program, "axios"),
    ("node-fetch", WordMeaning::Program, "node-fetch"),
    ("undici", WordMeaning::Program, "undici"),
    ("got (", WordMeaning::Program, "got"),
    ("Deno/", WordMeaning::Program, "Deno"),
    ("Bun/", WordMeaning::Program, "Bun"),
    ("PostmanRuntime/", WordMeaning::Program, "PostmanRuntime"),
    ("insomnia/", WordMeaning::Program, "insomnia"),
    ("HTTPie/", WordMeaning::Program, "HTTPie"),
    ("libwww-perl/", WordMeaning::Program, "libwww-perl"),
    ("GuzzleHttp/", WordMeaning::Program, "GuzzleHttp"),
    ("WordPress/", WordMeaning::Program, "WordPress"),
    ("PHP/", WordMeaning::Program, "PHP"),
    ("Faraday ", WordMeaning::Program, "Faraday"),
    ("Ruby", WordMeaning::Program, "Ruby"),
    ("reqwest/", WordMeaning::Program, "reqwest"),
    ("Dart/", WordMeaning::Program, "Dart"),
    ("Microsoft-CryptoAPI/", WordMeaning::Program, "Microsoft-CryptoAPI"),
    ("Microsoft-Delivery-Optimization/", WordMeaning::Program, "Microsoft-Delivery-Optimization"),
    ("git/", WordMeaning::Program, "git"),
    ("k6/", WordMeaning::Program, "k6"),
    ("ApacheBench/", WordMeaning::Program, "ApacheBench"),
    ("Jetty/", WordMeaning::Program, "Jetty"),
    ("CFNetwork/", WordMeaning::Program, "CFNetwork"),
    // Browsers. Those that also call themselves by the name of another precede it.
    ("Edg/", WordMeaning::Browser, "Edge"),
    ("Edge/", WordMeaning::Browser, "Edge"),
    ("EdgA/", WordMeaning::Browser, "Edge"),
    ("EdgiOS/", WordMeaning::Browser, "Edge"),
    ("OPR/", WordMeaning::Browser, "Opera"),
    ("OPT/", WordMeaning::Browser, "Opera"),
    ("OPiOS/", WordMeaning::Browser, "Opera"),
    ("Opera/", WordMeaning::Browser, "Opera"),
    ("Opera ", WordMeaning::Browser, "Opera"),
    ("SamsungBrowser/", WordMeaning::Browser, "Samsung Internet"),
    ("YaBrowser/", WordMeaning::Browser, "Yandex"),
    ("Vivaldi/", WordMeaning::Browser, "Vivaldi"),
    ("Whale/", WordMeaning::Browser, "Whale"),
    ("UCBrowser/", WordMeaning::Browser, "UC Browser"),
    ("MiuiBrowser/", WordMeaning::Browser, "Mi Browser"),
    ("HuaweiBrowser/", WordMeaning::Browser, "Huawei Browser"),
    ("QQBrowser/", WordMeaning::Browser, "QQ Browser"),
    ("MicroMessenger/", WordMeaning::Browser, "WeChat"),
    ("DuckDuckGo/", WordMeaning::Browser, "DuckDuckGo"),
    ("Ddg/", WordMeaning::Browser, "DuckDuckGo"),
    ("Brave/", WordMeaning::Browser, "Brave"),
    ("Silk/", WordMeaning::Browser, "Silk"),
    ("FBAV/", WordMeaning::Browser, "Facebook"),
    ("FBAN/", WordMeaning::Browser, "Facebook"),
    ("Instagram ", WordMeaning::Browser, "Instagram"),
    ("GSA/", WordMeaning::Browser, "Google"),
    ("Thunderbird/", WordMeaning::Browser, "Thunderbird"),
    ("SeaMonkey/", WordMeaning::Browser, "SeaMonkey"),
    ("PaleMoon/", WordMeaning::Browser, "Pale Moon"),
    ("FxiOS/", WordMeaning::Browser, "Firefox"),
    ("Focus/", WordMeaning::Browser, "Firefox"),
    ("Firefox/", WordMeaning::Browser, "Firefox"),
    ("Electron/", WordMeaning::Browser, "Electron"),
    ("CriOS/", WordMeaning::Browser, "Chrome"),
    ("Chromium/", WordMeaning::Browser, "Chromium"),
    ("Chrome/", WordMeaning::Browser, "Chrome"),
    ("MSIE ", WordMeaning::Browser, "Internet Explorer"),
    ("Trident/", WordMeaning::Browser, "Internet Explorer"),
    ("Konqueror/", WordMeaning::Browser, "Konqueror"),
    ("Lynx/", WordMeaning::Browser, "Lynx"),
    ("w3m/", WordMeaning::Browser, "w3m"),
    // Android's own browser has `Version/` but is not Safari: `UserAgent::parse` handles it.
    ("Version/", WordMeaning::Browser, "Safari"),
    ("Safari/", WordMeaning::Browser, "Safari"),
    ("AppleWebKit/", WordMeaning::Browser, "WebKit"),
    // Systems.
    ("Windows Phone", WordMeaning::System, "Windows Phone"),
    ("Xbox", WordMeaning::System, "Xbox"),
    ("Windows", WordMeaning::System, "Windows"),
    ("HarmonyOS", WordMeaning::System, "HarmonyOS"),
    ("OpenHarmony", WordMeaning::System, "HarmonyOS"),
    ("Tizen", WordMeaning::System, "Tizen"),
    ("Web0S", WordMeaning::System, "webOS"),
    ("webOS", WordMeaning::System, "webOS"),
    ("KAIOS", WordMeaning::System, "KaiOS"),
    ("Android", WordMeaning::System, "Android"),
    ("iPhone", WordMeaning::System, "iOS"),
    ("iPad", WordMeaning::System, "iOS"),
    ("iPod", WordMeaning::System, "iOS"),
    ("Apple TV", WordMeaning::System, "tvOS"),
    ("AppleTV", WordMeaning::System, "tvOS"),
    ("Macintosh", WordMeaning::System, "macOS"),
    ("Mac OS X", WordMeaning::System, "macOS"),
    ("Darwin/", WordMeaning::System, "Darwin"),
    ("CrOS", WordMeaning::System, "ChromeOS"),
    ("PlayStation", WordMeaning::System, "PlayStation"),
    ("Nintendo", WordMeaning::System, "Nintendo"),
    ("Roku", WordMeaning::System, "Roku"),
    ("FreeBSD", WordMeaning::System, "FreeBSD"),
    ("OpenBSD", WordMeaning::System, "OpenBSD"),
    ("Linux", WordMeaning::System, "Linux"),
    ("X11", WordMeaning::System, "Unix"),
    // Devices.
    ("SmartTV", WordMeaning::Device, "tv"),
    ("SMART-TV", WordMeaning::Device, "tv"),
    ("Android TV", WordMeaning::Device, "tv"),
    ("Apple TV", WordMeaning::Device, "tv"),
    ("AppleTV", WordMeaning::Device, "tv"),
    ("GoogleTV", WordMeaning::Device, "tv"),
    ("BRAVIA", WordMeaning::Device, "tv"),
    ("CrKey", WordMeaning::Device, "tv"),
    ("Roku", WordMeaning::Device, "tv"),
    ("AFTT", WordMeaning::Device, "tv"),
    ("Web0S", WordMeaning::Device, "tv"),
    ("PlayStation", WordMeaning::Device, "console"),
    ("Xbox", WordMeaning::Device, "console"),
    ("Nintendo", WordMeaning::Device, "console"),
    ("iPad", WordMeaning::Device, "tablet"),
    ("Tablet", WordMeaning::Device, "tablet"),
    ("Kindle", WordMeaning::Device, "tablet"),
    ("Silk/", WordMeaning::Device, "tablet"),
    ("iPhone", WordMeaning::Device, "mobile"),
    ("iPod", WordMeaning::Device, "mobile"),
    ("Windows Phone", WordMeaning::Device, "mobile"),
    ("Mobile", WordMeaning::Device, "mobile"),
    ("Mobi", WordMeaning::Device, "mobile"),
];

static WORD_MATCHER: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let mut builder = AhoCorasick::builder();
    builder.ascii_case_insensitive(true).build(USER_AGENT_WORDS.iter().map(|(word, ..)| word)).ok()
});

/// The parts of a user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct UserAgent<'a> {
    /// Family of a browser, a program or a robot.
    name: Option<&'a str>,
    /// First component of the version.
    version: Option<&'a str>,
    system: Option<&'static str>,
    device: Option<&'static str>,
    robot: Option<&'a str>,
}

/// The first word of each meaning, with its end in the text.
#[derive(Default)]
struct FirstWords([Option<(usize, usize)>; 6]);

impl FirstWords {
    fn record_word(&mut self, index: usize, end: usize) {
        let Some((_, says, _)) = USER_AGENT_WORDS.get(index) else { return };
        let Some(first) = self.0.get_mut(*says as usize) else { return };
        if first.is_none_or(|(known, _)| index < known) {
            *first = Some((index, end));
        }
    }

    fn first_word(&self, says: WordMeaning) -> Option<(&'static str, usize)> {
        let (index, end) = (*self.0.get(says as usize)?)?;
        Some((USER_AGENT_WORDS.get(index)?.2, end))
    }
}

impl<'a> UserAgent<'a> {
    fn parse(text: &'a str) -> Self {
        let Some(all) = WORD_MATCHER.as_ref().filter(|_| text.len() > 1) else {
            return UserAgent::default();
        };
        let mut firsts = FirstWords::default();
        let mut some_robot = None;
        for found in all.find_overlapping_iter(text) {
            let index = found.pattern().as_usize();
            match USER_AGENT_WORDS.get(index) {
                Some((_, WordMeaning::GenericRobot, _)) => {
                    some_robot =
                        some_robot.or_else(|| find_generic_robot(text, found.start(), found.end()));
                }
                // A match inside another word, possible because case is ignored, does not count.
                Some((word, ..)) if is_at_word_start(text, found.start(), word) => {
                    firsts.record_word(index, found.end());
                }
                _ => {}
            }
        }
        let system = firsts.first_word(WordMeaning::System).map(|(name, _)| name);
        if let Some((name, end)) = firsts.first_word(WordMeaning::Robot) {
            let version = parse_version_at(text, end);
            return UserAgent {
                name: Some(name),
                version,
                system,
                device: Some("bot"),
                robot: Some(name),
            };
        }
        if let Some((name, end)) = some_robot {
            let version = parse_version_at(text, end);
            return UserAgent {
                name: Some(name),
                version,
                system,
                device: Some("bot"),
                robot: Some(name),
            };
        }
        let browser = firsts.first_word(WordMeaning::Browser);
        // The name of a program may follow the name of a browser engine.
        if let Some((name, end)) =
            firsts.first_word(WordMeaning::Program).filter(|_| browser.is_none())
        {
            let version = parse_version_at(text, end);
            return UserAgent {
                name: Some(name),
                version,
                system,
                device: Some("program"),
                robot: None,
            };
        }
        let device =
            firsts.first_word(WordMeaning::Device).map(|(name, _)| name).or(match system {
                Some("Android" | "HarmonyOS") => Some("tablet"),
                Some(
                    "Windows" | "macOS" | "Linux" | "ChromeOS" | "FreeBSD" | "OpenBSD" | "Unix",
                ) => Some("desktop"),
                _ => None,
            });
        let (name, version) = match browser {
            Some(("Safari", _)) if system == Some("Android") => {
                let end = text.find("Version/").map(|at| at + "Version/".len());
                (Some("Android Browser"), end.and_then(|end| parse_version_at(text, end)))
            }
            Some(("Safari", _)) => {
                let end = text.find("Version/").map(|at| at + "Version/".len());
                (Some("Safari"), end.and_then(|end| parse_version_at(text, end)))
            }
            Some(("Internet Explorer", end)) => {
                let told = text.find("rv:").map_or(end, |at| at + "rv:".len());
                (Some("Internet Explorer"), parse_version_at(text, told))
            }
            Some((name, end)) => (Some(name), parse_version_at(text, end)),
            None => (None, None),
        };
        UserAgent { name, version, system, device, robot: None }
    }
}

/// Returns whether a match begins at the start of a word: `iPod` does not match in `tripod`.
fn is_at_word_start(text: &str, start: usize, word: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric();
    let first = word.as_bytes().first().is_some_and(is_letter);
    let before = start.checked_sub(1).and_then(|at| text.as_bytes().get(at));
    !(first && before.is_some_and(is_letter))
}

/// Returns the word around `bot` and its end, if `bot` ends a word: `SomeBot/1.0`, but neither `bottle` nor
/// the telephones of Cubot.
fn find_generic_robot(text: &str, start: usize, end: usize) -> Option<(&str, usize)> {
    let behind = text.as_bytes().get(end);
    if behind.is_some_and(u8::is_ascii_alphabetic) && !text.get(end..)?.starts_with("s ") {
        return None;
    }
    let is_part = |letter: char| letter.is_alphanumeric() || ['-', '_', '.', '!'].contains(&letter);
    let before = text.get(..start)?;
    let from = before.trim_end_matches(is_part).len();
    let rest = text.get(end..)?;
    let to = end + rest.len() - rest.trim_start_matches(is_part).len();
    if text.get(..from)?.ends_with('/') {
        // The URL of a page about the robot: `Some/1.0 (+http://example.com/bot.html)`.
        let first = text.find(|letter| !is_part(letter)).filter(|first| *first > 0)?;
        return Some((text.get(..first)?, first));
    }
    let name = text.get(from..to)?.trim_matches(['-', '_', '.']);
    let is_cubot = name.get(..5).is_some_and(|first| first.eq_ignore_ascii_case("cubot"));
    (!is_cubot).then_some((name, to))
}

/// Returns the number that begins at `end`: 128 for `/128.0.0.0`.
fn parse_version_at(text: &str, end: usize) -> Option<&str> {
    let rest = text.get(end..)?.trim_start_matches(['/', ' ', ':']);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest.get(..digits).filter(|digits| !digits.is_empty())
}

/// A function that returns one field of a user agent.
type UserAgentField = for<'a> fn(&UserAgent<'a>) -> Option<&'a str>;

/// Calls `then` with the user agent of each row. Logs repeat few user agents, so each is parsed once per
/// batch.
fn for_each_user_agent<'a>(
    call: &CallBatch,
    texts: &'a crate::closure_function::TextOperand,
    mut then: impl FnMut(Option<&UserAgent<'a>>),
) {
    let mut known: HashMap<&str, UserAgent<'a>> = HashMap::new();
    for row in 0..call.row_count() {
        match texts.get(row) {
            Some(text) => then(Some(known.entry(text).or_insert_with(|| UserAgent::parse(text)))),
            None => then(None),
        }
    }
}

fn text_field_function(calls: &[&'static str], what: &str, asks: UserAgentField) -> ScalarUDF {
    ClosureFunction::new(WEB_SECTION, calls, what)
        .with_arguments(&[ArgumentKind::Text], 1)
        .into_udf(move |call| {
            let texts = call.text_operand(0)?;
            let mut made = StringViewBuilder::with_capacity(call.row_count());
            for_each_user_agent(call, &texts, |agent| made.append_option(agent.and_then(asks)));
            Ok(Arc::new(made.finish()))
        })
}

/// The fields of the struct that `user_agent` returns.
const STRUCT_FIELDS: [(&str, UserAgentField); 5] = [
    ("browser", |agent| agent.name),
    ("version", |agent| agent.version),
    ("os", |agent| agent.system),
    ("device", |agent| agent.device),
    ("bot", |agent| agent.robot),
];

fn struct_fields() -> Fields {
    STRUCT_FIELDS.iter().map(|(name, _)| Field::new(*name, DataType::Utf8View, true)).collect()
}

fn build_structs(call: &CallBatch) -> PlanResult<ArrayRef> {
    let texts = call.text_operand(0)?;
    let mut columns = STRUCT_FIELDS.map(|_| StringViewBuilder::with_capacity(call.row_count()));
    let mut valid = Vec::with_capacity(call.row_count());
    for_each_user_agent(call, &texts, |agent| {
        valid.push(agent.is_some());
        for (column, (_, asks)) in columns.iter_mut().zip(STRUCT_FIELDS) {
            column.append_option(agent.and_then(asks));
        }
    });
    let columns = columns.map(|mut column| Arc::new(column.finish()) as ArrayRef);
    Ok(Arc::new(StructArray::try_new(
        struct_fields(),
        columns.to_vec(),
        Some(NullBuffer::from(valid)),
    )?))
}

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            WEB_SECTION,
            &["user_agent(text)"],
            "What a User-Agent says, as a struct of browser, version, os, device and bot.",
        )
        .with_arguments(&[ArgumentKind::Text], 1)
        .with_return_type(DataType::Struct(struct_fields()))
        .into_udf(build_structs),
        text_field_function(
            &["user_agent_browser(text)"],
            "The family of the browser, the program or the robot that a User-Agent names: Firefox, curl, Googlebot.",
            |agent| agent.name,
        ),
        text_field_function(
            &["user_agent_version(text)"],
            "The first part of the version of a User-Agent's browser, program or robot: 128.",
            |agent| agent.version,
        ),
        text_field_function(
            &["user_agent_os(text)"],
            "The system that a User-Agent names: Windows, macOS, Linux, Android, iOS.",
            |agent| agent.system,
        ),
        text_field_function(
            &["user_agent_device(text)"],
            "The kind of device of a User-Agent: desktop, mobile, tablet, tv, console, program or bot.",
            |agent| agent.device,
        ),
        text_field_function(
            &["user_agent_bot(text)"],
            "The name of the robot that a User-Agent is; null of what is none.",
            |agent| agent.robot,
        ),
        ClosureFunction::new(WEB_SECTION, &["is_bot(text)"], "Whether a User-Agent is a robot's.")
            .with_arguments(&[ArgumentKind::Text], 1)
            .with_return_type(DataType::Boolean)
            .into_udf(|call| {
                let texts = call.text_operand(0)?;
                let mut flags = Vec::with_capacity(call.row_count());
                for_each_user_agent(call, &texts, |agent| {
                    flags.push(agent.map(|agent| agent.robot.is_some()))
                });
                Ok(Arc::new(arrow::array::BooleanArray::from(flags)))
            }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::{check_text_calls, text_constant};
    use proptest::prelude::*;

    #[test]
    fn user_agents_are_recognized_by_their_words() {
        const SAFARI: &str = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15";
        for (text, name, version, system, device) in [
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 Safari/537.36",
                "Chrome",
                "128",
                "Windows",
                "desktop",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 Safari/537.36 Edg/128.0.0.0",
                "Edge",
                "128",
                "Windows",
                "desktop",
            ),
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0",
                "Firefox",
                "130",
                "Linux",
                "desktop",
            ),
            (SAFARI, "Safari", "17", "macOS", "desktop"),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
                "Safari",
                "17",
                "iOS",
                "mobile",
            ),
            (
                "Mozilla/5.0 (iPad; CPU OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/128.0.0.0 Mobile/15E148 Safari/604.1",
                "Chrome",
                "128",
                "iOS",
                "tablet",
            ),
            (
                "Mozilla/5.0 (Linux; Android 14; SM-S911B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/25.0 Chrome/121.0.0.0 Mobile Safari/537.36",
                "Samsung Internet",
                "25",
                "Android",
                "mobile",
            ),
            (
                "Mozilla/5.0 (Linux; Android 13; SM-X906C) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
                "Chrome",
                "126",
                "Android",
                "tablet",
            ),
            (
                "Mozilla/5.0 (Linux; U; Android 4.0.3; de-de) AppleWebKit/534.30 (KHTML, like Gecko) Version/4.0 Mobile Safari/534.30",
                "Android Browser",
                "4",
                "Android",
                "mobile",
            ),
            (
                "Mozilla/5.0 (Linux; Android 9; CUBOT_NOTE_S) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/99.0.4844.88 Mobile Safari/537.36",
                "Chrome",
                "99",
                "Android",
                "mobile",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; WOW64; Trident/7.0; rv:11.0) like Gecko",
                "Internet Explorer",
                "11",
                "Windows",
                "desktop",
            ),
            (
                "Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 6.1; Trident/4.0)",
                "Internet Explorer",
                "8",
                "Windows",
                "desktop",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/127.0.0.0 Safari/537.36 OPR/113.0.0.0",
                "Opera",
                "113",
                "Windows",
                "desktop",
            ),
            (
                "Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 Safari/537.36",
                "Chrome",
                "128",
                "ChromeOS",
                "desktop",
            ),
            (
                "Mozilla/5.0 (PlayStation 5 3.03/SmartTV) AppleWebKit/605.1.15 (KHTML, like Gecko)",
                "WebKit",
                "605",
                "PlayStation",
                "tv",
            ),
            (
                "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
                "Googlebot",
                "2",
                "NULL",
                "bot",
            ),
            (
                "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
                "GPTBot",
                "1",
                "NULL",
                "bot",
            ),
            (
                "Mozilla/5.0 (compatible; AwarioSmartBot/1.0; +https://awario.com/bots.html)",
                "AwarioSmartBot",
                "1",
                "NULL",
                "bot",
            ),
            ("Mozilla/5.0 (compatible; my-crawler 3)", "my-crawler", "3", "NULL", "bot"),
            ("Some/1.0 (+http://example.com/bot.html)", "Some", "1", "NULL", "bot"),
            ("curl/8.5.0", "curl", "8", "NULL", "program"),
            ("python-requests/2.32.3", "python-requests", "2", "NULL", "program"),
            ("Go-http-client/1.1", "Go-http-client", "1", "NULL", "program"),
            ("MyApp/1 CFNetwork/1494.0.7 Darwin/23.4.0", "CFNetwork", "1494", "Darwin", "program"),
            ("kube-probe/1.29", "kube-probe", "1", "NULL", "bot"),
            ("-", "NULL", "NULL", "NULL", "NULL"),
            ("", "NULL", "NULL", "NULL", "NULL"),
            ("bottle tripod", "NULL", "NULL", "NULL", "NULL"),
        ] {
            check_text_calls(&[
                ("user_agent_browser", &[text], name),
                ("user_agent_version", &[text], version),
                ("user_agent_os", &[text], system),
                ("user_agent_device", &[text], device),
                ("user_agent_bot", &[text], if device == "bot" { name } else { "NULL" }),
                ("is_bot", &[text], if device == "bot" { "true" } else { "false" }),
            ]);
        }
        check_text_calls(&[(
            "user_agent",
            &[SAFARI],
            "{browser: Safari, version: 17, os: macOS, device: desktop, bot: }",
        )]);
        assert_eq!(
            crate::closure_function::tests::call_in_all_forms(
                "is_bot",
                &[datafusion_common::ScalarValue::Utf8(None)]
            ),
            "NULL"
        );
        assert_eq!(
            crate::closure_function::tests::call_in_all_forms("is_bot", &[text_constant("x")]),
            "false"
        );
    }

    #[test]
    fn each_word_is_recognized_by_itself() {
        for (word, says, name) in USER_AGENT_WORDS {
            let agent = UserAgent::parse(word);
            match says {
                WordMeaning::Robot => assert_eq!(agent.robot, Some(*name), "{word}"),
                WordMeaning::GenericRobot => assert_eq!(agent.robot, Some(*word), "{word}"),
                WordMeaning::Program | WordMeaning::Browser => {
                    assert_eq!(agent.name, Some(*name), "{word}")
                }
                WordMeaning::System => assert_eq!(agent.system, Some(*name), "{word}"),
                WordMeaning::Device => assert_eq!(agent.device, Some(*name), "{word}"),
            }
        }
    }

    proptest! {
        #[test]
        fn no_user_agent_causes_a_panic(text in "(bot|Bot/|Chrome/|rv:|Version/|Safari/|é|[a-z0-9/ ();.-]){0,12}") {
            UserAgent::parse(&text);
        }
    }
}
