//! The server's settings from a file, while it runs, and `holdall config`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::io::{self, BufRead, BufReader, Write};

use common::{Running, Scratch, holdall, http, kill, output, proc_line, stderr, stdout};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use testkit::eventually;

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
fn sighup_applies_live_settings_and_names_the_others() {
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
    eventually("the last change", || running.log().contains("lru_crawler: the default -> false"));
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
    eventually("the refusal", || running.log().contains("settings: unchanged: "));
    assert!(running.log().contains("server.toml:2:16: memory_limit: "), "{}", running.log());
    assert_eq!(shown(&running, "maxbytes"), "134217728");
}

/// The file is replaced and no signal sent. Each difference that `config diff` calls one that
/// changes is gone then, and each other one is left and was named.
#[test]
fn a_changed_file_is_reloaded_as_diff_predicts() {
    let scratch = Scratch::new();
    let running = serve(&scratch, "port = -1\n");
    let address = format!("127.0.0.1:{}", running.port("TCP INET"));
    let changed = "port = -1\nmemory_limit = 128\nconn_limit = 50\neviction = \"bag\"\n\
                   sampling = false\nlease_interval = 3\nstale_seconds = 4\ndrain = 5\n\
                   slab_automove = 0\nslab_automove_ratio = 0.5\ntransient_ttl = 7\n\
                   lru_crawler = false\nlru_crawler_sleep = 8\nlru_crawler_tocrawl = 9\n\
                   verbose = 1\nthreads = 3\nidle_timeout = 60\nmax_item_size = \"2m\"\n";
    fs::write(scratch.path("wanted.toml"), changed).unwrap();
    let wanted = scratch.text("wanted.toml");
    let differences = || {
        let (_, said, _) = config(&["diff", "--json", &wanted, &address]);
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let found = said["differences"].as_array().unwrap().clone();
        let key = |found: &serde_json::Value| found["name"].as_str().unwrap().to_owned();
        let (live, fixed): (Vec<_>, Vec<_>) =
            found.iter().partition(|found| found["changes_on"] == "reload");
        let keys = |found: Vec<&serde_json::Value>| found.into_iter().map(key).collect::<Vec<_>>();
        (keys(live), keys(fixed))
    };
    let (live, fixed) = differences();
    assert_eq!(live.len(), 14, "{live:?}");
    assert_eq!(fixed, ["idle_timeout", "threads", "max_item_size"]);
    fs::copy(&wanted, scratch.path("new.toml")).unwrap();
    fs::rename(scratch.path("new.toml"), scratch.path("server.toml")).unwrap();
    eventually("the change", || differences().0.is_empty());
    assert_eq!(differences().1, fixed);
    for key in &live {
        let line = format!("holdall: settings: {key}: the default -> ");
        assert!(running.log().contains(&line), "{line}{}", running.log());
    }
    for key in &fixed {
        let line = format!("holdall: warning: settings: {key}: the default -> ");
        assert!(running.log().contains(&line), "{line}{}", running.log());
    }
    // And back, which makes the samples anew.
    fs::write(scratch.path("server.toml"), "port = -1\n").unwrap();
    eventually("the defaults", || shown(&running, "sampling") == "yes");
    eventually("the defaults", || shown(&running, "verbosity") == "0");
    assert_eq!(shown(&running, "eviction_policy"), "auto");
    assert_eq!(shown(&running, "drain"), "0");
}

#[test]
fn sampling_is_turned_off_and_on() {
    let scratch = Scratch::new();
    let running = serve(&scratch, "port = -1\n");
    let statistics = |group: &str| {
        let mut wire = running.connect();
        wire.send(format!("stats {group}\r\n").as_bytes());
        String::from_utf8(wire.read_until(b"END\r\n")).unwrap()
    };
    let is_charged = || !statistics("").contains("STAT sampling_bytes 0\r\n");
    let mut wire = running.connect();
    let mut ask = || wire.expect(b"get hot\r\n", b"END\r\n");
    eventually("a hot key", || {
        ask();
        statistics("hotkeys").contains("hot")
    });
    assert!(is_charged());
    fs::write(scratch.path("server.toml"), "port = -1\nsampling = false\n").unwrap();
    running.signal(Signal::HUP);
    eventually("no samples", || !is_charged());
    (0..100).for_each(|_| ask());
    assert!(!statistics("hotkeys").contains(":hot"), "{}", statistics("hotkeys"));
    fs::write(scratch.path("server.toml"), "port = -1\n").unwrap();
    running.signal(Signal::HUP);
    eventually("samples", is_charged);
    eventually("a hot key again", || {
        ask();
        statistics("hotkeys").contains("hot")
    });
}

/// Its log is a full pipe, so the server waits in the middle of its start.
#[test]
fn a_sighup_during_the_servers_start_is_handled_afterwards() {
    let scratch = Scratch::new();
    let (log, mut full) = io::pipe().unwrap();
    full.write_all(&[b'\n'; PIPE_BYTES]).unwrap();
    let memory = scratch.text("memory");
    let mut server = holdall(&["serve", "-p", "-1", "-v", "-m", "64", "-e", &memory])
        .env("MEMCACHED_PORT_FILENAME", scratch.path("ports"))
        .stderr(full)
        .spawn()
        .unwrap();
    let pid = server.id();
    eventually("SIGHUP being caught", || {
        let caught = u64::from_str_radix(&proc_line(pid, "status", "SigCgt:"), 16).unwrap();
        caught & 1 << (Signal::HUP.as_raw() - 1) != 0
    });
    assert!(!scratch.path("ports").exists());
    kill(pid, Signal::HUP);
    let mut lines = BufReader::new(log).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("SIGHUP: reading files again")));
    kill(pid, Signal::TERM);
    assert!(server.wait().unwrap().success());
}

/// What a pipe holds that nobody reads.
const PIPE_BYTES: usize = 64 << 10;

/// The time of drain that is in force is that of the file, not that of the start.
#[test]
fn shutdown_uses_the_drain_time_of_the_last_reload() {
    let scratch = Scratch::new();
    let running = serve(&scratch, "port = -1\ndrain = 3600\n");
    fs::write(scratch.path("server.toml"), "port = -1\n").unwrap();
    running.signal(Signal::HUP);
    eventually("the change", || running.log().contains("drain: 3600 -> the default"));
    running.end();
}

/// The filters of system calls refuse the question for the present folder.
#[test]
fn a_confined_server_with_relative_names_changes_its_settings() {
    let scratch = Scratch::new();
    let port = testkit::process::free_port();
    let settings = format!(
        "port = -1\nmetrics = \"127.0.0.1:{port}\"\ndrop_privileges = true\n\
         auth_file = \"users\"\nnamespaces = \"namespaces\"\nmemory_limit = 64\n"
    );
    fs::write(scratch.path("users"), "one:first\n").unwrap();
    fs::write(scratch.path("namespaces"), "prefix a: max-bytes=1m\n").unwrap();
    fs::write(scratch.path("server.toml"), &settings).unwrap();
    let mut command = holdall(&["serve", "--config", "server.toml"]);
    command.current_dir(scratch.path(""));
    let running = Running::start(command);
    fs::write(scratch.path("server.toml"), settings.replace("= 64", "= 96")).unwrap();
    running.signal(Signal::HUP);
    let change = "settings: memory_limit: 64 -> 96";
    eventually("an end", || running.log().contains(change) || running.log().contains("unchanged"));
    assert!(running.log().contains(change), "{}", running.log());
    let families = http::metrics(([127, 0, 0, 1], port).into());
    let name = "holdall_config_last_reload_successful";
    assert_eq!(http::sample(&families, name, "{part=\"settings\"}"), 1.0);
}

#[test]
fn a_broken_file_changes_nothing_and_shows_in_metrics() {
    let scratch = Scratch::new();
    let port = testkit::process::free_port();
    let good = format!("port = -1\nmetrics = \"127.0.0.1:{port}\"\nmemory_limit = 64\n");
    let running = serve(&scratch, &good);
    let metric = |name: &str| {
        let families = http::metrics(([127, 0, 0, 1], port).into());
        let name = format!("holdall_config_last_reload_{name}");
        http::sample(&families, &name, "{part=\"settings\"}")
    };
    assert_eq!(metric("successful"), 1.0);
    let started_at = metric("success_timestamp_seconds");
    assert!(started_at > 1e9, "{started_at}");
    fs::write(scratch.path("server.toml"), format!("{good}memory_limit = 65\n")).unwrap();
    eventually("the refusal", || running.log().contains("settings: unchanged: "));
    eventually("the gauge", || metric("successful") == 0.0);
    assert_eq!(metric("success_timestamp_seconds"), started_at);
    assert_eq!(shown(&running, "maxbytes"), "67108864");
    fs::write(scratch.path("server.toml"), good.replace("= 64", "= 65")).unwrap();
    eventually("the change", || shown(&running, "maxbytes") == "68157440");
    eventually("the gauge", || metric("successful") == 1.0);
    assert!(metric("success_timestamp_seconds") > started_at);
}

/// Changes how many files a server may open; answers how many it was before.
fn set_files_max(running: &Running, current: Option<u64>) -> Option<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let pid = Pid::from_raw(i32::try_from(running.pid()).unwrap());
    prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap().current
}

/// A user that was removed while the file could not be read must not stay in for good.
#[test]
fn a_file_that_could_not_be_read_is_tried_again() {
    let scratch = Scratch::new();
    fs::write(scratch.path("users"), "one:first\n").unwrap();
    // Limits of another user's process are not ours to change. Without root's rights this does
    // nothing.
    let users = scratch.text("users");
    let settings = format!("port = -1\nuser = \"root\"\nauth_file = \"{users}\"\n");
    let running = serve(&scratch, &settings);
    eventually("the start", || running.log().contains("listening on"));
    let usual = set_files_max(&running, Some(0));
    fs::write(scratch.path("users"), "two:second\n").unwrap();
    eventually("the refusal", || running.log().contains("users and rights: unchanged: "));
    // It is tried some times more.
    std::thread::sleep(std::time::Duration::from_secs(3));
    set_files_max(&running, usual);
    eventually("the change", || running.log().contains("users and rights: read again"));
    assert_eq!(running.log().matches("unchanged: ").count(), 1, "{}", running.log());
}

/// One that was there before must not be locked out by a file that is being written.
#[test]
fn a_file_of_users_is_read_again_when_it_changes() {
    let scratch = Scratch::new();
    fs::write(scratch.path("users"), "one:first\n").unwrap();
    let settings = format!("port = -1\nauth_file = \"{}\"\n", scratch.text("users"));
    let running = serve(&scratch, &settings);
    let may_log_in = |user: &str| {
        let mut wire = running.connect();
        let login = format!("set x 0 0 {}\r\n{user}\r\n", user.len());
        wire.send(login.as_bytes());
        wire.read_until(b"\r\n") == b"STORED\r\n"
    };
    assert!(may_log_in("one first") && !may_log_in("two second"));
    fs::write(scratch.path("users"), "two:second\n").unwrap();
    eventually("the change", || running.log().contains("users and rights: read again"));
    assert!(!may_log_in("one first") && may_log_in("two second"));
    assert!(!running.log().contains("settings: "), "{}", running.log());
}

#[test]
fn a_connection_over_the_new_limit_is_refused() {
    let scratch = Scratch::new();
    let running = serve(&scratch, "port = -1\nverbose = 1\nconn_limit = 40\n");
    let mut first = running.connect();
    first.expect(b"version\r\n", b"VERSION 1.6.45\r\n");
    fs::write(scratch.path("server.toml"), "port = -1\nverbose = 1\nconn_limit = 1\n").unwrap();
    running.signal(Signal::HUP);
    eventually("the change", || running.log().contains("conn_limit: 40 -> 1"));
    let mut second = running.connect();
    second.expect(b"", b"ERROR Too many open connections\r\n");
    first.expect(b"version\r\n", b"VERSION 1.6.45\r\n");
}

#[test]
fn diff_shows_how_to_apply_each_difference() {
    let scratch = Scratch::new();
    let running = serve(&scratch, "port = -1\nmemory_limit = 64\n");
    let address = format!("127.0.0.1:{}", running.port("TCP INET"));
    let file = scratch.text("server.toml");
    let (status, said, _) = config(&["diff", &file, &address]);
    assert_eq!((status, said.as_str()), (Some(0), ""));
    fs::write(&file, "port = -1\nmemory_limit = 128\nmax_item_size = \"2m\"\n").unwrap();
    let (status, said, _) = config(&["diff", &file, &address]);
    let want = "memory_limit: the server has 67108864, wanted is 134217728; changes on reload\n\
                max_item_size: the server has 1048576, wanted is 2097152; needs --takeover or a restart\n";
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

/// The server's own filter too, after it changed while the server ran.
#[test]
fn diff_compares_log_settings() {
    let scratch = Scratch::new();
    let running = serve(&scratch, "port = -1\n");
    let address = format!("127.0.0.1:{}", running.port("TCP INET"));
    let file = scratch.text("server.toml");
    let settings = "port = -1\nlog_filter = \"commands=debug,warn\"\n";
    fs::write(&file, format!("{settings}log_format = \"json\"\n")).unwrap();
    let (status, said, _) = config(&["diff", &file, &address]);
    let format = "log_format: the server has text, wanted is json; needs --takeover or a restart\n";
    let filter =
        "log_filter: the server has info, wanted is commands=debug,warn; changes on reload\n";
    assert_eq!((status, said), (Some(1), format!("{format}{filter}")));
    running.signal(Signal::HUP);
    eventually("the change", || config(&["diff", &file, &address]).1 == format);
}

#[test]
fn check_and_show_read_file_and_environment() {
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
