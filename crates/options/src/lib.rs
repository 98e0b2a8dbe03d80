//! The options of the cache server: memcached's command line, resolved and checked.
//!
//! ```text
//!     TOML file, environment -> settings -.
//!     memcached.conf, arguments ----------> table (each flag's meaning) -> Draft -> Options
//! ```
//!
//! [`parse()`] reads no environment except its argument, and opens no socket; it reads a file only
//! when `--config` names one. All faults that can be found before the server touches the system are
//! refused there.
#![forbid(unsafe_code)]

mod affinity;
mod arguments;
mod bad_value;
mod conf;
mod draft;
mod extended;
pub mod file;
mod help;
mod layers;
mod listen;
mod log_format;
mod number;
mod parse;
mod refusal;
pub mod settings;
#[cfg(test)]
mod settings_tests;
pub mod stats_settings;
mod table;
#[cfg(test)]
mod tests;

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use net::TlsOptions;

pub use affinity::Affinity;
use bad_value::BadValue;
pub use help::reference;
pub use listen::Endpoint;
pub use log_format::log_format;
pub use number::{number_in, size_in};
pub use parse::{Invocation, interface, parse};
pub use proto::COMPATIBLE_VERSION;
pub use refusal::{Cause, Refusal};
pub use usage::EXIT_USAGE;

/// The longest pause of a crawl, in microseconds, as in memcached.
pub const CRAWLER_SLEEP_MICROS_MAX: u32 = 1_000_000;

/// The files of users and rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The file of users. Absolute.
    pub users: Option<PathBuf>,
    /// The file of rights; without one every user may do everything. Absolute.
    pub rights: Option<PathBuf>,
}

/// All settings of the command line, with every default filled in.
#[derive(Clone, Debug)]
pub struct Options {
    /// The conventions to follow where memcached's and holdall's differ.
    pub style: Style,

    /// Addresses at which TCP connections are accepted; empty when TCP is off.
    pub tcp: Vec<Endpoint>,
    /// Addresses at which UDP requests are read; empty when UDP is off, as it is by default.
    pub udp: Vec<Endpoint>,
    /// The unix socket.
    pub unix: UnixSocket,
    /// Connections that may wait to be accepted (`-b`).
    pub backlog: i32,

    /// Bytes for items, index and connection buffers together (`-m`).
    pub memory_bytes: u64,
    /// The largest item, including header and key (`-I`); 1 KiB to 1 GiB, at most half of
    /// `memory_bytes`.
    pub item_bytes_max: u64,
    /// `false`: a full store refuses (`-M`).
    pub evict: bool,
    /// The choice of the item that is evicted when memory is full.
    pub eviction: Eviction,
    /// Items with at most this remaining life, in seconds, are freed in the second in which they
    /// expire; 0: none are.
    pub transient_secs: u32,
    /// The rule by which pages automatically move between slab classes.
    pub automove: store::Automove,
    /// `lru_crawler crawl` is allowed.
    pub crawler: bool,
    /// Pause of a crawl after each thousand items, in microseconds.
    pub crawler_sleep_micros: u32,
    /// Items of a class that a crawl checks; 0: all.
    pub crawler_to_crawl: u32,
    /// Age of a class's next victim, as a part of the oldest of other classes, up to which the
    /// class gets pages; over 0, at most 1.
    pub automove_ratio: f64,
    /// `slabs reassign` is allowed.
    pub slab_reassign: bool,
    /// Ratio of neighbouring chunk sizes (`-f`), over 1.
    pub growth_factor: f64,
    /// Room for key, value and flags in the smallest chunk (`-n`).
    pub chunk_bytes_min: u32,
    /// Large memory pages (`-L`).
    pub huge_pages: bool,
    /// Items and index are distributed over the machine's memory nodes.
    pub numa_interleave: bool,
    /// The file that contains the items, so that they outlive the process (`-e`). Absolute.
    pub memory_file: Option<PathBuf>,
    /// Replace the running server with the same memory file (`--takeover`).
    pub takeover: bool,
    /// Locks of the hash table; a power of two.
    pub stripes: usize,

    /// Worker threads (`-t`), at least 1.
    pub threads: usize,
    /// The CPU that each worker is bound to.
    pub affinity: Affinity,
    /// Connections at one time (`-c`), at least 1.
    pub connections_max: usize,
    /// A connection over the limit is refused at once instead of waiting.
    pub maxconns_fast: bool,
    /// Requests of one connection before the others get their turn (`-R`), at least 1.
    pub requests_per_turn: u32,
    /// A TCP connection that was silent for this long, and does not watch, is closed.
    pub idle_timeout: Option<Duration>,
    /// A connection that read none of its replies for this long is closed, because they hold
    /// memory.
    pub stall_timeout: Option<Duration>,
    /// A UDP reply has at most this many times the bytes of its request; 0 for no limit.
    pub udp_amplification: u32,
    /// TLS (`-Z`) and its `ssl_*` options.
    pub tls: Option<TlsOptions>,

    /// The address of metrics and health over HTTP (`--metrics`).
    pub metrics: Option<SocketAddr>,
    /// The address of the page about this server, and flags of `holdall console` after commas
    /// (`--console`).
    pub console: Option<String>,
    /// The OpenTelemetry collector for metrics and spans (`--otlp`).
    pub otlp: Option<String>,
    /// The time for which clients are still served after shutdown has started (`--drain`).
    pub drain: Duration,

    /// The protocols that are served (`-B`).
    pub protocol: Protocol,

    /// The users (`-Y`, or with `-S` `MEMCACHED_SASL_PWDB`) and their rights.
    pub auth: Sources,
    /// The file of namespaces, which limits prefixes and users. Absolute.
    pub namespaces: Option<PathBuf>,
    /// A login is by token in text (`-Y`).
    pub token_login: bool,
    /// A login is by SASL in binary (`-S`).
    pub sasl: bool,

    /// `shutdown` is allowed (`-A`).
    pub shutdown_command: bool,
    /// `flush_all` is allowed (not `-F`).
    pub flush_command: bool,
    /// Key dumps are allowed (not `-X`).
    pub dump_commands: bool,
    /// `-o strict`: a connection ends where data could be read as commands.
    pub strict: bool,
    /// `-o delete_hold_off`: the number of `delete k N` is a hold-off in seconds.
    pub delete_hold_off: bool,
    /// `watch` is allowed (not `-W`).
    pub watch_command: bool,
    /// The maximum unsent bytes of a watcher.
    pub watcher_buffer_bytes: usize,
    /// Seconds between two lease tokens of one key; 0 for no limit.
    pub lease_interval_secs: u32,
    /// Seconds for which a deleted value stays readable as stale; 0 disables this.
    pub stale_secs: u32,
    /// Items have cas uniques (not `-C`).
    pub cas: bool,
    /// Ends the key prefix that `stats detail` counts by (`-D`).
    pub prefix_delimiter: u8,
    /// `stats detail` counts from the start (`-D` was given).
    pub prefix_stats: bool,
    /// Working set, hot keys, miss-ratio curve and latencies are estimated from samples.
    pub sampling: bool,

    /// Run in the background (`-d`).
    pub daemon: bool,
    /// Contains the process id while the server runs (`-P`). Absolute.
    pub pid_file: Option<PathBuf>,
    /// User to become when started as root (`-u`).
    pub user: Option<String>,
    /// The process may make only few system calls once it runs.
    pub drop_privileges: bool,
    /// Raise the limit on core files (`-r`).
    pub core_dumps: bool,
    /// Lock all memory (`-k`).
    pub lock_memory: bool,
    /// The verbosity of the log on stderr: 0 to 3 (`-v`).
    pub verbosity: u8,
    /// The form of the log's lines (`--log-format`).
    pub log_format: logging::Format,
    /// The events that are logged (`--log-filter`).
    pub log_filter: logging::Filter,
    /// The file for the ports that were bound (`MEMCACHED_PORT_FILENAME`). Absolute.
    pub port_file: Option<PathBuf>,
}

/// The conventions to follow where memcached's and holdall's differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `holdall serve`: by default listens on 127.0.0.1, and root becomes `nobody`.
    Holdall,
    /// Run under the name `memcached`: listens everywhere, and root must name a user.
    Memcached,
}

/// The unix socket to listen on.
#[derive(Clone, Debug)]
pub struct UnixSocket {
    /// Its path; `None` for no unix socket. Absolute.
    pub path: Option<PathBuf>,
    /// Access mode, nine bits.
    pub mode: u32,
}

/// The choice of the item that is evicted when memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Items that were never read before others, and large ones before small ones, as far as this
    /// improves the hit ratio.
    Auto,
    /// The oldest bag's first item that was not read since.
    Bag,
    /// The class's least recently used item, strictly. For comparison.
    Lru,
}

/// The protocols that a connection may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Each connection's first byte decides.
    Auto,
    /// Text and meta commands.
    Ascii,
    /// The binary protocol.
    Binary,
}

/// The part of the environment that options depend on.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// CPUs that the process may use.
    pub cpus: usize,
    /// `MEMCACHED_PORT_FILENAME`.
    pub port_file: Option<PathBuf>,
    /// `MEMCACHED_SASL_PWDB`.
    pub sasl_users: Option<PathBuf>,
    /// The variables that start with `HOLDALL_`, without this prefix.
    pub variables: Vec<(String, String)>,
    /// The folder for relative file names; empty for the present one. A server reads its settings
    /// again with the folder of its start: it may have changed its own (`-d`), or may no longer ask
    /// for it (`-o drop_privileges`).
    pub folder: PathBuf,
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let variable = |(name, value): (OsString, OsString)| {
            let name = name.to_str()?.strip_prefix("HOLDALL_")?.to_owned();
            Some((name, value.into_string().ok()?))
        };
        Self {
            cpus: thread::available_parallelism().map_or(1, usize::from),
            port_file: env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from),
            sasl_users: env::var_os("MEMCACHED_SASL_PWDB").map(PathBuf::from),
            variables: env::vars_os().filter_map(variable).collect(),
            folder: env::current_dir().unwrap_or_default(),
        }
    }
}

/// memcached's TCP and UDP port.
pub const PORT: u16 = 11211;

/// The default of `-f`: memcached's 1.25 would leave a tenth of every chunk unused.
const GROWTH_FACTOR: f64 = 1.07;

/// [`GROWTH_FACTOR`] as the help shows it. A test compares the two.
const GROWTH_FACTOR_TEXT: &str = "1.07";

/// The default of `-o transient_ttl`, in seconds. holdall's choice: the paper names no number.
const TRANSIENT_SECS: u32 = 300;

/// [`TRANSIENT_SECS`] as the help shows it. A test compares the two.
const TRANSIENT_SECS_TEXT: &str = "300";

/// The default of `-n`: most items are small.
const CHUNK_BYTES_MIN: u32 = 16;

/// [`CHUNK_BYTES_MIN`] as the help shows it. A test compares the two.
const CHUNK_BYTES_MIN_TEXT: &str = "16";

/// The name of a file, as it was given; `Draft::resolve` makes it absolute.
fn path(text: &str) -> Result<PathBuf, BadValue> {
    if text.is_empty() { Err(BadValue::NoFile) } else { Ok(PathBuf::from(text)) }
}
