//! Faults and warnings of a start, found without a start: those of the files and addresses that the
//! options name.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use access::ReloadError;
use net::{ListenAddress, TlsMode};
use options::{Endpoint, Options};
use telemetry::Settings;

use super::operators;
use crate::entry::{self, Entry};

/// A fault or a warning of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the setting that causes it.
    pub setting: &'static str,
    /// A sentence for the operator.
    pub message: String,
    /// The server would not start.
    pub is_fault: bool,
}

/// The findings about the files and addresses that these options name. Files are read with the
/// rights of this process, as a start does.
#[must_use]
pub fn findings(options: &Options) -> Vec<Finding> {
    let mut all = of_files(options);
    let console = operators::console(options).err().map(|why| ("console", why.message));
    // The variables of this process are not those of the server.
    let otlp = Settings::read("serve", options.otlp.as_deref(), &|_: &str| None);
    let otlp = otlp.err().map(|why| ("otlp", why.to_string()));
    let faults = console.into_iter().chain(otlp);
    all.extend(faults.map(|(setting, message)| Finding { setting, message, is_fault: true }));
    let addresses = addresses(options);
    let modes = modes(options);
    let open = entry::open_listeners(options, addresses.iter(), &modes);
    let warning = |message| Finding { setting: "listen", message, is_fault: false };
    all.extend(open.into_iter().map(warning));
    all
}

fn of_files(options: &Options) -> Vec<Finding> {
    let warnings = RefCell::new(Vec::new());
    let warn = |warning: String| {
        warnings.borrow_mut().push(of_file(options, warning, false));
    };
    let faults: [Option<ReloadError>; 3] = [
        Entry::open_users(options, warn).err(),
        Entry::open_tls(options, modes(options), warn).err(),
        Entry::open_namespaces(options).err(),
    ];
    let fault = |error: ReloadError| of_file(options, error.to_string(), true);
    let mut all: Vec<_> = faults.into_iter().flatten().map(fault).collect();
    all.extend(warnings.take());
    all
}

/// The finding of a message that begins with the path of a file.
fn of_file(options: &Options, message: String, is_fault: bool) -> Finding {
    let begins = |(_, path): &(&str, &Path)| message.starts_with(&*path.to_string_lossy());
    let setting = files(options).into_iter().find(begins).map_or("", |(setting, _)| setting);
    Finding { setting, message, is_fault }
}

/// The files that are read at the start, by setting.
fn files(options: &Options) -> Vec<(&'static str, &Path)> {
    let tls = options.tls.as_ref();
    let files = [
        ("auth_file", options.auth.users.as_ref()),
        ("rights", options.auth.rights.as_ref()),
        ("ssl_chain_cert", tls.map(|tls| &tls.chain_cert)),
        ("ssl_key", tls.map(|tls| &tls.key)),
        ("ssl_ca_cert", tls.and_then(|tls| tls.ca_cert.as_ref())),
        ("namespaces", options.namespaces.as_ref()),
    ];
    files.into_iter().filter_map(|(setting, path)| Some((setting, path?.as_path()))).collect()
}

fn modes(options: &Options) -> Vec<TlsMode> {
    options.tcp.iter().map(|endpoint| endpoint.tls).collect()
}

/// The addresses of the listeners. Host names are left out: only the server's machine knows them.
fn addresses(options: &Options) -> Vec<ListenAddress> {
    let of = |endpoints: &[Endpoint], make: fn(SocketAddr, usize) -> ListenAddress| {
        let one = |(place, endpoint): (usize, &Endpoint)| {
            let at = |host: IpAddr| make(SocketAddr::new(host, endpoint.port), place);
            hosts(endpoint.host.as_deref()).into_iter().map(at).collect::<Vec<_>>()
        };
        endpoints.iter().enumerate().flat_map(one).collect::<Vec<_>>()
    };
    [of(&options.tcp, ListenAddress::Tcp), of(&options.udp, ListenAddress::Udp)].concat()
}

fn hosts(name: Option<&str>) -> Vec<IpAddr> {
    match name {
        None => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        Some(name) => name.parse().into_iter().collect(),
    }
}
