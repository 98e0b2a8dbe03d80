//! mcblaster's command line, and the capital `-W` of Wiggins and Langston's copy: gets and sets at
//! separate rates, from an open loop.
//!
//! Source: `test/mcblaster` of Facebook's memcached.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{FlagError, Invocation, Parsed, Program, json};
use generator::bounds::{KEYS_MAX, RATES, SECONDS_MAX};
use generator::sizes::ValueSize;
use generator::spec::{Arrival, Pace, Protocol, Ratio, Spec};

/// A flag and its effect here.
type Flag = (char, Option<&'static str>, Use, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Done,
    /// Nothing, without an effect on the figures.
    Warned,
    Refused,
}

use Use::{Done, Refused, Warned};

pub(super) const FLAGS: [Flag; 15] = [
    ('p', Some("PORT"), Done, "the server's TCP port"),
    ('t', Some("THREADS"), Done, "threads; as many as there are processors unless said"),
    ('c', Some("COUNT"), Done, "connections of each thread, 1 unless said"),
    (
        'k',
        Some("KEYS"),
        Done,
        "number of keys, 1 unless said; they are stored before there are gets",
    ),
    ('z', Some("BYTES"), Done, "bytes of values, 100 unless said"),
    ('r', Some("RATE"), Done, "gets a second, 0 unless said"),
    ('w', Some("RATE"), Done, "sets a second, 0 unless said"),
    ('W', Some("RATE"), Done, "the same"),
    ('d', Some("SECONDS"), Done, "how long; until an interrupt unless said"),
    ('q', None, Warned, "its warnings are none of this program's"),
    ('u', Some("PORT"), Refused, "gets by UDP (`holdall bench run -s udp:HOST:PORT --rate RATE`)"),
    ('x', Some("PORTS"), Refused, "ports for replies by UDP"),
    ('f', Some("PORT"), Refused, "port for requests by UDP"),
    ('n', None, Refused, "small segments held back"),
    ('s', Some("BYTES"), Refused, "buffers of sockets"),
];

/// Parses mcblaster's command line, without the program's name.
///
/// # Errors
///
/// The unknown, wrong, or unsupported part, in one sentence.
pub fn parse(words: impl Iterator<Item = String>) -> Result<Parsed, FlagError> {
    let Some((given, warnings, host)) = gather(words)? else { return Ok(Parsed::Print(help())) };
    let spec = spec(&given, &host.ok_or(FlagError::Misused("a host is missing"))?)?;
    Ok(Parsed::Run(Box::new(Invocation {
        spec,
        requests: None,
        runs: 1,
        json: None,
        hdr_files: None,
        out: None,
        program: Program::Mcblaster,
        all_runs: false,
        hides_histogram: false,
        percentiles: json::PERCENTILES.to_vec(),
        misses_max: None,
        warnings,
    })))
}

/// Flags with their values, flags without an effect, and the host.
type Gathered = (BTreeMap<char, String>, Vec<String>, Option<String>);

/// Parses the words; `None` for a request for help.
fn gather(mut words: impl Iterator<Item = String>) -> Result<Option<Gathered>, FlagError> {
    let (mut given, mut warnings, mut host) = (BTreeMap::new(), Vec::new(), None);
    while let Some(word) = words.next() {
        let Some(mut letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            if host.replace(word.clone()).is_some() {
                return Err(FlagError::SecondHost(word));
            }
            continue;
        };
        if matches!(letters, "h" | "-help") {
            return Ok(None);
        }
        if letters.starts_with('-') {
            return Err(FlagError::Unknown(word));
        }
        while let Some(letter) = letters.chars().next() {
            letters = &letters[letter.len_utf8()..];
            let flag = FLAGS.iter().find(|flag| flag.0 == letter);
            let (_, value, what, words_of) =
                flag.ok_or_else(|| FlagError::Unknown(format!("-{letter}")))?;
            let value = match (value, std::mem::take(&mut letters)) {
                (None, rest) => {
                    letters = rest;
                    String::new()
                }
                (Some(_), "") => {
                    words.next().ok_or_else(|| FlagError::NoValue(format!("-{letter}")))?
                }
                (Some(_), attached) => attached.to_owned(),
            };
            match what {
                Done => drop(given.insert(letter, value)),
                Warned => warnings.push(format!("-{letter} changes nothing here")),
                Refused => return Err(FlagError::ImpossibleBecause { letter, meaning: words_of }),
            }
        }
    }
    Ok(Some((given, warnings, host)))
}

fn spec(given: &BTreeMap<char, String>, host: &str) -> Result<Spec, FlagError> {
    let port: u16 = number(given, 'p', 0)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = number(given, 't', processors)?;
    let connections = number(given, 'c', 1usize)?;
    let keys = number(given, 'k', 1u64)?;
    let bytes = number(given, 'z', 100usize)?;
    // By default, it runs until it is interrupted.
    let seconds = number(given, 'd', SECONDS_MAX)?;
    let gets: u32 = number(given, 'r', 0)?;
    let sets: u32 = number(given, if given.contains_key(&'W') { 'W' } else { 'w' }, 0)?;
    if port == 0 {
        return Err(FlagError::Misused("-p PORT is missing"));
    }
    let rate = f64::from(gets) + f64::from(sets);
    if rate <= 0.0 {
        return Err(FlagError::Misused("a rate is missing: -r of gets, -w of sets, or both"));
    }
    let is_in_range = (1..=10_000).contains(&threads)
        && (1..=100_000).contains(&connections)
        && (1..=KEYS_MAX).contains(&keys)
        && RATES.contains(&rate)
        && (0.0..=SECONDS_MAX).contains(&seconds);
    if !is_in_range {
        return Err(FlagError::Misused("a number is out of range"));
    }
    Ok(Spec {
        targets: vec![format!("{host}:{port}").parse()?],
        protocol: Protocol::Text,
        threads,
        connections,
        // Requests are sent when due, however many are unanswered.
        pipeline: 1_000,
        ratio: Ratio { sets, gets },
        keys,
        key_prefix: "k-".to_owned(),
        value_size: bytes.to_string().parse::<ValueSize>()?,
        preload: gets > 0,
        pace: Pace::Open { rate, arrival: Arrival::Fixed },
        seconds,
        warm_up: 0.0,
        ..Spec::default()
    })
}

fn number<N: std::str::FromStr>(
    given: &BTreeMap<char, String>,
    letter: char,
    default: N,
) -> Result<N, FlagError> {
    let Some(text) = given.get(&letter) else { return Ok(default) };
    text.parse().map_err(|_| FlagError::value(&format!("-{letter}"), text, "a number"))
}

fn help() -> String {
    let mut text = "\
mcblaster's command line, done by holdall bench.

Usage: holdall bench mcblaster [FLAG].. HOST    or a link named mcblaster

"
    .to_owned();
    for (wanted, head) in
        [(Done, ""), (Warned, "\nAccepted with a warning:\n"), (Refused, "\nRefused:\n")]
    {
        text.push_str(head);
        for (letter, value, what, words) in FLAGS {
            if what == wanted {
                let _ = writeln!(text, "  -{letter} {:<8} {words}", value.unwrap_or_default());
            }
        }
    }
    text.push_str(
        "
Examples:
  holdall bench mcblaster -p 11211 -t 16 -z 64 -k 1000000 -r 10 -W 75000 -d 20 cache1
  holdall bench mcblaster -p 11211 -t 16 -z 64 -k 1000000 -r 300000 -W 0 -d 120 cache1
",
    );
    text
}
