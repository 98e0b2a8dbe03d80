//! `holdall top` over real servers, holdall's and Debian's, and a proxy that misses one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{holdall, kill, output, stderr, stdout};
use rustix::process::Signal;
use serde_json::Value;
use testkit::{Router, Server};

/// Gets of one key until dropped; the server needs a load for rates and hot keys.
fn load<R>(server: &Server, body: impl FnOnce() -> R) -> R {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut wire = server.connect();
            wire.expect(b"set user:42 0 0 1\r\nx\r\n", b"STORED\r\n");
            // Relaxed: the end may come a round later.
            while !is_over.load(Ordering::Relaxed) {
                wire.expect(b"get user:42\r\n", b"VALUE user:42 0 1\r\nx\r\nEND\r\n");
                thread::sleep(Duration::from_micros(200));
            }
        });
        let result = body();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

fn member<'v>(all: &'v Value, address: &str) -> &'v Value {
    let members = all["members"].as_array().unwrap();
    members.iter().find(|one| one["address"] == address).unwrap_or_else(|| panic!("{all:#}"))
}

#[test]
fn every_role_is_shown_with_its_numbers() {
    let (server, memcached) = (Server::holdall(&[]), Server::memcached(&[]));
    let dead = "127.0.0.1:1";
    let router = Router::over(
        &[server.addr(), dead.parse().unwrap()],
        r#"{ "type": "AllSyncRoute", "children": ["PoolRoute|A", "PoolRoute|B"] }"#,
        &[],
    );
    router.connect().expect(b"get a\r\n", b"SERVER_ERROR Connection error\r\n");
    let proxy = router.addr().to_string();
    let addresses = [server.addr().to_string(), memcached.addr().to_string()];
    let words = ["top", &addresses[0], &addresses[1], &proxy, dead, "--once", "--json"];
    let all = load(&server, || {
        // On a busy machine a second may pass without a get; a hot key appears after one or two.
        let begin = Instant::now();
        loop {
            let output = output(&mut holdall(&words));
            assert_eq!(output.status.code(), Some(1), "one is away: {}", stderr(&output));
            let all: Value = serde_json::from_str(&stdout(&output)).unwrap();
            let numbers = &member(&all, &addresses[0])["numbers"];
            let has_rate = numbers["gets_per_second"].as_f64().is_some_and(|rate| rate > 0.0);
            let has_time = numbers["get_p99_seconds"].as_f64().is_some_and(|time| time > 0.0);
            if has_rate && has_time && all["hot_keys"][0]["key"] == "user%3A42" {
                break all;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{all:#}");
        }
    });
    let own = member(&all, &addresses[0]);
    assert_eq!((&own["role"], &own["health"]), (&"server".into(), &"good".into()));
    assert_eq!(own["numbers"]["hit_ratio"], 1.0);
    let other = member(&all, &addresses[1]);
    assert_eq!((&other["role"], &other["health"]), (&"server".into(), &"good".into()));
    assert_eq!(other["numbers"]["gets_per_second"], 0.0);
    assert!(other["numbers"]["get_p99_seconds"].is_null(), "memcached does not tell");
    let proxy = member(&all, &proxy);
    assert_eq!((&proxy["role"], &proxy["health"]), (&"proxy".into(), &"trouble".into()));
    assert_eq!(proxy["reason"], "1 of 2 servers are away");
    let dead = member(&all, dead);
    assert_eq!(dead["health"], "away");
    assert!(dead["reason"].as_str().unwrap().contains("refused"), "{dead:#}");
    assert_eq!(all["hot_keys"][0]["address"], addresses[0].as_str());
}

#[test]
fn a_proxy_shows_latency_quantiles_of_its_servers() {
    let server = Server::holdall(&[]);
    let router = Router::over(&[server.addr()], r#""PoolRoute|all""#, &[]);
    let mut wire = router.connect();
    let address = router.addr().to_string();
    let begin = Instant::now();
    loop {
        for _ in 0..100 {
            wire.expect(b"get a\r\n", b"END\r\n");
        }
        let output = output(&mut holdall(&["top", &address, "--once", "--json"]));
        let all: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let names = ["p50_seconds", "p99_seconds", "p999_seconds"];
        let of = |numbers: &Value| names.map(|name| numbers[name].as_f64().unwrap_or(-1.0));
        let numbers = of(&member(&all, &address)["numbers"]);
        // The proxy collects them once a second.
        if numbers[0] > 0.0 {
            assert!(numbers.is_sorted() && numbers[2] < 60.0, "{numbers:?}");
            assert_eq!(of(&all["totals"]["proxy"]), numbers);
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{all:#}");
    }
}

/// The queries of the command itself are the only traffic.
#[test]
fn rates_cover_an_interval() {
    let server = Server::holdall(&[]);
    let address = server.addr().to_string();
    let output = output(&mut holdall(&["top", &address, "--once", "--json", "-i", "1"]));
    let all: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let rate = &member(&all, &address)["numbers"]["sent_bytes_per_second"];
    assert!(rate.as_f64().is_some_and(|rate| rate > 0.0 && rate < 100_000.0), "{rate}");
}

/// A program in a new terminal, which `script` makes, until the screen shows a text.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    shown: String,
}

impl Terminal {
    fn start(line: &str) -> Self {
        let mut script = Command::new("script")
            .args(["-qefc", &format!("stty cols 100 rows 24; {line}"), "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (keys, screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        Self { script, keys, screen, shown: String::new() }
    }

    fn until(&mut self, texts: &[&str]) {
        let mut bytes = [0; 4096];
        while !texts.iter().all(|text| self.shown.contains(text)) {
            let count = self.screen.read(&mut bytes).unwrap();
            assert!(count > 0, "it ended by itself: {}", self.shown);
            self.shown += &String::from_utf8_lossy(&bytes[..count]);
        }
    }

    /// The rest of the output, after the end with status 0.
    fn rest(mut self) -> String {
        let mut rest = Vec::new();
        self.screen.read_to_end(&mut rest).unwrap();
        assert!(self.script.wait().unwrap().success());
        String::from_utf8_lossy(&rest).into_owned()
    }
}

const TOP: &str = concat!(env!("CARGO_BIN_EXE_holdall"), " top");

#[test]
fn a_terminal_shows_the_members_until_q() {
    let server = Server::holdall(&[]);
    let address = server.addr().to_string();
    let mut terminal = Terminal::start(&format!("exec {TOP} {address}"));
    // The first screen may be from before the first answer.
    terminal.until(&["gets/s", &address]);
    terminal.keys.write_all(b"q").unwrap();
    terminal.rest();
}

#[test]
fn a_signal_restores_the_terminal() {
    let server = Server::holdall(&[]);
    let address = server.addr().to_string();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let line = format!("sh -c 'echo pid $$,; exec {TOP} {address}' && stty -a");
        let mut terminal = Terminal::start(&line);
        terminal.until(&["gets/s", &address]);
        let pid = terminal.shown.split_once("pid ").unwrap().1.split_once(',').unwrap().0;
        kill(pid.parse().unwrap(), signal);
        let rest = terminal.rest();
        let words: Vec<_> = rest.split_whitespace().collect();
        assert!(rest.contains("\x1b[?1049l") && rest.contains("\x1b[?25h"), "{signal:?}: {rest:?}");
        assert!(words.contains(&"icanon") && words.contains(&"echo"), "{signal:?}: {rest:?}");
    }
}

#[test]
fn top_without_a_terminal_suggests_once() {
    let output = output(&mut holdall(&["top", "127.0.0.1:1"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("stdout is no terminal; --once prints"), "{output:?}");
}
