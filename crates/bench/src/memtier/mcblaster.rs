//! mcblaster's command line, and the capital `-W` that Wiggins and Langston's copy had: gets and sets at rates of their own,
//! from an open loop.

use super::{Invocation, Parsed};
use crate::generator::sizes::ValueSize;
use crate::generator::spec::{Arrival, Pace, Protocol, Ratio, Spec};

const HELP: &str = "\
mcblaster's command line, done by holdall bench.

Usage: holdall bench mcblaster [FLAG].. HOST    or a link named mcblaster

  -p PORT     the server's TCP port, 11211 unless said
  -t THREADS  threads, 1 unless said
  -c COUNT    connections of each thread, 1 unless said
  -k KEYS     number of keys, 1000000 unless said
  -z BYTES    bytes of values, 100 unless said
  -r RATE     gets a second, 1000 unless said
  -w RATE     sets a second (also -W), 0 unless said
  -d SECONDS  how long, 120 unless said

Refused: -u and -f (UDP), -n, -q, -s, -x.

Examples:
  holdall bench mcblaster -p 11211 -t 16 -z 64 -k 1000000 -r 10 -W 75000 -d 20 cache1
  holdall bench mcblaster -p 11211 -t 16 -z 64 -k 1000000 -r 300000 -W 0 -d 120 cache1
";

/// Reads mcblaster's command line, without the program's name.
///
/// # Errors
///
/// What is unknown, wrong, or cannot be done here, in one sentence.
pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Parsed, String> {
    let (mut port, mut threads, mut connections) = (11211u16, 1usize, 1usize);
    let (mut keys, mut bytes, mut seconds) = (1_000_000u64, 100usize, 120.0f64);
    let (mut gets, mut sets) = (1_000u32, 0u32);
    let mut host = None;
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix('-') else {
            if host.replace(word.clone()).is_some() {
                return Err(format!("{word:?}: one host is wanted"));
            }
            continue;
        };
        if flag == "h" || flag == "-help" {
            return Ok(Parsed::Print(HELP.to_owned()));
        }
        let (letter, attached) = flag.split_at(flag.chars().next().map_or(0, char::len_utf8));
        let value = || match attached {
            "" => words.next().ok_or_else(|| format!("-{letter} needs a value")),
            value => Ok(value.to_owned()),
        };
        match letter {
            "p" => port = number(letter, value)?,
            "t" => threads = number(letter, value)?,
            "c" => connections = number(letter, value)?,
            "k" => keys = number(letter, value)?,
            "z" => bytes = number(letter, value)?,
            "d" => seconds = number(letter, value)?,
            "r" => gets = number(letter, value)?,
            "w" | "W" => sets = number(letter, value)?,
            "u" | "f" | "n" | "q" | "s" | "x" => {
                return Err(format!("-{letter} cannot be done here"));
            }
            _ => return Err(format!("unknown flag {word:?}")),
        }
    }
    let host = host.ok_or("a host is missing")?;
    let in_range = (1..=10_000).contains(&threads)
        && (1..=100_000).contains(&connections)
        && keys > 0
        && (0.0..=1e6).contains(&seconds);
    let rate = f64::from(gets) + f64::from(sets);
    if !in_range || rate <= 0.0 {
        return Err("a number is out of range, or both rates are 0".to_owned());
    }
    let spec = Spec {
        targets: vec![format!("{host}:{port}").parse()?],
        protocol: Protocol::Text,
        threads,
        connections,
        // Requests go when they are due, whatever is still unanswered.
        pipeline: 1_000,
        ratio: Ratio { sets, gets },
        keys,
        value_size: bytes.to_string().parse::<ValueSize>()?,
        pace: Pace::Open { rate, arrival: Arrival::Fixed },
        seconds,
        warm_up: 0.0,
        ..Spec::default()
    };
    Ok(Parsed::Run(Box::new(Invocation {
        spec,
        requests: None,
        runs: 1,
        json: None,
        out: None,
        hides_histogram: false,
        warnings: Vec::new(),
    })))
}

fn number<N: std::str::FromStr>(
    letter: &str,
    value: impl FnOnce() -> Result<String, String>,
) -> Result<N, String> {
    let text = value()?;
    text.parse().map_err(|_| format!("-{letter}: {text:?} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(line: &str) -> Result<Spec, String> {
        match parse(line.split_whitespace().map(str::to_owned))? {
            Parsed::Run(run) => Ok(run.spec),
            Parsed::Print(text) => Err(text),
        }
    }

    #[test]
    fn the_papers_command_lines_are_read() {
        let load = spec("-p 11211 -t 16 -z 64 -k 1000000 -r 10 -W 75000 -d 20 127.0.0.1").unwrap();
        assert_eq!((load.threads, load.keys, load.seconds), (16, 1_000_000, 20.0));
        assert_eq!(load.ratio, Ratio { sets: 75_000, gets: 10 });
        assert_eq!(load.pace, Pace::Open { rate: 75_010.0, arrival: Arrival::Fixed });
        let gets = spec("-p 11211 -t 16 -z 64 -k 1000000 -r 300000 -W 0 -d 120 127.0.0.1").unwrap();
        assert_eq!(gets.ratio, Ratio { sets: 0, gets: 300_000 });
    }

    #[test]
    fn what_is_unknown_or_cannot_be_done_is_refused() {
        for (line, words) in [
            ("-Q 1 h", "unknown flag"),
            ("-u 1 h", "cannot be done"),
            ("-t", "needs a value"),
            ("-t x h", "no number"),
            ("-r 0 127.0.0.1", "out of range"),
            ("", "host is missing"),
            ("a b", "one host"),
        ] {
            let error = spec(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        assert!(spec("--help").unwrap_err().contains("mcblaster's command line"));
    }
}
