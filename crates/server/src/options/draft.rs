//! What was said, flag by flag, before the pieces are judged together.

use std::path::PathBuf;
use std::time::Duration;

use super::listen::{Endpoint, Interface};
use super::{
    Affinity, EXIT_USAGE, Eviction, Options, PORT, Protocol, Refusal, Style, Surroundings,
    UnixSocket,
};

/// The options so far, and whatever needs the others to be decided.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    /// What needs no second look.
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
}

/// A port as `-p` and `-U` take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
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
    /// A sentence for the operator.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
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
    /// Nothing said yet.
    #[must_use]
    pub(super) fn new(style: Style) -> Self {
        Self {
            options: defaults(style),
            tcp_port: None,
            udp_port: None,
            interfaces: Vec::new(),
            keep_tcp: false,
            item_bytes_max: None,
            threads: None,
            stripes: None,
        }
    }

    /// Judges the pieces together. What an operator should know is noted in `warnings`.
    ///
    /// # Errors
    ///
    /// A refusal with memcached's exit status for usage errors: nothing to listen on, or an item limit that does
    /// not fit the memory limit.
    pub(super) fn resolve(
        mut self,
        surroundings: &Surroundings,
        warnings: &mut Vec<String>,
    ) -> Result<Options, Refusal> {
        self.resolve_listeners(warnings)?;
        self.resolve_item_limit()?;
        let threads =
            self.threads.unwrap_or_else(|| surroundings.cpus.clamp(1, THREADS_DEFAULT_MAX));
        if threads > THREADS_SENSIBLE_MAX {
            warnings.push(format!(
                "{threads} worker threads are many: more than there are CPUs only cost time"
            ));
        }
        self.options.threads = threads;
        self.options.stripes = self
            .stripes
            .unwrap_or_else(|| (threads * STRIPES_PER_THREAD).next_power_of_two().max(STRIPES_MIN));
        self.options.port_file = absolute(surroundings.port_file.as_ref())?;
        Ok(self.options)
    }

    /// As memcached: `-U` alone sets the TCP port as well, and a unix socket turns both off. An element of `-l`
    /// with a port of its own is still off when its `-p` or `-U` is 0.
    fn resolve_listeners(&mut self, warnings: &mut Vec<String>) -> Result<(), Refusal> {
        let udp = self.udp_port.and_then(Port::to_bind);
        let tcp = match (self.tcp_port, udp) {
            (Some(port), _) => port.to_bind(),
            (None, Some(port)) => Some(port),
            (None, None) => Some(PORT),
        };
        if self.options.unix.path.is_some() && !self.keep_tcp {
            return Ok(());
        }
        if self.interfaces.is_empty() {
            let host = match self.options.style {
                Style::Holdall => Some("127.0.0.1".to_owned()),
                Style::Memcached => None,
            };
            self.interfaces.push(Interface { host, port: None });
        }
        let endpoints = |port: Option<u16>| -> Vec<Endpoint> {
            let Some(port) = port else { return Vec::new() };
            self.interfaces.iter().map(|interface| interface.endpoint(port)).collect()
        };
        self.options.tcp = endpoints(tcp);
        self.options.udp = endpoints(udp);
        if tcp.is_none() && udp.is_none() && self.options.unix.path.is_none() {
            return Err(usage("nothing to listen on: TCP and UDP are off, and there is no -s"));
        }
        if self.interfaces.iter().any(|interface| interface.host.is_none()) {
            warnings.push(
                "listening on every interface without authentication: whoever reaches this port can read \
                 and change everything; -l 127.0.0.1 limits it to this machine"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// A limit that was asked for must fit; the default shrinks to fit.
    fn resolve_item_limit(&mut self) -> Result<(), Refusal> {
        let half = self.options.memory_bytes / 2;
        match self.item_bytes_max {
            Some(bytes) if bytes > half => {
                Err(usage("-I: an item cannot be larger than half of -m"))
            }
            Some(bytes) => {
                self.options.item_bytes_max = bytes;
                Ok(())
            }
            None => {
                self.options.item_bytes_max = self.options.item_bytes_max.min(half);
                Ok(())
            }
        }
    }
}

fn usage(message: &str) -> Refusal {
    Refusal { status: EXIT_USAGE, message: message.to_owned() }
}

fn absolute(path: Option<&PathBuf>) -> Result<Option<PathBuf>, Refusal> {
    path.map(std::path::absolute)
        .transpose()
        .map_err(|error| usage(&format!("MEMCACHED_PORT_FILENAME: {error}")))
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
        eviction: Eviction::Bag,
        transient_secs: super::TRANSIENT_SECS,
        growth_factor: super::GROWTH_FACTOR,
        chunk_bytes_min: super::CHUNK_BYTES_MIN,
        huge_pages: false,
        memory_file: None,
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
        stale_secs: 10,
        protocol: Protocol::Auto,
        shutdown_command: false,
        flush_command: true,
        dump_commands: true,
        watch_command: true,
        watcher_buffer_bytes: 256 << 10,
        cas: true,
        prefix_delimiter: b':',
        prefix_stats: false,
        daemon: false,
        pid_file: None,
        user: None,
        core_dumps: false,
        lock_memory: false,
        verbosity: 0,
        port_file: None,
    }
}

/// Workers when `-t` is absent: one a CPU, up to memcached's default.
const THREADS_DEFAULT_MAX: usize = 4;

/// memcached warns above this.
const THREADS_SENSIBLE_MAX: usize = 64;

/// So many that two writers seldom want one stripe.
const STRIPES_PER_THREAD: usize = 64;

/// The number of locks in "Enhancing the Scalability of Memcached", its least.
const STRIPES_MIN: usize = 32;
