//! Configurations that change under load, some of them broken: no request fails, and none goes to a
//! wrong server.
//!
//! `RELOADS` is the number of reloads, `CASES` that of mutated configurations.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use e2e::mutate::mutated as damaged;
use testkit::rng::seed_from_env;
use testkit::wire::End;
use testkit::{Kind, Launch, Rng, Router, Server, Wire};

const KEYS: usize = 50;

fn count(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |count| count.parse().unwrap())
}

/// A configuration, in one of several forms, that routes keys with `a` to the first server and
/// those with `b` to the second.
fn config(servers: &[SocketAddr], turn: u64) -> String {
    let [a, b] = servers else { panic!("two servers") };
    let pools = format!(r#""A": {{"servers": ["{a}"]}}, "B": {{"servers": ["{b}"]}}"#);
    match turn % 3 {
        0 => format!(
            r#"{{"pools": {{{pools}}}, "route": {{"type": "PrefixSelectorRoute", "policies": {{"a": "PoolRoute|A", "b": "PoolRoute|B"}}}}}} /* {turn} */"#
        ),
        1 => format!(
            r#"{{"pools": {{{pools}, "spare": {{"servers": ["127.0.0.1:{}"]}}}}, "named_handles": [{{"type": "PoolRoute", "pool": "A", "name": "first"}}],
               "route": {{"type": "PrefixSelectorRoute", "policies": {{"a": "first"}}, "wildcard": {{"type": "FailoverRoute", "children": ["PoolRoute|B", "PoolRoute|spare"]}}}}}}"#,
            1 + turn % 1000
        ),
        _ => format!(
            r#"{{"macros": {{"to": {{"type": "macroDef", "params": ["pool"], "result": {{"type": "PoolRoute", "pool": "%pool%", "shadows": []}}}}}},
               "pools": {{{pools}}}, "route": {{"type": "PrefixSelectorRoute", "policies": {{"b": "@to(B)"}}, "wildcard": "@to(A)"}}}} /* {turn} */"#
        ),
    }
}

/// Two servers that have the same keys with different values.
fn servers() -> Vec<Server> {
    let servers: Vec<_> = (0..2).map(|_| Launch::new(Kind::Holdall).start()).collect();
    for (server, name) in servers.iter().zip(["a", "b"]) {
        let mut wire = server.connect();
        for key in (0..KEYS).flat_map(|key| [format!("a{key}"), format!("b{key}")]) {
            wire.expect(format!("set {key} 0 0 1\r\n{name}\r\n").as_bytes(), b"STORED\r\n");
        }
    }
    servers
}

/// Sixteen gets in one write; each must come from the server that its key belongs to.
fn ask(wire: &mut Wire, rng: &mut Rng) {
    let keys: Vec<String> =
        (0..16).map(|_| format!("{}{}", rng.pick(&["a", "b"]), rng.below(KEYS))).collect();
    let request: String = keys.iter().map(|key| format!("get {key}\r\n")).collect();
    let reply: String =
        keys.iter().map(|key| format!("VALUE {key} 0 1\r\n{}\r\nEND\r\n", &key[..1])).collect();
    wire.expect(request.as_bytes(), reply.as_bytes());
}

/// Resources that a leak would increase: open files, and resident memory in KiB, which may vary by
/// pages.
fn held(proxy: &Router) -> (u64, u64) {
    (proxy.stat("ps_open_fd"), proxy.stat("ps_rss") / 1024)
}

#[test]
fn reloads_under_load_fail_and_misroute_no_request() {
    let reloads = count("RELOADS", 100);
    // Memory is compared with its size after this number of reloads.
    let warm = reloads / 2;
    let servers = servers();
    let addrs: Vec<_> = servers.iter().map(Server::addr).collect();
    let workers = ["--num-proxies", "2", "--gather-below", "1"];
    let args = ["--file-observer-poll-period-ms", "2", "--asynclog-disable"];
    let proxy = Router::start(&config(&addrs, 0), &[&workers[..], &args].concat());
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|seed| {
            let (addr, is_over) = (proxy.addr(), Arc::clone(&is_over));
            thread::spawn(move || {
                let (mut wire, mut rng, mut asked) = (Wire::connect(addr), Rng::new(seed), 0);
                while !is_over.load(Ordering::SeqCst) {
                    ask(&mut wire, &mut rng);
                    asked += 16;
                }
                asked
            })
        })
        .collect();
    let (mut taken, mut broken, mut before) = (1, 0, held(&proxy));
    for turn in 1..=reloads {
        if turn == warm {
            before = held(&proxy);
        }
        let good = config(&addrs, turn);
        if turn % 10 == 0 {
            // A truncated file, as on a full disk.
            proxy.replace_config(&good[..good.len() * 2 / 3]);
            broken += 1;
            proxy.wait_for("config_failures", broken);
        } else {
            proxy.replace_config(&good);
            taken += 1;
            proxy.wait_for("config_generation", taken);
        }
    }
    is_over.store(true, Ordering::SeqCst);
    let asked: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    println!("{reloads} reloads, {broken} of them broken; {asked} requests, 0 failed, 0 elsewhere");
    assert!(asked > 0);
    let after = held(&proxy);
    let share = after.1 as f64 / before.1 as f64 - 1.0;
    println!(
        "files {} then {}; memory {} KiB after {warm} reloads, {} at the end ({:+.2} %)",
        before.0,
        after.0,
        before.1,
        after.1,
        share * 100.0
    );
    // The four clients have disconnected, and a configuration may have one more server than
    // another, for each worker.
    assert!(after.0 <= before.0 + 2, "{before:?} {after:?}");
    // A leaked tree would show: a hundred of them take megabytes.
    assert!(share < 0.10, "{before:?} {after:?}");
    // Connections to unused servers are closed, and those in use were kept.
    assert!(proxy.stat("num_servers") <= 3);
}

/// A configuration with random damage is refused or applied, and the proxy keeps running.
#[test]
fn mutated_configurations_are_refused_or_applied() {
    let cases = count("CASES", 50);
    let servers = servers();
    let addrs: Vec<_> = servers.iter().map(Server::addr).collect();
    let args = ["--file-observer-poll-period-ms", "2", "--asynclog-disable", "-t", "200"];
    let mut proxy = Router::start(&config(&addrs, 0), &args);
    let mut rng = Rng::new(seed_from_env());
    let (mut taken, mut refused) = (1, 0);
    for case in 0..cases {
        let text = if case % 2 == 0 {
            mutated(config(&addrs, case), &mut rng)
        } else {
            strange(&addrs, case / 2, &env::temp_dir())
        };
        proxy.replace_config(&text);
        let seen = || (proxy.stat("config_generation"), proxy.stat("config_failures"));
        // A name lookup takes a while.
        let end = std::time::Instant::now() + Duration::from_secs(30);
        while seen() == (taken, refused) {
            assert!(std::time::Instant::now() < end, "neither taken nor refused: {text}");
            thread::sleep(Duration::from_millis(1));
        }
        (taken, refused) = seen();
        let mut wire = proxy.connect();
        wire.send(b"get a1\r\nmn\r\n");
        let (answer, end) = wire.read_until_or_end(b"MN\r\n", Duration::from_secs(20));
        assert_eq!(end, End::Found, "{text}: {}", answer.escape_ascii());
        assert!(proxy.is_running(), "{text}");
    }
    println!("{cases} mutated: {} taken, {refused} refused", taken - 1);
    assert!(refused > cases / 4);
    harmless_files(&mut proxy, refused);
    proxy.replace_config(&config(&addrs, 7777));
    proxy.wait_for("config_generation", taken + 1);
    ask(&mut proxy.connect(), &mut rng);
}

/// The file is not a regular file, cannot be read, is missing, or has 100 MB: each is refused, and
/// the old configuration stays. `refused` is the number of refusals so far.
fn harmless_files(proxy: &mut Router, mut refused: u64) {
    let path = proxy.config_path().to_owned();
    let away = path.with_extension("away");
    let mut refuse = |what: &str, proxy: &mut Router| {
        refused += 1;
        let end = std::time::Instant::now() + Duration::from_secs(120);
        while proxy.stat("config_failures") < refused {
            assert!(std::time::Instant::now() < end, "never refused: {what}");
            thread::sleep(Duration::from_millis(5));
        }
        refused = proxy.stat("config_failures");
        assert!(proxy.is_running(), "{what}");
        let mut wire = proxy.connect();
        wire.send(b"get a1\r\nmn\r\n");
        let (answer, end) = wire.read_until_or_end(b"MN\r\n", Duration::from_secs(20));
        assert_eq!(end, End::Found, "{what}: {}", answer.escape_ascii());
    };
    fs::rename(&path, &away).unwrap();
    refuse("it is gone", proxy);
    fs::create_dir(&path).unwrap();
    refuse("it is a folder", proxy);
    fs::remove_dir(&path).unwrap();
    fs::write(&path, [0xff; 100]).unwrap();
    refuse("it is no text", proxy);
    fs::File::create(&path).unwrap().set_len(100 << 20).unwrap();
    refuse("it has 100 MB", proxy);
    fs::remove_file(&away).unwrap();
}

/// A configuration with a manual mistake: something is missing, has another type, is circular, or
/// is far too large.
fn strange(servers: &[SocketAddr], case: u64, folder: &Path) -> String {
    let good = config(servers, case);
    let own = |pools: &str, route: &str| {
        format!(r#"{{"pools": {{{pools}}}, "route": {route}}} // {case}"#)
    };
    let pool = format!(r#""A": {{"servers": ["{}"]}}"#, servers[0]);
    match case % 12 {
        0 => good.replace("\"PrefixSelectorRoute\"", "7"),
        1 => good.replace("\"policies\"", "\"policies\": [], \"x\""),
        2 => good.replace("{\"servers\": [", "{\"servers\": {\"a\": ["),
        3 => own(r#""A": {"inherit": "B"}, "B": {"inherit": "A"}"#, r#""PoolRoute|A""#),
        4 => own(&pool, r#"{"type": "FailoverRoute", "children": [[[[[[["x"]]]]]]]}"#),
        5 => format!(
            r#"{{"named_handles": [{{"name": "a", "type": "FailoverRoute", "children": ["b"]}}, {{"name": "b", "type": "FailoverRoute", "children": ["a"]}}], "route": "a"}} /* {case} */"#
        ),
        6 => own(r#""A": "file:nowhere.json""#, r#""PoolRoute|A""#),
        7 => own(&format!(r#""A": "file:{}""#, folder.display()), r#""PoolRoute|A""#),
        // The pools that are in use are gone.
        8 => format!(r#"{{"route": "NullRoute"}} // {case}"#),
        9 => own(&pool, r#"{"type": "PoolRoute", "pool": "B"}"#),
        10 => format!("{good}{}", " ".repeat(1 << 20)),
        _ => format!(
            r#"{{"macros": {{"m": {{"type": "macroDef", "params": [], "result": "@m()"}}}}, "route": "@m()"}} /* {case} */"#
        ),
    }
}

/// The text, damaged; it always differs from the original.
fn mutated(text: String, rng: &mut Rng) -> String {
    let mut bytes = damaged(text.into_bytes(), rng);
    bytes.push(b' ');
    String::from_utf8_lossy(&bytes).into_owned()
}
