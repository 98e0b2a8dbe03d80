//! The `-o` options, each defined once, like the flags in [`super::table`].
//!
//! Source: the names are memcached 1.6.45's, `subopts_tokens` in `memcached.c`, except those marked
//! as holdall's own.

use std::time::Duration;

use net::Verify;

use super::bad_value::BadValue;
use super::draft::Draft;
use super::table::Meaning;
use super::{Eviction, affinity, number};
use store::Automove;

/// One option of the `-o` list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extended {
    /// The name before the `=`.
    pub name: &'static str,
    /// The name of its value.
    pub value: Value,
    /// The default, as text; may be empty.
    pub default: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// True if memcached lacks it.
    pub is_our_own: bool,
    /// Its effect.
    pub meaning: Meaning,
}

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// It must have none.
    None,
    /// It may have one.
    Optional(&'static str),
    /// It must have one.
    Required(&'static str),
}

/// Every `-o` option: holdall's own, then memcached's that are used, then those without effect,
/// then those refused.
pub(crate) const EXTENDED: &[Extended] = &[
    own(
        "stripes",
        Value::Required("num"),
        "64 for each thread",
        "locks of the hash table; a power of two",
        |draft, text| {
            let stripes: usize = number::number(text, 32..=65536)?;
            if !stripes.is_power_of_two() {
                return Err(BadValue::NotAPowerOfTwo(stripes));
            }
            draft.stripes = Some(stripes);
            Ok(())
        },
    ),
    own(
        "affinity",
        Value::Required("cpus"),
        "unbound",
        "binds workers to CPUs: auto, FIRST+STEP, or CPU:CPU:..",
        |draft, text| {
            draft.options.affinity = affinity::affinity(text)?;
            Ok(())
        },
    ),
    own(
        "eviction",
        Value::Required("name"),
        "auto",
        "which item goes when memory is full: auto (what hits most), bag (LRU), or lru (strict, for comparison)",
        |draft, text| {
            draft.options.eviction = match text {
                "auto" => Eviction::Auto,
                "bag" => Eviction::Bag,
                "lru" => Eviction::Lru,
                _ => return Err(BadValue::not_one_of(text, "auto, bag and lru")),
            };
            Ok(())
        },
    ),
    own(
        "transient_ttl",
        Value::Required("secs"),
        super::TRANSIENT_SECS_TEXT,
        "free an item with at most this remaining lifetime in the second in which it expires; 0 disables this; at most 3600",
        |draft, text| {
            let most = u64::from(store::TRANSIENT_SECS_MAX);
            draft.options.transient_secs = number::number(text, 0..=most)?;
            Ok(())
        },
    ),
    own(
        "lease_interval",
        Value::Required("secs"),
        "10",
        "the seconds between two lease tokens of one key; 0 for a token at every miss",
        |draft, text| {
            draft.options.lease_interval_secs = number::number(text, 0..=3600)?;
            Ok(())
        },
    ),
    own(
        "stale_seconds",
        Value::Required("secs"),
        "30",
        "once leases are used, how long a deleted value can be read as stale; 0 for not at all",
        |draft, text| {
            draft.options.stale_secs = number::number(text, 0..=3600)?;
            Ok(())
        },
    ),
    own(
        "udp_amplification",
        Value::Required("num"),
        "32",
        "a UDP reply has at most this many times the bytes of its request; 0 for no limit",
        |draft, text| {
            draft.options.udp_amplification = number::number(text, 0..=1_000_000)?;
            Ok(())
        },
    ),
    own(
        "stall_timeout",
        Value::Required("secs"),
        "60",
        "close a connection that took none of its replies for this long; 0 for never",
        |draft, text| {
            draft.options.stall_timeout = seconds(text)?;
            Ok(())
        },
    ),
    own(
        "no_sampling",
        Value::None,
        "",
        "no estimates of working set, hot keys, miss-ratio curve and latencies",
        |draft, _| {
            draft.options.sampling = false;
            Ok(())
        },
    ),
    own(
        "rights",
        Value::Required("file"),
        "every user may do everything",
        "what each user may do with which keys",
        |draft, text| {
            draft.options.auth.rights = Some(super::path(text)?);
            Ok(())
        },
    ),
    own(
        "namespaces",
        Value::Required("file"),
        "none",
        "limits and statistics of key prefixes and users",
        |draft, text| {
            draft.options.namespaces = Some(super::path(text)?);
            Ok(())
        },
    ),
    own(
        "strict",
        Value::None,
        "",
        "close a connection after a storage line without a length, or after a value longer than its stated length",
        |draft, _| {
            draft.options.strict = true;
            Ok(())
        },
    ),
    own(
        "delete_hold_off",
        Value::None,
        "",
        "the number of `delete k N` is a hold-off: add is refused for N seconds",
        |draft, _| {
            draft.options.delete_hold_off = true;
            Ok(())
        },
    ),
    own("keep_tcp", Value::None, "", "with -s, listen on TCP and UDP as well", |draft, _| {
        draft.keep_tcp = true;
        Ok(())
    }),
    used(
        "maxconns_fast",
        Value::None,
        "on",
        "refuse a connection over the limit with an error line, or with TLS by an alert",
        |draft, _| {
            draft.options.maxconns_fast = true;
            Ok(())
        },
    ),
    used(
        "no_maxconns_fast",
        Value::None,
        "",
        "leave a connection over the limit waiting",
        |draft, _| {
            draft.options.maxconns_fast = false;
            Ok(())
        },
    ),
    used(
        "idle_timeout",
        Value::Required("secs"),
        "0, none",
        "close a TCP connection that was silent for this long; watchers stay",
        |draft, text| {
            draft.options.idle_timeout = seconds(text)?;
            Ok(())
        },
    ),
    used(
        "watcher_logbuf_size",
        Value::Required("KiB"),
        "256",
        "limit of unsent log lines for each watcher",
        |draft, text| {
            draft.options.watcher_buffer_bytes = number::number::<usize>(text, 1..=1 << 20)? << 10;
            Ok(())
        },
    ),
    used(
        "temporary_ttl",
        Value::Required("secs"),
        "",
        "memcached's name for transient_ttl; such items are evicted as others are",
        |draft, text| {
            draft.options.transient_secs = number::number(text, 0..=0x7fff_ffff)?;
            Ok(())
        },
    ),
    used("slab_reassign", Value::None, "on", "'slabs reassign' moves pages", |draft, _| {
        draft.options.slab_reassign = true;
        Ok(())
    }),
    used("no_slab_reassign", Value::None, "", "'slabs reassign' is refused", |draft, _| {
        draft.options.slab_reassign = false;
        Ok(())
    }),
    used(
        "slab_automove",
        Value::Optional("num"),
        "1",
        "pages move between classes: 0 only where a class has none, 1 by age, 2 at the first eviction",
        |draft, text| {
            draft.options.automove = match text {
                "0" => Automove::Off,
                "" | "1" => Automove::Age,
                "2" => Automove::Eager,
                _ => return Err(BadValue::not_one_of(text, "0, 1 and 2")),
            };
            Ok(())
        },
    ),
    used(
        "no_slab_automove",
        Value::None,
        "",
        "pages move only to a class that has none",
        |draft, _| {
            draft.options.automove = Automove::Off;
            Ok(())
        },
    ),
    used(
        "slab_automove_ratio",
        Value::Required("num"),
        "0.9",
        "part of the oldest class's age up to which classes get pages",
        |draft, text| {
            let ratio = number::fraction(text, 0.0)?;
            if ratio > 1.0 {
                return Err(BadValue::OverOne(text.to_owned()));
            }
            draft.options.automove_ratio = ratio;
            Ok(())
        },
    ),
    used("lru_crawler", Value::None, "on", "'lru_crawler crawl' is allowed", |draft, _| {
        draft.options.crawler = true;
        Ok(())
    }),
    used("no_lru_crawler", Value::None, "", "'lru_crawler crawl' is refused", |draft, _| {
        draft.options.crawler = false;
        Ok(())
    }),
    used(
        "lru_crawler_sleep",
        Value::Required("usecs"),
        "100",
        "pause of a crawl after each 1000 items",
        |draft, text| {
            draft.options.crawler_sleep_micros =
                number::number(text, 0..=u64::from(super::CRAWLER_SLEEP_MICROS_MAX))?;
            Ok(())
        },
    ),
    used(
        "lru_crawler_tocrawl",
        Value::Required("num"),
        "0, all",
        "items of each class that a crawl looks at",
        |draft, text| {
            draft.options.crawler_to_crawl = number::number(text, 0..=u64::from(u32::MAX))?;
            Ok(())
        },
    ),
    used(
        "numa_interleave",
        Value::None,
        "off",
        "spread items and index over the machine's memory nodes",
        |draft, _| {
            draft.options.numa_interleave = true;
            Ok(())
        },
    ),
    used(
        "drop_privileges",
        Value::None,
        "off",
        "restrict the running process to few system calls (seccomp)",
        |draft, _| {
            draft.options.drop_privileges = true;
            Ok(())
        },
    ),
    used(
        "no_drop_privileges",
        Value::None,
        "",
        "the opposite, which is the default",
        |draft, _| {
            draft.options.drop_privileges = false;
            Ok(())
        },
    ),
    used(
        "ssl_chain_cert",
        Value::Required("file"),
        "",
        "the server's certificate and those that lead to its issuer, in PEM",
        |draft, text| {
            draft.tls_options.chain_cert = super::path(text)?;
            Ok(())
        },
    ),
    used(
        "ssl_key",
        Value::Required("file"),
        "",
        "the certificate's private key, in PEM or DER",
        |draft, text| {
            draft.tls_options.key = super::path(text)?;
            Ok(())
        },
    ),
    used(
        "ssl_ca_cert",
        Value::Required("file"),
        "",
        "who may issue clients' certificates, in PEM",
        |draft, text| {
            draft.tls_options.ca_cert = Some(super::path(text)?);
            Ok(())
        },
    ),
    used(
        "ssl_verify_mode",
        Value::Required("num"),
        "0",
        "clients' certificates: 0 none, 1 checked if there is one, 2 or 3 required",
        |draft, text| {
            draft.tls_options.verify = match number::number::<u8>(text, 0..=3)? {
                0 => Verify::None,
                1 => Verify::Request,
                _ => Verify::Require,
            };
            Ok(())
        },
    ),
    used(
        "ssl_min_version",
        Value::Required("num"),
        "2, TLS 1.2",
        "3 is TLS 1.3 alone; 0 and 1 mean 2, as nothing older is spoken",
        |draft, text| {
            draft.tls_options.only_tls13 = number::number::<u8>(text, 0..=3)? == 3;
            Ok(())
        },
    ),
    used(
        "ssl_ciphers",
        Value::Required("list"),
        "all that are safe",
        "suites of TLS 1.2 by OpenSSL's names, separated by colons",
        |draft, text| {
            let known = text.split(':').filter(|name| net::knows_suite(name));
            let known: Vec<_> = known.map(str::to_owned).collect();
            if known.is_empty() {
                return Err(BadValue::NoSuite);
            }
            draft.tls_options.ciphers = Some(known);
            Ok(())
        },
    ),
    used(
        "ssl_session_cache",
        Value::None,
        "off",
        "clients may resume sessions, by tickets, where no certificate is requested from them",
        |draft, _| {
            draft.tls_options.resumption = true;
            Ok(())
        },
    ),
    no_effect("ssl_keyformat", Value::Required("num"), "PEM and DER are told apart by themselves"),
    no_effect("ssl_wbuf_size", Value::Required("KiB"), "replies are sealed as they are sent"),
    no_effect("ssl_kernel_tls", Value::None, "sealing is done by the server"),
    no_effect("track_sizes", Value::None, "'stats sizes' needs no tracking"),
    no_effect(
        "worker_logbuf_size",
        Value::Required("KiB"),
        "log lines go to the watchers without a buffer for each worker",
    ),
    no_effect("read_buf_mem_limit", Value::Required("MiB"), "connection buffers count towards -m"),
    no_effect("resp_obj_mem_limit", Value::Required("MiB"), "connection buffers count towards -m"),
    no_effect("modern", Value::None, "the defaults are the modern ones"),
    no_effect("no_modern", Value::None, "there is no older engine"),
    no_effect("hashpower", Value::Required("num"), TABLE),
    no_effect("no_hashexpand", Value::None, TABLE),
    no_effect("hash_algorithm", Value::Required("name"), "there is one hash, seeded at each start"),
    no_effect("slab_automove_window", Value::Required("num"), PAGES),
    no_effect("slab_automove_freeratio", Value::Required("num"), PAGES),
    no_effect("slab_sizes", Value::Required("list"), "chunk sizes follow from -f and -n"),
    no_effect(
        "slab_chunk_max",
        Value::Required("KiB"),
        "large values are kept in pieces of a fixed size",
    ),
    no_effect("no_chunked_items", Value::None, "large values are kept in pieces of a fixed size"),
    no_effect("tail_repair_time", Value::Required("secs"), "no item can be stuck at the tail"),
    no_effect("lru_maintainer", Value::None, CLEANER),
    no_effect("no_lru_maintainer", Value::None, CLEANER),
    no_effect("hot_lru_pct", Value::Required("num"), SEGMENTS),
    no_effect("warm_lru_pct", Value::Required("num"), SEGMENTS),
    no_effect("hot_max_factor", Value::Required("num"), SEGMENTS),
    no_effect("warm_max_factor", Value::Required("num"), SEGMENTS),
    no_effect("inline_ascii_resp", Value::None, REPLIES),
    no_effect("no_inline_ascii_resp", Value::None, REPLIES),
    no_effect("ext_page_size", Value::Required("MiB"), STORAGE),
    no_effect("ext_wbuf_size", Value::Required("MiB"), STORAGE),
    no_effect("ext_threads", Value::Required("num"), STORAGE),
    no_effect("ext_io_depth", Value::Required("num"), STORAGE),
    no_effect("ext_item_size", Value::Required("bytes"), STORAGE),
    no_effect("ext_item_age", Value::Required("secs"), STORAGE),
    no_effect("ext_low_ttl", Value::Required("secs"), STORAGE),
    no_effect("ext_recache_rate", Value::Required("num"), STORAGE),
    no_effect("ext_compact_under", Value::Required("num"), STORAGE),
    no_effect("ext_drop_under", Value::Required("num"), STORAGE),
    no_effect("ext_max_sleep", Value::Required("usecs"), STORAGE),
    no_effect("ext_max_frag", Value::Required("num"), STORAGE),
    no_effect("ext_drop_unread", Value::None, STORAGE),
    refused("ext_path", Value::Required("file:size"), "external storage is not supported"),
    refused("relaxed_privileges", Value::None, "a filter of system calls is not supported"),
    refused(
        "sock_cookie_id",
        Value::Required("num"),
        "marking sockets for a firewall is not supported",
    ),
    refused("proxy_config", Value::Required("file"), PROXY),
    refused("proxy_arg", Value::Required("text"), PROXY),
    refused("proxy_uring", Value::None, PROXY),
    refused("proxy_memprofile", Value::None, PROXY),
];

const TABLE: &str = "the hash table grows by itself, without a pause";
const PAGES: &str = "pages move by the ages of items at the moment; a class keeps no free ones";
const CLEANER: &str = "the cleaner thread always runs";
const SEGMENTS: &str = "recency is kept in bags, not in hot and warm lists";
const REPLIES: &str = "the form of stored items is the engine's own";
const STORAGE: &str = "there is no external storage";
const PROXY: &str = "this is a cache server, not a proxy";

/// Applies one `-o` argument to the draft; options without effect are noted in `warnings`.
///
/// # Errors
///
/// Returns the exit status and a sentence for the operator: an unknown option (1), a missing,
/// needless or bad value, or an option that is refused (64).
pub(crate) fn apply(
    list: &str,
    draft: &mut Draft,
    warnings: &mut Vec<String>,
) -> Result<(), (u8, String)> {
    for element in list.split(',').filter(|element| !element.is_empty()) {
        let (name, value) = match element.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (element, None),
        };
        let Some(option) = EXTENDED.iter().find(|option| option.name == name) else {
            let names = EXTENDED.iter().map(|option| option.name);
            let hint = usage::hint(name, names).map(|hint| format!("; {hint}"));
            return Err((1, format!("unknown option -o {name}{}", hint.unwrap_or_default())));
        };
        apply_one(option, value, draft, warnings)
            .map_err(|reason| (super::EXIT_USAGE, format!("-o {name}: {reason}")))?;
    }
    Ok(())
}

fn apply_one(
    option: &Extended,
    value: Option<&str>,
    draft: &mut Draft,
    warnings: &mut Vec<String>,
) -> Result<(), BadValue> {
    match (option.value, value) {
        (Value::Required(what), None | Some("")) => return Err(BadValue::Missing(what)),
        // memcached ignores such a value, so a unit file may contain one.
        (Value::None, Some(_)) if option.is_our_own => return Err(BadValue::Needless),
        _ => {}
    }
    match option.meaning {
        Meaning::Used(set) => set(draft, value.unwrap_or_default()),
        Meaning::NoEffect(reason) => {
            warnings.push(format!("-o {} has no effect here: {reason}", option.name));
            Ok(())
        }
        Meaning::Refused(reason) => Err(BadValue::Refused(reason)),
        Meaning::Print(_) | Meaning::Extended | Meaning::Config => Err(BadValue::NotExtended),
    }
}

/// A time limit in seconds; 0 means none.
fn seconds(text: &str) -> Result<Option<Duration>, BadValue> {
    let secs: u64 = number::number(text, 0..=0x7fff_ffff)?;
    Ok((secs > 0).then(|| Duration::from_secs(secs)))
}

const fn own(
    name: &'static str,
    value: Value,
    default: &'static str,
    help: &'static str,
    set: super::table::Setter,
) -> Extended {
    Extended { name, value, default, help, is_our_own: true, meaning: Meaning::Used(set) }
}

const fn used(
    name: &'static str,
    value: Value,
    default: &'static str,
    help: &'static str,
    set: super::table::Setter,
) -> Extended {
    Extended { name, value, default, help, is_our_own: false, meaning: Meaning::Used(set) }
}

const fn no_effect(name: &'static str, value: Value, reason: &'static str) -> Extended {
    let meaning = Meaning::NoEffect(reason);
    Extended { name, value, default: "", help: reason, is_our_own: false, meaning }
}

const fn refused(name: &'static str, value: Value, reason: &'static str) -> Extended {
    let meaning = Meaning::Refused(reason);
    Extended { name, value, default: "", help: reason, is_our_own: false, meaning }
}
