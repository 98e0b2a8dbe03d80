//! Parameters of a configuration, from its environment: `%default-route%`, `--config-params`, the
//! host's addresses.

use std::net::IpAddr;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;

/// The value of a global parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamValue {
    /// A string.
    Text(String),
    /// An integer.
    Number(i64),
}

/// The global parameters of macros.
#[derive(Clone, Debug)]
pub struct Params {
    default_route: String,
    values: Vec<(String, ParamValue)>,
    /// The host's addresses, listed for the first `@isLocalIp`.
    host: OnceLock<Result<Vec<IpAddr>, Errno>>,
}

impl Default for Params {
    /// Parameters for the default route `/././`.
    fn default() -> Self {
        Self::new("/././")
    }
}

impl Params {
    /// mcrouter's global parameters for this default route, `/region/cluster/`; the outer slashes
    /// may be missing.
    #[must_use]
    pub fn new(default_route: &str) -> Self {
        let (region, cluster) =
            default_route.trim_matches('/').split_once('/').unwrap_or((default_route, "."));
        let default_route = format!("/{region}/{cluster}/");
        let mut params = Self {
            default_route: default_route.clone(),
            values: Vec::new(),
            host: OnceLock::new(),
        };
        params.set_text("default-route", &default_route);
        params.set_text("default-region", region);
        params.set_text("default-cluster", cluster);
        params.set_text("router-name", "Memcache");
        params.set_text("router-info-name", "Memcache");
        params.set_text("service-name", "unknown");
        params.set_number("hostid", 0);
        params.set_number("num-proxies", 1);
        params
    }

    /// Sets a parameter to a string, as `--config-params` does.
    pub fn set_text(&mut self, name: &str, value: &str) {
        self.set(name, ParamValue::Text(value.to_owned()));
    }

    /// Sets a parameter to a number.
    pub fn set_number(&mut self, name: &str, value: i64) {
        self.set(name, ParamValue::Number(value));
    }

    fn set(&mut self, name: &str, value: ParamValue) {
        self.values.retain(|(known, _)| known != name);
        self.values.push((name.to_owned(), value));
    }

    /// The prefix of keys without one.
    #[must_use]
    pub fn default_route(&self) -> &str {
        &self.default_route
    }

    /// All of them, by name.
    #[must_use]
    pub fn values(&self) -> &[(String, ParamValue)] {
        &self.values
    }

    /// True for the addresses of the host's network interfaces.
    pub(crate) fn is_local(&self, address: &str) -> Result<bool, Errno> {
        let Ok(address) = address.parse::<IpAddr>() else { return Ok(false) };
        let host = self.host.get_or_init(host_addresses).as_ref();
        host.map(|known| known.contains(&address)).map_err(|error| *error)
    }
}

fn host_addresses() -> Result<Vec<IpAddr>, Errno> {
    let addresses = getifaddrs()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    });
    Ok(addresses.collect())
}
