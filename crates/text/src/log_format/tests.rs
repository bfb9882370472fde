use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int16Type, Int64Type, TimestampMicrosecondType};
use proptest::prelude::*;

use super::*;
use crate::lines::tests::{check_windows, decode_with, real_log, rows};
use crate::predicate_filter::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};
use crate::{DecodedBlocks, Options, sql_type_name};

/// Returns the columns of a description: `ip TEXT, status SMALLINT`.
fn describe_columns(description: &str) -> String {
    match LogFormat::new(description) {
        Ok(format) => {
            let column = |field: &FieldRef| {
                let name = match sql_type_name(field.data_type()).as_str() {
                    "TIMESTAMP(6) WITH TIME ZONE" => "INSTANT".to_owned(),
                    other => other.to_owned(),
                };
                format!("{} {name}", field.name())
            };
            format.columns().iter().map(column).collect::<Vec<_>>().join(", ")
        }
        Err(error) => format!("{}\nhint: {}", error.message, error.hint),
    }
}

/// Decodes all columns as text.
fn decode_as_text(description: &str, text: &[u8], batch_rows: usize) -> DecodedBlocks {
    let format = LogFormat::new(description).unwrap();
    let text_field =
        |field: FieldRef| Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View));
    let columns = format.columns().into_iter().map(text_field).enumerate().collect();
    let options = Options { batch_rows, ..Options::default() };
    decode_with(&mut LogFormatDecoder::new(&format, columns, options).unwrap(), text)
}

fn decode_columns(
    description: &str,
    names: &[&str],
    options: Options,
    text: &[u8],
) -> DecodedBlocks {
    let format = LogFormat::new(description).unwrap();
    let all: Vec<_> = format.columns().into_iter().enumerate().collect();
    let of = |name: &&str| all.iter().find(|(_, field)| field.name() == name).unwrap().clone();
    let columns = names.iter().map(of).collect();
    decode_with(&mut LogFormatDecoder::new(&format, columns, options).unwrap(), text)
}

#[test]
fn request_without_quotes_has_its_words() {
    let check = |description: &str, line: &str, expected: &[&str]| {
        let out = decode_as_text(description, line.as_bytes(), 8192);
        let expected: Vec<_> =
            expected.iter().map(|value| (*value != "∅").then(|| (*value).to_owned())).collect();
        assert_eq!(rows(&out.batches), [expected], "{description}: {line}: {:?}", out.rejected);
    };
    for description in ["%h %r %>s %b", "$remote_addr $request $status $bytes_sent"] {
        check(description, "h GET /a HTTP/1.1 200 7", &["h", "GET", "/a", "HTTP/1.1", "200", "7"]);
        check(
            description,
            "h M-SEARCH * HTTP/1.1 200 7",
            &["h", "M-SEARCH", "*", "HTTP/1.1", "200", "7"],
        );
        check(description, "h GET /old 200 7", &["h", "GET", "/old", "∅", "200", "7"]);
        check(description, "h - 408 7", &["h", "∅", "∅", "∅", "408", "7"]);
        check(description, "h \\x16\\x03 400 7", &["h", "∅", "\u{16}\u{3}", "∅", "400", "7"]);
    }
    check("%r [%>s]", "GET /a b c HTTP/1.1 [200]", &["GET", "/a b c", "HTTP/1.1", "200"]);
    check("%r|%>s", "GET /a HTTP/1.1|200", &["GET", "/a", "HTTP/1.1", "200"]);
    check("\"%r\" %>s", "\"GET /a b HTTP/1.1\" 200", &["GET", "/a b", "HTTP/1.1", "200"]);
    let text = b"h - - [10/Oct/2000:13:55:36 -0700] GET /a HTTP/1.1 200 7\n";
    let out =
        decode_columns("%h %l %u %t %r %>s %b", &["status", "bytes"], Options::default(), text);
    assert_eq!(out.batches[0].column(0).as_primitive::<Int16Type>().value(0), 200);
    assert_eq!(out.batches[0].column(1).as_primitive::<Int64Type>().value(0), 7);
}

#[test]
fn time_of_the_common_format_may_have_a_fraction() {
    let text = b"[10/Oct/2000:13:55:36.25 -0700] 200\n[10/Oct/2000:13:55:36 -0700] 200\n";
    let out = decode_columns("%t %>s", &["ts"], Options::default(), text);
    let times = out.batches[0].column(0).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(times.values().to_vec(), [971_211_336_250_000, 971_211_336_000_000]);
}

const COMMON: &str = "ip TEXT, ident TEXT, user TEXT, ts INSTANT, method TEXT, path TEXT, \
                      protocol TEXT, status SMALLINT, bytes BIGINT";

#[test]
fn descriptions_give_columns() {
    let combined = format!("{COMMON}, referrer TEXT, user_agent TEXT");
    for (description, expected) in [
        (r#"%h %l %u %t "%r" %>s %b"#, COMMON),
        (r#"%h %l %u %t \"%r\" %>s %b"#, COMMON),
        (r#""%h %l %u %t \"%r\" %>s %b""#, COMMON),
        (r#"LogFormat "%h %l %u %t \"%r\" %>s %b" common"#, COMMON),
        (r#"CustomLog logs/a "%h %l %u %t \"%r\" %>s %b" env=x"#, COMMON),
        ("common", COMMON),
        ("combined", &combined),
        (r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i""#, &combined),
        ("vhost_combined", &format!("host TEXT, port INT, {combined}")),
        ("combinedio", &format!("{combined}, bytes_received BIGINT, bytes_sent BIGINT")),
        (
            "main",
            "ip TEXT, user TEXT, ts INSTANT, method TEXT, path TEXT, protocol TEXT, status \
                  SMALLINT, bytes BIGINT, referrer TEXT, user_agent TEXT, x_forwarded_for TEXT",
        ),
        (
            "log_format up '$remote_addr $request_time'\n  ' $upstream_response_time \"$http_x_request_id\"';",
            "ip TEXT, request_time DOUBLE, upstream_response_time DOUBLE, x_request_id TEXT",
        ),
        ("'$a ' '$b'", "a TEXT, b TEXT"),
        ("%{NOTSPACE:n} %{NOTSPACE:n} %{INT:n}", "n TEXT, n_2 TEXT, n_3 BIGINT"),
        (r"(?:a=%{WORD:n}|b=%{WORD:n}|[|(]%{WORD:n}) %{WORD:n}", "n TEXT, n_2 TEXT"),
        (r"(?:%{WORD:n}(?:[]|]x|\|y))%{WORD:n}", "n TEXT, n_2 TEXT"),
        (
            "${host}:$server_port $msec $time_iso8601",
            "host TEXT, port INT, ts INSTANT, ts_2 INSTANT",
        ),
        (
            "$request_uri|$sent_http_content_type|$pipe",
            "path TEXT, sent_content_type TEXT, pipe TEXT",
        ),
        ("%a %h %{c}a", "ip TEXT, ip_2 TEXT, peer_ip TEXT"),
        (
            "%m %U%q %H %D %T %{ms}T",
            "method TEXT, path TEXT, protocol TEXT, request_time_us BIGINT, \
                                      request_time DOUBLE, request_time_ms BIGINT",
        ),
        (
            "%{X-Forwarded-For}i %!200,304{Foo}o %{SID}C %{VAR}e",
            "x_forwarded_for TEXT, sent_foo TEXT, \
                                                                 cookie_sid TEXT, var TEXT",
        ),
        ("[%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t] %p", "ts INSTANT, port INT"),
        ("%{%Y-%m-%d}t %{%T}t %s", "ts INSTANT, status SMALLINT"),
        ("%{%T}t %s", "ts TEXT, status SMALLINT"),
        ("%{usec}t %s", "ts INSTANT, status SMALLINT"),
        ("100%% %s", "status SMALLINT"),
        ("%{USER}e %s", "user TEXT, status SMALLINT"),
        (
            "%{IPORHOST:client} %{NUMBER:took:float} %{NUMBER} %{INT:n} %{WORD:verb} %{HTTPDATE:at} %{DATA:d}",
            "client TEXT, took DOUBLE, n BIGINT, verb TEXT, at INSTANT, d TEXT",
        ),
        (r"(?<a>[a-z]+)=%{NUMBER:[x][y]:int}|%{WORD:a2}", "a TEXT, x.y BIGINT, a2 TEXT"),
        (
            "%{COMMONAPACHELOG}",
            "clientip TEXT, ident TEXT, auth TEXT, timestamp INSTANT, verb TEXT, request TEXT, \
             httpversion TEXT, rawrequest TEXT, response BIGINT, bytes BIGINT",
        ),
    ] {
        assert_eq!(describe_columns(description), expected, "{description}");
    }
}

#[test]
fn unknown_formats_are_refused_with_a_hint() {
    for (description, expected) in [
        ("%h%l", "nothing stands between `%h` and `%l`"),
        ("$a$b", "nothing stands between `$a` and `$b`"),
        ("%h %Z", "`%Z` is no directive"),
        ("%h %", "`%` is no directive"),
        ("%{Referer", "`%{Referer` is no directive"),
        ("hello", "`hello` is no log format"),
        ("", "`` is no log format"),
        (r#"{"a":"$remote_addr","b":"$status"}"#, "a log of this format is JSON"),
        ("log_format x", "`log_format` has no strings"),
        ("log_format x escape=xml '$a';", "`escape=xml` is none of nginx's"),
        ("LogFormat ", "no log format"),
        ("CustomLog file", "`CustomLog` has no format in quotes"),
        ("%{NOPE:a}", "there is no pattern `NOPE`"),
        ("%{LOGLVEL:a}", "there is no pattern `LOGLVEL`; did you mean `LOGLEVEL`?"),
        ("%{WRD:a}", "there is no pattern `WRD`; did you mean `WORD`?"),
        ("%{WORD:a} %{TIME:b", "`%{TIME:b` is not ended"),
        ("%{WORD}", "the patterns name no column"),
        ("%{WORD:a:date}", "`date` is no type"),
        ("%{WORD:a b}", "`a b` is no name"),
        ("%{WORD:a} (", "the patterns are no regular expression"),
    ] {
        let found = describe_columns(description);
        assert!(found.contains(expected) && found.contains("\nhint: "), "{description}: {found}");
    }
    assert!(LogFormat::new(&"$a ".repeat(10_000)).is_err());
}

/// Every pattern of the list compiles, with its references.
#[test]
fn all_named_patterns_compile() {
    for (name, _) in grok::GROK_PATTERNS {
        LogFormat::new(&format!("%{{{name}:all:text}}")).unwrap();
    }
}

#[test]
fn values_get_their_types_and_faults_their_places() {
    let description = r#"%v:%p %h %l %u %t "%r" %>s %b %D"#;
    let line = |rest: &str| {
        format!("a.example:443 10.0.0.1 - jo hn [10/Oct/2000:13:55:36 -0700] {rest}\n")
    };
    let text = [
        line("\"GET /a\\\"b HTTP/1.1\" 200 2326 1500"),
        line("\"-\" 408 - -"),
        line("\"GET /a\"b\" 404 7 9"),
        line("\"GET /a\" 4040000 7 9"),
        line("\"GET /a 404 7 9"),
        "\n".to_owned(),
        "a.example:443 10.0.0.1 - - [x\n".to_owned(),
    ]
    .concat();
    let names = ["host", "port", "user", "ts", "path", "status", "bytes", "request_time_us"];
    let out = decode_columns(description, &names, Options::default(), text.as_bytes());
    assert_eq!(out.rows, 3);
    let batch = &out.batches[0];
    let texts = |column: usize| batch.column(column).as_string_view().iter().collect::<Vec<_>>();
    assert_eq!(texts(0), [Some("a.example"); 3]);
    assert_eq!(texts(2), [Some("jo hn"); 3]);
    assert_eq!(texts(4), [Some("/a\"b"), None, Some("/a\"b")]);
    let instants = batch.column(3).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(instants.values().to_vec(), [971_211_336_000_000; 3]);
    assert_eq!(batch.column(5).as_primitive::<Int16Type>().values().to_vec(), [200, 408, 404]);
    let micros: Vec<_> = batch.column(7).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(micros, [Some(1500), None, Some(9)]);
    let faults: Vec<String> = out
        .rejected
        .iter()
        .map(|bad| {
            let column = bad.fault.column.clone().unwrap_or_default();
            format!("{column} at {}: {}", bad.fault.offset, bad.fault)
        })
        .collect();
    assert_eq!(
        faults,
        [
            "status at 69: expected a SMALLINT, found `4040000`",
            "request at 61: the line ends within its value (`\" ` should follow)",
            "ts at 28: the line ends within its value (`] \"` should follow)",
        ]
    );
}

#[test]
fn times_of_several_servers_are_summed_and_other_types_can_be_asked_for() {
    let description = "$request_time $upstream_response_time";
    let text = b"0.250 0.125\n0.5 -\n1 0.125, 0.250 : -\n2 0.1, x\n3 \n4 0.1, 0.2\n5 1e-1, 0.2\n";
    let out = decode_columns(description, &["upstream_response_time"], Options::default(), text);
    let found: Vec<_> = out.batches[0].column(0).as_primitive::<Float64Type>().iter().collect();
    let sum_of_doubles = Some(0.1 + 0.2);
    assert_eq!(found, [Some(0.125), None, Some(0.375), None, Some(0.3), sum_of_doubles]);
    assert_eq!(out.rejected.len(), 1);
    let out = decode_as_text(description, text, 8192);
    assert_eq!(rows(&out.batches)[2][1].as_deref(), Some("0.125, 0.250 : -"));
}

/// Returns the only record of a log read with a description; null as `∅`.
fn record(description: &str, line: &str) -> String {
    let out = decode_as_text(description, format!("{line}\n").as_bytes(), 8192);
    assert!(out.rejected.is_empty(), "{description}: {:?}", out.rejected);
    let row = rows(&out.batches).remove(0);
    row.into_iter().map(|value| value.unwrap_or("∅".into())).collect::<Vec<_>>().join("|")
}

#[test]
fn fields_end_by_their_kind() {
    for (description, line, expected) in [
        // A field alone in quotes, and the string of a configuration.
        (r#""%r""#, r#""GET /a HTTP/1.1""#, "GET|/a|HTTP/1.1"),
        (r#""$request""#, r#""GET /a HTTP/1.1""#, "GET|/a|HTTP/1.1"),
        (r#""$cookie_sid""#, r#""x\"y""#, "x\"y"),
        (r#""%{Referer}i""#, r#""-""#, "∅"),
        (r#""$a" "$b""#, r#""1" "2""#, "1|2"),
        (r#""%h %l""#, "a b", "a|b"),
        (r#""\"%r\"""#, r#""GET /a""#, "GET|/a|∅"),
        ("'$request'", "GET /a", "GET|/a|∅"),
        // Fields of one name.
        ("%{NOTSPACE:n} %{NOTSPACE:n}", "a b", "a|b"),
        ("(?:%{INT:n}|x=%{WORD:n}) (?:y|%{WORD:n})", "x=a b", "a|b"),
        // Plain groups, and a dash that is no null in patterns.
        (r"(?<w>\w+) (?P<n>\d+)", "a 1", "a|1"),
        ("user=%{NOTSPACE:u}", "user=-", "-"),
        // A number, an address and a word begin at their own beginning, whatever the text before them would
        // take.
        (r"%{WORD:m} %{NOTSPACE:p}.*%{NUMBER:ms}ms", "GET /a took 125ms", "GET|/a|125"),
        ("%{GREEDYDATA:head}%{IP:ip}", "from host 10.20.30.40", "from host |10.20.30.40"),
        ("%{GREEDYDATA:f}%{POSINT:p}", "n=12", "n=|12"),
        ("%{GREEDYDATA:f}%{WORD:w}", "a bc", "a |bc"),
        ("%{DATA:f}%{NUMBER:n}", "x -1.5", "x |-1.5"),
        ("%{GREEDYDATA:f}%{NUMBER:n}", "7", "|7"),
        ("%{GREEDYDATA:f}%{INT:n}", "12", "1|2"),
        (r"a\\.*%{NUMBER:n}", r"a\x12", "12"),
        // Times that contain the text after them.
        ("%{%Y-%m-%d %H:%M:%S}t %m %U", "2026-11-01 10:00:00 GET /a", "2026-11-01 10:00:00|GET|/a"),
        ("%{%F %T}t %m", "2026-11-01 10:00:00 GET", "2026-11-01 10:00:00|GET"),
        ("%{%d.%m.%Y}t.%m", "01.11.2026.GET", "01.11.2026|GET"),
        // A connection that is closed.
        ("%h %X %u", "- - -", "∅|-|∅"),
        ("%X", "+", "+"),
        // Lists of several servers' values.
        ("$upstream_response_time $status", "0.004, 0.001 200", "0.004, 0.001|200"),
        ("$upstream_response_time $status", "0.004 200", "0.004|200"),
        ("$upstream_response_time $status", "- 200", "∅|200"),
        (
            "$upstream_addr $upstream_status $status",
            "a:1, b:2 : c:3 502, 502 : 200 200",
            "a:1, b:2 : c:3|502, 502 : 200|200",
        ),
        ("$upstream_response_time,$status", "0.1, 0.2,200", "0.1, 0.2|200"),
        ("$upstream_response_time|$status", "0.1, 0.2|200", "0.1, 0.2|200"),
        (r#""$upstream_addr" $status"#, r#""a:1, b:2" 200"#, "a:1, b:2|200"),
        ("$status $upstream_connect_time", "200 0.1, 0.2", "200|0.1, 0.2"),
        // Hosts with colons.
        ("%v:%p %h", "a.example:80 h", "a.example|80|h"),
        ("%v:%p %h", "::1:80 h", "::1|80|h"),
        ("%v:%p %h", "[::1]:80 ::2", "[::1]|80|::2"),
        ("$host:$server_port", "::1:80", "::1|80"),
    ] {
        assert_eq!(record(description, line), expected, "{description}: {line}");
    }
    let bad = |description: &str, line: &str| {
        let out = decode_as_text(description, format!("{line}\n").as_bytes(), 8192);
        out.rejected.iter().map(|bad| bad.fault.to_string()).collect::<Vec<_>>().join("; ")
    };
    let expected = "the line does not match the pattern of --log-format";
    assert_eq!(bad("%{INT:a} %{INT:b}", "x y"), expected);
    assert!(bad("%v:%p %h", "::1 h").is_empty() && !bad("%v:%p %h", "b h").is_empty());
    assert!(!bad("$upstream_response_time $status", "0.004, 0.001").is_empty());
    let out = decode_columns(
        "$upstream_response_time $status",
        &["upstream_response_time"],
        Options::default(),
        b"0.250, 0.125 : 0.125 200\n",
    );
    assert_eq!(out.batches[0].column(0).as_primitive::<Float64Type>().value(0), 0.5);
    let out = decode_columns(
        "%{NOTSPACE:a} %{NOTSPACE:b:int}",
        &["a", "b"],
        Options::default(),
        b"- -\n",
    );
    let (text, number) = (out.batches[0].column(0).as_string_view(), out.batches[0].column(1));
    assert!(text.value(0) == "-" && number.is_null(0));
    // A value in one column is null in others, also to predicates.
    let predicates = vec![Predicate {
        column: 0,
        condition: ValueCondition::InSet(vec![PredicateConstant::Text("-".into())].into()),
    }];
    let options = Options { predicates, ..Options::default() };
    let out = decode_columns("%X %b", &["connection", "bytes"], options, b"- -\n+ 7\n- 8\n");
    let bytes: Vec<_> = out.batches[0].column(1).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(bytes, [None, Some(8)]);
}

#[test]
fn times_of_java_and_python_are_times() {
    let format = "%{TIMESTAMP_ISO8601:ts} %{LOGLEVEL:level} %{GREEDYDATA:message}";
    for (written, micros) in [
        ("2026-03-01 01:02:03,456", 3_723_456_000),
        ("2026-03-01T01:02:03.456789", 3_723_456_789),
        ("2026-03-01 01:02:03,456+01:00", 123_456_000),
        ("2026-03-01 01:02", 3_720_000_000),
        ("2026-03-01T01:02:03Z", 3_723_000_000),
    ] {
        let line = format!("{written} INFO x y\n");
        let out = decode_columns(format, &["ts"], Options::default(), line.as_bytes());
        assert!(out.rejected.is_empty(), "{:?}", out.rejected);
        let day = 20_513 * 86_400_000_000;
        let found = out.batches[0].column(0).as_primitive::<TimestampMicrosecondType>().value(0);
        assert_eq!(found - day, micros, "{written}");
    }
    let line = b"2026-13-01 01:02:03,456 INFO x\n";
    assert_eq!(decode_columns(format, &["ts"], Options::default(), line).rejected.len(), 1);
}

#[test]
fn time_columns_state_their_pattern() {
    let format = LogFormat::new("[%{%d/%b/%Y:%T}t.%{usec_frac}t] %t %{usec}t %h").unwrap();
    let words: Vec<_> =
        format.columns().iter().map(|field| format.strftime_pattern(field.name())).collect();
    assert_eq!(words, [Some("%d/%b/%Y:%T.%6f"), Some("%d/%b/%Y:%H:%M:%S %z"), None, None]);
}

#[test]
fn a_list_of_clients_is_one_field() {
    let clients = [
        "1.2.3.4",
        "1.2.3.4, 5.6.7.8",
        "1.2.3.4, 5.6.7.8, ::1",
        "1.2.3.4 , 5.6.7.8",
        "1.2.3.4 ,5.6.7.8,::1",
        "-",
    ];
    for description in [
        "%{X-Forwarded-For}i %l %u %>s",
        "%200{x-forwarded-for}i %l %u %>s",
        "$http_x_forwarded_for $remote_user $ident $status",
        "$proxy_add_x_forwarded_for $remote_user $ident $status",
        "%h %l %u %>s",
        "%a %l %u %>s",
        "$remote_addr $remote_user $ident $status",
    ] {
        let text: String = clients.iter().map(|list| format!("{list} - ann 200\n")).collect();
        let out = decode_as_text(description, text.as_bytes(), 8192);
        assert!(out.rejected.is_empty(), "{description}: {:?}", out.rejected);
        let found: Vec<_> = rows(&out.batches).into_iter().map(|row| row[0].clone()).collect();
        let expected = clients.map(|list| Some(list.to_owned()).filter(|list| list != "-"));
        assert_eq!(found, expected, "{description}");
    }
    // A comma of the description ends a client.
    for (description, line, expected) in [
        ("$remote_addr, $status", "1.2.3.4, 200\n", "1.2.3.4"),
        ("$remote_addr , $status", "1.2.3.4 , 200\n", "1.2.3.4"),
        ("$remote_addr,$status", "1.2.3.4,200\n", "1.2.3.4"),
        ("$remote_addr - $remote_user [$status]", "1.2.3.4, ::1 - ann [200]\n", "1.2.3.4, ::1"),
    ] {
        let out = decode_as_text(description, line.as_bytes(), 8192);
        assert!(out.rejected.is_empty(), "{description}: {:?}", out.rejected);
        assert_eq!(rows(&out.batches)[0][0].as_deref(), Some(expected), "{description}");
    }
}

#[test]
fn a_list_of_clients_is_one_field_of_the_combined_format() {
    let behind = r#"[10/Oct/2026:13:55:36 -0700] "GET /a HTTP/1.1" 200 23 "-" "c""#;
    for clients in ["10.0.0.1, 10.0.0.2", "10.0.0.1 , 10.0.0.2", "10.0.0.1 ,10.0.0.2"] {
        for (user, expected) in [("-", None), ("ann b", Some("ann b"))] {
            let line = format!("{clients} - {user} {behind}\n");
            let out = decode_as_text("combined", line.as_bytes(), 8192);
            assert!(out.rejected.is_empty(), "{line}: {:?}", out.rejected);
            let row = rows(&out.batches).remove(0);
            let found: Vec<Option<&str>> = row[..3].iter().map(Option::as_deref).collect();
            assert_eq!(found, [Some(clients), None, expected], "{line}");
        }
    }
}

proptest! {
    /// A list of anything is one field, and a list of times becomes their sum.
    #[test]
    fn lists_of_servers_are_one_field(
        groups in prop::collection::vec(prop::collection::vec(0..10_000_u32, 1..4), 1..4),
        behind in prop::sample::select(vec![" ", "|", "\" "]),
    ) {
        let list: Vec<String> = groups.iter().map(|group| {
            group.iter().map(|n| format!("{}.{:03}", n / 1000, n % 1000)).collect::<Vec<_>>().join(", ")
        }).collect();
        let list = list.join(" : ");
        let text = format!("x {list}{behind}200\n");
        let description = format!("$a $upstream_response_time{behind}$status");
        let out = decode_as_text(&description, text.as_bytes(), 8192);
        let expected = [Some("x".to_owned()), Some(list), Some("200".to_owned())];
        prop_assert_eq!(rows(&out.batches), vec![expected.to_vec()]);
        let out = decode_columns(&description, &["upstream_response_time"], Options::default(), text.as_bytes());
        let sum = out.batches[0].column(0).as_primitive::<Float64Type>().value(0);
        let thousandths: u32 = groups.iter().flatten().sum();
        prop_assert!((sum - f64::from(thousandths) / 1000.0).abs() < 1e-6);
    }
}

#[test]
fn escapes_are_those_of_the_writer() {
    let check = |description: &str, raw: &str, expected: &str| {
        let out = decode_as_text(description, format!("x \"{raw}\"\n").as_bytes(), 8192);
        assert_eq!(rows(&out.batches)[0][0].as_deref(), Some(expected), "{description}");
    };
    check(r#"x "%{a}i""#, r#"\"\x41\\"#, "\"A\\");
    check(r#"log_format x 'x "$a"';"#, r"\x22\x5C", "\"\\");
    check(r#"log_format x escape=json 'x "$a"';"#, r#"\"\u0041\n"#, "\"A\n");
    check(r#"log_format x escape=none 'x "$a"';"#, r"\x41", r"\x41");
    check(r#"x "%{GREEDYDATA:a}""#, r"\x41", r"\x41");
}

#[test]
fn predicates_keep_what_a_filter_on_values_keeps() {
    let text: String = (0..1000)
        .map(|n| format!("h{} \"GET /{n} HTTP/1.1\" {} 0.{n:03}\n", n % 3, 200 + n % 5))
        .collect();
    let predicate = |column, test| Predicate { column, condition: test };
    let predicates = vec![
        predicate(
            0,
            ValueCondition::Comparison(
                ComparisonOperator::GreaterOrEqual,
                PredicateConstant::Int(203),
            ),
        ),
        predicate(1, ValueCondition::InSet(vec![PredicateConstant::Text("h1".into())].into())),
        predicate(
            2,
            ValueCondition::Comparison(ComparisonOperator::Less, PredicateConstant::Float(0.5)),
        ),
    ];
    let options = Options { predicates, ..Options::default() };
    let names = ["status", "host", "request_time", "path"];
    let out = decode_columns(
        r#"$host "$request" $status $request_time"#,
        &names,
        options,
        text.as_bytes(),
    );
    let found: Vec<String> = out
        .batches
        .iter()
        .flat_map(|b| b.column(3).as_string_view().iter().map(|v| v.unwrap().to_owned()))
        .collect();
    let expected: Vec<String> =
        (0..500).filter(|n| n % 5 >= 3 && n % 3 == 1).map(|n| format!("/{n}")).collect();
    assert_eq!(found, expected);
    assert_eq!(out.rows, 1000);
}

#[test]
fn result_does_not_depend_on_windows_and_blocks() {
    for description in [
        "main",
        r#"%{IP:ip} - %{USER:u} \[%{HTTPDATE:at}\] "%{DATA:r}" %{INT:s} %{INT:b} "%{DATA:e}" "%{DATA:a}" "%{DATA:f}""#,
    ] {
        let record = |index: usize, long: usize| {
            format!(
                "10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /{} HTTP/1.1\" {} 1 \"-\" \"é {index}\" \"-\"\n",
                "x".repeat(long),
                index % 1000
            )
        };
        check_windows(record, |options, text| {
            let format = LogFormat::new(description).unwrap();
            let text_field = |field: FieldRef| {
                Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View))
            };
            let columns = format.columns().into_iter().map(text_field).enumerate().collect();
            decode_with(&mut LogFormatDecoder::new(&format, columns, options).unwrap(), text)
        });
    }
}

#[test]
fn types_that_a_column_cannot_be_are_refused() {
    let format = LogFormat::new("%t %h").unwrap();
    for (place, data_type) in [
        (0, DataType::Timestamp(TimeUnit::Second, None)),
        (0, DataType::Date32),
        (1, DataType::new_list(DataType::Utf8, true)),
    ] {
        let field = Arc::new(Field::new("c", data_type, true));
        assert!(LogFormatDecoder::new(&format, vec![(place, field)], Options::default()).is_err());
    }
}

/// Apache's description and the access log decoder read the same real log alike.
#[test]
fn a_real_log_is_read_as_the_access_log_decoder_reads_it() {
    let Some(text) = real_log("apache_access.log") else { return };
    let found = decode_columns(
        "combined",
        &[
            "ip",
            "ident",
            "user",
            "ts",
            "method",
            "path",
            "protocol",
            "status",
            "bytes",
            "referrer",
            "user_agent",
        ],
        Options::default(),
        &text,
    );
    let all = access_log::access_log_columns().into_iter().enumerate().collect();
    let mut decoder = access_log::AccessLogDecoder::new(all, Options::default()).unwrap();
    let expected = decode_with(&mut decoder, &text);
    assert_eq!((found.rows, found.rejected.len()), (expected.rows, expected.rejected.len()));
    assert_eq!(found.batches, expected.batches);
}

// The model: the grammar of the module's documentation, applied character by character.

/// Returns the fields of a line, given the text before the first field and after each.
fn model(start: &str, fields: &[String], line: &str) -> Option<Vec<String>> {
    let mut rest = line.strip_prefix(start)?;
    let mut quoted = start.ends_with('"');
    let mut found = Vec::new();
    for (index, until) in fields.iter().enumerate() {
        let escapes = quoted && until.starts_with('"');
        let ends = |at: &usize| {
            let backslashes = rest[..*at].chars().rev().take_while(|c| *c == '\\').count();
            rest[*at..].starts_with(until.as_str()) && !(escapes && backslashes % 2 == 1)
        };
        let mut places = (0..=rest.len()).filter(|at| rest.is_char_boundary(*at));
        let end = match index + 1 == fields.len() {
            true => places.find(|at| ends(at) && at + until.len() == rest.len())?,
            false => places.find(ends)?,
        };
        found.push(rest[..end].to_owned());
        rest = &rest[end + until.len()..];
        quoted = until.ends_with('"');
    }
    rest.is_empty().then_some(found)
}

/// Returns a value as the columns have it: `-` is null.
fn value(text: String) -> Option<String> {
    (text != "-").then_some(text)
}

fn literal() -> impl Strategy<Value = String> {
    prop::sample::select(vec![" ", "\" \"", " \"", "\" ", "] [", " [", "] ", " - ", ":", "||"])
        .prop_map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn lines_are_read_as_the_model_reads_them(
        start in prop::sample::select(vec!["", "\"", "[", "x "]),
        mut between in prop::collection::vec(literal(), 1..6),
        end in prop::sample::select(vec!["", "\"", "]"]),
        lines in prop::collection::vec(
            prop::collection::vec(prop::sample::select(vec![
                " ", "\"", "\\\"", "\\", "[", "]", "-", ":", "|", "a", "é", "\" \"", " - ", "x "]), 0..24),
            0..20),
        batch_rows in 1usize..9, crs: bool,
    ) {
        between.push(end.to_owned());
        let mut description = format!("log_format x escape=none '{start}");
        for (index, until) in between.iter().enumerate() {
            description.push_str(&format!("${{v{index}}}{until}"));
        }
        description.push_str("';");
        let lines: Vec<String> = lines.iter().map(|line| line.concat()).collect();
        let end = if crs { "\r\n" } else { "\n" };
        let text: String = lines.iter().map(|line| format!("{line}{end}")).collect();
        let out = decode_as_text(&description, text.as_bytes(), batch_rows);
        let filled = lines.iter().filter(|line| !line.is_empty());
        let expected: Vec<Option<Vec<String>>> =
            filled.map(|line| model(start, &between, line)).collect();
        let bad = expected.iter().filter(|fields| fields.is_none()).count();
        prop_assert_eq!(out.rejected.len(), bad);
        let expected: Vec<Vec<Option<String>>> = expected
            .into_iter().flatten().map(|fields| fields.into_iter().map(value).collect()).collect();
        prop_assert_eq!(rows(&out.batches), expected);
    }

    /// A line written with a description is read back with it.
    #[test]
    fn written_lines_round_trip(
        records in prop::collection::vec(
            ("[a-z0-9.]{1,20}", "[a-z][a-z ]{0,9}", "/[a-z0-9/?&=. ]{0,40}", 100u16..600, any::<u32>(), "[ -~é]{0,40}"), 1..30),
    ) {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let line = |(ip, user, path, status, bytes, agent): &(String, String, String, u16, u32, String)| {
            format!(
                "{ip} - {user} [10/Oct/2000:13:55:36 -0700] \"GET {path} HTTP/1.1\" {status} {bytes} \"-\" \"{}\"\n",
                escaped(agent)
            )
        };
        let text: String = records.iter().map(line).collect();
        let out = decode_as_text("combined", text.as_bytes(), 8192);
        prop_assert!(out.rejected.is_empty());
        let expected: Vec<Vec<Option<String>>> = records.into_iter().map(|(ip, user, path, status, bytes, agent)| {
            let all = [ip, "-".into(), user, "10/Oct/2000:13:55:36 -0700".into(), "GET".into(), path, "HTTP/1.1".into(),
                       status.to_string(), bytes.to_string(), "-".into(), agent];
            all.into_iter().map(value).collect()
        }).collect();
        prop_assert_eq!(rows(&out.batches), expected);
    }

    /// The fields of named patterns are the groups of the regular expression.
    #[test]
    fn columns_of_patterns_are_the_groups_of_their_expression(
        fields in prop::collection::vec((prop::sample::select(vec![
            "WORD", "NOTSPACE", "DATA", "USER", "INT", "NONNEGINT", "POSINT", "NUMBER", "IPV4", "IP", "HOSTNAME",
            "IPORHOST", "HTTPDATE"]), prop::sample::select(vec![" ", "\" \"", "|", "=", "] ", " - "]), any::<bool>()), 1..5),
        rest in prop::option::of(prop::sample::select(vec!["DATA", "GREEDYDATA", "WORD", "NUMBER"])),
        lines in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![
            "a", "7", "0", "-", "+", ".", ":", "::1", "10.0.0.1", "1.5", " ", "\" \"", "|", "=", "] ", " - ", "é", "%",
            "10/Oct/2000:13:55:36 -0700", "a.b", "_"]), 0..14), 0..20),
        fitting in any::<bool>(),
    ) {
        let mut description = String::new();
        let mut sample = String::new();
        for (index, (name, until, named)) in fields.iter().enumerate() {
            let until_written = until.replace('|', "\\|").replace(']', "\\]");
            let column = if *named || index == 0 { format!(":c{index}:text") } else { String::new() };
            description.push_str(&format!("%{{{name}{column}}}{until_written}"));
            let text = match *name { "HTTPDATE" => "10/Oct/2000:13:55:36 -0700", "IPV4" | "IP" | "IPORHOST" => "10.0.0.1", _ => "7" };
            sample.push_str(&format!("{text}{until}"));
        }
        if let Some(name) = rest {
            description.push_str(&format!("%{{{name}:rest:text}}"));
            sample.push('7');
        }
        let mut lines: Vec<String> = lines.iter().map(|line| line.concat()).collect();
        if fitting {
            lines.push(sample);
        }
        let format = LogFormat::new(&description).unwrap();
        let LineMatcher::NamedPatterns(pattern) = &format.matcher else { panic!("a pattern") };
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let columns: Vec<_> = format.columns().into_iter().enumerate().collect();
        for wanted in [columns.clone(), columns[..1].to_vec(), columns[columns.len() / 2..].to_vec()] {
            let own = decode_with(
                &mut LogFormatDecoder::new(&format, wanted.clone(), Options::default()).unwrap(),
                text.as_bytes(),
            );
            let filled = lines.iter().filter(|line| !line.is_empty());
            let found: Vec<_> = filled.map(|line| pattern.match_by_regex(line)).collect();
            prop_assert_eq!(own.rejected.len(), found.iter().filter(|found| found.is_none()).count());
            let expected: Vec<Vec<Option<String>>> = found.into_iter().flatten().map(|fields| {
                wanted.iter().map(|(place, _)| fields[*place].clone()).collect()
            }).collect();
            prop_assert_eq!(rows(&own.batches), expected);
        }
    }

    #[test]
    fn no_description_and_no_bytes_make_it_panic(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "%", "{", "}", "$", "a", "%h", "%{x}i", "%t", "$request", "\"", "\\", "'", " ", "%{WORD:a}", "%{DATA:b:int}",
            "log_format x ", "LogFormat ", "escape=json ", "%{%F}t", "%U%q", "é", "(", "[", ";", "${", "%{", "%^ti"]), 0..14),
        bytes: Vec<u8>,
        text in prop::collection::vec(prop::sample::select(vec![" ", "\"", "\\", "a", "[", "]", "é", "-", "1", "\n", "\r"]), 0..60),
    ) {
        let description = pieces.concat();
        let Ok(format) = LogFormat::new(&description) else { return Ok(()) };
        let columns: Vec<_> = format.columns().into_iter().enumerate().collect();
        for text in [bytes, text.concat().into_bytes()] {
            decode_with(&mut LogFormatDecoder::new(&format, columns.clone(), Options::default()).unwrap(), &text);
        }
    }
}

/// Prints the speed of reading a log: `cargo test --release … log_formats_are_fast -- --ignored --nocapture`.
#[test]
#[ignore = "it measures"]
fn log_formats_are_fast() {
    let Some(text) = real_log("apache_access.log") else { return };
    let text = text.repeat(40);
    let all = || access_log::access_log_columns().into_iter().enumerate().collect::<Vec<_>>();
    let mut own = access_log::AccessLogDecoder::new(all(), Options::default()).unwrap();
    let format = LogFormat::new("combined").unwrap();
    let mut described = LogFormatDecoder::new(&format, all(), Options::default()).unwrap();
    let grok = LogFormat::new(r#"%{IPORHOST:ip} %{USER:ident} %{USER:user} \[%{HTTPDATE:at}\] "%{DATA:r}" %{INT:s} %{NOTSPACE:b} "%{DATA:e}" "%{DATA:a}""#).unwrap();
    let columns = grok.columns().into_iter().enumerate().collect();
    let mut patterns = LogFormatDecoder::new(&grok, columns, Options::default()).unwrap();
    let apache = LogFormat::new("%{COMBINEDAPACHELOG}").unwrap();
    let columns = apache.columns().into_iter().enumerate().collect();
    let mut expression = LogFormatDecoder::new(&apache, columns, Options::default()).unwrap();
    let decoders: [(&str, &mut dyn crate::BlockDecoder); 4] = [
        ("access-log", &mut own),
        ("combined", &mut described),
        ("patterns", &mut patterns),
        ("expression", &mut expression),
    ];
    for (name, decoder) in decoders {
        let mut out = DecodedBlocks::default();
        let begun = std::time::Instant::now();
        for block in text.split_inclusive(|b| *b == b'\n').collect::<Vec<_>>().chunks(2000) {
            let start = block[0].as_ptr() as usize - text.as_ptr() as usize;
            let length: usize = block.iter().map(|line| line.len()).sum();
            decoder.push(&text[start..start + length], &mut out);
            out.clear();
        }
        let seconds = begun.elapsed().as_secs_f64();
        println!("{name}: {:.0} MB/s", text.len() as f64 / seconds / 1e6);
    }
}
