//! memtier_benchmark's flags in one table, and a parser that works like getopt_long.
//!
//! Source: `memtier_benchmark --help` and README of version 2, and the manual page of June 2026,
//! which has the flags of 2.5.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{FlagError, refusals};

/// The effect of a flag here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Its effect in memtier_benchmark.
    Done,
    /// Nothing, with a warning.
    Warned,
    /// It cannot be done, and would change the measurement.
    Refused,
}

use Use::{Done, Refused, Warned};

/// Long name, short name, whether a value follows, its effect here.
type Flag = (&'static str, Option<char>, bool, Use);

pub(super) const FLAGS: [Flag; 110] = [
    ("server", Some('s'), true, Done),
    ("host", Some('h'), true, Done),
    ("port", Some('p'), true, Done),
    ("unix-socket", Some('S'), true, Done),
    ("uri", Some('u'), true, Done),
    ("ipv4", Some('4'), false, Done),
    ("ipv6", Some('6'), false, Done),
    ("protocol", Some('P'), true, Done),
    ("authenticate", Some('a'), true, Done),
    ("tls", None, false, Done),
    ("cert", None, true, Done),
    ("key", None, true, Done),
    ("cacert", None, true, Done),
    ("tls-skip-verify", None, false, Done),
    ("tls-protocols", None, true, Refused),
    ("sni", None, true, Done),
    ("run-count", Some('x'), true, Done),
    ("debug", Some('D'), false, Warned),
    ("client-stats", None, true, Refused),
    ("out-file", Some('o'), true, Done),
    ("json-out-file", None, true, Done),
    ("hdr-file-prefix", None, true, Done),
    ("show-config", None, false, Warned),
    ("hide-histogram", None, false, Done),
    ("print-percentiles", None, true, Done),
    ("print-all-runs", None, false, Done),
    ("realtime-latencies", None, false, Warned),
    ("latency-window", None, true, Warned),
    ("command-stats-breakdown", None, true, Warned),
    ("command-miss-tracking", None, true, Warned),
    ("miss-rate-threshold", None, true, Done),
    ("cluster-mode", None, false, Refused),
    ("transaction", None, false, Refused),
    ("requests", Some('n'), true, Done),
    ("clients", Some('c'), true, Done),
    ("threads", Some('t'), true, Done),
    ("test-time", None, true, Done),
    ("ratio", None, true, Done),
    ("pipeline", None, true, Done),
    ("reconnect-interval", None, true, Done),
    ("reconnect-on-error", None, false, Refused),
    ("max-reconnect-attempts", None, true, Refused),
    ("reconnect-backoff-factor", None, true, Refused),
    ("retry-on-error", None, false, Refused),
    ("max-retries", None, true, Refused),
    ("retry-backoff-ms", None, true, Refused),
    ("retry-backoff-factor", None, true, Refused),
    ("retry-on", None, true, Refused),
    ("max-retry-queue", None, true, Refused),
    ("failed-keys-file", None, true, Refused),
    ("connection-timeout", None, true, Warned),
    ("connection-stage-timeout", None, true, Warned),
    ("thread-conn-start-min-jitter-micros", None, true, Warned),
    ("thread-conn-start-max-jitter-micros", None, true, Warned),
    ("multi-key-get", None, true, Done),
    ("select-db", None, true, Refused),
    ("distinct-client-seed", None, false, Warned),
    ("randomize", None, false, Done),
    ("rate-limiting", None, true, Done),
    ("clients-start", None, true, Refused),
    ("clients-step", None, true, Refused),
    ("step-duration", None, true, Refused),
    ("statsd-host", None, true, Refused),
    ("statsd-port", None, true, Refused),
    ("statsd-prefix", None, true, Refused),
    ("statsd-run-label", None, true, Refused),
    ("graphite-port", None, true, Refused),
    ("prometheus-port", None, true, Refused),
    ("prometheus-bind-addr", None, true, Refused),
    ("prometheus-run-label", None, true, Refused),
    ("prometheus-latency-buckets", None, true, Refused),
    ("data-size", Some('d'), true, Done),
    ("data-offset", None, true, Refused),
    ("random-data", Some('R'), false, Warned),
    ("data-size-range", None, true, Done),
    ("data-size-list", None, true, Done),
    ("data-size-pattern", None, true, Warned),
    ("expiry-range", None, true, Done),
    ("data-import", None, true, Refused),
    ("data-verify", None, false, Done),
    ("verify-only", None, false, Refused),
    ("generate-keys", None, false, Refused),
    ("no-expiry", None, false, Refused),
    ("key-prefix", None, true, Done),
    ("key-minimum", None, true, Done),
    ("key-maximum", None, true, Done),
    ("key-pattern", None, true, Done),
    ("key-stddev", None, true, Done),
    ("key-median", None, true, Refused),
    ("key-zipf-exp", None, true, Done),
    ("wait-ratio", None, true, Refused),
    ("num-slaves", None, true, Refused),
    ("wait-timeout", None, true, Refused),
    ("command", None, true, Refused),
    ("command-ratio", None, true, Refused),
    ("command-key-pattern", None, true, Refused),
    ("command-is-read", None, false, Refused),
    ("read-preference", None, true, Refused),
    ("read-preference-fallback", None, true, Refused),
    ("read-server", None, true, Refused),
    ("replica-clients", None, true, Refused),
    ("replicas-per-shard", None, true, Refused),
    ("monitor-input", None, true, Refused),
    ("monitor-pattern", None, true, Refused),
    ("scan-incremental-iteration", None, false, Refused),
    ("scan-incremental-max-iterations", None, true, Refused),
    // Flags of older versions.
    ("cpu-split", None, false, Refused),
    ("taskset", None, true, Refused),
    ("help", None, false, Done),
    ("version", Some('v'), false, Done),
];

/// The flags of a command line.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The supported flags, each with its last value.
    pub(super) given: BTreeMap<&'static str, String>,
    pub(super) warnings: Vec<String>,
}

/// Parses a command line, without the program's name.
///
/// # Errors
///
/// The unknown flag, missing value, or unsupported flag, in one sentence.
pub(super) fn gather(mut words: impl Iterator<Item = String>) -> Result<Gathered, FlagError> {
    let mut all = Gathered::default();
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--").filter(|rest| !rest.is_empty()) {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            all.take(by_name(name)?, value, &mut words)?;
        } else if let Some(short) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            all.take_short(short, &mut words)?;
        } else {
            return Err(FlagError::NotAFlag(word));
        }
    }
    Ok(all)
}

/// A flag by its long name, or by a unique prefix of it.
fn by_name(name: &str) -> Result<Flag, FlagError> {
    if let Some(flag) = FLAGS.iter().find(|flag| flag.0 == name) {
        return Ok(*flag);
    }
    let mut found = FLAGS.iter().filter(|flag| !name.is_empty() && flag.0.starts_with(name));
    match (found.next(), found.next()) {
        (Some(flag), None) => Ok(*flag),
        (None, _) => {
            let (word, known) = (format!("--{name}"), FLAGS.iter().map(|flag| flag.0));
            Err(match usage::nearest(name, known) {
                Some(near) => FlagError::Misspelt(word, near),
                None => FlagError::Unknown(word),
            })
        }
        (Some(one), Some(other)) => {
            Err(FlagError::Ambiguous { flag: name.to_owned(), one: one.0, other: other.0 })
        }
    }
}

impl Gathered {
    /// Letters after one dash: flags without a value, and one with a value, which may follow
    /// directly.
    fn take_short(
        &mut self,
        mut letters: &str,
        words: &mut impl Iterator<Item = String>,
    ) -> Result<(), FlagError> {
        while let Some(letter) = letters.chars().next() {
            letters = &letters[letter.len_utf8()..];
            let flag = FLAGS.iter().find(|flag| flag.1 == Some(letter));
            let flag = flag.ok_or_else(|| FlagError::Unknown(format!("-{letter}")))?;
            if flag.2 {
                let value = (!letters.is_empty()).then(|| letters.to_owned());
                return self.take(*flag, value, words);
            }
            self.take(*flag, None, words)?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        (name, _, takes_value, what): Flag,
        value: Option<String>,
        words: &mut impl Iterator<Item = String>,
    ) -> Result<(), FlagError> {
        let value = match (takes_value, value) {
            (true, Some(value)) => value,
            (true, None) => words.next().ok_or_else(|| FlagError::NoValue(format!("--{name}")))?,
            (false, None) => String::new(),
            (false, Some(value)) => return Err(FlagError::TakesNoValue { flag: name, value }),
        };
        match what {
            Done => drop(self.given.insert(name, value)),
            Warned => self.warnings.push(format!("--{name} changes nothing here")),
            Refused => {
                return Err(FlagError::Impossible { flag: name, why: refusals::why(name) });
            }
        }
        Ok(())
    }
}

/// All flags, by effect.
pub(super) fn help() -> String {
    let mut text = "\
memtier_benchmark's command line, done by holdall bench.

Usage: holdall bench memtier [FLAG]..    or a link named memtier_benchmark

Flags that do what they do there:
"
    .to_owned();
    for (wanted, head) in
        [(Done, ""), (Warned, "\nAccepted with a warning:\n"), (Refused, "\nRefused:\n")]
    {
        text.push_str(head);
        for (name, short, takes_value, what) in FLAGS {
            if what == wanted {
                let short = short.map(|letter| format!("-{letter}, ")).unwrap_or_default();
                let value = if takes_value { "=VALUE" } else { "" };
                let why = if what == Refused { refusals::why(name) } else { "" };
                let line = format!("  {short:4}--{name}{value}");
                let _ = writeln!(text, "{}", format!("{line:<44}{why}").trim_end());
            }
        }
    }
    text.push_str(
        "\nExamples:\n  holdall bench memtier -s 127.0.0.1 -p 11211 -P memcache_text --test-time=10 --json-out-file=m.json\n",
    );
    text
}
