//! Which addresses does a process not ask for somebody else?
//!
//! A cloud tells its machines who they are at addresses that no router passes on, 169.254.169.254 above all: whoever is on the
//! machine is given credentials there. A process that fetches what others name would fetch them for these. Once it is
//! guarded, names that lead to such addresses are not known to it, and URLs that have them in the place of a name are refused.
//! Its own credentials come from there as before: they are asked for by the address itself, and by nobody's URL.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use url::{Host, Url};

static IS_GUARDED: AtomicBool = AtomicBool::new(false);

/// Guards this process, from now on.
pub fn guard() {
    IS_GUARDED.store(true, Ordering::Relaxed);
}

/// Whether it is.
pub(crate) fn is_guarded() -> bool {
    IS_GUARDED.load(Ordering::Relaxed)
}

/// Whether a guarded process does not ask at this address.
pub(crate) fn is_private_to_machine(address: IpAddr) -> bool {
    const AMONG_OTHERS: [Ipv4Addr; 2] =
        [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];
    const OF_SIX: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    match address {
        IpAddr::V4(address) => address.is_link_local() || AMONG_OTHERS.contains(&address),
        IpAddr::V6(address) => match address.to_ipv4_mapped().or_else(|| nat64(address)) {
            Some(four) => is_private_to_machine(IpAddr::V4(four)),
            None => address.is_unicast_link_local() || address == OF_SIX,
        },
    }
}

/// The address that a gateway makes of one of IPv6.
fn nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    let [.., a, b, c, d] = octets;
    octets.starts_with(&[0, 0x64, 0xff, 0x9b]).then_some(Ipv4Addr::new(a, b, c, d))
}

/// Whether a URL has such an address in the place of a name.
pub fn names_private_address(url: &str) -> bool {
    let address = Url::parse(url).ok().and_then(|url| match url.host()? {
        Host::Ipv4(address) => Some(IpAddr::V4(address)),
        Host::Ipv6(address) => Some(IpAddr::V6(address)),
        Host::Domain(_) => None,
    });
    address.is_some_and(is_private_to_machine)
}

/// Whether a request for a URL is refused.
pub(crate) fn refuses(url: &str) -> bool {
    is_guarded() && names_private_address(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_tell_a_machine_who_it_is_are_known_however_they_are_written() {
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
            ("http://100.100.100.200/", true),
            ("http://127.0.0.1/", false),
            ("http://10.0.0.1/", false),
            ("http://[::1]/", false),
            ("https://example.org/", false),
            ("s3://169.254.169.254/key", false),
            ("nothing", false),
        ] {
            assert_eq!(names_private_address(url), expected, "{url}");
        }
    }
}
