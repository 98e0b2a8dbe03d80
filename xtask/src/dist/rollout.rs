//! The units of a package under the service manager: restarts at sockets that systemd keeps, under
//! the load of unchanged client libraries.

use super::container::{Container, drop_in, expect};
use super::roles;
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

/// The longest wait for these requests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A unit, the text of its socket unit, and the address for clients.
const UNITS: [(&str, &str, &str); 2] = [
    (
        "holdall",
        "ListenStream=127.0.0.1:11211\nListenStream=127.0.0.1:9150\nListenDatagram=127.0.0.1:11211",
        "127.0.0.1:11211",
    ),
    ("holdall-route", "ListenStream=127.0.0.1:5000\nListenStream=127.0.0.1:9151", "127.0.0.1:5000"),
];

/// The settings that the proxy's unit lacks, and the patience of the clients: on a busy machine a
/// server may take longer than a second.
const ROUTE: &str = "[Service]
ExecStart=
ExecStart=/usr/bin/holdall route -f /etc/holdall/routes.json -p 5000 \
    --async-dir /var/lib/holdall/spool --metrics 127.0.0.1:9151 --server-timeout 20000
";

/// Checks a number on the metrics page that needs `/proc/stat`.
const HOST: &str = "grep -a -m 1 -c '^process_start_time_seconds [1-9]'";

/// Gives each unit its sockets, and restarts it under load.
pub(super) fn run(container: &Container) -> Result<(), Failure> {
    container.run("echo 'metrics = \"127.0.0.1:9150\"' >>/etc/holdall/server.toml")?;
    container.run(&drop_in("holdall-route", "metrics", ROUTE))?;
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
    for port in [9150, 9151] {
        let page = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; \
             printf 'GET /readyz HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; timeout 10 head -n 1 <&3"
        );
        let answer = container.run(&page)?;
        expect("readiness by systemd's socket", &answer, "HTTP/1.1 200 OK\r\n")?;
        let numbers = page.replace("/readyz", "/metrics").replace("head -n 1", HOST);
        expect("what the unit sees of the host", &container.run(&numbers)?, "1\n")?;
    }
    let datagram = "exec 3<>/dev/udp/127.0.0.1/11211; \
        printf '\\0\\1\\0\\0\\0\\1\\0\\0version\\r\\n' >&3; timeout 10 head -c 16 <&3 | tail -c 8";
    expect("a datagram by systemd's socket", &container.run(datagram)?, "VERSION ")?;
    // The server then requires logins, which UDP does not have.
    container.run(
        "systemctl stop holdall.socket holdall \
         && sed -i /^ListenDatagram/d /etc/systemd/system/holdall.socket \
         && systemctl daemon-reload && systemctl start holdall.socket holdall",
    )?;
    roles::run(container)?;
    let sockets = UNITS.map(|(unit, ..)| format!("{unit}.socket")).join(" ");
    container.run(&format!(
        "systemctl stop {sockets} && cd /etc/systemd/system \
         && rm -r {sockets} holdall*.service.d && systemctl daemon-reload"
    ))?;
    Ok(())
}

/// Restarts a unit under the load of every library, whose program ends at the first failed request.
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
    /// The program sends requests until this is closed.
    stdin: ChildStdin,
    requests: Arc<AtomicU64>,
    /// Reads its output, and returns the last line.
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
                // Relaxed: a number that orders nothing.
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

    /// Ends it cleanly. It must have seen no failure.
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
