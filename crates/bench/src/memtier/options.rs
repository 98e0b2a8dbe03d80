//! memtier_benchmark's flags, in one table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::{Invocation, Parsed};
use crate::generator::keys::Pattern;
use crate::generator::sizes::{KeySize, ValueSize};
use crate::generator::spec::{Arrival, Pace, Protocol, Ratio, Spec, Target, Tls};

/// What a flag does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// What it does there.
    Done,
    /// Nothing, and that is said.
    Warned,
    /// It cannot be done, and what is measured would be something else.
    Refused,
}

use Use::{Done, Refused, Warned};

/// Long name, short name, whether a value follows, what it does here.
const FLAGS: [(&str, Option<char>, bool, Use); 69] = [
    ("server", Some('s'), true, Done),
    ("host", Some('h'), true, Done),
    ("port", Some('p'), true, Done),
    ("unix-socket", Some('S'), true, Done),
    ("ipv4", Some('4'), false, Warned),
    ("ipv6", Some('6'), false, Warned),
    ("protocol", Some('P'), true, Done),
    ("authenticate", Some('a'), true, Refused),
    ("tls", None, false, Done),
    ("cert", None, true, Done),
    ("key", None, true, Done),
    ("cacert", None, true, Done),
    ("tls-skip-verify", None, false, Done),
    ("tls-protocols", None, true, Refused),
    ("sni", None, true, Refused),
    ("run-count", Some('x'), true, Done),
    ("debug", Some('D'), false, Warned),
    ("client-stats", None, true, Warned),
    ("out-file", Some('o'), true, Done),
    ("json-out-file", None, true, Done),
    ("hdr-file-prefix", None, true, Refused),
    ("show-config", None, false, Warned),
    ("hide-histogram", None, false, Done),
    ("print-percentiles", None, true, Warned),
    ("print-all-runs", None, false, Warned),
    ("cluster-mode", None, false, Refused),
    ("requests", Some('n'), true, Done),
    ("clients", Some('c'), true, Done),
    ("threads", Some('t'), true, Done),
    ("test-time", None, true, Done),
    ("ratio", None, true, Done),
    ("pipeline", None, true, Done),
    ("reconnect-interval", None, true, Done),
    ("multi-key-get", None, true, Done),
    ("select-db", None, true, Refused),
    ("distinct-client-seed", None, false, Warned),
    ("randomize", None, false, Done),
    ("rate-limiting", None, true, Done),
    ("clients-start", None, true, Refused),
    ("clients-step", None, true, Refused),
    ("step-duration", None, true, Refused),
    ("statsd-host", None, true, Refused),
    ("statsd-port", None, true, Refused),
    ("statsd-prefix", None, true, Refused),
    ("data-size", Some('d'), true, Done),
    ("data-offset", None, true, Refused),
    ("random-data", Some('R'), false, Warned),
    ("data-size-range", None, true, Done),
    ("data-size-list", None, true, Done),
    ("data-size-pattern", None, true, Warned),
    ("expiry-range", None, true, Done),
    ("data-import", None, true, Refused),
    ("data-verify", None, false, Done),
    ("verify-only", None, false, Refused),
    ("generate-keys", None, false, Refused),
    ("no-expiry", None, false, Refused),
    ("key-prefix", None, true, Done),
    ("key-minimum", None, true, Done),
    ("key-maximum", None, true, Done),
    ("key-pattern", None, true, Done),
    ("key-stddev", None, true, Done),
    ("key-median", None, true, Refused),
    ("key-zipf-exp", None, true, Done),
    ("wait-ratio", None, true, Refused),
    ("num-slaves", None, true, Refused),
    ("wait-timeout", None, true, Refused),
    ("command", None, true, Refused),
    ("help", None, false, Done),
    ("version", Some('v'), false, Done),
];

/// Reads memtier_benchmark's command line, without the program's name.
///
/// # Errors
///
/// What is unknown, wrong, or cannot be done here, in one sentence.
pub fn parse(words: impl Iterator<Item = String>) -> Result<Parsed, String> {
    let (given, warnings) = gather(words)?;
    if given.contains_key("help") {
        return Ok(Parsed::Print(help()));
    }
    if given.contains_key("version") {
        return Ok(Parsed::Print(concat!("holdall ", env!("CARGO_PKG_VERSION"), "\n").to_owned()));
    }
    Given { given, warnings }.invocation().map(|run| Parsed::Run(Box::new(run)))
}

/// The flags that were given, each with its last value.
fn gather(
    mut words: impl Iterator<Item = String>,
) -> Result<(BTreeMap<&'static str, String>, Vec<String>), String> {
    let (mut given, mut warnings) = (BTreeMap::new(), Vec::new());
    while let Some(word) = words.next() {
        let (flag, attached) = if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            (FLAGS.iter().find(|flag| flag.0 == name), value)
        } else if let Some(short) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            let letter = short.chars().next();
            let rest = &short[letter.map_or(0, char::len_utf8)..];
            let value = (!rest.is_empty()).then(|| rest.to_owned());
            (FLAGS.iter().find(|flag| flag.1 == letter), value)
        } else {
            return Err(format!("{word:?} is no flag"));
        };
        let Some((name, _, takes_value, what)) = flag.copied() else {
            return Err(format!("unknown flag {word:?}"));
        };
        let value = match (takes_value, attached) {
            (true, Some(value)) => value,
            (true, None) => words.next().ok_or_else(|| format!("--{name} needs a value"))?,
            (false, None) => String::new(),
            (false, Some(value)) => return Err(format!("--{name} takes no value: {value:?}")),
        };
        match what {
            Done => {
                given.insert(name, value);
            }
            Warned => warnings.push(format!("--{name} changes nothing here")),
            Refused => return Err(format!("--{name} cannot be done here")),
        }
    }
    Ok((given, warnings))
}

struct Given {
    given: BTreeMap<&'static str, String>,
    warnings: Vec<String>,
}

impl Given {
    fn text(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    fn number<N: std::str::FromStr>(&self, name: &str, default: N) -> Result<N, String> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("--{name}: {text:?} is no number")),
        }
    }

    fn invocation(mut self) -> Result<Invocation, String> {
        let threads: usize = self.number("threads", 4)?;
        let clients: usize = self.number("clients", 50)?;
        let (first, last) =
            (self.number("key-minimum", 0u64)?, self.number("key-maximum", 10_000_000u64)?);
        if !(1..=10_000).contains(&threads) || !(1..=100_000).contains(&clients) || first > last {
            return Err("--threads, --clients or the range of keys is out of range".to_owned());
        }
        let seconds: Option<f64> =
            self.text("test-time").map(|_| self.number("test-time", 0.0)).transpose()?;
        if self.text("requests").is_some() && seconds.is_some() {
            return Err("--requests and --test-time exclude each other".to_owned());
        }
        let requests = match (seconds, self.text("requests")) {
            (Some(_), _) => None,
            (None, Some("allkeys")) => {
                Some((last - first + 1).div_ceil((threads * clients) as u64))
            }
            (None, _) => Some(self.number("requests", 10_000u64)?),
        };
        let spec = Spec {
            targets: vec![self.target()?],
            protocol: self.protocol()?,
            threads,
            connections: clients,
            pipeline: self.number("pipeline", 1)?,
            multiget: self.number("multi-key-get", 1usize)?.max(1),
            ratio: self.text("ratio").unwrap_or("1:10").parse::<Ratio>()?,
            keys: last - first + 1,
            first_key: first,
            key_prefix: self.text("key-prefix").unwrap_or("memtier-").to_owned(),
            key_size: KeySize::Plain,
            pattern: self.pattern()?,
            value_size: self.sizes()?,
            ttl: self.ttl()?,
            verify: self.given.contains_key("data-verify"),
            pace: self.pace(threads * clients)?,
            seconds: seconds.unwrap_or(1e6),
            requests: requests.unwrap_or(0),
            reconnect: self.number("reconnect-interval", 0)?,
            tls: self.tls()?,
            identity: self.text("cert").zip(self.text("key")).map(|(c, k)| (c.into(), k.into())),
            warm_up: 0.0,
            seed: if self.given.contains_key("randomize") {
                u64::from(std::process::id())
            } else {
                1
            },
            ..Spec::default()
        };
        Ok(Invocation {
            spec,
            requests,
            runs: self.number("run-count", 1usize)?.max(1),
            json: self.text("json-out-file").map(PathBuf::from),
            out: self.text("out-file").map(PathBuf::from),
            hides_histogram: self.given.contains_key("hide-histogram"),
            warnings: std::mem::take(&mut self.warnings),
        })
    }

    fn target(&self) -> Result<Target, String> {
        if let Some(path) = self.text("unix-socket") {
            return Ok(Target::Unix(PathBuf::from(path)));
        }
        let host = self.text("server").or_else(|| self.text("host")).unwrap_or("localhost");
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        format!("{host}:{}", self.number("port", 6379u16)?).parse()
    }

    fn protocol(&mut self) -> Result<Protocol, String> {
        match self.text("protocol").unwrap_or("redis") {
            "redis" | "resp2" => Ok(Protocol::Resp),
            "resp3" => {
                self.warnings.push("--protocol resp3 is spoken as resp2".to_owned());
                Ok(Protocol::Resp)
            }
            "memcache_text" => Ok(Protocol::Text),
            "memcache_binary" => Ok(Protocol::Binary),
            other => Err(format!("--protocol: {other:?} is unknown")),
        }
    }

    fn pattern(&mut self) -> Result<Pattern, String> {
        let text = self.text("key-pattern").unwrap_or("R:R").to_owned();
        let (sets, gets) = text.split_once(':').unwrap_or((&text, &text));
        if sets != gets {
            self.warnings.push(format!("--key-pattern {text}: sets go by the gets' pattern, too"));
        }
        match gets {
            "R" => Ok(Pattern::Uniform),
            "S" | "P" => Ok(Pattern::Sequential),
            "G" => Ok(Pattern::Gaussian { deviation: self.number("key-stddev", 0.0)? }),
            "Z" => Ok(Pattern::Zipf { exponent: self.number("key-zipf-exp", 1.0)? }),
            other => Err(format!("--key-pattern: {other:?} is none of R, S, P, G, Z")),
        }
    }

    fn sizes(&self) -> Result<ValueSize, String> {
        let text = self
            .text("data-size-range")
            .or_else(|| self.text("data-size-list"))
            .or_else(|| self.text("data-size"))
            .unwrap_or("32");
        text.parse()
    }

    fn ttl(&mut self) -> Result<u32, String> {
        let Some(text) = self.text("expiry-range").map(str::to_owned) else { return Ok(0) };
        let refused = || format!("--expiry-range: {text:?} is no range of seconds");
        let (least, most) = text.split_once('-').ok_or_else(refused)?;
        let (least, most): (u32, u32) =
            (least.parse().map_err(|_| refused())?, most.parse().map_err(|_| refused())?);
        if least != most {
            self.warnings.push(format!("--expiry-range {text}: everything expires after {most} s"));
        }
        Ok(most)
    }

    fn tls(&self) -> Result<Option<Tls>, String> {
        match (self.given.contains_key("tls"), self.text("cacert")) {
            (false, _) => Ok(None),
            (true, Some(file)) => Ok(Some(Tls::Verified(PathBuf::from(file)))),
            (true, None) if self.given.contains_key("tls-skip-verify") => Ok(Some(Tls::Unverified)),
            (true, None) => Err("--tls needs --cacert or --tls-skip-verify".to_owned()),
        }
    }

    fn pace(&self, connections: usize) -> Result<Pace, String> {
        let each: f64 = self.number("rate-limiting", 0.0)?;
        #[allow(clippy::cast_precision_loss, reason = "connections of a run")]
        let rate = each * connections as f64;
        // A limit there is a rate here, at which requests are due whatever the replies: see docs/bench.md.
        Ok(if rate > 0.0 { Pace::Open { rate, arrival: Arrival::Fixed } } else { Pace::Closed })
    }
}

fn help() -> String {
    let mut text = "\
memtier_benchmark's command line, done by holdall bench.

Usage: holdall bench memtier [FLAG]..    or a link named memtier_benchmark

Flags that do what they do there:
"
    .to_owned();
    for (wanted, head) in
        [(Done, ""), (Warned, "\nAccepted with a warning:\n"), (Refused, "\nRefused:\n")]
    {
        text.push_str(head);
        for (name, short, takes_value, what) in FLAGS {
            if what == wanted {
                let short = short.map(|letter| format!("-{letter}, ")).unwrap_or_default();
                let value = if takes_value { "=VALUE" } else { "" };
                let _ = writeln!(text, "  {short:4}--{name}{value}");
            }
        }
    }
    text.push_str(
        "\nExamples:\n  holdall bench memtier -s 127.0.0.1 -p 11211 -P memcache_text --test-time=10 --json-out-file=m.json\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invocation(line: &str) -> Result<Invocation, String> {
        match parse(line.split_whitespace().map(str::to_owned))? {
            Parsed::Run(run) => Ok(*run),
            Parsed::Print(text) => Err(text),
        }
    }

    #[test]
    fn the_studys_command_line_is_read() {
        let line = "-s 127.0.0.1 -p 11120 --test-time=60 -c 6 -t 2 -P memcache_binary --random-data \
                    --key-minimum=100 --key-maximum=10000";
        let run = invocation(line).unwrap();
        let spec = &run.spec;
        assert_eq!((spec.threads, spec.connections, spec.seconds), (2, 6, 60.0));
        assert_eq!((spec.first_key, spec.keys), (100, 9901));
        assert_eq!((spec.protocol, spec.ratio), (Protocol::Binary, Ratio { sets: 1, gets: 10 }));
        assert_eq!(spec.targets[0].to_string(), "127.0.0.1:11120");
        assert_eq!(run.warnings, ["--random-data changes nothing here"]);
        assert_eq!(run.requests, None);
    }

    #[test]
    fn defaults_are_memtiers() {
        let run = invocation("").unwrap();
        let spec = &run.spec;
        assert_eq!((spec.threads, spec.connections, run.requests), (4, 50, Some(10_000)));
        assert_eq!((spec.protocol, spec.key_prefix.as_str()), (Protocol::Resp, "memtier-"));
        assert_eq!(spec.value_size, ValueSize::Fixed(32));
        let run =
            invocation("--rate-limiting 100 -c2 -t3 --key-pattern=G:G --key-stddev 5").unwrap();
        assert_eq!(run.spec.pace, Pace::Open { rate: 600.0, arrival: Arrival::Fixed });
        assert_eq!(run.spec.pattern, Pattern::Gaussian { deviation: 5.0 });
    }

    #[test]
    fn what_is_unknown_or_cannot_be_done_is_refused() {
        for (line, words) in [
            ("--frobnicate", "unknown flag"),
            ("-Q", "unknown flag"),
            ("extra", "is no flag"),
            ("--threads", "needs a value"),
            ("--threads=x", "is no number"),
            ("--hide-histogram=1", "takes no value"),
            ("--cluster-mode", "cannot be done here"),
            ("--protocol=gopher", "unknown"),
            ("-n 5 --test-time 5", "exclude"),
            ("--key-minimum 5 --key-maximum 4", "out of range"),
        ] {
            let error = invocation(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        assert!(invocation("--help").unwrap_err().contains("memtier_benchmark's command line"));
    }
}
