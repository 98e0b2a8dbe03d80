//! The experiments of published studies as lists of command lines, so that a reader can see and
//! repeat each step.
//!
//! * `pavlik`: "Memcached vs Redis: Benchmarking In-memory Object Caches", figures 1 to 7.
//!   Connections, server threads, processes, pinning, `-R`.
//! * `intel-guide`: Intel's *Configuration and Deployment Guide For Memcached*, section 5.
//!   Random-key and hot-key maxima under p99.5 <= 1 ms, 0.8/0.2, per watt.
//! * `baglru`: Wiggins and Langston, *Enhancing the Scalability of Memcached*, sections 4 and 5.
//!   Most gets under a mean of 1 ms by threads; round trips by rate.
//!
//! Differences from the sources: generator and servers share this machine, so there is no network
//! between them and they take processors from each other; and where the papers have several
//! generator hosts, `run --agents` must be used manually.

use std::fmt;

use clap::ValueEnum;

use crate::hitrate::servers::Contender;
use generator::spec::Protocol;

/// The experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Study {
    /// Throughput and latency by connections, threads, processes, pinning and group size.
    Pavlik,
    /// The deployment guide's score.
    IntelGuide,
    /// The most gets under a mean of 1 ms, by server threads.
    Baglru,
}

/// One command line of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The words after `holdall bench`; `{server}` is the running server's address.
    pub words: Vec<String>,
    /// The server to start first, and its threads; `None` if the step starts its own.
    pub server: Option<(usize, usize)>,
    /// Name of the result's file, without its extension.
    pub name: String,
}

/// The size of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// Seconds per measurement.
    pub seconds: f64,
    /// Measurements per point.
    pub repeats: usize,
    /// Width of a search's answer, in percent.
    pub precision: f64,
    /// Connections per generator thread.
    pub connections: Vec<usize>,
    /// Server threads.
    pub threads: Vec<usize>,
    /// Group sizes (`-R`).
    pub groups: Vec<usize>,
    /// Requests per second of an open loop.
    pub rates: Vec<usize>,
    /// Keys of the baglru study, which has a million.
    pub keys: u64,
    /// The guide's bound and the paper's.
    pub bounds: (String, String),
    /// The maximum rate of a search, in requests per second.
    pub limit: f64,
    /// Server threads where they are not varied.
    pub usual_threads: usize,
}

impl Size {
    /// As large as the sources, for a machine with `cpus` processors.
    #[must_use]
    pub fn whole(cpus: usize) -> Self {
        let threads = (1..=cpus).chain([cpus * 2, cpus * 4]);
        Self {
            seconds: 10.0,
            repeats: 3,
            precision: 3.0,
            connections: vec![1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256],
            threads: threads.collect(),
            groups: vec![1, 2, 5, 10, 20, 50, 100, 200],
            rates: (1..=12).map(|step| step * 10_000 * cpus).collect(),
            keys: 1_000_000,
            bounds: ("p99.5<=1ms".to_owned(), "mean<=1ms".to_owned()),
            limit: 1e8,
            usual_threads: cpus,
        }
    }

    /// For CI: every step once, and short.
    #[must_use]
    pub fn quick(cpus: usize) -> Self {
        Self {
            seconds: 0.2,
            repeats: 1,
            precision: 60.0,
            connections: vec![1, 4, 16, 64],
            threads: vec![1, 2],
            groups: vec![1, 20],
            rates: vec![1_000, 4_000],
            keys: 1_000,
            // Whatever else the machine does, some point holds.
            bounds: ("p99.5<=30s".to_owned(), "mean<=30s".to_owned()),
            limit: 8_000.0,
            usual_threads: cpus.min(2),
        }
    }
}

impl Study {
    /// Its command lines for these servers.
    #[must_use]
    pub fn steps(self, servers: &[Contender], size: &Size) -> Vec<Step> {
        let each = servers.iter().enumerate();
        match self {
            Self::Pavlik => servers.iter().flat_map(|server| pavlik(server, size)).collect(),
            Self::IntelGuide => {
                each.map(|(index, server)| intel_guide(index, server, size)).collect()
            }
            Self::Baglru => each.flat_map(|(index, server)| baglru(index, server, size)).collect(),
        }
    }

    /// Its source, as named in a report.
    #[must_use]
    pub fn source(self) -> &'static str {
        match self {
            Self::Pavlik => {
                "Memcached vs Redis: Benchmarking In-memory Object Caches, figures 1 to 7"
            }
            Self::IntelGuide => {
                "Intel, Configuration and Deployment Guide For Memcached, section 5 and appendix B"
            }
            Self::Baglru => {
                "Wiggins and Langston, Enhancing the Scalability of Memcached, sections 4 and 5"
            }
        }
    }
}

impl fmt::Display for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pavlik => "pavlik",
            Self::IntelGuide => "intel-guide",
            Self::Baglru => "baglru",
        })
    }
}

fn list(numbers: &[usize]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn words(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

/// A sweep that starts its own servers: 9,901 keys as in the study, a tenth of the requests sets.
fn sweep(server: &Contender, size: &Size, over: &str, points: &str, more: &[&str]) -> Step {
    let repeats = size.repeats.to_string();
    let protocol = server.protocol.to_string();
    // Processes replace threads.
    let threads = if over == "processes" { 1 } else { size.usual_threads };
    let (seconds, threads) = (size.seconds.to_string(), threads.to_string());
    let common = ["sweep", over, points, "-p", &protocol, "--time", &seconds, "--preload"];
    let common = [&common[..], &["--repeats", &repeats]].concat();
    let load = ["--keys", "9901", "--value-size", "32", "--server-threads", &threads];
    let mut all = words(&[&common[..], &load, more].concat());
    all.push("--start".to_owned());
    all.push(command(server));
    Step { words: all, server: None, name: format!("{}-{over}", server.server.name) }
}

/// The server's command for `--start`, with its words separated by spaces.
fn command(server: &Contender) -> String {
    let words = server.server.words().iter();
    words
        .map(|word| if word.is_empty() { "\"\"" } else { word.as_str() })
        .collect::<Vec<_>>()
        .join(" ")
}

fn pavlik(server: &Contender, size: &Size) -> Vec<Step> {
    let mut steps = vec![
        sweep(server, size, "connections", &list(&size.connections), &[]),
        sweep(server, size, "threads", &list(&size.threads), &["-c", "42"]),
        sweep(server, size, "processes", &list(&size.threads), &["-c", "42"]),
        Step {
            name: format!("{}-pinned", server.server.name),
            ..sweep(server, size, "connections", &list(&size.connections), &["--pin-servers"])
        },
    ];
    if server.server.words().iter().any(|word| word == "{group}") {
        let more = ["-c", "42", "--pipeline", "64"];
        steps.push(sweep(server, size, "group", &list(&size.groups), &more));
    }
    steps
}

fn search(server: &Contender, size: &Size, what: &str, sla: &str, keys: u64) -> Vec<String> {
    let (seconds, repeats) = (size.seconds.to_string(), size.repeats.to_string());
    let (precision, keys) = (size.precision.to_string(), keys.to_string());
    let limit = size.limit.to_string();
    words(&[
        what,
        "-s",
        "{server}",
        "-p",
        &server.protocol.to_string(),
        "--preload",
        "--keys",
        &keys,
        "--value-size",
        "64",
        "--ratio",
        "0:1",
        "--sla",
        sla,
        "--time",
        &seconds,
        "--repeats",
        &repeats,
        "--precision",
        &precision,
        "--from",
        "4000",
        "--to",
        &limit,
    ])
}

fn intel_guide(index: usize, server: &Contender, size: &Size) -> Step {
    Step {
        words: search(server, size, "score", &size.bounds.0, size.keys.min(100_000)),
        server: Some((index, size.usual_threads)),
        name: server.server.name.clone(),
    }
}

fn baglru(index: usize, server: &Contender, size: &Size) -> Vec<Step> {
    let mut steps: Vec<Step> = size
        .threads
        .iter()
        .map(|threads| Step {
            words: search(server, size, "search", &size.bounds.1, size.keys),
            server: Some((index, *threads)),
            name: format!("{}-{threads}-threads", server.server.name),
        })
        .collect();
    // Figure 13: round trips at increasing rates.
    let (seconds, keys) = (size.seconds.to_string(), size.keys.to_string());
    steps.push(Step {
        words: words(&[
            "sweep",
            "rate",
            &list(&size.rates),
            "-s",
            "{server}",
            "-p",
            &Protocol::to_string(&server.protocol),
            "--preload",
            "--ratio",
            "0:1",
            "--value-size",
            "64",
            "--keys",
            &keys,
            "--time",
            &seconds,
        ]),
        server: Some((index, size.usual_threads)),
        name: format!("{}-rate", server.server.name),
    });
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hitrate::servers;
    use crate::process;

    #[test]
    fn a_sweep_starts_the_command_of_its_server() {
        // A Redis with any save rule writes a file into its folder when it is ended.
        let all = ["redis-server", "--save", "", "--maxmemory", "64mb"].map(str::to_owned).to_vec();
        let launch = process::Launch::Command(all.clone());
        let server = process::Server { name: "redis".into(), launch };
        let contender = Contender { server, protocol: Protocol::Resp };
        assert_eq!(process::words(&command(&contender)), all);
    }

    #[test]
    fn studies_have_uniquely_named_steps_for_every_server() {
        let servers = servers::find(None, "/nowhere/holdall".as_ref(), 2).unwrap();
        for study in [Study::Pavlik, Study::IntelGuide, Study::Baglru] {
            for size in [Size::quick(2), Size::whole(12)] {
                let steps = study.steps(&servers, &size);
                for server in &servers {
                    let own =
                        steps.iter().filter(|step| step.name.starts_with(&server.server.name));
                    assert!(own.count() > 0, "{study}: {}", server.server.name);
                }
                let mut names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), steps.len(), "{study}");
            }
        }
    }
}
