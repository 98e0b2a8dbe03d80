//! Namespaces and users: the limits that an operator sets for the keys of one prefix, or one user,
//! and the numbers under which they are counted.
//!
//! ```text
//!     Rule (a line of the operator) -> Registry, which numbers its subject for good
//!         -> Rules, replaced as a whole -> each worker's View of them, renewed at a turn's start
//! ```
//!
//! A subject keeps its number, so a worker counts by number and nothing is lost when rules change.
//! Until there are rules, a request costs one predictable branch in each place that counts or
//! limits.
//!
//! Relaxed is enough: a worker that sees a new generation late follows the old rules for one more
//! turn, and a token orders nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use store::{NAMESPACES_MAX, Namespace, Namespaces};

/// The keys of one prefix, or a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The keys with this prefix, unless a longer prefix has a rule; empty for every key.
    Prefix(Box<[u8]>),
    /// The user of this name; empty for all users without a rule, together.
    User(Box<[u8]>),
}

/// The limits of a subject; `None` is no limit. A user has only a limit of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Total header, key and value of all items, in bytes.
    pub bytes_max: Option<u64>,
    /// Lifetime in seconds of an item stored without a time of expiry.
    pub default_ttl_secs: Option<u32>,
    /// Maximum lifetime in seconds of an item after it was stored or touched.
    pub ttl_secs_max: Option<u32>,
    /// Keys named by requests per second, at most [`RATE_MAX`].
    pub requests_per_second_max: Option<u32>,
}

/// Maximum limit of requests per second: limits are kept within one percent.
pub const RATE_MAX: u32 = 100_000_000;

/// A subject and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The subject.
    pub subject: Subject,
    /// Its limits.
    pub limits: Limits,
}

/// The exhausted limit of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateReached {
    /// The namespace of the key.
    Namespace,
    /// The user's.
    User,
}

/// The reason why rules are not applied. The previous ones stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulesError {
    /// There have been more prefixes and users since the start than can be counted.
    TooMany,
    /// The store has no room for one more thread to count its items.
    NoThread,
}

/// The limits of one number.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) number: u16,
    pub(crate) rule: Rule,
    tokens: Arc<Tokens>,
}

/// The rules in force.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    namespaces: Arc<Namespaces>,
    /// In the operator's order.
    pub(crate) entries: Vec<Entry>,
    /// For each number, the index of its entry.
    places: Vec<Option<usize>>,
    /// Numbers of users.
    users: BTreeMap<Box<[u8]>, u16>,
}

impl Rules {
    /// The entry of the namespace of `key`.
    pub(crate) fn of_key(&self, key: &[u8]) -> Option<&Entry> {
        self.entry(self.namespaces.of(key)?.number)
    }

    /// The entry of a user.
    pub(crate) fn of_user(&self, name: &[u8]) -> Option<&Entry> {
        let number = self.users.get(name).or_else(|| self.users.get(&b""[..]))?;
        self.entry(*number)
    }

    fn entry(&self, number: u16) -> Option<&Entry> {
        self.entries.get((*self.places.get(usize::from(number))?)?)
    }
}

impl Entry {
    /// Takes a token for one request; `false`: there is none now.
    pub(crate) fn takes(&self, now_ms: u64) -> bool {
        self.rule.limits.requests_per_second_max.is_none_or(|rate| self.tokens.take(now_ms, rate))
    }
}

impl Limits {
    /// The deadline that replaces `deadline` (0: never). `is_stored`: it is that of a new value.
    pub(crate) fn bound(&self, deadline: u32, now_secs: u32, is_stored: bool) -> u32 {
        let after = |secs: u32| now_secs.saturating_add(secs);
        let deadline = match self.default_ttl_secs {
            Some(secs) if deadline == 0 && is_stored => after(secs),
            _ => deadline,
        };
        match self.ttl_secs_max {
            Some(secs) if deadline == 0 || deadline > after(secs) => after(secs),
            _ => deadline,
        }
    }
}

/// A token bucket that all workers share: it holds the tokens of one second, and is written when a
/// token is taken.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Tokens {
    /// When the bucket will be full, in units since the server's start.
    full_at: AtomicU64,
}

/// Units of time in a second: enough to keep the time of one token of [`RATE_MAX`] within one
/// percent, and few enough that 36 years fit into 64 bits.
const UNITS: u64 = 16_000_000_000;

impl Tokens {
    fn take(&self, now_ms: u64, rate: u32) -> bool {
        let now = now_ms.saturating_mul(UNITS / 1000);
        let cost = UNITS / u64::from(rate.clamp(1, RATE_MAX));
        let after = |full_at: u64| {
            let next = full_at.max(now).saturating_add(cost);
            (next - now <= UNITS).then_some(next)
        };
        self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).is_ok()
    }
}

/// Every subject that ever existed, and the present rules.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Changes with the rules; 0 while there are none.
    generation: AtomicU64,
    /// Held while rules are replaced, which lasts as long as items are counted.
    known: Mutex<Known>,
    rules: Mutex<Arc<Rules>>,
}

/// Numbers and tokens of all subjects that were ever named.
#[derive(Debug, Default)]
struct Known(BTreeMap<Subject, (u16, Arc<Tokens>)>);

impl Registry {
    /// Replaces the rules. `count` receives the table by which items will be counted, before the
    /// new rules apply.
    pub(crate) fn replace(
        &self,
        rules: Vec<Rule>,
        count: impl FnOnce(&Arc<Namespaces>) -> Result<(), RulesError>,
    ) -> Result<(), RulesError> {
        let mut known = self.known.lock();
        // Before any of them has a number: rules that are not applied use none up.
        if !known.has_room_for(&rules) {
            return Err(RulesError::TooMany);
        }
        let mut next = Rules::default();
        let mut namespaces = Vec::new();
        for rule in rules {
            let (number, tokens) = known.number(&rule.subject).ok_or(RulesError::TooMany)?;
            match &rule.subject {
                Subject::Prefix(prefix) => namespaces.push(Namespace {
                    prefix: prefix.clone(),
                    number,
                    bytes_max: rule.limits.bytes_max,
                }),
                Subject::User(name) => drop(next.users.insert(name.clone(), number)),
            }
            let place = usize::from(number);
            next.places.resize(next.places.len().max(place + 1), None);
            next.places[place] = Some(next.entries.len());
            next.entries.push(Entry { number, rule, tokens });
        }
        next.namespaces = Arc::new(Namespaces::new(namespaces));
        count(&next.namespaces)?;
        *self.rules.lock() = Arc::new(next);
        self.generation.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The rules in force; `None` before the first rules.
    pub(crate) fn rules(&self) -> Option<Arc<Rules>> {
        let is_on = self.generation.load(Ordering::Relaxed) > 0;
        is_on.then(|| Arc::clone(&self.rules.lock()))
    }
}

impl Known {
    /// `true` if there are numbers for all new subjects of `rules`.
    fn has_room_for(&self, rules: &[Rule]) -> bool {
        let new = rules.iter().filter(|rule| !self.0.contains_key(&rule.subject)).count();
        self.0.len() + new <= NAMESPACES_MAX
    }

    /// The number of a subject and its tokens; a new subject gets new ones.
    fn number(&mut self, subject: &Subject) -> Option<(u16, Arc<Tokens>)> {
        if let Some(known) = self.0.get(subject) {
            return Some(known.clone());
        }
        let number = u16::try_from(self.0.len()).ok();
        let number = number.filter(|number| usize::from(*number) < NAMESPACES_MAX)?;
        let new = (number, Arc::default());
        self.0.insert(subject.clone(), new.clone());
        Some(new)
    }
}

/// A worker's view of the rules.
#[derive(Debug, Default)]
pub(crate) struct View {
    generation: Cell<u64>,
    pub(crate) rules: RefCell<Arc<Rules>>,
    /// Milliseconds since the server's start.
    pub(crate) now_ms: Cell<u64>,
}

impl View {
    /// `true` once rules exist.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.generation.get() != 0
    }

    /// Takes new rules.
    #[inline]
    pub(crate) fn renew(&self, registry: &Registry) {
        let generation = registry.generation.load(Ordering::Relaxed);
        if generation != self.generation.get()
            && let Some(rules) = registry.rules()
        {
            self.rules.replace(rules);
            self.generation.set(generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(tokens: &Tokens, now_ms: u64, rate: u32) -> usize {
        (0..10_000).filter(|_| tokens.take(now_ms, rate)).count()
    }

    #[test]
    fn a_second_grants_at_most_its_rate() {
        for rate in [1, 3, 7, 1000] {
            let (tokens, second) = (Tokens::default(), rate as usize);
            assert_eq!(taken(&tokens, 0, rate), second, "at once");
            assert_eq!(taken(&tokens, 0, rate), 0);
            assert_eq!(taken(&tokens, 5000, rate), second, "no more is saved up than a second's");
            let later = (1..=100).map(|step| taken(&tokens, 5000 + 100 * step, rate));
            assert_eq!(later.sum::<usize>(), 10 * second, "ten seconds");
        }
    }

    #[test]
    fn high_rates_are_kept_within_a_percent() {
        for rate in [RATE_MAX, 6_700_000] {
            let tokens = Tokens::default();
            let taken = (0..).take_while(|_| tokens.take(0, rate)).count() as f64;
            let ratio = taken / f64::from(rate);
            assert!((1.0..1.01).contains(&ratio), "{rate}: {ratio}");
        }
    }

    #[test]
    fn a_clock_set_back_grants_no_tokens() {
        let tokens = Tokens::default();
        assert_eq!(taken(&tokens, 5000, 10), 10);
        assert_eq!(taken(&tokens, 4000, 10), 0);
    }

    #[test]
    fn lifetimes_are_bounded() {
        let limits = |default_ttl_secs, ttl_secs_max| Limits {
            default_ttl_secs,
            ttl_secs_max,
            ..Limits::default()
        };
        for (default, most, deadline, stored, touched) in [
            (None, None, 0, 0, 0),
            (None, None, 900, 900, 900),
            (Some(30), None, 0, 130, 0),
            (Some(30), None, 900, 900, 900),
            (None, Some(60), 0, 160, 160),
            (None, Some(60), 160, 160, 160),
            (None, Some(60), 161, 160, 160),
            (Some(30), Some(60), 0, 130, 160),
            (Some(30), Some(60), 120, 120, 120),
            (None, Some(u32::MAX), 0, u32::MAX, u32::MAX),
            // Dead already.
            (Some(30), Some(60), 1, 1, 1),
        ] {
            let limits = limits(default, most);
            let got = [true, false].map(|is_stored| limits.bound(deadline, 100, is_stored));
            assert_eq!(got, [stored, touched], "{limits:?}, {deadline}");
        }
    }

    fn rules(names: &[&str]) -> Vec<Rule> {
        let subject = |name: &&str| Subject::Prefix(name.as_bytes().into());
        names
            .iter()
            .map(|name| Rule { subject: subject(name), limits: Limits::default() })
            .collect()
    }

    #[test]
    fn a_number_stays_with_its_subject() {
        let registry = Registry::default();
        assert!(registry.rules().is_none());
        let numbers = |names: &[&str]| -> Vec<u16> {
            registry.replace(rules(names), |_| Ok(())).unwrap();
            registry.rules().unwrap().entries.iter().map(|entry| entry.number).collect()
        };
        assert_eq!(numbers(&["a", "b"]), [0, 1]);
        assert_eq!(numbers(&["c", "b"]), [2, 1]);
        assert_eq!(numbers(&["b", "a", "d"]), [1, 0, 3]);
        let many: Vec<String> = (0..NAMESPACES_MAX).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(registry.replace(rules(&many), |_| Ok(())), Err(RulesError::TooMany));
        assert_eq!(registry.rules().unwrap().entries.len(), 3, "those of before");
        assert_eq!(numbers(&["e"]), [4], "what was refused has used no number up");
    }
}
