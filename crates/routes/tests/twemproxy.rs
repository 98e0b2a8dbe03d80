//! A pool of twemproxy with `auto_eject_hosts`: a failing server is ejected for a time, and
//! returns.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Rig, Scripted, quick};
use routeconf::{MemorySources, Params, load};
use routes::{Plan, TreeFlags};
use upstream::Failure;

/// A server that answers each get with its name, or closes the connection while it is down.
struct Named {
    server: Scripted,
    is_away: Arc<AtomicBool>,
}

impl Named {
    fn new(name: &'static str) -> Self {
        let is_away = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_away);
        let server = Scripted::new(move |asked| {
            let answer = |line: &str| match line.strip_prefix("get ") {
                Some(key) => format!("VALUE {key} 0 {}\r\n{name}\r\nEND\r\n", name.len()),
                None => "VERSION 1\r\n".to_owned(),
            };
            (!theirs.load(Ordering::SeqCst)).then(|| asked.lines().map(answer).collect())
        });
        Self { server, is_away }
    }
}

/// The servers have names in the configuration, so that keys are distributed independently of
/// ports.
fn rig(servers: &[Named], distribution: &str) -> Rig {
    let named = servers.iter().zip(["alpha", "beta"]);
    let servers: String =
        named.map(|(one, name)| format!("   - {}:1 {name}\n", one.server.address)).collect();
    let text = format!(
        "a:\n  listen: 127.0.0.1:1\n  hash: murmur\n  distribution: {distribution}\n  auto_eject_hosts: true\n  \
         server_failure_limit: 2\n  server_retry_timeout: 1000\n  servers:\n{servers}"
    );
    let mut nothing = MemorySources::default();
    let loaded = match load("n.yml", &text, &Params::default(), &mut nothing) {
        Ok(loaded) => loaded,
        Err(rejected) => panic!("{}", rejected.render()),
    };
    let plan = Plan::new(loaded.config, quick(), TreeFlags::default()).unwrap();
    Rig::over(|upstream| plan.tree(upstream)).freeze()
}

/// The servers that have keys; a failure counts as the name `-`.
fn homes(rig: &mut Rig) -> Vec<String> {
    let mut names: Vec<String> = (0..30)
        .map(|number| match rig.get(&format!("k{number}")) {
            Ok(name) => name.unwrap(),
            Err(_) => "-".to_owned(),
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Lets time pass in steps shorter than any timeout for an answer, each with a turn for the
/// servers' replies, until both have keys.
#[track_caller]
fn comes_back(rig: &mut Rig) {
    rig.eventually("they are back", |rig| {
        rig.pass(Duration::from_millis(10));
        homes(rig) == ["one", "two"]
    });
}

#[test]
fn a_failed_server_is_ejected_for_a_time() {
    for distribution in ["ketama", "modula", "random"] {
        let servers = [Named::new("one"), Named::new("two")];
        let mut rig = rig(&servers, distribution);
        assert_eq!(homes(&mut rig), ["one", "two"], "{distribution}");
        servers[1].is_away.store(true, Ordering::SeqCst);
        // After two failures, no request goes there.
        assert_eq!(homes(&mut rig), ["-", "one"], "{distribution}");
        assert_eq!(homes(&mut rig), ["one"], "{distribution}");
        rig.pass(Duration::from_millis(900));
        assert_eq!(homes(&mut rig), ["one"], "{distribution}: not yet");
        rig.pass(Duration::from_millis(200));
        assert_eq!(homes(&mut rig), ["-", "one"], "{distribution}: it is tried again");
        servers[1].is_away.store(false, Ordering::SeqCst);
        // It is ejected, and receives no requests during that time.
        rig.pass(Duration::from_millis(1100));
        comes_back(&mut rig);
    }
}

#[test]
fn every_key_fails_at_once_if_all_servers_are_ejected() {
    let servers = [Named::new("one"), Named::new("two")];
    let mut rig = rig(&servers, "ketama");
    servers.iter().for_each(|one| one.is_away.store(true, Ordering::SeqCst));
    homes(&mut rig);
    homes(&mut rig);
    let asked = rig.registry.report().iter().map(|one| one.totals.asked).sum::<u64>();
    assert_eq!(rig.get("k"), Err(Failure::ConnectError));
    let still = rig.registry.report().iter().map(|one| one.totals.asked).sum::<u64>();
    assert_eq!(asked, still, "somebody was asked");
    servers.iter().for_each(|one| one.is_away.store(false, Ordering::SeqCst));
    // No server receives requests during that time.
    rig.pass(Duration::from_millis(1100));
    comes_back(&mut rig);
}
