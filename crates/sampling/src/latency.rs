//! Latencies of requests in the server, by command.

use crate::Histogram;

/// A kind of request, as latencies tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `incr`, `decr`, `ma` and their kin.
    Arithmetic,
    /// `delete`, `md`.
    Delete,
    /// `get`, `gets`, `gat`, `gats`, `mg`.
    Get,
    /// Whatever names no key.
    Other,
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`.
    Store,
    /// `touch`.
    Touch,
}

impl Command {
    /// Each with its name.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Get, "get"),
        (Self::Store, "set"),
        (Self::Delete, "delete"),
        (Self::Touch, "touch"),
        (Self::Arithmetic, "incr"),
        (Self::Other, "other"),
    ];
}

/// A histogram for each command. What is old fades: half of it in a minute.
#[derive(Debug, Default)]
pub struct Latencies {
    of: [Histogram; Command::ALL.len()],
}

impl Latencies {
    /// Memory, in bytes.
    pub const BYTES: usize = Command::ALL.len() * Histogram::BYTES;

    /// A request took so long; it stands for `weight` of them.
    pub fn add(&mut self, command: Command, nanos: u64, weight: f64) {
        self.of[command as usize].add(nanos, weight);
    }

    /// The times of a command, in nanoseconds.
    #[must_use]
    pub fn of(&self, command: Command) -> &Histogram {
        &self.of[command as usize]
    }

    /// Takes note that `secs` seconds have passed.
    pub fn fade(&mut self, secs: f64) {
        let factor = (-secs / HALF_LIFE_SECS).exp2();
        self.of.iter_mut().for_each(|histogram| histogram.scale(factor));
    }
}

const HALF_LIFE_SECS: f64 = 60.0;
