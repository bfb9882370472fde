//! Wide events, as services write them: 39 columns, most of them strings, and the input of the
//! request as a struct, about 0.9 kB each. SplitMix64 with a fixed seed: the same ones everywhere.

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use crate::Result;

pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Small numbers far more often than large ones.
    fn skewed(&mut self, end: usize) -> usize {
        self.below(end) * self.below(end) / end.max(1)
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.skewed(list.len())]
    }

    fn hex(&mut self, digits: usize) -> String {
        format!("{:016x}{:016x}", self.next(), self.next())[..digits].to_owned()
    }

    fn words(&mut self, most: usize) -> String {
        let count = 1 + self.below(most);
        (0..count).map(|_| self.of(WORDS)).collect::<Vec<_>>().join(" ")
    }
}

const WORDS: &[&str] = &[
    "request",
    "order",
    "timeout",
    "after",
    "retry",
    "shipped",
    "cart",
    "customer",
    "payment",
    "queue",
    "Lieferung",
    "größe",
    "заказ",
    "не найден",
    "订单",
    "updated",
    "cache",
    "miss",
    "slow",
    "upstream",
];
const COUNTRIES: &[&str] = &["US", "DE", "GB", "FR", "IN", "JP", "BR", "CA", "PL", "SE", "AU"];
const CITIES: &[&str] = &[
    "New York",
    "Berlin",
    "London",
    "Paris",
    "Mumbai",
    "Tokyo",
    "São Paulo",
    "Toronto",
    "Kraków",
    "Göteborg",
    "Sydney",
    "San Francisco",
    "Hamburg",
    "Manchester",
];
const BROWSERS: &[&str] = &["Chrome", "Safari", "Firefox", "Edge", "Samsung Internet", "Opera"];
const SYSTEMS: &[&str] = &["Windows", "iOS", "Android", "Mac OS X", "Linux"];
const PATHS: &[&str] =
    &["/", "/search", "/product", "/cart", "/checkout", "/account/orders", "/help/returns"];

/// The columns that are strings: name, whether it may be null, and how a value is made.
type Make = fn(&mut Random) -> String;
const STRINGS: &[(&str, bool, Make)] = &[
    ("event_id", false, |random| {
        let hex = random.hex(32);
        format!("{}-{}-4{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
    }),
    ("event_type", false, |r| r.of(&["page_view", "click", "search", "purchase", "error"]).into()),
    ("user_id", true, |r| format!("u{:09}", r.skewed(80_000_000))),
    ("session_id", false, |r| r.hex(32)),
    ("country", false, |r| r.of(COUNTRIES).into()),
    ("region", true, |r| r.of(&["CA", "NY", "BE", "BY", "IDF", "MH", "ENG"]).into()),
    ("city", true, |r| r.of(CITIES).into()),
    ("language", false, |r| r.of(&["en-US", "de-DE", "en-GB", "fr-FR", "pt-BR", "ja"]).into()),
    ("device", false, |r| r.of(&["desktop", "phone", "tablet", "tv"]).into()),
    ("os", false, |r| r.of(SYSTEMS).into()),
    ("os_version", false, |r| format!("{}.{}", 8 + r.below(10), r.below(7))),
    ("browser", false, |r| r.of(BROWSERS).into()),
    ("browser_version", false, |r| {
        format!("{}.0.{}.{}", 90 + r.below(50), r.below(7000), r.below(200))
    }),
    ("user_agent", false, |r| {
        format!(
            "Mozilla/5.0 ({}; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) {}/{}.0.0.0 Safari/537.36",
            r.of(SYSTEMS),
            r.of(BROWSERS),
            90 + r.below(50),
        )
    }),
    ("ip", false, |r| {
        format!("{}.{}.{}.{}", 1 + r.below(223), r.below(256), r.below(256), r.below(256))
    }),
    ("method", false, |r| r.of(&["GET", "POST", "PUT", "DELETE"]).into()),
    ("url", false, |r| {
        format!(
            "https://shop.example.com{}?item={}&ref={}",
            r.of(PATHS),
            r.below(1_000_000),
            r.hex(8)
        )
    }),
    ("path", false, |r| r.of(PATHS).into()),
    ("referrer", true, |r| {
        format!("https://{}.example.org/{}", r.of(&["www", "search", "news"]), r.hex(10))
    }),
    ("host", false, |r| format!("web-{:03}.eu-central.example.net", r.below(200))),
    ("service", false, |r| r.of(&["storefront", "search", "checkout", "accounts"]).into()),
    ("pod", false, |r| format!("storefront-{}-{}", &r.hex(10), &r.hex(5))),
    ("datacenter", false, |r| r.of(&["fra1", "iad2", "sin1"]).into()),
    ("trace_id", false, |r| r.hex(32)),
    ("span_id", false, |r| r.hex(16)),
    ("level", false, |r| r.of(&["info", "warn", "debug", "error"]).into()),
    ("message", false, |r| r.words(12)),
    ("experiment", true, |r| format!("exp-{:03}", r.below(40))),
    ("variant", true, |r| r.of(&["control", "a", "b"]).into()),
    ("campaign", true, |r| {
        format!("2026-{:02}-{}", 1 + r.below(12), r.of(&["newsletter", "social", "video"]))
    }),
    ("currency", true, |r| r.of(&["EUR", "USD", "GBP", "JPY"]).into()),
    ("content_type", false, |r| {
        r.of(&["text/html; charset=utf-8", "application/json", "image/webp"]).into()
    }),
    ("cache", false, |r| r.of(&["HIT", "MISS", "BYPASS"]).into()),
    ("tls", false, |r| r.of(&["TLSv1.3", "TLSv1.2"]).into()),
];

pub fn schema() -> SchemaRef {
    let mut fields: Vec<Field> = STRINGS
        .iter()
        .map(|(name, nullable, _)| Field::new(*name, DataType::Utf8, *nullable))
        .collect();
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    fields.insert(1, Field::new("ts", utc, false));
    fields.push(Field::new("status", DataType::Int32, false));
    fields.push(Field::new("bytes", DataType::Int64, false));
    fields.push(Field::new("duration", DataType::Float64, false));
    fields.push(Field::new("input", DataType::Struct(input()), true));
    Arc::new(Schema::new(fields))
}

fn input() -> Fields {
    let item = Field::new("item", DataType::Utf8, false);
    vec![
        Field::new("query", DataType::Utf8, true),
        Field::new("page", DataType::Int32, false),
        Field::new("logged_in", DataType::Boolean, false),
        Field::new("items", DataType::List(Arc::new(item)), false),
        Field::new("form", DataType::Utf8, true),
    ]
    .into()
}

/// `rows` events in batches.
pub fn batches(rows: usize, batch_rows: usize) -> impl Iterator<Item = Result<RecordBatch>> {
    let mut random = Random(0x7469_6465_6d69_6c6c);
    let mut micros = 1_793_577_600_000_000;
    (0..rows)
        .step_by(batch_rows)
        .map(move |first| batch(&mut random, &mut micros, batch_rows.min(rows - first)))
}

fn batch(random: &mut Random, micros: &mut i64, rows: usize) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (_, nullable, make) in STRINGS {
        let mut builder = StringBuilder::new();
        for _ in 0..rows {
            if *nullable && random.below(100) < 30 {
                builder.append_null();
            } else {
                builder.append_value(make(random));
            }
        }
        columns.push(Arc::new(builder.finish()));
    }
    let mut ts = TimestampMicrosecondBuilder::new().with_timezone("UTC");
    let (mut status, mut bytes, mut duration) =
        (Int32Builder::new(), Int64Builder::new(), Float64Builder::new());
    for _ in 0..rows {
        *micros += random.below(700_000) as i64;
        ts.append_value(*micros);
        status.append_value([200, 200, 200, 304, 404, 500][random.below(6)]);
        bytes.append_value(random.skewed(2_000_000) as i64);
        duration.append_value(random.skewed(3_000_000) as f64 / 1000.0);
    }
    columns.insert(1, Arc::new(ts.finish()));
    columns.push(Arc::new(status.finish()));
    columns.push(Arc::new(bytes.finish()));
    columns.push(Arc::new(duration.finish()));
    columns.push(Arc::new(inputs(random, rows)?));
    Ok(RecordBatch::try_new(schema(), columns)?)
}

fn inputs(random: &mut Random, rows: usize) -> Result<StructArray> {
    let item = Field::new("item", DataType::Utf8, false);
    let mut query = StringBuilder::new();
    let mut page = Int32Builder::new();
    let mut logged_in = BooleanBuilder::new();
    let mut items = ListBuilder::new(StringBuilder::new()).with_field(item);
    let mut form = StringBuilder::new();
    for _ in 0..rows {
        query.append_option((random.below(3) == 0).then(|| random.words(3)));
        page.append_value(random.skewed(20) as i32);
        logged_in.append_value(random.below(2) == 0);
        for _ in 0..random.below(4) {
            items.values().append_value(format!("sku-{:07}", random.below(5_000_000)));
        }
        items.append(true);
        form.append_option((random.below(5) == 0).then(|| random.words(8)));
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(query.finish()),
        Arc::new(page.finish()),
        Arc::new(logged_in.finish()),
        Arc::new(items.finish()),
        Arc::new(form.finish()),
    ];
    let nulls = (0..rows).map(|_| random.below(20) != 0).collect::<Vec<_>>();
    Ok(StructArray::try_new(input(), columns, Some(nulls.into()))?)
}
