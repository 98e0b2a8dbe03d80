//! The flags, each defined once: parsing, `--help` and `docs/flags.md` are all derived from
//! [`SECTIONS`].
//!
//! Names and meanings are those of memcached 1.6.45. A flag that only tunes a part of memcached
//! that this engine lacks is accepted with a warning, because thousands of unit files contain it. A
//! flag that promises unavailable safety or persistence is refused, because ignoring it would be a
//! lie.

use std::net::SocketAddr;
use std::time::Duration;

use super::bad_value::BadValue;
use super::draft::{Draft, Port};
use super::{Protocol, Style, listen, number};

/// One flag of the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// The letter after one dash.
    pub short: Option<char>,
    /// The name after two dashes; also the flag's identity.
    pub long: &'static str,
    /// The name of its argument; `None` when it takes none.
    pub argument: Option<&'static str>,
    /// The default, as text; may be empty.
    pub default: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Its effect.
    pub meaning: Meaning,
}

/// The treatment of a flag or an `-o` option.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meaning {
    /// It sets something. The text is the argument, or empty when the flag takes none.
    Used(Setter),
    /// It is accepted and changes nothing, for this reason, with a warning.
    NoEffect(&'static str),
    /// It is not accepted, for this reason.
    Refused(&'static str),
    /// It prints something and ends the program.
    Print(Page),
    /// It is the `-o` list.
    Extended,
    /// It names the configuration file of `holdall serve`, which memcached does not have.
    Config,
}

/// Puts an argument into the draft, or returns its fault.
pub(crate) type Setter = fn(&mut Draft, &str) -> Result<(), BadValue>;

/// The pages that a flag may print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// Every flag.
    Help,
    /// The licence.
    Licence,
    /// Name and version.
    Version,
}

/// The flags under one heading of the help.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    /// The heading.
    pub title: &'static str,
    /// Its flags.
    pub flags: &'static [Flag],
}

/// Every flag, in the order of the help.
pub(crate) const SECTIONS: &[Section] = &[
    Section { title: "Listening", flags: LISTENING },
    Section { title: "Memory", flags: MEMORY },
    Section { title: "Serving", flags: SERVING },
    Section { title: "Features", flags: FEATURES },
    Section { title: "Process", flags: PROCESS },
    Section { title: "Information", flags: INFORMATION },
];

/// Every flag, in the order of the help.
pub(crate) fn flags() -> impl Iterator<Item = &'static Flag> {
    SECTIONS.iter().flat_map(|section| section.flags)
}

/// The flags of this style: memcached reads no file.
pub(crate) fn flags_of(style: Style) -> impl Iterator<Item = &'static Flag> {
    flags().filter(move |flag| style == Style::Holdall || !matches!(flag.meaning, Meaning::Config))
}

const LISTENING: &[Flag] = &[
    Flag {
        short: Some('p'),
        long: "port",
        argument: Some("num"),
        default: "11211",
        help: "TCP port; 0 for none, -1 for one that the system chooses",
        meaning: Meaning::Used(|draft, text| {
            draft.tcp_port = Some(Port::parse(text)?);
            Ok(())
        }),
    },
    Flag {
        short: Some('U'),
        long: "udp-port",
        argument: Some("num"),
        default: "0, off",
        help: "UDP port; without -p it is the TCP port as well",
        meaning: Meaning::Used(|draft, text| {
            draft.udp_port = Some(Port::parse(text)?);
            Ok(())
        }),
    },
    Flag {
        short: Some('l'),
        long: "listen",
        argument: Some("addr"),
        default: "127.0.0.1; every interface when run as memcached",
        help: "interfaces: host, host:port or [v6]:port, separated by , or ; may be repeated; with -Z, the \
               prefixes notls:, btls: (asks no certificate of clients) and mtls: (asks for one) go before -Z",
        meaning: Meaning::Used(|draft, text| {
            draft.interfaces.extend(listen::interfaces(text)?);
            Ok(())
        }),
    },
    Flag {
        short: Some('s'),
        long: "unix-socket",
        argument: Some("file"),
        default: "",
        help: "unix socket to listen on; turns TCP and UDP off, unless -o keep_tcp",
        meaning: Meaning::Used(|draft, text| {
            draft.options.unix.path = Some(super::path(text)?);
            Ok(())
        }),
    },
    Flag {
        short: Some('a'),
        long: "unix-mask",
        argument: Some("mask"),
        default: "0700",
        help: "access mode of the unix socket, in octal",
        meaning: Meaning::Used(|draft, text| {
            draft.options.unix.mode = number::octal_mode(text)?;
            Ok(())
        }),
    },
    Flag {
        short: Some('b'),
        long: "listen-backlog",
        argument: Some("num"),
        default: "1024",
        help: "connections that may wait to be accepted",
        meaning: Meaning::Used(|draft, text| {
            draft.options.backlog = number::number(text, 0..=0x7fff_ffff)?;
            Ok(())
        }),
    },
    Flag {
        short: Some('Z'),
        long: "enable-ssl",
        argument: None,
        default: "",
        help: "TLS on the TCP listeners; needs -o ssl_chain_cert and ssl_key",
        meaning: Meaning::Used(|draft, _| {
            draft.tls = true;
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "metrics",
        argument: Some("addr:port"),
        default: "none",
        help: "answer HTTP there: /metrics for Prometheus, /livez, /readyz, /startupz",
        meaning: Meaning::Used(|draft, text| {
            let address = text.parse().map_err(|_| BadValue::NotAnAddress(text.to_owned()))?;
            draft.options.metrics = Some(address);
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "console",
        argument: Some("addr:port"),
        default: "none",
        help: "serve a page about this server there, by a process of its own; flags of holdall console may follow behind commas",
        meaning: Meaning::Used(|draft, text| {
            let address = text.split(',').next().unwrap_or_default();
            if address.parse::<SocketAddr>().is_err() {
                return Err(BadValue::NotAnAddress(address.to_owned()));
            }
            draft.options.console = Some(text.to_owned());
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "otlp",
        argument: Some("url"),
        default: "OTEL_EXPORTER_OTLP_ENDPOINT",
        help: "send metrics and spans to this OpenTelemetry collector, by OTLP over HTTP",
        meaning: Meaning::Used(|draft, text| {
            if !text.starts_with("http://") && !text.starts_with("https://") {
                return Err(BadValue::NotAUrl(text.to_owned()));
            }
            draft.options.otlp = Some(text.to_owned());
            Ok(())
        }),
    },
    Flag {
        short: Some('N'),
        long: "napi-ids",
        argument: Some("num"),
        default: "",
        help: "number of NAPI ids",
        meaning: Meaning::NoEffect("connections go to the worker that has the fewest"),
    },
];

const MEMORY: &[Flag] = &[
    Flag {
        short: Some('m'),
        long: "memory-limit",
        argument: Some("size"),
        default: "64",
        help: "memory for items, index and connection buffers together: megabytes, or with k, m, g",
        meaning: Meaning::Used(|draft, text| {
            draft.options.memory_bytes = number::size(text, 1 << 20, 1 << 20..=1 << 44)?;
            Ok(())
        }),
    },
    Flag {
        short: Some('M'),
        long: "disable-evictions",
        argument: None,
        default: "",
        help: "refuse a store when memory is full, rather than evict",
        meaning: Meaning::Used(|draft, _| {
            draft.options.evict = false;
            Ok(())
        }),
    },
    Flag {
        short: Some('I'),
        long: "max-item-size",
        argument: Some("size"),
        default: "1m",
        help: "largest item: bytes, or with k, m, g; 1k to 1g, at most half of -m",
        meaning: Meaning::Used(|draft, text| {
            draft.item_bytes_max = Some(number::size(text, 1, 1 << 10..=1 << 30)?);
            Ok(())
        }),
    },
    Flag {
        short: Some('f'),
        long: "slab-growth-factor",
        argument: Some("num"),
        default: super::GROWTH_FACTOR_TEXT,
        help: "ratio of neighbouring chunk sizes; those that waste a 64th get others",
        meaning: Meaning::Used(|draft, text| {
            draft.options.growth_factor = number::fraction(text, 1.0)?;
            Ok(())
        }),
    },
    Flag {
        short: Some('n'),
        long: "slab-min-size",
        argument: Some("bytes"),
        default: super::CHUNK_BYTES_MIN_TEXT,
        help: "room for key, value and flags in the smallest chunk",
        meaning: Meaning::Used(|draft, text| {
            draft.options.chunk_bytes_min = number::number(text, 1..=8192)?;
            Ok(())
        }),
    },
    Flag {
        short: Some('L'),
        long: "enable-largepages",
        argument: None,
        default: "",
        help: "ask the system for large memory pages",
        meaning: Meaning::Used(|draft, _| {
            draft.options.huge_pages = true;
            Ok(())
        }),
    },
    Flag {
        short: Some('e'),
        long: "memory-file",
        argument: Some("file"),
        default: "",
        help: "keep items in this file, best on tmpfs: a restart takes them over, after a crash as well",
        meaning: Meaning::Used(|draft, text| {
            draft.options.memory_file = Some(super::path(text)?);
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "takeover",
        argument: None,
        default: "",
        help: "take the place of the running server with the same -e: its sockets and its items",
        meaning: Meaning::Used(|draft, _| {
            draft.options.takeover = true;
            Ok(())
        }),
    },
];

const SERVING: &[Flag] = &[
    Flag {
        short: Some('t'),
        long: "threads",
        argument: Some("num"),
        default: "number of CPUs, at most 4",
        help: "worker threads",
        meaning: Meaning::Used(|draft, text| {
            draft.threads = Some(number::number(text, 1..=1024)?);
            Ok(())
        }),
    },
    Flag {
        short: Some('c'),
        long: "conn-limit",
        argument: Some("num"),
        default: "1024",
        help: "connections at one time",
        meaning: Meaning::Used(|draft, text| {
            draft.options.connections_max = number::number(text, 1..=10_000_000)?;
            Ok(())
        }),
    },
    Flag {
        short: Some('R'),
        long: "max-reqs-per-event",
        argument: Some("num"),
        default: "20",
        help: "requests of one connection before the others have their turn",
        meaning: Meaning::Used(|draft, text| {
            draft.options.requests_per_turn = number::number(text, 1..=0x7fff_ffff)?;
            Ok(())
        }),
    },
    Flag {
        short: Some('B'),
        long: "protocol",
        argument: Some("name"),
        default: "auto",
        help: "auto, ascii or binary; a connection that speaks another is refused",
        meaning: Meaning::Used(|draft, text| {
            draft.options.protocol = match text {
                "auto" => Protocol::Auto,
                "ascii" => Protocol::Ascii,
                "binary" => Protocol::Binary,
                _ => return Err(BadValue::not_one_of(text, "auto, ascii and binary")),
            };
            Ok(())
        }),
    },
    Flag {
        short: Some('o'),
        long: "extended",
        argument: Some("list"),
        default: "",
        help: "extended options, separated by commas; may be repeated; see below",
        meaning: Meaning::Extended,
    },
];

const FEATURES: &[Flag] = &[
    Flag {
        short: Some('A'),
        long: "enable-shutdown",
        argument: None,
        default: "",
        help: "allow the text command 'shutdown'",
        meaning: Meaning::Used(|draft, _| {
            draft.options.shutdown_command = true;
            Ok(())
        }),
    },
    Flag {
        short: Some('C'),
        long: "disable-cas",
        argument: None,
        default: "",
        help: "no cas uniques",
        meaning: Meaning::Used(|draft, _| {
            draft.options.cas = false;
            Ok(())
        }),
    },
    Flag {
        short: Some('F'),
        long: "disable-flush-all",
        argument: None,
        default: "",
        help: "no flush_all",
        meaning: Meaning::Used(|draft, _| {
            draft.options.flush_command = false;
            Ok(())
        }),
    },
    Flag {
        short: Some('X'),
        long: "disable-dumping",
        argument: None,
        default: "",
        help: "no 'stats cachedump', 'lru_crawler metadump' and 'mgdump'",
        meaning: Meaning::Used(|draft, _| {
            draft.options.dump_commands = false;
            Ok(())
        }),
    },
    Flag {
        short: Some('W'),
        long: "disable-watch",
        argument: None,
        default: "",
        help: "no 'watch'",
        meaning: Meaning::Used(|draft, _| {
            draft.options.watch_command = false;
            Ok(())
        }),
    },
    Flag {
        short: Some('D'),
        long: "prefix-delimiter",
        argument: Some("char"),
        default: ":",
        help: "ends the key prefix that 'stats detail' counts by; giving it turns the counting on",
        meaning: Meaning::Used(|draft, text| {
            let [delimiter] = text.as_bytes() else {
                return Err(BadValue::NotACharacter(text.to_owned()));
            };
            draft.options.prefix_delimiter = *delimiter;
            draft.options.prefix_stats = true;
            Ok(())
        }),
    },
    Flag {
        short: Some('S'),
        long: "enable-sasl",
        argument: None,
        default: "",
        help: "login by SASL in the binary protocol: PLAIN, SCRAM-SHA-1, SCRAM-SHA-256; users by MEMCACHED_SASL_PWDB or -Y",
        meaning: Meaning::Used(|draft, _| {
            draft.options.sasl = true;
            Ok(())
        }),
    },
    Flag {
        short: Some('Y'),
        long: "auth-file",
        argument: Some("file"),
        default: "",
        help: "login by token in text; the file holds user:password lines",
        meaning: Meaning::Used(|draft, text| {
            draft.options.auth.users = Some(super::path(text)?);
            Ok(())
        }),
    },
];

const PROCESS: &[Flag] = &[
    Flag {
        short: Some('d'),
        long: "daemon",
        argument: None,
        default: "",
        help: "run in the background",
        meaning: Meaning::Used(|draft, _| {
            draft.options.daemon = true;
            Ok(())
        }),
    },
    Flag {
        short: Some('P'),
        long: "pidfile",
        argument: Some("file"),
        default: "",
        help: "write the process id to this file, and remove it at the end",
        meaning: Meaning::Used(|draft, text| {
            draft.options.pid_file = Some(super::path(text)?);
            Ok(())
        }),
    },
    Flag {
        short: Some('u'),
        long: "user",
        argument: Some("user"),
        default: "nobody; required as root when run as memcached",
        help: "user to become when started as root",
        meaning: Meaning::Used(|draft, text| {
            draft.options.user = Some(text.to_owned());
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "drain",
        argument: Some("secs"),
        default: "0",
        help: "after SIGTERM, report not ready at /readyz and keep serving for this long before closing connections",
        meaning: Meaning::Used(|draft, text| {
            draft.options.drain = Duration::from_secs(number::number(text, 0..=DRAIN_SECS_MAX)?);
            Ok(())
        }),
    },
    Flag {
        short: Some('r'),
        long: "enable-coredumps",
        argument: None,
        default: "",
        help: "raise the limit on core files",
        meaning: Meaning::Used(|draft, _| {
            draft.options.core_dumps = true;
            Ok(())
        }),
    },
    Flag {
        short: Some('k'),
        long: "lock-memory",
        argument: None,
        default: "",
        help: "lock all memory, so that it is never swapped out",
        meaning: Meaning::Used(|draft, _| {
            draft.options.lock_memory = true;
            Ok(())
        }),
    },
    Flag {
        short: Some('v'),
        long: "verbose",
        argument: None,
        default: "",
        help: "say more on stderr; -vv prints what clients ask",
        meaning: Meaning::Used(|draft, _| {
            draft.options.verbosity = draft.options.verbosity.saturating_add(1).min(3);
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "log-format",
        argument: Some("form"),
        default: "text",
        help: "lines of the log: text (with the time, unless the journal has it), or json",
        meaning: Meaning::Used(|draft, text| {
            draft.options.log_format = text.parse()?;
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "log-filter",
        argument: Some("list"),
        default: "info",
        help: "a level (error, warn, info, debug, off) and PART=LEVEL; parts: server, commands, connections",
        meaning: Meaning::Used(|draft, text| {
            draft.options.log_filter = text.parse()?;
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "config",
        argument: Some("file"),
        default: "",
        help: "read settings from FILE.toml, or flags from another file in the format of /etc/memcached.conf",
        meaning: Meaning::Config,
    },
];

/// The longest `--drain`: an hour.
const DRAIN_SECS_MAX: u64 = 3600;

const INFORMATION: &[Flag] = &[
    Flag {
        short: Some('h'),
        long: "help",
        argument: None,
        default: "",
        help: "print this help",
        meaning: Meaning::Print(Page::Help),
    },
    Flag {
        short: Some('i'),
        long: "license",
        argument: None,
        default: "",
        help: "print the licence",
        meaning: Meaning::Print(Page::Licence),
    },
    Flag {
        short: Some('V'),
        long: "version",
        argument: None,
        default: "",
        help: "print the version",
        meaning: Meaning::Print(Page::Version),
    },
];
