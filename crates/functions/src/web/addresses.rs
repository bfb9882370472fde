//! IP addresses, of version 4 and 6, and their prefixes: `10.0.0.0/8`.
//!
//! An address is read as it stands in logs: alone, with a port behind it, `10.0.0.1:443`, `[::1]:443`, or with
//! the length of a prefix. What is none, a host's name or a minus sign, has null for an answer. An address of
//! version 4 that comes as one of version 6, `::ffff:10.0.0.1`, is of version 4.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use datafusion_common::{Result as PlanResult, ScalarValue};
use datafusion_expr::{ColumnarValue, ScalarUDF};

use super::SECTION;
use crate::call::{Call, Function, Kind, Texts, failed, list_of, refused, shown, views};

const TEXT: Kind = Kind::Text;

/// The address that a text is.
fn address(text: &str) -> Option<IpAddr> {
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        // A port stands behind one colon; more of them are an address's own.
        None => match text.split_once(':') {
            Some((before, behind)) if !behind.contains(':') => {
                let is_port =
                    !behind.is_empty() && behind.bytes().all(|byte| byte.is_ascii_digit());
                if !is_port {
                    return None;
                }
                before
            }
            _ => text,
        },
    };
    Some(bare.parse::<IpAddr>().ok()?.to_canonical())
}

/// All addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Prefix {
    /// As it is written, beyond its bits too.
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// `10.0.0.0/8`, or an address alone.
    fn read(text: &str) -> Option<Self> {
        let Some((before, bits)) = text.split_once('/') else {
            let address = address(text)?;
            return Some(Prefix { address, bits: all_bits(address) });
        };
        let whole: IpAddr = before.parse().ok()?;
        let bits: u8 =
            bits.parse().ok().filter(|_| bits.bytes().all(|byte| byte.is_ascii_digit()))?;
        if bits > all_bits(whole) {
            return None;
        }
        let address = whole.to_canonical();
        // Of a mapped address the prefix is of version 4 if it reaches there.
        match (whole, address) {
            (IpAddr::V6(_), IpAddr::V4(_)) if bits >= 96 => {
                Some(Prefix { address, bits: bits - 96 })
            }
            (IpAddr::V6(_), IpAddr::V4(_)) => Some(Prefix { address: whole, bits }),
            _ => Some(Prefix { address, bits }),
        }
    }

    /// The bits of an address that are not the prefix's.
    fn free(&self) -> u128 {
        let free = u32::from(all_bits(self.address).saturating_sub(self.bits));
        1_u128.checked_shl(free).map_or(u128::MAX, |one| one - 1)
    }

    fn with(&self, of: impl FnOnce(u128) -> u128) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let made = of(u128::from(address.to_bits()));
                IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(made).unwrap_or(u32::MAX)))
            }
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(of(address.to_bits()))),
        }
    }

    fn first(&self) -> IpAddr {
        self.with(|bits| bits & !self.free())
    }

    fn last(&self) -> IpAddr {
        self.with(|bits| bits | self.free())
    }
}

fn all_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// An address among those of both versions.
fn place(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Ranges of addresses, in order and apart.
#[derive(Debug, Default)]
struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    fn of<'a>(prefixes: impl IntoIterator<Item = &'a str>) -> PlanResult<Self> {
        let mut all = Vec::new();
        for text in prefixes {
            let prefix = Prefix::read(text.trim()).ok_or_else(|| no_prefix(text))?;
            all.push((place(prefix.first()), place(prefix.last())));
        }
        all.sort_unstable();
        let mut apart: Vec<(u128, u128)> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match apart.last_mut() {
                Some((_, end)) if first <= *end => *end = last.max(*end),
                _ => apart.push((first, last)),
            }
        }
        Ok(Ranges(apart))
    }

    fn has(&self, address: IpAddr) -> bool {
        let at = place(address);
        let behind = self.0.partition_point(|(first, _)| *first <= at);
        behind
            .checked_sub(1)
            .and_then(|index| self.0.get(index))
            .is_some_and(|(_, last)| at <= *last)
    }
}

fn no_prefix(text: &str) -> datafusion_common::DataFusionError {
    refused(
        format!("`{}` is no address and no range of addresses", shown(text)),
        "it is written as '10.0.0.0/8', '192.168.1.7' or '2001:db8::/32'",
    )
}

/// What no router of the internet sends on: RFC 1918, loopback, link-local, RFC 6598, unique-local (RFC 4193),
/// and the address that is none.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_unspecified()
                || (first == 100 && second & 0b1100_0000 == 64)
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_unique_local()
                || address.is_unicast_link_local()
        }
    }
}

/// A function whose answer is text that is made of one.
fn text(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    of: fn(&str, &mut String) -> Option<()>,
) -> ScalarUDF {
    Function::new(SECTION, calls, what).also(aliases).takes(&[TEXT], 1).runs(move |call| {
        let texts = call.texts(0)?;
        call.written(|row, made| Ok(texts.get(row).and_then(|text| of(text, made)).is_some()))
    })
}

/// A function that says whether a text is so.
fn flag(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    of: fn(&str) -> Option<bool>,
) -> ScalarUDF {
    Function::new(SECTION, calls, what)
        .also(aliases)
        .takes(&[TEXT], 1)
        .gives(DataType::Boolean)
        .runs(move |call| {
            let texts = call.texts(0)?;
            call.flags(|row| Ok(texts.get(row).and_then(of)))
        })
}

/// A function whose answer is a number.
fn number(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    of: fn(&str) -> Option<i64>,
) -> ScalarUDF {
    Function::new(SECTION, calls, what).also(aliases).takes(&[TEXT], 1).gives(DataType::Int64).runs(
        move |call| {
            let texts = call.texts(0)?;
            call.numbers(|row| Ok(texts.get(row).and_then(of)))
        },
    )
}

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        flag(
            &["is_ipv4(text)"],
            "Whether a text is an address of version 4, and nothing else.",
            &["isipv4string"],
            |text| Some(text.parse::<Ipv4Addr>().is_ok()),
        ),
        flag(
            &["is_ipv6(text)"],
            "Whether a text is an address of version 6, and nothing else.",
            &["isipv6string"],
            |text| Some(text.parse::<Ipv6Addr>().is_ok()),
        ),
        flag(
            &["is_private(ip)"],
            "Whether an address is of a private, a shared or a local network, and not of the internet.",
            &["is_private_ip"],
            |text| address(text).map(is_private),
        ),
        number(
            &["ip_family(ip)"],
            "The version of an address or a prefix: 4 or 6.",
            &["family"],
            |text| Prefix::read(text).map(|prefix| if prefix.address.is_ipv4() { 4 } else { 6 }),
        ),
        Function::new(
            SECTION,
            &["ip_prefix(ip, bits)", "ip_prefix(ip, bits4, bits6)"],
            "The prefix of an address: ip_prefix('10.1.2.3', 16) is 10.1.0.0/16; with lengths of their own for \
             both versions, if two are given.",
        )
        .takes(&[TEXT, Kind::Integer, Kind::Integer], 2)
        .settles(|asked| {
            for index in 1..asked.count() {
                if let Some(bits) = asked.integer(index) {
                    checked_bits(bits)?;
                }
            }
            Ok(DataType::Utf8View)
        })
        .runs(|call| {
            let texts = call.texts(0)?;
            let (of_four, of_six) =
                (call.integers(1)?, call.integers(if call.count() > 2 { 2 } else { 1 })?);
            call.written(|row, made| {
                let Some(address) = texts.get(row).and_then(parse_address) else { return Ok(false) };
                let bits = if address.is_ipv4() { of_four.get(row) } else { of_six.get(row) };
                let Some(bits) = bits else { return Ok(false) };
                let bits = checked_bits(bits)?.min(all_bits(address));
                let prefix = Prefix { address, bits };
                Ok(write!(made, "{}/{bits}", prefix.first()).is_ok())
            })
        }),
        text(
            &["ip_subnet_min(prefix)"],
            "The first address of a prefix.",
            &[],
            |text, made| write!(made, "{}", Prefix::read(text)?.first()).ok(),
        ),
        text(
            &["ip_subnet_max(prefix)"],
            "The last address of a prefix.",
            &[],
            |text, made| write!(made, "{}", Prefix::read(text)?.last()).ok(),
        ),
        text(
            &["broadcast(prefix)"],
            "The last address of a prefix, with the prefix's length: broadcast('10.1.2.3/8') is 10.255.255.255/8.",
            &[],
            |text, made| {
                let prefix = Prefix::read(text)?;
                write!(made, "{}/{}", prefix.last(), prefix.bits).ok()
            },
        ),
        Function::new(
            SECTION,
            &["ip_subnet_range(prefix)"],
            "The first and the last address of a prefix, as a list of two.",
        )
        .takes(&[TEXT], 1)
        .gives(list_of(DataType::Utf8View))
        .runs(|call| {
            let texts = call.texts(0)?;
            call.lists(|row, items| {
                let Some(prefix) = texts.get(row).and_then(Prefix::read) else { return Ok(false) };
                items.add(Some(&prefix.first().to_string()))?;
                items.add(Some(&prefix.last().to_string()))?;
                Ok(true)
            })
        }),
        text(
            &["network(prefix)"],
            "A prefix with nothing behind its bits: network('10.1.2.3/8') is 10.0.0.0/8.",
            &[],
            |text, made| {
                let prefix = Prefix::read(text)?;
                write!(made, "{}/{}", prefix.first(), prefix.bits).ok()
            },
        ),
        text(
            &["host(prefix)"],
            "The address of a prefix, or of an address with a port, alone.",
            &[],
            |text, made| write!(made, "{}", Prefix::read(text)?.address).ok(),
        ),
        number(
            &["masklen(prefix)"],
            "The length of a prefix in bits.",
            &[],
            |text| Prefix::read(text).map(|prefix| i64::from(prefix.bits)),
        ),
        text(
            &["netmask(prefix)"],
            "The mask of a prefix: 255.255.0.0 of a length of 16.",
            &[],
            |text, made| {
                let prefix = Prefix::read(text)?;
                let all = if prefix.address.is_ipv4() { u128::from(u32::MAX) } else { u128::MAX };
                write!(made, "{}", prefix.with(|_| all & !prefix.free())).ok()
            },
        ),
        Function::new(
            SECTION,
            &["ip_in(ip, prefix, …)", "ip_in(ip, [prefix, …])"],
            "Whether an address is of one of several prefixes, 10.0.0.0/8, or one of several addresses.",
        )
        .also(&["ip_in_range", "isipaddressinrange"])
        .takes(&[TEXT, Kind::Texts], 2)
        .and_more(Kind::Texts)
        .settles(|asked| {
            for prefix in (1..asked.count()).filter_map(|index| asked.text(index)) {
                Ranges::of([prefix])?;
            }
            Ok(DataType::Boolean)
        })
        .runs(|call| is_in(call, 0, 1)),
        Function::new(
            SECTION,
            &["is_subnet_of(prefix, ip)"],
            "Whether an address, or all of a prefix, is of another prefix.",
        )
        .takes(&[TEXT, TEXT], 2)
        .settles(|asked| {
            asked.text(0).map(|prefix| Ranges::of([prefix])).transpose()?;
            Ok(DataType::Boolean)
        })
        .runs(|call| {
            let (outer, inner) = (call.texts(0)?, call.texts(1)?);
            call.flags(|row| {
                let (Some(outer), Some(inner)) = (outer.get(row), inner.get(row)) else {
                    return Ok(None);
                };
                let outer = Prefix::read(outer).ok_or_else(|| no_prefix(outer))?;
                Ok(Prefix::read(inner).map(|inner| {
                    place(outer.first()) <= place(inner.first())
                        && place(inner.last()) <= place(outer.last())
                }))
            })
        }),
        number(
            &["ipv4stringtonum(ip)"],
            "The number of an address of version 4.",
            &["inet_aton", "ipv4stringtonumornull"],
            |text| text.parse::<Ipv4Addr>().ok().map(|address| i64::from(address.to_bits())),
        ),
        Function::new(
            SECTION,
            &["ipv4numtostring(n)"],
            "The address of version 4 that has a number.",
        )
        .also(&["inet_ntoa"])
        .takes(&[Kind::Integer], 1)
        .runs(|call| {
            let numbers = call.integers(0)?;
            call.written(|row, made| {
                let Some(number) = numbers.get(row) else { return Ok(false) };
                match u32::try_from(number) {
                    Ok(bits) => Ok(write!(made, "{}", Ipv4Addr::from_bits(bits)).is_ok()),
                    Err(_) => Err(failed(
                        format!("{number} is the number of no address of version 4"),
                        "they are from 0 to 4294967295",
                    )),
                }
            })
        }),
    ]
}

fn checked_bits(bits: i64) -> PlanResult<u8> {
    u8::try_from(bits).ok().filter(|bits| *bits <= 128).ok_or_else(|| {
        refused(
            format!("`ip_prefix` takes 0 to 128 bits, and {bits} is none of them"),
            "ip_prefix(ip, 24, 48) has a length for each version",
        )
    })
}

/// The texts of a constant, which may be a list of them.
fn constants(value: &ScalarValue) -> PlanResult<Vec<String>> {
    if let Some(text) = value.try_as_str() {
        return Ok(text.into_iter().map(str::to_owned).collect());
    }
    let array = value.to_array()?;
    let items = match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().values().clone(),
        DataType::LargeList(_) => array.as_list::<i64>().values().clone(),
        _ => return Ok(Vec::new()),
    };
    Ok(views(&items)?.iter().flatten().map(str::to_owned).collect())
}

fn is_in(call: &Call, of: usize, first: usize) -> PlanResult<arrow::array::ArrayRef> {
    let texts = call.texts(of)?;
    let mut known = Some(Vec::new());
    for value in (first..call.count()).filter_map(|index| call.value(index)) {
        match (value, &mut known) {
            (ColumnarValue::Scalar(value), Some(known)) => {
                if value.is_null() {
                    return call.flags(|_| Ok(None));
                }
                known.extend(constants(value)?);
            }
            _ => known = None,
        }
    }
    if let Some(known) = known {
        let ranges = Ranges::of(known.iter().map(String::as_str))?;
        return call.flags(|row| Ok(texts.get(row).and_then(address).map(|ip| ranges.has(ip))));
    }
    let columns = (first..call.count()).map(|index| Column::of(call, index));
    let columns: Vec<Column> = columns.collect::<PlanResult<_>>()?;
    call.flags(|row| {
        let Some(address) = texts.get(row).and_then(parse_address) else { return Ok(None) };
        let mut is_in = false;
        for column in &columns {
            match column.has(row, address)? {
                Some(has) => is_in |= has,
                None => return Ok(None),
            }
        }
        Ok(Some(is_in))
    })
}

/// Prefixes that each row has of its own.
enum Column {
    Texts(Texts),
    Lists(arrow::array::ArrayRef),
}

impl Column {
    fn of(call: &Call, index: usize) -> PlanResult<Self> {
        let is_list =
            call.value(index).is_some_and(|value| !crate::call::is_text(&value.data_type()));
        Ok(match is_list {
            true => Column::Lists(call.column(index)?),
            false => Column::Texts(call.texts(index)?),
        })
    }

    fn has(&self, row: usize, address: IpAddr) -> PlanResult<Option<bool>> {
        match self {
            Column::Texts(texts) => match texts.get(row) {
                Some(text) => Ok(Some(Ranges::of([text])?.has(address))),
                None => Ok(None),
            },
            Column::Lists(lists) => {
                if lists.is_null(row) {
                    return Ok(None);
                }
                let all = constants(&ScalarValue::try_from_array(lists, row)?)?;
                Ok(Some(Ranges::of(all.iter().map(String::as_str))?.has(address)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::tests::{answer, called, check, shown_value, text};
    use arrow::array::{ListBuilder, StringBuilder};
    use proptest::prelude::*;
    use std::sync::Arc;

    #[test]
    fn addresses_are_read_as_logs_have_them() {
        check(&[
            ("is_ipv4", &["10.0.0.1"], "true"),
            ("is_ipv4", &["10.0.0.1:80"], "false"),
            ("is_ipv4", &["10.0.0"], "false"),
            ("is_ipv4", &["010.0.0.1"], "false"),
            ("isipv6string", &["::1"], "true"),
            ("isipv6string", &["10.0.0.1"], "false"),
            ("is_private", &["10.0.0.1"], "true"),
            ("is_private", &["10.0.0.1:443"], "true"),
            ("is_private", &["[fe80::1]:443"], "true"),
            ("is_private", &["::ffff:192.168.0.1"], "true"),
            ("is_private", &["172.32.0.1"], "false"),
            ("is_private", &["100.64.0.1"], "true"),
            ("is_private", &["100.128.0.1"], "false"),
            ("is_private", &["127.0.0.1"], "true"),
            ("is_private", &["fd00::1"], "true"),
            ("is_private", &["2001:db8::1"], "false"),
            ("is_private", &["8.8.8.8"], "false"),
            ("is_private", &["-"], "NULL"),
            ("is_private", &["example.com:80"], "NULL"),
            ("is_private", &["10.0.0.1:http"], "NULL"),
            ("ip_family", &["10.0.0.1"], "4"),
            ("family", &["2001:db8::/32"], "6"),
            ("ip_family", &["::ffff:10.0.0.1"], "4"),
            ("ip_family", &["x"], "NULL"),
            ("ip_subnet_min", &["192.64.1.1/9"], "192.0.0.0"),
            ("ip_subnet_max", &["192.64.1.1/9"], "192.127.255.255"),
            ("ip_subnet_max", &["2001:db8::/64"], "2001:db8::ffff:ffff:ffff:ffff"),
            ("ip_subnet_max", &["0.0.0.0/0"], "255.255.255.255"),
            ("ip_subnet_max", &["::/0"], "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("ip_subnet_range", &["1.2.3.160/24"], "[1.2.3.0, 1.2.3.255]"),
            ("ip_subnet_min", &["10.0.0.0/33"], "NULL"),
            ("network", &["10.1.2.3/8"], "10.0.0.0/8"),
            ("host", &["10.1.2.3/8"], "10.1.2.3"),
            ("host", &["[::1]:80"], "::1"),
            ("masklen", &["10.1.2.3/8"], "8"),
            ("masklen", &["10.1.2.3"], "32"),
            ("netmask", &["10.1.2.3/16"], "255.255.0.0"),
            ("netmask", &["2001:db8::/32"], "ffff:ffff::"),
            ("ipv4stringtonum", &["10.0.0.1"], "167772161"),
            ("inet_aton", &["x"], "NULL"),
        ]);
        let n = |number: i64| ScalarValue::from(number);
        for (name, args, expected) in [
            ("ip_prefix", vec![text("10.1.2.3"), n(16)], "10.1.0.0/16"),
            ("ip_prefix", vec![text("10.1.2.3"), n(0)], "0.0.0.0/0"),
            ("ip_prefix", vec![text("10.1.2.3"), n(64)], "10.1.2.3/32"),
            ("ip_prefix", vec![text("2001:db8:1:2::3"), n(24), n(48)], "2001:db8:1::/48"),
            ("ip_prefix", vec![text("10.1.2.3"), n(24), n(48)], "10.1.2.0/24"),
            ("ip_prefix", vec![text("-"), n(24)], "NULL"),
            (
                "ip_prefix",
                vec![text("10.1.2.3"), n(129)],
                "`ip_prefix` takes 0 to 128 bits, and 129 is none of them\nhint: ip_prefix(ip, 24, 48) has a length for each version",
            ),
            ("ipv4numtostring", vec![n(167_772_161)], "10.0.0.1"),
            (
                "inet_ntoa",
                vec![n(-1)],
                "-1 is the number of no address of version 4\nhint: they are from 0 to 4294967295",
            ),
        ] {
            assert_eq!(answer(name, &args), expected, "{name}{args:?}");
        }
    }

    #[test]
    fn addresses_are_of_prefixes() {
        check(&[
            ("ip_in", &["10.1.2.3", "10.0.0.0/8"], "true"),
            ("ip_in", &["11.1.2.3", "10.0.0.0/8"], "false"),
            ("ip_in", &["11.1.2.3", "10.0.0.0/8", "11.0.0.0/8"], "true"),
            ("ip_in_range", &["10.1.2.3:80", "10.1.2.3"], "true"),
            ("ip_in", &["::ffff:10.1.2.3", "10.0.0.0/8"], "true"),
            ("ip_in", &["10.1.2.3", "::ffff:10.0.0.0/104"], "true"),
            ("ip_in", &["10.1.2.3", "::/0"], "true"),
            ("ip_in", &["2001:db8::1", "2001:db8::/32"], "true"),
            ("ip_in", &["2001:db9::1", "2001:db8::/32"], "false"),
            ("isipaddressinrange", &["127.0.0.1", "127.0.0.0/8"], "true"),
            ("ip_in", &["-", "127.0.0.0/8"], "NULL"),
            (
                "ip_in",
                &["10.1.2.3", "10.0.0.0/33"],
                "`10.0.0.0/33` is no address and no range of addresses\nhint: it is written as '10.0.0.0/8', '192.168.1.7' or '2001:db8::/32'",
            ),
            ("is_subnet_of", &["192.168.3.128/26", "192.168.3.144"], "true"),
            ("is_subnet_of", &["192.168.3.128/26", "192.168.3.144/30"], "true"),
            ("is_subnet_of", &["192.168.3.128/26", "192.168.0.0/16"], "false"),
        ]);
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.append_value([Some("10.0.0.0/8"), Some("fd00::/8")]);
        lists.append_value([Some("11.0.0.0/8")]);
        lists.append_null();
        let lists = lists.finish();
        let constant = ScalarValue::List(Arc::new(lists.slice(0, 1)));
        assert_eq!(answer("ip_in", &[text("fd00::1"), constant]), "true");
        let ip = ColumnarValue::Scalar(text("11.0.0.1"));
        let made = called("ip_in", vec![ip, ColumnarValue::Array(Arc::new(lists))], 3).unwrap();
        let made: Vec<String> = (0..3).map(|row| shown_value(&made, row)).collect();
        assert_eq!(made, ["false", "true", "NULL"]);
    }

    proptest! {
        #[test]
        fn ranges_have_what_one_of_their_prefixes_has(
            prefixes in prop::collection::vec((any::<u32>(), 0_u8..=32), 1..20),
            address in any::<u32>(),
        ) {
            let texts: Vec<String> = prefixes
                .iter()
                .map(|(bits, length)| format!("{}/{length}", Ipv4Addr::from_bits(*bits)))
                .collect();
            let expected = prefixes.iter().any(|(bits, length)| {
                (address ^ bits).checked_shr(32 - u32::from(*length)).unwrap_or(0) == 0
            });
            let ranges = Ranges::of(texts.iter().map(String::as_str)).unwrap();
            prop_assert_eq!(ranges.has(IpAddr::V4(Ipv4Addr::from_bits(address))), expected);
        }

        #[test]
        fn no_text_panics(text in "[0-9a-f:./\\[\\]é-]{0,20}") {
            address(&text);
            Prefix::read(&text);
        }
    }
}
