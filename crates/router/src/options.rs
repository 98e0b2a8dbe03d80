//! The command line of `holdall route`: mcrouter's names, where mcrouter has one.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use clap::Parser;
use spool::Fsync;

use crate::keeping::fsync;
pub use crate::routing::RoutingFlags;

/// A proxy that takes memcached requests and sends each to the servers that a configuration names.
#[derive(Clone, Debug, Parser)]
#[command(name = "holdall route", bin_name = "holdall route", version)]
pub struct Options {
    /// The configuration, mcrouter's JSON: a file, or `file:PATH`, or the text itself
    #[arg(long = "config", value_name = "FILE|TEXT")]
    pub config: Option<String>,

    /// The configuration's file
    #[arg(short = 'f', long = "config-file", value_name = "FILE", conflicts_with = "config")]
    pub config_file: Option<PathBuf>,

    /// The configuration's text
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["config", "config_file"])]
    pub config_str: Option<String>,

    /// Parameters for the configuration's macros
    #[arg(long, value_name = "NAME:VALUE", value_delimiter = ',', value_parser = param)]
    pub config_params: Vec<(String, String)>,

    /// Ports to listen on [default: 5000, if no other is named; with a configuration of twemproxy, where its pools say]
    #[arg(short, long = "port", value_name = "PORT", value_delimiter = ',')]
    pub ports: Vec<u16>,

    /// Ports to listen on for clients that speak TLS
    #[arg(long = "ssl-port", value_name = "PORT", value_delimiter = ',')]
    pub ssl_ports: Vec<u16>,

    /// TLS and logins
    #[command(flatten)]
    pub tls: TlsFlags,

    /// Addresses to listen on
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', default_value = "127.0.0.1")]
    pub listen_addresses: Vec<IpAddr>,

    /// Serve this listening TCP socket, which the program that starts this one has left open under this number
    #[arg(long, value_name = "FD", conflicts_with_all = ["ports", "ssl_ports", "unix_domain_sock"])]
    pub listen_sock_fd: Option<i32>,

    /// Listen on this unix socket too
    #[arg(long, value_name = "PATH")]
    pub unix_domain_sock: Option<PathBuf>,

    /// Worker threads; auto: one for each processor
    #[arg(long, visible_alias = "proxy-threads", value_name = "N|auto", default_value_t = 1, value_parser = workers)]
    pub num_proxies: usize,

    /// Serve clients by as few workers as take less than so many percent of a processor each; 0: by all workers alike
    #[arg(long, value_name = "PERCENT", default_value_t = 65, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub gather_below: u8,

    /// Worker threads for each processor, in place of --num-proxies; 0: those
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, value_parser = multiplier)]
    pub core_multiplier: f64,

    /// Processors from which on that holds
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub core_multiplier_threshold: usize,

    /// Where keys without a routing prefix go: /region/cluster/
    #[arg(short = 'R', long, value_name = "PREFIX", default_value = "/././")]
    pub route_prefix: String,

    /// Milliseconds that a server has for an answer
    #[arg(short = 't', long, value_name = "MS", default_value_t = 1000, value_parser = millis)]
    pub server_timeout: u64,

    /// Timeouts in a row until a server is not asked any more; 0: never
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub timeouts_until_tko: u32,

    /// Milliseconds until such a server is asked whether it is back
    #[arg(short = 'r', long, visible_alias = "retry-timeout", value_name = "MS", default_value_t = 500, value_parser = millis)]
    pub probe_timeout_initial: u64,

    /// The longest time between two such questions, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = millis)]
    pub probe_timeout_max: u64,

    /// Requests that may wait for one server, for each worker
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub target_max_pending_requests: usize,

    /// Gets go to servers by UDP; everything else by TCP
    #[arg(long)]
    pub udp_gets: bool,

    /// Milliseconds after which a get by UDP is lost
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = millis)]
    pub udp_timeout: u64,

    /// Requests outstanding over all servers, for each worker: a number, or "adaptive" (grows on answers, shrinks on silence); 0: any number
    #[arg(long, visible_alias = "proxy-max-inflight-requests", value_name = "N|adaptive", value_parser = window)]
    pub window: Option<Window>,

    /// mcrouter's flags that change routes, times and limits
    #[command(flatten)]
    pub routing: RoutingFlags,

    /// Client connections, over all workers; 0: any number
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    pub max_conns: usize,

    /// Do not look for changes of the configuration's file
    #[arg(long)]
    pub disable_reload_configs: bool,

    /// Milliseconds between two looks at the configuration's file
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = millis)]
    pub file_observer_poll_period_ms: u64,

    /// Milliseconds between two questions for the members of discovered pools, and for the addresses of names
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = millis)]
    pub discovery_period_ms: u64,

    /// Keep what was discovered last in this folder, for a start at which nobody answers
    #[arg(long, value_name = "FOLDER")]
    pub discovery_dir: Option<PathBuf>,

    /// Keep the last good configuration in this folder, for a start at which the present one cannot be used
    #[arg(long, value_name = "FOLDER")]
    pub config_dump_root: Option<PathBuf>,

    /// Seconds since it was last in use after which it is used no more; 0: never use it
    #[arg(long, value_name = "SECS", default_value_t = 43_200)]
    pub max_dumped_config_age: u64,

    /// Numbers by name, in JSON: what `weights_rv` and `key_fraction_range_rv` of the configuration stand for. Looked at like the
    /// configuration's file
    #[arg(long, value_name = "FILE")]
    pub runtime_vars_file: Option<PathBuf>,

    /// Answer `config get cluster` with the servers of this pool, as Amazon ElastiCache does, for clients that ask for servers
    #[arg(long, value_name = "POOL")]
    pub serve_cluster: Option<String>,

    /// Pass `flush_all` and `flush_prefix` on, to every server
    #[arg(long)]
    pub enable_flush_cmd: bool,

    /// Answer failed deletes with their error, and keep none
    #[arg(long)]
    pub asynclog_disable: bool,

    /// Folder in which failed deletes are kept until their servers are back; mcrouter's old files in it are taken over
    /// [default: /var/spool/mcrouter, if it exists]
    #[arg(short = 'a', long, value_name = "FOLDER")]
    pub async_dir: Option<PathBuf>,

    /// mcrouter's, without effect here: `holdall spool --format as2` writes those lines
    #[arg(long)]
    pub use_asynclog_version2: bool,

    /// Bytes of failed deletes, at the most; more are answered with their error
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub asynclog_max_bytes: u64,

    /// Seconds after which a failed delete is dropped
    #[arg(long, value_name = "SECS", default_value_t = 604_800)]
    pub asynclog_max_age: u64,

    /// When failed deletes are brought to the disk: never (by the kernel), always (before the client has its answer), or
    /// every so many milliseconds. Whatever it is, they survive a kill of the proxy
    #[arg(long, value_name = "never|always|MS", default_value = "1000", value_parser = fsync)]
    pub asynclog_fsync: Fsync,

    /// Ask no server for values while it has failed deletes to come: gets fail over, or read `SERVER_ERROR 302 try again`
    #[arg(long)]
    pub asynclog_hold_gets: bool,

    /// How much is told on stderr: 1 and more: servers that are knocked out and come back, too
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub verbosity: u32,

    /// Write no files of statistics, whatever else is said
    #[arg(long)]
    pub test_mode: bool,

    /// Write mcrouter's files of statistics into this folder
    #[arg(long, value_name = "FOLDER")]
    pub stats_root: Option<PathBuf>,

    /// How often, in milliseconds; 0: never
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub stats_logging_interval: u64,

    /// A file that names the pools of which they tell: {"stats_enabled_pools": ["A"]}
    #[arg(long, value_name = "FILE")]
    pub pool_stats_config_file: Option<PathBuf>,

    /// Answer GET /metrics, for Prometheus, on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<std::net::SocketAddr>,

    /// Read the configuration, say whether it is good, and end; with "run", go on if it is
    #[arg(long, value_name = "exit|run", num_args = 0..=1, require_equals = true, default_missing_value = "exit")]
    pub validate_config: Option<Validate>,
}

/// What follows when a configuration was found good.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Validate {
    /// The end.
    Exit,
    /// The proxy runs.
    Run,
}

/// TLS, towards clients and towards servers.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TlsFlags {
    /// This proxy's certificate, and those that lead to its issuer, in PEM: for servers that ask for one, and for clients
    #[arg(long, value_name = "FILE")]
    pub pem_cert_path: Option<PathBuf>,

    /// The private key of that certificate
    #[arg(long, value_name = "FILE")]
    pub pem_key_path: Option<PathBuf>,

    /// Who may have issued the certificates of servers, and of clients, in PEM
    #[arg(long, value_name = "FILE")]
    pub pem_ca_path: Option<PathBuf>,

    /// Towards clients, instead of --pem-cert-path
    #[arg(long, value_name = "FILE")]
    pub server_pem_cert_path: Option<PathBuf>,

    /// Towards clients, instead of --pem-key-path
    #[arg(long, value_name = "FILE")]
    pub server_pem_key_path: Option<PathBuf>,

    /// Towards clients, instead of --pem-ca-path
    #[arg(long, value_name = "FILE")]
    pub server_pem_ca_path: Option<PathBuf>,

    /// Clients must show a certificate
    #[arg(long)]
    pub ssl_require_peer_certs: bool,

    /// Servers' certificates are looked at: issuer, time, and name. With "false" whatever a server shows is believed
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true,
        default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub ssl_verify_peers: bool,

    /// A login for servers that ask for one: the first `user:password` of this file
    #[arg(long, value_name = "FILE")]
    pub server_auth_file: Option<PathBuf>,
}

impl TlsFlags {
    /// What clients are shown, and asked; `None` without a certificate.
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

    /// How servers are spoken to; `None` when nobody said whom to trust.
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

    /// Reads the certificates that concern servers.
    ///
    /// # Errors
    ///
    /// Which file cannot be used, and why.
    pub(crate) fn open(&self) -> Result<Option<upstream::Tls>, String> {
        self.servers().map(upstream::Tls::open).transpose()
    }

    /// Reads the login.
    ///
    /// # Errors
    ///
    /// That its file cannot be used, and why.
    fn login(&self) -> Result<Option<upstream::Login>, String> {
        let Some(path) = &self.server_auth_file else { return Ok(None) };
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let login = text.and_then(|text| {
            upstream::Login::parse(&text).ok_or_else(|| "holds no user:password".to_owned())
        });
        login.map(Some).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn param(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("NAME:VALUE".to_owned()),
    }
}

/// Worker threads, at most.
const WORKERS_MAX: usize = 256;

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=WORKERS_MAX) => Ok(count),
        _ if text == "auto" => Ok(processors().min(WORKERS_MAX)),
        _ => Err(format!("1 to {WORKERS_MAX}, or auto")),
    }
}

fn multiplier(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=WORKERS_MAX as f64).contains(&number) => Ok(number),
        _ => Err(format!("0 to {WORKERS_MAX}")),
    }
}

/// `--window`; without a width any number of requests may be outstanding.
pub type Window = Option<upstream::Window>;

fn window(text: &str) -> Result<Window, String> {
    match text.parse() {
        Ok(0) => Ok(None),
        Ok(width) => Ok(Some(upstream::Window::Fixed(width))),
        Err(_) if text == "adaptive" => Ok(Some(upstream::Window::Adaptive)),
        Err(_) => Err("a number, or adaptive".to_owned()),
    }
}

/// An hour at the most.
pub(crate) fn millis(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(ms @ 1..=3_600_000) => Ok(ms),
        _ => Err("1 to 3600000 milliseconds".to_owned()),
    }
}

/// Where the configuration comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// A file, which is read again when it changes.
    File(PathBuf),
    /// This text.
    Text(String),
}

impl Options {
    /// Where the configuration comes from; `None` if nobody said.
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

    /// Settles how many workers there are.
    pub(crate) fn count_workers(&mut self) {
        let processors = processors();
        if self.core_multiplier > 0.0 && processors >= self.core_multiplier_threshold {
            // As in mcrouter, what is not whole is dropped.
            let wanted = processors as f64 * self.core_multiplier;
            let fits = (1..=WORKERS_MAX).rev().find(|count| *count as f64 <= wanted);
            self.num_proxies = fits.unwrap_or(1);
        }
    }

    /// The configuration's file, for people.
    pub(crate) fn config_name(&self) -> String {
        match self.source() {
            Some(Source::File(path)) => path.display().to_string(),
            Some(Source::Text(_)) | None => "<text>".to_owned(),
        }
    }

    /// Nothing here says where to listen.
    pub(crate) fn names_no_address(&self) -> bool {
        self.ports.is_empty() && self.ssl_ports.is_empty() && self.unix_domain_sock.is_none()
    }

    /// Ports for clients that speak no TLS.
    pub(crate) fn plain_ports(&self) -> &[u16] {
        if self.ports.is_empty() && self.ssl_ports.is_empty() { &[5000] } else { &self.ports }
    }

    /// The port that names this proxy's folders and files; 0 if there is none.
    pub(crate) fn first_port(&self) -> u16 {
        self.plain_ports().iter().chain(&self.ssl_ports).copied().next().unwrap_or(0)
    }

    /// How servers are used, unless the configuration says otherwise; the file of the login is read.
    ///
    /// # Errors
    ///
    /// That it cannot be used, and why.
    pub(crate) fn settings(
        &self,
        tls: Option<&upstream::Tls>,
    ) -> Result<upstream::Settings, String> {
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

    /// Every option and its value, a line each.
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
            ("disable_reload_configs", u64::from(self.disable_reload_configs)),
            ("file_observer_poll_period_ms", self.file_observer_poll_period_ms),
            ("max_dumped_config_age", self.max_dumped_config_age),
            ("stats_logging_interval", self.stats_logging_interval),
            ("discovery_period_ms", self.discovery_period_ms),
            ("ssl_verify_peers", u64::from(self.tls.ssl_verify_peers)),
            ("ssl_require_peer_certs", u64::from(self.tls.ssl_require_peer_certs)),
            ("enable_flush_cmd", u64::from(self.enable_flush_cmd)),
            ("asynclog_disable", u64::from(self.asynclog_disable)),
            ("use_asynclog_version2", u64::from(self.use_asynclog_version2)),
            ("asynclog_max_bytes", self.asynclog_max_bytes),
            ("asynclog_max_age", self.asynclog_max_age),
            ("asynclog_hold_gets", u64::from(self.asynclog_hold_gets)),
        ];
        let numbers = numbers.into_iter().chain(self.routing.values());
        texts.into_iter().chain(numbers.map(|(name, value)| (name, value.to_string()))).collect()
    }
}
