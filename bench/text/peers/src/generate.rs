//! Events as a web shop writes them, about 1 KB each, as JSON lines.
//!
//! `flat` has 40 keys side by side; `nested` has objects in objects and arrays. Every key is
//! in every record but for some that `nested` leaves out. A few strings have escapes or
//! letters beyond ASCII, as titles and search words do. The numbers come from SplitMix64 with
//! a fixed seed, so that every run anywhere writes the same bytes.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use crate::Result;

pub fn write(kind: &str, bytes: usize, path: &Path) -> Result<()> {
    let record = match kind {
        "flat" => flat,
        "nested" => nested,
        _ => return Err(format!("no generator `{kind}`").into()),
    };
    let mut random = Random(0x7469_6465_6d69_6c6c);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut written = 0;
    // 2026-11-02T00:00:00Z: the records are in the order of their times.
    let mut millis = 1_793_577_600_000;
    while written < bytes {
        millis += random.below(700) as i64;
        let mut line = record(&mut random, millis);
        line.push('\n');
        file.write_all(line.as_bytes())?;
        written += line.len();
    }
    file.flush()?;
    Ok(())
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Small numbers far more often than large ones.
    fn skewed(&mut self, end: usize) -> usize {
        let (a, b) = (self.below(end), self.below(end));
        a * b / (end - 1).max(1)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.skewed(list.len())]
    }

    /// A number with decimals, written as it is and not as a float prints.
    fn decimal(&mut self, whole: usize, decimals: u32) -> String {
        let fraction = self.below(10_usize.pow(decimals));
        format!("{}.{fraction:0width$}", self.skewed(whole), width = decimals as usize)
    }

    fn hex(&mut self, digits: usize) -> String {
        format!("{:016x}{:016x}", self.next(), self.next())[..digits].to_owned()
    }

    fn uuid(&mut self) -> String {
        let hex = self.hex(32);
        format!("{}-{}-4{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
    }

    fn ip(&mut self) -> String {
        format!(
            "{}.{}.{}.{}",
            1 + self.below(223),
            self.below(256),
            self.below(256),
            1 + self.below(254)
        )
    }

    /// A string in quotes, or null.
    fn perhaps(&mut self, percent: usize, text: &str) -> String {
        if self.chance(percent) { format!("\"{text}\"") } else { "null".to_owned() }
    }
}

const STATES: &[&str] = &[
    "CA", "TX", "NY", "FL", "WA", "IL", "PA", "OH", "GA", "NC", "MI", "NJ", "VA", "AZ", "MA", "TN",
    "IN", "MO", "MD", "WI", "CO", "MN", "SC", "AL", "LA", "KY", "OR", "OK", "CT", "UT", "IA", "NV",
];
const CITIES: &[&str] = &[
    "Los Angeles",
    "Houston",
    "New York",
    "Miami",
    "Seattle",
    "Chicago",
    "Philadelphia",
    "Columbus",
    "Atlanta",
    "San José",
    "Cañon City",
    "Española",
    "Montréal",
    "Zürich",
    "東京",
    "København",
];
const COUNTRIES: &[&str] = &["US", "US", "US", "CA", "MX", "GB", "DE", "FR", "JP", "BR"];
const EVENTS: &[&str] = &[
    "page_view",
    "click",
    "scroll",
    "search",
    "add_to_cart",
    "login",
    "purchase",
    "error",
    "sign_up",
];
const PATHS: &[&str] = &[
    "/",
    "/products",
    "/products/shoes",
    "/products/shoes/running",
    "/cart",
    "/search",
    "/account/orders",
    "/checkout/payment",
    "/help/returns-and-refunds",
    "/blog/2026/how-to-choose-a-tent",
    "/login",
];
const TITLES: &[&str] = &[
    "Home",
    "Running shoes for men and women",
    "Your cart",
    "Search results",
    "Order history",
    r#"The 27\" monitor guide"#,
    r"Caf\u00e9 tables & chairs",
    "Zelte für den Winter",
    r"Returns\/refunds",
    "靴とバッグ",
    r"Line one\nline two",
    r"C:\\temp\\logs",
];
const SEARCHES: &[&str] = &[
    "",
    "",
    "",
    "q=tent",
    "q=running+shoes&sort=price",
    "q=%22wool+socks%22&page=2",
    "q=crème+brûlée",
    r#"q=27\"+monitor"#,
    "utm_source=newsletter&utm_medium=email&utm_campaign=autumn",
];
const REFERRERS: &[&str] = &[
    "https://www.google.com/",
    "https://www.bing.com/search?q=tents",
    "https://news.ycombinator.com/item?id=1",
    "https://shop.example.com/products/shoes",
    "https://t.co/abcdefghij",
];
const METHODS: &[&str] = &["GET", "GET", "GET", "POST", "PUT", "DELETE"];
const PROTOCOLS: &[&str] = &["HTTP/2", "HTTP/1.1", "HTTP/3"];
const STATUS: &[u16] = &[200, 200, 200, 200, 304, 301, 404, 403, 500, 503];
/// User agent, browser, version, system, device.
const AGENTS: &[[&str; 5]] = &[
    [
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
        "Chrome",
        "142.0.0.0",
        "Windows",
        "desktop",
    ],
    [
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
        "Safari",
        "18.6",
        "iOS",
        "phone",
    ],
    [
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15",
        "Safari",
        "18.5",
        "macOS",
        "desktop",
    ],
    [
        "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36",
        "Chrome",
        "142.0.0.0",
        "Android",
        "phone",
    ],
    [
        "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
        "Firefox",
        "145.0",
        "Linux",
        "desktop",
    ],
    [
        "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
        "Googlebot",
        "2.1",
        "other",
        "bot",
    ],
];
const LANGUAGES: &[&str] = &["en-US", "es-MX", "fr-CA", "de-DE", "ja-JP", "pt-BR"];
const SCREENS: &[[u16; 2]] = &[[1920, 1080], [390, 844], [1440, 900], [412, 915], [2560, 1440]];
const SOURCES: &[&str] = &["newsletter", "google", "facebook", "partner"];
const CAMPAIGNS: &[&str] = &["autumn-2026", "black-friday", "welcome-back"];

/// `2026-11-02T10:00:00.123Z`, of milliseconds since 1970.
fn time(millis: i64) -> String {
    use arrow_array::temporal_conversions::timestamp_ms_to_datetime;
    match timestamp_ms_to_datetime(millis) {
        Some(time) => time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        None => String::new(),
    }
}

fn flat(random: &mut Random, millis: i64) -> String {
    let [agent, browser, version, os, device] = random.of(AGENTS);
    let path = random.of(PATHS);
    let query = random.of(SEARCHES);
    let question = if query.is_empty() { "" } else { "?" };
    let [width, height] = random.of(SCREENS);
    let referrer = random.of(REFERRERS);
    let referrer = random.perhaps(60, referrer);
    let source = random.of(SOURCES);
    let source = random.perhaps(25, source);
    let campaign = random.of(CAMPAIGNS);
    let campaign = random.perhaps(20, campaign);
    let experiment = random.chance(50);
    let revenue = if random.chance(10) { random.decimal(900, 2) } else { "null".to_owned() };
    [
        format!(r#"{{"ts":"{}""#, time(millis)),
        format!(r#""event_id":"{}""#, random.uuid()),
        format!(r#""event":"{}""#, random.of(EVENTS)),
        format!(r#""url":"https://shop.example.com{path}{question}{query}""#),
        format!(r#""path":"{path}""#),
        format!(r#""query":"{query}""#),
        format!(r#""title":"{}""#, random.of(TITLES)),
        format!(r#""referrer":{referrer}"#),
        format!(r#""method":"{}""#, random.of(METHODS)),
        format!(r#""protocol":"{}""#, random.of(PROTOCOLS)),
        format!(r#""status":{}"#, random.of(STATUS)),
        format!(r#""bytes":{}"#, random.skewed(400_000)),
        format!(r#""duration_ms":{}"#, random.decimal(3000, 3)),
        format!(r#""ttfb_ms":{}"#, random.skewed(900)),
        format!(r#""ip":"{}""#, random.ip()),
        format!(r#""session_id":"{}""#, random.hex(32)),
        format!(r#""country":"{}""#, random.of(COUNTRIES)),
        format!(r#""state":"{}""#, random.of(STATES)),
        format!(r#""city":"{}""#, random.of(CITIES)),
        format!(r#""zip":"{:05}""#, random.below(100_000)),
        format!(r#""lat":{}"#, random.decimal(70, 6)),
        format!(r#""lon":-{}"#, random.decimal(170, 6)),
        format!(r#""user_agent":"{agent}""#),
        format!(r#""browser":"{browser}""#),
        format!(r#""browser_version":"{version}""#),
        format!(r#""os":"{os}""#),
        format!(r#""device":"{device}""#),
        format!(r#""is_mobile":{}"#, device == "phone"),
        format!(r#""is_bot":{}"#, device == "bot"),
        format!(r#""screen_width":{width}"#),
        format!(r#""screen_height":{height}"#),
        format!(r#""language":"{}""#, random.of(LANGUAGES)),
        format!(r#""utm_source":{source}"#),
        format!(r#""utm_campaign":{campaign}"#),
        format!(r#""experiment":{}"#, if experiment { "\"checkout-b\"" } else { "null" }),
        format!(
            r#""variant":{}"#,
            if experiment { ["1", "2", "3"][random.below(3)] } else { "null" }
        ),
        format!(r#""revenue":{revenue}"#),
        format!(r#""cart_items":{}"#, random.skewed(12)),
        format!(r#""user_id":{}"#, 100_000 + random.skewed(2_000_000)),
        format!(r#""consent":{}}}"#, random.chance(80)),
    ]
    .join(",")
}

fn nested(random: &mut Random, millis: i64) -> String {
    let [agent, browser, version, os, device] = random.of(AGENTS);
    let path = random.of(PATHS);
    let [width, height] = random.of(SCREENS);
    let referrer = random.of(REFERRERS);
    let referrer = random.perhaps(60, referrer);
    let geo = if random.chance(98) {
        format!(
            r#""geo":{{"country":"{}","state":"{}","city":"{}","location":[{},-{}]}},"#,
            random.of(COUNTRIES),
            random.of(STATES),
            random.of(CITIES),
            random.decimal(70, 6),
            random.decimal(170, 6),
        )
    } else {
        String::new()
    };
    let items: Vec<String> = (0..random.skewed(4))
        .map(|_| {
            format!(
                r#"{{"sku":"{}","price":{},"quantity":{},"tags":["{}","sale"]}}"#,
                random.hex(10),
                random.decimal(300, 2),
                1 + random.skewed(3),
                random.of(SOURCES),
            )
        })
        .collect();
    // One event in fifty has no user.
    let user = if random.chance(98) {
        format!(
            r#""user":{{"anonymous":{},"traits":{{"plan":"{}","age":{},"email":"{}@example.com"}},"id":{}}},"#,
            random.chance(40),
            ["free", "pro", "team"][random.below(3)],
            18 + random.skewed(60),
            random.hex(8),
            100_000 + random.skewed(2_000_000),
        )
    } else {
        String::new()
    };
    format!(
        concat!(
            r#"{{"id":"{id}","ts":"{ts}","event":{{"name":"{event}","properties":{{"value":{value},"items":[{items}],"coupon":null}}}},"#,
            r#""context":{{"ip":"{ip}","user_agent":"{agent}","library":{{"name":"analytics.js","version":"2.11.1"}},"#,
            r#""page":{{"url":"https://shop.example.com{path}","path":"{path}","title":"{title}","referrer":{referrer}}},{geo}"#,
            r#""device":{{"os":"{os}","kind":"{device}","browser":{{"name":"{browser}","version":"{version}"}},"screen":{{"width":{width},"height":{height}}}}},"#,
            r#""locale":"{locale}"}},{user}"sent_at":"{sent}","channel":"web","tags":["{tag}","v2"]}}"#,
        ),
        id = random.uuid(),
        ts = time(millis),
        event = random.of(EVENTS),
        value = random.decimal(900, 2),
        items = items.join(","),
        ip = random.ip(),
        agent = agent,
        path = path,
        title = random.of(TITLES),
        referrer = referrer,
        geo = geo,
        os = os,
        device = device,
        browser = browser,
        version = version,
        width = width,
        height = height,
        locale = random.of(LANGUAGES),
        user = user,
        sent = time(millis + random.skewed(5000) as i64),
        tag = random.of(CAMPAIGNS),
    )
}
