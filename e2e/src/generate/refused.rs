//! Stores that the server refuses: values that are too large, data blocks of another length,
//! missing or wrong words, with and without `noreply`, in text and meta; and the commands after
//! them.

use super::text::{line, store};
use super::{CAS_MARK, Command, Keys};
use testkit::Rng;

/// Larger than an item with any key.
const TOO_LARGE: usize = 1_049_600;

/// Two of these do not fit into one item.
const MORE_THAN_HALF: usize = 600_000;

const CLASSIC: [&str; 5] = ["set", "add", "replace", "append", "prepend"];

/// A classic storage command that the server refuses and that leaves the connection usable.
pub fn text(rng: &mut Rng, keys: &Keys) -> Command {
    let (key, verb) = (keys.one(rng).to_vec(), rng.pick(&CLASSIC).as_bytes());
    let noreply: &[u8] = if rng.one_in(3) { b"noreply" } else { b"" };
    match rng.below(40) {
        0 => large(rng, keys, verb, noreply),
        1..=6 => {
            let (data, said) = other_length(rng);
            let words = [verb, &key, b"0", b"0", said.as_bytes(), noreply];
            Command::differs([line(&words), data.to_vec()].concat(), &["short-line"])
        }
        7..=12 => {
            // An invalid length: a command follows. Not 4294967296: 1.6.18 parses it as 0 and the
            // next line as the data.
            let length = rng.pick(&["x", "-1", "1x", "", "99999999999999999999"]);
            let words = [verb, &key, b"0", b"0", length.as_bytes(), noreply];
            Command::differs(line(&words), &["too-few-words", "bad-length-in-silence"])
        }
        13..=18 => {
            let mut words = [b"0".as_slice(), b"0"];
            words[rng.below(2)] = rng.pick(&["x", "1x", "1.5", "0x1", "-"]).as_bytes();
            let bytes = store(&[verb, &key, words[0], words[1]], b"hi", noreply);
            Command::differs(bytes, &["mistake-swallows-data"])
        }
        19..=23 => {
            let unique = rng.pick(&["x", "-", "1x", "18446744073709551616", "1.5"]);
            let words = [b"cas", key.as_slice(), b"0", b"0", b"2", unique.as_bytes(), noreply];
            let bytes = [line(&words), b"hi\r\n".to_vec()].concat();
            Command::differs(bytes, &["mistake-swallows-data"])
        }
        24..=27 => {
            let bytes = store(&[verb, &[b'y'; 251], b"0", b"0"], b"hi", noreply);
            Command::differs(bytes, &["mistake-swallows-data"])
        }
        28..=31 => {
            let (data, said) = other_length(rng);
            let words = [b"cas", key.as_slice(), b"0", b"0", said.as_bytes(), CAS_MARK, noreply];
            Command::differs([line(&words), data.to_vec()].concat(), &["short-line"])
        }
        32..=35 => {
            // No other command reads the result.
            let words = [b"set", keys.odd.as_slice(), b"0", b"0", b"2", b"junk", b"noreply"];
            let bytes = [line(&words), b"hi\r\n".to_vec()].concat();
            Command::differs(bytes, &["too-many-words"])
        }
        _ => {
            let words = [verb, &key, b"0", b"0"];
            let few = words.get(..=rng.below(4)).unwrap_or(&words);
            Command::differs(line(few), &["too-few-words"])
        }
    }
}

/// A value that is too large by itself, or together with the existing one.
fn large(rng: &mut Rng, keys: &Keys, verb: &[u8], noreply: &[u8]) -> Command {
    let key = keys.one(rng).to_vec();
    let get = line(&[b"get", &key]);
    let z = |len| vec![b'z'; len];
    let first = match rng.below(3) {
        0 => store(&[verb, &key, b"0", b"0"], &z(TOO_LARGE), noreply),
        1 => {
            let words = [b"cas", key.as_slice(), b"0", b"0", b"1049600", CAS_MARK, noreply];
            [line(&words), z(TOO_LARGE), b"\r\n".to_vec()].concat()
        }
        _ => {
            let add = rng.pick(&["append", "prepend"]).as_bytes();
            let first = store(&[b"set", &key, b"0", b"0"], &z(MORE_THAN_HALF), b"");
            let second = store(&[add, &key, b"0", b"0"], &z(MORE_THAN_HALF), noreply);
            // Deletes a large value, because replies that nobody reads yet would stop the stream.
            let last = line(&[b"delete", &key, b"noreply"]);
            return Command::differs([first, second, last].concat(), &["append-too-large"]);
        }
    };
    Command::same([first, get].concat())
}

/// A meta store that the server refuses and that leaves the connection usable.
pub fn meta(rng: &mut Rng, keys: &Keys) -> Command {
    let key = keys.one(rng).to_vec();
    let mode = rng.pick(&["MS", "ME", "MA", "MP", "MR", "MA", "k"]).as_bytes();
    let quiet: &[u8] = if rng.one_in(3) { b"q" } else { b"" };
    match rng.below(30) {
        0 => {
            let words = [b"ms", key.as_slice(), b"1049600", mode, quiet];
            let tail = line(&[b"mg", &key, b"s"]);
            Command::same([line(&words), vec![b'z'; TOO_LARGE], b"\r\n".to_vec(), tail].concat())
        }
        1..=8 => {
            let (data, said) = other_length(rng);
            let words = [b"ms", key.as_slice(), said.as_bytes(), mode, quiet];
            Command::differs([line(&words), data.to_vec()].concat(), &["short-line"])
        }
        9..=13 => {
            let length = rng.pick(&["x", "-1", "1x", "S2", "99999999999999999999"]);
            Command::same(line(&[b"ms", &key, length.as_bytes(), mode, quiet]))
        }
        14..=23 => {
            let bad = *rng.pick(&["z", "Fx", "Tx", "C", "Cx", "MX", "q q", "M", "F", "T"]);
            let words = [b"ms", key.as_slice(), b"2", bad.as_bytes()];
            Command::differs(
                [line(&words), b"hi\r\n".to_vec()].concat(),
                &["mistake-swallows-data", "mode-of-no-letter"],
            )
        }
        24..=26 => {
            let words = [b"ms", b"not/base64!".as_slice(), b"2", b"b", quiet];
            Command::differs(
                [line(&words), b"hi\r\n".to_vec()].concat(),
                &["mistake-swallows-data"],
            )
        }
        _ => {
            let words = [b"ms", [b'y'; 251].as_slice(), b"2", quiet];
            Command::differs(
                [line(&words), b"hi\r\n".to_vec()].concat(),
                &["mistake-swallows-data"],
            )
        }
    }
}

/// A data block, and a length other than its own. No part of it is a command.
fn other_length(rng: &mut Rng) -> (&'static [u8], &'static str) {
    *rng.pick(&[
        (b"four\r\n".as_slice(), "2"),
        (b"four\r\n", "3"),
        (b"four\n\n", "4"),
        (b"fourmore\r\n", "2"),
        (b"ab\r\ncd\r\n", "3"),
        (b"hi\r\n", "0"),
        (b"hi\r\n", "1"),
    ])
}
