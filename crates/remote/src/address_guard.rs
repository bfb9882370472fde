//! Protects the machine's metadata services from requests on behalf of others.
//!
//! Clouds serve machine metadata at link-local addresses, above all at 169.254.169.254. Any process on the
//! machine gets credentials there, so a process that fetches URLs of other users would fetch the credentials
//! for them. A guarded process does not resolve names to such addresses, and refuses URLs that contain them.
//!
//! The guard covers every client of the process: those for web servers and redirects ([`http`](crate::http)),
//! and those for buckets ([`s3`](crate::s3)). The check of a name covers the addresses that the client
//! connects to, so the name cannot resolve to others after the check. The process can still fetch its own
//! credentials: it requests them by address, and no bucket is at such an address ([`is_credentials_url`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use url::{Host, Url};

static IS_GUARDED: AtomicBool = AtomicBool::new(false);

/// The message of a refused request.
pub(crate) const REFUSED_HOST_MESSAGE: &str = "its host is for the machine alone that asks";

/// Guards this process, from now on and for good.
pub fn guard_process() {
    IS_GUARDED.store(true, Ordering::Relaxed);
}

/// Returns true if this process is guarded.
pub(crate) fn is_guarded() -> bool {
    IS_GUARDED.load(Ordering::Relaxed)
}

/// Returns true if an address is private to the machine, so that a guarded process refuses it.
pub(crate) fn is_private_to_machine(address: IpAddr) -> bool {
    // Metadata services of Alibaba, Oracle and Azure.
    const AMONG_OTHERS: [Ipv4Addr; 3] = [
        Ipv4Addr::new(100, 100, 100, 200),
        Ipv4Addr::new(192, 0, 0, 192),
        Ipv4Addr::new(168, 63, 129, 16),
    ];
    match address {
        IpAddr::V4(address) => address.is_link_local() || AMONG_OTHERS.contains(&address),
        IpAddr::V6(address) => match embedded_ipv4(address) {
            Some(four) => is_private_to_machine(IpAddr::V4(four)),
            None => address.is_unicast_link_local() || is_cloud_metadata_range(address),
        },
    }
}

/// Returns true if an address is in a range that Amazon or Google reserves for its machines' metadata.
fn is_cloud_metadata_range(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0xfd00, 0x0ec2, ..] | [0xfd20, 0x00ce, ..])
}

/// Returns the IPv4 address embedded in an IPv6 address: mapped, compatible, or of a gateway (NAT64, 6to4).
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d] = match address.octets() {
        // `::1` and `::` embed no IPv4 address.
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, _] => return None,
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
        | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
        | [0, 0x64, 0xff, 0x9b, .., a, b, c, d]
        | [0x20, 0x02, a, b, c, d, ..] => [a, b, c, d],
        _ => return None,
    };
    Some(Ipv4Addr::new(a, b, c, d))
}

/// Returns true if the host of a URL is a private address instead of a name.
pub fn has_private_address(url: &str) -> bool {
    let address = Url::parse(url).ok().and_then(|url| match url.host()? {
        Host::Ipv4(address) => Some(IpAddr::V4(address)),
        Host::Ipv6(address) => Some(IpAddr::V6(address)),
        Host::Domain(_) => None,
    });
    address.is_some_and(is_private_to_machine)
}

/// Returns true if this process refuses requests to a URL.
pub(crate) fn is_refused_url(url: &str) -> bool {
    is_guarded() && has_private_address(url)
}

/// Returns true if a URL serves the machine's own credentials: at Amazon's fixed addresses, or at an origin
/// that the environment names.
pub(crate) fn is_credentials_url(url: &str) -> bool {
    const ADDRESSES: [&str; 2] = ["http://169.254.169.254", "http://169.254.170.2"];
    const VARIABLES: [&str; 2] = ["AWS_METADATA_ENDPOINT", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
    let origin = |url: &str| Url::parse(url).ok().map(|url| url.origin());
    let asked = origin(url);
    let named = VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
    let mut known = ADDRESSES.into_iter().map(str::to_owned).chain(named);
    asked.is_some() && known.any(|known| origin(&known) == asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_addresses_are_recognized_in_every_spelling() {
        for (url, expected) in [
            ("http://169.254.169.254/latest/meta-data/", true),
            ("http://169.254.170.2/v2/credentials", true),
            ("http://0xa9fea9fe/", true),
            ("http://2852039166/", true),
            ("http://0251.0376.0251.0376/", true),
            ("http://169.254.43518/", true),
            ("http://user@169.254.169.254:80/", true),
            ("http://[::ffff:169.254.169.254]/", true),
            ("http://[64:ff9b::a9fe:a9fe]/", true),
            ("http://[fe80::1]/", true),
            ("http://[fd00:ec2::254]/", true),
            ("http://[fd00:ec2::23]/v1/credentials", true),
            ("http://[fd20:ce::254]/", true),
            ("http://[::169.254.169.254]/", true),
            ("http://[2002:a9fe:a9fe::1]/", true),
            ("http://168.63.129.16/", true),
            ("http://192.0.0.192/", true),
            ("http://169.254.169.254./", true),
            ("http://１６９.254.169.254/", true),
            ("http://100.100.100.200/", true),
            ("http://127.0.0.1/", false),
            ("http://10.0.0.1/", false),
            ("http://[::1]/", false),
            ("http://[::]/", false),
            ("http://[2002:a00:1::1]/", false),
            ("http://[fd00:ec3::254]/", false),
            ("https://example.org/", false),
            ("s3://169.254.169.254/key", false),
            ("nothing", false),
        ] {
            assert_eq!(has_private_address(url), expected, "{url}");
        }
    }

    #[test]
    fn machine_credentials_come_from_known_origins() {
        for (url, expected) in [
            ("http://169.254.169.254/latest/api/token", true),
            ("http://169.254.170.2/v2/credentials/id", true),
            ("https://169.254.169.254/latest/api/token", false),
            ("http://169.254.169.254:8080/latest/api/token", false),
            ("http://169.254.169.253/", false),
            ("http://example.org/", false),
            ("nothing", false),
        ] {
            assert_eq!(is_credentials_url(url), expected, "{url}");
        }
    }
}
