//! Owners of keys. Each uses only its own keys, in one protocol and by one path, so that it knows
//! the possible values of each key; `testkit::history` judges the recorded history.
//!
//! A key lives for some commands under one name. A life ends early when a reply is lost, because
//! then it is in doubt what the server did and will still do. Lives in doubt are read again when
//! all has settled: no key may have a value that no order of the commands explains, and no key
//! whose delete the proxy kept may have a value.

use std::fmt;
use std::mem;
use std::time::{Duration, Instant};

use testkit::history::{self, Event, Mode, Op, Out, Val};
use testkit::wire::{End, show};
use testkit::{Rng, Wire};

use super::record::Record;
use super::tier::{Path, Tier};
use crate::dialect::{self, Dialect, NoAnswer, Request};
use crate::mix::{Mix, Shape};

/// Keys of one owner.
const KEYS: usize = 16;

/// Commands per life.
const LIFE: usize = 40;

/// The end time of a command that has not ended, or whose end is unknown.
const OPEN: u64 = u64::MAX;

/// Stores per turn of a filler.
const FILLS: u64 = 16;

/// Pauses between turns, because the servers use the same processors.
const PAUSE: Duration = Duration::from_millis(6);
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// One key under one name.
#[derive(Debug, Default)]
struct Life {
    name: String,
    events: Vec<Event>,
    /// The proxy replied `NOT_FOUND` to its delete, and may have kept the delete.
    is_promised: bool,
}

/// A client with its own keys.
#[derive(Debug)]
pub(super) struct Owner<'a> {
    tier: &'a Tier,
    path: Path,
    number: usize,
    mix: Mix,
    lives: Vec<Life>,
    /// Lives that ended in doubt.
    doubtful: Vec<Life>,
    names: u64,
    wire: Option<Wire>,
    /// The server's restarts that this owner has seen.
    restarts: u64,
    epoch: Instant,
}

/// A request in flight.
#[derive(Debug)]
enum Sent {
    One(Request),
    /// `gets` of several keys.
    Many(Vec<usize>),
    /// A set without a reply.
    Quiet(Request),
}

impl<'a> Owner<'a> {
    /// Three owners for each path, one per protocol.
    pub(super) fn all(tier: &'a Tier, seed: u64) -> Vec<Self> {
        let paths = tier.paths().into_iter().flat_map(|path| [path.clone(), path.clone(), path]);
        paths.enumerate().map(|(number, path)| Self::new(tier, path, number, seed)).collect()
    }

    fn new(tier: &'a Tier, path: Path, number: usize, seed: u64) -> Self {
        let rng = Rng::new(seed ^ (number as u64 + 1) << 40);
        let shape = Shape { keys: KEYS, pipelined: 6, padding: 0, leases: true };
        let mut owner = Self {
            tier,
            path,
            number,
            mix: Mix::new(number, rng, shape),
            lives: Vec::new(),
            doubtful: Vec::new(),
            names: 0,
            wire: None,
            restarts: 0,
            epoch: Instant::now(),
        };
        owner.lives = (0..KEYS).map(|_| owner.born()).collect();
        owner
    }

    pub(super) fn run(mut self, record: &Record) {
        let mut settled = 0;
        while !record.is_over() {
            if record.settlements() > settled {
                settled += 1;
                self.settle(record);
                record.has_settled();
            }
            let is_good = self.turn(record);
            record.sleep(if is_good { PAUSE } else { PAUSE_AFTER_ERROR });
        }
    }

    fn born(&mut self) -> Life {
        self.names += 1;
        let name = format!("{}{}.{}", self.path.prefix, self.number, self.names);
        Life { name, ..Life::default() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).expect("less than 584 years")
    }

    /// Sends some requests and reads their replies. Returns false when one of them failed.
    fn turn(&mut self, record: &Record) -> bool {
        let (since, restarts) = (Instant::now(), self.tier.restarts(self.path.server));
        if restarts != self.restarts {
            // Earlier versions and tokens are invalid now.
            self.restarts = restarts;
            (0..KEYS).for_each(|key| self.doubt(key));
        }
        let mut wire = match self.wire.take() {
            Some(wire) => wire,
            None => match Wire::try_connect(self.path.addr) {
                Ok(wire) => wire,
                Err(error) => return self.failed(record, since, &error.to_string()),
            },
        };
        let sent = self.requests();
        let call = self.now();
        let result = self.exchange(&mut wire, &sent, call);
        if self.tier.restarts(self.path.server) != restarts {
            self.mark_unknown(call);
        }
        let is_held = result.is_err() || record.was_held(&self.path.parts, since);
        sent.iter().for_each(|sent| self.quiet_ended(sent, call, is_held));
        match result {
            Ok(()) => {
                self.wire = Some(wire);
                record.count(self.kind(), sent.len() as u64);
                self.judge_old(record);
                true
            }
            Err(NoAnswer::Wrong(what)) => {
                record.violated(&format!("{self}: {what}, of {sent:?}"));
                false
            }
            Err(error) => {
                if matches!(error, NoAnswer::Refused(_)) {
                    self.wire = Some(wire);
                }
                self.failed(record, since, &error.to_string())
            }
        }
    }

    fn failed(&self, record: &Record, since: Instant, what: &str) -> bool {
        record.failed(&self.path.parts, since, &format!("{self}: {what}"));
        false
    }

    fn exchange(&mut self, wire: &mut Wire, sent: &[Sent], call: u64) -> Result<(), NoAnswer> {
        let mut bytes = Vec::new();
        sent.iter().for_each(|sent| self.encode(sent, &mut bytes));
        let mut result = wire.try_send(&bytes).map_err(|_| NoAnswer::Lost(End::Reset));
        for sent in sent {
            let is_lost = matches!(result, Err(NoAnswer::Lost(_) | NoAnswer::Wrong(_)));
            let answer = if is_lost { result.clone() } else { self.read(wire, sent, call) };
            if answer.is_err() {
                if !matches!(sent, Sent::Quiet(_)) {
                    self.unanswered(sent, call);
                }
                result = answer;
            }
        }
        if matches!(result, Ok(()) | Err(NoAnswer::Refused(_))) {
            let surplus = wire.read_for(Duration::ZERO);
            if !surplus.is_empty() {
                return Err(NoAnswer::Wrong(format!("a reply too many: {}", show(&surplus))));
            }
        }
        result
    }

    /// The next requests, each for other keys. Multigets, and sets without a reply, which precede
    /// others with one, are in classic text.
    fn requests(&mut self) -> Vec<Sent> {
        let rng = &mut self.mix.rng;
        self.mix.shape.padding = 1 << if rng.one_in(32) { 18 } else { rng.below(14) };
        let batch = self.mix.batch();
        let next = batch.last().map_or(0, |request| request.key + 1);
        let mut free: Vec<usize> =
            (next..next + KEYS - batch.len()).map(|key| key % KEYS).collect();
        let mut sent: Vec<Sent> = batch.into_iter().map(Sent::One).collect();
        if self.mix.dialect != Dialect::Classic {
            return sent;
        }
        let quiet = free.pop().filter(|key| key % 4 != 3);
        if let Some(key) = quiet.filter(|_| self.mix.rng.one_in(4)) {
            let data = self.mix.text();
            sent.insert(0, Sent::Quiet(Request { key, op: Op::Set(Val::of(&data)), data }));
        }
        if self.mix.rng.one_in(3) {
            free.truncate(1 + self.mix.rng.below(free.len()));
            sent.push(Sent::Many(free));
        }
        sent
    }

    fn encode(&self, sent: &Sent, bytes: &mut Vec<u8>) {
        let name = |key: usize| self.lives[key].name.as_str();
        match sent {
            Sent::One(request) => self.mix.dialect.encode(name(request.key), request, bytes),
            Sent::Many(keys) => {
                let names: Vec<&str> = keys.iter().map(|&key| name(key)).collect();
                bytes.extend_from_slice(format!("gets {}\r\n", names.join(" ")).as_bytes());
            }
            Sent::Quiet(Request { key, data, .. }) => {
                let head = format!("set {} 0 0 {} noreply\r\n", name(*key), data.len());
                bytes.extend_from_slice(&[head.as_bytes(), data, b"\r\n"].concat());
            }
        }
    }

    fn read(&mut self, wire: &mut Wire, sent: &Sent, call: u64) -> Result<(), NoAnswer> {
        match sent {
            Sent::One(Request { key, op, .. }) => {
                let out = self.mix.dialect.try_read(*op, wire)?;
                self.answered(*key, *op, out, call);
            }
            Sent::Many(keys) => self.read_many(wire, keys, call)?,
            Sent::Quiet(_) => {}
        }
        Ok(())
    }

    /// Values arrive in the order of their keys.
    fn read_many(&mut self, wire: &mut Wire, keys: &[usize], call: u64) -> Result<(), NoAnswer> {
        let mut asked = keys.iter();
        loop {
            let line = dialect::line(wire)?;
            let words: Vec<&str> = line.split(' ').collect();
            let (name, out) = match *words {
                ["END"] => (None, Out::Miss),
                ["VALUE", name, _, len, unique] => {
                    let val = dialect::value(len, wire)?;
                    (Some(name), Out::Hit { val, cas: unique.parse().ok() })
                }
                ["SERVER_ERROR", ..] => return Err(NoAnswer::Refused(line)),
                _ => return Err(NoAnswer::Wrong(line)),
            };
            let mut is_found = false;
            for &key in asked.by_ref() {
                is_found = name == Some(self.lives[key].name.as_str());
                self.answered(key, Op::Get, if is_found { out } else { Out::Miss }, call);
                if is_found {
                    break;
                }
            }
            match name {
                None => return Ok(()),
                Some(_) if is_found => {}
                Some(name) => return Err(NoAnswer::Wrong(format!("a value of {name}"))),
            }
        }
    }

    fn answered(&mut self, key: usize, op: Op, out: Out, call: u64) {
        let ret = self.now();
        self.mix.saw(key, out);
        match (op, out) {
            // Other clients flush and evict, which voids tokens; a refused fill changes nothing.
            (Op::LeaseSet(..), Out::NotStored) => return,
            (Op::Delete, Out::NotFound) if self.path.is_proxied() => {
                self.lives[key].is_promised = true;
                return self.doubt(key);
            }
            _ => {}
        }
        self.lives[key].events.push(Event { call, ret, op, out });
    }

    /// Handles a request whose reply will never arrive: the key gets a new name.
    fn unanswered(&mut self, sent: &Sent, call: u64) {
        let (Sent::One(Request { key, op, .. }) | Sent::Quiet(Request { key, op, .. })) = sent
        else {
            return;
        };
        if !matches!(op, Op::Get | Op::LeaseGet) {
            let event = Event { call, ret: OPEN, op: *op, out: Out::Unknown };
            self.lives[*key].events.push(event);
        }
        self.doubt(*key);
    }

    /// A request without a reply has ended when later ones have. It may have failed silently. While
    /// a trouble holds its path it may still be executed.
    fn quiet_ended(&mut self, sent: &Sent, call: u64, is_held: bool) {
        let Sent::Quiet(Request { key, op, .. }) = sent else { return };
        if is_held {
            return self.unanswered(sent, call);
        }
        let event = Event { call, ret: self.now(), op: *op, out: Out::Unknown };
        self.lives[*key].events.push(event);
    }

    /// Replies since `call` came from a killed server or from its successor.
    fn mark_unknown(&mut self, call: u64) {
        let lives = self.lives.iter_mut().chain(&mut self.doubtful);
        for event in lives.flat_map(|life| &mut life.events).filter(|event| event.call >= call) {
            (event.out, event.ret) = (Out::Unknown, OPEN);
        }
    }

    fn doubt(&mut self, key: usize) {
        self.mix.forget(key);
        let next = self.born();
        let life = mem::replace(&mut self.lives[key], next);
        if !life.events.is_empty() {
            self.doubtful.push(life);
        }
    }

    /// Judges the lives that are long enough.
    fn judge_old(&mut self, record: &Record) {
        for key in 0..KEYS {
            if self.lives[key].events.len() >= LIFE {
                self.mix.forget(key);
                let next = self.born();
                let mut life = mem::replace(&mut self.lives[key], next);
                let now = self.now();
                self.judge(&mut life, now, record);
            }
        }
    }

    /// Reads the lives in doubt again. All requests in flight have arrived.
    fn settle(&mut self, record: &Record) {
        let mut wire = Wire::connect(self.path.addr);
        for mut life in mem::take(&mut self.doubtful) {
            let call = self.now();
            let get = Request { key: 0, op: Op::Get, data: Vec::new() };
            let mut bytes = Vec::new();
            self.mix.dialect.encode(&life.name, &get, &mut bytes);
            wire.send(&bytes);
            let out = match self.mix.dialect.read(Op::Get, &mut wire) {
                // A restarted server may give a version again.
                Out::Hit { val, .. } => Out::Hit { val, cas: None },
                out => out,
            };
            if life.is_promised && out != Out::Miss {
                let Life { name, events, .. } = &life;
                record.violated(&format!(
                    "{self}: {name}: an acknowledged delete is lost: {out:?} after {events:?}"
                ));
            }
            life.events
                .iter_mut()
                .filter(|event| event.ret == OPEN)
                .for_each(|event| event.ret = call);
            life.events.push(Event { call, ret: self.now(), op: Op::Get, out });
            self.judge(&mut life, call, record);
            record.count("looks at keys in doubt", 1);
        }
    }

    /// Judges a life. Open commands have ended by `now`.
    fn judge(&self, life: &mut Life, now: u64, record: &Record) {
        for event in life.events.iter_mut().filter(|event| event.ret == OPEN) {
            event.ret = now;
        }
        if let Err(violation) = history::check(&life.events, Mode::Evicting) {
            record.violated(&format!("{self}: {}: {violation:?}", life.name));
        }
    }

    const fn kind(&self) -> &'static str {
        match (self.mix.dialect, self.path.is_proxied()) {
            (Dialect::Binary, false) => "binary",
            (Dialect::Classic, false) => "text",
            (Dialect::Meta, false) => "meta",
            (Dialect::Binary, true) => "binary through the proxy",
            (Dialect::Classic, true) => "text through the proxy",
            (Dialect::Meta, true) => "meta through the proxy",
        }
    }
}

impl fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "owner {}, {} to server {}", self.number, self.kind(), self.path.server)
    }
}

/// Stores ever new keys of all sizes by this path, so that the server is full and evicts. It must
/// not refuse any.
pub(super) fn fill(path: &Path, record: &Record, seed: u64) {
    let (mut rng, mut wire, mut number) = (Rng::new(seed), None, 0);
    while !record.is_over() {
        record.sleep(Duration::from_millis(50));
        let (since, mut bytes) = (Instant::now(), Vec::new());
        for _ in 0..FILLS {
            let most = 1 << rng.below(17);
            let len = rng.below(most);
            number += 1;
            let head = format!("set {}fill{number} 0 0 {len} noreply\r\n", path.prefix);
            bytes.extend_from_slice(&[head.as_bytes(), &vec![b'f'; len], b"\r\n"].concat());
        }
        bytes.extend_from_slice(b"mn\r\n");
        match fence(&mut wire, path, &bytes) {
            Ok(line) if line == "MN" => record.count("fills", FILLS),
            Ok(line) => record.failed(&path.parts, since, &format!("a fill is refused: {line}")),
            Err(error) => record.failed(&path.parts, since, &format!("fill: {error}")),
        }
    }
}

/// Sends requests without replies and one with a reply. Returns the first line that arrives.
fn fence(wire: &mut Option<Wire>, path: &Path, bytes: &[u8]) -> Result<String, NoAnswer> {
    let lost = |_| NoAnswer::Lost(End::Reset);
    let mut open = match wire.take() {
        Some(open) => open,
        None => Wire::try_connect(path.addr).map_err(lost)?,
    };
    open.try_send(bytes).map_err(lost)?;
    let line = dialect::line(&mut open)?;
    if line == "MN" {
        *wire = Some(open);
    }
    Ok(line)
}
