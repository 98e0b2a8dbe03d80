//! The server's settings from a file, while it runs, and `holdall config`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::fs;

use common::{Running, Scratch, holdall, output, stderr, stdout, wait_for};
use rustix::process::Signal;

/// `holdall config` with these arguments: status, stdout and stderr.
fn config(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = output(&mut holdall(&[&["config"], arguments].concat()));
    (output.status.code(), stdout(&output), stderr(&output))
}

/// A server whose settings are in `server.toml` of this folder.
fn serve(scratch: &Scratch, text: &str) -> Running {
    fs::write(scratch.path("server.toml"), text).unwrap();
    Running::start(holdall(&["serve", "--config", &scratch.text("server.toml")]))
}

fn shown(running: &Running, name: &str) -> String {
    let mut wire = running.connect();
    wire.send(b"stats settings\r\n");
    let reply = wire.read_until(b"END\r\n");
    let reply = String::from_utf8(reply).unwrap();
    let line = reply.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {reply}")).to_owned()
}

#[test]
fn what_can_change_does_on_sighup_and_the_rest_is_named() {
    let scratch = Scratch::new();
    let running = serve(&scratch, "port = -1\nverbose = 1\nmemory_limit = 64\nconn_limit = 40\n");
    assert_eq!(
        (shown(&running, "maxbytes"), shown(&running, "maxconns")),
        ("67108864".to_owned(), "40".to_owned())
    );
    let changed = "port = -1\nverbose = 1\nmemory_limit = 128\nthreads = 1\nconn_limit = 50\n\
                   slab_automove = 0\nlru_crawler = false\ntransient_ttl = 7\n";
    fs::write(scratch.path("server.toml"), changed).unwrap();
    running.signal(Signal::HUP);
    wait_for("the last change", || running.log().contains("lru_crawler: the default -> false"));
    for line in [
        "holdall: settings: memory_limit: 64 -> 128\n",
        "holdall: settings: conn_limit: 40 -> 50\n",
        "holdall: warning: settings: threads: the default -> 1 needs --takeover or a restart\n",
    ] {
        assert!(running.log().contains(line), "{line}{}", running.log());
    }
    for (name, value) in [
        ("maxbytes", "134217728"),
        ("maxconns", "50"),
        ("slab_automove", "0"),
        ("lru_crawler", "no"),
        ("temporary_ttl", "7"),
    ] {
        assert_eq!(shown(&running, name), value, "{name}");
    }
    fs::write(scratch.path("server.toml"), "port = -1\nmemory_limit = \"2x\"\n").unwrap();
    running.signal(Signal::HUP);
    wait_for("the refusal", || running.log().contains("settings: as they were, because "));
    assert!(running.log().contains("server.toml:2:16: memory_limit: "), "{}", running.log());
    assert_eq!(shown(&running, "maxbytes"), "134217728");
}

#[test]
fn a_connection_over_the_new_limit_is_refused() {
    let scratch = Scratch::new();
    let running = serve(&scratch, "port = -1\nverbose = 1\nconn_limit = 40\n");
    let mut first = running.connect();
    first.expect(b"version\r\n", b"VERSION 1.6.45\r\n");
    fs::write(scratch.path("server.toml"), "port = -1\nverbose = 1\nconn_limit = 1\n").unwrap();
    running.signal(Signal::HUP);
    wait_for("the change", || running.log().contains("conn_limit: 40 -> 1"));
    let mut second = running.connect();
    second.expect(b"", b"ERROR Too many open connections\r\n");
    first.expect(b"version\r\n", b"VERSION 1.6.45\r\n");
}

#[test]
fn diff_says_how_each_difference_goes_away() {
    let scratch = Scratch::new();
    let running = serve(&scratch, "port = -1\nmemory_limit = 64\n");
    let address = format!("127.0.0.1:{}", running.port("TCP INET"));
    let file = scratch.text("server.toml");
    let (status, said, _) = config(&["diff", &file, &address]);
    assert_eq!((status, said.as_str()), (Some(0), ""));
    fs::write(&file, "port = -1\nmemory_limit = 128\nlease_interval = 3\n").unwrap();
    let (status, said, _) = config(&["diff", &file, &address]);
    let want = "memory_limit: the server has 67108864, wanted is 134217728; changes on SIGHUP\n\
                lease_interval: the server has 10, wanted is 3; needs --takeover or a restart\n";
    assert_eq!((status, said.as_str()), (Some(1), want));
    let (status, said, _) = config(&["diff", "--json", &file, &address]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(status, Some(1));
    assert_eq!(said["differences"][1]["changes_on"], "--takeover");
    drop(running);
    let (status, _, why) = config(&["diff", &file, &address]);
    assert_eq!(status, Some(1));
    assert!(why.starts_with(&format!("holdall config: {address}: ")), "{why}");
}

#[test]
fn check_and_show_go_by_file_and_environment() {
    let scratch = Scratch::new();
    let file = scratch.text("server.toml");
    fs::write(&file, "threads = 3\nmemory_limt = 5\n").unwrap();
    let (status, said, _) = config(&["check", &file]);
    assert_eq!(status, Some(2));
    assert!(
        said.contains("server.toml:2:1") && said.contains("did you mean memory_limit?"),
        "{said}"
    );
    assert!(!said.contains('\u{1b}'), "colours for a pipe: {said:?}");
    let (status, _, why) = config(&["show", "--config", &file]);
    assert_eq!(status, Some(2));
    assert!(why.contains("server.toml:2:1: "), "{why}");
    fs::write(&file, "threads = 3\n").unwrap();
    assert_eq!(config(&["check", &file]), (Some(0), String::new(), String::new()));
    let mut show = holdall(&["config", "show", "--json", "--config", &file, "-c", "7"]);
    show.env("HOLDALL_IDLE_TIMEOUT", "9");
    let shown: serde_json::Value = serde_json::from_str(&stdout(&output(&mut show))).unwrap();
    for (name, value, origin) in [
        ("threads", "3", format!("{file}:1")),
        ("conn_limit", "7", "flag".to_owned()),
        ("idle_timeout", "9", "HOLDALL_IDLE_TIMEOUT".to_owned()),
        ("memory_limit", "64", "default".to_owned()),
    ] {
        let all = shown.as_array().unwrap();
        let setting = all.iter().find(|setting| setting["name"] == name).unwrap();
        assert_eq!((&setting["value"], &setting["origin"]), (&value.into(), &origin.into()));
    }
    assert_eq!(config(&["show", "--threads", "x"]).0, Some(64));
}
