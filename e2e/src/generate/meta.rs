//! Meta commands with every flag.

use super::text::line;
use super::{CAS_MARK, Command, Keys, WIDE, value};
use testkit::Rng;

/// A valid meta command for one of `keys`.
pub fn valid(rng: &mut Rng, keys: &Keys) -> Command {
    let encoded = rng.one_in(8);
    let invalidated = !encoded && rng.one_in(4);
    let mut key = if encoded { keys.encoded.clone() } else { keys.one(rng).to_vec() };
    if invalidated {
        key.clone_from(&keys.invalidated);
    }
    let mut flags: Vec<Vec<u8>> = if encoded { vec![b"b".to_vec()] } else { Vec::new() };
    match rng.below(12) {
        0..=4 => {
            choose(rng, &mut flags, &["c", "f", "h", "k", "l", "s", "t", "u", "v", "v", "q"]);
            sometimes(rng, &mut flags, &["Oab12", "T50", "T0", "R20", "R2000", "N30"]);
            Command::differs(command(b"mg", &key, None, &flags), &["key-in-base64"])
        }
        5..=8 => {
            choose(rng, &mut flags, &["c", "k", "q"]);
            choose(rng, &mut flags, if invalidated { &["I"] } else { &[] });
            sometimes(rng, &mut flags, &["Oab12", "F77", "T0", "T90", "T-1"]);
            let appends: &[_] = if invalidated { &[] } else { &["MA", "MP"] };
            sometimes(rng, &mut flags, appends);
            sometimes(rng, &mut flags, &["MS", "ME", "MR", "Ms", "Me"]);
            cas(rng, &mut flags);
            Command::same(command(b"ms", &key, Some(&value(rng)), &flags))
        }
        9 => {
            choose(rng, &mut flags, &["k", "q"]);
            choose(rng, &mut flags, if invalidated { &["I"] } else { &[] });
            sometimes(rng, &mut flags, &["Oab12", "T30"]);
            cas(rng, &mut flags);
            Command::same(command(b"md", &key, None, &flags))
        }
        10 => {
            let quiet_or_unique = quiet_or_unique(rng);
            choose(rng, &mut flags, &[quiet_or_unique, "k", "t", "v"]);
            sometimes(rng, &mut flags, &["Oab12", "D5", "J12", "N0", "N60", "MI", "M+"]);
            cas(rng, &mut flags);
            let differs: &[_] = &["counter-created-in-silence"];
            Command::differs(command(b"ma", &keys.number, None, &flags), differs)
        }
        _ => {
            let mut flags = Vec::new();
            let quiet_or_unique = quiet_or_unique(rng);
            choose(rng, &mut flags, &[quiet_or_unique, "k", "t", "v", "N60"]);
            // Only here: memcached gives the new time to the old item when a number gets longer.
            sometimes(rng, &mut flags, &["D5", "T40", "MI", "MD", "M+", "M-"]);
            flags.push(format!("J{}", WIDE + 1_000_000).into_bytes());
            let differs: &[_] = &["counter-created-in-silence"];
            Command::differs(command(b"ma", &keys.wide, None, &flags), differs)
        }
    }
}

/// A meta command that the server refuses and that leaves the connection usable.
pub fn edge(rng: &mut Rng, keys: &Keys) -> Command {
    let key = keys.one(rng).to_vec();
    match rng.below(9) {
        0 => Command::differs(
            line(&[rng.pick(&["mg", "ms", "md", "ma", "me"]).as_bytes()]),
            &["too-few-words"],
        ),
        1 => Command::differs(
            line(&[rng.pick(&["mg", "md"]).as_bytes(), &key, b"v", b"v"]),
            &["md-with-a-bad-flag"],
        ),
        2 => Command::differs(
            line(&[rng.pick(&["mg", "md"]).as_bytes(), &key, rng.pick(&["z", "Y"]).as_bytes()]),
            &["md-with-a-bad-flag"],
        ),
        3 => Command::same(line(&[b"mg", &key, rng.pick(&["Tx", "Rq", "T1x"]).as_bytes()])),
        4 if rng.one_in(2) => {
            let flag = rng.pick(&["T-", "R-"]).as_bytes();
            Command::differs(line(&[b"mg", b"no-such-key", flag]), &["minus-alone"])
        }
        4 => Command::same(line(&[b"mg", b"not/base64!", b"b", b"k", b"v"])),
        5 => Command::same(line(&[b"ms", &key, rng.pick(&["x", "-1", "S2"]).as_bytes()])),
        6 => Command::same(command(b"ms", &key, Some(b"hi"), &[b"MX".to_vec()])),
        7 => Command::same(line(&[b"ma", &key, b"MX"])),
        _ => Command::differs(line(&[b"mg", &vec![b'm'; 251], b"v"]), &["too-few-words"]),
    }
}

fn command(verb: &[u8], key: &[u8], data: Option<&[u8]>, flags: &[Vec<u8>]) -> Vec<u8> {
    let len = data.map(|data| data.len().to_string()).unwrap_or_default();
    let mut words: Vec<&[u8]> = vec![verb, key];
    if data.is_some() {
        words.push(len.as_bytes());
    }
    words.extend(flags.iter().map(Vec::as_slice));
    let mut bytes = line(&words);
    if let Some(data) = data {
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Each of `names` with a chance of one in three; none twice.
fn choose(rng: &mut Rng, flags: &mut Vec<Vec<u8>>, names: &[&str]) {
    for name in names {
        let letter = name.as_bytes()[0];
        if rng.one_in(3) && flags.iter().all(|flag| flag[0] != letter) {
            flags.insert(rng.below(flags.len() + 1), name.as_bytes().to_vec());
        }
    }
}

/// `q` or `c`, but never both: a silently created counter shows its cas unique in only one of the
/// two servers, and uniques are compared by their order of appearance.
fn quiet_or_unique(rng: &mut Rng) -> &'static str {
    if rng.one_in(2) { "q" } else { "c" }
}

/// Each of `names` with a chance of one in six; no letter twice.
fn sometimes(rng: &mut Rng, flags: &mut Vec<Vec<u8>>, names: &[&str]) {
    for name in names {
        let letter = name.as_bytes()[0];
        if rng.one_in(6) && flags.iter().all(|flag| flag[0] != letter) {
            flags.insert(rng.below(flags.len() + 1), name.as_bytes().to_vec());
        }
    }
}

fn cas(rng: &mut Rng, flags: &mut Vec<Vec<u8>>) {
    if rng.one_in(5) {
        let unique = if rng.one_in(3) { b"1".as_slice() } else { CAS_MARK };
        flags.push([b"C", unique].concat());
    }
}
