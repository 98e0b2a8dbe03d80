//! Each role under a service manager: it says when it is ready, that it is alive, and that it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{SOON, Scratch, holdall, http, kill};
use rustix::process::Signal;
use testkit::eventually;
use testkit::process::free_port;

/// The next word to the manager that is none of `others`.
fn word(manager: &UnixDatagram, others: &str) -> String {
    loop {
        let mut buffer = [0; 256];
        let length = manager.recv(&mut buffer).expect("no word came");
        let word = String::from_utf8(buffer[..length].to_vec()).unwrap();
        if word != others {
            return word;
        }
    }
}

/// A process, and the manager that it talks to.
struct Supervised {
    manager: UnixDatagram,
    child: Child,
}

impl Supervised {
    /// Starts `command` under a manager that wants to hear of it each second. It is ready.
    fn start(scratch: &Scratch, command: Command) -> Self {
        let started = Self::begin(scratch, command);
        assert_eq!(started.word(), "READY=1\n");
        started
    }

    /// The same, perhaps before it is ready.
    fn begin(scratch: &Scratch, mut command: Command) -> Self {
        let path = scratch.path("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        manager.set_read_timeout(Some(SOON)).unwrap();
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "1000000");
        command.stderr(fs::File::create(scratch.path("log")).unwrap());
        Self { manager, child: command.spawn().unwrap() }
    }

    /// Its next word but that it is alive.
    fn word(&self) -> String {
        word(&self.manager, "WATCHDOG=1\n")
    }

    fn is_alive(&self) {
        // One may have been under way.
        for _ in 0..3 {
            assert_eq!(word(&self.manager, ""), "WATCHDOG=1\n");
        }
    }

    /// Ends it by SIGTERM, of which it tells.
    fn end(mut self, scratch: &Scratch) {
        kill(self.child.id(), Signal::TERM);
        let said = self.word();
        assert!(said.starts_with("STOPPING=1\nEXTEND_TIMEOUT_USEC="), "{said}");
        eventually("the end", || self.child.try_wait().unwrap().is_some());
        let log = fs::read_to_string(scratch.path("log")).unwrap();
        assert!(self.child.wait().unwrap().success(), "{log}");
    }
}

/// Starts `command`, which reads its files again on SIGHUP and goes on, and ends it.
fn assert_notifications(scratch: &Scratch, command: Command) {
    let started = Supervised::start(scratch, command);
    started.is_alive();
    for _ in 0..2 {
        kill(started.child.id(), Signal::HUP);
        let said = started.word();
        assert!(said.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{said}");
        assert_eq!(started.word(), "READY=1\n");
    }
    started.is_alive();
    started.end(scratch);
}

#[test]
fn the_server_notifies_ready_watchdog_and_stopping() {
    assert_notifications(&Scratch::new(), holdall(&["serve", "-p", "-1"]));
}

/// systemd names the interval of the watchdog only to the process that it starts.
#[test]
fn a_successor_feeds_the_watchdog_of_its_predecessor() {
    let scratch = Scratch::new();
    let (memory, port) = (scratch.text("memory"), free_port().to_string());
    let words = ["serve", "-m", "64", "-e", &memory, "-p", &port];
    let mut served = Supervised::begin(&scratch, holdall(&words));
    while served.word() != "READY=1\n" {}
    for turn in 0..2 {
        let mut command = holdall(&[&words[..], &["--takeover"]].concat());
        command.env("NOTIFY_SOCKET", scratch.path("notify")).env_remove("WATCHDOG_USEC");
        command.stderr(fs::File::create(scratch.path(&format!("log{turn}"))).unwrap());
        let new = command.spawn().unwrap();
        let said = served.word();
        assert_eq!(said, format!("READY=1\nMAINPID={}\n", new.id()));
        eventually("the end", || served.child.try_wait().unwrap().is_some());
        served.child = new;
        // Those of the old server.
        served.manager.set_nonblocking(true).unwrap();
        while served.manager.recv(&mut [0; 256]).is_ok() {}
        served.manager.set_nonblocking(false).unwrap();
        served.is_alive();
    }
    served.end(&scratch);
}

/// The recovery of many items takes longer than a unit's time to start.
#[test]
fn a_server_with_a_memory_file_asks_for_time_to_start() {
    let scratch = Scratch::new();
    let items = scratch.text("items");
    let serve = ["serve", "-p", "-1", "-e", &items];
    let started = Supervised::begin(&scratch, holdall(&serve));
    assert_eq!(started.word(), "EXTEND_TIMEOUT_USEC=60000000\n");
    assert_eq!(started.word(), "READY=1\n");
    started.end(&scratch);
}

#[test]
fn the_proxy_notifies_ready_watchdog_and_stopping() {
    let scratch = Scratch::new();
    let port = free_port().to_string();
    let config = r#"{"pools":{"A":{"servers":["127.0.0.1:1"]}},"route":"PoolRoute|A"}"#;
    let arguments = ["route", "--config-str", config, "-p", &port, "--asynclog-disable"];
    assert_notifications(&scratch, holdall(&arguments));
    fs::write(scratch.path("users"), "user:secret\n").unwrap();
    fs::set_permissions(scratch.path("users"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(scratch.path("notify")).unwrap();
    let users = scratch.text("users");
    assert_notifications(&scratch, holdall(&[&arguments[..], &["--auth-file", &users]].concat()));
}

/// A host may get its addresses after `network.target`.
#[test]
fn the_packaged_units_start_when_the_host_has_its_addresses() {
    for unit in ["holdall", "holdall-route", "holdall-invalidate"] {
        let packaged = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd");
        let text = fs::read_to_string(format!("{packaged}/{unit}.service")).unwrap();
        for line in ["After=network-online.target", "Wants=network-online.target"] {
            assert!(text.lines().any(|one| one == line), "{unit}: no {line}");
        }
    }
}

/// Keys without a prefix get the proxy's, so the console needs it to read the configuration.
#[test]
fn a_proxy_passes_its_route_prefix_to_its_console() {
    let scratch = Scratch::new();
    let config = r#"{"pools":{"A":{"servers":["127.0.0.1:1"]}},
        "routes":[{"aliases":["/east/b/"],"route":"PoolRoute|A"}]}"#;
    fs::write(scratch.path("routes.json"), config).unwrap();
    let (file, port) = (scratch.text("routes.json"), free_port().to_string());
    let arguments = ["route", "-f", &file, "-p", &port, "--asynclog-disable"];
    let more = ["--route-prefix", "/east/b/", "--console", "127.0.0.1:0"];
    let command = holdall(&[&arguments[..], &more].concat());
    let started = Supervised::start(&scratch, command);
    let mut page = None;
    eventually("the console", || {
        let log = fs::read_to_string(scratch.path("log")).unwrap();
        let url = log.split("http://").nth(1).and_then(|rest| rest.split_once("/\n"));
        page = url.map(|(address, _)| address.to_owned());
        page.is_some()
    });
    let page = page.unwrap();
    let mut stream = TcpStream::connect(&page).unwrap();
    let end = format!("HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\r\n");
    write!(stream, "GET / {end}").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("127.0.0.1:1\""), "the server is no member: {text}");
    let mut stream = TcpStream::connect(&page).unwrap();
    write!(stream, "GET /api/routes {end}").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains(r#""prefix":"/east/b/""#), "{text}");
    started.end(&scratch);
}

/// It waits in the middle of its start for whom it asks for its servers.
#[test]
fn a_sighup_during_the_proxys_start_is_handled_afterwards() {
    let scratch = Scratch::new();
    let source = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = format!("elasticache:{}", source.local_addr().unwrap());
    let config = format!(r#"{{"pools":{{"A":"{servers}"}},"route":"PoolRoute|A"}}"#);
    let port = free_port().to_string();
    let arguments = ["route", "--config-str", &config, "-p", &port, "--asynclog-disable"];
    let started = Supervised::begin(&scratch, holdall(&arguments));
    let (mut asking, _) = source.accept().unwrap();
    kill(started.child.id(), Signal::HUP);
    let members = "1\nname|127.0.0.1|1\n";
    let answer = format!("CONFIG cluster 0 {}\r\n{members}\r\nEND\r\n", members.len());
    asking.write_all(answer.as_bytes()).unwrap();
    assert_eq!(started.word(), "READY=1\n");
    assert!(started.word().starts_with("RELOADING=1\n"));
    assert_eq!(started.word(), "READY=1\n");
    started.end(&scratch);
}

/// Though its database and its clusters are away: a restart would not bring them back.
#[test]
fn the_invalidator_notifies_ready_watchdog_and_stopping() {
    let scratch = Scratch::new();
    let started = Supervised::start(&scratch, invalidator(&scratch, free_port()));
    started.is_alive();
    started.end(&scratch);
}

/// The same process, as the manager sees it, with the settings that the file has now.
#[test]
fn the_invalidator_restarts_only_with_a_valid_configuration() {
    let scratch = Scratch::new();
    let (before, after) = (free_port(), free_port());
    let started = Supervised::start(&scratch, invalidator(&scratch, before));
    let is_there = |port| http::try_get(([127, 0, 0, 1], port).into(), "/livez").is_some();
    let file = scratch.path("invalidate.toml");
    let good = fs::read_to_string(&file).unwrap();
    let moved = good.replace(&format!(":{before}\""), &format!(":{after}\""));

    // Each names what it does not take, and goes on.
    let missing = moved.replace("password\"", "no-password\"");
    for (wrong, why) in
        [(moved.replace("server_id", "sever_id"), "sever_id"), (missing, "no-password")]
    {
        fs::write(&file, wrong).unwrap();
        kill(started.child.id(), Signal::HUP);
        let log = || fs::read_to_string(scratch.path("log")).unwrap();
        let says =
            |line: &str| line.contains("the configuration stays as it was") && line.contains(why);
        eventually("a refusal", || log().lines().any(says));
        assert!(is_there(before));
    }

    for (text, port) in [(&moved, after), (&good, before)] {
        fs::write(&file, text).unwrap();
        kill(started.child.id(), Signal::HUP);
        let said = started.word();
        assert!(said.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{said}");
        assert_eq!(started.word(), "READY=1\n");
        eventually("the new settings", || is_there(port));
    }
    assert!(!is_there(after));
    started.is_alive();
    started.end(&scratch);
}

/// Some come when the process has no handlers yet, which would end it.
#[test]
fn the_invalidator_survives_signals_during_a_restart() {
    let scratch = Scratch::new();
    let port = free_port();
    let mut started = Supervised::start(&scratch, invalidator(&scratch, port));
    let log = || fs::read_to_string(scratch.path("log")).unwrap();
    started.manager.set_nonblocking(true).unwrap();
    let mut begun = 0;
    eventually("twenty new processes", || {
        for _ in 0..50 {
            kill(started.child.id(), Signal::HUP);
            sleep(Duration::from_micros(50));
            let mut word = [0; 256];
            while let Ok(length) = started.manager.recv(&mut word) {
                begun += usize::from(word[..length] == *b"READY=1\n");
            }
        }
        assert_eq!(started.child.try_wait().unwrap(), None, "it ended: {}", log());
        begun >= 20
    });
    // The next one is taken, as after a single one.
    started.manager.set_nonblocking(false).unwrap();
    kill(started.child.id(), Signal::HUP);
    while !started.word().starts_with("RELOADING=1\n") {}
    let address = ([127, 0, 0, 1], port).into();
    eventually("an answer", || http::try_get(address, "/livez").is_some());
    kill(started.child.id(), Signal::TERM);
    eventually("the end", || started.child.try_wait().unwrap().is_some());
    assert!(started.child.wait().unwrap().success(), "{}", log());
}

/// At any moment between the two processes: the stop is neither lost nor a death by the signal.
#[test]
fn a_stop_during_a_restart_ends_the_invalidator() {
    const TURNS: u32 = 60;
    let scratch = Scratch::new();
    for turn in 0..TURNS {
        let mut started = Supervised::start(&scratch, invalidator(&scratch, free_port()));
        let begin_again = || {
            kill(started.child.id(), Signal::HUP);
            while !started.word().starts_with("RELOADING=1\n") {}
        };
        let begin = Instant::now();
        begin_again();
        while started.word() != "READY=1\n" {}
        let whole = begin.elapsed();
        begin_again();
        sleep(whole * turn / TURNS);
        kill(started.child.id(), Signal::TERM);
        eventually("the end", || started.child.try_wait().unwrap().is_some());
        let log = fs::read_to_string(scratch.path("log")).unwrap();
        let status = started.child.wait().unwrap();
        assert!(status.success(), "turn {turn}, {status}: {log}");
        fs::remove_file(scratch.path("notify")).unwrap();
    }
}

/// The command with a socket that systemd opened for it.
fn with_socket(command: &Command, socket: TcpListener) -> Command {
    let activate = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(activate).arg(command.get_program()).args(command.get_args());
    shell.stdin(OwnedFd::from(socket));
    shell
}

/// Nobody else can bind its address, since systemd keeps it.
#[test]
fn the_invalidator_serves_and_passes_on_a_systemd_socket() {
    let scratch = Scratch::new();
    let kept = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = kept.local_addr().unwrap();
    let command = invalidator(&scratch, address.port());
    let started = Supervised::start(&scratch, with_socket(&command, kept.try_clone().unwrap()));
    assert_eq!(http::get(address, "/livez").0, 200);
    let file = scratch.path("invalidate.toml");
    let good = fs::read_to_string(&file).unwrap();
    let moved_to = free_port();
    let moved = good.replace(&format!(":{}\"", address.port()), &format!(":{moved_to}\""));
    let log = || fs::read_to_string(scratch.path("log")).unwrap();
    let unused = format!("nobody answers at systemd's socket {address}");
    // It stays with a process that has no use for it, and the next one has it.
    for (text, port) in [(&good, address.port()), (&moved, moved_to), (&good, address.port())] {
        fs::write(&file, text).unwrap();
        kill(started.child.id(), Signal::HUP);
        let said = started.word();
        assert!(said.starts_with("RELOADING=1\n"), "{said}: {}", log());
        assert_eq!(started.word(), "READY=1\n", "{}", log());
        assert_eq!(http::get(([127, 0, 0, 1], port).into(), "/livez").0, 200);
    }
    assert_eq!(log().matches(&unused).count(), 1, "{}", log());
    started.end(&scratch);
}

/// What was read from there and not delivered is in no file.
#[test]
fn an_invalidator_reading_stdin_does_not_restart() {
    let scratch = Scratch::new();
    let config = format!(
        "checkpoint = \"{}\"\n[source]\nkind = \"ndjson\"\n[keys.tables]\n\"a.b\" = \"{{id}}\"\n\
         [[cluster]]\nname = \"east\"\nrouters = [\"127.0.0.1:1\"]\n",
        scratch.text("checkpoint"),
    );
    fs::write(scratch.path("invalidate.toml"), config).unwrap();
    let mut command = holdall(&["invalidate", "run", "--config", &scratch.text("invalidate.toml")]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let started = Supervised::start(&scratch, command);
    kill(started.child.id(), Signal::HUP);
    let log = || fs::read_to_string(scratch.path("log")).unwrap();
    eventually("a refusal", || log().contains("lines on stdin cannot be read again"));
    started.is_alive();
    started.end(&scratch);
}

fn invalidator(scratch: &Scratch, port: u16) -> Command {
    fs::write(scratch.path("password"), "x\n").unwrap();
    fs::set_permissions(scratch.path("password"), fs::Permissions::from_mode(0o600)).unwrap();
    let config = format!(
        "checkpoint = \"{}\"\nstatus = \"127.0.0.1:{port}\"\n\
         [source]\nkind = \"mariadb\"\nservers = [\"127.0.0.1:1\"]\nuser = \"u\"\n\
         password_file = \"{}\"\nserver_id = 1\n\
         [keys.tables]\n\"a.b\" = \"{{id}}\"\n\
         [[cluster]]\nname = \"east\"\nrouters = [\"127.0.0.1:1\"]\n",
        scratch.text("checkpoint"),
        scratch.text("password"),
    );
    fs::write(scratch.path("invalidate.toml"), config).unwrap();
    holdall(&["invalidate", "run", "--config", &scratch.text("invalidate.toml")])
}

/// Alive, and neither started nor ready: the log was never reached.
#[test]
fn an_invalidator_without_its_database_is_alive_but_not_ready() {
    let scratch = Scratch::new();
    let port = free_port();
    let mut command = invalidator(&scratch, port);
    command.stderr(fs::File::create(scratch.path("log")).unwrap());
    let mut child = command.spawn().unwrap();
    let address = ([127, 0, 0, 1], port).into();
    eventually("an answer", || http::try_get(address, "/livez").is_some());
    assert_eq!(http::get(address, "/livez").0, 200);
    let (status, body) = http::get(address, "/startupz");
    assert!(status == 503 && body.contains("the log was not reached yet"), "{status} {body}");
    let (status, body) = http::get(address, "/readyz");
    assert!(status == 503 && body.contains("the log is not followed"), "{status} {body}");
    assert!(body.contains("away: east"), "{body}");
    let families = http::metrics(address);
    assert_eq!(http::value(&families, "holdall_invalidate_source_connected"), 0.0);
    assert_eq!(families["holdall_invalidate_keys_total"].kind, "counter");
    kill(child.id(), Signal::TERM);
    eventually("the end", || child.try_wait().unwrap().is_some());
}
