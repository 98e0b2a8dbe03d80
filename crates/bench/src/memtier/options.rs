//! Translates memtier_benchmark's flags into a load of this generator.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::flags::{Gathered, gather, help};
use super::{FlagError, Invocation, Parsed, Program};
use generator::bounds::{COUNT_MAX, KEYS_MAX, RATES, SECONDS_MAX};
use generator::keys::Pattern;
use generator::sizes::{KeySize, ValueSize};
use generator::spec::{Arrival, Credentials, Pace, Protocol, Ratio, Spec, Target, Tls};

/// Parses memtier_benchmark's command line, without the program's name.
///
/// # Errors
///
/// The unknown, wrong, or unsupported part, in one sentence.
pub fn parse(words: impl Iterator<Item = String>) -> Result<Parsed, FlagError> {
    let gathered = gather(words)?;
    if gathered.given.contains_key("help") {
        return Ok(Parsed::Print(help()));
    }
    if gathered.given.contains_key("version") {
        return Ok(Parsed::Print(concat!("holdall ", env!("CARGO_PKG_VERSION"), "\n").to_owned()));
    }
    gathered.invocation().map(|run| Parsed::Run(Box::new(run)))
}

impl Gathered {
    fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    fn number<N: std::str::FromStr>(&self, name: &str, default: N) -> Result<N, FlagError> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => {
                text.parse().map_err(|_| FlagError::value(&format!("--{name}"), text, "a number"))
            }
        }
    }

    /// A number within bounds that `form` describes.
    fn within<N: std::str::FromStr + PartialOrd>(
        &self,
        name: &str,
        default: N,
        bounds: RangeInclusive<N>,
        form: &'static str,
    ) -> Result<N, FlagError> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(number) if bounds.contains(&number) => Ok(number),
                _ => Err(FlagError::value(&format!("--{name}"), text, form)),
            },
        }
    }

    fn count(&self, name: &str, default: usize) -> Result<usize, FlagError> {
        self.within(name, default, 1..=COUNT_MAX, "a number from 1 to 100000")
    }

    fn invocation(mut self) -> Result<Invocation, FlagError> {
        self.take_uri()?;
        let threads: usize = self.number("threads", 4)?;
        let clients: usize = self.number("clients", 50)?;
        let (first, last) =
            (self.number("key-minimum", 0u64)?, self.number("key-maximum", 10_000_000u64)?);
        if !(1..=10_000).contains(&threads)
            || !(1..=COUNT_MAX).contains(&clients)
            || first > last
            || last - first >= KEYS_MAX
        {
            return Err(FlagError::Misused(
                "--threads, --clients or the range of keys is out of range",
            ));
        }
        let ratio = self.text("ratio").unwrap_or("1:10").parse::<Ratio>()?;
        let letter = self.pattern_letter(ratio);
        let (seconds, requests) = self.run_length(last - first + 1, threads * clients, &letter)?;
        let protocol = self.protocol()?;
        let spec = Spec {
            targets: vec![self.target()?],
            protocol,
            threads,
            connections: clients,
            pipeline: self.count("pipeline", 1)?,
            multiget: self.count("multi-key-get", 1)?,
            ratio,
            ratio_in_turn: true,
            keys: last - first + 1,
            first_key: first,
            key_prefix: self.text("key-prefix").unwrap_or("memtier-").to_owned(),
            key_size: KeySize::Plain,
            pattern: self.pattern(&letter)?,
            value_size: self.sizes()?,
            ttl: self.ttl()?,
            verify: self.has("data-verify"),
            pace: self.pace(threads * clients)?,
            seconds: seconds.unwrap_or(SECONDS_MAX),
            requests: requests.unwrap_or(0),
            reconnect: self.number("reconnect-interval", 0)?,
            tls: self.tls()?,
            tls_name: self.text("sni").map(str::to_owned),
            identity: self.identity()?,
            credentials: self.credentials(protocol)?,
            warm_up: 0.0,
            seed: if self.has("randomize") { u64::from(std::process::id()) } else { 1 },
            ..Spec::default()
        };
        spec.check()?;
        Ok(Invocation {
            spec,
            requests,
            runs: self.number("run-count", 1usize)?.max(1),
            json: self.text("json-out-file").map(PathBuf::from),
            hdr_files: self.text("hdr-file-prefix").map(PathBuf::from),
            out: self.text("out-file").map(PathBuf::from),
            program: Program::Memtier,
            all_runs: self.has("print-all-runs"),
            hides_histogram: self.has("hide-histogram"),
            percentiles: self.percentiles()?,
            misses_max: self.misses_max()?,
            warnings: std::mem::take(&mut self.warnings),
        })
    }

    /// Seconds, or requests per connection.
    fn run_length(
        &self,
        keys: u64,
        conns: usize,
        pattern: &str,
    ) -> Result<(Option<f64>, Option<u64>), FlagError> {
        if self.has("test-time") {
            if self.has("requests") {
                return Err(FlagError::Misused("--requests and --test-time exclude each other"));
            }
            let form = "a number of seconds from 0.001 to 1000000";
            return Ok((Some(self.within("test-time", 0.0, 1e-3..=SECONDS_MAX, form)?), None));
        }
        if self.text("requests") != Some("allkeys") {
            let form = "a number of requests from 1 on";
            return Ok((None, Some(self.within("requests", 10_000, 1..=u64::MAX, form)?)));
        }
        // Per connection, except for the pattern that divides the keys among them.
        Ok((None, Some(if pattern == "P" { keys.div_ceil(conns as u64) } else { keys })))
    }

    /// `redis[s]://[[USER:]PASSWORD@]HOST[:PORT]` replaces four other flags, and overrides them.
    fn take_uri(&mut self) -> Result<(), FlagError> {
        let Some(uri) = self.text("uri").map(str::to_owned) else { return Ok(()) };
        // The wrong text is not repeated, because it may contain a password.
        let (scheme, rest) =
            uri.split_once("://").ok_or(FlagError::Misused("--uri: there is no scheme"))?;
        match scheme {
            "redis" => {}
            "rediss" => drop(self.given.insert("tls", String::new())),
            _ => return Err(FlagError::Misused("--uri: its scheme is neither redis nor rediss")),
        }
        let (login, place) = rest.rsplit_once('@').map_or((None, rest), |(l, p)| (Some(l), p));
        let (place, database) = place.split_once('/').unwrap_or((place, ""));
        if !matches!(database, "" | "0") {
            return Err(FlagError::Misused("--uri: another database than 0 cannot be done here"));
        }
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (place, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if !host.is_empty() {
            self.given.insert("server", host.to_owned());
        }
        if let Some(port) = port {
            self.given.insert("port", port.to_owned());
        }
        if let Some(login) = login {
            self.given.insert("authenticate", login.to_owned());
        }
        Ok(())
    }

    fn target(&self) -> Result<Target, FlagError> {
        if let Some(path) = self.text("unix-socket") {
            return Ok(Target::Unix(PathBuf::from(path)));
        }
        let host = self.text("server").or_else(|| self.text("host")).unwrap_or("localhost");
        let port = self.number("port", 6379u16)?;
        let (four, six) = (self.has("ipv4"), self.has("ipv6"));
        let is_wanted = |address: &SocketAddr| match (four, six) {
            (true, false) => address.is_ipv4(),
            (false, true) => address.is_ipv6(),
            _ => true,
        };
        let mut found = (host, port)
            .to_socket_addrs()
            .map_err(|error| FlagError::Lookup { host: host.to_owned(), error })?;
        let address = found.find(is_wanted);
        let address = address.ok_or_else(|| FlagError::NoAddress(host.to_owned()))?;
        let name = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Ok(Target::Tcp(format!("{name}:{port}"), address))
    }

    /// A password, or `USER:PASSWORD`; memcached's servers require both.
    fn credentials(&self, protocol: Protocol) -> Result<Option<Credentials>, FlagError> {
        let Some(text) = self.text("authenticate") else { return Ok(None) };
        let needs_user = protocol != Protocol::Resp;
        if needs_user && text.split_once(':').is_none_or(|(user, _)| user.is_empty()) {
            return Err(FlagError::Misused(
                "--authenticate: memcached's servers want USER:PASSWORD",
            ));
        }
        Ok(Some(Credentials(text.to_owned())))
    }

    fn identity(&self) -> Result<Option<(PathBuf, PathBuf)>, FlagError> {
        match (self.text("cert"), self.text("key")) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) if self.has("tls") => Ok(Some((cert.into(), key.into()))),
            (Some(_), Some(_)) => {
                Err(FlagError::Misused("--cert and --key are shown in TLS: --tls"))
            }
            _ => Err(FlagError::Misused("--cert and --key go together")),
        }
    }

    fn misses_max(&self) -> Result<Option<f64>, FlagError> {
        const NAME: &str = "miss-rate-threshold";
        let Some(text) = self.text(NAME) else { return Ok(None) };
        match text.parse() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Some(percent)),
            _ => Err(FlagError::value(&format!("--{NAME}"), text, "a percentage")),
        }
    }

    fn percentiles(&self) -> Result<Vec<f64>, FlagError> {
        let parse = |text: &str| match text.trim().parse::<f64>() {
            Ok(percentile) if (0.0..=100.0).contains(&percentile) => Ok(percentile),
            _ => Err(FlagError::value("--print-percentiles", text, "a percentile")),
        };
        self.text("print-percentiles").unwrap_or("50,99,99.9").split(',').map(parse).collect()
    }

    fn protocol(&mut self) -> Result<Protocol, FlagError> {
        match self.text("protocol").unwrap_or("redis") {
            "redis" | "resp2" => Ok(Protocol::Resp),
            "resp3" => {
                self.warnings.push("--protocol resp3 is spoken as resp2".to_owned());
                Ok(Protocol::Resp)
            }
            "memcache_text" => Ok(Protocol::Text),
            "memcache_binary" => Ok(Protocol::Binary),
            other => Err(FlagError::value("--protocol", other, "a protocol")),
        }
    }

    /// The pattern of all keys: that of gets, or of sets if there are no gets.
    fn pattern_letter(&mut self, ratio: Ratio) -> String {
        let text = self.text("key-pattern").unwrap_or("R:R").to_owned();
        let (sets, gets) = text.split_once(':').unwrap_or((&text, &text));
        if ratio.gets == 0 {
            return sets.to_owned();
        }
        if sets != gets && ratio.sets > 0 {
            self.warnings.push(format!("--key-pattern {text}: sets go by the gets' pattern, too"));
        }
        gets.to_owned()
    }

    fn pattern(&self, letter: &str) -> Result<Pattern, FlagError> {
        let with = |name: &str, flag: &str, default: &str| {
            Ok(format!("{name}:{}", self.text(flag).unwrap_or(default)).parse()?)
        };
        match letter {
            "R" => Ok(Pattern::Uniform),
            "S" | "P" => Ok(Pattern::Sequential),
            "G" => with("gaussian", "key-stddev", "0"),
            "Z" => with("zipf", "key-zipf-exp", "1"),
            other => Err(FlagError::value("--key-pattern", other, "one of R, S, P, G, Z")),
        }
    }

    fn sizes(&self) -> Result<ValueSize, FlagError> {
        let text = self
            .text("data-size-range")
            .or_else(|| self.text("data-size-list"))
            .or_else(|| self.text("data-size"))
            .unwrap_or("32");
        Ok(text.parse()?)
    }

    fn ttl(&mut self) -> Result<u32, FlagError> {
        let Some(text) = self.text("expiry-range").map(str::to_owned) else { return Ok(0) };
        let refused = || FlagError::value("--expiry-range", &text, "a range of seconds");
        let (least, most) = text.split_once('-').ok_or_else(refused)?;
        let (least, most): (u32, u32) =
            (least.parse().map_err(|_| refused())?, most.parse().map_err(|_| refused())?);
        if least != most {
            self.warnings.push(format!("--expiry-range {text}: everything expires after {most} s"));
        }
        Ok(most)
    }

    fn tls(&self) -> Result<Option<Tls>, FlagError> {
        if !self.has("tls") {
            let is_meant = ["cacert", "sni", "tls-skip-verify"].iter().any(|name| self.has(name));
            return if is_meant {
                Err(FlagError::Misused("--cacert, --sni and --tls-skip-verify are for --tls"))
            } else {
                Ok(None)
            };
        }
        match self.text("cacert") {
            _ if self.has("tls-skip-verify") => Ok(Some(Tls::Unverified)),
            Some(file) => Ok(Some(Tls::Verified(PathBuf::from(file)))),
            None => Err(FlagError::Misused("--tls needs --cacert or --tls-skip-verify")),
        }
    }

    fn pace(&self, connections: usize) -> Result<Pace, FlagError> {
        let Some(text) = self.text("rate-limiting") else { return Ok(Pace::Closed) };
        #[allow(clippy::cast_precision_loss, reason = "connections of a run")]
        let rate = text.parse::<f64>().unwrap_or(f64::NAN) * connections as f64;
        if !RATES.contains(&rate) {
            let form = "a number of requests per second, of all connections from 0.1 to 1e9";
            return Err(FlagError::value("--rate-limiting", text, form));
        }
        // A limit there is a rate here, at which requests are due independent of the replies: see
        // docs/bench.md.
        Ok(Pace::Open { rate, arrival: Arrival::Fixed })
    }
}
