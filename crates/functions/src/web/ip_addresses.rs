//! IP addresses of version 4 and 6, and their prefixes: `10.0.0.0/8`.
//!
//! An address is accepted as logs write it: alone, with a port (`10.0.0.1:443`, `[::1]:443`), or with a
//! prefix length. For other text, such as a host name or a minus sign, the result is null. An IPv4-mapped
//! address of version 6, `::ffff:10.0.0.1`, counts as version 4.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use datafusion_common::{Result as PlanResult, ScalarValue};
use datafusion_expr::{ColumnarValue, ScalarUDF};

use super::WEB_SECTION;
use crate::closure_function::{
    ArgumentKind, CallBatch, ClosureFunction, TextOperand, cast_to_views, excerpt_for_message,
    list_type, query_error, usage_error,
};

const TEXT_ARGUMENT: ArgumentKind = ArgumentKind::Text;

/// Parses an address, with or without a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        // One colon precedes a port; several colons belong to an address of version 6.
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

/// A network prefix: all addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IpPrefix {
    /// Address as written, including the bits behind the prefix.
    address: IpAddr,
    bits: u8,
}

impl IpPrefix {
    /// Parses `10.0.0.0/8`, or a single address.
    fn parse(text: &str) -> Option<Self> {
        let Some((before, bits)) = text.split_once('/') else {
            let address = parse_address(text)?;
            return Some(IpPrefix { address, bits: address_bit_count(address) });
        };
        let whole: IpAddr = before.parse().ok()?;
        let bits: u8 =
            bits.parse().ok().filter(|_| bits.bytes().all(|byte| byte.is_ascii_digit()))?;
        if bits > address_bit_count(whole) {
            return None;
        }
        let address = whole.to_canonical();
        // The prefix of an IPv4-mapped address is of version 4 if it covers the mapping's 96 bits.
        match (whole, address) {
            (IpAddr::V6(_), IpAddr::V4(_)) if bits >= 96 => {
                Some(IpPrefix { address, bits: bits - 96 })
            }
            (IpAddr::V6(_), IpAddr::V4(_)) => Some(IpPrefix { address: whole, bits }),
            _ => Some(IpPrefix { address, bits }),
        }
    }

    /// Returns a mask of the bits behind the prefix.
    fn host_mask(&self) -> u128 {
        let free = u32::from(address_bit_count(self.address).saturating_sub(self.bits));
        1_u128.checked_shl(free).map_or(u128::MAX, |one| one - 1)
    }

    fn map_bits(&self, of: impl FnOnce(u128) -> u128) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let made = of(u128::from(address.to_bits()));
                IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(made).unwrap_or(u32::MAX)))
            }
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(of(address.to_bits()))),
        }
    }

    fn first_address(&self) -> IpAddr {
        self.map_bits(|bits| bits & !self.host_mask())
    }

    fn last_address(&self) -> IpAddr {
        self.map_bits(|bits| bits | self.host_mask())
    }
}

fn address_bit_count(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Returns the position of an address among those of both versions.
fn address_key(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Sorted, disjoint ranges of addresses.
#[derive(Debug, Default)]
struct AddressRanges(Vec<(u128, u128)>);

impl AddressRanges {
    fn from_prefixes<'a>(prefixes: impl IntoIterator<Item = &'a str>) -> PlanResult<Self> {
        let mut all = Vec::new();
        for text in prefixes {
            let prefix = IpPrefix::parse(text.trim()).ok_or_else(|| invalid_prefix_error(text))?;
            all.push((address_key(prefix.first_address()), address_key(prefix.last_address())));
        }
        all.sort_unstable();
        let mut apart: Vec<(u128, u128)> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match apart.last_mut() {
                Some((_, end)) if first <= *end => *end = last.max(*end),
                _ => apart.push((first, last)),
            }
        }
        Ok(AddressRanges(apart))
    }

    fn contains(&self, address: IpAddr) -> bool {
        let at = address_key(address);
        let behind = self.0.partition_point(|(first, _)| *first <= at);
        behind
            .checked_sub(1)
            .and_then(|index| self.0.get(index))
            .is_some_and(|(_, last)| at <= *last)
    }
}

fn invalid_prefix_error(text: &str) -> datafusion_common::DataFusionError {
    usage_error(
        format!("`{}` is no address and no range of addresses", excerpt_for_message(text)),
        "it is written as '10.0.0.0/8', '192.168.1.7' or '2001:db8::/32'",
    )
}

/// Returns whether the internet does not route an address: RFC 1918, loopback, link-local, RFC 6598,
/// unique-local (RFC 4193), or unspecified.
fn is_private_address(address: IpAddr) -> bool {
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

/// Creates a function that returns a text made from a text.
fn text_function(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    of: fn(&str, &mut String) -> Option<()>,
) -> ScalarUDF {
    ClosureFunction::new(WEB_SECTION, calls, what)
        .with_aliases(aliases)
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .into_udf(move |call| {
            let texts = call.text_operand(0)?;
            call.build_texts(|row, made| {
                Ok(texts.get(row).and_then(|text| of(text, made)).is_some())
            })
        })
}

/// Creates a function that returns a property of a text as BOOLEAN.
fn boolean_function(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    of: fn(&str) -> Option<bool>,
) -> ScalarUDF {
    ClosureFunction::new(WEB_SECTION, calls, what)
        .with_aliases(aliases)
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .with_return_type(DataType::Boolean)
        .into_udf(move |call| {
            let texts = call.text_operand(0)?;
            call.build_booleans(|row| Ok(texts.get(row).and_then(of)))
        })
}

/// Creates a function that returns a BIGINT.
fn integer_function(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    of: fn(&str) -> Option<i64>,
) -> ScalarUDF {
    ClosureFunction::new(WEB_SECTION, calls, what)
        .with_aliases(aliases)
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .with_return_type(DataType::Int64)
        .into_udf(move |call| {
            let texts = call.text_operand(0)?;
            call.build_integers(|row| Ok(texts.get(row).and_then(of)))
        })
}

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        boolean_function(
            &["is_ipv4(text)"],
            "Whether a text is an address of version 4, and nothing else.",
            &["isipv4string"],
            |text| Some(text.parse::<Ipv4Addr>().is_ok()),
        ),
        boolean_function(
            &["is_ipv6(text)"],
            "Whether a text is an address of version 6, and nothing else.",
            &["isipv6string"],
            |text| Some(text.parse::<Ipv6Addr>().is_ok()),
        ),
        boolean_function(
            &["is_private(ip)"],
            "Whether an address is of a private, a shared or a local network, and not of the internet.",
            &["is_private_ip"],
            |text| parse_address(text).map(is_private_address),
        ),
        integer_function(
            &["ip_family(ip)"],
            "The version of an address or a prefix: 4 or 6.",
            &["family"],
            |text| IpPrefix::parse(text).map(|prefix| if prefix.address.is_ipv4() { 4 } else { 6 }),
        ),
        ClosureFunction::new(
            WEB_SECTION,
            &["ip_prefix(ip, bits)", "ip_prefix(ip, bits4, bits6)"],
            "The prefix of an address: ip_prefix('10.1.2.3', 16) is 10.1.0.0/16; with lengths of their own for \
             both versions, if two are given.",
        )
        .with_arguments(&[TEXT_ARGUMENT, ArgumentKind::Integer, ArgumentKind::Integer], 2)
        .with_return_type_closure(|asked| {
            for index in 1..asked.argument_count() {
                if let Some(bits) = asked.constant_integer(index) {
                    check_prefix_bits(bits)?;
                }
            }
            Ok(DataType::Utf8View)
        })
        .into_udf(|call| {
            let texts = call.text_operand(0)?;
            let (of_four, of_six) =
                (call.integer_operand(1)?, call.integer_operand(if call.argument_count() > 2 { 2 } else { 1 })?);
            call.build_texts(|row, made| {
                let Some(address) = texts.get(row).and_then(parse_address) else { return Ok(false) };
                let bits = if address.is_ipv4() { of_four.get(row) } else { of_six.get(row) };
                let Some(bits) = bits else { return Ok(false) };
                let bits = check_prefix_bits(bits)?.min(address_bit_count(address));
                let prefix = IpPrefix { address, bits };
                Ok(write!(made, "{}/{bits}", prefix.first_address()).is_ok())
            })
        }),
        text_function(
            &["ip_subnet_min(prefix)"],
            "The first address of a prefix.",
            &[],
            |text, made| write!(made, "{}", IpPrefix::parse(text)?.first_address()).ok(),
        ),
        text_function(
            &["ip_subnet_max(prefix)"],
            "The last address of a prefix.",
            &[],
            |text, made| write!(made, "{}", IpPrefix::parse(text)?.last_address()).ok(),
        ),
        text_function(
            &["broadcast(prefix)"],
            "The last address of a prefix, with the prefix's length: broadcast('10.1.2.3/8') is 10.255.255.255/8.",
            &[],
            |text, made| {
                let prefix = IpPrefix::parse(text)?;
                write!(made, "{}/{}", prefix.last_address(), prefix.bits).ok()
            },
        ),
        ClosureFunction::new(
            WEB_SECTION,
            &["ip_subnet_range(prefix)"],
            "The first and the last address of a prefix, as a list of two.",
        )
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .with_return_type(list_type(DataType::Utf8View))
        .into_udf(|call| {
            let texts = call.text_operand(0)?;
            call.build_text_lists(|row, items| {
                let Some(prefix) = texts.get(row).and_then(IpPrefix::parse) else { return Ok(false) };
                items.append_item(Some(&prefix.first_address().to_string()))?;
                items.append_item(Some(&prefix.last_address().to_string()))?;
                Ok(true)
            })
        }),
        text_function(
            &["network(prefix)"],
            "A prefix with nothing behind its bits: network('10.1.2.3/8') is 10.0.0.0/8.",
            &[],
            |text, made| {
                let prefix = IpPrefix::parse(text)?;
                write!(made, "{}/{}", prefix.first_address(), prefix.bits).ok()
            },
        ),
        text_function(
            &["host(prefix)"],
            "The address of a prefix, or of an address with a port, alone.",
            &[],
            |text, made| write!(made, "{}", IpPrefix::parse(text)?.address).ok(),
        ),
        integer_function(
            &["masklen(prefix)"],
            "The length of a prefix in bits.",
            &[],
            |text| IpPrefix::parse(text).map(|prefix| i64::from(prefix.bits)),
        ),
        text_function(
            &["netmask(prefix)"],
            "The mask of a prefix: 255.255.0.0 of a length of 16.",
            &[],
            |text, made| {
                let prefix = IpPrefix::parse(text)?;
                let all = if prefix.address.is_ipv4() { u128::from(u32::MAX) } else { u128::MAX };
                write!(made, "{}", prefix.map_bits(|_| all & !prefix.host_mask())).ok()
            },
        ),
        ClosureFunction::new(
            WEB_SECTION,
            &["ip_in(ip, prefix, …)", "ip_in(ip, [prefix, …])"],
            "Whether an address is of one of several prefixes, 10.0.0.0/8, or one of several addresses.",
        )
        .with_aliases(&["ip_in_range", "isipaddressinrange"])
        .with_arguments(&[TEXT_ARGUMENT, ArgumentKind::TextOrTextList], 2)
        .with_variadic_argument(ArgumentKind::TextOrTextList)
        .with_return_type_closure(|asked| {
            for prefix in (1..asked.argument_count()).filter_map(|index| asked.constant_text(index)) {
                AddressRanges::from_prefixes([prefix])?;
            }
            Ok(DataType::Boolean)
        })
        .into_udf(|call| evaluate_ip_in(call, 0, 1)),
        ClosureFunction::new(
            WEB_SECTION,
            &["is_subnet_of(prefix, ip)"],
            "Whether an address, or all of a prefix, is of another prefix.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .with_return_type_closure(|asked| {
            asked.constant_text(0).map(|prefix| AddressRanges::from_prefixes([prefix])).transpose()?;
            Ok(DataType::Boolean)
        })
        .into_udf(|call| {
            let (outer, inner) = (call.text_operand(0)?, call.text_operand(1)?);
            call.build_booleans(|row| {
                let (Some(outer), Some(inner)) = (outer.get(row), inner.get(row)) else {
                    return Ok(None);
                };
                let outer = IpPrefix::parse(outer).ok_or_else(|| invalid_prefix_error(outer))?;
                Ok(IpPrefix::parse(inner).map(|inner| {
                    address_key(outer.first_address()) <= address_key(inner.first_address())
                        && address_key(inner.last_address()) <= address_key(outer.last_address())
                }))
            })
        }),
        integer_function(
            &["ipv4stringtonum(ip)"],
            "The number of an address of version 4.",
            &["inet_aton", "ipv4stringtonumornull"],
            |text| text.parse::<Ipv4Addr>().ok().map(|address| i64::from(address.to_bits())),
        ),
        ClosureFunction::new(
            WEB_SECTION,
            &["ipv4numtostring(n)"],
            "The address of version 4 that has a number.",
        )
        .with_aliases(&["inet_ntoa"])
        .with_arguments(&[ArgumentKind::Integer], 1)
        .into_udf(|call| {
            let numbers = call.integer_operand(0)?;
            call.build_texts(|row, made| {
                let Some(number) = numbers.get(row) else { return Ok(false) };
                match u32::try_from(number) {
                    Ok(bits) => Ok(write!(made, "{}", Ipv4Addr::from_bits(bits)).is_ok()),
                    Err(_) => Err(query_error(
                        format!("{number} is the number of no address of version 4"),
                        "they are from 0 to 4294967295",
                    )),
                }
            })
        }),
    ]
}

fn check_prefix_bits(bits: i64) -> PlanResult<u8> {
    u8::try_from(bits).ok().filter(|bits| *bits <= 128).ok_or_else(|| {
        usage_error(
            format!("`ip_prefix` takes 0 to 128 bits, and {bits} is none of them"),
            "ip_prefix(ip, 24, 48) has a length for each version",
        )
    })
}

/// Returns the texts of a constant, which is a text or a list of texts.
fn constant_texts(value: &ScalarValue) -> PlanResult<Vec<String>> {
    if let Some(text) = value.try_as_str() {
        return Ok(text.into_iter().map(str::to_owned).collect());
    }
    let array = value.to_array()?;
    let items = match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().values().clone(),
        DataType::LargeList(_) => array.as_list::<i64>().values().clone(),
        _ => return Ok(Vec::new()),
    };
    Ok(cast_to_views(&items)?.iter().flatten().map(str::to_owned).collect())
}

fn evaluate_ip_in(call: &CallBatch, of: usize, first: usize) -> PlanResult<arrow::array::ArrayRef> {
    let texts = call.text_operand(of)?;
    let mut known = Some(Vec::new());
    for value in (first..call.argument_count()).filter_map(|index| call.argument(index)) {
        match (value, &mut known) {
            (ColumnarValue::Scalar(value), Some(known)) => {
                if value.is_null() {
                    return call.build_booleans(|_| Ok(None));
                }
                known.extend(constant_texts(value)?);
            }
            _ => known = None,
        }
    }
    if let Some(known) = known {
        let ranges = AddressRanges::from_prefixes(known.iter().map(String::as_str))?;
        return call.build_booleans(|row| {
            Ok(texts.get(row).and_then(parse_address).map(|ip| ranges.contains(ip)))
        });
    }
    let columns =
        (first..call.argument_count()).map(|index| PrefixColumn::from_argument(call, index));
    let columns: Vec<PrefixColumn> = columns.collect::<PlanResult<_>>()?;
    call.build_booleans(|row| {
        let Some(address) = texts.get(row).and_then(parse_address) else { return Ok(None) };
        let mut is_in = false;
        for column in &columns {
            match column.contains(row, address)? {
                Some(has) => is_in |= has,
                None => return Ok(None),
            }
        }
        Ok(Some(is_in))
    })
}

/// An argument of prefixes that differ from row to row.
enum PrefixColumn {
    Texts(TextOperand),
    Lists(arrow::array::ArrayRef),
}

impl PrefixColumn {
    fn from_argument(call: &CallBatch, index: usize) -> PlanResult<Self> {
        let is_list = call
            .argument(index)
            .is_some_and(|value| !crate::closure_function::is_text_type(&value.data_type()));
        Ok(match is_list {
            true => PrefixColumn::Lists(call.argument_column(index)?),
            false => PrefixColumn::Texts(call.text_operand(index)?),
        })
    }

    fn contains(&self, row: usize, address: IpAddr) -> PlanResult<Option<bool>> {
        match self {
            PrefixColumn::Texts(texts) => match texts.get(row) {
                Some(text) => Ok(Some(AddressRanges::from_prefixes([text])?.contains(address))),
                None => Ok(None),
            },
            PrefixColumn::Lists(lists) => {
                if lists.is_null(row) {
                    return Ok(None);
                }
                let all = constant_texts(&ScalarValue::try_from_array(lists, row)?)?;
                Ok(Some(
                    AddressRanges::from_prefixes(all.iter().map(String::as_str))?.contains(address),
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::{
        call_function, call_in_all_forms, check_text_calls, format_value, text_constant,
    };
    use arrow::array::{ListBuilder, StringBuilder};
    use proptest::prelude::*;
    use std::sync::Arc;

    #[test]
    fn addresses_parse_as_logs_write_them() {
        check_text_calls(&[
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
            ("ip_prefix", vec![text_constant("10.1.2.3"), n(16)], "10.1.0.0/16"),
            ("ip_prefix", vec![text_constant("10.1.2.3"), n(0)], "0.0.0.0/0"),
            ("ip_prefix", vec![text_constant("10.1.2.3"), n(64)], "10.1.2.3/32"),
            ("ip_prefix", vec![text_constant("2001:db8:1:2::3"), n(24), n(48)], "2001:db8:1::/48"),
            ("ip_prefix", vec![text_constant("10.1.2.3"), n(24), n(48)], "10.1.2.0/24"),
            ("ip_prefix", vec![text_constant("-"), n(24)], "NULL"),
            (
                "ip_prefix",
                vec![text_constant("10.1.2.3"), n(129)],
                "`ip_prefix` takes 0 to 128 bits, and 129 is none of them\nhint: ip_prefix(ip, 24, 48) has a length for each version",
            ),
            ("ipv4numtostring", vec![n(167_772_161)], "10.0.0.1"),
            (
                "inet_ntoa",
                vec![n(-1)],
                "-1 is the number of no address of version 4\nhint: they are from 0 to 4294967295",
            ),
        ] {
            assert_eq!(call_in_all_forms(name, &args), expected, "{name}{args:?}");
        }
    }

    #[test]
    fn addresses_match_prefixes_that_contain_them() {
        check_text_calls(&[
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
        assert_eq!(call_in_all_forms("ip_in", &[text_constant("fd00::1"), constant]), "true");
        let ip = ColumnarValue::Scalar(text_constant("11.0.0.1"));
        let made =
            call_function("ip_in", vec![ip, ColumnarValue::Array(Arc::new(lists))], 3).unwrap();
        let made: Vec<String> = (0..3).map(|row| format_value(&made, row)).collect();
        assert_eq!(made, ["false", "true", "NULL"]);
    }

    proptest! {
        #[test]
        fn ranges_contain_address_if_a_prefix_does(
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
            let ranges = AddressRanges::from_prefixes(texts.iter().map(String::as_str)).unwrap();
            prop_assert_eq!(ranges.contains(IpAddr::V4(Ipv4Addr::from_bits(address))), expected);
        }

        #[test]
        fn no_text_causes_a_panic(text in "[0-9a-f:./\\[\\]é-]{0,20}") {
            parse_address(&text);
            IpPrefix::parse(&text);
        }
    }
}
