//! Checks whether the observations of concurrent clients could have happened one command at a time.
//!
//! Each key is judged by itself: a key is linearizable when every command on it can be given one
//! moment between its call and its return such that the answers are those of a single memcached
//! doing them in that order. A cache may also forget: with [`Mode::Evicting`] an item may vanish at
//! any moment, but it may never come back.
//!
//! # Method
//!
//! Calls and returns are processed in the order of time. A *configuration* is a possible state of
//! the key together with the set of commands, called and not yet returned, that have already had
//! their moment. When a command returns, every configuration in which it has not had its moment is
//! extended by pending commands in every order until it has; configurations that cannot are
//! dropped. If none is left, there is no such order, and the history is refused. With eight
//! clients, at most eight commands are pending on a key, so the sets stay small however long the
//! history is.
//!
//! Source: "Testing for linearizability" (Gavin Lowe, 2017), just-in-time linearization; the model
//! of the commands is memcached's `doc/protocol.txt`.

mod model;
#[cfg(test)]
mod tests;

pub use model::{Op, Out, State, Val};

use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Write as _};

/// One command as seen by a client. Times are nanoseconds since any moment common to all clients.
#[derive(Debug, Clone)]
pub struct Event {
    /// Just before the first byte was sent.
    pub call: u64,
    /// Just after the last byte of the answer was read; for [`Out::Unknown`], when it has either
    /// happened or never will.
    pub ret: u64,
    /// The request.
    pub op: Op,
    /// The answer.
    pub out: Out,
}

/// The spontaneous changes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// None: a stored value stays until a command changes it.
    Strict,
    /// An item may vanish at any moment (another one needed the memory).
    Evicting,
    /// The same; and a read may show a cas unique of no item, if there was no memory to give the
    /// item one (decision 111).
    Starved,
    /// Items stay; a read may show a cas unique of no item, as above.
    Full,
}

/// The contents of an accepted history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Number of checked commands.
    pub ops: usize,
    /// The maximum number of configurations at one time: a measure of the history's freedom.
    pub widest: usize,
}

/// A history that no order of its commands explains.
#[derive(Clone, PartialEq, Eq)]
pub struct Violation {
    /// The commands around the one whose return has no explanation, which is marked.
    pub text: String,
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not linearizable:\n{}", self.text)
    }
}

/// Checks the commands of one key.
///
/// # Errors
///
/// The commands around the first return that no order explains.
pub fn check(events: &[Event], mode: Mode) -> Result<Summary, Violation> {
    unique_cas(events)?;
    let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(events.len() * 2);
    for (index, event) in events.iter().enumerate() {
        moments.push((event.call, false, index));
        moments.push((event.ret.max(event.call), true, index));
    }
    // At the same nanosecond, a call comes first, so that the two commands count as concurrent.
    moments.sort_unstable();

    let mut pending = Pending { slots: [None; 64] };
    let mut configs = vec![Config { state: State::default(), done: 0 }];
    let mut summary = Summary { ops: events.len(), widest: 1 };
    for (_, returns, index) in moments {
        if !returns {
            pending.call(index);
            continue;
        }
        let slot = pending.slot(index);
        configs = linearize(events, mode, &pending, &configs, slot);
        if configs.is_empty() {
            return Err(Violation { text: around(events, index) });
        }
        pending.leave(slot);
        summary.widest = summary.widest.max(configs.len());
    }
    Ok(summary)
}

/// Checks only the values of one key: each hit has a value that a command stored, which was called
/// before the hit returned, and a unique of its value. It does not support sums and concatenated
/// texts.
///
/// # Errors
///
/// The commands around the first hit of a value that no command had stored.
pub fn check_values(events: &[Event]) -> Result<(), Violation> {
    unique_cas(events)?;
    for (index, event) in events.iter().enumerate() {
        let Out::Hit { val: hit, .. } = event.out else { continue };
        let is_stored = events.iter().any(|other| {
            let stores = match other.op {
                Op::Add(val)
                | Op::Cas(val, _)
                | Op::LeaseSet(val, _)
                | Op::Replace(val)
                | Op::Set(val) => val == hit,
                _ => false,
            };
            stores && other.call <= event.ret
        });
        if !is_stored {
            return Err(Violation { text: around(events, index) });
        }
    }
    Ok(())
}

/// A cas unique names one version of a key: seen with two values, or for a stale item and a fresh
/// one, it names two.
fn unique_cas(events: &[Event]) -> Result<(), Violation> {
    let mut versions: BTreeMap<u64, Vec<(Val, Option<bool>, usize)>> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        // A plain get does not report stale items.
        let (val, cas, is_stale) = match event.out {
            Out::Hit { val, cas } => (val, cas, (event.op == Op::MetaGet).then_some(false)),
            Out::Stale { val, cas, .. } => (val, cas, Some(true)),
            _ => continue,
        };
        let Some(cas) = cas else { continue };
        let seen = versions.entry(cas).or_default();
        let differs = |&&(other, other_stale, _): &&(Val, Option<bool>, usize)| {
            other != val || other_stale.is_some_and(|stale| is_stale == Some(!stale))
        };
        if let Some((_, _, at)) = seen.iter().find(differs) {
            let (first, second) = (around(events, *at), around(events, index));
            return Err(Violation { text: format!("cas {cas} of two:\n{first}\n{second}") });
        }
        if !seen.iter().any(|(_, stale, _)| *stale == is_stale) {
            seen.push((val, is_stale, index));
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Config {
    state: State,
    /// A bit for each slot whose command has had its moment and has not returned.
    done: u64,
}

/// The commands called and not yet returned, each in one of 64 slots.
#[derive(Debug)]
struct Pending {
    slots: [Option<usize>; 64],
}

impl Pending {
    fn call(&mut self, index: usize) {
        let free = self.slots.iter_mut().find(|slot| slot.is_none());
        *free.expect("at most 64 commands pending on a key") = Some(index);
    }

    fn slot(&self, index: usize) -> usize {
        self.slots.iter().position(|&slot| slot == Some(index)).expect("a return follows its call")
    }

    const fn leave(&mut self, slot: usize) {
        self.slots[slot] = None;
    }

    fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.slots.iter().enumerate().filter_map(|(slot, index)| index.map(|index| (slot, index)))
    }
}

/// The configurations after the return of the command in `slot`, without its bit.
fn linearize(
    events: &[Event],
    mode: Mode,
    pending: &Pending,
    configs: &[Config],
    slot: usize,
) -> Vec<Config> {
    let bit = 1_u64 << slot;
    let returning = pending.iter().find(|&(at, _)| at == slot).map(|(_, index)| &events[index].out);
    let may_never_happen = matches!(returning, Some(Out::Unknown));
    let mut seen: HashSet<Config> = configs.iter().copied().collect();
    let mut left: HashSet<Config> = HashSet::new();
    let mut work = configs.to_vec();
    while let Some(config) = work.pop() {
        if config.done & bit != 0 {
            left.insert(Config { done: config.done & !bit, ..config });
            continue;
        }
        if may_never_happen {
            left.insert(config);
        }
        for (other, index) in pending.iter() {
            if config.done & (1 << other) != 0 {
                continue;
            }
            let event = &events[index];
            for state in config.state.after(&event.op, &event.out, mode).into_iter().flatten() {
                let next = Config { state, done: config.done | 1 << other };
                if seen.insert(next) {
                    work.push(next);
                }
            }
        }
    }
    left.into_iter().collect()
}

/// The commands in progress near the return of `index`, in the order of their calls.
fn around(events: &[Event], index: usize) -> String {
    let bad = &events[index];
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_unstable_by_key(|&at| (events[at].call, at));
    let position = order.iter().position(|&at| at == index).unwrap_or(0);
    let mut text = String::new();
    for &at in &order[position.saturating_sub(14)..(position + 5).min(order.len())] {
        let event = &events[at];
        let mark = if at == index { "=>" } else { "  " };
        let start = i128::from(event.call) - i128::from(bad.call);
        let end = i128::from(event.ret) - i128::from(bad.call);
        let _ = writeln!(
            text,
            "{mark} [{start:>10} .. {end:>10} ns] {:?} -> {:?}",
            event.op, event.out
        );
    }
    text
}
