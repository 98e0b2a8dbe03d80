//! The cache servers that run on the host, by their command lines.

use crate::cpus;
use crate::host::Host;

/// Memcached's defaults, which are ours.
const MEMORY_MB: u64 = 64;
const CONNECTIONS: u64 = 1024;
const THREADS: u64 = 4;

/// A running server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub pid: u32,
    /// `holdall` or `memcached`.
    pub name: String,
    words: Vec<String>,
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
        let words: Vec<String> =
            line.split('\0').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let program = words.first()?;
        let name = program.rsplit('/').next().unwrap_or(program).to_owned();
        let words = with_file(host, words);
        let serves = match name.as_str() {
            "holdall" => words.get(1).is_some_and(|command| command == "serve"),
            "memcached" => true,
            _ => false,
        };
        serves.then_some(Self { pid, name, words })
    }

    /// The last value of a flag.
    pub(crate) fn flag(&self, short: char, long: &str) -> Option<&str> {
        self.flags(short, long).pop()
    }

    /// Every value of a flag: `-m 64`, `-m64`, `--memory-limit=64`, `--memory-limit 64`.
    fn flags(&self, short: char, long: &str) -> Vec<&str> {
        let mut words = self.words.iter().map(String::as_str).skip(1);
        let mut found = Vec::new();
        while let Some(word) = words.next() {
            if let Some(rest) = word.strip_prefix("--") {
                match rest.split_once('=') {
                    Some((name, value)) if name == long => found.push(value),
                    None if rest == long => found.extend(words.next()),
                    _ => {}
                }
            } else if let Some(rest) = word.strip_prefix('-').and_then(|w| w.strip_prefix(short)) {
                if rest.is_empty() {
                    found.extend(words.next());
                } else {
                    found.push(rest);
                }
            }
        }
        found
    }

    /// True if a flag without a value is there, alone or among others (`-vSZ`).
    pub(crate) fn has(&self, short: char, long: &str) -> bool {
        self.words.iter().skip(1).any(|word| match word.strip_prefix("--") {
            Some(name) => name == long,
            None => word.strip_prefix('-').is_some_and(|flags| {
                flags.chars().all(|flag| flag.is_ascii_alphabetic()) && flags.contains(short)
            }),
        })
    }

    /// The value of a word of `-o`, in whichever of several lists.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        let parts = self.words.iter().flat_map(|word| word.split(','));
        parts
            .rev()
            .find_map(|part| part.trim_start_matches("-o").strip_prefix(name)?.strip_prefix('='))
    }

    /// `-m` in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let text = self.flag('m', "memory-limit").unwrap_or_default();
        let (digits, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
        let shift = match unit {
            "g" | "G" => 30,
            "t" | "T" => 40,
            "k" | "K" => 10,
            _ => 20,
        };
        digits.parse::<u64>().unwrap_or(MEMORY_MB).saturating_mul(1 << shift)
    }

    /// Bytes that may be resident: the promise of docs/promises.md.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.memory_bytes() / 100 * 103 + (16 << 20)
    }

    /// Its workers: those that run, or `-t` where the threads have other names.
    pub(crate) fn threads(&self, host: &Host) -> u64 {
        let tasks = format!("/proc/{}/task", self.pid);
        let is_worker = |task: &String| {
            let name = host.text(&format!("{tasks}/{task}/comm")).unwrap_or_default();
            name.starts_with("worker-") || name == "mc-worker"
        };
        let running = host.names(&tasks).iter().filter(|task| is_worker(task)).count() as u64;
        let flag = || self.flag('t', "threads").and_then(|text| text.parse().ok());
        if running > 0 { running } else { flag().unwrap_or(THREADS) }
    }

    /// `-c`.
    pub(crate) fn connections(&self) -> u64 {
        self.flag('c', "conn-limit").and_then(|text| text.parse().ok()).unwrap_or(CONNECTIONS)
    }

    /// `-b`.
    pub(crate) fn backlog(&self) -> u64 {
        self.flag('b', "listen-backlog").and_then(|text| text.parse().ok()).unwrap_or(1024)
    }

    /// `-p`.
    pub(crate) fn port(&self) -> u64 {
        self.flag('p', "port").and_then(|text| text.parse().ok()).unwrap_or(11211)
    }

    /// True if it speaks TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.has('Z', "enable-ssl")
    }

    /// True if its clients log in.
    pub(crate) fn has_logins(&self) -> bool {
        self.has('S', "enable-sasl") || self.flag('Y', "auth-file").is_some()
    }

    /// An address other than the host's own on which it listens.
    pub(crate) fn open_address(&self) -> Option<&str> {
        if self.flag('s', "unix-socket").is_some() {
            return None;
        }
        let lists = self.flags('l', "listen");
        if lists.is_empty() {
            return (self.name == "memcached").then_some("every address");
        }
        lists.into_iter().flat_map(|list| list.split(',')).map(str::trim).find(|address| {
            let host = without_kind(address).trim_start_matches('[');
            !(host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("::1"))
        })
    }

    /// The CPUs that it may use.
    pub(crate) fn cpus(&self, host: &Host) -> Vec<u32> {
        let status = self.status(host);
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        allowed.map_or_else(Vec::new, cpus::list)
    }

    /// `/proc/PID/status`.
    pub(crate) fn status(&self, host: &Host) -> String {
        host.text(&format!("/proc/{}/status", self.pid)).unwrap_or_default()
    }

    /// `holdall (pid 17)`.
    pub(crate) fn shown(&self) -> String {
        format!("{} (pid {})", self.name, self.pid)
    }

    /// The command line for a report: words after flags that name keys or users are left out.
    pub(crate) fn line(&self) -> String {
        let mut shown = vec![self.name.clone()];
        let mut is_private = false;
        for word in self.words.iter().skip(1) {
            shown.push(if is_private { "..".to_owned() } else { without_files(word) });
            is_private = matches!(word.as_str(), "-Y" | "--auth-file");
        }
        shown.join(" ")
    }
}

/// A listener without what memcached allows in front of it: `notls:127.0.0.1:11211`.
fn without_kind(listener: &str) -> &str {
    match listener.split_once(':') {
        Some((kind, rest))
            if matches!(kind, "tls" | "notls" | "mtls" | "btls") || kind.starts_with("proto[") =>
        {
            without_kind(rest)
        }
        _ => listener,
    }
}

/// The words with the flags of a file (`--config`) before those of the command line, which override
/// them.
fn with_file(host: &Host, words: Vec<String>) -> Vec<String> {
    let path = words.iter().enumerate().find_map(|(index, word)| match word.as_str() {
        "--config" => words.get(index + 1).cloned(),
        word => word.strip_prefix("--config=").map(str::to_owned),
    });
    let Some(text) = path.and_then(|path| host.text(&path)) else { return words };
    let lines = text.lines().filter(|line| line.trim_start().starts_with('-'));
    let flags = lines.flat_map(str::split_whitespace).map(str::to_owned);
    let (command, line) = words.split_at(words.len().min(2));
    command.iter().cloned().chain(flags).chain(line.iter().cloned()).collect()
}

/// A word without the values of options that name keys, users or rights.
fn without_files(word: &str) -> String {
    let hidden = |part: &str| match part.split_once('=') {
        Some((name, _))
            if ["ssl_", "auth", "rights", "users", "--auth-file"]
                .iter()
                .any(|secret| name.starts_with(secret)) =>
        {
            format!("{name}=..")
        }
        _ => part.to_owned(),
    };
    word.split(',').map(hidden).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(line: &str) -> Server {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Server { pid: 7, name: words[0].clone(), words }
    }

    #[test]
    fn flags_are_found_in_every_form() {
        for line in
            ["holdall serve -m 2g", "holdall serve -m2048", "holdall serve --memory-limit=2g"]
        {
            assert_eq!(server(line).memory_bytes(), 2 << 30, "{line}");
        }
        assert_eq!(server("memcached").memory_bytes(), 64 << 20);
        let all =
            server("memcached -m 1g -t 8 -c 9 -b 5 -p 7 -vZ -S -l 10.0.0.1 -o a=1,ssl_key=/k");
        let host = Host::at(std::path::Path::new("/nowhere"));
        assert_eq!((all.threads(&host), all.connections()), (8, 9));
        assert_eq!((all.backlog(), all.port()), (5, 7));
        assert!(all.has_tls() && all.has_logins());
        assert_eq!(all.option("ssl_key"), Some("/k"));
        assert_eq!(all.option("ssl"), None);
        assert_eq!(server("holdall serve -m").flag('m', "memory-limit"), None);
    }

    #[test]
    fn addresses_of_the_host_are_not_open() {
        assert_eq!(server("memcached").open_address(), Some("every address"));
        assert_eq!(server("holdall serve").open_address(), None);
        assert_eq!(server("memcached -s /run/m").open_address(), None);
        assert_eq!(server("holdall serve -l notls:127.0.0.1:5 -l [::1]:7").open_address(), None);
        assert_eq!(server("holdall serve -l 10.0.0.1 -l ::1").open_address(), Some("10.0.0.1"));
        assert_eq!(server("memcached -l 127.0.0.1,::1").open_address(), None);
        assert_eq!(server("memcached -l 127.0.0.1,0.0.0.0").open_address(), Some("0.0.0.0"));
    }

    #[test]
    fn a_report_names_no_file_of_secrets() {
        let line = server("holdall serve -Y /etc/users -o ssl_key=/k,track_sizes -m 5").line();
        assert_eq!(line, "holdall serve -Y .. -o ssl_key=..,track_sizes -m 5");
    }
}
