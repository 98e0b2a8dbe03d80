//! Proxies side by side: their configurations, and the table of their results.

use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::compare::{Outcome, Spread};
use bench::process::{Launch, Running, Server};
use processes::Quota;

/// The name of holdall's proxy.
const HOLDALL: &str = "holdall route";

/// Memory of a server behind the proxies, in MB.
const MEMORY_MB: u32 = 256;

/// Starts a server for the proxies, on the core of the caller.
///
/// # Errors
///
/// When it does not start.
pub fn server(folder: &Path) -> Result<Running> {
    let words = format!(
        "{} serve -l 127.0.0.1 -p {{port}} -m {{memory}} -t 1 -u root",
        folder.join("holdall").display()
    );
    let launch = Launch::Command(words.split(' ').map(str::to_owned).collect());
    Server { name: "server".into(), launch }.start(MEMORY_MB, None)
}

/// Configuration files that list the servers for each proxy; removed on drop.
#[derive(Debug)]
pub struct Configs {
    folder: PathBuf,
}

impl Configs {
    /// Writes the files. Keys have each proxy's usual hash: ketama for twemproxy, Ch3 for ours.
    ///
    /// # Errors
    ///
    /// When the folder for temporary files is not writable.
    pub fn write(servers: &[SocketAddr]) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("holdall-routed-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let quoted: Vec<_> = servers.iter().map(|server| format!("\"{server}\"")).collect();
        let ours = format!(
            r#"{{"pools": {{"A": {{"servers": [{}]}}}}, "route": "PoolRoute|A"}}"#,
            quoted.join(", ")
        );
        fs::write(folder.join("ours.json"), ours)?;
        let mut theirs = "pool:\n  listen: 127.0.0.1:PORT\n  hash: fnv1a_64\n  \
            distribution: ketama\n  timeout: 1000\n  servers:\n"
            .to_owned();
        for server in servers {
            writeln!(theirs, "   - {server}:1")?;
        }
        fs::write(folder.join("theirs.yml"), theirs)?;
        let lua = format!(
            "pools{{ A = {{ backends = {{ {} }} }} }}\nroutes{{ default = route_direct{{ child = \"A\" }} }}\n",
            quoted.join(", ")
        );
        fs::write(folder.join("theirs.lua"), lua)?;
        Ok(Self { folder })
    }

    /// The commands of the proxies, with `workers` workers each. twemproxy has one thread. It is
    /// measured as one process, and as one process per worker, among which the connections are
    /// divided. `memcached` is a build with memcached's own proxy.
    #[must_use]
    pub fn proxies(&self, holdall: &Path, workers: usize, memcached: Option<&Path>) -> Vec<Server> {
        let (folder, holdall) = (self.folder.display(), holdall.join("holdall"));
        let words = |text: String| Launch::Command(text.split(' ').map(str::to_owned).collect());
        let mut all = vec![self.twemproxy(1)];
        if workers > 1 {
            all.push(self.twemproxy(workers));
        }
        if let Some(memcached) = memcached {
            let command = format!(
                "{} -l 127.0.0.1 -p {{port}} -U 0 -t {workers} -u root -o \
                 proxy_config=routelib,proxy_arg={folder}/theirs.lua",
                memcached.display()
            );
            all.push(Server { name: "memcached's proxy".into(), launch: words(command) });
        }
        let ours = format!(
            "{} route -f {folder}/ours.json -p {{port}} --num-proxies {workers} --asynclog-disable",
            holdall.display()
        );
        all.push(Server { name: HOLDALL.into(), launch: words(ours) });
        all
    }

    /// This number of twemproxy processes, each on its own port, which is in its file. All but the
    /// first are children of the first, and end with it.
    fn twemproxy(&self, processes: usize) -> Server {
        let folder = self.folder.display();
        let run = |number: usize| {
            let port = if number == 0 { "{port}".to_owned() } else { format!("{{port+{number}}}") };
            format!(
                "sed s/PORT/{port}/ {folder}/theirs.yml > {folder}/{port}.yml; {} nutcracker -c {folder}/{port}.yml -o /dev/null -s $(({port} - 10000))",
                if number == 0 { "exec" } else { "setpriv --pdeathsig KILL" }
            )
        };
        let script: Vec<String> = (0..processes).rev().map(run).collect();
        let name = if processes == 1 {
            "twemproxy".to_owned()
        } else {
            format!("{processes} x twemproxy")
        };
        let words = ["sh".to_owned(), "-c".to_owned(), script.join(" & ")];
        Server { name, launch: Launch::Command(words.to_vec()) }
    }
}

impl Drop for Configs {
    fn drop(&mut self) {
        // Temporary files may stay.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The proxy with its children, limited to this share of a processor.
#[must_use]
pub fn within(quota: &Quota, proxy: &Server) -> Server {
    let Launch::Command(words) = &proxy.launch else { return proxy.clone() };
    let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", quota.folder().display());
    let shell = ["sh", "-c", &enter, "sh"].map(str::to_owned);
    let words = shell.into_iter().chain(words.iter().cloned()).collect();
    Server { name: proxy.name.clone(), launch: Launch::Command(words) }
}

/// The table: medians of the rounds, and for each round the rate and CPU divided by the best of
/// another proxy in that round.
#[must_use]
pub fn markdown(outcomes: &[Outcome]) -> String {
    let mut table =
        "| work | proxy | thousand/s | CPU us | p50 us | p99 us | rate to best other | \
        CPU to best other |\n| --- | --- | ---: | ---: | ---: | ---: | --- | --- |\n"
            .to_owned();
    for outcome in outcomes {
        for (name, rounds) in &outcome.servers {
            let median = |values: &mut dyn Iterator<Item = f64>| {
                Spread::of(values).map_or(f64::NAN, |spread| spread.median)
            };
            let rate = median(&mut rounds.iter().map(|round| round.rate / 1e3));
            let cpu = median(&mut rounds.iter().filter_map(|round| round.cpu_us));
            let quantile = |quantile| {
                median(
                    &mut rounds
                        .iter()
                        .map(|round| (round.latency.value_at_quantile(quantile) / 1000) as f64),
                )
            };
            let ratio = |spread: Option<Spread>| match spread {
                Some(Spread { median, min, max }) if name == HOLDALL => {
                    format!("{median:.2} ({min:.2}-{max:.2})")
                }
                _ => "-".to_owned(),
            };
            let others = || outcome.servers.iter().filter(|(other, _)| other != name);
            let best_rate = |index: usize| {
                others()
                    .filter_map(|(_, rounds)| rounds.get(index))
                    .map(|round| round.rate)
                    .max_by(f64::total_cmp)
            };
            let least_cpu = |index: usize| {
                others().filter_map(|(_, rounds)| rounds.get(index)?.cpu_us).min_by(f64::total_cmp)
            };
            let rounds = || rounds.iter().enumerate();
            let rates = ratio(Spread::of(
                rounds().filter_map(|(index, round)| Some(round.rate / best_rate(index)?)),
            ));
            let cpus = ratio(Spread::of(
                rounds().filter_map(|(index, round)| Some(round.cpu_us? / least_cpu(index)?)),
            ));
            // Writing to a string cannot fail.
            let _ = writeln!(
                table,
                "| {} | {name} | {rate:.1} | {cpu:.3} | {:.0} | {:.0} | {rates} | {cpus} |",
                outcome.workload.kind,
                quantile(0.5),
                quantile(0.99)
            );
        }
    }
    table
}
