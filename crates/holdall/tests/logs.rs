//! The log of server and proxy: time, levels, JSON, the filter, and faults of connections.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Instant;

use common::{Running, Scratch, holdall, kill};
use rustix::process::Signal;
use serde_json::Value;
use testkit::eventually;

/// `true` for `2026-11-24T18:15:09.123456Z`.
fn is_time(word: &str) -> bool {
    let shape = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        10 => byte == b'T',
        13 | 16 => byte == b':',
        19 => byte == b'.',
        _ => byte.is_ascii_digit(),
    };
    word.len() > 20 && word.ends_with('Z') && word[..word.len() - 1].bytes().enumerate().all(shape)
}

/// A process that ends with the test.
struct Started(Child);

impl Started {
    /// Starts it and reads the first line of its stderr.
    fn first_line(mut command: Command) -> (Self, String) {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        (Self(child), line)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_line_has_a_time_and_warnings_are_marked() {
    let running = Running::serve(&["-o", "hashpower=20", "-U", "0"]);
    let log = running.end();
    assert!(log.lines().count() > 2, "{log}");
    for line in log.lines() {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(is_time(time) && rest.starts_with("holdall: "), "{line}");
    }
    assert!(log.contains(" holdall: warning: -o hashpower has no effect here"), "{log}");
    assert!(log.contains(" holdall: SIGTERM: ending\n"), "{log}");
}

#[test]
fn json_has_an_object_in_each_line() {
    let running = Running::serve(&["--log-format", "json"]);
    let mut wire = running.connect();
    wire.expect(b"verbosity 2\r\n", b"OK\r\n");
    wire.expect(b"get \x1b[2J\"\\\r\n", b"END\r\n");
    let log = running.end();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| is_time(line["time"].as_str().unwrap())), "{log}");
    let commands: Vec<_> = lines.iter().filter(|line| line["part"] == "commands").collect();
    assert_eq!(commands.len(), 1, "{log}");
    assert!(commands[0]["message"].as_str().unwrap().ends_with("get \\x1b[2J\\\"\\\\"), "{log}");
}

#[test]
fn the_journal_gets_priorities_and_no_time() {
    let scratch = Scratch::new();
    let file = fs::File::create(scratch.path("journal")).unwrap();
    let stat = rustix::fs::fstat(&file).unwrap();
    // The same file at another start of `Running` would have another inode, so this is one by hand.
    let mut command = holdall(&["serve", "-p", "-1", "-v", "-o", "hashpower=20"]);
    command.env("JOURNAL_STREAM", format!("{}:{}", stat.st_dev, stat.st_ino)).stderr(file);
    let child = Started(command.spawn().unwrap());
    let log = || fs::read_to_string(scratch.path("journal")).unwrap();
    eventually("the start", || log().contains("listening on"));
    kill(child.0.id(), Signal::TERM);
    assert!(log().starts_with("<4>holdall: warning: -o hashpower"), "{}", log());
    assert!(log().contains("\n<6>holdall: listening on"), "{}", log());
}

#[test]
fn the_filter_changes_while_the_server_runs() {
    let scratch = Scratch::new();
    let settings = |filter: &str| {
        let text = format!("port = -1\nlog_filter = \"{filter}\"\n");
        fs::write(scratch.path("server.toml"), text).unwrap();
    };
    settings("off");
    let running = Running::start(holdall(&["serve", "--config", &scratch.text("server.toml")]));
    running.connect().expect(b"verbosity 2\r\n", b"OK\r\n");
    running.connect().expect(b"get before\r\n", b"END\r\n");
    assert_eq!(running.log(), "");
    settings("warn,commands=info");
    running.signal(Signal::HUP);
    eventually("a command's line", || {
        running.connect().expect(b"get after\r\n", b"END\r\n");
        running.log().contains("get after")
    });
    assert!(!running.log().contains("before") && !running.log().contains("settings: "));
}

/// A server with a certificate for itself; the file of its key.
fn with_certificate(scratch: &Scratch, mode: u32) -> (Running, String) {
    let (cert, key) = (scratch.text("cert.pem"), scratch.text("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args(["-subj", "/CN=localhost", "-keyout", &key, "-out", &cert])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", common::stderr(&made));
    let tls = format!("ssl_chain_cert={cert},ssl_key={key}");
    fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
    (Running::serve(&["-u", "root", "-Z", "-o", &tls]), key)
}

#[test]
fn a_private_key_that_everybody_may_read_is_logged() {
    let scratch = Scratch::new();
    let (running, key) = with_certificate(&scratch, 0o644);
    let warning = format!("{key}: everybody on this machine may read the private key");
    eventually("the warning", || running.log().contains(&warning));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    running.signal(Signal::HUP);
    eventually("the end of the reload", || running.log().contains("certificates: read again"));
    assert_eq!(running.log().matches(&warning).count(), 1);
}

#[test]
fn faults_of_a_peer_are_one_line_a_second() {
    let (scratch, begin) = (Scratch::new(), Instant::now());
    let (running, _key) = with_certificate(&scratch, 0o600);
    for _ in 0..50 {
        let mut wire = running.connect();
        wire.send(b"\x1b[2Jthis is no handshake\r\n");
        wire.read_to_end(common::SOON);
    }
    eventually("a line", || running.log().contains("TLS: "));
    let log = running.end();
    let lines = log.lines().filter(|line| line.contains(" TLS: ")).count();
    let seconds = usize::try_from(begin.elapsed().as_secs()).unwrap();
    assert!((1..=seconds + 1).contains(&lines), "{seconds} s: {log}");
    assert!(log.contains("holdall: warning: tcp:127.0.0.1:"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log:?}");
}

/// At the default level, of a server and of a proxy.
#[test]
fn a_refused_login_is_a_line_with_the_address() {
    let scratch = Scratch::new();
    fs::write(scratch.path("users"), "app:secret\n").unwrap();
    let users = scratch.text("users");
    let route = r#"{"route": "NullRoute"}"#;
    let proxy = ["route", "--config", route, "-p", "0", "-Y", &users];
    for mut command in [holdall(&["serve", "-p", "-1", "-Y", &users]), holdall(&proxy)] {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let _started = Started(child);
        let listening = lines.find(|line| line.contains("listening on ")).unwrap();
        let address = listening.rsplit("127.0.0.1:").next().unwrap();
        let port: String = address.chars().take_while(char::is_ascii_digit).collect();
        let mut wire = testkit::Wire::connect(([127, 0, 0, 1], port.parse().unwrap()).into());
        wire.send(b"set auth 0 0 9\r\napp wrong\r\n");
        let line = lines.find(|line| line.contains("login")).unwrap();
        assert!(line.contains("warning: ") && line.contains("127.0.0.1:"), "{line}");
        assert!(line.ends_with(": a login was refused"), "{line}");
    }
}

#[test]
fn the_proxy_uses_the_same_log_format() {
    let route =
        ["route", "--config", r#"{"route": "NullRoute"}"#, "-p", "0", "--log-format", "json"];
    let (_started, line) = Started::first_line(holdall(&route));
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["program"], &line["part"]), (&"holdall route".into(), &"route".into()));
    let wrong = common::output(&mut holdall(&["route", "--log-filter", "routes=info"]));
    assert_eq!(wrong.status.code(), Some(64));
    assert!(common::stderr(&wrong).contains("'routes=info' is neither a level"));
}

#[test]
fn a_refused_configuration_of_a_proxy_is_a_warning() {
    let scratch = Scratch::new();
    let file = scratch.text("routes.json");
    fs::write(&file, r#"{"route": "NullRoute"}"#).unwrap();
    let route = ["route", "-f", &file, "-p", "0", "--asynclog-disable", "--log-format", "json"];
    let mut child = holdall(&route).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let started = Started(child);
    lines.find(|line| line.contains("listening on ")).unwrap();
    fs::write(&file, "{").unwrap();
    kill(started.0.id(), Signal::HUP);
    let line = lines.find(|line| line.contains("the configuration stays as it was")).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["level"], "warning");
}

/// Lines of proxy and invalidator that need no operator.
const REMARKS: [&str; 16] = [
    "another invalidator of group {name} works; this one waits",
    "checkpoint {path}: {line}",
    "cluster {name}: changes arrive again",
    "metrics and health on http://{}/",
    "not ready; ending in {secs} s",
    "reading from {position}{at}",
    "request {op} {key} value {sent} reply {:?} value {got}",
    "SIGHUP: restarting with the new configuration at the saved position",
    "the certificates have been read again",
    "the configuration has been replaced",
    "the log has room again",
    "this invalidator works for group {}",
    "users and rights have been read again",
    "{error}; restarting from position {from}",
    "{source}: it names its servers again",
    "{url} takes {name} again",
];

/// Their levels come from a prefix, without which `--log-filter warn` hides a line.
#[test]
fn lines_that_need_an_operator_are_warnings() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut folders, mut count) = (Vec::new(), 0);
    folders.extend(["invalidator", "router", "routes", "telemetry"].map(|name| crates.join(name)));
    let mut wrong = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                for line in literals_logged(&text) {
                    count += 1;
                    if !line.starts_with("warning: ") && !REMARKS.contains(&line) {
                        wrong.push(format!("{}: {line}", path.display()));
                    }
                }
            }
        }
    }
    assert!(count > 40, "{count}");
    assert!(wrong.is_empty(), "start them with 'warning: ', or add them above: {wrong:#?}");
}

/// The starts of the lines in calls of `log`.
fn literals_logged(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices("log").filter_map(|(at, name)| {
        let before = code[..at].chars().next_back()?;
        if before.is_alphanumeric() || before == '_' {
            return None;
        }
        let call = &code[at + name.len()..];
        let call = call.strip_prefix(')').unwrap_or(call).strip_prefix('(')?.trim_start();
        let call = call.strip_prefix("&format!(").unwrap_or(call).trim_start();
        call.strip_prefix('"')?.split('"').next()
    })
}
