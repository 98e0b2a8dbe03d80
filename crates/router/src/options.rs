//! The command line of `holdall route`: mcrouter's names, where mcrouter has one.

use std::convert::Infallible;
use std::fmt::Write;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use clap::Parser;
use discovery::AccessFiles;
use metrics::Console;
use net::{open_files_max, raise_open_files_to_most};
use routeconf::FileSources;
use spool::Fsync;
use thiserror::Error;

use crate::flag_values::{WORKERS_MAX, WrongValue, fsync, millis, one_in};
use crate::help_groups::grouped;
pub use crate::routing::RoutingFlags;

/// mcrouter's `--max-conns` for no limit, and for a number by the process's limit of open files.
const CONNS_WITHOUT_LIMIT: usize = 0;
const CONNS_BY_FILES: usize = 1;

/// The files that clients leave for everything else: servers, the spool, metrics.
const OTHER_FILES: u64 = 2048;

/// A proxy that takes memcached requests and sends each to the servers that a configuration names.
#[derive(Clone, Debug, Parser)]
#[command(name = "holdall route", bin_name = "holdall route", version, mut_args(grouped))]
pub struct Options {
    /// Configuration in mcrouter's JSON: a file name, `file:PATH`, or the text itself
    #[arg(long = "config", value_name = "FILE|TEXT")]
    pub config: Option<String>,

    /// Configuration file
    #[arg(short = 'f', long = "config-file", value_name = "FILE", conflicts_with = "config")]
    pub config_file: Option<PathBuf>,

    /// Configuration text
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["config", "config_file"])]
    pub config_str: Option<String>,

    /// Parameters for the configuration's macros
    #[arg(long, value_name = "NAME:VALUE", value_delimiter = ',', value_parser = param)]
    pub config_params: Vec<(String, String)>,

    /// Ports to listen on [default: 5000, or the addresses in a twemproxy configuration]
    #[arg(short, long = "port", value_name = "PORT", value_delimiter = ',')]
    pub ports: Vec<u16>,

    /// Ports to listen on for clients that speak TLS
    #[arg(long = "ssl-port", value_name = "PORT", value_delimiter = ',')]
    pub ssl_ports: Vec<u16>,

    /// TLS, and the login for servers
    #[command(flatten)]
    pub tls: TlsFlags,

    /// Logins of clients
    #[command(flatten)]
    pub logins: LoginFlags,

    /// Addresses to listen on
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', default_value = "127.0.0.1")]
    pub listen_addresses: Vec<IpAddr>,

    /// Serve the listening TCP socket inherited as this file descriptor
    #[arg(long, value_name = "FD", conflicts_with_all = ["ports", "ssl_ports", "unix_domain_sock"])]
    pub listen_sock_fd: Option<i32>,

    /// Listen on this Unix socket as well
    #[arg(long, value_name = "PATH")]
    pub unix_domain_sock: Option<PathBuf>,

    /// Worker threads; `auto` means one per CPU
    #[arg(long, visible_alias = "proxy-threads", value_name = "N|auto", default_value_t = 1, value_parser = workers)]
    pub num_proxies: usize,

    /// Pack clients onto the fewest workers that stay below this CPU percentage; 0 spreads them
    /// evenly
    #[arg(long, value_name = "PERCENT", default_value_t = 65, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub gather_below: u8,

    /// Worker threads per CPU, instead of --num-proxies; 0 uses --num-proxies
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, value_parser = multiplier)]
    pub core_multiplier: f64,

    /// Apply --core-multiplier only on hosts with at least this many CPUs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub core_multiplier_threshold: usize,

    /// Routing prefix of keys that have none: /region/cluster/
    #[arg(short = 'R', long, value_name = "PREFIX", default_value = "/././")]
    pub route_prefix: String,

    /// Time limit for a server's reply, in milliseconds
    #[arg(short = 't', long, value_name = "MS", default_value_t = 1000, value_parser = millis)]
    pub server_timeout: u64,

    /// Mark a server as down (TKO) after this many consecutive timeouts; 0 disables this
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub timeouts_until_tko: u32,

    /// Delay before the first probe of a server that is down, in milliseconds
    #[arg(short = 'r', long, visible_alias = "retry-timeout", value_name = "MS", default_value_t = 500, value_parser = millis)]
    pub probe_timeout_initial: u64,

    /// Longest delay between two probes of a server that is down, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = millis)]
    pub probe_timeout_max: u64,

    /// Limit of pending requests per server, in each worker
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub target_max_pending_requests: usize,

    /// Send gets to servers by UDP, and everything else by TCP
    #[arg(long)]
    pub udp_gets: bool,

    /// Time limit for the reply to a get by UDP, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = millis)]
    pub udp_timeout: u64,

    /// Limit of outstanding requests over all servers, in each worker: a number, or "adaptive"
    /// (grows with replies, shrinks with timeouts); 0 is no limit
    #[arg(long, visible_alias = "proxy-max-inflight-requests", value_name = "N|adaptive", value_parser = window)]
    pub window: Option<Window>,

    /// mcrouter's flags that change routes, times and limits
    #[command(flatten)]
    pub routing: RoutingFlags,

    /// Limit of client connections, over all workers. It is at most the number of open files that
    /// RLIMIT_NOFILE allows, less 2048 for other files, or half of a small limit. The proxy first
    /// raises the soft limit. As in mcrouter, 0 is no other limit; 1 means the same
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    pub max_conns: usize,

    /// Limit of the memory that all clients together use, in bytes: unread replies, incoming
    /// requests, and values that wait for servers. Above it, the proxy closes the connections that
    /// have held the most memory for the longest time. It closes a connection with 16 KiB or less
    /// only if no other holds more, and never one with 1 KiB or less
    #[arg(long, value_name = "BYTES", default_value_t = 512 << 20)]
    pub client_memory_max: usize,

    /// Do not reload the configuration file when it changes
    #[arg(long)]
    pub disable_reload_configs: bool,

    /// Interval between checks of the configuration file for changes, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = millis)]
    pub file_observer_poll_period_ms: u64,

    /// Interval between queries for the servers of discovered pools and the addresses of host
    /// names, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = millis)]
    pub discovery_period_ms: u64,

    /// Save discovered servers in this folder, and start from them when no source of servers
    /// answers
    #[arg(long, value_name = "FOLDER")]
    pub discovery_dir: Option<PathBuf>,

    /// Trusted issuers of the certificates of sources with `+tls` (PEM); without, the public ones
    #[arg(long, value_name = "FILE")]
    pub discovery_pem_ca_path: Option<PathBuf>,

    /// Certificate chain of this proxy for such sources (PEM)
    #[arg(long, value_name = "FILE", requires = "discovery_pem_key_path")]
    pub discovery_pem_cert_path: Option<PathBuf>,

    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "discovery_pem_cert_path")]
    pub discovery_pem_key_path: Option<PathBuf>,

    /// File whose first `user:password` line is the login to etcd
    #[arg(long, value_name = "FILE")]
    pub discovery_auth_file: Option<PathBuf>,

    /// Save the last valid configuration in this folder, and start from it when the present one is
    /// invalid; an empty name switches that off
    #[arg(long, value_name = "FOLDER", value_parser = folder)]
    pub config_dump_root: Option<PathBuf>,

    /// Greatest age of a saved configuration, in seconds since its last use; 0 never uses it
    #[arg(long, value_name = "SECS", default_value_t = 43_200)]
    pub max_dumped_config_age: u64,

    /// JSON file with the numbers that `weights_rv`, `index_range_rv` and
    /// `key_fraction_range_rv` in the configuration name; reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub runtime_vars_file: Option<PathBuf>,

    /// Answer `config get cluster` with the servers of this pool, as Amazon ElastiCache does
    #[arg(long, value_name = "POOL")]
    pub serve_cluster: Option<String>,

    /// Take the number of `delete k N` for a hold-off: servers refuse add for N seconds. They must
    /// be holdall's. Without it the number is ignored
    #[arg(long)]
    pub delete_hold_off: bool,

    /// Forward `flush_all` and `flush_prefix` to every server
    #[arg(long)]
    pub enable_flush_cmd: bool,

    /// Do not keep failed deletes; reply with their error
    #[arg(long)]
    pub asynclog_disable: bool,

    /// Folder that keeps failed deletes until their servers are back; mcrouter's files in it are
    /// imported
    /// [default: /var/spool/mcrouter, if it exists]
    #[arg(short = 'a', long, value_name = "FOLDER")]
    pub async_dir: Option<PathBuf>,

    /// Limit of kept deletes, in bytes; beyond it, failed deletes get their error as the reply
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub asynclog_max_bytes: u64,

    /// Drop a kept delete after this many seconds
    #[arg(long, value_name = "SECS", default_value_t = 604_800)]
    pub asynclog_max_age: u64,

    /// Fsync of failed deletes: never, always (before the client's reply), or at this interval
    /// in milliseconds. They survive a crash of the proxy in any case
    #[arg(long, value_name = "never|always|MS", default_value = "1000", value_parser = fsync)]
    pub asynclog_fsync: Fsync,

    /// Send no gets to a server for which this proxy, or another one of the fleet, has kept
    /// deletes: they fail over, or get `SERVER_ERROR 302 try again`
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true,
        default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub asynclog_hold_gets: bool,

    /// Verbosity on stderr. 0 logs at most one state change per second for each server; 1 or more
    /// logs every state change
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub verbosity: u32,

    /// Lines of the log: text (with the time, unless the journal has it), or json
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub log_format: logging::Format,

    /// Events that are logged: a level (error, warn, info, debug, off) and PART=LEVEL; parts:
    /// route, connections
    #[arg(long, value_name = "LIST", default_value = "info")]
    pub log_filter: logging::Filter,

    /// Write no statistics files, whatever other options say
    #[arg(long)]
    pub test_mode: bool,

    /// Write mcrouter's statistics files to this folder
    #[arg(long, value_name = "FOLDER")]
    pub stats_root: Option<PathBuf>,

    /// Interval between writes of the statistics files, in milliseconds; 0 disables them
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub stats_logging_interval: u64,

    /// File that names the pools with statistics: {"stats_enabled_pools": ["A"]}
    #[arg(long, value_name = "FILE")]
    pub pool_stats_config_file: Option<PathBuf>,

    /// Answer HTTP there: /metrics for Prometheus, /livez, /readyz, /startupz
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<std::net::SocketAddr>,

    /// Serve a page about this proxy and its servers there, by a process of its own; flags of
    /// holdall console may follow behind commas
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = Console::parse)]
    pub console: Option<Console>,

    /// Send metrics and spans to this OpenTelemetry collector, by OTLP over HTTP [default: the
    /// variable OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,

    /// Trace one request in N, besides those whose clients trace them; needs a collector
    #[arg(long, value_name = "1/N", value_parser = one_in)]
    pub trace_sample: Option<u32>,

    /// After SIGTERM say not ready at /readyz, and serve for so long before connections are closed
    #[arg(long, value_name = "SECONDS", default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(..=3600))]
    pub drain: u64,

    /// Validate the configuration and exit; with "run", start the proxy if it is valid
    #[arg(long, value_name = "exit|run", num_args = 0..=1, require_equals = true, default_missing_value = "exit")]
    pub validate_config: Option<Validate>,
}

/// The action after a valid configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Validate {
    /// Exit.
    Exit,
    /// Run the proxy.
    Run,
}

/// TLS to clients and to servers.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "TLS and logins")]
pub struct TlsFlags {
    /// Certificate chain of this proxy (PEM), for clients and for servers that require one
    #[arg(long, value_name = "FILE")]
    pub pem_cert_path: Option<PathBuf>,

    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub pem_key_path: Option<PathBuf>,

    /// Trusted issuers of server and client certificates (PEM)
    #[arg(long, value_name = "FILE")]
    pub pem_ca_path: Option<PathBuf>,

    /// Certificate chain for clients, instead of --pem-cert-path
    #[arg(long, value_name = "FILE")]
    pub server_pem_cert_path: Option<PathBuf>,

    /// Private key for clients, instead of --pem-key-path
    #[arg(long, value_name = "FILE")]
    pub server_pem_key_path: Option<PathBuf>,

    /// Trusted issuers of client certificates, instead of --pem-ca-path
    #[arg(long, value_name = "FILE")]
    pub server_pem_ca_path: Option<PathBuf>,

    /// Require a certificate from clients
    #[arg(long)]
    pub ssl_require_peer_certs: bool,

    /// Verify the issuer, validity period and name of server certificates
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true,
        default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub ssl_verify_peers: bool,

    /// File whose first `user:password` line is the login for servers that require one
    #[arg(long, value_name = "FILE")]
    pub server_auth_file: Option<PathBuf>,
}

/// Logins of clients, by a server's flags.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "TLS and logins")]
pub struct LoginFlags {
    /// Require a login from clients that speak text: a set whose data is `user password`. The file
    /// has `user:password` on each line
    #[arg(short = 'Y', long, value_name = "FILE")]
    pub auth_file: Option<PathBuf>,

    /// Require a login by SASL from clients that speak the binary protocol; users by -Y or
    /// MEMCACHED_SASL_PWDB
    #[arg(short = 'S', long)]
    pub enable_sasl: bool,

    /// Limit each user to the rights that a file gives
    #[arg(short = 'o', long = "extended", value_name = "rights=FILE", value_parser = rights)]
    pub rights: Option<PathBuf>,
}

impl LoginFlags {
    /// Whether clients have to log in.
    pub(crate) const fn are_required(&self) -> bool {
        self.auth_file.is_some() || self.enable_sasl
    }
}

/// The reason why the file of the login for servers cannot be used.
#[derive(Debug, Error)]
#[error("{}: {fault}", path.display())]
pub(crate) struct LoginFileError {
    path: PathBuf,
    fault: LoginFault,
}

#[derive(Debug, Error)]
enum LoginFault {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("holds no user:password")]
    NoLogin,
}

impl TlsFlags {
    /// TLS settings of the listeners; `None` without a certificate.
    pub(crate) fn listener(&self) -> Option<net::TlsOptions> {
        let or = |own: &Option<PathBuf>, other: &Option<PathBuf>| {
            own.as_ref().or(other.as_ref()).cloned()
        };
        let chain_cert = or(&self.server_pem_cert_path, &self.pem_cert_path)?;
        let key = or(&self.server_pem_key_path, &self.pem_key_path)?;
        let verify =
            if self.ssl_require_peer_certs { net::Verify::Require } else { net::Verify::None };
        Some(net::TlsOptions {
            chain_cert,
            key,
            ca_cert: or(&self.server_pem_ca_path, &self.pem_ca_path),
            verify,
            resumption: true,
            ..net::TlsOptions::default()
        })
    }

    /// TLS settings for servers; `None` without trusted issuers.
    fn servers(&self) -> Option<upstream::TlsOptions> {
        if self.ssl_verify_peers && self.pem_ca_path.is_none() {
            return None;
        }
        Some(upstream::TlsOptions {
            ca_cert: self.pem_ca_path.clone().filter(|_| self.ssl_verify_peers),
            chain_cert: self.pem_cert_path.clone(),
            key: self.pem_key_path.clone(),
        })
    }

    /// Reads the certificate files for servers.
    ///
    /// # Errors
    ///
    /// Names the file that cannot be used, and the reason.
    pub(crate) fn open(&self) -> Result<Option<upstream::Tls>, upstream::CertsError> {
        self.servers().map(upstream::Tls::open).transpose()
    }

    /// Reads the login.
    ///
    /// # Errors
    ///
    /// The reason why the file cannot be used.
    fn login(&self) -> Result<Option<upstream::Login>, LoginFileError> {
        let Some(path) = &self.server_auth_file else { return Ok(None) };
        let wrong = |fault| LoginFileError { path: path.clone(), fault };
        let text = FileSources::read_path(path).map_err(|error| wrong(error.into()))?;
        upstream::Login::parse(&text).map(Some).ok_or_else(|| wrong(LoginFault::NoLogin))
    }
}

/// A folder, or the empty name, which clap itself would refuse.
fn folder(text: &str) -> Result<PathBuf, Infallible> {
    Ok(text.into())
}

fn param(text: &str) -> Result<(String, String), WrongValue> {
    match text.split_once(':') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(WrongValue::Param),
    }
}

/// `-o rights=FILE`
fn rights(text: &str) -> Result<PathBuf, WrongValue> {
    match text.split_once('=') {
        Some(("rights", path)) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err(WrongValue::Extended),
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn workers(text: &str) -> Result<usize, WrongValue> {
    match text.parse() {
        Ok(count @ 1..=WORKERS_MAX) => Ok(count),
        _ if text == "auto" => Ok(processors().min(WORKERS_MAX)),
        _ => Err(WrongValue::Workers),
    }
}

fn multiplier(text: &str) -> Result<f64, WrongValue> {
    match text.parse() {
        Ok(number) if (0.0..=WORKERS_MAX as f64).contains(&number) => Ok(number),
        _ => Err(WrongValue::Multiplier),
    }
}

/// `--window`; without a width any number of requests may be outstanding.
pub type Window = Option<upstream::Window>;

fn window(text: &str) -> Result<Window, WrongValue> {
    match text.parse() {
        Ok(0) => Ok(None),
        Ok(width) => Ok(Some(upstream::Window::Fixed(width))),
        Err(_) if text == "adaptive" => Ok(Some(upstream::Window::Adaptive)),
        Err(_) => Err(WrongValue::Window),
    }
}

/// The source of the configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// A file, reloaded when it changes.
    File(PathBuf),
    /// This text.
    Text(String),
}

impl Options {
    /// The way to sources of servers that want TLS or a login.
    pub(crate) fn discovery_access(&self) -> AccessFiles {
        AccessFiles {
            ca_cert: self.discovery_pem_ca_path.clone(),
            chain_cert: self.discovery_pem_cert_path.clone(),
            key: self.discovery_pem_key_path.clone(),
            login: self.discovery_auth_file.clone(),
        }
    }

    /// The source of the configuration; `None` without an option that names one.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        if let Some(path) = &self.config_file {
            return Some(Source::File(path.clone()));
        }
        if let Some(text) = &self.config_str {
            return Some(Source::Text(text.clone()));
        }
        let config = self.config.as_deref()?;
        if let Some(path) = config.strip_prefix("file:") {
            return Some(Source::File(PathBuf::from(path)));
        }
        let is_text = config.trim_start().starts_with(['{', '/']) && config.contains('{');
        Some(if is_text { Source::Text(config.to_owned()) } else { Source::File(config.into()) })
    }

    /// Sets the numbers that depend on the host, whose limit of open files it raises. Returns a
    /// warning if that allows fewer clients than --max-conns.
    pub(crate) fn count_by_host(&mut self) -> Option<String> {
        self.count_workers();
        // Beyond clients, servers need files, whose number each configuration changes. If the limit
        // cannot be raised, the present one counts.
        let _ = raise_open_files_to_most(OTHER_FILES.saturating_add(self.max_conns as u64));
        self.count_connections(open_files_max()?)
    }

    /// Sets the number of workers by --core-multiplier.
    fn count_workers(&mut self) {
        let processors = processors();
        if self.core_multiplier > 0.0 && processors >= self.core_multiplier_threshold {
            // As in mcrouter, a fraction is cut off.
            let wanted = processors as f64 * self.core_multiplier;
            let fits = (1..=WORKERS_MAX).rev().find(|count| *count as f64 <= wanted);
            self.num_proxies = fits.unwrap_or(1);
        }
    }

    /// Limits client connections to those that the process's limit of open files allows, so that
    /// some are left for servers. Returns a warning if --max-conns names more.
    fn count_connections(&mut self, files_max: u64) -> Option<String> {
        let allowed = files_max - (files_max / 2).min(OTHER_FILES);
        let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
        let named = self.max_conns;
        let is_number = named != CONNS_WITHOUT_LIMIT && named != CONNS_BY_FILES;
        if is_number && named <= allowed {
            return None;
        }
        self.max_conns = allowed;
        is_number.then(|| {
            format!(
                "warning: --max-conns {named}: only {allowed} clients, because the process may \
                 open {files_max} files (ulimit -n, or LimitNOFILE= of its unit)"
            )
        })
    }

    /// The name of the configuration file, for messages.
    pub(crate) fn config_name(&self) -> String {
        match self.source() {
            Some(Source::File(path)) => path.display().to_string(),
            Some(Source::Text(_)) | None => "<text>".to_owned(),
        }
    }

    /// Whether no option names a port or socket to listen on.
    pub(crate) fn names_no_address(&self) -> bool {
        self.ports.is_empty() && self.ssl_ports.is_empty() && self.unix_domain_sock.is_none()
    }

    /// Ports for clients that speak no TLS.
    pub(crate) fn plain_ports(&self) -> &[u16] {
        if self.ports.is_empty() && self.ssl_ports.is_empty() { &[5000] } else { &self.ports }
    }

    /// The port that appears in the names of this proxy's folders and files, unless the
    /// configuration names the addresses; 0 without one.
    pub(crate) fn first_port(&self) -> u16 {
        self.plain_ports().iter().chain(&self.ssl_ports).copied().next().unwrap_or(0)
    }

    /// The default settings of servers, which the configuration may override; reads the login file.
    ///
    /// # Errors
    ///
    /// The reason why the login file cannot be used.
    pub(crate) fn settings(
        &self,
        tls: Option<&upstream::Tls>,
    ) -> Result<upstream::Settings, LoginFileError> {
        let timeout = Duration::from_millis(self.server_timeout);
        Ok(upstream::Settings {
            timeout,
            connect_timeout: timeout,
            connect_retries: self.routing.connect_timeout_retries,
            knocks_out: !self.routing.disable_tko_tracking,
            timeouts_until_tko: self.timeouts_until_tko,
            probe_initial: Duration::from_millis(self.probe_timeout_initial),
            probe_max: Duration::from_millis(self.probe_timeout_max),
            pending_max: self.target_max_pending_requests,
            udp_gets: self.udp_gets.then(|| Duration::from_millis(self.udp_timeout)),
            tls: tls.cloned(),
            login: self.tls.login()?,
            ..upstream::Settings::default()
        })
    }

    /// Every option and its value, one per line.
    pub(crate) fn list(&self) -> String {
        let mut lines = String::new();
        for (name, value) in self.values() {
            // Writing into a string does not fail.
            let _ = write!(lines, "{name} {value}\r\n");
        }
        lines
    }

    /// Every option and its value; names are mcrouter's, where mcrouter has the option.
    pub(crate) fn values(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
        };
        let texts = [
            ("config", self.config_name()),
            ("default_route", self.route_prefix.clone()),
            ("async_spool", path(&self.async_dir)),
            ("stats_root", path(&self.stats_root)),
            ("pool_stats_config_file", path(&self.pool_stats_config_file)),
            ("config_dump_root", path(&self.config_dump_root)),
            ("runtime_vars_file", path(&self.runtime_vars_file)),
            ("pem_cert_path", path(&self.tls.pem_cert_path)),
            ("pem_key_path", path(&self.tls.pem_key_path)),
            ("pem_ca_path", path(&self.tls.pem_ca_path)),
            ("discovery_dir", path(&self.discovery_dir)),
            ("discovery_pem_ca_path", path(&self.discovery_pem_ca_path)),
            ("discovery_pem_cert_path", path(&self.discovery_pem_cert_path)),
            ("discovery_pem_key_path", path(&self.discovery_pem_key_path)),
            ("discovery_auth_file", path(&self.discovery_auth_file)),
            ("serve_cluster", self.serve_cluster.clone().unwrap_or_default()),
        ];
        let window = match self.window.flatten() {
            Some(upstream::Window::Fixed(width)) => u64::from(width),
            Some(upstream::Window::Adaptive) | None => 0,
        };
        let numbers = [
            ("num_proxies", self.num_proxies as u64),
            ("gather_below", u64::from(self.gather_below)),
            ("test_mode", u64::from(self.test_mode)),
            ("server_timeout_ms", self.server_timeout),
            ("failures_until_tko", u64::from(self.timeouts_until_tko)),
            ("probe_delay_initial_ms", self.probe_timeout_initial),
            ("probe_delay_max_ms", self.probe_timeout_max),
            ("target_max_pending_requests", self.target_max_pending_requests as u64),
            ("proxy_max_inflight_requests", window),
            ("udp_gets", u64::from(self.udp_gets)),
            ("udp_timeout_ms", self.udp_timeout),
            ("max_conns", self.max_conns as u64),
            ("client_memory_max", self.client_memory_max as u64),
            ("disable_reload_configs", u64::from(self.disable_reload_configs)),
            ("file_observer_poll_period_ms", self.file_observer_poll_period_ms),
            ("max_dumped_config_age", self.max_dumped_config_age),
            ("stats_logging_interval", self.stats_logging_interval),
            ("discovery_period_ms", self.discovery_period_ms),
            ("ssl_verify_peers", u64::from(self.tls.ssl_verify_peers)),
            ("ssl_require_peer_certs", u64::from(self.tls.ssl_require_peer_certs)),
            ("delete_hold_off", u64::from(self.delete_hold_off)),
            ("enable_flush_cmd", u64::from(self.enable_flush_cmd)),
            ("asynclog_disable", u64::from(self.asynclog_disable)),
            ("asynclog_max_bytes", self.asynclog_max_bytes),
            ("asynclog_max_age", self.asynclog_max_age),
            ("asynclog_hold_gets", u64::from(self.asynclog_hold_gets)),
        ];
        let numbers = numbers.into_iter().chain(self.routing.values());
        texts.into_iter().chain(numbers.map(|(name, value)| (name, value.to_string()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Options;

    /// Phrases that readers of the help did not understand.
    const UNCLEAR: [&str; 4] = ["from which on", "Whatever it is", "the same of", "; 0: "];

    #[test]
    fn one_connection_means_a_number_by_the_limit_of_files() {
        for (given, files_max, counted) in
            [("1", 65_536, 63_488), ("1", 1024, 512), ("0", 1024, 512), ("2", 1024, 2)]
        {
            let mut options = Options::parse_from(["route", "--max-conns", given]);
            assert_eq!(options.count_connections(files_max), None);
            assert_eq!(options.max_conns, counted, "{given} {files_max}");
        }
    }

    /// Without files for servers, all clients would read errors.
    #[test]
    fn clients_leave_files_for_servers() {
        let mut options = Options::parse_from(["route", "--max-conns", "600"]);
        let warning = options.count_connections(1000).unwrap();
        assert!(warning.starts_with("warning: --max-conns 600: only 500 clients"), "{warning}");
        assert_eq!(options.max_conns, 500);
    }

    #[test]
    fn the_packaged_unit_has_files_for_the_default_number_of_clients() {
        let unit = include_str!("../../../packaging/systemd/holdall-route.service");
        let limit = unit.lines().find_map(|line| line.strip_prefix("LimitNOFILE=")).unwrap();
        let mut options = Options::parse_from(["route"]);
        assert_eq!(options.count_connections(limit.parse().unwrap()), None);
    }

    #[test]
    fn the_help_has_no_unclear_phrase() {
        let help = Options::command().render_long_help().to_string();
        // The text is wrapped: a phrase may go on in the next line.
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let found: Vec<_> = UNCLEAR
            .into_iter()
            .filter(|phrase| help.to_lowercase().contains(&phrase.to_lowercase()))
            .collect();
        assert!(found.is_empty(), "{found:?} in: {help}");
    }
}
