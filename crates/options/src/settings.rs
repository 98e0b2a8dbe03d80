//! Settings that a TOML file and environment variables may set, each under one name.
//!
//! They are the flags and `-o` options of `super::table` and `super::extended`: a flag's long name
//! with `_` for `-`, an option's own name. Two options `NAME` and `no_NAME` are one setting, true
//! or false. Flags without effect, or for one start only, are not settings.

use hostport::without_login;

use super::bad_value::BadValue;
use super::draft::Draft;
use super::extended::{EXTENDED, Extended, Value};
use super::table::{Flag, Meaning, Setter, flags};

/// One setting.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name in a file; in capitals after `HOLDALL_`, the name of its variable.
    pub key: String,
    /// The flag that sets it, as it is typed.
    pub flag: String,
    /// The values that it takes.
    pub kind: Kind,
    /// The default, as text; may be empty.
    pub default: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The part of a running server that a new value changes; `None` if it needs `--takeover`.
    pub live: Option<Live>,
    means: Means,
}

/// The parts of a running server that change when its settings are read again. The server handles
/// each of these in one `match`, so every setting marked as changing does change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// `-m`.
    MemoryLimit,
    /// `-c`.
    ConnLimit,
    /// `-o eviction`.
    Eviction,
    /// `-o no_sampling`.
    Sampling,
    /// `-o lease_interval` and `-o stale_seconds`.
    Leases,
    /// `--drain`.
    Drain,
    /// `-o slab_automove`.
    SlabAutomove,
    /// `-o slab_automove_ratio`.
    SlabAutomoveRatio,
    /// `-o transient_ttl`, which memcached calls `temporary_ttl`.
    TransientTtl,
    /// `-o lru_crawler`.
    LruCrawler,
    /// `-o lru_crawler_sleep`.
    LruCrawlerSleep,
    /// `-o lru_crawler_tocrawl`.
    LruCrawlerTocrawl,
    /// `-v`.
    Verbose,
    /// `--log-filter`.
    LogFilter,
}

/// The values of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Switch,
    /// 0 to 3: the number of repetitions of the flag.
    Count,
    /// A whole number.
    Number,
    /// A number that may have a fraction.
    Fraction,
    /// Bytes in the flag's own unit, or a text with k, m or g.
    Size,
    /// A text.
    Text,
    /// A text, or several.
    List,
}

/// The place at which a setting was given, or the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was not given.
    Default,
    /// In a line of a file.
    File {
        /// The file as it was named.
        file: String,
        /// Counted from 1.
        line: usize,
    },
    /// By this variable of the environment.
    Environment(String),
    /// On the command line.
    Flag,
}

/// A setting that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The setting's name.
    pub key: String,
    /// Its values: one, except for lists.
    pub values: Vec<String>,
    /// The place.
    pub origin: Origin,
}

/// The values of the setting `key` for people, with `separator` between them: a URL without its
/// login.
#[must_use]
pub fn shown(key: &str, values: &[String], separator: &str) -> String {
    let values = values.join(separator);
    if key == "otlp" { without_login(&values).into_owned() } else { values }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => out.write_str("default"),
            Self::File { file, line } => write!(out, "{file}:{line}"),
            Self::Environment(name) => out.write_str(name),
            Self::Flag => out.write_str("flag"),
        }
    }
}

/// The effect of a value on the draft.
#[derive(Clone, Copy, Debug)]
enum Means {
    /// The setter takes it.
    Value(Setter),
    /// True calls the first, false the second, if there is one.
    Switch(Option<Setter>, Option<Setter>),
}

/// Every setting, in the order of the help.
#[must_use]
pub fn settings() -> Vec<Setting> {
    flags().filter_map(of_flag).chain(EXTENDED.iter().filter_map(of_option)).collect()
}

/// The flag that a message of the options begins with, and the name of its setting.
#[must_use]
pub fn named_in(message: &str) -> Option<(&str, String)> {
    let (flag, _) = message.split_once(": ")?;
    let is_meant = |setting: &Setting| setting.is_called(flag) || setting.key == flag;
    settings().into_iter().find(is_meant).map(|setting| (flag, setting.key))
}

/// The name of the setting that a flag sets.
pub(crate) fn key_of_flag(flag: &Flag) -> String {
    flag.long.replace('-', "_")
}

/// The name of the setting that an `-o` option sets; true if the option turns it off.
pub(crate) fn key_of_option(name: &str) -> (&str, bool) {
    name.strip_prefix("no_").map_or((name, false), |key| (key, true))
}

/// The reason why a name of the command line is not a setting; `None` for an unknown name.
pub(crate) fn why_not(key: &str) -> Option<&'static str> {
    let of_flags = flags().find(|flag| key_of_flag(flag) == key).map(|flag| flag.meaning);
    let of_options = EXTENDED.iter().find(|option| option.name == key).map(|option| option.meaning);
    match of_flags.or(of_options)? {
        Meaning::NoEffect(reason) | Meaning::Refused(reason) => Some(reason),
        Meaning::Extended => Some("its options are settings of their own"),
        Meaning::Used(_) if key.starts_with("no_") => Some("say false without the no_"),
        Meaning::Used(_) | Meaning::Print(_) | Meaning::Config => Some("it is for one start only"),
    }
}

/// The known name that is nearest to an unknown one.
pub(crate) fn nearest(key: &str, known: &[Setting]) -> Option<String> {
    usage::nearest(key, known.iter().map(|setting| &*setting.key)).map(str::to_owned)
}

impl Setting {
    /// True for the flag of this setting, in its short or its long form.
    pub(crate) fn is_called(&self, flag: &str) -> bool {
        self.flag.split(", ").any(|name| name == flag)
    }

    /// Puts values into the draft, in place of the present ones.
    ///
    /// # Errors
    ///
    /// Returns the fault of one of them.
    pub(crate) fn apply(&self, draft: &mut Draft, values: &[String]) -> Result<(), BadValue> {
        if self.kind == Kind::List {
            draft.interfaces.clear();
        }
        values.iter().try_for_each(|value| self.apply_one(draft, value))
    }

    fn apply_one(&self, draft: &mut Draft, value: &str) -> Result<(), BadValue> {
        match self.means {
            Means::Value(set) if self.kind == Kind::Count => {
                draft.options.verbosity = 0;
                let times: u8 = super::number::number(value, 0..=u64::from(VERBOSITY_MAX))?;
                (0..times).try_for_each(|_| set(draft, ""))
            }
            Means::Value(set) => set(draft, value),
            Means::Switch(on, off) => match if truth(value)? { on } else { off } {
                Some(set) => set(draft, ""),
                None => Ok(()),
            },
        }
    }
}

fn truth(text: &str) -> Result<bool, BadValue> {
    match text {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(BadValue::not_one_of(text, "true and false")),
    }
}

fn of_flag(flag: &'static Flag) -> Option<Setting> {
    let Meaning::Used(set) = flag.meaning else { return None };
    if ONE_START_ONLY.contains(&flag.long) {
        return None;
    }
    let kind = match (flag.long, flag.argument) {
        ("verbose", _) => Kind::Count,
        ("listen", _) => Kind::List,
        (_, None) => Kind::Switch,
        (_, Some(argument)) => kind_of(argument, flag.default),
    };
    let means = match kind {
        Kind::Switch => Means::Switch(Some(set), None),
        _ => Means::Value(set),
    };
    let key = key_of_flag(flag);
    let short = flag.short.map(|short| format!("-{short}, ")).unwrap_or_default();
    Some(Setting {
        live: live(&key),
        key,
        flag: format!("{short}--{}", flag.long),
        kind,
        default: flag.default,
        help: flag.help,
        means,
    })
}

fn of_option(option: &'static Extended) -> Option<Setting> {
    let (Meaning::Used(set), (key, turns_off)) = (option.meaning, key_of_option(option.name))
    else {
        return None;
    };
    let used = |name: &str| {
        EXTENDED.iter().find(|other| other.name == name).and_then(|other| match other.meaning {
            Meaning::Used(set) => Some(set),
            _ => None,
        })
    };
    // The negative of another is a part of that one.
    if turns_off && used(key).is_some() {
        return None;
    }
    let (kind, means, default) = match (option.value, turns_off) {
        (Value::None, false) => {
            let off = used(&format!("no_{key}"));
            (Kind::Switch, Means::Switch(Some(set), off), option.default)
        }
        (_, true) => (Kind::Switch, Means::Switch(None, Some(set)), "on"),
        (Value::Required(what) | Value::Optional(what), false) => {
            (kind_of(what, option.default), Means::Value(set), option.default)
        }
    };
    Some(Setting {
        key: key.to_owned(),
        flag: format!("-o {}", option.name),
        kind,
        default,
        help: option.help,
        live: live(key),
        means,
    })
}

/// The kind of values that the name of an argument stands for.
fn kind_of(argument: &str, default: &str) -> Kind {
    match argument {
        "size" => Kind::Size,
        "num" if default.contains('.') && default.parse::<f64>().is_ok() => Kind::Fraction,
        "num" | "secs" | "usecs" | "bytes" | "KiB" => Kind::Number,
        _ => Kind::Text,
    }
}

/// Settings of one start, or of the service manager.
const ONE_START_ONLY: [&str; 2] = ["takeover", "daemon"];

/// The part of a running server that a setting changes; `None` if it is fixed at the start.
fn live(key: &str) -> Option<Live> {
    Some(match key {
        "memory_limit" => Live::MemoryLimit,
        "conn_limit" => Live::ConnLimit,
        "eviction" => Live::Eviction,
        "sampling" => Live::Sampling,
        "lease_interval" | "stale_seconds" => Live::Leases,
        "drain" => Live::Drain,
        "slab_automove" => Live::SlabAutomove,
        "slab_automove_ratio" => Live::SlabAutomoveRatio,
        "transient_ttl" | "temporary_ttl" => Live::TransientTtl,
        "lru_crawler" => Live::LruCrawler,
        "lru_crawler_sleep" => Live::LruCrawlerSleep,
        "lru_crawler_tocrawl" => Live::LruCrawlerTocrawl,
        "verbose" => Live::Verbose,
        "log_filter" => Live::LogFilter,
        _ => return None,
    })
}

/// The highest verbosity, `-vvv`.
const VERBOSITY_MAX: u8 = 3;
