//! Proxies side by side: their configurations, and the table of what they did.

use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::compare::{Outcome, Spread};
use crate::process::{Launch, Running, Server};

/// The proxy that ours is compared with.
const TWEMPROXY: &str = "twemproxy";

/// The name of ours.
const HOLDALL: &str = "holdall route";

/// Memory of a server behind the proxies, in MB.
const MEMORY_MB: u32 = 256;

/// A server for behind the proxies, on whatever core the caller runs.
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

/// Files that tell each proxy of the servers; removed when dropped.
#[derive(Debug)]
pub struct Configs {
    folder: PathBuf,
}

impl Configs {
    /// Writes them. Each proxy places keys by its usual hash: twemproxy by ketama, ours by Ch3.
    ///
    /// # Errors
    ///
    /// When the folder for temporary files takes none.
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
        Ok(Self { folder })
    }

    /// How the proxies are started, with one worker each. twemproxy reads its port from its file.
    #[must_use]
    pub fn proxies(&self, holdall: &Path) -> Vec<Server> {
        let (folder, holdall) = (self.folder.display(), holdall.join("holdall"));
        let theirs = format!(
            "sed s/PORT/{{port}}/ {folder}/theirs.yml > {folder}/{{port}}.yml && \
             exec nutcracker -c {folder}/{{port}}.yml -o /dev/null -s $(({{port}} - 10000))"
        );
        let ours = format!("{} route -f {folder}/ours.json -p {{port}}", holdall.display());
        let shell = vec!["sh".to_owned(), "-c".to_owned(), theirs];
        let words = ours.split(' ').map(str::to_owned).collect();
        vec![
            Server { name: TWEMPROXY.into(), launch: Launch::Command(shell) },
            Server { name: HOLDALL.into(), launch: Launch::Command(words) },
        ]
    }
}

impl Drop for Configs {
    fn drop(&mut self) {
        // Files for temporary use are no loss.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The table: medians of the rounds, and ours divided by theirs, round by round.
#[must_use]
pub fn markdown(outcomes: &[Outcome]) -> String {
    let mut table = "| work | proxy | thousand/s | CPU us | p50 us | p99 us | rate to twemproxy | \
        CPU to twemproxy |\n| --- | --- | ---: | ---: | ---: | ---: | --- | --- |\n"
        .to_owned();
    for outcome in outcomes {
        for (name, rounds) in &outcome.servers {
            let median = |values: &mut dyn Iterator<Item = f64>| {
                Spread::of(values).map_or(f64::NAN, |spread| spread.median)
            };
            let rate = median(&mut rounds.iter().map(|round| round.rate / 1e3));
            let cpu = median(&mut rounds.iter().filter_map(|round| round.cpu_us));
            let quantile = |quantile| {
                median(&mut rounds.iter().map(|round| {
                    let ns = round.latency.value_at_quantile(quantile);
                    f64::from(u32::try_from(ns / 1000).unwrap_or(u32::MAX))
                }))
            };
            let ratio = |spread: Option<Spread>| match spread {
                Some(Spread { median, min, max }) if name == HOLDALL => {
                    format!("{median:.2} ({min:.2}-{max:.2})")
                }
                _ => "-".to_owned(),
            };
            let rates = ratio(outcome.ratio(name, TWEMPROXY, |round| Some(round.rate)));
            let cpus = ratio(outcome.ratio(name, TWEMPROXY, |round| round.cpu_us));
            // Writing into a string does not fail.
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
