//! Classic text commands.

use super::{CAS_MARK, Command, Keys, WIDE, number, value};
use testkit::Rng;

const FLAGS: [&str; 5] = ["0", "1", "65535", "4294967295", "007"];
const EXPTIMES: [&str; 7] = ["0", "0", "0", "100", "2592000", "2000000000", "-1"];
const DELTAS: [&str; 3] = ["0", "1", "13"];

/// A valid command for one of `keys`.
pub fn valid(rng: &mut Rng, keys: &Keys) -> Command {
    match rng.below(16) {
        0..=5 => storage(rng, keys),
        6..=9 => retrieval(rng, keys),
        10 | 11 => arithmetic(rng, keys),
        12 => Command::same(line(&[b"delete", keys.one(rng), noreply(rng)])),
        13 => {
            let exptime = rng.pick(&EXPTIMES).as_bytes();
            Command::same(line(&[b"touch", keys.one(rng), exptime, noreply(rng)]))
        }
        14 => administration(rng),
        _ => cas(rng, keys),
    }
}

fn storage(rng: &mut Rng, keys: &Keys) -> Command {
    let verb = rng.pick(&["set", "set", "add", "replace", "append", "prepend"]).as_bytes();
    let (flags, exptime) = (rng.pick(&FLAGS).as_bytes(), rng.pick(&EXPTIMES).as_bytes());
    Command::same(store(&[verb, keys.one(rng), flags, exptime], &value(rng), noreply(rng)))
}

fn cas(rng: &mut Rng, keys: &Keys) -> Command {
    let unique: &[u8] = if rng.one_in(4) { b"1" } else { CAS_MARK };
    let data = value(rng);
    let len = data.len().to_string();
    let words = [b"cas", keys.one(rng), b"5", b"0", len.as_bytes(), unique, noreply(rng)];
    Command::same([line(&words), data, b"\r\n".to_vec()].concat())
}

fn retrieval(rng: &mut Rng, keys: &Keys) -> Command {
    let mut words: Vec<&[u8]> = match rng.below(4) {
        0 => vec![b"get"],
        1 => vec![rng.pick(&["bget", "get"]).as_bytes()],
        2 => vec![b"gets"],
        _ => vec![rng.pick(&["gat", "gats"]).as_bytes(), rng.pick(&EXPTIMES).as_bytes()],
    };
    // A line stays below 2048 bytes, because memcached's reply to a longer one depends on the cuts.
    if rng.one_in(5) {
        words.extend((0..60).map(|_| keys.any[rng.below(3)].as_slice()));
    } else {
        words.extend((0..=rng.below(4)).map(|_| keys.one(rng)));
    }
    Command::same(line(&words))
}

fn arithmetic(rng: &mut Rng, keys: &Keys) -> Command {
    let delta = rng.pick(&DELTAS).as_bytes();
    let store_verb = rng.pick(&["set", "add", "replace"]).as_bytes();
    match rng.below(6) {
        0 | 1 => Command::same(line(&[b"incr", &keys.number, delta, noreply(rng)])),
        2 => {
            let data = number(rng);
            Command::same(store(&[store_verb, &keys.number, b"0", b"0"], data, noreply(rng)))
        }
        3 => {
            let data = WIDE.to_string();
            Command::same(store(
                &[store_verb, &keys.wide, b"0", b"0"],
                data.as_bytes(),
                noreply(rng),
            ))
        }
        4 => Command::same(line(&[b"incr", &keys.wide, b"1000", noreply(rng)])),
        _ => Command::same(line(&[b"decr", &keys.wide, delta, noreply(rng)])),
    }
}

fn administration(rng: &mut Rng) -> Command {
    const LINES: [&[u8]; 6] = [
        b"version\r\n",
        b"verbosity 0\r\n",
        b"verbosity 0 noreply\r\n",
        b"flush_all\r\n",
        b"flush_all 0\r\n",
        b"flush_all noreply\r\n",
    ];
    Command::same(rng.pick(&LINES).to_vec())
}

/// Commands that lack a word.
const SHORT: [&str; 8] =
    ["get", "gets", "set", "cas k 0 0", "append k 0 0", "incr k", "touch k", "delete"];

/// A line with a typical mistake of a client, which leaves the connection usable.
pub fn edge(rng: &mut Rng, keys: &Keys) -> Command {
    let key = keys.one(rng).to_vec();
    let too_long = vec![b'y'; 251];
    match rng.below(22) {
        0..=2 => Command::differs(*rng.pick(&["\r\n", "\n", "x\r\n"]), &["short-line"]),
        3 => Command::differs(line(&[b"", b"get", &key]), &["leading-space"]),
        4 => Command::differs(line(&[rng.pick(&SHORT).as_bytes()]), &["too-few-words"]),
        5 => Command::same(line(&[
            rng.pick(&["GET", "Set", "nosuch", "getx", "se"]).as_bytes(),
            &key,
        ])),
        6 | 7 => {
            let bad = rng.pick(&["x", "1.5", "1x", "0x10"]).as_bytes();
            let (flags, exptime): (&[u8], &[u8]) =
                if rng.one_in(2) { (bad, b"0") } else { (b"0", bad) };
            let bytes = store(&[b"set", &key, flags, exptime], b"hi", b"");
            Command::differs(bytes, &["mistake-swallows-data"])
        }
        8 => Command::same(line(&[
            b"set",
            &key,
            b"0",
            b"0",
            rng.pick(&["x", "-1", "1x", "-2147483648"]).as_bytes(),
        ])),
        9 => Command::differs(
            store(&[b"set", &keys.odd, b"4294967296", b"0"], b"hi", b""),
            &["flags-too-large", "mistake-swallows-data"],
        ),
        10 => Command::same(
            [line(&[b"set", &key, b"0", b"0", b"2"]), b"fourmore\r\n".to_vec()].concat(),
        ),
        11 if rng.one_in(2) => Command::differs(
            store(&[b"cas", &key, b"0", b"0"], b"hi", b""),
            &["cas-without-its-unique"],
        ),
        11 => Command::differs(
            store(&[b"set", &too_long, b"0", b"0"], b"hi", b""),
            &["mistake-swallows-data"],
        ),
        12 => Command::differs(line(&[b"get", &key, &too_long, &key]), &["long-key-in-multiget"]),
        13 => Command::same(line(&[
            rng.pick(&["incr", "decr"]).as_bytes(),
            &keys.number,
            rng.pick(&["x", "-1", "1.5", "18446744073709551616", "1e3"]).as_bytes(),
        ])),
        14 => Command::differs(line(&[b"incr", &keys.odd, b"+1"]), &["delta-with-plus"]),
        15 => Command::same(line(&[b"touch", &key, rng.pick(&["x", "1.5"]).as_bytes()])),
        16 => Command::same(line(&[b"gat", b"x", &key])),
        17 if rng.below(2) == 0 => {
            Command::differs(line(&[b"delete", b"never-stored", b"5"]), &["delete-with-a-number"])
        }
        17 => Command::differs(line(&[b"delete", b"never-stored", b"x"]), &["delete-with-a-word"]),
        18 => Command::same(line(&[b"delete", &key, b"0"])),
        19 => Command::same(line(&[b"verbosity", b"x"])),
        20 => Command::same([b"get  ", key.as_slice(), b"  \n"].concat()),
        _ => {
            Command::same(store(&[b"set", &key, b"0", b"0"], &vec![b'z'; 1_049_600], noreply(rng)))
        }
    }
}

/// A line that ends the connection, sent last.
pub fn closing(rng: &mut Rng) -> Command {
    match rng.below(4) {
        0 => Command::closing("quit\r\n"),
        1 => Command::closing("POST / HTTP/1.1\r\n"),
        2 => Command::closing("nosuch ".repeat(300)),
        _ => Command::closing([b"set ".as_slice(), &[b'k'; 3000]].concat()),
    }
}

/// A storage command with its data block; an empty `tail` adds no word.
pub(super) fn store(words: &[&[u8]], data: &[u8], tail: &[u8]) -> Vec<u8> {
    let len = data.len().to_string();
    let words = [words, &[len.as_bytes(), tail]].concat();
    [line(&words).as_slice(), data, b"\r\n"].concat()
}

/// Words separated by one space, without the empty ones at the end.
pub(super) fn line(words: &[&[u8]]) -> Vec<u8> {
    let count = words.iter().rposition(|word| !word.is_empty()).map_or(0, |at| at + 1);
    [words[..count].join(b" ".as_slice()).as_slice(), b"\r\n"].concat()
}

fn noreply(rng: &mut Rng) -> &'static [u8] {
    if rng.one_in(6) { b"noreply" } else { b"" }
}
