//! User agents: which browser, program or robot asked, on which system, on what kind of device.
//!
//! Clients write `User-Agent` as they like, and copy each other's. What they are is told by a few words, of which
//! the lists below have the wide-spread ones, in the order in which they count: Edge calls itself Chrome and
//! Safari, too. All words are looked for at once (Aho–Corasick), so that more of them cost nothing. The answers
//! are families, of which one counts things; the lists that tell each model of a telephone have thousands of
//! expressions and age by the month. Robots that are not in the list are known by what most of them call
//! themselves: `…bot`, `…crawler`, `…spider`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use aho_corasick::AhoCorasick;
use arrow::array::{ArrayRef, StringViewBuilder, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;

use super::SECTION;
use crate::call::{Call, Function, Kind};

/// What a word says of whoever writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    /// A robot of this name.
    Robot,
    /// A robot whose name is the word around this.
    SomeRobot,
    /// A program of this name, that somebody's own code calls.
    Program,
    Browser,
    System,
    Device,
}

/// Words, what they say, and the name that is given to it; of each kind the first that is there counts.
const WORDS: &[(&str, Says, &str)] = &[
    // Search.
    ("AdsBot-Google", Says::Robot, "AdsBot-Google"),
    ("Mediapartners-Google", Says::Robot, "Mediapartners-Google"),
    ("Google-InspectionTool", Says::Robot, "Google-InspectionTool"),
    ("GoogleOther", Says::Robot, "GoogleOther"),
    ("Storebot-Google", Says::Robot, "Storebot-Google"),
    ("FeedFetcher-Google", Says::Robot, "FeedFetcher-Google"),
    ("APIs-Google", Says::Robot, "APIs-Google"),
    ("Googlebot", Says::Robot, "Googlebot"),
    ("bingbot", Says::Robot, "bingbot"),
    ("BingPreview", Says::Robot, "BingPreview"),
    ("msnbot", Says::Robot, "msnbot"),
    ("YandexBot", Says::Robot, "YandexBot"),
    ("Baiduspider", Says::Robot, "Baiduspider"),
    ("DuckDuckBot", Says::Robot, "DuckDuckBot"),
    ("DuckAssistBot", Says::Robot, "DuckAssistBot"),
    ("Applebot", Says::Robot, "Applebot"),
    ("PetalBot", Says::Robot, "PetalBot"),
    ("SeznamBot", Says::Robot, "SeznamBot"),
    ("Sogou web spider", Says::Robot, "Sogou"),
    ("YisouSpider", Says::Robot, "YisouSpider"),
    ("Yahoo! Slurp", Says::Robot, "Yahoo! Slurp"),
    ("Qwantify", Says::Robot, "Qwantify"),
    ("Amazonbot", Says::Robot, "Amazonbot"),
    // Models of language.
    ("GPTBot", Says::Robot, "GPTBot"),
    ("OAI-SearchBot", Says::Robot, "OAI-SearchBot"),
    ("ChatGPT-User", Says::Robot, "ChatGPT-User"),
    ("ClaudeBot", Says::Robot, "ClaudeBot"),
    ("Claude-User", Says::Robot, "Claude-User"),
    ("Claude-SearchBot", Says::Robot, "Claude-SearchBot"),
    ("anthropic-ai", Says::Robot, "anthropic-ai"),
    ("PerplexityBot", Says::Robot, "PerplexityBot"),
    ("Perplexity-User", Says::Robot, "Perplexity-User"),
    ("Bytespider", Says::Robot, "Bytespider"),
    ("meta-externalagent", Says::Robot, "meta-externalagent"),
    ("MistralAI-User", Says::Robot, "MistralAI-User"),
    ("cohere-ai", Says::Robot, "cohere-ai"),
    ("CCBot", Says::Robot, "CCBot"),
    // Previews of links.
    ("facebookexternalhit", Says::Robot, "facebookexternalhit"),
    ("Twitterbot", Says::Robot, "Twitterbot"),
    ("LinkedInBot", Says::Robot, "LinkedInBot"),
    ("Slackbot", Says::Robot, "Slackbot"),
    ("Slack-ImgProxy", Says::Robot, "Slack-ImgProxy"),
    ("TelegramBot", Says::Robot, "TelegramBot"),
    ("Discordbot", Says::Robot, "Discordbot"),
    ("WhatsApp/", Says::Robot, "WhatsApp"),
    ("Pinterestbot", Says::Robot, "Pinterestbot"),
    ("SkypeUriPreview", Says::Robot, "SkypeUriPreview"),
    ("Mastodon/", Says::Robot, "Mastodon"),
    // Market research.
    ("AhrefsBot", Says::Robot, "AhrefsBot"),
    ("AhrefsSiteAudit", Says::Robot, "AhrefsSiteAudit"),
    ("SemrushBot", Says::Robot, "SemrushBot"),
    ("MJ12bot", Says::Robot, "MJ12bot"),
    ("DotBot", Says::Robot, "DotBot"),
    ("DataForSeoBot", Says::Robot, "DataForSeoBot"),
    ("BLEXBot", Says::Robot, "BLEXBot"),
    ("Screaming Frog", Says::Robot, "Screaming Frog"),
    // Archives.
    ("ia_archiver", Says::Robot, "ia_archiver"),
    ("archive.org_bot", Says::Robot, "archive.org_bot"),
    ("heritrix", Says::Robot, "Heritrix"),
    // Whoever looks whether a server is up.
    ("UptimeRobot", Says::Robot, "UptimeRobot"),
    ("Pingdom", Says::Robot, "Pingdom"),
    ("StatusCake", Says::Robot, "StatusCake"),
    ("Site24x7", Says::Robot, "Site24x7"),
    ("Better Uptime", Says::Robot, "Better Uptime"),
    ("check_http", Says::Robot, "check_http"),
    ("ELB-HealthChecker", Says::Robot, "ELB-HealthChecker"),
    ("Amazon-Route53-Health-Check", Says::Robot, "Amazon-Route53-Health-Check"),
    ("GoogleHC", Says::Robot, "GoogleHC"),
    ("GoogleStackdriverMonitoring", Says::Robot, "GoogleStackdriverMonitoring"),
    ("kube-probe", Says::Robot, "kube-probe"),
    ("Blackbox Exporter", Says::Robot, "Blackbox Exporter"),
    ("Prometheus/", Says::Robot, "Prometheus"),
    ("Zabbix", Says::Robot, "Zabbix"),
    ("Datadog", Says::Robot, "Datadog"),
    // Whoever looks for a way in.
    ("zgrab", Says::Robot, "zgrab"),
    ("masscan", Says::Robot, "masscan"),
    ("Nmap Scripting Engine", Says::Robot, "Nmap"),
    ("Nuclei", Says::Robot, "Nuclei"),
    ("CensysInspect", Says::Robot, "CensysInspect"),
    ("Expanse", Says::Robot, "Expanse"),
    ("InternetMeasurement", Says::Robot, "InternetMeasurement"),
    ("sqlmap", Says::Robot, "sqlmap"),
    ("Nikto", Says::Robot, "Nikto"),
    ("WPScan", Says::Robot, "WPScan"),
    // Browsers that nobody looks at.
    ("HeadlessChrome", Says::Robot, "HeadlessChrome"),
    ("PhantomJS", Says::Robot, "PhantomJS"),
    ("Chrome-Lighthouse", Says::Robot, "Chrome-Lighthouse"),
    ("Scrapy/", Says::Robot, "Scrapy"),
    ("bot", Says::SomeRobot, ""),
    ("crawler", Says::SomeRobot, ""),
    ("spider", Says::SomeRobot, ""),
    // Programs.
    ("curl/", Says::Program, "curl"),
    ("Wget/", Says::Program, "Wget"),
    ("python-requests/", Says::Program, "python-requests"),
    ("Python-urllib/", Says::Program, "Python-urllib"),
    ("python-httpx/", Says::Program, "python-httpx"),
    ("aiohttp/", Says::Program, "aiohttp"),
    ("Boto3/", Says::Program, "Boto3"),
    ("aws-cli/", Says::Program, "aws-cli"),
    ("aws-sdk-", Says::Program, "aws-sdk"),
    ("Go-http-client/", Says::Program, "Go-http-client"),
    ("okhttp/", Says::Program, "okhttp"),
    ("Apache-HttpClient/", Says::Program, "Apache-HttpClient"),
    ("Java-http-client/", Says::Program, "Java-http-client"),
    ("Java/", Says::Program, "Java"),
    ("axios/", Says::Program, "axios"),
    ("node-fetch", Says::Program, "node-fetch"),
    ("undici", Says::Program, "undici"),
    ("got (", Says::Program, "got"),
    ("Deno/", Says::Program, "Deno"),
    ("Bun/", Says::Program, "Bun"),
    ("PostmanRuntime/", Says::Program, "PostmanRuntime"),
    ("insomnia/", Says::Program, "insomnia"),
    ("HTTPie/", Says::Program, "HTTPie"),
    ("libwww-perl/", Says::Program, "libwww-perl"),
    ("GuzzleHttp/", Says::Program, "GuzzleHttp"),
    ("WordPress/", Says::Program, "WordPress"),
    ("PHP/", Says::Program, "PHP"),
    ("Faraday ", Says::Program, "Faraday"),
    ("Ruby", Says::Program, "Ruby"),
    ("reqwest/", Says::Program, "reqwest"),
    ("Dart/", Says::Program, "Dart"),
    ("Microsoft-CryptoAPI/", Says::Program, "Microsoft-CryptoAPI"),
    ("Microsoft-Delivery-Optimization/", Says::Program, "Microsoft-Delivery-Optimization"),
    ("git/", Says::Program, "git"),
    ("k6/", Says::Program, "k6"),
    ("ApacheBench/", Says::Program, "ApacheBench"),
    ("Jetty/", Says::Program, "Jetty"),
    ("CFNetwork/", Says::Program, "CFNetwork"),
    // Browsers: those that call themselves others', too, before the others.
    ("Edg/", Says::Browser, "Edge"),
    ("Edge/", Says::Browser, "Edge"),
    ("EdgA/", Says::Browser, "Edge"),
    ("EdgiOS/", Says::Browser, "Edge"),
    ("OPR/", Says::Browser, "Opera"),
    ("OPT/", Says::Browser, "Opera"),
    ("OPiOS/", Says::Browser, "Opera"),
    ("Opera/", Says::Browser, "Opera"),
    ("Opera ", Says::Browser, "Opera"),
    ("SamsungBrowser/", Says::Browser, "Samsung Internet"),
    ("YaBrowser/", Says::Browser, "Yandex"),
    ("Vivaldi/", Says::Browser, "Vivaldi"),
    ("Whale/", Says::Browser, "Whale"),
    ("UCBrowser/", Says::Browser, "UC Browser"),
    ("MiuiBrowser/", Says::Browser, "Mi Browser"),
    ("HuaweiBrowser/", Says::Browser, "Huawei Browser"),
    ("QQBrowser/", Says::Browser, "QQ Browser"),
    ("MicroMessenger/", Says::Browser, "WeChat"),
    ("DuckDuckGo/", Says::Browser, "DuckDuckGo"),
    ("Ddg/", Says::Browser, "DuckDuckGo"),
    ("Brave/", Says::Browser, "Brave"),
    ("Silk/", Says::Browser, "Silk"),
    ("FBAV/", Says::Browser, "Facebook"),
    ("FBAN/", Says::Browser, "Facebook"),
    ("Instagram ", Says::Browser, "Instagram"),
    ("GSA/", Says::Browser, "Google"),
    ("Thunderbird/", Says::Browser, "Thunderbird"),
    ("SeaMonkey/", Says::Browser, "SeaMonkey"),
    ("PaleMoon/", Says::Browser, "Pale Moon"),
    ("FxiOS/", Says::Browser, "Firefox"),
    ("Focus/", Says::Browser, "Firefox"),
    ("Firefox/", Says::Browser, "Firefox"),
    ("Electron/", Says::Browser, "Electron"),
    ("CriOS/", Says::Browser, "Chrome"),
    ("Chromium/", Says::Browser, "Chromium"),
    ("Chrome/", Says::Browser, "Chrome"),
    ("MSIE ", Says::Browser, "Internet Explorer"),
    ("Trident/", Says::Browser, "Internet Explorer"),
    ("Konqueror/", Says::Browser, "Konqueror"),
    ("Lynx/", Says::Browser, "Lynx"),
    ("w3m/", Says::Browser, "w3m"),
    // Android's own browser has a version, but is no Safari: it is told below.
    ("Version/", Says::Browser, "Safari"),
    ("Safari/", Says::Browser, "Safari"),
    ("AppleWebKit/", Says::Browser, "WebKit"),
    // Systems.
    ("Windows Phone", Says::System, "Windows Phone"),
    ("Xbox", Says::System, "Xbox"),
    ("Windows", Says::System, "Windows"),
    ("HarmonyOS", Says::System, "HarmonyOS"),
    ("OpenHarmony", Says::System, "HarmonyOS"),
    ("Tizen", Says::System, "Tizen"),
    ("Web0S", Says::System, "webOS"),
    ("webOS", Says::System, "webOS"),
    ("KAIOS", Says::System, "KaiOS"),
    ("Android", Says::System, "Android"),
    ("iPhone", Says::System, "iOS"),
    ("iPad", Says::System, "iOS"),
    ("iPod", Says::System, "iOS"),
    ("Apple TV", Says::System, "tvOS"),
    ("AppleTV", Says::System, "tvOS"),
    ("Macintosh", Says::System, "macOS"),
    ("Mac OS X", Says::System, "macOS"),
    ("Darwin/", Says::System, "Darwin"),
    ("CrOS", Says::System, "ChromeOS"),
    ("PlayStation", Says::System, "PlayStation"),
    ("Nintendo", Says::System, "Nintendo"),
    ("Roku", Says::System, "Roku"),
    ("FreeBSD", Says::System, "FreeBSD"),
    ("OpenBSD", Says::System, "OpenBSD"),
    ("Linux", Says::System, "Linux"),
    ("X11", Says::System, "Unix"),
    // Devices.
    ("SmartTV", Says::Device, "tv"),
    ("SMART-TV", Says::Device, "tv"),
    ("Android TV", Says::Device, "tv"),
    ("Apple TV", Says::Device, "tv"),
    ("AppleTV", Says::Device, "tv"),
    ("GoogleTV", Says::Device, "tv"),
    ("BRAVIA", Says::Device, "tv"),
    ("CrKey", Says::Device, "tv"),
    ("Roku", Says::Device, "tv"),
    ("AFTT", Says::Device, "tv"),
    ("Web0S", Says::Device, "tv"),
    ("PlayStation", Says::Device, "console"),
    ("Xbox", Says::Device, "console"),
    ("Nintendo", Says::Device, "console"),
    ("iPad", Says::Device, "tablet"),
    ("Tablet", Says::Device, "tablet"),
    ("Kindle", Says::Device, "tablet"),
    ("Silk/", Says::Device, "tablet"),
    ("iPhone", Says::Device, "mobile"),
    ("iPod", Says::Device, "mobile"),
    ("Windows Phone", Says::Device, "mobile"),
    ("Mobile", Says::Device, "mobile"),
    ("Mobi", Says::Device, "mobile"),
];

static ALL: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let mut builder = AhoCorasick::builder();
    builder.ascii_case_insensitive(true).build(WORDS.iter().map(|(word, ..)| word)).ok()
});

/// What is known of a user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Agent<'a> {
    /// A browser's, a program's or a robot's family.
    name: Option<&'a str>,
    /// The first part of its version.
    version: Option<&'a str>,
    system: Option<&'static str>,
    device: Option<&'static str>,
    robot: Option<&'a str>,
}

/// The first word of each kind, and where it ends.
#[derive(Default)]
struct Firsts([Option<(usize, usize)>; 6]);

impl Firsts {
    fn note(&mut self, index: usize, end: usize) {
        let Some((_, says, _)) = WORDS.get(index) else { return };
        let Some(first) = self.0.get_mut(*says as usize) else { return };
        if first.is_none_or(|(known, _)| index < known) {
            *first = Some((index, end));
        }
    }

    fn get(&self, says: Says) -> Option<(&'static str, usize)> {
        let (index, end) = (*self.0.get(says as usize)?)?;
        Some((WORDS.get(index)?.2, end))
    }
}

impl<'a> Agent<'a> {
    fn of(text: &'a str) -> Self {
        let Some(all) = ALL.as_ref().filter(|_| text.len() > 1) else { return Agent::default() };
        let mut firsts = Firsts::default();
        let mut some_robot = None;
        for found in all.find_overlapping_iter(text) {
            let index = found.pattern().as_usize();
            match WORDS.get(index) {
                Some((_, Says::SomeRobot, _)) => {
                    some_robot =
                        some_robot.or_else(|| robot_around(text, found.start(), found.end()));
                }
                // Words of a letter case of their own are parts of others' words in another.
                Some((word, ..)) if begins(text, found.start(), word) => {
                    firsts.note(index, found.end());
                }
                _ => {}
            }
        }
        let system = firsts.get(Says::System).map(|(name, _)| name);
        if let Some((name, end)) = firsts.get(Says::Robot) {
            let version = version_behind(text, end);
            return Agent {
                name: Some(name),
                version,
                system,
                device: Some("bot"),
                robot: Some(name),
            };
        }
        if let Some((name, end)) = some_robot {
            let version = version_behind(text, end);
            return Agent {
                name: Some(name),
                version,
                system,
                device: Some("bot"),
                robot: Some(name),
            };
        }
        let browser = firsts.get(Says::Browser);
        // A program may stand behind what a browser's engine is called.
        if let Some((name, end)) = firsts.get(Says::Program).filter(|_| browser.is_none()) {
            let version = version_behind(text, end);
            return Agent {
                name: Some(name),
                version,
                system,
                device: Some("program"),
                robot: None,
            };
        }
        let device = firsts.get(Says::Device).map(|(name, _)| name).or(match system {
            Some("Android" | "HarmonyOS") => Some("tablet"),
            Some("Windows" | "macOS" | "Linux" | "ChromeOS" | "FreeBSD" | "OpenBSD" | "Unix") => {
                Some("desktop")
            }
            _ => None,
        });
        let (name, version) = match browser {
            Some(("Safari", _)) if system == Some("Android") => {
                let end = text.find("Version/").map(|at| at + "Version/".len());
                (Some("Android Browser"), end.and_then(|end| version_behind(text, end)))
            }
            Some(("Safari", _)) => {
                let end = text.find("Version/").map(|at| at + "Version/".len());
                (Some("Safari"), end.and_then(|end| version_behind(text, end)))
            }
            Some(("Internet Explorer", end)) => {
                let told = text.find("rv:").map_or(end, |at| at + "rv:".len());
                (Some("Internet Explorer"), version_behind(text, told))
            }
            Some((name, end)) => (Some(name), version_behind(text, end)),
            None => (None, None),
        };
        Agent { name, version, system, device, robot: None }
    }
}

/// Whether a word begins where another ends: `iPod` is no part of `tripod`.
fn begins(text: &str, start: usize, word: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric();
    let first = word.as_bytes().first().is_some_and(is_letter);
    let before = start.checked_sub(1).and_then(|at| text.as_bytes().get(at));
    !(first && before.is_some_and(is_letter))
}

/// The word around `bot`, if it ends there, and where it ends: `SomeBot/1.0`, and neither `bottle` nor the
/// telephones of Cubot.
fn robot_around(text: &str, start: usize, end: usize) -> Option<(&str, usize)> {
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
        // A page about the robot: `Some/1.0 (+http://example.com/bot.html)`.
        let first = text.find(|letter| !is_part(letter)).filter(|first| *first > 0)?;
        return Some((text.get(..first)?, first));
    }
    let name = text.get(from..to)?.trim_matches(['-', '_', '.']);
    let is_cubot = name.get(..5).is_some_and(|first| first.eq_ignore_ascii_case("cubot"));
    (!is_cubot).then_some((name, to))
}

/// The number that begins behind a word: `/128.0.0.0` is 128.
fn version_behind(text: &str, end: usize) -> Option<&str> {
    let rest = text.get(end..)?.trim_start_matches(['/', ' ', ':']);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest.get(..digits).filter(|digits| !digits.is_empty())
}

/// What is asked of an agent.
type Asks = for<'a> fn(&Agent<'a>) -> Option<&'a str>;

/// Answers of which logs repeat a few: each is worked out once a batch.
fn each<'a>(call: &Call, texts: &'a crate::call::Texts, mut then: impl FnMut(Option<&Agent<'a>>)) {
    let mut known: HashMap<&str, Agent<'a>> = HashMap::new();
    for row in 0..call.rows() {
        match texts.get(row) {
            Some(text) => then(Some(known.entry(text).or_insert_with(|| Agent::of(text)))),
            None => then(None),
        }
    }
}

fn part(calls: &[&'static str], what: &str, asks: Asks) -> ScalarUDF {
    Function::new(SECTION, calls, what).takes(&[Kind::Text], 1).runs(move |call| {
        let texts = call.texts(0)?;
        let mut made = StringViewBuilder::with_capacity(call.rows());
        each(call, &texts, |agent| made.append_option(agent.and_then(asks)));
        Ok(Arc::new(made.finish()))
    })
}

/// The parts of a user agent, by their fields' names.
const PARTS: [(&str, Asks); 5] = [
    ("browser", |agent| agent.name),
    ("version", |agent| agent.version),
    ("os", |agent| agent.system),
    ("device", |agent| agent.device),
    ("bot", |agent| agent.robot),
];

fn fields() -> Fields {
    PARTS.iter().map(|(name, _)| Field::new(*name, DataType::Utf8View, true)).collect()
}

fn structs(call: &Call) -> PlanResult<ArrayRef> {
    let texts = call.texts(0)?;
    let mut columns = PARTS.map(|_| StringViewBuilder::with_capacity(call.rows()));
    let mut valid = Vec::with_capacity(call.rows());
    each(call, &texts, |agent| {
        valid.push(agent.is_some());
        for (column, (_, asks)) in columns.iter_mut().zip(PARTS) {
            column.append_option(agent.and_then(asks));
        }
    });
    let columns = columns.map(|mut column| Arc::new(column.finish()) as ArrayRef);
    Ok(Arc::new(StructArray::try_new(fields(), columns.to_vec(), Some(NullBuffer::from(valid)))?))
}

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        Function::new(
            SECTION,
            &["user_agent(text)"],
            "What a User-Agent says, as a struct of browser, version, os, device and bot.",
        )
        .takes(&[Kind::Text], 1)
        .gives(DataType::Struct(fields()))
        .runs(structs),
        part(
            &["user_agent_browser(text)"],
            "The family of the browser, the program or the robot that a User-Agent names: Firefox, curl, Googlebot.",
            |agent| agent.name,
        ),
        part(
            &["user_agent_version(text)"],
            "The first part of the version of a User-Agent's browser, program or robot: 128.",
            |agent| agent.version,
        ),
        part(
            &["user_agent_os(text)"],
            "The system that a User-Agent names: Windows, macOS, Linux, Android, iOS.",
            |agent| agent.system,
        ),
        part(
            &["user_agent_device(text)"],
            "The kind of device of a User-Agent: desktop, mobile, tablet, tv, console, program or bot.",
            |agent| agent.device,
        ),
        part(
            &["user_agent_bot(text)"],
            "The name of the robot that a User-Agent is; null of what is none.",
            |agent| agent.robot,
        ),
        Function::new(SECTION, &["is_bot(text)"], "Whether a User-Agent is a robot's.")
            .takes(&[Kind::Text], 1)
            .gives(DataType::Boolean)
            .runs(|call| {
                let texts = call.texts(0)?;
                let mut flags = Vec::with_capacity(call.rows());
                each(call, &texts, |agent| flags.push(agent.map(|agent| agent.robot.is_some())));
                Ok(Arc::new(arrow::array::BooleanArray::from(flags)))
            }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::tests::{check, text};
    use proptest::prelude::*;

    #[test]
    fn user_agents_are_told_by_their_words() {
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
            check(&[
                ("user_agent_browser", &[text], name),
                ("user_agent_version", &[text], version),
                ("user_agent_os", &[text], system),
                ("user_agent_device", &[text], device),
                ("user_agent_bot", &[text], if device == "bot" { name } else { "NULL" }),
                ("is_bot", &[text], if device == "bot" { "true" } else { "false" }),
            ]);
        }
        check(&[(
            "user_agent",
            &[SAFARI],
            "{browser: Safari, version: 17, os: macOS, device: desktop, bot: }",
        )]);
        assert_eq!(
            crate::call::tests::answer("is_bot", &[datafusion_common::ScalarValue::Utf8(None)]),
            "NULL"
        );
        assert_eq!(crate::call::tests::answer("is_bot", &[text("x")]), "false");
    }

    #[test]
    fn each_word_is_found_alone() {
        for (word, says, name) in WORDS {
            let agent = Agent::of(word);
            match says {
                Says::Robot => assert_eq!(agent.robot, Some(*name), "{word}"),
                Says::SomeRobot => assert_eq!(agent.robot, Some(*word), "{word}"),
                Says::Program | Says::Browser => assert_eq!(agent.name, Some(*name), "{word}"),
                Says::System => assert_eq!(agent.system, Some(*name), "{word}"),
                Says::Device => assert_eq!(agent.device, Some(*name), "{word}"),
            }
        }
    }

    proptest! {
        #[test]
        fn no_user_agent_panics(text in "(bot|Bot/|Chrome/|rv:|Version/|Safari/|é|[a-z0-9/ ();.-]){0,12}") {
            Agent::of(&text);
        }
    }
}
