//! Requests to servers that accept more or fewer commands: probed once per connection, in order,
//! and at no client's cost.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::{Rig, Scripted, patient, quick};
use spans::Context;
use testkit::Server;
use upstream::{Command, Failure, Outcome, OwnedReply, Request, Settings};

/// A request that only servers with leases accept.
const LEASES: Request<'_> =
    Request { number: 5, value: b"flush_all", ..Request::new(Command::LeaseSet, b"k") };

fn over(server: &Server) -> Rig {
    let address = server.addr();
    Rig::new(patient(), move |servers| servers.at(address))
}

#[track_caller]
fn refused(reply: &OwnedReply, why: &str) {
    assert_eq!(reply.outcome, Outcome::Failed(Failure::ClientError));
    assert_eq!(String::from_utf8_lossy(&reply.value), why);
}

#[test]
fn each_server_gets_only_commands_it_supports() {
    let servers = [Server::memcached(&[]), Server::holdall(&[])];
    for (server, is_ours) in servers.iter().zip([false, true]) {
        let mut rig = over(server);
        assert_eq!(rig.store(Command::Set, "victim", "v"), Outcome::Stored);
        let set = rig.ask(&LEASES);
        let delete = rig.ask(&Request { exptime: 2, ..Request::new(Command::Delete, b"other") });
        let meta = Request { words: b"H1", ..Request::new(Command::MetaDelete, b"other") };
        let meta = rig.ask(&meta);
        if is_ours {
            assert_eq!(set.outcome, Outcome::NotStored);
            assert_eq!(delete.outcome, Outcome::NotFound);
            assert!(matches!(meta.outcome, Outcome::Meta(_)));
        } else {
            refused(&set, "the server has no leases");
            refused(&delete, "the server has no hold-off");
            refused(&meta, "the server lacks one of these meta flags");
        }
        let own =
            Request { value: b"flush_all", words: b"MX", ..Request::new(Command::MetaSet, b"k") };
        assert_eq!(rig.ask(&own).outcome, Outcome::Failed(Failure::ClientError));
        assert_eq!(rig.get("victim"), Ok(Some("v".to_owned())));
        let totals = rig.registry.report()[0].totals;
        assert_eq!((totals.connects, totals.broken), (1, 0));
    }
}

/// memcached before 1.6.10: it knows `mn`, and takes the length of `ms` for a flag.
fn old_meta(line: &str) -> String {
    match line.split(' ').next().unwrap() {
        "mn" => "MN\r\n".to_owned(),
        "ms" => "CLIENT_ERROR invalid flag\r\n".to_owned(),
        "version" => "VERSION 1.6.9\r\n".to_owned(),
        "set" => String::new(),
        "x" => "STORED\r\n".to_owned(),
        "get" => "END\r\n".to_owned(),
        _ => "ERROR\r\n".to_owned(),
    }
}

#[test]
fn servers_with_old_meta_syntax_are_detected() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    let server = Scripted::new(move |asked| {
        hears.lock().unwrap().push(asked.to_owned());
        Some(asked.split_terminator("\r\n").map(old_meta).collect())
    });
    let mut rig = Rig::new(patient(), |servers| servers.at(server.address));
    let meta = Request { value: b"flush_all", ..Request::new(Command::MetaSet, b"k") };
    refused(&rig.ask(&meta), "the server has no meta commands");
    refused(&rig.ask(&LEASES), "the server has no leases");
    // One probe, and nothing from a client.
    let heard = heard.lock().unwrap().concat();
    assert_eq!(heard.matches("mn leases").count(), 1, "{heard}");
    assert!(!heard.contains("flush_all"), "{heard}");
}

/// The server closes the connection after unknown commands, as twemproxy does.
#[test]
fn a_failed_probe_loses_no_request() {
    let probes = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&probes);
    let server = Scripted::new(move |asked| {
        if asked.contains("mn leases") {
            counts.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        let answers = asked.split_terminator("\r\n").map(|line| match line.split_once(' ') {
            Some(("get", keys)) => {
                let values = keys.split(' ').map(|key| format!("VALUE {key} 0 1\r\nv\r\n"));
                values.chain(["END\r\n".to_owned()]).collect()
            }
            _ => String::new(),
        });
        Some(answers.collect())
    });
    let mut rig = Rig::new(quick(), |servers| servers.at(server.address)).freeze();
    for round in 0..50 {
        // Before the probe, at the same time, and after it.
        let before = rig.submit(&Request::new(Command::Get, b"a"));
        let unknown = rig.submit(&LEASES);
        let behind = rig.submit(&Request::new(Command::Get, b"b"));
        refused(&rig.reply(unknown), "the server has no leases");
        for ticket in [before, behind] {
            assert_eq!(rig.reply(ticket).value, b"v", "round {round}");
        }
    }
    // The server may have been restarted during the first one.
    assert_eq!(probes.load(Ordering::SeqCst), 2);
}

/// A server restarted during a probe is recognized by the next probe.
#[test]
fn a_server_is_probed_again_after_a_lost_probe() {
    let probes = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&probes);
    let server = Scripted::new(move |asked| {
        if asked.contains("mn leases") && counts.fetch_add(1, Ordering::SeqCst) == 0 {
            return None;
        }
        Some(answer_of_holdall(asked))
    });
    let mut rig = Rig::new(quick(), |servers| servers.at(server.address)).freeze();
    let waits = [rig.submit(&LEASES), rig.submit(&Request::new(Command::Get, b"k"))];
    let outcomes = waits.map(|ticket| rig.reply(ticket).outcome);
    assert_eq!(outcomes, [Outcome::NotStored, Outcome::NotFound]);
    assert_eq!(rig.ask(&LEASES).outcome, Outcome::NotStored);
    assert_eq!(probes.load(Ordering::SeqCst), 2);
}

/// A client's later requests do not overtake one that waits for the probe.
#[test]
fn requests_stay_in_order_during_a_probe() {
    let server = Server::memcached(&[]);
    let mut rig = over(&server);
    let set = Request { value: b"new", ..Request::new(Command::MetaSet, b"k") };
    let (old, set) = (rig.submit(&Request::new(Command::Get, b"k")), rig.submit(&set));
    let new = rig.submit(&Request::new(Command::Get, b"k"));
    assert_eq!(rig.reply(old).outcome, Outcome::NotFound);
    assert!(matches!(rig.reply(set).outcome, Outcome::Meta(_)));
    assert_eq!(rig.reply(new).value, b"new");
}

/// The answer of one of our servers to these lines.
fn answer_of_holdall(asked: &str) -> String {
    let answer = |line: &str| match line.split(' ').next() {
        Some("mn") => "MN leases\r\n",
        Some("ms") => "CLIENT_ERROR invalid mode\r\n",
        Some("version") => "VERSION 1.6.45\r\n",
        Some("get") => "END\r\n",
        Some("lease-set") => "NOT_STORED\r\n",
        _ => "",
    };
    asked.split_terminator("\r\n").map(answer).collect()
}

/// One of our servers, which does not answer while the flag is set: it is silent, or closes the
/// connection, like a forwarder whose server is down.
fn intermittent_server(hangs_up: bool) -> (Scripted, Arc<AtomicBool>) {
    let is_away = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&is_away);
    let server = Scripted::new(move |asked| match now.load(Ordering::SeqCst) {
        true => (!hangs_up).then(String::new),
        false => Some(answer_of_holdall(asked)),
    });
    (server, is_away)
}

/// However often it pauses, before and after it was recognized.
#[test]
fn a_paused_server_is_recognized_after_it_resumes() {
    let (server, is_away) = intermittent_server(false);
    let settings = Settings { timeouts_until_tko: 0, ..quick() };
    let mut rig = Rig::new(settings, |servers| servers.at(server.address)).freeze();
    for _ in 0..2 {
        is_away.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            let waits = [rig.submit(&LEASES), rig.submit(&Request::new(Command::Get, b"k"))];
            rig.eventually("it is connected", |rig| {
                rig.turn();
                rig.registry.report()[0].totals.connected == 1
            });
            rig.pass(quick().timeout);
            for ticket in waits {
                assert_eq!(rig.reply(ticket).outcome, Outcome::Failed(Failure::Timeout));
            }
        }
        is_away.store(false, Ordering::SeqCst);
        assert_eq!(rig.ask(&LEASES).outcome, Outcome::NotStored);
    }
}

/// It lacks no command: unsent requests fail over, and it gets requests once it is back.
#[test]
fn a_server_that_closes_after_every_command_is_down() {
    let (server, is_away) = intermittent_server(true);
    let settings = Settings { timeouts_until_tko: 0, ..quick() };
    let mut rig = Rig::new(settings, |servers| servers.at(server.address)).freeze();
    for _ in 0..2 {
        is_away.store(true, Ordering::SeqCst);
        for _ in 0..5 {
            let outcome = rig.ask(&LEASES).outcome;
            assert_eq!(outcome, Outcome::Failed(Failure::RemoteError));
        }
        is_away.store(false, Ordering::SeqCst);
        assert_eq!(rig.ask(&LEASES).outcome, Outcome::NotStored);
    }
}

/// A server with spans, which records its input.
fn tracing(heard: &Arc<Mutex<String>>) -> Scripted {
    let hears = Arc::clone(heard);
    Scripted::new(move |asked| {
        hears.lock().unwrap().push_str(asked);
        let answers = asked.split_terminator("\r\n").map(|line| match line.split(' ').next() {
            Some("mn") if line.ends_with(" traceparent") => "MN leases traceparent\r\n",
            Some("mn") => "MN\r\n",
            Some("ms") => "CLIENT_ERROR invalid mode\r\n",
            Some("version") => "VERSION 1.6.45\r\n",
            Some("get") => "END\r\n",
            _ => "",
        });
        Some(answers.collect())
    })
}

#[test]
fn the_first_traced_request_probes_the_server() {
    let heard = Arc::default();
    let server = tracing(&heard);
    let mut rig = Rig::new(patient(), |servers| servers.at(server.address));
    assert_eq!(rig.get("plain"), Ok(None));
    let cause = Context::begin();
    for key in [&b"a"[..], b"b"] {
        let traced = Request { trace: Some(&cause), ..Request::new(Command::Get, key) };
        assert_eq!(rig.ask(&traced).outcome, Outcome::NotFound);
    }
    assert_eq!(rig.get("plain"), Ok(None));
    let heard = heard.lock().unwrap().clone();
    assert_eq!(heard.matches("mn leases").count(), 1, "{heard}");
    let spans = rig.spans.take();
    assert_eq!(spans.len(), 2);
    for (span, key) in spans.iter().zip(["a", "b"]) {
        assert_eq!((span.parent, span.context.trace), (Some(cause.span), cause.trace));
        let mut context = Vec::new();
        span.context.write(&mut context);
        let context = String::from_utf8(context).unwrap();
        assert!(heard.contains(&format!("mn traceparent {context}\r\nget {key}\r\n")), "{heard}");
    }
    assert_eq!(heard.matches("mn traceparent").count(), 2, "{heard}");
}

/// The server closes the connection after unknown commands, as twemproxy does. Traced requests are
/// answered, and the server is not probed again.
#[test]
fn a_server_that_closes_on_a_trace_probe_is_not_probed_again() {
    let probes = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&probes);
    let server = Scripted::new(move |asked| {
        if asked.contains("mn ") {
            counts.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        Some("END\r\n".repeat(asked.matches("get ").count()))
    });
    let mut rig = Rig::new(quick(), |servers| servers.at(server.address)).freeze();
    let cause = Context::begin();
    for round in 0..10 {
        let traced = Request { trace: Some(&cause), ..Request::new(Command::Get, b"a") };
        assert_eq!(rig.ask(&traced).outcome, Outcome::NotFound, "round {round}");
        // Longer than the time without any probes.
        rig.pass(std::time::Duration::from_secs(61));
    }
    assert_eq!(probes.load(Ordering::SeqCst), 2);
    assert_eq!(rig.spans.take().len(), 10);
}
