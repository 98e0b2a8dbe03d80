//! `--console`: a page about a running process, served by a separate process (decision 125).
//!
//! The page's program is the same executable, `holdall console`. It shares no memory, no thread and
//! no lock with the process that it shows, and sends it requests like any client. It ends when its
//! stdin is closed, so it never outlives that process.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;

/// The value of `--console`: `ADDRESS:PORT`, and flags of `holdall console` after commas
/// (`127.0.0.1:8811,users=FILE,actions`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Console {
    listen: SocketAddr,
    flags: Vec<String>,
}

/// A console that ends when this is dropped, or with this process.
#[derive(Debug)]
pub struct RunningConsole {
    _stdin: Option<ChildStdin>,
}

impl Console {
    /// Reads the value.
    ///
    /// # Errors
    ///
    /// Returns its fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let address = parts.next().unwrap_or_default();
        let listen: SocketAddr =
            address.parse().map_err(|_| format!("'{address}' is not an address and a port"))?;
        let flags: Vec<String> = parts.map(|flag| format!("--{flag}")).collect();
        let is_named = |flag: &String| {
            let name = flag[2..].split('=').next().unwrap_or_default();
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        };
        if let Some(odd) = flags.iter().find(|flag| !is_named(flag)) {
            return Err(format!("'{}' is no flag of holdall console", &odd[2..]));
        }
        if !listen.ip().is_loopback() && !flags.iter().any(|flag| flag.starts_with("--users=")) {
            return Err(format!("{listen}: other hosts could look: add ,users=FILE"));
        }
        Ok(Self { listen, flags })
    }

    /// Starts the console of these members, and of the servers in a proxy's configuration, which
    /// comes with the proxy's route prefix. `log` receives the console's lines, and a report if it
    /// ends before this process does.
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started.
    pub fn start(
        &self,
        members: &[String],
        config: Option<(&Path, &str)>,
        log: impl Fn(&str) + Send + 'static,
    ) -> io::Result<RunningConsole> {
        // The path may refer to another file by now, or to none.
        let own = std::env::current_exe().ok().filter(|path| path.exists());
        let program = own.unwrap_or_else(|| Path::new("/proc/self/exe").to_owned());
        let mut command = Command::new(program);
        command.arg0("holdall").args(self.arguments(members, config));
        // systemd does not wait for it.
        command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        thread::Builder::new().name("console".to_owned()).spawn(move || {
            let lines = stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines());
            lines.map_while(Result::ok).for_each(|line| log(&line));
            if let Ok(status) = child.wait() {
                let level = if status.success() { "" } else { "warning: " };
                log(&format!("{level}the console has ended: {status}"));
            }
        })?;
        Ok(RunningConsole { _stdin: stdin })
    }

    fn arguments(&self, members: &[String], config: Option<(&Path, &str)>) -> Vec<OsString> {
        let listen = self.listen.to_string();
        let prefix = config.map(|(_, prefix)| format!("--route-prefix={prefix}"));
        let names_prefix = self.flags.iter().any(|flag| flag.starts_with("--route-prefix="));
        let mut words: Vec<&OsStr> =
            ["console", "--beside", "--listen", &listen].map(OsStr::new).into();
        words.extend(self.flags.iter().map(OsStr::new));
        if let Some((file, _)) = config {
            words.extend([OsStr::new("--config"), file.as_os_str()]);
        }
        words.extend(prefix.iter().filter(|_| !names_prefix).map(OsStr::new));
        words.push(OsStr::new("--"));
        words.extend(members.iter().map(OsStr::new));
        words.into_iter().map(OsStr::to_owned).collect()
    }
}

/// The address by which a process on this host reaches a listener.
#[must_use]
pub fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_an_address_and_flags() {
        let line = |value: &str| {
            let console = Console::parse(value).unwrap();
            let config = Some(("a b.json".as_ref(), "/east/b/"));
            let words = console.arguments(&["unix:/x".to_owned()], config);
            words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(
            line("127.0.0.1:8811,users=/etc/users,actions"),
            "console|--beside|--listen|127.0.0.1:8811|--users=/etc/users|--actions|--config|\
             a b.json|--route-prefix=/east/b/|--|unix:/x"
        );
        assert_eq!(
            line("127.0.0.1:8811,route-prefix=/west/a/"),
            "console|--beside|--listen|127.0.0.1:8811|--route-prefix=/west/a/|--config|a b.json|\
             --|unix:/x"
        );
        assert!(Console::parse("[::1]:8811").is_ok());
        assert!(Console::parse("0.0.0.0:8811,users=u").is_ok());
    }

    #[test]
    fn a_wrong_value_is_named() {
        for (text, why) in [
            ("", "'' is not an address"),
            ("8811", "'8811' is not an address"),
            ("127.0.0.1:1,", "'' is no flag"),
            ("127.0.0.1:1,Users=x", "'Users=x' is no flag"),
            ("127.0.0.1:1,a b", "'a b' is no flag"),
            ("10.0.0.9:8811", "add ,users=FILE"),
            ("0.0.0.0:8811,actions", "add ,users=FILE"),
        ] {
            let error = Console::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_wildcard_listener_is_reached_by_loopback() {
        let of = |text: &str| reachable(text.parse().unwrap()).to_string();
        assert_eq!(of("0.0.0.0:11211"), "127.0.0.1:11211");
        assert_eq!(of("[::]:11211"), "[::1]:11211");
        assert_eq!(of("10.0.0.1:11211"), "10.0.0.1:11211");
    }
}
