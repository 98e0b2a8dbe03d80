//! The options so far, flag by flag, before they are checked together.

use std::path::{Path, PathBuf};
use std::time::Duration;

use net::{TlsMode, TlsOptions, Verify};
use store::Automove;

use super::bad_value::BadValue;
use super::listen::{Endpoint, Interface};
use super::refusal::Conflict;
use super::{Affinity, Environment, Eviction, Options, PORT, Protocol, Sources, Style, UnixSocket};

/// The options so far, and those that depend on others.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// The options that depend on no others.
    pub options: Options,
    /// `-p`.
    pub tcp_port: Option<Port>,
    /// `-U`.
    pub udp_port: Option<Port>,
    /// Every `-l`.
    pub interfaces: Vec<Interface>,
    /// `-o keep_tcp`.
    pub keep_tcp: bool,
    /// `-I`.
    pub item_bytes_max: Option<u64>,
    /// `-t`.
    pub threads: Option<usize>,
    /// `-o stripes`.
    pub stripes: Option<usize>,
    /// `-Z`.
    pub tls: bool,
    /// The `ssl_*` options.
    pub tls_options: TlsOptions,
}

/// A port of `-p` and `-U`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// 0: do not listen.
    Off,
    /// -1: the system chooses.
    Ephemeral,
    /// This one.
    Number(u16),
}

impl Port {
    /// Reads 0, -1 or a port number.
    ///
    /// # Errors
    ///
    /// Fails if `text` is none of them.
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        match text {
            "-1" => Ok(Self::Ephemeral),
            _ => match super::number::number(text, 0..=u64::from(u16::MAX))? {
                0 => Ok(Self::Off),
                port => Ok(Self::Number(port)),
            },
        }
    }

    /// The number to bind; `None` when off.
    fn to_bind(self) -> Option<u16> {
        match self {
            Self::Off => None,
            Self::Ephemeral => Some(0),
            Self::Number(port) => Some(port),
        }
    }
}

impl Draft {
    /// A draft without any option.
    #[must_use]
    pub(crate) fn new(style: Style) -> Self {
        Self {
            options: defaults(style),
            tcp_port: None,
            udp_port: None,
            interfaces: Vec::new(),
            keep_tcp: false,
            item_bytes_max: None,
            threads: None,
            stripes: None,
            tls: false,
            tls_options: TlsOptions::default(),
        }
    }

    /// Checks the options together. Notes for the operator go into `warnings`.
    ///
    /// # Errors
    ///
    /// Fails for options that do not go together, for example an item limit that does not fit the
    /// memory limit.
    pub(crate) fn resolve(
        mut self,
        environment: &Environment,
        warnings: &mut Vec<String>,
    ) -> Result<Options, Conflict> {
        self.resolve_paths(&environment.folder)?;
        self.resolve_listeners(warnings);
        self.resolve_item_limit(warnings)?;
        self.resolve_tls(warnings)?;
        self.resolve_login(environment, warnings)?;
        self.resolve_transient_secs(warnings);
        let warning = self.options.udp_warning().map_err(|why| Conflict::new("-U", why))?;
        warnings.extend(warning.map(|warning| format!("-U: {warning}")));
        let threads =
            self.threads.unwrap_or_else(|| environment.cpus.clamp(1, THREADS_DEFAULT_MAX));
        // If the number of processors is unknown, it is 0.
        if self.threads.is_some() && environment.cpus > 0 && threads > environment.cpus {
            warnings.push(format!(
                "-t: {threads} worker threads for {} processors only cost time",
                environment.cpus
            ));
        }
        self.options.threads = threads;
        self.options.stripes = self
            .stripes
            .unwrap_or_else(|| (threads * STRIPES_PER_THREAD).next_power_of_two().max(STRIPES_MIN));
        let port_file = environment.port_file.as_deref();
        self.options.port_file = port_file
            .map(|path| absolute("MEMCACHED_PORT_FILENAME", path, &environment.folder))
            .transpose()?;
        Ok(self.options)
    }

    /// Paths that stay the same when the process changes its folder.
    fn resolve_paths(&mut self, folder: &Path) -> Result<(), Conflict> {
        let (options, tls) = (&mut self.options, &mut self.tls_options);
        let paths = [
            ("-s", options.unix.path.as_mut()),
            ("-e", options.memory_file.as_mut()),
            ("-Y", options.auth.users.as_mut()),
            ("-P", options.pid_file.as_mut()),
            ("-o rights", options.auth.rights.as_mut()),
            ("-o namespaces", options.namespaces.as_mut()),
            ("-o ssl_chain_cert", Some(&mut tls.chain_cert)),
            ("-o ssl_key", Some(&mut tls.key)),
            ("-o ssl_ca_cert", tls.ca_cert.as_mut()),
        ];
        for (name, path) in paths {
            // Certificate and key are empty if they are not given.
            if let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) {
                *path = absolute(name, path, folder)?;
            }
        }
        Ok(())
    }

    /// As in memcached: `-U` without `-p` also sets the TCP port, and a unix socket turns both off.
    /// An element of `-l` with its own port is still off when its `-p` or `-U` is 0. With all of
    /// them off the server starts, and no client can reach it.
    fn resolve_listeners(&mut self, warnings: &mut Vec<String>) {
        let udp = self.udp_port.and_then(Port::to_bind);
        let tcp = match (self.tcp_port, udp) {
            (Some(port), _) => port.to_bind(),
            (None, Some(port)) => Some(port),
            (None, None) => Some(PORT),
        };
        if self.options.unix.path.is_some() && !self.keep_tcp {
            return;
        }
        if self.interfaces.is_empty() {
            let host = match self.options.style {
                Style::Holdall => Some("127.0.0.1".to_owned()),
                Style::Memcached => None,
            };
            self.interfaces.push(Interface { host, port: None, tls: None });
        }
        let default_tls = if self.tls { TlsMode::Standard } else { TlsMode::Plain };
        let endpoints = |port: Option<u16>| -> Vec<Endpoint> {
            let Some(port) = port else { return Vec::new() };
            self.interfaces.iter().map(|interface| interface.endpoint(port, default_tls)).collect()
        };
        self.options.tcp = endpoints(tcp);
        self.options.udp = endpoints(udp);
        if tcp.is_none() && udp.is_none() && self.options.unix.path.is_none() {
            warnings.push("nobody can connect: TCP and UDP are off, and there is no -s".to_owned());
        }
    }

    /// A listener that was meant to be encrypted must not come up plain.
    fn resolve_tls(&mut self, warnings: &mut Vec<String>) -> Result<(), Conflict> {
        let tcp = &self.options.tcp;
        if !self.tls {
            if tcp.iter().any(|endpoint| endpoint.tls != TlsMode::Plain) {
                return Err(Conflict::new("-l", "TLS needs -Z"));
            }
            warnings.extend(without_tls(&self.tls_options));
            return Ok(());
        }
        let tls = &self.tls_options;
        if tls.chain_cert.as_os_str().is_empty() || tls.key.as_os_str().is_empty() {
            return Err(Conflict::new("-Z", "needs -o ssl_chain_cert=FILE,ssl_key=FILE"));
        }
        let requires = tls.verify == Verify::Require
            || tcp.iter().any(|endpoint| endpoint.tls == TlsMode::Mutual);
        if requires && tls.ca_cert.is_none() {
            return Err(Conflict::new("-Z", "clients' certificates need -o ssl_ca_cert=FILE"));
        }
        if tls.verify == Verify::Request && tls.ca_cert.is_none() {
            let warning =
                "ssl_verify_mode: no certificate is asked for, since ssl_ca_cert is not set";
            warnings.push(warning.to_owned());
        }
        self.options.tls = Some(self.tls_options.clone());
        Ok(())
    }

    /// As in memcached, `-S` without `-Y` is for the binary protocol, and `-Y` without `-S` for
    /// text; with both, each has its own login.
    fn resolve_login(
        &mut self,
        environment: &Environment,
        warnings: &mut Vec<String>,
    ) -> Result<(), Conflict> {
        let options = &mut self.options;
        let sasl_users = environment.sasl_users.as_deref();
        let sasl_users = sasl_users
            .map(|path| absolute("MEMCACHED_SASL_PWDB", path, &environment.folder))
            .transpose()?;
        options.token_login = options.auth.users.is_some();
        if options.sasl && !options.token_login {
            if sasl_users.is_none() {
                return Err(Conflict::new(
                    "-S",
                    "name the file of users by MEMCACHED_SASL_PWDB or -Y",
                ));
            }
            options.auth.users = sasl_users;
        } else if options.sasl && sasl_users.is_some() {
            warnings.push("MEMCACHED_SASL_PWDB has no effect: -Y names the users".to_owned());
        }
        options.protocol = match (options.sasl, options.token_login, options.protocol) {
            (true, false, Protocol::Ascii) => {
                return Err(Conflict::new("-S", "text has no SASL; use -Y"));
            }
            (false, true, Protocol::Binary) => {
                return Err(Conflict::new("-Y", "the binary protocol needs -S as well"));
            }
            (true, false, _) => Protocol::Binary,
            (false, true, _) => Protocol::Ascii,
            (_, _, protocol) => protocol,
        };
        if options.auth.users.is_none() && options.auth.rights.is_some() {
            return Err(Conflict::new("-o rights", "needs users, by -Y or -S"));
        }
        Ok(())
    }

    /// `temporary_ttl` has no maximum in memcached, and is used in unit files.
    fn resolve_transient_secs(&mut self, warnings: &mut Vec<String>) {
        let (secs, most) = (&mut self.options.transient_secs, store::TRANSIENT_SECS_MAX);
        if *secs > most {
            warnings.push(format!(
                "-o temporary_ttl: {most} is used instead of {secs}: it is the most"
            ));
            *secs = most;
        }
    }

    /// A given limit must fit; the default shrinks to fit, with a warning.
    fn resolve_item_limit(&mut self, warnings: &mut Vec<String>) -> Result<(), Conflict> {
        let half = self.options.memory_bytes / 2;
        match self.item_bytes_max {
            Some(bytes) if bytes > half => {
                Err(Conflict::new("-I", "an item cannot be larger than half of -m"))
            }
            Some(bytes) => {
                self.options.item_bytes_max = bytes;
                Ok(())
            }
            None if self.options.item_bytes_max > half => {
                self.options.item_bytes_max = half;
                warnings.push(format!(
                    "-m: items over {} kB are refused, since an item has at most half of -m",
                    half >> 10
                ));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// The warning about options of TLS without `-Z`.
fn without_tls(options: &TlsOptions) -> Option<String> {
    let given = [
        ("-o ssl_verify_mode", options.verify != Verify::None),
        ("-o ssl_chain_cert", !options.chain_cert.as_os_str().is_empty()),
        ("-o ssl_key", !options.key.as_os_str().is_empty()),
        ("-o ssl_ca_cert", options.ca_cert.is_some()),
    ];
    let (name, _) = given.into_iter().find(|(_, is_given)| *is_given)?;
    Some(format!(
        "{name}: has no effect without -Z: nothing is encrypted, and no certificate is required"
    ))
}

/// The path from `folder`, which `name` gives; from the present folder if `folder` is empty.
fn absolute(name: &'static str, path: &Path, folder: &Path) -> Result<PathBuf, Conflict> {
    std::path::absolute(folder.join(path)).map_err(|error| Conflict::new(name, error.to_string()))
}

fn defaults(style: Style) -> Options {
    Options {
        style,
        tcp: Vec::new(),
        udp: Vec::new(),
        unix: UnixSocket { path: None, mode: 0o700 },
        backlog: 1024,
        memory_bytes: 64 << 20,
        item_bytes_max: 1 << 20,
        evict: true,
        eviction: Eviction::Auto,
        transient_secs: super::TRANSIENT_SECS,
        automove: Automove::Age,
        automove_ratio: 0.9,
        crawler: true,
        crawler_sleep_micros: 100,
        crawler_to_crawl: 0,
        slab_reassign: true,
        growth_factor: super::GROWTH_FACTOR,
        chunk_bytes_min: super::CHUNK_BYTES_MIN,
        huge_pages: false,
        numa_interleave: false,
        memory_file: None,
        takeover: false,
        stripes: STRIPES_MIN,
        threads: 1,
        affinity: Affinity::Unbound,
        connections_max: 1024,
        maxconns_fast: true,
        requests_per_turn: 20,
        idle_timeout: None,
        stall_timeout: Some(Duration::from_secs(60)),
        udp_amplification: 32,
        sampling: true,
        lease_interval_secs: 10,
        stale_secs: 30,
        metrics: None,
        console: None,
        otlp: None,
        drain: Duration::ZERO,
        protocol: Protocol::Auto,
        tls: None,
        auth: Sources::default(),
        namespaces: None,
        token_login: false,
        sasl: false,
        shutdown_command: false,
        flush_command: true,
        dump_commands: true,
        strict: false,
        delete_hold_off: false,
        watch_command: true,
        watcher_buffer_bytes: 256 << 10,
        cas: true,
        prefix_delimiter: b':',
        prefix_stats: false,
        daemon: false,
        pid_file: None,
        user: None,
        drop_privileges: false,
        core_dumps: false,
        lock_memory: false,
        verbosity: 0,
        log_format: logging::Format::default(),
        log_filter: logging::Filter::default(),
        port_file: None,
    }
}

/// Workers without `-t`: one per CPU, up to memcached's default.
const THREADS_DEFAULT_MAX: usize = 4;

/// Enough that two writers seldom need one stripe.
const STRIPES_PER_THREAD: usize = 64;

/// The minimum number of locks in "Enhancing the Scalability of Memcached".
const STRIPES_MIN: usize = 32;
