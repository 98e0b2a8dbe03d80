//! The units of a package under the service manager: restarts at sockets that systemd keeps, while
//! unchanged client libraries ask; reload; the watchdog.

use super::container::{Container, ask, expect};
use crate::failure::Failure;
use crate::install;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Restarts of each unit.
const RESTARTS: usize = 20;

/// Requests of each library between two restarts.
const REQUESTS: u64 = 100;

/// The longest wait for them.
const PATIENCE: Duration = Duration::from_secs(60);

/// A unit, the words of its socket unit, and the address that clients ask.
const UNITS: [(&str, &str, &str); 2] = [
    (
        "holdall",
        "ListenStream=127.0.0.1:11211\nListenStream=127.0.0.1:9150\nListenDatagram=127.0.0.1:11211",
        "127.0.0.1:11211",
    ),
    ("holdall-route", "ListenStream=127.0.0.1:5000", "127.0.0.1:5000"),
];

/// Gives each unit its sockets, and restarts it under load.
pub(super) fn run(container: &Container) -> Result<(), Failure> {
    container.run("echo 'metrics = \"127.0.0.1:9150\"' >>/etc/holdall/server.toml")?;
    for (unit, sockets, address) in UNITS {
        let socket = format!(
            "systemctl stop {unit} && printf '[Socket]\\n{}\\n' >/etc/systemd/system/{unit}.socket \
             && systemctl daemon-reload && systemctl start {unit}.socket {unit}",
            sockets.replace('\n', "\\n")
        );
        container.run(&socket)?;
        let length = "20000";
        let fill = format!(
            "exec 3<>/dev/tcp/127.0.0.1/11211; printf 'set k 0 0 {length}\\r\\n%s\\r\\nquit\\r\\n' \
             $(head -c {length} /dev/zero | tr '\\0' v) >&3; timeout 10 cat <&3"
        );
        expect("what clients ask for", &container.run(&fill)?, "STORED\r\n")?;
        under_load(container, unit, address)?;
    }
    let page = "exec 3<>/dev/tcp/127.0.0.1/9150; printf 'GET /readyz HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; \
        timeout 10 head -n 1 <&3";
    expect("readiness by systemd's socket", &container.run(page)?, "HTTP/1.1 200 OK\r\n")?;
    let datagram = "exec 3<>/dev/udp/127.0.0.1/11211; \
        printf '\\0\\1\\0\\0\\0\\1\\0\\0version\\r\\n' >&3; timeout 10 head -c 16 <&3 | tail -c 8";
    expect("a datagram by systemd's socket", &container.run(datagram)?, "VERSION ")?;
    reload(container)?;
    watchdog(container)?;
    let sockets = UNITS.map(|(unit, ..)| format!("{unit}.socket")).join(" ");
    container.run(&format!(
        "systemctl stop {sockets} && cd /etc/systemd/system && rm -r {sockets} holdall.service.d \
         && systemctl daemon-reload"
    ))?;
    Ok(())
}

/// Restarts a unit while every library asks. The first failed request ends a library's program.
fn under_load(container: &Container, unit: &str, address: &str) -> Result<(), Failure> {
    let (go, python) =
        (install::tools().join("go-client"), install::tools().join("venv/bin/python"));
    let script = "e2e/clients/python/load.py";
    let mut libraries = Vec::new();
    for (name, program, words) in [
        ("gomemcache", &go, vec![address, "load"]),
        ("pymemcache", &python, vec![script, address, "pymemcache"]),
        ("pylibmc", &python, vec![script, address, "pylibmc"]),
    ] {
        libraries.push(Library::start(container, name, program.as_ref(), &words)?);
    }
    for round in 0..=RESTARTS {
        let before: Vec<u64> = libraries.iter().map(Library::requests).collect();
        if round > 0 {
            // systemd counts starts, and refuses the sixth within ten seconds.
            let restart = format!("systemctl reset-failed {unit}; systemctl restart {unit}");
            container.run(&restart)?;
        }
        for (library, before) in libraries.iter_mut().zip(before) {
            library.wait_for(before + REQUESTS)?;
        }
    }
    libraries.into_iter().try_for_each(Library::end)
}

/// A program of `e2e/clients` in the container's network.
struct Library {
    name: &'static str,
    child: Child,
    /// It asks until this is closed.
    stdin: ChildStdin,
    requests: Arc<AtomicU64>,
    /// Reads what it prints, and answers the last line.
    reader: thread::JoinHandle<String>,
}

impl Library {
    fn start(
        container: &Container,
        name: &'static str,
        path: &std::path::Path,
        words: &[&str],
    ) -> Result<Self, Failure> {
        let mut command = container.in_network(path);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |command: &Command, error| Failure::command(name, command, error);
        let mut child = command.spawn().map_err(|error| failed(&command, error))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Release(format!("{name}: no pipe")));
        };
        let requests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&requests);
        let reader = thread::spawn(move || {
            let mut last = String::new();
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Relaxed: a number that orders nothing else.
                counted.fetch_add(line.parse().unwrap_or(0), Ordering::Relaxed);
                last = line;
            }
            last
        });
        Ok(Self { name, child, stdin, requests, reader })
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn wait_for(&mut self, requests: u64) -> Result<(), Failure> {
        let begin = Instant::now();
        while self.requests() < requests {
            if self.reader.is_finished() || begin.elapsed() > PATIENCE {
                let text = format!("{}: a request failed, or none was answered", self.name);
                return Err(Failure::Release(text));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Ends it in order; it must have seen no failure.
    fn end(mut self) -> Result<(), Failure> {
        drop(self.stdin);
        let last = self.reader.join().unwrap_or_default();
        println!("  {last}");
        match self.child.wait() {
            Ok(status) if status.success() && last.contains(" requests, ") => Ok(()),
            _ => Err(Failure::Release(format!("{}: a request failed", self.name))),
        }
    }
}

/// The same process has the new setting.
fn reload(container: &Container) -> Result<(), Failure> {
    let process = container.run("systemctl show -P MainPID holdall")?;
    container.run(
        "sed -i 's/^conn_limit = .*/conn_limit = 778/' /etc/holdall/server.toml \
         && systemctl reload holdall",
    )?;
    container.run(
        "for i in $(seq 50); do exec 3<>/dev/tcp/127.0.0.1/11211; \
         printf 'stats settings\\r\\nquit\\r\\n' >&3; timeout 10 grep -aqw 'maxconns 778' <&3 && exit; \
         sleep 0.2; done; exit 1",
    )?;
    let after = container.run("systemctl show -P MainPID holdall")?;
    expect("the process after a reload", &after, &process)
}

/// A process that stands still is ended and started again, with its items.
fn watchdog(container: &Container) -> Result<(), Failure> {
    container.run(
        "cd /etc/systemd/system && mkdir holdall.service.d \
         && printf '[Service]\\nWatchdogSec=2\\n' >holdall.service.d/watchdog.conf \
         && systemctl daemon-reload && systemctl restart holdall",
    )?;
    container.run(&ask(11211, "set kept 7 0 5\\r\\nvalue\\r\\n"))?;
    container.run(
        "systemctl kill --kill-whom=main --signal=STOP holdall; for i in $(seq 300); do \
         [ $(systemctl show -P NRestarts holdall) = 1 ] && systemctl is-active -q holdall && exit; \
         sleep 0.1; done; systemctl status holdall; exit 1",
    )?;
    let kept = container.run(&ask(11211, "get kept\\r\\n"))?;
    expect("the item after the watchdog", &kept, "VALUE kept 7 5\r\nvalue\r\nEND\r\n")
}
