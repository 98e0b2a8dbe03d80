//! Configurations that change under load, some of them broken: no request fails, and none goes where it should not.
//!
//! `RELOADS` is the number of reloads, `CASES` that of mutated configurations.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::env;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use testkit::rng::seed_from_env;
use testkit::wire::End;
use testkit::{Kind, Launch, Rng, Router, Server, Wire};

const KEYS: usize = 50;

fn count(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |count| count.parse().unwrap())
}

/// Keys with `a` go to the first server and those with `b` to the second, said in one of several ways.
fn config(servers: &[SocketAddr], turn: u64) -> String {
    let [a, b] = servers else { panic!("two servers") };
    let pools = format!(r#""A": {{"servers": ["{a}"]}}, "B": {{"servers": ["{b}"]}}"#);
    match turn % 3 {
        0 => format!(
            r#"{{"pools": {{{pools}}}, "route": {{"type": "PrefixSelectorRoute", "policies": {{"a": "PoolRoute|A", "b": "PoolRoute|B"}}}}}} // {turn}"#
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

/// Two servers that have the same keys with values of their own.
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

#[test]
fn reloads_under_load_fail_no_request_and_change_no_route() {
    let reloads = count("RELOADS", 100);
    let servers = servers();
    let addrs: Vec<_> = servers.iter().map(Server::addr).collect();
    let args = ["--num-proxies", "2", "--file-observer-poll-period-ms", "2", "--asynclog-disable"];
    let proxy = Router::start(&config(&addrs, 0), &args);
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
    let (mut taken, mut broken) = (1, 0);
    for turn in 1..=reloads {
        let good = config(&addrs, turn);
        if turn % 10 == 0 {
            // A file that was cut, as by a disk that is full.
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
    // Connections to servers that are used no more are gone, and those in use were kept.
    assert!(proxy.stat("num_servers") <= 3);
}

/// A configuration in which something was changed that nobody meant: it is refused or taken, and the proxy goes on.
#[test]
fn mutated_configurations_do_no_harm() {
    let cases = count("CASES", 50);
    let servers = servers();
    let addrs: Vec<_> = servers.iter().map(Server::addr).collect();
    let args = ["--file-observer-poll-period-ms", "2", "--asynclog-disable", "-t", "200"];
    let mut proxy = Router::start(&config(&addrs, 0), &args);
    let mut rng = Rng::new(seed_from_env());
    let (mut taken, mut refused) = (1, 0);
    for case in 0..cases {
        let text = mutated(config(&addrs, case), &mut rng);
        proxy.replace_config(&text);
        let seen = || (proxy.stat("config_generation"), proxy.stat("config_failures"));
        // A name that is looked up takes a while.
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
    proxy.replace_config(&config(&addrs, 7777));
    proxy.wait_for("config_generation", taken + 1);
    ask(&mut proxy.connect(), &mut rng);
}

/// Cuts, repeats or changes a part of the text.
fn mutated(text: String, rng: &mut Rng) -> String {
    let mut bytes = text.into_bytes();
    let at = rng.below(bytes.len());
    let end = (at + 1 + rng.below(20)).min(bytes.len());
    match rng.below(6) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => bytes[at] ^= 1 << rng.below(7),
        3 => bytes.splice(at..at, b"{[\"%@(".repeat(rng.below(2000))).for_each(drop),
        // Another port, another name: what is well-formed may be taken.
        4 => {
            let digit = bytes.iter().skip(at).position(u8::is_ascii_digit);
            bytes[at + digit.unwrap_or(0)] = b'1';
        }
        _ => {
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part).for_each(drop);
        }
    }
    bytes.push(b' ');
    String::from_utf8_lossy(&bytes).into_owned()
}
