//! The cache servers running on the host.

use crate::cpus;
use crate::host::Host;
use crate::settings::{Settings, Unknown};
use crate::words::Words;

/// A running server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub pid: u32,
    /// `holdall` or `memcached`.
    pub name: String,
    pub settings: Settings,
    /// The part missing in `settings`.
    pub unknown: Option<Unknown>,
    words: Words,
}

impl Server {
    /// The servers, by process id.
    pub(crate) fn all(host: &Host) -> Vec<Self> {
        let pids = host.names("/proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
        let mut servers: Vec<Self> = pids.filter_map(|pid| Self::of(host, pid)).collect();
        servers.sort_by_key(|server| server.pid);
        servers
    }

    fn of(host: &Host, pid: u32) -> Option<Self> {
        let line = host.text(&format!("/proc/{pid}/cmdline"))?;
        let mut words = line.split('\0').filter(|word| !word.is_empty()).map(str::to_owned);
        let program = words.next()?;
        let name = program.rsplit('/').next().unwrap_or(&program).to_owned();
        let (settings, unknown, words) = match name.as_str() {
            "holdall" if words.next().as_deref() == Some("serve") => {
                let words = Words(words.collect());
                let cpus = cpus_of(host, pid).len();
                let (settings, unknown) = Settings::of_process(host, pid, &words, cpus);
                (settings, unknown, words)
            }
            "memcached" => {
                let words = Words(words.collect());
                (Settings::of_words(&words, true), None, words)
            }
            _ => return None,
        };
        Some(Self { pid, name, settings, unknown, words })
    }

    /// Maximum resident bytes: the promise of docs/promises.md.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.settings.memory_bytes / 100 * 103 + (16 << 20)
    }

    /// Its workers: the running ones, or `-t` if the threads have other names.
    pub(crate) fn threads(&self, host: &Host) -> u64 {
        let tasks = format!("/proc/{}/task", self.pid);
        let is_worker = |task: &String| {
            let name = host.text(&format!("{tasks}/{task}/comm")).unwrap_or_default();
            name.starts_with("worker-") || name == "mc-worker"
        };
        let running = host.names(&tasks).iter().filter(|task| is_worker(task)).count() as u64;
        if running > 0 { running } else { self.settings.threads }
    }

    /// The CPUs that it may use.
    pub(crate) fn cpus(&self, host: &Host) -> Vec<u32> {
        cpus_of(host, self.pid)
    }

    /// `/proc/PID/status`.
    pub(crate) fn status(&self, host: &Host) -> String {
        status_of(host, self.pid)
    }

    /// `holdall (pid 17)`.
    pub(crate) fn shown(&self) -> String {
        format!("{} (pid {})", self.name, self.pid)
    }

    /// The command line for a report, and the other settings, without names of files that hold keys
    /// or users.
    pub(crate) fn line(&self) -> String {
        let mut shown = vec![self.name.clone()];
        shown.extend((self.name == "holdall").then(|| "serve".to_owned()));
        shown.extend(self.words.shown());
        let line = shown.join(" ");
        if self.settings.beside_line.is_empty() {
            return line;
        }
        format!("{line}; from its file or environment: {}", self.settings.beside_line.join(" "))
    }
}

fn status_of(host: &Host, pid: u32) -> String {
    host.text(&format!("/proc/{pid}/status")).unwrap_or_default()
}

fn cpus_of(host: &Host, pid: u32) -> Vec<u32> {
    let status = status_of(host, pid);
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    allowed.map_or_else(Vec::new, cpus::list)
}
