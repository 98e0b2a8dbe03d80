//! Requests made from arbitrary bytes, sent to Debian's memcached as a proxy's worker sends them.
//! The server has executed the answered requests and nothing else; the connection survives; a key
//! that no request names keeps its value.

use std::cell::RefCell;
use std::collections::BTreeMap;

use testkit::{Server, Wire};
use upstream::{Command, Outcome, OwnedReply, Request};

use super::common::{Rig, patient};

/// Pieces of keys: letters, and bytes that end words, lines and strings in some parser.
const KEYS: [&[u8]; 13] = [
    b"k",
    b"j",
    b"other",
    b"noreply",
    b"\0",
    b"\r\n",
    b" ",
    b"\t",
    b"\x80",
    b"\x7f",
    b"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
    b"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
    b"jjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjj",
];

/// Pieces of values, mostly commands.
const VALUES: [&[u8]; 12] = [
    b"",
    b"1",
    b"x",
    b"\r\n",
    b"flush_all",
    b"set canary 0 0 3\r\nBAD",
    b"delete canary",
    b"touch canary -1",
    b"md canary",
    b"ms canary 3\r\nBAD",
    b"incr k 1",
    b"get canary",
];

/// Words of meta commands, known and unknown.
const WORDS: [&str; 44] = [
    "b",
    "c",
    "f",
    "h",
    "k",
    "l",
    "s",
    "t",
    "u",
    "v",
    "x",
    "q",
    "I",
    "L",
    "P",
    "A",
    "U",
    "G",
    "G7",
    "H1",
    "C1",
    "C18446744073709551615",
    "D2",
    "E5",
    "F7",
    "F4294967296",
    "J3",
    "N30",
    "N-1",
    "R30",
    "T0",
    "T-1",
    "T99999999999",
    "T99999999999999999999",
    "MS",
    "MA",
    "ME",
    "MX",
    "MAPPEND",
    "Oabc",
    "Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "O\0",
    "k\r\nflush_all",
    "a",
];

/// Times that are signed, long, or too long for some parser.
const TIMES: [i64; 8] = [0, 1, -1, 100, 1 << 31, -(1 << 40), i64::MAX, i64::MIN];

/// Maximum number of requests in one turn.
const REQUESTS_MAX: usize = 48;

/// Inputs after which the server is emptied, so that no value grows without limit.
const ROUNDS: usize = 500;

/// A server, a worker, and a separate connection.
struct Stage {
    server: Server,
    rig: Rig,
    direct: Wire,
    round: usize,
}

thread_local! {
    static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

/// One request, owned.
#[derive(Debug)]
struct Made {
    op: Command,
    key: Vec<u8>,
    value: Vec<u8>,
    words: Vec<u8>,
    exptime: i64,
    number: u64,
    base64: bool,
}

impl Made {
    fn get(&self) -> Request<'_> {
        Request {
            value: &self.value,
            words: &self.words,
            exptime: self.exptime,
            number: self.number,
            base64: self.base64,
            ..Request::new(self.op, &self.key)
        }
    }

    fn has(&self, letter: u8) -> bool {
        self.op.is_meta()
            && self.words.split(|byte| *byte == b' ').any(|word| word.first() == Some(&letter))
    }
}

/// The bytes that decide the choices.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.next() % from.len()]
    }

    fn pieces(&mut self, from: &[&[u8]], max: usize) -> Vec<u8> {
        let count = self.next() % (max + 1);
        (0..count).flat_map(|_| self.pick(from).to_vec()).collect()
    }

    fn request(&mut self) -> Made {
        let mut op = Command::ALL[self.next() % Command::ALL.len()];
        let mut key =
            if !self.next().is_multiple_of(4) { vec![b'k'] } else { self.pieces(&KEYS, 3) };
        if op == Command::FlushAll && key.is_empty() {
            // A command that deliberately empties the server proves nothing.
            op = Command::Get;
        }
        if op == Command::Version {
            key.clear();
        }
        let mut words = Vec::new();
        let count = if op.is_meta() { self.next() % 20 } else { 0 };
        for _ in 0..count {
            words.extend_from_slice(self.pick(&WORDS).as_bytes());
            words.push(b' ');
        }
        words.pop();
        let (value, base64) =
            (self.pieces(&VALUES, 3), op.is_meta() && self.next().is_multiple_of(4));
        if base64 {
            words.extend_from_slice(if words.is_empty() { b"b" } else { b" b" });
        }
        let exptime = TIMES[self.next() % TIMES.len()];
        let number = [0, 1, 7, u64::MAX][self.next() % 4];
        Made { op, key, value, words, exptime, number, base64 }
    }
}

/// The counts that the server should have, judged by the answers.
fn count(made: &Made, reply: &OwnedReply, counts: &mut BTreeMap<&'static str, u64>) {
    let Made { op, .. } = made;
    let is_failed = matches!(reply.outcome, Outcome::Failed(_));
    let mut add = |name, is_counted: bool| {
        *counts.entry(name).or_default() += u64::from(is_counted && !is_failed);
    };
    // A miss of `mg T` touches nothing.
    let is_touched = made.has(b'T') && !reply.outcome.is_miss();
    add("cmd_set", op.has_value());
    add("cmd_get", matches!(op, Command::Get | Command::Gets));
    add("cmd_get", *op == Command::MetaGet && !is_touched);
    add("cmd_touch", matches!(op, Command::Touch | Command::Gat | Command::Gats));
    add("cmd_touch", *op == Command::MetaGet && is_touched);
    add("deletes", *op == Command::Delete);
    add("cmd_flush", *op == Command::FlushAll);
}

/// The server's counts.
fn counted(direct: &mut Wire) -> BTreeMap<&'static str, u64> {
    direct.send(b"stats\r\n");
    let text = String::from_utf8(direct.read_until(b"END\r\n")).unwrap();
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<u64>().unwrap()
    };
    let mut counts: BTreeMap<&str, u64> =
        ["cmd_set", "cmd_get", "cmd_touch", "cmd_flush"].map(|name| (name, number(name))).into();
    counts.insert("deletes", number("delete_hits") + number("delete_misses"));
    counts
}

fn begin() -> Stage {
    let server = Server::memcached(&[]);
    let address = server.addr();
    let rig = Rig::new(patient(), move |servers| servers.at(address));
    let direct = server.connect();
    Stage { server, rig, direct, round: 0 }
}

/// Runs the requests encoded in `bytes`.
pub(super) fn check(bytes: &[u8]) {
    STAGE.with_borrow_mut(|stage| play(stage.get_or_insert_with(begin), bytes));
}

fn play(stage: &mut Stage, bytes: &[u8]) {
    let Stage { server, rig, direct, round } = stage;
    if round.is_multiple_of(ROUNDS) {
        direct.expect(b"flush_all\r\n", b"OK\r\n");
        direct.expect(b"set canary 5 0 4\r\ngood\r\n", b"STORED\r\n");
    }
    *round += 1;
    let mut choices = Choices(bytes);
    let mut requests = Vec::new();
    while !choices.0.is_empty() && requests.len() < REQUESTS_MAX {
        // `md` is counted by its finding and its effect.
        let made = choices.request();
        if made.op != Command::MetaDelete {
            requests.push(made);
        }
    }
    let before = counted(direct);
    let tickets: Vec<_> = requests.iter().map(|made| rig.submit(&made.get())).collect();
    let replies: Vec<_> = tickets.into_iter().map(|ticket| rig.reply(ticket)).collect();
    let mut expected = before;
    for (made, reply) in requests.iter().zip(&replies) {
        count(made, reply, &mut expected);
    }
    assert_eq!(counted(direct), expected, "{requests:#?}\n{replies:#?}");
    direct.expect(b"get canary\r\n", b"VALUE canary 5 4\r\ngood\r\nEND\r\n");
    let totals = rig.registry.report()[0].totals;
    assert!(totals.connects <= 1 && totals.closes == 0, "{requests:#?}\n{replies:#?}");
    server.assert_alive("requests");
}
