//! Which addresses webhooks may reach: not those of the server's own network, unless they are allowed (V2).
//!
//! The check is made where the connection is made, after the name was resolved, so that a name that resolves differently the second time
//! gains nothing. A URL with an address instead of a name is checked before the request.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::config::WebhookConfig;

/// Which addresses may be reached.
#[derive(Clone, Debug)]
pub(crate) struct AddressRules {
    allow_private: bool,
    allow_hosts: Arc<[String]>,
}

impl AddressRules {
    pub(crate) fn new(config: &WebhookConfig) -> AddressRules {
        let allow_hosts = config.allow_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        AddressRules { allow_private: config.allow_private, allow_hosts }
    }

    /// Checks the host of a URL, as far as it can be checked without a resolver.
    ///
    /// # Errors
    /// The text says why the host is refused.
    pub(crate) fn check_url(&self, url: &Url) -> Result<(), String> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            _ => return Ok(()),
        };
        if self.is_allowed_host(url) || self.is_allowed(address) { Ok(()) } else { Err(refused(&address.to_string())) }
    }

    /// Returns whether the configuration names the host of a URL, with or without its port.
    pub(crate) fn is_allowed_host(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let with_port = format!("{host}:{}", url.port_or_known_default().unwrap_or_default());
        self.allow_hosts.iter().any(|allowed| *allowed == host || *allowed == with_port)
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        self.allow_private || is_public(address)
    }

    fn filter(&self, name: &str, found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, String> {
        let all: Vec<SocketAddr> = found.collect();
        let allowed: Vec<SocketAddr> = all.iter().copied().filter(|address| self.is_allowed(address.ip())).collect();
        match (allowed.is_empty(), all.is_empty()) {
            (true, false) => Err(refused(name)),
            (true, true) => Err(format!("{name} has no address")),
            _ => Ok(allowed),
        }
    }
}

fn refused(host: &str) -> String {
    format!(
        "{host} is a private, loopback or otherwise special address. An operator can allow it with `webhooks.allow_hosts` or \
         `webhooks.allow_private`"
    )
}

/// Resolves names to the addresses that may be reached. Hosts that the configuration names are not resolved here.
impl Resolve for AddressRules {
    fn resolve(&self, name: Name) -> Resolving {
        let rules = self.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed = rules.filter(&name.as_str().to_ascii_lowercase(), found)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Returns whether an address belongs to the public internet.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = address.is_unspecified()
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        // Carrier-grade translation.
        || (a == 100 && (64..128).contains(&b))
        // Protocol assignments, and the anycast address of 6to4 relays.
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        // Benchmarks.
        || (a == 198 && (b == 18 || b == 19));
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // Addresses that carry an IPv4 address are as public as that one: mapped, translated (64:ff9b::/96), 6to4 (2002::/16).
    let embedded = match segments {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
        }
        _ => None,
    };
    if let Some(embedded) = embedded {
        return is_public_v4(embedded);
    }
    // Global unicast is 2000::/3; of it, 2001::/23 is for protocols (Teredo among them) and 2001:db8::/32 and 3fff::/20 for documentation.
    let is_global = segments[0] & 0xe000 == 0x2000;
    let is_protocol = segments[0] == 0x2001 && segments[1] < 0x0200;
    let is_documentation =
        (segments[0] == 0x2001 && segments[1] == 0x0db8) || (segments[0] == 0x3fff && segments[1] < 0x1000);
    is_global && !is_protocol && !is_documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(text: &str) -> bool {
        is_public(text.parse().unwrap())
    }

    #[test]
    fn v2_special_addresses_are_not_public() {
        for special in [
            "0.0.0.0",
            "127.0.0.1",
            "127.255.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.0.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "100::1",
            "::127.0.0.1",
            "3fff::1",
        ] {
            assert!(!public(special), "{special}");
        }
        for ordinary in
            ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "2002:808:808::"]
        {
            assert!(public(ordinary), "{ordinary}");
        }
    }

    fn rules(allow_hosts: &[&str]) -> AddressRules {
        let allow_hosts = allow_hosts.iter().map(|host| (*host).to_owned()).collect();
        AddressRules::new(&WebhookConfig { allow_hosts, ..WebhookConfig::default() })
    }

    #[test]
    fn v2_a_name_that_resolves_to_a_private_address_is_refused_after_the_lookup() {
        let found = || ["10.0.0.1:0".parse().unwrap(), "8.8.8.8:0".parse().unwrap()].into_iter();
        let allowed = rules(&[]).filter("rebind.test", found()).unwrap();
        assert_eq!(allowed, ["8.8.8.8:0".parse().unwrap()], "only the public one of its addresses is used");
        let only_private = || ["[::ffff:127.0.0.1]:0".parse().unwrap()].into_iter();
        assert!(rules(&[]).filter("rebind.test", only_private()).unwrap_err().contains("private"));
        let url = Url::parse("https://rebind.test/").unwrap();
        assert!(rules(&["rebind.test"]).is_allowed_host(&url) && !rules(&["test"]).is_allowed_host(&url));
    }

    #[test]
    fn v2_an_address_in_a_url_is_checked_in_every_spelling() {
        for url in
            ["http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://[::1]/", "http://[::ffff:7f00:1]/"]
        {
            assert!(rules(&[]).check_url(&Url::parse(url).unwrap()).is_err(), "{url}");
        }
        let url = Url::parse("http://127.0.0.1:8080/").unwrap();
        assert!(rules(&["127.0.0.1:8080"]).check_url(&url).is_ok());
        assert!(rules(&["127.0.0.1:8081"]).check_url(&url).is_err());
    }
}
